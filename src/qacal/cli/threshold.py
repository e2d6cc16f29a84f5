"""`qacal threshold`: when a model should answer, and when it should abstain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options

if TYPE_CHECKING:
    from qacal.model.choosing import Choice, Goal
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet
    from qacal.thresholds.certified import Certification, CertifiedThreshold, Reachable
    from qacal.thresholds.costs import CheapestThreshold, Policy


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model from qacal fit.")],
    file: options.Rows,
    accuracy: Annotated[
        float | None, typer.Option(help="Target accuracy of the accepted answers, such as 0.9.")
    ] = None,
    risk: Annotated[float | None, typer.Option(help="The same as an error rate, such as 0.1.")] = None,
    alpha: Annotated[float, typer.Option(help="Probability that the target is missed.")] = 0.1,
    per_group: Annotated[
        bool,
        typer.Option("--per-group", help="A threshold for each group of the model; all hold at once."),
    ] = False,
    wrong: Annotated[
        float | None, typer.Option(help="Cost of a wrong answer: find the cheapest threshold instead.")
    ] = None,
    abstain: Annotated[float | None, typer.Option(help="Cost of an abstention.")] = None,
    save: Annotated[bool, typer.Option("--save", help="Store it in the model for qacal apply.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
    correct. It prints the share of answers accepted, and how many correct answers are withheld.

    The rows need `correct`, and questions other than those used for fitting or tuning. Rows used for fitting are
    detected by id, or by question if the rows of the fit had no id, and refused. One row of each question is used.

    With --per-group every group gets its own threshold, at alpha divided by the number of groups. Groups without a
    certified threshold abstain, and so do rows of unknown groups. In a set of models (qacal fit --by) each model gets
    its thresholds, at alpha each.

    With --wrong 5 --abstain 1: the cheapest threshold if a wrong answer costs five times as much as an abstention. For
    calibrated confidences that is 1 - 1/5; it is compared with the cheapest on these rows. There is no guarantee.

    \b
        qacal threshold model labelled.parquet --accuracy 0.9
        qacal threshold model labelled.parquet --accuracy 0.9 --per-group --save
        qacal apply model new.parquet -o out.parquet      now with `decision`: answer or abstain

    If no threshold can be certified (for any group, or any model of a set), it prints how many rows might be enough and
    which lower accuracies these rows can certify, saves nothing, and exits with 1.
    """
    from qacal.model.choosing import choices
    from qacal.model.model_set import load_any

    goal = _goal(accuracy, risk, alpha, per_group, wrong, abstain)
    options.require_apart(file, skip_bad_rows)
    loaded = load_any(options.model_path(model), embedder=embedder)
    with (
        options.opened(file) as rows,
        options.reading_like(loaded, rows, column, percent, skip_bad_rows, max_bad, expression) as how,
        options.progress() as progress,
    ):
        found = choices(loaded, rows, how, goal, allow_other_source=allow_other_source or (), progress=progress)
    with options.printing():
        _tell(found, json)
    if not any(map(_is_done, found.values())):
        options.note("qacal: no threshold could be certified" + (", and nothing was saved." if save else "."))
        raise typer.Exit(1)
    if save:
        _save(loaded, found, model)


def _goal(*wanted: Any) -> Goal:
    from qacal.errors import InputError
    from qacal.guarantee import check_alpha
    from qacal.model.choosing import Goal

    try:
        goal = Goal(*wanted)
        check_alpha(goal.alpha)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
    return goal


def _is_done(choice: Choice) -> bool:
    return bool(getattr(choice, "is_certified", True))


def _save(loaded: QACalibrator | ModelSet, found: dict[Any, Choice], path: str) -> None:
    for value, choice in found.items():
        loaded._models[value].set_threshold(choice)
    loaded.save(path)
    done = sum(map(_is_done, found.values()))
    which = "" if done == len(found) else f" {done} of {len(found)} have a threshold; the others always abstain."
    options.note(f"Saved in {path}: qacal apply now writes answer or abstain.{which}")


# What is printed


def _tell(found: dict[Any, Choice], json: bool) -> None:
    from qacal.thresholds.certified import CertifiedThreshold

    if json:
        content = {str(value): choice.to_dict() for value, choice in found.items()}
        print(options.json_text(content["None"] if None in found else content))
        return
    for value, choice in found.items():
        title = "" if value is None else f"{value}: "
        if isinstance(choice, CertifiedThreshold):
            _print_certified(choice, title)
        else:
            _print_cheapest(choice, title)


def _print_certified(found: CertifiedThreshold, title: str) -> None:
    options.show(options.table(f"{title}{_claim(found)}", *_HEADER, rows=[_line(part) for part in found.parts]))
    for text in _remarks(found):
        options.show(text)
    if found.reachable:
        _print_reachable(found)


