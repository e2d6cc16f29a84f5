"""`qacal import`: from the log of an evaluation or of production to a file of records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qacal.cli import options, progress_line


def run(
    format_: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="lm-eval, inspect, openai-batch, promptfoo, langfuse, mlflow or deepeval.",
        ),
    ],
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files, or folders of them.")],
    output: options.Output,
    confidence_from: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Use only this kind of confidence: metadata, stated, tokens, agreement, choice-likelihood. "
            "Default: the first that a row has.",
        ),
    ] = None,
    keep_unscored: Annotated[
        bool, typer.Option("--keep-unscored", help="Keep rows without a confidence. Default: drop them.")
    ] = False,
    correct_at: Annotated[
        float | None, typer.Option(metavar="SCORE", help="Scores of at least this are correct, lower ones wrong.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What decides correctness: the metric (for lm-eval, default acc or exact_match; acc_norm also changes "
            "answer and confidence), the scorer of inspect (NAME:PART if its value is an object), the score of "
            "langfuse or the assessment of mlflow.",
        ),
    ] = None,
    filter_: Annotated[str | None, typer.Option("--filter", metavar="NAME", help="lm-eval: the filter.")] = None,
    observation: Annotated[
        str | None, typer.Option(metavar="NAME", help="langfuse: only generations with this name.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="openai-batch: a table with custom_id, and correct, ground_truth, question or others."
        ),
    ] = None,
    question_after: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The question starts after this text in a prompt: 'The question is:'."),
    ] = None,
    last_turn: Annotated[
        bool,
        typer.Option(
            "--last-turn",
            help="In a chat of several turns, the question is the user's last message. Default: the whole chat.",
        ),
    ] = False,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The LLM's name, if the log lacks it.")] = None,
    percent: options.Percent = False,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Import the log of an evaluation as a file of records.

    It also imports batches and traces. A table of your own needs no import: other commands take --column and
    --percent. Records have id (of the question), question, answer, confidence and confidence_source; correct,
    ground_truth, model, prompt, task and judge if the log has them; and a column for every plain value in a log's
    metadata, such as the subject. Dropped rows are counted by reason. A missing confidence is never replaced by a
    number.

    \b
        qacal import lm-eval output/my-llm -o records.parquet --filter strict-match
        qacal import inspect logs/2026-11-15_qa.eval -o records.parquet --metric match
        qacal import openai-batch input.jsonl output.jsonl -o records.parquet --labels labels.csv
        qacal import promptfoo results.json -o records.parquet
        qacal import langfuse observations.json scores.json -o records.parquet --metric correctness
        qacal import mlflow traces.parquet -o records.parquet --metric correctness
        qacal import deepeval test_run_20261115.json -o records.parquet
    """
    from qacal.records.reading import Reading
    from qacal.records.writers import writing
    from qacal.sources.importers import FORMATS, Selection, gathered

    if format_ not in FORMATS:
        raise typer.BadParameter(f"there is no format {format_!r}; there are {', '.join(FORMATS)}.")
    options.require_apart(*paths, output, skip_bad_rows, labels)
    options.require_writable(output)
    selection = Selection(
        metric=metric,
        filter=filter_,
        observation=observation,
        confidence_from=None if confidence_from is None else confidence_from.replace("choice-", "choice "),
        correct_at=correct_at,
        percent=percent,
        labels=labels,
        question_after=question_after,
        last_turn=last_turn,
        model=model,
    )
    with (
        options.skipping(Reading(), skip_bad_rows, max_bad) as bad_rows,
        progress_line.showing() as progress,
        gathered(
            format_,
            paths,
            selection,
            on_fault=bad_rows.on_fault,
            max_bad=bad_rows.max_bad,
            keep_unscored=keep_unscored,
            progress=progress,
        ) as (buffer, account),
        writing(output, "jsonl") as writer,
    ):
        for table in buffer.tables():
            writer.write(table)
    options.note(str(account))
    if len(account.sources) > 1:
        options.note("A model needs one kind of confidence; choose with --confidence-from, or fit with --by.")
    if output != "-":
        options.note(f"{account.kept:,} rows written to {output}.")
