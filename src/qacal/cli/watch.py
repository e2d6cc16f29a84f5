"""`qacal watch`: whether the intervals of a model still hold."""

from __future__ import annotations

from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options
from qacal.errors import InputError, counted

if TYPE_CHECKING:
    from qacal.model.base import BaseModel
    from qacal.model.broken import Watched
    from qacal.model.watching import Watch

_SHOWN = 10
_ALARM = 3
_MANY = 1_000_000


def run(
    model: options.Model,
    file: Annotated[
        str | None,
        typer.Argument(metavar="LABELLED", help="All labelled rows since the fit, with `correct`, the oldest first."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Probability that any alarm is ever wrong.")] = 0.1,
    show_all: Annotated[bool, typer.Option("--all", help=f"Print all intervals, not only {_SHOWN}.")] = False,
    store: options.StoreOrFile = None,
    name: options.ServedName = None,
    since: options.Since = None,
    json: options.Json = False,
    allow_other_source: options.AllowOtherSource = None,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Check whether the intervals of a model still hold.

    Run it as often as you like, with all labels so far in their order: after every label, every day. With probability
    1 - alpha, no alarm that it ever raises is wrong. An alarm says that an interval does not hold for these answers,
    and names the interval and its group: of answers with a similar probability, of a group, or of all answers.

    For each interval it prints the accuracy that is promised for the labelled answers, the accuracy of their labels,
    and the evidence against the interval: the wealth of a gambler who started with 1 and bet against it. An interval is
    broken if the wealth is so large that chance does not explain it, for any number of looks and of intervals.

    Rows must be a random sample of the answers: qacal label-next draws one. Rows of the fit are refused. If rows have
    a column label_probability with different values, they are thinned at random until all had the same chance; rows
    without a value, such as complaints of users, are left out. Rows with one id count as a document. Rows that are
    unlike the fit have no interval, and are counted.

    Below the table are changes that need no labels, without a guarantee: shares of groups, stated confidences, texts.

    \b
        qacal label-next model new.jsonl -n 50 -o to_label.jsonl     each week; then label, and append to labelled.jsonl
        qacal watch model labelled.jsonl
        qacal watch model labelled.jsonl --alpha 0.01 --json

    With --store, the rows are those answers of qacal serve that this version of the model served and an audit labelled
    (qacal label-next --store), in the order of their labels. It needs no texts, and says what /v1/watch of the service
    says. Volunteered labels are counted, and raise no alarm. The changes below the table are then about the last 5,000
    answers of the version, labelled or not.

    \b
        qacal watch model --store sqlite:///qacal-served.db

    Exit codes: 0 no alarm, 3 alarm (of any model of a set), 1 bad input, 2 wrong use.
    """
    from qacal.guarantee import check_alpha
    from qacal.model.saved import load
    from qacal.model.watching import watches

    options.require_one_source(file, store, name, since)
    with options.usage_errors():
        check_alpha(alpha)
    loaded = load(model, embedder=embedder)
    accepted = allow_other_source or ()
    notes: list[str] = []
    if store is not None:
        found, notes = _of_store(loaded, model, store, name, since, alpha)
    else:
        assert file is not None
        options.require_apart(file, skip_bad_rows)
        reads = options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression, model=loaded)
        with reads as (rows, reading, progress):
            found = watches(loaded, rows, reading, alpha=alpha, allow_other_source=accepted, progress=progress)
    with options.printing():
        if json:
            content: dict[str, Any] = {str(value): watch.to_dict() for value, watch in found.items()}
            print(options.json_text(content["None"] if None in found else content))
        else:
            for value, watch in found.items():
                _print(watch, "" if value is None else f"{value}: ", show_all)
    for text in notes:
        options.note(text)
    if any(watch.is_alarm for watch in found.values()):
        raise typer.Exit(_ALARM)


def _of_store(
    loaded: BaseModel, model: str, store: str, name: str | None, since: datetime | None, alpha: float
) -> tuple[dict[Any, Watch], list[str]]:
    """Return the watches of what this version of a model served, as the service has them, and what else to say."""
    from dataclasses import replace

    from qacal.model.signals import upstream_signal
    from qacal.service.learning import name_in, opened
    from qacal.service.watch import LATEST, SERVED, bets, of_other_versions, signals_of
    from qacal.storage import version_of

    version, notes = version_of(model), []
    with opened(store) as rows:
        served, after = name_in(rows, model, name), options.seconds(since)
        volunteered = rows.volunteered(served, version, after)
        found = bets(loaded, rows.bets(served, version, after), volunteered, alpha)
        unlabelled = rows.count_unlabelled_draws(served, after)
        others = rows.bets_on_others(served, version, after)
        latest = [*rows.rows(model=served, version=version, columns=SERVED, latest=LATEST)]
    upstream = upstream_signal([row["upstream_model"] for row in latest])
    if upstream is not None:
        notes.append(f"{'Changed: ' if upstream.is_notable else ''}{upstream.text}")
    if others:
        notes.append(of_other_versions(others))
    if found.without_cells:
        notes.append(found.left_out())
    out = {}
    for value, part in found.parts.items():
        if isinstance(part, InputError):
            raise InputError(f"{'' if value is None else f'{value}: '}{part}")
        out[value] = replace(part[0], signals=signals_of(loaded, value, latest))
        if (labels := part[0].broken_after) is not None:
            when = datetime.fromtimestamp(part[1][labels - 1], UTC)
            notes.append(f"{'' if value is None else f'{value}: '}The alarm is from {when:%Y-%m-%d at %H:%M} UTC.")
    if None in out and out[None].is_alarm:
        # Without the URL of the store, which may have a password.
        named = "" if name is None else f" --name {quote(name)}"
        notes.append(
            "For a new version of the model, from labels of answers since the change:\n"
            f"    qacal refit {quote(model)} --store URL{named} --since DAY"
        )
    if unlabelled:
        answers = counted(unlabelled, "answer was", "answers were")
        notes.append(f"{answers} drawn for labelling and not labelled yet (qacal label-next --again).")
    elif not others and not any(watch.labels for watch in out.values()):
        notes.append("No answer of this version has a label of an audit yet: qacal label-next --store draws some.")
    return out, notes


def _print(watch: Watch, title: str, show_all: bool) -> None:
    if watch.labels:
        shown = watch.intervals if show_all else watch.intervals[: max(_SHOWN, len(watch.broken))]
        header = ("interval", "promised", "seen", "labels", "evidence", "broken after")
        options.show_table(f"{title}{watch.headline}", header, [_line(interval) for interval in shown])
        if hidden := len(watch.intervals) - len(shown):
            options.show(f"{counted(hidden, 'more interval')} with less evidence: --all.")
        options.show(
            "Evidence: what a bet of 1 against the interval is worth now. If the interval holds, it ever reaches 100 "
            "in at most 1 of 100 cases."
        )
        if any(interval.kind == "band" for interval in shown):
            options.show(
                'The number in "answers around" is their mean probability in the fit; what is promised is about these '
                "rows."
            )
    else:
        options.show(f"{title}{watch.headline}")
    for text in _notes(watch):
        options.show(text)


def _line(interval: Watched) -> tuple[str, ...]:
    return (
        interval.name,
        f"{interval.low:.2f} to {interval.high:.2f}",
        "" if interval.accuracy is None else f"{interval.accuracy:.2f}",
        f"{interval.labels:,}",
        f"{interval.wealth:,.{0 if interval.wealth >= 100 else 2}f}" if interval.wealth < _MANY else f"over {_MANY:,}",
        "" if interval.broken_after is None else f"{interval.broken_after:,}",
    )


def _notes(watch: Watch) -> list[str]:
    """Return which rows were used, and what has changed."""
    out = []
    if watch.documents is not None:
        out.append(
            f"Some ids have several rows: {watch.documents:,} documents count, each once for each interval, with the "
            "mean of its rows."
        )
    if watch.far:
        out.append(f"{watch.far:,} of {watch.labels:,} rows are unlike the fit, have no interval and are not counted.")
    if watch.thinned:
        rows = counted(watch.thinned, "more row was", "more rows were")
        out.append(f"{rows} left out at random, so that all had the same chance of a label.")
    if watch.rare:
        rows = counted(watch.rare, "more row was", "more rows were")
        out.append(f"{rows} left out with a smaller chance of a label than the first ones.")
    if watch.volunteered:
        labels = counted(watch.volunteered, "volunteered label raises", "volunteered labels raise")
        out.append(f"{labels} no alarm: without a probability, nobody knows how answers were chosen.")
    out += [f"{'Changed: ' if signal.is_notable else ''}{signal.text}" for signal in watch.signals]
    if watch.is_alarm:
        out.append("The intervals do not hold for these answers: fit a new model with labels of them.")
    return out
