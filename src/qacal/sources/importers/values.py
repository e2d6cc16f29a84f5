"""Values in logs: of nested objects, of JSON as text, and of any type where text is expected."""

from __future__ import annotations

import json
from typing import Any

from qacal.sources.elicitation.question import texts_in


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

    Parquet files store maps as lists of keys and values; these become objects again.

    >>> unpacked('{"topic": "geo"}'), unpacked("Paris"), unpacked([{"key": "topic", "value": "geo"}])
    ({'topic': 'geo'}, 'Paris', {'topic': 'geo'})
    """
    if isinstance(value, str) and value[:1] in ("{", "[", '"'):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    is_map = isinstance(value, list) and all(isinstance(part, dict) and set(part) == {"key", "value"} for part in value)
    return {str(part["key"]): part["value"] for part in value} if is_map and value else value


def truths_of(value: Any) -> tuple[str, ...]:
    """Return the spellings of the correct answer; a list as text is a list of spellings if all its items are text.

    >>> truths_of('["Paris", "Paname"]'), truths_of("[1, 2, 3]"), truths_of(4)
    (('Paris', 'Paname'), ('[1, 2, 3]',), ('4',))
    """
    return texts_of(texts_in(value) if isinstance(value, str) else value)
