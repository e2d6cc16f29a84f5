"""`qacal apply`: rows in, the same rows with calibrated confidences out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from qacal.cli import options

_KEPT = "kept without a calibrated confidence (unparsable lines left out)"


def run(
    model: options.Model,
    files: options.Files,
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
    engine: options.EngineOption = "local",
    address: options.Address = None,
) -> None:
    """Add calibrated confidences to rows, with the evidence.

    \b
    New columns:
        calibrated  the probability that the answer is correct
        low, high   answers with a similar score are too high by at most
                    calibrated - low, and too low by at most high - calibrated,
                    on average
        group       the group of the row
        source      which answers low and high are about: those of a band (a
                    similar score, any group); far if the row is unlike the fit
                    and has no interval. With other calibrators (step-binning,
                    tree-binning, qa-binning), low and high are an interval for
                    the accuracy of a bin: in the group, in an ancestor (a
                    larger group) or in the root (all rows)
        rows        the certifying rows in the band or bin
        group_low, group_high
                    an interval for the accuracy of all answers of the group
        group_rows  the certifying rows of the group
        alpha       the probability that any interval of the model is wrong
        unlike      how far the row is from the fit, 0 to 1
        decision    answer or abstain, after qacal threshold
        threshold   the lowest calibrated confidence that is answered; empty if
                    such rows always abstain

    All other columns pass through unchanged. With --skip-bad-rows, bad rows stay in place with empty new columns.

    Of many Parquet files, each becomes a file in the folder -o (large ones several). A command that was stopped does
    only what is left if it is started again. A file that cannot be read is named, and all others are done.

    \b
        qacal apply model new.parquet -o out.parquet
        cat new.jsonl | qacal apply model - > out.jsonl
        qacal apply model new.parquet -o out.parquet --threshold 0.8
        qacal apply model 'logs/2026-*.parquet' -o calibrated/ --engine daft
    """
    from qacal.model.saved import load
    from qacal.records.columns import listed

    if options.is_job(files, engine, address, output):
        options.require_output_folder(output)
        loaded = load(model, embedder=embedder)
        settings = {
            **options.job_reading(files, column, percent, expression, skip_bad_rows, max_bad, loaded),
            "prefix": prefix,
            "threshold": threshold,
            "embedder": embedder,
            "allow_other_source": tuple(allow_other_source or ()),
        }
        _run_job(model, files, output, settings, (engine, address, skip_bad_rows), json=json)
        return
    (file,) = files
    options.require_apart(file, output, skip_bad_rows)
    options.require_writable(output, file)
    options.require_free_output(json, output)
    loaded = load(model, embedder=embedder)
    if threshold is not None:
        loaded.set_threshold(threshold)
    began, done, columns, decisions = monotonic(), 0, list[str](), Counter[Any]()
    reads = options.input_rows(
        file, column, percent, skip_bad_rows, max_bad, expression, model=loaded, bad_rows_are=_KEPT
    )
    with reads as (rows, reading, progress), options.open_output(output, rows) as writer:
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
        summary = options.run_summary(reading, began, output, done)
        print(options.json_text({**summary, "columns": columns, "answered": answered}))
    elif output != "-":
        options.note(f"{done:,} rows written to {output}.")


def _run_job(
    model: str,
    files: list[str],
    output: str,
    settings: dict[str, Any],
    runs: tuple[str, str | None, Path | None],
    *,
    json: bool,
) -> None:
    """Calibrate the rows of many files."""
    from qacal.cluster.jobs import Job, model_files
    from qacal.cluster.running import run_job

    began = monotonic()
    with options.failures_as_json(json, began, output), options.job_runs(*runs) as where:
        outcome = run_job(Job("apply", **settings, **model_files(model)), files, output, where)
    if json:
        print(options.json_text(options.job_account(outcome, began, output)))
    else:
        options.tell_outcome(outcome, outcome.written, f"written to {output}", runs[2])
