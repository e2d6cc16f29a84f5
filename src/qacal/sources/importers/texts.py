"""Values and texts in the forms that logs have: nested objects, JSON as text, chats, and replies in any of these."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from qacal.records.columns import USERS, chat_of, chat_text, content_of
from qacal.sources.elicitation.question import texts_in

QUESTIONS = ("question", "query", "input", "prompt", "user_input", "text", "content")
TRUTHS = ("ground_truth", "expected_answer", "expected_response", "expected", "reference", "target", "answer")
_REPLIES = ("content", "answer", "output", "response", "text", "completion", "result")
_CONFIDENCES = {"confidence", "probability", "likelihood"}


def inside(value: Any, *path: str | int) -> Any:
    """Return the value at a path into nested objects and lists; None if there is no such path.

    >>> inside({"choices": [{"text": "Paris"}]}, "choices", 0, "text")
    'Paris'
    """
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def first(*values: Any) -> Any:
    """Return the first value that is not None; None if all are."""
    return next((value for value in values if value is not None), None)


def listed(value: Any) -> list[Any]:
    """Return a list, and an empty one for any other value."""
    return value if isinstance(value, list) else []


def members(value: Any) -> dict[str, Any]:
    """Return an object, and an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str | None:
    """Return text, or a number as text; None for anything else."""
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def texts_of(value: Any) -> tuple[str, ...]:
    """Return a text or a list of texts as a tuple; empty and other values are left out.

    >>> texts_of(["Paris", None, 4]), texts_of("")
    (('Paris', '4'), ())
    """
    texts = [text_of(part) for part in (value if isinstance(value, list | tuple) else [value])]
    return tuple(text for text in texts if text)


def unpacked(value: Any) -> Any:
    """Return the value of JSON text; other text and values are returned unchanged.

    >>> unpacked('{"topic": "geo"}'), unpacked("Paris")
    ({'topic': 'geo'}, 'Paris')
    """
    if isinstance(value, str) and value[:1] in ("{", "[", '"'):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def truths_of(value: Any) -> tuple[str, ...]:
    """Return the spellings of the correct answer; a list as text is a list of spellings if all its items are text.

    >>> truths_of('["Paris", "Paname"]'), truths_of("[1, 2, 3]"), truths_of(4)
    (('Paris', 'Paname'), ('[1, 2, 3]',), ('4',))
    """
    return texts_of(texts_in(value) if isinstance(value, str) else value)


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


def prompt_of(asked: Any) -> str | None:
    """Return the whole input of an LLM as one text.

    >>> print(prompt_of([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]))
    system: Be brief.
    user: 2+2?
    """
    value = unpacked(asked)
    turns = chat_of(value)
    return chat_text(turns) if len(turns) > 1 else asked_text(value)


def named_text(values: Any, names: Sequence[str]) -> tuple[str, str] | None:
    """Return the first of the names under which an object has text, and the text."""
    return next(((name, text) for name in names if (text := text_of(inside(values, name)))), None)


def as_text(value: Any) -> str:
    """Return text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits that are equal for equal values: the id of a question in every file."""
    return blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def asked_text(value: Any) -> str | None:
    """Return the user's last message in a chat, the question that an object names, or a text."""
    if chat := chat_of(value):
        return ([text for role, text in chat if role in USERS] or [text for _, text in chat])[-1]
    if not isinstance(value, dict):
        return content_of(value)
    if named := named_text(value, QUESTIONS):
        return named[1]
    # The arguments of a traced function, if one of them is text.
    texts = [text for text in value.values() if isinstance(text, str)]
    return texts[0] if len(texts) == 1 else None
