"""What `qacal fit` prints: certified intervals, problems in the rows, unused columns and next steps."""

import json
import re
import shlex
import shutil

import numpy as np
import polars as pl
import pytest

from qacal import QACalibrator, QacalWarning, load
from qacal.calibrators import MarginBinning
from qacal.cli import options as cli_options
from qacal.metrics import log_loss
from tests.answers import answers
from tests.cli.test_cli import ok, run
from tests.model.test_certify import judged, people


def fit(folder, rows, *options, model="model"):
    """Fit on some rows; return standard output and standard error."""
    pl.DataFrame(rows).write_parquet(folder / "a.parquet")
    code, out, err = run("fit", folder / "a.parquet", "-o", folder / model, *options)
    assert code == 0, err
    return out, err


def certificates(out):
    (line,) = [line for line in out.splitlines() if line.startswith("Groups with intervals of their own: ")]
    return line.removeprefix("Groups with intervals of their own: ")


# What is certified


@pytest.mark.parametrize(
    ("count", "options", "said"),
    [
        (1000, ("--calibrator", "step-binning"), r"0 of 16; 16 use those of all rows\."),
        (5000, ("--calibrator", "step-binning"), r"0 of 16; 16 use those of a larger group\."),
        (
            5000,
            ("--calibrator", "step-binning", "--partition", "bisecting:2"),
            r"1 of 4; 3 use those of a larger group\.",
        ),
        (5000, ("--partition", "column:topic", "--calibrator", "step-binning"), r"4 of 4\."),
        (600, ("--partition", "column:topic", "--calibrator", "tree-binning"), r"4 of 4\."),
        (600, ("--partition", "column:topic", "--calibrator", "qa-binning"), r"4 of 4\."),
    ],
)
def test_how_many_groups_have_their_own_intervals(tmp_path, count, options, said):
    out, _ = fit(tmp_path, answers(count), *options)
    assert re.match(said, certificates(out)), certificates(out)
    found = load(tmp_path / "model").calibrate(answers(3000, seed=1))
    own = {row["group"] for row in found if row["source"] == "group"}
    assert len(own) == int(certificates(out).split()[0])


def test_how_many_rows_a_certificate_takes_is_the_same_after_every_fit(tmp_path):
    """Labelled rows of one kind of text; with as many, and a fifth to spare, the group has a certificate."""
    rule = "A group has intervals of its own from 250 certifying rows on, which about 1,300 labelled rows of its kind"
    steps = ("--calibrator", "step-binning", "--partition", "bisecting:2")
    for count in (600, 2000):
        out, _ = fit(tmp_path, answers(count), *steps)
        largest = max(group.rows for group in load(tmp_path / "model").describe_groups())
        assert f"{rule} give it; the largest without them has {largest}." in out
    out, _ = fit(tmp_path, answers(int(1.2 * 4 * 1300)), *steps)
    assert int(certificates(out).split()[0]) >= 1


def test_very_few_rows_are_told_first_what_they_cannot_say(tmp_path):
    few = "80 labelled rows: the intervals say little. Even one interval for all answers is within 0.1 only from about "
    for options, labels in ((("--calibrator", "step-binning"), 760), (("--partition", "column:topic"), 110)):
        out, _ = fit(tmp_path, answers(80), *options)
        assert out.startswith(f"{few}{labels} labelled rows on.\n")
    assert "say little" not in fit(tmp_path, answers(120), "--calibrator", "step-binning")[0]
    # One band with 110 rows, for any accuracy, has an interval within 0.1, and with 90 rows it has not.
    for rows, is_enough in ((110, True), (90, False)):
        found = MarginBinning().fit(np.full(rows, 0.7), np.arange(rows) % 2, groups=np.zeros(rows)).explain([0.7])
        assert (max(found.high[0] - 0.5, 0.5 - found.low[0]) <= 0.1) == is_enough


