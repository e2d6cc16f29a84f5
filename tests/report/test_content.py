"""What the report shows are the numbers of the metrics, and its bins those of the fit."""

import numpy as np
import pytest

from qacal import Column, QABinning, QACalibrator, evaluate
from qacal.calibrators.binmaps import BinMaps
from qacal.errors import InputError
from qacal.model_set import fit_set
from qacal.report import gather, read_contents, realised_errors
from qacal.report.sentences import in_short
from qacal.report.tables import headline_table
from tests.answers import answers
from tests.report.rows import content, model


def test_its_numbers_are_those_of_evaluate():
    rows = answers(1500, seed=1)
    calibrated = [row["calibrated"] for row in model().calibrate(rows)]
    columns = {name: [row[name] for row in rows] for name in ("confidence", "correct", "topic", "id")}
    said = evaluate(columns["confidence"], columns["correct"], calibrated, groups=columns["topic"], ids=columns["id"])
    for found, name in ((said.before, "stated"), (said.after, "calibrated")):
        measured = content().measured[name]
        for what in ("confidence", "brier", "log_loss", "aurc"):
            assert getattr(measured, what) == pytest.approx(getattr(found, what), abs=1e-12), (name, what)
        assert measured.error.debiased == pytest.approx(found.error.debiased, abs=1e-12)
        assert measured.error.p_value == found.error.p_value
        assert measured.error_by_group.debiased == pytest.approx(found.error_by_group.debiased, abs=1e-12)
    groups = {group.group: group for group in said.groups}
    for group in content().groups:
        assert group.accuracy == pytest.approx(groups[group.label].accuracy)
        assert group.errors["calibrated"] == pytest.approx(groups[group.label].error_after, abs=1e-12)


def test_groups_that_gain_most_come_first():
    gains = [group.gain for group in content().groups]
    assert gains == sorted(gains, reverse=True)
    rows = [*answers(300, seed=4), *few()]
    assert read_contents(model(), rows)[""].groups[-1].label is None
    small = read_contents(model(), rows, groups="topic")[""]
    assert small.groups[-1].label == "chess"
    assert [len(group.examples) for group in small.groups] == [4, 4, 4, 4, 3]


def few():
    rows = answers(3, seed=5)
    return [row | {"topic": "chess", "confidence": 1.0, "correct": 0} for row in rows]


def test_pooled_is_the_map_of_all_rows():
    gathered = gather(model(), answers(200, seed=1))[""]
    scores = gathered.scored().scores
    np.testing.assert_array_equal(scores["pooled"], model().calibrator_.predict(scores["stated"]))
    assert list(content("pooled").measured) == ["stated", "calibrated"]


def test_every_bin_is_held_against_its_own_bound():
    maps = model().calibrator_.maps_
    assert isinstance(maps, BinMaps)
    rows = answers(1500, seed=1)
    evidence = model().evidence([row["confidence"] for row in rows], groups=[row["topic"] for row in rows])
    realised = content().realised
    right = np.array([row["correct"] for row in rows])
    for at in range(len(realised.rows)):
        mine = (evidence.calibrated == realised.answer[at]) & (evidence.low == realised.low[at])
        assert mine.sum() == realised.rows[at]
        assert right[mine].mean() == pytest.approx(realised.accuracy[at])
    assert realised.rows.sum() + realised.left_out == 1500
    np.testing.assert_allclose(
        realised.bound, np.maximum(realised.answer - realised.low, realised.high - realised.answer)
    )
    assert not realised.is_broken.any()


def test_rows_that_borrow_a_map_are_not_held_against_it():
    rows = answers(1200)
    tree = QACalibrator(partition="bisecting:3", calibrator=QABinning(points_per_bin=100)).fit(rows)
    found = read_contents(tree, answers(500, seed=1))[""]
    borrowed = sum(row["source"] != "group" for row in tree.calibrate(answers(500, seed=1)))
    assert 0 < borrowed < 500
    assert found.realised.left_out == borrowed
    assert "an ancestor's" in dict(found.facts)["Answered by"]


def test_the_papers_algorithm_counts_its_edge_rows():
    jitter = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=50, ties="jitter"))
    found = read_contents(jitter.fit(answers(1200)), answers(300, seed=1))[""]
    assert (found.promise.rows, found.promise.kind) == (1200, "distinct")
    assert found.realised.rows.sum() + found.realised.left_out == 300


