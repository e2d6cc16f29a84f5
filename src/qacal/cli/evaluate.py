"""`qacal evaluate`: confidences before and after, overall and per group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options
from qacal.errors import some_of
from qacal.metrics.words import NONE_SEEN, UNKNOWN, error_seen, interval

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
    by: options.SeparateResults = None,
    json: options.Json = False,
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
    AURC is the error rate of the accepted answers, averaged over the share accepted: it measures ranking. The output
    names groups that calibration made worse or that still have an error. A set of models (qacal fit --by) is measured
    model by model.

    The gate checks the error over all rows and the error within groups. By default it fails only if the rows show that
    an error is above the limit. With few rows it passes, and says that the rows are too few. With --strict the rows
    must show that the error is below the limit; for 0.05 that takes about 1,000 rows, if there is no error.

    \b
        qacal evaluate labelled.parquet --model model --groups subject
        qacal evaluate labelled.parquet --model model --fail-above 0.05 && deploy
    """
    from qacal.model.evaluating import collect
    from qacal.model.saved import load

    if strict and fail_above is None:
        raise typer.BadParameter("--strict needs --fail-above, which sets the limit.")
    if fail_above is not None and not 0 <= fail_above <= 1:
        raise typer.BadParameter(f"--fail-above is {fail_above:g}; expected 0 to 1, such as 0.05.")
    options.require_apart(file, skip_bad_rows)
    loaded = None if model is None else load(model, embedder=embedder)
    if by is None and loaded is not None:
        by = loaded._by
    reads = options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression, model=loaded)
    with reads as (rows, reading, progress):
        columns = collect(
            rows, reading, loaded, groups, by, allow_other_source=allow_other_source or (), progress=progress
        )
    if loaded is not None:
        _warn_of_fitted(columns, loaded)
    evaluations = columns.evaluated()
    with options.printing():
        if json:
            content = {str(value): one.to_dict() for value, one in evaluations.items()}
            print(options.json_text(content if by else content["all"]))
        else:
            for value, one in evaluations.items():
                _print(one, f"{by} {value}: " if by else "", groups)
    if fail_above is not None and _fails(evaluations, by, fail_above, strict):
        raise typer.Exit(1)


def _warn_of_fitted(columns: EvaluationRows, model: QACalibrator | ModelSet) -> None:
    from qacal.metrics.evaluation import FITTED_ON

    if columns.count_fit_questions(model):
        options.note(f"Note: {FITTED_ON}")
    elif not columns.has_ids(model):
        options.note(
            "Note: the model may have been fitted on these rows, and then it looks better than it is. To detect this, "
            "these rows and those of the fit need an id or a question."
        )


# What is printed


_NO_GROUP = "(no group)"


def _print(evaluation: Evaluation, title: str, groups: str | None) -> None:
    has_groups = evaluation.before.error_by_group is not None
    within = ("error within", "95% interval") if has_groups else ()
    header: tuple[str, ...] = ("", "mean", "error", "95% interval", *within, "Brier", "log loss", "AURC")
    rows = [("before", *_scores(evaluation.before))]
    if evaluation.after is not None:
        rows.append(("after", *_scores(evaluation.after)))
    caption = f"{title}{evaluation.rows:,} rows, accuracy {evaluation.accuracy:.3f}"
    options.show_table(caption, header, rows)
    group_rows = [_group(group) for group in evaluation.groups]
    if group_rows:
        caption = f"{title}within {evaluation.grouped_by}"
        header = ("group", "rows", "accuracy", "before", "after", "error before", "error after")
        options.show_table(caption, header, group_rows)
    if evaluation.verdict is not None:
        options.show(f"{title}{evaluation.verdict.text}")
    for line in _troubles(evaluation.groups):
        options.show(f"{title}{line}")
    for line in _notes({*chain(*rows)}, {*chain(*group_rows)}, groups, has_groups):
        options.show(line)


def _scores(scores: Scores) -> tuple[str, ...]:
    errors = [scores.error] if scores.error_by_group is None else [scores.error, scores.error_by_group]
    return (
        f"{scores.confidence:.3f}",
        *(cell for error in errors for cell in (error_seen(error.debiased, 4), _interval(error))),
        f"{scores.brier:.4f}",
        f"{scores.log_loss:.4f}",
        f"{scores.aurc:.4f}",
    )


def _interval(error: CalibrationError) -> str:
    """Return the interval of an error, cut at 0."""
    return interval(max(error.low, 0.0), max(error.high, 0.0)) or UNKNOWN


