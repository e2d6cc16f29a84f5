"""`qacal threshold`: when a model should answer, and when it should abstain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options

if TYPE_CHECKING:
    from qacal.model.choosing import Choice
    from qacal.thresholds.certified import Certification, CertifiedThreshold, ThresholdMenu
    from qacal.thresholds.costs import CheapestThreshold, Policy


def run(
    model: options.Model,
    file: options.Rows,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Target accuracy of the accepted answers, such as 0.9. Default: a menu of several."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Probability of a certified threshold that misses its target.")] = 0.1,
    per_group: Annotated[
        bool,
        typer.Option("--per-group", help="A threshold for each group of the model; all targets hold at once."),
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Instead: a threshold for each value of a column of FILE, such as field."),
    ] = None,
    wrong: Annotated[
        float | None, typer.Option(help="Instead: cost of a wrong answer, to find the cheapest threshold.")
    ] = None,
    abstain: Annotated[float | None, typer.Option(help="Cost of an abstention.")] = None,
    save: Annotated[bool, typer.Option("--save", help="Store the threshold in the model for qacal apply.")] = False,
    json: options.Json = False,
    allow_other_source: options.AllowOtherSource = None,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Choose the confidence threshold above which to answer.

    With --accuracy 0.9: the lowest threshold at which, with probability 1 - alpha, at least 90% of accepted answers are
    correct. It prints the share of accepted answers, and the number of correct answers that are withheld.

    Without --accuracy it prints a menu: for each of several accuracies, the threshold and the share of accepted
    answers. All lines hold at once with probability 1 - alpha, so any of them may be chosen.

    The rows need `correct`, and must not have been used for fitting or tuning. Rows of the fit are refused; they are
    detected by id, or by question if the rows of the fit had no id.

    If ids repeat (the fields of a document, the claims of an answer), rows with one id may depend on each other. The
    target is then the accuracy of a random accepted row of a random document.

    With --per-group every group gets its own threshold, at alpha divided by the number of groups. Groups without a
    certified threshold abstain, and so do rows of unknown groups. In a set of models (qacal fit --by) each model gets
    thresholds at alpha. With --groups field the groups are the values of that column, which qacal apply reads, too.

    With --wrong 5 --abstain 1: the cheapest threshold if a wrong answer costs five times as much as an abstention. For
    calibrated confidences that is 1 - 1/5; the cheapest on these rows is printed, too. There is no guarantee.

    \b
        qacal threshold model labelled.parquet
        qacal threshold model labelled.parquet --accuracy 0.9
        qacal threshold model labelled.parquet --accuracy 0.9 --per-group --save
        qacal threshold model labelled.parquet --accuracy 0.9 --groups field --save
        qacal apply model new.parquet -o out.parquet      now with `decision`: answer or abstain

    If no threshold can be certified (for any group, or any model of a set), it prints how many rows might be enough and
    which lower accuracies these rows can certify, saves nothing, and exits with 1.
    """
    from qacal.model.choosing import Goal, choices, menus
    from qacal.model.saved import load
    from qacal.thresholds.certified import TARGETS

    is_menu = accuracy is None and wrong is None and abstain is None
    if accuracy is None and not is_menu and (wrong is None or abstain is None):
        raise typer.BadParameter("pass both --wrong and --abstain, or --accuracy 0.9.")
    if is_menu and save:
        raise typer.BadParameter("--save needs --accuracy, or both --wrong and --abstain.")
    with options.usage_errors():
        goal = Goal(TARGETS[0] if is_menu else accuracy, alpha, per_group, wrong, abstain, groups)
    options.require_apart(file, skip_bad_rows)
    loaded = load(model, embedder=embedder)
    reads = options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression, model=loaded)
    with reads as (rows, reading, progress):
        find: Any = menus if is_menu else choices
        chosen: dict[Any, Any] = find(
            loaded, rows, reading, goal, allow_other_source=allow_other_source or (), progress=progress
        )
    with options.printing():
        _print(chosen, json, f"qacal threshold {quote(model)} {quote(file)}")
    done = sum(getattr(choice, "is_certified", True) for choice in chosen.values())
    if not done:
        options.note("qacal: no threshold could be certified" + (", and nothing was saved." if save else "."))
        raise typer.Exit(1)
    if save:
        for value, choice in chosen.items():
            loaded._models[value].set_threshold(choice)
        loaded.save(model)
        which = "" if done == len(chosen) else f" {done} of {len(chosen)} have a threshold; the others always abstain."
        options.note(f"Saved in {model}: qacal apply now writes answer or abstain.{which}")
    elif not is_menu:
        options.note(f"Not saved in {model}: the same command with --save stores it there for qacal apply.")


