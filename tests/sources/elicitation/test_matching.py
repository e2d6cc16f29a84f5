"""Which answers are one answer, and which only look alike."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.sources.elicitation import matches
from qacal.sources.elicitation.matching import normalise_answer
from tests.tables import each

SAME = [
    ("Paris", "paris"),
    ("Paris", " Paris. "),
    ("Paris", "“Paris”"),
    ("Paris", "**Paris**"),
    ("Paris", "<Paris>"),
    ("PARIS", "ｐａｒｉｓ"),
    ("Straße", "STRASSE"),
    ("café", "cafe\u0301"),
    ("The Beatles", "Beatles"),
    ("a dog", "dog"),
    ("an apple", "Apple"),
    ("Lord of the Rings", "The Lord of Rings"),
    ("New  York\nCity", "new york city"),
    ("New\u00a0York", "New York"),
    ("semi-final", "semi final"),
    ("Rubik's Cube", "Rubiks cube"),
    ("Rubik’s Cube", "Rubik's cube"),
    ("U.S.A.", "USA"),
    ("St. Louis", "St Louis"),
    ("Tom & Jerry", "Tom and Jerry"),
    ("12,345", "12345"),
    ("1,234,567.5", "1234567.5"),
    ("٤٢", "42"),
    ("４２", "42"),
    ("+5", "5"),
    (".5", "0.5"),
    ("−5", "-5"),
    ("5 %", "5%"),
    ("x²", "x^2"),
    ("½", "1/2"),
    ("Zhong\u200bguo", "Zhongguo"),
    ("‘The Raven’ by Poe", "The Raven, by Poe"),
    ("- Paris", "Paris"),
    ("— Paris", "Paris"),
    ("Paris — France", "Paris, France"),
    ("Paris—France", "Paris, France"),
    ("A dog", "dog"),
    ("A Beautiful Mind", "Beautiful Mind"),
    ("'5'", "5"),
    ('"5"', "5"),
    ('"-x"', "-x"),
    ("**-x**", "-x"),
    ("<-x>", "−x"),
    ("(-5)", "-5"),
    ("x = -y", "x=-y"),
    ("boys' choir", "boys choir"),
    ("rock 'n' roll", "rock n roll"),
    ("O'Brien", "O’Brien"),
    ("f′(x)", "f'(x)"),
    ("5′10″", "5'10\""),
    ("x ≤ 5", "x <= 5"),
    ("x / 2", "x/2"),
    ("Paris!", "Paris"),
    ("*Paris*", "Paris"),
    ("[Paris, France]", "Paris, France"),
    ("[0, 1)", "[0,1)"),
    ("O₂", "O2"),
    # A comma before three digits is far more often a thousands separator than a list.
    ("100,200", "100200"),
]

APART = [
    ("-5", "5"),
    ("3.14", "314"),
    ("3.14", "3 14"),
    ("0.5", "5"),
    ("1,5", "15"),
    ("5%", "5"),
    ("1/2", "12"),
    ("10:30", "1030"),
    ("10²", "102"),
    ("3½", "31/2"),
    ("1939-1945", "19391945"),
    ("C", "C++"),
    ("C", "C#"),
    ("C++", "C#"),
    ("A", "B"),
    ("A", "the"),
    ("vitamin A", "vitamin"),
    ("hepatitis A virus", "hepatitis virus"),
    ("A. B. Smith", "B. Smith"),
    ("$5", "5"),
    ("$5", "€5"),
    ("<", ">"),
    (".", ","),
    ("?", "!"),
    ("+", "-"),
    ("हिन्दी", "हन्दी"),
    ("5!", "5"),
    ("x-1", "x+1"),
    ("-x", "x"),
    ("−x", "x"),
    ('"-x"', "x"),
    ("-$5", "$5"),
    ("-√2", "√2"),
    ("-∞", "∞"),
    ("-(5)", "5"),
    ("- 5", "5"),
    ("-.5", ".5"),
    ("x=-y", "x=y"),
    ("x = -y", "x = y"),
    ("e^{-x}", "e^{x}"),
    ("(1, -x)", "(1, x)"),
    ("a!=b", "a=b"),
    ("a != b", "a = b"),
    ("≤5", "<5"),
    ("≥5", ">5"),
    ("n!", "n"),
    ("!x", "x"),
    ("A-", "A"),
    ("A-", "A+"),
    ("A-.", "A"),
    ("**A-**", "A"),
    ("A- blood", "A blood"),
    ("Cl-", "Cl"),
    ("Cl⁻", "Cl"),
    ("SO4^2-", "SO4^2"),
    ("5'10", "510"),
    ("5'10\"", "510"),
    ("5'", "5"),
    ("5'", '5"'),
    ("5′", "5″"),
    ("f'(x)", "f(x)"),
    ("f''(x)", "f'(x)"),
    ("y' = x", "y = x"),
    ("0,123", "123"),
    ("1,23", "123"),
    ("100,20", "10020"),
    ("100,2000", "1002000"),
    ("1,000, 2", "10002"),
    ("A B", "B"),
    ("A b", "b"),
    ("A 4", "4"),
    ("A minor", "minor"),
    ("A and B", "B"),
    ("x/2", "x*2"),
    ("x / 2", "x * 2"),
    ("2/3", "2*3"),
    ("$-x$", "$x$"),
    ("y= - x", "y= x"),
    ("a; -b", "a; b"),
    ("x or -x", "x or x"),
    ("5 -x", "5 x"),
    ("A*", "A"),
    ("[0, 1]", "(0, 1)"),
    ("[0, ∞)", "(0, ∞)"),
    ("(n)!", "n"),
    ("Fe2+", "Fe3+"),
    ("e+", "e-"),
    ("±5", "5"),
    ("a≠b", "a=b"),
    ("a≥b", "a>b"),
    ("5'000", "5000"),
]


@each("one, two", SAME)
def test_answers_that_match(one, two):
    assert normalise_answer(one) == normalise_answer(two)
    assert matches(one, ["something else", two])


@each("one, two", APART)
def test_answers_that_do_not_match(one, two):
    assert normalise_answer(one) != normalise_answer(two)
    assert not matches(one, [two])


@each("text", ["The", "a", "AN", ".", "...", "C++", "A", "?", "-", "the the", "*", "<>", "_", "'"])
def test_normalised_answers_are_not_empty(text):
    assert normalise_answer(text)


def test_empty_answers_do_not_match():
    assert normalise_answer(" \n") == ""
    assert not matches("", ["", " "])
    assert not matches("Paris", [])
    assert matches("Paris", "Paris")


@given(st.text())
def test_case_and_space_never_matter(text):
    found = normalise_answer(text)
    assert normalise_answer(f"  {text}\n") == found
    assert found or not text.isascii() or not text.strip()
    assert found == " ".join(found.split())


@given(st.integers(-(10**12), 10**12))
def test_equal_numbers_match(number):
    assert normalise_answer(f"{number:,}") == normalise_answer(str(number)) == str(number)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_different_numbers_stay_different(one, two):
    assert matches(f"{one}", [f"{two}"]) == (one == two)
    assert matches(f"{one / 100}", [f"{two / 100}"]) == (one == two)


@each(
    "answer, truths, question, is_right",
    [
        ("The capital of Peru is Lima.", ["Lima"], "What is the capital of Peru?", True),
        ("the capital of peru is the Lima", ["Lima"], "What is the capital of Peru?", True),
        ("The capital of Peru is not Lima.", ["Lima"], "What is the capital of Peru?", False),
        ("The capital of Chile is Lima.", ["Lima"], "What is the capital of Peru?", False),
        ("The capital of Peru is Lima or Cusco", ["Lima"], "What is the capital of Peru?", False),
        ("The capital of Peru is Lima.", ["Lima"], None, False),
        ("Lima", ["Lima"], "What is the capital of Peru?", True),
        ("A young lion is called a cub.", ["cub"], "What is a young lion called?", True),
        ("Young lion is called a cub.", ["cub"], "What is a young lion called?", True),
        ("A young lion is a cub.", ["cub"], "What is a young lion called?", False),
        (
            "The currency of Poland is the Polish Zloty (PLN).",
            ["Polish zloty", "PLN"],
            "What is the currency of Poland?",
            True,
        ),
        ("Polish Zloty (EUR)", ["Polish zloty", "PLN"], None, False),
        ("Paris (Texas)", ["Paris"], None, False),
        ("D.H. Lawrence", ["D. H. Lawrence"], None, True),
        ("J. R. R. Tolkien", ["J.R.R. Tolkien"], None, True),
        ("A B", ["AB"], None, False),
    ],
)
def test_answers_that_repeat_the_question_or_say_it_twice(answer, truths, question, is_right):
    assert matches(answer, truths, question) is is_right


def seconds(answer):
    """Return the CPU time of a comparison, the best of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        matches(answer, ["Paris"], "What is it?")
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize(("start", "part"), [("", " "), ("", "7"), ("", "a"), ("", "A. "), ("x (", " "), ("x", "( ")])
def test_comparison_takes_linear_time(start, part):
    """Four times the length takes four times as long; with blanks it once took sixteen times as long."""
    short, long = (seconds(start + part * (length // len(part))) for length in (5_000, 20_000))
    assert long < 9 * short + 0.01
