"""Calibrate a table of answers on Spark, and count its labelled rows in SQL.

    python examples/spark_apply.py MODEL answers.parquet calibrated_folder tally.parquet

The answers need question, answer and confidence. If they have `correct`, the cells of their tally go to the last file.
"""

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

import qacal

NEW = {"calibrated": pa.float64(), "low": pa.float64(), "high": pa.float64(), "source": pa.string()}


def calibrated(rows: DataFrame, path: str) -> DataFrame:
    """Return the rows with calibrated confidences; rows that cannot be used have nulls."""
    names = rows.columns

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        model = qacal.load(path)  # once for each partition
        for batch in batches:
            try:
                table = model.calibrate(pa.Table.from_batches([batch]), prefix="new ", on_fault=qacal.BadRows())
                added = [table["new " + name].combine_chunks().cast(kind) for name, kind in NEW.items()]
            except qacal.BadRowsError:  # not one row of this batch can be used
                added = [pa.nulls(batch.num_rows, kind) for kind in NEW.values()]
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], names=[*names, *NEW])

    kinds = [StructField(name, StringType() if kind == pa.string() else DoubleType()) for name, kind in NEW.items()]
    return rows.mapInArrow(apply, StructType([*rows.schema.fields, *kinds]))


def tally(spark: SparkSession, rows: DataFrame, **options: str) -> qacal.Tally:
    """Return the tally of labelled rows; Spark sends the cells only."""
    import polars as pl

    rows.createOrReplaceTempView("answers")
    cells = spark.sql(qacal.Tally.sql("answers", dialect="spark", **options))
    return qacal.Tally.from_polars(pl.DataFrame(cells.toArrow()))


def main() -> None:
    """Read the command line."""
    if len(sys.argv) not in (4, 5):
        sys.exit("usage: python examples/spark_apply.py MODEL answers.parquet calibrated_folder [tally.parquet]")
    model, source, target, *cells = sys.argv[1:]
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    # These settings and the master are for one machine; a cluster has its own.
    spark = SparkSession.builder.master("local[2]").config(map=local).getOrCreate()
    rows = spark.read.parquet(source)
    calibrated(rows, model).write.mode("overwrite").parquet(target)
    if cells:
        tally(spark, rows).to_polars().write_parquet(cells[0])
    spark.stop()


if __name__ == "__main__":
    main()
