"""Requests and replies. A reply has a text, tokens with log-probabilities if the server gives them, and a finish."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from qacal.errors import InputError

Request: TypeAlias = dict[str, Any]

# A chat completion has less than ten levels. Some readers of JSON fail at a few hundred.
_DEEPEST = 100


@dataclass(frozen=True)
class Token:
    """A token of a reply.

    logprob : the natural logarithm of its probability; NaN if the server gave none.
    alternatives : the likeliest tokens at this place, with their log-probabilities; usually with this one.
    raw : its bytes, if the server gave them. A character may be spread over several tokens, which only bytes can join.
    """

    text: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()
    raw: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """Its bytes, from the text if the server gave none."""
        return self.text.encode(errors="surrogatepass") if self.raw is None else self.raw


@dataclass(frozen=True)
class Reply:
    """What an LLM replied.

    tokens : None if the server gave no log-probabilities.
    finish : why it ended, in the server's word: "stop", "length", "content_filter".
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
        """Whether it ended because it reached its limit."""
        return self.finish is not None and self.finish.lower() in ("length", "max_tokens")

    @staticmethod
    def from_text(text: str) -> Reply:
        """Return the first reply in a chat completion, as the text that a server sends.

        >>> Reply.from_text("[" * 100_000)
        Traceback (most recent call last):
        ...
        qacal.errors.InputError: expected a chat completion; got JSON that is nested more than 100 levels deep.
        """
        try:
            body = json.loads(text)
            is_deep = _is_deeper(body, _DEEPEST)
        except RecursionError:
            is_deep = True
        except ValueError:
            raise InputError(f"expected a chat completion; got no JSON: it begins with {text[:80]!r}.") from None
        if is_deep:
            raise InputError(f"expected a chat completion; got JSON that is nested more than {_DEEPEST} levels deep.")
        return Reply.from_body(body)

    @staticmethod
    def from_body(body: Any) -> Reply:
        """Return the first reply in the body of a chat completion.

        Missing, empty or unknown fields are ignored. Log-probabilities are read all or not at all: a sum over some
        tokens of an answer would be too high.

        >>> Reply.from_body({"choices": [{"message": {"content": "Guess: 4"}, "finish_reason": "stop"}]}).text
        'Guess: 4'
        >>> Reply.from_body({"error": {"message": "no such model"}})
        Traceback (most recent call last):
        ...
        qacal.errors.InputError: expected a chat completion; got the error 'no such model'.
        """
        choice = _first_choice(body)
        message = choice.get("message")
        if not isinstance(message, Mapping):
            raise InputError(f"expected a chat completion; its first choice has no message: {_shown(choice)}.")
        refusal = message.get("refusal")
        return Reply(
            _whole(_text(message.get("content")) or _thoughts(message)),
            _tokens(choice.get("logprobs")),
            finish if isinstance(finish := choice.get("finish_reason"), str) else None,
            _whole(refusal) if isinstance(refusal, str) and refusal else None,
            _whole(model) if isinstance(model := body.get("model"), str) and model else None,
        )


def _first_choice(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise InputError(f"expected a chat completion; got {_shown(body)}.")
    choices = body.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0]
    error = body.get("error")
    if error:
        message = error.get("message", error) if isinstance(error, Mapping) else error
        raise InputError(f"expected a chat completion; got the error {_shown(message)}.")
    raise InputError(f"expected a chat completion; it has no choices: {_shown(dict(body))}.")


def _text(content: Any) -> str:
    """Return the content of a message: text, or the texts among its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "".join(part for part in parts if isinstance(part, str))


def _thoughts(message: Mapping[str, Any]) -> str:
    """Return the thoughts of an LLM that has not reached its answer, in the usual tag."""
    thoughts = (message.get(name) for name in ("reasoning_content", "reasoning"))
    return next((f"<think>{text}" for text in thoughts if isinstance(text, str) and text.strip()), "")


def _whole(text: str) -> str:
    # JSON can have half a character, which can be neither stored nor sent.
    return text.encode("utf-8", "replace").decode()


def _is_deeper(value: Any, most: int) -> bool:
    level: list[Any] = [[value]]
    for _ in range(most + 1):
        inner = (part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer))
        level = [part for part in inner if isinstance(part, dict | list)]
        if not level:
            return False
    return True


def _tokens(logprobs: Any) -> tuple[Token, ...] | None:
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(content, list) or not content:
        return None
    tokens = [_token(entry) for entry in content]
    return tuple(token for token in tokens if token is not None) if all(tokens) else None


def _token(entry: Any) -> Token | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("token"), str):
        return None
    listed = entry.get("top_logprobs")
    alternatives = tuple(
        (other["token"], _number(other.get("logprob")))
        for other in (listed if isinstance(listed, list) else [])
        if isinstance(other, Mapping) and isinstance(other.get("token"), str)
    )
    given = entry.get("bytes")
    is_bytes = isinstance(given, list) and all(type(byte) is int and 0 <= byte < 256 for byte in given)
    return Token(entry["token"], _number(entry.get("logprob")), alternatives, bytes(given or ()) if is_bytes else None)


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return math.nan


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "something that is nested too deeply"
    return text if len(text) <= 200 else text[:199] + "…"
