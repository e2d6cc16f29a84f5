"""`qacal answers`: the answers of a run as records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qacal.cli import options
from qacal.cli.elicit import summary

Run = Annotated[
    int | None,
    typer.Option("--run", metavar="NUMBER", help="Number of the run, if the file has several."),
]


def run(
    file: Annotated[Path, typer.Argument(metavar="RUN.db", help="A run of qacal elicit, finished or not.")],
    output: options.Output = "-",
    unread: Annotated[
        str | None,
        typer.Option(
            "--unread",
            metavar="FILE",
            help="Also write the unreadable replies with the reason: .parquet, .jsonl or .csv.",
        ),
    ] = None,
    expression: options.Expressions = None,
    run: Run = None,
) -> None:
    """Write the answers of a run as records.

    Each guess with a confidence is a row: id, question, answer, confidence, confidence_tokens (the probability of the
    answer's tokens, if the server gave it), ground_truth, choices, model, prompt, confidence_source, and the other
    columns of the question. With several samples, a question has one row, the first with the most frequent answer, and
    the columns agreement, answers_entropy and samples. Refusals and unreadable replies are counted by reason. Replies
    are parsed again each time, so better parsers read old runs.

    \b
        qacal answers run.db -o answers.parquet
        qacal answers run.db -o answers.parquet --unread unread.jsonl
    """
    from qacal.records.writers import write_objects
    from qacal.sources.elicitation.run import Outcomes, stored_run
    from qacal.sources.elicitation.store import open_store

    options.require_apart(file, output, unread)
    if unread == "-":
        raise typer.BadParameter("--unread needs a file; standard output is for the answers.")
    for path in (output, unread):
        if path is not None:
            options.require_writable(path)
    outcomes = Outcomes()
    with open_store(file, to_write=False) as store:
        kept = stored_run(store, run, options.expressions(expression))
        write_objects(kept.answers(outcomes), output, str(file))
        if unread is not None:
            write_objects(kept.unread(), unread, str(file))
    options.note(summary(outcomes))
    if outcomes.lost and unread is None:
        options.note("--unread FILE writes the unreadable replies.")
