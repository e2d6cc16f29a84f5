"""Confidence in words: the 13 expressions, and texts that are close to one of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError
from qacal.sources.elicitation import Malformed, Reason, Reply, Stated
from qacal.sources.elicitation.prompts import ExpressionReader
from qacal.sources.elicitation.reading.expressions import EXPRESSIONS, read_expression
from tests.tables import each

READ = {
    "Almost No Chance": 0.02,
    "Highly Unlikely": 0.05,
    "Chances Are Slight": 0.1,
    "Little Chance": 0.1,
    "Unlikely": 0.2,
    "Probably Not": 0.25,
    "About Even": 0.5,
    "Better Than Even": 0.6,
    "Likely": 0.7,
    "Probably": 0.7,
    "Very Good Chance": 0.8,
    "Highly Likely": 0.9,
    "Almost Certain": 0.95,
    "HIGHLY LIKELY": 0.9,
    "highly likely.": 0.9,
    "**Highly Likely**": 0.9,
    '"Likely"': 0.7,
    "<Likely>": 0.7,
    "highly-likely": 0.9,
    "Highly\nLikely": 0.9,
    "Ｌｉｋｅｌｙ": 0.7,
    "Confidence: Unlikely": 0.2,
    "I'd say it is highly unlikely.": 0.05,
    "I think there is a very good chance": 0.8,
    "There is little chance": 0.1,
    "the chances are slight": 0.1,
    "It is probably not": 0.25,
    "Likely, likely": 0.7,
    "Highly Likely (0.9)": 0.9,
    "Highly Likely (90%)": 0.9,
    "Likely, since Paris is well known": 0.7,
    "Likely because Paris is well known": 0.7,
    "Almost certain that it is correct.": 0.95,
    "Highly likely to be correct": 0.9,
    "Little chance that this is correct": 0.1,
}

NOT_READ = {
    "": Reason.NO_CONFIDENCE,
    "0.9": Reason.UNKNOWN_EXPRESSION,
    "High": Reason.UNKNOWN_EXPRESSION,
    "Certain": Reason.UNKNOWN_EXPRESSION,
    "Almost certainly": Reason.UNKNOWN_EXPRESSION,
    "Good Chance": Reason.UNKNOWN_EXPRESSION,
    "Not likely": Reason.UNKNOWN_EXPRESSION,
    "Not highly likely": Reason.UNKNOWN_EXPRESSION,
    "not unlikely": Reason.UNKNOWN_EXPRESSION,
    "It isn't likely": Reason.UNKNOWN_EXPRESSION,
    "Very likely": Reason.UNKNOWN_EXPRESSION,
    "Very unlikely": Reason.UNKNOWN_EXPRESSION,
    "Extremely unlikely": Reason.UNKNOWN_EXPRESSION,
    "Most likely": Reason.UNKNOWN_EXPRESSION,
    "More likely than not": Reason.UNKNOWN_EXPRESSION,
    "Less likely": Reason.UNKNOWN_EXPRESSION,
    "Somewhat likely": Reason.UNKNOWN_EXPRESSION,
    "Likely not": Reason.UNKNOWN_EXPRESSION,
    "Likely wrong": Reason.UNKNOWN_EXPRESSION,
    "Likely, though I doubt it": Reason.UNKNOWN_EXPRESSION,
    "Likely or better": Reason.UNKNOWN_EXPRESSION,
    "There is not a very good chance": Reason.UNKNOWN_EXPRESSION,
    "No better than even": Reason.UNKNOWN_EXPRESSION,
    "Very little chance": Reason.UNKNOWN_EXPRESSION,
    "likelyhood": Reason.UNKNOWN_EXPRESSION,
    "un-likely": Reason.UNKNOWN_EXPRESSION,
    "little chance of error": Reason.UNKNOWN_EXPRESSION,
    "Little chance (of error)": Reason.UNKNOWN_EXPRESSION,
    "Little chance that I erred": Reason.UNKNOWN_EXPRESSION,
    "Little chance, of a slip": Reason.UNKNOWN_EXPRESSION,
    "Chances are slight that I'm off": Reason.UNKNOWN_EXPRESSION,
    "Chances are slight that it is Lyon": Reason.UNKNOWN_EXPRESSION,
    "almost no chance of any other answer": Reason.UNKNOWN_EXPRESSION,
    "Almost no chance otherwise": Reason.UNKNOWN_EXPRESSION,
    "Almost no chance of Lyon": Reason.UNKNOWN_EXPRESSION,
    "Almost no chance it differs": Reason.UNKNOWN_EXPRESSION,
    "almost certain to fail": Reason.UNKNOWN_EXPRESSION,
    "Almost certain, to fail": Reason.UNKNOWN_EXPRESSION,
    "Almost certain that I can't say": Reason.UNKNOWN_EXPRESSION,
    "Almost certain it's somebody else": Reason.UNKNOWN_EXPRESSION,
    "Likely? No.": Reason.UNKNOWN_EXPRESSION,
    "Likely. No.": Reason.UNKNOWN_EXPRESSION,
    "Likely?": Reason.UNKNOWN_EXPRESSION,
    "Likely a mistake": Reason.UNKNOWN_EXPRESSION,
    "Highly likely to mislead": Reason.UNKNOWN_EXPRESSION,
    "Unlikely to change": Reason.UNKNOWN_EXPRESSION,
    "Unlikely that there is a risk": Reason.UNKNOWN_EXPRESSION,
    "Probably, wait, nope": Reason.UNKNOWN_EXPRESSION,
    "Likely, but Lyon is better": Reason.UNKNOWN_EXPRESSION,
    "Almost certain 👎": Reason.UNKNOWN_EXPRESSION,
    "Almost certain (sarcasm)": Reason.UNKNOWN_EXPRESSION,
    "Likely, scratch that": Reason.UNKNOWN_EXPRESSION,
    "Likely as anything": Reason.UNKNOWN_EXPRESSION,
    "Highly unlikely it's someone else": Reason.UNKNOWN_EXPRESSION,
    "Probably but unsure": Reason.UNKNOWN_EXPRESSION,
    "Likely or Unlikely": Reason.SEVERAL_CONFIDENCES,
    "Likely to Highly Likely": Reason.SEVERAL_CONFIDENCES,
    "Likely / Probably": Reason.SEVERAL_CONFIDENCES,
    "Highly Likely (0.8)": Reason.SEVERAL_CONFIDENCES,
    "Likely (7)": Reason.SEVERAL_CONFIDENCES,
}


@each("text", READ)
def test_read(text):
    assert read_expression(text) == READ[text]


@each("text", NOT_READ)
def test_not_read(text):
    found = read_expression(text)
    assert isinstance(found, Malformed)
    assert found.why == NOT_READ[text]


def test_the_map_is_the_papers():
    """Fagen-Ulmschneider's 13 expressions, in the order of their values."""
    assert len(EXPRESSIONS) == 13
    assert list(EXPRESSIONS.values()) == sorted(EXPRESSIONS.values())


