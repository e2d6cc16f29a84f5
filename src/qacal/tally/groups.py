"""Which group a row is in: one partition's column, flat or a tree.

A flat column is any label per row (subject, tenant, cluster number). A tree column is where a row stands in a
binary tree of depth :math:`D`: its `path` bits and its `exit`, the first depth at which it has no group. The
group at depth :math:`d` is ``path >> (D - d)`` if ``d < exit``, so one column holds the groups of all depths.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.parameters import is_whole, shown
from qacal.storage import require, require_between, require_columns, rises
from qacal.tally.arrays import ArrayLike, Bools, Ints, column_of_any, is_missing, require_length

NO_GROUP = -1
"""The code of a row that no group claims: outside a tree's bounds, or its label is missing."""

MAX_DEPTH = 20
"""A tree of depth 20 has a million groups; deeper ones have no rows in them."""


@dataclass(frozen=True)
class Paths:
    """Where rows stand in a tree of depth `depth`.

    path : the turns taken, one bit a level, the root's turn highest; `depth` bits.
    exit : the first depth at which the row has no group; ``depth + 1`` for rows that reach a leaf.

    >>> paths = Paths(path=np.array([5, 4, 5]), exit=np.array([4, 4, 2]), depth=3)
    >>> paths.groups(3), paths.groups(1)
    (array([ 5,  4, -1]), array([1, 1, 1]))
    """

    path: Ints
    exit: Ints
    depth: int

    def groups(self, depth: int) -> Ints:
        """Return the group of each row at one depth, `NO_GROUP` where it has left the tree before."""
        return as_grouping(self, len(self)).at_depth(depth).leaves()

    def __len__(self) -> int:
        return len(self.path)


