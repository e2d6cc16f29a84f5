"""The prompts: the paper's words, their turns, and how replies are read."""

import math
import re
from dataclasses import replace

import pytest

from qacal import InputError
from qacal.sources.elicitation import (
    PROMPTS,
    Malformed,
    Prompt,
    Question,
    Reason,
    Refused,
    Reply,
    Stage,
    Stated,
    prompt_named,
)
from qacal.sources.elicitation.prompts import VERB1S_EXAMPLES, VERB1S_GRAMMAR
from qacal.sources.elicitation.reply import Token
from tests.tables import each

FRANCE = Question("q1", "What is the capital of France?")
COLOUR = Question("q2", "Which is a colour?", choices=("red", "two, or three", 'a "b"'))

# Typed from the tables of the paper.
SAID = {
    "verb1s-top1": "Provide your best guess and the probability that it is correct (0.0 to 1.0) for the following "
    "question. Give ONLY the guess and probability, no other words or explanation. For example: Guess: <most likely "
    "guess, as short as possible; not a complete sentence, just the guess!> Probability: <the probability between 0.0 "
    "and 1.0 that your guess is correct, without any extra commentary whatsoever; just the probability!> The question "
    "is: What is the capital of France?.",
    "verb1s-top3": "Provide your three best guesses and the probability that each is correct (0.0 to 1.0) for the "
    "following question. Give ONLY the guesses and probabilities, no other words or explanation. For example: G1: "
    "<first most likely guess, as short as possible; not a complete sentence, just the guess!> P1: <the probability "
    "between 0.0 and 1.0 that G1 is correct, without any extra commentary whatsoever; just the probability!> ... G3: "
    "<third most likely guess, as short as possible; not a complete sentence, just the guess!> P3: <the probability "
    "between 0.0 and 1.0 that G3 is correct, without any extra commentary whatsoever; just the probability!>. The "
    "question is: What is the capital of France?",
    "ling1s-top1": "Provide your best guess for the following question, and describe how likely it is that your guess "
    "is correct as one of the following expressions: Almost No Chance, Highly Unlikely, Chances Are Slight, Little "
    "Chance, Unlikely, Probably Not, About Even, Better Than Even, Likely, Probably, Very Good Chance, Highly Likely, "
    "Almost Certain. Give ONLY the guess and your confidence, no other words or explanation. For example: Guess: <most "
    "likely guess, as short as possible; not a complete sentence, just the guess!> Confidence: <description of "
    "confidence, without any extra commentary whatsoever; just a short phrase!> The question is: What is the capital "
    "of France?",
}
ADDED = (
    "The answer must be chosen from the following list of size 3: "
    '["red", "two, or three", "a \\"b\\""]. '
    "Only the actual answer (not the choice number or index) from the list should be used in the response."
)


@each("name", SAID)
def test_words_of_the_paper(name):
    messages = prompt_named(name).messages(FRANCE)
    assert [message["role"] for message in messages] == ["user"]
    assert messages[0]["content"].split() == SAID[name].split()


@each("label", ["Guess", "Probability", "The question is"])
def test_labels_begin_lines(label):
    assert f"\n{label}:" in prompt_named("verb1s-top1").stages[0].template


def test_two_best_guesses_need_no_ellipsis():
    said = prompt_named("verb1s-top2").messages(FRANCE)[0]["content"]
    assert said.startswith("Provide your two best guesses")
    assert "..." not in said
    assert "G2: <second most likely guess" in said


def test_twenty_best_guesses():
    said = prompt_named("verb1s-top20").messages(FRANCE)[0]["content"]
    assert said.startswith("Provide your twenty best guesses")
    assert "G20: <twentieth most likely guess" in said


@each("name", PROMPTS)
def test_choices_follow_the_question_once(name):
    prompt = prompt_named(name)
    replies = [Reply("Guess: red")] * (len(prompt.stages) - 1)
    messages = prompt.messages(COLOUR, replies)
    asked = messages[2 * len(prompt.examples)]
    assert asked["content"].endswith(ADDED)
    assert sum(message["content"].count("The answer must be chosen") for message in messages) == 1


