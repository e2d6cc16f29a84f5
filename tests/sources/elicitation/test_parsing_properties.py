"""Properties of all replies: no error, no number outside 0 to 1, and replies in the requested form are read back."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.sources.elicitation import Malformed, Refused, Stated, parse_guess, parse_stated, read_probability
from qacal.sources.elicitation.judging import read_verdict
from qacal.sources.elicitation.matching import normalise_answer
from qacal.sources.elicitation.reading.expressions import EXPRESSIONS, read_expression
from qacal.sources.elicitation.reading.parsing import (
    answer_place,
    parse_answer,
    parse_confidence,
    parse_expression_guess,
    parse_guesses,
)
from qacal.sources.elicitation.reply import Reply, Token
from qacal.sources.elicitation.tokens import answer_probability
from tests.sizes import FULL, examples

WORDS = r"""
    Guess: Probability: Confidence: Answer: G1: P1: G2: P2: Guess Probability ** * ` ``` <think> </think> <guess> { }
    [ ] " ' : , = - – ( ) < > % / . 0 1 0.9 90% .5 5 1984 ½ ٠٫٨ ８ Likely Unlikely Highly not Paris the I'm sorry cannot
    {"guess": "probability":} \ Explanation:
"""
PIECES = [*WORDS.split(), "\n", " ", "\n\n", "\r\n", "\t", "\u200b", "\u2028", "I cannot answer"]

replies = st.one_of(
    st.text(),
    st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join),
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
)
# An answer in the requested form: one line, without markup around it.
answers = (
    st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), min_size=1, max_size=60)
    .map(str.strip)
    .filter(lambda text: text and text[0] not in _MARKUP and text[-1] not in _MARKUP)
)
_MARKUP = "*_`\"'<>＊＿｀＂＇＜＞“”„‟«»‘’‚‛´ʼ≤≥≦≧⩽⩾≪≫"
hundredths = st.integers(0, 100).map(lambda percent: percent / 100)


@given(replies, st.booleans())
@examples(400)
def test_no_reply_is_an_error(text, is_cut):
    outcomes = [
        parse_guess(text, is_cut=is_cut),
        parse_expression_guess(text, is_cut=is_cut),
        parse_stated(text, is_cut=is_cut),
        *parse_guesses(text, 3, is_cut=is_cut),
    ]
    assert len(outcomes) == 6
    for outcome in outcomes:
        if isinstance(outcome, Stated):
            assert 0 <= outcome.confidence <= 1
            assert outcome.answer == outcome.answer.strip() != ""
        else:
            assert len(outcome.said) <= 200
    assert isinstance(parse_answer(text, is_cut=is_cut), str | Refused | Malformed)
    found = parse_confidence(text, is_cut=is_cut)
    assert isinstance(found, Refused | Malformed) or 0 <= found <= 1


@given(replies)
@examples(200)
def test_the_span_contains_the_answer(text):
    outcome = parse_stated(text)
    if isinstance(outcome, Stated) and (place := answer_place(text, outcome.answer)):
        assert text[slice(*place)] == outcome.answer


@given(answers, hundredths, st.sampled_from(["{}", "{:.2f}", "{:.0%}"]))
@examples(300)
def test_replies_in_the_requested_form_are_read_back(answer, confidence, form):
    if "probability" in answer.lower() or isinstance(parse_guess(answer), Refused):
        return
    text = f"Guess: {answer}\nProbability: {form.format(confidence)}"
    assert parse_guess(text) == Stated(answer, confidence)
    assert answer_place(text, answer) == (7, 7 + len(answer))


@given(st.lists(st.tuples(answers, hundredths), min_size=2, max_size=20))
def test_several_are_read_back(rows):
    text = "\n".join(f"G{n}: {answer}\nP{n}: {confidence}" for n, (answer, confidence) in enumerate(rows, 1))
    assert parse_guesses(text, len(rows)) == tuple(Stated(*row) for row in rows)


@given(answers, st.sampled_from(sorted(EXPRESSIONS)))
def test_expressions_are_read_back(answer, expression):
    found = parse_expression_guess(f"Guess: {answer}\nConfidence: {expression}")
    assert found == Stated(answer, EXPRESSIONS[expression])


LONG = 100_000 if FULL else 10_000
HOSTILE = {
    "letters": "a" * LONG,
    "digits": "9" * LONG,
    "spaces": " " * LONG,
    "lines": "\n" * LONG,
    "stars": "*" * LONG,
    "quotes": '"' * LONG,
    "brackets": "<" * LONG,
    "pairs": "<>" * (LONG // 2),
    "thoughts": "<think>" * (LONG // 7),
    "closed": "</think>" * (LONG // 8),
    "fences": "```\n" * (LONG // 4),
    "guesses": "Guess: " * (LONG // 7),
    "lines of guesses": "Guess: a\n" * (LONG // 9),
    "both": "Guess: a\nProbability: 0.9\n" * (LONG // 26),
    "both in a line": "Guess: a Probability: 0.9 " * (LONG // 26),
    "numbered": "G1: P1: " * (LONG // 8),
    "decimals": "Guess: a\nProbability: " + "0.9 " * (LONG // 4),
    "commas": "Guess: a\nProbability: " + "1,1" * (LONG // 3),
    "percents": "Guess: a\nProbability: " + "9 %" * (LONG // 3),
    "shares": "Guess: a\nProbability: " + "9 out of " * (LONG // 9),
    "words": "Guess: a\nProbability: " + "about " * (LONG // 6),
    "that": "Probability that " * (LONG // 17),
    "expressions": "Guess: a\nConfidence: " + "Likely " * (LONG // 7),
    "almost": "Guess: a\nConfidence: " + "almost no " * (LONG // 10),
    "answer": "Guess: " + "ab " * (LONG // 3) + "\nProbability: 0.9",
    "a wide answer": "Guess: a" + " " * LONG + "b\nProbability: 0.9",
    "wide lines": "Guess: a" + ("\n" + " " * 500) * (LONG // 500) + "b\nProbability: 0.9",
    "a wide number": "Guess: a\nProbability: 0.9" + " " * LONG + "%",
    "wide percents": "Guess: a\nProbability: " + ("9" + " " * 300) * (LONG // 300) + "%",
    "a wide expression": "Guess: a\nConfidence: Highly" + " " * LONG + "Likely",
    "articles": "the " * (LONG // 4),
    "wide articles": ("the" + " " * 300) * (LONG // 300),
    "apostrophes": "a'" * (LONG // 2),
    "thousands": "1" + ",111" * (LONG // 4) + ",",
    "sorry": "I am " * (LONG // 5),
    "open JSON": '{"a":' * (LONG // 5),
    "JSON": "[" * (LONG // 2) + "]" * (LONG // 2),
    "backslashes": "\\" * LONG,
}


def read_all(text):
    parse_stated(text)
    parse_guesses(text, 20)
    parse_answer(text)
    parse_confidence(text)
    read_probability(text)
    read_expression(text)
    read_verdict(text)
    normalise_answer(text)
    answer_probability(Reply(text, (Token(text, -1.0),)), "a")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_long_replies_end(text):
    """In quadratic time, a hundred thousand characters (with FULL_TESTS=1) would take minutes."""
    read_all(text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_twice_the_text_is_at_most_twice_the_work(text):
    short, long = calls(text[:2_000]), calls(text[:4_000])
    assert long <= 2.2 * short + 100


def calls(text):
    """Return the number of function calls, including C functions."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        read_all(text)
    finally:
        sys.setprofile(before)
    return count
