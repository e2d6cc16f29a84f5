"""`qacal split`: two files that share no question, with unchanged rows and columns, both written or neither."""

import csv
import json
from datetime import date

import polars as pl
import pytest

from qacal import load
from qacal.records.reading import Reading, read
from qacal.records.table import as_table
from qacal.records.writers import write_pair
from tests.answers import answers
from tests.checking.rows import as_csv
from tests.cli.test_cli import ok, run


@pytest.fixture(scope="module")
def rows():
    """Two answers to each of a thousand questions, with an id."""
    again = [row | {"answer": "another", "confidence": 0.5} for row in answers(1000)]
    return pl.DataFrame([*answers(1000), *again])


def split(folder, name, *options, ending="parquet"):
    one, two = (folder / f"{part}.{ending}" for part in ("fit", "kept"))
    code, out, err = run("split", folder / name, "-o", one, "--rest", two, *options)
    assert (code, out) == (0, ""), err
    return one, two, err


def test_the_rows_of_a_question_stay_together_and_unchanged(tmp_path, rows):
    rows.write_parquet(tmp_path / "a.parquet")
    one, two, said = split(tmp_path, "a.parquet")
    fit, kept = pl.read_parquet(one), pl.read_parquet(two)
    assert not {*fit["id"]} & {*kept["id"]}
    assert fit.schema == kept.schema == rows.schema
    for part in (fit, kept):
        assert part.equals(rows.filter(pl.col("id").is_in(part["id"].to_list())))
    assert 0.6 < len(fit) / len(rows) < 0.8
    assert f"fit.parquet: {len(fit):,} rows of {len(fit) // 2:,} questions." in said
    assert f"kept.parquet: {len(kept):,} rows of {len(kept) // 2:,} questions." in said


def test_share_and_seed_are_those_of_the_library(tmp_path, rows):
    from qacal import split as deal

    rows.write_parquet(tmp_path / "a.parquet")
    one, _, _ = split(tmp_path, "a.parquet", "--share", "0.4", "--seed", "3")
    assert pl.read_parquet(one).equals(rows.filter(deal(rows["id"], (0.4, 0.6), seed=3) == 0))


@pytest.mark.parametrize("ending", ["jsonl", "csv", "csv.gz", "parquet"])
def test_any_format_and_the_question_in_place_of_a_missing_id(tmp_path, rows, ending):
    rows = rows.drop("id")
    lines = "".join(json.dumps(row) + "\n" for row in rows.iter_rows(named=True))
    (tmp_path / "a.jsonl").write_text(lines)
    rows.write_csv(tmp_path / "a.csv")
    one, two, _ = split(tmp_path, "a.csv" if "csv" in ending else "a.jsonl", ending=ending)
    read = {"jsonl": pl.read_ndjson, "parquet": pl.read_parquet}.get(ending, pl.read_csv)
    fit, kept = read(one), read(two)
    assert not {*fit["question"]} & {*kept["question"]}
    assert pl.concat([fit, kept]).sort(rows.columns).equals(rows.sort(rows.columns))
    if ending == "jsonl":
        assert sorted(f"{one.read_text()}{two.read_text()}".splitlines()) == sorted(lines.splitlines())


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_csv_keeps_its_separator_and_its_decimal_commas(tmp_path, separator):
    wanted = [
        {"question": f"What; is, {i}?", "answer": "x", "confidence": f"{50 + i},5", "correct": str(i % 2)}
        for i in range(40)
    ]
    as_csv(tmp_path / "all.csv", wanted, separator)
    one, two, _ = split(tmp_path, "all.csv", ending="csv")
    parts = [list(csv.DictReader(path.read_text().splitlines(), delimiter=separator)) for path in (one, two)]
    assert sorted(parts[0] + parts[1], key=lambda row: row["confidence"]) == wanted
    (batch,) = read(one, Reading(percent=True), needs_labels=True)
    assert batch.confidence.tolist() == [float(row["confidence"].replace(",", ".")) / 100 for row in parts[0]]


