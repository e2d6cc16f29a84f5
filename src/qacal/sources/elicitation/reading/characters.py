"""Characters as ASCII, one for one: positions in the plain text are positions in the original.

Full-width letters, digits of other scripts, typographic dashes, quotes and separators become their ASCII equivalents.
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
    # Characters without width: a space makes them visible, so that no number reads across them.
    **dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad\u202a\u202b\u202c\u202d\u202e", " "),
    **dict.fromkeys("\u2028\u2029\u0085\x0b\x0c\r", "\n"),
    **dict.fromkeys("\u00a0\u202f\u2007\u2009\u3000\t", " "),
}
_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
# Fences of code, and the ends of turns in the chat templates of LLMs.
_MARKS = re.compile(r"^[ ]{0,3}```[^\n`]{0,40}$|<\|\w{1,30}\|>|</s>|<eos>|<end_of_turn>", re.MULTILINE)


_FULL_WIDTH = {chr(code): chr(code - ord("！") + ord("!")) for code in range(ord("！"), ord("～") + 1)}
_ASCII = str.maketrans(_FULL_WIDTH | _MEANT)


def plain(text: str) -> str:
    """Return the text with ASCII for characters that look like it or mean it; every character keeps its place.

    >>> plain("Ｇｕｅｓｓ：　٠٫٨")
    'Guess: 0.8'
    """
    has_controls = any(letter in text for letter in "\t\r\x0b\x0c")
    if text.isascii() and not has_controls:
        return text
    return "".join(str(unicodedata.decimal(letter, letter)) for letter in text.translate(_ASCII))


def without_thoughts(text: str) -> str:
    r"""Return the text with line breaks in place of text in thinking tags, fences of code, and end marks.

    A closing tag alone ends thoughts that began in the prompt; everything after an opening tag alone is thoughts.

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


def _thoughts(text: str) -> list[tuple[int, int]]:
    spans, opened = [], -1
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag.start() if opened < 0 else opened
        else:
            spans.append((max(opened, 0), tag.end()))
            opened = -1
    return spans if opened < 0 else [*spans, (opened, len(text))]


def ends_in_thoughts(text: str) -> bool:
    """Return whether a thinking tag is open where the text ends.

    >>> ends_in_thoughts("<think>Is it"), ends_in_thoughts("<think>Is it</think>Yes")
    (True, False)
    """
    tags = [tag[1] for tag in _TAG.finditer(text)]
    return bool(tags) and not tags[-1]


def words(text: str) -> frozenset[str]:
    """Return the words of a text, in lower case.

    >>> sorted(words("I'm 90% sure"))
    ["i'm", 'sure']
    """
    return frozenset(word.lower() for word in WORD.findall(text))
