"""The command line as a person uses it: what is written, what is printed where, and with which exit code."""

import io
import json
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import polars as pl
import pytest

from qacal import Tally, load
from qacal.cli import options
from qacal.cli.main import main
from qacal.errors import InputError, QacalWarning
from tests.answers import answers
from tests.sizes import sized


def run(*arguments, stdin=b""):
    """Run a command in this process; one test below starts real ones."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["qacal", *map(str, arguments)], io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv, sys.stdin = before
    return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


def test_wrong_use_is_explained_in_lines_that_fit_the_terminal(monkeypatch, tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "argv", ["qacal", "fit", "a.csv", "-o", str(tmp_path / "model"), "--calibrator", "foo"])
    with redirect_stderr(Terminal()) as err, pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    lines = err.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[:3] == ["Usage: qacal fit [OPTIONS] [FILE]...", "Try 'qacal fit --help' for help.", ""]
    assert " ".join(lines[3:]).startswith(
        "Error: Invalid value: there is no calibrator 'foo'; there are tree-binning, "
    )


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--port", "abc", r"'abc'.* valid integer\."),  # typer words these, and older versions in another way
        ("--port", "99999999", "99999999.*65535"),
        ("--max-body-mb", "0", r"0.*0\.001"),
        ("--confidence-from", "foo", r"'--confidence-from': 'foo' is not one of 'auto'"),
    ],
)
def test_a_wrong_value_of_an_option_is_named_with_what_is_expected(option, value, says):
    code, _, err = run("serve", "model", option, value)
    assert code == 2
    assert re.search(f"Error: Invalid value for '{option}': .*", err)
    assert re.search(says, err)
    assert "Input should" not in err


def test_reasons_of_bad_rows_wrap_and_commands_do_not(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "80")
    reason, command = f"  3: no correct, such as a.jsonl line 4: {'many words ' * 10}", f"    qacal fit {'x ' * 60}"
    with redirect_stderr(Terminal()) as err:
        options.note(f"Bad rows: 3 of 9 rows\n{reason}\n{command}")
    first, *lines, last = err.getvalue().splitlines()
    assert (first, last) == ("Bad rows: 3 of 9 rows", command)
    assert max(map(len, lines)) <= 80
    assert [line[:4].isspace() for line in lines] == [False, True]


def test_an_unknown_partition_is_refused_in_the_words_of_the_shell(tmp_path):
    code, _, err = run("fit", "a.csv", "-o", tmp_path / "model", "--partition", "nope:3")
    said = " ".join(err.split())
    assert (code, said.endswith('several joined by "*".')) == (2, True)


def test_vectors_need_no_ids(tmp_path):
    rows = [{**row, "id": None if at else 7} for at, row in enumerate(answers(5))] + [
        {name: value for name, value in row.items() if name != "id"} for row in answers(5, seed=1)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = [json.loads(line) for line in ok("embed", tmp_path / "a.jsonl").splitlines()]
    assert [len(row["embedding"]) for row in out] == [256] * 10


def ok(*arguments, **options):
    code, out, err = run(*arguments, **options)
    assert code == 0, err
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    pl.DataFrame(answers(2000)).write_parquet(path / "answers.parquet")
    pl.DataFrame(answers(1000, seed=1)).write_parquet(path / "new.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in answers(300, seed=2))
    (path / "new.jsonl").write_text(lines)
    ok("fit", path / "answers.parquet", "-o", path / "model", "--partition", "bisecting:3")
    return path


def test_fit_apply_evaluate_groups(folder, tmp_path):
    ok("apply", folder / "model", folder / "new.parquet", "-o", tmp_path / "out.parquet")
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert out.columns[-13:] == [
        "calibrated",
        "low",
        "high",
        "group",
        "source",
        "rows",
        "group_low",
        "group_high",
        "group_rows",
        "alpha",
        "unlike",
        "decision",
        "threshold",
    ]
    assert out.select(pl.read_parquet(folder / "new.parquet").columns).equals(pl.read_parquet(folder / "new.parquet"))

    printed = ok("evaluate", folder / "new.parquet", "--model", folder / "model", "--groups", "topic")
    assert "before" in printed
    assert "arithmetic" in printed
    found = json.loads(
        ok("evaluate", folder / "new.parquet", "--model", folder / "model", "--groups", "topic", "--json")
    )
    assert found["after"]["error_by_group"]["debiased"] < 0.1 < found["before"]["error_by_group"]["debiased"]
    same = json.loads(ok("evaluate", tmp_path / "out.parquet", "--groups", "topic", "--json"))
    assert same["after"] == found["after"]

    model = load(folder / "model")
    rows, training = model.rows_, model.learned_score_.rows_
    assert (0.68 < rows / 2000 < 0.72, 0.88 < training / 2000 < 0.92) == (True, True)
    said = f"8 groups with {rows:,} certifying rows in all (the score was trained on {training:,} rows)\n"
    assert said in ok("groups", folder / "model", "--examples", "1")
    assert len(json.loads(ok("groups", folder / "model", "--json"))) == 8


def test_pipes(folder):
    rows = (folder / "new.jsonl").read_bytes()
    assert ok("apply", folder / "model", "-", stdin=rows)
    program = [sys.executable, "-c", "from qacal.cli.main import main; main()"]
    done = subprocess.run([*program, "apply", folder / "model", "-"], input=rows, capture_output=True, check=True)
    out = done.stdout.decode()
    assert done.stderr == b""
    assert len(out.splitlines()) == 300
    assert json.loads(out.splitlines()[0])["source"] == "band"
    code, out, err = run("apply", folder / "model", "-", stdin=b"")
    assert (code, out) == (1, "")
    assert "standard input is empty" in err


def test_nothing_but_data_goes_to_standard_output(folder):
    code, out, err = run("apply", folder / "model", folder / "new.jsonl")
    assert code == 0
    assert all(json.loads(line) for line in out.splitlines())
    assert err == ""


def test_bad_rows_stop_the_work_or_go_into_a_file(folder, tmp_path):
    rows = answers(50, seed=3)
    rows[7]["confidence"] = 85
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = run("apply", folder / "model", tmp_path / "bad.jsonl", "-o", tmp_path / "out.jsonl")
    assert (code, out) == (1, "")
    assert "bad.jsonl line 8: confidence is 85; expected 0 to 1. Others lie between 0 and 1: convert them" in err
    assert not (tmp_path / "out.jsonl").exists()
    with (tmp_path / "bad.jsonl").open("a") as file:
        file.write("{oops\n")
    code, _, err = run(
        *("apply", folder / "model", tmp_path / "bad.jsonl", "-o", tmp_path / "out.jsonl"),
        *("--skip-bad-rows", tmp_path / "left_out.jsonl"),
    )
    assert code == 0
    assert "2 of 51 rows (4%)\n  1: not JSON" in err
    assert "1: confidence above 1, such as " in err
    left_out = [json.loads(line) for line in (tmp_path / "left_out.jsonl").read_text().splitlines()]
    assert [fault["place"] for fault in left_out] == ["line 51", "line 8"]
    assert left_out[1]["row"]["id"] == "3-7"
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in out] == [row["id"] for row in rows]
    assert [row["calibrated"] is None for row in out] == [at == 7 for at in range(50)]


def test_fitting_counts_a_bad_row_once(tmp_path):
    rows = answers(400)
    rows[7]["confidence"] = None
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, _, err = run(
        *("fit", tmp_path / "bad.jsonl", "-o", tmp_path / "model", "--partition", "kdtree:1"),
        *("--skip-bad-rows", tmp_path / "left_out.jsonl"),
    )
    assert "left out: 1 of 400 rows (under 1%)\n  1: no confidence" in err


def test_other_names_percents_and_csv(tmp_path):
    rows = [
        {"q": r["question"], "a": r["answer"], "score": 100 * r["confidence"], "ok": r["correct"]} for r in answers(600)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "a.csv")
    names = [f"--column={name}" for name in ("question=q", "answer=a", "confidence=score", "correct=ok")]
    ok("fit", tmp_path / "a.csv", "-o", tmp_path / "model", "--partition", "kdtree:1", "--percent", *names)
    ok("apply", tmp_path / "model", tmp_path / "a.csv", "-o", tmp_path / "out.csv", "--percent", *names)
    out = pl.read_csv(tmp_path / "out.csv")
    assert out.columns[:5] == ["q", "a", "score", "ok", "calibrated"]
    assert out["calibrated"].is_between(0, 1).all()


def test_one_model_for_each_llm(tmp_path):
    rows = answers(900) + answers(900, seed=1, llm="parrot-2")
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    code, _, err = run("fit", tmp_path / "a.parquet", "-o", tmp_path / "model")
    assert code == 1
    assert "several LLMs: parrot-1, parrot-2" in err
    printed = ok("fit", tmp_path / "a.parquet", "-o", tmp_path / "models", "--by", "model", "--partition", "kdtree:1")
    assert "model parrot-2: " in printed
    assert "(MarginBinning)." in printed
    ok("apply", tmp_path / "models", tmp_path / "a.parquet", "-o", tmp_path / "out.parquet")
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert out["id"].to_list() == [row["id"] for row in rows]
    found = json.loads(
        ok("evaluate", tmp_path / "a.parquet", "--model", tmp_path / "models", "--by", "model", "--json")
    )
    assert set(found) == {"parrot-1", "parrot-2"}
    assert "parrot-2: 2 groups" in ok("groups", tmp_path / "models")
    pl.DataFrame(answers(5, llm="parrot-3")).write_parquet(tmp_path / "b.parquet")
    code, _, err = run("apply", tmp_path / "models", tmp_path / "b.parquet")
    assert code == 1
    assert "row 1: model is 'parrot-3', and there are models for parrot-1, parrot-2" in err
    pl.DataFrame([*answers(5, llm="parrot-3"), *answers(7, seed=8)]).write_parquet(tmp_path / "b.parquet")
    skip = ("--skip-bad-rows", tmp_path / "left_out.jsonl")
    skip = (*skip, "--max-bad", "0.5")
    code, out, err = run("apply", tmp_path / "models", tmp_path / "b.parquet", "-o", tmp_path / "b.jsonl", *skip)
    assert code == 0
    assert "5 of 12 rows (42%)\n  5: model without a model" in err
    out = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [row["calibrated"] is None for row in out] == 5 * [True] + 7 * [False]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_embed_makes_vectors_once(tmp_path, kind):
    pl.DataFrame(answers(sized(2000))).write_parquet(tmp_path / "answers.parquet")
    pl.DataFrame(answers(sized(1000), seed=1)).write_parquet(tmp_path / "new.parquet")
    ok("embed", tmp_path / "answers.parquet", "-o", tmp_path / f"embedded.{kind}")
    ok("embed", tmp_path / "new.parquet", "-o", tmp_path / f"new_embedded.{kind}")
    tree = ("--partition", "bisecting:3")
    ok("fit", tmp_path / f"embedded.{kind}", "-o", tmp_path / "model", *tree, "--embedder", "column:embedding")
    ok("fit", tmp_path / "answers.parquet", "-o", tmp_path / "direct", *tree)
    out = ok("apply", tmp_path / "model", tmp_path / f"new_embedded.{kind}", "-o", tmp_path / "out.jsonl")
    ok("apply", tmp_path / "direct", tmp_path / "new.parquet", "-o", tmp_path / "direct.jsonl")
    found, direct = (
        [json.loads(line)["calibrated"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("out.jsonl", "direct.jsonl")
    )
    assert out == ""
    # The files are read in batches of different sizes, and matrix products of different sizes may round differently.
    assert found == pytest.approx(direct, rel=0, abs=1e-12)


def test_plan():
    assert json.loads(ok("plan", "--epsilon", "0.1", "--rows", "5000", "--json"))["points_per_bin"] == 293
    assert json.loads(ok("plan", "--points-per-bin", "293", "--rows", "5000", "--json"))["epsilon"] < 0.1
    assert "353" in ok("plan")
    code, _, err = run("plan", "--epsilon", "0.01", "--rows", "500")
    assert code == 1
    assert "500 rows cannot guarantee epsilon=0.01" in err


def test_export_of_the_select_that_makes_a_tally():
    options = ("--group", "subject", "--group", "tenant", "--id", "question_id", "--weight", "w", "--resolution", "0.1")
    asked = {"groups": ["subject", "tenant"], "ids": "question_id", "sample_weight": "w", "resolution": 0.1}
    printed = ok("export", "--tally", "logs", "--dialect", "spark", "--correct", "right", *options)
    assert printed == Tally.sql("logs", dialect="spark", correct="right", **asked) + "\n"
    for arguments, message in [
        (["--tally", "logs"], "--tally needs --dialect"),
        (["model", "--tally", "logs", "--dialect", "duckdb"], "give either a model, or --tally TABLE"),
        (["--dialect", "duckdb"], "give either a model, or --tally TABLE"),
        (["--tally", "logs", "--dialect", "mysql"], "expected one of bigquery, duckdb"),
    ]:
        code, out, err = run("export", *arguments)
        assert (code, out) == (1, "")
        assert message in err


def test_export(folder, tmp_path):
    ok("fit", folder / "answers.parquet", "-o", tmp_path / "model", "--calibrator", "tree-binning")
    assert ok("export", tmp_path / "model", "--dialect", "postgres").startswith("CAST(CASE")
    assert json.loads(ok("export", tmp_path / "model"))
    code, _, err = run("export", tmp_path / "model", "--group", "a", "--group", "b")
    assert code == 1
    assert "a model has one column of groups" in err
    ok(
        "fit",
        folder / "answers.parquet",
        "-o",
        tmp_path / "kd",
        "--calibrator",
        "tree-scaling",
        "--partition",
        "kdtree:2",
    )
    # The column of the model's own groups is the one in the SQL, unless another is named.
    own = ("--calibrator", "tree-scaling", "--partition", "column:topic")
    ok("fit", folder / "answers.parquet", "-o", tmp_path / "own", *own)
    assert '"topic" = ' in (printed := ok("export", tmp_path / "own", "--dialect", "postgres"))
    assert ok("export", tmp_path / "own", "--dialect", "postgres", "--group", "x") == printed.replace('"topic"', '"x"')
    code, out, err = run("export", tmp_path / "kd")
    assert "outside of all boxes of a kd-tree" in json.loads(out)["rules"][2]
    assert "For rows without a group, qacal apply uses the curve of the smallest box" in err
    code, out, err = run("export", folder / "model")
    assert (code, out) == (1, "")
    assert "learned from text" in err


def test_an_invalid_second_confidence_is_a_bad_row(tmp_path):
    rows = [{**row, "tokens": str(0.5 + 0.3 * row["correct"] - at % 7 / 20)} for at, row in enumerate(answers(400))]
    rows[7]["tokens"], rows[9]["tokens"] = "N/A", ""
    pl.DataFrame(rows).write_csv(tmp_path / "a.csv")
    fit = ("fit", tmp_path / "a.csv", "-o", tmp_path / "model", "--feature", "tokens:confidence")
    code, _, err = run(*fit)
    assert code == 1
    assert "line 9: tokens is 'N/A'; expected 0 to 1" in err
    ok(*fit, "--skip-bad-rows", tmp_path / "bad.csv")
    assert len((tmp_path / "bad.csv").read_text().splitlines()) == 1
    out = run(
        "apply", tmp_path / "model", tmp_path / "a.csv", "-o", tmp_path / "o.csv", "--skip-bad-rows", tmp_path / "b"
    )
    assert out[0] == 0
    assert pl.read_csv(tmp_path / "o.csv")["calibrated"].null_count() == 1
    pl.DataFrame([{**row, "tokens": "50"} for row in rows]).write_csv(tmp_path / "percents.csv")
    code, _, err = run("apply", tmp_path / "model", tmp_path / "percents.csv", "-o", tmp_path / "o.csv")
    assert "divide them by 100" in err


def test_wrong_use_has_its_own_exit_code(folder):
    for arguments in (
        ("fit", "x.csv"),
        ("fit", "x.csv", "-o", "m", "--calibrator", "magic"),
        ("fit", "x.csv", "-o", "m", "--partition", "magic:3"),
        ("fit", "x.csv", "-o", "m", "--alpha", "2"),
        ("fit", "x.csv", "-o", "m", "--tune", "fame"),
        ("fit", "x.csv", "-o", "m", "--points-per-bin", "50"),
        ("fit", "x.csv", "-o", "m", "--continuous", "--train-share", "0.3"),
        ("fit", "x.csv", "-o", "m", "--continuous", "--calibrator", "qa-binning"),
        ("apply", folder / "model", "x.csv", "-o", "out.csv", "--skip-bad-rows", "out.csv"),
        ("apply", folder / "model", "x.csv", "--column", "confidence"),
        ("plan", "--epsilon", "0.1", "--points-per-bin", "3"),
        ("dance",),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), arguments
        assert "Error" in err


def test_an_unknown_role_of_a_column():
    code, _, err = run("fit", "x.csv", "-o", "m", "--column", "prompt_text=question")
    assert code == 2
    said = "there is no column prompt_text to map; expected one of id, question, answer"
    assert said in err
    assert "Did you mean question=prompt_text?" in " ".join(err.split())


def test_bad_input_says_what_and_where(folder, tmp_path):
    (tmp_path / "model").mkdir()
    for arguments, said in (
        (("apply", folder / "model", tmp_path / "no.csv"), "no.csv does not exist"),
        (("apply", folder / "model", tmp_path / "a.xlsx"), "cannot tell the format"),
        (("apply", tmp_path / "model", folder / "new.parquet"), "is no model: the folder is empty"),
        (("apply", tmp_path / "no", folder / "new.parquet"), "no does not exist; a model is a folder that"),
        (("groups", folder / "new.parquet"), "new.parquet is not a folder; a model is a folder"),
        (("apply", folder / "model", folder / "new.parquet", "-o", tmp_path / "no" / "out.csv"), "does not exist"),
        (("evaluate", folder / "new.parquet", "--groups", "colour"), "no column 'colour'"),
        (("fit", folder / "new.parquet", "-o", tmp_path / "m", "--embedder", "magic"), "magic"),
        (("fit", folder / "new.parquet", "-o", folder / "answers.parquet"), "answers.parquet"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (1, ""), arguments
        assert said in err
        assert "Traceback" not in err


def test_help_is_quick_because_it_loads_nothing_heavy():
    program = (
        "import sys\nsys.argv = ['qacal', '--help']\nfrom qacal.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'polars', 'narwhals', 'onnxruntime', 'tokenizers'}\n"
        "heavy |= {'matplotlib', 'jinja2'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "qacal fit train.parquet -o model" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(folder, tmp_path, number):
    lines = (folder / "new.jsonl").read_text() * 200
    (tmp_path / "many.jsonl").write_text(lines)
    program = [sys.executable, "-c", "from qacal.cli.main import main; main()"]
    command = [*program, "apply", folder / "model", tmp_path / "many.jsonl", "-o", tmp_path / "out.jsonl"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        while len(list(tmp_path.iterdir())) < 2 and running.poll() is None:
            time.sleep(0.01)  # until the output has been started
        running.send_signal(number)
        said = running.stderr.read()
    assert running.returncode == 128 + number
    assert said == "Stopped.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["many.jsonl"]


def test_warnings_are_sentences(tmp_path):
    rows = [{**row, "id": f"q{number // 2}"} for number, row in enumerate(answers(400))]
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    command = [Path(sys.executable).with_name("qacal"), "fit", tmp_path / "a.parquet", "-o", tmp_path / "model"]
    command += ["--calibrator", "tree-binning"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Note: some ids have several rows" in done.stderr
    assert ".py:" not in done.stderr


def test_control_characters_in_files_do_not_reach_the_terminal(tmp_path):
    """They are escaped in names of groups and LLMs and in values in errors."""
    bad = "law\x1b[2J\x9b[/]"
    rows = [{**row, "subject": bad, "model": bad} for row in answers(300)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = ("fit", tmp_path / "a.jsonl", "-o", tmp_path / "model", "--partition", "column:subject", "--by", "model")
    said = [run(*model), run("groups", tmp_path / "model"), run("groups", tmp_path / "model", "--json")]
    said.append(run("evaluate", tmp_path / "a.jsonl", "--model", tmp_path / "model", "--by", "model"))
    said.append(run("explain", tmp_path / "model", *("--question", "a", "--answer", "b", "--confidence", "0.5")))
    rows[0]["confidence"] = bad
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said.append(run("apply", tmp_path / "model", tmp_path / "a.jsonl"))
    assert [code for code, *_ in said] == [0, 0, 0, 0, 2, 1]
    for _, out, err in said:
        assert "\x1b" not in out + err
        assert "\x9b" not in out + err
    assert r"law\x1b[2J\x9b[/]" in said[1][1]
    assert bad in json.loads(said[2][1])


def test_a_warning_and_an_error_in_python_are_printable():
    assert str(InputError("got \x1b[31m")) == r"got \x1b[31m"
    assert str(QacalWarning("got \u202e")) == r"got \u202e"


def test_each_other_source_is_allowed_by_its_own_name(tmp_path):
    rows = [{**row, "judge": "people"} for row in answers(300)]
    for name, others in (("fit", {}), ("judge", {"judge": "gpt"}), ("model", {"judge": "gpt", "model": "parrot-2"})):
        pl.DataFrame([row | others for row in rows]).write_parquet(tmp_path / f"{name}.parquet")
    ok("fit", tmp_path / "fit.parquet", "-o", tmp_path / "model", "--partition", "column:topic")
    apply = ("apply", tmp_path / "model", "-o", tmp_path / "out.parquet")
    ok(*apply, tmp_path / "judge.parquet")
    (tmp_path / "out.parquet").unlink()
    for accepted in (
        [],
        ["--allow-other-source", "judge"],
        ["--allow-other-source", "judge", "--allow-other-source", "prompt"],
    ):
        code, _, err = run(*apply, tmp_path / "model.parquet", *accepted)
        assert code == 1
        assert "model is 'parrot-2'" in err
        assert "--allow-other-source model" in " ".join(err.split())
        assert not (tmp_path / "out.parquet").exists()
    ok(*apply, tmp_path / "model.parquet", "--allow-other-source", "model")
    assert pl.read_parquet(tmp_path / "out.parquet")["calibrated"].null_count() == 0
    # Labels are read here, so the judge matters.
    evaluate = ("evaluate", tmp_path / "model.parquet", "--model", tmp_path / "model", "--allow-other-source", "model")
    code, _, err = run(*evaluate)
    assert code == 1
    assert "judge is 'gpt'" in err
    ok(*evaluate, "--allow-other-source", "judge")
