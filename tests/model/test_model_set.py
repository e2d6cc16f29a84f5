"""Sets of models: each row is calibrated by the model of its LLM."""

import json
import os
import shutil
import subprocess
import sys

import polars as pl
import pytest

from qacal import BadRows, Column, InputError, LearnedScore, QABinning, QACalibrator, load
from qacal.errors import ArtifactError, QacalWarning
from qacal.model import model_set
from qacal.model.model_set import ModelSet, fit_set
from qacal.model.saved import load_one
from qacal.records.table import as_table
from qacal.storage import MODEL_SET, digest
from tests.answers import answers

LIKE = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=20))


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    path = tmp_path_factory.mktemp("shelf") / "models"
    rows = [*answers(200, llm="parrot-1"), *answers(200, seed=1, llm="parrot-2"), *answers(200, seed=2, llm="parrot-3")]
    fit_set(LIKE, rows, "model").save(path)
    return path


def test_each_model_tells_of_the_groups_that_it_does_not_know():
    rows = [
        {**row, "topic": f"b-{row['topic']}"} if row["model"] == "b" else row
        for row in [*answers(200, llm="a"), *answers(200, seed=1, llm="b")]
    ]
    found = fit_set(LIKE, rows, "model")
    known, others = rows[0]["topic"], rows[-1]["topic"]
    new = [{**rows[0], "topic": topic} for topic in (known, others, "chess", None) for _ in range(10)]
    with pytest.warns(QacalWarning, match=r"30 of 40 rows have no topic that the model knows \(such as 'b-"):
        found.calibrate(new)


@pytest.fixture
def models(shelf, tmp_path):
    shutil.copytree(shelf, tmp_path / "models")
    return tmp_path / "models"


def change(path, how, *, seal):
    content = json.loads(path.read_text(encoding="utf-8"))
    how(content)
    if seal:
        content.pop("digest", None)
        content["digest"] = digest(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def exchange(models, one, two):
    (models / one).rename(models / "aside")
    (models / two).rename(models / one)
    (models / "aside").rename(models / two)


def folder_of(models, number):
    """Return the folder of the model with this number."""
    return json.loads((models / MODEL_SET).read_text())["folders"][number]


def test_rows_without_a_model_are_bad_rows():
    """1 equals 1.0, and a list cannot be looked up; rows that have a model are calibrated anyway."""
    set_ = fit_set(LIKE, [*answers(200, llm=1), *answers(200, seed=1, llm="b")], "model")
    values = [1, 1.0, ["b"], "b", "c", 1]
    rows = [row | {"model": value} for row, value in zip(answers(6, seed=3), values, strict=True)]
    bad = BadRows()
    out = set_.calibrate(rows, on_fault=bad, max_bad=0.5)
    assert [row["calibrated"] is not None for row in out] == [True, False, False, True, False, True]
    assert bad.count == 3
    rows = [row | {"model": 1.0} for row in rows[:2]] + rows[-1:]
    assert [row["calibrated"] is not None for row in set_.calibrate(rows, on_fault=BadRows(), max_bad=0.9)] == [
        *(False, False),
        True,
    ]


def test_a_set_is_not_a_single_model(shelf):
    with pytest.raises(InputError, match=r"models holds a set of models; load it with qacal\.load\."):
        QACalibrator.load(shelf)


def test_a_set_comes_back(models):
    back = load(models)
    assert list(back._models) == ["parrot-1", "parrot-2", "parrot-3"]
    rows = [*answers(20, llm="parrot-1"), *answers(20, llm="parrot-3")]
    calibrated = back.calibrate(rows)
    each = [back.models[row["model"]].calibrate([row])[0] for row in rows]
    assert calibrated == each
    assert back.predict(rows).tolist() == [row["calibrated"] for row in each]
    columns = ("question", "answer", "confidence", "topic", "model")
    explained = back.explain(**{name: rows[-1][name] for name in columns})
    assert explained["calibrated"] == each[-1]["calibrated"]
    back.save(models)
    assert list(load(models)._models) == ["parrot-1", "parrot-2", "parrot-3"]


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        lambda index: index["value"]["values"].reverse(),
        lambda index: index["value"].update(values=["parrot-1", "parrot-3", "parrot-2"]),
        lambda index: index["value"].update(values=["parrot-1", "parrot-2", "gpt"]),
        lambda index: index["value"].update(by="topic"),
    ],
)
def test_names_that_were_changed_are_refused(how, seal, models):
    change(models / MODEL_SET, how, seal=seal)
    with pytest.raises(ArtifactError, match=r"holds the model of model parrot-|does not match its digest"):
        load(models)


def test_an_index_that_lost_a_model_is_refused(models):
    change(models / MODEL_SET, lambda index: index["value"]["values"].pop(), seal=False)
    with pytest.raises(ArtifactError, match="does not match its digest"):
        load(models)


