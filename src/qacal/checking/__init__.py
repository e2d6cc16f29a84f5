"""Check records before a fit: what stops the fit, what misleads it, and what the rows are enough for.

In: a file or table of records. Out: a :class:`RecordsCheck`: findings with remedies. Open `records_check.py` first.
"""

from qacal.checking.findings import Finding
from qacal.checking.records_check import RecordsCheck, check

__all__ = ["Finding", "RecordsCheck", "check"]
