"""Replies of other forms: expressions, several guesses, and both stages of two-stage prompts."""

from qacal.sources.elicitation import Malformed, Reason, Refused, Stated, parse_stated
from qacal.sources.elicitation.reading.parsing import (
    parse_answer,
    parse_confidence,
    parse_expression_guess,
    parse_guesses,
)
from tests.tables import each

PARIS = Stated("Paris", 0.9)
SORRY = "I'm sorry, but I can't answer that."

EXPRESSED = {
    "Guess: Paris\nConfidence: Highly Likely": PARIS,
    "Guess: Paris\nConfidence: highly likely.": PARIS,
    "Guess: Paris Confidence: Highly Likely": PARIS,
    "**Guess:** Paris\n**Confidence:** **Highly Likely**": PARIS,
    "Guess: Paris\nConfidence: I'd say highly likely": PARIS,
    "Guess: Paris\nProbability: Highly Likely": PARIS,
    "Guess: Paris\nLikelihood: Highly Likely\n\nIt is unlikely to be Lyon.": PARIS,
    '{"guess": "Paris", "confidence": "Highly Likely"}': PARIS,
    "Guess: Likely\nConfidence: Unlikely": Stated("Likely", 0.2),
    "Guess: Paris\nConfidence: Highly Unlikely": Stated("Paris", 0.05),
    "Guess: Paris\nConfidence: Very Good Chance": Stated("Paris", 0.8),
}

NOT_EXPRESSED = {
    "": Reason.EMPTY,
    "Highly Likely": Reason.NO_GUESS,
    "Guess: Paris": Reason.NO_CONFIDENCE,
    "Guess: Paris\nConfidence:": Reason.NO_CONFIDENCE,
    "Guess: Paris\nConfidence: 0.9": Reason.UNKNOWN_EXPRESSION,
    "Guess: Paris\nConfidence: Very likely": Reason.UNKNOWN_EXPRESSION,
    "Guess: Paris\nConfidence: Not likely": Reason.UNKNOWN_EXPRESSION,
    "Guess: Paris\nConfidence: Likely or Unlikely": Reason.SEVERAL_CONFIDENCES,
    "Guess: Paris\nConfidence: Likely\nConfidence: Unlikely": Reason.SEVERAL_CONFIDENCES,
    "Guess: Paris\nGuess: Lyon\nConfidence: Likely": Reason.SEVERAL_GUESSES,
    "Guess: Paris\nConfidence: <description of confidence>": Reason.ECHO,
}


@each("text", EXPRESSED)
def test_expressed(text):
    assert parse_expression_guess(text) == EXPRESSED[text]
    assert parse_stated(text) == EXPRESSED[text]


@each("text", NOT_EXPRESSED)
def test_not_expressed(text):
    found = parse_expression_guess(text)
    assert isinstance(found, Malformed)
    assert found.why == NOT_EXPRESSED[text]


def test_a_custom_expression():
    assert parse_expression_guess("Guess: 4\nConfidence: Sure", {"Sure": 1.0}) == Stated("4", 1.0)