def test_rows_of_a_certify_file_are_counted_apart(tmp_path):
    pl.DataFrame(people(900, seed=2)).write_parquet(tmp_path / "people.parquet")
    learn = judged(answers(900, seed=1), 1)
    steps = ("--calibrator", "step-binning", "--certify", tmp_path / "people.parquet")
    out, _ = fit(tmp_path, learn, "--partition", "bisecting:1", *steps)
    model = load(tmp_path / "model")
    small = [group.rows for group in model.describe_groups() if group.rows < 250]
    assert model.rows_ == 900
    assert len(small) == 2 - int(certificates(out).split()[0])
    out, _ = fit(tmp_path, learn, "--partition", "bisecting:3", *steps)
    largest = max(group.rows for group in load(tmp_path / "model").describe_groups() if group.rows < 250)
    assert f"from 250 certifying rows on; the largest without them has {largest}." in out
    out, _ = fit(tmp_path, learn, "--certify", tmp_path / "people.parquet")
    assert out.startswith("900 rows certify, in ")
    assert re.search(r"^Score: .*, trained on 900 rows\.$", out, re.MULTILINE)


@pytest.mark.parametrize(
    "options",
    [
        ("--calibrator", "step-binning"),
        ("--partition", "column:topic", "--calibrator", "tree-binning"),
        *(("--calibrator", "tree-binning"), ("--calibrator", "qa-binning")),
        ("--partition", "column:kind", "--calibrator", "scaling-qa-binning"),
    ],
)
def test_how_far_off_half_of_the_answers_can_be(tmp_path, options):
    """The distance to the farther end of the interval, as the report has it."""
    rows = [{**row, "kind": f"k{number % 30}"} for number, row in enumerate(answers(6000))]
    # Shuffled: the questions contain running numbers.
    rows = [rows[at] for at in np.random.default_rng(1).permutation(len(rows))]
    out, _ = fit(tmp_path, rows[:2000], *options)
    bound = float(re.search(r"half of the answers, the accuracy of similar answers is within (\d\.\d\d) of", out)[1])
    model = load(tmp_path / "model")
    assert bound == round(model.calibrator_.maps_.median_error_bound(), 2)
    new = pl.DataFrame(model.calibrate(rows[2000:]))
    far = np.maximum(new["high"] - new["calibrated"], new["calibrated"] - new["low"])
    assert bound == pytest.approx(far.median(), abs=0.03)


def test_what_the_default_certifies(tmp_path):
    """Bands and groups, with their half-widths; those of new answers are like them."""
    rows = np.random.default_rng(1).permutation(answers(6000)).tolist()
    out, _ = fit(tmp_path, rows[:2000])
    model = load(tmp_path / "model")
    found = re.search(
        rf"^Certified on {model.rows_:,} rows\. With probability 90%, all of this holds at once:\n"
        r"   by probability: in each of (\d+) bands of similar scores,\n"
        r"      the mean calibrated probability is near the accuracy:\n"
        r"      within (0\.\d\d) for half of the answers, within (0\.\d\d) for all\.\n"
        r"   by group: the accuracy of each of (\d+) groups is known\n"
        r"      to ±(0\.\d\d) for half of the answers, to ±(0\.\d\d) for all\.$",
        out,
        re.MULTILINE,
    )
    bands, bound, largest, groups, width, widest = found.groups()
    maps = model.calibrator_.maps_
    assert float(largest) == pytest.approx(np.maximum(maps.below, maps.above).max(), abs=0.006)
    assert float(bound) <= float(largest)
    assert float(width) <= float(widest)
    new = pl.DataFrame(model.calibrate(rows[2000:]))
    assert int(bands) == len(model.calibrator_.maps_.below) > 1
    assert int(groups) == new["group"].n_unique() == len(model.describe_groups())
    far = np.maximum(new["high"] - new["calibrated"], new["calibrated"] - new["low"])
    assert float(bound) == pytest.approx(far.median(), abs=0.03)
    assert float(width) == pytest.approx(((new["group_high"] - new["group_low"]) / 2).median(), abs=0.03)


