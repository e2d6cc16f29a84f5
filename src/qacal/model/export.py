"""Export fitted maps, to calibrate elsewhere: as JSON, or as one SQL expression."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from qacal.calibrators.base import FROM_GROUP, FROM_ROOT, LOGIT_CUT, SOURCES, Calibrator, Feature, expit, feature_values
from qacal.calibrators.curves import IsotonicCurve, LogisticMap
from qacal.calibrators.hierarchical import LogisticMaps
from qacal.calibrators.identity import IdentityMap
from qacal.calibrators.isotonic import IsotonicMaps
from qacal.calibrators.maps import BinMaps, Lineage, deepest_level
from qacal.calibrators.margins import MarginMaps
from qacal.calibrators.tree_scaling import TreeMaps
from qacal.errors import InputError
from qacal.model import sql
from qacal.parameters import shown
from qacal.tally.arrays import Floats, Ints, seven_decimals
from qacal.tally.cells import snap
from qacal.tally.groups import NO_GROUP, GroupColumn

_Exportable: TypeAlias = BinMaps | MarginMaps | IsotonicMaps | LogisticMaps | TreeMaps | LogisticMap | IdentityMap

# PostgreSQL refuses an exp that overflows or underflows; a curve is 0 or 1 to 300 digits long before.
_STEEPEST = 700.0

_READERS = "A group uses the map that lists it in read_by; all others, and rows without a group, use the first."
_LEAVES = "read_by holds ranges of group numbers, first and last included, as calibrated rows have them in `group`."
_LEFT = (
    "A row outside of all boxes of a kd-tree has no group; `qacal apply` uses the curve of its last box, this export "
    "the first."
)
_BINS = "A bin holds confidences above `above`, up to and including `up_to`; null is no bound."
_INTERVAL = "low and high hold for all bins at once with probability 1 - alpha; they are about the map's own group."
_PRECISION = "A confidence is first rounded to a 32-bit float, and that to seven decimals, halves to even."
_CURVE = "calibrated = 1 / (1 + exp(-(intercept + slope * x)))."
_KNOTS = "Straight lines between the knots, level outside of them."
_MOVED = "In a band, calibrated is then replaced by plus + times * calibrated."
_BAND = "A band holds confidences above `above`, up to and including `up_to`; null is no bound."
_MARGINS = (
    "low = calibrated - below and high = calibrated + over, with the numbers of the band, cut off at 0 and 1: on "
    "average, answers of the band are too high by `below` at most, and too low by `over` at most. group_low and "
    "group_high are about the accuracy of a map's own group; null if it has no interval. All of this holds at once "
    "with probability 1 - alpha."
)
_SHAPE = "x is the score of the confidence: straight lines between the knots of `shape`, level outside of them."


@dataclass(frozen=True)
class _Entry:
    """One map, or curve, and the groups that use it.

    group, depth : the group that it was fitted on; None and 0 for the root.
    labels, leaves : the groups that use it: by label, or in a tree by ranges of numbers. All others use the root's.
    """

    number: int
    group: Any
    depth: int
    source: str
    labels: tuple[Any, ...] = ()
    leaves: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        read_by = list(self.labels) + [list(run) for run in self.leaves]
        return {"group": self.group, "depth": self.depth, "source": self.source, "read_by": read_by}

    def condition(self, column: str) -> str:
        """Return the SQL condition for rows that use this map."""
        single = [*map(sql.literal, self.labels), *(str(first) for first, last in self.leaves if first == last)]
        parts = [f"{column} BETWEEN {first} AND {last}" for first, last in self.leaves if first < last]
        if single:
            parts.append(f"{column} = {single[0]}" if len(single) == 1 else f"{column} IN ({', '.join(single)})")
        return " OR ".join(parts)


# As JSON


def to_json(calibrator: Calibrator) -> dict[str, Any]:
    """Return the maps as plain values, with the rules for reading them in words.

    Bounds of bins are for confidences to seven decimals; if the calibrator snaps confidences to a grid, `above` and
    `up_to` take this into account. Maps that divide equal confidences by the hash of an id (``ties="jitter"``) cannot
    be exported, and are refused.

    Examples
    --------
    >>> from qacal import QABinning
    >>> right = np.repeat([1, 0, 1, 0], [65, 35, 95, 5])
    >>> model = QABinning().fit(np.full(200, 0.8), right, groups=np.repeat(["law", "physics"], 100))
    >>> exported = to_json(model)
    >>> exported["maps"][1]["group"], exported["maps"][1]["bins"][0]["calibrated"]
    ('law', 0.65)
    >>> exported["rules"][0]
    'A group uses the map that lists it in read_by; all others, and rows without a group, use the first.'
    """
    exported = {"calibrator": type(calibrator).__name__, **_described(_maps_of(calibrator))}
    try:
        json.dumps(exported, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"the export cannot be JSON: {error}. Convert groups to text before fitting.") from None
    return exported


def _maps_of(calibrator: Calibrator) -> _Exportable:
    if not isinstance(calibrator, Calibrator):
        raise InputError(f"calibrator is {shown(calibrator)}; expected a fitted one, such as model.calibrator_.")
    maps: Any = calibrator._fitted_maps()
    if not isinstance(maps, _Exportable):
        raise InputError(f"{type(maps).__name__} cannot be exported; it is not a map of qacal.")
    if isinstance(maps, MarginMaps) and maps.curves is None:
        raise InputError(
            "the answers of this MarginBinning are those of a learned score, which a table cannot compute. Fit a model "
            "with --calibrator tree-binning (in Python: TreeBinning()) to export it."
        )
    return maps


def _described(maps: _Exportable) -> dict[str, Any]:
    if isinstance(maps, BinMaps):
        up_to = seven_decimals(_edges(maps))
        bins = [entry.to_json() | {"bins": _bins(maps, up_to, entry.number)} for entry in _entries(maps)]
        certificate = {"alpha": maps.certificate.alpha, "certificate": maps.certificate.kind}
        rules = [*_rules(maps.grouping), _PRECISION, _BINS, _INTERVAL]
        return {"form": "bins", "rules": rules, **certificate, "resolution": maps.resolution, "maps": bins}
    if isinstance(maps, MarginMaps):
        assert maps.curves is not None
        described = _described(maps.curves)
        rules = [*described["rules"], _MOVED, _BAND, _MARGINS]
        certificate = {"alpha": maps.certificate.alpha, "certificate": maps.certificate.kind}
        entries = [entry | ends for entry, ends in zip(described["maps"], _group_intervals(maps), strict=True)]
        return described | {"rules": rules, **certificate, "bands": _bands(maps), "maps": entries}
    if isinstance(maps, IsotonicMaps):
        knots = [entry.to_json() | _knots_of(maps, entry.number) for entry in _entries(maps)]
        return {"form": "knots", "rules": [*_rules(maps.grouping), _PRECISION, _KNOTS], "maps": knots}
    if isinstance(maps, LogisticMaps | TreeMaps):
        rules = _rules(maps.grouping, *([_LEFT] if isinstance(maps, TreeMaps) else []))
        curves = [entry.to_json() | _curve(maps, entry.number) for entry in _entries(maps)]
        if isinstance(maps, LogisticMaps) or maps.shape is None:
            return {"form": "curves", "rules": [*rules, *_curve_rules(maps.feature)], "maps": curves}
        pairs = zip(maps.shape.confidence.tolist(), maps.shape.score.tolist(), strict=True)
        shape = [{"confidence": confidence, "score": score} for confidence, score in pairs]
        return {"form": "curves", "rules": [*rules, _PRECISION, _CURVE, _SHAPE], "shape": shape, "maps": curves}
    if isinstance(maps, LogisticMap):
        root = _Entry(0, None, 0, "root").to_json()
        curve = {"intercept": maps.intercept, "slope": maps.slope, "feature": maps.feature, "rows": maps.rows}
        return {"form": "curves", "rules": _curve_rules(maps.feature), "maps": [root | curve]}
    return {"form": "identity", "rules": ["calibrated = confidence."], "maps": []}


def _bins(maps: BinMaps, up_to: Floats, number: int) -> list[dict[str, Any]]:
    first, last = int(maps.offset[number]), int(maps.offset[number + 1]) - 1
    return [
        {
            "above": None if at == first else float(up_to[at - 1]),
            "up_to": None if at == last else float(up_to[at]),
            "calibrated": float(maps.value[at]),
            "low": float(maps.low[at]),
            "high": float(maps.high[at]),
            "rows": int(maps.rows[at]),
        }
        for at in range(first, last + 1)
    ]


def _bands(maps: MarginMaps) -> list[dict[str, Any]]:
    plus, times = maps.moves
    up_to = seven_decimals(_edges(maps.cells))[: len(plus) - 1].tolist()
    return [
        {
            "above": above,
            "up_to": end,
            "plus": float(plus[at]),
            "times": float(times[at]),
            "below": float(maps.below[at]),
            "over": float(maps.above[at]),
            "rows": int(maps.cells.rows[at]),
        }
        for at, (above, end) in enumerate(pairwise([None, *up_to, None]))
    ]


def _group_intervals(maps: MarginMaps) -> Iterator[dict[str, float | None]]:
    """Yield the interval of the group of each curve, None for curves of other groups than those with intervals."""
    own, curves = maps.cells.lineage, maps.curves.lineage if maps.curves is not None else maps.cells.lineage
    nodes = zip(own.depth[1:].tolist(), own.owner[1:].tolist(), strict=True)
    place = {node: at for at, node in enumerate(nodes, start=len(maps.shift))}
    for node in zip(curves.depth.tolist(), curves.owner.tolist(), strict=True):
        at = place.get(node)
        low, high = (None, None) if at is None else (float(maps.cells.low[at]), float(maps.cells.high[at]))
        yield {"group_low": low, "group_high": high}


def _knots_of(maps: IsotonicMaps, number: int) -> dict[str, Any]:
    part = slice(maps.offset[number], maps.offset[number + 1])
    pairs = zip(maps.x[part].tolist(), maps.y[part].tolist(), strict=True)
    knots = [{"confidence": confidence, "calibrated": calibrated} for confidence, calibrated in pairs]
    return {"rows": int(maps.rows[number]), "knots": knots}


def _curve(maps: LogisticMaps | TreeMaps, number: int) -> dict[str, Any]:
    intercept, slope = float(maps.intercept[number]), float(maps.slope[number])
    return {"intercept": intercept, "slope": slope, "feature": maps.feature, "rows": int(maps.rows[number])}


def _rules(grouping: GroupColumn | None, *of_trees: str) -> list[str]:
    return [_READERS, _LEAVES, *of_trees] if grouping is not None and grouping.is_tree else [_READERS]


def _curve_rules(feature: str) -> list[str]:
    logit = f"x = log(c / (1 - c)), where c is the confidence cut off at {LOGIT_CUT} and {1 - LOGIT_CUT}."
    return [_PRECISION, _CURVE, logit if feature == "logit" else "x = confidence."]


# As SQL


def to_sql(calibrator: Calibrator, *, confidence: str = "confidence", group: str = "group_id") -> str:
    """Return the maps as one SQL expression for the calibrated confidence, as PostgreSQL, SQLite and DuckDB read it.

    Put it wherever a value may stand: ``SELECT question, (...) AS calibrated FROM answers``. Bins give exactly what
    `predict` gives, in columns of 32 and of 64 bits. Curves do so, up to the rounding of the database, for confidences
    of up to seven decimals; others may be read as a neighbour, 0.0000001 away. A group that is NULL or unknown reads
    the root's map. A confidence that is NULL or not in [0, 1] gives NULL: 85 is not guessed to be a percentage.
    The result is a DOUBLE PRECISION; for `Identity` it has the type of the column.

    confidence, group : the columns. Groups are labels as in the fit, all of one type; for a tree, the numbers that
        calibrated rows have in `group` (those of the depth in use), NULL or -1 for none. A row outside of
        all boxes of a kd-tree has none: `TreeScaling` reads its last ancestor's curve, SQL the root's.

    Examples
    --------
    >>> from qacal import QABinning
    >>> right = np.repeat([1, 0, 1, 0], [65, 35, 95, 5])
    >>> model = QABinning().fit(np.full(200, 0.8), right, groups=np.repeat(["law", "physics"], 100))
    >>> print(to_sql(model, group="subject"))
    CAST(CASE
      WHEN confidence >= 0 AND confidence <= 1 THEN CASE
        WHEN subject = 'law' THEN 0.65e0
        WHEN subject = 'physics' THEN 0.95e0
        ELSE 0.8e0
      END
    END AS DOUBLE PRECISION)
    """
    maps, column, of_group = _maps_of(calibrator), sql.name(confidence), sql.name(group)
    margins = maps if isinstance(maps, MarginMaps) else None
    if isinstance(maps, MarginMaps):
        assert maps.curves is not None
        maps = maps.curves
    possible = f"{column} >= 0 AND {column} <= 1"
    if isinstance(maps, IdentityMap):
        return sql.case([(possible, column)], None)
    if isinstance(maps, LogisticMap):
        value = _curve_sql(maps.intercept, maps.slope, maps.feature, column)
    elif isinstance(maps, TreeMaps) and maps.shape is not None:
        value = _shaped_sql(maps, maps.shape, column, of_group)
    else:
        value = _by_group(_entries(maps), of_group, _formula(maps, column))
    if margins is not None and margins.shift.any():
        plus, times = (_bands_sql(margins, line, column) for line in margins.moves)
        value = f"({plus}) + ({times}) * ({value})"
    # PostgreSQL takes 0.65e0 for NUMERIC: without a cast the type would depend on the model and on the column.
    return f"CAST({sql.case([(possible, value)], None)} AS DOUBLE PRECISION)"


def _by_group(entries: list[_Entry], group: str, value: Callable[[int], str]) -> str:
    """Return the value of the map that a row's group uses."""
    _require_one_type(entries)
    branches = [(condition, value(entry.number)) for entry in entries[1:] if (condition := entry.condition(group))]
    return sql.case(branches, value(0))


