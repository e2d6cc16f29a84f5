"""`qacal tally`: count labelled rows into cells, where they are; `qacal fit` adds the cells up."""

from __future__ import annotations

import os
from time import monotonic
from typing import Annotated, Literal

import typer

from qacal.cli import options


def run(
    files: options.ParquetFiles,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Output: a .parquet file.")],
    groups: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Count by the groups of this column, and by confidence.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Count by groups and scores of this model. Rows must not be of its fit."),
    ] = None,
    ids: Annotated[
        Literal["check", "documents", "ignore"],
        typer.Option(
            help="Rows with one id (without ids: one question): check stops if it finds any (a few among "
            "millions may be missed), documents counts them as one document with more cells, ignore takes all rows as "
            "independent. With --model, rows of its fit are refused in any case."
        ),
    ] = "check",
    resolution: Annotated[
        float | None,
        typer.Option(metavar="STEP", help="With --groups: round confidences to this grid, for fewer cells: 0.001."),
    ] = None,
    allow_other_source: options.AllowOtherSource = None,
    json: options.Json = False,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
    engine: options.EngineOption = "local",
    address: options.Address = None,
) -> None:
    """Count labelled rows into cells that add up over files.

    A cell has the numbers of rows and of correct ones with one confidence (or score) and group: cells
    are few, and have no texts. Tallies of any number of files fit a model. With --model, groups and scores come from a
    model that a sample of the rows trained; the tallies then certify it on all other rows.

    \b
        qacal tally monday/*.parquet -o monday.tally.parquet --groups subject
        qacal fit monday.tally.parquet tuesday.tally.parquet -o model
        qacal fit sample.parquet -o first
        qacal tally logs/ -o logs.tally.parquet --model first --engine daft
        qacal fit logs.tally.parquet --from first -o model
    """
    from qacal.cluster.jobs import Job, model_files
    from qacal.cluster.parts import require_apart
    from qacal.cluster.running import clean_up, count
    from qacal.errors import InputError
    from qacal.model.saved import load_one
    from qacal.model.tallies import is_tally

    if groups is None and model is None:
        raise typer.BadParameter("name the column of groups (--groups), or a model that has groups (--model).")
    if groups is not None and model is not None:
        raise typer.BadParameter("a model has its groups: pass --groups or --model, and not both.")
    if model is not None and resolution is not None:
        raise typer.BadParameter("--resolution goes with --groups: cells of a model have the ends of its bands.")
    if not output.endswith(".parquet"):
        raise typer.BadParameter(f"-o is {output}; a tally is a .parquet file.")
    options.require_apart(*files, output, skip_bad_rows)
    options.require_folder(output)
    require_apart(files, output)
    if os.path.exists(output) and not is_tally(output):
        raise InputError(f"{output} exists, and is no tally. Name another file with -o.")
    options.is_job(files, engine, address)
    began = monotonic()
    loaded = None if model is None else load_one(model, embedder=embedder)
    job = Job(
        "tally",
        groups=groups,
        ids=ids,
        resolution=resolution,
        allow_other_source=tuple(allow_other_source or ()),
        embedder=embedder,
        **options.job_reading(files, column, percent, expression, skip_bad_rows, max_bad, loaded),
        **({} if model is None else model_files(model)),
    )
    with options.job_runs(engine, address, skip_bad_rows) as where:
        counted, outcome = count(job, files, output, where)
        counted.require_independent()
        counted.save(output)
    clean_up(output)
    tally = counted.certify
    if json:
        account = options.job_account(outcome, began, output) | {"rows_written": None}
        print(options.json_text({"rows": tally.n, "cells": len(tally), **account}))
    else:
        text = f"counted: {tally.n:,} labelled ones in {len(tally):,} cells"
        options.tell_outcome(outcome, outcome.rows, text, skip_bad_rows)
        options.note(f"Written to {output}.")
    if ids == "check" and counted.has_ids is None:
        options.note("Rows have neither ids nor questions, so nothing shows whether some are of one question.")
