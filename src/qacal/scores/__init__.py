"""Scores that are learned from rows of their own: the confidence, the text and columns of a row, in one probability."""

from qacal.scores.learned import LearnedScore
from qacal.scores.trials import Trial

__all__ = ["LearnedScore", "Trial"]
