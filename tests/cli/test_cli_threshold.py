"""`qacal threshold` and its effect on `qacal apply`: output, saved thresholds and exit codes."""

import json
import os
import subprocess
import sys

import polars as pl
import pytest

from tests.answers import answers
from tests.cli.test_cli import ok, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("threshold")
    pl.DataFrame(answers(2000)).write_parquet(path / "fit.parquet")
    pl.DataFrame(answers(1500, seed=1)).write_parquet(path / "labelled.parquet")
    pl.DataFrame(answers(20, seed=2)).write_parquet(path / "few.parquet")
    pl.DataFrame(answers(500, seed=3)).drop("correct").write_parquet(path / "new.parquet")
    ok("fit", path / "fit.parquet", "-o", path / "model", "--partition", "column:topic")
    return path


@pytest.fixture
def model(folder, tmp_path):
    ok("fit", folder / "fit.parquet", "-o", tmp_path / "model", "--partition", "column:topic")
    return tmp_path / "model"


def bytes_of(model):
    return {path.name: path.read_bytes() for path in sorted(model.rglob("*")) if path.is_file()}


def test_choose_save_apply(folder, model, tmp_path):
    before = bytes_of(model)
    printed = ok("threshold", model, folder / "labelled.parquet", "--accuracy", "0.9")
    assert "accuracy of accepted answers at least 0.9, with probability 0.9" in printed
    assert bytes_of(model) == before
    found = json.loads(ok("threshold", model, folder / "labelled.parquet", "--accuracy", "0.9", "--json", "--save"))
    threshold = found["parts"][0]["threshold"]
    assert found["is_certified"] is True
    ok("apply", model, folder / "new.parquet", "-o", tmp_path / "out.parquet")
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert out["threshold"].unique().to_list() == [threshold]
    assert ((out["calibrated"] >= threshold) == (out["decision"] == "answer")).all()
    assert out["decision"].n_unique() == 2
    ok("apply", model, folder / "new.parquet", "-o", tmp_path / "hand.parquet", "--threshold", "0")
    hand = pl.read_parquet(tmp_path / "hand.parquet")
    assert hand["decision"].unique().to_list() == ["answer"]
    assert (
        pl.read_parquet(tmp_path / "out.parquet")
        .drop("decision", "threshold")
        .equals(hand.drop("decision", "threshold"))
    )


