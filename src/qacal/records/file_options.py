"""How files are read: their encoding, and how much they may hold. One setting for all that is read within a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from qacal.errors import InputError

# Rows have a few kilobytes. As objects in memory, 32 MB of JSON take up to 1 GB; a packed file may have them in 30 kB.
MAX_ROW_MB = 32

OTHER_ENCODING = 'Name it: qacal --encoding {0} COMMAND (in Python: with qacal.file_options(encoding="{0}"): ...).'
NOT_UTF8 = "it may be Latin-1 or Windows-1252, as Excel writes. " + OTHER_ENCODING.format("cp1252")


@dataclass(frozen=True)
class FileOptions:
    """See :func:`file_options`."""

    encoding: str | None = None
    max_row_mb: float = MAX_ROW_MB
    max_unpacked_gb: float | None = None


_DEFAULT = FileOptions()
_current: ContextVar[FileOptions] = ContextVar("file_options", default=_DEFAULT)


def current_options() -> FileOptions:
    """Return the options that hold here."""
    return _current.get()


@contextmanager
def file_options(
    *, encoding: str | None = None, max_row_mb: float | None = None, max_unpacked_gb: float | None = None
) -> Iterator[None]:
    """Read files in this way within a block; what is None stays as it is.

    encoding : of text files; at first UTF-8.
    max_row_mb : the largest row, in megabytes; at first 32.
    max_unpacked_gb : how large gzip files may be when unpacked, in gigabytes; at first a hundred times their size.

    Examples
    --------
    >>> import qacal
    >>> with qacal.file_options(encoding="latin-1"):
    ...     model = qacal.QACalibrator().fit("answers.csv")  # doctest: +SKIP
    """
    try:
        "a".encode(encoding or "utf-8")  # which knows hex and the like for no encodings of text
    except (LookupError, ValueError):
        raise InputError(
            f"there is no encoding {encoding!r} of text; expected a name such as latin-1, cp1252 or utf-16."
        ) from None
    options = {"encoding": encoding, "max_row_mb": max_row_mb, "max_unpacked_gb": max_unpacked_gb}
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    before = _current.set(replace(_current.get(), **changes))
    try:
        yield
    finally:
        _current.reset(before)


def largest_row() -> int:
    """Return the size in bytes that a row may have, unpacked."""
    return int(_current.get().max_row_mb * 2**20)


def too_large(what: str) -> str:
    """Return what to say of something that is larger than a row may be."""
    limit = f"{_current.get().max_row_mb:g} MB"
    return (
        f"{what} is larger than {limit}; if you trust the file, allow more: qacal --max-row-mb MB (in Python: "
        "with qacal.file_options(max_row_mb=MB): ...)"
    )