def _formula(maps: BinMaps | IsotonicMaps | LogisticMaps | TreeMaps, column: str) -> Callable[[int], str]:
    """Return the function that writes a map, by its number, as SQL."""
    if isinstance(maps, BinMaps):
        edges = _edges(maps)
        return lambda number: _bins_sql(maps, edges, number, column)
    if isinstance(maps, IsotonicMaps):
        parts = [slice(first, last) for first, last in pairwise(maps.offset.tolist())]
        return lambda number: _lines_sql(maps.x[parts[number]], maps.y[parts[number]], column)
    feature: Feature = "logit" if maps.feature == "logit" else "confidence"
    return lambda number: _curve_sql(maps.intercept[number], maps.slope[number], feature, column)


def _bins_sql(maps: BinMaps, edges: Floats, number: int, column: str) -> str:
    *lower, last = range(maps.offset[number], maps.offset[number + 1])
    branches = [(f"{column} <= {sql.number(edges[at])}", sql.number(maps.value[at])) for at in lower]
    return sql.case(branches, sql.number(maps.value[last]))


def _bands_sql(maps: MarginMaps, values: Floats, column: str) -> str:
    edges = _edges(maps.cells)[: len(values) - 1]
    branches = [
        (f"{column} <= {sql.number(edge)}", sql.number(value)) for edge, value in zip(edges, values[:-1], strict=True)
    ]
    return sql.case(branches, sql.number(values[-1]))


