"""`qacal apply`: rows in, the same rows with calibrated confidences out."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from qacal.cli import options

_KEPT = "kept without a calibrated confidence (unparsable lines left out)"


def run(
    model: options.Model,
    file: options.Rows,
    output: options.Output = "-",
    prefix: Annotated[str, typer.Option(help="Prefix for the names of the new columns.")] = "",
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            min=0.0,
            max=1.0,
            help="Threshold for this run. Default: the one saved by qacal threshold.",
        ),
    ] = None,
    allow_other_source: options.AllowOtherSource = None,
    json: options.Json = False,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Add calibrated confidences to rows, with the evidence.

    New columns: calibrated (the probability that the answer is correct), low and high (its interval, if the model
    certifies one), group, source (whose intervals were used: group, ancestor for a larger group, root for all rows),
    rows (certifying rows in the bin that was used), alpha (the probability that at least one interval of the model is
    wrong), decision ("answer" or "abstain", after qacal threshold) and threshold (empty if such rows always abstain).
    All other columns pass through unchanged. With --skip-bad-rows, bad rows stay in place with empty new columns.

    \b
        qacal apply model new.parquet -o out.parquet
        cat new.jsonl | qacal apply model - > out.jsonl
        qacal apply model new.parquet -o out.parquet --threshold 0.8
    """
    from qacal.model.saved import load
    from qacal.records.columns import listed

    options.require_apart(file, output, skip_bad_rows)
    options.require_writable(output)
    options.require_free_output(json, output)
    loaded = load(model, embedder=embedder)
    if threshold is not None:
        loaded.set_threshold(threshold)
    done, columns, decisions = 0, list[str](), Counter[Any]()
    reads = options.input_rows(
        file, column, percent, skip_bad_rows, max_bad, expression, model=loaded, bad_rows_are=_KEPT
    )
    with reads as (rows, reading, progress), options.writing(output, rows) as writer:
        for table in loaded._calibrated(
            rows, reading, allow_other_source=allow_other_source or (), prefix=prefix, progress=progress
        ):
            writer.write(table)
            done += len(table)
            columns = list(table.names)
            if json and f"{prefix}decision" in columns:
                decisions.update(listed(table.column(f"{prefix}decision")))
    if json:
        answered = decisions["answer"] if decisions.keys() - {None} else None
        print(options.json_text({"file": output, "rows": done, "columns": columns, "answered": answered}))
    elif output != "-":
        options.note(f"{done:,} rows written to {output}.")
