"""Scores that are learned from rows of their own: the confidence, the text and columns of a row, in one probability."""

from qacal.calibrators.score.learned import LearnedScore
from qacal.calibrators.score.trials import ScoreTrial

__all__ = ["LearnedScore", "ScoreTrial"]
