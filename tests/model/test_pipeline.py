"""What the pipeline computes from a row, and with which embedder."""

import json
import pickle
import shutil

import numpy as np
import polars as pl
import pytest

from qacal import BisectingTree, Column, InputError, LearnedScore, QABinning, QACalibrator, embedder, load
from qacal.calibrators import PlattScaling
from qacal.embedders import OnnxEmbedder
from qacal.errors import ArtifactError
from qacal.model.pipeline import EmbedderId, Pipeline, RowVectors
from qacal.records.reading import read
from qacal.storage import digest
from tests.answers import answers
from tests.cli.test_cli import run
from tests.embedders.tiny_onnx import folder


class Counting:
    """An embedder that counts its calls; vectors contain the length of the text."""

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
def test_text_is_needed_if_some_part_reads_it(partition, score, calibrator, name, reads_text):
    assert Pipeline(partition, score, calibrator, RowVectors(name)).needs_text is reads_text


def test_rows_are_embedded_once_for_groups_and_score():
    maker = Counting()
    model = QACalibrator(maker, "bisecting:2").fit(answers(400))
    maker.asked = 0
    model.pipeline_.inputs(batch_of(answers(20, seed=1)))
    assert maker.asked == 1


def test_records_and_arrays_give_the_same_rows():
    rows = answers(50, seed=1)
    model = QACalibrator(partition="bisecting:2", learned_score=LearnedScore(words=False)).fit(answers(600))
    batch = batch_of(rows)
    asked = model.pipeline_.rows_of(*model.pipeline_.inputs(batch), batch.ids)
    vectors = embedder("static").embed([row["question"] for row in rows], [row["answer"] for row in rows])
    same = model.pipeline_.rows_from_arrays(np.array([row["confidence"] for row in rows]), None, vectors, None)
    np.testing.assert_array_equal(asked.confidence, same.confidence)
    np.testing.assert_array_equal(asked.groups.path, same.groups.path)


def test_another_embedder_is_refused_each_time():
    vectors = RowVectors(Counting(), EmbedderId("counting", 2, "2" * 64))
    for _ in range(2):
        with pytest.raises(InputError, match="'counting' is not the one that the model was fitted with"):
            vectors.of(batch_of(answers(3)))


def test_models_share_a_built_in_embedder_while_one_of_them_exists():
    one, two = RowVectors("static"), RowVectors("static")
    assert one.load() is two.load()
    assert RowVectors("column:v").load() is not RowVectors("column:v").load()


def test_a_saved_embedder_is_described_without_loading_it():
    known = EmbedderId("hf:nobody/nothing", 3, "3" * 64)
    assert RowVectors(known.name, known).described() == known
    assert RowVectors(Counting()).described() == EmbedderId("counting", 2, "1" * 64)


# A model's folder does not decide which code is loaded


@pytest.fixture(scope="module")
def with_onnx(tmp_path_factory):
    """Return a model fitted with an encoder in a folder, and the name of the encoder."""
    home = tmp_path_factory.mktemp("onnx")
    name = f"onnx:{folder(home / 'encoder')}"
    QACalibrator(name, "kdtree:1", QABinning(points_per_bin=20)).fit(answers(300)).save(home / "model")
    return home / "model", name


def test_an_embedder_that_only_the_model_names_is_not_loaded(with_onnx, monkeypatch):
    path, name = with_onnx
    monkeypatch.setattr(OnnxEmbedder, "__init__", lambda *_: pytest.fail("it was loaded"))
    model = load(path)
    for use in (model.calibrate, model.fit):
        with pytest.raises(InputError, match=rf"fitted with the embedder '{name}', .*pass --embedder {name}"):
            use(answers(20))
    assert len(model.describe_groups()) == 2
    assert model.predict([0.9], groups=[1]).shape == (1,)


def test_an_embedder_that_the_caller_names_is_loaded_and_compared(with_onnx):
    path, name = with_onnx
    assert len(load(path, embedder=name).calibrate(answers(20))) == 20
    assert len(load(path, embedder=embedder(name)).calibrate(answers(20))) == 20
    with pytest.raises(InputError, match="'counting' is not the one that the model was fitted with"):
        load(path, embedder=Counting()).calibrate(answers(20))


def test_every_command_that_embeds_takes_the_name_of_the_embedder(with_onnx, tmp_path):
    path, name = with_onnx
    pl.DataFrame(answers(60, seed=1)).write_parquet(tmp_path / "rows.parquet")
    rows, named = str(tmp_path / "rows.parquet"), ["--embedder", name]
    row = ["--question", "Who wrote Emma?", "--answer", "Austen", "--confidence", "0.9"]
    for command in (
        ["apply", path, rows, "-o", tmp_path / "out.parquet"],
        ["evaluate", rows, "--model", path],
        ["report", path, rows, "-o", tmp_path / "page.html"],
        ["threshold", path, rows, "--wrong", "5", "--abstain", "1"],
        ["explain", path, *row],
    ):
        code, _, err = run(*command)
        assert (code, f"pass --embedder {name}" in err) == (1, True)
        assert run(*command, *named)[0] == 0


def test_an_embedder_of_another_type_is_refused(with_onnx, tmp_path):
    shutil.copytree(with_onnx[0], tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text(encoding="utf-8"))
    document["value"]["embedder"]["name"] = ["hf:nobody/nothing"]
    del document["digest"]
    document["digest"] = digest(document)
    (tmp_path / "model" / "model.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"embedder.name is .* expected str"):
        load(tmp_path / "model")


def test_embedding_reports_its_progress():
    """Within a batch, too; the model stores none of it."""
    told = []
    embedder = Slow()
    model = QACalibrator(embedder, partition="bisecting:1").fit(
        answers(300), progress=lambda what, rows: told.append((what, rows))
    )
    assert len({rows for what, rows in told if what.startswith("embedding")}) > 100
    told.clear()
    list(model._explained_batches(answers(50, seed=1), progress=lambda what, rows: told.append((what, rows))))
    assert ("calibrating", 50) in told
    assert max(rows for what, rows in told if what.startswith("embedding")) == 50
    pickle.dumps(model.pipeline_.vectors)


class Slow:
    """An embedder that reports its progress."""

    name, dim, digest = "slow", 4, "0"

    def embed(self, questions, answers, progress=None):
        for done in range(1, len(questions) + 1):
            if progress is not None:
                progress(done, len(questions))
        return np.array([[len(q), len(a), ord(q[0]), 1] for q, a in zip(questions, answers, strict=True)], np.float32)
