"""Folders that appear whole, or not at all; and folders that are replaced while others read them."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from qacal.errors import InputError, QacalError

T = TypeVar("T")

# How often a reader begins again if what it reads is replaced meanwhile: somebody would have to save in a loop.
_TRIES = 100
# A file that Windows does not let go of is tried again after these seconds: readers have it open for a moment.
_WAITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
# What nobody names, and has not been touched for so many seconds, was left behind by a process that was killed.
_LEFT_BEHIND = 3600.0
# Between making a temporary file and locking it.
_MOMENT = 5.0
# Temporary folders: the start of their names, and what the file ``lock`` in them says.
_START = ".qacal-tmp-"
_MAGIC = b"qacal made this folder and removes it.\n"
# What the tempfile module adds to names, and what we add.
_RANDOM = "[a-z0-9_]{8}"
_HEX = "[0-9a-f]{8}"


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


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a new folder to fill; it takes the place of `path` once all is written, and vanishes if that fails."""
    target = Path(os.path.realpath(path))
    _remove_left_behind(_named(target.parent, re.escape(f".{target.name}.new-") + _HEX))
    # Beside the target: a name can only be given within one file system.
    mark = secrets.token_hex(4)
    fresh, old = (target.with_name(f".{target.name}.{word}-{mark}") for word in ("new", "old"))
    try:
        fresh.mkdir()
        yield fresh
        take_name(fresh, old, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def take_name(fresh: Path, old: Path, target: Path) -> None:
    """Give the new folder the target's name; if that fails, the old one has it again."""
    was_there = target.exists()
    if was_there:
        os.rename(target, old)
    try:
        os.rename(fresh, target)
    except BaseException:
        if was_there:
            os.rename(old, target)
        raise


def require_replaceable(path: str | Path, is_ours: Callable[[str], bool], what: str) -> None:
    """Refuse a folder with anything in it that is no part of what would replace it."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist.")
    if target.exists() and not target.is_dir():
        raise InputError(f"{path} is a file; {what} is a folder. Choose another name.")
    foreign = sorted(member.name for member in target.iterdir() if not is_ours(member.name)) if target.exists() else []
    if foreign:
        there = ", ".join(foreign[:5])
        raise InputError(f"{path} holds what is no part of {what} ({there}), and is not replaced. Choose another name.")


# A document, and folders that it names: readers of the document find these whole, however often they are replaced


def new_mark(target: Path) -> str:
    """Return what to add to the names of new parts, so that they are nobody else's; nothing if the target is new."""
    return f"-{secrets.token_hex(4)}" if target.is_dir() and any(target.iterdir()) else ""


@contextmanager
def replaced_whole(target: Path, document: str, named: Callable[[Path], Iterable[str]]) -> Iterator[Path]:
    """Yield a new folder to fill with a document and the folders that it names; then they take their place in `target`.

    Folders are moved first, and then, in one atomic step, the document. Whoever stops this, and whenever, leaves the
    document of before or the new one, with all that it names. The folders of before are removed at the end; readers who
    miss them begin again with the new document (see :func:`read_whole`).

    target : a path without links in it.
    document : the name of the document.
    named : from the path of a document to the folders that it names; none if there is no such document.
    """
    _remove_left_behind(_named(target.parent, re.escape(f".{target.name}.new-") + _HEX))
    # Beside the target: a name can only be given within one file system.
    fresh = target.with_name(f".{target.name}.new-{secrets.token_hex(4)}")
    try:
        fresh.mkdir()
        yield fresh
        flush_directory(fresh)
        _put_in_place(fresh, target, document, named)
    finally:
        _remove([fresh])


def _put_in_place(fresh: Path, target: Path, document: str, named: Callable[[Path], Iterable[str]]) -> None:
    try:
        os.rename(fresh, target)
    except OSError:
        if not target.is_dir():
            raise
        _move_parts(fresh, target, document, named)
    # The new document is in place by now: that the disk may forget it is no reason to call it unsaved.
    with suppress(OSError):
        flush_directory(target)
        flush_directory(target.parent)


def _move_parts(fresh: Path, target: Path, document: str, named: Callable[[Path], Iterable[str]]) -> None:
    moved = []
    try:
        for part in [part for part in fresh.iterdir() if part.name != document]:
            os.rename(part, target / part.name)
            moved.append(part.name)
        flush_directory(target)
        before = {*named(target / document)}
        patiently(lambda: os.replace(fresh / document, target / document))
    except BaseException:
        # It may have come just after the last step.
        _remove(target / name for name in {*moved} - {*named(target / document)})
        raise
    now = {*named(target / document)}
    _remove(target / name for name in before - now)
    _remove_left_behind(part for part in target.iterdir() if part.is_dir() and part.name not in now)


def read_whole(document: Path, read_file: Callable[[Path], bytes], read: Callable[[bytes], T]) -> T:
    """Return what is made of a document and the folders that it names, all from the same save.

    read_file : returns the content of the document.
    read : makes something of the content, and reads the folders.
    """
    for _ in range(_TRIES):
        content = read_file(document)
        try:
            return read(content)
        except QacalError:
            if read_file(document) == content:
                raise
    raise InputError(f"{document} was replaced {_TRIES} times while it was read; try again when nobody saves.")


def patiently(act: Callable[[], T]) -> T:
    """Do something with a file; on Windows, again and again for a second if another process has it open."""
    for wait in _WAITS if os.name == "nt" else ():
        try:
            return act()
        except PermissionError:
            time.sleep(wait)
    return act()


def write_flushed(path: Path, content: bytes) -> None:
    """Write a new file, and have it on the disk."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Have the names in a directory written to the disk."""
    if os.name != "posix":  # elsewhere directories cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_left_behind(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _LEFT_BEHIND:
                _remove([folder])


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
