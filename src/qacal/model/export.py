"""Export fitted maps as JSON, to calibrate elsewhere; `sql.py` writes them as SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from qacal.calibrators.base import FROM_GROUP, FROM_ROOT, LOGIT_CUT, SOURCES, Calibrator
from qacal.calibrators.curves import LogisticMap
from qacal.calibrators.hierarchical import LogisticMaps
from qacal.calibrators.identity import IdentityMap
from qacal.calibrators.isotonic import IsotonicMaps
from qacal.calibrators.maps import BinMaps, Lineage, deepest_level
from qacal.calibrators.margins import MarginMaps
from qacal.calibrators.tree_scaling import TreeMaps
from qacal.errors import InputError
from qacal.parameters import shown
from qacal.tally.arrays import Floats, Ints, seven_decimals
from qacal.tally.cells import last_read_as, snap
from qacal.tally.groups import NO_GROUP, GroupColumn

Exportable: TypeAlias = BinMaps | MarginMaps | IsotonicMaps | LogisticMaps | TreeMaps | LogisticMap | IdentityMap

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
class Entry:
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
    exported = {"calibrator": type(calibrator).__name__, **_described(exportable_maps(calibrator))}
    try:
        json.dumps(exported, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"the export cannot be JSON: {error}. Convert groups to text before fitting.") from None
    return exported


def exportable_maps(calibrator: Calibrator) -> Exportable:
    """Return the fitted maps of a calibrator; raise if they cannot be exported."""
    if not isinstance(calibrator, Calibrator):
        raise InputError(f"calibrator is {shown(calibrator)}; expected a fitted one, such as model.calibrator_.")
    maps: Any = calibrator._fitted_maps()
    if not isinstance(maps, Exportable):
        raise InputError(f"{type(maps).__name__} cannot be exported; it is not a map of qacal.")
    if isinstance(maps, MarginMaps) and maps.curves is None:
        raise InputError(
            "the answers of this MarginBinning are those of a learned score, which a table cannot compute. Fit a model "
            "with --calibrator tree-binning (in Python: TreeBinning()) to export it."
        )
    return maps


def _described(maps: Exportable) -> dict[str, Any]:
    if isinstance(maps, BinMaps):
        up_to = seven_decimals(edges_of(maps))
        bins = [entry.to_json() | {"bins": _bins(maps, up_to, entry.number)} for entry in entries_of(maps)]
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
        knots = [entry.to_json() | _knots_of(maps, entry.number) for entry in entries_of(maps)]
        return {"form": "knots", "rules": [*_rules(maps.grouping), _PRECISION, _KNOTS], "maps": knots}
    if isinstance(maps, LogisticMaps | TreeMaps):
        rules = _rules(maps.grouping, *([_LEFT] if isinstance(maps, TreeMaps) else []))
        curves = [entry.to_json() | _curve(maps, entry.number) for entry in entries_of(maps)]
        if isinstance(maps, LogisticMaps) or maps.shape is None:
            return {"form": "curves", "rules": [*rules, *_curve_rules(maps.feature)], "maps": curves}
        pairs = zip(maps.shape.confidence.tolist(), maps.shape.score.tolist(), strict=True)
        shape = [{"confidence": confidence, "score": score} for confidence, score in pairs]
        return {"form": "curves", "rules": [*rules, _PRECISION, _CURVE, _SHAPE], "shape": shape, "maps": curves}
    if isinstance(maps, LogisticMap):
        root = Entry(0, None, 0, "root").to_json()
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
    up_to = seven_decimals(edges_of(maps.cells))[: len(plus) - 1].tolist()
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


# Which groups use a map, and where its bins end


def entries_of(maps: BinMaps | IsotonicMaps | LogisticMaps | TreeMaps) -> list[Entry]:
    """Return every map with its group and the groups that use it, the root's first."""
    column = maps.grouping
    lineage = _lineage_of_curves(maps) if isinstance(maps, LogisticMaps) else maps.lineage
    order = np.argsort(lineage.directory.entries, kind="stable")
    # Groups that use the root's map are not listed: all unknown groups use it too.
    bounds = np.searchsorted(lineage.directory.entries[order], np.arange(1, len(lineage.owner) + 1))
    readers = [order[:0], *np.split(order, bounds)[1:-1]]
    return [
        Entry(
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


def edges_of(maps: BinMaps) -> Floats:
    """Return the highest number that falls into each bin once it is rounded to seven decimals or snapped to a grid."""
    if maps.is_jittered and maps.tie.any():
        raise InputError(
            'bins with ties="jitter" divide equal confidences by the hash of an id, which is not known elsewhere. '
            'To export, fit with --ties merge (in Python: ties="merge").'
        )
    # With distinct scores, fitted without ids, a bin ends just below the edge that follows it.
    top = np.nextafter(maps.top, -np.inf) if maps.is_jittered else maps.top
    resolution = maps.resolution
    return last_read_as(top, seven_decimals if resolution is None else lambda h: snap(h, resolution))
