"""Jobs over many Parquet files, on this machine or on a cluster: embed, apply, tally, and a fit made of these.

In: Parquet files (paths, folders, globs, object-store URLs), and a model or the names of columns. Out: Parquet files,
one for each part of an input, or a tally. An engine (`engines.py`) only hands out parts. Open `jobs.py` first.
"""
