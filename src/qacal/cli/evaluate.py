"""`qacal evaluate`: confidences before and after, overall and per group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import shared
from qacal.cli.fit import model_path

if TYPE_CHECKING:
    from qacal.evaluation import Evaluation, Scores


def run(
    file: shared.Rows,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Calibrate with this model; without it a column `calibrated` is read, if any."
        ),
    ] = None,
    groups: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Measure within the values of this column, such as subject.")
    ] = None,
    by: shared.By = None,
    json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(metavar="ERROR", help="Exit with 1 if a debiased calibration error is above this: a gate for CI."),
    ] = None,
    any_origin: Annotated[bool, typer.Option("--any-origin", help="As in qacal apply.")] = False,
    column: shared.Columns = None,
    percent: shared.Percent = False,
    skip_bad_rows: shared.SkipBadRows = None,
) -> None:
    """Measure how far confidences can be trusted, before and after calibration.

    Use rows that the model was not fitted on. `error` is the debiased calibration error: 0.08 means that stated and
    true probability typically differ by 0.08, noise taken out; below 0 no error can be seen. It is measured over all
    rows, and within groups, where a confidence that is right on average may still be wrong. AURC is the error rate of
    the answers given, averaged over how many are given: it measures ranking.

    \b
        qacal evaluate labelled.parquet --model model --groups subject
        qacal evaluate labelled.parquet --model model --fail-above 0.05 && deploy
    """
    parts = _measured(file, model, groups, by, any_origin, column, percent, skip_bad_rows)
    if json:
        content = {str(value): found.to_dict() for value, found in parts.items()}
        print(shared.json_text(content if by else content["all"]))
    else:
        for value, found in parts.items():
            _print(found, f"{by} {value}: " if by else "")
    worst = [(value, *wrong) for value, found in parts.items() for wrong in _above(found, fail_above)]
    for value, what, error in worst:
        where = f"{by} {value}: " if by else ""
        shared.note(f"qacal: {where}the calibration error {what} is {error:.4f}, above {fail_above}.")
    if worst:
        raise typer.Exit(1)


def _measured(
    file: str, model: str | None, groups: str | None, by: str | None, any_origin: bool, *read: Any
) -> dict[Any, Evaluation]:
    from qacal.collected import collect
    from qacal.model_set import load_any

    loaded = None if model is None else load_any(model_path(model))
    with shared.opened(file) as rows, shared.reading(*read) as how, shared.progress() as progress:
        columns = collect(rows, how, loaded, groups, by, any_origin=any_origin, progress=progress)
    if loaded is not None and columns.familiar(loaded):
        shared.note("qacal: the model was fitted on some of these questions; on those it looks better than it is.")
    return columns.evaluated()


def _print(found: Evaluation, title: str) -> None:
    width = len(_HEADER) if found.before.error_by_group is not None else len(_HEADER) - 2
    header = _HEADER if found.before.error_by_group is not None else (*_HEADER[:4], *_HEADER[6:])
    rows = [row[:4] + row[-(width - 4) :] for row in _overall(found)]
    shared.show(shared.table(f"{title}{found.rows:,} rows, {found.accuracy:.3f} right", *header, rows=rows))
    if found.groups:
        within = f"{title}within {found.grouped_by}"
        shared.show(shared.table(within, "group", *_GROUP_HEADER, rows=[_group(group) for group in found.groups]))
    shared.show(
        "mean: of the confidence, to be held against the share that is right. error: debiased calibration error"
    )
    shared.show("with its 95% interval; below 0 no error can be seen. Lower is better everywhere else.")


_HEADER = ("", "mean", "error", "95% interval", "error within", "95% interval", "Brier", "log loss", "AURC")
_GROUP_HEADER = ("rows", "right", "before", "after", "error before", "error after")


def _overall(found: Evaluation) -> list[tuple[str, ...]]:
    rows = [("before", *_scores(found.before))]
    return rows if found.after is None else [*rows, ("after", *_scores(found.after))]


def _scores(scores: Scores) -> tuple[str, ...]:
    within = scores.error_by_group
    return (
        f"{scores.confidence:.3f}",
        f"{scores.error.debiased:.4f}",
        f"{scores.error.low:.3f} to {scores.error.high:.3f}",
        "" if within is None else f"{within.debiased:.4f}",
        "" if within is None else f"{within.low:.3f} to {within.high:.3f}",
        f"{scores.brier:.4f}",
        f"{scores.log_loss:.4f}",
        f"{scores.aurc:.4f}",
    )


def _group(group: Any) -> tuple[str, ...]:
    numbers = (group.accuracy, group.before, group.after, group.error_before, group.error_after)
    name = "(none)" if group.group is None else str(group.group)
    return (name, f"{group.rows:,}", *("" if number is None else f"{number:.3f}" for number in numbers))


def _above(found: Evaluation, limit: float | None) -> list[tuple[str, float]]:
    if limit is None:
        return []
    within = found.last.error_by_group
    errors = [("over all rows", found.last.error.debiased)]
    if within is not None:
        errors.append((f"within {found.grouped_by}", within.debiased))
    return [(what, error) for what, error in errors if not error <= limit]