def test_a_broken_promise_is_seen():
    maps = model().calibrator_.maps_
    bins = np.repeat(np.arange(len(maps.value)), 200)
    kept = realised_errors(maps, bins, (maps.value[bins] > 0.5) * 1.0, np.ones(len(bins), dtype=bool))
    assert kept.is_broken.any()
    assert not kept.is_within.all()
    assert realised_errors(maps, bins, np.zeros(len(bins)), np.zeros(len(bins), dtype=bool)) is None


def test_curves_promise_nothing_and_say_so():
    found = content("curves")
    assert found.promise is None
    assert found.realised is None
    assert found.why_no_promise.startswith("HierarchicalScaling answers without bins")


def test_without_groups_all_rows_read_the_only_map():
    found = content("pooled")
    assert found.groups == ()
    assert found.grouped_by is None
    assert found.realised.left_out == 0
    assert ("Groups", "none: one map for all questions") in found.facts


def test_groups_may_be_a_column_of_the_rows():
    rows = [row | {"half": number % 2} for number, row in enumerate(answers(400, seed=1))]
    found = read_contents(model(), rows, groups="half")[""]
    assert found.grouped_by == "half"
    assert sorted(group.label for group in found.groups) == [0, 1]


def test_one_content_for_each_llm():
    rows = [*answers(600), *answers(600, seed=7, llm="parrot-2")]
    test = [*answers(300, seed=8), *answers(300, seed=9, llm="parrot-2")]
    like = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=40))
    models = fit_set(like, rows, "model")
    contents = read_contents(models, test)
    assert list(contents) == ["parrot-1", "parrot-2"]
    assert contents["parrot-1"].rows == 300
    with pytest.raises(InputError, match="one model for each model"):
        read_contents(models, test, by="topic")
    assert list(read_contents(model(), answers(400, seed=1), by="topic")) == sorted(
        ["geography", "arithmetic", "medicine", "cooking"]
    )


def test_what_cannot_be_reported_is_refused():
    right = [row | {"correct": 1} for row in answers(50, seed=1)]
    with pytest.raises(InputError, match="all 50 rows are right"):
        read_contents(model(), right)
    with pytest.raises(InputError, match="correct is missing"):
        read_contents(model(), [{**right[0], "correct": None}])
    with pytest.raises(InputError, match=r"threshold is 80"):
        read_contents(model(), answers(50, seed=1), threshold=80)
    with pytest.raises(InputError, match="this model was fitted on parrot-1"):
        read_contents(model(), answers(50, seed=1, llm="parrot-9"))
    assert read_contents(model(), answers(50, seed=1, llm="parrot-9"), any_origin=True)[""].rows == 50


def test_no_text_leaves_the_rows_if_none_is_asked_for():
    found = read_contents(model(), answers(200, seed=1), examples=0)[""]
    assert all(group.words == () and group.examples == () for group in found.groups)
    assert not found.has_texts


def test_the_sentences_are_those_of_the_rows():
    said = " ".join(in_short(content()))
    assert "Over 1,500 answers the LLM claimed 82% on average" in said
    assert "Within each topic, the stated confidence is off by" in said
    assert "got better as a whole" in said
    assert "Answering only where the calibrated confidence is 0.6 or more answers" in said
    worse = read_contents(model(), [row | {"correct": 1 - row["correct"]} for row in answers(300, seed=1)])[""]
    assert "got better" not in " ".join(in_short(worse))
    few_rows = read_contents(model(), answers(40, seed=1))[""]
    assert "Only 40 rows were measured" in in_short(few_rows)[-1]


def test_what_cannot_be_told_from_the_best_is_marked_too():
    table = headline_table(content())
    within = next(row for row in table.cells if row[0].text == "calibration error within groups")
    assert [cell.is_best for cell in within[1:]] == [False, False, True]
    auac = next(row for row in table.cells if row[0].text == "AUAC")
    assert not any(cell.is_best for cell in auac)


def test_bins_that_follow_curves_are_held_against_the_points_they_have():
    rows = answers(2000)
    model = QACalibrator(partition="column:topic").fit(rows)
    content = read_contents(model, answers(600, seed=1))[""]
    maps = model.calibrator_.maps_
    assert 2 <= content.promise.points_per_bin <= maps.rows[maps.offset[1] :].max()
    assert content.promise.epsilon > 0.03
