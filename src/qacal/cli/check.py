"""`qacal check`: everything about a file at once, before any fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from qacal.cli import options
from qacal.errors import printable

if TYPE_CHECKING:
    from qacal.checking import RecordsCheck


def run(
    file: options.Rows,
    column: options.Columns = None,
    percent: options.Percent = False,
    expression: options.Expressions = None,
    json: options.Json = False,
) -> None:
    """Check a file before any fit.

    It prints the columns it found, with commands to paste; unusable rows by reason; duplicates; the scale of the
    confidences, and whether they agree with the labels; other columns that a fit could use; and what the labels are
    enough for. It reads the file once (twice if it is not UTF-8), and also reads files that fit refuses.

    The exit code is 0 if there are no findings, 2 if there are, and 1 if the file could not be read to its end.

    \b
        qacal check answers.csv
        qacal check answers.csv --column confidence=score --json
    """
    from qacal.checking import check

    with options.opened(file) as rows, options.progress() as progress:
        columns, words = options.mapping(column), options.expressions(expression)
        checked = check(rows, columns=columns, percent=percent, expressions=words, progress=progress)
    with options.printing():
        print(options.json_text(checked.to_dict()) if json else printable(str(_for_shell(checked))))
    if not checked.is_fine:
        raise typer.Exit(2 if checked.is_read else 1)


def _for_shell(checked: RecordsCheck) -> RecordsCheck:
    """Return a check without hints for Python callers; the lines are broken afterwards."""
    shell = options.for_shell
    findings = (replace(one, problem=shell(one.problem), remedy=shell(one.remedy)) for one in checked.findings)
    return replace(checked, findings=tuple(findings))
