"""Probabilities as LLMs write them: which are read, and which are ambiguous and not read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.sources.elicitation import Malformed, Reason, read_probability
from tests.tables import each

READ = {
    # the scale that was asked for
    "0.8": 0.8,
    ".8": 0.8,
    "0.80": 0.8,
    "0": 0.0,
    "0.0": 0.0,
    "1": 1.0,
    "1.0": 1.0,
    "1.00": 1.0,
    "1.": 1.0,
    "0.001": 0.001,
    "0.123456789": 0.123456789,
    "+0.9": 0.9,
    " 0.9 \n": 0.9,
    # percents
    "80%": 0.8,
    "80 %": 0.8,
    "80\u00a0%": 0.8,
    "80\\%": 0.8,
    "80 percent": 0.8,
    "80 per cent": 0.8,
    "80 pct": 0.8,
    "0%": 0.0,
    "0.0%": 0.0,
    "1%": 0.01,
    "1.5%": 0.015,
    "5%": 0.05,
    "99.9%": 0.999,
    "100%": 1.0,
    "100.0%": 1.0,
    "80,5%": 0.805,
    "80": 0.8,
    "11": 0.11,
    "95.5": 0.955,
    "100": 1.0,
    # shares
    "8/10": 0.8,
    "8 / 10": 0.8,
    "4 out of 5": 0.8,
    "9 in 10": 0.9,
    "1/4": 0.25,
    "80/100": 0.8,
    "8.5/10": 0.85,
    "0.8/1": 0.8,
    "0.8/1.0": 0.8,
    "0.9 out of 1.0": 0.9,
    "0/10": 0.0,
    "10/10": 1.0,
    "8 (out of 10)": 0.8,
    "1/100": 0.01,
    "100 (certain)": 1.0,
    # other notations
    "1e-2": 0.01,
    "9E-1": 0.9,
    "1.5e-05": 0.000015,
    "0,8": 0.8,
    "0,85": 0.85,
    "1,0": 1.0,
    # wrapped
    "**0.9**": 0.9,
    "`0.9`": 0.9,
    '"0.9"': 0.9,
    "“0.9”": 0.9,
    "<0.9>": 0.9,
    "< 0.9 >": 0.9,
    "[0.9]": 0.9,
    "(0.9)": 0.9,
    "$0.9$": 0.9,
    "\\boxed{0.9}": 0.9,
    "- 0.9": 0.9,
    "0.9.": 0.9,
    "0.9,": 0.9,
    "0.9!": 0.9,
    "0.9。": 0.9,
    "0.33...": 0.33,
    # with words and signs that do not matter
    "~0.9": 0.9,
    "≈0.9": 0.9,
    "≈ 90%": 0.9,
    "about 0.9": 0.9,
    "approximately 0.9": 0.9,
    "Probability: 0.9": 0.9,
    "**Probability:** 0.9": 0.9,
    "P = 0.9": 0.9,
    "I would say 0.85.": 0.85,
    "I'd say about 85%": 0.85,
    "I’m 85% sure": 0.85,
    "My confidence is 0.7": 0.7,
    "0.9 or so": 0.9,
    "1 (100%)": 1.0,
    "1.0, since Paris is well known": 1.0,
    "0.9 that it is correct": 0.9,
    "0.9 that my guess is right": 0.9,
    "0.9 because it is the capital": 0.9,
    "0.9, as it is the capital": 0.9,
    "0.9 likely": 0.9,
    # several numbers that agree
    "0.9 (90%)": 0.9,
    "90% (0.9)": 0.9,
    "0.9 or 90%": 0.9,
    "0.67 (2/3)": 0.67,
    "0.9\n0.9": 0.9,
    # other scripts
    "０．８": 0.8,
    "８０％": 0.8,
    "٠٫٨": 0.8,
    "٨٠٪": 0.8,
    "०.८": 0.8,
    "۰٫۸": 0.8,
    "𝟎.𝟖": 0.8,
}

NOT_READ = {
    # nothing there
    "": Reason.NO_CONFIDENCE,
    " \n": Reason.NO_CONFIDENCE,
    "None": Reason.NO_CONFIDENCE,
    "N/A": Reason.NO_CONFIDENCE,
    "NaN": Reason.NO_CONFIDENCE,
    "inf": Reason.NO_CONFIDENCE,
    "high": Reason.NO_CONFIDENCE,
    "eighty percent": Reason.NO_CONFIDENCE,
    "%": Reason.NO_CONFIDENCE,
    # out of ten, or percent, or a slip
    "2": Reason.UNCLEAR_NUMBER,
    "5": Reason.UNCLEAR_NUMBER,
    "10": Reason.UNCLEAR_NUMBER,
    "8.5": Reason.UNCLEAR_NUMBER,
    "1.5": Reason.UNCLEAR_NUMBER,
    "1.01": Reason.UNCLEAR_NUMBER,
    "0.95%": Reason.UNCLEAR_NUMBER,
    "0.95 percent": Reason.UNCLEAR_NUMBER,
    "0.95\\%": Reason.UNCLEAR_NUMBER,
    ".5%": Reason.UNCLEAR_NUMBER,
    "0,95%": Reason.UNCLEAR_NUMBER,
    "1.0%": Reason.UNCLEAR_NUMBER,
    "%0.95": Reason.UNCLEAR_NUMBER,
    "in percent: 0.95": Reason.UNCLEAR_NUMBER,
    "0.8/10": Reason.UNCLEAR_NUMBER,
    "1.0/10": Reason.UNCLEAR_NUMBER,
    "5‰": Reason.UNCLEAR_NUMBER,
    # digits may be missing
    "0.": Reason.UNCLEAR_NUMBER,
    "0...": Reason.UNCLEAR_NUMBER,
    "08": Reason.UNCLEAR_NUMBER,
    "05%": Reason.UNCLEAR_NUMBER,
    "007": Reason.UNCLEAR_NUMBER,
    "0. 9": Reason.UNCLEAR_NUMBER,
    "0..9": Reason.UNCLEAR_NUMBER,
    "0.9.1": Reason.UNCLEAR_NUMBER,
    # outside
    "150%": Reason.OUT_OF_RANGE,
    "101": Reason.OUT_OF_RANGE,
    "1984": Reason.OUT_OF_RANGE,
    "-0.2": Reason.OUT_OF_RANGE,
    "−0.2": Reason.OUT_OF_RANGE,
    "-5%": Reason.OUT_OF_RANGE,
    "12/10": Reason.OUT_OF_RANGE,
    "2e1": Reason.OUT_OF_RANGE,
    "9e99": Reason.OUT_OF_RANGE,
    # a 1 that may be the lowest grade, or one percent
    "1\n%": Reason.UNCLEAR_NUMBER,
    "1 \n percent": Reason.UNCLEAR_NUMBER,
    "1\nout of 10": Reason.UNCLEAR_NUMBER,
    "1\n(on a scale of 1 to 10)": Reason.UNCLEAR_NUMBER,
    "1 (low)": Reason.UNCLEAR_NUMBER,
    "1 - very low": Reason.UNCLEAR_NUMBER,
    "1 (lowest)": Reason.UNCLEAR_NUMBER,
    "1, not confident": Reason.UNCLEAR_NUMBER,
    "1 (unsure)": Reason.UNCLEAR_NUMBER,
    "1 (one in ten)": Reason.UNCLEAR_NUMBER,
    "1 as a percentage": Reason.UNCLEAR_NUMBER,
    "1, since I have no idea": Reason.UNCLEAR_NUMBER,
    "1 (maybe)": Reason.UNCLEAR_NUMBER,
    "1 - a wild guess": Reason.UNCLEAR_NUMBER,
    "1!\nJust a hunch": Reason.UNCLEAR_NUMBER,
    "Low (1)": Reason.UNCLEAR_NUMBER,
    "Low: 1": Reason.UNCLEAR_NUMBER,
    "1.0 (very low)": Reason.UNCLEAR_NUMBER,
    "1.0, not sure at all": Reason.UNCLEAR_NUMBER,
    "Low: 1.0": Reason.UNCLEAR_NUMBER,
    "0 (certain)": Reason.UNCLEAR_NUMBER,
    "0, very high confidence": Reason.UNCLEAR_NUMBER,
    "0 mistakes": Reason.UNCLEAR_NUMBER,
    "0.9 as a percentage": Reason.UNCLEAR_NUMBER,
    "1 (bad)": Reason.UNCLEAR_NUMBER,
    "1.0 (bad)": Reason.UNCLEAR_NUMBER,
    "1.0 (worst)": Reason.UNCLEAR_NUMBER,
    "1 (guess)": Reason.UNCLEAR_NUMBER,
    "1, I guess": Reason.UNCLEAR_NUMBER,
    "1??": Reason.UNCLEAR_NUMBER,
    "1 👎": Reason.UNCLEAR_NUMBER,
    "0 👍": Reason.UNCLEAR_NUMBER,
    "1 of 10": Reason.UNCLEAR_NUMBER,
    "1 from 10": Reason.UNCLEAR_NUMBER,
    "1 = lowest, 10 = highest": Reason.UNCLEAR_NUMBER,
    "1.0 star": Reason.UNCLEAR_NUMBER,
    # other units, and a number before a change of mind
    "0.9 per mille": Reason.UNCLEAR_NUMBER,
    "0.9 ppm": Reason.UNCLEAR_NUMBER,
    "0.5 oz": Reason.UNCLEAR_NUMBER,
    "0,5 kg": Reason.UNCLEAR_NUMBER,
    "0.5 on ten": Reason.UNCLEAR_NUMBER,
    "0.9 squared": Reason.UNCLEAR_NUMBER,
    "0.9 previously": Reason.UNCLEAR_NUMBER,
    "0.8 no": Reason.UNCLEAR_NUMBER,
    "0.8, nope": Reason.UNCLEAR_NUMBER,
    "80% no": Reason.UNCLEAR_NUMBER,
    "0.9 correct? No.": Reason.UNCLEAR_NUMBER,
    "0.8 against": Reason.UNCLEAR_NUMBER,
    "0.9 (hardly)": Reason.UNCLEAR_NUMBER,
    "10% unsure": Reason.UNCLEAR_NUMBER,
    "0.1 uncertain": Reason.UNCLEAR_NUMBER,
    "0.4 not sure": Reason.UNCLEAR_NUMBER,
    # numbers of something else
    "0.3 (chance it isn't Paris)": Reason.UNCLEAR_NUMBER,
    "0.3 that it's Lyon": Reason.UNCLEAR_NUMBER,
    "0.3 it is Lyon": Reason.UNCLEAR_NUMBER,
    "0.3 for Lyon": Reason.UNCLEAR_NUMBER,
    "0.3 of it being Lyon": Reason.UNCLEAR_NUMBER,
    "0.3 that the answer is Lyon": Reason.UNCLEAR_NUMBER,
    "0.3 (Lyon)": Reason.UNCLEAR_NUMBER,
    "0.3 that it is another": Reason.UNCLEAR_NUMBER,
    "0.3 for another answer": Reason.UNCLEAR_NUMBER,
    "0.3 (Lyon instead)": Reason.UNCLEAR_NUMBER,
    "0.3 otherwise": Reason.UNCLEAR_NUMBER,
    "0.3 that I erred": Reason.UNCLEAR_NUMBER,
    "0.3 that I'm off": Reason.UNCLEAR_NUMBER,
    "0.3 (not Paris)": Reason.UNCLEAR_NUMBER,
    "0.6, since I am not certain": Reason.UNCLEAR_NUMBER,
    "0.9, as a guess": Reason.UNCLEAR_NUMBER,
    "0.9 because 0.1 is too low": Reason.UNCLEAR_NUMBER,
    "because 0.9": Reason.UNCLEAR_NUMBER,
    # grades, with words that may agree with them
    "1 (certain)": Reason.UNCLEAR_NUMBER,
    "1 because it is known": Reason.UNCLEAR_NUMBER,
    "0 (no idea)": Reason.UNCLEAR_NUMBER,
    # several
    "0.9 or 0.5": Reason.SEVERAL_CONFIDENCES,
    "0.7 to 0.9": Reason.UNCLEAR_NUMBER,
    "0.7 - 0.9": Reason.UNCLEAR_NUMBER,
    "0.7-0.9": Reason.UNCLEAR_NUMBER,
    "0.7–0.9": Reason.UNCLEAR_NUMBER,
    "70-90%": Reason.UNCLEAR_NUMBER,
    "between 0 and 1": Reason.UNCLEAR_NUMBER,
    "0.9 ± 0.05": Reason.UNCLEAR_NUMBER,
    "0.9 (95%)": Reason.SEVERAL_CONFIDENCES,
    "0.001 (0.005)": Reason.SEVERAL_CONFIDENCES,
    "0.9, 0.1": Reason.SEVERAL_CONFIDENCES,
    "0.9,0.1": Reason.UNCLEAR_NUMBER,
    "0.9\n0.1": Reason.SEVERAL_CONFIDENCES,
    "1 - 0.1": Reason.UNCLEAR_NUMBER,
    "1 - 1.0": Reason.UNCLEAR_NUMBER,
    "0.5 * 1": Reason.UNCLEAR_NUMBER,
    # bounds
    ">0.9": Reason.UNCLEAR_NUMBER,
    "<0.9": Reason.UNCLEAR_NUMBER,
    "≥ 0.9": Reason.UNCLEAR_NUMBER,
    "≤0.1": Reason.UNCLEAR_NUMBER,
    "0.9+": Reason.UNCLEAR_NUMBER,
    "90%+": Reason.UNCLEAR_NUMBER,
    "at least 0.9": Reason.UNCLEAR_NUMBER,
    "at most 10%": Reason.UNCLEAR_NUMBER,
    "more than 0.9": Reason.UNCLEAR_NUMBER,
    "less than 1%": Reason.UNCLEAR_NUMBER,
    "up to 0.9": Reason.UNCLEAR_NUMBER,
    "over 90%": Reason.UNCLEAR_NUMBER,
    "0.9 or higher": Reason.UNCLEAR_NUMBER,
    "0.9 at most": Reason.UNCLEAR_NUMBER,
    # shares in words, and odds
    "1 in a million": Reason.UNCLEAR_NUMBER,
    "1 in ten": Reason.UNCLEAR_NUMBER,
    "1 per mille": Reason.UNCLEAR_NUMBER,
    "1 chance in a hundred": Reason.UNCLEAR_NUMBER,
    "0.9 out of ten": Reason.UNCLEAR_NUMBER,
    "20 on a scale of 20": Reason.UNCLEAR_NUMBER,
    "80 in 2020": Reason.UNCLEAR_NUMBER,
    "80 points": Reason.UNCLEAR_NUMBER,
    "95 thousandths": Reason.UNCLEAR_NUMBER,
    "50/50": Reason.UNCLEAR_NUMBER,
    "40/60": Reason.UNCLEAR_NUMBER,
    "50-50": Reason.UNCLEAR_NUMBER,
    # not the probability of being correct
    "0.9 that it is not correct": Reason.UNCLEAR_NUMBER,
    "not 0.9": Reason.UNCLEAR_NUMBER,
    "one in 50": Reason.UNCLEAR_NUMBER,
    "out of 100": Reason.UNCLEAR_NUMBER,
    "a 20% chance of being wrong": Reason.UNCLEAR_NUMBER,
    "0.1 that it is incorrect": Reason.UNCLEAR_NUMBER,
    "10% doubt": Reason.UNCLEAR_NUMBER,
    "5% uncertainty": Reason.UNCLEAR_NUMBER,
    "0.9 (GPT-4)": Reason.UNCLEAR_NUMBER,
    "0.9x": Reason.UNCLEAR_NUMBER,
    "v0.9": Reason.UNCLEAR_NUMBER,
    "1:4": Reason.UNCLEAR_NUMBER,
    "4:1 odds": Reason.UNCLEAR_NUMBER,
    "10^-2": Reason.UNCLEAR_NUMBER,
    "1,000": Reason.UNCLEAR_NUMBER,
    "1.000,5": Reason.UNCLEAR_NUMBER,
    "95,5": Reason.UNCLEAR_NUMBER,
    "0/0": Reason.UNCLEAR_NUMBER,
    "1/2/3": Reason.UNCLEAR_NUMBER,
    "½": Reason.UNCLEAR_NUMBER,
    "0.9²": Reason.UNCLEAR_NUMBER,
    "八成": Reason.UNCLEAR_NUMBER,
    "0.\u200b9": Reason.UNCLEAR_NUMBER,
    "0x1": Reason.UNCLEAR_NUMBER,
    "0b1": Reason.UNCLEAR_NUMBER,
    "1_0": Reason.SEVERAL_CONFIDENCES,
    "0." + "9" * 1000: Reason.UNCLEAR_NUMBER,
}

PIECES = ["0", "1", "9", "10", "80", ".", ",", "%", "/", "-", "+", "e", " ", "\n", "(", ")", "<", ">", "~", "*", "±"]
WORDS = ["Probability:", "about", "not", "or", "out of", "in", "to", "percent", "½", "٨", "٫", "８", "‰", "wrong", "^"]


@each("text", READ)
def test_read(text):
    assert read_probability(text) == READ[text]


@each("text", NOT_READ)
def test_not_read(text):
    found = read_probability(text)
    assert isinstance(found, Malformed)
    assert found.why == NOT_READ[text]


@each("text", ["0.9", "0.", "9", "1", "0.9 (9"])
def test_a_number_that_may_have_been_cut(text):
    found = read_probability(text, is_cut=True)
    assert isinstance(found, Malformed)
    assert found.why == Reason.CUT


@each("text", ["0.9\n", "0.9 ", "90%", "0.9 because", "(0.9)"])
def test_a_number_that_ends_before_the_cut(text):
    assert read_probability(text, is_cut=True) == 0.9


@each("percent", range(101))
def test_every_percent_in_every_notation(percent):
    """Exactly: the same percentage must not become two different floats."""
    share = percent / 100
    for written in (f"{share}", f"{share:.2f}", f"{share:.4f}", f"{percent}%", f"{percent}/100", f"{share:.2e}"):
        assert read_probability(written) == share, written


FORMS = [
    "{0}",
    "{0:.2f}",
    "{0:.0%}",
    "{1}/100",
    "**{0}**",
    "<{0}>",
    "~{0}",
    "{0} ({0:.0%})",
    "{1} percent",
]
HARMLESS = ["", "My confidence is ", "I'd say ", "roughly ", "about ", "= ", "$"]
HARMFUL = ["maybe not ", "at least ", "not ", "1 - ", ">", "±", "-", "one minus "]
AFTER = """
    |(I am sure)|because it is known|, since 1789|— the capital|[1]|or so|.|!|(not 0.1)|± 0.05|+|%|x|out of 1|/ 1
    |/ 10|or more|,5|^2|:1|k|million|wrong
