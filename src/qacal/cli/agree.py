"""`qacal agree`: several samples of one answer in, one row with their agreement out."""

from __future__ import annotations

from typing import Annotated

import typer

from qacal.cli import options


def run(
    file: options.Rows,
    output: options.Output,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="The column that the samples of one question share. May be repeated.  [default: id]",
        ),
    ] = None,
    column: options.Columns = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Count how many samples of an answer agree.

    For files with several answers of one LLM to each question: epochs of inspect, or samples of your own. The output
    has one row for each question: a row with the most frequent answer, with its confidence, its label and all other
    columns. The order of the file does not matter. Answers are compared up to case, articles and punctuation. New
    columns: agreement (the share of the samples with this answer), answers_entropy (in nats; 0 if all agree) and
    samples. If there is no other confidence, use agreement as the confidence.

    \b
        qacal agree samples.jsonl --by id -o answers.jsonl
        qacal fit answers.jsonl -o model --feature agreement:confidence
        qacal fit answers.jsonl -o model --column confidence=agreement
    """
    from qacal.sources.elicitation.agreement import Samples

    options.require_apart(file, output, skip_bad_rows)
    options.require_writable(output)
    with options.input_rows(file, column, False, skip_bad_rows, max_bad) as (rows, reading, _):
        samples = Samples.of(rows, by or ["id"], reading)
        with options.open_output(output, rows) as writer:
            for table in samples.majority_rows():
                writer.write(table)
    options.note(str(samples))
    if output != "-":
        options.note(f"{len(samples.groups):,} rows written to {output}.")
