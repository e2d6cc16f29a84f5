"""The learned score: the probability that an answer is correct, from its confidence, text and columns.

In: columns of training rows by name, and their labels. Out: :class:`LearnedScore`, the best of several candidates.
Open `learned.py` first; `trials.py` compares the candidates, `reading.py` applies the chosen one.
"""

from qacal.calibrators.score.learned import LearnedScore
from qacal.calibrators.score.reading import ScoreReader, ScoreReading
from qacal.calibrators.score.trials import ScoreTrial

__all__ = ["LearnedScore", "ScoreReader", "ScoreReading", "ScoreTrial"]