"""


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.1, 0.5, 0.95, 1.0])
def test_text_around_a_number_never_changes_it(share):
    written = [form.format(share, round(100 * share)) for form in FORMS]
    after = [joint + text for text in map(str.strip, AFTER.split("|")) for joint in ("", " ")]
    read = [read_probability(before + number + text) for before in HARMLESS for number in written for text in after]
    assert {found for found in read if isinstance(found, float)} == {share}
    assert sum(isinstance(found, float) for found in read) > len(read) / 5
    turned = [read_probability(before + number + text) for before in HARMFUL for number in written for text in after]
    assert all(isinstance(found, Malformed) for found in turned)


@given(st.one_of(st.text(), st.lists(st.sampled_from([*PIECES, *WORDS]), max_size=8).map("".join)))
def test_never_outside_and_never_an_error(text):
    for is_cut in (False, True):
        found = read_probability(text, is_cut=is_cut)
        assert isinstance(found, Malformed) or 0 <= found <= 1


@given(st.decimals(0, 1, places=3), st.decimals(0, 1, places=3), st.sampled_from([" ", ", ", " or ", " to ", "-", "/"]))
def test_two_numbers_are_never_a_third(one, two, between):
    """Whatever is between two numbers, the result is one of them, and only if they are equal or a fraction."""
    found = read_probability(f"{one}{between}{two}")
    if isinstance(found, float) and between != "/":
        assert found == float(one)
        assert abs(one - two) <= max(one, two) / 50
