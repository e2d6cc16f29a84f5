"""`qacal fit`: from a file of labelled answers to a model."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from qacal.cli import fit_summary as fitted
from qacal.cli import options as shared
from qacal.cli import remarks

CALIBRATORS = {
    "tree-binning": "TreeBinning",
    "scaling-qa-binning": "ScalingQABinning",
    "qa-binning": "QABinning",
    "hierarchical-scaling": "HierarchicalScaling",
    "tree-scaling": "TreeScaling",
    "step-binning": "StepBinning",
    "uniform-mass-binning": "UniformMassBinning",
    "scaling-binning": "ScalingBinning",
    "platt-scaling": "PlattScaling",
    "isotonic-calibration": "IsotonicCalibration",
    "identity": "Identity",
}


def run(
    file: shared.Rows,
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL", help="Folder for the model.")],
    embedder: Annotated[
        str, typer.Option(help="static (fast), minilm (better, slower), onnx:DIR, hf:ID, or column:NAME.")
    ] = "static",
    partition: Annotated[
        str | None,
        typer.Option(
            help="Groups: bisecting:DEPTH, learned:DEPTH (from labels), kdtree:DEPTH, kdtree:DEPTH:coordinate "
            "(raw coordinates, as in the paper), kmeans:N, column:NAME, or a product of two: a*b. Default: a "
            "bisecting tree."
        ),
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option(
            help="Calibration method. Default: a score trained on confidence and text, certified in steps; for "
            f"--partition column:NAME, tree-binning. All methods: {', '.join(CALIBRATORS)}."
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Another input column of the score: tenant, language. May be repeated."),
    ] = None,
    extra_confidence: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Another confidence as input of the score, such as the token probability."),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Train on all rows and answer with the score itself, without intervals."),
    ] = False,
    points_per_bin: Annotated[
        int | None, typer.Option(help="Rows in a bin, for calibrators that count them (default 50); see qacal plan.")
    ] = None,
    ties: shared.TiesOption = "merge",
    alpha: Annotated[float, typer.Option(help="Probability that any interval is wrong.")] = 0.1,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECTIVE",
            help="Tune the score by log-loss or brier; with --calibrator, tune depth and points per bin by "
            "log-loss, brier, auac or error.",
        ),
    ] = None,
    group_rows: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Make the groups from these rows; only learned groups need labels there."),
    ] = None,
    certify: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Certify on these rows (labelled by people) and train on the others (labelled by a judge).",
        ),
    ] = None,
    train_share: Annotated[
        float | None,
        typer.Option(help="Share of the questions that train groups and score: 0.8, or 0.25 without a score."),
    ] = None,
    by: shared.By = None,
    allow_mixed: Annotated[bool, typer.Option("--allow-mixed", help="One model for all LLMs in the file.")] = False,
    examples: Annotated[int, typer.Option(help="Number of example rows to store for each group.")] = 3,
    seed: Annotated[int, typer.Option(help="Random seed of the split.")] = 0,
    json: shared.Json = False,
    column: shared.Columns = None,
    percent: shared.Percent = False,
    expression: shared.Expressions = None,
    skip_bad_rows: shared.SkipBadRows = None,
    max_bad: shared.MaxBad = 0.2,
) -> None:
    """Train a model on labelled answers.

    The rows need question, answer, confidence and correct. A column id keeps the rows of one question together. 80% of
    the questions train a score on confidence and text; the other 20% certify it. A group of questions has intervals of
    its own if it has enough certifying rows; a smaller group uses those of a larger group or of all rows.

    \b
        qacal fit answers.parquet -o model
        qacal fit answers.parquet -o model --extra-confidence confidence_tokens
        qacal fit answers.csv -o model --partition column:subject --column confidence=score --percent
        qacal fit answers.parquet -o model --tune log-loss
        qacal fit answers_of_many_llms.jsonl -o models --by model
        qacal fit judged.parquet -o model --certify labelled_by_people.parquet
    """
    from qacal.model.fitting import FitInputs
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet, fit_set
    from qacal.search import OBJECTIVES

    shared.require_apart(file, output, skip_bad_rows, certify, group_rows)
    shared.require_folder(output)
    _require_sense(partition, alpha, train_share)
    if certify is not None and (by is not None or train_share is not None):
        raise typer.BadParameter("--certify trains one model on all other rows; leave --by and --train-share out.")
    if continuous and (group_rows is not None or train_share is not None):
        raise typer.BadParameter(
            "--continuous makes no groups and no intervals; leave --group-rows and --train-share out."
        )
    objective = None if tune is None else shared.chosen("--tune", tune, list(OBJECTIVES))
    model = QACalibrator(
        embedder,
        partition,
        _chosen_calibrator(
            calibrator,
            points_per_bin,
            alpha,
            shared.chosen("--ties", ties, ["merge", "jitter"]),
            partition,
            continuous,
            bool(feature or extra_confidence),
            recalibrate=certify is not None,
        ),
        score=_score(partition, feature, extra_confidence, objective),
        output="continuous" if continuous else "certified",
        train_share=train_share,
        tune=objective,
        examples=examples,
        seed=seed,
    )
    with (
        shared.opened(file) as rows,
        shared.reading(column, percent, skip_bad_rows, max_bad, expression) as how,
        shared.progress() as progress,
    ):
        if by is None:
            fit: QACalibrator | ModelSet = model._fit_inputs(
                FitInputs(rows, how, group_rows, certify, allow_mixed), progress
            )
        else:
            fit = fit_set(model, rows, by, how, group_records=group_rows, allow_mixed=allow_mixed, progress=progress)
        lost = fitted.lost_threshold(output)
        fit.save(output)
    said = [] if calibrator is not None else [*remarks.on_confidences(fit, how)]
    said += remarks.on_labels(fit, [file] if certify is None else [file, certify])
    if json:
        content = {str(value): fitted.to_dict(one) for value, one in fit.models.items()}
        print(shared.json_text({"model": output, **(content["None"] if by is None else {"models": content})}))
    elif len(fit.models) > fitted.MODELS_IN_FULL:
        fitted.show_set(fit.models, str(by))
    else:
        for value, one in fit.models.items():
            title = "" if by is None else f"{by} {value}: "
            shared.show(title + fitted.described(one, is_certified_apart=certify is not None))
    for line in said:
        shared.note(line)
    _say_what_next(file, output, by, lost, column, skips=skip_bad_rows is not None)


def _say_what_next(
    file: str, output: str, by: str | None, lost: str | None, column: list[str] | None, *, skips: bool
) -> None:
    from qacal.records.files import ending_of

    fit, kept, new, calibrated = (f"{name}{ending_of(file)}" for name in ("train", "test", "new", "calibrated"))
    beside = Path(file).with_name(kept)
    kept, has_kept = (str(beside), True) if file != "-" and beside.exists() else (kept, Path(kept).exists())
    shared.note(f"Saved to {output}{'' if by is None else f', one model for each value of the column {by}'}.")
    if lost is not None:
        command = f"qacal threshold {output} {kept} {lost} --save"
        shared.note(f"The replaced model had a threshold; this one has none. Choose it again: {command}")
    apply = f"    qacal apply {output} {new} -o {calibrated}"
    if has_kept:
        options = "" if by is None else f" --by {by}"
        options += " --skip-bad-rows bad_test.jsonl" if skips else ""
        shared.note("Next: evaluate it on held-out rows, and apply it to new ones:")
        shared.note(f"    qacal evaluate {quote(kept)} --model {output}{options}\n{apply}")
        return
    shared.note(f"Next: apply it to new answers:\n{apply}")
    shared.note("To evaluate it, use labelled rows of other questions (qacal evaluate).")
    if file != "-" and Path(file).name != fit:
        keys = "".join(f" --column {quote(one)}" for one in column or () if one.startswith(("id=", "question=")))
        shared.note(f"If you have none, split these rows and fit again on {fit}:")
        shared.note(f"    qacal split {quote(file)} -o {fit} --rest {kept}{keys}")


def _score(
    partition: str | None, feature: list[str] | None, extra_confidence: list[str] | None, objective: str | None
) -> Any:
    """Return the score to train; "auto" without options about it."""
    from qacal.calibrators.score import LearnedScore
    from qacal.partitions import EMBEDDING, as_partition

    if not feature and not extra_confidence:
        return "auto"
    needs = (EMBEDDING,) if partition is None else as_partition(partition).needs
    columns = dict.fromkeys([*(name for name in needs if name != EMBEDDING), *(feature or ())])
    return LearnedScore(
        text=EMBEDDING in needs,
        columns=tuple(columns),
        confidences=tuple(extra_confidence or ()),
        objective="brier" if objective == "brier" else "log_loss",
    )


def _chosen_calibrator(
    name: str | None,
    points_per_bin: int | None,
    alpha: float,
    ties: str,
    partition: str | None,
    continuous: bool,
    has_score: bool,
    recalibrate: bool,
) -> Any:
    """Return the calibrator with this name; without a name, the default with this alpha."""
    from qacal.partitions import EMBEDDING, as_partition

    if continuous:
        if name is not None or ties != "merge":
            raise typer.BadParameter("--continuous answers with the score itself; leave --calibrator and --ties out.")
        return None
    if name is None:
        reads_text = partition is None or EMBEDDING in as_partition(partition).needs
        name = "step-binning" if reads_text or has_score else "tree-binning"
        if name == "step-binning":
            return make_calibrator(name, points_per_bin, alpha, ties).set_params(recalibrate=recalibrate)
    return make_calibrator(name, points_per_bin, alpha, ties)


def _require_sense(partition: str | None, alpha: float, train_share: float | None) -> None:
    """Refuse impossible options before any row is read."""
    from qacal.errors import InputError
    from qacal.partitions import as_partition

    for name, value in (("--alpha", alpha), ("--train-share", train_share)):
        if value is not None and not 0 < value < 1:
            raise typer.BadParameter(f"{name} is {value:g}; expected a number between 0 and 1.")
    try:
        as_partition(partition or "bisecting:6")
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def make_calibrator(name: str, points_per_bin: int | None, alpha: float, ties: str) -> Any:
    """Return the calibrator with this name, with the parameters that it has."""
    import qacal

    if name not in CALIBRATORS:
        raise typer.BadParameter(f"there is no calibrator {name!r}; there are {', '.join(CALIBRATORS)}.")
    kind = getattr(qacal, CALIBRATORS[name])
    known = kind().get_params()
    if points_per_bin is not None and "points_per_bin" not in known:
        raise typer.BadParameter(
            f"{name} does not count points per bin; leave --points-per-bin out, or use qa-binning."
        )
    if ties == "jitter" and "ties" not in known:
        raise typer.BadParameter(
            f"{name} does not divide equal confidences; leave --ties out, or use --calibrator qa-binning, "
            "scaling-qa-binning, uniform-mass-binning or scaling-binning."
        )
    wanted = {"alpha": alpha, "ties": ties, "cross_fit": True} | (
        {} if points_per_bin is None else {"points_per_bin": points_per_bin}
    )
    return kind(**{key: value for key, value in wanted.items() if key in known})


def model_path(path: str) -> str:
    """Return the path to a model; a missing one is a usage error (exit code 2)."""
    if not Path(path).exists():
        raise typer.BadParameter(f"{path} does not exist; make a model with: qacal fit FILE -o {path}")
    return path
