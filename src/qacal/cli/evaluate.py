"""`qacal evaluate`: confidences before and after, overall and per group."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options
from qacal.errors import some_of

if TYPE_CHECKING:
    from qacal.metrics.calibration import CalibrationError
    from qacal.metrics.evaluation import Evaluation, GroupScores, Scores
    from qacal.model.evaluating import EvaluationRows
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet


def run(
    file: options.Rows,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Calibrate with this model. Default: use a column `calibrated`, if there is one."
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Also measure within each value of this column, such as subject."),
    ] = None,
    by: options.By = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(
            metavar="ERROR",
            help="A gate for CI: exit with 1 if the 95% interval of a calibration error is entirely above this.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="With --fail-above: exit with 1 unless the interval is entirely below."),
    ] = False,
    allow_other_source: options.AllowOtherSource = None,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Measure confidences before and after calibration.

    Use rows that the model was not fitted on. `error` is the debiased calibration error: 0.08 means that confidence and
    accuracy typically differ by 0.08, without noise. "none seen" means that noise alone would measure as much; the
    interval then says how large an error may still be (--json has the estimate, which is below 0). The error is
    measured over all rows and within groups, because a confidence can be right on average and wrong in every group.
    AURC is the error rate of the answers given, averaged over the share answered: it measures ranking. The output names
    groups that calibration made worse or that still have an error. A set of models (qacal fit --by) is measured model
    by model.

    The gate checks the error over all rows and the error within groups. By default it fails only if the rows show that
    an error is above the limit. With few rows it passes, and says that they show nothing. With --strict the rows must
    show that the error is below the limit; for 0.05 that takes about 1,000 rows, if there is no error.

    \b
        qacal evaluate labelled.parquet --model model --groups subject
        qacal evaluate labelled.parquet --model model --fail-above 0.05 && deploy
    """
    if strict and fail_above is None:
        raise typer.BadParameter("--strict needs --fail-above, which sets the limit.")
    if fail_above is not None and not 0 <= fail_above <= 1:
        raise typer.BadParameter(f"--fail-above is {fail_above:g}; expected 0 to 1, such as 0.05.")
    options.require_apart(file, skip_bad_rows)
    read = (column, percent, skip_bad_rows, max_bad, expression)
    parts, by = _measured(file, model, embedder, groups, by, allow_other_source, *read)
    with options.printing():
        _tell(parts, by, groups, json)
    if fail_above is not None and _fails(parts, by, fail_above, strict):
        raise typer.Exit(1)


def _tell(parts: dict[Any, Evaluation], by: str | None, groups: str | None, json: bool) -> None:
    if json:
        content = {str(value): found.to_dict() for value, found in parts.items()}
        print(options.json_text(content if by else content["all"]))
        return
    for value, found in parts.items():
        _print(found, f"{by} {value}: " if by else "", groups)


def _measured(
    file: str,
    model: str | None,
    embedder: str | None,
    groups: str | None,
    by: str | None,
    allow_other_source: list[str] | None,
    *read: Any,
) -> tuple[dict[Any, Evaluation], str | None]:
    """Return the evaluations and the column that separates them; for a set of models, by default that of the set."""
    from qacal.model.evaluating import collect
    from qacal.model.model_set import load_any

    loaded = None if model is None else load_any(options.model_path(model), embedder=embedder)
    if by is None and loaded is not None:
        by = loaded._by
    with options.opened(file) as rows, options.reading_like(loaded, rows, *read) as how, options.progress() as progress:
        columns = collect(rows, how, loaded, groups, by, allow_other_source=allow_other_source or (), progress=progress)
    if loaded is not None:
        _warn_of_fitted(columns, loaded)
    return columns.evaluated(), by


def _warn_of_fitted(columns: EvaluationRows, model: QACalibrator | ModelSet) -> None:
    from qacal.metrics.evaluation import FITTED_ON

    if columns.count_fit_questions(model):
        options.note(f"qacal: {FITTED_ON}")
    elif not columns.has_ids(model):
        options.note(
            "qacal: the model may have been fitted on these rows, and then it looks better than it is. To detect this, "
            "these rows and those of the fit need an id or a question."
        )


def _print(found: Evaluation, title: str, groups: str | None) -> None:
    width = len(_HEADER) if found.before.error_by_group is not None else len(_HEADER) - 2
    header = _HEADER if found.before.error_by_group is not None else (*_HEADER[:4], *_HEADER[6:])
    rows = [row[:4] + row[-(width - 4) :] for row in _overall(found)]
    options.show(options.table(f"{title}{found.rows:,} rows, accuracy {found.accuracy:.3f}", *header, rows=rows))
    if found.groups:
        within = f"{title}within {found.grouped_by}"
        options.show(options.table(within, "group", *_GROUP_HEADER, rows=[_group(group) for group in found.groups]))
    if found.verdict is not None:
        options.show(f"{title}{found.verdict.text}")
    for line in _troubles(found.groups):
        options.show(f"{title}{line}")
    for line in _notes(found, groups):
        options.show(line)


