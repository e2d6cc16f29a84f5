"""`qacal check`: everything about a file at once, before any fit."""

from __future__ import annotations

from typing import Annotated

import typer

from qacal.cli import options
from qacal.errors import printable


def run(
    file: options.Rows,
    column: options.Columns = None,
    percent: options.Percent = False,
    expression: options.Expressions = None,
    json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Look at a file before any fit.

    It says which columns were found, with lines to paste for all of them; how many rows are bad, and why;
    what is there twice; on which scale confidences are, and whether they go the same way as the labels; which other
    columns could be used; what the labels are enough for, and how many the next thing takes. It reads the file once,
    and also files that fit refuses.

    It exits with 0 if nothing was found, with 2 if something was, and with 1 if the file could not be looked at.

    \b
        qacal check answers.csv
        qacal check answers.csv --column confidence=score --json
    """
    from qacal.checking import check

    with options.opened(file) as rows, options.progress() as progress:
        worth = options.expressions(expression)
        found = check(rows, columns=options.mapping(column), percent=percent, expressions=worth, progress=progress)
    with options.printing():
        print(options.json_text(found.to_dict()) if json else printable(options.for_shell(str(found))))
    if not found.is_fine:
        raise typer.Exit(2)
