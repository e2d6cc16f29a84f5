"""Decisions by real clients, and the guardrail in a real LiteLLM proxy; before stubs and before a real local LLM."""

import json
import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from qacal import QACalibrator, load
from qacal.service.app import create_app
from qacal.service.settings import Settings
from qacal.sources.completions import ConfidenceFrom
from qacal.sources.decisions import text_of
from tests.answers import answers
from tests.service.test_clients import (
    LITELLM,
    OPENAI,
    llm,  # noqa: F401
    needs_litellm,
    needs_openai,
    needs_smollm2,
    proxy,
    script,
)
from tests.service.test_decisions import ANSWERS, ASK, Upstream
from tests.service.test_serve import free_port
from tests.service.upstreams import running, stubbed

pytestmark = pytest.mark.heavy
QUESTION = "Which city is the capital of Arden?"

# Decisions

DECIDE = """
import json, sys, openai
url, asked = sys.argv[1], json.loads(sys.argv[2])
client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
decision = client.decisions.create(**asked)
raw = client.decisions.with_raw_response.create(**asked, extra_headers={"x-qa-calibration-mode": "replace"}).parse()
print(json.dumps({
    "types": [type(one).__name__ for one in decision.answers],
    "answers": [one.model_dump() for one in decision.answers],
    "evidence": [one.qa_calibration for one in decision.answers],
    "replaced": [one.model_dump() for one in raw.answers],
    "model": decision.model,
    "tokens": decision.usage.total_tokens,
}))
"""
TYPES = [f"AnswerAnswerResource{kind}" for kind in ("Predicate", "Choice", "Score")]


@needs_openai
def test_openai_decides_before_a_stub(tmp_path):
    upstream = Upstream()
    with running(upstream.app) as address, proxy(tmp_path, f"{address}/v1") as (url, _):
        found = script(OPENAI, DECIDE, url, json.dumps(ASK))
    assert found["types"] == TYPES
    for one, evidence, raw in zip(found["answers"], found["evidence"], ANSWERS, strict=True):
        assert {name: one[name] for name in raw} == raw
        assert 0 < evidence["calibrated"] < 1
    assert found["replaced"][0]["probability"] == pytest.approx(found["evidence"][0]["calibrated"], abs=1e-9)
    assert upstream.decided == [ASK, ASK]


@needs_openai
@needs_smollm2
def test_openai_decides_before_a_real_llm(tmp_path, llm):  # noqa: F811
    url, name = llm
    asked = {
        "model": name,
        "input": [{"role": "user", "content": "Paris is the capital of France. I love this city!"}],
        "questions": [
            {"type": "predicate", "name": "capital", "instructions": "The text is about a city."},
            {
                "type": "choice",
                "name": "country",
                "instructions": "Which country is the text about?",
                "choices": [{"value": "France"}, {"value": "Japan"}, {"value": True, "description": "any other"}],
            },
            {
                "type": "score",
                "name": "mood",
                "instructions": "How happy is the author?",
                "levels": [{"label": "sad"}, {"label": "calm"}, {"label": "happy"}],
            },
        ],
    }
    with proxy(tmp_path, url, name) as (address, _):
        found = script(OPENAI, DECIDE, address, json.dumps(asked))
    assert found["types"] == TYPES
    assert found["model"] == name
    assert found["tokens"] > 30
    for one, evidence in zip(found["answers"], found["evidence"], strict=True):
        assert evidence["confidence_source"] == "decision-tokens"
        assert 0 < evidence["raw_confidence"] < 1
        assert 0 < evidence["calibrated"] < 1
        if one["type"] != "predicate":
            for listed in (one["probabilities"], evidence["probabilities"]):
                assert sum(p["probability"] for p in listed) == pytest.approx(1, abs=1e-9)
    for one in found["replaced"][1:]:
        assert one["confidence"] == one["qa_calibration"]["calibrated"]
        assert sum(p["probability"] for p in one["probabilities"]) == pytest.approx(1, abs=1e-9)


WITH_LANGCHAIN = """
import json, sys, warnings
warnings.simplefilter("ignore")
from langchain_openai.decisions import OpenAIDecisions, Predicate
found = []
for mode in ("annotate", "replace"):
    asked = OpenAIDecisions(
        model="parrot-1", base_url=sys.argv[1], api_key="none", default_headers={"x-qa-calibration-mode": mode}
    )
    questions = {"twice": Predicate(instructions="The customer was charged more than once.")}
    found.append(asked.invoke({"input": sys.argv[2], "questions": questions}).answers["twice"].probability)
print(json.dumps(found))
"""


@needs_openai
def test_langchain_drops_the_evidence_and_reads_calibrated_numbers_in_place(tmp_path):
    upstream = Upstream()
    upstream.answers = ANSWERS[:1]
    with running(upstream.app) as address, proxy(tmp_path, f"{address}/v1") as (url, model):
        raw, calibrated = script(OPENAI, WITH_LANGCHAIN, url, ASK["input"])
    (asked,) = {one["questions"][0]["instructions"] for one in upstream.decided}
    (content,) = {text_of(one["input"]) for one in upstream.decided}
    assert raw == 0.9
    expected = load(model).explain(f"{asked}\n\n{content}", "true", 0.9)["calibrated"]
    assert calibrated == pytest.approx(expected, abs=1e-12)


# LiteLLM

