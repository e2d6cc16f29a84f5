"""`qacal fit`: from a file of labelled answers to a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import shared

if TYPE_CHECKING:
    from qacal.model import QACalibrator

CALIBRATORS = {
    "tree-binning": "TreeBinning",
    "scaling-qa-binning": "ScalingQABinning",
    "qa-binning": "QABinning",
    "hierarchical": "HierarchicalScaling",
    "tree": "TreeScaling",
    "steps": "StepBinning",
    "uniform-mass": "UniformMassBinning",
    "scaling-binning": "ScalingBinning",
    "platt": "PlattScaling",
    "isotonic": "IsotonicCalibration",
    "identity": "Identity",
}


def run(
    file: shared.Rows,
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL", help="The folder to write the model to.")],
    embedder: Annotated[
        str, typer.Option(help="static (fast), minilm (better groups, slower), onnx:DIR, hf:ID, or column:NAME.")
    ] = "static",
    partition: Annotated[
        str | None,
        typer.Option(
            help="The groups: bisecting:DEPTH, learned:DEPTH (from labels), kdtree:DEPTH, kmeans:N, column:NAME, or "
            "two of them: a*b. By default a bisecting tree of depth 6."
        ),
    ] = None,
    calibrator: Annotated[str, typer.Option(help=f"The correction: {', '.join(CALIBRATORS)}.")] = "tree-binning",
    points_per_bin: Annotated[
        int | None, typer.Option(help="Rows in a bin, 50 by default, for calibrators that count them; see qacal plan.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="How often the intervals may be wrong, all of them together.")] = 0.1,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECTIVE",
            help="Choose depth and points per bin by log-loss, brier, auac or error, on a seventh of the questions.",
        ),
    ] = None,
    beta: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Make the groups from these rows, which need no labels unless groups are learned."
        ),
    ] = None,
    beta_share: Annotated[float, typer.Option(help="The share of the questions that groups are made from.")] = 0.25,
    by: shared.By = None,
    pool: Annotated[bool, typer.Option("--pool", help="One model for all LLMs in the file.")] = False,
    examples: Annotated[int, typer.Option(help="How many rows of each group the model keeps to show them.")] = 3,
    seed: Annotated[int, typer.Option(help="Another seed deals the questions into other parts.")] = 0,
    column: shared.Columns = None,
    percent: shared.Percent = False,
    skip_bad_rows: shared.SkipBadRows = None,
) -> None:
    """Learn how far to trust a confidence, for every kind of question.

    The rows need question, answer, confidence and correct. A column id keeps the rows of one question together.

    \b
        qacal fit answers.parquet -o model
        qacal fit answers.csv -o model --partition column:subject --column confidence=score --percent
        qacal fit answers.parquet -o model --tune log-loss
        qacal fit answers_of_many_llms.jsonl -o models --by model
    """
    from qacal.model import QACalibrator
    from qacal.model_set import fit_set
    from qacal.tuning import OBJECTIVES

    shared.require_apart(file, output, skip_bad_rows)
    shared.require_folder(output)
    _require_sense(partition, alpha, beta_share)
    chosen = make_calibrator(calibrator, points_per_bin, alpha)
    objective = None if tune is None else shared.chosen("--tune", tune, list(OBJECTIVES))
    shares: dict[str, Any] = {"beta_share": beta_share, "tune": objective}
    model = QACalibrator(embedder, partition, chosen, **shares, examples=examples, seed=seed)
    with (
        shared.opened(file) as rows,
        shared.reading(column, percent, skip_bad_rows) as how,
        shared.progress() as progress,
    ):
        options: dict[str, Any] = {"beta_records": beta, "pool": pool, "progress": progress}
        if by is not None:
            models = fit_set(model, rows, by, how, **options)
            models.save(output)
        else:
            model.fit_reading(rows, how, **options).save(output)
    if by is None:
        shared.show(described(model))
        shared.note(f"Saved to {output}. Next: qacal groups {output}")
    else:
        for value, one in models.models.items():
            shared.show(f"{by} {value}: {described(one)}")
        shared.note(f"Saved to {output}, one model for each {by}.")


def _require_sense(partition: str | None, alpha: float, beta_share: float) -> None:
    """Refuse options that can mean nothing, before any row is read."""
    from qacal.errors import InputError
    from qacal.partitions import as_partition

    for name, value in (("--alpha", alpha), ("--beta-share", beta_share)):
        if not 0 < value < 1:
            raise typer.BadParameter(f"{name} is {value:g}; expected a number between 0 and 1.")
    try:
        as_partition(partition or "bisecting:6")
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def make_calibrator(name: str, points_per_bin: int | None, alpha: float) -> Any:
    """Return the calibrator of a name, with those of the parameters that it has."""
    import qacal

    if name not in CALIBRATORS:
        raise typer.BadParameter(f"there is no calibrator {name!r}; there are {', '.join(CALIBRATORS)}.")
    kind = getattr(qacal, CALIBRATORS[name])
    known = kind().get_params()
    if points_per_bin is not None and "points_per_bin" not in known:
        raise typer.BadParameter(
            f"{name} does not count points per bin; leave --points-per-bin out, or take qa-binning."
        )
    wanted = {"alpha": alpha, "cross_fit": True} | (
        {} if points_per_bin is None else {"points_per_bin": points_per_bin}
    )
    return kind(**{key: value for key, value in wanted.items() if key in known})


def described(model: QACalibrator) -> str:
    """Return what was fitted in a sentence or two."""
    groups = model.describe_groups()
    text = f"{type(model.calibrator_).__name__} on {model.rows_:,} rows"
    if groups:
        sizes = [group.rows for group in groups]
        text += f" in {len(groups)} groups of {min(sizes):,} to {max(sizes):,}" if len(groups) > 1 else " in one group"
    few = " So few rows carry little." if model.rows_ < 200 else ""
    return f"{text}.{_chosen(model)}{few}"


def _chosen(model: QACalibrator) -> str:
    """Return what tuning has chosen, and what it is worth."""
    found = model.tuned_
    if found is None:
        return ""
    best, what = found.best, str(model.tune).replace("_", " ")
    b = "" if best.points_per_bin is None else f", {best.points_per_bin} points per bin"
    depth = (
        f"depth {best.cut}"
        if isinstance(best.cut, int) and best.cut
        else "one map for all"
        if not best.cut
        else "groups"
    )
    without = found.best_pooled
    pooled = "" if without is None or best.cut == 0 else f", {abs(without.score):.4f} without groups"
    tried = f"{what} {abs(best.score):.4f} on {found.rows:,} rows{pooled}; {len(found.trials)} settings were tried"
    return f" Chosen: {depth}{b} ({tried}; {found.note})."


def model_path(path: str) -> str:
    """Return a path to a model; a missing one is wrong use rather than bad input."""
    if not Path(path).exists():
        raise typer.BadParameter(f"{path} does not exist; make a model with: qacal fit FILE -o {path}")
    return path
