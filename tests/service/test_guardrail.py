"""The guardrail for LiteLLM, as LiteLLM calls it."""

import json

import httpx2
import pytest

from qacal import QACalibrator, load
from qacal.service.app import create_app
from qacal.service.guardrail import PATH, Questions
from qacal.service.settings import Settings
from tests.answers import answers
from tests.service.test_app import serving, stored, wait_for
from tests.service.upstreams import running, stubbed

NAME = "qa_calibration"
QUESTION = "Which city is the capital of Arden?"
MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
STATED = "Guess: Belmar\nProbability: 0.9"


@pytest.fixture(scope="module")
def shared():
    with stubbed() as stub:
        yield stub


@pytest.fixture
def stub(shared):
    shared.reset()
    return shared


@pytest.fixture
def client(folder, tmp_path):
    with serving(folder, tmp_path) as client:
        yield client


def sent(kind, **others):
    """Return a request with the fields that LiteLLM 1.106 sends."""
    return {
        "input_type": kind,
        "litellm_call_id": "call-1",
        "litellm_trace_id": "trace-1",
        "structured_messages": None,
        "images": None,
        "tools": None,
        "texts": [],
        "request_data": {"user_api_key_hash": "abc"},
        "request_headers": {"host": "127.0.0.1:4000"},
        "litellm_version": "1.106.2",
        "additional_provider_specific_params": {},
        "tool_calls": None,
        "model": "parrot-1",
        **others,
    }


def post(client, body):
    reply = client.post(PATH, content=json.dumps(body), headers={"content-type": "application/json"})
    assert reply.status_code == 200, reply.text
    return reply.json()


def check(client, *texts, messages=MESSAGES, call="call-1", **others):
    asked = sent("request", structured_messages=messages, texts=[QUESTION], model="parrot", litellm_call_id=call)
    assert post(client, asked) == {"action": "NONE"}
    return post(client, sent("response", texts=list(texts), litellm_call_id=call, **others))


def test_an_answer_is_annotated_with_the_confidence_that_it_states(client, folder):
    found = check(client, STATED)
    expected = load(folder).explain(QUESTION, "Belmar", 0.9)
    (evidence,) = found[NAME]
    assert evidence["calibrated"] == pytest.approx(expected["calibrated"], abs=1e-12)
    assert (evidence["raw_confidence"], evidence["confidence_source"]) == (0.9, "stated")
    assert found["action"] == "GUARDRAIL_INTERVENED"
    assert found["texts"] == [f"{STATED}\n\n[calibrated confidence {expected['calibrated']:.2f}]"]
    label = {"items": [{"id": evidence["id"], "correct": True}]}
    assert client.post("/v1/feedback", json=label).json()["results"][0]["stored"]


def test_a_text_that_states_nothing_is_left_alone(client):
    found = check(client, "Belmar.")
    (evidence,) = found[NAME]
    assert (found["action"], evidence["calibrated"], "texts" in found) == ("NONE", None, False)
    assert evidence["reason"]
    assert 'qacal_unparsed_confidence_total{model="m"} 1.0' in client.get("/metrics").text


def test_a_second_question_goes_to_the_upstream(folder, tmp_path, stub):
    with serving(folder, tmp_path, upstream=stub.url) as client:
        found = check(client, "Belmar.")
        (evidence,) = found[NAME]
        assert (evidence["raw_confidence"], evidence["confidence_source"]) == (0.7, "stated")
        assert evidence["calibrated"] == pytest.approx(
            load(folder).explain(QUESTION, "Belmar.", 0.7)["calibrated"], abs=1e-12
        )
        (asked,) = stub.requests
        assert asked["messages"][:3] == [*MESSAGES, {"role": "assistant", "content": "Belmar."}]
        assert asked["model"] == "parrot-1"
        assert "authorization" not in stub.headers[0]
        check(client, STATED, call="call-2")
        assert len(stub.requests) == 1
        # As LiteLLM calls this service if it is the upstream itself.
        assert check(client, "Probability: 0.7", messages=asked["messages"], call="call-3") == {"action": "NONE"}
        assert len(stub.requests) == 1


