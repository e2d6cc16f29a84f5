"""The groups of rows: one partition's column of labels, flat or a tree.

A flat column has any label per row (subject, tenant, cluster number). A tree column has each row's place in a binary
tree of depth :math:`D`: its `path` bits and its `exit`, the first depth at which it has no group. The group at depth
:math:`d` is ``path >> (D - d)`` if ``d < exit``, so one column holds the groups of all depths.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.parameters import MOST, Axes, Between, Rising, is_whole, require, rises, shown
from qacal.tally.arrays import ArrayLike, Bools, Ints, column_of_any, is_forked, is_missing, require_length

NO_GROUP = -1
"""The code of a row without a group: it is outside a tree's bounds, or its label is missing."""

MAX_DEPTH = 20
"""A tree of depth 20 has a million groups; deeper ones have no rows in them."""

# A table of a million entries is still small; codes beyond it are searched.
_LARGEST_TABLE = 2**20
_MANY = 8192  # of so many texts polars finds the codes faster than Python


@dataclass(frozen=True)
class Paths:
    """The places of rows in a tree of depth `depth`.

    path : the turns, one bit per level, the turn at the root in the highest bit; `depth` bits.
    exit : the first depth at which the row has no group; ``depth + 1`` for rows that reach a leaf.

    >>> paths = Paths(path=np.array([5, 4, 5]), exit=np.array([4, 4, 2]), depth=3)
    >>> paths.groups(3), paths.groups(1)
    (array([ 5,  4, -1]), array([1, 1, 1]))
    """

    path: Ints
    exit: Ints
    depth: int

    def groups(self, depth: int) -> Ints:
        """Return the group of each row at one depth, `NO_GROUP` if the row left the tree above it."""
        return as_grouping(self, len(self)).leaves(depth)

    def __len__(self) -> int:
        return len(self.path)


