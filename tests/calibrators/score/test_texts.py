"""Texts as arrays of characters, compared with a slow version that goes letter by letter."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.calibrators.score import texts as module
from qacal.calibrators.score.texts import FORM, PairTexts, Texts

LETTERS = st.text(st.sampled_from("aAbBé ÉßΣ1٣_,.;?!\n\t-東カ😀𠀀\u0301\ud800"), max_size=30)
TEXTS = st.lists(LETTERS, max_size=6)


def is_ideograph(letter):
    code = ord(letter)
    return (
        0x3040 <= code <= 0x30FF or 0x3400 <= code <= 0x4DBF or 0x4E00 <= code <= 0x9FFF or 0x20000 <= code <= 0x3FFFF
    )


def twin_words(text):
    """Return the words of a text, letter by letter."""
    words, now = [], ""
    for letter in unicodedata.normalize("NFC", text):
        if is_ideograph(letter) or unicodedata.category(letter)[0] not in "LMN":
            words += [now] if now else []
            words += [letter] if is_ideograph(letter) else []
            now = ""
        else:
            now += letter.lower()[0] if unicodedata.category(letter) == "Lu" else letter
    return words + ([now] if now else [])


def twin_form(text):
    text = unicodedata.normalize("NFC", text)
    words, kinds = twin_words(text), [unicodedata.category(letter) for letter in text]
    special = {",": "comma", ";": "comma", ":": "comma", ".": "stop", "!": "stop", "?": "question"}
    names = [special.get(letter, "symbol" if kind[0] in "PS" else "") for letter, kind in zip(text, kinds, strict=True)]
    numbers = {
        "length": len(text),
        "words": len(words),
        "word length": len(text) / (len(words) + 1),
        "begins with a capital": kinds[:1] == ["Lu"],
        "digits": sum(kind[0] == "N" for kind in kinds),
        "capitals": kinds.count("Lu"),
        "commas": names.count("comma"),
        "full stops": names.count("stop"),
        "question marks": names.count("question"),
        "symbols": names.count("symbol"),
        "lines": text.count("\n"),
    }
    return [float(numbers[name]) for name in FORM]


@given(TEXTS)
def test_words_and_form_are_those_of_the_twin(given_texts):
    read = Texts.of(given_texts)
    expected = [(row, word) for row, text in enumerate(given_texts) for word in twin_words(text)]
    assert read.rows.tolist() == [row for row, _ in expected]
    # Equal words have equal hashes, and others do not.
    of_hash = dict(zip(read.words.tolist(), (word for _, word in expected), strict=True))
    assert [of_hash[value] for value in read.words.tolist()] == [word for _, word in expected]
    assert len(of_hash) == len({word for _, word in expected})
    np.testing.assert_array_equal(read.form, np.array([twin_form(text) for text in given_texts]).reshape(-1, len(FORM)))


@given(TEXTS, st.integers(1, 40))
def test_chunks_change_nothing(given_texts, size):
    whole = Texts.of(given_texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PORTION", size)
        parts = Texts.of(given_texts)
    np.testing.assert_array_equal(parts.words, whole.words)
    np.testing.assert_array_equal(parts.rows, whole.rows)
    np.testing.assert_array_equal(parts.form, whole.form)


@given(st.lists(st.tuples(LETTERS, LETTERS), max_size=5))
def test_shared_words_are_those_of_the_twin(pairs):
    questions, answers = [one for one, _ in pairs], [two for _, two in pairs]
    form = PairTexts.of(questions, answers).form
    for row, (question, answer) in enumerate(pairs):
        distinct = {*twin_words(answer)}
        shared = len(distinct & {*twin_words(question)})
        assert form[row, -2:].tolist() == [shared, shared / max(len(distinct), 1)]


def test_a_text_is_read_in_the_same_way_beside_one_with_rarer_characters():
    usual = "Élan — “Ωmega” Привет 1,5"
    alone, beside = Texts.of([usual]), Texts.of([usual, "漢字 ﬁ", "𝔸𐐀"])
    assert np.array_equal(alone.form[0], beside.form[0])
    assert np.array_equal(alone.words, beside.words[beside.rows == 0])


def test_composed_and_decomposed_letters_are_the_same():
    """macOS writes "é" as two characters in names of files, and most keyboards as one."""
    texts = ["Qui a écrit « Les Misérables » ?", "Привет, Й", "한국어"]
    one, two = (Texts.of([unicodedata.normalize(form, text) for text in texts]) for form in ("NFC", "NFD"))
    np.testing.assert_array_equal(one.words, two.words)
    np.testing.assert_array_equal(one.form, two.form)


def test_long_runs_of_marks_are_not_sorted(monkeypatch):
    """Sorting them takes quadratic time: 17 seconds for 80,000 marks."""
    sorted_, real = [], unicodedata.normalize
    monkeypatch.setattr(unicodedata, "normalize", lambda form, text: sorted_.append(text) or real(form, text))
    usual = ["e\u0301" * 100, "a" + "\u0301" * 30, "\u0301" * 30 + "a" + "\u0323" * 30]
    Texts.of([*usual, *("x" * n + "\u0301\u0323" * 16 for n in range(40))])
    assert sorted_ == usual


def test_hashes_are_the_same_on_every_machine():
    """A saved model stores words as hashes."""
    words = Texts.of(["Hello, world"]).words
    assert words.tolist() == Texts.of(["world hello"]).words.tolist()[::-1]
    assert words.tolist() == [6884409850674639192, 12205249571705939701]


def test_a_million_letters():
    read = Texts.of(["word " * 200_000, "word"])
    assert len(np.unique(read.words)) == 1
    assert read.form[:, FORM.index("words")].tolist() == [200_000.0, 1.0]
