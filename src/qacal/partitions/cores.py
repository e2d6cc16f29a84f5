"""Using all cores: threads take portions of rows, and a thread's products stay on its own core.

Libraries of linear algebra spread a large product over all cores by themselves. But most of what a tree does to a
portion is no product, so portions are what is spread here; and two threads with large products wait for each other,
since there is one team of workers for all. Small products are done on the spot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

MOST_THREADS = 4
"""Python runs one thread at a time between numpy's calls, so that many more of them stand in line."""

ROWS_AT_ONCE = 2**15
"""Enough for threads to seldom meet between numpy's calls, where all but one wait."""

NUMBERS_AT_ONCE = 3 * 2**20
"""So many numbers are in the portions of all threads together: memory does not grow with the cores."""

SMALL_PRODUCT = 2**19 - 1
"""So many multiplications OpenBLAS, which numpy's wheels have, does on one core; on two it is faster by a fifth."""

Real = TypeVar("Real", bound=np.floating[Any])

Portions = Iterator[slice]


def rows_at_once(width: int) -> int:
    """Return how many vectors of so many coordinates make a portion."""
    return min(ROWS_AT_ONCE, max(256, NUMBERS_AT_ONCE // (_most_threads() * width)))


def share(n_rows: int, at_once: int, work: Callable[[Portions], None]) -> None:
    """Call `work` in every thread with one and the same iterator: who is done with a portion takes the next.

    Portions come in any order; what `work` raises is raised here.
    """
    # A list's iterator, unlike a generator, can be asked by several threads.
    portions = iter([slice(start, min(start + at_once, n_rows)) for start in range(0, n_rows, at_once)])
    n_threads = min(_most_threads(), -(-n_rows // at_once))
    if n_threads <= 1:
        work(portions)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        for thread in [pool.submit(work, portions) for _ in range(n_threads)]:
            thread.result()


def multiply(rows: NDArray[Real], directions: NDArray[Real], out: NDArray[Real]) -> NDArray[Real]:
    """Write ``rows @ directions`` into `out`, in small products, and return it; `rows` and `out` are contiguous."""
    width, count = directions.shape
    n_pieces = -(-len(rows) * width * count // SMALL_PRODUCT)
    even = len(rows) - len(rows) % n_pieces if 1 < n_pieces <= len(rows) else 0
    if even:
        np.matmul(rows[:even].reshape(n_pieces, -1, width), directions, out=out[:even].reshape(n_pieces, -1, count))
    if even < len(rows):
        np.matmul(rows[even:], directions, out=out[even:])
    return out


def _most_threads() -> int:
    return min(MOST_THREADS, os.cpu_count() or 1)
