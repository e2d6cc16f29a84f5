"""The command line: one file per command.

In: options and files. Out: files, tables on standard output and notes on standard error. Open `main.py` first;
`options.py` has what the commands share.
"""