def test_labels_of_two_kinds_are_labels_in_parquet(tmp_path):
    lines = [{"id": at, "confidence": 0.5, "correct": at % 4 if at % 4 < 2 else at % 4 == 2} for at in range(80)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    one, two, _ = split(tmp_path, "a.jsonl")
    right = dict(pl.concat([pl.read_parquet(one), pl.read_parquet(two)]).select("id", "correct").iter_rows())
    assert right == {row["id"]: row["correct"] for row in lines}
    ok("evaluate", two)


def test_a_question_without_an_id_is_a_bad_row(tmp_path):
    """In CSV a missing value is an empty text; rows without an id would all be one question."""
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{at if at % 10 else ''},{at}\n" for at in range(1, 41)))
    arguments = ("split", tmp_path / "a.csv", "-o", tmp_path / "b.csv", "--rest", tmp_path / "c.csv")
    code, _, err = run(*arguments)
    assert code == 1
    assert "a.csv line 11: id is missing; expected text or a whole number. Fix the row" in err
    ok(*arguments, "--skip-bad-rows", tmp_path / "bad.jsonl")
    assert len(pl.concat([pl.read_csv(tmp_path / "b.csv"), pl.read_csv(tmp_path / "c.csv")])) == 36


def test_a_model_fitted_on_one_part_still_has_rows_to_certify(tmp_path, rows):
    """`fit` splits questions by hash, too; with the same hash, all its rows would be on one side."""
    rows.head(1000).write_parquet(tmp_path / "a.parquet")
    one, two, _ = split(tmp_path, "a.parquet")
    ok("fit", one, "-o", tmp_path / "model")
    model = load(tmp_path / "model")
    labelled = len(pl.read_parquet(one))
    assert 0.65 < model.rows_ / labelled < 0.75
    assert 0.85 < model.learned_score_.rows_ / labelled < 0.95
    code, _, err = run("evaluate", two, "--model", tmp_path / "model")
    assert (code, err) == (0, "")
    assert "fitted on some of these questions" in run("evaluate", one, "--model", tmp_path / "model")[2]


def test_other_names(tmp_path, rows):
    rows.rename({"id": "key", "question": "prompt"}).write_parquet(tmp_path / "a.parquet")
    one, two, _ = split(tmp_path, "a.parquet", "--column", "id=key")
    assert not {*pl.read_parquet(one)["key"]} & {*pl.read_parquet(two)["key"]}
    for options, said in (((), "no column 'question'"), (("--column", "id=nummer"), "--column id=nummer asks for")):
        code, _, err = run("split", tmp_path / "a.parquet", "-o", one, "--rest", two, *options)
        assert code == 1
        assert said in err


def test_a_bad_row_at_the_end_leaves_everything_as_it_was(tmp_path):
    lines = [json.dumps({"id": f"q{at}", "note": "x"}) for at in range(20_000)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"note": "whose?"}']))
    (tmp_path / "kept.jsonl").write_text("before\n")
    arguments = ("split", tmp_path / "a.jsonl", "-o", tmp_path / "fit.jsonl", "--rest", tmp_path / "kept.jsonl")
    code, _, err = run(*arguments)
    assert code == 1
    assert "a.jsonl line 20001: id is missing; expected text or a whole number. Fix the row" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "kept.jsonl"]
    assert (tmp_path / "kept.jsonl").read_text() == "before\n"
    ok(*arguments, "--skip-bad-rows", tmp_path / "bad.jsonl")
    assert json.loads((tmp_path / "bad.jsonl").read_text())["row"] == {"note": "whose?"}
    assert sum(len((tmp_path / name).read_text().splitlines()) for name in ("fit.jsonl", "kept.jsonl")) == 20_000


def test_both_files_are_complete_before_either_appears(tmp_path):
    """The second file fails: its batches have no common schema."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.parquet"
    with pytest.raises(pl.exceptions.PolarsError), write_pair(one, two) as (first, second):  # noqa: PT012
        first.write(as_table([{"x": 1}]))
        second.write(as_table(pl.DataFrame({"x": [True]})))
        second.write(as_table(pl.DataFrame({"x": [date(2026, 1, 1)]})))
    assert list(tmp_path.iterdir()) == []


def test_ids_in_some_rows_only_are_refused(tmp_path):
    lines = [json.dumps({"question": f"q{at}"}) for at in range(20_000)] + ['{"question": "q", "id": 7}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    code, _, err = run("split", tmp_path / "a.jsonl", "-o", tmp_path / "b.jsonl", "--rest", tmp_path / "c.jsonl")
    assert code == 1
    assert "only some rows have an id" in err
    assert not (tmp_path / "b.jsonl").exists()


def test_one_question_cannot_be_split(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\n1,2\n1,3\n")
    code, _, err = run("split", tmp_path / "a.csv", "-o", tmp_path / "b.csv", "--rest", tmp_path / "c.csv")
    assert code == 1
    assert "no question is left for" in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_part_of_a_split_needs_another_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{number},2\n" for number in range(100)))
    ok("split", "a.csv", "-o", "b.csv", "--rest", "c.csv")
    for file in ("b.csv", "c.csv"):
        code, _, err = run("split", file, "-o", "d.csv", "--rest", "e.csv")
        assert code == 1
        assert "all questions fall on one side, as in a file that an earlier split with this seed wrote; pass" in err
        ok("split", file, "-o", "d.csv", "--rest", "e.csv", "--seed", "1")
        for part in ("d.csv", "e.csv"):
            (tmp_path / part).unlink()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "b.csv", "--rest", "c.csv", "--share", "1"), "--share is 1"),
        (("-o", "b.csv", "--rest", "b.csv"), "named twice"),
        (("-o", "b.csv", "--rest", "-"), "two files are written"),
        (("-o", "b.parquet", "--rest", "c.csv"), "b.parquet would not have the same"),
    ],
)
def test_wrong_use(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id,x\n1,2\n2,3\n")
    code, out, err = run("split", "a.csv", *options)
    assert (code, out) == (2, "")
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
