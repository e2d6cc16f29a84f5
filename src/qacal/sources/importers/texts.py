"""Questions and replies in the forms that logs have: text, JSON as text, chats, and objects with any of these."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from qacal.sources.importers.base import Selection, inside, text_of, texts_of

_QUESTIONS = ("question", "query", "input", "prompt", "user_input", "text", "content")
_REPLIES = ("content", "answer", "output", "response", "text", "completion", "result")
_CONFIDENCES = {"confidence", "probability", "likelihood"}
_MAP = {"key", "value"}
_USER = ("user", "human")
_SPEAKERS = (*_USER, "assistant", "ai", "model")
_NO_WISHES = Selection()
_TRUTHS = ("ground_truth", "expected_answer", "expected_response", "expected", "reference", "target", "answer")


def unpacked(value: Any) -> Any:
    """Return the value of JSON text; other text and values as they are.

    Parquet files have maps as lists of keys and values; these become objects again.

    >>> unpacked('{"topic": "geo"}'), unpacked("Paris"), unpacked([{"key": "topic", "value": "geo"}])
    ({'topic': 'geo'}, 'Paris', {'topic': 'geo'})
    """
    if isinstance(value, str) and value[:1] in ("{", "[", '"'):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    is_map = isinstance(value, list) and all(isinstance(part, dict) and set(part) == _MAP for part in value)
    return {str(part["key"]): part["value"] for part in value} if is_map and value else value


def truths_of(value: Any) -> tuple[str, ...]:
    """Return the spellings of the correct answer; a list as text is a list of spellings if all its items are text.

    >>> truths_of('["Paris", "Paname"]'), truths_of("[1, 2, 3]"), truths_of(4)
    (('Paris', 'Paname'), ('[1, 2, 3]',), ('4',))
    """
    listed = unpacked(value) if isinstance(value, str) and value.startswith("[") else value
    is_spellings = isinstance(listed, list) and all(isinstance(part, str) for part in listed)
    return texts_of(listed if is_spellings else value)


@dataclass(frozen=True, slots=True)
class Question:
    """A question; `turns` is the number of the user's messages in it."""

    text: str
    turns: int = 1


def question_of(asked: Any, selection: Selection = _NO_WISHES) -> Question | None:
    """Return the question in the input of an LLM: text, a chat, or an object with either.

    The question in a chat is the user's message, without the system message. If the user has several messages, it is
    the whole chat, because the last message is seldom a question by itself; ``selection.last_turn`` takes it alone.

    >>> chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The question is: 2+2?"}]
    >>> question_of(chat, Selection(question_after="The question is:")).text
    '2+2?'
    >>> chat += [{"role": "assistant", "content": "4"}, {"role": "user", "content": "And 2+3?"}]
    >>> print(question_of(chat).text)
    user: The question is: 2+2?
    assistant: 4
    user: And 2+3?
    """
    value = unpacked(asked)
    text = _asked(value)
    if text is None and isinstance(asked, str):
        text = asked
    chat = _chat(value)
    turns = sum(role in _USER for role, _ in chat)
    is_whole = turns > 1 and not selection.last_turn
    if is_whole:
        text = _shown([(role, part) for role, part in chat if role in _SPEAKERS])
    after = selection.question_after
    if text is not None and after is not None and after in text:
        text = text.rpartition(after)[2].strip()
    return None if text is None else Question(text, turns if is_whole else 1)


def reply_of(replied: Any) -> str | None:
    """Return the text of a reply: of a message, a list of them, the body of a completion, or an object.

    >>> reply_of({"choices": [{"message": {"role": "assistant", "content": "Paris"}}]})
    'Paris'
    >>> reply_of('{"role": "assistant", "content": [{"type": "text", "text": "Paris"}]}')
    'Paris'
    """
    text = _replied(unpacked(replied))
    return replied if text is None and isinstance(replied, str) else text


def _replied(value: Any) -> str | None:
    if isinstance(value, dict):
        message = inside(value, "choices", 0, "message") or inside(value, "message")
        if message is not None:
            return reply_of(message)
        # The parser reads objects that state a confidence; in others, one member is the answer.
        if _CONFIDENCES & {str(name).lower() for name in value}:
            return as_text(value)
        return next((text for text in (content_of(value.get(name)) for name in _REPLIES) if text is not None), None)
    if isinstance(value, list) and value and isinstance(value[-1], dict) and "role" in value[-1]:
        return reply_of(value[-1])
    return content_of(value)


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
    if not turns:
        return _asked(value)
    return turns[0][1] if len(turns) == 1 else _shown(turns)


def named_truth(values: Any) -> tuple[str, str] | None:
    """Return the name and the text of the correct answer, if an object has it under one of its usual names."""
    for name in _TRUTHS:
        text = text_of(inside(values, name))
        if text:
            return name, text
    return None


def named_question(values: Any, names: Sequence[str] = _QUESTIONS) -> tuple[str, str] | None:
    """Return the name and the text of a question, if an object has it under one of its usual names."""
    for name in names:
        text = inside(values, name)
        if isinstance(text, str) and text:
            return name, text
    return None


def as_text(value: Any) -> str:
    """Return text as it is, and anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits, equal for equal values: the id of a question in every file.

    >>> digest({"question": "2+2?"}) == digest({"question": "2+2?"}) != digest({"question": "2+3?"})
    True
    """
    written = json.dumps(value, sort_keys=True, default=str)
    return blake2b(written.encode(), digest_size=8).hexdigest()


def _chat(value: Any) -> list[tuple[str, str | None]]:
    """Return the messages of a chat as roles and texts; empty for anything else."""
    messages = value.get("messages") if isinstance(value, dict) else value
    turns = messages if isinstance(messages, list) and _is_chat(messages) else []
    return [(str(message["role"]), content_of(message.get("content"))) for message in turns]


def _shown(turns: Sequence[tuple[str, str | None]]) -> str:
    return "\n".join(f"{role}: {text}" for role, text in turns if text is not None)


def _asked(value: Any) -> str | None:
    if _is_chat(value):
        asked = [message for message in value if message.get("role") in _USER]
        return content_of((asked or value)[-1].get("content"))
    if isinstance(value, dict):
        if _is_chat(value.get("messages")):
            return _asked(value["messages"])
        named = named_question(value)
        if named is not None:
            return named[1]
        # The arguments of a traced function, if one of them is text.
        texts = [text for text in value.values() if isinstance(text, str)]
        return texts[0] if len(texts) == 1 else None
    return content_of(value)


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, dict) and "role" in part for part in value)