def _group(group: GroupScores) -> tuple[str, ...]:
    from qacal.metrics.evaluation import FEWEST_ROWS

    errors = ["" if error is None else error_seen(error) for error in (group.error_before, group.error_after)]
    return (
        _name(group),
        f"{group.rows:,}",
        *("" if mean is None else f"{mean:.3f}" for mean in (group.accuracy, group.before, group.after)),
        *(UNKNOWN if error and group.rows < FEWEST_ROWS else error for error in errors),
    )


def _name(group: GroupScores) -> str:
    return _NO_GROUP if group.group is None else str(group.group)


def _named(group: GroupScores) -> str:
    """Return the name of a group in a sentence; groups of texts only have numbers."""
    return f"group {group.group}" if isinstance(group.group, int) else _name(group)


def _troubles(groups: list[GroupScores]) -> Iterator[str]:
    """Yield the groups that calibration made worse or that still have an error, the largest three of each."""
    worse = [group for group in groups if group.is_worse]
    off = [group for group in groups if group.is_off and not group.is_worse]
    for heading, named in (("Worse than before", worse), ("Still wrong after calibration", off)):
        if named:
            names = [
                f"{_named(group)} (calibrated {group.after:.2f}, accuracy {group.accuracy:.2f})" for group in named
            ]
            yield f"{heading}: {some_of(names, 3)}."


def _notes(overall: set[str], within: set[str], groups: str | None, has_groups: bool) -> Iterator[str]:
    """Yield explanations of the columns and the words in the cells of the two tables."""
    from qacal.metrics.evaluation import FEWEST_ROWS, without_group
    from qacal.metrics.scores import SHOWN_CUT

    means = "mean, before, after" if within else "mean"
    yield f"{means}: mean confidence; compare it with the accuracy."
    yield "error: the typical distance between a confidence and the accuracy of answers with it, without noise."
    if has_groups:
        yield "error within: the same inside each group; too high in one and too low in another do not cancel."
    if NONE_SEEN in overall | within:
        most = "; the upper end of its 95% interval says how large it may still be" if NONE_SEEN in overall else ""
        yield f"{NONE_SEEN}: noise alone would measure as much{most}."
    if UNKNOWN in overall | within:
        few = f"; a group needs {FEWEST_ROWS}" if UNKNOWN in within else ""
        yield f"{UNKNOWN}: too few rows to measure{few}."
    if _NO_GROUP in within:
        yield f"{_NO_GROUP}: {without_group(groups)}."
    yield "AURC: the share of wrong answers among the most confident ones, averaged over how many are accepted."
    yield f"log loss: confidences are cut off at {SHOWN_CUT:g} and {1 - SHOWN_CUT:g}; one error costs at most 7."
    yield "error, Brier, log loss, AURC: lower is better."


# The gate


def _fails(evaluations: dict[Any, Evaluation], by: str | None, limit: float, is_strict: bool) -> bool:
    """Print the errors that matter to the gate, and return whether it fails."""
    fails = False
    for value, evaluation in evaluations.items():
        title, scores = f"{by} {value}: " if by else "", evaluation.last
        errors = {"over all rows": scores.error, f"within {evaluation.grouped_by}": scores.error_by_group}
        for where, error in errors.items():
            if error is None:
                continue
            is_above = _is_above(error, limit, is_strict)
            if is_above or not error.high <= limit:
                what = f"{title}the calibration error {where}"
                options.note(f"{'qacal' if is_above else 'Note'}: {_judgement(what, error, limit, is_above)}")
            fails |= is_above
    return fails


def _is_above(error: CalibrationError, limit: float, is_strict: bool) -> bool:
    """Return whether an error fails the gate; an unmeasurable one fails the strict gate only."""
    return not error.high <= limit if is_strict else error.low > limit


def _judgement(what: str, error: CalibrationError, limit: float, is_above: bool) -> str:
    if isnan(error.low):
        ruling = "a strict gate fails" if is_above else "passed; with --strict it would fail"
        return f"{what} cannot be measured: too few rows; {ruling}. Use more rows."
    measured = f"{what} is {error_seen(error.debiased, 4)} (95% interval {_interval(error)})"
    if error.low > limit:
        return f"{measured}, above {limit:g}."
    if is_above:
        return f"{measured}, not shown to be below {limit:g}."
    passed = "Passed; with --strict it would fail. Use more rows."
    return f"{measured}; these rows cannot tell whether it is above {limit:g}. {passed}"
