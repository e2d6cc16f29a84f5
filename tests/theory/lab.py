"""Simulations of guarantees: draw data with a known truth many times, and count failures.

A guarantee with failure probability alpha must not fail more often than chance allows (`at_most`). For each
there is a weakened formula that fails clearly more often in the same scenario, so the test can fail. `make test` runs
an eighth of the trials of a guarantee that holds; a weakened one is run until it has failed often enough.
"""

import numpy as np
from scipy import stats

from tests.sizes import FULL, sized

# One test in 10,000 would fail by chance; seeds are fixed, so results are reproducible.
LEVEL = 1e-4


def failure_rate(trial, trials, seed=0):
    """Return the share of trials in which `trial(rng)` reports a failure."""
    rng = np.random.default_rng(seed)
    return np.mean([bool(trial(rng)) for _ in range(trials)])


def assert_holds(trial, alpha, trials, seed=0):
    """Assert that a guarantee fails no more often than a failure probability of alpha explains."""
    trials = trials if FULL else min(sized(trials), max(trials // 8, 25))
    assert failure_rate(trial, trials, seed) <= at_most(alpha, trials)


def assert_breaks(trial, alpha, trials, seed=0):
    """Assert that a guarantee fails more often than that; stop as soon as the trials so far decide."""
    rng = np.random.default_rng(seed)
    few = sized(trials)
    allowed_of_few, allowed = (round(at_most(alpha, n) * n) for n in (few, trials))
    failures = 0
    for done in range(1, trials + 1):
        failures += bool(trial(rng))
        if failures > allowed or (done <= few and failures > allowed_of_few):
            return
    raise AssertionError(f"broken in {failures} of {trials} trials; a probability of {alpha} explains {allowed}")


def at_most(alpha, trials):
    """Return the highest share of failures that a failure probability of alpha explains."""
    return stats.binom.ppf(1 - LEVEL, trials, alpha) / trials


def at_least(alpha, trials):
    """Return the lowest share of failures that a failure probability of alpha explains."""
    return stats.binom.ppf(LEVEL, trials, alpha) / trials
