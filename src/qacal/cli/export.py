"""`qacal export`: the maps of a model as JSON or SQL, and the SQL that counts rows for one."""

from __future__ import annotations

from typing import Annotated

import typer

from qacal.cli import options
from qacal.errors import InputError


def run(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="A model from qacal fit.")] = None,
    dialect: Annotated[
        str | None,
        typer.Option(help="Print SQL instead of JSON: bigquery, duckdb, postgres, snowflake, spark or sqlite."),
    ] = None,
    tally: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Print the SELECT that counts the rows of a table, or of a SELECT."),
    ] = None,
    confidence: Annotated[str, typer.Option(help="SQL: name of the confidence column.")] = "confidence",
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="SQL: name of the group column; default: the model's own, else group. --tally takes none or several."
        ),
    ] = None,
    correct: Annotated[str, typer.Option(help="--tally: name of the label column.")] = "correct",
    weight: Annotated[str | None, typer.Option(help="--tally: name of a column of weights.")] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="TEXT", help="--tally: name of the column of question ids.")
    ] = None,
    resolution: Annotated[
        float | None, typer.Option(help="--tally: round confidences to this grid, such as 0.01.")
    ] = None,
) -> None:
    """Print the maps of a model as JSON or SQL.

    They calibrate confidences in a data warehouse or in another language: SQL is one CASE expression. The groups come
    from `qacal apply`, or from your own column for a model with --partition column:NAME. A model with a learned score
    cannot be exported.

    \b
        qacal export model --dialect postgres > calibrate.sql

    With --tally and no model, print the SELECT that counts labelled rows in the database; Tally.from_polars reads the
    result.

    \b
        qacal export --tally logs --dialect duckdb --group subject > tally.sql
    """
    groups = group or []
    if (model is None) == (tally is None):
        raise InputError("give either a model, or --tally TABLE.")
    if tally is not None:
        from qacal.tally.tally import Tally

        if dialect is None:
            raise InputError("--tally needs --dialect: the database that the SQL is for.")
        select = Tally.sql(
            tally,
            dialect=dialect,
            confidence=confidence,
            correct=correct,
            groups=groups,
            sample_weight=weight,
            ids=id_column,
            resolution=resolution,
        )
        print(select)
    if model is not None:
        _print_model(model, dialect, confidence, groups)


def _print_model(path: str, dialect: str | None, confidence: str, groups: list[str]) -> None:
    from qacal.calibrators.tree_scaling import TreeScaling
    from qacal.model.export import to_json
    from qacal.model.saved import load_one
    from qacal.partitions.column import Column
    from qacal.partitions.kdtree import KDTree

    if len(groups) > 1:
        raise InputError(f"--group names {len(groups)} columns; a model has one column of groups.")
    loaded = load_one(path)
    if loaded.learned_score_ is not None:
        raise InputError(
            f"{path} uses a score learned from text, which a table cannot compute. Fit a model with "
            "--calibrator tree-binning to export it."
        )
    if isinstance(loaded.calibrator_, TreeScaling) and isinstance(loaded.partition_, KDTree):
        options.note(
            "For rows without a group, qacal apply uses the curve of the smallest box around them, and this export the "
            "curve of all rows. --partition bisecting:DEPTH gives every row a group."
        )
    if dialect is None:
        print(options.json_text(to_json(loaded.calibrator_)))
    else:
        from qacal.model.sql import to_sql

        own = loaded.partition_.name if isinstance(loaded.partition_, Column) else "group"
        print(to_sql(loaded.calibrator_, dialect=dialect, confidence=confidence, group=groups[0] if groups else own))
