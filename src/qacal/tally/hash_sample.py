"""A sample of rows that does not depend on their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from qacal.tally.arrays import Hashes
from qacal.tally.ids import mix


class HashSample:
    """Keeps the rows with the lowest hashes, at most so many: a sample that does not depend on the order of rows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ids: Hashes = np.empty(0, dtype=np.uint64)
        self._rows: list[Any] = []

    def add(self, ids: Hashes, rows: Any) -> None:
        """Take more rows, known by the hashes of their ids."""
        self._ids = np.concatenate([self._ids, mix(ids, 2)])
        self._rows.append(rows)
        if len(self._ids) > 2 * self._most:
            self._shrink()

    def rows(self) -> Any:
        """Return the rows that were kept."""
        self._shrink()
        return self._rows[0]

    def _shrink(self) -> None:
        rows = np.concatenate(self._rows)
        if len(rows) > self._most:
            kept = np.sort(np.argsort(self._ids, kind="stable")[: self._most])
            rows, self._ids = rows[kept], self._ids[kept]
        self._rows = [rows]