@pytest.mark.parametrize("name", ["verb2s-top1", "p-true"])
def test_the_second_stage_has_the_first_before_it(name):
    prompt = prompt_named(name)
    first = prompt.messages(FRANCE)
    second = prompt.messages(FRANCE, [Reply("<think>Lyon?</think>\nGuess: Paris")])
    assert second[0] == first[0]
    assert second[1] == {"role": "assistant", "content": "Guess: Paris"}
    assert second[2]["role"] == "user"
    assert len(second) == 3
    with pytest.raises(InputError, match="2 stages"):
        prompt.messages(FRANCE, [Reply("a"), Reply("b")])


def test_a_question_is_inserted_unchanged():
    """Placeholders in a question are not filled in."""
    odd = Question("q", "What does $question $choices $$ ${x} %s {y} mean?")
    said = prompt_named("verb1s-top1").messages(odd)[0]["content"]
    assert said.endswith(f"The question is: {odd.text}.")


def test_examples_are_turns():
    shown = (("2+2?", "Guess: 4\nProbability: 1.0"),)
    prompt = replace(prompt_named("verb1s-top1"), examples=shown, system="Be brief.")
    messages = prompt.messages(FRANCE)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[1]["content"] == messages[3]["content"].replace(FRANCE.text, "2+2?")
    assert messages[2]["content"] == "Guess: 4\nProbability: 1.0"


@each("reply", [reply for _, reply in VERB1S_EXAMPLES])
def test_examples_have_the_requested_form(reply):
    outcome = prompt_named("verb1s-top1").read([Reply(reply)])[0]
    assert isinstance(outcome, Stated)
    assert re.fullmatch(grammar_as_regex(), reply)


def test_identity_is_name_and_version():
    assert prompt_named("verb1s-top1").identity == "verb1s-top1/1"
    assert len({prompt.identity for prompt in PROMPTS.values()}) == len(PROMPTS) == 24
    assert len({prompt.digest for prompt in PROMPTS.values()}) == len(PROMPTS)


def test_another_text_is_another_identity():
    known = prompt_named("verb1s-top1")
    changes = [
        replace(known, stages=(Stage(known.stages[0].template + " Be brief."),)),
        replace(known, examples=(("2+2?", "Guess: 4\nProbability: 1.0"),)),
        replace(known, system="Be brief."),
        replace(known, grammar=VERB1S_GRAMMAR),
    ]
    assert all(re.fullmatch(r"verb1s-top1/1\+[0-9a-f]{8}", changed.identity) for changed in changes)
    assert len({changed.identity for changed in changes}) == 4
    assert replace(known, stages=(replace(known.stages[0], max_tokens=7),)).identity == known.identity


def test_unknown_names_list_the_known_ones():
    for name in ("verb1s", "verb1s-top21", "verb1s-top0", "judge", ""):
        with pytest.raises(
            InputError, match="verb1s-top2 to verb1s-top20, verb1s-guided, ling1s-top1, verb2s-top1, p-true"
        ):
            prompt_named(name)


def test_reading():
    def read(name, *texts):
        return prompt_named(name).read([Reply(text) for text in texts])

    assert read("verb1s-top1", "Guess: Paris\nProbability: 0.9") == (Stated("Paris", 0.9),)
    assert read("ling1s-top1", "Guess: Paris\nConfidence: likely") == (Stated("Paris", 0.7),)
    several = read("verb1s-top2", "G1: Paris\nP1: 0.9\nG2: Lyon\nP2: 0.1")
    assert several == (Stated("Paris", 0.9), Stated("Lyon", 0.1))
    assert read("verb2s-top1", "Guess: Paris", "Probability: 0.9") == (Stated("Paris", 0.9),)


def test_reading_what_was_cut():
    whole, cut = Reply("Guess: Paris\nProbability: 0.9"), Reply("Guess: Paris\nProbability: 0.9", finish="length")
    assert isinstance(prompt_named("verb1s-top1").read([whole])[0], Stated)
    assert prompt_named("verb1s-top1").read([cut])[0].why == Reason.CUT
    assert prompt_named("verb2s-top1").read([Reply("Guess: Par", finish="length"), whole])[0].why == Reason.CUT
    assert prompt_named("verb2s-top1").read([whole, Reply("0.9", finish="length")])[0].why == Reason.CUT


@pytest.mark.parametrize(
    "reply",
    [Reply("", refusal="I can't."), Reply("", finish="content_filter"), Reply("I'm sorry, I can't answer that.")],
)
@pytest.mark.parametrize("name", PROMPTS)
def test_a_refusal_is_one_for_every_row(name, reply):
    prompt = prompt_named(name)
    found = prompt.read([reply] * len(prompt.stages))
    assert [type(outcome) for outcome in found] == [Refused] * prompt.guesses


