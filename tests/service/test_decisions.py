"""Decisions, before a real HTTP server that stands for the upstream; and with a real LLM and the real client."""

import asyncio
import json
import math
import re

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from qacal import QACalibrator, load
from qacal.sources.decisions import kind_of, rescaled
from tests.answers import answers
from tests.service.test_app import serving, stored, wait_for
from tests.service.upstreams import running

NAME, PATH = "qa_calibration", "/v1/decisions"
INPUT = "I was charged twice."
PREDICATE = {"type": "predicate", "name": "twice", "instructions": "The customer was charged more than once."}
CHOICE = {
    "type": "choice",
    "name": "queue",
    "instructions": "Which queue?",
    "choices": [{"value": "billing", "description": "money"}, {"value": "true"}, {"value": True}],
}
SCORE = {
    "type": "score",
    "instructions": "How angry is the customer?",
    "levels": [{"label": "calm"}, {"label": "annoyed"}, {"label": "furious"}],
}
ASK = {"model": "parrot-1", "input": INPUT, "questions": [PREDICATE, CHOICE, SCORE]}
ANSWERS = [
    {"type": "predicate", "name": "twice", "probability": 0.9},
    {
        "type": "choice",
        "name": "queue",
        "choice": True,
        "confidence": 0.42,
        "probabilities": [
            {"value": "billing", "probability": 0.15},
            {"value": "true", "probability": 0.05},
            {"value": True, "probability": 0.8},
        ],
    },
    {
        "type": "score",
        "name": None,
        "score": 1.05,
        "confidence": 0.3,
        "probabilities": [
            {"value": 0, "label": "calm", "probability": 0.2},
            {"value": 1, "label": "annoyed", "probability": 0.55},
            {"value": 2, "label": "furious", "probability": 0.25},
        ],
    },
]
USAGE = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}


