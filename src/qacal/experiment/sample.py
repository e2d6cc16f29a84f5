"""The rows of an experiment: a few numbers each, a vector per embedder, and the text for whoever looks at groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qacal.embedders import ColumnEmbedder, Embedder, embedder
from qacal.errors import InputError
from qacal.metrics.evaluation import require_labels
from qacal.model.answering import Progress
from qacal.records.columns import listed
from qacal.records.provenance import Sources
from qacal.records.reading import Batch, Gathered, Reading, as_source, read
from qacal.tally.arrays import Floats, Hashes, is_missing


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows of one block: of one LLM, say.

    name : its value in each of the columns that blocks are made by.
    vectors : a matrix for each embedder, by its name.
    columns : other columns that serve as groups, by name.
    """

    name: tuple[Any, ...]
    confidence: Floats
    correct: Floats
    ids: Hashes
    vectors: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, list[Any]] = field(default_factory=dict)
    question: Sequence[str] | None = None
    answer: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.confidence)


def read_samples(
    records: Any,
    how: Reading,
    *,
    by: Sequence[str] = (),
    embedders: Sequence[str | Embedder] = (),
    columns: Sequence[str] = (),
    allow_mixed: bool = False,
    progress: Progress | None = None,
) -> dict[tuple[Any, ...], Sample]:
    """Return the rows of every block, embedded; a block is one combination of the values of the columns `by`.

    columns : others to keep.
    allow_mixed : whether rows may come from several LLMs or prompts.
    """
    makers = [embedder(one) for one in embedders]
    reads_text = any(not isinstance(maker, ColumnEmbedder) for maker in makers)
    blocks: dict[tuple[Any, ...], Gathered] = {}
    sources = Sources()
    done = 0
    for batch in read(records, how, needs_labels=True, needs_text=reads_text):
        if batch.ids is None:
            raise InputError("the records need a column id or question, so that the parts share no question.")
        if not allow_mixed:
            sources.add(batch)
            sources.require_one()
        for name, mine in _by_value(batch, by):
            _add(blocks.setdefault(name, Gathered()), mine, makers, columns)
        done += len(batch)
        if progress is not None:
            progress("embedding" if reads_text else "reading", done)
    return {name: _sample(name, blocks[name], makers, columns) for name in sorted(blocks, key=str)}


def lost_blocks(
    records: Any, how: Reading, by: Sequence[str], found: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Return the blocks of which no row could be used."""
    seen: dict[tuple[Any, ...], None] = {}
    for table in as_source(records).batches(lambda fault: None):
        names = [how.name(column) for column in by]
        if by and all(name in table.names for name in names):
            seen.update(dict.fromkeys(zip(*(listed(table.column(name)) for name in names), strict=True)))
    return [name for name in seen if name not in found and not any(map(is_missing, name))]


def _by_value(batch: Batch, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Batch]]:
    if not by:
        yield (), batch
        return
    names = list(zip(*(batch.listed(column) for column in by), strict=True))
    missing = next((row for row, name in enumerate(names) if any(map(is_missing, name))), None)
    if missing is not None:
        column = by[[is_missing(value) for value in names[missing]].index(True)]
        raise InputError(
            f"{batch.table.origin} {batch.table.unit} {batch.table.places[missing]}: {column} is missing; it is a "
            "column that --by names."
        )
    for name in dict.fromkeys(names):
        yield name, batch.only(np.array([other == name for other in names]))


def _add(kept: Gathered, batch: Batch, makers: Sequence[Embedder], columns: Sequence[str]) -> None:
    kept.add(
        confidence=batch.confidence,
        correct=require_labels(batch.correct, batch.table.origin),
        ids=batch.ids,
        question=batch.question,
        answer=batch.answer,
        **{f"vectors {maker.name}": _vectors(maker, batch) for maker in makers},
        **{f"column {name}": batch.listed(name) for name in columns},
    )


def _sample(name: tuple[Any, ...], kept: Gathered, makers: Sequence[Embedder], columns: Sequence[str]) -> Sample:
    return Sample(
        name,
        kept["confidence"],
        kept["correct"],
        kept["ids"],
        {maker.name: kept[f"vectors {maker.name}"] for maker in makers},
        {column: kept[f"column {column}"] for column in columns},
        kept.get("question"),
        kept.get("answer"),
    )


def _vectors(maker: Embedder, batch: Batch) -> Any:
    if isinstance(maker, ColumnEmbedder):
        return maker.vectors(batch.column(maker.column))
    return maker.embed(batch.question or [], batch.answer or [])