def test_folders_that_were_exchanged_are_refused(models):
    exchange(models, folder_of(models, 0), folder_of(models, 2))
    with pytest.raises(
        ArtifactError, match=r"holds the model of model parrot-3, and models.json names it as .*parrot-1"
    ):
        load(models)


def test_one_of_the_models_may_be_changed_and_saved_by_itself(models):
    with pytest.raises(InputError, match="name one of them"):
        load_one(models)
    second = models / folder_of(models, 1)
    load_one(second).set_threshold(0.7).save(second)
    assert load(models)._models["parrot-2"].decision_rule_ is not None


def test_a_set_replaces_another_completely_or_not_at_all(models, monkeypatch):
    two = ModelSet("model", dict(list(load(models)._models.items())[:2]))

    def stopped(*_):
        raise SystemExit(143)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stopped)
        with pytest.raises(SystemExit):
            two.save(models)
    assert list(load(models)._models) == ["parrot-1", "parrot-2", "parrot-3"]
    two.save(models)
    assert list(load(models)._models) == ["parrot-1", "parrot-2"]
    assert len(list(models.iterdir())) == 3
    assert len(list(models.parent.iterdir())) == 1


class Counted:
    """A source that counts how often it is read."""

    def __init__(self, tables):
        self.tables, self.readings = tables, 0

    def batches(self, on_fault=None):
        self.readings += 1
        yield from self.tables


@pytest.mark.parametrize("kind", [list, pl.DataFrame, lambda rows: pl.DataFrame(rows).to_arrow()])
def test_the_rows_are_read_once_for_all_llms_that_fit_in_memory(kind, monkeypatch):
    rows = [row for seed in range(6) for row in answers(60, seed=seed, llm=f"parrot-{seed}")]
    rows = rows[::2] + rows[1::2]
    source = Counted([as_table(kind(rows[:200])), as_table(kind(rows[200:]))])
    one = fit_set(LIKE, source, "model")
    # Once to count the rows of each LLM, and once to take them.
    assert source.readings == 2
    monkeypatch.setattr(model_set, "_MOST_ROWS", 130)
    source.readings = 0
    two = fit_set(LIKE, source, "model")
    assert source.readings == 4
    monkeypatch.setattr(model_set, "_MOST_ROWS", 10)
    three = fit_set(LIKE, source, "model")
    asked = answers(20, seed=9)
    for value, model in one._models.items():
        assert model.rows_ == two._models[value].rows_ == three._models[value].rows_ == 60
        assert model.origins_ == {"model": [value]}
        expected = [row["calibrated"] for row in model.calibrate(asked, allow_other_source=True)]
        for other in (two, three):
            assert [
                row["calibrated"] for row in other._models[value].calibrate(asked, allow_other_source=True)
            ] == expected


FIRST_ANSWER = """
import sys
import polars as pl
from qacal.embedders import StaticEmbedder
from qacal.model.saved import load

model = load(sys.argv[1], warm=True)
del StaticEmbedder.__init__  # what is loaded now has no weights
loaded = set(sys.modules)
row = {"question": "Where?", "answer": "There", "confidence": 0.8, "topic": "cooking", "model": "parrot-1"}
for records in ([row], pl.DataFrame([row])):
    (table,) = model._calibrated(records)
    assert table.frame()["calibrated"].is_between(0, 1).all()
print(sorted(set(sys.modules) - loaded))
"""


@pytest.mark.parametrize("what", ["a model of texts", "a set of models"])
def test_the_first_answer_after_warming_loads_nothing(what, models, tmp_path):
    if what == "a model of texts":
        models = tmp_path / "model"
        QACalibrator(partition="bisecting:1").fit(answers(200)).save(models)
    done = subprocess.run(
        [sys.executable, "-c", FIRST_ANSWER, models], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout == "[]\n"


def test_any_saved_model_can_be_warmed_and_answers_as_before(tmp_path):
    rows = [
        {**row, "tenant": number % 3, "tokens": row["confidence"], "v": [float(number % 7), 1.0]}
        for number, row in enumerate(answers(300))
    ]
    score = LearnedScore(text=False, columns=("tenant",), confidences=("tokens",))
    of_columns = QACalibrator("column:v", "column:tenant*kdtree:1", QABinning(points_per_bin=20))
    for model in (
        of_columns,
        QACalibrator(partition="column:tenant", learned_score=score),
        QACalibrator(output="continuous"),
    ):
        model.fit(rows).save(tmp_path / "model")
        assert load(tmp_path / "model", warm=True).calibrate(rows[:9]) == model.calibrate(rows[:9])


def test_progress_says_how_many_are_fitted():
    told = []
    rows = answers(60, llm="a") + answers(60, seed=1, llm="b")
    fit_set(QACalibrator(partition="column:topic"), rows, "model", progress=lambda what, count: told.append(what))
    assert told[0].startswith("fitted 0 of 2; a: ")
    assert told[-1].startswith("fitted 1 of 2; b: ")
