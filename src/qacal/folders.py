"""A folder that appears whole, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qacal.errors import InputError


@contextmanager
def folder_whole(path: str | Path) -> Iterator[Path]:
    """Yield a new folder to fill; it takes the place of `path` once all is written, and vanishes if that fails."""
    target = Path(os.path.realpath(path))
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
