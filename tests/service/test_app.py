"""The application, with real models and a real SQLite."""

import asyncio
import dataclasses
import json
import logging
import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from starlette.testclient import TestClient

from qacal import QACalibrator, load
from qacal.embedders import MiniLMEmbedder
from qacal.errors import InputError
from qacal.model.model_set import ModelSet
from qacal.service.app import create_app
from qacal.service.guard import Guard
from qacal.service.served import Models, Worker
from qacal.service.settings import Settings
from qacal.service.telemetry import Telemetry
from qacal.storage import version_of
from tests.answers import answers

JSON = {"content-type": "application/json"}
KEY = "a-key-of-sixteen-characters"
ROWS = [{name: row[name] for name in ("question", "answer", "confidence")} for row in answers(40, seed=7)]


@contextmanager
def serving(folder, tmp_path, **others):
    models = folder if isinstance(folder, dict) else {"m": folder}
    settings = Settings(models, **{"store": f"sqlite:///{tmp_path / 'served.db'}", "reload_seconds": 0.0, **others})
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def client(folder, tmp_path):
    with serving(folder, tmp_path) as client:
        yield client


def stored(client):
    return list(client.app.state.service.store.rows())


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def calibrate(client, items, **others):
    reply = client.post("/v1/calibrate", json={"items": items, **others})
    assert reply.status_code == 200, reply.text
    return reply.json()["results"]


# Calibrating


def test_results_are_those_of_explain(client, folder):
    model = load(folder)
    found = calibrate(client, ROWS, explain=True)
    assert len({one["id"] for one in found}) == len(ROWS)
    for one, row in zip(found, ROWS, strict=True):
        expected = json.loads(json.dumps(model.explain(**row)))
        assert {*one} == {*expected, "id", "model", "model_version"}
        assert (one["model"], one["model_version"]) == ("m", version_of(folder))
        for name in ("calibrated", "low", "high", "group_low", "group_high", "unlike", "threshold"):
            assert one[name] == pytest.approx(expected[name], abs=1e-12), name
        for name in ("confidence", "group", "source", "rows", "decision", "nearest", "lacking"):
            assert one[name] == expected[name], name
        assert one["parts"] == pytest.approx(expected["parts"], abs=1e-9)


def test_reasons_come_only_if_asked_for(client):
    (found,) = calibrate(client, ROWS[:1])
    assert not {"parts", "nearest", "lacking"} & {*found}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"question": "?", "answer": "!", "confidence": 85}, "confidence is 85; expected 0 to 1."),
        ({"question": "?", "answer": "!", "confidence": 1.5}, "confidence is 1.5; expected 0 to 1."),
        ({"question": "?", "answer": "!"}, "confidence"),
        ({"question": "?", "confidence": 0.5}, "answer"),
        ({"question": 5, "answer": {}, "confidence": 0.5}, "expected text"),
        ({**ROWS[0], "question": ""}, "question is missing; expected text."),
        ({}, "confidence"),
        ({"question": "?" * 200_000, "answer": "", "confidence": 0.5}, "at most 100,000"),
        ({**ROWS[0], "model": "another-llm"}, "this model was fitted on parrot-1"),
        ({**ROWS[0], "id": [1]}, "id"),
    ],
)
def test_a_bad_record_is_an_error_of_its_own(client, bad, message):
    good = calibrate(client, ROWS[:5])
    found = calibrate(client, [*ROWS[:3], bad, *ROWS[3:5]])
    assert message in found[3]["error"]["message"]
    assert "--" not in found[3]["error"]["message"]
    assert "No value here" not in found[3]["error"]["message"]
    others = found[:3] + found[4:]
    assert [one["calibrated"] for one in others] == pytest.approx([one["calibrated"] for one in good], abs=1e-12)


