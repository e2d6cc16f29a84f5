"""Thresholds of a model: chosen on records, saved, loaded, and applied to every answer."""

import json

import numpy as np
import polars as pl
import pytest

import qacal
from qacal import ArtifactError, BisectingTree, Column, InputError, NotFittedError, QABinning, QACalibrator
from qacal.calibrators import HierarchicalScaling, Identity, PlattScaling
from qacal.partitions import KDTree
from qacal.storage import digest
from tests.answers import TOPICS, answers

COLUMNS = ("id", "confidence", "correct", "topic")


def rows(n, seed):
    return [{name: row[name] for name in COLUMNS} for row in answers(n, seed=seed)]


def fitted(calibrator=None):
    return QACalibrator(partition=Column("topic"), calibrator=calibrator or QABinning()).fit(rows(3000, 0))


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture
def own(model):
    yield model
    model.set_threshold(None)


NEW = rows(2000, 1)


def right(found):
    given = [row["correct"] for row in found if row["decision"] == "answer"]
    return np.mean(given), len(given)


def test_before_a_threshold_nothing_is_decided(model):
    found = model.calibrate(NEW[:5])
    assert {(row["decision"], row["threshold"]) for row in found} == {(None, None)}


def test_a_chosen_threshold_reaches_its_target_on_new_rows(own):
    found = own.choose_threshold(NEW, accuracy=0.9)
    assert found.pilot_rows == 0  # the model stores enough
    accuracy, given = right(own.set_threshold(found).calibrate(rows(4000, 2)))
    assert accuracy > 0.89
    assert abs(given / 4000 - found.parts[0].coverage) < 0.04
    said = own.explain("Which city?", "Arden", 1.0, topic="geography")
    assert (said["decision"], said["threshold"]) == ("answer", found.threshold)
    assert own.explain("2 + 2?", "5", 1.0, topic="arithmetic")["decision"] == "abstain"
    arrays = own._evidence_of_arrays([1.0, 1.0], groups=["geography", "arithmetic"])
    assert arrays.decision == ["answer", "abstain"]


def test_a_threshold_for_each_group(own):
    found = own.choose_threshold(NEW, accuracy=0.9, per_group=True)
    assert set(found.thresholds) == set(TOPICS)
    assert found.thresholds["arithmetic"] is None
    assert found.thresholds["geography"] is not None
    assert {part.alpha for part in found.parts} == {0.1 / 4}
    own.set_threshold(found)
    asked = [{"confidence": 1.0, "topic": topic} for topic in ("geography", "arithmetic", "chess", None)]
    with pytest.warns(qacal.QacalWarning, match="2 of 4 rows have no topic that the model knows"):
        assert [row["decision"] for row in own.calibrate(asked)] == ["answer", "abstain", "abstain", "abstain"]


def test_reversed_labels_are_reported(own):
    turned = [row | {"correct": row["confidence"] < 0.85} for row in NEW]
    with pytest.warns(qacal.QacalWarning, match="answers with higher confidence are more often wrong"):
        own.choose_threshold(turned, accuracy=0.5)


def test_costs(own):
    found = own.choose_threshold(NEW, wrong=5, abstain=1)
    assert found.threshold == 0.8
    assert own.set_threshold(found).calibrate(NEW[:1])[0]["threshold"] == 0.8


@pytest.mark.parametrize("calibrator", [PlattScaling(), HierarchicalScaling(), Identity()], ids=repr)
def test_every_kind_of_calibrator(calibrator):
    model = fitted(calibrator)
    found = model.choose_threshold(NEW, accuracy=0.75)
    assert found.pilot_rows == 0
    assert (found.threshold is not None) == (not isinstance(calibrator, PlattScaling | Identity))
    again = model.choose_threshold(NEW, accuracy=0.6)
    assert again.threshold is not None


