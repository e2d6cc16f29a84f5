"""`qacal embed`: add the vectors of rows as a column, so that they are computed once."""

from __future__ import annotations

from time import monotonic
from typing import Annotated

import typer

from qacal.cli import options


def run(
    file: options.Rows,
    output: options.Output = "-",
    embedder: Annotated[str, typer.Option(help="static, minilm, onnx:DIR or hf:ID.")] = "static",
    into: Annotated[str, typer.Option(metavar="COLUMN", help="The name of the new column.")] = "embedding",
    json: options.Json = False,
    column: options.Columns = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Add the vector of every question-answer pair as a column.

    The vectors are then computed once, not by every command. Parquet stores them best.

    \b
        qacal embed answers.parquet -o embedded.parquet --embedder minilm
        qacal fit embedded.parquet -o model --embedder column:embedding
    """
    import polars as pl

    from qacal.embedders import embedder as embedder_of
    from qacal.errors import InputError
    from qacal.model.pipeline import within_batch
    from qacal.records.reading import read

    options.require_apart(file, output, skip_bad_rows)
    options.require_writable(output)
    options.require_free_output(json, output)
    maker = embedder_of(embedder)
    began, done = monotonic(), 0
    reads = options.input_rows(file, column, False, skip_bad_rows, max_bad)
    with reads as (rows, reading, progress), options.open_output(output, rows) as writer:
        for batch in read(rows, reading, needs_labels=False, needs_confidence=False, uses_ids=False):
            table = batch.table
            if into in table.names:
                raise InputError(f"{table.origin} already has a column {into!r}; pass another name with --into.")
            vectors = maker.embed(batch.question or [], batch.answer or [], within_batch("embedding", done, progress))
            column_type = pl.Array(pl.Float32, vectors.shape[1])
            writer.write(table.extended(pl.DataFrame([pl.Series(into, vectors, dtype=column_type).arr.to_list()])))
            done += len(table)
            if progress is not None:
                progress("embedding", done)
    if json:
        print(options.json_text(options.run_summary(reading, began, output, done) | {"numbers": maker.dim}))
    elif output != "-":
        options.note(f"{done:,} rows with vectors of {maker.dim} numbers written to {output}.")
