"""The watch of a service: whether the intervals of the served versions hold for the answers that audits labelled.

The store has what a bet needs: the label, the calibrated probability and the cells of each answer, so it needs no text.
Labels of audits are bet on in the order in which they came, and stay when their answers are deleted: all looks at a
version are looks at one sequence of bets. Volunteered labels are counted and raise no alarm: people complain about
wrong answers more often than they praise right ones.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import FastAPI
from starlette.responses import JSONResponse, Response

from qacal.calibrators.base import FROM_FAR, SOURCES
from qacal.errors import InputError, counted
from qacal.model.base import BaseModel
from qacal.model.broken import Labelled, has_intervals
from qacal.model.model import QACalibrator
from qacal.model.signals import Signal, signals, unreadable_signal, upstream_signal
from qacal.model.watching import Watch, equal_chances, watched

if TYPE_CHECKING:
    from qacal.service.app import Service
    from qacal.service.served import Served

# A look at the store is shared by all who ask within so many seconds.
_SECONDS = 5.0
# Signals are about so many answers, the last ones.
LATEST = 5000
SERVED = ("group", "confidence", "unlike", "cells", "upstream_model")


class Watches:
    """The watches of all served models.

    seconds : between two looks at the store.
    """

    def __init__(self, service: Service, seconds: float = _SECONDS) -> None:
        self.seconds = seconds
        self._service = service
        self._looking: asyncio.Task[dict[str, Any]] | None = None
        self._until = 0.0
        # By model: its version and labels, and what they say. Bets are made again only if there are new labels.
        self._bets: dict[str, tuple[Any, dict[str, Any]]] = {}

    async def found(self) -> dict[str, Any]:
        """Return what the watches say; the store is read, and bets are made, in a thread.

        All who ask meanwhile wait for the same look: a database that hangs takes one thread, and not all of them.
        """
        if self._looking is None or (self._looking.done() and time.monotonic() >= self._until):
            self._looking = asyncio.create_task(self._looked())
        return await asyncio.shield(self._looking)

    async def _looked(self) -> dict[str, Any]:
        self._until = 0.0
        found = await asyncio.to_thread(self._look)
        self._until = time.monotonic() + self.seconds
        return found

    def _look(self) -> dict[str, Any]:
        served = self._service.models.served
        return {"looked": _iso(time.time()), "models": [self._of_model(one) for one in served.values()]}

    def _of_model(self, served: Served) -> dict[str, Any]:
        store = self._service.required_store()
        volunteered = store.volunteered(served.name, served.version)
        state = (served.version, volunteered, store.bets_made(served.name, served.version))
        if self._bets.get(served.name, (None,))[0] != state:
            rows = store.bets(served.name, served.version)
            self._bets[served.name] = state, _bets(served, rows, volunteered, self._service.settings.watch_alpha)
        latest = [*store.rows(model=served.name, version=served.version, columns=SERVED, latest=LATEST)]
        found = self._bets[served.name][1]
        parts = [
            {**part, "signals": [asdict(signal) for signal in signals_of(served.model, part["value"], latest)]}
            for part in found["parts"]
        ]
        changes = [upstream_signal([row["upstream_model"] for row in latest]), self._unreadable(served.name)]
        return {
            "name": served.name,
            "version": served.version,
            **found,
            "other_versions": store.bets_on_others(served.name, served.version),
            "is_alarm": any(part["is_alarm"] for part in parts),
            "parts": parts,
            "signals": [asdict(signal) for signal in changes if signal is not None],
        }

    def _unreadable(self, name: str) -> Signal | None:
        """Return the share of records since the start of the process with a confidence that could not be read."""
        value = self._service.telemetry.registry.get_sample_value
        outcomes = [
            value("qacal_answers_total", {"model": name, "outcome": outcome}) for outcome in ("calibrated", "error")
        ]
        unreadable = value("qacal_unparsed_confidence_total", {"model": name})
        return unreadable_signal(int(unreadable or 0), int(sum(outcome or 0 for outcome in outcomes)))


@dataclass(frozen=True)
class Bets:
    """What the labels of a version say.

    volunteered : labels that raise no alarm.
    without_cells : labels of audits of answers that an earlier qacal stored; they are left out.
    parts : by model of a set (else None), the watch and the times of its labels, or why there is none.
    """

    volunteered: int
    without_cells: int
    parts: dict[Any, tuple[Watch, list[float]] | InputError]

    def left_out(self) -> str:
        """Say which labels are left out; "" if none are."""
        if not self.without_cells:
            return ""
        labels = counted(self.without_cells, "label is", "labels are")
        return f"{labels} left out: an earlier qacal stored these answers, without the numbers of their intervals."


def of_other_versions(labels: int) -> str:
    """Say how many labels of audits are about other versions; "" if none are.

    labels : as :meth:`qacal.service.store.Store.bets_on_others` returns them.

    >>> of_other_versions(200)
    '200 labels of audits do not count here: this version did not serve their answers.'
    """
    if not labels:
        return ""
    what = counted(labels, "label of an audit does", "labels of audits do")
    return f"{what} not count here: this version did not serve {'its answer' if labels == 1 else 'their answers'}."


def bets(
    model: BaseModel, rows: Iterable[dict[str, Any]], volunteered: Iterable[tuple[str | None, int]], alpha: float
) -> Bets:
    """Bet on the labels of a version.

    rows, volunteered : its labels, as :meth:`qacal.service.store.Store.bets` and `volunteered` return them.
    """
    audits: dict[Any, list[dict[str, Any]]] = {}
    without_cells = 0
    for row in rows:
        if row["cells"] is None:
            without_cells += 1
        else:
            value, *cells = json.loads(row["cells"])
            audits.setdefault(value, []).append({**row, "cells": cells})
    others: Counter[Any] = Counter()
    for about, count in volunteered:
        others[None if about is None else json.loads(about)[0]] += count
    parts = {value: _part(one, audits.get(value, []), others[value], alpha) for value, one in model._models.items()}
    return Bets(others.total(), without_cells, parts)


def _bets(served: Served, rows: Iterable[dict[str, Any]], volunteered: Any, alpha: float) -> dict[str, Any]:
    """Return what the labels of a version say about the intervals of each of its models, as JSON."""
    found = bets(served.model, rows, volunteered, alpha)
    return {
        "volunteered": found.volunteered,
        "without_cells": found.without_cells,
        "parts": [
            {"value": value, **(_problem(str(part)) if isinstance(part, InputError) else _shown(*part))}
            for value, part in found.parts.items()
        ],
    }


def _part(
    model: QACalibrator, rows: list[dict[str, Any]], volunteered: int, alpha: float
) -> tuple[Watch, list[float]] | InputError:
    if not has_intervals(model):
        return InputError(
            f"this model has no intervals ({type(model.calibrator_).__name__}), so nothing can be broken."
        )
    ids = np.array([int(row["document"], 16) for row in rows], dtype=np.uint64)
    # Within a draw of the store all answers have the same chance, so only other audits are thinned.
    chance = np.array([row["chance"] for row in rows], dtype=np.float64)
    has_chance = np.array([row["chance"] is not None for row in rows], dtype=bool)
    kept, is_rare, _ = equal_chances(chance, has_chance, ids, "")
    levels = len(np.unique(_cells(model).lineage.depth))
    labelled = Labelled(
        correct=np.array([row["label"] for row in rows], dtype=np.float64),
        answer=np.array([row["calibrated"] for row in rows], dtype=np.float64),
        cells=np.array([row["cells"] for row in rows], dtype=np.int64).reshape(len(rows), levels),
        is_far=np.array([row["source"] == SOURCES[FROM_FAR] for row in rows], dtype=bool),
        ids=ids,
    ).only(kept)
    try:
        found = watched(model, labelled, alpha)
    except InputError as error:
        return error
    times = [row["label_time"] for row, keep in zip(rows, kept.tolist(), strict=True) if keep]
    rare = int(np.count_nonzero(is_rare))
    thinned = int(np.count_nonzero(~kept)) - rare
    return replace(found, thinned=thinned, rare=rare, volunteered=volunteered), times


def _cells(model: QACalibrator) -> Any:
    maps: Any = model.calibrator_.maps_
    return getattr(maps, "cells", maps)


def _problem(text: str) -> dict[str, Any]:
    return {"is_alarm": False, "headline": text, "since": None, "labels": 0, "alarms": [], "intervals": []}


def _shown(found: Watch, times: list[float]) -> dict[str, Any]:
    """Return a watch as JSON, with the times of its alarms in place of numbers of labels alone."""

    def since(after: int | None) -> str | None:
        return None if after is None else _iso(times[after - 1])

    intervals = [{**asdict(one), "since": since(one.broken_after)} for one in found.intervals]
    return {
        "is_alarm": found.is_alarm,
        "headline": found.headline,
        "since": since(found.broken_after),
        "broken_after": found.broken_after,
        "alpha": found.alpha,
        "labels": found.labels,
        "documents": found.documents,
        "far": found.far,
        "thinned": found.thinned,
        "rare": found.rare,
        "alarms": [one for one in intervals if one["broken_after"] is not None],
        "intervals": intervals,
    }


def signals_of(model: BaseModel, value: Any, rows: list[dict[str, Any]]) -> tuple[Signal, ...]:
    """Return how the last answers of a model differ from its fit."""
    if model._by is not None:
        rows = [row for row in rows if row["cells"] is not None and json.loads(row["cells"])[0] == value]
    read = [row for row in rows if row["confidence"] is not None]
    confidence, unlike = (np.array([row[name] for row in read], dtype=float) for name in ("confidence", "unlike"))
    return signals(model._models[value], [row["group"] for row in read], confidence, unlike)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


_SCHEMA = {
    "type": "object",
    "required": ["looked", "models"],
    "properties": {
        "looked": {"type": "string", "description": "When the store was read."},
        "models": {
            "type": "array",
            "items": {
                "type": "object",
                "required": [
                    *("name", "version", "is_alarm", "volunteered", "without_cells", "other_versions"),
                    *("parts", "signals"),
                ],
            },
        },
    },
}


def add_routes(app: FastAPI, service: Service) -> Watches:
    """Add the route of the watch, and return the watches."""
    watches = Watches(service)

    @app.get(
        "/v1/watch",
        summary="Whether the intervals still hold",
        responses={200: {"content": {"application/json": {"schema": _SCHEMA}}}},
    )
    async def watch() -> Response:
        """Return what the labels of audits say about the intervals of each served version, and what has changed.

        `parts` has one entry, or one for each model of a set. Its `alarms` are broken intervals: the `group`, the
        `kind` of interval, which `side` is broken, and `since` when. All alarms that are ever raised for a version are
        right with probability 1 - `alpha`. Volunteered labels are counted and raise no alarm. `signals` are changes
        that need no labels, without a guarantee.
        """
        service.required_store()
        return JSONResponse(await watches.found())

    app.state.watches = watches
    return watches
