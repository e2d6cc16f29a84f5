"""`qacal fit`: from a file of labelled answers to a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import fit_summary, options

if TYPE_CHECKING:
    from qacal.calibrators.base import Calibrator

_CALIBRATORS = {
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
    file: options.Rows,
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL", help="Folder for the model.")],
    embedder: Annotated[
        str, typer.Option(help="static (fast), minilm (better, slower), onnx:DIR, hf:ID, or column:NAME.")
    ] = "static",
    partition: Annotated[
        str | None,
        typer.Option(
            help="Groups: bisecting:DEPTH, kdtree:DEPTH, kdtree:DEPTH:coordinate "
            "(raw coordinates, as in the paper), kmeans:N, column:NAME, or a product: a*b. Default: a "
            "bisecting tree."
        ),
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option(
            help="Calibration method. Default: a score trained on confidence and text, certified in steps; for "
            f"--partition column:NAME, tree-binning. All methods: {', '.join(_CALIBRATORS)}."
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="A column for the score to read; COLUMN:KIND if its values do not tell the kind: numeric, category, "
            "confidence, logprobs or context. May be repeated. Default: all columns are tried, and used if they help.",
        ),
    ] = None,
    no_columns: Annotated[bool, typer.Option("--no-columns", help="Try no columns but those of --feature.")] = False,
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Train on all rows and output the score itself, without intervals."),
    ] = False,
    points_per_bin: Annotated[
        int | None, typer.Option(help="Rows in a bin, for calibrators that count them (default 50); see qacal plan.")
    ] = None,
    ties: options.TiesOption = "merge",
    alpha: Annotated[float, typer.Option(help="Probability that at least one interval of the model is wrong.")] = 0.1,
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
        typer.Option(metavar="FILE", help="Make the groups from these rows, which need no labels."),
    ] = None,
    certify: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Certify on these rows, labelled by people, and train on the others, labelled by a judge.",
        ),
    ] = None,
    train_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the questions that train groups and score: 0.8 (0.9 below 200 rows), 0.25 without a score."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="One model for each value of this column, usually model: the LLM's name."),
    ] = None,
    allow_mixed: Annotated[bool, typer.Option("--allow-mixed", help="One model for all LLMs in the file.")] = False,
    examples: Annotated[int, typer.Option(help="Number of example rows to store for each group.")] = 3,
    seed: Annotated[int, typer.Option(help="Random seed of the split.")] = 0,
    json: options.Json = False,
    column: options.Columns = None,
    percent: options.Percent = False,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Train a model on labelled answers.

    The rows need question, answer, confidence and correct. A column id keeps the rows of one question together. About
    80% of the questions (90% below 200 rows) train a score on confidence and text; the others certify it. A group of
    questions with enough certifying rows has its own intervals; a smaller group uses those of a larger group or of all
    rows.

    \b
        qacal fit answers.parquet -o model
        qacal fit answers.parquet -o model --feature confidence_tokens:confidence
        qacal fit answers.parquet -o model --feature tenant --feature retrieval_score:numeric
        qacal fit answers.csv -o model --partition column:subject --column confidence=score --percent
        qacal fit answers.parquet -o model --tune log-loss
        qacal fit answers_of_many_llms.jsonl -o models --by model
        qacal fit judged.parquet -o model --certify labelled_by_people.parquet
    """
    from qacal.model.defaults import default_pipeline
    from qacal.model.fitting import FitInputs
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet, fit_set
    from qacal.model.summary import described
    from qacal.search import OBJECTIVES

    options.require_apart(file, output, skip_bad_rows, certify, group_rows)
    options.require_folder(output)
    for name, value in (("--alpha", alpha), ("--train-share", train_share)):
        if value is not None and not 0 < value < 1:
            raise typer.BadParameter(f"{name} is {value:g}; expected a number between 0 and 1.")
    if partition is not None:
        options.require_partition(partition)
    if certify is not None and (by is not None or train_share is not None):
        raise typer.BadParameter("--certify trains one model on all other rows; leave out --by and --train-share.")
    if continuous and (group_rows is not None or train_share is not None):
        raise typer.BadParameter(
            "--continuous makes no groups and no intervals; leave out --group-rows and --train-share."
        )
    objective = None if tune is None else options.chosen("--tune", tune, list(OBJECTIVES))
    ties = options.chosen("--ties", ties, ["merge", "jitter"])
    if continuous and (calibrator is not None or ties != "merge"):
        raise typer.BadParameter("--continuous outputs the score itself; leave out --calibrator and --ties.")
    model = QACalibrator(
        embedder,
        partition,
        None if calibrator is None else _calibrator(calibrator),
        features=tuple(feature or ()) if feature or no_columns else "auto",
        output="continuous" if continuous else "certified",
        train_share=train_share,
        examples=examples,
        seed=seed,
    )
    parts = default_pipeline(model, has_certify_records=certify is not None)
    if objective not in (None, "log_loss", "brier") and calibrator is None and parts.score is not None:
        raise typer.BadParameter(f"--tune {tune} needs --calibrator; without one, pass --tune log-loss or brier.")
    model.set_params(tune=objective)
    if not continuous:
        # The default calibrator, so that --alpha can be set on it.
        model.set_params(calibrator=_with_settings(parts.calibrator, points_per_bin, alpha, ties))
    with options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression) as (rows, reading, progress):
        if by is None:
            inputs = FitInputs(rows, reading, group_rows, certify, allow_mixed)
            fit: QACalibrator | ModelSet = model._fit_inputs(inputs, progress)
        else:
            fit = fit_set(
                model, rows, by, reading, group_records=group_rows, allow_mixed=allow_mixed, progress=progress
            )
        lost_threshold = fit_summary.has_threshold(output)
        fit.save(output)
    for line in fit_summary.equal_labels(fit, [file] if certify is None else [file, certify]):
        options.note(line)
    if json:
        content = {str(value): fit_summary.to_dict(one) for value, one in fit._models.items()}
        print(options.json_text({"model": output, **(content["None"] if by is None else {"models": content})}))
    elif len(fit._models) > fit_summary.MODELS_IN_FULL:
        fit_summary.show_set(fit._models, str(by))
    else:
        for value, one in fit._models.items():
            title = "" if by is None else f"{by} {value}: "
            options.show(title + described(one, is_certified_apart=certify is not None))
    if lost_threshold:
        options.note("The replaced model had a threshold; this one has none (qacal threshold).")
    _print_next(file, output, by, used=(certify, group_rows), skips=skip_bad_rows is not None)


