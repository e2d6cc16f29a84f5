"""The groups of the test rows: their accuracy and confidence, gaps beyond chance, and the table of groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.metrics.calibration import calibration_error
from qacal.metrics.evaluation import BINS
from qacal.report.data import Gathered
from qacal.report.promise import judged
from qacal.report.words import error_seen, percent
from qacal.tally.ids import one_of_each
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from qacal.report.content import Content

# With fewer test rows the error of a group is mostly noise, and it is shown last.
FEW_ROWS = 50
# Characters of all texts of a block together; with hundreds of groups each text is cut shorter.
_TEXT_BUDGET = 400_000
_SHORT = 140


@dataclass(frozen=True, eq=False)
class Group:
    """One group of test rows: its accuracy, and the mean confidence and the error of each score.

    is_off : chance does not explain the gap between the mean calibrated confidence and the accuracy. Never if some
        questions have more rows than others: the test is about questions, the means are about rows.
    words, examples : characteristic words, and some rows; empty if the records have no texts.
    """

    label: Any
    rows: int
    accuracy: float
    confidence: dict[str, float]
    errors: dict[str, float]
    tallies: dict[str, Tally]
    is_off: bool = False
    words: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def gap(self) -> float:
        """The distance of the mean calibrated confidence to the accuracy."""
        return abs(self.confidence["calibrated"] - self.accuracy)

    @property
    def gain(self) -> float:
        """The decrease of the debiased error; errors below noise count as 0."""
        before, after = (np.nan_to_num(max(self.errors[name], 0.0)) for name in ("stated", "calibrated"))
        return float(before - after)


def groups_of(gathered: Gathered, tallies: dict[str, Tally], examples: int) -> tuple[Group, ...]:
    """Return the groups with the largest gain first, and those with few rows last."""
    groups = _groups(gathered, tallies, examples)
    return tuple(sorted(groups, key=lambda group: (group.rows < FEW_ROWS, -group.gain, str(group.label))))


def _groups(gathered: Gathered, tallies: dict[str, Tally], examples: int) -> Iterator[Group]:
    if not gathered.labels:
        return
    labels = {code: label for label, code in gathered.labels.items()}
    off = set() if gathered.is_uneven else _codes_that_are_off(gathered)
    words, pairs = gathered.sampler.words(), gathered.sampler.examples(examples)
    columns = {name: dict(iter(tally)) for name, tally in tallies.items()}
    for code, first in columns["stated"].items():
        mine = {name: column[code] for name, column in columns.items()}
        yield Group(
            label=labels.get(code),
            rows=first.n,
            accuracy=first.mean,
            confidence={name: float(tally.w @ tally.confidence / tally.w.sum()) for name, tally in mine.items()},
            errors={
                name: calibration_error(tally, bins=BINS) if tally.n > 1 else float("nan")
                for name, tally in mine.items()
            },
            tallies={name: tally.without_blocks() for name, tally in mine.items()},
            is_off=(-1 if code is None else code) in off,
            words=words.get(code, ()) if examples else (),
            examples=pairs.get(code, ()),
        )


def _codes_that_are_off(gathered: Gathered) -> set[int]:
    """Return the groups with a gap that chance does not explain; each question counts once.

    If the calibrated confidences are right within every group, any group is returned with probability at most 0.05.
    """
    correct, claimed, codes, ids = (gathered.column(name) for name in ("correct", "calibrated", "groups", "ids"))
    kept = slice(None) if ids is None else one_of_each(ids, correct, claimed, codes)
    known, where = np.unique(codes[kept], return_inverse=True)
    t, p = correct[kept], claimed[kept]
    columns = (np.ones(len(t)), t, t * t, p)
    rows, right, squares, total = (np.bincount(where, column).astype(np.float64) for column in columns)
    judgement = judged(rows, right, squares, (total / rows, total / rows))
    return set(known[judgement.is_contradicted].tolist())


def group_name(label: Any) -> str:
    """Return the name of a group; groups of a tree or of k-means only have numbers."""
    if label is None:
        return "no group"
    return f"group {label}" if isinstance(label, int) and not isinstance(label, bool) else str(label)


def group_rows(content: Content) -> list[dict[str, Any]]:
    """Return the rows of the table of groups, as the template shows them."""
    texts = 2 * sum(len(group.examples) for group in content.groups)
    longest = min(max(_TEXT_BUDGET // max(texts, 1), 2 * _SHORT), 2_000)
    return [
        {
            "name": group_name(group.label),
            "words": ", ".join(group.words),
            "numbers": _numbers(group),
            "pairs": [_pair(example, longest) for example in group.examples],
            "is_small": group.rows < FEW_ROWS,
        }
        for group in content.groups
    ]


def _numbers(group: Group) -> dict[str, str]:
    errors = {f"error {'one for all' if name == 'pooled' else name}": error for name, error in group.errors.items()}
    return {
        "rows": f"{group.rows:,}",
        "accuracy": percent(group.accuracy),
        "stated": percent(group.confidence["stated"]),
        "calibrated": percent(group.confidence["calibrated"]),
        **{name: error_seen(error, 2) for name, error in errors.items()},
    }


def _pair(example: dict[str, Any], longest: int) -> dict[str, Any]:
    return {
        "question": _cut(str(example["question"]), longest),
        "answer": _cut(str(example["answer"]), longest),
        "stated": percent(example["confidence"]),
        "calibrated": percent(example["calibrated"]),
        "verdict": {1.0: "correct", 0.0: "wrong"}.get(example["correct"], f"{example['correct']:.2g} correct"),
    }


def _cut(text: str, longest: int) -> dict[str, str]:
    """Return a text for one line, and if that is only its start, more of it."""
    line = " ".join(text.split())
    full = line if len(line) <= longest else f"{line[: longest - 1]}…"
    return {"short": line, "full": ""} if len(line) <= _SHORT else {"short": f"{line[: _SHORT - 1]}…", "full": full}
