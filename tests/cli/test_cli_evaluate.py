"""`qacal evaluate` as a person reads it, and as a gate."""

import json
import re

import numpy as np
import polars as pl
import pytest

from qacal.metrics.evaluation import evaluate, verdict_on
from tests.cli.test_cli import ok, run


def rows(n, gap, seed=0, **columns):
    """Return answers whose confidence is too high by `gap`."""
    rng = np.random.default_rng(seed)
    truth = rng.choice([0.3, 0.5, 0.7], n)
    return pl.DataFrame({"confidence": truth + gap, "correct": (rng.random(n) < truth).astype(int), **columns})


@pytest.fixture
def measured(tmp_path):
    """Return a function that writes rows, evaluates them, and gives exit code, output and notes."""

    def run_on(frame, *options):
        frame.write_parquet(tmp_path / "rows.parquet")
        return run("evaluate", tmp_path / "rows.parquet", *options)

    return run_on


def error_of(measured, frame):
    return json.loads(measured(frame, "--json")[1])["before"]["error"]


def test_columns_of_lists_do_not_make_groups(measured):
    code, _, err = measured(rows(40, 0.1, tags=[["a"], ["b", "c"]] * 20), "--by", "tags")
    assert (code, err) == (1, "qacal: ['a'] cannot separate rows; expected a column of text or whole numbers.\n")


def test_an_error_clearly_above_the_limit_fails(measured):
    code, printed, err = measured(rows(2000, 0.2), "--fail-above", "0.05")
    assert code == 1
    assert "before" in printed
    assert re.search(r"over all rows is 0\.\d{4} \(95% interval 0\.\d{3} to 0\.\d{3}\), above 0\.05\.", err)


def test_noise_does_not_fail_and_is_reported(measured):
    few = rows(100, 0.08, seed=4)
    error = error_of(measured, few)
    assert error["low"] < 0.05 < error["debiased"] < error["high"]
    code, _, err = measured(few, "--fail-above", "0.05")
    assert code == 0
    assert f"is {error['debiased']:.4f} (95% interval" in err
    assert "these rows cannot tell whether it is above 0.05. Passed; with --strict it would fail. Use more rows." in err
    code, _, err = measured(few, "--fail-above", "0.05", "--strict")
    assert code == 1
    assert "not shown to be below 0.05." in err


def test_an_error_clearly_below_the_limit_passes_either_way(measured):
    calibrated = rows(20_000, 0.0)
    for options in ((), ("--strict",)):
        code, _, err = measured(calibrated, "--fail-above", "0.05", *options)
        assert (code, err) == (0, "")


def test_errors_within_groups_are_a_gate_too(measured):
    off = np.repeat([0.2, -0.2], 1000)
    frame = rows(2000, off, subject=np.repeat(["law", "physics"], 1000))
    _, _, err = measured(frame, "--groups", "subject", "--fail-above", "0.15")
    assert "the calibration error within subject is 0.1" in err or "the calibration error within subject is 0.2" in err
    assert measured(frame, "--groups", "subject", "--fail-above", "0.15")[0] == 1
    code, _, err = measured(frame.with_columns(llm=pl.lit("parrot")), "--by", "llm", "--fail-above", "0.1")
    assert code == 1
    assert "llm parrot: the calibration error over all rows" in err


def test_a_gate_without_evidence(measured):
    code, _, err = measured(rows(1, 0.0), "--fail-above", "0.05")
    assert code == 0
    assert "cannot be measured: too few rows; passed; with --strict it would fail. Use more rows." in err
    code, _, err = measured(rows(1, 0.0), "--fail-above", "0.05", "--strict")
    assert code == 1
    assert "cannot be measured: too few rows; a strict gate fails." in err


def test_a_few_correct_rows_show_nothing(measured):
    few = pl.DataFrame({"confidence": [0.9] * 4, "correct": [1] * 4})
    code, _, err = measured(few, "--fail-above", "0.05")
    assert code == 0
    assert "is 0.1000 (95% interval 0.000 to 1.000)" in err
    assert measured(few, "--fail-above", "0.15", "--strict")[0] == 1


