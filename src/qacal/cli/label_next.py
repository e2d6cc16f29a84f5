"""`qacal label-next`: which answers to label."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from qacal.cli import options


def run(
    model: options.Model,
    file: options.Rows,
    output: options.Output = "-",
    n: Annotated[int, typer.Option("-n", "--rows", min=1, help="How many rows to label.")] = 200,
    seed: Annotated[int, typer.Option(help="Another seed draws other rows.")] = 0,
    allow_other_source: options.AllowOtherSource = None,
    json: options.Json = False,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Draw the answers to label next.

    A random sample of the answers in FILE, which need no labels: every range of the calibrated probability and every
    group of the model gets its share. All answers have the same chance, so everything that holds for a random sample
    holds for these rows, and no weights are needed. Do not add answers because they look wrong or unsure: intervals
    would no longer hold.

    New columns: stratum, a number from 1 to n, with one row drawn from each stratum, and label_probability, the chance
    that the row had. If ids repeat, one row of each id can be drawn. Rows of the fit are refused.

    \b
        qacal label-next model new.jsonl -n 200 -o to_label.jsonl

    \b
    Then add a column correct (0 or 1) to all rows of to_label.jsonl, and use it as a test file or to certify:
        qacal evaluate to_label.jsonl --model model
        qacal threshold model to_label.jsonl --accuracy 0.9 --save
        qacal fit train.jsonl --certify to_label.jsonl -o model
    In Python, qacal.metrics.estimate_accuracy gives an exact interval for the accuracy of all answers in FILE.
    """
    from qacal.model.labelling import tables_to_label
    from qacal.model.saved import load

    options.require_apart(file, output, skip_bad_rows)
    options.require_writable(output)
    options.require_free_output(json, output)
    loaded = load(model, embedder=embedder)
    reads = options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression, model=loaded)
    with reads as (rows, reading, progress), options.open_output(output, rows) as writer:
        for table in tables_to_label(
            loaded, rows, n, reading, seed=seed, allow_other_source=allow_other_source or (), progress=progress
        ):
            writer.write(table)
    if json:
        print(options.json_text({"file": output, "rows": n, "seed": seed}))
    elif output != "-":
        options.note(
            f"{n:,} rows written to {output}. Add a column correct (0 or 1) to all of them, and then:\n"
            f"    qacal evaluate {quote(output)} --model {quote(model)}"
        )
