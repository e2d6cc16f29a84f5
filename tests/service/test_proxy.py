"""The proxy, before a real HTTP server that stands for the LLM."""

import json
import logging
import socket

import pytest

from qacal import QACalibrator, load
from qacal.errors import InputError
from qacal.service.app import create_app
from qacal.service.guardrail import PATH as GUARDRAIL
from qacal.service.settings import Settings
from qacal.service.upstream import Upstream
from qacal.sources.completions import ConfidenceFrom
from tests.answers import answers
from tests.service.test_app import KEY, serving, stored, wait_for
from tests.service.upstreams import SECOND, TRUE_OR_FALSE, running, stubbed

QUESTION = "Which city is the capital of Arden?"
ASK = {"model": "parrot-1", "messages": [{"role": "user", "content": QUESTION}]}
PATH = "/v1/chat/completions"
NAME = "qa_calibration"


@pytest.fixture(scope="module")
def shared():
    with stubbed() as stub:
        yield stub


@pytest.fixture
def stub(shared):
    shared.reset()
    return shared


@pytest.fixture
def client(folder, tmp_path, stub):
    with serving(folder, tmp_path, upstream=stub.url) as client:
        yield client


def ask(client, headers=None, **others):
    reply = client.post(PATH, json={**ASK, **others}, headers=headers or {})
    assert reply.status_code == 200, reply.text
    return reply


