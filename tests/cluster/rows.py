"""Files of generated answers for the tests of jobs."""

import polars as pl

from tests.answers import answers


def write_days(folder, days=3, rows=400, seed=0):
    """Write a file of answers for each day; ids are numbered through."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = pl.DataFrame(answers(days * rows, seed)).with_columns(pl.col("correct").cast(pl.Int64))
    for day in range(days):
        frame.slice(day * rows, rows).write_parquet(folder / f"{day}.parquet")
    return frame


def all_rows(folder):
    """Return the rows of all files of a folder, in the order of their ids."""
    return pl.concat([pl.read_parquet(path) for path in sorted(folder.rglob("*.parquet"))]).sort("id")
