"""Answers spelled alike: what exact match against known answers compares.

The rules lean to keeping apart: two spellings that stay different cost one question to a judge, two answers that fall
together are a wrong label.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from qacal.elicitation.glyphs import plain

_RAISED = re.compile(r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FRACTION = re.compile(r"[¼-¾⅐-⅞↉]")
_AROUND = re.compile(r'["()\[\]{}*_`]|(?<!\w)\'|\'(?!\w)')
_WRAPPED = re.compile(r"\s*<([^<>]+)>\s*")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_ARTICLES = re.compile(r"^\s*(?:(?:a|an|the)\s+)+(?=\S)|(?<=\s)the\s+(?=\S)")


def normalise_answer(text: str) -> str:
    """Return an answer without what does not tell it from others: capitals, articles, punctuation, white space.

    Signs that carry meaning stay: a minus, a decimal point, a percent sign, "C++" and "C#". An "a" is dropped where an
    answer begins with it, "the" anywhere; an answer that is nothing but an article or punctuation is left as it is.

    >>> normalise_answer(" The  Beatles! "), normalise_answer("12,345") == normalise_answer("12345")
    ('beatles', True)
    >>> normalise_answer("-5"), normalise_answer("3.14"), normalise_answer("A"), normalise_answer("...")
    ('-5', '3.14', 'a', '...')
    """
    spelled = _spelled_out(text)
    bare = _ARTICLES.sub(" ", _unwrapped(spelled))
    return _squeezed("".join(_kept(bare))) or _squeezed("".join(_kept(spelled))) or _squeezed(spelled)


def matches(answer: str, ground_truth: Sequence[str]) -> bool:
    """Return whether an answer is one of the known ones, spelled alike.

    >>> matches("the Beatles", ["Beatles", "The Fab Four"]), matches("", [""])
    (True, False)
    """
    own = normalise_answer(answer)
    known = [ground_truth] if isinstance(ground_truth, str) else ground_truth
    return bool(own) and any(own == normalise_answer(other) for other in known)


def _spelled_out(text: str) -> str:
    """Return the text in one case and one script of digits; what one character says of several is written out."""
    seen = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    # Compatibility forms alone would turn 10² into 102, and 3½ into 31/2.
    seen = _RAISED.sub(lambda raised: "^" + raised[0], seen)
    seen = _FRACTION.sub(lambda fraction: " " + fraction[0], seen)
    seen = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), plain(seen))


def _unwrapped(text: str) -> str:
    wrapped = _WRAPPED.fullmatch(text)
    return _AROUND.sub(" ", wrapped[1] if wrapped else text)


def _kept(text: str) -> Iterator[str]:
    """Yield what each character becomes; the ones beside it tell whether it is punctuation or part of a name."""
    padded = f" {re.sub(r'(?<=[0-9])[ ]+%', '%', text)} "
    for before, letter, after in zip(padded, padded[1:], padded[2:], strict=False):
        kind = unicodedata.category(letter)[0]
        yield letter if kind in "LNM" else _sign(before, letter, after, kind)


def _sign(before: str, letter: str, after: str, kind: str) -> str:
    within_number = before.isdigit() and after.isdigit()
    begins_number = not before.isalnum() and (after.isdigit() or after == ".")
    match letter:
        case ".":
            return "." if within_number else "0." if begins_number else ""
        case "'":
            return "" if before.isalnum() and after.isalnum() else " "
        case "-":
            return "-" if begins_number and before not in ".)" else " "
        case "/" | ":" | "*":
            return letter if within_number else " "
        case "%" | "!":
            return letter if before.isdigit() else " "
        case "+" if begins_number:
            return ""
        case "+" | "#":
            return letter if (before.isalpha() or before == "+") and not after.isalnum() else f" {letter} "
        case "&":
            return " and "
        case "^":
            return "^"
    return f" {letter} " if kind == "S" else " "


def _squeezed(text: str) -> str:
    return " ".join(text.split())
