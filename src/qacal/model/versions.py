"""Earlier versions of a saved model, in a folder beside it: ``model.versions`` has those that were in ``model``.

A version has the first digits of its digest as name. The model is replaced in one step, by a refit, by an earlier
version that is put back, or by the model of another folder; before that, the version that was there is kept.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from qacal.errors import ArtifactError, InputError, QacalWarning, some_of
from qacal.model.model import QACalibrator
from qacal.model.model_set import ModelSet
from qacal.model.saved import load
from qacal.storage import version_of

_DIGITS = 12


@dataclass(frozen=True)
class Version:
    """A version of a model.

    name : empty if the model is damaged, or not there.
    since : when it was kept, or came into the folder of the model. In seconds since 1970.
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
    kept = folder / before
    if _loaded(kept) is not None:
        os.utime(kept)  # it is now the one that was kept last
    else:  # not there, or a save was killed
        shutil.rmtree(kept, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        load(path).save(kept)
    model.save(path)
    return before


def _loaded(path: str | Path) -> QACalibrator | ModelSet | None:
    """Return a model, None if it is damaged or not there; raise if it may be sound, and cannot be read now."""
    try:
        return load(path)
    except ArtifactError as error:
        if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
            raise  # too many files are open, or its owner is somebody else
        return None


def versions(path: str | Path) -> list[Version]:
    """Return all versions of a model, the present one first, then those that were kept last."""
    folder = _folder(path)
    kept = [
        Version(one.name, one, one.stat().st_mtime, is_present=False)
        for one in (folder.iterdir() if folder.is_dir() else ())
        if one.is_dir()
    ]
    try:
        first = Version(version_of(path)[:_DIGITS], Path(path), Path(path).stat().st_mtime, is_present=True)
    except ArtifactError:
        if not kept:
            raise
        first = Version("", Path(path), 0.0, is_present=True)
    return [first, *sorted((one for one in kept if one.name != first.name), key=lambda one: -one.since)]


def put_back(path: str | Path, name: str | None = None) -> str:
    """Put a kept version in the place of the present one, which is kept; return its name.

    A damaged model is renamed, with a warning.

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
    put(path, found[0].path)
    return found[0].name


def put(path: str | Path, other: str | Path) -> str:
    """Put the model of another folder in the place of a model, which is kept; return the name of what was there.

    A damaged model is renamed, with a warning, and has no name.
    """
    model = load(other)
    present = _loaded(path)
    if present is None:
        _save_in_place_of_damaged(path, model)
        return ""
    if type(present) is not type(model):
        raise InputError(f"of {path} and {other}, one is a single model and the other a set of models.")
    if version_of(path) == version_of(other):
        raise InputError(f"{path} and {other} are the same version ({version_of(path)[:_DIGITS]}), so nothing is put.")
    return replaced(path, model)


def _save_in_place_of_damaged(path: str | Path, model: QACalibrator | ModelSet) -> None:
    if not os.path.lexists(path):
        model.save(path)
        return
    home = os.path.realpath(path)
    aside = f"{home}.damaged-{time.time_ns()}"
    os.rename(home, aside)
    try:
        model.save(path)
    except BaseException:
        os.rename(aside, home)
        raise
    problem = f"{path} held no model that this qacal can read; what was there is now {aside}."
    warnings.warn(problem, QacalWarning, stacklevel=3)


def _folder(path: str | Path) -> Path:
    return Path(f"{os.path.realpath(path)}.versions")