def _troubles(groups: list[GroupScores]) -> Iterator[str]:
    """Yield the groups that calibration made worse or that still have an error, the largest three of each."""
    for trouble, said in (("worse", "Worse than before"), ("off", "Still wrong after calibration")):
        those = [group for group in groups if group.trouble == trouble]
        shown = [
            f"{group.group if group.group is not None else _NO_GROUP} "
            f"(calibrated {group.after:.2f}, accuracy {group.accuracy:.2f})"
            for group in those
        ]
        if shown:
            yield f"{said}: {some_of(shown, 3)}."


def _notes(found: Evaluation, groups: str | None) -> Iterator[str]:
    """Yield explanations of the columns in these tables."""
    from qacal.metrics.evaluation import without_group

    means = "mean, before, after" if found.groups else "mean"
    yield f"{means}: mean confidence; compare it with the accuracy."
    yield "error: debiased calibration error, the typical distance to the accuracy without noise; 95% interval."
    yield f"{_NONE_SEEN}: noise alone would measure as much; the upper end says how large an error may still be."
    if any(group.rows < 2 for group in found.groups):
        yield f"{_UNKNOWN}: too few rows to measure."
    if any(group.group is None for group in found.groups):
        yield f"{_NO_GROUP}: {without_group(groups)}."
    yield "Brier, log loss, AURC: lower is better."


_NO_GROUP, _NONE_SEEN, _UNKNOWN = "(no group)", "none seen", "\N{EN DASH}"
_HEADER = ("", "mean", "error", "95% interval", "error within", "95% interval", "Brier", "log loss", "AURC")
_GROUP_HEADER = ("rows", "accuracy", "before", "after", "error before", "error after")


def _overall(found: Evaluation) -> list[tuple[str, ...]]:
    rows = [("before", *_scores(found.before))]
    return rows if found.after is None else [*rows, ("after", *_scores(found.after))]


def _scores(scores: Scores) -> tuple[str, ...]:
    within = scores.error_by_group
    return (
        f"{scores.confidence:.3f}",
        *_error(scores.error),
        *(("", "") if within is None else _error(within)),
        f"{scores.brier:.4f}",
        f"{scores.log_loss:.4f}",
        f"{scores.aurc:.4f}",
    )


def _error(error: CalibrationError) -> tuple[str, str]:
    return _seen(error.debiased, 4), _interval(error)


def _interval(error: CalibrationError) -> str:
    """Return the interval of an error, cut at 0."""
    if isnan(error.high):
        return _UNKNOWN
    low, high = (f"{max(end, 0.0):.3f}" for end in (error.low, error.high))
    return f"{low} to {high}"


def _seen(error: float, digits: int = 3) -> str:
    if isnan(error):
        return _UNKNOWN
    return f"{error:.{digits}f}" if error > 0 else _NONE_SEEN


def _group(group: GroupScores) -> tuple[str, ...]:
    means = (group.accuracy, group.before, group.after)
    errors = (group.error_before, group.error_after)
    name = _NO_GROUP if group.group is None else str(group.group)
    return (
        name,
        f"{group.rows:,}",
        *("" if mean is None else f"{mean:.3f}" for mean in means),
        *("" if error is None else _seen(error) for error in errors),
    )


def _fails(parts: dict[Any, Evaluation], by: str | None, limit: float, is_strict: bool) -> bool:
    """Print the errors that matter to the gate, and return whether it fails."""
    found = [
        (f"{by} {value}: {what}" if by else what, error)
        for value, part in parts.items()
        for what, error in _errors(part)
    ]
    is_shut = [_is_above(error, limit, is_strict) for _, error in found]
    for (what, error), is_above in zip(found, is_shut, strict=True):
        if is_above or not error.high <= limit:
            options.note(f"qacal: {_said(what, error, limit, is_above)}")
    return any(is_shut)


def _errors(found: Evaluation) -> list[tuple[str, CalibrationError]]:
    within = found.last.error_by_group
    overall = ("the calibration error over all rows", found.last.error)
    return [overall] if within is None else [overall, (f"the calibration error within {found.grouped_by}", within)]


def _is_above(error: CalibrationError, limit: float, is_strict: bool) -> bool:
    """Return whether an error fails the gate; an unmeasurable one fails the strict gate only."""
    return not error.high <= limit if is_strict else error.low > limit


def _said(what: str, error: CalibrationError, limit: float, is_above: bool) -> str:
    if isnan(error.low):
        ruling = "a strict gate fails" if is_above else "passed; --strict fails"
        return f"{what} cannot be measured on so few rows; {ruling}. Use more rows."
    measured = f"{what} is {_seen(error.debiased, 4)} (95% interval {_interval(error)})"
    if error.low > limit:
        return f"{measured}, above {limit:g}."
    if is_above:
        return f"{measured}, not shown to be below {limit:g}."
    return f"{measured}; these rows cannot tell whether it is above {limit:g}. Passed; --strict fails. Use more rows."
