"""Texts as arrays of characters: their words as hashes, and numbers that describe their form.

Many texts are one array of code points, so that every count is an operation on a whole array: no loop over rows, no
regular expression, and no thread that a forked process would lack.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from qacal.tally.arrays import Floats, Hashes, Ints
from qacal.tally.ids import mix

# Kinds of characters. Ideographs, kana among them, are words by themselves: no space stands between words there.
_OTHER, _SPACE, _LINE, _LETTER, _CAPITAL, _DIGIT, _IDEOGRAPH, _COMMA, _STOP, _QUESTION, _SYMBOL = range(11)
_KINDS = 11
_COUNTED = np.array([_DIGIT, _CAPITAL, _COMMA, _STOP, _QUESTION, _SYMBOL, _LINE])
_SPECIAL = {"\n": _LINE, ",": _COMMA, ";": _COMMA, ":": _COMMA, ".": _STOP, "!": _STOP, "?": _QUESTION}
_CATEGORIES = {"Z": _SPACE, "L": _LETTER, "M": _LETTER, "N": _DIGIT, "P": _SYMBOL, "S": _SYMBOL}
_IDEOGRAPHS = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x3FFFF))

FORM = (
    *("length", "words", "word length", "begins with a capital", "digits", "capitals"),
    *("commas", "full stops", "question marks", "symbols", "lines"),
)
"""Numbers that describe the form of a text."""

# Characters below this one are looked up in a table; hardly any text has others, and emoji are most of these.
_IN_TABLE = 0x10000
# Arrays of this many characters stay in the processor's cache.
_PORTION = 2**15
# No letter has more marks: https://unicode.org/reports/tr15/#Stream_Safe_Text_Format
_MARKS = 30
# Odd, so that it has an inverse modulo 2^64.
_BASE = 0x9E3779B97F4A7C15


def _kinds(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the kind of each character."""
    letters = [*map(chr, codes.tolist())]
    categories = map(unicodedata.category, letters)
    kinds = np.array([_CAPITAL if one == "Lu" else _CATEGORIES.get(one[0], _OTHER) for one in categories], np.uint8)
    kinds[[*map(str.isspace, letters)]] = _SPACE
    for letter, kind in _SPECIAL.items():
        kinds[codes == ord(letter)] = kind
    for first, last in _IDEOGRAPHS:
        kinds[(codes >= first) & (codes <= last)] = _IDEOGRAPH
    return kinds


@cache
def _table() -> tuple[NDArray[np.uint8], Hashes]:
    """Return the kind of the first characters of Unicode, and a hash that a capital shares with its small letter."""
    codes = np.arange(_IN_TABLE, dtype=np.uint32)
    kinds, small = _kinds(codes), codes.astype(np.uint64)
    for code in np.flatnonzero(kinds == _CAPITAL).tolist():
        small[code] = ord(chr(code).lower()[0])
    return kinds, mix(small)


@cache
def _usual_powers() -> tuple[Hashes, Hashes]:
    return _powers(2 * _PORTION)


def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Return the powers of the base, and of its inverse."""
    with np.errstate(over="ignore"):
        bases = (_BASE, pow(_BASE, -1, 2**64))
        one, inverse = (np.cumprod(np.full(count, base, dtype=np.uint64), dtype=np.uint64) for base in bases)
    return one, inverse


@dataclass(frozen=True, eq=False)
class Texts:
    """What is read of texts.

    form : a row for each text, a column for each of :data:`FORM`.
    rows, words : the text that each word is in, and a hash of the word without regard to capitals.
    """

    form: Floats
    rows: Ints
    words: Hashes

    def hashes(self) -> Hashes:
        """Return a hash of the words of each text, whatever their order."""
        out = np.zeros(len(self.form), dtype=np.uint64)
        if len(self.rows):
            row, first = np.unique(self.rows, return_index=True)  # rows rise
            with np.errstate(over="ignore"):
                out[row] = np.add.reduceat(mix(self.words, 1), first)
        return out

    @staticmethod
    def of(texts: Sequence[str]) -> Texts:
        texts = [text if text.isascii() else _composed(text) for text in texts]
        portions = [_Portion.of(texts[first:last]).read(first) for first, last in _portions(texts)]
        if len(portions) == 1:
            return Texts(*portions[0])
        if not portions:
            return Texts(np.empty((0, len(FORM))), np.empty(0, np.int64), np.empty(0, np.uint64))
        form, rows, words = (np.concatenate(part) for part in zip(*portions, strict=True))
        return Texts(form, rows, words)


def _composed(text: str) -> str:
    """Return a text with "é" as one character, which may be two.

    A text with longer runs of marks (such as accents) than any language has stays as it is: sorting them takes time
    quadratic in their number.
    """
    if any(map(unicodedata.combining, text[_MARKS::_MARKS])):  # a longer run has one of these characters
        runs = bytes(map(unicodedata.combining, text)).split(b"\0")
        if max(map(len, runs)) > _MARKS:
            return text
    return unicodedata.normalize("NFC", text)


def _portions(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last text, exclusive, of portions with about as many characters."""
    first = size = 0
    for at, text in enumerate(texts, 1):
        size += len(text)
        if size >= _PORTION or at == len(texts):
            yield first, at
            first, size = at, 0


