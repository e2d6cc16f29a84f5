"""QACalibrator with a score, from records to answers."""

import numpy as np
import polars as pl
import pytest

import qacal
from qacal import InputError, MarginBinning, QABinning, QACalibrator, QacalWarning, TreeBinning
from qacal.calibrators.score import LearnedScore
from qacal.metrics import log_loss
from tests.answers import answers


def records(n, seed=0):
    """Generated answers with a tenant, and the probability of the tokens where the LLM gave it."""
    rng = np.random.default_rng(seed + 100)
    rows = answers(n, seed)
    for row in rows:
        tenant = int(rng.integers(4))
        row["tenant"] = ["acme", "bolt", "cord", 7][tenant]
        row["correct"] = int(row["correct"] and rng.random() < 1 - 0.2 * tenant)
        sure = 0.25 + 0.7 * rng.random() if row["correct"] else 0.75 * rng.random()
        row["tokens"] = None if rng.random() < 0.1 else round(sure, 3)
    return rows


def column(rows, name):
    return np.array([row[name] for row in rows])


SCORE = LearnedScore(columns=["tenant"], confidences=["tokens"])
# For tests that are not about texts: it is fitted in a fifth of the time.
WORDLESS = LearnedScore(columns=["tenant"], confidences=["tokens"], words=False)


@pytest.fixture(scope="module")
def fitted():
    return QACalibrator(partition="bisecting:2", learned_score=SCORE).fit(records(2500))


@pytest.fixture(scope="module")
def new():
    return records(3000, seed=1)


def loss(model, rows):
    return log_loss(column(rows, "correct"), column(model.calibrate(rows), "calibrated"))


def test_columns_and_confidences_are_read_from_records(fitted, new):
    assert fitted.learned_score_.chosen.endswith("+ tokens + text + tenant")
    assert isinstance(fitted.calibrator_, MarginBinning)
    plain = QACalibrator(partition="bisecting:2", features=()).fit(records(2500))
    assert loss(fitted, new) < loss(plain, new) - 0.05
    assert SCORE.__dict__.keys() == SCORE.get_params().keys(), "the score that was given stays unfitted"


def test_intervals_contain_the_accuracy_of_new_rows(fitted, new):
    """Bands: how far answers are off on average. Groups: their accuracy."""
    rows = [row for row in fitted.calibrate(new) if row["source"] == "band"]
    bands, groups = {}, {}
    for row in rows:
        below, above = round(row["calibrated"] - row["low"], 9), round(row["high"] - row["calibrated"], 9)
        if row["low"] > 0 and row["high"] < 1:  # else the interval is cut, and does not tell its band
            bands.setdefault((row["rows"], below, above), []).append(row["correct"] - row["calibrated"])
        groups.setdefault((row["group"], row["group_low"], row["group_high"]), []).append(row["correct"])
    assert 1 < len([off for off in bands.values() if len(off) >= 50]) == len(fitted.calibrator_.maps_.below)
    for (_, below, above), off in bands.items():
        slack = 4 * 0.5 / np.sqrt(len(off))
        assert -below - slack <= np.mean(off) <= above + slack
    assert 1 < len(groups) == len(fitted.describe_groups())
    for (_, low, high), right in groups.items():
        slack = 4 * 0.5 / np.sqrt(len(right))
        assert low - slack <= np.mean(right) <= high + slack


def test_a_saved_model_answers_alike(fitted, new, tmp_path):
    fitted.save(tmp_path / "model")
    again = qacal.load(tmp_path / "model")
    assert again.calibrate(new[:500]) == fitted.calibrate(new[:500])
    assert again.learned_score_.tried_ == fitted.learned_score_.tried_


def test_a_table_of_text_numbers_is_read_like_a_list(new, tmp_path):
    texts = [{**row, "tenant": str(row["tenant"])} for row in records(800)]
    pl.DataFrame(texts).write_csv(tmp_path / "rows.csv")
    from_csv = QACalibrator(partition="bisecting:2", learned_score=WORDLESS).fit(tmp_path / "rows.csv")
    from_list = QACalibrator(partition="bisecting:2", learned_score=WORDLESS).fit(texts)
    assert from_csv.learned_score_.columns_used == ("tokens", "tenant")
    fresh = [{**row, "tenant": str(row["tenant"])} for row in new[:300]]
    assert from_csv.calibrate(fresh) == from_list.calibrate(fresh)


def test_continuous_trains_on_all_rows_and_has_no_intervals(fitted, new):
    model = QACalibrator(partition="bisecting:2", learned_score=SCORE, output="continuous").fit(records(2500))
    assert model.learned_score_.rows_ == 2500
    rows = model.calibrate(new)
    assert {row["low"] for row in rows} == {row["high"] for row in rows} == {None}
    assert len(set(column(rows, "calibrated"))) > 1000
    assert fitted.learned_score_.rows_ < 2500 * 0.95
    assert loss(model, new) < loss(fitted, new) + 0.01


def test_without_a_score_the_model_is_the_papers_method(new):
    model = QACalibrator(partition="bisecting:2", learned_score=None).fit(records(1500))
    assert model.learned_score_ is None
    assert isinstance(model.calibrator_, TreeBinning)
    named = QACalibrator(partition="bisecting:2", calibrator=QABinning()).fit(records(1500))
    assert named.learned_score_ is None


def test_groups_from_other_records_leave_the_score_its_part():
    """Groups come from rows without labels; the labelled questions are split as without such rows."""
    unlabelled = [
        {name: row[name] for name in ("id", "question", "answer", "confidence")} for row in records(600, seed=5)
    ]
    model = QACalibrator(partition="bisecting:2", learned_score=WORDLESS).fit(records(1500), group_records=unlabelled)
    assert 0.87 < model.learned_score_.rows_ / 1500 < 0.93
    assert 0.67 < model.rows_ / 1500 < 0.73


def test_a_missing_column_and_a_bad_confidence_are_errors(fitted):
    rows = records(50)
    lacking = [{name: value for name, value in row.items() if name != "tokens"} for row in rows]
    with pytest.warns(QacalWarning, match="the rows have no column tokens"):
        without = fitted.calibrate(lacking)
    empty = fitted.calibrate([{**row, "tokens": None} for row in lacking])
    assert [row["calibrated"] for row in without] == [row["calibrated"] for row in empty]
    with pytest.raises(InputError, match=r"tokens is 1\.5"):
        fitted.calibrate([{**row, "tokens": 1.5} for row in rows])
    # Unseen and missing values are allowed.
    assert len(fitted.calibrate([{**row, "tenant": None, "tokens": None} for row in rows])) == 50


def test_rows_without_ids_are_separate_questions():
    """Once all of them counted as one question, so there was nothing to train on."""
    rows = [{name: row[name] for name in ("confidence", "correct", "tenant")} for row in records(1500)]
    score = LearnedScore(text=False, columns=["tenant"])
    model = QACalibrator(partition="column:tenant", learned_score=score, output="continuous").fit(rows)
    assert model.learned_score_.chosen.endswith("+ tenant")


@pytest.mark.parametrize("value", [["a"], {"a": 1}])
def test_invalid_labels_are_refused(value):
    rows = [{**row, "tenant": value} for row in records(60)]
    with pytest.raises(InputError, match="label"):
        QACalibrator(partition="column:topic", learned_score=LearnedScore(text=False, columns=["tenant"])).fit(rows)


def test_float32_is_read_as_its_shortest_decimal():
    score = LearnedScore(text=False, confidences=["tokens"])
    rows = pl.DataFrame(records(800), strict=False, infer_schema_length=None).drop("tenant")
    model = QACalibrator(learned_score=score, output="continuous").fit(rows)
    short = rows.with_columns(pl.col("tokens").cast(pl.Float32))
    assert model.calibrate(short)["calibrated"].equals(model.calibrate(rows)["calibrated"])


@pytest.mark.usefixtures("wordless_unless_full")
@pytest.mark.parametrize("partition", ["bisecting:2", "column:tenant"])
def test_a_loaded_continuous_model_can_be_fitted_again(tmp_path, partition):
    rows = records(600)
    model = QACalibrator(partition=partition, output="continuous").fit(rows)
    model.save(tmp_path / "model")
    again = qacal.load(tmp_path / "model").fit(rows)
    assert type(again.calibrator_) is type(model.calibrator_)
    assert [row["calibrated"] for row in again.calibrate(rows)] == [row["calibrated"] for row in model.calibrate(rows)]


def test_tune_with_a_score_says_how_a_score_is_chosen():
    model = QACalibrator(learned_score=LearnedScore(text=False), tune="brier").fit(records(300))
    assert model.learned_score_.objective == "brier"


@pytest.mark.parametrize("what", ["question", "answer"])
def test_the_form_of_a_question_raises_the_logit_by_little(what):
    """A new source may look like one that is answered well; an answer says what it says."""
    rng = np.random.default_rng(0)
    n = 1500
    kind = rng.integers(0, 3, n)
    right = rng.random(n) < np.array([0.02, 0.5, 0.97])[kind]
    forms = ["", "it is seven", "Seven, as Euclid said: 7."]
    inputs = {
        "confidence": np.full(n, 0.7),
        "embedding": rng.normal(size=(n, 4)),
        "question": [f"what is {rng.choice(list('abcdefgh'))}" for _ in range(n)],
        "answer": [f"{number:04}" for number in range(n)],
        what: [forms[one] for one in kind],
    }
    score = LearnedScore().fit(inputs, right)
    cut, whole = (score._read(inputs, explains=True, is_cut=is_cut) for is_cut in (True, False))
    assert (cut.score <= whole.score).all()
    lost = (whole.score - cut.score)[kind == 2].mean()
    assert lost > 0.05 if what == "question" else lost < 0.01
    assert cut.parts["form"].min() < -1
    if what == "question":
        assert cut.parts["form"].max() < 0.65 + 0.3  # and what the answers' form adds
