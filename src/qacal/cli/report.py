"""`qacal report`: one HTML file about a model and its quality on held-out rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qacal.cli import options


def run(
    model: options.Model,
    file: options.Rows,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write, or - for standard output.")
    ],
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Show the values of this column, such as subject. Default: the model's groups."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Mark this threshold instead of the one saved by qacal threshold."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    by: options.SeparateResults = None,
    examples: Annotated[
        int, typer.Option(min=0, help="Number of question-answer pairs to show for each group; 0 shows no text.")
    ] = 4,
    json: options.Json = False,
    allow_other_source: options.AllowOtherSource = None,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Write a report on a model, as one HTML file.

    The file needs no network, and works on a screen, on a phone and on paper. The rows need `correct`, and must be
    held-out rows, because any model looks good on the rows of its fit. The report compares the stated confidence, one
    pooled correction for all groups, and the calibrated confidence. It shows when to answer (a menu of certified
    thresholds), reliability overall and by group, what calibration changes, which guarantees the model gives and
    whether they held, and the groups.

    \b
        qacal report model test.parquet -o report.html
        qacal report model test.parquet -o report.html --groups subject --threshold 0.8
    """
    from qacal.model.saved import load
    from qacal.records.writers import atomic_file
    from qacal.report import Block, read_contents, render

    options.require_apart(file, output, skip_bad_rows)
    options.require_free_output(json, output)
    if output != "-":
        options.require_folder(output)
    loaded = load(model, embedder=embedder)
    reads = options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression, model=loaded)
    with reads as (rows, reading, progress):
        contents = read_contents(
            loaded,
            rows,
            reading,
            groups=groups,
            by=by,
            threshold=threshold,
            examples=examples,
            allow_other_source=allow_other_source or (),
            progress=progress,
        )
    name = "standard input" if file == "-" else Path(file).name.partition(".")[0]
    title = title or f"How far to trust it: {Path(model).name} on {name}"
    page = render(title, [Block(name or title, content) for name, content in contents.items()])
    with atomic_file(output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    if json:
        parts = {name: content.to_dict() for name, content in contents.items()}
        print(options.json_text({"file": output, **parts.get("", {"parts": parts})}))
    elif output != "-":
        options.note(f"Written to {output}; open it in a browser.")
