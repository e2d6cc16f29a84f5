"""What groups of near vectors start from: centres of k-means, directions; by the rows and the seed alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from qacal.errors import InputError
from qacal.parameters import shown
from qacal.tally.arrays import Floats
from qacal.tally.ids import mix

STARTS = 4
"""How many starts are tried; the one whose rows are nearest to their centres is kept."""

POWERS = 5
"""How often rows are multiplied into a direction to find the one of most variance; it is a start, and may be rough."""


def cluster_centres(Z: Floats, n_clusters: int, seed: int) -> Floats:
    """Return the centres of k-means, one a row, in no particular order."""
    from sklearn import config_context
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # The rows are finite: a gate has seen to that. On few rows, checks would take as long as clusters.
    checks = config_context(assume_finite=True, skip_parameter_validation=True)
    with one_thread(), checks, warnings.catch_warnings():
        # Fewer clusters than asked for: some rows are equal up to rounding, and that is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(n_clusters, n_init=STARTS, random_state=_start(seed, 0)).fit(Z)
    return np.asarray(found.cluster_centers_)


def widest_step(Z: Floats, seed: int, number: int = 0) -> Floats:
    """Return the first principal direction of rows, nearly, as long as a standard deviation along it.

    number : tells apart several directions of one seed, such as those of the nodes of a tree.

    The rows must not all be equal; to be called in :func:`one_thread`.
    """
    X = Z - Z.mean(axis=0)
    largest = float(np.abs(X).max())
    X /= largest  # so that squares of squares are numbers
    direction = np.random.default_rng(_start(seed, number)).normal(size=(X.shape[1],))
    for _ in range(POWERS):
        direction = X.T @ (X @ direction)
        direction = direction / np.sqrt(direction @ direction)
    return direction * (float((X @ direction).std()) * largest)


def _start(seed: int, number: int) -> int:
    return int(mix(np.array([number], dtype=np.uint64), seed)[0] % np.uint64(2**32))


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep libraries that are loaded to one thread.

    They sum in as many parts as there are threads, scikit-learn in the order in which these finish: the last digit
    would depend on the machine and on luck. And on the small nodes of a tree, threads wait for each other longer than
    they work.
    """
    # A library that came later would still use all threads.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


def check_seed(seed: object) -> None:
    """Refuse a seed that is no whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError(f"seed is {shown(seed)}; expected a whole number.")
