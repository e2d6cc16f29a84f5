"""`qacal check`: what it prints, and with which exit code; the line to paste works as printed."""

import gzip
import json
import shlex

from tests.checking.rows import as_csv, changed, labelled, renamed
from tests.cli.test_cli import ok, run


def test_exit_codes(tmp_path):
    assert run("check", as_csv(tmp_path / "a.csv", labelled()))[0] == 0
    code, out, _ = run("check", as_csv(tmp_path / "b.csv", renamed(labelled(), answer="model_answer")))
    assert (code, "answer seems to be 'model_answer'" in out) == (2, True)
    code, out, err = run("check", tmp_path / "no.csv")
    assert (code, out) == (1, "")
    assert "does not exist" in err


def test_the_exit_code_of_a_file_that_cannot_be_read_to_its_end(tmp_path):
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in labelled()).encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 and nothing else")
    (tmp_path / "wide.csv").write_bytes("question,answer\n".encode("utf-16"))
    for name in ("cut.jsonl.gz", "junk.parquet", "wide.csv"):
        code, out, _ = run("check", tmp_path / name)
        assert (code, "It cannot be read" in out) == (1, True)


def pasted(out):
    return out.partition("Next:\n")[2].partition("\n\n")[0].replace("\\\n", "").splitlines()


def test_the_line_to_paste_fits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = renamed(labelled(), question="prompt", answer="the answer", confidence="conf", correct="is_correct")
    rows = changed(rows, "conf", lambda c: round(100 * c))
    rows = [{**row, "llm": "a" if i % 2 else "b"} for i, row in enumerate(rows)]
    rows[3]["conf"] = "perhaps"
    as_csv(tmp_path / "my answers.csv", rows)
    code, out, _ = run("check", "my answers.csv")
    assert code == 2
    split, fit = (shlex.split(line) for line in pasted(out))
    assert split == shlex.split(
        "qacal split 'my answers.csv' -o train.csv --rest test.csv --column question=prompt"
        " --skip-bad-rows bad_split.jsonl"
    )
    assert fit[:3] == ["qacal", "fit", "train.csv"]
    assert "--by" in fit
    ok(*split[1:])
    code, printed, next_lines = run(*fit[1:])
    assert (code, "model a: " in printed) == (0, True)
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 1
    evaluate = shlex.split(next(line for line in next_lines.splitlines() if "qacal evaluate" in line))
    assert "model a: " in ok(*evaluate[1:])
    again = pasted(run("check", "my answers.csv")[1])  # the parts of the first split are not overwritten
    assert "qacal split 'my answers.csv' -o 'my answers_train.csv' --rest 'my answers_test.csv'" in again[0]
    assert shlex.split(again[1])[:3] == ["qacal", "fit", "my answers_train.csv"]
    assert [line.split()[1] for line in pasted(run("check", "train.csv", "--column", "question=prompt")[1])] == ["fit"]


def test_bad_rows_get_their_own_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = labelled()
    rows[3]["confidence"] = 85
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = run("check", "bad.jsonl")[1]
    assert "skip them: --skip-bad-rows bad_2.jsonl" in out
    assert "qacal fit train.jsonl -o model --skip-bad-rows bad_2.jsonl" in out


def test_lines_are_broken_after_hints_for_python_are_removed(tmp_path):
    rows = [{name: row[name] for name in ("question", "answer", "confidence")} for row in labelled()]
    out = run("check", as_csv(tmp_path / "a.csv", rows))[1]
    assert "Python" not in out
    assert "pass --column correct=NAME. The columns" in " ".join(out.split())


def test_json(tmp_path):
    code, out, _ = run("check", as_csv(tmp_path / "a.csv", changed(labelled(), "confidence", lambda c: 80)), "--json")
    told = json.loads(out)
    assert code == 2
    assert told["is_fine"] is False
    assert [finding["kind"] for finding in told["findings"]] == ["percents", "constant_confidences"]
    assert told["auroc"] is None
    assert told["goals"][0]["labels"] == 300


def test_standard_input():
    lines = "".join(json.dumps(row) + "\n" for row in labelled()).encode()
    code, out, _ = run("check", "-", stdin=lines)
    assert (code, out.startswith("standard input: 600 rows")) == (0, True)
    code, _, err = run("check", "-", stdin=b"")
    assert (code, "is empty" in err) == (1, True)
