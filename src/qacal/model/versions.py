"""Earlier versions of a saved model, in a folder beside it: ``model.versions`` has those that were in ``model``.

A version has the first digits of its digest as name. The model is replaced in one step, by a refit or by an earlier
version that is put back; before that, the version that was there is kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from qacal.errors import InputError, some_of
from qacal.model.model import QACalibrator
from qacal.model.model_set import ModelSet
from qacal.model.saved import load
from qacal.storage import version_of

_DIGITS = 12


@dataclass(frozen=True)
class Version:
    """A version of a model.

    since : when it was kept; for the present one, when it was saved. In seconds since 1970.
    is_present : whether it is the one in the folder of the model.
    """

    name: str
    path: Path
    since: float
    is_present: bool


def replaced(path: str | Path, model: QACalibrator | ModelSet) -> str:
    """Save a model in the place of another one, which is kept; return the name of the version that was there."""
    before = version_of(path)[:_DIGITS]
    folder = _folder(path)
    if (folder / before).exists():
        os.utime(folder / before)  # it is now the one that was kept last
    else:
        folder.mkdir(exist_ok=True)
        load(path).save(folder / before)
    model.save(path)
    return before


def versions(path: str | Path) -> list[Version]:
    """Return all versions of a model, the present one first, then those that were kept last."""
    present = version_of(path)[:_DIGITS]
    folder = _folder(path)
    kept = [
        Version(one.name, one, one.stat().st_mtime, is_present=False)
        for one in (folder.iterdir() if folder.is_dir() else ())
        if one.is_dir() and one.name != present
    ]
    first = Version(present, Path(path), Path(path).stat().st_mtime, is_present=True)
    return [first, *sorted(kept, key=lambda one: -one.since)]


def put_back(path: str | Path, name: str | None = None) -> str:
    """Put a kept version in the place of the present one, which is kept; return its name.

    name : of the version, or its first digits; by default the one that was kept last.
    """
    present, *kept = versions(path)
    if name is not None and present.name.startswith(name) and not any(one.name.startswith(name) for one in kept):
        raise InputError(f"version {present.name} is in use: it is the one in {path}, so there is nothing to put back.")
    if not kept:
        raise InputError(f"no earlier version of {path} is kept; qacal refit keeps the one that it replaces.")
    found = kept[:1] if name is None else [one for one in kept if one.name.startswith(name)]
    if len(found) != 1:
        many = "several versions start" if found else "no kept version starts"
        raise InputError(f"{many} with {name!r}; there are {some_of([one.name for one in kept], 20)}.")
    replaced(path, load(found[0].path))
    return found[0].name


def _folder(path: str | Path) -> Path:
    return Path(f"{os.path.realpath(path)}.versions")
