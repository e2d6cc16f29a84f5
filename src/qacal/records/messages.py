"""Questions that are chats: a list of messages with a role and a content, or the same as JSON text.

The question is the last turn of the user: texts and embeddings read that turn alone. The turns before it are context:
they only tell which rows have the same question, if the records have no id. What follows it (a reply) is not read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

USERS = ("user", "human")
"""The roles of those who ask."""


def content_of(content: Any) -> str | None:
    """Return the text of a message's content, which may be a list of parts; None without text."""
    if isinstance(content, list | np.ndarray):
        parts = [part if isinstance(part, str) else _text(part.get("text")) for part in content if _is_part(part)]
        texts = [part for part in parts if part is not None]
        return "\n".join(texts) if texts else None
    return _text(content)


def chat_of(value: Any) -> list[tuple[str, str | None]]:
    """Return the messages of a chat as roles and texts; empty for anything else.

    >>> chat_of([{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}])
    [('user', '2 + 2?')]
    """
    messages = value.get("messages") if isinstance(value, dict) else value
    messages = list(messages) if isinstance(messages, list | np.ndarray) else []
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        return []
    return [(str(message["role"]), content_of(message.get("content"))) for message in messages]


def chat_text(turns: Sequence[tuple[str, str | None]]) -> str:
    """Return the messages of a chat as one text."""
    return "\n".join(f"{role}: {text}" for role, text in turns if text is not None)


def may_be_chat(value: Any) -> bool:
    """Return whether a value may be a chat: a list, or text that opens one."""
    return isinstance(value, list | np.ndarray) or (isinstance(value, str) and value[:1] == "[" and '"role"' in value)


def asked_in(value: Any) -> tuple[str, str] | None:
    """Return the last turn of the user in a chat, and the chat up to there; None if the value is no such chat.

    >>> turns = [("system", "Be brief."), ("user", "Capital of Peru?"), ("assistant", "Lima."), ("user", "And Chile?")]
    >>> question, chat = asked_in([{"role": role, "content": content} for role, content in turns])
    >>> question
    'And Chile?'
    >>> print(chat)
    system: Be brief.
    user: Capital of Peru?
    assistant: Lima.
    user: And Chile?

    A chat of one turn is the same question as its text:

    >>> asked_in('[{"role": "user", "content": "And Chile?"}]')
    ('And Chile?', 'And Chile?')
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    turns = chat_of(value) if isinstance(value, list | np.ndarray) else []
    last = max((at for at, (role, text) in enumerate(turns) if role in USERS and text is not None), default=None)
    if last is None:
        return None
    question = str(turns[last][1])
    return question, chat_text(turns[: last + 1]) if last else question


def _is_part(part: Any) -> bool:
    return isinstance(part, str | dict)


def _text(value: Any) -> str | None:
    """Return text, or a number as text; None for anything else."""
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
