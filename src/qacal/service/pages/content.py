"""What the page shows of a model: an answer with its interval, the effect of thresholds, the groups."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from markupsafe import Markup

from qacal.calibrators.base import expit
from qacal.calibrators.margins import MarginMaps
from qacal.errors import counted
from qacal.metrics.calibration import estimate_calibration_error
from qacal.metrics.evaluation import BINS
from qacal.metrics.words import percent
from qacal.model.model import QACalibrator
from qacal.model.reasons import STATED, STEP, WORTH
from qacal.report.figures.reliability import reliability_diagram
from qacal.report.groups import group_name
from qacal.report.svg import drawing, inline_svg
from qacal.service.served import Served
from qacal.tally.tally import BLOCKS, Tally
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.fit_record import Forecast

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THRESHOLDS = 101
# A diagram is drawn from at most so many rows of the fit; more would not be seen.
_MOST_ROWS = 20_000
_MOST_DRAWN = 64
# Diagrams of each version; those of versions that are no longer served go with them.
_DRAWN: WeakKeyDictionary[Served, dict[Any, dict[str, Any] | None]] = WeakKeyDictionary()
_PARTS = {
    STATED: "stated confidence",
    WORTH: "what the confidence is worth over all questions",
    "text": "the meaning of the text",
    "form": "its form (lengths, digits)",
    "words": "its words",
    STEP: "the accuracy of similar answers",
}


@dataclass(frozen=True, eq=False)
class Shown:
    """A model that the page shows: a served one, or one of a served set.

    value : of the model in its set; None for a model by itself.
    """

    served: Served
    value: Any

    @property
    def key(self) -> str:
        """A text that names it in a form."""
        return json.dumps([self.served.name, self.value])

    @property
    def name(self) -> str:
        return self.served.name if self.served.model._by is None else f"{self.served.name}: {self.value}"

    @property
    def rows_text(self) -> str:
        """What the labelled rows that are not only for training are for."""
        is_certified = self.model.calibrator_.properties.is_certified
        return f"{'certified' if is_certified else 'calibrated'} with {counted(self.model.rows_, 'labelled answer')}"

    @property
    def model(self) -> QACalibrator:
        return self.served.model._models[self.value]

    @property
    def columns(self) -> list[str]:
        """The further columns that a record needs."""
        rule = self.model.decision_rule_
        more = [] if rule is None or rule.column is None else [rule.column]
        names = dict.fromkeys([*self.model.pipeline_.columns, *more])
        return [name for name in names if name != self.served.model._by]

    def record(self, texts: dict[str, str], confidence: float) -> dict[str, Any]:
        """Return the record of a form; values of columns have the types that the fit has seen."""
        seen = self.model.pipeline_.values_seen()
        others = {name: _typed(texts[f"column {name}"], seen.get(name)) for name in self.columns}
        by = {} if self.served.model._by is None else {self.served.model._by: self.value}
        pair = {name: texts[name] for name in ("question", "answer")}
        return {**by, **pair, "confidence": confidence, **{name: one for name, one in others.items() if one != ""}}


def _typed(text: str, seen: Any) -> Any:
    """Return the value of a column.

    >>> _typed("12", "law"), _typed("12", 3), _typed("0.5", None), _typed("law", None), _typed("true", False)
    ('12', 12, 0.5, 'law', True)
    """
    if isinstance(seen, str):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | list) else text


def models_of(served: dict[str, Served]) -> dict[str, Shown]:
    """Return all models, those of sets each, by their keys."""
    every = [Shown(one, value) for one in served.values() for value in one.model._models]
    return {one.key: one for one in every}


def answer_of(shown: Shown, evidence: dict[str, Any]) -> dict[str, Any]:
    """Return what the page says about an answer.

    evidence : with the reasons of `explain`, if it has them.
    """
    evidence = {"parts": {}, "nearest": [], "lacking": [], **evidence}
    groups = {group.group: group for group in shown.model.describe_groups()}
    total, steps = 0.0, []
    for name, part in evidence["parts"].items():
        total += part
        steps.append((_PARTS.get(name, name), float(expit(np.array([total]))[0])))
    return {
        **evidence,
        "sentence": sentence(evidence),
        "decided": _decided(evidence),
        "about_group": _about_group(evidence),
        "group_name": group_name(evidence["group"]),
        "of_group": groups.get(evidence["group"]),
        "steps": steps,
        "figure": diagram(shown.served, shown.value, evidence["group"]),
    }


def sentence(evidence: dict[str, Any]) -> str:
    """Return the interval in one sentence.

    >>> known = {"calibrated": 0.872, "low": 0.81, "high": 0.926, "source": "band", "rows": 300, "alpha": 0.1}
    >>> sentence(known)
    'About 87 of 100 such answers are correct; on average over similar answers, between 81 and 93.'
    >>> sentence({**known, "low": None, "high": None, "source": "far"})
    'About 87 of 100 such answers are correct. The fit had no answers like this one, so nothing is guaranteed.'
    """
    about = f"About {100 * evidence['calibrated']:.0f} of 100 such answers are correct"
    if evidence["source"] == "far":
        return f"{about}. The fit had no answers like this one, so nothing is guaranteed."
    if evidence["low"] is None:
        return f"{about}. This model has no guaranteed intervals."
    if not evidence["rows"]:
        return f"{about}. The fit had no such answers, so nothing is guaranteed."
    over = {
        "band": "similar answers",
        "group": "similar answers of this group",
        "ancestor": "similar answers of a larger group",
    }
    low, high = (f"{100 * evidence[end]:.0f}" for end in ("low", "high"))
    return f"{about}; on average over {over.get(evidence['source'], 'similar answers')}, between {low} and {high}."


def _decided(evidence: dict[str, Any]) -> str:
    if evidence["decision"] is None:
        return ""
    if evidence["threshold"] is None:
        return "Abstain: no threshold is certified for such answers."
    is_given = evidence["decision"] == "answer"
    return f"{'Answer' if is_given else 'Abstain'}: the threshold is {evidence['threshold']:g}."


def _about_group(evidence: dict[str, Any]) -> str:
    if evidence["group_low"] is None:
        return ""
    low, high = percent(evidence["group_low"]), percent(evidence["group_high"])
    return f"Between {low} and {high} of all answers of this group are correct ({evidence['group_rows']:,} rows)."


def diagram(served: Served, value: Any, group: Any) -> dict[str, Any] | None:
    """Return the reliability diagram of a group on the rows of the fit; None if the model keeps none."""
    drawn = _DRAWN.setdefault(served, {})
    key = (value, group)
    with suppress(KeyError):
        return drawn[key]
    if len(drawn) >= _MOST_DRAWN:
        drawn.clear()
    found = drawn[key] = _diagram(served, value, group)
    return found


def _diagram(served: Served, value: Any, group: Any) -> dict[str, Any] | None:
    record = served.model._models[value].fit_record_.outlooks()
    cells = record.groups.get(group)
    if cells is None or not cells.rows.sum() >= 1:
        return None
    with drawing():
        title, svg = inline_svg(_drawn(_tally(cells)), "group")
    return {"title": title, "svg": Markup(svg), "rows": int(cells.rows.sum())}


def _drawn(tally: Tally) -> Axes:
    """Draw the diagram; with very few rows the calibration error has no interval, and then it is not shown either."""
    ax = reliability_diagram({"calibrated": tally})
    ax.set_title("Accuracy by calibrated confidence", loc="left")
    if math.isnan(estimate_calibration_error(tally.pooled(), bins=BINS, redraws=0).high):
        if (key := ax.get_legend()) is not None:
            key.remove()
        text, _, rest = str(ax.get_label()).partition(" (error ")
        ax.set_label(f"{text}:{rest.partition('):')[2]}" if rest else text)
    return ax


def _tally(cells: Forecast) -> Tally:
    """Return rows with the scores and accuracies of cells."""
    share = min(_MOST_ROWS / max(float(cells.rows.sum()), 1.0), 1.0)
    right = np.round(cells.right * share).astype(np.int64)
    wrong = np.maximum(np.round(cells.rows * share).astype(np.int64) - right, 0)
    counts = np.column_stack([right, wrong]).ravel()
    score, correct = np.repeat(cells.score, 2), np.tile([1, 0], len(right))
    # Each row is a question of its own. The interval of the error needs blocks of questions.
    ids = np.arange(counts.sum())
    return Tally.of(np.repeat(score, counts), np.repeat(correct, counts), ids=ids, n_blocks=BLOCKS)


def curve_of(model: QACalibrator) -> list[tuple[float, float | None]]:
    """Return coverage and accuracy at each hundredth as a threshold; accuracy is None where nothing is answered."""
    cells = model.fit_record_.outlooks().everywhere
    total = float(cells.rows.sum())
    if not total:
        return []
    out: list[tuple[float, float | None]] = []
    for step in range(THRESHOLDS):
        is_answered = cells.score >= step / (THRESHOLDS - 1) - 1e-9
        rows, right = float(cells.rows[is_answered].sum()), float(cells.right[is_answered].sum())
        out.append((round(rows / total, 4), round(right / rows, 4) if rows > 0 else None))
    return out


def at_threshold(curve: list[tuple[float, float | None]], threshold: float) -> str:
    """Return the effect of a threshold in a sentence.

    >>> at_threshold([(1.0, 0.7)] * 50 + [(0.25, 0.912)] * 51, 0.8)
    '0.80 or more: about 25% of the questions are answered, and about 91% of these answers are correct.'
    """
    coverage, accuracy = curve[round(threshold * (THRESHOLDS - 1))]
    if accuracy is None:
        return f"{threshold:.2f} or more: no question is answered."
    return (
        f"{threshold:.2f} or more: about {100 * coverage:.0f}% of the questions are answered, and about "
        f"{100 * accuracy:.0f}% of these answers are correct."
    )


def certificate(rule: DecisionRule | None) -> str:
    """Return what is guaranteed with the threshold of a model; "" if it is not a certified one.

    >>> certificate(DecisionRule(0.8, None, {"kind": "certified", "accuracy": 0.8, "alpha": 0.1, "rows": 1000}))
    'With probability 90%, at least 80% of the answers that it gives are correct (certified on 1,000 held-out answers).'
    """
    if rule is None or not {"accuracy", "alpha", "rows"} <= rule.about.keys():
        return ""
    about = rule.about
    every = "" if rule.groups is None else ", in every group that has a threshold,"
    return (
        f"With probability {percent(1 - about['alpha'])}, at least {percent(about['accuracy'])} of the answers that it "
        f"gives{every} are correct (certified on {counted(about['rows'], 'held-out answer')})."
    )


def groups_of(model: QACalibrator) -> list[dict[str, Any]]:
    """Return the groups with their intervals, the largest first."""
    maps = model.calibrator_.maps_
    certified = maps.group_intervals() if isinstance(maps, MarginMaps) else {}
    return [
        {"summary": group, "name": group_name(group.group), "certified": certified.get(group.group)}
        for group in model.describe_groups()
    ]
