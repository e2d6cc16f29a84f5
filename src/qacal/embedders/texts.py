"""The gate for text: one question and one answer per row, in characters that every tokenizer can read."""

from __future__ import annotations

from collections.abc import Sequence

from qacal.errors import InputError


def paired_texts(questions: Sequence[str], answers: Sequence[str]) -> tuple[list[str], list[str]]:
    r"""Return both columns as lists of readable text, or say which value is none.

    An empty answer is an answer. Half a surrogate pair is no character, and tokenizers refuse it; it becomes U+FFFD.

    >>> paired_texts(["2 + 2?"], ["4 \ud800"])
    (['2 + 2?'], ['4 \ufffd'])
    >>> paired_texts(["2 + 2?", "2 + 3?"], ["4", None])
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: answers[1] is None; expected text. An answer that is not there is the empty text "".
    """
    left, right = _texts(questions, "questions"), _texts(answers, "answers")
    if len(left) != len(right):
        raise InputError(f"there are {len(left)} questions and {len(right)} answers; give one of each per row.")
    return left, right


def _texts(values: Sequence[str], name: str) -> list[str]:
    if isinstance(values, str):
        raise InputError(f"{name} is one text; expected a list or column of texts, one per row.")
    listed = list(values)
    for at, value in enumerate(listed):
        if not isinstance(value, str):
            advice = ' An answer that is not there is the empty text "".' if name == "answers" else ""
            raise InputError(f"{name}[{at}] is {value!r}; expected text.{advice}")
    return [text if text.isascii() else _readable(text) for text in listed]


def _readable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16 the two halves of a pair find each other again; only a half without its other is replaced.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
