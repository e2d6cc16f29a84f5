"""The rows of an experiment: a few numbers each, a vector per embedder, and the texts, to look at groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qacal.embedders import ColumnEmbedder, Embedder, embedder
from qacal.errors import InputError
from qacal.metrics.evaluation import require_labels
from qacal.model.model_set import mask, rows_by
from qacal.model.pipeline import Progress
from qacal.records.columns import listed
from qacal.records.provenance import Sources
from qacal.records.reading import Batch, Gathered, Reading, read
from qacal.records.table import Table
from qacal.tally.arrays import Floats, Hashes, is_missing


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows of one block: of one LLM, say.

    vectors : a matrix for each embedder, by its name.
    columns : other columns that serve as groups, by name.
    """

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
    reading: Reading,
    *,
    by: Sequence[str] = (),
    embedders: Sequence[str | Embedder] = (),
    columns: Sequence[str] = (),
    allow_mixed: bool = False,
    progress: Progress | None = None,
) -> dict[tuple[Any, ...], Sample]:
    """Return the rows of every block, embedded; a block is one combination of the values of the columns `by`.

    A block with bad rows only is an empty sample.

    columns : others to keep.
    allow_mixed : whether rows may come from several LLMs or prompts.
    """
    makers = [embedder(name) for name in embedders]
    reads_text = any(not isinstance(maker, ColumnEmbedder) for maker in makers)
    blocks: dict[tuple[Any, ...], Gathered] = {}
    sources = Sources()
    done = 0
    for batch in read(records, reading, needs_labels=True, needs_text=reads_text, keeps_bad=True):
        for name in _blocks(batch.whole, [reading.name(column) for column in by]):
            blocks.setdefault(name, Gathered())
        if not len(batch):
            continue
        if batch.ids is None:
            raise InputError("the records need a column id or question, so that the parts share no question.")
        if not allow_mixed:
            sources.add(batch)
            sources.require_one()
        for name, rows in parts_by(batch, by):
            blocks.setdefault(name, Gathered()).add(
                confidence=rows.confidence,
                correct=require_labels(rows.correct, rows.table.origin),
                ids=rows.ids,
                question=rows.question,
                answer=rows.answer,
                **{f"vectors {maker.name}": _vectors(maker, rows) for maker in makers},
                **{f"column {column}": rows.listed(column) for column in columns},
            )
        done += len(batch)
        if progress is not None:
            progress("embedding" if reads_text else "reading", done)
    return {
        name: Sample(np.empty(0), np.empty(0), np.empty(0, dtype=np.uint64))
        if "confidence" not in rows
        else Sample(
            rows["confidence"],
            rows["correct"],
            rows["ids"],
            {maker.name: rows[f"vectors {maker.name}"] for maker in makers},
            {column: rows[f"column {column}"] for column in columns},
            rows.get("question"),
            rows.get("answer"),
        )
        for name, rows in sorted(blocks.items(), key=lambda block: str(block[0]))
    }


def _blocks(table: Table, by: Sequence[str]) -> set[tuple[Any, ...]]:
    """Return the blocks of the rows of a table, good or bad, as far as they are named."""
    if not all(column in table.names for column in by):
        return set()
    names = zip(*(listed(table.column(column)) for column in by), strict=True)
    return {name for name in names if all(isinstance(value, str | int) and value != "" for value in name)}


def parts_by(batch: Batch, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Batch]]:
    """Yield each combination of the values of some columns, and its rows."""
    if not by:
        yield (), batch
        return
    columns = [batch.listed(column) for column in by]
    for column, values in zip(by, columns, strict=True):
        for value, rows in rows_by(values).items():
            if is_missing(value):
                place = f"{batch.table.origin} {batch.table.unit} {batch.table.places[rows[0]]}"
                raise InputError(f"{place}: {column} is missing; it is a column that --by names.")
    for name, rows in rows_by(zip(*columns, strict=True)).items():
        yield name, batch.only(mask(rows, len(batch)))


def _vectors(maker: Embedder, batch: Batch) -> Any:
    if isinstance(maker, ColumnEmbedder):
        return maker.vectors(batch.column(maker.column))
    return maker.embed(batch.question or [], batch.answer or [])
