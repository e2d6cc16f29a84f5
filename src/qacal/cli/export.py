"""`qacal export`: the maps of a model as JSON or SQL, to calibrate outside of Python."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from qacal.cli import options


def run(
    model: options.Model,
    form: Annotated[Literal["json", "sql"], typer.Option("--to", help="json, or sql: one CASE expression.")] = "json",
    confidence: Annotated[str, typer.Option(help="SQL: name of the confidence column.")] = "confidence",
    group: Annotated[str, typer.Option(help="SQL: name of the group column.")] = "group",
) -> None:
    """Print the maps of a model as SQL or JSON.

    They calibrate confidences in a data warehouse or in another language. The groups come from `qacal apply`, or from
    your own column for a model with --partition column:NAME. A model with a learned score cannot be exported.

    \b
        qacal export model --to sql --group subject > calibrate.sql
    """
    from qacal.calibrators.tree_scaling import TreeScaling
    from qacal.errors import InputError
    from qacal.model.export import to_json, to_sql
    from qacal.model.saved import load_one
    from qacal.partitions.kdtree import KDTree

    loaded = load_one(model)
    if loaded.learned_score_ is not None:
        raise InputError(
            f"{model} uses a score learned from text, which a table cannot compute. Fit a model with "
            "--calibrator tree-binning to export it."
        )
    if isinstance(loaded.calibrator_, TreeScaling) and isinstance(loaded.partition_, KDTree):
        options.note(
            "For rows without a group, qacal apply uses the curve of the smallest box around them, and this export the "
            "curve of all rows. --partition bisecting:DEPTH gives every row a group."
        )
    if form == "sql":
        print(to_sql(loaded.calibrator_, confidence=confidence, group=group))
    else:
        print(options.json_text(to_json(loaded.calibrator_)))
