"""Rows become counts: checked arrays, ids, groups, and the table of sums that every calibrator reads.

In: columns of confidence, correct, groups and ids. Out: a :class:`~qacal.tally.tally.Tally`, one line per distinct
confidence and group. Open `tally.py` first.
"""
