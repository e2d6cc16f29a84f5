"""Numerical libraries use one thread in a fit, and as many as before after it."""

import os
import subprocess
import sys

import pytest

_LATE = """
import numpy as np
from threadpoolctl import threadpool_info
from qacal.partitions.base import one_thread
with one_thread():
    from scipy import linalg
    assert {pool["num_threads"] for pool in threadpool_info()} == {1}, threadpool_info()
"""

_OVERLAPPING = """
from threading import Event, Thread
import numpy as np, scipy.linalg
from threadpoolctl import threadpool_info
from qacal.partitions.base import one_thread

def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

started, entered, first_is_done = Event(), Event(), Event()

def second():
    started.set()
    with one_thread(waits=WAITS):
        entered.set()
        first_is_done.wait()
        if WAITS:
            assert threads() == {1}, threads()
    ok.append(True)

ok = []
if threads() != {2}:
    raise SystemExit(77)
thread = Thread(target=second)
with one_thread():
    thread.start()
    (started if WAITS else entered).wait()
    assert threads() == {1}, threads()
first_is_done.set()
thread.join()
assert ok
assert threads() == {2}, threads()
"""


@pytest.mark.parametrize(
    "program",
    [_LATE, _OVERLAPPING.replace("WAITS", "True"), _OVERLAPPING.replace("WAITS", "False")],
    ids=["late library", "a second thread that waits", "a second thread that goes on"],
)
def test_libraries_use_one_thread_and_then_as_many_as_before(program):
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=env)
    if done.returncode == 77:
        pytest.skip("numpy's linear algebra has one thread here, or cannot be limited")
    assert not done.returncode, done.stderr
