"""`qacal embed`: add the vectors of rows as a column, so that they are computed once."""

from __future__ import annotations

from time import monotonic
from typing import Annotated

import typer

from qacal.cli import options


def run(
    files: options.Files,
    output: options.Output = "-",
    embedder: Annotated[str, typer.Option(help="static, minilm, onnx:DIR or hf:ID.")] = "static",
    into: Annotated[str, typer.Option(metavar="COLUMN", help="The name of the new column.")] = "embedding",
    json: options.Json = False,
    column: options.Columns = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
    engine: options.EngineOption = "local",
    address: options.Address = None,
) -> None:
    """Add the vector of every question-answer pair as a column.

    The vectors are then computed once, not by every command. Parquet stores them best.

    Of many Parquet files, each becomes a file in the folder -o (large ones several). A command that was stopped does
    only what is left if it is started again.

    \b
        qacal embed answers.parquet -o embedded.parquet --embedder minilm
        qacal fit embedded.parquet -o model --embedder column:embedding
        qacal embed logs/ -o embedded/ --engine ray --address auto
    """
    from qacal.cluster.jobs import Job, embedded
    from qacal.embedders import embedder as embedder_of

    if options.is_job(files, engine, address, output):
        from qacal.cluster.running import run_job

        began = monotonic()
        options.require_output_folder(output)
        how = options.job_reading(files, column, False, None, skip_bad_rows, max_bad)
        runs = options.job_runs(engine, address, skip_bad_rows)
        with options.failures_as_json(json, began, output), runs as where:
            outcome = run_job(Job("embed", embedder=embedder, into=into, **how), files, output, where)
        if json:
            print(options.json_text(options.job_account(outcome, began, output)))
        else:
            options.tell_outcome(outcome, outcome.written, f"with vectors written to {output}", skip_bad_rows)
        return
    (file,) = files
    options.require_apart(file, output, skip_bad_rows)
    options.require_writable(output, file)
    options.require_free_output(json, output)
    maker = embedder_of(embedder)
    began, done = monotonic(), 0
    reads = options.input_rows(file, column, False, skip_bad_rows, max_bad)
    with reads as (rows, reading, progress), options.open_output(output, rows) as writer:
        for table in embedded(rows, reading, maker, into, progress):
            writer.write(table)
            done += len(table)
            if progress is not None:
                progress("embedding", done)
    if json:
        print(options.json_text(options.run_summary(reading, began, output, done) | {"numbers": maker.dim}))
    elif output != "-":
        options.note(f"{done:,} rows with vectors of {maker.dim} numbers written to {output}.")
