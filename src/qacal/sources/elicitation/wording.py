"""The words of the prompts, as the paper prints them in its tables "Prompts used" and "Important variables".

Only LaTeX was mended. Where the tables set a wide space there is a line break: a cell of a table cannot show one, and
Tian et al. (2023), from whom the forms come, have it there. Prompts of two stages are put together from the same words.
"""

from __future__ import annotations

from collections.abc import Mapping

_GUESS = "<{rank}most likely guess, as short as possible; not a complete sentence, just the guess!>"
_PROBABILITY = (
    "<the probability between 0.0 and 1.0 that {guess} is correct, without any extra commentary whatsoever; just the "
    "probability!>"
)
_NUMBERS = """
    one/first two/second three/third four/fourth five/fifth six/sixth seven/seventh eight/eighth nine/ninth ten/tenth
    eleven/eleventh twelve/twelfth thirteen/thirteenth fourteen/fourteenth fifteen/fifteenth sixteen/sixteenth
    seventeen/seventeenth eighteen/eighteenth nineteen/nineteenth twenty/twentieth
"""
_COUNTS, _RANKS = zip(*(pair.split("/") for pair in _NUMBERS.split()), strict=True)

VERB1S = (
    "Provide your best guess and the probability that it is correct (0.0 to 1.0) for the following question. Give ONLY "
    "the guess and probability, no other words or explanation. For example:\n"
    f"Guess: {_GUESS.format(rank='')}\n"
    f"Probability: {_PROBABILITY.format(guess='your guess')}\n"
    "The question is: $question."
)

GUESS_ONLY = (
    "Provide your best guess for the following question. Give ONLY the guess, no other words or explanation. For "
    f"example:\nGuess: {_GUESS.format(rank='')}\n"
    "The question is: $question."
)

HOW_LIKELY = (
    "How likely is it that your guess is correct? Give ONLY the probability (0.0 to 1.0), no other words or "
    f"explanation. For example:\nProbability: {_PROBABILITY.format(guess='your guess')}"
)

TRUE_OR_FALSE = "Is your guess correct? Answer with a single word, either True or False."

CHOICES = (
    "The answer must be chosen from the following list of size {size}: {choices}. Only the actual answer (not the "
    "choice number or index) from the list should be used in the response."
)

JUDGE = (
    "Do following two answers to my question Q agree with each other? Q: {question}, A1: {answer}, A2: {truth}. Please "
    'answer with a single word, either "Yes." or "No.", and explain your reasoning.'
)


def verb1s_topk(count: int) -> str:
    """Return the prompt that asks for several guesses.

    >>> print(verb1s_topk(3)[:46])
    Provide your three best guesses and the probab
    """
    between = "\n...\n" if count > 2 else "\n"
    return (
        f"Provide your {_COUNTS[count - 1]} best guesses and the probability that each is correct (0.0 to 1.0) for the "
        "following question. Give ONLY the guesses and probabilities, no other words or explanation. For example:\n"
        f"{_pair(1)}{between}{_pair(count)}.\nThe question is: $question"
    )


def ling1s(expressions: Mapping[str, float]) -> str:
    """Return the prompt that asks for a confidence in words.

    >>> "expressions: Unlikely, Likely. Give" in ling1s({"Unlikely": 0.2, "Likely": 0.7})
    True
    """
    return (
        "Provide your best guess for the following question, and describe how likely it is that your guess is correct "
        f"as one of the following expressions: {', '.join(expressions)}. Give ONLY the guess and your confidence, no "
        f"other words or explanation. For example:\nGuess: {_GUESS.format(rank='')}\n"
        "Confidence: <description of confidence, without any extra commentary whatsoever; just a short phrase!>\n"
        "The question is: $question"
    )


def _pair(number: int) -> str:
    rank = f"{_RANKS[number - 1]} "
    return f"G{number}: {_GUESS.format(rank=rank)}\nP{number}: {_PROBABILITY.format(guess=f'G{number}')}"
