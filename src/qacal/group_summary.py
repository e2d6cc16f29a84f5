r"""What is in a group: its size, how often its answers are right, the words that set it apart, and a few examples.

A word is distinctive by the weighted log odds of Monroe, Colaresi and Quinn (2008): with :math:`y_w` of :math:`n`
texts of the group and :math:`y'_w` of :math:`n'` others using word :math:`w`, and half a text added to each count,

.. math:: z_w = \frac{\log\frac{y_w}{n - y_w} - \log\frac{y'_w}{n' - y'_w}}{\sqrt{1/y_w + 1/y'_w}}.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from qacal.errors import InputError
from qacal.tally import Tally
from qacal.values import Floats, Hashes

# Words are counted in this many texts of a group: enough to tell what it is about, however many rows there are.
_TEXTS = 400
_WORD = re.compile(r"[^\W\d_]{3,}")


# A text in a heap: the negative of its hash, so that the lowest hashes stay; the rest decides between equal ones.
_Entry: TypeAlias = tuple[int, str, str, *tuple[float, ...]]
_NAMES = ("question", "answer", "confidence", "correct", "calibrated")


@dataclass(frozen=True)
class GroupSummary:
    """One group as a person would want to see it.

    group : its name.
    rows : the calibration rows in it.
    accuracy, confidence : how often they were right, and what they claimed on average.
    words : the words that set it apart, the most distinctive first.
    examples : some of its rows.
    """

    group: Any
    rows: int
    accuracy: float
    confidence: float
    words: tuple[str, ...]
    examples: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> GroupSummary:
        """Return the summary that :meth:`to_dict` was called on."""
        try:
            summary = GroupSummary(**{**plain, "words": tuple(plain["words"]), "examples": tuple(plain["examples"])})
            numbers = (float(summary.rows), float(summary.accuracy), float(summary.confidence))
            are_texts = all(isinstance(word, str) for word in summary.words)
            are_rows = all(isinstance(example, dict) for example in summary.examples)
        except (TypeError, ValueError, KeyError, AttributeError):
            raise InputError("a group's description lacks something or has something of the wrong type.") from None
        if not (np.isfinite(numbers).all() and are_texts and are_rows):
            raise InputError(f"the description of group {summary.group!r} is not one.")
        return summary


class Sampler:
    """Keeps some texts of every group: those whose hashes are lowest, so that the order of rows does not matter."""

    def __init__(self) -> None:
        self._kept: dict[Any, list[_Entry]] = {}

    def add(
        self,
        groups: Sequence[Any],
        ids: Hashes,
        questions: Sequence[str],
        answers: Sequence[str],
        confidence: Floats,
        correct: Floats,
        calibrated: Floats | None = None,
    ) -> None:
        """Look at more rows; examples show what was calibrated where all rows say it."""
        numbers = [column.tolist() for column in (confidence, correct, calibrated) if column is not None]
        for group, key, question, answer, *others in zip(
            groups, ids.tolist(), questions, answers, *numbers, strict=True
        ):
            if group is None:
                continue
            heap = self._kept.setdefault(group, [])
            entry: _Entry = (-key, question, answer, *others)
            if len(heap) < _TEXTS:
                heapq.heappush(heap, entry)
            elif entry > heap[0]:
                heapq.heapreplace(heap, entry)

    def rolled_up(self, levels: int) -> Sampler:
        """Return the texts of a tree's groups so many levels further up."""
        out = Sampler()
        for leaf, heap in self._kept.items():
            out._kept.setdefault(leaf >> levels, []).extend(heap)
        out._kept = {group: heapq.nlargest(_TEXTS, heap) for group, heap in out._kept.items()}
        return out

    def words(self, count: int = 8) -> dict[Any, tuple[str, ...]]:
        """Return the most distinctive words of each group."""
        used = {group: Counter(_words(heap)) for group, heap in self._kept.items()}
        sizes = {group: len(heap) for group, heap in self._kept.items()}
        everywhere: Counter[str] = Counter()
        for mine in used.values():
            everywhere.update(mine)
        total = sum(sizes.values())
        return {group: _distinctive(mine, sizes[group], everywhere, total)[:count] for group, mine in used.items()}

    def examples(self, count: int) -> dict[Any, tuple[dict[str, Any], ...]]:
        """Return some rows of each group."""
        return {
            group: tuple(dict(zip(_NAMES, entry[1:], strict=False)) for entry in heapq.nlargest(count, heap))
            for group, heap in self._kept.items()
        }


def _words(heap: Sequence[_Entry]) -> list[str]:
    return [word for entry in heap for word in {*_WORD.findall(f"{entry[1]} {entry[2]}".lower())}]


def _distinctive(mine: Counter[str], n: int, everywhere: Counter[str], total: int) -> tuple[str, ...]:
    words = sorted(word for word, count in mine.items() if count >= 2)
    if not words or total == n:
        return tuple(word for word, _ in sorted(mine.items(), key=lambda item: (-item[1], item[0])))
    y = np.array([mine[word] for word in words]) + 0.5
    others = np.array([everywhere[word] - mine[word] for word in words]) + 0.5
    odds = np.log(y / (n + 1 - y)) - np.log(others / (total - n + 1 - others))
    z = odds / np.sqrt(1 / y + 1 / others)
    return tuple(words[at] for at in np.argsort(-z, kind="stable").tolist() if z[at] > 1)


def summaries(tally: Tally, depth: int, sampler: Sampler, examples: int) -> list[GroupSummary]:
    """Return what is in each group of a tally, the largest first; of a tree, the groups at `depth`."""
    column = tally.grouping
    if column is None:
        return []
    if column.depth is not None:
        tally = tally.roll_up(depth).flat()
        sampler = sampler.rolled_up(column.depth - depth)
    words, rows = sampler.words(), sampler.examples(examples)
    out = []
    for label, mine in tally:
        if label is not None:
            weight = mine.w.sum()
            right, stated = float(mine.wt.sum() / weight), float(mine.w @ mine.confidence / weight)
            out.append(GroupSummary(label, int(mine.n), right, stated, words.get(label, ()), rows.get(label, ())))
    return sorted(out, key=lambda group: (-group.rows, str(group.group)))
