"""A model as functions of DuckDB: ``SELECT qacal_calibrate(question, answer, confidence) FROM logs``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from qacal.errors import InputError, MissingPackageError
from qacal.model.base import BaseModel
from qacal.parameters import shown
from qacal.records.provenance import AllowOtherSource

if TYPE_CHECKING:
    import polars as pl

_COLUMNS = {"question": "VARCHAR", "answer": "VARCHAR", "confidence": "DOUBLE"}
_NUMBERS = ("calibrated", "low", "high", "group_low", "group_high", "unlike")
_TEXTS = ("group", "source", "decision")
_PREFIX = "evidence of qacal: "


def register_duckdb(
    connection: Any,
    model: BaseModel,
    *,
    columns: Mapping[str, str] | None = None,
    prefix: str = "qacal",
    allow_other_source: AllowOtherSource = False,
) -> None:
    """Add two functions to a connection of DuckDB: `qacal_calibrate` and `qacal_evidence`.

    Both take (question, answer, confidence). The first returns the calibrated probability, the second a struct:
    `calibrated`, `low`, `high`, `group_low`, `group_high` and `unlike` as numbers, `group`, `source` and `decision` as
    texts. A row that cannot be used gives NULL, such as one without a confidence, or with one that is not from 0 to 1.
    DuckDB calls the functions with 2,048 rows at a time, through pyarrow.

    columns : further columns that the model reads, with their types: ``{"subject": "VARCHAR"}``. They are arguments
        after the confidence.
    prefix : opens the names of the functions, to register several models.
    allow_other_source : as in :meth:`qacal.QACalibrator.calibrate`.

    Examples
    --------
    >>> import duckdb
    >>> from qacal import QACalibrator
    >>> from qacal.calibrators import PlattScaling
    >>> rows = [{"id": i, "confidence": (0.6, 0.9)[i % 2], "correct": i % 8 > 1 + i % 2} for i in range(400)]
    >>> with duckdb.connect() as base:
    ...     register_duckdb(base, QACalibrator(calibrator=PlattScaling()).fit(rows))
    ...     base.sql("SELECT round(qacal_calibrate('2 + 2?', '4', 0.9), 3) AS p").fetchall()
    [(0.75,)]
    """
    if not isinstance(model, BaseModel):
        raise InputError(f"model is {shown(model)}; expected a fitted one, or qacal.load(path).")
    if not hasattr(connection, "create_function"):
        raise InputError(f"connection is {shown(connection)}; expected one of duckdb.connect().")
    if find_spec("pyarrow") is None:
        raise MissingPackageError("DuckDB needs pyarrow for functions; pip install pyarrow.", name="pyarrow")
    types = {**_COLUMNS, **(columns or {})}
    for name in (name for one in model._models.values() for name in one.pipeline_.group_columns if name not in types):
        raise InputError(f"the groups of the model are a column: pass columns={{{name!r}: 'VARCHAR'}}, or its type.")
    taken = "SELECT 1 FROM duckdb_functions() WHERE function_name = ?"
    if connection.execute(taken, [f"{prefix}_calibrate"]).fetchall():
        raise InputError(
            f"the connection has a function {prefix}_calibrate; pass another prefix, or remove this one first: "
            f"connection.remove_function('{prefix}_calibrate'), and so {prefix}_evidence."
        )
    model._warm()

    def evidence(*values: Any) -> pl.DataFrame:
        return _evidence(model, dict(zip(types, values, strict=True)), allow_other_source)

    def calibrate(*values: Any) -> Any:
        return evidence(*values)["calibrated"].to_arrow()

    def explain(*values: Any) -> Any:
        import polars as pl

        is_usable = pl.col("calibrated").is_not_null()
        return evidence(*values).select(pl.when(is_usable).then(pl.struct(pl.all()))).to_series().to_arrow()

    # DuckDB counts the arguments of a function by its signature.
    signature = Signature([Parameter(f"argument_{at}", Parameter.POSITIONAL_ONLY) for at in range(len(types))])
    fields = [*(f'"{name}" DOUBLE' for name in _NUMBERS), *(f'"{name}" VARCHAR' for name in _TEXTS)]
    results = {"calibrate": (calibrate, "DOUBLE"), "evidence": (explain, f"STRUCT({', '.join(fields)})")}
    for name, (function, result) in results.items():
        function.__signature__ = signature  # type: ignore[attr-defined]
        connection.create_function(
            f"{prefix}_{name}", function, [*types.values()], result, type="arrow", null_handling="special"
        )


def _evidence(model: BaseModel, columns: dict[str, Any], allow_other_source: AllowOtherSource) -> pl.DataFrame:
    """Return the evidence of all rows of one call; null for those that cannot be used."""
    import polars as pl

    rows = pl.DataFrame(columns)
    reading = model._reading(rows, on_fault=lambda fault: None, max_bad=1.0)
    # One table is one batch. What follows it is about all rows, such as how many are bad; a call has a part of them.
    table = next(model._calibrated(rows, reading, allow_other_source=allow_other_source, prefix=_PREFIX))
    numbers, texts = (
        [pl.col(_PREFIX + name).cast(kind).alias(name) for name in names]
        for names, kind in ((_NUMBERS, pl.Float64), (_TEXTS, pl.String))
    )
    return table.frame().select(*numbers, *texts)