def test_per_group(folder, model, tmp_path):
    printed = ok("threshold", model, folder / "labelled.parquet", "--accuracy", "0.9", "--per-group", "--save")
    assert "in every group that has a threshold" in printed
    assert "arithmetic" in printed
    assert "never" in printed
    ok("apply", model, folder / "new.parquet", "-o", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {(line["decision"], line["threshold"]) for line in lines if line["topic"] == "arithmetic"} == {
        ("abstain", None)
    }
    assert {line["decision"] for line in lines if line["topic"] == "geography"} == {"answer"}


def test_groups_are_listed_by_their_rows_and_have_no_common_threshold(folder, tmp_path):
    rows = pl.DataFrame(answers(1500, seed=4)).sort("topic")
    first, second, third = rows["topic"].unique(maintain_order=True)[:3]
    sizes = {first: 50, second: 200, third: 100}
    pl.concat([rows.filter(topic=topic).head(size) for topic, size in sizes.items()]).write_parquet(
        tmp_path / "a.parquet"
    )
    options = ("--accuracy", "0.995", "--per-group")
    code, printed, _ = run("threshold", folder / "model", tmp_path / "a.parquet", *options)
    assert code == 1
    of_groups, lower = printed.split("lower accuracies on these rows")
    listed = [line.split()[0] for line in of_groups.splitlines() if line.strip().startswith((first, second, third))]
    assert listed == [second, third, first]
    assert "threshold" not in lower.partition("To save")[0]
    assert (
        "threshold"
        in run("threshold", folder / "model", tmp_path / "a.parquet", "--accuracy", "0.995")[1].split("lower")[1]
    )


def test_costs(folder):
    printed = ok("threshold", folder / "model", folder / "labelled.parquet", "--wrong", "5", "--abstain", "1")
    assert "Use 0.8, which is best for calibrated confidences" in printed
    found = json.loads(
        ok("threshold", folder / "model", folder / "labelled.parquet", "--wrong", "5", "--abstain", "1", "--json")
    )
    assert found["threshold"] == 0.8
    assert found["seen_policy"]["cost"] <= found["rule_policy"]["cost"] < found["never"] < found["always"]


def test_nothing_certified_says_so_saves_nothing_and_exits_with_1(folder, model):
    before = bytes_of(model)
    code, out, err = run("threshold", model, folder / "few.parquet", "--accuracy", "0.95", "--save")
    assert code == 1
    assert "no threshold certified for an accuracy of 0.95" in out
    assert "At least 45 accepted rows are needed" in out
    assert "unclear: these rows are too few to estimate how many are needed." in out
    assert "no threshold could be certified, and nothing was saved" in err
    assert bytes_of(model) == before
    code, out, err = run("threshold", model, folder / "few.parquet", "--accuracy", "0.95", "--json")
    assert (code, json.loads(out)["is_certified"]) == (1, False)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_closed_pipe_does_not_change_the_exit_code(folder, form):
    code = "import sys; from qacal.cli.main import main; sys.argv[0] = 'qacal'; main()"
    arguments = ["threshold", folder / "model", folder / "few.parquet", "--accuracy", "0.95", *form]
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody:
        done = subprocess.run([sys.executable, "-c", code, *arguments], stdout=nobody, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"qacal: no threshold could be certified.\n")


def test_a_target_out_of_reach_comes_with_targets_that_are_within_reach(folder):
    command = ("threshold", folder / "model", folder / "labelled.parquet")
    code, out, _ = run(*command, "--accuracy", "0.995")
    assert code == 1
    assert "confidence" not in out
    found = json.loads(run(*command, "--accuracy", "0.995", "--json")[1])["reachable"]
    assert [one["accuracy"] for one in found] == [0.95, 0.9, 0.85, 0.8, 0.75, 0.7]
    assert sum(one["alpha"] for one in found) == pytest.approx(0.1)
    first = next(one for one in found if one["parts"][0]["threshold"] is not None)
    options = ("--accuracy", f"{first['accuracy']:g}", "--alpha", f"{first['alpha']:.4g}")
    paths = " ".join(map(str, command[1:]))
    shared = "(alpha 0.1, shared by the 6 accuracies above)."
    assert f"To save the highest: qacal threshold {paths} {' '.join(options)} --save {shared}" in out
    again = json.loads(ok(*command, *options, "--json"))
    for name in ("threshold", "coverage"):
        assert again["parts"][0][name] == first["parts"][0][name]
    assert again["reachable"] == []


def test_costs_by_group_are_refused(folder):
    command = ("threshold", folder / "model", folder / "labelled.parquet", "--wrong", "5", "--abstain", "1")
    said = " ".join(run(*command, "--per-group")[2].split())
    assert "costs (wrong and abstain) give one threshold for all groups. Leave out --per-group and --groups, or" in said


@pytest.mark.parametrize(("label", "code"), [(1, 0), (0, 1)])
def test_labels_of_one_class_are_reported(folder, tmp_path, label, code):
    rows = [{**row, "correct": label} for row in answers(400, seed=5)]
    pl.DataFrame(rows).write_parquet(tmp_path / "one.parquet")
    command = ("threshold", folder / "model", tmp_path / "one.parquet")
    found, out, _ = run(*command, "--accuracy", "0.9")
    assert found == code
    assert "All labels are the same" in out
    assert "All labels are the same" in ok(*command, "--wrong", "2", "--abstain", "1")


def test_bad_input_is_refused_and_nothing_is_half_written(folder, model, tmp_path):
    before = bytes_of(model)
    (tmp_path / "bad.jsonl").write_text(
        "".join(json.dumps({**row, "confidence": 85}) + "\n" for row in answers(3, seed=4))
    )
    for arguments, said in (
        ((folder / "fit.parquet",), "fitted on some of these questions"),
        ((folder / "new.parquet",), "no column 'correct'"),
        ((tmp_path / "bad.jsonl",), "confidence is 85"),
        ((tmp_path / "no.csv",), "does not exist"),
    ):
        code, out, err = run("threshold", model, *arguments, "--accuracy", "0.6", "--save")
        assert (code, out) == (1, ""), arguments
        assert said in err
        assert "Traceback" not in err
    assert bytes_of(model) == before
    skip = ("--skip-bad-rows", tmp_path / "left_out.jsonl")
    assert "No row can be used" in run("threshold", model, tmp_path / "bad.jsonl", "--accuracy", "0.6", *skip)[2]


def test_a_menu_of_accuracies(folder):
    """Each line is the threshold of its accuracy at a quarter of alpha, and nothing is saved."""
    rows, before = folder / "labelled.parquet", bytes_of(folder / "model")
    found = json.loads(ok("threshold", folder / "model", rows, "--json"))
    assert [line["accuracy"] for line in found["lines"]] == [0.7, 0.8, 0.9, 0.95]
    for line in found["lines"]:
        _, alone, _ = run(
            "threshold", folder / "model", rows, "--accuracy", str(line["accuracy"]), "--alpha", "0.025", "--json"
        )
        assert json.loads(alone)["parts"] == line["parts"]
    printed = ok("threshold", folder / "model", rows)
    assert "accuracy against share answered, on 1,500 rows" in printed
    best = max(line["accuracy"] for line in found["lines"] if line["is_certified"])
    assert f"--accuracy {best:g} --alpha 0.025 --save (alpha 0.1, shared by the 4 accuracies above)" in printed
    assert bytes_of(folder / "model") == before


def test_a_menu_for_groups(folder):
    printed = ok("threshold", folder / "model", folder / "labelled.parquet", "--groups", "topic")
    assert "1 of 4 groups" in printed
    assert "--alpha 0.025 --groups topic --save" in printed


def test_a_menu_without_any_threshold(folder, tmp_path):
    rows = pl.DataFrame(answers(300, seed=1)).with_columns(correct=pl.col("confidence").rank("ordinal") % 3 == 0)
    rows.write_parquet(tmp_path / "bad.parquet")
    code, printed, err = run("threshold", folder / "model", tmp_path / "bad.parquet")
    assert code == 1
    assert "To save" not in printed
    assert "no threshold could be certified" in err


def test_wrong_use(folder):
    rows = folder / "labelled.parquet"
    for options in (
        ("--save",),
        ("--accuracy", "90"),
        ("--accuracy", "0.9", "--alpha", "0"),
        ("--wrong", "5"),
        ("--wrong", "5", "--abstain", "1", "--accuracy", "0.9"),
        ("--wrong", "5", "--abstain", "1", "--per-group"),
    ):
        code, out, err = run("threshold", folder / "model", rows, *options)
        assert (code, out) == (2, ""), options
        assert "Error" in err
    said = " ".join(run("threshold", folder / "model", rows, "--wrong", "5")[2].split())
    assert "pass both --wrong and --abstain, or --accuracy 0.9." in said
    assert run("threshold", "nowhere", rows, "--accuracy", "0.9")[0] == 1
    assert run("apply", folder / "model", rows, "--threshold", "1.5")[0] == 2


def test_repeated_questions_and_unknown_groups_are_reported(folder, tmp_path):
    rows = answers(600, seed=6)
    rows += [{**row, "answer": "another"} for row in rows[:100]]
    rows += [{**row, "topic": "chess"} for row in answers(50, seed=8)]
    pl.DataFrame(rows).write_parquet(tmp_path / "rows.parquet")
    printed = ok("threshold", folder / "model", tmp_path / "rows.parquet", "--accuracy", "0.8", "--per-group")
    assert "(650 documents)" in printed
    assert "50 rows are in no group" in printed


def test_a_set_of_models(tmp_path):
    both = [answers(900, seed=seed, llm=f"parrot-{seed}") for seed in (1, 2)]
    labelled = [answers(700, seed=seed + 5, llm=f"parrot-{seed}") for seed in (1, 2)]
    wrong = [{**row, "correct": 0} for row in labelled[1]]
    pl.DataFrame(both[0] + both[1]).write_parquet(tmp_path / "fit.parquet")
    pl.DataFrame(labelled[0] + wrong).write_parquet(tmp_path / "labelled.parquet")
    models = tmp_path / "models"
    ok("fit", tmp_path / "fit.parquet", "-o", models, "--by", "model", "--partition", "column:topic")
    command = ("threshold", models, tmp_path / "labelled.parquet", "--accuracy", "0.85")
    found = json.loads(ok(*command, "--json"))
    assert {name: one["is_certified"] for name, one in found.items()} == {"parrot-1": True, "parrot-2": False}
    code, out, err = run(*command, "--save")
    assert (code, "parrot-2: no threshold certified" in out) == (0, True)
    assert "1 of 2 have a threshold; the others always abstain." in err
    ok("apply", models, tmp_path / "labelled.parquet", "-o", tmp_path / "out.parquet")
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert set(out.filter(pl.col("model") == "parrot-1")["decision"]) == {"answer", "abstain"}
    assert set(out.filter(pl.col("model") == "parrot-2")["decision"]) == {"abstain"}
    ok("apply", models, tmp_path / "labelled.parquet", "-o", tmp_path / "hand.parquet", "--threshold", "0.5")
    assert pl.read_parquet(tmp_path / "hand.parquet")["threshold"].unique().to_list() == [0.5]
    pl.DataFrame(labelled[0]).write_parquet(tmp_path / "one.parquet")
    code, _, err = run("threshold", models, tmp_path / "one.parquet", "--accuracy", "0.85")
    assert code == 1
    assert "model parrot-2: there are no rows" in err


@pytest.mark.usefixtures("undrawn")
@pytest.mark.filterwarnings("always::qacal.QacalWarning")
def test_rows_of_the_fit_are_detected_wherever_numbers_would_be_too_good(folder, tmp_path):
    code, _, said = run("evaluate", folder / "fit.parquet", "--model", folder / "model")
    assert code == 0
    assert "fitted on some of these questions" in said
    assert "fitted on some" not in run("evaluate", folder / "labelled.parquet", "--model", folder / "model")[2]
    ok("report", folder / "model", folder / "fit.parquet", "-o", tmp_path / "r.html")
    assert "fitted on some of these questions" in (tmp_path / "r.html").read_text()


@pytest.mark.usefixtures("undrawn_unless_full")
def test_the_report_marks_the_saved_threshold(folder, model, tmp_path):
    rows = folder / "labelled.parquet"
    ok("threshold", model, rows, "--wrong", "5", "--abstain", "1", "--save")
    ok("report", model, rows, "-o", tmp_path / "kept.html", "--title", "One")
    ok("report", model, rows, "-o", tmp_path / "same.html", "--title", "One", "--threshold", "0.8")
    ok("report", folder / "model", rows, "-o", tmp_path / "none.html", "--title", "One")
    pages = [(tmp_path / f"{name}.html").read_text() for name in ("kept", "same", "none")]
    assert pages[0] == pages[1] != pages[2]