@dataclass(frozen=True, eq=False)
class GroupColumn:
    """One partition's column: a code per row (or per cell of a tally), and what the codes mean.

    code : int64; the label itself where labels are whole numbers, else a position in `labels`; in a tree the
        path bits.
    labels : the sorted labels, for columns whose labels are not whole numbers.
    exit, depth : for trees, as in :class:`Paths`.
    """

    code: Ints
    labels: tuple[Any, ...] | None = None
    exit: Ints | None = None
    depth: int | None = None

    def __len__(self) -> int:
        return len(self.code)

    @property
    def is_tree(self) -> bool:
        """True if the codes are paths of a tree, so that groups have ancestors."""
        return self.depth is not None

    def take(self, index: Ints | Bools | slice) -> GroupColumn:
        """Return the column of some of the rows."""
        exits = None if self.exit is None else self.exit[index]
        return GroupColumn(self.code[index], self.labels, exits, self.depth)

    def leaves(self, max_depth: int | None = None) -> Ints:
        """Return the finest group of each row, or its group at `max_depth`; `NO_GROUP` for rows that left the tree."""
        if max_depth is not None:
            return self.at_depth(max_depth).leaves()
        if self.depth is None or self.exit is None:
            return self.code
        return np.where(self.exit > self.depth, self.code, NO_GROUP)

    def distinct(self) -> GroupColumn:
        """Return the groups themselves, each once and in order: what a fitted map has to remember of the rows.

        >>> as_grouping(["law", None, "art", "law"], 4).distinct().code
        array([0, 1])
        """
        # Cells come in runs of one group; of each run one is enough, and few are left to sort.
        new = np.ones(len(self), dtype=bool)
        new[1:] = self.code[1:] != self.code[:-1]
        if self.depth is None or self.exit is None:
            return GroupColumn(np.unique(self.code[new & (self.code != NO_GROUP)]), self.labels)
        new[1:] |= self.exit[1:] != self.exit[:-1]
        code, exits = np.divmod(np.unique(self.code[new] * (self.depth + 2) + self.exit[new]), self.depth + 2)
        return GroupColumn(code, None, exits, self.depth)

    def validate(self) -> None:
        """Refuse what :meth:`distinct` cannot have made."""
        if self.depth is None:
            require(self.exit is None, "a column without a depth is no tree, and has no exits.")
            require_columns(len(self.code.ravel()), code=self.code)
            largest = 2**63 - 1 if self.labels is None else len(self.labels) - 1
            require_between(0, largest, code=self.code)
            require(rises(self.code), "the codes of groups must rise.")
            _require_distinct(self.labels or ())
        else:
            require(self.labels is None and self.exit is not None, "the groups of a tree have exits and no labels.")
            self._validate_tree(self.depth)

    def _validate_tree(self, depth: int) -> None:
        require(0 <= depth <= MAX_DEPTH, f"the tree has depth {depth}; expected 0 to {MAX_DEPTH}.")
        exits = self.exit if self.exit is not None else self.code
        require_columns(len(self.code.ravel()), code=self.code, exit=exits)
        require_between(0, 2**depth - 1, code=self.code)
        require_between(0, depth + 1, exit=exits)
        require(rises(self.code * (depth + 2) + exits), "the places in a tree must rise.")

    def at_depth(self, depth: int) -> GroupColumn:
        """Return a tree's column cut at a depth: the same places, known up to there."""
        if self.depth is None or self.exit is None:
            raise InputError("These groups are a flat column; only a tree (Paths) has depths.")
        if not 0 <= depth <= self.depth:
            raise InputError(f"depth is {depth}; this tree has depths 0 to {self.depth}.")
        return GroupColumn(self.code >> (self.depth - depth), None, np.minimum(self.exit, depth + 1), depth)

    def label(self, code: int) -> Any:
        """Return what a code stands for; None for `NO_GROUP`."""
        if code == NO_GROUP:
            return None
        return int(code) if self.labels is None else self.labels[code]

    def decode(self, codes: Ints) -> list[Any]:
        """Return the labels of many codes."""
        names = {int(code): self.label(int(code)) for code in np.unique(codes)}
        return [names[code] for code in codes.tolist()]

    def encode(self, values: ArrayLike, length: int) -> GroupColumn:
        """Return other rows' labels in this column's codes; labels it does not know become `NO_GROUP`."""
        other = as_grouping(values, length)
        if self.depth is not None:
            return self._encode_tree(other)
        if self.labels is None and other.labels is None:
            return other
        self._require_common_type(other)
        known = _codes(self.labels) if self.labels is not None else None
        return GroupColumn(_translate(other, known), self.labels)

    def _require_common_type(self, other: GroupColumn) -> None:
        """Refuse labels of which none can be known, since they are of another type than those of the fit."""
        mine, theirs = _types(self), _types(other)
        if mine and theirs and not mine & theirs:
            raise InputError(
                f"groups are {', '.join(sorted(theirs))}; those of the fit are {', '.join(sorted(mine))}. Convert them."
            )

    def _encode_tree(self, other: GroupColumn) -> GroupColumn:
        if other.depth is not None:
            if self.depth is None or other.depth < self.depth:
                raise InputError(f"groups are paths of a tree of depth {other.depth}; the fit had depth {self.depth}.")
            return other.at_depth(self.depth) if other.depth > self.depth else other
        if other.labels is not None or self.depth is None:
            raise InputError("groups must be leaf numbers or Paths: this calibrator was fitted on a tree.")
        code = other.code
        known = (code >= 0) & (code < 2**self.depth)
        exits = np.where(known, self.depth + 1, 0)
        return GroupColumn(np.where(known, code, 0), None, exits, self.depth)


def as_grouping(values: ArrayLike | Paths | GroupColumn, length: int) -> GroupColumn:
    """Return any column of labels as a :class:`Grouping`; missing labels become `NO_GROUP`.

    >>> column = as_grouping(["law", None, "art"], 3)
    >>> column.code, column.labels
    (array([ 1, -1,  0]), ('art', 'law'))
    """
    if isinstance(values, GroupColumn):
        require_length(values.code, length, "groups")
        return values
    if isinstance(values, Paths):
        require_length(values.path, length, "groups")
        return _from_paths(values)
    array = column_of_any(values, "groups")
    if array.ndim != 1:
        raise InputError(f"groups have shape {array.shape}; give one label per row, as a list or column.")
    require_length(array, length, "groups")
    if array.dtype.kind in "iu" and _are_codes(array):
        return GroupColumn(array.astype(np.int64, copy=False))
    if array.dtype.kind == "f":
        return _from_floats(array.astype(np.float64))
    if array.dtype.kind in "mM":  # numpy lists nanoseconds as numbers, and one of them for a date that is missing
        array = array.astype(f"{array.dtype.kind}8[us]")
    return _from_objects(array.tolist())


def merge_labels(first: GroupColumn, second: GroupColumn) -> tuple[GroupColumn, GroupColumn]:
    """Bring two columns of one partition to the same codes, so that they can be joined."""
    if first.depth != second.depth:
        raise InputError(f"groups come from trees of depth {first.depth} and {second.depth}; they do not add.")
    if first.labels == second.labels:
        return first, second
    both = _sorted_labels({*(first.labels or _used(first)), *(second.labels or _used(second))})
    known = _codes(both)
    return GroupColumn(_translate(first, known), both), GroupColumn(_translate(second, known), both)