def test_an_upstream_that_refuses_a_temperature_is_asked_without_it(folder, tmp_path, stub):
    stub.fault = "second no temperature"
    with serving(folder, tmp_path, upstream=stub.url) as client:
        assert check(client, "Belmar.")[NAME][0]["raw_confidence"] == 0.7


def test_an_upstream_that_fails_leaves_the_answer_alone(folder, tmp_path, stub):
    stub.fault = "second 500"
    with serving(folder, tmp_path, upstream=stub.url) as client:
        found = check(client, "Belmar.")
    assert (found["action"], found[NAME][0]["calibrated"]) == ("NONE", None)
    assert "the second question has no answer" in found[NAME][0]["reason"]


@pytest.mark.parametrize(("mode", "threshold", "action"), [
    ("block", 0.99, "BLOCKED"),
    ("block", 0.01, "NONE"),
    ("observe", 0.99, "NONE"),
    ("annotate", 0.99, "GUARDRAIL_INTERVENED"),
])  # fmt: skip
def test_the_operator_chooses_what_happens(folder, tmp_path, mode, threshold, action):
    load(folder).set_threshold(threshold).save(folder)
    with serving(folder, tmp_path) as client:
        found = check(client, STATED, additional_provider_specific_params={"mode": mode, "other": 1})
        wait_for(lambda: len(stored(client)) == 1)
    assert found["action"] == action
    assert found[NAME][0]["decision"] == ("abstain" if threshold > 0.5 else "answer")
    shown = f"calibrated confidence {found[NAME][0]['calibrated']:.2f}, below the threshold of 0.99"
    if action == "BLOCKED":
        assert found["blocked_reason"] == f"The answer is not reliable enough: {shown}."
    if action == "GUARDRAIL_INTERVENED":
        assert found["texts"] == [f"{STATED}\n\n[{shown}]"]


@pytest.mark.parametrize("mode", ["block", "annotate"])
def test_answers_without_a_certified_threshold_are_rejected_in_words(folder, tmp_path, mode):
    load(folder).set_threshold({}).save(folder)  # no group has one
    with serving(folder, tmp_path) as client:
        found = check(client, STATED, additional_provider_specific_params={"mode": mode})
    shown = found["blocked_reason"] if mode == "block" else found["texts"][0]
    assert "and no threshold is certified for such answers" in shown


def test_without_a_threshold_nothing_is_blocked(tmp_path):
    QACalibrator(features=()).fit(answers(500)).save(tmp_path / "plain")
    with serving(str(tmp_path / "plain"), tmp_path) as client:
        found = check(client, STATED, additional_provider_specific_params={"mode": "block"})
    assert (found["action"], found[NAME][0]["decision"]) == ("NONE", None)
    assert "the model has no threshold" in found[NAME][0]["warning"]


def test_several_texts_are_checked_each(client):
    found = check(client, STATED, "Belmar.", STATED.replace("0.9", "0.6"))
    assert [one["raw_confidence"] for one in found[NAME]] == [0.9, None, 0.6]
    assert found["texts"][1] == "Belmar."
    assert found["texts"][0] != found["texts"][2].replace("0.6", "0.9")


def test_too_many_texts_are_refused(folder, tmp_path):
    with serving(folder, tmp_path, max_items=2) as client:
        check(client, STATED, STATED)
        reply = client.post(PATH, json=sent("response", texts=[STATED] * 3))
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "too_many_items")


def test_a_caller_that_goes_away_ends_the_work_of_the_upstream(folder, stub):
    stub.fault = "second hangs"
    app = create_app(Settings({"m": folder}, store="none", reload_seconds=0.0, upstream=stub.url))
    with running(app) as address:
        asked = sent("request", structured_messages=MESSAGES)
        assert httpx2.post(f"{address}{PATH}", json=asked).json() == {"action": "NONE"}
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{address}{PATH}", json=sent("response", texts=["Belmar."] * 5), timeout=2)
        assert stub.cancelled.wait(20)
    assert len(stub.requests) == 1