def test_the_width_that_was_asked_for(tmp_path):
    """A wider interval allows more bands and deeper groups."""
    rows = answers(2000)
    models = {}
    for within in ("0.04", "0.15"):
        fit(tmp_path, rows, "--within", within, model=within)
        models[within] = load(tmp_path / within).calibrator_.maps_
    assert len(models["0.04"].below) < len(models["0.15"].below)
    assert models["0.04"].max_depth < models["0.15"].max_depth
    for within, maps in models.items():
        assert maps.median_error_bound() < 1.25 * float(within)
    for within in ("0", "1.5"):
        code, _, err = run("fit", tmp_path / "a.parquet", "-o", tmp_path / "model", "--within", within)
        assert (code, f"--within is {within}; expected a number between 0 and 1" in " ".join(err.split())) == (2, True)


def test_too_few_rows_to_certify_anything(tmp_path):
    out, _ = fit(tmp_path, answers(60), "--calibrator", "step-binning")
    rows = load(tmp_path / "model").rows_
    assert (
        f"Certified on {rows} rows (with probability 90%): for half of the answers, the accuracy of similar "
        "answers is within 0." in out
    )
    assert "That says next to nothing, since 0.5 is always within 0.50" in out
    assert "next to nothing" not in fit(tmp_path, answers(2000), "--calibrator", "step-binning")[0]


def test_calibrators_without_certificates_print_none(tmp_path):
    out, _ = fit(tmp_path, answers(300), "--continuous")
    assert "ertif" not in out
    assert out.startswith("Score: ")
    out, _ = fit(tmp_path, answers(100), "--calibrator", "platt-scaling")
    assert "With fewer than 200 rows the calibration is unreliable." in out
    assert out.startswith("100 rows calibrate")


def test_how_many_rows_the_groups_have(tmp_path):
    out, _ = fit(tmp_path, answers(600), "--partition", "column:topic")
    sizes = [group.rows for group in load(tmp_path / "model").describe_groups()]
    assert out.startswith(f"600 rows certify, in 4 groups of {min(sizes)} to {max(sizes)} rows (MarginBinning).")
    assert "\n   by group: the accuracy of each of 4 groups is known\n      to ±" in out
    rows = [row | {"topic": f"t{number % 3}"} for number, row in enumerate(answers(30))]
    out, _ = fit(tmp_path, rows, "--partition", "column:topic")
    assert "\n30 rows certify, in 3 groups of 10 rows (MarginBinning)." in out
    assert "\n   3 groups with fewer than 30 rows: no interval by group." in out


# Remarks on the rows


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (1, "all 80 rows are correct; a model cannot learn when the LLM is wrong."),
        (0, "all 80 rows are wrong; a model cannot learn when the LLM is correct."),
        (0.5, "all 80 rows are labelled 0.5; a model cannot learn"),
    ],
)
def test_labels_that_are_all_the_same(tmp_path, label, said):
    _, err = fit(tmp_path, [row | {"correct": label} for row in answers(80)])
    assert f"Note: {said}" in err
    rows = [row | {"correct": label} for row in answers(79)] + [answers(80)[79] | {"correct": 0.25}]
    assert "cannot learn" not in fit(tmp_path, rows)[1]


def test_labels_that_are_all_the_same_come_before_what_is_certified(tmp_path, monkeypatch):
    printed = []
    for way in ("note", "show"):
        monkeypatch.setattr(cli_options, way, printed.append)
    fit(tmp_path, [row | {"correct": 1} for row in answers(80)])
    assert "cannot learn" in printed[0]
    assert "Certified on" in printed[1]