@dataclass(frozen=True, eq=False)
class GroupColumn:
    """One partition's column: a code per row (or per cell of a tally), and the meaning of the codes.

    code : the label itself if labels are whole numbers, else a position in `labels`; in a tree the path bits.
    labels : the sorted labels; None if labels are whole numbers.
    exit, depth : for trees, as in :class:`Paths`.

    The constraints are about saved columns, which :meth:`distinct` makes.
    """

    code: Annotated[Ints, Axes("groups"), Between(0, 2**63 - 1)]
    labels: tuple[Any, ...] | None = None
    exit: Annotated[Ints | None, Axes("groups"), Between(0, MAX_DEPTH + 1)] = None
    depth: Annotated[int | None, Between(0, MAX_DEPTH)] = None

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
        if max_depth is None and self.depth is None:
            return self.code
        exits, full, depth = self._tree(max_depth)
        return np.where(exits > depth, self.code >> (full - depth), NO_GROUP)

    def distinct(self) -> GroupColumn:
        """Return the groups, each once and in order.

        >>> as_grouping(["law", None, "art", "law"], 4).distinct().code
        array([0, 1])
        """
        # Cells are in runs of one group; the first of each run is enough, so few are left to sort.
        new = np.ones(len(self), dtype=bool)
        new[1:] = self.code[1:] != self.code[:-1]
        if self.depth is None or self.exit is None:
            return GroupColumn(np.unique(self.code[new & (self.code != NO_GROUP)]), self.labels)
        new[1:] |= self.exit[1:] != self.exit[:-1]
        code, exits = np.divmod(np.unique(self.code[new] * (self.depth + 2) + self.exit[new]), self.depth + 2)
        return GroupColumn(code, None, exits, self.depth)

    def _validate(self) -> None:
        """Raise unless :meth:`distinct` can have made this column."""
        if self.depth is None or self.exit is None:
            require(self.depth is None and self.exit is None, "a tree has a depth and exits, other groups neither.")
            labels = self.labels or ()
            # 1, 1.0 and True are equal, so they are one label.
            is_sorted = len(set(labels)) == len(labels) and _sorted_labels(set(labels)) == labels
            require(is_sorted, "labels must be sorted, each of them once.")
            is_known = self.labels is None or bool((self.code < len(labels)).all())
            require(is_known and rises(self.code), "the codes of groups must rise, and be places of labels.")
            return
        require(self.labels is None, "the groups of a tree have no labels.")
        is_inside = (self.code < 2**self.depth) & (self.exit <= self.depth + 1)
        is_sorted = rises(self.code * (self.depth + 2) + self.exit)
        require(bool(is_inside.all()) and is_sorted, f"the places in a tree of depth {self.depth} must rise.")

    def at_depth(self, depth: int) -> GroupColumn:
        """Return a tree's column cut at a depth."""
        exits, full, depth = self._tree(depth)
        return GroupColumn(self.code >> (full - depth), None, np.minimum(exits, depth + 1), depth)

    def _tree(self, depth: int | None) -> tuple[Ints, int, int]:
        """Return a tree's exits and depth, and the depth that is asked for; None asks for all of it."""
        if self.depth is None or self.exit is None:
            raise InputError("These groups are a flat column; only a tree (Paths) has depths.")
        if depth is not None and not 0 <= depth <= self.depth:
            raise InputError(f"depth is {depth}; this tree has depths 0 to {self.depth}.")
        return self.exit, self.depth, self.depth if depth is None else depth

    def label(self, code: int) -> Any:
        """Return the label of a code; None for `NO_GROUP`."""
        if code == NO_GROUP:
            return None
        return int(code) if self.labels is None else self.labels[code]

    def decode(self, codes: Ints) -> list[Any]:
        """Return the labels of many codes."""
        used, where = distinct(codes)
        labels: list[Any] = object_array(map(self.label, used.tolist()))[where].tolist()
        return labels

    def renamed(self, rename: Callable[[list[Any]], Iterable[Any]]) -> GroupColumn:
        """Return the column with other labels; `rename` gets each label once, and returns None for no group.

        >>> as_grouping(["law", "art", "law"], 3).renamed(lambda labels: [label.upper() for label in labels]).labels
        ('ART', 'LAW')
        """
        used, where = distinct(self.code)
        return as_grouping(object_array(rename([self.label(code) for code in used.tolist()])), len(used)).take(where)

    def names(self, max_depth: int | None = None) -> dict[int, Any]:
        """Return the label of each code among :meth:`leaves`; it is kept, so do not change it."""
        if max_depth not in self._names:
            self._names[max_depth] = {code: self.label(code) for code in np.unique(self.leaves(max_depth)).tolist()}
        return self._names[max_depth]

    @cached_property
    def _names(self) -> dict[int | None, dict[int, Any]]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields alone: what was asked before does not matter."""
        return {name: value for name, value in vars(self).items() if name != "_names"}

    def encode(self, values: ArrayLike | Paths | GroupColumn, length: int) -> GroupColumn:
        """Return other rows' labels in this column's codes; unknown labels become `NO_GROUP`."""
        other = as_grouping(values, length)
        if self.depth is None:
            if self.labels is None and other.labels is None:
                return other
            require_common_kind(_kinds(other), _kinds(self), "groups")
            codes = None if self.labels is None else {label: code for code, label in enumerate(self.labels)}
            return GroupColumn(_translate(other, codes), self.labels)
        if other.depth is None:
            if other.labels is not None:
                raise InputError("groups must be leaf numbers or Paths: this calibrator was fitted on a tree.")
            is_leaf = (other.code >= 0) & (other.code < 2**self.depth)
            exits = np.where(is_leaf, self.depth + 1, 0)
            return GroupColumn(np.where(is_leaf, other.code, 0), None, exits, self.depth)
        if other.depth < self.depth:
            raise InputError(f"groups are paths of a tree of depth {other.depth}; the fit had depth {self.depth}.")
        return other.at_depth(self.depth) if other.depth > self.depth else other


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """The entry of each group's code; unknown codes, and no group, have entry 0.

    codes : sorted.
    entries : one per code.
    """

    codes: Annotated[Ints, Axes("groups"), Between(0, 2**63 - 1), Rising()]
    entries: Annotated[Ints, Axes("groups"), Between(0, MOST)]
    table: Ints | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = None
        if len(self.codes) == 0 or self.codes[-1] < _LARGEST_TABLE:
            table = np.zeros(int(self.codes[-1]) + 2 if len(self.codes) else 1, dtype=np.int64)
            table[self.codes] = self.entries
        object.__setattr__(self, "table", table)

    def find(self, codes: Ints) -> Ints:
        """Return the entry of each code."""
        if self.table is not None:
            # Seen as unsigned, -1 is larger than all: it reads the table's last place, which is 0.
            return self.table[np.minimum(codes.view(np.uint64), np.uint64(len(self.table) - 1)).view(np.int64)]
        place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[place] == codes, self.entries[place], 0)


def as_grouping(values: ArrayLike | Paths | GroupColumn, length: int) -> GroupColumn:
    """Return any column of labels as a :class:`GroupColumn`; missing labels become `NO_GROUP`.

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
    if _is_text(values):
        require_length(values, length, "groups")
        return _from_texts(values) if length >= _MANY and not is_forked() else _from_objects(values.to_list())
    array = column_of_any(values, "groups")
    if array.ndim != 1:
        raise InputError(f"groups have shape {array.shape}; give one label per row, as a list or column.")
    require_length(array, length, "groups")
    if array.dtype.kind == "f":
        # Whole numbers in a float column (as a table with gaps has them) are whole numbers again.
        array = array.astype(np.float64)
        filled = np.where(np.isnan(array), NO_GROUP, array)
        if np.array_equal(filled, np.rint(filled)) and np.abs(filled).max(initial=0) < 2**53:
            array = filled.astype(np.int64)
    # Whole numbers are codes, unless they are negative (-1 alone means no group) or too large for int64.
    if array.dtype.kind in "iu" and (not len(array) or (int(array.min()) >= NO_GROUP and int(array.max()) < 2**63)):
        return GroupColumn(array.astype(np.int64, copy=False))
    if array.dtype.kind in "mM":  # numpy lists nanoseconds as numbers, also for a missing date
        array = array.astype(f"{array.dtype.kind}8[us]")
    return _from_objects(array.tolist())