def _lines_sql(x: Floats, y: Floats, column: str) -> str:
    """Return straight lines between knots, level outside of them."""
    edges = _last_below(x, seven_decimals)
    branches = [(f"{column} <= {sql.number(edges[0])}", sql.number(y[0]))]
    for left in range(len(x) - 1):
        width, height = x[left + 1] - x[left], y[left + 1] - y[left]
        value = sql.number(y[left])
        if height > 0:
            share = f"({_read_sql(column)} - {sql.number(x[left])}) / {sql.number(width)}"
            value = f"{value} + {share} * {sql.number(height)}"
        branches.append((f"{column} <= {sql.number(edges[left + 1])}", value))
    return sql.case(branches, sql.number(y[-1]))


def _shaped_sql(maps: TreeMaps, shape: IsotonicCurve, column: str, group: str) -> str:
    """Return the curves on a common shape: the shape is written once, and not once for every group."""
    entries = _entries(maps)
    intercept = _by_group(entries, group, lambda number: sql.number(maps.intercept[number]))
    slope = _by_group(entries, group, lambda number: sql.number(maps.slope[number]))
    line = f"({intercept}) + ({slope}) * ({_lines_sql(shape.confidence, shape.score, column)})"
    ends = maps.intercept[:, None] + maps.slope[:, None] * shape.score[[0, -1]]
    return _logistic_sql(line, float(np.abs(ends).max()), [])


