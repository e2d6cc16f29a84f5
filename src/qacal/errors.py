"""The error tree: everything qacal raises on purpose is a :class:`QacalError`.

Messages say what was got, where, and what to do next.
"""

import re
from collections.abc import Sequence

# Everything that moves a terminal's cursor, changes its state or the direction of text, and what no encoding can hold.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return a text with its control characters spelled out: texts from files must not drive a terminal.

    >>> print(printable("law\x1b[2J"))
    law\x1b[2J
    """
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def counted(count: int, thing: str, things: str = "") -> str:
    """Return a number of things in words.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "query", "queries")
    ('1 row', '1,200 rows', '2 queries')
    """
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def some_of(values: Sequence[object], most: int = 5) -> str:
    """Return the first values of a list in words, and how many more there are.

    >>> some_of(["law", "art"]), some_of([1, 2, 3], 2)
    ('law, art', '1, 2 and 1 more')
    """
    text = ", ".join(map(str, values[:most]))
    return text if len(values) <= most else f"{text} and {len(values) - most:,} more"


class QacalError(Exception):
    """Base of every error that qacal raises on purpose."""

    def __str__(self) -> str:
        """Return the message; what it quotes from files and servers is made printable."""
        return printable(super().__str__())


class InputError(QacalError, ValueError):
    """A value that qacal was given cannot be used: the message names it, its place, and the remedy."""


class EncodingError(InputError):
    """Text is not in the encoding that it is read in."""


class BadRowsError(InputError):
    """Too many rows of a file cannot be used: the message counts them by reason."""


class NotEnoughRowsError(QacalError, ValueError):
    """A guarantee that no number of points per bin can give with the rows there are."""


class MissingPackageError(QacalError, ImportError):
    """An optional package is not installed: the message names it and the extra that installs it."""


class ServerError(QacalError, ConnectionError):
    """A server cannot be reached, or gives no reply, or only errors of its own."""


class ArtifactError(QacalError, ValueError):
    """A model cannot be saved, or what is on disk is not a model that this qacal can trust and read."""


class QacalWarning(UserWarning):
    """Something that goes on, and that somebody should know of."""

    def __str__(self) -> str:
        """Return the message; what it quotes from files and servers is made printable."""
        return printable(super().__str__())


class RepeatedQuestionsWarning(QacalWarning):
    """Intervals were asked for on rows that are not independent: some questions have several."""


class NotFittedError(QacalError, ValueError, AttributeError):
    """An estimator was asked to predict before it was fitted."""
