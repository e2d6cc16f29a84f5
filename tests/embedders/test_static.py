"""The static embedder compared with wordllama, whose weights it uses."""

import subprocess
import sys

import numpy as np
import pytest

from qacal.embedders import StaticEmbedder
from qacal.errors import MissingPackageError
from tests.embedders.rows import ANSWERS, HARD, QUESTIONS


@pytest.fixture(scope="module")
def static():
    return StaticEmbedder()


def test_vectors_are_those_of_wordllama(static):
    from pathlib import Path

    import wordllama

    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    hard = [pair for case, pair in HARD.items() if case != "half a surrogate pair"]
    questions, answers = zip(*zip(QUESTIONS, ANSWERS, strict=True), *hard, strict=True)
    texts = [f"{question}\n{answer}" for question, answer in zip(questions, answers, strict=True)]
    np.testing.assert_allclose(static.embed(questions, answers), model.embed(texts, norm=True), atol=1e-6)


def test_more_rows_than_one_step(static):
    rows = 10_000
    seen = []
    Z = static.embed(QUESTIONS * (rows // 5), ANSWERS * (rows // 5), progress=lambda *at: seen.append(at))
    assert seen == [(4096, rows), (8192, rows), (rows, rows)]
    np.testing.assert_array_equal(Z, np.tile(static.embed(QUESTIONS, ANSWERS), (rows // 5, 1)))


PIECES = ["a", "The", "42", " ", "  ", "\n", "▁", "<", ">", "<0x01>", "é", "e\u0301", "中", "😀", "\x00", "\x02"]


@pytest.mark.parametrize("special", [(), ("\x01",), ("<s>", "</s>", "<unk>")])
def test_a_text_has_the_vector_that_it_has_alone(static, special):
    rng = np.random.default_rng(0)
    pieces = [*PIECES, *special]

    def text():
        return "".join(rng.choice(pieces, rng.integers(0, 8)))

    questions, answers = [text() for _ in range(500)], [text() for _ in range(500)]
    alone = [static.embed([question], [answer])[0] for question, answer in zip(questions, answers, strict=True)]
    np.testing.assert_array_equal(static.embed(questions, answers), alone)


def test_short_texts_are_encoded_together_and_special_ones_alone(static, monkeypatch):
    encoded = []

    class Spy:
        def encode_batch_fast(self, texts, **options):
            encoded.append([*texts])
            return tokenizer.encode_batch_fast(texts, **options)

    tokenizer = static._tokenizer
    monkeypatch.setattr(static, "_tokenizer", Spy())
    questions = [f"Is {number} even?" for number in range(1000)]
    static.embed(questions, ["yes"] * 1000)
    assert len(encoded[0]) < 20
    questions[500] += "</s>"
    questions[900] += "\x01"
    static.embed(questions, ["yes"] * 1000)
    assert len(encoded[1]) < 300
    assert {"Is 500 even?</s>\nyes", "Is 900 even?\x01\nyes"} <= {*encoded[1]}


def test_vectors_have_length_one(static):
    lengths = np.linalg.norm(static.embed(*zip(*HARD.values(), strict=True)), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_half_a_surrogate_pair_is_read_as_the_replacement_character(static):
    np.testing.assert_array_equal(static.embed(["a\ud800"], [""]), static.embed(["a\ufffd"], [""]))
    whole = "\ud83d\ude00"  # the two halves of a smiley, joined
    np.testing.assert_array_equal(static.embed([whole], [""]), static.embed(["😀"], [""]))


def test_the_digest_is_pinned(static):
    # If the digest changes although the weights have not, saved models no longer load.
    assert static.digest == "92b6325c735f0a468ad5fdc019022cd487449754f32e68f8a0314e857246587d"


def test_neither_network_nor_logging_is_touched():
    code = """
import logging, socket, sys
def refuse(*args, **kwargs): raise AssertionError("the network was used")
socket.socket.connect = socket.getaddrinfo = refuse
from qacal.embedders import embedder
embedder("static").embed(["q"], ["a"])
print(logging.getLogger().handlers, sorted({"wordllama", "requests", "torch"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[] []\n"


def test_a_package_without_its_weights_is_named(tmp_path, monkeypatch):
    (tmp_path / "wordllama").mkdir()
    (tmp_path / "wordllama" / "__init__.py").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "wordllama"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        MissingPackageError, match=r"l2_supercat_256.safetensors is missing from its package; run in the clone"
    ):
        StaticEmbedder()
