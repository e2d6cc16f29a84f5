"""`qacal explain`: one answer, as text and as JSON."""

import json

import numpy as np
import polars as pl
import pytest

from qacal import QACalibrator, StepBinning, load
from qacal.planning import shown_bound
from tests.answers import answers
from tests.cli.test_cli import ok, run

ASKED = ("--question", "What is 35 plus 42, as a number? (no. 777)", "--answer", "The sum is 7.", "--confidence", "0.9")
TEXTS = (ASKED[1], ASKED[3], 0.9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("explain")
    rows = [row | {"tenant": number % 3, "code": str(number % 3)} for number, row in enumerate(answers(2000))]
    rng = np.random.default_rng(0)
    rows = [row | {"confidence_tokens": 0.3 + 0.2 * row["correct"] + rng.random() / 2} for row in rows]
    pl.DataFrame(rows).write_parquet(path / "a.parquet")
    ok("fit", path / "a.parquet", "-o", path / "model", "--partition", "bisecting:3")
    return path


def shown(*arguments):
    """Return what is printed before the reasons, by the first word of each line."""
    evidence, _, why = ok("explain", *arguments).partition("\n\n")
    assert why.startswith("Why ")
    lines = [line.partition(" ") for line in evidence.splitlines()]
    names = [name for name, _, _ in lines if name != "unlike"]
    assert [name for name in names if name] == ["stated", "calibrated", "interval", "group", "decision"]
    # The accuracy of the group is a line without a name.
    return {name: text.strip() for name, _, text in lines}


def test_it_is_what_the_model_explains(folder):
    found = load(folder / "model").explain(*TEXTS)
    assert json.loads(ok("explain", folder / "model", *ASKED, "--json")) == found
    lines = shown(folder / "model", *ASKED)
    assert lines["stated"] == "0.90"
    assert lines["calibrated"].startswith(f"{found['calibrated']:.2f}, ")
    bands = load(folder / "model").calibrator_.maps_.n_bands
    similar = "all answers" if bands == 1 else f"answers with a similar score (one of {bands} bands)"
    assert lines["interval"] == (
        f"{found['low']:.2f} to {found['high']:.2f}: {similar} are on average at most "
        f"{shown_bound(found['calibrated'] - found['low'])} too high and "
        f"{shown_bound(found['high'] - found['calibrated'])} too low "
        f"({found['rows']} rows, with probability 90%)"
    )
    assert lines[""] == (
        f"{found['group_low']:.2f} to {found['group_high']:.2f}: accuracy of all answers of this group "
        f"({found['group_rows']} rows, at once with the interval)"
    )
    assert lines["group"].startswith(f"{found['group']} (")
    assert "plus" in lines["group"]
    assert "no threshold chosen yet" in lines["decision"]


def test_which_answers_the_interval_covers(folder, tmp_path):
    """The row's own group, which needs no text; a larger group; and a bin without rows."""
    options = ("--partition", "column:topic", "--calibrator", "tree-binning")
    ok("fit", folder / "a.parquet", "-o", tmp_path / "by_topic", *options)
    lines = shown(tmp_path / "by_topic", "--confidence", "0.9", "--column-value", "topic=cooking")
    assert "accuracy of answers in this group with a similar stated confidence" in lines["interval"]
    lines = shown(tmp_path / "by_topic", "--confidence", "0.9", "--column-value", "topic=chess")
    assert "accuracy of all answers" in lines["interval"]
    assert lines["group"] == "unknown to the model, and not among the answers of the interval"
    ok("fit", folder / "a.parquet", "-o", tmp_path / "bands", "--partition", "column:topic")
    lines = shown(tmp_path / "bands", "--confidence", "0.9", "--column-value", "topic=chess")
    assert "answers with a similar stated confidence (one of 3 bands) are on average at most" in lines["interval"]
    pl.DataFrame(answers(4000)).write_parquet(tmp_path / "many.parquet")
    ok("fit", tmp_path / "many.parquet", "-o", tmp_path / "many", "--calibrator", "step-binning")
    assert "answers in a larger group" in shown(tmp_path / "many", *ASKED)["interval"]
    rows = [{"id": at, "confidence": 0.5, "correct": at % 2, "topic": "coins"} for at in range(49)]
    QACalibrator(partition="column:topic", calibrator=StepBinning(), learned_score=None).fit(rows).save(
        tmp_path / "coins"
    )
    lines = shown(tmp_path / "coins", "--confidence", "0.9", "--column-value", "topic=coins")
    assert lines["interval"] == "0.00 to 1.00: the fit had no such rows, so nothing is certified"


def test_curves_certify_nothing(folder, tmp_path):
    ok("fit", folder / "a.parquet", "-o", tmp_path / "model", "--continuous")
    lines = shown(tmp_path / "model", *ASKED)
    assert lines["interval"] == "none; this model has no intervals"
    assert lines["group"] == "none; this model has no groups"


def test_a_threshold_decides(folder, tmp_path):
    model = load(folder / "model").set_threshold(0.99)
    model.save(tmp_path / "model")
    assert shown(tmp_path / "model", *ASKED)["decision"] == "abstain; the threshold is 0.99"


@pytest.mark.parametrize(("column", "kind"), [("tenant", int), ("code", str)])
def test_further_columns_have_the_type_of_the_fit(folder, tmp_path, column, kind):
    ok("fit", folder / "a.parquet", "-o", tmp_path / "model", "--partition", f"column:{column}")
    found = json.loads(
        ok("explain", tmp_path / "model", "--confidence", "0.9", "--column-value", f"{column}=2", "--json")
    )
    assert found["group"] == kind(2)
    assert found["group_rows"] > 0


def test_booleans_and_missing_values(folder, tmp_path):
    frame = pl.read_parquet(folder / "a.parquet").with_columns(flag=pl.col("tenant") == 1)
    frame.write_parquet(tmp_path / "a.parquet")
    ok("fit", tmp_path / "a.parquet", "-o", tmp_path / "flags", "--partition", "column:flag")
    ok("fit", tmp_path / "a.parquet", "-o", tmp_path / "tenants", "--partition", "column:tenant")

    def found(model, pair):
        options = ("--confidence", "0.9", "--column-value", pair, "--json")
        return json.loads(ok("explain", tmp_path / model, *options))

    flags = load(tmp_path / "flags")
    for text, truth in (("true", True), ("True", True), ("False", False)):
        assert found("flags", f"flag={text}") == flags.explain("", "", 0.9, flag=truth)
        assert found("flags", f"flag={text}")["group_rows"] > 0
    assert found("tenants", "tenant=") == load(tmp_path / "tenants").explain("", "", 0.9, tenant=None)
    assert found("tenants", "tenant=")["group_rows"] == 0


def test_a_second_confidence(folder, tmp_path):
    ok("fit", folder / "a.parquet", "-o", tmp_path / "model", "--feature", "confidence_tokens:confidence")
    assert "not given: confidence_tokens" in ok("explain", tmp_path / "model", *ASKED)
    given = ok("explain", tmp_path / "model", *ASKED, "--column-value", "confidence_tokens=0.45", "--json")
    assert json.loads(given) == load(tmp_path / "model").explain(*TEXTS, confidence_tokens=0.45)
    code, _, err = run("explain", tmp_path / "model", *ASKED, "--column-value", "confidence_tokens=45")
    assert code == 1
    assert "confidence_tokens is 45; expected 0 to 1" in err
    code, _, err = run("explain", tmp_path / "model", *ASKED, "--column-value", "confidence_tokens=abc")
    assert code == 1
    assert err == "qacal: confidence_tokens is 'abc'; expected a number from 0 to 1, not text.\n"


def test_a_set_of_models_needs_the_llm(tmp_path):
    rows = answers(600) + answers(600, seed=1, llm="parrot-2")
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    ok("fit", tmp_path / "a.parquet", "-o", tmp_path / "models", "--by", "model")
    for named, problem in (((), ""), (("--column-value", "model=parrot-3"), "There is no model for 'parrot-3'. ")):
        code, _, err = run("explain", tmp_path / "models", *ASKED, *named)
        assert code == 2
        remedy = "Pass --column-value model=VALUE, with one of parrot-1, parrot-2."
        assert f"models was fitted with --by model. {problem}{remedy}" in err
    found = json.loads(ok("explain", tmp_path / "models", *ASKED, "--column-value", "model=parrot-2", "--json"))
    assert found == load(next((tmp_path / "models").glob("1-*"))).explain(*TEXTS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--confidence", "90", *ASKED[:4]), "--confidence is 90; expected 0 to 1"),
        (("--confidence", "0.9"), "pass both, --question and --answer"),
        ((*ASKED, "--column-value", "topic"), "not of the form NAME=VALUE"),
        ((*ASKED, "--column-value", "answer=8"), "an option of its own: --answer"),
        ((*ASKED, "--column-value", "confidnce_tokens=0.8"), "does not read 'confidnce_tokens'"),
    ],
)
def test_wrong_use(folder, options, said):
    code, out, err = run("explain", folder / "model", *options)
    assert (code, out) == (2, "")
    assert said in err
