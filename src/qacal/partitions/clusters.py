"""k-means by scikit-learn, made to depend on the rows and the seed alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.identity import mix
from qacal.values import Floats

STARTS = 4
"""How many starts are tried; the one whose rows are nearest to their centres is kept."""

MOST_ROUNDS = 10
"""After how many rounds two clusters are left as they are; later ones move few rows."""

POWERS = 5
"""How often rows are multiplied into a direction to find the one of most variance; it is a start, and may be rough."""


def cluster_centres(Z: Floats, n_clusters: int, seed: int, number: int = 0) -> Floats:
    """Return the centres of k-means, one a row, in no particular order; to be called in :func:`one_thread`.

    number : tells apart several clusterings of one seed, such as the nodes of a tree.
    """
    return _fitted_centres(Z, n_clusters, n_init=STARTS, random_state=_start(seed, number))


def two_centres(Z: Floats, seed: int, number: int = 0) -> Floats:
    """Return the centres of 2-means from one start, a mean to either side along the direction of most variance.

    It is a fraction of the work of :data:`STARTS` random ones, and trees of such cuts were as good on real vectors. A
    cut among a few clear clouds can be worse: of five in 6 dimensions, by 1.6% of the squares on average, 19% at worst.
    The rows must not all be equal; to be called in :func:`one_thread`.
    """
    mean = Z.mean(axis=0)
    step = _widest_step(Z - mean, _start(seed, number))
    return _fitted_centres(Z, 2, init=np.array([mean - step, mean + step]), n_init=1, max_iter=MOST_ROUNDS)


def _widest_step(X: Floats, start: int) -> Floats:
    """Return the first principal direction of centred rows, nearly, as long as a standard deviation along it."""
    largest = float(np.abs(X).max())
    X = X / largest  # so that squares of squares are numbers
    direction = np.random.default_rng(start).normal(size=(X.shape[1],))
    for _ in range(POWERS):
        direction = X.T @ (X @ direction)
        direction = direction / np.sqrt(direction @ direction)
    return direction * (float((X @ direction).std()) * largest)


def _start(seed: int, number: int) -> int:
    return int(mix(np.array([number], dtype=np.uint64), seed)[0] % np.uint64(2**32))


def _fitted_centres(Z: Floats, n_clusters: int, **how: Any) -> Floats:
    from sklearn import config_context
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # The rows are finite: a gate has seen to that. On small nodes, checks would take as long as clusters.
    with config_context(assume_finite=True, skip_parameter_validation=True), warnings.catch_warnings():
        # Fewer clusters than asked for: some rows are equal up to rounding, and that is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(KMeans(n_clusters, **how).fit(Z).cluster_centers_)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep scikit-learn to one thread.

    It sums in as many parts as there are threads, in the order in which they finish: the last digit would depend on
    the machine and on luck. And on the small nodes of a tree, threads wait for each other longer than they work.
    """
    # Limits hold for libraries that are loaded; one that comes later would still use all threads.
    import scipy.linalg  # noqa: F401
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


def check_seed(seed: object) -> None:
    """Refuse a seed that is no whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError(f"seed is {seed!r}; expected a whole number.")
