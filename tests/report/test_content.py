"""The report shows the numbers of the metrics and the bins of the fit."""

import re

import numpy as np
import pytest

from qacal import Column, LearnedScore, QABinning, QACalibrator, QacalWarning, evaluate
from qacal.errors import InputError
from qacal.model.model_set import fit_set
from qacal.report import read_contents
from qacal.report.data import gather
from qacal.report.sentences import Fact, in_short
from qacal.report.tables import headline_table
from tests.answers import answers
from tests.report.rows import content, model


def test_its_numbers_are_those_of_evaluate():
    rows = answers(1500, seed=1)
    calibrated = [row["calibrated"] for row in model().calibrate(rows)]
    columns = {name: [row[name] for row in rows] for name in ("confidence", "correct", "topic", "id")}
    said = evaluate(columns["correct"], columns["confidence"], calibrated, groups=columns["topic"], ids=columns["id"])
    for found, name in ((said.before, "stated"), (said.after, "calibrated")):
        measured = content().evaluation.by_score[name]
        for what in ("confidence", "brier", "log_loss", "aurc"):
            assert getattr(measured, what) == pytest.approx(getattr(found, what), abs=1e-12), (name, what)
        assert measured.error.debiased == pytest.approx(found.error.debiased, abs=1e-12)
        assert measured.error.p_value == found.error.p_value
        assert measured.error_by_group.debiased == pytest.approx(found.error_by_group.debiased, abs=1e-12)
    groups = {group.group: group for group in said.groups}
    for group in content().groups:
        assert group.accuracy == pytest.approx(groups[group.group].accuracy)
        assert group.errors["calibrated"] == pytest.approx(groups[group.group].error_after, abs=1e-12)


def test_groups_that_gain_most_come_first():
    gains = [group.gain for group in content().groups]
    assert gains == sorted(gains, reverse=True)
    rows = [*answers(300, seed=4), *few()]
    assert read_contents(model(), rows)[""].groups[-1].group is None
    small = read_contents(model(), rows, groups="topic")[""]
    assert small.groups[-1].group == "chess"
    assert [len(group.examples) for group in small.groups] == [4, 4, 4, 4, 3]


def few():
    rows = answers(3, seed=5)
    return [row | {"topic": "chess", "confidence": 1.0, "correct": 0} for row in rows]


def test_pooled_uses_the_map_of_all_rows():
    gathered = gather(model(), answers(200, seed=1))[""]
    scores = gathered.scores()
    np.testing.assert_array_equal(scores["pooled"], model().calibrator_.predict(scores["stated"]))
    assert list(content("pooled").evaluation.by_score) == ["stated", "calibrated"]


def test_curves_have_no_guarantee_and_say_so():
    found = content("curves")
    assert found.promise is None
    assert found.realised is None
    assert found.why_not.startswith("HierarchicalScaling answers without bins")


def test_without_groups_all_rows_use_the_only_map():
    found = content("pooled")
    assert found.groups == ()
    assert found.evaluation.grouped_by is None
    assert found.realised.left_out == 0
    assert Fact("Groups", "none: one correction for all questions") in found.facts


def test_groups_may_be_a_column_of_the_rows():
    rows = [row | {"half": number % 2} for number, row in enumerate(answers(400, seed=1))]
    found = read_contents(model(), rows, groups="half")[""]
    assert found.evaluation.grouped_by == "half"
    assert sorted(group.group for group in found.groups) == [0, 1]


def test_lists_may_be_groups_too():
    rows = [row | {"tags": ["a"] if number % 2 else ["b", "c"]} for number, row in enumerate(answers(400, seed=1))]
    groups = read_contents(model(), rows, groups="tags")[""].groups
    assert {group.group: (group.rows, len(group.examples)) for group in groups} == {
        "['a']": (200, 4),
        "['b', 'c']": (200, 4),
    }


def test_one_content_for_each_llm():
    rows = [*answers(600), *answers(600, seed=7, llm="parrot-2")]
    test = [*answers(300, seed=8), *answers(300, seed=9, llm="parrot-2")]
    like = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=40))
    models = fit_set(like, rows, "model")
    contents = read_contents(models, test)
    assert list(contents) == ["parrot-1", "parrot-2"]
    assert contents["parrot-1"].evaluation.rows == 300
    with pytest.raises(InputError, match="one model for each model"):
        read_contents(models, test, by="topic")
    assert list(read_contents(model(), answers(400, seed=1), by="topic")) == sorted(
        ["geography", "arithmetic", "medicine", "cooking"]
    )


def test_what_cannot_be_reported_is_refused():
    right = [row | {"correct": 1} for row in answers(50, seed=1)]
    with pytest.raises(InputError, match="all 50 rows are correct"):
        read_contents(model(), right)
    with pytest.raises(InputError, match="no row has a label"):
        read_contents(model(), [{**right[0], "correct": None}])
    with pytest.raises(InputError, match=r"threshold is 80"):
        read_contents(model(), answers(50, seed=1), threshold=80)
    with pytest.raises(InputError, match="this model was fitted on parrot-1"):
        read_contents(model(), answers(50, seed=1, llm="parrot-9"))
    assert (
        read_contents(model(), answers(50, seed=1, llm="parrot-9"), allow_other_source=True)[""].evaluation.rows == 50
    )


