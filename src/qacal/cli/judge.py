"""`qacal judge`: labels for answers, by comparing with the ground truth and by an LLM where that does not settle it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import elicit, shared
from qacal.cli.answers import Run
from qacal.errors import InputError

if TYPE_CHECKING:
    from qacal.elicitation.judging import Verdicts
    from qacal.elicitation.store import Store

_Records = Callable[[], Iterator[dict[str, Any]]]


def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A run of qacal elicit (.db), or rows: .parquet, .jsonl or .csv.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The rows with labels: .parquet, .jsonl or .csv.")
    ],
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="The judge's server; without, answers are compared.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The name that the server knows the judge by.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", metavar="RUN.db", help="Where the judge's replies are kept; by default in the run, or by OUTPUT."
        ),
    ] = None,
    human: Annotated[
        str | None,
        typer.Option("--human", metavar="COLUMN", help="Labels by people, where there are some: how the judge agrees."),
    ] = None,
    workers: elicit.Workers = 8,
    timeout: elicit.Timeout = 120.0,
    tries: elicit.Tries = 6,
    field: elicit.Fields = None,
    key_env: elicit.KeyEnv = "OPENAI_API_KEY",
    run: Run = None,
) -> None:
    """Label answers: add correct (1, 0, or nothing where it cannot be told) and judge.

    An answer that equals ground_truth, or any of its spellings, but for case, articles and punctuation is right. All
    others are put to the judge, if there is one; its first word must be Yes or No, and what is neither stays without a
    label. Without a judge, an answer that does not match is wrong, even if it says the same in other words.

    Judges err. Keep some rows with labels by people (--human), see how often, and let those rows certify what was
    learned from the judge's: qacal fit answers.parquet --certify people.parquet.

    \b
        qacal judge run.db -o answers.parquet
        qacal judge run.db -o answers.parquet --base-url http://127.0.0.1:8080/v1 --model NAME
    """
    from qacal.elicitation.asking import Asking
    from qacal.elicitation.judging import Judge, Verdicts, ask_judge, judged, unsettled
    from qacal.outputs import write_objects

    if human in ("correct", "judge"):
        raise typer.BadParameter(f"--human {human} is what this command writes; give people's labels another name.")
    if (base_url is None) != (model is None):
        raise typer.BadParameter("a judge needs both, --base-url and --model.")
    shared.require_apart(file, output, store)
    shared.require_writable(output)
    judge, count = Judge(model, elicit.fields(field)), Verdicts()
    seen: list[tuple[float | None, Any]] = []
    failed = 0
    with _rows(file, run) as rows, _store(file, output, store, base_url is not None) as kept:
        if base_url is not None and kept is not None:
            total = sum(1 for _ in unsettled(rows(), judge))
            with elicit.telling() as tell:
                asking = Asking(kept, elicit.client(base_url, key_env, timeout, tries), workers, tell(total))
                ask_judge(rows(), judge, asking)
            failed = asking.progress.failed
            shared.note(f"{asking.progress.sent:,} requests made, {failed:,} failed.")
        labelled = judged(_unlabelled(rows()), judge, kept, count)
        write_objects(_noting(labelled, human, seen), output, file)
    shared.note(_summary(count))
    if count.unlabelled:
        shared.note("qacal fit needs labels: leave rows without one out with its --skip-bad-rows FILE.")
    if human is not None:
        _show_agreement(seen)
    if failed:
        shared.note("The same command makes the failed requests again.")
        raise typer.Exit(1)


@contextmanager
def _rows(file: str, run: int | None) -> Iterator[_Records]:
    """Yield what gives the rows to label, as often as asked: those of a run, or those of a file."""
    if file.endswith(".db"):
        from qacal.elicitation.runs import read_run
        from qacal.elicitation.store import open_store

        with open_store(file, to_write=False) as opened:
            yield lambda: read_run(opened, run)
        return
    with shared.opened(file) as rows:

        def read() -> Iterator[dict[str, Any]]:
            for table in rows.batches():
                for name in ("question", "answer", "ground_truth"):
                    table.require(name)
                yield from table.rows()

        yield read


@contextmanager
def _store(file: str, output: str, given: Path | None, is_needed: bool) -> Iterator[Store | None]:
    if not is_needed:
        yield None
        return
    from qacal.elicitation.store import open_store

    path = given or (Path(file) if file.endswith(".db") else Path(f"{output}.judge.db"))
    with ExitStack() as stack:
        yield stack.enter_context(open_store(path, to_write=True))


def _unlabelled(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows, and refuse labels that are not a judge's: they would be lost."""
    for row in rows:
        if row.get("correct") is not None and row.get("judge") is None:
            raise InputError(
                "the rows have labels already, in a column correct, which this command would overwrite. If they are by "
                "people, rename the column, and compare: --human NAME."
            )
        yield row


def _noting(
    rows: Iterator[dict[str, Any]], human: str | None, seen: list[tuple[float | None, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the rows, and note the two labels of those that people have labelled."""
    for row in rows:
        if human is not None:
            if human not in row:
                raise InputError(f"there is no column {human!r} with labels by people; there are {', '.join(row)}.")
            if row[human] is not None and row[human] != "":
                seen.append((row["correct"], _human_label(row[human], human)))
        yield row


def _human_label(value: Any, column: str) -> float:
    known = {"1": 1.0, "0": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "1.0": 1.0, "0.0": 0.0}
    label = known.get(str(value).strip().lower())
    if label is None:
        raise InputError(f"{column} is {value!r}; expected 1 or 0, true or false, or nothing.")
    return label


def _summary(count: Verdicts) -> str:
    lines = [f"{count.rows:,} answers: {sum(count.by.values()):,} labelled, {count.right:,} of them right."]
    lines += [f"  {number:,} by {by}" for by, number in count.by.most_common()]
    lines += [f"  {number:,} without a label: {why}" for why, number in count.unlabelled.most_common()]
    return "\n".join(lines)


def _show_agreement(seen: list[tuple[float | None, Any]]) -> None:
    from qacal.elicitation.judging import agreement

    found = agreement([label for label, _ in seen], [label for _, label in seen])
    for name in ("agreement", "sensitivity", "specificity"):
        share = getattr(found, name)
        shared.show(f"{name}: {'no rows' if share is None else share}")
