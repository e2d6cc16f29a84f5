"""Columns of records as inputs of a score: what is read of the passages that an answer should rest on."""

import numpy as np
import pytest

import qacal
from qacal import QACalibrator
from qacal.metrics import log_loss
from qacal.model.features import Feature
from tests.answers import answers

CONTEXT = Feature("context", "context")
AXES = {"wine": [1.0, 0.0], "beer": [0.6, 0.8], "law": [0.0, 1.0]}
# Words of three topics: those of questions, and those of passages, which share none with them.
TOPICS = {
    "medicine": ("doctor hospital surgery nurse patient clinic", "physician illness disease medication diagnosis"),
    "music": ("guitar orchestra melody concert singer piano", "violin composer symphony song rhythm band"),
    "law": ("court judge lawyer trial jury verdict", "attorney lawsuit statute legal plaintiff"),
}


def embed(texts):
    return np.array([AXES[text] for text in texts])


def test_cosines_are_those_of_the_nearest_passage():
    passages = [["law", "beer"], {"text": "wine"}, None, '["law", ""]', []]
    read = CONTEXT.read(passages, ["law"] * 5, ["wine"] * 5, embed)
    np.testing.assert_allclose(read["context: answer cosine"], [0.6, 1.0, np.nan, 0.0, np.nan])
    np.testing.assert_allclose(read["context: question cosine"], [1.0, 0.0, np.nan, 1.0, np.nan])


def test_without_a_fast_embedder_cosines_are_missing_and_words_are_not():
    read = CONTEXT.read(["red wine", None], ["white wine", "wine"], ["wine", "wine"])
    np.testing.assert_allclose(read["context: answer"], [1.0, np.nan])
    np.testing.assert_allclose(read["context: question"], [0.5, np.nan])
    assert np.isnan(read["context: answer cosine"]).all()
    assert np.isnan(read["context: question cosine"]).all()


def test_an_empty_text_has_no_cosine():
    read = CONTEXT.read([["law"]] * 2, ["law", ""], [" ", "law"], lambda texts: np.ones((len(texts), 2)))
    np.testing.assert_array_equal(read["context: answer cosine"], [np.nan, 2.0])
    np.testing.assert_array_equal(read["context: question cosine"], [2.0, np.nan])


def test_the_passages_of_one_row_are_embedded_in_steps():
    sizes = []

    def counting(texts):
        sizes.append(len(texts))
        return embed(texts)

    read = CONTEXT.read([["beer"] * 9000 + ["law"], ["wine"]], ["law"] * 2, ["wine"] * 2, counting)
    assert max(sizes) == 4096
    np.testing.assert_allclose(read["context: question cosine"], [1.0, 0.0])


def test_many_rows_are_read_as_one_by_one():
    rng = np.random.default_rng(0)
    passages = [rng.choice([*AXES], rng.integers(0, 4)).tolist() for _ in range(2500)]
    questions, answers = rng.choice([*AXES], (2, 2500)).tolist()
    together = CONTEXT.read(passages, questions, answers, embed)
    for row in (0, 1023, 1024, 2499):
        one = CONTEXT.read(passages[row : row + 1], questions[row : row + 1], answers[row : row + 1], embed)
        for name, values in one.items():
            np.testing.assert_array_equal(together[name][row], values[0])


def retrieval(n, seed):
    """Return rows whose answers are mostly right if a passage has the topic of the question, in other words."""
    rng, topics = np.random.default_rng(seed), [*TOPICS]

    def words(topic, kind, count):
        return " ".join(rng.choice(TOPICS[topic][kind].split(), count))

    rows = []
    for row in range(n):
        asked, found = rng.choice(topics, 2, p=[1 / 3] * 3).tolist()
        rows.append(
            {
                "id": row,
                "question": f"Which {words(asked, 0, 3)}?",
                "answer": words(asked, 0, 1),
                "confidence": float(rng.choice([0.6, 0.7, 0.8, 0.9])),
                "passages": [words(found, 1, 6), words(found, 1, 6)],
                "correct": int(rng.random() < (0.9 if asked == found else 0.3)),
            }
        )
    return rows


@pytest.mark.filterwarnings("ignore::qacal.QacalWarning")  # the stated confidences say nothing
def test_passages_on_the_topic_in_other_words_help(tmp_path):
    training, testing = retrieval(1500, 0), retrieval(1500, 1)
    correct = [row["correct"] for row in testing]
    model = qacal.QACalibrator("static", output="continuous").fit(training)
    without = qacal.QACalibrator("static", output="continuous", features=()).fit(training)
    calibrated = model.predict(testing)
    assert log_loss(correct, calibrated) < log_loss(correct, without.predict(testing)) - 0.1
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(qacal.load(tmp_path / "model").predict(testing), calibrated)
    # Rows without passages are answered by the score without them.
    lacking = [row | {"passages": None} for row in testing]
    assert log_loss(correct, model.predict(lacking)) < log_loss(correct, without.predict(testing)) + 0.01


@pytest.mark.filterwarnings("ignore::qacal.QacalWarning")  # all stated confidences are equal
def test_a_score_that_reads_passages_but_no_text_still_needs_the_answer():
    rng = np.random.default_rng(0)
    rows = [
        {
            "question": f"Which {n}?",
            "answer": str(n),
            "confidence": 0.7,
            "context": f"It is {m}.",
            "correct": int(n == m),
        }
        for n, m in rng.integers(0, 2, (400, 2)).tolist()
    ]
    for row in rows[::8]:
        row["correct"] = 1 - row["correct"]
    score = qacal.LearnedScore(text=False)
    model = qacal.QACalibrator(learned_score=score, features=["context:context"], output="continuous").fit(rows)
    calibrated = model.predict(rows)
    assert calibrated[[row["correct"] == 1 for row in rows]].mean() > 0.7
    with pytest.raises(qacal.InputError, match="no column 'question'"):
        model.predict([{"confidence": 0.7, "context": "It is 1."}])


def test_a_part_of_a_column_can_be_named_and_a_column_with_the_name_of_a_part():
    rows = answers(600)
    rng = np.random.default_rng(0)
    for row in rows:
        row["tokens"] = np.minimum(0.6 * row["correct"] - 1.2 + 0.45 * rng.standard_normal(4), -0.01).tolist()
        row["tokens: mean"] = float(rng.random())
    score = QACalibrator(features=["tokens: sum"]).fit(rows).learned_score_
    tried = {trial.name: trial for trial in score.columns_tried_}
    assert score.columns_used == ("tokens: sum",)
    assert tried["tokens: least"].is_suspect  # as if nobody had named it
    score = QACalibrator(features=["tokens:logprobs", "tokens: sum"]).fit(rows).learned_score_
    assert {"tokens: sum", "tokens: mean"} <= {*score.columns_used}
    score = QACalibrator(features=["tokens: mean"]).fit(rows).learned_score_
    assert [trial.name for trial in score.columns_tried_] == ["tokens: mean"]
