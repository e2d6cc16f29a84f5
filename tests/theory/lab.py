"""How theory is tested: simulate a known truth many times, count how often a promise is broken.

A promise that may fail with probability alpha must not be broken more often than chance allows (`at_most`). For each
there is a weakened formula that is broken clearly more often in the same scenario: the test can fail.
"""

import numpy as np
from scipy import stats

# One test in 10,000 would fail by chance; seeds are fixed, so none does by surprise.
LEVEL = 1e-4


def failure_rate(trial, trials, seed=0):
    """Return the share of trials in which `trial(rng)` says that the promise was broken."""
    rng = np.random.default_rng(seed)
    return np.mean([bool(trial(rng)) for _ in range(trials)])


def at_most(alpha, trials):
    """Return the highest share of failures that a failure probability of alpha explains."""
    return stats.binom.ppf(1 - LEVEL, trials, alpha) / trials


def at_least(alpha, trials):
    """Return the lowest share of failures that a failure probability of alpha explains."""
    return stats.binom.ppf(LEVEL, trials, alpha) / trials