def events(reply):
    assert reply.headers["content-type"].startswith("text/event-stream")
    data = [line.removeprefix("data: ") for line in reply.text.split("\n") if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def content(chunks):
    deltas = [one["choices"][0]["delta"] for one in chunks if one != "[DONE]" and one.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas)


def evidence_of(chunks):
    (found,) = [one for one in chunks if one != "[DONE]" and NAME in one]
    assert found["choices"][0][NAME] == found["choices"][0]["delta"][NAME] == found[NAME]
    return found[NAME]


# Confidences


def test_the_confidence_is_that_of_the_tokens(client, stub, folder):
    reply = ask(client)
    body = reply.json()
    found = body[NAME]
    assert body["choices"][0][NAME] == body["choices"][0]["message"][NAME] == found
    assert found["raw_confidence"] == pytest.approx(0.8)
    assert found["confidence_source"] == "tokens"
    expected = load(folder).explain(QUESTION, stub.answer, found["raw_confidence"])
    assert found["calibrated"] == pytest.approx(expected["calibrated"], abs=1e-12)
    assert (found["group"], found["decision"], found["low"]) == tuple(
        expected[name] for name in ("group", "decision", "low")
    )
    assert float(reply.headers["x-qa-calibration-confidence"]) == pytest.approx(found["calibrated"], abs=1e-5)
    assert reply.headers["x-qa-calibration-id"] == found["id"]
    assert stub.requests == [{**ASK, "logprobs": True}]


def test_everything_else_is_as_the_upstream_sent_it(client, stub):
    reply = ask(client, seed=5, unknown={"a": [1]})
    assert stub.requests == [{**ASK, "seed": 5, "unknown": {"a": [1]}, "logprobs": True}]
    body = reply.json()
    expected = stub.completion(ASK)
    del body[NAME], body["choices"][0][NAME], body["choices"][0]["message"][NAME]
    assert body["choices"][0].pop("logprobs") is None  # asked for by the proxy, not by the caller
    assert body == expected
    assert reply.headers["x-request-id"] == "request-1"


def test_log_probabilities_that_the_caller_wants_stay(client, stub):
    choice = ask(client, logprobs=True).json()["choices"][0]
    assert choice["logprobs"]["content"][0]["token"] == "The"


def test_without_log_probabilities_a_second_question_is_asked(client, stub):
    stub.probability = None
    found = ask(client, temperature=0.9, stop=["x"], user="me").json()[NAME]
    assert (found["raw_confidence"], found["confidence_source"]) == (0.7, "stated")
    assert found["calibrated"] is not None
    first, second = stub.requests
    assert second["messages"][:2] == [*first["messages"], {"role": "assistant", "content": stub.answer}]
    assert second["messages"][2]["content"].startswith(SECOND)
    assert (second["model"], second["user"], second["temperature"]) == ("parrot-1", "me", 0.0)
    assert "stop" not in second
    assert "logprobs" not in second


def test_a_server_that_refuses_a_temperature_is_asked_the_second_question_without_it(client, stub):
    stub.probability, stub.fault = None, "second no temperature"
    assert ask(client).json()[NAME]["raw_confidence"] == 0.7
    assert ["temperature" in one for one in stub.requests] == [False, True, False]


def test_a_server_that_refuses_log_probabilities_is_asked_without_them_once(client, stub):
    stub.fault = "no logprobs"
    for _ in range(2):
        assert ask(client).json()[NAME]["confidence_source"] == "stated"
    assert ["logprobs" in one for one in stub.requests] == [True, False, False, False, False]
    assert [one[0] for one in ([m["content"][:8] for m in one["messages"][-1:]] for one in stub.requests)] == [
        *(QUESTION[:8], QUESTION[:8], SECOND[:8], QUESTION[:8], SECOND[:8])
    ]


@pytest.mark.parametrize(
    ("choice", "raw", "source"),
    [("logprobs", 0.8, "tokens"), ("second-question", 0.7, "stated"), ("p-true", 0.75, "p(true)")],
)
def test_the_operator_chooses_where_it_comes_from(folder, tmp_path, stub, choice, raw, source):
    with serving(folder, tmp_path, upstream=stub.url, confidence_from=ConfidenceFrom(choice)) as client:
        found = ask(client).json()[NAME]
    assert found["raw_confidence"] == pytest.approx(raw)
    assert found["confidence_source"] == source
    last = stub.requests[-1]["messages"][-1]["content"]
    assert last.startswith({"tokens": QUESTION, "stated": SECOND, "p(true)": TRUE_OR_FALSE}[source])


def test_one_call_asks_for_both_and_returns_the_answer(folder, tmp_path, stub):
    stub.answer = "Guess: Belmar\nProbability: 0.65"
    system = {"role": "system", "content": "Be brief."}
    messages = [system, {"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    with serving(folder, tmp_path, upstream=stub.url, confidence_from=ConfidenceFrom.ONE_CALL) as client:
        body = ask(client, messages=messages).json()
        chunks = events(ask(client, messages=messages, stream=True))
        stub.answer = "It is Belmar, I think."
        unreadable = ask(client, messages=messages).json()
    (first, second) = stub.requests[0]["messages"]
    assert first == system
    assert second["content"].startswith("Provide your best guess")
    assert second["content"].endswith(f"The question is: {QUESTION}.")
    assert body["choices"][0]["message"]["content"] == content(chunks) == "Belmar"
    assert body[NAME]["raw_confidence"] == evidence_of(chunks)["raw_confidence"] == 0.65
    assert unreadable["choices"][0]["message"]["content"] == "It is Belmar, I think."
    assert unreadable[NAME]["calibrated"] is None
    assert "there is no guess" in unreadable[NAME]["reason"]


def test_a_reply_that_states_its_confidence_needs_no_second_question(folder, tmp_path, stub):
    stub.answer = "Guess: Belmar\nProbability: 0.85"
    with serving(folder, tmp_path, upstream=stub.url, confidence_from=ConfidenceFrom.SECOND_QUESTION) as client:
        body = ask(client).json()
    assert body[NAME]["raw_confidence"] == 0.85
    assert body["choices"][0]["message"]["content"] == stub.answer
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"finish": "length"}, "cut off"),
        ({"answer": ""}, "empty"),
        ({"answer": "I'm sorry, I can't help with that."}, "declined"),
        ({"message": {"refusal": "No."}}, "declined"),
        ({"probability": None, "stated": "rather likely"}, "there is no confidence"),
        ({"probability": None, "fault": "second 500"}, "second question has no answer"),
        ({"probability": None, "fault": "second garbage"}, "second question has no answer"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_no_confidence_is_null_and_says_why(client, stub, change, reason, streams):
    vars(stub).update(change)
    reply = ask(client, stream=streams)
    found = evidence_of(events(reply)) if streams else reply.json()[NAME]
    assert found["calibrated"] is None
    assert found["raw_confidence"] is None
    assert reason in found["reason"]
    assert "x-qa-calibration-confidence" not in reply.headers
    assert 'qacal_unparsed_confidence_total{model="m"} 1.0' in client.get("/metrics").text


def test_answers_are_stored_and_labelled(client):
    found = ask(client).json()[NAME]
    (result,) = client.post("/v1/feedback", json={"items": [{"id": found["id"], "correct": True}]}).json()["results"]
    assert result == {"id": found["id"], "stored": True}
    wait_for(lambda: stored(client))
    (row,) = stored(client)
    assert (row["id"], row["confidence"], row["label"]) == (found["id"], pytest.approx(0.8), 1.0)
    assert row["record"] is None


def test_the_stored_record_says_what_the_confidence_is(folder, tmp_path, stub):
    with serving(folder, tmp_path, upstream=stub.url, keep_text=True) as client:
        ask(client, metadata={"tenant": "north", "confidence": "1"})
        wait_for(lambda: stored(client))
        (row,) = stored(client)
    record = json.loads(row["record"])
    assert record.pop("confidence") == pytest.approx(0.8)
    assert record.pop("confidence_tokens") == pytest.approx(0.8)
    assert record == {
        "question": QUESTION,
        "answer": stub.answer,
        "model": "parrot-1",
        "tenant": "north",
        "confidence_source": "tokens",
        "response_id": "chatcmpl-1",
    }


# Where the model comes from


@pytest.fixture(scope="module")
def of_kinds(tmp_path_factory):
    """Return models that were fitted on a kind of confidence."""
    home = tmp_path_factory.mktemp("kinds")
    for kind in ("tokens", "stated", "agreement"):
        rows = [{**row, "confidence_source": kind} for row in answers(500)]
        QACalibrator(features=()).fit(rows).set_threshold(0.6).save(home / kind)
    return home


def test_the_confidence_is_of_the_kind_that_the_model_was_fitted_on(of_kinds, tmp_path, stub):
    for kind in ("tokens", "stated"):
        with serving(str(of_kinds / kind), tmp_path, upstream=stub.url) as client:
            found = ask(client).json()[NAME]
            assert found["confidence_source"] == kind
            assert found["calibrated"] is not None
            assert "warning" not in found


def test_another_kind_is_refused_unless_it_is_allowed(of_kinds, tmp_path, stub):
    with serving(str(of_kinds / "agreement"), tmp_path, upstream=stub.url) as client:
        found = ask(client).json()[NAME]
        assert (found["calibrated"], len(stub.requests)) == (None, 1)
        assert found["reason"].startswith("the model was fitted on confidences of the source agreement, which")
    choice = {"upstream": stub.url, "confidence_from": ConfidenceFrom.LOGPROBS}
    with serving(str(of_kinds / "stated"), tmp_path, **choice) as client:
        found = ask(client).json()[NAME]
        assert found["calibrated"] is None
        assert found["raw_confidence"] == pytest.approx(0.8)
        assert "confidence_source is 'tokens'; this model was fitted on stated" in found["reason"]
        assert "--" not in found["reason"]
    with serving(str(of_kinds / "stated"), tmp_path, allow_other_source=("confidence_source",), **choice) as client:
        found = ask(client).json()[NAME]
        assert found["calibrated"] is not None
        assert "of the source stated, and the source tokens is asked for" in found["warning"]


def test_another_llm_is_refused_unless_it_is_allowed(folder, tmp_path, stub):
    stub.extra = {"model": "owl-2"}
    with serving(folder, tmp_path, upstream=stub.url) as client:
        assert ask(client).json()[NAME]["calibrated"] is not None
        other = ask(client, model="owl-2").json()[NAME]
        assert other["calibrated"] is None
        assert "model is 'owl-2'" in other["reason"]
        stub.extra = {"model": "parrot-1"}  # an alias: the upstream's name of the LLM is that of the fit
        assert ask(client, model="owl-2").json()[NAME]["calibrated"] is not None
    stub.extra = {"model": "owl-2"}
    with serving(folder, tmp_path, upstream=stub.url, allow_other_source=("model",)) as client:
        other = ask(client, model="owl-2").json()[NAME]
        assert other["calibrated"] is not None
        assert other["warning"] == "the model was fitted on answers of parrot-1, and this is owl-2"
        assert "warning" not in ask(client).json()[NAME]


def test_the_llm_chooses_among_several_models(folder, tmp_path, stub):
    other = tmp_path / "owl"
    QACalibrator(features=()).fit(answers(500, llm="owl-2")).save(other)
    with serving({"a": folder, "b": str(other)}, tmp_path, upstream=stub.url) as client:
        assert ask(client).json()[NAME]["model"] == "a"
        assert ask(client, model="owl-2").json()[NAME]["model"] == "b"
        unknown = ask(client, model="crow-3").json()
        assert unknown["choices"][0]["message"]["content"] == stub.answer
        assert "no model was fitted on it" in unknown[NAME]["reason"]


# Abstaining


@pytest.fixture
def strict(folder, tmp_path, stub):
    """Return a client of a service that rejects nearly all answers."""
    load(folder).set_threshold(0.99).save(folder)
    with serving(folder, tmp_path, upstream=stub.url) as client:
        yield client


@pytest.mark.parametrize("streams", [False, True])
def test_abstaining_replaces_the_content_and_says_so(strict, stub, streams):
    stub.answer, stub.message = "The sum is 7.", {"reasoning_content": "7 is the answer"}
    question = [{"role": "user", "content": "What is 3 plus 9, as a number?"}]
    plain = ask(strict, messages=question, stream=streams, logprobs=True)
    assert stub.answer in (content(events(plain)) if streams else plain.json()["choices"][0]["message"]["content"])
    headers = {"x-qa-calibration-mode": "abstain"}
    reply = ask(strict, headers, messages=question, stream=streams, logprobs=True)
    found = evidence_of(events(reply)) if streams else reply.json()[NAME]
    text = content(events(reply)) if streams else reply.json()["choices"][0]["message"]["content"]
    assert (found["decision"], found["replaced"]) == ("abstain", True)
    assert text.startswith("No answer: the probability that the LLM's answer is correct is 0.")
    assert "7 is" not in reply.text
    assert "sum is" not in reply.text
    assert '" sum"' not in reply.text  # its tokens
    assert found["id"]


@pytest.mark.parametrize("streams", [False, True])
def test_abstaining_says_that_no_threshold_is_certified(folder, tmp_path, stub, streams):
    load(folder).set_threshold({}).save(folder)  # no group has one
    with serving(folder, tmp_path, upstream=stub.url) as client:
        reply = ask(client, {"x-qa-calibration-mode": "abstain"}, stream=streams)
    text = content(events(reply)) if streams else reply.json()["choices"][0]["message"]["content"]
    assert text.endswith(", and no threshold is certified for such answers.")


@pytest.mark.parametrize("streams", [False, True])
def test_abstaining_leaves_good_answers(client, stub, streams):
    stub.probability = 0.99
    reply = ask(client, {"x-qa-calibration-mode": "abstain"}, stream=streams)
    found = evidence_of(events(reply)) if streams else reply.json()[NAME]
    assert found["decision"] != "abstain"
    assert "replaced" not in found
    assert stub.answer == (content(events(reply)) if streams else reply.json()["choices"][0]["message"]["content"])


def test_an_unknown_mode_is_refused(client, stub):
    reply = client.post(PATH, json=ASK, headers={"x-qa-calibration-mode": "strict"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid_request")
    assert stub.requests == []


# Streams


def test_a_stream_has_the_evidence_in_the_chunk_that_ends_the_answer(client, stub, folder):
    chunks = events(ask(client, stream=True, stream_options={"include_usage": True}))
    assert content(chunks) == stub.answer
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["usage"]["total_tokens"] == 7
    assert chunks[-3]["choices"][0]["finish_reason"] == "stop"
    assert NAME in chunks[-3]
    found = evidence_of(chunks)
    expected = load(folder).explain(QUESTION, stub.answer, found["raw_confidence"])
    assert found["raw_confidence"] == pytest.approx(0.8)
    assert found["calibrated"] == pytest.approx(expected["calibrated"], abs=1e-12)
    assert all(one["choices"][0].get("logprobs") is None for one in chunks[:-2])
    assert all(one["own"] == 1 for one in chunks[:-2])
    assert stub.requests == [{**ASK, "stream": True, "stream_options": {"include_usage": True}, "logprobs": True}]


def test_a_stream_keeps_log_probabilities_that_the_caller_wants(client):
    chunks = events(ask(client, stream=True, logprobs=True))
    tokens = [one["choices"][0]["logprobs"] for one in chunks[1:-2]]
    assert [one["content"][0]["token"] for one in tokens] == ["The", " capital", " is", " Belmar."]


def test_a_stream_without_an_ending_gets_one(client, stub):
    stub.fault = "no finish"
    chunks = events(ask(client, stream=True))
    assert evidence_of(chunks)["raw_confidence"] == pytest.approx(0.8)
    assert chunks[-1] == "[DONE]"
    assert content(chunks) == stub.answer


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("dies in a stream", "upstream_failed"),
        ("ends in a stream", "upstream_failed"),
        ("garbage in a stream", "upstream_garbage"),
        ("hangs in a stream", "upstream_timeout"),
    ],
)
@pytest.mark.parametrize("mode", ["annotate", "abstain"])
def test_a_stream_that_breaks_ends_with_an_error(folder, tmp_path, stub, fault, code, mode):
    stub.fault = fault
    with serving(folder, tmp_path, upstream=stub.url, upstream_seconds=0.5) as client:
        chunks = events(ask(client, {"x-qa-calibration-mode": mode}, stream=True))
    assert chunks[-1]["error"]["code"] == code
    assert content(chunks[:-1]) == ("The capital" if mode == "annotate" else "")


def test_an_error_in_a_stream_is_passed_on(client, stub):
    stub.fault = "error in a stream"
    assert events(ask(client, stream=True))[-1] == {"error": {"message": "out of memory", "type": "server_error"}}


def test_a_stream_falls_back_to_a_second_question(client, stub):
    stub.fault = "no logprobs"
    for _ in range(2):
        found = evidence_of(events(ask(client, stream=True)))
        assert (found["raw_confidence"], found["confidence_source"]) == (0.7, "stated")
    assert len(stub.requests) == 5


# What goes through untouched

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    "others",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"n": 2},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}]},
        {"messages": [{"role": "system", "content": "Say hello."}]},
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_other_forms_go_through_untouched(client, stub, others, streams):
    if streams:
        chunks = events(ask(client, stream=True, **others))
        assert content(chunks) == stub.answer
        assert not any(NAME in one for one in chunks if one != "[DONE]")
        assert stub.requests == [{**ASK, "stream": True, **others}]
    else:
        assert ask(client, **others).json() == stub.completion({**ASK, **others})
        assert stub.requests == [{**ASK, **others}]