class Upstream:
    """A server with decisions, or with chat completions only.

    answers : of the route for decisions; None for a server without it.
    status : an error in place of an answer.
    letters : the probabilities of tokens in a chat completion.
    """

    def __init__(self):
        self.reset()
        routes = [
            Route("/v1/decisions", self.decide, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes)

    def reset(self):
        self.answers, self.status, self.chat_status, self.body = ANSWERS, None, None, None
        self.letters = {"A": 0.1, " B": 0.5, "B": 0.1, "C": 0.2, "True": 0.3, " true": 0.3, "False": 0.2}
        self.decided, self.chats, self.at_once, self.most_at_once = [], [], 0, 0

    async def decide(self, request):
        self.decided.append(json.loads(await request.body()))
        if self.status is not None:
            return JSONResponse({"error": {"message": "no"}}, self.status, headers={"retry-after": "3"})
        body = {"model": "parrot-1", "answers": self.answers, "usage": USAGE, "own": 1}
        return JSONResponse(self.body or body, headers={"x-request-id": "request-7"})

    async def chat(self, request):
        self.chats.append(json.loads(await request.body()))
        if self.chat_status is not None:
            return JSONResponse({"error": {"message": "no such LLM"}}, self.chat_status)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        listed = [{"token": token, "logprob": math.log(p)} for token, p in self.letters.items()]
        choice = {"index": 0, "message": {"role": "assistant", "content": "A"}, "finish_reason": "length"}
        if listed:
            choice["logprobs"] = {"content": [{**listed[0], "top_logprobs": listed}]}
        usage = {"prompt_tokens": 10, "completion_tokens": 1}
        return JSONResponse({"id": "chatcmpl-1", "model": "parrot-1", "choices": [choice], "usage": usage})


@pytest.fixture(scope="module")
def shared():
    upstream = Upstream()
    with running(upstream.app) as address:
        upstream.url = f"{address}/v1"
        yield upstream


@pytest.fixture
def upstream(shared):
    shared.reset()
    return shared


@pytest.fixture
def client(folder, tmp_path, upstream):
    with serving(folder, tmp_path, upstream=upstream.url) as client:
        yield client


def decide(client, headers=None, **others):
    reply = client.post(PATH, json={**ASK, **others}, headers=headers or {})
    assert reply.status_code == 200, reply.text
    return reply.json()


def without_evidence(found):
    return [{name: value for name, value in one.items() if name != NAME} for one in found]


# An upstream with decisions


def test_answers_come_back_with_evidence(client, upstream, folder):
    asked = {**ASK, "safety_identifier": "u1", "own": {"a": [1]}}
    reply = client.post(PATH, json=asked)
    body = reply.json()
    assert upstream.decided == [asked]
    assert (body["model"], body["usage"], body["own"]) == ("parrot-1", USAGE, 1)
    assert reply.headers["x-request-id"] == "request-7"
    assert without_evidence(body["answers"]) == ANSWERS
    model = load(folder)
    for one, question, answer, confidence in zip(
        body["answers"], ASK["questions"], ("true", "true", "annoyed"), (0.9, 0.8, 0.55), strict=True
    ):
        found = one[NAME]
        expected = model.explain(f"{question['instructions']}\n\n{INPUT}", answer, confidence)
        assert found["calibrated"] == pytest.approx(expected["calibrated"], abs=1e-12)
        assert (found["raw_confidence"], found["confidence_source"]) == (confidence, "decision")
        assert (found["group"], found["decision"]) == (expected["group"], expected["decision"])
        assert found["question_kind"] == kind_of(question)
        assert re.fullmatch(r"(twice|queue|score)-[0-9a-f]{8}", found["question_kind"])
    predicate, choice, score = (one[NAME] for one in body["answers"])
    assert predicate["probability"] == predicate["calibrated"]
    for found, place, raw in ((choice, 2, ANSWERS[1]), (score, 1, ANSWERS[2])):
        numbers = [one["probability"] for one in found["probabilities"]]
        assert math.fsum(numbers) == pytest.approx(1, abs=1e-12)
        assert numbers[place] == found["calibrated"]
        assert [one["value"] for one in found["probabilities"]] == [one["value"] for one in raw["probabilities"]]
    first, second, third = (one["probability"] for one in choice["probabilities"])
    assert first / second == pytest.approx(3)
    assert third != 0.8
    _, middle, high = (one["probability"] for one in score["probabilities"])
    assert score["score"] == pytest.approx(middle + 2 * high)


def test_calibrated_numbers_take_the_place_of_raw_ones_if_asked(client):
    beside = decide(client)["answers"]
    replaced = decide(client, {"x-qa-calibration-mode": "replace"})["answers"]
    for raw, one, old in zip(ANSWERS, replaced, beside, strict=True):
        assert one[NAME]["raw"] == {name: raw[name] for name in one[NAME]["raw"]}
        assert {**one, **one[NAME]["raw"], NAME: None} == {**raw, NAME: None}
        assert one[NAME]["calibrated"] == pytest.approx(old[NAME]["calibrated"], abs=1e-12)
        for name in {"probability", "probabilities", "score"} & {*one}:
            assert one[name] == old[NAME][name]
    assert replaced[1]["choice"] is True
    assert replaced[1]["confidence"] == replaced[1][NAME]["calibrated"]


def test_answers_below_the_threshold_are_refusals_if_asked(client, upstream, folder):
    upstream.answers = [{**ANSWERS[0], "probability": p} for p in (0.6, 1.0)]
    questions = [PREDICATE, PREDICATE]
    less, more = (one[NAME]["calibrated"] for one in decide(client, questions=questions)["answers"])
    load(folder).set_threshold((less + more) / 2).save(folder)
    client.app.state.service.models.reload()
    found = decide(client, {"x-qa-calibration-mode": "abstain"}, questions=questions)["answers"]
    assert found[0][NAME]["decision"] == "abstain"
    assert (found[0]["type"], found[0]["name"], found[0][NAME]["raw"]) == ("refusal", "twice", upstream.answers[0])
    assert found[1][NAME]["decision"] == "answer"
    assert found[1]["type"] == "predicate"
    wrong = client.post(PATH, json=ASK, headers={"x-qa-calibration-mode": "shout"})
    assert wrong.status_code == 422


def test_without_a_threshold_no_answer_is_a_refusal_and_it_says_so(upstream, tmp_path):
    QACalibrator(features=()).fit(answers(500)).save(tmp_path / "plain")
    with serving(str(tmp_path / "plain"), tmp_path, upstream=upstream.url) as client:
        for one in decide(client, {"x-qa-calibration-mode": "abstain"})["answers"]:
            assert one["type"] != "refusal"
            assert "the model has no threshold" in one[NAME]["warning"]
        assert not any("warning" in one[NAME] for one in decide(client)["answers"])


def test_answers_are_stored_and_labelled_by_id(client):
    found = decide(client)["answers"]
    labels = [{"id": one[NAME]["id"], "correct": at % 2} for at, one in enumerate(found)]
    results = client.post("/v1/feedback", json={"items": labels}).json()["results"]
    assert all(one["stored"] for one in results)
    assert {row["id"]: row["label"] for row in stored(client)} == {one["id"]: one["correct"] for one in labels}


def test_the_kind_of_question_is_a_column_for_groups(upstream, tmp_path):
    kinds = [kind_of(question) for question in ASK["questions"]]
    rows = [
        {"confidence": row["confidence"], "correct": row["correct"], "question_kind": kinds[at % 2]}
        for at, row in enumerate(answers(800))
    ]
    QACalibrator(partition="column:question_kind").fit(rows).save(tmp_path / "kinds")
    with serving(str(tmp_path / "kinds"), tmp_path, upstream=upstream.url, keep_text=True) as client:
        found = [one[NAME] for one in decide(client)["answers"]]
        assert [one["group"] for one in found[:2]] == kinds[:2]
        assert found[2]["group"] not in kinds
        wait_for(lambda: len(stored(client)) == 3)
        assert json.loads(stored(client)[0]["record"])["question_kind"] in kinds


def test_a_model_that_needs_other_columns_leaves_raw_answers(upstream, tmp_path):
    rows = [{**row, "tenant": ("north", "south")[at % 2]} for at, row in enumerate(answers(600))]
    QACalibrator(partition="column:tenant").fit(rows).save(tmp_path / "tenants")
    with serving(str(tmp_path / "tenants"), tmp_path, upstream=upstream.url) as client:
        for mode in ("annotate", "replace", "abstain"):
            found = decide(client, {"x-qa-calibration-mode": mode})["answers"]
            assert without_evidence(found) == ANSWERS
            for one, confidence in zip(found, (0.9, 0.8, 0.55), strict=True):
                assert (one[NAME]["calibrated"], one[NAME]["raw_confidence"]) == (None, confidence)
                assert "tenant" in one[NAME]["reason"]


def test_another_llm_than_that_of_the_fit_is_not_calibrated(client, upstream):
    for asked, replied in (("parrot-1", "a snapshot"), ("an alias", "parrot-1")):
        upstream.body = {"model": replied, "answers": ANSWERS, "usage": USAGE}
        assert all(one[NAME]["calibrated"] is not None for one in decide(client, model=asked)["answers"])
    upstream.body = {"model": "owl-2", "answers": ANSWERS, "usage": USAGE}
    found = decide(client, model="owl-2")["answers"]
    assert without_evidence(found) == ANSWERS
    for one in found:
        assert one[NAME]["calibrated"] is None
        assert "this model was fitted on parrot-1" in one[NAME]["reason"]


def test_what_was_allowed_has_a_warning(upstream, tmp_path):
    folder = str(tmp_path / "stated")
    QACalibrator(features=()).fit([{**row, "confidence_source": "stated"} for row in answers(500)]).save(folder)
    upstream.body = {"model": "owl-2", "answers": ANSWERS, "usage": USAGE}
    allowed = ("confidence_source", "model")
    with serving(folder, tmp_path, upstream=upstream.url, allow_other_source=allowed) as client:
        for one in decide(client, model="owl-2")["answers"]:
            assert one[NAME]["calibrated"] is not None
            assert one[NAME]["warning"] == (
                "the model was fitted on confidences of the source stated, and this is decision; "
                "the model was fitted on answers of parrot-1, and this is owl-2"
            )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"type": "refusal", "name": "queue"}, "declined"),
        ({**ANSWERS[1], "choice": "True"}, "its choice has no probability"),
        ({**ANSWERS[1], "probabilities": []}, "no probabilities"),
        ({**ANSWERS[1], "probabilities": [{"value": True, "probability": 1.2}]}, "between 0 and 1"),
        ({**ANSWERS[1], "probabilities": [{"value": True, "probability": True}]}, "between 0 and 1"),
        ({"type": "predicate", "probability": "0.5"}, "no probability"),
        ({"type": "box", "box": [1, 2]}, "no probabilities"),
    ],
)
def test_an_answer_that_cannot_be_read_goes_through_with_a_reason(client, upstream, answer, reason):
    upstream.answers = [ANSWERS[0], answer]
    first, second = decide(client, questions=[PREDICATE, CHOICE])["answers"]
    assert first[NAME]["calibrated"] is not None
    assert without_evidence([second]) == [answer]
    assert second[NAME]["calibrated"] is None
    assert reason in second[NAME]["reason"]
    assert 'qacal_unparsed_confidence_total{model="m"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize("body", [[1], {"hello": 1}, {"answers": ANSWERS[:2]}, {"answers": {}}])
