"""`qacal questions`: questions with known answers, to ask an LLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from qacal.cli import options

if TYPE_CHECKING:
    from qacal.sources.questions import Gathered

_QUIZ = "quiz"
_FIRST = 120


def run(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="quiz, triviaqa, sciq, bigbench, openbookqa or mmlu.", show_default=False),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help=".parquet, .jsonl or .csv; - for standard output.")
    ] = "-",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="A sample of this many questions, always the same."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", help="Another split than the paper's, or a slice: validation, train[:1000]."),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="NAME", help="A task of bigbench. May be repeated.")
    ] = None,
    choices: Annotated[
        bool | None,
        typer.Option(
            "--choices/--no-choices", help="Ask sciq with choices, or bigbench without. Default: the reverse."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="A folder with a copy of the data, or another name on the hub."),
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", help="A commit, tag or branch of the data on the hub.")
    ] = None,
) -> None:
    """Write questions with known answers, to ask an LLM.

    quiz is the project's own and needs no network. The others are the paper's benchmarks: they come from the Hugging
    Face hub and need pip install 'qacal[hub]'. Columns: id, question, choices, ground_truth (a list of accepted
    spellings; in CSV a JSON list such as ["4", "four"]), subject and dataset. Rows without an answer and repeated
    questions are left out and counted.

    \b
        qacal questions quiz -o questions.parquet
        qacal questions mmlu -o questions.parquet --limit 2000
        qacal questions bigbench -o questions.parquet --task strategyqa --task logical_deduction
        qacal elicit questions.parquet --base-url http://127.0.0.1:8080/v1 --model NAME -o run.db
    """
    from qacal.records.writers import write_frame
    from qacal.sources.questions import BENCHMARKS, BenchmarkQuestion, Gathered, load, quiz

    options.chosen("NAME", name, [_QUIZ, *BENCHMARKS])
    options.require_writable(output)
    if name == _QUIZ:
        _require_unused(split=split, task=task, choices=choices, source=source, revision=revision)
        gathered = Gathered(tuple(BenchmarkQuestion(**row) for row in quiz.questions().iter_rows(named=True)))
    else:
        gathered = load(name, split=split, tasks=task or (), choices=choices, source=source, revision=revision)
    written = gathered if limit is None else gathered.sample(limit)
    write_frame(written.frame(), output, "jsonl")
    options.note(_summary(name, len(written.questions), gathered))


def _require_unused(**options: object) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        option = {"source": "--from", "choices": "--choices and --no-choices"}.get(given[0], f"--{given[0]}")
        raise typer.BadParameter(f"the quiz has no such option; leave {option} out.")


def _summary(name: str, written: int, gathered: Gathered) -> str:
    found = len(gathered.questions)
    lines = [f"Questions of {name}: {written:,}" + (f" of {found:,}." if written < found else ".")]
    lines += [
        f"  Rows left out: {rows.count:,}; {reason} ({rows.first:.{_FIRST}})."
        for reason, rows in gathered.left_out.items()
    ]
    return "\n".join(lines)