def _calibrator(name: str) -> Calibrator:
    import qacal

    if name not in _CALIBRATORS:
        raise typer.BadParameter(f"there is no calibrator {name!r}; there are {', '.join(_CALIBRATORS)}.")
    calibrator: Calibrator = getattr(qacal.calibrators, _CALIBRATORS[name])()
    return calibrator


def _with_settings(calibrator: Calibrator, points_per_bin: int | None, alpha: float, ties: str) -> Calibrator:
    """Set the options of the command that a calibrator has; the others must be left at their defaults."""
    params = calibrator.get_params()
    name = next(name for name, kind in _CALIBRATORS.items() if kind == type(calibrator).__name__)
    if points_per_bin is not None and "points_per_bin" not in params:
        raise typer.BadParameter(
            f"{name} does not count points per bin; leave out --points-per-bin, or use qa-binning."
        )
    if ties == "jitter" and "ties" not in params:
        raise typer.BadParameter(
            f"{name} does not divide equal confidences; leave out --ties, or use --calibrator qa-binning, "
            "scaling-qa-binning, uniform-mass-binning or scaling-binning."
        )
    settings: dict[str, Any] = {"alpha": alpha, "ties": ties, "cross_fit": True}
    if points_per_bin is not None:
        settings["points_per_bin"] = points_per_bin
    return calibrator.set_params(**{name: value for name, value in settings.items() if name in params})


def _print_next(file: str, output: str, by: str | None, *, used: Sequence[str | None], skips: bool) -> None:
    """Print the commands that come next.

    used : other files of this fit; they are not held out.
    """
    from qacal.records.files import ending_of, held_out_name

    options.note(f"Saved to {output}{'' if by is None else f', one model for each value of the column {by}'}.")
    output, held_out = quote(output), held_out_name(file)
    apply = f"    qacal apply {output} new{ending_of(file)} -o calibrated{ending_of(file)}"
    is_used = held_out is not None and Path(held_out).resolve() in {Path(path).resolve() for path in used if path}
    if held_out is not None and Path(held_out).exists() and not is_used:
        extra = "" if by is None else f" --by {by}"
        extra += " --skip-bad-rows bad_test.jsonl" if skips else ""
        options.note("Next: evaluate it on held-out rows, and apply it to new ones:")
        options.note(f"    qacal evaluate {quote(held_out)} --model {output}{extra}\n{apply}")
    else:
        options.note(f"Next: apply it to new answers:\n{apply}")
        options.note("To evaluate it, use labelled rows of other questions; qacal split holds out some before a fit.")
