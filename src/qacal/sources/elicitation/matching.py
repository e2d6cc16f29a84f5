"""Exact match against known answers, after normalising the spelling.

In doubt two spellings stay different: that costs one question to a judge, while a wrong match gives a wrong label.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from qacal.sources.elicitation.reading.characters import plain

_RAISED = re.compile(r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FRACTION = re.compile(r"[¼-¾⅐-⅞↉]")
# Compatibility forms and plain letters would replace these by something similar.
_APART = str.maketrans(
    {"—": " - ", "―": " - ", "′": "'", "″": '"', "≤": "<=", "≦": "<=", "⩽": "<=", "≥": ">=", "≧": ">=", "⩾": ">="}
)
_WRAPPED = re.compile(r"\s*<([^<>]+)>\s*")
_QUOTED = re.compile(r"(?<!\w)\"([^\"]*)\"|(?<![\w'])'([^']*)'(?!\w)")
_AROUND = re.compile(r"[()\[\]{}_`]|(?<!\w)\*|\*(?!\w)")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
# The minus of -x, -$5, -(5) and x = -y; a dash and a space before a word are the bullet of a list.
_MINUS = re.compile(
    r"(?<![\w)\]}.-])-(?=[^\s-])|^[\s\"'*_`<(\[{]{0,9}-(?=[ ]{1,3}[\d.])|[=+*/^<>][ ]{0,3}-(?=[ ]{1,3}\S)"
)
_INTERVAL = re.compile(r"\s*[(\[](?=[^,]*[\d∞]|[^,]*,[^,]*[\d∞])[^()\[\]{},]*,[^()\[\]{},]*[)\]]\W*")
_STARRED = re.compile(r"[^*]*\w\*(?!\w)[^*]*")
_PRIME = re.compile(r"(?<=\d)['\"]{1,3}(?!\w)|(?<=\d)'(?=\d)|(?<=\w)'{1,3}(?=\()|(?<![\w'])[^\W\d_]'{1,3}(?!\w)")
# "A B" and "A minor" are no articles with a B and a minor.
_NAMED_A = r"(?:flat|sharp|major|minor|natural|positive|negative|plus|minus|and|or)\b"
_ARTICLES = re.compile(rf"^\s*(?:(?:an|the)\s+(?=\S)|a\s+(?=[^\W\d_]{{2}})(?!{_NAMED_A}))+|(?<=\s)the\s+(?=\S)")
_INITIALS = re.compile(r"(?<![^\W\d_])([^\W\d_]\.)\s+(?=[^\W\d_]\.)")
_ASKS = re.compile(r"(?:what|which|who|where)\s+(is|are|was|were)\s+(\S.*)", re.IGNORECASE)
_FACTORIAL = re.compile(r"(?<![\w'])[^\W\d_]!(?![\w=!])|(?<!\w)!(?=\w)|(?<=\))!(?!\w)")
_SPACED = re.compile(r"(?<=\w)[ ]{1,3}([*/])[ ]{1,3}(?=\w)")
# For signs with a meaning: not a dash, quotes, an exclamation, Markdown or brackets around an answer.
_STAND_INS = {"\ue000": "-", "\ue001": "'", "\ue002": '"', "\ue003": "!", "\ue004": "*", "\ue005": "[", "\ue006": "]"}
_TO_STAND_INS = str.maketrans({sign: stand_in for stand_in, sign in _STAND_INS.items()})


def normalise_answer(text: str) -> str:
    """Return an answer without capitals, articles, punctuation and white space that do not matter.

    Signs with a meaning stay: a minus, a decimal point, a percent sign, a prime, "C++" and "C#", "A-" and "!=". An "a"
    is dropped at the beginning if a word follows, "the" anywhere; an answer that is only an article or punctuation
    stays. Digits in groups of three are one number: "100,200" is far more often 100200 than a list of two.

    >>> normalise_answer(" The  Beatles! "), normalise_answer("12,345"), normalise_answer("-5"), normalise_answer("A")
    ('beatles', '12345', '-5', 'a')
    """
    spelled = _spelled_out(text)
    signed = _signed(spelled)
    wrapped = _WRAPPED.fullmatch(signed)
    bare = _ARTICLES.sub(" ", _AROUND.sub(" ", wrapped[1] if wrapped else signed))
    normalised = "".join(_kept(bare)).split() or "".join(_kept(spelled)).split() or spelled.split()
    return " ".join(normalised)


def matches(answer: str, ground_truth: Sequence[str], question: str | None = None) -> bool:
    """Return whether an answer is one of the known ones, after normalising.

    It may consist of two of them, the second in brackets; and it may repeat the question.

    >>> matches("Polish zloty (PLN)", ["zloty", "Polish zloty", "PLN"]), matches("Paris (Texas)", ["Paris"])
    (True, False)
    >>> matches("The capital of Peru is Lima.", ["Lima"], "What is the capital of Peru?")
    True
    """
    spellings = [ground_truth] if isinstance(ground_truth, str) else ground_truth
    truths = {normalise_answer(spelling) for spelling in spellings} - {""}
    forms = [answer] if question is None else [answer, *_without_question(answer, question)]
    return any(
        normalise_answer(form) in truths or all(normalise_answer(part) in truths for part in _parts(form))
        for form in forms
    )


def _parts(answer: str) -> list[str]:
    """Split an answer from the brackets at its end; a pattern would take quadratic time on many blanks."""
    before, opening, rest = answer.partition("(")
    within, closing, after = rest.partition(")")
    is_separate = bool(before.strip()) and before[-1:].isspace() and ")" not in before
    is_end = bool(closing) and bool(within) and "(" not in within and re.search(r"\w", after) is None
    return [before.strip(), within] if opening and is_separate and is_end else [answer]


def _without_question(answer: str, question: str) -> Iterator[str]:
    """Yield the rest of an answer that begins by repeating the question: "The capital of Peru is ..."."""
    asked = _ASKS.match(" ".join(question.split()).rstrip("?. "))
    if asked is not None:
        sentence = " ".join(answer.split())
        # What is a young lion called? A young lion is called a cub.
        called = " called" if asked[2].endswith(" called") else ""
        begins = f"{asked[2].removesuffix(called)} {asked[1]}{called} "
        for start in (begins, re.sub(r"^(?:an?|the) ", "", begins, flags=re.IGNORECASE)):
            if sentence.casefold().startswith(start.casefold()):
                yield sentence[len(start) :]


def _spelled_out(text: str) -> str:
    """Return the text in one case and with ASCII digits; fractions and powers are written out."""
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    text = _INITIALS.sub(r"\1", text)  # D. H. Lawrence is D.H. Lawrence
    # Compatibility forms alone would turn 10² into 102, and 3½ into 31/2.
    text = _FRACTION.sub(r" \g<0>", _RAISED.sub(r"^\g<0>", text))
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text.translate(_APART)).casefold())
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), plain(text.translate(_APART)))


def _signed(text: str) -> str:
    """Return the text with stand-ins for signs that have a meaning, and without quotes around its parts."""
    if _INTERVAL.fullmatch(text):
        text = text.replace("[", "\ue005").replace("]", "\ue006")
    if _STARRED.fullmatch(text):
        text = text.replace("*", "\ue004")
    text = _MINUS.sub(lambda match: match[0].replace("-", "\ue000"), _SPACED.sub(r"\1", text))
    for pattern in (_PRIME, _FACTORIAL):
        text = pattern.sub(lambda match: match[0].translate(_TO_STAND_INS), _QUOTED.sub(r" \1\2 ", text))
    return text


def _kept(text: str) -> Iterator[str]:
    """Yield the replacement of each character; its neighbours decide whether it is punctuation or part of a name."""
    padded = f" {re.sub(r'(?<=[0-9])[ ]+%', '%', text)} "
    for before, letter, after in zip(padded, padded[1:], padded[2:], strict=False):
        kind = unicodedata.category(letter)[0]
        yield _STAND_INS.get(letter) or (letter if kind in "LNM" else _sign(before, letter, after, kind))


def _sign(before: str, letter: str, after: str, kind: str) -> str:
    within_number = before.isdigit() and after.isdigit()
    begins_number = not before.isalnum() and (after.isdigit() or after == ".")
    match letter:
        case ".":
            return "." if within_number else "0." if begins_number else ""
        case "'":
            return "" if before.isalnum() and after.isalnum() else " "
        case "-":
            ends_symbol = before.isalnum() and not after.isalnum() and after != "-"
            return "-" if ends_symbol or (begins_number and before not in ".)") else " "
        case "/" | "*":
            is_within = before.isalnum() and after.isalnum() and (letter == "*" or before.isdigit() or after.isdigit())
            return letter if is_within else " "
        case ":":
            return letter if within_number else " "
        case "%" | "!":
            return letter if before.isdigit() or (letter + after) == "!=" else " "
        case "+" if begins_number:
            return ""
        case "+" | "#":
            return letter if (before.isalpha() or before == "+") and not after.isalnum() else f" {letter} "
        case "&":
            return " and "
        case "^":
            return "^"
    return f" {letter} " if kind == "S" else " "