def verdicts(n, stated, calibrated, files=200, copies=1):
    """Return how often each verdict is given on files of `n` questions with `copies` rows each."""
    rng, kinds = np.random.default_rng(0), []
    for _ in range(files):
        truth = rng.uniform(0.5, 0.9, n).repeat(copies)
        right = (rng.random(n).repeat(copies) < truth).astype(float)
        ids = np.arange(n, dtype=np.uint64).repeat(copies)
        kinds.append(verdict_on(truth + stated, truth + calibrated, right, ids).kind)
    return {kind: kinds.count(kind) / files for kind in set(kinds)}


@pytest.mark.parametrize("copies", [1, 5])
def test_chance_gives_no_verdict(copies):
    """Five rows of one question are no more evidence than one."""
    for n in (5, 50, 100):
        found = verdicts(n, 0.05, 0.0, copies=copies)
        assert found.get("worse", 0) <= 0.03
        assert found["unclear"] > 0.8


def test_a_clear_change_gives_a_verdict():
    assert verdicts(2000, 0.1, 0.0, files=20) == {"better": 1.0}
    assert verdicts(2000, 0.0, 0.1, files=20) == {"worse": 1.0}
    assert verdicts(2000, 0.001, 0.0, files=20) == {"same": 1.0}


def test_rows_that_are_all_correct_give_no_bad_verdict():
    few = np.ones(5)
    assert verdict_on(0.95 * few, 0.9 * few, few).kind == "unclear"
    assert verdict_on(0.95 * few, 0.9 * few, few, np.zeros(5, dtype=np.uint64)).kind == "unclear"
    assert verdict_on(few[:1], few[:1] / 2, few[:1]).kind == "unclear"


def test_the_verdict_in_text_and_json(measured):
    frame = rows(50, 0.05, seed=8)
    frame = frame.with_columns(calibrated=pl.col("confidence") - 0.05)
    found = json.loads(measured(frame, "--json")[1])
    assert found["after"]["brier"] - found["before"]["brier"] > 0.001
    assert found["verdict"]["kind"] == "unclear"
    assert found["verdict"]["text"].startswith(
        "These rows are too few to tell whether calibration helped (Brier score 0.2"
    )
    assert found["verdict"]["text"] in " ".join(measured(frame)[1].split())
    # Copies of rows are no more evidence if they keep their ids.
    often = pl.concat([frame.with_columns(id=pl.int_range(50))] * 40)
    assert json.loads(measured(often, "--json")[1])["verdict"]["kind"] == "unclear"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--strict",), "--strict needs --fail-above"),
        (("--fail-above", "nan"), "--fail-above is nan; expected 0 to 1"),
        (("--fail-above", "-0.1"), "--fail-above is -0.1; expected 0 to 1"),
        (("--fail-above", "5"), "--fail-above is 5; expected 0 to 1"),
    ],
)
def test_wrong_use_of_a_gate(measured, options, said):
    code, out, err = measured(rows(50, 0.0), *options)
    assert (code, out) == (2, "")
    assert said in " ".join(err.replace("\u2502", " ").split())


def test_groups_without_a_name_or_with_one_row(measured):
    """Rows without a subject are listed as such; one row has no measurable error."""
    frame = rows(400, 0.0, subject=["law"] * 300 + ["physics"] + [None] * 99)
    code, printed, _ = measured(frame, "--groups", "subject")
    assert code == 0
    assert "nan" not in printed
    assert re.search(r"^ physics +1 .*–", printed, flags=re.MULTILINE)
    assert "–: too few rows to measure; a group needs 20." in printed
    assert re.search(r"^ \(no group\) +99 ", printed, flags=re.MULTILINE)
    assert "(no group): rows whose subject is empty." in printed
    found = json.loads(measured(frame, "--groups", "subject", "--json")[1])
    assert [group["error_before"] for group in found["groups"] if group["rows"] == 1] == [None]