def test_an_expression_that_may_be_cut_off():
    """ "Probably" can still become "Probably Not"."""
    assert read_expression("Probably", is_cut=True).why == Reason.CUT
    assert read_expression("Probably ", is_cut=True).why == Reason.CUT
    assert read_expression("Probably.", is_cut=True) == 0.7


def test_a_custom_map():
    mine = {"Sure": 0.9, "Not Sure": 0.3, "Rather-Not": 0.1}
    assert read_expression("not sure", mine) == 0.3
    assert read_expression("sure", mine) == 0.9
    assert read_expression("rather not", mine) == 0.1
    assert read_expression("Likely", mine).why == Reason.UNKNOWN_EXPRESSION


@each("mine", [{"Sure": 1.5}, {"Sure": float("nan")}, {"": 0.5}, {"!": 0.5}])
def test_invalid_maps(mine):
    with pytest.raises(InputError, match="expected words and a number from 0 to 1"):
        read_expression("Sure", mine)


PIECES = [*EXPRESSIONS, *" .,-\n", "not", "very", "un", "ſ", "İ", "highly", "0.9", "(", "Confidence:"]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join)))
def test_never_anything_else_and_never_an_error(text):
    for is_cut in (False, True):
        found = read_expression(text, is_cut=is_cut)
        assert isinstance(found, Malformed) or found in EXPRESSIONS.values()


@given(st.sampled_from(sorted(EXPRESSIONS)), st.sampled_from(["not ", "never ", "hardly ", "un", "less ", "more "]))
def test_negations_are_never_ignored(expression, before):
    found = read_expression(before + expression)
    longer = next((worth for name, worth in EXPRESSIONS.items() if name.lower() == (before + expression).lower()), None)
    assert isinstance(found, Malformed) or found == longer


def test_spellings_of_one_expression_are_one():
    usual = ExpressionReader()
    for name in ("highly likely", "HIGHLY-LIKELY", "Highly  Likely"):
        other = usual.extended({name: 0.8})
        assert len(other.expressions) == len(EXPRESSIONS)
        assert other([Reply("Guess: Paris\nConfidence: Highly Likely")]) == (Stated("Paris", 0.8),)
        assert other.mark == usual.extended({"Highly Likely": 0.8}).mark != usual.extended({"Highly Likely": 0.3}).mark
        assert usual.extended({name: 0.9}).mark == ""
    with pytest.raises(InputError, match="expected one number"):
        usual.extended({"highly likely": 0.8, "Highly-Likely": 0.3})
