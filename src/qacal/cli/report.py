"""`qacal report`: one HTML file that shows what was fitted and how good it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options

if TYPE_CHECKING:
    from qacal.report import Content


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model from qacal fit.")],
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
        float | None, typer.Option(help="Mark this threshold instead of the one saved by qacal threshold.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    by: options.By = None,
    examples: Annotated[
        int, typer.Option(help="Number of question-answer pairs to show for each group; 0 shows no text.")
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

    It needs no network, and is for a screen, a phone or paper. The rows need correct, and must not be those of the fit:
    any model looks good on its own rows. It compares the stated confidence, one pooled correction for all groups, and
    the calibrated confidence: reliability overall and by group, what calibration changes, when to answer, what is
    guaranteed and whether it held, and what is in the groups.

    \b
        qacal report model test.parquet -o report.html
        qacal report model test.parquet -o report.html --groups subject --threshold 0.8
    """
    from qacal.records.writers import atomic_file
    from qacal.report import Block, render

    _require_sense(threshold, examples)
    options.require_apart(file, output, skip_bad_rows)
    options.require_free_output(json, output)
    if output != "-":
        options.require_folder(output)
    read = (column, percent, skip_bad_rows, max_bad, expression)
    contents = _contents(model, file, read, groups, by, threshold, examples, allow_other_source, embedder)
    rows = "standard input" if file == "-" else Path(file).name.partition(".")[0]
    title = title or f"How far to trust it: {Path(model).name} on {rows}"
    page = render(title, [Block(name or title, content) for name, content in contents.items()])
    with atomic_file(output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    if json:
        found = {name: content.to_dict() for name, content in contents.items()}
        print(options.json_text({"file": output, **found.get("", {"parts": found})}))
    elif output != "-":
        options.note(f"Written to {output}; open it in a browser.")


def _require_sense(threshold: float | None, examples: int) -> None:
    if threshold is not None and not 0 <= threshold <= 1:
        raise typer.BadParameter(f"--threshold is {threshold:g}; expected a number from 0 to 1.")
    if examples < 0:
        raise typer.BadParameter(f"--examples is {examples}; expected 0 or more.")


def _contents(model: str, file: str, read: Any, groups: str | None, by: str | None, *chosen: Any) -> dict[str, Content]:
    from qacal.model.model_set import load_any
    from qacal.report import read_contents

    threshold, examples, allow_other_source, embedder = chosen
    loaded = load_any(options.model_path(model), embedder=embedder)
    with options.opened(file) as rows, options.reading_like(loaded, rows, *read) as how, options.progress() as progress:
        return read_contents(
            loaded,
            rows,
            how,
            groups=groups,
            by=by,
            threshold=threshold,
            examples=examples,
            allow_other_source=allow_other_source or (),
            progress=progress,
        )
