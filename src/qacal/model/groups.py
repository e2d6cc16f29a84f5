r"""What is in a group: its size, its accuracy, its distinctive words, and a few examples.

A word is distinctive by the weighted log odds of Monroe, Colaresi and Quinn (2008): with :math:`y_w` of :math:`n`
texts of the group and :math:`y'_w` of :math:`n'` others using word :math:`w`, and half a text added to each count,

.. math:: z_w = \frac{\log\frac{y_w}{n - y_w} - \log\frac{y'_w}{n' - y'_w}}{\sqrt{1/y_w + 1/y'_w}}.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from qacal.parameters import MOST, Between
from qacal.records.table import require_polars
from qacal.tally.arrays import Floats, Hashes
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    import polars as pl

# Words are counted in this many texts of a group: enough to show what it is about.
_TEXTS = 400
_WORD = r"[\p{L}\p{M}]{3,}"


# A text in a heap: the negative of its hash, so that the lowest hashes stay; then what decides between equal hashes.
_Entry: TypeAlias = tuple[int, str, str, *tuple[float, ...]]
_NAMES = ("question", "answer", "confidence", "correct", "calibrated")


@dataclass(frozen=True)
class GroupSummary:
    """One group, for people to read.

    group : its name.
    rows : how many of its rows the calibrator was fitted on.
    accuracy, confidence : of these rows; the mean of the stated confidences.
    words : the most distinctive first.
    examples : some of its rows.
    """

    group: Any
    rows: Annotated[int, Between(0, MOST)]
    accuracy: Annotated[float, Between(0, 1)]
    confidence: Annotated[float, Between(0, 1)]
    words: tuple[str, ...]
    examples: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Sampler:
    """Keeps some texts of every group: those with the lowest hashes, so that the order of rows does not matter."""

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
        """Take more rows; examples have `calibrated` if all calls pass it."""
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
        """Return the texts by the ancestors of their groups, `levels` further up the tree."""
        out = Sampler()
        for leaf, heap in self._kept.items():
            out._kept.setdefault(leaf >> levels, []).extend(heap)
        out._kept = {group: heapq.nlargest(_TEXTS, heap) for group, heap in out._kept.items()}
        return out

    def words(self, count: int = 8) -> dict[Any, tuple[str, ...]]:
        """Return the most distinctive words of each group."""
        if not self._kept:
            return {}
        distinctive = _distinctive(_counted([*self._kept.values()]))
        best = distinctive.sort("group", "z", "word", descending=[False, True, False]).group_by("group").head(count)
        listed = dict(best.group_by("group").agg("word").iter_rows())
        return {group: tuple(listed.get(number, ())) for number, group in enumerate(self._kept)}

    def examples(self, count: int) -> dict[Any, tuple[dict[str, Any], ...]]:
        return {
            group: tuple(dict(zip(_NAMES, entry[1:], strict=False)) for entry in heapq.nlargest(count, heap))
            for group, heap in self._kept.items()
        }


def _counted(heaps: Sequence[Sequence[_Entry]]) -> pl.DataFrame:
    """Return for each group and word how many texts use it, in the group and everywhere, and the numbers of texts."""
    import polars as pl

    require_polars()
    sizes = [len(heap) for heap in heaps]
    # A lone surrogate, which JSON can hold, is replaced: polars takes valid text only.
    texts = [f"{entry[1]} {entry[2]}".encode("utf-8", "replace").decode() for heap in heaps for entry in heap]
    rows = pl.LazyFrame({"group": np.repeat(np.arange(len(heaps)), sizes), "word": texts})
    words = pl.col("word").str.to_lowercase().str.extract_all(_WORD).list.unique()
    used = rows.select("group", words).explode("word", empty_as_null=True).drop_nulls().group_by("group", "word")
    return (
        used.agg(
            inside=pl.len().cast(pl.Float64),
            n=pl.col("group").first().replace_strict(range(len(sizes)), sizes, return_dtype=pl.Float64),
            total=pl.lit(float(sum(sizes))),
        )
        .with_columns(everywhere=pl.col("inside").sum().over("word"))
        .collect()
    )


def _distinctive(counted: pl.DataFrame) -> pl.DataFrame:
    """Return the distinctive words of each group with their z; all words by count if there is nothing to compare."""
    import polars as pl

    inside, n = pl.col("inside") + 0.5, pl.col("n")
    others, rest = pl.col("everywhere") - pl.col("inside") + 0.5, pl.col("total") - n
    odds = (inside / (n + 1 - inside)).log() - (others / (rest + 1 - others)).log()
    is_alone = (pl.col("total") == n) | (pl.col("inside").max().over("group") < 2)
    z = pl.when(is_alone).then("inside").otherwise(odds / (1 / inside + 1 / others).sqrt())
    is_kept = is_alone | ((pl.col("inside") >= 2) & (z > 1))
    return counted.select("group", "word", z=z, is_kept=is_kept).filter("is_kept")


class Summaries:
    """The summaries of all groups, the largest first; for a tree, of the groups at `depth`.

    They are computed when they are first read: calibrating does not need them.
    """

    def __init__(self, tally: Tally, depth: int, sampler: Sampler, examples: int) -> None:
        self._tally, self._depth, self._sampler, self._examples = tally, depth, sampler, examples

    def __iter__(self) -> Iterator[GroupSummary]:
        return iter(self._groups)

    @cached_property
    def _groups(self) -> list[GroupSummary]:
        tally, sampler, column = self._tally, self._sampler, self._tally.grouping
        if column is None:
            return []
        if column.depth is not None:
            tally = tally.roll_up(self._depth).flat()
            sampler = sampler.rolled_up(column.depth - self._depth)
        words, rows = sampler.words(), sampler.examples(self._examples)
        out = []
        for label, part in tally:
            if label is not None:
                weight = part.w.sum()
                accuracy, stated = float(part.wt.sum() / weight), float(part.w @ part.confidence / weight)
                out.append(
                    GroupSummary(label, int(part.n), accuracy, stated, words.get(label, ()), rows.get(label, ()))
                )
        return sorted(out, key=lambda group: (-group.rows, str(group.group)))