def _print_reachable(found: CertifiedThreshold) -> None:
    """Print the lower targets that these rows can certify."""
    rows = [
        (
            f"{one.accuracy:g}",
            _certified(one),
            "" if one.threshold is None else f"{one.threshold:g}",
            f"{one.coverage:.3f}",
        )
        for one in found.reachable
    ]
    options.show(options.table("lower accuracies on these rows", "accuracy", *_MENU, rows=rows))
    best = next((one for one in found.reachable if one.certified), None)
    if best is None:
        options.show("These cannot be certified either: use more rows, or a better model.")
        return
    target = f"--accuracy {best.accuracy:g} --alpha {best.alpha:.4g}" + (" --per-group" if found.is_grouped else "")
    options.show(f"All certified accuracies hold at once with probability {1 - found.alpha:g}: choose any of them.")
    options.show(f"For the highest, pass {target}")


def _certified(one: Reachable) -> str:
    if one.of > 1:
        return f"{one.certified} of {one.of} groups"
    return "yes" if one.certified else "no"


_OUTLOOKS = {
    "never": "no threshold reached the target, so more rows like these would not help.",
    "unclear": "these rows are too few to estimate how many are needed.",
}
_MENU = ("certified", "threshold", "share answered")
_ONE_CLASS = "All labels are the same; check the column `correct`."
_HEADER = ("group", "threshold", "rows", "answered", "share", "accuracy", "interval", "correct withheld", "rows needed")


def _claim(found: CertifiedThreshold) -> str:
    every = " in every group that has a threshold" if found.is_grouped else ""
    if not found.is_certified:
        return f"no threshold certified for an accuracy of {found.accuracy:g}, with probability {1 - found.alpha:g}"
    return f"accuracy of accepted answers at least {found.accuracy:g}{every}, with probability {1 - found.alpha:g}"


def _line(part: Certification) -> tuple[str, ...]:
    is_known = part.threshold is not None and part.accuracy is not None
    return (
        "all" if part.group is None else str(part.group),
        f"{part.threshold:g}" if is_known else "abstain",
        f"{part.rows:,}",
        f"{part.accepted:,}",
        f"{part.coverage:.3f}",
        f"{part.accuracy:.3f}" if is_known else "",
        f"{part.low:.3f} to {part.high:.3f}" if is_known else "",
        f"{part.withheld:,.0f} ({part.withheld_share:.0%})",
        "" if is_known else part.outlook or f"{part.rows_needed:,}",
    )


def _remarks(found: CertifiedThreshold) -> list[str]:
    from qacal.thresholds.outlook import fewest_rows

    out = []
    if any(part.threshold is None for part in found.parts):
        least = fewest_rows(found.accuracy, found.parts[0].alpha)
        out.append(f"At least {least:,} accepted rows are needed, even if all of them are correct.")
        outlooks = {part.outlook for part in found.parts if part.threshold is None}
        if None in outlooks:
            out.append("rows needed: enough in four of five cases, if they are like these rows.")
        out += [f"{outlook}: {means}" for outlook, means in _OUTLOOKS.items() if outlook in outlooks]
    if found.dropped:
        out.append(f"{found.dropped:,} rows left out: their questions have other rows, and rows must be independent.")
    if found.pilot_rows:
        out.append(
            f"{found.pilot_rows:,} further rows only chose where to start, since this model stores too little for that."
        )
    if found.ungrouped:
        out.append(f"{found.ungrouped:,} rows are in no group of the model; such rows abstain.")
    rights = {part.withheld + (part.accuracy or 0) * part.accepted for part in found.parts}
    if rights == {0.0} or all(part.accuracy == 1 and part.coverage == 1 for part in found.parts):
        out.append(_ONE_CLASS)
    return out


def _print_cheapest(found: CheapestThreshold, title: str) -> None:
    rows = [("p >= 1 - abstain/wrong", *_policy(found.rule_policy)), ("cheapest here", *_policy(found.seen_policy))]
    rows += [
        ("always answer", "0", f"{found.always:.4f}", "1.000", "", ""),
        ("never", "", f"{found.never:.4f}", "0.000", "", ""),
    ]
    head = f"{title}costs on {found.rows:,} rows: wrong {found.wrong:g}, abstain {found.abstain:g}"
    options.show(
        options.table(head, "", "threshold", "cost of a row", "share", "accuracy", "correct withheld", rows=rows)
    )
    if found.always in (0.0, found.wrong):
        options.show(_ONE_CLASS)
    interval = f"{found.low:.4f} to {found.high:.4f}"
    options.show(
        f"Compared with the cheapest threshold, chosen on one half of the rows and measured on the other, the first "
        f"costs {found.difference:.4f} a row more ({1 - found.alpha:.0%} interval {interval})."
    )
    if found.is_rule_good:
        options.show(f"Use {found.threshold:g}. No guarantee: it relies on calibrated confidences.")
    else:
        chosen = "never answer" if found.threshold is None else f"use {found.threshold:g}"
        options.show(
            f"These confidences are not calibrated here: {chosen}. No guarantee: the same rows chose and measured it."
        )


def _policy(policy: Policy) -> tuple[str, ...]:
    return (
        "never" if policy.threshold is None else f"{policy.threshold:g}",
        f"{policy.cost:.4f}",
        f"{policy.coverage:.3f}",
        "" if policy.accuracy is None else f"{policy.accuracy:.3f}",
        f"{policy.withheld:,.0f}",
    )
