"""The first model: answers are collected, drawn, labelled and fitted, and the running service loads the model."""

import json
from uuid import uuid4

import pytest

from qacal import load
from qacal.errors import InputError
from qacal.service.audits import Label
from qacal.service.guardrail import PATH as GUARDRAIL
from qacal.service.learning import first_sample
from qacal.service.settings import Settings
from qacal.service.store import Store, row_of
from qacal.sources.completions import ConfidenceFrom
from tests.answers import answers
from tests.cli.test_cli import ok, run
from tests.service.test_app import calibrate, serving, stored, wait_for
from tests.service.upstreams import stubbed

NAME = "qa_calibration"
ROWS = answers(160, seed=3)
NAMES = ("calibrated", "low", "high", "unlike", "decision", "group", "source")
NO_EVIDENCE = {"confidence": 0.9, **dict.fromkeys(NAMES)}
TRUTH = {row["question"]: row["correct"] for row in ROWS}


@pytest.fixture(scope="module")
def stub():
    with stubbed() as stub:
        yield stub


@pytest.fixture
def collecting(tmp_path, stub):
    stub.reset()
    chosen = {"collects": True, "keep_text": True, "upstream": stub.url}
    with serving(
        {"first": str(tmp_path / "first")}, tmp_path, confidence_from=ConfidenceFrom.LOGPROBS, **chosen
    ) as one:
        yield one


def completed(client, stub, row, **others):
    stub.answer, stub.probability = row["answer"], row["confidence"]
    messages = [{"role": "user", "content": row["question"]}]
    reply = client.post("/v1/chat/completions", json={"model": "parrot-1", "messages": messages, **others})
    assert reply.status_code == 200, reply.text
    return reply


def test_from_a_program_without_labels_to_calibrated_answers(collecting, stub, tmp_path):
    url, to_label = f"sqlite:///{tmp_path / 'served.db'}", tmp_path / "to_label.json"
    for row in ROWS:
        reply = completed(collecting, stub, row)
        found = reply.json()[NAME]
        assert (found["calibrated"], found["decision"]) == (None, None)
        assert found["raw_confidence"] == pytest.approx(row["confidence"])
        assert "no model yet" in found["reason"]
        assert reply.headers["x-qa-calibration-id"] == found["id"]
        assert "x-qa-calibration-confidence" not in reply.headers
    wait_for(lambda: len(stored(collecting)) == 160)
    code, _, said = run("fit", "--store", url, "-o", tmp_path / "first")
    assert code == 1
    assert "label-next" in said
    ok("label-next", tmp_path / "first", "--store", url, "-n", 120, "-o", to_label)
    drawn = json.loads(to_label.read_text(encoding="utf-8"))
    labels = [{"id": one["id"], "correct": TRUTH[one["question"]], "source": "audit"} for one in drawn["items"]]
    others = [row["id"] for row in stored(collecting) if row["drawn_time"] is None]
    labels += [{"id": id_, "correct": 0} for id_ in others[:5]]
    results = collecting.post("/v1/feedback", json={"items": labels[1:]}).json()["results"]
    assert all(one["stored"] for one in results)
    code, _, said = run("fit", "--store", url, "-o", tmp_path / "first", "--json")
    assert code == 0, said
    assert "Volunteered labels are not used: 5." in said
    assert "without a label: 1." in said
    model = load(tmp_path / "first")
    assert 0.6 * 119 < model.rows_ < 119
    assert model.origins_ == {"model": ["parrot-1"], "confidence_source": ["tokens"]}
    collecting.app.state.service.models.reload()
    found = completed(collecting, stub, ROWS[0]).json()[NAME]
    expected = load(tmp_path / "first").explain(ROWS[0]["question"], ROWS[0]["answer"], ROWS[0]["confidence"])
    assert found["calibrated"] == pytest.approx(expected["calibrated"], abs=1e-9)
    assert len(stored(collecting)) >= 160


def test_all_ways_in_collect(collecting, stub):
    chunks = completed(collecting, stub, ROWS[0], stream=True).text.split("\n\n")
    (last,) = [json.loads(one[6:]) for one in chunks if NAME in one]
    question = {"type": "predicate", "name": "big", "instructions": "It is big."}
    stub.answer, stub.probability = "True", 0.9
    asked = {"model": "parrot-1", "input": "An ant.", "questions": [question]}
    for mode in ("annotate", "replace", "abstain"):
        reply = collecting.post("/v1/decisions", json=asked, headers={"x-qa-calibration-mode": mode}).json()
        (answer,) = reply["answers"]
        assert (answer["type"], answer["probability"]) == ("predicate", 1.0)  # no other token is listed
        assert answer[NAME]["question_kind"].startswith("big-")
    call = {"litellm_call_id": "c", "model": "parrot-1"}
    messages = [{"role": "user", "content": "2 + 2?"}]
    collecting.post(GUARDRAIL, json={**call, "input_type": "request", "structured_messages": messages})
    stated = {**call, "input_type": "response", "texts": ["Guess: 4\nProbability: 0.9"]}
    checked = collecting.post(GUARDRAIL, json=stated).json()
    assert checked["action"] == "NONE"
    sent = [ROWS[0], {**ROWS[1], "confidence": "high"}, {"question": "?", "confidence": 0.5}, {**ROWS[2], "id": "mine"}]
    results = calibrate(collecting, sent)
    assert ["error" in one for one in results] == [False, True, True, False]
    assert "there is no model 'other'" in calibrate(collecting, sent[:1], model="other")[0]["error"]["message"]
    ids = [last[NAME]["id"], answer[NAME]["id"], results[0]["id"], results[3]["id"]]
    wait_for(lambda: {*ids} <= {row["id"] for row in stored(collecting)})
    rows = {row["id"]: row for row in stored(collecting)}
    assert json.loads(rows[answer[NAME]["id"]]["record"])["confidence_source"] == "decision-tokens"
    assert rows[results[3]["id"]]["own_id"] == "mine"
    assert {(row["calibrated"], row["model_version"]) for row in rows.values()} == {(None, "")}
    assert 'qacal_answers_total{model="first",outcome="collected"}' in collecting.get("/metrics").text


