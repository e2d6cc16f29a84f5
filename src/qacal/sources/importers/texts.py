"""Questions and replies in the forms that logs have: text, JSON as text, chats, and objects with any of these."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from qacal.sources.importers.base import Selection
from qacal.sources.importers.values import first, inside, listed, members, text_of, unpacked

QUESTIONS = ("question", "query", "input", "prompt", "user_input", "text", "content")
_REPLIES = ("content", "answer", "output", "response", "text", "completion", "result")
_CONFIDENCES = {"confidence", "probability", "likelihood"}
_USER = ("user", "human")
_SPEAKERS = (*_USER, "assistant", "ai", "model")
_DEFAULTS = Selection()
TRUTHS = ("ground_truth", "expected_answer", "expected_response", "expected", "reference", "target", "answer")


@dataclass(frozen=True, slots=True)
class Question:
    """A question; `turns` is the number of the user's messages in it."""

    text: str
    turns: int = 1


def question_of(asked: Any, selection: Selection = _DEFAULTS) -> Question | None:
    """Return the question in the input of an LLM: text, a chat, or an object with either.

    The question in a chat is the user's message, without the system message. If the user has several messages, it is
    the whole chat, because the last message is seldom a question by itself; ``selection.last_turn`` takes it alone.

    >>> chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The question is: 2+2?"}]
    >>> question_of(chat, Selection(question_after="The question is:")).text
    '2+2?'
    """
    value = unpacked(asked)
    chat = _chat(value)
    turns = sum(role in _USER for role, _ in chat)
    if turns > 1 and not selection.last_turn:
        text: str | None = _shown([(role, part) for role, part in chat if role in _SPEAKERS])
    else:
        turns, text = 1, _asked(value)
    if text is None:
        if not isinstance(asked, str):
            return None
        text = asked
    if selection.question_after is not None and selection.question_after in text:
        text = text.rpartition(selection.question_after)[2].strip()
    return Question(text, turns)


def reply_of(replied: Any) -> str | None:
    """Return the text of a reply: of a message, a list of them, the body of a completion, or an object.

    >>> reply_of({"choices": [{"message": {"role": "assistant", "content": "Paris"}}]})
    'Paris'
    """
    value = unpacked(replied)
    last = members(value[-1]) if isinstance(value, list) and value else {}
    choice, own = inside(value, "choices", 0, "message"), inside(value, "message")
    message = first(choice, own, last if "role" in last else None)
    if message is not None:
        text = reply_of(message)
    elif not isinstance(value, dict):
        text = content_of(value)
    elif _CONFIDENCES & {str(name).lower() for name in value}:
        # The parser reads objects that state a confidence; in others, one member is the answer.
        text = as_text(value)
    else:
        text = first(*(content_of(value.get(name)) for name in _REPLIES))
    return replied if text is None and isinstance(replied, str) else text


def content_of(content: Any) -> str | None:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        parts = [part if isinstance(part, str) else text_of(inside(part, "text")) for part in content]
        texts = [part for part in parts if part is not None]
        return "\n".join(texts) if texts else None
    return text_of(content)


def prompt_of(asked: Any) -> str | None:
    """Return the whole input of an LLM as one text.

    >>> print(prompt_of([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]))
    system: Be brief.
    user: 2+2?
    """
    value = unpacked(asked)
    turns = _chat(value)
    return _shown(turns) if len(turns) > 1 else _asked(value)


def named_text(values: Any, names: Sequence[str]) -> tuple[str, str] | None:
    """Return the first of the names under which an object has text, and the text."""
    return next(((name, text) for name in names if (text := text_of(inside(values, name)))), None)


def as_text(value: Any) -> str:
    """Return text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits that are equal for equal values: the id of a question in every file."""
    return blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def _chat(value: Any) -> list[tuple[str, str | None]]:
    """Return the messages of a chat as roles and texts; empty for anything else."""
    messages = listed(value.get("messages") if isinstance(value, dict) else value)
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        return []
    return [(str(message["role"]), content_of(message.get("content"))) for message in messages]


def _shown(turns: Sequence[tuple[str, str | None]]) -> str:
    return "\n".join(f"{role}: {text}" for role, text in turns if text is not None)


def _asked(value: Any) -> str | None:
    """Return the user's last message in a chat, the question that an object names, or a text."""
    if chat := _chat(value):
        return ([text for role, text in chat if role in _USER] or [text for _, text in chat])[-1]
    if not isinstance(value, dict):
        return content_of(value)
    if named := named_text(value, QUESTIONS):
        return named[1]
    # The arguments of a traced function, if one of them is text.
    texts = [text for text in value.values() if isinstance(text, str)]
    return texts[0] if len(texts) == 1 else None
