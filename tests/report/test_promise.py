"""Whether the guarantee held on the report's rows: which rows are used, and the sentences."""

import re
from dataclasses import replace

import numpy as np
import pytest

from qacal import Column, QABinning, QACalibrator, QacalWarning, StepBinning
from qacal.calibrators.maps import BinMaps
from qacal.report import Block, read_contents, realised_errors, render
from qacal.report.sentences import in_short, verdict_of
from tests.answers import answers
from tests.report.rows import content, model, uneven


def test_a_groups_bins_are_tested_on_its_rows():
    assert isinstance(model().calibrator_.maps_, BinMaps)
    rows = answers(1500, seed=1)
    evidence = model()._evidence_of_arrays([row["confidence"] for row in rows], groups=[row["topic"] for row in rows])
    realised, right = content().realised, np.array([row["correct"] for row in rows])
    own = [at for at, group in enumerate(realised.group) if group is not None]
    for at in own:
        mine = (evidence.calibrated == realised.answer[at]) & (evidence.low == realised.low[at])
        assert mine.sum() == realised.rows[at] == realised.answered[at]
        assert right[mine].mean() == pytest.approx(realised.accuracy[at])
    assert realised.rows[own].sum() == 1500
    np.testing.assert_allclose(
        realised.bound, np.maximum(realised.answer - realised.low, realised.high - realised.answer)
    )
    assert not realised.is_broken.any()


def test_an_ancestors_bins_are_tested_on_all_rows_below_it():
    rows = answers(1200)
    tree = QACalibrator(partition="bisecting:3", calibrator=QABinning(points_per_bin=100)).fit(rows)
    found = read_contents(tree, answers(500, seed=1))[""]
    borrowed = sum(row["source"] != "group" for row in tree.calibrate(answers(500, seed=1)))
    assert 0 < borrowed < 500
    assert found.realised.answered.sum() == 500
    is_own = np.array([group is not None for group in found.realised.group])
    assert found.realised.answered[~is_own].sum() == borrowed
    assert found.realised.rows[~is_own].sum() >= 500
    facts = {fact.name: fact.text for fact in found.facts}
    assert "the correction for a larger group" in facts["Answered by"]


def test_the_papers_algorithm_counts_its_edge_rows():
    jitter = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=50, ties="jitter"))
    found = read_contents(jitter.fit(answers(1200)), answers(300, seed=1))[""]
    assert found.promise.rows == 1200
    assert found.realised.answered.sum() == 300


def test_a_broken_guarantee_is_detected():
    maps = model().calibrator_.maps_
    bins = np.repeat(np.arange(len(maps.value)), 200)
    found = realised_errors(maps, bins, bins[:, None], (maps.value[bins] > 0.5) * 1.0)
    assert found.is_broken.any()
    assert not found.is_within.all()
    assert (found.excess > 0).tolist() == found.is_broken.tolist()


def shared_map():
    """Return a model whose groups are all too small for their own map, as is usual with the defaults."""
    steps = StepBinning(rows_per_map=10_000, step=0.1)
    return QACalibrator(partition="bisecting:3", calibrator=steps).fit(answers(1000))


@pytest.mark.usefixtures("undrawn_unless_full")
def test_groups_that_share_one_map_get_a_verdict_too():
    found = read_contents(shared_map(), answers(800, seed=1))[""]
    verdict = verdict_of(found)
    assert set(found.realised.group) == {None}
    assert verdict.answer == "Yes, as far as these rows can tell."
    page = render("One map", [Block("parrot-1", found)])
    assert f'<p class="verdict"><b>{verdict.answer}</b> {verdict.reasons}</p>' in page
    assert any(sentence.endswith("hold? Yes, as far as these rows can tell.") for sentence in in_short(found))


def test_harder_questions_break_the_guarantee_and_the_worst_bin_is_named():
    rows = [row | {"correct": row["correct"] and number % 2} for number, row in enumerate(answers(1500, seed=1))]
    with pytest.warns(QacalWarning, match="do not separate correct from wrong"):
        found = read_contents(model(), rows)[""]
    verdict, realised = verdict_of(found), found.realised
    broken = int(realised.is_broken.sum())
    assert broken > 1
    assert verdict.answer.startswith(f"No: {broken} of {realised.can_be_judged.sum()} testable intervals ")
    worst = int(np.argmax(realised.excess))
    assert f"it answers {realised.answer[worst]:.2f}: the interval is {realised.low[worst]:.2f} to" in verdict.reasons
    assert "One fit in 10 may fail by chance" in verdict.reasons


def test_few_rows_are_reported_as_few():
    unsure = [row for row in answers(24, seed=1) if row["topic"] in ("medicine", "cooking")]
    found = read_contents(model(), unsure)[""]
    assert verdict_of(found).answer == "Too few rows to tell."
    assert re.search(r"no bin has more than \d+ rows\.", verdict_of(found).reasons)
    some = read_contents(model(), answers(150, seed=1))[""]
    assert 0 < some.realised.can_be_judged.sum() < len(some.realised.rows) / 2
    assert verdict_of(some).answer == "No failure found, but most intervals have too few rows to tell."


