"""Records in and out: files and tables of questions, answers, confidences and labels.

In: a path, a frame of pandas, polars or Arrow, a list of objects, or an object of columns. Out: validated batches of
rows (`Batch`); then the same rows with further columns, in the type of the input or as a file that is written whole.

Open `reading.py` first: `read` is the way of all rows. It takes tables (`table.py`) from files (`files.py`, with
`text_files.py` for encodings, packed files and JSON lists) or from memory, has each column checked (`columns.py`), and
counts bad rows. `provenance.py` compares where rows come from; `writers.py` writes rows and output files.
"""
