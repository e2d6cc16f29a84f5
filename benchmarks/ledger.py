"""What has been measured, one line of JSON each, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl


@dataclass(frozen=True, order=True)
class Key:
    """What a line is of."""

    embedder: str
    combination: str
    split: int
    method: str


class Ledger:
    """A file of lines; of two lines with one key, the later counts.

    remeasure : methods whose lines of earlier runs do not count, since their code has changed.
    """

    def __init__(self, path: Path, remeasure: Collection[str] = ()) -> None:
        self._path = path
        self._lines: dict[Key, dict[str, float]] = {}
        for text in path.read_text().splitlines() if path.is_file() else ():
            line = json.loads(text)
            key = Key(**line.pop("key"))
            if key.method not in remeasure:
                self._lines[key] = line

    def __contains__(self, key: Key) -> bool:
        return key in self._lines

    def add(self, key: Key, measures: dict[str, float]) -> None:
        """Remember a line, at once in the file too."""
        with self._path.open("a") as file:
            file.write(json.dumps({"key": asdict(key), **measures}) + "\n")
        self._lines[key] = measures

    def table(self, keys: Collection[Key]) -> pl.DataFrame:
        """Return the lines of these keys that there are."""
        found = [{**asdict(key), **self._lines[key]} for key in sorted(set(keys) & self._lines.keys())]
        return pl.DataFrame(found)