def test_groups_of_a_tree_are_named_as_calibrated_rows_name_them():
    def placed(n, seed):
        rng, places = np.random.default_rng(seed), [(0, 0), (0, 1), (1, 0), (1, 1)]
        where = dict(zip(TOPICS, places, strict=True))
        noise = rng.normal(0, 0.05, (n, 2))
        return [{**row, "at": [*(noise[i] + where[row["topic"]])]} for i, row in enumerate(rows(n, seed))]

    model = QACalibrator("column:at", partition=KDTree(max_depth=3), calibrator=QABinning(max_depth=2))
    model.fit(placed(2500, 0))
    found = model.choose_threshold(placed(1200, 1), accuracy=0.85, per_group=True)
    assert set(found.thresholds) == {group.group for group in model.describe_groups()}
    assert {*model.fit_record_.groups} == {*found.thresholds}
    assert found.is_certified
    accuracy, given = right(model.set_threshold(found).calibrate(placed(1500, 2)))
    assert accuracy > 0.84
    assert given > 200


@pytest.mark.usefixtures("wordless_unless_full")
def test_rows_of_the_fit_are_refused(model):
    with pytest.raises(InputError, match="fitted on some of these questions: 256 of the 256 that it stores are"):
        model.choose_threshold(rows(3000, 0), accuracy=0.9)
    with pytest.raises(InputError, match="fitted on some of these questions"):
        model.choose_threshold(NEW + rows(3000, 0)[:300], accuracy=0.9)
    unlabelled = [{**row, "correct": None} for row in answers(500, seed=7)]
    tree = QACalibrator(partition=BisectingTree(max_depth=1)).fit(answers(600), group_records=unlabelled)
    with pytest.raises(InputError, match="fitted on some of these questions"):
        tree.choose_threshold(answers(500, seed=7), accuracy=0.5)
    unnamed = [{name: value for name, value in row.items() if name != "id"} for row in answers(600)]
    tree = QACalibrator(partition=BisectingTree(max_depth=1)).fit(unnamed)
    with pytest.raises(InputError, match="fitted on some of these questions"):
        tree.choose_threshold(answers(600), accuracy=0.5)
    # The other way round: the fit had ids.
    tree = QACalibrator(partition=BisectingTree(max_depth=1)).fit(answers(600))
    with pytest.raises(InputError, match="fitted on some of these questions"):
        tree.choose_threshold(unnamed, accuracy=0.5)
    # If both have ids, only ids count: another question may have the same text.
    other = [{**row, "id": f"another {row['id']}"} for row in answers(600)]
    assert tree.choose_threshold(other, accuracy=0.5) is not None


def test_rows_without_id_and_question_cannot_be_recognised(model):
    nameless = [{name: row[name] for name in ("confidence", "correct", "topic")} for row in rows(3000, 0)]
    assert model.choose_threshold(nameless, accuracy=0.9).is_certified


def test_rows_of_a_question_are_a_document(model):
    found = model.choose_threshold(NEW + [{**row, "confidence": 0.6} for row in NEW], accuracy=0.9)
    assert (found.parts[0].documents, found.rows) == (2000, 4000)


def test_a_threshold_for_each_value_of_a_column(own, tmp_path):
    fields = [{**row, "field": "name" if row["correct"] or at % 9 else "sum"} for at, row in enumerate(NEW)]
    found = own.choose_threshold(fields, accuracy=0.8, groups="field")
    assert found.thresholds["name"] is not None
    assert found.thresholds["sum"] is None
    own.set_threshold(found).save(tmp_path / "model")
    loaded = qacal.load(tmp_path / "model", warm=True)
    pair = [{**NEW[0], "confidence": 0.95, "field": field} for field in ("name", "sum", "other", None)]
    rows = loaded.calibrate(pair)
    assert [row["threshold"] for row in rows] == [found.thresholds["name"], None, None, None]
    assert [row["decision"] for row in rows][1:] == ["abstain"] * 3
    with pytest.raises(InputError, match="no column 'field'"):
        loaded.calibrate(NEW[:1])
    with pytest.raises(InputError, match="field has labels that are numbers; those of the fit are text"):
        loaded.calibrate([{**NEW[0], "field": 3}])
    own.set_threshold(None)
    with pytest.raises(InputError, match="groups is 'field'; expected the name of a column, without --per-group"):
        own.choose_threshold(fields, accuracy=0.9, groups="field", per_group=True)