def test_json_stays_json(client):
    text = json.dumps({"answer": "Belmar", "confidence": 0.9})
    found = check(client, text)
    assert found[NAME][0]["raw_confidence"] == 0.9
    assert found["action"] == "NONE"


def test_an_answer_without_its_question_is_left_alone(client):
    for call in ("unknown", None):
        found = post(client, sent("response", texts=[STATED], litellm_call_id=call))
        assert found["action"] == "NONE"
        assert "[pre_call, post_call]" in found[NAME][0]["reason"]


def test_calls_of_tools_and_images_are_left_alone(client):
    assert check(client, STATED, tool_calls=[{"id": "1"}]) == {"action": "NONE"}
    assert check(client, STATED, images=["data:"]) == {"action": "NONE"}
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    found = check(client, STATED, messages=image)
    assert (found["action"], found[NAME][0]["calibrated"]) == ("NONE", None)


def test_a_served_model_is_chosen_by_the_llm_or_by_the_operator(folder, tmp_path):
    QACalibrator(features=()).fit(answers(500, llm="owl-2")).save(tmp_path / "owl")
    with serving({"first": folder, "second": str(tmp_path / "owl")}, tmp_path) as client:
        assert check(client, STATED)[NAME][0]["model"] == "first"
        assert check(client, STATED, model="owl-2")[NAME][0]["model"] == "second"
        assert "no model was fitted on it" in check(client, STATED, model="crow-3")[NAME][0]["reason"]
        named = {"model": "second"}
        found = check(client, STATED, model="crow-3", additional_provider_specific_params=named)[NAME][0]
        assert found["model"] == "second"
        wrong = check(client, STATED, additional_provider_specific_params={"model": "third"})[NAME][0]
        assert "there is no model 'third'" in wrong["reason"]


def test_metadata_are_columns(tmp_path):
    rows = [{**row, "tenant": ("north", "south")[at % 2]} for at, row in enumerate(answers(600))]
    QACalibrator(partition="column:tenant").fit(rows).save(tmp_path / "tenants")
    with serving(str(tmp_path / "tenants"), tmp_path) as client:
        chosen = {"metadata": {"tenant": "south"}}
        assert check(client, STATED, additional_provider_specific_params=chosen)[NAME][0]["group"] == "south"
        assert "tenant" in check(client, STATED)[NAME][0]["reason"]


@pytest.mark.parametrize(
    "change", [{"input_type": "other"}, {"texts": "a"}, {"texts": [5]}, {"structured_messages": [5]}]
)
def test_wrong_requests_are_refused(client, change):
    assert client.post(PATH, json=sent("response", **change)).status_code == 422


def test_an_unknown_mode_is_refused(client):
    reply = client.post(PATH, json=sent("response", additional_provider_specific_params={"mode": "shout"}))
    assert reply.status_code == 422
    assert "mode" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "messages", [[{}], [{"role": 5}], [{"role": "user", "content": {"a": []}}], [{"role": "user", "content": "\ud800"}]]
)
def test_strange_messages_are_answered(client, messages):
    found = check(client, "\ud800 Probability: 9", "", messages=messages)
    assert found["action"] == "NONE"
    assert [one["calibrated"] for one in found[NAME]] == [None, None]


def test_questions_are_kept_for_a_while_and_up_to_a_size():
    questions = Questions(characters=1000, seconds=3600)
    for number in range(100):
        questions.add(f"call-{number}", [{"role": "user", "content": "x" * 50}])
    assert 5 < len(questions) < 20
    assert questions.of("call-99") == [{"role": "user", "content": "x" * 50}]
    assert questions.of("call-0") is None
    questions.add("large", [{"content": "x" * 2000}])
    assert len(questions) == 0
    brief = Questions(seconds=0.0)
    brief.add("call", MESSAGES)
    assert brief.of("call") is None
    same = Questions()
    for _ in range(3):
        same.add("call", MESSAGES)
    assert (len(same), same.of("call")) == (1, MESSAGES)
