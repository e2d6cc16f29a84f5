"""`qacal check`: problems and contents of a file, before a fit."""

from __future__ import annotations

import typer

from qacal.cli import options, progress_line
from qacal.errors import printable


def run(
    file: options.Rows,
    column: options.Columns = None,
    percent: options.Percent = False,
    expression: options.Expressions = None,
    json: options.Json = False,
) -> None:
    """Check a file before a fit.

    It prints problems with remedies and commands to paste: missing columns, bad rows by reason, duplicates, the scale
    of the confidences, and whether they agree with the labels. It also prints other columns that a fit could use, and
    what the labels are enough for. It reads the file once, and also reads files that fit refuses.

    The exit code is 0 if there are no findings, 2 if there are, and 1 if the file could not be read to its end.

    \b
        qacal check answers.csv
        qacal check answers.csv --column confidence=score --json
    """
    from qacal.checking import check
    from qacal.checking.words import described

    with options.opened(file) as rows, progress_line.showing(rows.known_length) as progress:
        columns, words = options.mapping(column), options.expressions(expression)
        checked = check(rows, columns=columns, percent=percent, expressions=words, progress=progress)
    with options.printing():
        text = options.json_text(checked.to_dict()) if json else printable(described(checked, options.for_shell))
        print(text)
    if not checked.is_fine:
        raise typer.Exit(2 if checked.is_read else 1)