def test_requests_at_once_get_their_own_results(client):
    expected = {row["question"] + row["answer"]: calibrate(client, [row])[0]["calibrated"] for row in ROWS}
    wrong = []

    def ask(start):
        for at in range(start, start + 30):
            rows = [ROWS[at % 40], {"bad": True}, ROWS[(at + 7) % 40]][: 1 + at % 3]
            for row, one in zip(rows, calibrate(client, rows), strict=True):
                is_right = (
                    "error" in one
                    if "bad" in row
                    else (abs(one["calibrated"] - expected[row["question"] + row["answer"]]) < 1e-12)
                )
                wrong.extend([] if is_right else [(row, one)])

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.fixture(scope="module")
def tenants(tmp_path_factory):
    """Return the path of a model whose groups are a column."""
    path = tmp_path_factory.mktemp("tenants") / "model"
    rows = [{**row, "tenant": ("north", "south")[at % 2]} for at, row in enumerate(answers(600))]
    QACalibrator(partition="column:tenant").fit(rows).save(path)
    return str(path)


def test_further_columns_reach_the_model(tenants, tmp_path):
    rows = [{"confidence": 0.8, "tenant": "south", "unknown": {"a": 1}}, {"confidence": 0.8, "tenant": "north"}]
    with serving(tenants, tmp_path) as client:
        assert [one["group"] for one in calibrate(client, rows)] == ["south", "north"]


def test_a_result_does_not_depend_on_the_records_beside_it(tenants, tmp_path):
    """Requests that wait are calibrated together, and a column that one record has is not one of all records."""
    lacking, other_kind = {"confidence": 0.8}, {"confidence": 0.8, "tenant": 5}
    with serving(tenants, tmp_path) as client:
        alone = [calibrate(client, [row])[0]["error"] for row in (lacking, other_kind)]
        assert "tenant" in alone[0]["message"]
        beside = calibrate(client, [lacking, {"confidence": 0.8, "tenant": "south"}, other_kind])
    assert [beside[0]["error"], beside[2]["error"]] == alone
    assert beside[1]["group"] == "south"


# Which model


def test_models_are_chosen_by_name_or_by_the_llm_of_the_record(folder, tmp_path):
    QACalibrator(features=()).fit(answers(500, llm="owl-2")).save(tmp_path / "owl")
    row = ROWS[0]
    with serving({"first": folder, "second": str(tmp_path / "owl")}, tmp_path) as client:
        assert calibrate(client, [row], model="second")[0]["model"] == "second"
        by_llm = calibrate(client, [{**row, "model": "owl-2"}, {**row, "model": "parrot-1"}])
        assert [one["model"] for one in by_llm] == ["second", "first"]
        assert calibrate(client, [{**row, "model": "first"}])[0]["model"] == "first"
        (unknown,) = calibrate(client, [row])
        assert "Name one of first, second" in unknown["error"]["message"]
        (wrong,) = calibrate(client, [row], model="third")
        assert "there is no model 'third'" in wrong["error"]["message"]


def test_a_set_of_models_sends_each_record_to_its_model(tmp_path):
    models = {llm: QACalibrator(features=()).fit(answers(500, llm=llm)) for llm in ("parrot-1", "owl-2")}
    ModelSet("model", models).save(tmp_path / "set")
    rows = [{**ROWS[0], "model": llm} for llm in ("owl-2", "parrot-1", "crow-3")]
    with serving(str(tmp_path / "set"), tmp_path) as client:
        found = calibrate(client, rows)
        assert [part["value"] for part in client.get("/v1/model").json()["models"][0]["parts"]] == ["parrot-1", "owl-2"]
    for row, one in zip(rows[:2], found, strict=False):
        assert one["calibrated"] == pytest.approx(models[row["model"]].explain(**row)["calibrated"], abs=1e-12)
    assert "there are models for parrot-1, owl-2" in found[2]["error"]["message"]


# The store


def test_served_answers_are_stored_without_text(client):
    found = calibrate(client, ROWS[:3])
    wait_for(lambda: len(stored(client)) == 3)
    rows = {row["id"]: row for row in stored(client)}
    for one in found:
        for name in ("calibrated", "confidence", "low", "high", "group", "decision", "model", "model_version"):
            assert rows[one["id"]][name] == one[name]
        assert rows[one["id"]]["record"] is None


def test_text_is_stored_if_asked(folder, tmp_path):
    with serving(folder, tmp_path, keep_text=True) as client:
        calibrate(client, ROWS[:1])
        wait_for(lambda: stored(client))
        assert json.loads(stored(client)[0]["record"]) == ROWS[0]


