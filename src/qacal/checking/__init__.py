"""Looking at records before a fit: what stops it, what misleads it, and what the rows are enough for."""

from qacal.checking.findings import Finding
from qacal.checking.records_check import RecordsCheck, check

__all__ = ["Finding", "RecordsCheck", "check"]
