"""`qacal judge`: labels for answers, by comparison with the ground truth, and by an LLM for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import elicit, options
from qacal.cli.answers import Run
from qacal.errors import InputError

if TYPE_CHECKING:
    from qacal.sources.elicitation.client import Client
    from qacal.sources.elicitation.judging import HumanLabels, Judge, Verdicts
    from qacal.sources.elicitation.run import Outcomes
    from qacal.sources.elicitation.store import Store

_NAMES = ("id", "question", "answer", "confidence", "ground_truth", "model", "prompt")
_Record = dict[str, Any]
_Records = Callable[[], Iterator[_Record]]
_CHOOSE = (
    "Nothing was written; the judge's replies are stored. Choose with --unsure: ask-again (once more, for one word), "
    "wrong (label them as wrong, which is too strict where the judge would have agreed), or drop (leave the rows out). "
    "If replies are cut off, give the judge more tokens: --field max_tokens=500, or --preset reasoning."
)
_STILL_UNSURE = (
    "Nothing was written; the judge's replies are stored. Choose --unsure wrong or --unsure drop, or another judge."
)
_STRICT = "Answers without a verdict are labelled as wrong, so the LLM may look worse than it is."
_AGAIN = "The same command makes the failed requests again."


def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A run of qacal elicit (.db), or rows: .parquet, .jsonl or .csv.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Labelled rows: .parquet, .jsonl or .csv.")
    ],
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="The judge's server. Default: compare only.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The judge's name on the server.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", metavar="RUN.db", help="File for the judge's replies. Default: the run, or beside OUTPUT."
        ),
    ] = None,
    human: Annotated[
        str | None,
        typer.Option(
            "--human-labels",
            metavar="COLUMN",
            help="Column with human labels of some rows: print how often the judge agrees.",
        ),
    ] = None,
    people: Annotated[
        str | None,
        typer.Option(
            "--human-output",
            metavar="FILE",
            help="Write the rows with human labels here, and leave their questions out of the output: for qacal fit "
            "--certify.",
        ),
    ] = None,
    unsure: Annotated[
        str | None,
        typer.Option(
            "--unsure",
            metavar="WHAT",
            help="What to do with answers without a verdict of the judge: wrong labels them as wrong, ask-again asks "
            "once more for one word, drop leaves them out. Default: write nothing if there are any.",
        ),
    ] = None,
    workers: elicit.Workers = 8,
    timeout: elicit.Timeout = 120.0,
    tries: elicit.Tries = 6,
    rpm: elicit.Rpm = None,
    preset: elicit.Preset = None,
    field: elicit.Fields = None,
    key_env: elicit.KeyEnv = None,
    header: elicit.Headers = None,
    expression: options.Expressions = None,
    column: options.Columns = None,
    run: Run = None,
) -> None:
    """Label answers as correct or wrong.

    It adds correct (1, 0, or empty if unknown) and judge. An answer is correct if it equals ground_truth, or one of its
    spellings (a list; in CSV a JSON list: ["4", "four"]), up to case, articles and punctuation. A judge decides about
    all other answers; its first word must be Yes or No. Answers without a verdict cannot simply be left out, because
    matching answers get a label without the judge, and the LLM would look better than it is: choose with --unsure.
    Without a judge, all other answers count as wrong, even if they say the same in other words.

    Judges make errors. Label some rows by hand, in another column: --human-labels prints how often the judge agrees,
    and --human-output writes these rows to a separate file, which can certify a model trained on the judge's labels.
    Its column by_judge has the judge's labels of them.

    \b
        qacal judge run.db -o answers.parquet
        qacal judge run.db -o answers.parquet --base-url http://127.0.0.1:8080/v1 --model NAME
        qacal judge rows.csv -o judged.parquet --base-url URL --model NAME --human-labels by_hand \\
            --human-output people.parquet
        qacal fit judged.parquet -o model --certify people.parquet --judge-column by_judge
    """
    from qacal.sources.elicitation.judging import UNSURE, HumanLabels, Judge, Verdicts, agreement, ground_truths, judged
    from qacal.sources.elicitation.store import open_store

    if unsure is not None:
        unsure = options.chosen("--unsure", unsure, UNSURE)
    if human in ("correct", "judge"):
        raise typer.BadParameter(
            f"--human-labels {human} is what this command writes; give the human labels another name."
        )
    if (base_url is None) != (model is None):
        raise typer.BadParameter("a judge needs both, --base-url and --model.")
    if people is not None and human is None:
        raise typer.BadParameter("--human-output needs --human-labels COLUMN, the column with human labels.")
    if people is not None and "-" in (people, output):
        raise typer.BadParameter("two files are written; name both instead of -.")
    options.require_apart(file, output, store, people)
    for path in filter(None, (output, people)):
        options.require_writable(path)
    judge, count = Judge(model, elicit.fields(field, preset)), Verdicts()
    client = None
    if base_url is not None:
        client = elicit.client(base_url, key_env, header, timeout=timeout, tries=tries, rpm=rpm)
    labels = None if human is None else HumanLabels(human)
    failed, replies = 0, Path(file if file.endswith(".db") else f"{output}.judge.db")
    with (
        _rows(file, run, options.expressions(expression), options.mapping(column, only=_NAMES)) as rows,
        nullcontext() if client is None else open_store(store or replies, to_write=True) as kept,
    ):
        if not any(ground_truths(row) for row in rows()):
            raise InputError("no row has a ground_truth, so answers cannot be compared. Add the correct answers.")
        if client is not None and kept is not None:
            failed = _ask(rows, judge, kept, client, workers, unsure == "ask_again")
        labelled = _settled(judged(_unlabelled(rows()), judge, kept, count, unsure), count, unsure)
        _write(labelled if labels is None else labels.compared(labelled), rows, labels, output, people, file)
    options.note(_summary(count))
    for name, share in {} if labels is None else agreement(labels.pairs).items():
        options.show(f"{name}: {'no rows' if share is None else share}")
    if count.needs_judge:
        options.note(_bias(count) if unsure == "drop" else _STRICT)
    if count.unlabelled:
        options.note("qacal fit needs labels: skip rows without one with its --skip-bad-rows FILE.")
    if not failed and output != "-":
        options.note(f"Next: qacal fit {output} -o model{f' --certify {people}' if people else ''}")
    if failed:
        options.note(_AGAIN)
        raise typer.Exit(1)


def _ask(rows: _Records, judge: Judge, kept: Store, client: Client, workers: int, again: bool) -> int:
    """Ask the judge about answers without a verdict; return how many requests failed."""
    from qacal.sources.elicitation.asking import Asking
    from qacal.sources.elicitation.judging import ask_judge, needs_judge

    if judge.model is not None:
        elicit.note_unlisted(client, judge.model)
    total = sum(1 for _ in needs_judge(rows(), judge))
    with elicit.telling() as tell:
        asking = Asking(kept, client, workers, tell(total))
        ask_judge(rows(), judge, asking, again=again)
    elicit.note_requests(asking.progress)
    return asking.progress.failed


def _settled(labelled: Iterator[_Record], count: Verdicts, unsure: str | None) -> Iterator[_Record]:
    """Yield the rows; raise if some have no verdict and --unsure does not say what to do with them."""
    from qacal.sources.elicitation.judging import SILENT

    yield from labelled
    if count.needs_judge and unsure not in ("wrong", "drop"):
        lines = [_summary(count), _bias(count), _CHOOSE if unsure is None else _STILL_UNSURE]
        lines += [_AGAIN] if SILENT in count.needs_judge else []
        raise InputError("\n".join(lines))


def _bias(count: Verdicts) -> str:
    """Return what leaving out the answers without a verdict does to the labels."""
    from qacal.sources.elicitation.judging import COMPARED

    left, matched = sum(count.needs_judge.values()), count.by[COMPARED]
    return (
        f"{left:,} of {count.rows:,} answers have no verdict. They do not match the ground truth, while {matched:,} "
        "matching answers are labelled correct without the judge: leaving these out makes it look better than it is."
    )


def _write(
    labelled: Iterator[_Record], rows: _Records, labels: HumanLabels | None, output: str, people: str | None, file: str
) -> None:
    """Write the labelled rows; questions with human labels go to the second file, if there is one.

    Both files are complete before either replaces an old one.
    """
    from qacal.records.writers import write_objects, write_pair
    from qacal.sources.elicitation.judging import question_of

    if labels is None or people is None:
        write_objects(labelled, output, file)
        return
    # Rows that certify share no question with rows that train.
    certifies = labels.questions(rows())
    verdicts: dict[Any, Any] = {}

    def key(row: _Record) -> Any:
        return question_of(row), repr(row.get("question")), repr(row.get("answer"))

    def trains() -> Iterator[_Record]:
        for row in labelled:
            if question_of(row) in certifies:
                verdicts[key(row)] = row["correct"]
            else:
                yield row

    with write_pair(output, people) as (training, certifying):
        n_training = training.write_objects(trains(), file)
        by_people = ({**row, "by_judge": verdicts.get(key(row))} for row in labels.labelled(rows()))
        n_certifying = certifying.write_objects(by_people, file)
        if not n_certifying:
            raise InputError(f"no row has a label in {labels.column}, so there are no rows to certify with.")
        if not n_training:
            raise InputError(
                "every question has a human label, so no row is left to train on the judge's labels. Fit on the human "
                "labels alone, or remove some of them."
            )
    options.note(f"{n_training:,} training rows written to {output}, {n_certifying:,} certifying rows to {people}.")


@contextmanager
def _rows(file: str, run: int | None, words: dict[str, float], columns: dict[str, str]) -> Iterator[_Records]:
    """Yield a function that returns the rows to label, of a run or of a file; it may be called several times."""
    if file.endswith(".db"):
        if columns:
            raise typer.BadParameter("--column is for files of rows; a run has the standard names.")
        from qacal.sources.elicitation.run import stored_run
        from qacal.sources.elicitation.store import open_store

        with open_store(file, to_write=False) as store:
            kept = stored_run(store, run, words)
            _note_lost(kept.outcomes(), f"{file} --run {kept.number}" if run is not None else file)
            yield kept.answers
        return
    with options.opened(file) as rows:
        numbers = {columns.get("confidence", "confidence"): 1.0}

        def read() -> Iterator[_Record]:
            for table in rows.batches():
                for name in ("question", "answer", "ground_truth"):
                    table.require(columns.get(name, name), f"If it has another name here, pass --column {name}=NAME.")
                yield from (_renamed(row, columns) for row in table.rows(typed=True, numbers=numbers))

        yield read


def _note_lost(outcomes: Outcomes, source: str) -> None:
    """Print which questions of a run have no answer to label; raise if none has one."""
    from qacal.sources.elicitation.run import NOT_YET

    if not outcomes.lost:
        return
    lines = [elicit.summary(outcomes)]
    if outcomes.lost[NOT_YET]:
        lines += ["To ask the questions that are not answered yet, repeat the qacal elicit command of the run."]
    if outcomes.lost.total() > outcomes.lost[NOT_YET]:
        lines += ["To see the replies that could not be read:"]
        lines += [f"    qacal answers {quote(source)} -o answers.jsonl --unread unread.jsonl"]
    if not outcomes.stated:
        raise InputError("\n".join(["the run has no readable answers, so there is nothing to label.", *lines]))
    options.note("\n".join(lines))


def _renamed(row: _Record, columns: dict[str, str]) -> _Record:
    """Return a row with the standard names; another column with such a name becomes ``table_NAME``."""
    # A mapped column may also be used under its standard name: an id that is the question.
    moved = {its_name for its_name in columns.values() if its_name not in _NAMES or its_name in columns}
    others = {f"table_{name}" if name in columns else name: row[name] for name in row if name not in moved}
    return others | {name: row[its_name] for name, its_name in columns.items() if its_name in row}


def _unlabelled(rows: Iterator[_Record]) -> Iterator[_Record]:
    """Yield the rows; raise if they have labels that are not from a judge: these would be lost."""
    from qacal.sources.elicitation.judging import BY_PEOPLE
    from qacal.tally.arrays import is_missing

    for row in rows:
        judge = row.get("judge")
        if not is_missing(row.get("correct")) and (is_missing(judge) or judge == BY_PEOPLE):
            raise InputError(
                "the rows already have labels in a column correct, which this command would overwrite. If people made "
                "them, rename the column and compare: --human-labels NAME."
            )
        yield row


def _summary(count: Verdicts) -> str:
    lines = [f"{count.rows:,} answers: {sum(count.by.values()):,} labelled, {count.right:,} of them correct."]
    lines += [f"  {number:,} by {by}" for by, number in count.by.most_common()]
    lines += [f"  {number:,} without a label: {why}" for why, number in count.unlabelled.most_common()]
    lines += [f"  {number:,} left out: {why}" for why, number in count.dropped.most_common()]
    return "\n".join(lines)