def test_labels_are_stored_by_id(client):
    one, two = calibrate(client, ROWS[:2])
    labels = [
        {"id": one["id"], "correct": True},
        {"id": two["id"], "correct": 0, "source": "audit", "probability": 0.1},
        {"id": "0" * 32, "correct": 1},
        {"id": "not an id", "correct": 1},
        {"id": one["id"], "correct": 1, "source": "audit"},
    ]
    found = client.post("/v1/feedback", json={"items": labels}).json()["results"]
    assert [one.get("stored", one.get("error", {}).get("code")) for one in found] == [
        *(True, True, "unknown_id", "unknown_id", "refused")
    ]
    rows = {row["id"]: row for row in stored(client)}
    assert (rows[one["id"]]["label"], rows[one["id"]]["label_source"]) == (1.0, "volunteered")
    assert (rows[two["id"]]["label"], rows[two["id"]]["label_probability"]) == (0.0, 0.1)


def test_answers_are_deleted_by_id(client):
    (one,) = calibrate(client, ROWS[:1])
    assert client.delete(f"/v1/answers/{one['id']}").json() == {"id": one["id"], "deleted": True}
    assert client.delete(f"/v1/answers/{one['id']}").status_code == 404
    assert client.delete("/v1/answers/x").status_code == 404
    assert stored(client) == []


def test_answers_are_served_if_the_store_fails(client, caplog):
    from qacal.service.database import answers as table

    (kept,) = calibrate(client, ROWS[:1])
    wait_for(lambda: stored(client))
    store = client.app.state.service.store
    with store._engine.begin() as connection:
        table.drop(connection)
    with caplog.at_level(logging.ERROR, "qacal.service"):
        assert "calibrated" in calibrate(client, ROWS[:1])[0]
        wait_for(lambda: store.counts.lost == 1)
    assert "qacal_store_lost_total 1.0" in client.get("/metrics").text
    reply = client.post("/v1/feedback", json={"items": [{"id": kept["id"], "correct": 1}]})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "store_failed")
    assert reply.headers["retry-after"] == "1"


def test_a_service_without_a_store_refuses_labels(folder, tmp_path):
    with serving(folder, tmp_path, store="none") as client:
        (one,) = calibrate(client, ROWS[:1])
        reply = client.post("/v1/feedback", json={"items": [{"id": one["id"], "correct": 1}]})
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "no_store")
        assert client.get("/readyz").json()["store"] == "none"


# Limits and keys


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"items": []}', 422),
        (b'{"items": [5]}', 200),
        (b'{"items": [{}], "model": 5}', 422),
        (b"[" * 100_000, 422),
        (b"\xff\xfe", 422),
        (b"\xff", 422),
        (b'{"items": [{"confidence": NaN, "question": "", "answer": ""}]}', 200),
        (b'{"items": [{"confidence": 1e999, "question": "\\ud800", "answer": "\\u0000"}]}', 200),
        (b'{"items": [{"confidence": 0.5, "question": "\\ud800", "answer": "\\u0000", "model": {"a": []}}]}', 200),
        (b'{"items": [{"confidence": ' + b"9" * 4000 + b', "question": "", "answer": ""}]}', 200),
        (b'{"items": [{"": null, "confidence": "0.5", "question": [], "answer": []}]}', 200),
    ],
)
def test_strange_requests_are_answered(client, body, status):
    reply = client.post("/v1/calibrate", content=body, headers={"content-type": "application/json"})
    assert reply.status_code in ((422, 400) if status == 422 else (status,))
    assert "error" in reply.text or "calibrated" in reply.text


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/calibrate", [], "the body is not a JSON object."),
        ("/v1/decisions", [], "the body is not a JSON object."),
        ("/v1/feedback", {"items": []}, "items is too short: expected at least 1, found 0."),
        (
            "/v1/decisions",
            {"model": "m", "input": "", "questions": []},
            "questions is too short: expected at least 1, found 0.",
        ),
        (
            "/v1/calibrate",
            {"items": ROWS[:1], "explian": True},
            "there is no field 'explian'; GET /docs lists the fields.",
        ),
        ("/v1/feedback", {"items": [{}], "source": "audit"}, "there is no field 'source'; GET /docs lists the fields."),
    ],
)
def test_a_wrong_body_is_told_in_plain_words(client, path, body, message):
    reply = client.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["message"]) == (422, message)