def test_garbage_of_the_upstream_is_named(client, upstream, body):
    upstream.body = body
    reply = client.post(PATH, json=ASK)
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_garbage")


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_errors_of_the_upstream_are_passed_on(client, upstream, status):
    upstream.status = status
    reply = client.post(PATH, json=ASK)
    assert (reply.status_code, reply.headers["retry-after"]) == (status, "3")
    assert reply.json() == {"error": {"message": "no"}}
    assert upstream.chats == []


# An upstream without


@pytest.mark.parametrize("status", [404, 405])
def test_chat_completions_answer_if_the_upstream_has_no_decisions(client, upstream, status):
    upstream.status = status
    body = decide(client)
    predicate, choice, score = body["answers"]
    assert predicate["probability"] == pytest.approx(0.6 / 0.8)
    assert [one["probability"] for one in choice["probabilities"]] == pytest.approx([1 / 9, 6 / 9, 2 / 9])
    assert choice["choice"] == "true"
    assert (choice["confidence"], choice["name"]) == (pytest.approx(6 / 9), "queue")
    assert [(one["value"], one["label"]) for one in score["probabilities"]] == [
        *((0, "calm"), (1, "annoyed"), (2, "furious"))
    ]
    assert (score["score"], score["name"]) == (pytest.approx(6 / 9 + 2 * 2 / 9), None)
    assert (body["usage"]["input_tokens"], body["usage"]["total_tokens"]) == (30, 33)
    for one, confidence in zip(body["answers"], (0.75, 6 / 9, 6 / 9), strict=True):
        assert one[NAME]["raw_confidence"] == pytest.approx(confidence)
        assert one[NAME]["confidence_source"] == "decision-tokens"
        assert 0 <= one[NAME]["calibrated"] <= 1
    assert {(one["max_tokens"], one["logprobs"], one["top_logprobs"]) for one in upstream.chats} == {(1, True, 20)}
    texts = sorted(one["messages"][-1]["content"] for one in upstream.chats)
    assert all(text.startswith(INPUT) for text in texts)
    assert "\nA. billing: money\nB. true\nC. true\n" in "".join(texts)
    decide(client)
    assert len(upstream.decided) == 1  # it is not asked again for a while


