"""The identity of a row: a seeded 64-bit hash of its id.

Splits, halves, folds, blocks and the order among equal confidences all come from this hash and never from the position
of a row or a random draw. So the same rows in another order, on another machine, give the same result; and all rows of
one question fall on the same side of every split.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.parameters import is_number, is_whole, shown
from qacal.tally.arrays import ArrayLike, Bools, Floats, Hashes, Ints, column_of_any, require_length

# The constants of the splitmix64 generator (Steele, Lea and Flood, 2014): an invertible mixing of 64 bits.
_STEP = 0x9E3779B97F4A7C15
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_MOST_SEED = 2**64
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))

Number = TypeVar("Number", bound=np.number[Any])


def mix(bits: Hashes, seed: int = 0) -> Hashes:
    """Scatter 64-bit values: equal in, equal out; neighbours in, unrelated out.

    >>> mix(np.array([1, 2], dtype=np.uint64)) % 256
    array([193, 206], dtype=uint64)
    """
    z = np.asarray(bits + np.uint64(_STEP * (int(seed) + 1) % 2**64))
    z ^= z >> _SHIFTS[0]
    z *= _MULTIPLIERS[0]
    z ^= z >> _SHIFTS[1]
    z *= _MULTIPLIERS[1]
    z ^= z >> _SHIFTS[2]
    return z


def check_seed(seed: object) -> None:
    """Raise if a seed is not a whole number."""
    if not is_whole(seed, -_MOST_SEED, _MOST_SEED):
        raise InputError(f"seed is {shown(seed)}; expected a whole number.")


def id_hashes(ids: ArrayLike, length: int) -> Hashes:
    """Hash ids (whole numbers or text) to 64 bits, the same on every machine and in every version.

    The number 7 and the text "7" are the same id, since files write ids in both ways.

    >>> id_hashes([7, 8], 2) == id_hashes(["7", "8"], 2)
    array([ True,  True])
    """
    values = column_of_any(ids, "ids")
    if values.ndim != 1:
        raise InputError(f"ids have shape {values.shape}; expected one id per row.")
    require_length(values, length, "ids")
    if values.dtype.kind == "u":
        return mix(values.astype(np.uint64))
    if values.dtype.kind == "i":
        return mix(values.astype(np.int64).view(np.uint64))
    listed = values.tolist()
    if not {*map(type, listed)} <= {str, int}:
        for at, value in enumerate(listed):
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise InputError(f"ids[{at}] is {value!r}; expected text or a whole number.")
    hashes: dict[object, int] = dict.fromkeys(listed, 0)
    digests = [blake2b(str(value).encode("utf-8", "surrogatepass"), digest_size=8).digest() for value in hashes]
    hashes.update(zip(hashes, np.frombuffer(b"".join(digests), dtype="<u8").tolist(), strict=True))
    # The first character tells most texts from numbers.
    candidates = (value for value in hashes if not isinstance(value, str) or value[:1] in "-0123456789")
    whole = [value for value in candidates if _is_whole(value)]
    mixed = mix(np.array([int(str(value)) % 2**64 for value in whole], dtype=np.uint64))
    hashes.update(zip(whole, mixed.tolist(), strict=True))
    return np.fromiter((hashes[value] for value in listed), np.uint64, length)


def as_tie(hashes: Hashes) -> Hashes:
    """Hash once more, so that the order among ties has nothing to do with any split."""
    return mix(hashes, seed=2**32)


def tie_order(hashes: Hashes | None, h: Floats) -> Hashes:
    """Return the order among equal confidences; without ids, raise if any are equal."""
    in_order = np.sort(h)
    equal = in_order[1:] == in_order[:-1]
    if hashes is None:
        if equal.any():
            value = float(in_order[1:][equal][0])
            raise InputError(
                f"confidence {value} occurs more than once (to seven decimals); "
                'ties="jitter" orders equal confidences by id. Pass ids=, or use ties="merge".'
            )
        return np.zeros(len(h), dtype=np.uint64)
    tie = as_tie(hashes)
    if equal.any():
        order = np.lexsort([tie, h])
        same = (h[order][1:] == h[order][:-1]) & (tie[order][1:] == tie[order][:-1])
        if same.any():
            one, two = sorted(order[np.argmax(same) : np.argmax(same) + 2].tolist())
            raise InputError(
                f"rows {one} and {two} have the same id and the same confidence {float(h[one])}; "
                'ties="jitter" needs an id for every row: one of question and answer, say.'
            )
    return tie


def value_hashes(*columns: Floats | Ints) -> Hashes:
    """Hash rows without ids by their values, and by the number of equal rows before them.

    Rows that are equal in every column can be swapped, so "the second of three equal rows" identifies a row in any
    order of the file. A row's label is among its values, so the hash of the whole set is mixed in: otherwise equal rows
    would go to the same half in every set, and halves would depend on labels. So another set, even a part of this one,
    is split differently; splits that must agree between files need ids.
    """
    length = len(columns[0])
    order = np.lexsort(columns)
    new = np.zeros(length, dtype=bool)
    new[0] = True
    hashes = np.zeros(length, dtype=np.uint64)
    for column in columns:
        in_order = column[order]
        new[1:] |= in_order[1:] != in_order[:-1]
        hashes = mix(hashes ^ in_order.view(np.uint64))
    hashes = mix(hashes ^ mix(_places_in_runs(new), seed=1))
    out = np.empty(length, dtype=np.uint64)
    out[order] = mix(hashes ^ mix(hashes.sum(dtype=np.uint64, keepdims=True)))
    return out


def row_hashes(Z: Floats) -> Hashes:
    """Return a hash of the bits of each row of a matrix; there must be no -0.0.

    The bits of each number are multiplied by a random number of its column, added up and mixed.
    """
    # The high bits of a float vary most, and do not affect the low bits of a product.
    bits = np.ascontiguousarray(Z).view(np.uint64)
    bits = bits ^ (bits >> np.uint64(32))
    bits *= mix(np.arange(Z.shape[1], dtype=np.uint64)) | np.uint64(1)
    return mix(bits.sum(axis=1, dtype=np.uint64))


def combined(hashes: Hashes, *columns: Hashes | Floats | Ints) -> Hashes:
    """Return one hash per row of hashes and further columns together.

    >>> asked, stated = id_hashes(["q1", "q1", "q1"], 3), np.array([0.9, 0.8, 0.9])
    >>> surplus(combined(asked, stated))
    1
    """
    # Mixed first: ids may be mixed questions, which would cancel out with a column of the same questions.
    hashes = mix(hashes, 2**41)
    for place, column in enumerate(columns):
        hashes = mix(hashes ^ mix(np.ascontiguousarray(column).view(np.uint64), place))
    return hashes


def distinct(hashes: NDArray[Number]) -> NDArray[Number]:
    """Return the hashes in order, each of them once: np.unique without its table, which takes a hundred times as long.

    >>> distinct(np.array([7, 1, 7]))
    array([1, 7])
    """
    in_order = np.sort(hashes)
    later = in_order[1:]
    return np.concatenate([in_order[:1], later[later != in_order[:-1]]])


def surplus(hashes: Hashes | Ints) -> int:
    """Return how many rows have the hash of an earlier row."""
    return len(hashes) - len(distinct(hashes))


def one_of_each(hashes: Hashes, *columns: Floats | Ints) -> Bools:
    """Choose one row of every question: as if drawn among its rows, the same in any order of the file.

    columns : the values that tell the rows of one question apart. They enter a hash together with the question and the
        number of equal rows before, so that all rows are equally likely.

    >>> hashes = id_hashes(["q1", "q1", "q2"], 3)
    >>> int(one_of_each(hashes, np.array([0.9, 0.8, 0.9])).sum())
    2
    """
    in_order = np.sort(hashes)
    if (in_order[1:] != in_order[:-1]).all():
        return np.ones(len(hashes), dtype=bool)
    key = combined(hashes, *columns)
    # Equal rows count separately: nine wrong answers and a correct one are ten rows to draw from.
    order = np.argsort(key, kind="stable")
    occurrence = np.empty(len(key), dtype=np.uint64)
    occurrence[order] = _places_in_runs(np.append(True, key[order][1:] != key[order][:-1]))
    key = mix(key ^ mix(occurrence, 2**42))
    order = np.lexsort([key, hashes])
    in_order = hashes[order]
    chosen = np.zeros(len(hashes), dtype=bool)
    chosen[order[np.concatenate([[True], in_order[1:] != in_order[:-1]])]] = True
    return chosen


def drawn_labels(share: Floats, hashes: Hashes) -> Floats:
    """Return the label of one row of each document, drawn by hash, from the share of its rows that are correct.

    >>> drawn_labels(np.array([0.0, 1.0, 0.5, 0.5]), id_hashes(["d1", "d2", "d3", "d4"], 4))
    array([0., 1., 0., 1.])
    """
    return np.asarray(mix(hashes, 2**43) / 2.0**64 < share, dtype=np.float64)


def _places_in_runs(is_new: Bools) -> Hashes:
    """Return the place of each value in its run, from 0; `is_new` marks where runs start."""
    place = np.arange(len(is_new))
    return (place - np.maximum.accumulate(np.where(is_new, place, 0))).astype(np.uint64)


def blocks(hashes: Hashes, count: int, seed: int = 0) -> Ints:
    """Put rows into `count` blocks; rows with one id share a block.

    ``blocks(h, 256) % 2 == blocks(h, 2)``: more blocks refine fewer ones if the counts divide.
    """
    check_seed(seed)
    return (mix(hashes, seed) % np.uint64(count)).astype(np.int64)


def split(ids: ArrayLike, shares: Sequence[float] = (0.5, 0.5), seed: int = 0) -> Ints:
    """Return the part that each row falls into, by its id: all rows of a question fall into the same part.

    shares : the sizes of the parts, which add up to 1. The paper uses (0.2, 0.6, 0.1, 0.1).

    The same ids give the same parts in any order, in any file, on any machine; another seed gives other parts.

    Examples
    --------
    >>> part = split(["q1", "q1", "q2", "q3", "q4"], shares=(0.6, 0.4))
    >>> bool(part[0] == part[1]), sorted(set(part.tolist()))
    (True, [0, 1])
    """
    parts = list(shares) if isinstance(shares, list | tuple) or np.ndim(shares) == 1 else []
    if not all(is_number(part, 0, 1) for part in parts) or abs(sum(parts) - 1) > 1e-9:
        raise InputError(f"shares are {shown(shares)}; expected parts that add up to 1, such as (0.5, 0.5).")
    check_seed(seed)
    edges = np.cumsum(np.asarray(parts, dtype=np.float64))
    # No other split uses this seed, so the parts are independent of the halves and blocks within them.
    column = column_of_any(ids, "ids")
    place = mix(id_hashes(column, len(column)), seed + 2**40) / 2.0**64
    return np.searchsorted(edges[:-1], place, side="right")


def _is_whole(value: object) -> bool:
    """Return whether an id is a whole number of 64 bits, or the usual text of one."""
    if isinstance(value, str):
        if not (len(value) <= 20 and value.isascii() and value.removeprefix("-").isdecimal()):
            return False
        number = int(value)
        return str(number) == value and -(2**63) <= number < 2**64
    return isinstance(value, int) and -(2**63) <= value < 2**64


class Repeats:
    """Counts rows with the hash of an earlier row, in eight bytes of memory for each row.

    >>> ids = Repeats()
    >>> for part in (["q1", "q2"], ["q3", "q1"]):
    ...     ids.add(id_hashes(part, 2))
    >>> ids.rows, ids.surplus()
    (4, 1)
    """

    def __init__(self) -> None:
        self.rows = 0
        # By their highest bits: a part is sorted alone, so that there is no second copy of all of them.
        self._parts: list[list[Hashes]] = [[] for _ in range(16)]

    def add(self, hashes: Hashes) -> None:
        self.rows += len(hashes)
        part = hashes >> np.uint64(60)
        for number, hashes_of_part in enumerate(self._parts):
            hashes_of_part.append(hashes[part == number])

    def surplus(self) -> int:
        """Return how many rows have the hash of an earlier row."""
        return sum(surplus(np.concatenate(part)) for part in self._parts if part)


class HashSample:
    """A sample of at most `most` rows, those with the lowest hashes: it does not depend on the order of rows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ids: Hashes = np.empty(0, dtype=np.uint64)
        self._rows: list[Any] = []

    def add(self, ids: Hashes, rows: Any) -> None:
        """Add rows with the hashes of their ids."""
        self._ids = np.concatenate([self._ids, mix(ids, 2)])
        self._rows.append(rows)
        if len(self._ids) > 2 * self._most:
            self._shrink()

    def rows(self) -> Any:
        self._shrink()
        return self._rows[0]

    def _shrink(self) -> None:
        rows = np.concatenate(self._rows)
        if len(rows) > self._most:
            kept = np.sort(np.argsort(self._ids, kind="stable")[: self._most])
            rows, self._ids = rows[kept], self._ids[kept]
        self._rows = [rows]
