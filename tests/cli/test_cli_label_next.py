"""`qacal label-next`: the rows to label, and what comes next."""

import json

import polars as pl

from tests.cli.test_cli import ok, run
from tests.model.test_labelling import answers, fitted


def test_the_drawn_rows_can_be_labelled_and_evaluated(tmp_path):
    model, new, drawn = tmp_path / "model", tmp_path / "new.jsonl", tmp_path / "to_label.jsonl"
    fitted().save(model)
    rows = pl.DataFrame(answers(1000, 1000))
    rows.drop("correct").write_ndjson(new)
    code, out, said = run("label-next", model, new, "-n", 80, "-o", drawn, "--allow-other-source", "prompt")
    assert (code, out) == (0, "")
    assert "80 rows written to" in said
    assert "Add a column correct (0 or 1) to all of them, and then:" in " ".join(said.split())
    assert f"\n    qacal evaluate {drawn} --model {model} --allow-other-source prompt\n" in said
    frame = pl.read_ndjson(drawn)
    assert frame.columns == ["id", "subject", "confidence", "stratum", "label_probability"]
    frame.join(rows.select("id", "correct"), on="id").write_ndjson(tmp_path / "labelled.jsonl")
    assert "80" in ok("evaluate", tmp_path / "labelled.jsonl", "--model", model)


def test_json_and_the_format_of_the_input(tmp_path):
    model, new = tmp_path / "model", tmp_path / "new.csv"
    fitted().save(model)
    pl.DataFrame(answers(1000, 100)).drop("correct").write_csv(new)
    said = json.loads(ok("label-next", model, new, "-n", 10, "-o", tmp_path / "out.csv", "--json"))
    assert said == {"file": str(tmp_path / "out.csv"), "rows": 10, "seed": 0}
    assert len(pl.read_csv(tmp_path / "out.csv")) == 10
    lines = run("label-next", model, "-", "-n", 5, stdin=new.read_bytes())[1].splitlines()
    assert len(lines) == 6


def test_too_many_rows_leave_no_file(tmp_path):
    model, new, drawn = tmp_path / "model", tmp_path / "new.jsonl", tmp_path / "to_label.jsonl"
    fitted().save(model)
    pl.DataFrame(answers(1000, 20)).write_ndjson(new)
    code, _, said = run("label-next", model, new, "-o", drawn)
    assert code == 1
    assert "Label all of them, or fewer." in said
    assert not drawn.exists()


def test_bad_rows_are_not_drawn(tmp_path):
    """All good rows are drawn, so that one row in the wrong place would show."""
    model, new, drawn = tmp_path / "model", tmp_path / "new.jsonl", tmp_path / "to_label.jsonl"
    fitted().save(model)
    rows = [
        {**row, "confidence": 7.0 if at % 3 == 0 else row["confidence"]} for at, row in enumerate(answers(1000, 30))
    ]
    pl.DataFrame(rows).drop("correct").write_ndjson(new)
    options = ("--skip-bad-rows", tmp_path / "bad.jsonl", "--max-bad", 0.5)
    code, _, said = run("label-next", model, new, "-n", 20, "-o", drawn, *options)
    assert code == 0, said
    assert pl.read_ndjson(drawn)["id"].to_list() == [row["id"] for row in rows if row["confidence"] < 1]
    assert len(pl.read_ndjson(tmp_path / "bad.jsonl")) == 10