def test_the_llms_of_the_upstream_are_listed(client):
    assert client.get("/v1/models").json()["data"][0]["id"] == "parrot-1"


# Faults of the upstream


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
@pytest.mark.parametrize("streams", [False, True])
def test_errors_of_the_upstream_are_passed_on(client, stub, status, streams):
    stub.fault = str(status)
    reply = client.post(PATH, json={**ASK, "stream": streams})
    assert reply.status_code == status
    assert reply.json()["error"]["message"].startswith(f"status {status}")
    assert reply.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("fault", "streams"), [("garbage", False), ("garbage", True), ("no completion", False), ("redirects", False)]
)
def test_garbage_is_a_bad_gateway(client, stub, fault, streams):
    stub.fault = fault
    reply = client.post(PATH, json={**ASK, "stream": streams})
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_garbage")


@pytest.mark.parametrize("streams", [False, True])
def test_an_upstream_that_hangs_is_a_timeout(folder, tmp_path, stub, streams):
    stub.fault = "hangs"
    with serving(folder, tmp_path, upstream=stub.url, upstream_seconds=0.2) as client:
        reply = client.post(PATH, json={**ASK, "stream": streams})
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "upstream_timeout")
    assert stub.cancelled.wait(10)


def test_an_upstream_that_is_not_there(folder, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with serving(folder, tmp_path, upstream=url) as client:
            for reply in (
                client.post(PATH, json=ASK),
                client.post(PATH, json={**ASK, "stream": True}),
                client.get("/v1/models"),
            ):
                assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_unreachable")
                assert url not in reply.text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_request_that_is_not_json_by_its_type_is_refused(client, stub, kind):
    reply = client.post(PATH, content=json.dumps(ASK), headers={} if kind is None else {"content-type": kind})
    assert reply.status_code == 415
    assert reply.json()["error"]["code"] == "wrong_content_type"
    assert stub.requests == []
    sent = {"content-type": "application/json; charset=utf-8"}
    assert client.post(PATH, content=json.dumps(ASK), headers=sent).status_code == 200


@pytest.mark.parametrize("streams", [False, True])
def test_an_error_of_the_upstream_is_never_a_page(client, stub, streams):
    stub.fault = "page 500"
    reply = client.post(PATH, json={**ASK, "stream": streams})
    assert (reply.status_code, reply.text) == (500, "<script>1</script>")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("depth", [450, 900])
def test_requests_that_are_nested_deeply_are_no_failure(client, stub, depth, streams):
    nested = "[" * depth + '"x"' + "]" * depth
    deep = f'[{{"role": "user", "content": {nested}}}]'
    predicate = json.dumps({"type": "predicate", "instructions": "It is true."})
    bodies = {
        PATH: json.dumps({**ASK, "stream": streams}).replace(json.dumps(ASK["messages"]), deep),
        "/v1/decisions": f'{{"model": "m", "input": {deep}, "questions": [{predicate}]}}',
        GUARDRAIL: f'{{"input_type": "request", "litellm_call_id": "1", "structured_messages": {deep}}}',
        "/v1/calibrate": f'{{"items": [{{"question": {deep}, "answer": "a", "confidence": 0.5}}]}}',
    }
    for path, body in bodies.items():
        reply = client.post(path, content=body, headers={"content-type": "application/json"})
        assert reply.status_code in (200, 404, 422), (path, reply.text)


def test_without_an_upstream_the_routes_say_so(folder, tmp_path):
    with serving(folder, tmp_path) as client:
        for reply in (client.post(PATH, json=ASK), client.get("/v1/models")):
            assert (reply.status_code, reply.json()["error"]["code"]) == (409, "no_upstream")


@pytest.mark.parametrize("body", ["", "[1]", "{", '{"messages": []', "1" * 5000, "[" * 100_000])
def test_a_request_that_is_no_object_is_refused(client, stub, body):
    reply = client.post(PATH, content=body, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid_request")
    assert stub.requests == []


@pytest.mark.parametrize("messages", [None, "hello", [1], [{"role": 5}], [{"content": "x"}]])
def test_strange_messages_are_for_the_upstream_to_judge(client, stub, messages):
    stub.fault = "422"
    stub.refuses = True
    asked = {"model": {"a": 1}, "messages": messages}
    reply = client.post(PATH, json=asked)
    assert (reply.status_code, reply.json()) == (422, {"error": {"message": "refused"}})
    assert stub.requests == [asked]


# Keys


def test_the_key_of_the_upstream_is_sent_and_never_shown(folder, tmp_path, stub):
    secret = "sk-upstream-secret-0123456789"
    with serving(folder, tmp_path, upstream=stub.url, upstream_key=secret) as client:
        ask(client, {"authorization": "Bearer callers-own"})
        assert stub.headers[-1]["authorization"] == f"Bearer {secret}"
        stub.fault = "401"
        reply = client.post(PATH, json=ASK)
        assert reply.status_code == 401
        assert secret not in reply.text


def test_two_credentials_of_the_upstream_are_refused(folder):
    settings = Settings({"m": folder}, store="none", upstream="http://me:hidden@127.0.0.1:1/v1", upstream_key="sk-1234")
    with pytest.raises(InputError, match="only one can be sent") as caught:
        Upstream(settings)
    assert "hidden" not in str(caught.value)


def test_the_callers_key_is_passed_on_unless_it_is_that_of_the_service(folder, tmp_path, stub):
    with serving(folder, tmp_path, upstream=stub.url) as client:
        ask(client, {"authorization": "Bearer callers-own", "openai-organization": "org", "x-other": "1"})
        client.get("/v1/models", headers={"authorization": "Bearer callers-own"})
        assert [one["authorization"] for one in stub.headers[-2:]] == ["Bearer callers-own"] * 2
        assert stub.headers[-2]["openai-organization"] == "org"
        assert "x-other" not in stub.headers[-2]
    with serving(folder, tmp_path, upstream=stub.url, api_key=KEY) as client:
        ask(client, {"authorization": f"Bearer {KEY}"})
        assert "authorization" not in stub.headers[-1]


def test_strange_letters_in_a_key_are_passed_on(client, stub):
    ask(client, {"authorization": "Bearer \u00e9".encode("latin-1")})
    sent = stub.headers[-1]["authorization"]
    assert sent.startswith("Bearer ")
    assert not sent.isascii()


@pytest.mark.parametrize("streams", [False, True])
def test_abstaining_without_a_threshold_has_a_warning(tmp_path, stub, streams):
    QACalibrator(features=()).fit(answers(500)).save(tmp_path / "plain")
    with serving(str(tmp_path / "plain"), tmp_path, upstream=stub.url) as client:
        plain, asked = (ask(client, headers, stream=streams) for headers in ({}, {"x-qa-calibration-mode": "abstain"}))
    plain, asked = (evidence_of(events(one)) if streams else one.json()[NAME] for one in (plain, asked))
    assert "warning" not in plain
    assert asked["decision"] is None
    assert asked["warning"].startswith("the model has no threshold, so no answer is withheld")


# A caller that goes away


@pytest.mark.parametrize(
    ("fault", "streams", "requests"),
    [("hangs", False, 1), ("hangs", True, 1), ("hangs in a stream", True, 1), ("second hangs", False, 2)],
)
def test_a_caller_that_goes_away_ends_the_work_of_the_upstream(
    folder, stub, fault, streams, requests, caplog, monkeypatch
):
    stub.fault, stub.probability = fault, None
    app = create_app(Settings({"m": folder}, store="none", reload_seconds=0.0, upstream=stub.url))
    body = json.dumps({**ASK, "stream": streams}).encode()
    kind = "Content-Type: application/json\r\n"
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
    with running(app) as address, caplog.at_level(logging.WARNING, "uvicorn.error"):
        monkeypatch.setattr(logging.getLogger("uvicorn.error"), "handlers", [caplog.handler])
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as caller:
            caller.sendall(head.encode() + body)
            wait_for(lambda: len(stub.requests) == requests)
            if fault == "hangs in a stream":
                assert caller.recv(100).startswith(b"HTTP/1.1 200")
        assert stub.cancelled.wait(20)
        numbers = app.state.service.telemetry
        counted = f'qacal_requests_total{{route="{PATH}",status="499"}} 1.0'
        wait_for(lambda: counted in numbers.text().decode())
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []
