"""Training on a judge's labels, certification on human labels."""

import json
from functools import partial

import numpy as np
import pytest

from qacal import MarginBinning, QABinning, QACalibrator, StepBinning
from qacal.errors import InputError, QacalWarning
from tests.answers import TOPICS, answers


def judged(rows, seed, topic="arithmetic", wrong=0.5):
    """Return rows labelled by a judge that accepts half of the wrong answers of one topic."""
    rng = np.random.default_rng(seed)
    out = []
    for row in rows:
        passes = row["topic"] == topic and row["correct"] == 0 and rng.random() < wrong
        out.append(row | {"correct": 1 if passes else row["correct"], "judge": "wise (judge/1)"})
    return out


def truth(row):
    """Return the true probability that an answer is correct."""
    return float(np.clip(TOPICS[row["topic"]][2] + 0.3 * (row["confidence"] - 0.8), 0, 1))


def people(count, seed):
    return [row | {"judge": "human"} for row in answers(count, seed=seed)]


@pytest.mark.usefixtures("wordless_unless_full")
def test_answers_follow_human_labels():
    """A judge that errs in one topic misleads a model trained on its labels alone; human labels correct it."""
    learn, certify, new = judged(answers(3000, seed=1), 1), people(2400, seed=2), answers(3000, seed=3)
    sums = [row for row in new if row["topic"] == "arithmetic"]
    right = np.mean([truth(row) for row in sums])
    by_judge, by_people = QACalibrator().fit(learn), QACalibrator().fit(learn, certify_records=certify)
    off = [abs(np.mean([out["calibrated"] for out in m.calibrate(sums)]) - right) for m in (by_judge, by_people)]
    assert off[0] > 0.2
    assert off[1] < 0.12
    assert by_people.rows_ == 2400
    assert by_people.origins_["judge"] == ["human"]


def test_a_model_certified_on_human_labels_is_saved_and_loaded(tmp_path):
    from qacal import load

    model = QACalibrator().fit(judged(answers(600, seed=1), 1), certify_records=people(300, seed=2))
    model.save(tmp_path / "model")
    new = answers(50, seed=3)
    assert load(tmp_path / "model").calibrate(new) == model.calibrate(new)


@pytest.mark.parametrize(("name", "value"), [("samples", 3), ("temperature", 0.2)])
def test_both_kinds_of_rows_were_sampled_alike(name, value):
    sampled = {"agreement": 0.6, "samples": 5, "temperature": 0.7}
    rows, few = ([row | sampled for row in rows] for rows in (answers(60, seed=1), people(60, seed=2)))
    with pytest.raises(InputError, match=rf"{name} is .* in the training rows and {value} in the certifying rows"):
        QACalibrator().fit(rows, certify_records=[row | {name: value} for row in few])


def test_conflicting_options():
    rows, few = answers(600, seed=1), people(300, seed=2)
    with pytest.raises(InputError, match="rows have questions that the model was trained on"):
        QACalibrator().fit(rows, certify_records=rows[:10])
    with pytest.raises(InputError, match="certifies nothing"):
        QACalibrator(output="continuous").fit(rows, certify_records=few)
    with pytest.raises(InputError, match="pass one of them"):
        QACalibrator().fit(rows, certify_records=few, group_records=people(50, seed=3))
    with pytest.raises(InputError, match="nothing to train"):
        QACalibrator(partition="column:topic", calibrator=QABinning()).fit(rows, certify_records=few)


def test_the_two_sets_must_be_of_one_kind():
    rows, few = answers(600, seed=1), people(300, seed=2)
    with pytest.raises(InputError, match="model is parrot-1 in the training rows and parrot-2 in the"):
        QACalibrator().fit(rows, certify_records=[row | {"model": "parrot-2"} for row in few])
    without = [{name: value for name, value in row.items() if name != "id"} for row in few]
    with pytest.raises(InputError, match="only one of the two sets of rows has ids"):
        QACalibrator().fit(rows, certify_records=without)


def test_the_command_does_what_the_library_does(tmp_path):
    from qacal import load
    from tests.cli.test_cli import ok, run

    learn, certify, new = judged(answers(900, seed=1), 1), people(400, seed=2), answers(50, seed=3)
    for name, rows in (("judged", learn), ("people", certify)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ok("fit", tmp_path / "judged.jsonl", "-o", tmp_path / "model", "--certify", tmp_path / "people.jsonl")
    by_hand = QACalibrator().fit(learn, certify_records=certify)
    assert load(tmp_path / "model").calibrate(new) == by_hand.calibrate(new)
    code, _, err = run(
        *("fit", tmp_path / "judged.jsonl", "-o", tmp_path / "m", "--certify", tmp_path / "people.jsonl"),
        *("--train-share", 0.5),
    )
    assert code == 2
    assert "--certify trains one model" in err or "--certify goes with one model" in err


@pytest.mark.filterwarnings("ignore::qacal.RepeatedQuestionsWarning")
def test_exact_copies_are_counted_in_both_files():
    learn, certify = answers(600, seed=1), people(300, seed=2)
    model = QACalibrator(partition="bisecting:1", calibrator=QABinning(points_per_bin=50))
    with pytest.warns(QacalWarning, match="exact cop") as warned:
        model.fit([*learn, *learn[:3]], certify_records=[*certify, certify[0]])
    said = [str(warning.message).partition(" (")[0] for warning in warned]
    assert "the training rows: 3 of 603 rows are exact copies of earlier rows" in said
    assert "the certifying rows: 1 of 301 rows is an exact copy of an earlier row" in said
    assert [" and counts as a further row of one question." in str(one.message) for one in warned][:2] == [False, True]


def both(count, seed, wrong=0.03):
    """Return rows labelled by people, with the labels of a judge that is seldom wrong beside them."""
    rng = np.random.default_rng(seed)
    return [row | {"by_judge": row["correct"] ^ (rng.random() < wrong)} for row in people(count, seed)]


@pytest.mark.usefixtures("wordless_unless_full")
def test_a_good_judge_narrows_the_intervals():
    few = both(200, seed=2)
    learn = [row | {"correct": row["by_judge"], "judge": "wise"} for row in both(3000, seed=1)]
    for row in learn:
        del row["by_judge"]
    alone = QACalibrator(calibrator=MarginBinning()).fit(learn, certify_records=few)
    helped = QACalibrator().fit(learn, certify_records=few, judge_column="by_judge")
    widths = [model.calibrator_.maps_.median_error_bound() for model in (alone, helped)]
    assert widths[1] < 0.85 * widths[0]
    assert helped.rows_ == 200
    assert helped.origins_["judge"] == ["human"]
    # The judge's labels of the certifying rows are no input of the score.
    assert "by_judge" not in helped.pipeline_.columns


def both_of(rows):
    return {"certify_records": rows, "judge_column": "by_judge"}


def test_faults_of_a_judges_labels():
    rows, few = answers(400, seed=1), both(60, seed=2)
    fit = partial(QACalibrator().fit, rows, judge_column="by_judge")
    with pytest.raises(InputError, match="there is no column by_judge"):
        fit(certify_records=people(60, seed=2))
    with pytest.raises(InputError, match=r"by_judge has the value 0\.5; with a judge, labels are 0 or 1"):
        fit(certify_records=[row | {"by_judge": 0.5} for row in few])
    with pytest.raises(InputError, match="has people's labels"):
        QACalibrator().fit(rows, certify_records=few, judge_column="correct")
    with pytest.raises(InputError, match=r"correct has the value 0\.8; with a judge"):
        QACalibrator().fit([row | {"correct": 0.8 * row["correct"]} for row in rows], **both_of(few))
    with pytest.raises(InputError, match="keep one answer for each id"):
        QACalibrator().fit([row | {"id": f"q{n // 2}"} for n, row in enumerate(rows)], **both_of(few))
    with pytest.raises(InputError, match="some have the same id"):
        fit(certify_records=[row | {"id": f"d{n // 2}"} for n, row in enumerate(few)])
    for other in (QACalibrator().fit, QACalibrator(calibrator=StepBinning()).fit):
        records = {} if other.__self__.calibrator is None else {"certify_records": few}
        with pytest.raises(InputError, match=r"judge_column.*is for the default calibrator"):
            other(rows, judge_column="by_judge", **records)
