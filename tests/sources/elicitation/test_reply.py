"""Bodies of chat completions, valid and broken."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError
from qacal.sources.elicitation import Question, Reply
from qacal.sources.elicitation.reply import Token
from tests.tables import each


def body(content="Guess: 4", finish="stop", logprobs=None, **message):
    message = {"role": "assistant", "content": content, **message}
    return {
        "object": "chat.completion",
        "choices": [{"message": message, "finish_reason": finish, "logprobs": logprobs}],
    }


def test_a_body_as_servers_send_it():
    listed = [{"token": "4", "logprob": -0.1, "bytes": [52]}, {"token": "5", "logprob": -2.5, "bytes": [53]}]
    content = [
        {"token": "Guess: ", "logprob": 0.0, "bytes": None, "top_logprobs": []},
        {"token": "4", "logprob": -0.1, "bytes": [52], "top_logprobs": listed, "id": 17},
    ]
    reply = Reply.from_body(body(logprobs={"content": content, "refusal": None}, refusal=None, reasoning="..."))
    assert reply == Reply(
        "Guess: 4", (Token("Guess: ", 0.0), Token("4", -0.1, (("4", -0.1), ("5", -2.5)), b"4")), "stop"
    )
    assert not reply.is_cut


@each(
    "content, text",
    [
        (None, ""),
        (7, ""),
        ("", ""),
        ([{"type": "text", "text": "Guess: "}, {"type": "text", "text": "4"}], "Guess: 4"),
        ([{"type": "image"}, "4"], "4"),
    ],
)
def test_contents(content, text):
    assert Reply.from_body(body(content)).text == text


@each(
    "logprobs",
    [
        None,
        [],
        {},
        {"content": None},
        {"content": []},
        {"content": "x"},
        {"content": [{"logprob": -1}]},
        {"content": [{"token": "Guess: 4", "logprob": -1}, None]},
        {"content": [{"token": "Guess: 4", "logprob": -1}, {"token": 4, "logprob": -1}]},
    ],
)
def test_logprobs_are_complete_or_none(logprobs):
    assert Reply.from_body(body(logprobs=logprobs)).tokens is None


@each("logprob", [None, "x", True, [1]])
def test_a_token_without_a_probability(logprob):
    reply = Reply.from_body(body(logprobs={"content": [{"token": "4", "logprob": logprob, "top_logprobs": 3}]}))
    assert math.isnan(reply.tokens[0].logprob)
    assert reply.tokens[0].alternatives == ()


@each("given_bytes", [None, [300], [-1], ["a"], [True], "ab"])
def test_invalid_bytes(given_bytes):
    reply = Reply.from_body(body(logprobs={"content": [{"token": "é", "logprob": -1, "bytes": given_bytes}]}))
    assert reply.tokens[0].raw is None
    assert reply.tokens[0].encoded == "é".encode()


def test_refusals_and_ends():
    assert Reply.from_body(body(None, refusal="I can't.")).refusal == "I can't."
    assert Reply.from_body(body(refusal="")).refusal is None
    assert Reply.from_body(body(finish="length")).is_cut
    assert Reply.from_body(body(finish="MAX_TOKENS")).is_cut
    assert Reply.from_body(body(finish=3)).finish is None


@each(
    "broken, got",
    [
        (None, "got None"),
        ("no", "got 'no'"),
        ([], r"got \[\]"),
        ({}, "no choices"),
        ({"choices": []}, "no choices"),
        ({"choices": None}, "no choices"),
        ({"choices": ["x"]}, "no choices"),
        ({"choices": [{}]}, "no message"),
        ({"choices": [{"text": "old"}]}, "no message.*old"),
        ({"error": {"message": "overloaded", "code": 529}}, "got the error 'overloaded'"),
        ({"error": "overloaded"}, "got the error 'overloaded'"),
        ({"object": "list", "data": ["x" * 1000]}, "…"),
    ],
)
def test_bodies_that_are_not_completions(broken, got):
    with pytest.raises(InputError, match=got):
        Reply.from_body(broken)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "logprobs", "token", "logprob", "bytes", "top_logprobs", "error"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(plain, plain, plain)
def test_no_body_raises_another_error(one, two, three):
    bodies = [one, {"choices": [one]}, {"choices": [{"message": one, "logprobs": two, "finish_reason": three}]}]
    bodies.append(
        body(one, two, {"content": [three, {"token": "a", "logprob": one, "bytes": two, "top_logprobs": [three]}]})
    )
    for some in bodies:
        try:
            reply = Reply.from_body(some)
        except InputError:
            continue
        assert isinstance(reply.text, str)
        assert reply.tokens is None or all(isinstance(token, Token) for token in reply.tokens)


@each(
    "values, problem",
    [
        (("q", " "), "expected text"),
        (("q", None), "expected text"),
        (("q", "a", ()), "empty list of choices"),
        (("q", "a", "abc"), "choices is one text"),
        (("q", "a", None, "abc"), "ground_truth is one text"),
    ],
)
def test_invalid_questions(values, problem):
    with pytest.raises(InputError, match=problem):
        Question(*values)