def test_groups_that_stay_miscalibrated_or_get_worse_are_named(measured):
    shifts = {"fine": 0.0, "off": 0.15, "worse": -0.25, **{f"far {i}": 0.2 for i in range(4)}}
    stated = {"off": 0.2, **{f"far {i}": 0.25 for i in range(4)}}
    parts = [
        rows(900 - seed, stated.get(name, 0.1), seed=seed, topic=[name] * (900 - seed)).with_columns(
            calibrated=pl.col("confidence") - stated.get(name, 0.1) + shift
        )
        for seed, (name, shift) in enumerate(shifts.items())
    ]
    code, out, _ = measured(pl.concat(parts), "--groups", "topic")
    worse, off = (next(line for line in out.splitlines() if line.startswith(said)) for said in ("Worse", "Still wrong"))
    assert (code, re.sub(r"0\.\d+", "P", worse)) == (0, "Worse than before: worse (calibrated P, accuracy P).")
    assert [group in off for group in ("fine", "off (", "far 0", "far 1", "far 2")] == [False, True, True, True, False]
    assert re.search(r"accuracy 0\.\d+\) and 2 more\.$", off)
    again = measured(pl.concat(parts[:1]), "--groups", "topic")[1]
    assert "Worse than" not in again
    assert "Still wrong" not in again
    numbered = pl.concat(parts).with_columns(topic=pl.col("topic").rank("dense").cast(pl.Int64))
    out = measured(numbered, "--groups", "topic")[1]
    assert re.search(r"^Still wrong after calibration: group \d+ \(calibrated", out, re.MULTILINE)


def test_groups_of_few_rows_are_not_named():
    """Groups of calibrated rows are named no more often than chance allows, over all groups.

    One of 50 evaluations names a group; six would if each group were judged by itself.
    """
    named = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        p = rng.choice([0.6, 0.9, 0.97], (16, 40))
        stated, right = np.clip(p + rng.normal(0, 0.02, p.shape), 0, 1), (rng.random(p.shape) < p).astype(float)
        found = evaluate(right.ravel(), stated.ravel(), p.ravel(), groups=np.repeat(np.arange(16), 40))
        named += any(group.is_worse or group.is_off for group in found.groups)
    assert named <= 3


def test_a_set_of_models_is_measured_model_by_model(tmp_path):
    parts = [rows(400, 0.1, seed=i, model=[f"llm-{i}"] * 400, topic=["a", "b"] * 200) for i in range(2)]
    pl.concat(parts).write_parquet(tmp_path / "fit.parquet")
    options = ("--by", "model", "--partition", "column:topic")
    ok("fit", tmp_path / "fit.parquet", "-o", tmp_path / "models", *options)
    new = pl.concat([rows(300, 0.1, seed=7 + i, model=[f"llm-{i}"] * 300, topic=["a", "b"] * 150) for i in range(2)])
    new = new.with_columns(shift=pl.Series(["day", "night"] * 300))
    new.write_parquet(tmp_path / "new.parquet")
    command = ("evaluate", tmp_path / "new.parquet", "--model", tmp_path / "models", "--json")
    found = json.loads(ok(*command))
    assert found == json.loads(ok(*command, "--by", "model"))
    assert [one["rows"] for one in found.values()] == [300, 300]
    by_shift = json.loads(ok(*command, "--by", "shift"))
    assert {group["group"] for group in by_shift["day"]["groups"]} == {"llm-0: a", "llm-1: a"}


def test_groups_that_the_model_has_not_seen(tmp_path):
    frame = rows(600, 0.1, subject=["law", "physics"] * 300)
    frame.write_parquet(tmp_path / "fit.parquet")
    options = ("--partition", "column:subject", "--calibrator", "tree-binning")
    ok("fit", tmp_path / "fit.parquet", "-o", tmp_path / "model", *options)
    new = rows(90, 0.1, seed=1, subject=["law", "physics", "chess"] * 30)
    new.write_parquet(tmp_path / "new.parquet")
    printed = ok("evaluate", tmp_path / "new.parquet", "--model", tmp_path / "model")
    assert re.search(r"^ \(no group\) +30 ", printed, flags=re.MULTILINE)
    assert "(no group): rows whose group had no rows in the fit." in printed
    assert "(no group)" not in ok("evaluate", tmp_path / "fit.parquet", "--model", tmp_path / "model")


def test_no_error_is_negative(measured):
    """An estimate below 0 is within noise; the table says so, and JSON has the number."""
    frame = rows(300, 0.0, seed=3)
    assert error_of(measured, frame)["debiased"] < 0
    printed = measured(frame)[1]
    assert re.search(r"^ before +\S+ +none seen +0\.000 to 0\.\d{3}", printed, flags=re.MULTILINE)
    assert "none seen: noise alone would measure as much; the upper end of its 95% interval says" in printed
    assert "none seen" not in measured(rows(300, 0.3))[1]