@pytest.mark.parametrize(
    ("rows", "right", "said"),
    [
        (200, 100, "1 of 1 interval has enough rows here to be tested. The accuracy lies inside 1 of 1. "),
        (200, 110, "The accuracy lies inside 0 of 1; chance explains the others."),
        (4, 4, "no bin has more than 4 rows."),
    ],
)
def test_one_bin_is_in_the_singular(rows, right, said):
    """Half of 20,000 rows were correct in the fit, so the interval is narrow."""
    steps = StepBinning().fit(np.full(20_000, 0.8), np.tile([0.0, 1.0], 10_000))
    bins = steps.maps_.bins_of(steps._checked_rows(np.full(rows, 0.8), None, None))
    found = realised_errors(steps.maps_, bins, bins[:, None], np.repeat([1.0, 0.0], [right, rows - right]))
    assert said in verdict_of(replace(content(), realised=found)).reasons


def test_intervals_without_rows_are_counted_as_not_tested():
    found = read_contents(model("pooled"), [row for row in answers(1500, seed=1) if row["confidence"] < 0.75])[""]
    tested, total = int(found.realised.can_be_judged.sum()), len(model("pooled").calibrator_.maps_.value)
    assert 1 < tested == len(found.realised.rows) < total / 2
    assert verdict_of(found).answer == "No failure found, but most intervals have too few rows to tell."
    said = f"{tested} of {total} intervals have enough rows here to be tested."
    assert verdict_of(found).reasons.startswith(said)


@pytest.mark.filterwarnings("ignore:.*exact copies of earlier rows:qacal.QacalWarning")
def test_one_row_of_each_question_counts():
    rows = answers(300, seed=1)
    found = read_contents(model(), [row for row in rows for _ in range(5)])[""]
    assert found.realised.left_out == 1200
    assert found.realised.answered.sum() == 300
    assert "1,200 rows were left out" in verdict_of(found).reasons


@pytest.mark.filterwarnings("ignore::qacal.RepeatedQuestionsWarning")
def test_no_verdict_if_some_questions_have_more_rows_than_others():
    """Easy questions have ten rows each, as in the fit, so the accuracy over questions is lower than over rows."""
    fitted = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=100))
    with pytest.warns(QacalWarning, match="exact copies of earlier rows"):
        fitted.fit(uneven(800, seed=0))
    with pytest.warns(QacalWarning, match="exact copies of earlier rows"):
        found = read_contents(fitted, uneven(800, seed=1))[""]
    assert verdict_of(found).answer == "These rows cannot tell."
    assert verdict_of(found).reasons.startswith("Some questions have more rows here than others.")


@pytest.mark.usefixtures("undrawn_unless_full")
def test_rows_that_cannot_test_the_guarantee_are_not_used():
    part = read_contents(model(), answers(400, seed=1), by="topic")["cooking"]
    assert part.realised is None
    assert verdict_of(part).answer == "These rows cannot tell."
    assert verdict_of(part).reasons.startswith("These are only part of the rows")
    with pytest.warns(QacalWarning, match="the model was fitted on some of these questions"):
        same = read_contents(model(), answers(2000))[""]
    assert in_short(same)[0].startswith("Warning: the model was fitted on some of these questions")
    assert verdict_of(same).reasons.startswith("The model was fitted on some of these questions")
    assert "These rows cannot tell." in render("Same", [Block("One", same)])


def without(rows, *names):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def test_questions_of_the_fit_are_recognised_by_their_text_too():
    rows = answers(1000)
    fitted = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=60)).fit(without(rows, "id"))
    with pytest.warns(QacalWarning, match="the model was fitted on some of these questions"):
        same = read_contents(fitted, rows)[""]
    assert verdict_of(same).reasons.startswith("The model was fitted on some of these questions")
    other = answers(1000, seed=1)
    for row in other:
        row["question"] = f"Anew: {row['question']}"
    assert verdict_of(read_contents(fitted, other)[""]).answer == "Yes, as far as these rows can tell."


@pytest.mark.parametrize(("fitted_on", "shown"), [((), ("id", "question")), (("id", "question"), ())])
def test_rows_without_id_and_question_may_be_those_of_the_fit(fitted_on, shown):
    fitted = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=60))
    fitted.fit(without(answers(1000), *fitted_on))
    found = read_contents(fitted, without(answers(1000), *shown))[""]
    assert verdict_of(found).answer == "These rows cannot tell."
    assert "these may have been used" in verdict_of(found).reasons
    facts = {fact.name: fact.text for fact in found.facts}
    assert facts["Warning"].startswith("the model may have been fitted on some of these rows")


def test_without_a_guarantee_there_is_no_verdict():
    assert verdict_of(content("curves")) is None
    assert not [sentence for sentence in in_short(content("curves")) if "promised" in sentence]
