"""`qacal check`: everything about a file at once, before any fit."""

from __future__ import annotations

from typing import Annotated

import typer

from qacal.cli import options as shared
from qacal.errors import printable


def run(
    file: shared.Rows,
    column: shared.Columns = None,
    percent: shared.Percent = False,
    expression: shared.Expressions = None,
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

    with shared.opened(file) as rows, shared.progress() as progress:
        worth = shared.expressions(expression)
        found = check(rows, columns=shared.mapping(column), percent=percent, expressions=worth, progress=progress)
    with shared.printing():
        print(shared.json_text(found.to_dict()) if json else printable(shared.for_shell(str(found))))
    if not found.is_fine:
        raise typer.Exit(2)
