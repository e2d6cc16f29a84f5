"""Temporary files and folders, and what a process that was killed left of them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Between making a temporary file and locking it.
_MOMENT = 5.0
# Temporary folders: the start of their names, and what the file ``lock`` in them says.
_START = ".qacal-tmp-"
_MAGIC = b"qacal made this folder and removes it.\n"
# What the tempfile module adds to names.
_RANDOM = "[a-z0-9_]{8}"

PARTS = ".parts"
"""What the folder beside a temporary file is called, with parts of what will be in it."""


@contextmanager
def held(descriptor: int, content: bytes = b"") -> Iterator[None]:
    """Hold a temporary file's lock, which tells others that whoever made it is still alive; close it at the end.

    content : what to write to the file first.
    """
    try:
        os.write(descriptor, content)
        if os.name == "posix":
            import fcntl

            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    finally:
        os.close(descriptor)
    if os.name != "posix":
        # Windows has no such locks, and renames and removes no file that is open.
        yield


def sweep_files(folder: Path, start: str, end: str) -> None:
    """Remove temporary files, and their parts, that a killed process left behind.

    Only private files with exactly the names that ``tempfile.mkstemp(end, start)`` gives are removed.
    """
    for path in _named(folder, re.escape(start) + _RANDOM + re.escape(end)):
        if _is_private(path, stat.S_IFREG | 0o600) and _is_unlocked(path):
            shutil.rmtree(f"{path}{PARTS}", ignore_errors=True)
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _sweep_folders(folder: Path) -> None:
    """Remove temporary folders that a killed process left behind; only private ones whose lock says they are ours."""
    for path in _named(folder, re.escape(_START) + _RANDOM):
        if _is_private(path, stat.S_IFDIR | 0o700) and _is_unlocked(path / "lock", _MAGIC):
            shutil.rmtree(path, ignore_errors=True)


def _named(folder: Path, pattern: str) -> list[Path]:
    """Return the members of a folder whose whole names match; none if the folder cannot be listed."""
    with suppress(OSError):
        return [folder / name for name in os.listdir(folder) if re.fullmatch(pattern, name)]
    return []


def _is_private(path: Path, mode: int) -> bool:
    """Return whether a file or folder is of exactly this type and mode, and belongs to this user."""
    with suppress(OSError):
        found = path.lstat()
        # Folders inherit the set-group-ID bit.
        is_mode = found.st_mode & ~stat.S_ISGID == mode
        return os.name == "posix" and is_mode and found.st_uid == os.getuid()
    return False


def _is_unlocked(path: Path, content: bytes | None = None) -> bool:
    """Return whether nobody holds the lock of a file, which has this content if one is named."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # It may have been made this moment, by somebody who is about to lock it.
        if time.time() - os.fstat(descriptor).st_mtime < _MOMENT:
            return False
        if content is not None and os.read(descriptor, len(content) + 1) != content:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is removed at the end; what killed processes left behind is removed first."""
    _sweep_folders(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_START) as name:
        descriptor = os.open(
            Path(name) / "lock", os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o600
        )
        with held(descriptor, _MAGIC):
            yield Path(name)
