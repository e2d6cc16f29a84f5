"""Generated answers, the same in every run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Answers:
    """Rows to calibrate on; `groups` is all zero where there are none."""

    confidence: NDArray[np.float64]
    correct: NDArray[np.int64]
    groups: NDArray[np.int64]


def pooled_answers(n: int) -> Answers:
    """Return rows whose confidences are all different, from an LLM that claims too much."""
    rng = np.random.default_rng(20250101)
    confidence = rng.beta(3.0, 1.5, n)
    correct = rng.random(n) < confidence**1.5
    return Answers(confidence, correct.astype(np.int64), np.zeros(n, dtype=np.int64))


def grouped_answers(n: int, n_groups: int, n_values: int | None) -> Answers:
    """Return rows of groups that each have a logistic curve of their own, its slope tied to its intercept.

    n_values : how many different confidences there are, evenly spaced as an LLM states them; None for all different.
    """
    rng = np.random.default_rng([20250101, n, n_groups])
    factor = np.array([[0.8, 0.0], [-0.6, 1.2]])
    intercept, slope = np.array([[-1.0], [2.5]]) + factor @ rng.standard_normal((2, n_groups))
    groups = rng.integers(0, n_groups, n)
    confidence = rng.beta(3.0, 1.5, n)
    if n_values is not None:
        confidence = np.rint(confidence * (n_values - 1)) / (n_values - 1)
    right = 1 / (1 + np.exp(-intercept[groups] - slope[groups] * confidence))
    return Answers(confidence, (rng.random(n) < right).astype(np.int64), groups)