A, B, C = Stated("A x", 0.8), Stated("B y", 0.15), Stated("C z", 0.05)
SEVERAL = {
    "G1: A x\nP1: 0.8\nG2: B y\nP2: 0.15\nG3: C z\nP3: 0.05": (A, B, C),
    "G1: A x P1: 0.8 G2: B y P2: 0.15 G3: C z P3: 0.05": (A, B, C),
    "G1: A x, P1: 0.8\nG2: B y, P2: 0.15\nG3: C z, P3: 0.05": (A, B, C),
    "**G1:** A x\n**P1:** 80%\n\n**G2:** B y\n**P2:** 15%\n\n**G3:** C z\n**P3:** 5%": (A, B, C),
    "P1: 0.8\nP2: 0.15\nP3: 0.05\nG1: A x\nG2: B y\nG3: C z": (A, B, C),
    "Guess 1: A x\nProbability 1: 0.8\nGuess 2: B y\nProbability 2: .15\nGuess 3: C z\nProbability 3: .05": (A, B, C),
    '{"G1": "A x", "P1": 0.8, "G2": "B y", "P2": 0.15, "G3": "C z", "P3": 0.05}': (A, B, C),
    '[{"guess": "A x", "p": 0.8}, {"guess": "B y", "p": 0.15}, {"guess": "C z", "p": 0.05}]': (A, B, C),
    "G1: A x\nP1: 0.8\nG2: A x\nP2: 0.15\nG3: C z\nP3: 0.05": (A, Stated("A x", 0.15), C),
    "G1: A x\nP1: 0.8\nG2: B y\nP2: 0.15\nG3: C z\nP3: 0.05\nG4: D\nP4: 0.01": (A, B, C),
    "<think>G1: Q\nP1: 1</think>G1: A x\nP1: 0.8\nG2: B y\nP2: 0.15\nG3: C z\nP3: 0.05": (A, B, C),
    "G1: A x\nP1: 0.8\nG3: C z\nP3: 0.05": (A, Reason.NO_GUESS, C),
    "G1: A x\nP1: 0.8\nG2: B y\nG3: C z\nP3: 0.05": (A, Reason.NO_CONFIDENCE, C),
    "G1: A x\nP1: 0.8\nG2: B y\nP2: 0.\nG3: C z\nP3: 0.05": (A, Reason.UNCLEAR_NUMBER, C),
    "G1: A x\nP1: 0.8\nG2: B y\nP2: 0.15\nG2: D\nG3: C z\nP3: 0.05": (A, Reason.SEVERAL_GUESSES, C),
    "G1: A x\nP1: 0.8\nP1: 0.9\nG2: B y\nP2: 0.15\nG3: C z\nP3: 0.05": (Reason.SEVERAL_CONFIDENCES, B, C),
    "Guess: A x\nProbability: 0.8\nGuess: B y\nProbability: 0.15": (Reason.NO_GUESS,) * 3,
    "1. A x: 0.8\n2. B y: 0.15\n3. C z: 0.05": (Reason.NO_GUESS,) * 3,
    "": (Reason.EMPTY,) * 3,
    "G1: <first most likely guess>\nP1: 0.8": (Reason.ECHO,) * 3,
}


@each("text", SEVERAL)
def test_several(text):
    found = parse_guesses(text, 3)
    assert tuple(Reason(one.why) if isinstance(one, Malformed) else one for one in found) == SEVERAL[text]


SCALES = {
    # one scale
    ("0.98", "0.01", "0.01"): (0.98, 0.01, 0.01),
    ("98%", "1%", "1%"): (0.98, 0.01, 0.01),
    ("80", "15", "0"): (0.8, 0.15, 0.0),
    ("8/10", "1/10", "1/10"): (0.8, 0.1, 0.1),
    ("1", "0", "0"): (1.0, 0.0, 0.0),
    ("1.0", "0.5", "1e-2"): (1.0, 0.5, 0.01),
    ("0.9/1", "0.05", "0.05"): (0.9, 0.05, 0.05),
    # two scales, if one of the numbers decides
    ("0.9 (90%)", "0.05", "0.05"): (0.9, 0.05, 0.05),
    # a number without a percent sign may be percents or out of ten
    ("98", "1", "1"): (0.98, None, None),
    ("80", "19", "1"): (0.8, 0.19, None),
    ("90%", "9%", "1"): (0.9, 0.09, None),
    ("8/10", "1", "1"): (0.8, None, None),
    ("4 out of 5", "1", "0"): (0.8, None, 0.0),
    ("9", "1", "0"): (None, None, 0.0),
    ("99 percent", "0.5", "0.5"): (0.99, None, None),
    ("0.8", "0.15", "5%"): (None, None, 0.05),
    ("0.8", "15", "0.05"): (None, 0.15, None),
    ("0.8", "5", "0.05"): (None, None, None),
    ("1.0", "98", "1.00"): (None, 0.98, None),
    ("95-98%", "1", "1"): (None, None, None),
    ("98", "1 (certain)", "0,5"): (0.98, None, None),
    ("²", "1", "1"): (None, 1.0, 1.0),
}