def test_replies_have_to_be_as_many_as_stages():
    with pytest.raises(InputError, match="1 stages; got 2 replies"):
        prompt_named("verb1s-top1").read([Reply("a"), Reply("b")])


def said_true(*listed):
    alternatives = tuple((text, math.log(p)) for text, p in listed)
    return Reply(listed[0][0], (Token(*alternatives[0], alternatives),))


def test_p_true_is_the_share_of_true():
    prompt, answer = prompt_named("p-true"), Reply("Guess: Paris")
    found = prompt.read([answer, said_true(("True", 0.6), ("False", 0.2), ("Yes", 0.1))])[0]
    assert found == Stated("Paris", pytest.approx(0.75))
    assert prompt.read([answer, said_true(("Yes", 0.9))])[0].why == Reason.NEITHER_TRUE_NOR_FALSE
    assert prompt.read([answer, Reply("True")])[0].why == Reason.NO_LOGPROBS
    assert prompt.read([Reply(""), said_true(("True", 0.6))])[0].why == Reason.EMPTY
    assert prompt.stages[1].alternatives == 20


def test_a_custom_reader():
    prompt = Prompt("mine", "a", (Stage("$question"),), lambda replies: (Stated(replies[0].text, 0.5),))
    assert prompt.read([Reply("Paris")]) == (Stated("Paris", 0.5),)
    assert re.fullmatch(r"mine/a\+[0-9a-f]{8}", prompt.identity)


@each(
    "stages, problem",
    [
        ((), "has no stages"),
        ((Stage("Guess!"),), r"put \$question into its template"),
        ((Stage("$question $answer"),), r"\$answer"),
        ((Stage("$Question"),), r"\$Question"),
    ],
)
def test_invalid_prompts(stages, problem):
    with pytest.raises(InputError, match=problem):
        Prompt("mine", 1, stages, tuple)


def test_dollars_that_name_nothing_stay():
    assert Stage("It costs $5. $question").filled(FRANCE) == f"It costs $5. {FRANCE.text}"


PIECE = re.compile(r'"(?P<text>[^"]*)"|(?P<range>\[[^\]]*\])|(?P<name>[a-z]+)|(?P<sign>\{\d+,\d+\}|[|?])|[ ]')


def grammar_rules():
    return dict(line.split(" ::= ") for line in VERB1S_GRAMMAR.strip().splitlines())


def grammar_as_regex(rule="root"):
    """Return a grammar rule as a regular expression; unknown notation is an error."""
    body, pattern, at = grammar_rules()[rule], "", 0
    while at < len(body):
        piece = PIECE.match(body, at)
        at = piece.end()
        if piece["text"] is not None:
            pattern += re.escape(piece["text"].replace("\\n", "\n"))
        elif piece["name"]:
            pattern += f"(?:{grammar_as_regex(piece['name'])})"
        else:
            pattern += piece["range"] or piece["sign"] or ""
    return pattern


def test_the_grammar_is_complete():
    assert list(grammar_rules()) == ["root", "guess", "probability"]
    used = [piece["name"] for piece in PIECE.finditer(" ".join(grammar_rules().values())) if piece["name"]]
    assert used == ["guess", "probability"]


@pytest.mark.parametrize("guess", ["P", "Paris", "x" * 60, "a b", "Ελλάδα"])
@pytest.mark.parametrize("probability", ["0.0", "0.9", "0.95", "1.0"])
def test_texts_that_the_grammar_allows_are_read(guess, probability):
    text = f"Guess: {guess}\nProbability: {probability}"
    assert re.fullmatch(grammar_as_regex(), text)
    assert prompt_named("verb1s-top1").read([Reply(text)]) == (Stated(guess, float(probability)),)


@each(
    "text",
    ["Guess: \nProbability: 0.9", "Guess: a\nb\nProbability: 0.9", f"Guess: {'x' * 61}\nProbability: 0.9"]
    + [f"Guess: a\nProbability: {said}" for said in ("0.", "1.5", "90%", "0.955", "1", "0.9 ")],
)
def test_texts_that_the_grammar_forbids(text):
    assert not re.fullmatch(grammar_as_regex(), text)


def test_malformed_replies_say_why():
    found = prompt_named("verb1s-top1").read([Reply("Paris")])[0]
    assert found == Malformed(Reason.NO_GUESS, "Paris")
