"""k-means by scikit-learn, made to depend on the rows and the seed alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from qacal.errors import InputError
from qacal.identity import mix
from qacal.values import Floats

STARTS = 4
"""How many starts are tried; the one whose rows are nearest to their centres is kept."""


def cluster_centres(Z: Floats, n_clusters: int, seed: int, number: int = 0) -> Floats:
    """Return the centres of k-means, one a row, in no particular order; to be called in :func:`one_thread`.

    number : tells apart several clusterings of one seed, such as the nodes of a tree.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    start = int(mix(np.array([number], dtype=np.uint64), seed)[0] % np.uint64(2**32))
    with warnings.catch_warnings():
        # Fewer clusters than asked for: some rows are equal up to rounding, and that is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(KMeans(n_clusters, n_init=STARTS, random_state=start).fit(Z).cluster_centers_)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep scikit-learn to one thread.

    It sums in as many parts as there are threads, in the order in which they finish: the last digit would depend on
    the machine and on luck. And on the small nodes of a tree, threads wait for each other longer than they work.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


def check_seed(seed: object) -> None:
    """Refuse a seed that is no whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError(f"seed is {seed!r}; expected a whole number.")
