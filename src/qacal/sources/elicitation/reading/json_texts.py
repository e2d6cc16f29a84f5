"""Guesses and confidences in JSON: an object, or a list of objects, alone in a reply or with words around it."""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from qacal.sources.elicitation.reading.characters import plain
from qacal.sources.elicitation.reading.labels import CONFIDENCE, GUESS, KINDS, fields

NamedText: TypeAlias = tuple[str, int | None, str]
Place: TypeAlias = tuple[int, int]

_KEY = re.compile(r"(?:best |my |final )?(guess|answer|g|probability|prob|confidence|likelihood|p)[ _#]?(\d{0,2})")


def json_texts(text: str) -> list[NamedText] | None:
    r"""Return kind, number and text of what JSON in a reply names; None if there is none to read.

    Objects in a list are numbered. JSON with words around it counts if it has guess and confidence, and the words none.

    >>> json_texts('Here it is: {"guess": "S\\u00e3o Paulo", "probability": 0.9}')
    [('guess', None, 'São Paulo'), ('probability', None, '0.9')]
    """
    body = text.strip()
    if body[:1] in ("{", "[") and body[-1:] in ("}", "]"):
        return _named(body)
    begin, end = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1), _end(text)
    if begin < 0 or end <= begin:
        return None
    found = _named(text[begin:end]) or []
    kinds = {kind for kind, _, _ in found}
    is_whole = bool(kinds & set(GUESS)) and bool(kinds & set(CONFIDENCE))
    return found if is_whole and not _says_more(text[:begin] + "\n" + text[end:]) else None


def json_place(text: str, guess: str) -> Place | None:
    r"""Return where in a reply a guess stands that was read from its JSON; None if it is escaped there, or twice.

    It stands after the key of a guess, not anywhere: "prob" may be a guess, and is a key.

    >>> json_place('{"guess": "prob", "prob": 0.9}', "prob"), json_place(r'{"guess": "\u0070rob", "prob": 0.9}', "prob")
    ((11, 15), None)
    """
    if not guess or not guess.isprintable() or "\\" in guess or '"' in guess:
        return None
    spelled = re.escape(guess)
    value = re.compile(rf'"([^"\\]*)"\s*:\s*(?:"\s*({spelled})\s*"|({spelled})(?=[\s,}}]))')
    found = [match.span(match.lastindex or 0) for match in value.finditer(text) if _is_guess(match[1])]
    return found[0] if len(found) == 1 else None


def _is_guess(key: str) -> bool:
    match = _KEY.fullmatch(plain(key).strip().lower())
    return match is not None and KINDS.get(match[1], match[1]) in GUESS


def _end(text: str) -> int:
    return max(text.rfind("}"), text.rfind("]")) + 1


def _says_more(text: str) -> bool:
    spelled = plain(text)
    return any(spelled[field.start : field.end].partition("\n")[0].strip() for field in fields(spelled))


def _named(body: str) -> list[NamedText] | None:
    try:
        value = json.loads(body, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, _Pairs):
        return _of_pairs(value, None)
    if isinstance(value, list) and all(isinstance(entry, _Pairs) for entry in value):
        return [part for number, entry in enumerate(value, 1) for part in _of_pairs(entry, number)]
    return None


class _Pairs(list[tuple[str, Any]]):
    """The pairs of an object, a key twice among them."""


def _of_pairs(pairs: _Pairs, number: int | None) -> list[NamedText]:
    found: list[NamedText] = []
    for key, value in pairs:
        match = _KEY.fullmatch(plain(key).strip().lower())
        if match and isinstance(value, str):
            found.append((KINDS.get(match[1], match[1]), int(match[2]) if match[2] else number, value.strip()))
    return found
