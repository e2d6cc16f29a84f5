"""The error tree: everything qacal raises on purpose is a :class:`QacalError`.

Messages name the value, its place, and what to do next.
"""

import re
import sys
from collections.abc import Sequence
from shlex import quote

# Characters that move a terminal's cursor or change its state or the direction of text, and halves of characters.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return a text with its control characters spelled out: texts from files must not drive a terminal.

    >>> print(printable("law\x1b[2J"))
    law\x1b[2J
    """
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


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


def pip_install(extra: str, options: str = "") -> str:
    """Return the command that installs an extra of qacal into the environment of this Python."""
    return f"{quote(sys.executable or 'python')} -m pip install {options}-e '.[{extra}]'"


class QacalError(Exception):
    """Base of every error that qacal raises on purpose."""

    def __str__(self) -> str:
        """Return the message; control characters quoted from files and servers are spelled out."""
        return printable(super().__str__())


class InputError(QacalError, ValueError):
    """A value cannot be used: the message names it, its place, and the remedy."""


class EncodingError(InputError):
    """Text is in another encoding than expected."""


class BadRowsError(InputError):
    """Too many rows of a file cannot be used: the message counts them by reason."""


class NotEnoughRowsError(QacalError, ValueError):
    """There are too few rows for the guarantee, whatever the number of points per bin."""


class MissingPackageError(QacalError, ImportError):
    """An optional package is not installed: the message names it and the extra that installs it."""


def missing_package(name: str, extra: str) -> MissingPackageError:
    """Return the error for a package of an extra that is not installed."""
    return MissingPackageError(
        f"the package {name} is not installed; run in the clone of qacal: {pip_install(extra)}", name=name
    )


class ServerError(QacalError, ConnectionError):
    """A server cannot be reached, does not reply, or replies with errors only."""


class ArtifactError(QacalError, ValueError):
    """A model cannot be saved, or a folder does not hold a model that this qacal can read."""


class QacalWarning(UserWarning):
    """Base of every warning that qacal gives."""

    def __str__(self) -> str:
        """Return the message; control characters quoted from files and servers are spelled out."""
        return printable(super().__str__())


class RepeatedQuestionsWarning(QacalWarning):
    """Some questions have several rows, so rows are not independent and intervals may be too narrow."""


class NotFittedError(QacalError, ValueError, AttributeError):
    """An estimator was asked to predict before it was fitted."""
