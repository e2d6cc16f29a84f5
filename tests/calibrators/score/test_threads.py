"""The first fit of a program is the same as the second."""

import subprocess
import sys

_PROGRAM = """
import numpy as np
from threadpoolctl import threadpool_info
from qacal.partitions.base import one_thread
with one_thread():
    from scipy import linalg
    assert {pool["num_threads"] for pool in threadpool_info()} == {1}, threadpool_info()
"""


def test_libraries_that_are_loaded_late_use_one_thread_too():
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
