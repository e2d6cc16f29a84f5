"""Prompts that users write."""

import re

import pytest

from qacal import InputError
from qacal.sources.elicitation import Question, Reason, Refused, Reply, Stated
from qacal.sources.elicitation.prompt_files import PatternReader, load_prompt

QUESTION = Question("q", "Capital of France?")
BASE = 'name = "mine"\nversion = 1\n'


@pytest.fixture
def load(tmp_path):
    def loaded(text):
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return load_prompt(path)

    return loaded


def read(prompt, *texts, finish=None):
    return prompt.read([Reply(text, finish=finish) for text in texts])[0]


def test_a_whole_file(load):
    prompt = load(
        BASE
        + """
parser = "guess"
max_tokens = 60
system = "Be brief."
grammar = 'root ::= "x"'
template = '''
$question
Two lines: "Guess: ..." and "Probability: ...".'''

[[examples]]
question = "Capital of Italy?"
reply = '''
Guess: Rome
Probability: 0.99'''
"""
    )
    contents = [(message["role"], message["content"]) for message in prompt.messages(QUESTION)]
    asked = '\nTwo lines: "Guess: ..." and "Probability: ...".'
    assert contents == [
        ("system", "Be brief."),
        ("user", f"Capital of Italy?{asked}"),
        ("assistant", "Guess: Rome\nProbability: 0.99"),
        ("user", f"Capital of France?{asked}"),
    ]
    assert prompt.stages[0].max_tokens == 60
    assert prompt.grammar == 'root ::= "x"'
    assert read(prompt, "Guess: Paris\nProbability: 0.9") == Stated("Paris", 0.9)
    assert read(prompt, "Guess: Paris\nProbability: 0.9", finish="length").why == Reason.CUT


def test_identity_changes_with_the_text(load):
    one = load(BASE + 'parser = "guess"\ntemplate = "$question"')
    two = load(BASE + 'parser = "guess"\ntemplate = "Well: $question"')
    assert re.fullmatch(r"mine/1\+[0-9a-f]{8}", one.identity)
    assert one.identity != two.identity
    assert load('name = "mine"\nversion = "b"\nparser = "guess"\ntemplate = "$question"').identity.startswith("mine/b+")


def test_a_built_in_name_does_not_hide_another_text(load):
    prompt = load('name = "verb1s-top1"\nversion = 1\nparser = "guess"\ntemplate = "$question"')
    assert prompt.identity != "verb1s-top1/1"


def test_choices_are_at_their_place_or_at_the_end(load):
    question = Question("q", "Which?", choices=("a", "b"))
    placed = load(BASE + 'parser = "guess"\ntemplate = "Of $choices: $question"')
    assert placed.messages(question)[0]["content"] == 'Of ["a", "b"]: Which?'
    assert placed.messages(QUESTION)[0]["content"] == "Of : Capital of France?"
    after = load(BASE + 'parser = "guess"\ntemplate = "$question"')
    assert after.messages(question)[0]["content"].startswith("Which?\nThe answer must be chosen from")


def test_expressions(load):
    prompt = load(BASE + 'parser = "expression"\ntemplate = "$question"\n[expressions]\nSure = 0.9\n"Not Sure" = 0.3')
    assert read(prompt, "Guess: Paris\nConfidence: not sure") == Stated("Paris", 0.3)
    plain = load(BASE + 'parser = "expression"\ntemplate = "$question"')
    assert read(plain, "Guess: Paris\nConfidence: Likely") == Stated("Paris", 0.7)


def test_two_stages(load):
    prompt = load(BASE + 'parser = "probability"\ntemplate = "$question"\nfollowup = "How sure are you, 0 to 1?"')
    assert len(prompt.stages) == 2
    assert read(prompt, "Paris", "0.9") == Stated("Paris", 0.9)
    assert prompt.messages(QUESTION, [Reply("Paris")])[-1]["content"] == "How sure are you, 0 to 1?"


def test_a_regular_expression(load):
    prompt = load(BASE + "parser = '(?P<answer>.+?) @ (?P<confidence>\\S+)'\ntemplate = \"$question\"")
    assert read(prompt, "Paris @ 90%") == Stated("Paris", 0.9)
    assert read(prompt, "Paris @ 90%\nParis @ 0.9") == Stated("Paris", 0.9)
    assert read(prompt, "<think>Lyon @ 10%</think>Paris @ 90%") == Stated("Paris", 0.9)
    assert read(prompt, "Paris @ 9").why == Reason.UNCLEAR_NUMBER
    assert read(prompt, "Paris @ 90%\nLyon @ 10%").why == Reason.SEVERAL_GUESSES
    assert read(prompt, "Paris").why == Reason.NO_GUESS
    assert read(prompt, "Paris @ 90%", finish="length").why == Reason.CUT
    assert isinstance(read(prompt, "I'm sorry, I can't answer that."), Refused)


def test_groups_that_match_nothing():
    reader = PatternReader(r"(?P<answer>a)?b(?P<confidence>c)?")
    assert reader([Reply("b")])[0].why == Reason.NO_GUESS
    assert reader([Reply("ab")])[0].why == Reason.NO_CONFIDENCE


WRONG = {
    'version = 1\nparser = "guess"\ntemplate = "$question"': "there is no name",
    BASE + 'template = "$question"': "there is no parser",
    BASE + 'parser = "guess"': "there is no template",
    BASE + 'parser = "guess"\ntemplate = "Guess!"': r"put \$question into its template",
    BASE + 'parser = "guess"\ntemplate = "$question $x"': r"\$x",
    BASE + 'parser = "guess"\ntemplate = 3': "template is 3; expected str",
    BASE + 'parser = "guess"\ntemplate = "$question"\nmax_tokens = "many"': "max_tokens is 'many'; expected int",
    BASE + 'parser = "guess"\ntemplate = "$question"\nmax_tokens = true': "max_tokens is True; expected int",
    BASE + 'parser = "guess"\ntemplate = "$question"\ncolour = "red"': "colour is not known",
    BASE + 'parser = "gues"\ntemplate = "$question"': "'gues' is neither guess, expression nor probability",
    BASE + 'parser = "("\ntemplate = "$question"': "is not a regular expression",
    BASE + 'parser = "(?P<answer>.)"\ntemplate = "$question"': r"\(\?P<confidence>",
    BASE + 'parser = "probability"\ntemplate = "$question"': "followup",
    BASE + 'parser = "guess"\ntemplate = "$question"\nfollowup = "?"': "followup",
    BASE + 'parser = "guess"\ntemplate = "$question"\nexamples = [1]': "expected a question and a reply",
    BASE + 'parser = "guess"\ntemplate = "$question"\n[[examples]]\nquestion = "a"': "expected a question and a reply",
    BASE + 'parser = "guess"\ntemplate = "$question"\n[[examples]]\nquestion = "a"\nreply = 3': "expected texts",
    BASE + 'parser = "expression"\ntemplate = "$question"\n[expressions]\nSure = 3': "is worth 3",
    BASE + 'parser = "expression"\ntemplate = "$question"\n[expressions]\nSure = "x"': "is worth 'x'",
    "name = ": "cannot be read as a prompt",
}


@pytest.mark.parametrize("text", WRONG)
def test_invalid_files(load, text):
    with pytest.raises(InputError, match=rf"mine\.toml.*{WRONG[text]}"):
        load(text)


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"no\.toml cannot be read as a prompt"):
        load_prompt(tmp_path / "no.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(InputError, match=r"latin\.toml cannot be read as a prompt"):
        load_prompt(tmp_path / "latin.toml")