@dataclass(frozen=True, eq=False)
class _Portion:
    """The characters of some texts, one text after the other.

    kinds, hashes : of each character.
    bounds : 0, and where each text ends.
    """

    kinds: NDArray[np.uint8]
    hashes: Hashes
    bounds: Ints

    @staticmethod
    def of(texts: Sequence[str]) -> _Portion:
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        kind_of, hash_of = _table()
        rare = codes >= _IN_TABLE
        has_rare = rare.any()
        place = (np.where(rare, 0, codes) if has_rare else codes).astype(np.intp)
        kinds, hashes = kind_of[place], hash_of[place]
        if has_rare:
            kinds[rare] = _kinds(codes[rare])
            hashes[rare] = mix(codes[rare].astype(np.uint64))
        return _Portion(kinds, hashes, np.cumsum([0, *map(len, texts)]))

    def read(self, first: int) -> tuple[Floats, Ints, Hashes]:
        r"""Return the form of the texts, and the row and hash of each word; `first` is the row of the first text.

        The hash of the characters :math:`x_0 x_1 \dots` is :math:`\sum_i x_i B^i` modulo :math:`2^{64}`, mixed; a
        difference of two running sums gives it for every word at once.
        """
        is_word = (self.kinds >= _LETTER) & (self.kinds <= _IDEOGRAPH)
        is_joined = is_word & (self.kinds != _IDEOGRAPH)
        # A word goes on where a character and the one before it are joined, and no text begins there.
        goes_on = np.zeros(len(self.kinds) + 1, dtype=bool)
        goes_on[1:-1] = is_joined[1:] & is_joined[:-1]
        goes_on[self.bounds] = False
        (starts,), (ends,) = (is_word > goes_on[:-1]).nonzero(), (is_word > goes_on[1:]).nonzero()
        is_usual = len(self.kinds) <= 2 * _PORTION
        powers, inverse = _usual_powers() if is_usual else _powers(len(self.kinds))
        sums = np.zeros(len(self.kinds) + 1, dtype=np.uint64)
        np.cumsum(self.hashes * powers[: len(self.kinds)], out=sums[1:])
        words = mix((sums[ends + 1] - sums[starts]) * inverse[starts])
        length = self.bounds[1:] - self.bounds[:-1]
        text = np.repeat(np.arange(len(length)), length)
        of_words = text[starts]
        return self._form(text, of_words, length), of_words + first, words

    def _form(self, text: Ints, of_words: Ints, length: Ints) -> Floats:
        """Return the numbers of texts of some lengths; `text` and `of_words`: the text of each character and word."""
        count = len(length)
        kinds = np.bincount(text * _KINDS + self.kinds, minlength=count * _KINDS).reshape(count, _KINDS)
        words = np.bincount(of_words, minlength=count)
        has_text = length > 0
        out = np.zeros((count, len(FORM)))
        out[:, 0], out[:, 1], out[:, 2], out[:, 4:] = length, words, length / (words + 1), kinds[:, _COUNTED]
        out[has_text, 3] = self.kinds[self.bounds[:-1][has_text]] == _CAPITAL
        return out


@dataclass(frozen=True, eq=False)
class PairTexts:
    """Questions and answers, and numbers that describe the form of each pair.

    form : those of the question, those of the answer, and how many words of the answer are in the question: the
        number of distinct ones, and their share.
    """

    question: Texts
    answer: Texts
    form: Floats

    @staticmethod
    def of(questions: Sequence[str], answers: Sequence[str]) -> PairTexts:
        # All at once: what an operation on an array costs, however short the array, is most of the time of one pair.
        texts, count = Texts.of([*questions, *answers]), len(questions)
        cut = int(np.searchsorted(texts.rows, count))
        rows = np.concatenate([texts.rows[:cut], texts.rows[cut:] - count])
        question = Texts(texts.form[:count], rows[:cut], texts.words[:cut])
        answer = Texts(texts.form[count:], rows[cut:], texts.words[cut:])
        keys = mix(texts.words ^ mix(rows.astype(np.uint64)))
        distinct, first = np.unique(keys[cut:], return_index=True)
        rows = answer.rows[first]
        is_shared = np.zeros(len(distinct), dtype=bool)
        if len(distinct):
            # Few words are shared, and the last bits of their keys tell most others apart without a search.
            last_bits = np.uint64((1 << (8 * len(distinct)).bit_length()) - 1)
            is_taken = np.zeros(int(last_bits) + 1, dtype=bool)
            is_taken[distinct & last_bits] = True
            wanted = keys[:cut][is_taken[keys[:cut] & last_bits]]
            place = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
            is_shared[place[distinct[place] == wanted]] = True
        shared = np.bincount(rows[is_shared], minlength=count)
        share = shared / np.maximum(np.bincount(rows, minlength=count), 1)
        return PairTexts(question, answer, np.column_stack([question.form, answer.form, shared, share]))
