"""`qacal export`: the maps of a model as JSON or SQL, for those who calibrate elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from qacal.cli import options


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model that qacal fit has made.")],
    form: Annotated[Literal["json", "sql"], typer.Option("--to", help="json, or sql: one CASE expression.")] = "json",
    confidence: Annotated[str, typer.Option(help="The column of confidences, for SQL.")] = "confidence",
    group: Annotated[str, typer.Option(help="The column of groups, for SQL.")] = "group",
) -> None:
    """Print the maps of a model, as SQL or JSON.

    With them, confidences are calibrated in a warehouse or in another language.

    The groups themselves come from `qacal apply`, or from your own column for a model with --partition column:NAME.

    \b
        qacal export model --to sql --group subject > calibrate.sql
    """
    from qacal.calibrators.tree_scaling import TreeScaling
    from qacal.errors import InputError
    from qacal.model.export import to_json, to_sql
    from qacal.model.model_set import load_one
    from qacal.partitions.kdtree import KDTree

    loaded = load_one(options.model_path(model))
    if loaded.learned_score_ is not None:
        raise InputError(
            f"{model} answers with a score that is learned from text, which no table of confidences can hold. Fit one "
            "with --calibrator tree-binning to export it."
        )
    if isinstance(loaded.calibrator_, TreeScaling) and isinstance(loaded.partition_, KDTree):
        options.note(
            "Rows without a group: qacal apply reads the curve of the smallest box that they lie in, this export the "
            "curve of all rows. --partition bisecting:DEPTH gives every row a group."
        )
    if form == "sql":
        print(to_sql(loaded.calibrator_, confidence=confidence, group=group))
    else:
        print(options.json_text(to_json(loaded.calibrator_)))
