"""Events for OpenTelemetry, with its real SDK."""

import os
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from qacal.service.telemetry import parented
from qacal.storage import version_of
from tests.answers import answers
from tests.service.test_app import calibrate, serving
from tests.service.upstreams import stubbed

ROW = {name: answers(1, seed=7)[0][name] for name in ("question", "answer", "confidence")}
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
HEADERS = {"traceparent": f"00-{TRACE:032x}-{SPAN:016x}-01"}


@pytest.fixture
def set_up(monkeypatch):
    """Return a function that sets up the SDK and returns the list of what is sent.

    The setters of the API work once in a process; the test after the next one would still send its events here.
    """

    def set_up():
        exporter, provider = InMemoryLogRecordExporter(), LoggerProvider(shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        monkeypatch.setattr("opentelemetry._logs._internal._LOGGER_PROVIDER", provider)
        return exporter

    return set_up


def sent(exporter):
    return [one.log_record for one in exporter.get_finished_logs() if one.instrumentation_scope.name == "qacal"]


@pytest.mark.parametrize("is_before", [True, False])
def test_each_answer_is_an_event(folder, tmp_path, set_up, is_before):
    exporter = set_up() if is_before else None
    with serving(folder, tmp_path, store="none") as client:
        exporter = exporter or set_up()
        first, bad, second = calibrate(client, [{**ROW, "response_id": "chatcmpl-1"}, {"confidence": 0.5}, ROW])
    assert "error" in bad
    events = sent(exporter)
    assert [event.event_name for event in events] == ["gen_ai.evaluation.result"] * 2
    assert dict(events[0].attributes) == {
        "gen_ai.evaluation.name": "calibrated_confidence",
        "gen_ai.evaluation.score.value": first["calibrated"],
        "gen_ai.evaluation.score.label": first["decision"],
        "gen_ai.response.id": "chatcmpl-1",
        "qacal.id": first["id"],
        "qacal.model": "m",
        "qacal.model_version": version_of(folder),
        "qacal.confidence": ROW["confidence"],
        "qacal.source": first["source"],
        "qacal.low": first["low"],
        "qacal.high": first["high"],
        "qacal.alpha": first["alpha"],
    }
    assert events[1].attributes["qacal.id"] == second["id"]
    assert "gen_ai.response.id" not in events[1].attributes
    assert (events[0].trace_id, events[0].span_id) == (0, 0)
    assert events[0].timestamp > 1e18


@pytest.mark.parametrize("stream", [False, True])
def test_events_of_the_proxy_name_the_completion(folder, tmp_path, set_up, stream):
    exporter = set_up()
    asked = {"model": "parrot-1", "messages": [{"role": "user", "content": ROW["question"]}], "stream": stream}
    with stubbed() as stub, serving(folder, tmp_path, store="none", upstream=stub.url) as client:
        assert client.post("/v1/chat/completions", json=asked, headers=HEADERS).status_code == 200
    (event,) = sent(exporter)
    assert event.attributes["gen_ai.response.id"] == "chatcmpl-1"
    assert (event.trace_id, event.span_id) == (TRACE, SPAN)


def test_an_event_belongs_to_the_span_of_the_caller(folder, tmp_path, set_up):
    exporter = set_up()
    with serving(folder, tmp_path, store="none") as client:
        client.post("/v1/calibrate", json={"items": [ROW]}, headers=HEADERS)
        client.post("/v1/calibrate", json={"items": [ROW]})
    assert [(event.trace_id, event.span_id) for event in sent(exporter)] == [(TRACE, SPAN), (0, 0)]


def test_with_spans_an_event_belongs_to_a_span_of_the_service_in_the_trace_of_the_caller(
    folder, tmp_path, set_up, monkeypatch
):
    exporter, spans, tracers = set_up(), InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", tracers)
    with serving(folder, tmp_path, store="none") as client:
        client.post("/v1/calibrate", json={"items": [ROW]}, headers=HEADERS)
    (event,) = sent(exporter)
    parents = {span.context.span_id: span.parent.span_id for span in spans.get_finished_spans()}
    assert event.trace_id == TRACE
    above = event.span_id
    assert above in parents
    while above in parents:
        above = parents[above]
    assert above == SPAN


@pytest.mark.parametrize("given", [b"", b"00-nonsense", f"00-{0:032x}-{SPAN:016x}-01".encode(), b"\xff", b"x" * 10_000])
def test_a_wrong_traceparent_is_ignored(given):
    with parented({b"traceparent": given}):
        assert not trace.get_current_span().get_span_context().is_valid


def test_a_span_that_is_set_already_stays():
    with (
        trace.use_span(trace.NonRecordingSpan(trace.SpanContext(5, 6, is_remote=False))),
        parented({b"traceparent": HEADERS["traceparent"].encode()}),
    ):
        assert trace.get_current_span().get_span_context().span_id == 6
    assert not trace.get_current_span().get_span_context().is_valid


def test_nothing_is_sent_without_an_sdk_that_is_set_up(folder, tmp_path):
    with serving(folder, tmp_path, store="none") as client:
        assert "calibrated" in calibrate(client, [ROW])[0]
        events = client.app.state.service.telemetry._events
        assert not events.enabled(event_name="gen_ai.evaluation.result")


@pytest.mark.heavy
def test_the_setters_of_the_sdk_work_after_the_application_was_made(folder):
    script = """
import json, sys
from opentelemetry import _logs
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter, SimpleLogRecordProcessor
from starlette.testclient import TestClient
from qacal.service.app import create_app
from qacal.service.settings import Settings

app = create_app(Settings({"m": sys.argv[1]}, store="none", reload_seconds=0.0))
provider = LoggerProvider()
provider.add_log_record_processor(SimpleLogRecordProcessor(ConsoleLogRecordExporter()))
_logs.set_logger_provider(provider)
with TestClient(app, base_url="http://127.0.0.1") as client:
    client.post("/v1/calibrate", json={"items": [{"question": "a?", "answer": "b", "confidence": 0.5}]})
"""
    done = subprocess.run(
        [sys.executable, "-c", script, folder], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("gen_ai.evaluation.result") == 1
