"""Confidences of chat completions, read without sending anything."""

import subprocess
import sys

import pytest

import qacal
from qacal.errors import InputError
from qacal.sources.completions import Gathered, Plan, Read
from qacal.sources.elicitation.reply import Reply

ASK = {"model": "parrot-1", "messages": [{"role": "user", "content": "2 + 2?"}]}


def read(plan, text, *seconds):
    """Return what a reply says, and the second questions, which `seconds` answer."""
    reading, asked = plan.reading(Reply(text)), []
    try:
        asked.append(next(reading))
        for second in seconds:
            asked.append(reading.send(None if second is None else Reply(second)))
    except StopIteration as end:
        return end.value, asked
    raise AssertionError("not all questions were answered")


def test_the_second_question_is_about_the_visible_answer():
    found, (asked,) = read(Plan(ASK, ("stated",)), "<think>5? no</think>\n4", "0.9")
    assert found == Read("4", 0.9, "stated")
    assert asked["messages"][1] == {"role": "assistant", "content": "4"}


def test_sources_are_tried_in_order():
    found, asked = read(Plan(ASK, ("tokens", "p(true)", "stated")), "4", "maybe", None)
    assert found.confidence is None
    assert found.reason == (
        "there are no token probabilities; the second question: there are no token probabilities; "
        "the second question has no answer"
    )
    assert [one.get("top_logprobs") for one in asked] == [20, None]


def test_a_reasoning_llm_gets_no_other_limit():
    _, (asked,) = read(Plan({**ASK, "max_completion_tokens": 900}, ("stated",)), "4", "0.9")
    assert asked["max_completion_tokens"] == 900
    assert not {"max_tokens", "temperature"} & {*asked}


def test_thoughts_without_an_answer_are_no_answer():
    found, asked = read(Plan(ASK, ("stated",)), "<think>4, or 5")
    assert found.reason == "the reply ends within the LLM's thoughts"
    assert asked == []


def test_a_stream_of_thoughts_and_refusals_is_gathered():
    gathered = Gathered()
    for delta in ({"role": "assistant"}, {"reasoning_content": "hm"}, {"refusal": "No"}, {"refusal": "."}, None):
        gathered.add({"model": "m", "choices": [{"delta": delta}]})
    gathered.add({"choices": []})
    assert (gathered.reply.refusal, gathered.reply.text, gathered.reply.model) == ("No.", "<think>hm", "m")


@pytest.mark.parametrize("client", [None, object(), "openai"])
def test_only_clients_of_openai_are_wrapped(client):
    with pytest.raises(InputError, match=r"expected an openai\.OpenAI or openai\.AsyncOpenAI"):
        qacal.calibrated(client, "model")


def test_the_wrapper_loads_neither_openai_nor_the_service():
    code = (
        "import sys, qacal; qacal.calibrated; "
        "assert not [n for n in sys.modules if n.partition('.')[0] in ('openai', 'fastapi', 'httpx2')]; "
        "assert 'qacal.service' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