def _curve_sql(intercept: float, slope: float, feature: Feature, column: str) -> str:
    """Return a logistic curve. Where it is so steep that exp might overflow, its ends are written as 0 and 1."""
    ends = feature_values(np.array([0.0, 1.0]), feature)
    read = _read_sql(column)
    x = read if feature == "confidence" else f"LN({read} / (1e0 - {read}))"
    line = f"{sql.number(intercept)} + {sql.number(slope)} * {x}"
    branches = []
    if feature == "logit":
        low, high = (sql.number(value) for value in expit(intercept + slope * ends))
        branches += [(f"{column} <= {sql.number(LOGIT_CUT)}", low), (f"{column} >= {sql.number(1 - LOGIT_CUT)}", high)]
    return _logistic_sql(line, float(np.abs(intercept + slope * ends).max()), branches)


def _read_sql(column: str) -> str:
    """Return a confidence to seven decimals; if it has more, it may differ by 0.0000001 from what `predict` reads."""
    return f"(ROUND({column} * 1e7) / 1e7)"


def _logistic_sql(line: str, largest: float, branches: list[tuple[str, str]]) -> str:
    if largest > _STEEPEST:
        steep = sql.number(_STEEPEST)
        branches = [*branches, (f"{line} > {steep}", sql.number(1)), (f"{line} < -{steep}", sql.number(0))]
    return sql.case(branches, f"1e0 / (1e0 + EXP(-({line})))")