def test_the_name_of_an_unknown_field_is_cut(client):
    for name in ("x" * 1000, "\ud800"):
        reply = client.post("/v1/calibrate", content=json.dumps({"items": [{}], name: 1}), headers=JSON)
        assert reply.status_code == 422
        assert len(reply.text) < 300


def test_a_route_that_is_not_there_is_told_without_its_path(client):
    for method, path in (("POST", "/v1/embeddings"), ("GET", "/v1/answers")):
        reply = client.request(method, path)
        assert reply.status_code == 404
        assert reply.json()["error"] == {
            "code": "http_error",
            "message": "there is no such route; GET /docs lists them.",
        }


def test_a_wrong_method_is_told_which_is_right(client):
    reply = client.get("/v1/calibrate")
    assert reply.status_code == 405
    assert reply.json()["error"]["message"] == "this route takes POST; GET /docs lists all."


def test_a_body_that_is_no_json_is_told_so(client):
    reply = client.post("/v1/calibrate", content='{"items": [', headers={"content-type": "application/json"})
    assert reply.status_code == 422
    assert reply.json()["error"]["message"].startswith("the body is not JSON: ")
    untyped = client.post("/v1/feedback", content='{"items": []}')
    assert (untyped.status_code, untyped.json()["error"]["code"]) == (415, "wrong_content_type")


def test_a_record_that_is_no_object_is_an_error_of_its_own(client):
    one, bad, lacking = calibrate(client, [ROWS[0], "text", {"question": "?", "answer": "!"}])
    assert "calibrated" in one
    assert bad["error"] == {"code": "invalid_record", "message": "the record is not an object."}
    assert lacking["error"]["message"] == "the record has no field 'confidence'; it has question, answer."


def test_requests_beyond_the_limits_are_refused(folder, tmp_path):
    limits = {"max_items": 2, "max_body": 2000, "max_text": 100}
    with serving(folder, tmp_path, **limits) as client:
        many = client.post("/v1/calibrate", json={"items": ROWS[:3]})
        assert (many.status_code, many.json()["error"]["code"]) == (413, "too_many_items")
        large = client.post("/v1/calibrate", json={"items": [{"question": "x" * 3000}]})
        assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")
        streamed = client.post("/v1/calibrate", content=iter([b"x" * 1500, b"x" * 1500]))
        assert streamed.status_code == 413
        (found,) = calibrate(client, [{**ROWS[0], "question": "x" * 101}])
        assert "has 101 characters; at most 100" in found["error"]["message"]


