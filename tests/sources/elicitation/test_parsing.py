"""Replies to the prompts, in all the forms that LLMs write."""

from qacal.sources.elicitation import Malformed, Reason, Refused, Stated, parse_guess, parse_stated
from qacal.sources.elicitation.reading.parsing import answer_place, parse_expression_guess, parse_guesses
from tests.tables import each

PARIS = Stated("Paris", 0.9)
SORRY = "I'm sorry, but I can't answer that."

STATED = {
    # as asked
    "Guess: Paris\nProbability: 0.9": PARIS,
    "Guess: Paris\n\nProbability: 0.9\n": PARIS,
    "Guess: Paris Probability: 0.9": PARIS,
    "guess: Paris\nprobability: 0.9": PARIS,
    "GUESS: Paris\nPROBABILITY: 90%": PARIS,
    "Guess:Paris\nProbability:.9": PARIS,
    "Guess : Paris\nProbability : 0.9": PARIS,
    "Guess = Paris\nProbability = 0.9": PARIS,
    "Guess - Paris\nProbability - 0.9": PARIS,
    "Guess: Paris\r\nProbability: 0.9\r\n": PARIS,
    "Guess:\tParis\nProbability:\t0.9": PARIS,
    "Guess：Paris\nProbability：０．９": PARIS,
    "Ｇｕｅｓｓ: Paris\nＰｒｏｂａｂｉｌｉｔｙ: ٠٫٩": PARIS,
    "Guess: Paris\u2028Probability: 0.9": PARIS,
    # in one line
    "Guess: Paris, Probability: 0.9": PARIS,
    "Guess: Paris; Probability: 0.9": PARIS,
    "Guess: Paris | Probability: 0.9": PARIS,
    "Guess: Paris (Probability: 0.9)": PARIS,
    "Guess: Paris, probability 0.9": PARIS,
    "Guess: Paris with probability of 90%": PARIS,
    "Guess: 0.5 Probability: 0.9": Stated("0.5", 0.9),
    "Guess: Washington D.C. Probability: 0.9": Stated("Washington D.C.", 0.9),
    # decorated
    "**Guess:** Paris\n**Probability:** 0.9": PARIS,
    "**Guess**: Paris\n**Probability**: 0.9": PARIS,
    "**Guess: Paris**\n**Probability: 0.9**": PARIS,
    "**Guess:** **Paris**\n**Probability:** **0.9**": PARIS,
    "*Guess:* Paris\n*Probability:* 0.9": PARIS,
    "__Guess:__ Paris\n__Probability:__ 0.9": PARIS,
    "`Guess: Paris`\n`Probability: 0.9`": PARIS,
    "```\nGuess: Paris\nProbability: 0.9\n```": PARIS,
    "```text\nGuess: Paris\nProbability: 0.9\n```": PARIS,
    "# Guess\nParis\n\n# Probability\n0.9": PARIS,
    "Guess:\nParis\nProbability:\n0.9": PARIS,
    "- Guess: Paris\n- Probability: 0.9": PARIS,
    "1. Guess: Paris\n2. Probability: 0.9": PARIS,
    "> Guess: Paris\n> Probability: 0.9": PARIS,
    'Guess: "Paris"\nProbability: "0.9"': PARIS,
    "Guess: “Paris”\nProbability: 0.9": PARIS,
    "Guess: <Paris>\nProbability: <0.9>": PARIS,
    "Guess: `Paris`\nProbability: `0.9`": PARIS,
    "My best guess: Paris\nProbability: 0.9": PARIS,
    "Guess: Paris\nProbability (0.0 to 1.0): 0.9": PARIS,
    "Guess: Paris\nProbability that it is correct: 0.9": PARIS,
    # JSON
    '{"guess": "Paris", "probability": 0.9}': PARIS,
    '{"Guess": "Paris", "Probability": "90%"}': PARIS,
    '```json\n{"guess": "Paris", "probability": 0.9}\n```': PARIS,
    '{"answer": "Paris", "confidence": 0.9}': PARIS,
    '{"guess": "a \\"b\\"\\n", "probability": 0.9, "why": [1, 2]}': Stated('a "b"', 0.9),
    '{"guess": 1984, "probability": 0.9}': Stated("1984", 0.9),
    "{'guess': 'Paris', 'probability': 0.9}": PARIS,
    '"guess": "Paris", "probability": 0.9': PARIS,
    'Here is my answer:\n```json\n{"guess": "Par\\u0069s", "probability": 0.9}\n```\nHope it helps!': PARIS,
    'Guess: {"guess": "Paris", "probability": 0.9}': PARIS,
    "Guess: {1, 2}\nProbability: 0.9": Stated("{1, 2}", 0.9),
    "Guess: {}\nProbability: 0.9": Stated("{}", 0.9),
    'Guess: {"answer": 3}\nProbability: 0.9': Stated('{"answer": 3}', 0.9),
    # other names
    "Answer: Paris\nConfidence: 0.9": PARIS,
    "Final answer: Paris\nConfidence: 90%": PARIS,
    "Answer: Paris\nLikelihood: 0.9": PARIS,
    "Answer: Paris\nConfidence score: 0.9": PARIS,
    "Answer: no idea\nGuess: Paris\nProbability: 0.9": PARIS,
    "G1: Paris\nP1: 0.9": PARIS,
    # several confidences that agree, and other sentences
    "Guess: Paris\nConfidence: high\nProbability: 0.9": PARIS,
    "Guess: Paris\nConfidence: 90%\nProbability: 0.9": PARIS,
    "Guess: Paris\nThere is a probability of 0.9 that it is correct.": PARIS,
    "Guess:\nParis with a probability of 0.9": PARIS,
    "A first guess: Lyon? No.\nAnswer: Paris\nConfidence: 0.9": PARIS,
    "Guess: Paris [probability = 90%]": PARIS,
    "Guess: Paris\u200bProbability: 0.9": PARIS,
    "Guess: Paris\nConfidence interval: 0.8-0.95\nProbability: 0.9": PARIS,
    "Guess: Paris<|im_end|>\nProbability: 0.9<|im_end|>": PARIS,
    "Guess: Paris</s>\nProbability: 0.9</s>": PARIS,
    # answers that look like something else
    "Guess: G20: the summit\nProbability: 0.9": Stated("G20: the summit", 0.9),
    "Guess: Crisis of Confidence: a speech\nProbability: 0.9": Stated("Crisis of Confidence: a speech", 0.9),
    "Guess: 1984\nProbability: 0.9": Stated("1984", 0.9),
    "Guess: 0.9\nProbability: 0.5": Stated("0.9", 0.5),
    "Guess: 50%\nProbability: 0.9": Stated("50%", 0.9),
    "Guess: one half (0.5)\nProbability: 0.9": Stated("one half (0.5)", 0.9),
    "Guess: The Probability Broach\nProbability: 0.9": Stated("The Probability Broach", 0.9),
    "Guess: Probability\nProbability: 0.9": Stated("Probability", 0.9),
    "Guess: Answer: a history\nProbability: 0.9": Stated("Answer: a history", 0.9),
    "Guess: 10:30\nProbability: 0.9": Stated("10:30", 0.9),
    "Guess: [1, 2, 3]\nProbability: 0.9": Stated("[1, 2, 3]", 0.9),
    "Guess: C++\nProbability: 0.9": Stated("C++", 0.9),
    "Guess: Ελλάδα\nProbability: 0.9": Stated("Ελλάδα", 0.9),
    "Guess: 東京\nProbability: 0.9": Stated("東京", 0.9),
    "Guess: Sorry\nProbability: 0.9": Stated("Sorry", 0.9),
    "Guess: I Can't Help Myself\nProbability: 0.9": Stated("I Can't Help Myself", 0.9),
    "Guess: I'm Sorry\nProbability: 0.9": Stated("I'm Sorry", 0.9),
    "Guess: I Can't Tell You Why\nProbability: 0.9": Stated("I Can't Tell You Why", 0.9),
    "Guess: __init__\nProbability: 0.9": Stated("__init__", 0.9),
    "Guess: <br>\nProbability: 0.9": Stated("<br>", 0.9),
    "Guess: *args\nProbability: 0.9": Stated("*args", 0.9),
    "Guess: -5\nProbability: 0.9": Stated("-5", 0.9),
    "Guess: x > 5\nProbability: 0.9": Stated("x > 5", 0.9),
    "Guess: None\nProbability: 0.9": Stated("None", 0.9),
    "Guess: \"Heroes\" and 'Low'\nProbability: 0.9": Stated("\"Heroes\" and 'Low'", 0.9),
    "Guess:\n- red\n- blue\nProbability: 0.9": Stated("- red\n- blue", 0.9),
    # "I don't know" with a number is an answer
    "Guess: I don't know\nProbability: 0.0": Stated("I don't know", 0.0),
    "Guess: Unknown\nProbability: 0": Stated("Unknown", 0.0),
    # with text around it
    "Sure! Here you go.\n\nGuess: Paris\nProbability: 0.9": PARIS,
    "Guess: Paris\nProbability: 0.9\n\nExplanation: capital since 987.": PARIS,
    "Guess: Paris\nProbability: 0.9\n\nParis has been the capital since 987.": PARIS,
    "Guess: Paris\nExplanation: it is.\nProbability: 0.9": PARIS,
    "Guess: Paris\n\nIt is the capital.\n\nProbability: 0.9": PARIS,
    "Guess:\n\nParis\n\nIt is the capital.\n\nProbability: 0.9": PARIS,
    "Explanation: my guess: Lyon? No.\nGuess: Paris\nProbability: 0.9": PARIS,
    "My first guess: Lyon, probability: 0.2.\nGuess: Paris\nProbability: 0.9": PARIS,
    "I'm sorry for the wait. Guess: Paris\nProbability: 0.9": PARIS,
    "<think>Guess: Lyon\nProbability: 0.1</think>\nGuess: Paris\nProbability: 0.9": PARIS,
    "<thinking>0.1?</thinking>Guess: Paris\nProbability: 0.9": PARIS,
    "Lyon? No.</think>\n\nGuess: Paris\nProbability: 0.9": PARIS,
    "Probability: 0.9\nGuess: Paris": PARIS,
    "Guess: Paris\nProbability: 1\n\nParis has long been the capital.": Stated("Paris", 1.0),
    "Guess: Paris\nProbability: 0.9\n(90%)": PARIS,
    # twice the same
    "Guess: Paris\nProbability: 0.9\nGuess: Paris\nProbability: 0.9": PARIS,
    "Guess: Paris\nProbability: 0.9\nGuess: paris.\nProbability: 90%": PARIS,
    "Guess: Guess: Paris\nProbability: 0.9": PARIS,
    "Guess: Paris\nProbability: 0.9 (90%)": PARIS,
}