def test_a_choice_that_no_token_names_is_refused(client, upstream):
    upstream.status, upstream.letters = 404, {"Well": 0.9, "True": 0.05}
    predicate, choice, score = decide(client)["answers"]
    assert predicate["probability"] == 1.0
    assert without_evidence([choice]) == [{"type": "refusal", "name": "queue"}]
    assert choice[NAME]["calibrated"] is score[NAME]["calibrated"] is None
    assert "declined" in choice[NAME]["reason"]


def test_a_chat_without_log_probabilities_is_an_error(client, upstream):
    upstream.status, upstream.letters = 404, {}
    reply = client.post(PATH, json=ASK)
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "no_logprobs")


def test_an_llm_that_the_upstream_does_not_have_is_not_taken_for_a_missing_route(client, upstream):
    upstream.status = upstream.chat_status = 404
    reply = client.post(PATH, json=ASK)
    assert (reply.status_code, reply.json()["error"]["message"]) == (404, "no such LLM")
    upstream.status = upstream.chat_status = None
    assert decide(client)["answers"][0]["probability"] == 0.9


def test_an_llm_without_decisions_leaves_them_to_others(client, upstream):
    upstream.status = 404
    decide(client)
    upstream.status = None
    assert [one[NAME]["confidence_source"] for one in decide(client)["answers"]] == ["decision-tokens"] * 3
    assert [one["confidence_source"] for one in (a[NAME] for a in decide(client, model="other")["answers"])] == [
        *("decision",) * 3
    ]
    assert [one["model"] for one in upstream.decided] == ["parrot-1", "other"]


def test_choices_beyond_the_tokens_are_refused_only_without_decisions(client, upstream):
    many = {**CHOICE, "choices": [{"value": f"v{at}"} for at in range(21)]}
    upstream.answers = [ANSWERS[1]]
    decide(client, questions=[many])
    upstream.status = 404
    reply = client.post(PATH, json={**ASK, "questions": [many]})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "too_many_choices")
    assert "question 0 has 21 choices" in reply.json()["error"]["message"]
    assert upstream.chats == []


def test_many_questions_are_asked_a_few_at_a_time(client, upstream):
    upstream.status = 404
    found = decide(client, questions=[{**PREDICATE, "name": str(at)} for at in range(60)])["answers"]
    assert [one["name"] for one in found] == [str(at) for at in range(60)]
    assert 1 < upstream.most_at_once <= 8