def test_more_requests_at_once_than_allowed_are_refused(folder, tmp_path, monkeypatch):
    with serving(folder, tmp_path, max_requests=1) as client:
        served = client.app.state.service.models.served["m"]
        go_on, is_begun = threading.Event(), threading.Event()
        real = type(served).explained

        def slow(self, records, *, why):
            is_begun.set()
            assert go_on.wait(20)
            return real(self, records, why=why)

        monkeypatch.setattr(type(served), "explained", slow)
        replies = []
        # Of a request this long, another thread takes care.
        thread = threading.Thread(target=lambda: replies.append(calibrate(client, ROWS[:5])))
        thread.start()
        assert is_begun.wait(20)
        refused = client.post("/v1/calibrate", json={"items": ROWS[:1]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200
        go_on.set()
        thread.join()
        assert "calibrated" in replies[0][0]
        assert "calibrated" in calibrate(client, ROWS[:1])[0]


def test_a_request_that_takes_too_long_is_given_up(folder, tmp_path, monkeypatch):
    with serving(folder, tmp_path, max_seconds=0.2) as client:
        served = client.app.state.service.models.served["m"]
        real = type(served).explained
        monkeypatch.setattr(type(served), "explained", lambda *_, **__: time.sleep(0.6) or [{}])
        reply = client.post("/v1/calibrate", json={"items": ROWS[:5]})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "too_slow")
        monkeypatch.setattr(type(served), "explained", real)
        time.sleep(0.6)
        assert "calibrated" in calibrate(client, ROWS[:1])[0]


def test_short_requests_are_calibrated_together_and_long_ones_do_not_keep_them_waiting(folder, monkeypatch):
    served = Models({"m": folder}).served["m"]
    calls = []
    real = type(served).explained

    def counted(self, records, *, why):
        calls.append((len(records), threading.current_thread() is threading.main_thread()))
        return real(self, records, why=why)

    monkeypatch.setattr(type(served), "explained", counted)

    async def ask():
        worker = Worker()
        short = [worker.explained(served, [row], why=False) for row in ROWS[:3]]
        long = [{**ROWS[3], "question": "Why? " * 1000}]
        chat = [{**ROWS[3], "question": [{"role": "user", "content": "Why? " * 1000}]}]
        gone = asyncio.create_task(worker.explained(served, ROWS[4:5], why=False))
        gone.cancel()
        found = await asyncio.gather(*short, worker.explained(served, ROWS[:5], why=False))
        await worker.explained(served, long, why=False)
        await worker.explained(served, chat, why=False)
        await asyncio.gather(*(worker.explained(served, [row], why=False) for row in ROWS))
        worker.close()
        return found

    found = asyncio.run(ask())
    assert sorted(calls) == [(1, False), (1, False), (3, True), (5, False), (8, True), (32, True)]
    short = [one["calibrated"] for part in found[:3] for one in part]
    assert short == pytest.approx([one["calibrated"] for one in found[3][:3]], abs=1e-12)


def test_a_model_whose_embedder_takes_long_leaves_the_thread_of_the_requests_alone(folder):
    served = Models({"m": folder}).served["m"]
    assert served.is_quick
    slow = dataclasses.replace(served)
    slow.model.pipeline_.vectors._loaded = object.__new__(MiniLMEmbedder)
    assert not slow.is_quick


class Panic(BaseException):
    """Each compiled library has a panic of its own, which is no Exception."""


@pytest.mark.parametrize("mistake", [ZeroDivisionError, pl.exceptions.PanicException, Panic])
def test_a_mistake_in_a_model_does_not_end_the_service(mistake, folder, monkeypatch):
    def fails(*_, **__):
        raise mistake

    settings = Settings({"m": folder}, store="none", reload_seconds=0.0, max_seconds=5.0)
    with TestClient(create_app(settings), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        model = client.app.state.service.models.served["m"].model
        real = type(model)._explained_rows
        monkeypatch.setattr(type(model), "_explained_rows", fails)
        for items in (ROWS[:1], ROWS[:5]):  # short and long
            assert client.post("/v1/calibrate", json={"items": items}).status_code == 500
        monkeypatch.setattr(type(model), "_explained_rows", real)
        assert "calibrated" in calibrate(client, ROWS[:1])[0]


def test_the_key_opens_all_routes_but_those_of_health(folder, tmp_path):
    with serving(folder, tmp_path, api_key=KEY, host="0.0.0.0") as client:
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        for given in (None, "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", "Bearer", KEY):
            headers = {} if given is None else {"authorization": given}
            for path in ("/metrics", "/v1/model", "/docs", "/openapi.json", "/nothing"):
                assert client.get(path, headers=headers).status_code == 401, (given, path)
            assert client.post("/v1/calibrate", json={"items": ROWS[:1]}, headers=headers).status_code == 401
        headers = {"authorization": f"Bearer {KEY}", "host": "calibration.example.org"}
        assert client.post("/v1/calibrate", json={"items": ROWS[:1]}, headers=headers).status_code == 200


@pytest.mark.parametrize("others", [{}, {"api_key": KEY}, {"insecure": True}])
@pytest.mark.parametrize(
    "foreign",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:81"},
     {"sec-fetch-site": "cross-site"}],
)  # fmt: skip
def test_requests_of_other_sites_are_refused(folder, tmp_path, others, foreign):
    with serving(folder, tmp_path, **others) as client:
        key = {"authorization": f"Bearer {KEY}"}
        for method, path in (("POST", "/v1/calibrate"), ("POST", "/v1/chat/completions"), ("GET", "/v1/model")):
            reply = client.request(method, path, json={"items": ROWS[:1]}, headers={**key, **foreign})
            assert reply.status_code == 403, path
            assert reply.json()["error"]["code"] == "other_origin"
        own = {**key, "origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
        assert client.post("/v1/calibrate", json={"items": ROWS[:1]}, headers=own).status_code == 200
        assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link


def test_pages_of_the_web_do_not_reach_a_service_without_a_key(client):
    body = json.dumps({"items": ROWS[:1]})
    # By a name that resolves to this machine, and by a form, which needs no permission of the browser.
    named = client.post(
        "/v1/calibrate", content=body, headers={"host": "evil.example", "content-type": "application/json"}
    )
    assert (named.status_code, named.json()["error"]["code"]) == (421, "wrong_host")
    assert client.post("/v1/calibrate", content=body, headers={"content-type": "text/plain"}).status_code == 415
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    preflight = client.options("/v1/calibrate", headers=asked)
    assert "access-control-allow-origin" not in preflight.headers
    for host in ("localhost:8321", "127.0.0.1", "[::1]:8321"):
        assert client.get("/v1/model", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.org", "::"])
def test_other_hosts_need_a_key(host):
    with pytest.raises(InputError, match="--insecure"):
        Settings({"m": "model"}, host=host)
    assert Settings({"m": "model"}, host=host, insecure=True).host == host
    assert Settings({"m": "model"}, host=host, api_key=KEY).host == host


def test_a_weak_key_is_refused_and_not_shown():
    with pytest.raises(InputError) as raised:
        Settings({"m": "model"}, api_key="hunter2")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("is_logged", [False, True])
def test_logs_have_no_text_of_requests(folder, tmp_path, caplog, is_logged):
    secret = "a very secret question"
    with caplog.at_level(logging.DEBUG), serving(folder, tmp_path, log_requests=is_logged) as client:
        calibrate(client, [{**ROWS[0], "question": secret}, {"question": secret, "confidence": secret}])
        client.get(f"/{secret}")
        client.request("SECRET", "/v1/calibrate")
        client.post("/v1/calibrate", json={"items": secret})
        assert "secret" not in client.get("/metrics").text
    said = [record for record in caplog.records if record.name.startswith("qacal")]
    told = "\n".join(record.getMessage() for record in said)
    assert "secret" not in told.lower()
    if is_logged:
        assert all(record.levelno == logging.INFO for record in said)
        routes = ["POST /v1/calibrate 200", "GET other 404", "other /v1/calibrate 405", "POST /v1/calibrate 422"]
        routes.append("GET /metrics 200")
        assert [re.sub(r" [0-9.]+ ms$", "", line) for line in told.split("\n")] == routes
    else:
        assert told == ""


# What it says about itself


def test_groups_model_and_metrics(client, fitted):
    calibrate(client, [*ROWS, {"confidence": 85, "question": "", "answer": ""}])
    (groups,) = client.get("/v1/groups").json()["models"]
    assert [group["group"] for group in groups["groups"]] == [group.group for group in fitted.describe_groups()]
    assert "examples" not in groups["groups"][0]
    (model,) = client.get("/v1/model").json()["models"]
    assert (model["name"], model["parts"][0]["needs_text"], model["parts"][0]["threshold"]) == ("m", True, 0.6)
    text = client.get("/metrics").text
    for line in (
        'qacal_answers_total{model="m",outcome="calibrated"} 40.0',
        'qacal_answers_total{model="m",outcome="error"} 1.0',
        'qacal_unparsed_confidence_total{model="m"} 1.0',
        'qacal_confidence_count{model="m"} 40.0',
        'qacal_requests_total{route="/v1/calibrate",status="200"} 1.0',
        f'qacal_model_info{{model="m",version="{model["version"]}"}} 1.0',
    ):
        assert line in text
    assert client.get("/readyz").json() == {"status": "ok", "store": "ok", "lost": 0, "models": ["m"]}


def test_documentation_needs_nothing_from_elsewhere(client):
    page = client.get("/docs").text
    assert "POST /v1/calibrate" in page
    assert "http" not in page.replace("http_error", "")
    assert "<script" not in page
    document = client.get("/openapi.json").json()
    assert {"/v1/calibrate", "/v1/feedback", "/v1/groups", "/v1/model", "/metrics"} <= {*document["paths"]}


# New versions


def test_a_new_version_is_served_and_the_old_one_put_back(client, folder, fitted):
    service, old = client.app.state.service, version_of(folder)
    before = calibrate(client, ROWS[:1])[0]
    assert service.models.reload() == []
    QACalibrator(features=()).fit(answers(400, seed=5)).save(folder)
    service.watcher.look()
    wait_for(lambda: service.models.served["m"].version != old)
    after = calibrate(client, ROWS[:1])[0]
    assert after["model_version"] == version_of(folder) != old
    assert after["calibrated"] != before["calibrated"]
    fitted.save(folder)
    service.models.reload()
    again = calibrate(client, ROWS[:1])[0]
    assert again["model_version"] == old
    assert again["calibrated"] == before["calibrated"]
    assert "qacal_model_reloads_total 2.0" in client.get("/metrics").text


def test_a_version_without_the_threshold_of_the_one_before_is_told(client, folder, fitted, caplog):
    with caplog.at_level(logging.WARNING, "qacal.service"):
        fitted.set_threshold(0.9).save(folder)
        client.app.state.service.models.reload()
        fitted.set_threshold(0.6)
        assert caplog.text == ""
        QACalibrator(features=()).fit(answers(400, seed=5)).save(folder)
        client.app.state.service.models.reload()
        assert "no longer abstains" in caplog.text
        caplog.clear()
        QACalibrator(features=()).fit(answers(400, seed=6)).save(folder)
        client.app.state.service.models.reload()
        assert caplog.text == ""


def test_columns_that_a_record_lacks_are_named(tmp_path):
    rows = [{**row, "retrieval": 3.0 * row["correct"] + at % 7} for at, row in enumerate(answers(600))]
    QACalibrator(features=["retrieval"]).fit(rows).save(tmp_path / "model")
    with serving(str(tmp_path / "model"), tmp_path) as client:
        full, without, none = calibrate(client, [{**ROWS[0], "retrieval": value} for value in (5.0, None)] + ROWS[:1])
    assert "lacking" not in full
    assert without["lacking"] == none["lacking"] == ["retrieval"]


def test_a_folder_that_is_gone_is_told_once(client, folder, caplog):
    models = client.app.state.service.models
    Path(folder).rename(f"{folder}-gone")
    with caplog.at_level(logging.WARNING, "qacal.service"):
        assert models.reload() == models.reload() == []
    assert caplog.text.count(f"{folder} is gone") == 1
    assert "calibrated" in calibrate(client, ROWS[:1])[0]
    Path(f"{folder}-gone").rename(folder)
    models.reload()


def test_a_store_that_is_deleted_refuses_labels_and_says_so(client, tmp_path, caplog):
    (one,) = calibrate(client, ROWS[:1])
    wait_for(lambda: stored(client))
    (tmp_path / "served.db").unlink()
    reply = client.post("/v1/feedback", json={"items": [{"id": one["id"], "correct": 1}]})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "store_failed")
    assert "served.db was deleted or replaced" in reply.json()["error"]["message"]
    assert "the store failed: " in caplog.text
    page = client.get("/").text
    assert "start the service again. </p>" in page
    assert "calibrated" in calibrate(client, ROWS[:1])[0]
    wait_for(lambda: client.get("/readyz").json()["lost"] == 1)
    assert client.get("/readyz").json()["store"] == "failed"
    assert caplog.text.count("the store failed") == 1  # not at every failure
    assert "start the service again. 1 served answer was not stored since" in client.get("/").text


def test_failures_of_the_store_are_logged_now_and_then_with_all_that_was_lost(client, tmp_path, caplog, monkeypatch):
    calibrate(client, ROWS[:1])
    wait_for(lambda: stored(client))
    (tmp_path / "served.db").unlink()
    for lost in (1, 2):
        calibrate(client, ROWS[:1])
        wait_for(lambda lost=lost: client.app.state.service.store.counts.lost == lost)
    monkeypatch.setattr("qacal.service.store._TELL_EVERY", 0.0)
    calibrate(client, ROWS[:1])
    wait_for(lambda: "the store failed, 2 answers were not stored: " in caplog.text)
    assert caplog.text.count("the store failed, 1 answer was not stored: ") == 1


def test_a_damaged_version_leaves_the_old_one(client, folder, fitted, caplog):
    from pathlib import Path

    old = version_of(folder)
    document = Path(folder) / "model.json"
    whole = document.read_bytes()
    document.write_bytes(whole[:1000])
    models = client.app.state.service.models
    with caplog.at_level(logging.ERROR, "qacal.service"):
        assert models.reload() == models.reload() == []
    assert models.failures == 1
    assert "the old one stays" in caplog.text
    assert calibrate(client, ROWS[:1])[0]["model_version"] == old
    fitted.save(folder)
    models.reload()
    assert calibrate(client, ROWS[:1])[0]["model_version"] == old


def test_no_request_is_dropped_while_versions_change(folder, tmp_path, fitted):
    other = QACalibrator(features=()).fit(answers(400, seed=5))
    expected = {}
    for model in (fitted, other):
        model.save(tmp_path / "copy")
        expected[version_of(tmp_path / "copy")] = model.explain(**ROWS[0])["calibrated"]
    with serving(folder, tmp_path, reload_seconds=0.01) as client:
        seen, wrong, is_over = set(), [], threading.Event()

        def ask():
            while not is_over.is_set():
                for one in calibrate(client, [ROWS[0]] * 3):
                    seen.add(one["model_version"])
                    if one["calibrated"] != pytest.approx(expected[one["model_version"]], abs=1e-12):
                        wrong.append(one)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for model in (other, fitted, other, fitted):
            model.save(folder)
            version = version_of(folder)
            wait_for(lambda: client.app.state.service.models.served["m"].version == version)  # noqa: B023
        is_over.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert seen == {*expected}


@pytest.mark.parametrize("correct", [None, "yes", 2, []])
def test_a_label_that_is_none_is_an_error_of_its_own(client, correct):
    one, two = calibrate(client, ROWS[:2])
    items = [{"id": one["id"], "correct": correct}, {"id": two["id"], "correct": True, "question": "?", "own_id": None}]
    refused, kept = client.post("/v1/feedback", json={"items": items}).json()["results"]
    assert refused["id"] == one["id"]
    found = "missing or null" if correct is None else "no label"
    message = f"correct is {found}; expected 0 or 1, or a number in between."
    assert refused["error"] == {"code": "invalid_label", "message": message}
    assert kept == {"id": two["id"], "stored": True}
    assert [row["id"] for row in stored(client) if row["label"] is not None] == [two["id"]]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"id": "a" * 32}, "correct is missing"),
        ({"id": 7, "correct": 1}, "id: "),
        ({"correct": 1}, "id: "),
        ({"id": "a" * 32, "correct": 1, "source": "guess"}, "source: "),
        ({"id": "a" * 32, "correct": 1, "source": "audit", "probability": 2}, "probability: "),
        ({"id": "a" * 32, "correct": 1, "probability": 0.5}, "volunteered label has no probability"),
        ("a" * 32, "the item is not a JSON object."),
        (None, "the item is not a JSON object."),
        ([], "the item is not a JSON object."),
    ],
)
def test_an_item_that_is_no_label_is_an_error_of_its_own(client, item, message):
    (served,) = calibrate(client, ROWS[:1])
    items = [item, {"id": served["id"], "correct": 1}]
    refused, kept = client.post("/v1/feedback", json={"items": items}).json()["results"]
    assert message in refused["error"]["message"]
    assert kept["stored"]
    text = client.get("/metrics").text
    assert 'qacal_labels_total{outcome="stored",source="volunteered"} 1.0' in text


@pytest.mark.parametrize("stalls", [False, True])
def test_a_stream_may_be_long_but_not_silent(folder, stalls):
    """The limit is 0.8 s; the stream takes 1.6 s, and then stalls or ends."""
    sent = []

    async def stream(scope, receive, send):
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send(start)
        for _ in range(8):
            await asyncio.sleep(0.2)
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await asyncio.sleep(60 if stalls else 0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    settings = Settings({"m": folder}, max_seconds=0.2, upstream_seconds=0.4)
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(stream, settings, Telemetry(Models({}), None))(scope, receive, send))
    assert [one.get("body") for one in sent[1:9]] == [b"data: 1\n\n"] * 8
    assert len(sent) == 10
    assert sent[-1]["more_body"] is False
    assert (b"too_slow" in sent[-1]["body"]) == stalls