def _require_one_type(entries: list[_Entry]) -> None:
    types = sorted({type(label).__name__ for entry in entries for label in entry.labels})
    if len(types) > 1:
        raise InputError(
            f"the groups are {' and '.join(types)}; a column has one type. Convert them to text, fit again."
        )


# Which groups use a map, and where its bins end


def _entries(maps: BinMaps | IsotonicMaps | LogisticMaps | TreeMaps) -> list[_Entry]:
    """Return every map with its group and the groups that use it, the root's first."""
    column = maps.grouping
    lineage = _lineage_of_curves(maps) if isinstance(maps, LogisticMaps) else maps.lineage
    order = np.argsort(lineage.directory.entries, kind="stable")
    # Groups that use the root's map are not listed: all unknown groups use it too.
    bounds = np.searchsorted(lineage.directory.entries[order], np.arange(1, len(lineage.owner) + 1))
    readers = [order[:0], *np.split(order, bounds)[1:-1]]
    return [
        _Entry(
            number,
            group=None if column is None else column.label(int(lineage.owner[number])),
            depth=int(lineage.depth[number]),
            source=str(SOURCES[lineage.source[number]]),
            **({} if column is None else _readers(lineage.directory.codes[readers[number]], column)),
        )
        for number in range(len(lineage.owner))
    ]


def _lineage_of_curves(maps: LogisticMaps) -> Lineage:
    """Return the lineage of curves: every group with a curve uses its own."""
    owner = np.append(NO_GROUP, maps.directory.codes)
    depth = np.where(owner == NO_GROUP, 0, deepest_level(maps.grouping, maps.max_depth))
    return Lineage(depth, owner, np.where(owner == NO_GROUP, FROM_ROOT, FROM_GROUP), maps.directory)


def _readers(codes: Ints, column: GroupColumn) -> dict[str, Any]:
    """Return the labels of groups; in a tree, ranges of their numbers at the depth in use."""
    if column.depth is None:
        return {"labels": tuple(column.decode(codes))}
    starts = np.flatnonzero(np.diff(codes, prepend=-2) > 1)
    ends = np.append(starts[1:], len(codes)) - 1 if len(codes) else starts
    runs = zip(codes[starts].tolist(), codes[ends].tolist(), strict=True)
    return {"leaves": tuple((first, last) for first, last in runs)}


def _edges(maps: BinMaps) -> Floats:
    """Return the highest number that falls into each bin once it is rounded to seven decimals or snapped to a grid."""
    if maps.is_jittered and maps.tie.any():
        raise InputError(
            'bins with ties="jitter" divide equal confidences by the hash of an id, which is not known elsewhere. '
            'To export, fit with --ties merge (in Python: ties="merge").'
        )
    # With distinct scores, fitted without ids, a bin ends just below the edge that follows it.
    top = np.nextafter(maps.top, -np.inf) if maps.is_jittered else maps.top
    resolution = maps.resolution
    return _last_below(top, seven_decimals if resolution is None else lambda h: snap(h, resolution))


def _last_below(top: Floats, read: Callable[[Floats], Floats]) -> Floats:
    """Return the largest number in [0, 1] that is read as `top` or less.

    Reading keeps the order of numbers, so the rows of a bin are those up to some number. Databases may round halves
    differently from numpy; the number found here divides columns of 32 and of 64 bits at the same place. The bits of
    positive floats are in the order of the floats, so bisection on the bits finds it in 62 steps.
    """
    low = np.zeros(len(top), dtype=np.int64)
    high = np.full(len(top), np.float64(1.0).view(np.int64))
    while (low < high).any():
        middle = high - (high - low) // 2
        stays = read(middle.view(np.float64)) <= top
        low, high = np.where(stays, middle, low), np.where(stays, high, middle - 1)
    return low.view(np.float64)
