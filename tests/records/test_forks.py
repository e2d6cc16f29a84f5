"""Processes forked after polars has started its threads: they work, or say why they cannot."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

CHILD = """
import multiprocessing, os, sys, threading
import pandas as pd
import polars as pl
from qacal import Column, QABinning, QACalibrator, QacalError
from qacal.partitions.base import one_thread
from qacal.records import files, table, tallying

table._PATIENCE = 0.5
rows = [
    {"id": i, "question": f"Q {i}?", "answer": "A", "confidence": (0.8, 0.8, 0.9)[i % 3], "subject": "ab"[i % 2],
     "correct": i % 3 > 0}
    for i in range(400)
]
model = QACalibrator(partition=Column("subject")).fit(rows)
frame, pandas = pl.DataFrame(rows), pd.DataFrame(rows)
vectors = frame.with_columns(vector=pl.Series([[float(i % 7), float(i % 11)] for i in range(400)]))
odd = frame.with_columns(confidence=pl.Series([7.0, *frame["confidence"].to_list()[1:]]))
frame.write_parquet("rows.parquet")
frame.write_ndjson("rows.jsonl")
expected = [row["calibrated"] for row in model.calibrate(rows)]
begun = tallying.ahead(str, range(6), threads=3)
next(begun)
many = pl.DataFrame(rows * 25)  # of so many texts, threads of polars find the codes
assert frame.select(pl.col("confidence").sum()).item()  # threads of polars run now, if they did not before


def answers(number):
    bad = {"confidence": 7}
    assert [row["calibrated"] for row in model.calibrate(rows)] == expected
    assert model.calibrate(frame)["calibrated"].to_list() == expected
    assert model.calibrate(many)["calibrated"].to_list() == expected * 25
    with one_thread():  # a thread of the parent is inside, too
        pass
    assert model.calibrate(pandas)["calibrated"].to_list() == expected
    assert [row for table in files.open_file("rows.jsonl").batches() for row in table.rows()] == rows
    assert [*begun] == [(at, str(at)) for at in range(1, 6)]  # of threads that this process does not have
    assert model.calibrate([*rows, bad], on_fault=lambda fault: None)[-1]["calibrated"] is None
    assert model.explain("Really?", "Yes", 0.8, subject="a")["calibrated"] == expected[0]
    assert model.calibrate(odd, on_fault=lambda fault: None)["calibrated"].to_list() == [None, *expected[1:]]
    other = QACalibrator("column:vector", "kdtree:1", QABinning()).fit(vectors)
    assert 200 < other.rows_ < 400
    said = []
    for work in (lambda: model.calibrate("rows.parquet"), lambda: model.save("model")):
        try:
            work()
        except QacalError as error:
            said.append(str(error))
    return said


inside, done = threading.Event(), threading.Event()


def stays_inside():
    with one_thread():
        inside.set()
        done.wait()


threading.Thread(target=stays_inside, daemon=True).start()
inside.wait()
with multiprocessing.get_context("fork").Pool(1) as pool:
    said = pool.map(answers, range(1))[0]
done.set()
assert len(said) == 2 and all("this process was forked after polars had started its threads" in text for text in said)
assert not os.path.exists("model")
assert len(model.calibrate("rows.parquet")) == 400  # the parent has its threads
print("all is well")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_answers_or_says_why_not(tmp_path):
    """In a separate process, which is killed with its children if it hangs."""
    command, output = [sys.executable, "-c", CHILD], tmp_path / "output"
    with output.open("w") as said:
        parent = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said, start_new_session=True)
        try:
            parent.wait(timeout=120)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
    assert output.read_text() == "all is well\n"
