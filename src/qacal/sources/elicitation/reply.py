"""A reply of an LLM, and its outcome: an answer with a confidence, a refusal, or why it cannot be read.

A reply that cannot be read is never guessed at. It has a reason from a short list, so that a run can count lost replies
by reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from qacal.errors import InputError

Request: TypeAlias = dict[str, Any]

_SHOWN = 200


@dataclass(frozen=True)
class Token:
    """A token of a reply.

    logprob : the natural logarithm of its probability; NaN if the server gave none.
    alternatives : the likeliest tokens at this place, with their log-probabilities; usually with this one.
    raw : its bytes, if the server gave them. Only bytes can join a character that is spread over several tokens.
    """

    text: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()
    raw: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The bytes of the token, computed from the text if the server gave none."""
        return self.text.encode(errors="surrogatepass") if self.raw is None else self.raw


@dataclass(frozen=True)
class Reply:
    """The reply of an LLM.

    tokens : None if the server gave no log-probabilities.
    finish : the server's reason why the reply ended: "stop", "length", "content_filter".
    refusal : the server's field for refusals.
    model : the server's name of the LLM, which may be more exact than the requested one.
    """

    text: str
    tokens: tuple[Token, ...] | None = None
    finish: str | None = None
    refusal: str | None = None
    model: str | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the reply ended because it reached its limit."""
        return self.finish is not None and self.finish.lower() in ("length", "max_tokens")

    @staticmethod
    def from_text(text: str) -> Reply:
        """Return the first reply in a chat completion, as the text that a server sends."""
        try:
            body = json.loads(text)
        except RecursionError:
            raise InputError("expected a chat completion; got JSON that is nested too deeply.") from None
        except ValueError:
            raise InputError(f"expected a chat completion; got no JSON: it begins with {text[:80]!r}.") from None
        return Reply.from_body(body)

    @staticmethod
    def from_body(body: Any) -> Reply:
        """Return the first reply in the body of a chat completion.

        Missing, empty or unknown fields are ignored. Log-probabilities are read all or not at all: a sum over some
        tokens of an answer would be too high.

        >>> Reply.from_body({"choices": [{"message": {"content": "Guess: 4"}, "finish_reason": "stop"}]}).text
        'Guess: 4'
        """
        choice = _first_choice(body)
        message, finish = choice.get("message"), choice.get("finish_reason")
        if not isinstance(message, Mapping):
            raise InputError(f"expected a chat completion; its first choice has no message: {_repr(choice)}.")
        return Reply(
            _encodable(_content(message)) or "",
            _tokens(choice.get("logprobs")),
            finish if isinstance(finish, str) else None,
            _encodable(message.get("refusal")),
            _encodable(body.get("model")),
        )


def separate_choices(text: str, most: int) -> list[str]:
    """Return the choices of a chat completion, at most `most`, as completions of one choice each.

    Choices without a message are left out.

    >>> separate_choices('{"choices": [{"message": {"content": "4"}}, {"message": {"content": "5"}}]}', 5)
    ['{"choices": [{"message": {"content": "4"}}]}', '{"choices": [{"message": {"content": "5"}}]}']
    """
    if most == 1:
        return [text]
    body = json.loads(text)
    choices = [one for one in body["choices"] if isinstance(one, Mapping) and isinstance(one.get("message"), Mapping)]
    return [json.dumps({**body, "choices": [one]}) for one in choices[:most]]


def _first_choice(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise InputError(f"expected a chat completion; got {_repr(body)}.")
    choices, error = body.get("choices"), body.get("error")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0]
    if error:
        message = error.get("message", error) if isinstance(error, Mapping) else error
        raise InputError(f"expected a chat completion; got the error {_repr(message)}.")
    raise InputError(f"expected a chat completion; it has no choices: {_repr(dict(body))}.")


def _repr(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "something that is nested too deeply"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _content(message: Mapping[str, Any]) -> str:
    """Return the text of a message, or of its parts; if it has none, the LLM's thoughts, in the usual tag."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    text = "".join(text for text in texts if isinstance(text, str))
    thoughts = (message.get(name) for name in ("reasoning_content", "reasoning"))
    return text or next((f"<think>{one}" for one in thoughts if isinstance(one, str) and one.strip()), "")


def _encodable(value: Any) -> str | None:
    # JSON can have half a character, which can be neither stored nor sent.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def _tokens(logprobs: Any) -> tuple[Token, ...] | None:
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    tokens = [_token(entry) for entry in content] if isinstance(content, list) else []
    complete = tuple(token for token in tokens if token is not None)
    return complete if complete and len(complete) == len(tokens) else None


def _token(entry: Any) -> Token | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("token"), str):
        return None
    listed, codes = entry.get("top_logprobs"), entry.get("bytes")
    alternatives = tuple(
        (other["token"], _number(other.get("logprob")))
        for other in (listed if isinstance(listed, list) else [])
        if isinstance(other, Mapping) and isinstance(other.get("token"), str)
    )
    is_bytes = isinstance(codes, list) and all(type(code) is int and 0 <= code < 256 for code in codes)
    return Token(entry["token"], _number(entry.get("logprob")), alternatives, bytes(codes or ()) if is_bytes else None)


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return math.nan


# Outcomes


class Reason(StrEnum):
    """Why a reply could not be read."""

    EMPTY = "the reply is empty"
    NO_GUESS = "there is no guess"
    NO_CONFIDENCE = "there is no confidence"
    SEVERAL_GUESSES = "there are several guesses"
    SEVERAL_CONFIDENCES = "there are several confidences"
    UNCLEAR_NUMBER = "the number can be read in several ways"
    OUT_OF_RANGE = "the number is not between 0 and 1"
    UNKNOWN_EXPRESSION = "the expression is not one of the list"
    ECHO = "the prompt is repeated, not answered"
    CUT = "the reply is cut off"
    THINKING = "the reply ends within the LLM's thoughts"
    NO_LOGPROBS = "there are no token probabilities"
    NEITHER_TRUE_NOR_FALSE = "neither True nor False is among the likely tokens"


@dataclass(frozen=True)
class Stated:
    """An answer and its stated confidence, in [0, 1]."""

    answer: str
    confidence: float


@dataclass(frozen=True)
class Refused:
    """The LLM declined to answer; `said` is the beginning of the reply."""

    said: str


@dataclass(frozen=True)
class Malformed:
    """A reply that cannot be read: `why` is one of :class:`Reason`, `said` is the beginning of the reply."""

    why: str
    said: str


Outcome: TypeAlias = Stated | Refused | Malformed


def refused(text: str) -> Refused:
    """Return a refusal with the beginning of the text."""
    return Refused(_beginning(text))


def malformed(why: Reason, text: str) -> Malformed:
    """Return why a text could not be read, with its beginning."""
    return Malformed(why, _beginning(text))


def _beginning(text: str) -> str:
    stripped = text[: 10 * _SHOWN].strip()
    return stripped if len(stripped) <= _SHOWN else stripped[: _SHOWN - 1] + "…"