@each("said", SCALES)
def test_a_reply_has_one_scale(said):
    a, b, c = said
    for text in (f"G1: A\nP1: {a}\nG2: B\nP2: {b}\nG3: C\nP3: {c}", f"G1: A P1: {a}\nG2: B P2: {b}\nG3: C P3: {c}"):
        found = parse_guesses(text, 3)
        assert tuple(getattr(one, "confidence", None) for one in found) == SCALES[said]
        assert {one.why for one in found if isinstance(one, Malformed)} <= {Reason.UNCLEAR_NUMBER}


def test_of_several_only_the_last_is_cut():
    found = parse_guesses("G1: A x\nP1: 0.8\nG2: B y\nP2: 0.1", 2, is_cut=True)
    assert found[0] == A
    assert found[1].why == Reason.CUT


def test_twelve_guesses_are_not_one_and_two():
    text = "\n".join(f"G{n}: answer {n}\nP{n}: {n / 100}" for n in range(1, 13))
    assert parse_guesses(text, 12) == tuple(Stated(f"answer {n}", n / 100) for n in range(1, 13))


ANSWERS = {
    "Guess: Paris": "Paris",
    "Paris": "Paris",
    "**Paris**": "Paris",
    "Guess: Paris\nExplanation: it is.": "Paris",
    "<think>Lyon?</think>Paris": "Paris",
    "0.5": "0.5",
    "Guess: Paris\n\nIt is the capital.": "Paris",
    "Guess: I Can't Tell You Why": "I Can't Tell You Why",
}
NO_ANSWERS = {
    "": Reason.EMPTY,
    "Paris\nLyon": Reason.NO_GUESS,
    "Guess: Paris\nGuess: Lyon": Reason.SEVERAL_GUESSES,
    "Guess: <most likely guess>": Reason.ECHO,
    "word " * 100: Reason.NO_GUESS,
    "\u200b": Reason.NO_GUESS,
}


@each("text", ANSWERS)
def test_an_answer_alone(text):
    assert parse_answer(text) == ANSWERS[text]


@each("text", NO_ANSWERS)
def test_no_answer(text):
    assert parse_answer(text).why == NO_ANSWERS[text]


def test_an_answer_alone_that_is_refused_or_cut():
    assert isinstance(parse_answer(SORRY), Refused)
    assert isinstance(parse_answer(f"Guess: {SORRY}"), Refused)
    assert isinstance(parse_answer("Guess: Unknown"), Refused)
    assert parse_answer("Guess: Par", is_cut=True).why == Reason.CUT


CONFIDENCES = {
    "0.9": 0.9,
    "Probability: 0.9": 0.9,
    "**Probability:** 90%": 0.9,
    "Probability: 0.9\n\nParis has been the capital since 987.": 0.9,
    "I would say 0.9.": 0.9,
    "<think>0.1 or 0.2</think>0.9": 0.9,
    "Probability: 0.9\nProbability: 0.9": 0.9,
    '{"probability": 0.9}': 0.9,
}
NO_CONFIDENCES = {
    "": Reason.EMPTY,
    "high": Reason.NO_CONFIDENCE,
    "Probability: 0.9\nProbability: 0.1": Reason.SEVERAL_CONFIDENCES,
    "0.9 since 987": Reason.OUT_OF_RANGE,
    "9": Reason.UNCLEAR_NUMBER,
    "Probability: <the probability between 0.0 and 1.0>": Reason.ECHO,
}


@each("text", CONFIDENCES)
def test_a_confidence_alone(text):
    assert parse_confidence(text) == CONFIDENCES[text]


@each("text", NO_CONFIDENCES)
def test_no_confidence(text):
    assert parse_confidence(text).why == NO_CONFIDENCES[text]


def test_a_confidence_that_is_refused_or_cut():
    assert isinstance(parse_confidence("I cannot give a probability."), Refused)
    assert parse_confidence("0.9", is_cut=True).why == Reason.CUT
    assert parse_confidence("Probability: 0.9\nsince it", is_cut=True) == 0.9