def merge_labels(first: GroupColumn, second: GroupColumn) -> tuple[GroupColumn, GroupColumn]:
    """Bring two columns of one partition to the same codes, so that they can be joined."""
    if first.depth != second.depth:
        raise InputError(f"groups come from trees of depth {first.depth} and {second.depth}; they do not add.")
    if first.labels == second.labels:
        return first, second
    used = [column.labels or column.decode(np.unique(column.code)) for column in (first, second)]
    both = _sorted_labels({label for labels in used for label in labels if label is not None})
    codes = {label: code for code, label in enumerate(both)}
    return GroupColumn(_translate(first, codes), both), GroupColumn(_translate(second, codes), both)


def as_labels(values: ArrayLike, name: str) -> NDArray[np.object_]:
    """Return a column as an array of labels, with None for missing labels (None, NaN, the number -1).

    As in calibrators, the number 2 and the text "2" are two labels, and 2.0 and 2 are one.

    >>> as_labels([3.0, float("nan")], "tenant")
    array([3, None], dtype=object)
    """
    column = label_column(values, name)
    if column.labels is not None:
        return object_array([*column.labels, None])[column.code]  # the last entry serves NO_GROUP, which is -1
    out = column.code.astype(object)
    out[column.code == NO_GROUP] = None
    return out


def label_column(values: ArrayLike, name: str) -> GroupColumn:
    """Return a column of labels in codes; `name` is for the error."""
    if _is_text(values):
        return as_grouping(values, len(values))
    array = column_of_any(values, name)
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}; expected one label per row, as a list or column.")
    if array.dtype.kind in "mM":
        raise InputError(f"{name} holds dates or times; write them as text, such as 2025-01-31, to group by them.")
    return as_grouping(array, len(array))


def object_array(values: Iterable[Any]) -> NDArray[np.object_]:
    """Return a flat array of any values; `numpy.array` would turn tuples into a matrix."""
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def kind_of(label: Any) -> str:
    """Return the kind of a label; labels of different kinds are never equal."""
    if isinstance(label, str):
        return "text"
    return "numbers" if isinstance(label, int | float) else type(label).__name__


def kinds_of(labels: Iterable[Any]) -> frozenset[str]:
    """Return the kinds of labels, without missing ones."""
    return frozenset(kind_of(label) for label in set(labels) if label is not None)


def require_common_kind(kinds: frozenset[str], fitted: frozenset[str], name: str) -> None:
    """Raise if no label has a kind of the fit (text "2" instead of the number 2, say): all would be unknown."""
    if kinds and fitted and not kinds & fitted:
        raise InputError(
            f"{name} has labels that are {', '.join(sorted(kinds))}; those of the fit are {', '.join(sorted(fitted))}. "
            "Convert the column."
        )


def _kinds(column: GroupColumn) -> frozenset[str]:
    if column.labels is not None:
        return kinds_of(column.labels)
    return frozenset({"numbers"} if (column.code != NO_GROUP).any() else ())


