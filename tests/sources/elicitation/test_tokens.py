"""The probability of exactly the tokens of an answer."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.sources.elicitation import Malformed, Reason, Reply
from qacal.sources.elicitation.reply import Token
from qacal.sources.elicitation.tokens import answer_probability, true_probability
from tests.tables import each


def reply(*pieces, text=None):
    """Return a reply of tokens with these probabilities."""
    tokens = tuple(
        Token(piece, math.log(p)) if isinstance(piece, str) else Token("\ufffd", math.log(p), (), piece)
        for piece, p in pieces
    )
    return Reply(b"".join(token.encoded for token in tokens).decode() if text is None else text, tokens)


FORMS = {
    "one token": ([("Guess:", 0.9), (" Paris", 0.5), ("\n", 0.7), ("Probability: 0.9", 0.8)], 0.5),
    "two tokens": ([("Guess:", 0.9), (" Par", 0.5), ("is", 0.5), ("\nProbability: 0.9", 0.8)], 0.25),
    "space apart": ([("Guess:", 0.9), (" ", 0.3), ("Paris", 0.5), ("\nProbability: 0.9", 0.8)], 0.5),
    "over its begin": ([("Guess: Par", 0.5), ("is", 0.5), ("\nProbability: 0.9", 0.8)], 0.25),
    "over its end": ([("Guess: ", 0.9), ("Paris\nProb", 0.5), ("ability: 0.9", 0.8)], 0.5),
    "in bold": ([("Guess:", 0.9), (" **", 0.3), ("Paris", 0.5), ("**", 0.3), ("\nProbability: 0.9", 0.8)], 0.5),
    "named before": ([("Paris? ", 0.1), ("Guess: ", 0.9), ("Paris", 0.5), ("\nProbability: 0.9", 0.8)], 0.5),
    "named after": ([("Guess: ", 0.9), ("Paris", 0.5), ("\nProbability: 0.9", 0.8), ("\nParis!", 0.1)], 0.5),
    "after thoughts": ([("<think>Guess: Paris</think>", 0.1), ("Guess: ", 0.9), ("Paris", 0.5)], 0.5),
    "without a label": ([("Par", 0.5), ("is", 0.5)], 0.25),
    "in brackets": ([("Guess: ", 0.9), ("Paris", 0.5), (" (0.9)", 0.3)], 0.5),
    "in JSON": ([('{"guess": "', 0.9), ("Paris", 0.5), ('", "probability": 0.9}', 0.8)], 0.5),
    "an empty token": ([("Guess: ", 0.9), ("", 0.1), ("Paris", 0.5)], 0.5),
}


@each("pieces, expected", FORMS.values())
def test_just_the_tokens_of_the_answer(pieces, expected):
    assert answer_probability(reply(*pieces), "Paris") == pytest.approx(expected, rel=1e-12)


def test_probabilities_of_tokens_are_multiplied():
    said = reply(("Guess:", 0.9), (" New", 0.8), (" York", 0.5), (" City", 0.1), ("\nProbability: 0.9", 0.9))
    assert answer_probability(said, "New York City") == pytest.approx(0.04)


def test_a_character_over_several_tokens():
    """The flag of Japan has eight bytes; this tokenizer cuts it in three."""
    flag = "🇯🇵".encode()
    said = reply(("Guess: ", 0.9), (flag[:3], 0.5), (flag[3:6], 0.5), (flag[6:], 0.5), ("\nProbability: 0.9", 0.9))
    assert said.text == "Guess: 🇯🇵\nProbability: 0.9"
    assert answer_probability(said, "🇯🇵") == pytest.approx(0.125)


def test_broken_characters_after_the_answer_do_no_harm():
    tokens = (*reply(("Guess: ", 0.9), ("Paris", 0.5), ("\nProbability: 0.9", 0.9)).tokens, Token("\ufffd", -1.0))
    assert answer_probability(Reply("Guess: Paris\nProbability: 0.9\n🇯🇵", tokens), "Paris") == pytest.approx(0.5)


def test_more_tokens_than_text():
    pieces = [("I think. ", 0.1), ("Guess: ", 0.9), ("Paris", 0.5), ("\nProbability: 0.9", 0.9), ("<|im_end|>", 0.9)]
    assert answer_probability(reply(*pieces, text="Guess: Paris\nProbability: 0.9"), "Paris") == pytest.approx(0.5)


def test_thoughts_that_say_the_same_are_not_taken_for_the_answer():
    """The thoughts begin like the reply; only tokens of the reply count."""
    pieces = [("Guess: Paris?", 0.1), ("Guess: ", 0.9), ("Paris", 0.5), ("\nProbability: 0.9", 0.9)]
    assert answer_probability(reply(*pieces, text="Guess: Paris\nProbability: 0.9"), "Paris") == pytest.approx(0.5)


@each("logprob", [-9999.0, -10000.0, -math.inf, math.nan, math.inf])
def test_a_token_whose_probability_is_not_known(logprob):
    tokens = (Token("Guess: ", -0.1), Token("Par", -0.1), Token("is", logprob))
    assert answer_probability(Reply("Guess: Paris", tokens), "Paris") is None


def test_an_unknown_token_elsewhere_does_no_harm():
    tokens = (Token("Guess: ", -9999.0), Token("Paris", math.log(0.5)))
    assert answer_probability(Reply("Guess: Paris", tokens), "Paris") == pytest.approx(0.5)


def test_rounding_above_one():
    assert answer_probability(Reply("Guess: 4", (Token("Guess: ", 0.0), Token("4", 1e-7))), "4") == 1.0


@each(
    "said, answer",
    [
        (Reply("Guess: Paris"), "Paris"),
        (Reply("Guess: Paris", ()), "Paris"),
        (Reply("Guess: Paris", (Token("Guess: Lyon", -1.0),)), "Paris"),
        (Reply("Guess: Paris", (Token("Guess: Paris", -1.0),)), "Lyon"),
        (Reply("Guess: Paris", (Token("Guess: Paris", -1.0),)), ""),
        (Reply("", (Token("a", -1.0),)), "a"),
        (Reply("Paris or Paris", (Token("Paris or Paris", -1.0),)), "Paris"),
    ],
)
def test_answers_without_a_token_probability(said, answer):
    assert answer_probability(said, answer) is None


@given(st.text("abé 漢🇯", min_size=1, max_size=12), st.lists(st.integers(1, 4), min_size=60, max_size=60))
def test_any_cut_into_bytes_gives_the_tokens_that_overlap(answer, sizes):
    """If every token has probability 1/2, the exponent counts the tokens that overlap the answer, spaces aside."""
    answer = f"x{answer}x"
    data, start = f"Guess: {answer}\nProbability: 0.9".encode(), len("Guess: ")
    tokens, at, expected = [], 0, 0
    for size in (size for size in sizes * 3 if size):
        piece = data[at : at + size]
        expected += bool(data[max(at, start) : min(at + size, start + len(answer.encode()))].strip())
        tokens += [Token(piece.decode(errors="replace"), math.log(0.5), (), piece)] if piece else []
        at += size
    found = answer_probability(Reply(data.decode(), tuple(tokens)), answer)
    assert found == pytest.approx(0.5**expected)


def first(*listed, text=None):
    alternatives = tuple((piece, math.log(p)) for piece, p in listed)
    return Reply("", (Token(text or listed[0][0], alternatives[0][1], alternatives),))


SHARES = {
    "both": (first(("True", 0.6), ("False", 0.2)), 0.75),
    "spellings": (first((" True", 0.3), ("true", 0.2), ("TRUE", 0.1), (" false", 0.2)), 0.75),
    "one alone": (first(("True", 0.6), ("Yes", 0.2)), 1.0),
    "false alone": (first(("False", 0.6), ("No", 0.2)), 0.0),
    "others are left out": (first(("The", 0.9), ("True", 0.03), ("False", 0.01)), 0.75),
    "not among its own": (Reply("", (Token("True", math.log(0.6), (("False", math.log(0.2)),)),)), 0.75),
    "after space": (Reply("", (Token("\n", -0.1), *first(("True", 0.6), ("False", 0.2)).tokens)), 0.75),
    "one unknown": (Reply("", (Token("True", -0.5, (("True", -0.5), ("False", -9999.0))),)), 1.0),
}


@each("said, share", SHARES.values())
def test_the_share_of_true(said, share):
    assert true_probability(said) == pytest.approx(share)


@each(
    "said, why",
    [
        (Reply("True"), Reason.NO_LOGPROBS),
        (Reply("True", ()), Reason.NO_LOGPROBS),
        (first(("Yes", 0.9), ("No", 0.1)), Reason.NEITHER_TRUE_NOR_FALSE),
        (first(("Truely", 0.9)), Reason.NEITHER_TRUE_NOR_FALSE),
        (Reply("", (Token("True", math.nan),)), Reason.NEITHER_TRUE_NOR_FALSE),
        (Reply("", (Token("True", -9999.0),)), Reason.NEITHER_TRUE_NOR_FALSE),
        (Reply("", (Token(" ", -0.1),)), Reason.NEITHER_TRUE_NOR_FALSE),
    ],
)
def test_no_share_of_true(said, why):
    found = true_probability(said)
    assert isinstance(found, Malformed)
    assert found.why == why
