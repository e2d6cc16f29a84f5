"""`qacal questions`: questions with known answers, to ask an LLM."""

from __future__ import annotations

from typing import Annotated

import typer

from qacal.cli import options


def run(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="quiz, triviaqa, sciq, bigbench, openbookqa or mmlu.", show_default=False),
    ],
    output: options.Output = "-",
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="NUMBER", min=1, help="A fixed sample of NUMBER questions."),
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
            "--choices/--no-choices",
            help="Ask sciq with choices, or bigbench without them. Default: sciq without, bigbench with.",
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

    quiz comes with qacal and needs no network. The others are the paper's benchmarks: they come from the Hugging
    Face hub and need pip install -e '.[hub]'. Columns: id, question, choices, ground_truth (a list of accepted
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

    options.chosen("NAME", name, ["quiz", *BENCHMARKS])
    options.require_writable(output)
    if name == "quiz":
        hub = {"--split": split, "--task": task, "--from": source, "--revision": revision}
        for option, value in (hub | {"--choices and --no-choices": choices}).items():
            if value is not None:
                raise typer.BadParameter(f"the quiz has no such option; leave out {option}.")
        gathered = Gathered(tuple(BenchmarkQuestion(**row) for row in quiz.questions().iter_rows(named=True)))
    else:
        gathered = load(name, split=split, tasks=task or (), choices=choices, source=source, revision=revision)
    written = gathered if limit is None else gathered.sample(limit)
    write_frame(written.frame(), output, "jsonl")
    n_written, total = len(written.questions), len(gathered.questions)
    options.note(f"Questions of {name}: {n_written:,}" + (f" of {total:,}." if n_written < total else "."))
    for reason, rows in gathered.left_out.items():
        options.note(f"  Rows left out: {rows.count:,}; {reason} ({rows.first:.120}).")
