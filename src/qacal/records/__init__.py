"""Records in and out: files and tables of questions, answers, confidences and labels.

In: a path, a table of any library, or a list of dicts. Out: checked batches of rows, and files written whole. Open
`reading.py` first.
"""