NOT_STATED = {
    "": Reason.EMPTY,
    " \n\t": Reason.EMPTY,
    "<think>Guess: Paris\nProbability: 0.9": Reason.THINKING,
    "Let me see.\n<think>Guess: Paris": Reason.THINKING,
    "None": Reason.NO_GUESS,
    "null": Reason.NO_GUESS,
    "{}": Reason.NO_GUESS,
    "[]": Reason.NO_GUESS,
    "Paris": Reason.NO_GUESS,
    "0.9": Reason.NO_GUESS,
    "Paris\n0.9": Reason.NO_GUESS,
    "Paris\nProbability: 0.9": Reason.NO_GUESS,
    "The capital is Paris. I am 90% sure.": Reason.NO_GUESS,
    "Guess: \nProbability: 0.9": Reason.NO_GUESS,
    "Guess:\nProbability:": Reason.NO_GUESS,
    "I guess Paris, with high confidence": Reason.NO_GUESS,
    '{"guess": "", "probability": 0.9}': Reason.NO_GUESS,
    '{"guess": ["Paris"], "probability": 0.9}': Reason.NO_GUESS,
    "[" * 5000: Reason.NO_GUESS,
    "Guess: Paris": Reason.NO_CONFIDENCE,
    "Guess: Paris (0.9)": Reason.NO_CONFIDENCE,
    "Guess: Paris\nUncertainty: 0.1": Reason.NO_CONFIDENCE,
    "Guess: Paris\nProbability of error: 0.1": Reason.NO_CONFIDENCE,
    "Guess: Paris\nProbability of being wrong: 0.1": Reason.NO_CONFIDENCE,
    "Guess: Paris\nProbability of Lyon: 0.1": Reason.NO_CONFIDENCE,
    "<guess>Paris</guess>\n<probability>0.9</probability>": Reason.NO_GUESS,
    "Guess: Paris\nProbability:": Reason.NO_CONFIDENCE,
    "Guess: Paris\nProbability: high": Reason.NO_CONFIDENCE,
    "Guess: Paris\nProbability: NaN": Reason.NO_CONFIDENCE,
    "Guess: Paris\nProbability: None": Reason.NO_CONFIDENCE,
    '{"guess": "Paris"}': Reason.NO_CONFIDENCE,
    '{"guess": "Paris", "probability": NaN}': Reason.NO_CONFIDENCE,
    '{"guess": "Paris", "probability": null}': Reason.NO_CONFIDENCE,
    "Guess: Paris\nGuess: Lyon\nProbability: 0.9": Reason.SEVERAL_GUESSES,
    "Guess: Paris\nProbability: 0.9\nGuess: Lyon\nProbability: 0.1": Reason.SEVERAL_GUESSES,
    "Guess: Paris. Probability: 0.9. Guess: Lyon.": Reason.SEVERAL_GUESSES,
    "Guess 1: Paris\nProbability 1: 0.9\nGuess 2: Lyon\nProbability 2: 0.1": Reason.SEVERAL_GUESSES,
    "G1: Paris\nP1: 0.9\nG2: Lyon\nP2: 0.1": Reason.SEVERAL_GUESSES,
    '{"guess": "Paris", "guess": "Lyon", "probability": 0.9}': Reason.SEVERAL_GUESSES,
    "Guess: Paris\nProbability: 0.9\nQuestion: What now?\nGuess: Rome\nProbability: 0.8": Reason.SEVERAL_GUESSES,
    "Guess: Paris\nProbability: 0.9\nProbability: 0.5": Reason.SEVERAL_CONFIDENCES,
    "Guess: Paris\nProbability: 0.9 or 0.5": Reason.SEVERAL_CONFIDENCES,
    "Guess: Paris\nProbability: 0.9\n0.5": Reason.SEVERAL_CONFIDENCES,
    "Guess: Paris\nConfidence: 0.9\nProbability: 0.8": Reason.SEVERAL_CONFIDENCES,
    'Guess: Lyon\nProbability: 0.1\n{"guess": "Paris", "probability": 0.9}': Reason.SEVERAL_GUESSES,
    "Guess: Paris Probability: 0.5\nProbability: 0.9": Reason.SEVERAL_CONFIDENCES,
    "Guess: Paris\nProbability: 0.9\nOr rather, probability: 0.5": Reason.SEVERAL_CONFIDENCES,
    '{"guess": "Paris", "probability": 0.9, "probability": 0.1}': Reason.SEVERAL_CONFIDENCES,
    "Guess: Paris\nProbability: 5": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 0.95%": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 0.": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 0.7-0.9": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: >0.9": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: between 0 and 1": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1.5": Reason.UNCLEAR_NUMBER,
    '{"guess": "Paris", "probability": 9}': Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1\n%": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1 \n percent": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 0.95\n%": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: **1**\n**%**": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1\nout of 10": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1\n/10": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1\n(on a scale of 1 to 10)": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1\n\nI used a scale from 1 to 10.": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1\nThat is one percent.": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 1 (low)": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 0.3 that it's Lyon": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 0.3 (chance it isn't Paris)": Reason.UNCLEAR_NUMBER,
    "Guess: Paris (probability 0.3 it is Lyon)": Reason.UNCLEAR_NUMBER,
    "Guess: Paris\nProbability: 150%": Reason.OUT_OF_RANGE,
    "Guess: Paris\nProbability: -0.2": Reason.OUT_OF_RANGE,
    '{"guess": "Paris", "probability": -1}': Reason.OUT_OF_RANGE,
    "Guess: <most likely guess>\nProbability: <the probability>": Reason.ECHO,
    "Guess: <most likely guess, as short as possible; not a complete sentence, just the guess!>": Reason.ECHO,
    "Guess: Paris\nProbability: <the probability between 0.0 and 1.0 that your guess is correct>": Reason.ECHO,
    "just the probability, without any extra commentary whatsoever! Guess: Paris\nProbability: 0.9": Reason.ECHO,
}

