"""The contract of all embedders of text."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from qacal import InputError
from qacal.embedders import Embedder, embedder
from tests.embedders.rows import ANSWERS, HARD, QUESTIONS
from tests.embedders.tiny_onnx import ROUNDED, folder


@pytest.fixture(scope="module", params=["static", "minilm", "onnx", "onnx, dynamic"])
def maker(request, tmp_path_factory):
    if request.param == "onnx":
        return embedder(f"onnx:{folder(tmp_path_factory.mktemp('tiny'))}")
    if request.param == "onnx, dynamic":
        return embedder(f"onnx:{folder(tmp_path_factory.mktemp('rounded'), ROUNDED)}")
    return embedder(request.param)


def test_it_is_an_embedder(maker):
    assert isinstance(maker, Embedder)
    assert embedder(maker) is maker
    assert re.fullmatch("[0-9a-f]{64}", maker.digest)


def test_one_finite_vector_per_row(maker):
    Z = maker.embed(QUESTIONS, ANSWERS)
    assert Z.shape == (len(QUESTIONS), maker.dim)
    assert Z.dtype == np.float32
    assert np.isfinite(Z).all()


def test_no_rows(maker):
    Z = maker.embed([], [], progress=lambda done, total: pytest.fail("there is nothing to report"))
    assert Z.shape == (0, maker.dim)
    assert Z.dtype == np.float32


@pytest.mark.parametrize("case", HARD)
def test_hard_rows_have_finite_vectors(maker, case):
    question, answer = HARD[case]
    assert np.isfinite(maker.embed([question], [answer])).all()


def test_a_row_has_the_same_vector_alone_in_another_order_and_among_others(maker):
    questions, answers = [*QUESTIONS, *(q for q, _ in HARD.values())], [*ANSWERS, *(a for _, a in HARD.values())]
    together = maker.embed(questions, answers)
    alone = np.vstack([maker.embed([q], [a]) for q, a in zip(questions, answers, strict=True)])
    backwards = maker.embed(questions[::-1], answers[::-1])[::-1]
    np.testing.assert_array_equal(backwards, together)
    if maker.name == "minilm":
        # Bit-equal where this was measured; other processors may round differently by batch.
        np.testing.assert_allclose(alone, together, atol=1e-6)
    else:
        np.testing.assert_array_equal(alone, together)


def test_equal_rows_have_equal_vectors(maker):
    Z = maker.embed(QUESTIONS * 3, ANSWERS * 3).reshape(3, len(QUESTIONS), -1)
    np.testing.assert_array_equal(Z[0], Z[1])
    np.testing.assert_array_equal(Z[0], Z[2])


def test_question_and_answer_are_not_interchangeable(maker):
    Z = maker.embed(["who wrote", "emma"], ["emma", "who wrote"])
    assert (Z[0] != Z[1]).any()


def test_progress_rises_to_the_number_of_rows(maker):
    seen = []
    maker.embed(QUESTIONS * 2, ANSWERS * 2, progress=lambda done, total: seen.append((done, total)))
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(set(done))
    assert done[-1] == 2 * len(QUESTIONS)
    assert set(totals) == {2 * len(QUESTIONS)}


@pytest.mark.parametrize("column", [np.array, pl.Series, pd.Series, tuple])
def test_any_type_of_text_column_is_accepted(maker, column):
    np.testing.assert_array_equal(maker.embed(column(QUESTIONS), column(ANSWERS)), maker.embed(QUESTIONS, ANSWERS))


def test_what_is_not_text_is_refused(maker):
    with pytest.raises(InputError, match=r"answers\[1\] is None; expected text"):
        maker.embed(["a", "b"], ["c", None])
    with pytest.raises(InputError, match=r"questions\[0\] is nan; expected text"):
        maker.embed([float("nan")], ["c"])
    with pytest.raises(InputError, match="questions is one text"):
        maker.embed("a", "b")
    with pytest.raises(InputError, match="there are 2 questions and 1 answers"):
        maker.embed(["a", "b"], ["c"])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda maker: pickle.loads(pickle.dumps(maker))])
def test_copies_embed_alike(maker, copied):
    other = copied(maker)
    assert (other.name, other.dim, other.digest) == (maker.name, maker.dim, maker.digest)
    np.testing.assert_array_equal(other.embed(QUESTIONS, ANSWERS), maker.embed(QUESTIONS, ANSWERS))


def test_scikit_learn_can_clone_it(maker):
    assert clone(maker, safe=False).digest == maker.digest


def test_its_name_makes_it_again(maker):
    assert embedder(maker.name).digest == maker.digest
