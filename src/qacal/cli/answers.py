"""`qacal answers`: the answers of a run as records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qacal.cli import options
from qacal.cli.elicit import summary, write_answers

Run = Annotated[
    int | None, typer.Option("--run", metavar="NUMBER", help="Which run, if the file holds several: several LLMs, say.")
]


def run(
    file: Annotated[Path, typer.Argument(metavar="RUN.db", help="A run that qacal elicit has made, or is making.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help=".parquet, .jsonl or .csv; - for standard output.")
    ] = "-",
    unread: Annotated[
        str | None,
        typer.Option(
            "--unread",
            metavar="FILE",
            help="Also write what became no row, and why, with the replies: .parquet, .jsonl or .csv.",
        ),
    ] = None,
    expression: options.Expressions = None,
    run: Run = None,
) -> None:
    """Write the answers of a run as records.

    There is a row for each guess that has a confidence: id, question, answer, confidence, confidence_tokens (the
    probability of the answer's tokens, if the server gave it), ground_truth, choices, model, prompt, confidence_source,
    and what came with the question. It says what became of every question: replies that were refused or cannot be read
    are counted, with the reason. Replies are read anew each time, so a run gains from every better reading.

    \b
        qacal answers run.db -o answers.parquet
        qacal answers run.db -o answers.parquet --unread unread.jsonl
    """
    options.require_apart(file, output, unread)
    if unread == "-":
        raise typer.BadParameter("--unread needs a file of its own; standard output is for the answers.")
    for path in (output, unread):
        if path is not None:
            options.require_writable(path)
    outcomes = write_answers(file, output, run, options.expressions(expression), unread)
    options.note(summary(outcomes))
    if outcomes.lost and unread is None:
        options.note("--unread FILE writes the replies that became no row.")
