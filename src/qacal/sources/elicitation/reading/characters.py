"""Characters as ASCII, one for one, so that a place in the plain text is the same place in the text as it came.

Full-width letters, digits of other scripts, typographic dashes, quotes and separators all become what they stand for.
"""

from __future__ import annotations

import re
import unicodedata

_MEANT = {
    **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
    **dict.fromkeys("“”„‟«»＂", '"'),
    **dict.fromkeys("‘’‚‛´ʼ＇", "'"),
    **dict.fromkeys("٫．。․", "."),
    **dict.fromkeys("٬，、،", ","),
    **dict.fromkeys("٪％﹪", "%"),
    **dict.fromkeys("⁄∕／", "/"),
    **dict.fromkeys("：︰﹕∶", ":"),
    **dict.fromkeys("≈∼～≃≅", "~"),
    **dict.fromkeys("≤≦⩽＜≪", "<"),
    **dict.fromkeys("≥≧⩾＞≫", ">"),
    # They have no width; between digits they must not glue what is apart, nor part what is one: a space shows them.
    **dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad\u202a\u202b\u202c\u202d\u202e", " "),
    **dict.fromkeys("\u2028\u2029\u0085\x0b\x0c\r", "\n"),
    **dict.fromkeys("\u00a0\u202f\u2007\u2009\u3000\t", " "),
}
_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
# Fences of code, and what ends a turn in the chat templates of LLMs.
_MARKS = re.compile(r"^[ ]{0,3}```[^\n`]{0,40}$|<\|\w{1,30}\|>|</s>|<eos>|<end_of_turn>", re.MULTILINE)


class _Table(dict[int, str]):
    """What each character becomes, worked out the first time that it is met."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        self[code] = meant = _MEANT.get(letter) or _ascii(letter)
        return meant


_TABLE = _Table()


def plain(text: str) -> str:
    """Return the text with ASCII for what looks like it or means it; every character keeps its place.

    >>> plain("Ｇｕｅｓｓ：　٠٫٨")
    'Guess: 0.8'
    """
    return text if text.isascii() and not _has_controls(text) else text.translate(_TABLE)


def without_thoughts(text: str) -> str:
    r"""Return the text with line breaks in place of what stands in thinking tags, of fences of code, and of end marks.

    A closing tag alone ends what the prompt began; an opening tag alone leaves nothing after it.

    >>> without_thoughts("<think>0.2?</think>0.9").strip()
    '0.9'
    """
    hidden = [*_thoughts(text), *(mark.span() for mark in _MARKS.finditer(text))]
    parts, at = [], 0
    for start, end in sorted(hidden):
        if end > at:
            parts += [text[at : max(start, at)], "\n" * (end - max(start, at))]
            at = end
    return "".join([*parts, text[at:]])


def ends_in_thoughts(text: str) -> bool:
    """Return whether a thinking tag is open where the text ends.

    >>> ends_in_thoughts("<think>Is it"), ends_in_thoughts("<think>Is it</think>Yes")
    (True, False)
    """
    tags = [tag[1] for tag in _TAG.finditer(text)]
    return bool(tags) and not tags[-1]


def has_other_numerals(text: str) -> bool:
    """Return whether there is a numeral that is no digit: a fraction in one character, a superscript, a Roman one.

    >>> has_other_numerals("½"), has_other_numerals("0.5")
    (True, False)
    """
    return not text.isascii() and any(letter.isnumeric() and not letter.isdecimal() for letter in text)


def _ascii(letter: str) -> str:
    if letter.isdecimal():
        return str(unicodedata.decimal(letter))
    if "！" <= letter <= "～":
        return chr(ord(letter) - ord("！") + ord("!"))
    return letter


def _has_controls(text: str) -> bool:
    return any(letter in text for letter in "\t\r\x0b\x0c")


def _thoughts(text: str) -> list[tuple[int, int]]:
    spans, opened = [], -1
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag.start() if opened < 0 else opened
        else:
            spans.append((max(opened, 0), tag.end()))
            opened = -1
    return spans if opened < 0 else [*spans, (opened, len(text))]