def test_errors_of_small_groups_are_not_printed(measured):
    frame = rows(400, 0.0, subject=["law"] * 377 + ["physics"] * 19 + ["art"] * 4)
    printed = measured(frame, "--groups", "subject")[1]
    for name, count in (("physics", 19), ("art", 4)):
        assert re.search(rf"^ {name} +{count} .*–", printed, flags=re.MULTILINE)
    assert "–" not in next(line for line in printed.splitlines() if line.startswith(" law"))


@pytest.mark.parametrize(
    ("fitted_on", "measured_on", "said"),
    [
        (["question"], ["id", "question"], "the model was fitted on some of these questions"),
        (["id", "question"], [], "the model may have been fitted on these rows"),
        ([], ["id", "question"], "the model may have been fitted on these rows"),
    ],
)
def test_rows_of_the_fit_are_not_taken_for_new_ones(tmp_path, fitted_on, measured_on, said):
    texts = [f"What is {number} plus 1?" for number in range(600)]
    frame = rows(600, 0.1, id=np.arange(600), question=texts, subject=["law", "physics"] * 300)
    for name, columns in (("fit", fitted_on), ("same", measured_on)):
        frame.select("confidence", "correct", "subject", *columns).write_parquet(tmp_path / f"{name}.parquet")
    options = ("--partition", "column:subject", "--calibrator", "tree-binning")
    ok("fit", tmp_path / "fit.parquet", "-o", tmp_path / "model", *options)
    assert said in run("evaluate", tmp_path / "same.parquet", "--model", tmp_path / "model")[2]


@pytest.mark.filterwarnings("always::qacal.QacalWarning")
def test_reversed_labels_and_equal_confidences_are_reported(measured):
    swapped = rows(400, 0.1).with_columns(correct=1 - pl.col("correct"), model=pl.lit("parrot-1"))
    code, _, err = measured(swapped)
    assert code == 0
    assert re.search(r"Note: answers with higher confidence are more often wrong \(AUROC 0\.\d\d, 95% interval", err)
    assert "Note: model parrot-1: answers with higher" in measured(swapped, "--by", "model")[2]
    assert json.loads(measured(swapped, "--json")[1])["doubt"]["kind"] == "opposite"
    assert "Note: all 400 confidences are 0.8" in measured(swapped.with_columns(confidence=pl.lit(0.8)))[2]
    assert json.loads(measured(rows(400, 0.1), "--json")[1])["doubt"] is None


@pytest.mark.parametrize(("shift", "kind"), [(0.3, "worse"), (0.0, "same"), (-0.2, "better")])
def test_the_verdict_is_that_of_the_report(measured, shift, kind):
    frame = rows(2000, 0.2).with_columns(calibrated=(pl.col("confidence") + shift).clip(0, 1))
    verdict = json.loads(measured(frame, "--json")[1])["verdict"]
    assert verdict["kind"] == kind
    printed = measured(frame)[1]
    assert verdict["text"] in printed
    assert ("do not use it" in printed) == (kind == "worse")
    assert json.loads(measured(frame.drop("calibrated"), "--json")[1])["verdict"] is None


def test_one_wrong_certainty_does_not_decide_the_log_loss(tmp_path):
    """The same rule as in the demo and the report: cut at 0.001. A wrong 1.0 would cost 36 otherwise."""
    stated = np.r_[np.full(99, 0.8), 1.0]
    right = np.r_[np.arange(99) % 5 > 0, False]
    pl.DataFrame({"confidence": stated, "correct": right}).write_csv(tmp_path / "a.csv")
    out = " ".join(ok("evaluate", tmp_path / "a.csv").split())
    wrong = int((~right[:99]).sum())
    loss = -((99 - wrong) * np.log(0.8) + wrong * np.log(0.2) + np.log(0.001)) / 100
    assert f" {loss:.4f} " in out
    assert "log loss: confidences are cut off at 0.001 and 0.999; one error costs at most 7." in out
    assert evaluate(right, stated).before.log_loss == pytest.approx(loss)
