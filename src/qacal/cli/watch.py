"""`qacal watch`: whether the intervals of a model still hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options

if TYPE_CHECKING:
    from qacal.model.broken import Watched
    from qacal.model.watching import Watch

_SHOWN = 10
_ALARM = 3
_MANY = 1_000_000


def run(
    model: options.Model,
    file: Annotated[
        str,
        typer.Argument(metavar="LABELLED", help="All labelled rows since the fit, with `correct`, the oldest first."),
    ],
    alpha: Annotated[float, typer.Option(help="Probability that any alarm is ever wrong.")] = 0.1,
    show_all: Annotated[bool, typer.Option("--all", help=f"Print all intervals, not only {_SHOWN}.")] = False,
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

    Exit codes: 0 no alarm, 3 alarm (of any model of a set), 1 bad input, 2 wrong use.
    """
    from qacal.guarantee import check_alpha
    from qacal.model.saved import load
    from qacal.model.watching import watches

    with options.usage_errors():
        check_alpha(alpha)
    options.require_apart(file, skip_bad_rows)
    loaded = load(model, embedder=embedder)
    reads = options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression, model=loaded)
    with reads as (rows, reading, progress):
        found = watches(
            loaded, rows, reading, alpha=alpha, allow_other_source=allow_other_source or (), progress=progress
        )
    with options.printing():
        if json:
            content: dict[str, Any] = {str(value): watch.to_dict() for value, watch in found.items()}
            print(options.json_text(content["None"] if None in found else content))
        else:
            for value, watch in found.items():
                _print(watch, "" if value is None else f"{value}: ", show_all)
    if any(watch.is_alarm for watch in found.values()):
        raise typer.Exit(_ALARM)


def _print(watch: Watch, title: str, show_all: bool) -> None:
    shown = watch.intervals if show_all else watch.intervals[: max(_SHOWN, len(watch.broken))]
    header = ("interval", "promised", "seen", "labels", "evidence", "broken after")
    options.show_table(f"{title}{watch.headline}", header, [_line(interval) for interval in shown])
    for text in _notes(watch, len(watch.intervals) - len(shown)):
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


def _notes(watch: Watch, hidden: int) -> list[str]:
    """Return which rows were used, and what has changed."""
    out = []
    if hidden:
        out.append(f"{hidden} more intervals have less evidence against them (--all).")
    if watch.documents is not None:
        out.append(
            f"Some ids have several rows: {watch.documents:,} documents count, each once for each interval, with the "
            "mean of its rows."
        )
    if watch.far:
        out.append(f"{watch.far:,} of {watch.labels:,} rows are unlike the fit, have no interval and are not counted.")
    if watch.thinned:
        out.append(f"{watch.thinned:,} more rows were left out at random, so that all had the same chance of a label.")
    if watch.volunteered:
        out.append(f"{watch.volunteered:,} more rows have no label_probability, and were left out.")
    out += [f"{'Changed: ' if signal.is_notable else ''}{signal.text}" for signal in watch.signals]
    if watch.is_alarm:
        out.append("Fit a new model with labels of these answers; the old intervals do not hold for them.")
    return out
