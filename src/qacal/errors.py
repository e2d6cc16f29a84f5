"""The error tree: everything qacal raises on purpose is a :class:`QacalError`.

Messages say what was got, where, and what to do next.
"""


class QacalError(Exception):
    """Base of every error that qacal raises on purpose."""


class InputError(QacalError, ValueError):
    """A value that qacal was given cannot be used: the message names it, its place, and the remedy."""


class UnreachableError(QacalError, ValueError):
    """A guarantee that no number of points per bin can give with the rows there are."""


class ArtifactError(QacalError, ValueError):
    """A model cannot be saved, or what is on disk is not a model that this qacal can trust and read."""


class QacalWarning(UserWarning):
    """Something that goes on, and that somebody should know of."""


class RepeatedQuestionsWarning(QacalWarning):
    """Intervals were asked for on rows that are not independent: some questions have several."""


class NotFittedError(QacalError, ValueError, AttributeError):
    """An estimator was asked to predict before it was fitted."""