REFUSED = [
    SORRY,
    "I’m sorry, but I can’t answer that.",
    "Sorry, I can't help with that.",
    "I cannot answer this question.",
    "I can't provide a guess.",
    "I am unable to determine the answer.",
    "As an AI, I have no opinions.",
    "As a large language model, I cannot have a favourite.",
    "Unfortunately, I do not have enough information.",
    "I must decline.",
    "I apologize, but no.",
    "I don't know.",
    "I do not know the answer",
    "<think>hm</think>I cannot answer this.",
    f"Guess: {SORRY}\nProbability: 0.0",
    f"Guess: {SORRY}\nProbability: N/A",
    "Guess: I cannot answer\nProbability: 0",
    "Guess: I don't know",
    "Guess: Unknown\nProbability: N/A",
    '{"guess": "I cannot answer this question", "probability": 0}',
]


@each("text", STATED)
def test_stated(text):
    assert parse_guess(text) == STATED[text]
    assert parse_stated(text) == STATED[text]


@each("text", NOT_STATED)
def test_not_stated(text):
    found = parse_guess(text)
    assert isinstance(found, Malformed)
    assert found.why == NOT_STATED[text]
    assert isinstance(parse_stated(text), Malformed)


@each("text", REFUSED)
def test_refused(text):
    assert isinstance(parse_guess(text), Refused)
    assert isinstance(parse_stated(text), Refused)
    assert isinstance(parse_expression_guess(text), Refused)