def _types(column: GroupColumn) -> set[str]:
    if column.labels is None:
        return {"int"} if (column.code != NO_GROUP).any() else set()
    return {type(label).__name__ for label in column.labels}


def _from_paths(paths: Paths) -> GroupColumn:
    if not is_whole(paths.depth, 0, MAX_DEPTH):
        raise InputError(f"the tree has depth {shown(paths.depth)}; expected 0 to {MAX_DEPTH}.")
    path, exits = _whole(paths.path, "path"), _whole(paths.exit, "exit")
    require_length(exits, len(path), "exit")
    wrong = (path < 0) | (path >= 2**paths.depth)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(f"path[{at}] is {path[at]}; a tree of depth {paths.depth} has paths below {2**paths.depth}.")
    # Turns after the exit mean nothing; cleared, equal places are equal codes.
    kept = np.clip(exits - 1, 0, paths.depth)
    drop = paths.depth - kept
    return GroupColumn((path >> drop) << drop, None, np.clip(exits, 0, paths.depth + 1), paths.depth)


def _whole(values: Any, name: str) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1 or (len(array) > 0 and array.dtype.kind not in "iu"):
        raise InputError(f"{name} is {shown(values)}; expected a column of whole numbers.")
    return array.astype(np.int64)


def _are_codes(array: np.ndarray[Any, Any]) -> bool:
    """Whole numbers serve as codes unless they are negative (-1 alone means no group) or too large for int64."""
    return len(array) == 0 or (int(array.min()) >= NO_GROUP and int(array.max()) < 2**63)


def _from_floats(array: np.ndarray[Any, np.dtype[np.float64]]) -> GroupColumn:
    """Whole numbers in a float column (a table with gaps makes them so) are whole numbers again."""
    present = ~np.isnan(array)
    filled = np.where(present, array, NO_GROUP)
    if np.array_equal(filled, np.rint(filled)) and np.abs(filled).max(initial=0) < 2**53:
        return as_grouping(filled.astype(np.int64), len(filled))
    return _from_objects(array.tolist())


def _from_objects(values: list[Any]) -> GroupColumn:
    values = [None if is_missing(value) or _is_no_group(value) else value for value in values]
    for at, value in enumerate(values):
        if not isinstance(value, Hashable):
            raise InputError(f"groups[{at}] is {value!r}; expected a label, such as text or a number.")
    if all(value is None or _is_code(value) for value in values):
        return GroupColumn(np.array([NO_GROUP if value is None else value for value in values], dtype=np.int64))
    labels = _sorted_labels({value for value in values if value is not None})
    known = _codes(labels)
    return GroupColumn(np.array([known.get(value, NO_GROUP) for value in values], dtype=np.int64), labels)


def _is_no_group(value: Any) -> bool:
    return isinstance(value, int) and value == NO_GROUP


def _is_code(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _sorted_labels(labels: set[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(labels, key=lambda label: (type(label).__name__, label)))
    except TypeError:  # labels without an order of their own, such as members of an Enum
        return tuple(sorted(labels, key=lambda label: (type(label).__name__, repr(label))))


def _require_distinct(labels: tuple[Any, ...]) -> None:
    # Of 1, 1.0 and True, which are equal, a column has one.
    is_sorted = len(set(labels)) == len(labels) and _sorted_labels(set(labels)) == labels
    require(is_sorted, "labels must be sorted, each of them once.")


def _codes(labels: tuple[Any, ...]) -> dict[Any, int]:
    return {label: code for code, label in enumerate(labels)}


def _used(column: GroupColumn) -> Iterator[int]:
    return (int(code) for code in np.unique(column.code) if code != NO_GROUP)


def _translate(column: GroupColumn, known: dict[Any, int] | None) -> Ints:
    """Rewrite codes by way of their labels; `known` None means that a whole number is its own code."""
    used, where = np.unique(column.code, return_inverse=True)
    labels = (column.label(int(code)) for code in used)
    if known is None:
        codes = [label if isinstance(label, int) else NO_GROUP for label in labels]
    else:
        codes = [known.get(label, NO_GROUP) for label in labels]
    return np.array(codes, dtype=np.int64)[where]