KEY, SERVICE_KEY = f"sk-{'0123456789abcdef' * 3}", "a-key-of-sixteen-characters"
EXAMPLE = Path(__file__).parents[2] / "examples" / "litellm_guardrail.yaml"
OTHERS = """
  - guardrail_name: blocking
    litellm_params: {<<: *qacal, additional_provider_specific_params: {mode: block}}
  - guardrail_name: at-the-end
    litellm_params:
      {<<: *qacal, additional_provider_specific_params: {mode: observe}, streaming_end_of_stream_only: true}
"""


def config_of(llm, upstream, service):  # noqa: F811
    """Return the configuration of the example, with the addresses of a test and with two more guardrails."""
    text = EXAMPLE.read_text()
    for old, new in (
        ("my-llm", llm),
        ("http://127.0.0.1:8080/v1", upstream),
        ("http://127.0.0.1:8321", service),
        ("default_on: true", f'default_on: false\n      headers: {{Authorization: "Bearer {SERVICE_KEY}"}}'),
        ("litellm_params:\n      guardrail:", "litellm_params: &qacal\n      guardrail:"),
    ):
        assert old in text
        text = text.replace(old, new)
    return text + OTHERS


@contextmanager
def gateway(home, upstream, name, service):
    """Run a real LiteLLM proxy before an LLM server, with guardrails of a service; yield a client."""
    config = home / "config.yaml"
    config.write_text(config_of(name, upstream, service))
    port = free_port()
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with (home / "litellm.log").open("wb") as log:
        server = subprocess.Popen(
            [LITELLM.with_name("litellm"), "--config", config, "--port", str(port), "--host", "127.0.0.1"],
            stdout=log,
            stderr=log,
            env={**bare, "LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": ""},
        )
    try:
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=120, headers={"authorization": f"Bearer {KEY}"}
        ) as client:
            until = time.monotonic() + 180
            while True:
                try:
                    client.get("/health/liveliness")
                    break
                except httpx2.TransportError:
                    assert server.poll() is None, (home / "litellm.log").read_text()
                    assert time.monotonic() < until
                    time.sleep(0.2)
            yield client
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def service(home, name, **others):
    model = home / "model"
    QACalibrator(features=()).fit(answers(500, llm=name)).set_threshold(0.99).save(model)
    store = f"sqlite:///{home / 'served.db'}"
    app = create_app(Settings({"m": str(model)}, store=store, reload_seconds=0.0, api_key=SERVICE_KEY, **others))
    with running(app) as address:
        yield address, app.state.service, model


def complete(client, guardrail, question=QUESTION, model="parrot-1", **others):
    body = {"model": model, "messages": [{"role": "user", "content": question}], "guardrails": [guardrail], **others}
    return client.post("/v1/chat/completions", json=body)


@needs_litellm
def test_litellm_annotates_and_blocks(tmp_path):
    with (
        stubbed() as stub,
        service(tmp_path, "parrot-1", upstream=stub.url) as (address, served, model),
        gateway(tmp_path, stub.url, "parrot-1", address) as client,
    ):
        stub.answer = "Guess: Belmar\nProbability: 0.9"
        expected = load(model).explain(QUESTION, "Belmar", 0.9)["calibrated"]
        note = f"calibrated confidence {expected:.2f}, below the threshold of 0.99"
        annotated = complete(client, "qacal")
        assert annotated.status_code == 200, annotated.text
        assert annotated.json()["choices"][0]["message"]["content"] == f"{stub.answer}\n\n[{note}]"
        blocked = complete(client, "blocking")
        assert blocked.status_code == 400
        assert note in blocked.json()["error"]["message"]
        # Without a stated confidence, the service asks again about the answer.
        stub.answer, stub.requests[:] = "Belmar", []
        second = complete(client, "qacal")
        lower = load(model).explain(QUESTION, "Belmar", 0.7)["calibrated"]
        assert f"[calibrated confidence {lower:.2f}, below" in second.json()["choices"][0]["message"]["content"]
        assert len(stub.requests) == 2
        load(model).set_threshold(0.01).save(model)
        served.models.reload()
        passed = complete(client, "blocking")
        assert passed.json()["choices"][0]["message"]["content"] == "Belmar"
        # A stream is checked once, at its end.
        served.store.check().result(20)  # what is queued is written before
        rows = len(list(served.store.rows()))
        streamed = complete(client, "at-the-end", stream=True)
        assert streamed.status_code == 200
        assert "Belmar" in streamed.text
        until = time.monotonic() + 20
        while len(list(served.store.rows())) <= rows:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert len(list(served.store.rows())) == rows + 1


@needs_litellm
@needs_smollm2
def test_litellm_annotates_a_real_llm(tmp_path, llm):  # noqa: F811
    url, name = llm
    with (
        service(tmp_path, name, upstream=url, confidence_from=ConfidenceFrom.P_TRUE) as (address, served, _),
        gateway(tmp_path, url, name, address) as client,
    ):
        asked = "What is the capital of France? Answer in one word."
        found = complete(client, "qacal", asked, name, max_tokens=40, temperature=0)
        assert found.status_code == 200, found.text
        blocked = complete(client, "blocking", asked, name, max_tokens=40, temperature=0)
        until = time.monotonic() + 20
        while len(rows := list(served.store.rows())) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
    content = found.json()["choices"][0]["message"]["content"]
    assert content.endswith(f"\n\n[calibrated confidence {rows[0]['calibrated']:.2f}, below the threshold of 0.99]")
    assert 0 < rows[0]["confidence"] < 1
    assert blocked.status_code == 400
    assert "not reliable enough" in blocked.json()["error"]["message"]