@each("text", [text for text in REFUSED if "uess" not in text])
def test_a_refusal_refuses_every_guess(text):
    assert [type(outcome) for outcome in parse_guesses(text, 2)] == [Refused, Refused]


def test_quoted_replies_are_shortened():
    assert parse_guess("  No answer.  ") == Malformed(Reason.NO_GUESS, "No answer.")
    assert len(parse_guess("words " * 1000).said) == 200


@each("text", ["Guess: Paris\nProbability: 0.9", "Guess: Paris\nProbability: 0.", "Let me see: it", "Guess: Paris"])
def test_cut_at_the_end(text):
    assert parse_guess(text, is_cut=True).why == Reason.CUT


@each("text", ["Guess: Paris\nProbability: 0.9\n", "Guess: Paris\nProbability: 0.9\nBecause it"])
def test_cut_after_the_number(text):
    assert parse_guess(text, is_cut=True) == PARIS


@each("text", [text for text in STATED if "{" not in text or "}" not in text])
def test_the_span_of_an_answer_contains_it(text):
    place = answer_place(text, STATED[text].answer)
    assert place is not None
    assert text[slice(*place)] == STATED[text].answer


def test_the_span_begins_after_the_label():
    assert answer_place("Paris? Guess: Paris\nProbability: 0.9", "Paris") == (14, 19)
    assert answer_place("G1: Paris\nP1: 0.9\nG2: Par\nP2: 0.1", "Par") == (22, 25)
    assert answer_place('{"guess": "Paris", "probability": 0.9}', "Paris") == (11, 16)
    assert answer_place("Paris, or Paris", "Paris") is None
    assert answer_place('Paris? {"guess": "Paris", "probability": 0.9}', "Paris") == (18, 23)
    assert answer_place('{"guess": "Paris (0.9)"}', "Paris") == (11, 16)
    assert answer_place('{"guess": 1984, "probability": 0.9}', "1984") == (10, 14)
    assert answer_place('{"guess": "prob", "prob": 0.9}', "prob") == (11, 15)
    assert answer_place('{"guess": "0.9", "probability": 0.9}', "0.9") == (11, 14)
    assert answer_place("Paris", "Lyon") is None
    assert answer_place("Paris", "") is None


@each(
    "text",
    [
        r'{"guess": "\u0070rob", "prob": 0.9}',
        r'{"guess": "\u0070rob", "why": "prob", "p": 0.9}',
        r'{"why": "\"guess\": \"prob\"", "guess": "\u0070rob", "p": 0.9}',
        '[{"guess": "prob", "p": 0.9}, {"guess": "prob", "p": 0.1}]',
    ],
)
def test_an_escaped_answer_has_no_span(text):
    assert answer_place(text, "prob") is None