# What is printed


def _print(chosen: Mapping[Any, Choice | ThresholdMenu], json: bool, command: str) -> None:
    from qacal.thresholds.certified import CertifiedThreshold, ThresholdMenu

    if json:
        content = {str(value): choice.to_dict() for value, choice in chosen.items()}
        print(options.json_text(content["None"] if None in chosen else content))
        return
    for value, choice in chosen.items():
        title = "" if value is None else f"{value}: "
        if isinstance(choice, CertifiedThreshold):
            _print_certified(choice, title, command)
        elif isinstance(choice, ThresholdMenu):
            _print_menu(choice, title, command)
        else:
            _print_cheapest(choice, title)


_OUTLOOKS = {
    "never": "no threshold reached the target, so more rows like these would not help.",
    "unclear": "these rows are too few to estimate how many are needed.",
}
_ONE_CLASS = "All labels are the same; check the column `correct`."
_HEADER = ("group", "threshold", "rows", "answered", "share", "accuracy", "interval", "correct withheld", "rows needed")


def _print_certified(certified: CertifiedThreshold, title: str, command: str) -> None:
    claim = f"no threshold certified for an accuracy of {certified.accuracy:g}"
    if certified.is_certified:
        every = " in every group that has a threshold" if certified.is_grouped else ""
        claim = f"accuracy of accepted answers at least {certified.accuracy:g}{every}"
    caption = f"{title}{claim}, with probability {1 - certified.alpha:g}"
    largest_first = sorted(certified.parts, key=lambda part: -part.rows)
    options.show_table(caption, _HEADER, [_line(part) for part in largest_first])
    for text in _shortfall(certified) + _about_rows(certified):
        options.show(text)
    if certified.reachable:
        _print_reachable(certified, command)


def _print_reachable(certified: CertifiedThreshold, command: str) -> None:
    """Print the lower targets that these rows can certify."""
    _print_accuracies("lower accuracies on these rows", certified.reachable)
    best = next((one for one in certified.reachable if one.is_certified), None)
    if best is None:
        options.show("These cannot be certified either: use more rows, or a better model.")
    else:
        _print_how_to_save(best, certified.alpha, len(certified.reachable), command)


def _print_menu(menu: ThresholdMenu, title: str, command: str) -> None:
    _print_accuracies(f"{title}accuracy against share answered, on {menu.lines[0].rows:,} rows", menu.lines)
    for text in _about_rows(menu.lines[0]):
        options.show(text)
    if menu.is_certified:
        _print_how_to_save(menu.certified[-1], menu.alpha, len(menu.lines), command)


def _print_accuracies(caption: str, lines: Sequence[CertifiedThreshold]) -> None:
    """Print what each of several targets accepts."""
    rows = []
    for one in lines:
        found = [part for part in one.parts if part.threshold is not None]
        groups = f"{len(found)} of {len(one.parts)} groups" if len(one.parts) > 1 else "yes" if found else "no"
        own = [(f"{part.threshold:g}", "" if part.accuracy is None else f"{part.accuracy:.3f}") for part in found[:1]]
        threshold = [] if one.is_grouped else own[0] if own else ("", "")
        rows.append((f"{one.accuracy:g}", groups, *threshold, f"{one.coverage:.3f}"))
    header = ("accuracy", "certified", *([] if lines[0].is_grouped else ["threshold", "accuracy here"]))
    options.show_table(caption, (*header, "share answered"), rows)