def test_by_hand(own):
    assert own.set_threshold(0.5) is own
    assert own.calibrate(NEW[:1])[0]["threshold"] == 0.5
    own.set_threshold({"geography": 0.2, "cooking": None})
    asked = [{"confidence": 1.0, "topic": topic} for topic in ("geography", "cooking", "medicine")]
    assert [row["decision"] for row in own.calibrate(asked)] == ["answer", "abstain", "abstain"]
    assert own.set_threshold(None).calibrate(NEW[:1])[0]["decision"] is None
    with pytest.raises(InputError, match="no group 'chess'"):
        own.set_threshold({"chess": 0.5})
    with pytest.raises(InputError, match=r"threshold is 1\.5"):
        own.set_threshold(1.5)
    with pytest.raises(NotFittedError):
        QACalibrator().set_threshold(0.5)


def test_a_new_fit_forgets_the_threshold(tmp_path):
    model = QACalibrator(partition=Column("topic"), calibrator=QABinning()).fit(rows(500, 0)).set_threshold(0.5)
    assert model.fit(rows(500, 1)).calibrate(NEW[:1])[0]["decision"] is None


def test_invalid_targets_are_refused(model):
    for options, said in (
        ({}, "give an accuracy"),
        ({"wrong": 5}, "both costs"),
        ({"wrong": 5, "abstain": 1, "accuracy": 0.9}, "both costs"),
        ({"wrong": 5, "abstain": 1, "per_group": True}, "one threshold for all groups"),
        ({"wrong": 5, "abstain": 1, "alpha": 0.01}, "Leave out --alpha"),
    ):
        with pytest.raises(InputError, match=said):
            model.choose_threshold(NEW, **options)
    with pytest.raises(InputError, match="correct"):
        model.choose_threshold([{"id": 1, "confidence": 0.5, "topic": "law"}], accuracy=0.9)
    one_map = QACalibrator(calibrator=PlattScaling()).fit(rows(300, 0))
    with pytest.raises(InputError, match="this model has no groups"):
        one_map.choose_threshold(NEW, accuracy=0.9, per_group=True)


# Saving and loading


@pytest.mark.parametrize("per_group", [False, True])
def test_a_saved_threshold_comes_back(own, tmp_path, per_group):
    own.set_threshold(own.choose_threshold(NEW, accuracy=0.9, per_group=per_group)).save(tmp_path / "model")
    back = qacal.load(tmp_path / "model")
    assert back.calibrate(NEW) == own.calibrate(NEW)
    assert back.decision_rule_ == own.decision_rule_
    assert back.choose_threshold(NEW, accuracy=0.9) == own.choose_threshold(NEW, accuracy=0.9)
    back.save(tmp_path / "again")
    for name in ("model", "again"):
        assert json.loads((tmp_path / name / "model.json").read_text())["value"]["decision_rule"]["about"] == {
            "kind": "certified",
            "accuracy": 0.9,
            "alpha": 0.1,
            "rows": 2000,
        }
    assert (tmp_path / "model" / "model.json").read_bytes() == (tmp_path / "again" / "model.json").read_bytes()


@pytest.mark.parametrize("part", ["decision_rule", "fit_record"])
@pytest.mark.parametrize("content", [7, "0.8", [], {"threshold": 0.8}, {"threshold": 2, "groups": None, "about": {}}])
def test_damaged_thresholds_are_refused(model, tmp_path, part, content):
    model.save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    del document["digest"]
    document["value"][part] = content
    document["digest"] = digest(document)
    (tmp_path / "model" / "model.json").write_text(json.dumps(document))
    with pytest.raises(ArtifactError, match="holds no sound model"):
        qacal.load(tmp_path / "model")


def test_a_file_of_several_batches(own, tmp_path):
    pl.DataFrame(NEW).write_parquet(tmp_path / "new.parquet")
    assert own.choose_threshold(tmp_path / "new.parquet", accuracy=0.9) == own.choose_threshold(NEW, accuracy=0.9)
    percents = [{**row, "confidence": 100 * row["confidence"]} for row in NEW]
    assert own.choose_threshold(percents, accuracy=0.9, percent=True) == own.choose_threshold(NEW, accuracy=0.9)