def test_labels_that_are_all_the_same_for_one_llm_or_in_the_rows_that_certify(tmp_path):
    rows = answers(300) + [row | {"correct": 1} for row in answers(200, seed=1, llm="parrot-2")]
    _, err = fit(tmp_path, rows, "--by", "model", model="models")
    assert "Note: model parrot-2: all 200 rows are correct" in err
    assert "parrot-1: all" not in err
    pl.DataFrame([row | {"correct": 0} for row in people(90, seed=2)]).write_parquet(tmp_path / "people.parquet")
    _, err = fit(tmp_path, judged(answers(300), 1), "--certify", tmp_path / "people.parquet")
    assert f"Note: all 90 rows of {tmp_path / 'people.parquet'} are wrong" in err
    assert "all 300 rows" not in err


def test_rows_that_were_left_out_belong_to_no_llm(tmp_path):
    """An invalid name of an LLM in rows that --skip-bad-rows leaves out."""
    rows = [row | {"correct": 1} for row in answers(300)]
    rows += [rows[0] | {"id": "x", "model": ["a", "b"], "correct": 0}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    skip = ("--skip-bad-rows", tmp_path / "bad.jsonl")
    code, _, err = run("fit", tmp_path / "a.jsonl", "-o", tmp_path / "models", "--by", "model", *skip)
    assert code == 0, err
    assert ": 1 of " in err
    assert "model parrot-1: all 300 rows are correct" in err


def test_columns_are_tried_by_default(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        row
        | {
            "confidence_tokens": float(np.clip(0.4 + 0.2 * row["correct"] + rng.normal(0, 0.2), 0, 1)),
            "number": at,
            "version": 3,
            "passed": bool(row["correct"]),
            "noise": float(rng.normal()),
        }
        for at, row in enumerate(answers(900))
    ]
    out, _ = fit(tmp_path, rows)
    assert "Column confidence_tokens: used. By itself it lowers the log loss by 0." in out
    assert "Column number: not tried; nearly every row has its own value." in out
    assert "Column version: not tried; all rows have the same value." in out
    assert "Column passed: not used. It predicts the label almost perfectly" in out
    assert "Column noise: not used." in out
    assert "Column" not in fit(tmp_path, rows, "--no-columns")[0]
    assert "Column noise" not in fit(tmp_path, rows, "--feature", "confidence_tokens")[0]
    code, _, err = run("fit", tmp_path / "a.parquet", "-o", tmp_path / "model", "--feature", "version")
    assert code == 1
    assert "the column version cannot be a feature: all rows have the same value." in err


def test_a_kind_of_column_that_does_not_exist_is_answered_with_those_that_do(tmp_path):
    rows = [row | {"ratio: new": 0.5, "subject": row["topic"]} for row in answers(300)]
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    code, _, err = run("fit", tmp_path / "a.parquet", "-o", tmp_path / "model", "--feature", "subject:colour")
    assert code == 1
    kinds = "the kinds are numeric, category, confidence, logprobs, context."
    assert f"subject:colour: there is no kind of column 'colour'; {kinds}" in " ".join(err.split())
    err = run("fit", tmp_path / "a.parquet", "-o", tmp_path / "model", "--feature", "nothing:colour")[2]
    assert "has no column 'nothing:colour'" in err
    err = run("fit", tmp_path / "a.parquet", "-o", tmp_path / "model", "--feature", "ratio: new")[2]
    assert "the column ratio: new cannot be a feature: all rows have the same value." in " ".join(err.split())


def test_wrong_values_among_numbers_are_named_and_can_be_skipped(tmp_path):
    rng = np.random.default_rng(0)
    rows = [row | {"price": str(rng.normal() + row["correct"])} for row in answers(400)]
    for number, value in ((3, "abc"), (50, "1,200")):
        rows[number]["price"] = value
    pl.DataFrame(rows).write_csv(tmp_path / "a.csv")
    command = ("fit", tmp_path / "a.csv", "-o", tmp_path / "model", "--feature")
    code, _, err = run(*command, "price")
    assert code == 1
    assert "values are not numbers, such as 'abc'. Leave it out, or say what it is: price:numeric" in err
    assert "line 5: price is 'abc'; expected a number." in run(*command, "price:numeric")[2]
    code, out, err = run(*command, "price:numeric", "--skip-bad-rows", tmp_path / "bad.jsonl")
    assert code == 0
    assert "2 of 400 rows" in err
    assert "Column price: used." in out


@pytest.mark.parametrize("value", ["high", 40.0, None])
def test_columns_that_only_sound_like_a_confidence_are_not_offered(tmp_path, value):
    _, err = fit(tmp_path, [row | {"confidence_words": value} for row in answers(300)])
    assert "also have" not in err


# Next steps


@pytest.mark.parametrize("ending", ["csv", "jsonl.gz"])
def test_next_steps_are_commands_that_work(tmp_path, monkeypatch, ending):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame(answers(800)).write_csv("all.csv")
    if ending != "csv":
        ok("split", "all.csv", "-o", "1.csv", "--rest", "2.csv")
        pl.DataFrame(answers(800)).write_ndjson("all.jsonl")
    source = "all.csv" if ending == "csv" else "all.jsonl"
    ok("split", source, "-o", f"train.{ending}", "--rest", f"test.{ending}")
    shutil.copy(f"test.{ending}", f"new.{ending}")
    _, _, err = run("fit", f"train.{ending}", "-o", "model")
    commands = [line.split()[1:] for line in err.splitlines() if line.startswith("    qacal ")]
    assert [command[0] for command in commands] == ["evaluate", "apply"]
    for command in commands:
        code, _, noted = run(*command)
        assert code == 0, noted
        assert "fitted on some of these" not in noted
    assert (tmp_path / f"calibrated.{ending}").stat().st_size > 0


def test_a_model_that_cannot_be_read_is_replaced(tmp_path):
    QACalibrator(partition="column:topic").fit(answers(300)).save(tmp_path / "model")
    (tmp_path / "model" / "model.json").write_text('{"schema": 99, "qacal": "9.0"}')
    fit(tmp_path, answers(300), "--partition", "column:topic")
    assert load(tmp_path / "model").rows_ == 300


def test_a_new_fit_reports_that_the_threshold_of_the_old_model_is_lost(tmp_path):
    said = "The replaced model had a threshold; this one has none (qacal threshold)."
    QACalibrator(partition="column:topic").fit(answers(300)).set_threshold(0.8).save(tmp_path / "model")
    assert said in fit(tmp_path, answers(300), "--partition", "column:topic")[1]
    assert said not in fit(tmp_path, answers(300), "--partition", "column:topic")[1]


def test_files_of_the_fit_are_not_named_to_evaluate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame(answers(300)).write_parquet("train.parquet")
    pl.DataFrame(answers(300, seed=1)).write_parquet("test.parquet")
    command = ("fit", "train.parquet", "-o", "model")
    for option in ("--certify", "--group-rows"):
        assert "qacal evaluate" not in run(*command, option, "./test.parquet")[2]
    assert "qacal evaluate test.parquet --model model" in run(*command)[2]


def test_a_score_is_not_tuned_by_the_measures_of_bins(tmp_path):
    pl.DataFrame(answers(300)).write_parquet(tmp_path / "a.parquet")
    command = ("fit", tmp_path / "a.parquet", "-o", tmp_path / "model", "--tune", "auac")
    code, _, err = run(*command)
    assert code == 2
    assert "--tune auac needs --calibrator; without one, pass --tune log-loss or brier." in " ".join(err.split())
    assert run(*command, "--partition", "column:topic", "--calibrator", "tree-binning")[0] == 0
    code, _, err = run(*command, "--partition", "column:topic")
    assert code != 0
    assert "MarginBinning needs bins and depth that are fixed before the fit." in " ".join(err.split())


def test_rows_used_for_groups_count_as_labelled(tmp_path):
    options = ("--calibrator", "qa-binning", "--partition", "kmeans:8", "--points-per-bin", "200")
    out, _ = fit(tmp_path, answers(1200), *options)
    largest = max(group.rows for group in load(tmp_path / "model").describe_groups() if group.rows < 200)
    rule = "from 200 certifying rows on, which about 270 labelled rows of its kind give it"  # 200 / 0.75
    assert f"{rule}; the largest without them has {largest}." in out


@pytest.mark.filterwarnings("always::qacal.QacalWarning")
def test_reversed_labels_are_reported(tmp_path):
    rows = [row | {"confidence": 0.5 + 0.3 * (1 - row["correct"])} for row in answers(200)]
    assert "Note: answers with higher confidence are more often wrong (AUROC 0.00" in fit(tmp_path, rows)[1]
    by = fit(tmp_path, rows, "--by", "model", model="models")[1]
    assert "Note: model parrot-1: answers with higher confidence" in by
    assert "more often wrong" not in fit(tmp_path, answers(200))[1]


@pytest.mark.filterwarnings("always::qacal.QacalWarning")
def test_tuning_notes_repeated_questions_once(tmp_path):
    rows = [{**row, "id": number // 2} for number, row in enumerate(answers(400))]
    options = ("--partition", "column:topic", "--calibrator", "qa-binning", "--tune", "brier")
    assert fit(tmp_path, rows, *options)[1].count("some ids have several rows") == 1


@pytest.mark.usefixtures("undrawn")
@pytest.mark.filterwarnings("always::qacal.QacalWarning")
def test_exact_copies_are_counted(tmp_path):
    rows = answers(200)
    said = "rows are exact copies of earlier rows (the same question, answer, confidence and label, by the same LLM)"
    options = ("--partition", "column:topic")
    assert f"Note: 20 of 220 {said}" in fit(tmp_path, rows + rows[:20], *options)[1]
    assert f"Note: 20 of 220 {said}" in run("evaluate", tmp_path / "a.parquet")[2]
    page = tmp_path / "report.html"
    report = run("report", tmp_path / "model", tmp_path / "a.parquet", "-o", page)[2]
    assert f"Note: 20 of 220 {said}" in report
    assert f"Warning: 20 of 220 {said}" in page.read_text()
    by = fit(tmp_path, rows + rows[:20], *options, "--by", "model", model="models")[1]
    assert f"Note: model parrot-1: 20 of 220 {said}" in by
    others = [row | {"confidence": 0.123} for row in rows[:5]] + [row | {"answer": "?"} for row in rows[5:9]]
    others += [row | {"correct": 1 - row["correct"]} for row in rows[9:12]]
    others += [row | {"prompt": "short"} for row in rows[:20]]
    rows = [row | {"prompt": "long"} for row in rows]
    assert "exact cop" not in fit(tmp_path, rows + others, *options, "--allow-mixed")[1]
    without_text = [{name: row[name] for name in ("topic", "confidence", "correct")} for row in rows + rows]
    assert "exact cop" not in fit(tmp_path, without_text, *options)[1]


def test_what_was_mixed_is_told(tmp_path):
    rows = [{**row, "prompt": "ab"[at % 2], "judge": "Ann"} for at, row in enumerate(answers(200))]
    rows += [{**row, "prompt": "a", "judge": "Ann"} for row in answers(200, seed=1, llm="parrot-2")]
    options = ("--partition", "column:topic", "--allow-mixed")
    assert "Note: one model for several LLMs: parrot-1, parrot-2; prompts: a, b.\n" in fit(tmp_path, rows, *options)[1]
    said = fit(tmp_path, rows, *options, "--by", "model", model="models")[1]
    assert "Note: model parrot-1: one model for several prompts: a, b.\n" in said
    assert "Note: model parrot-2" not in said
    assert "one model for several" not in fit(tmp_path, answers(200), *options)[1]
    for at, part in enumerate((rows[:200], rows[200:])):
        pl.DataFrame(part).write_parquet(tmp_path / f"part-{at}.parquet")
    files = [tmp_path / f"part-{at}.parquet" for at in (0, 1)]
    code, _, said = run("fit", *files, "-o", tmp_path / "many", *options)
    assert (code, "Note: one model for several LLMs: parrot-1, parrot-2; prompts: a, b.\n" in said) == (0, True)


@pytest.mark.filterwarnings("ignore::qacal.RepeatedQuestionsWarning")
def test_exact_copies_are_a_warning_in_python():
    rows = answers(200)
    with pytest.warns(QacalWarning, match=r"^1 of 201 rows is an exact copy of an earlier row .* Remove the copies if"):
        QACalibrator(partition="column:topic").fit([*rows, rows[7]])


def renamed(rows):
    """Return rows as another tool names them, with confidences in percent."""
    names = {"confidence": "score", "correct": "is_right", "question": "prompt"}
    rows = [{**row, "confidence": 100 * row["confidence"]} for row in rows]
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def test_what_fit_prints_next_works_as_printed_with_other_names_and_percents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame(renamed(answers(400))).write_csv("train.csv")
    pl.DataFrame(renamed(answers(100, seed=1))).write_csv("test.csv")
    pl.DataFrame(renamed(answers(30, seed=2))).drop("is_right").write_csv("new.csv")
    mapped = [f"--column={name}" for name in ("confidence=score", "correct=is_right", "question=prompt")]
    code, _, err = run("fit", "train.csv", "-o", "model", "--percent", *mapped, "--partition", "column:topic")
    assert code == 0
    commands = [line.split()[1:] for line in err.splitlines() if line.startswith("    qacal ")]
    assert [command[0] for command in commands] == ["evaluate", "apply"]
    commands += [["report", "model", "test.csv", "-o", "page.html"]]
    commands += [["threshold", "model", "test.csv", "--wrong", "5", "--abstain", "1"]]
    for command in commands:
        code, _, err = run(*command)
        assert code == 0, err
        assert "As in the fit: confidence is score, " in err
        assert "confidences are percents (to change it: --column, --no-percent)." in err
    # Rows with the usual names need no option, and another column is in percent only if declared.
    model, usual = load("model"), answers(30, seed=2)
    assert pl.read_csv("calibrated.csv")["calibrated"].to_list() == [
        row["calibrated"] for row in model.calibrate(usual)
    ]
    assert [row["calibrated"] for row in model.calibrate(renamed(usual))] == [
        row["calibrated"] for row in model.calibrate(usual)
    ]
    assert model.explain("How?", "So.", 0.9, topic="cooking")["confidence"] == 0.9
    pl.DataFrame(usual).write_csv("usual.csv")
    assert run("apply", "model", "usual.csv", "-o", "out.csv")[2] == "30 rows written to out.csv.\n"


def test_percents_of_the_fit_are_assumed_unless_declared_otherwise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{**row, "confidence": 100 * row["confidence"]} for row in answers(300)]
    pl.DataFrame(rows).write_parquet("a.parquet")
    pl.DataFrame(answers(50, seed=1)).write_parquet("fractions.parquet")
    ok("fit", "a.parquet", "-o", "models", "--percent", "--by", "model", "--partition", "column:topic")
    assert "As in the fit: confidences are percents" in run("apply", "models", "a.parquet", "-o", "out.parquet")[2]
    code, _, err = run("apply", "models", "fractions.parquet", "-o", "out.parquet")
    assert (code, "confidences are percents (to change it: --no-percent)." in err) == (1, True)
    ok("apply", "models", "fractions.parquet", "-o", "out.parquet", "--no-percent")


@pytest.mark.filterwarnings("ignore:.*more often wrong:qacal.QacalWarning")
def test_more_than_three_llms_have_a_line_each(tmp_path):
    few, more = ([row for n in range(count) for row in answers(40 + n, n, f"llm-{n}")] for count in (3, 4))
    options = ("--by", "model", "--partition", "column:topic")
    assert fit(tmp_path, few, *options)[0].count("(MarginBinning).") == 3
    out = fit(tmp_path, more, *options)[0]
    assert "4 models, one for each value of the column model\n" in out
    assert "MarginBinning" not in out
    assert [line.split()[:2] for line in out.splitlines() if "llm-" in line] == [
        [f"llm-{n}", f"4{n}"] for n in range(4)
    ]


def test_the_table_of_many_llms_has_their_log_loss_held_out(tmp_path):
    rows = [row for n in range(4) for row in answers(60, n, f"llm-{n}")]
    found = json.loads(fit(tmp_path, rows, "--by", "model", "--json")[0])["models"]["llm-0"]
    out = fit(tmp_path, rows, "--by", "model")[0]
    losses = [found["tried"][0]["log_loss"], next(one["log_loss"] for one in found["tried"] if one["is_chosen"])]
    line = next(line for line in out.splitlines() if "llm-0" in line)
    bound = f"{found['median_epsilon_of_a_row']:.2f}"
    assert line.split() == ["llm-0", "60", *(f"{loss:.4f}" for loss in losses), bound]


def test_at_most_three_llms_with_equal_labels_are_named(tmp_path):
    rows = [row | {"correct": 1} for n in range(5) for row in answers(40, n, f"llm-{n}")]
    err = fit(tmp_path, rows, "--by", "model", "--partition", "column:topic")[1]
    assert "Note: model llm-0: all 40 rows are correct; a model cannot learn when the LLM is wrong." in err
    assert (err.count("cannot learn"), "Note: 2 more models have rows with equal labels." in err) == (3, True)


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_features_have_kinds(tmp_path, ending):
    rng = np.random.default_rng(0)
    rows = [
        row | {"retrieval": None if rng.random() < 0.1 else float(1000 * np.exp(row["correct"] + rng.normal()))}
        for row in answers(1500)
    ]
    frame = pl.DataFrame(rows)
    write = {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[ending]
    write(tmp_path / f"a.{ending}")
    done = ok("fit", tmp_path / f"a.{ending}", "-o", tmp_path / "model", "--feature", "retrieval:numeric")
    assert "Column retrieval: used. By itself it lowers the log loss by 0.0" in done
    assert load(tmp_path / "model").learned_score_.columns_used == ("retrieval",)
    new = load(tmp_path / "model").calibrate(tmp_path / f"a.{ending}")
    assert log_loss([row["correct"] for row in rows], new["calibrated"].to_numpy()) < 0.5


def test_the_option_for_a_column_that_predicts_suspiciously_well_can_be_followed(tmp_path):
    rng, rows = np.random.default_rng(0), answers(1500)
    for row in rows:
        about = -0.3 if row["correct"] else -0.9
        row["log probs"] = np.minimum(about + 0.35 * rng.standard_normal(5), -0.01).tolist()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = ok("fit", tmp_path / "rows.jsonl", "-o", tmp_path / "model")
    assert not load(tmp_path / "model").pipeline_.features
    option = out.split("log probs: mean: not used")[1].split("to use it, pass")[1].split("(in Python")[0]
    assert shlex.split(option) == ["--feature", "log probs: mean"]
    ok("fit", tmp_path / "rows.jsonl", "-o", tmp_path / "model", *shlex.split(option))
    used = load(tmp_path / "model")
    assert used.learned_score_.columns_used == ("log probs: mean",)
    # A new fit, as a refit is, reads no more than this one.
    assert used.features == ("log probs: mean",)
    assert used.fit(rows).learned_score_.columns_used == ("log probs: mean",)