def test_inputs_of_several_messages_become_a_chat(client, upstream):
    upstream.status = 404
    items = [
        {"role": "developer", "content": "Be strict."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look:"},
                {"type": "input_json", "data": {"paid": 2}},
                {"type": "input_image", "image_url": "data:image/png;base64,AA"},
            ],
        },
        {"type": "function_call", "name": "invoices", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "two"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I see two."}]},
    ]
    asked = {**PREDICATE, "instructions": [{"type": "input_text", "text": "Two were paid."}]}
    decide(client, input=items, questions=[asked])
    (chat,) = upstream.chats
    assert [one["role"] for one in chat["messages"]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert chat["messages"][1]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "text", "text": '{"paid": 2}'},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    ]
    assert [one["content"] for one in chat["messages"][2:5]] == ["invoices({})", "two", "I see two."]
    assert chat["messages"][5]["content"].startswith("Two were paid.\n")


# Limits


@pytest.mark.parametrize(
    "change",
    [
        {"questions": []},
        {"questions": [PREDICATE] * 401},
        {"questions": [{**CHOICE, "choices": [{"value": "a"}]}]},
        {"questions": [{**CHOICE, "choices": [{"value": str(at)} for at in range(256)]}]},
        {"questions": [{**CHOICE, "choices": [{"value": "a"}, {"value": "a"}]}]},
        {"questions": [{**CHOICE, "choices": [{"value": 1}, {"value": 2}]}]},
        {"questions": [{**SCORE, "levels": [{"label": "a"}]}]},
        {"questions": [{**SCORE, "levels": [{"label": str(at)} for at in range(11)]}]},
        {"questions": [{"type": "guess", "instructions": "?"}]},
        {"questions": [{"type": "predicate"}]},
        {"questions": "?"},
        {"model": None},
        {"input": None},
        {"input": 5},
    ],
)
def test_requests_beyond_the_limits_are_refused(client, upstream, change):
    reply = client.post(PATH, json={**ASK, **change})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid_request")
    assert upstream.decided == upstream.chats == []


@pytest.mark.parametrize("status", [None, 404])
@pytest.mark.parametrize(
    "change",
    [
        {"input": "\ud800"},
        {"input": []},
        {"input": [{}]},
        {"input": [{"role": 5, "content": {"a": None}}, {"content": [5, None, [[]]]}, {"type": "input_image"}]},
        {"questions": [{"type": "predicate", "instructions": [{"type": "input_json", "data": None}, {}]}]},
        {"questions": [{"type": "predicate", "instructions": "\x00\ud800", "name": "\ud800"}]},
        {"questions": [{**PREDICATE, "choices": None}]},
        {"questions": [{**PREDICATE, "choices": 5}]},
        {"input": [{"role": [], "content": "Hi"}, {"role": {}, "content": "Hi"}]},
        {"input": "x" * 200_000},
    ],
)
def test_strange_requests_are_answered(client, upstream, status, change):
    upstream.status, upstream.answers = status, ANSWERS[:1]
    body = {**ASK, "questions": [PREDICATE], **change}
    reply = client.post(PATH, content=json.dumps(body), headers={"content-type": "application/json"})
    assert reply.status_code == 200, reply.text
    (answer,) = reply.json()["answers"]
    assert answer["type"] == "predicate"


@pytest.mark.parametrize("status", [None, 404])
def test_numbers_that_are_none_are_refused(client, upstream, status):
    upstream.status = status
    for number in ("NaN", "1e999"):
        body = json.dumps({**ASK, "own": 7}).replace("7", number)
        reply = client.post(PATH, content=body, headers={"content-type": "application/json"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid_request")


def test_a_service_without_an_upstream_says_so(folder, tmp_path):
    with serving(folder, tmp_path) as client:
        reply = client.post(PATH, json=ASK)
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "no_upstream")


def test_rescaled_probabilities_sum_to_one():
    for probabilities in ([0.5, 0.5], [1.0, 0.0], [0.0, 0.0, 1.0], [0.33, 0.33, 0.33], [1e-300, 0.2]):
        for place in range(len(probabilities)):
            for calibrated in (0.0, 1e-9, 0.3, 1.0):
                found = rescaled(probabilities, place, calibrated)
                assert math.fsum(found) == pytest.approx(1, abs=1e-12)
                assert found[place] == calibrated
                assert all(0 <= one <= 1 + 1e-12 for one in found)
