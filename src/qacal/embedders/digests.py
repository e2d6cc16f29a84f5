"""Digests: how a saved model knows that an embedder is the one it was fitted with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


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
