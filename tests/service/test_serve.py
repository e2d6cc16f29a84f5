"""`qacal serve` as users start it: a process of its own."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx2
import pytest

from qacal import QACalibrator
from qacal.cli.serve import _named
from qacal.errors import InputError
from qacal.service.store import Store
from qacal.sources.completions import ConfidenceFrom, Planner
from qacal.storage import version_of
from tests.answers import answers
from tests.cli.test_cli import run
from tests.service.upstreams import stubbed

ROWS = [{name: row[name] for name in ("question", "answer", "confidence")} for row in answers(40, seed=7)]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@contextmanager
def process(folder, *options, **environment):
    """Start a server; yield the process and a client."""
    port = free_port()
    command = [sys.executable, "-m", "qacal.cli", "serve", folder, "--port", str(port), *options]
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            until = time.monotonic() + 60
            while True:
                try:
                    client.get("/healthz")
                    break
                except httpx2.TransportError:
                    assert server.poll() is None, server.communicate()
                    assert time.monotonic() < until
                    time.sleep(0.05)
            yield server, client, port
    finally:
        if server.poll() is None:
            server.terminate()
        server.communicate(timeout=30)


def test_a_server_calibrates_reloads_and_stops(folder, tmp_path, fitted):
    store = f"sqlite:///{tmp_path / 'served.db'}"
    with process(folder, "--store", store, "--reload-seconds", "0", "--log-requests") as (server, client, _):
        found = client.post("/v1/calibrate", json={"items": ROWS}).json()["results"]
        expected = [fitted.explain(**row)["calibrated"] for row in ROWS]
        assert [one["calibrated"] for one in found] == pytest.approx(expected, abs=1e-12)
        fitted.set_threshold(0.9).save(folder)
        fitted.set_threshold(0.6)
        if hasattr(signal, "SIGHUP"):
            server.send_signal(signal.SIGHUP)
            until = time.monotonic() + 20
            while client.get("/v1/model").json()["models"][0]["version"] != version_of(folder):
                assert time.monotonic() < until
                time.sleep(0.02)
            (again,) = client.post("/v1/calibrate", json={"items": ROWS[:1]}).json()["results"]
            assert again["threshold"] == 0.9
        server.terminate()
        _, said = server.communicate(timeout=30)
        assert "version" in said
        assert f"\nstore: {store}\n" in said
        assert "qacal.service INFO POST /v1/calibrate 200 " in said
        assert ROWS[0]["question"] not in said
    # What was queued is written before the end.
    opened = Store(store)
    assert len(list(opened.rows())) >= len(ROWS)
    opened.close()


def test_acknowledged_labels_survive_a_kill(folder, tmp_path):
    store = f"sqlite:///{tmp_path / 'served.db'}"
    acknowledged, lock = {}, threading.Lock()
    with process(folder, "--store", store) as (server, _, port):

        def load(number):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

            def post(path, items):
                connection.request("POST", path, json.dumps({"items": items}), {"Content-Type": "application/json"})
                return json.loads(connection.getresponse().read())["results"]

            try:
                while True:
                    served = post("/v1/calibrate", ROWS[number : number + 5])
                    labels = [{"id": one["id"], "correct": at % 2} for at, one in enumerate(served)]
                    for label, result in zip(labels, post("/v1/feedback", labels), strict=True):
                        if result.get("stored"):
                            with lock:
                                acknowledged[label["id"]] = label["correct"]
            except (OSError, http.client.HTTPException):
                return
            finally:
                connection.close()

        threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60
        while len(acknowledged) < 100:
            assert time.monotonic() < until
            time.sleep(0.01)
        server.kill()
        for thread in threads:
            thread.join()
    opened = Store(store)
    found = {row["id"]: row["label"] for row in opened.rows(labelled=True)}
    opened.close()
    assert len(acknowledged) >= 100
    assert {id_: found.get(id_) for id_ in acknowledged} == acknowledged


def test_a_key_comes_from_the_environment(folder):
    key = "a-key-of-sixteen-characters"
    with process(folder, "--store", "none", "--api-key-env", "MY_KEY", MY_KEY=key) as (server, client, _):
        assert client.get("/v1/model").status_code == 401
        assert client.get("/v1/model", headers={"authorization": f"Bearer {key}"}).status_code == 200
        server.terminate()
        assert key not in "".join(server.communicate(timeout=30))


def test_an_upstream_stands_behind_the_proxy(tmp_path):
    folder, secret = str(tmp_path / "model"), "sk-of-the-upstream"
    rows = [{**row, "confidence_source": "stated"} for row in answers(500)]
    QACalibrator(features=()).fit(rows).save(folder)
    asked = {"model": "parrot-1", "messages": [{"role": "user", "content": ROWS[0]["question"]}]}
    with stubbed() as stub:
        options = ("--store", "none", "--upstream", stub.url, "--confidence-from", "logprobs")
        allowed = ("--allow-other-source", "confidence_source")
        with process(folder, *options, *allowed, QACAL_UPSTREAM_KEY=secret) as (server, client, _):
            reply = client.post("/v1/chat/completions", json=asked).json()
            server.terminate()
            said = "".join(server.communicate(timeout=30))
    assert reply["qa_calibration"]["raw_confidence"] == pytest.approx(0.8)
    assert "source stated" in reply["qa_calibration"]["warning"]
    assert stub.headers[0]["authorization"] == f"Bearer {secret}"
    assert f"upstream: {stub.url}" in said
    assert "Warning: model: the model was fitted on confidences of the source stated" in said
    assert secret not in said
    assert ROWS[0]["question"] not in said


def test_an_allowed_prompt_is_no_warning_at_the_start(tmp_path):
    folder = str(tmp_path / "model")
    rows = [{**row, "confidence_source": "stated", "prompt": "my-prompt"} for row in answers(500)]
    model = QACalibrator(features=()).fit(rows)
    model.save(folder)
    (warning,) = Planner(ConfidenceFrom.AUTO, model).warnings
    assert "the prompt my-prompt" in warning
    options = ("--store", "none", "--upstream", "http://127.0.0.1:9/v1", "--allow-other-source", "prompt")
    with process(folder, *options) as (server, _, _):
        server.terminate()
        said = "".join(server.communicate(timeout=30))
    assert "upstream: http://127.0.0.1:9/v1" in said
    assert "Warning" not in said


def test_auto_leaves_messages_as_they_are_and_names_the_form_of_the_fit():
    rows = [{**row, "confidence_source": "stated", "prompt": "verb1s-top1/1"} for row in answers(500)]
    model = QACalibrator(features=()).fit(rows)
    planner = Planner(ConfidenceFrom.AUTO, model)
    messages = [{"role": "user", "content": ROWS[0]["question"]}]
    assert planner.plan({"messages": messages}).sent()["messages"] == messages
    (warning,) = planner.warnings
    assert "fitted on answers to the prompt verb1s-top1/1, and verb2s-top1/1 is asked here" in warning
    assert "--confidence-from one-call asks in the prompt of the fit" in warning
    assert Planner(ConfidenceFrom.ONE_CALL, model).warnings == []


def test_credentials_in_the_url_of_the_upstream_are_sent_and_never_logged(folder):
    asked = {"model": "parrot-1", "messages": [{"role": "user", "content": ROWS[0]["question"]}]}
    with stubbed() as stub:
        url = stub.url.replace("http://", "http://me:hidden-password@")
        with process(folder, "--store", "none", "--upstream", url) as (server, client, _):
            assert client.post("/v1/chat/completions", json=asked).status_code == 200
            server.terminate()
            said = "".join(server.communicate(timeout=30))
    assert stub.headers[0]["authorization"].startswith("Basic ")
    assert f"upstream: {stub.url}" in said
    assert "hidden" not in said


def test_wrong_use_is_named_before_anything_is_loaded(folder):
    for arguments, problem in (
        ((folder, "--host", "0.0.0.0"), "QACAL_API_KEY"),
        ((folder, folder), "two models have the name"),
        ((folder, "--port", "70000"), "65535"),
        ((folder, "--upstream", "nowhere"), "the base URL is 'nowhere'"),
        ((folder, "--store", "none", "--store-text"), "choose a --store other than none"),
        ((folder, "--confidence-from", "guess"), "second-question"),
        ((folder, "--allow-other-source", "topic"), "allow_other_source is 'topic'"),
    ):
        code, _, said = run("serve", *arguments)
        assert code == 2
        assert problem in said


def test_a_port_in_use_is_named_before_anything_is_loaded():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, said = run("serve", "nowhere", "--port", str(port))
    assert code == 2
    assert out == ""
    assert said == f"Error: port {port} is in use; stop the program that listens there, or choose another --port.\n"


def test_an_address_of_another_machine_is_named():
    code, _, said = run("serve", "nowhere", "--host", "192.0.2.1", "--insecure")
    assert code == 2
    assert "192.0.2.1, port 8321, cannot be listened on" in said
    code, _, said = run("serve", "nowhere", "--host", "no-such-host.invalid", "--insecure")
    assert code == 2
    assert "no address of this machine" in said


def test_models_that_do_not_exist_are_named():
    code, _, said = run("serve", "nowhere", "--store", "none", "--port", str(free_port()))
    assert code == 1
    assert "nowhere does not exist" in said


def test_names_of_models(tmp_path):
    assert _named(["a/gpt", "qwen=b"]) == {"gpt": "a/gpt", "qwen": "b"}
    (tmp_path / "x=y").mkdir()
    assert _named([str(tmp_path / "x=y")]) == {"x=y": str(tmp_path / "x=y")}
    with pytest.raises(InputError, match="two models have the name"):
        _named(["a/gpt", "gpt=b"])
