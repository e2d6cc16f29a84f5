"""Output files: complete, or not there at all. Standard output, devices and pipes stay what they are."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from qacal.errors import InputError
from qacal.storage import patiently

_ENDING = ".qacal-tmp"
PARTS = ".parts"
"""The ending of the folder beside a temporary file that holds parts of it."""
# A temporary file that nobody wrote to for a day was left by a process that was killed.
_ABANDONED = 86_400.0

_DESCRIPTORS = {"/dev/stdout": 1, "/dev/stderr": 2}
# The number of links to follow, as in the kernel.
_LINKS = 40
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a path to write to; it takes the place of `path` once all is written, and vanishes if that fails.

    For ``-`` (standard output), a device or a pipe, everything is sent at the end. A link is followed.
    """
    if is_stream(path):
        with tempfile.TemporaryDirectory(prefix="qacal-") as folder:
            temporary = Path(folder) / "output"
            yield temporary
            with temporary.open("rb") as file, _stream(path) as out:
                shutil.copyfileobj(file, out)
                out.flush()
        return
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise InputError(f"{target} is a folder; expected the name of a file to write.")
    _sweep(target)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_ENDING, dir=target.parent)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}.") from None
    os.close(descriptor)  # Windows does not rename a file that is open
    temporary = Path(name)
    try:
        with naming_full_disk(target):
            yield temporary
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~mask)
            patiently(lambda: os.replace(temporary, target))
    finally:
        temporary.unlink(missing_ok=True)


def _sweep(target: Path) -> None:
    """Remove temporary files of `target`, and their parts, that a killed process left behind."""
    pattern = re.escape(f".{target.name}.") + "[a-z0-9_]{8}" + re.escape(_ENDING) + f"({re.escape(PARTS)})?"
    oldest = time.time() - _ABANDONED
    with suppress(OSError):  # the folder cannot be listed, or somebody else removes them meanwhile
        for path in target.parent.iterdir():
            if re.fullmatch(pattern, path.name) and path.lstat().st_mtime < oldest:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


@contextmanager
def naming_full_disk(target: Path) -> Iterator[None]:
    """Turn the error of a full disk into one that names the output."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise InputError(f"{target} cannot be written: {error.strerror}. The old file, if any, is unchanged.") from None


def is_stream(path: str | Path) -> bool:
    """Return whether a path is standard output, a device or a pipe: all but regular files and folders."""
    # A descriptor may lead to a regular file, if the output is redirected; it must not be replaced.
    if _descriptor(path) is not None or os.path.abspath(path).startswith("/proc/"):
        return True
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def is_standard_output(path: str | Path) -> bool:
    """Return whether a path is a name of standard output."""
    return _descriptor(path) == 1


def _descriptor(path: str | Path) -> int | None:
    """Return the number of the descriptor that a path stands for, directly or as a link; None for other paths."""
    name = "/dev/stdout" if str(path) == "-" else os.path.abspath(path)
    for _ in range(_LINKS):
        if name in _DESCRIPTORS:
            return _DESCRIPTORS[name]
        if match := re.fullmatch(rf"/(?:dev|proc/(?:self|thread-self|{os.getpid()}))/fd/(\d+)", name):
            return int(match[1])
        if not os.path.islink(name):
            break
        name = os.path.abspath(os.path.join(os.path.dirname(name), os.readlink(name)))
    return None


@contextmanager
def _stream(path: str | Path) -> Iterator[IO[bytes]]:
    descriptor = _descriptor(path)
    if descriptor == 1:
        yield sys.stdout.buffer
        return
    try:
        # Opening /dev/stderr again would overwrite the file that it is redirected to.
        opened = os.open(path, os.O_WRONLY | os.O_APPEND) if descriptor is None else os.dup(descriptor)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
    sys.stderr.flush()
    with open(opened, "wb") as file:
        yield file