def _from_paths(paths: Paths) -> GroupColumn:
    if not is_whole(paths.depth, 0, MAX_DEPTH):
        raise InputError(f"the tree has depth {shown(paths.depth)}; expected 0 to {MAX_DEPTH}.")
    path, exits = _whole(paths.path, "path"), _whole(paths.exit, "exit")
    require_length(exits, len(path), "exit")
    wrong = (path < 0) | (path >= 2**paths.depth)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(f"path[{at}] is {path[at]}; a tree of depth {paths.depth} has paths below {2**paths.depth}.")
    # Turns after the exit mean nothing; without them, equal places have equal codes.
    exits = np.minimum(np.maximum(exits, 0), paths.depth + 1)
    drop = paths.depth + 1 - np.maximum(exits, 1)
    return GroupColumn((path >> drop) << drop, None, exits, paths.depth)


def _whole(values: Any, name: str) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1 or (len(array) > 0 and array.dtype.kind not in "iu"):
        raise InputError(f"{name} is {shown(values)}; expected a column of whole numbers.")
    return array.astype(np.int64, copy=False)


def _from_objects(values: list[Any]) -> GroupColumn:
    if {*map(type, values)} <= {str, type(None)}:  # the usual case, without a look at each value
        texts = tuple(sorted({*values} - {None, ""}))
        places = dict.fromkeys((None, ""), NO_GROUP) | {text: place for place, text in enumerate(texts)}
        if texts:
            return GroupColumn(np.fromiter(map(places.__getitem__, values), np.int64, len(values)), texts)
    values = [_label(value) for value in values]
    for at, value in enumerate(values):
        if not isinstance(value, Hashable):
            raise InputError(f"groups[{at}] is {value!r}; expected a label, such as text or a number.")
    if all(value is None or is_whole(value, 0, 2**63 - 1) for value in values):
        return GroupColumn(np.array([NO_GROUP if value is None else value for value in values], dtype=np.int64))
    labels = _sorted_labels({value for value in values if value is not None})
    codes = {label: code for code, label in enumerate(labels)}
    return GroupColumn(np.array([codes.get(value, NO_GROUP) for value in values], dtype=np.int64), labels)


def _label(value: Any) -> Any:
    """Return a label: whole floats, which a column with gaps or halves has, are whole numbers, and -1 is no group."""
    if is_missing(value):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return None if isinstance(value, int) and value == NO_GROUP else value


def _from_texts(values: Any) -> GroupColumn:
    """Return what :func:`_from_objects` does. Threads of polars look up the codes; Python sees each text once."""
    texts = values.drop_nulls().unique()
    found = _from_objects(texts.to_list())
    if found.labels is None:
        return GroupColumn(np.full(len(values), NO_GROUP))
    return GroupColumn(values.replace_strict(texts, found.code, default=NO_GROUP).to_numpy(), found.labels)


def _is_text(values: Any) -> bool:
    """Return whether a column is text of polars, which needs no other checks than a list of texts."""
    return hasattr(values, "null_count") and hasattr(values, "to_list") and str(values.dtype) == "String"


def _sorted_labels(labels: set[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(labels, key=lambda label: (type(label).__name__, label)))
    except TypeError:  # labels that cannot be ordered, such as members of an Enum
        return tuple(sorted(labels, key=lambda label: (type(label).__name__, repr(label))))


def distinct(codes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct codes in order, and the place of each row's code among them: numpy.unique without a sort."""
    low = int(codes.min(initial=0))
    size = int(codes.max(initial=0)) - low + 1
    if size > 4 * len(codes) + 4096:
        used, where = np.unique(codes, return_inverse=True)
        return used, where
    is_used = np.zeros(size, dtype=bool)
    is_used[codes - low] = True
    places = np.flatnonzero(is_used)
    rank = np.cumsum(is_used) - 1
    return places + low, rank[codes - low]


def _translate(column: GroupColumn, codes: dict[Any, int] | None) -> Ints:
    """Return other codes for a column's labels; without `codes`, a whole number is its own code."""
    used, where = distinct(column.code)
    labels = [column.label(code) for code in used.tolist()]
    if codes is None:
        codes = {label: label for label in labels if isinstance(label, int)}
    return np.array([codes.get(label, NO_GROUP) for label in labels], dtype=np.int64)[where]
