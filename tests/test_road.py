"""What the calibrator sees of a row, and with which embedder."""

import numpy as np
import pytest

from qacal import BisectingTree, Column, InputError, LearnedScore, PlattScaling, QABinning, QACalibrator, embedder
from qacal.records import read
from qacal.road import Road, RowVectors
from tests.answers import answers


class Counting:
    """An embedder that counts how often it is asked, and puts a text's length into its vector."""

    name, dim, digest = "counting", 2, "1" * 64

    def __init__(self):
        self.asked = 0

    def embed(self, questions, answers, progress=None):
        self.asked += 1
        return np.array([[len(q), len(a)] for q, a in zip(questions, answers, strict=True)], dtype=np.float32)


def batch_of(rows, **needs):
    (batch,) = read(rows, needs_labels=False, **needs)
    return batch


@pytest.mark.parametrize(
    ("partition", "score", "calibrator", "name", "reads_text"),
    [
        (BisectingTree(), None, QABinning(), "static", True),
        (BisectingTree(), None, QABinning(), "column:v", False),
        (BisectingTree(), None, PlattScaling(), "static", False),
        (Column("topic"), None, QABinning(), "static", False),
        (Column("topic"), LearnedScore(), QABinning(), "static", True),
        (Column("topic"), LearnedScore(text=False), QABinning(), "static", False),
        (BisectingTree(), LearnedScore(), PlattScaling(), "column:v", False),
    ],
)
def test_text_is_needed_where_some_part_reads_it(partition, score, calibrator, name, reads_text):
    assert Road(partition, score, calibrator, RowVectors(name)).needs_text is reads_text


def test_rows_are_embedded_once_for_groups_and_score():
    maker = Counting()
    model = QACalibrator(maker, "bisecting:2").fit(answers(400))
    maker.asked = 0
    model.road_.seen_of(batch_of(answers(20, seed=1)))
    assert maker.asked == 1


def test_rows_and_arrays_are_asked_alike():
    rows = answers(50, seed=1)
    model = QACalibrator(partition="bisecting:2").fit(answers(600))
    asked = model.road_.asked(batch_of(rows))
    vectors = embedder("static").embed([row["question"] for row in rows], [row["answer"] for row in rows])
    same = model.road_.asked_of_arrays(np.array([row["confidence"] for row in rows]), None, vectors, None)
    np.testing.assert_array_equal(asked.confidence, same.confidence)
    np.testing.assert_array_equal(asked.groups.path, same.groups.path)


def test_another_embedder_is_refused_each_time():
    vectors = RowVectors(Counting(), {"name": "counting", "dim": 2, "digest": "2" * 64})
    for _ in range(2):
        with pytest.raises(InputError, match="'counting' is not the one that the model was fitted with"):
            vectors.of(batch_of(answers(3)))


def test_a_saved_embedder_is_described_without_loading_it():
    known = {"name": "hf:nobody/nothing", "dim": 3, "digest": "3" * 64}
    assert RowVectors(known["name"], known).described() == known
    assert RowVectors(Counting()).described() == {"name": "counting", "dim": 2, "digest": "1" * 64}
