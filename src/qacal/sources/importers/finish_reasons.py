"""Why replies ended. Of one that was cut off, the number at its end may lack digits: its "0" was to be "0.9"."""

from __future__ import annotations

from typing import Any

from qacal.sources.importers.base import inside
from qacal.sources.importers.texts import unpacked

# Words of OpenAI (two APIs), Anthropic, Gemini, inspect_ai and Hugging Face.
_CUT = frozenset(
    (
        *("length", "max_tokens", "max_output_tokens", "max_new_tokens", "model_length"),
        "model_context_window_exceeded",
    )
)
_NAMES = ("finish_reason", "stop_reason", "finishReason", "stopReason", "done_reason")


def is_cut_reason(reason: Any) -> bool:
    """Return whether a reason says that the reply was not allowed to be longer; HELM has it in an object.

    >>> [is_cut_reason(reason) for reason in ("length", "MAX_TOKENS", {"reason": "length"}, "stop", None)]
    [True, True, True, False, False]
    """
    said = reason.get("reason") if isinstance(reason, dict) else reason
    return isinstance(said, str) and said.lower() in _CUT


def is_cut_off(replied: Any) -> bool:
    """Return whether the body of a completion, or a message, says that it is cut off; it may be JSON as text.

    >>> is_cut_off('{"choices": [{"message": {"content": "Guess: Par"}, "finish_reason": "length"}]}')
    True
    >>> is_cut_off({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}})
    True
    >>> is_cut_off("Guess: Paris")
    False
    """
    body = unpacked(replied)
    last = inside(body, -1)
    holders = (body, inside(body, "choices", 0), last, inside(last, "response_metadata"))
    reasons = [inside(holder, name) for holder in holders for name in _NAMES]
    return any(is_cut_reason(reason) for reason in (*reasons, inside(body, "incomplete_details")))