def test_a_record_that_no_fit_could_read_is_refused_at_once(collecting):
    results = calibrate(collecting, [{**ROWS[0], "question": " "}, {**ROWS[0], "id": [1]}])
    assert [one["error"]["message"][:11] for one in results] == ["question is", "id is [1]; "]


def test_a_record_with_another_kind_of_confidence_is_refused(collecting):
    kinds = (None, "tokens", "stated", 5)
    results = calibrate(collecting, [{**ROWS[0], "confidence_source": kind} for kind in kinds])
    assert ["error" in one for one in results] == [False, False, True, True]
    message = results[2]["error"]["message"]
    assert message.startswith("confidence_source is 'stated', and this service collects tokens (--confidence-from log")
    wait_for(lambda: len(stored(collecting)) == 2)


def sampled(tmp_path, records):
    """Return the sample for a first fit of records that an audit labelled, all with the same chance."""
    store = Store(f"sqlite:///{tmp_path / 'some.db'}")
    try:
        rows = [row_of(uuid4().hex, "gpt", "", NO_EVIDENCE, one, own_id=one.get("id")) for one in records]
        store.record(rows)
        store.label([Label(row["id"], 1.0, "audit", 0.5) for row in rows]).result()
        return first_sample(store, "gpt")[0]
    finally:
        store.close()


def test_a_first_sample_keeps_the_llm_that_is_named_like_the_model(tmp_path):
    record = {"question": "?", "answer": "!", "confidence": 0.9}
    found = sampled(tmp_path, [{**record, "model": "gpt"}, {**record, "model": "qwen"}])
    assert {one["model"] for one in found} == {"gpt", "qwen"}


@pytest.mark.parametrize(("column", "value"), [("confidence_source", "stated"), ("model", "gpt")])
def test_a_first_sample_of_which_a_part_says_its_origin_is_refused(tmp_path, column, value):
    record = {"question": "?", "answer": "!", "confidence": 0.9}
    with pytest.raises(InputError, match=column):
        sampled(tmp_path, [record, {**record, column: value}])


def test_in_a_first_sample_all_answers_have_an_id_or_none(tmp_path):
    record = {"question": "?", "answer": "!", "confidence": 0.9}
    assert [one.get("id") for one in sampled(tmp_path, [{**record, "id": "a"}, record])] == [None, None]


def test_everything_else_answers_without_a_model(collecting):
    for path in ("/v1/model", "/v1/groups", "/v1/watch", "/readyz", "/metrics", "/docs"):
        assert collecting.get(path).status_code == 200, path
    page = collecting.get("/")
    assert page.status_code == 200
    assert "qacal fit --store sqlite:///" in page.text
    assert f"-o {collecting.app.state.service.settings.models['first']}</pre>" in page.text
    assert collecting.post("/", data={"question": "?", "answer": "!", "confidence": "0.5"}).status_code == 200


def test_a_confidence_that_cannot_be_read_is_not_collected(collecting, stub):
    stub.probability = None
    found = completed(collecting, stub, {**ROWS[0], "confidence": None}).json()[NAME]
    assert "id" not in found
    assert found["reason"] == "there are no token probabilities"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": {"a": "a", "b": "b"}}, "exactly one MODEL"),
        ({"store": "none"}, "a --store other than none"),
        ({"upstream": "http://127.0.0.1:1/v1"}, "--confidence-from"),
    ],
)
def test_what_collecting_needs(change, message):
    with pytest.raises(InputError, match=message):
        Settings(**{"models": {"a": "a"}, "collects": True, "keep_text": True, **change})


def test_the_options_of_a_file_do_not_go_with_a_store(tmp_path):
    for others in (["rows.csv"], ["--percent"], ["--column", "answer=a"]):
        assert run("fit", "--store", "sqlite:///a.db", "-o", tmp_path / "model", *others)[0] == 2
    assert run("fit", "-o", tmp_path / "model")[0] == 2