def test_few_rows_make_no_verdict():
    rows = answers(5, seed=3)
    assert len({row["topic"] for row in rows}) > 1
    found = read_contents(model(), rows)[""]
    said = in_short(found)
    first = "Only 5 rows were measured, too few to judge this model: every number here is rough."
    assert (found.evaluation.verdict.kind, said[0]) == ("unclear", first)
    assert "too few answers to tell whether that is too high or too low (95% interval" in said[1]
    assert not any(word in " ".join(said) for word in ("points too", "right on average", "improved", "worse"))
    apart = [row | {"topic": str(at)} for at, row in enumerate(rows)]
    within = "Within each topic, there are too few rows to measure an error."
    assert within in in_short(read_contents(model(), apart, groups="topic")[""])
    # A large error is reported even on few rows.
    wrong = [row | {"confidence": 0.99, "correct": int(at < 3)} for at, row in enumerate(answers(40, seed=1))]
    assert "points too high" in " ".join(in_short(read_contents(model(), wrong)[""]))


def test_no_text_is_shown_unless_wanted():
    found = read_contents(model(), answers(200, seed=1), examples=0)[""]
    assert all(group.words == () and group.examples == () for group in found.groups)
    assert not found.has_texts


def test_the_sentences_match_the_rows():
    said = " ".join(in_short(content()))
    assert "Over 1,500 answers the LLM stated 82% on average" in said
    assert "Typical error within each topic, without noise: the stated confidence is off by" in said
    assert "Calibration improved the probabilities" in said
    assert "A threshold of 0.6 on the calibrated confidence answers" in said
    with pytest.warns(QacalWarning, match="answers with higher confidence are more often wrong"):
        worse = read_contents(model(), [row | {"correct": 1 - row["correct"]} for row in answers(1000, seed=1)])[""]
    assert in_short(worse)[0].startswith("Warning: answers with higher confidence are more often wrong")
    assert "improved" not in " ".join(in_short(worse))
    assert re.search(r"calibrated confidence is off by [\d.]+ points \([\d.]+ to [\d.]+ at 95%\)", said)
    few_rows = read_contents(model(), answers(40, seed=1))[""]
    assert in_short(few_rows)[0].startswith("Only 40 rows were measured")
    assert few_rows.evaluation.verdict.text in in_short(few_rows)
    assert few_rows.to_dict()["verdict"]["text"] == few_rows.evaluation.verdict.text


def row_of(table, name):
    """Return the row whose technical name begins so."""
    return next(row for row in table.cells if row[0].note.startswith(name))


def test_methods_as_good_as_the_best_within_noise_are_marked_too():
    table = headline_table(content())
    within = row_of(table, "calibration error within groups")
    assert [cell.is_best for cell in within[1:]] == [False, False, True]
    assert not any(cell.is_best for cell in row_of(table, "AUAC"))


def test_plain_words_come_before_technical_names():
    table = headline_table(content())
    technical = ("plug-in", "Brier", "log loss", "AURC", "AUAC", "sharpness", "debiased", "pooled map")
    first = " ".join([*table.header, *(row[0].text for row in table.cells)])
    assert not [word for word in technical if word in first]
    under = " ".join(row[0].note for row in table.cells)
    assert [word for word in technical if word not in under] == ["pooled map"]
    facts = {fact.name: fact for fact in content().facts}
    assert facts["Corrected by"].text == "bins within each group"
    assert facts["Corrected by"].detail == "QABinning(points_per_bin=60)"


@pytest.mark.usefixtures("wordless_unless_full")
def test_a_score_lists_its_inputs_before_its_results():
    rows = [row | {"tokens": row["confidence"] / 2} for row in answers(400)]
    learned = QACalibrator(learned_score=LearnedScore(confidences=["tokens"])).fit(rows)
    new = [row | {"tokens": row["confidence"] / 2} for row in answers(200, seed=1)]
    fact = next(fact for fact in read_contents(learned, new)[""].facts if fact.name == "Predicts from")
    assert fact.text.startswith("the ")
    assert "confidence" in fact.text
    assert "log loss" not in fact.text
    assert f"{learned.learned_score_.chosen} " in fact.detail


def test_an_error_within_noise_is_not_shown_as_zero():
    calm = read_contents(model(), answers(200, seed=1))[""]
    errors = row_of(headline_table(calm), "calibration error without noise")
    assert calm.evaluation.by_score["calibrated"].error.debiased < 0
    assert (errors[3].text, errors[3].note) == (
        "none seen",
        f"at most {calm.evaluation.by_score['calibrated'].error.high:.3f}",
    )