def _print_how_to_save(best: CertifiedThreshold, alpha: float, count: int, command: str) -> None:
    per_group = f" --groups {best.column}" if best.column else " --per-group" if best.is_grouped else ""
    options.show(f"All certified accuracies hold at once with probability {1 - alpha:g}: choose any of them.")
    goal = f"--accuracy {best.accuracy:g} --alpha {best.alpha:.4g}{per_group} --save"
    shared = f"alpha {alpha:g}, shared by the {count} accuracies above"
    options.show(f"To save the highest: {command} {goal} ({shared}).")


def _line(part: Certification) -> tuple[str, ...]:
    is_certified = part.threshold is not None and part.accuracy is not None
    return (
        "all" if part.group is None else str(part.group),
        f"{part.threshold:g}" if is_certified else "abstain",
        f"{part.rows:,}",
        f"{part.accepted:,}",
        f"{part.coverage:.3f}",
        f"{part.accuracy:.3f}" if is_certified else "",
        f"{part.low:.3f} to {part.high:.3f}" if is_certified else "",
        f"{part.withheld:,.0f} ({part.withheld_share:.0%})",
        "" if is_certified else part.outlook or f"{part.rows_needed:,}",
    )


def _shortfall(certified: CertifiedThreshold) -> list[str]:
    """Return what would be needed to certify a threshold everywhere."""
    from qacal.guarantee import FOR_ONE_ROW
    from qacal.thresholds.outlook import fewest_rows

    out = []
    if any(part.threshold is None for part in certified.parts):
        is_by_document = certified.documents is not None
        least = fewest_rows(certified.accuracy, certified.parts[0].alpha * (FOR_ONE_ROW if is_by_document else 1))
        what = "documents with accepted rows" if is_by_document else "accepted rows"
        out.append(f"At least {least:,} {what} are needed, even if all of them are correct.")
        outlooks = {part.outlook for part in certified.parts if part.threshold is None}
        if None in outlooks:
            out.append("rows needed: enough in four of five cases, if they are like these rows.")
        out += [f"{outlook}: {means}" for outlook, means in _OUTLOOKS.items() if outlook in outlooks]
    return out


def _about_rows(certified: CertifiedThreshold) -> list[str]:
    """Return what to know about the test rows."""
    out = []
    if certified.documents is not None:
        out.append(
            f"Some ids have several rows, so rows with one id count as a document ({certified.documents:,} documents). "
            "The accuracy is that of a random accepted row of a random document."
        )
    if certified.pilot_rows:
        out.append(f"{certified.pilot_rows:,} other rows chose where to start: this model stores too little for that.")
    if certified.ungrouped:
        whose = "" if certified.column else " of the model"
        out.append(f"{certified.ungrouped:,} rows are in no group{whose}; such rows abstain.")
    rights = {part.withheld + (part.accuracy or 0) * part.accepted for part in certified.parts}
    if rights == {0.0} or all(part.accuracy == 1 and part.coverage == 1 for part in certified.parts):
        out.append(_ONE_CLASS)
    return out


def _print_cheapest(cheapest: CheapestThreshold, title: str) -> None:
    rows = [
        ("p >= 1 - abstain/wrong", *_policy(cheapest.rule_policy)),
        ("cheapest here", *_policy(cheapest.seen_policy)),
        ("always answer", "0", f"{cheapest.always:.4f}", "1.000", "", ""),
        ("never", "", f"{cheapest.never:.4f}", "0.000", "", ""),
    ]
    caption = f"{title}costs on {cheapest.rows:,} rows: wrong {cheapest.wrong:g}, abstain {cheapest.abstain:g}"
    header = ("", "threshold", "cost of a row", "share", "accuracy", "correct withheld")
    options.show_table(caption, header, rows)
    if cheapest.always in (0.0, cheapest.wrong):
        options.show(_ONE_CLASS)
    options.show(
        f"Use {cheapest.threshold:g}, which is best for calibrated confidences. If the cheapest here costs much less, "
        "they are not calibrated. There is no guarantee."
    )


def _policy(policy: Policy) -> tuple[str, ...]:
    return (
        "never" if policy.threshold is None else f"{policy.threshold:g}",
        f"{policy.cost:.4f}",
        f"{policy.coverage:.3f}",
        "" if policy.accuracy is None else f"{policy.accuracy:.3f}",
        f"{policy.withheld:,.0f}",
    )
