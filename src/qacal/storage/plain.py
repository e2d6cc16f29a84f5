"""Plain values: what strict JSON can hold, and nothing that JSON writers and readers disagree about.

No NaN or infinity, no key twice, no key that is not text, no nesting that would exhaust a reader.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NoReturn

from qacal.errors import InputError

# Deep enough for any model, shallow enough for any parser.
_DEEPEST = 50

# Python refuses to read or write numbers of more than 4,300 digits; these have 300.
_LONGEST = 1000


def require_plain(value: Any, name: str, depth: int = 0) -> None:
    """Refuse what does not come back from JSON as it went in.

    >>> require_plain({"rows": 12, "share": float("nan")}, "header")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: header.share is nan; JSON has no such number.
    """
    if depth > _DEEPEST:
        raise InputError(f"{name} is nested more than {_DEEPEST} levels deep.")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _require_text(key, f"a key of {name}")
            require_plain(inner, f"{name}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            require_plain(inner, f"{name}[{at}]", depth + 1)
    elif isinstance(value, str):
        _require_text(value, name)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{name} is {value}; JSON has no such number.")
    elif isinstance(value, int):
        if value.bit_length() > _LONGEST:
            raise InputError(f"{name} is a number of more than 300 digits; write it as text.")
    elif value is not None:
        raise InputError(
            f"{name} is a {type(value).__name__}; expected text, a number, true, false, null, or lists of it."
        )


def _require_text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        raise InputError(f"{name} is {value!r}; expected text.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} is {value!r}, half of a character; files hold whole ones.") from None


def write_document(document: Mapping[str, Any]) -> bytes:
    """Return plain values as JSON for people and programs: UTF-8, indented, keys sorted."""
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def read_document(data: bytes) -> dict[str, Any]:
    """Return the object that strict JSON holds.

    >>> read_document(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: it has the key 'a' twice.
    """
    try:
        document = json.loads(
            data.decode(), object_pairs_hook=_object, parse_constant=_refuse_number, parse_float=_finite
        )
    except InputError:
        raise
    except RecursionError:
        raise InputError("it is nested too deeply.") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise InputError(f"it is no JSON: {error}.") from None
    if not isinstance(document, dict):
        raise InputError(f"it holds a {type(document).__name__}; expected an object.")
    require_plain(document, "document")
    return document


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain values: of what they say, not of how it is laid out.

    >>> digest({"a": 1, "b": [2.0]}) == digest({"b": [2.0], "a": 1})
    True
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(f"it has the key {key!r} twice.")
        found[key] = value
    return found


def _refuse_number(text: str) -> NoReturn:
    raise InputError(f"it holds {text}, which JSON does not know.")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text)
