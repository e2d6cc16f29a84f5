import json

import numpy as np
import polars as pl
import pytest

import qacal
from qacal import Column, InputError, QABinning, QACalibrator
from qacal.model.model_set import ModelSet, fit_set
from tests.cli.test_cli import ok, run


def extractions(first, documents, seed=0):
    """Return fields of invoices: the sum is often wrong, and all fields of a bad scan are."""
    rng = np.random.default_rng(seed)
    return [
        {
            "id": f"invoice {first + document}",
            "field": field,
            "confidence": float(rng.choice([0.8, 0.9])),
            "correct": bool(rng.random() < 0.9 * accuracy * is_sharp + 0.05),
        }
        for document in range(documents)
        for is_sharp in [rng.random() < 0.9]
        for field, accuracy in (("name", 1.0), ("date", 0.9), ("sum", 0.5))
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("documents")
    model = QACalibrator(partition=Column("field"), calibrator=QABinning(ties="merge"), learned_score=None)
    with pytest.warns(qacal.RepeatedQuestionsWarning):
        model.fit(extractions(0, 300))
    model.save(path / "model")
    pl.DataFrame(extractions(300, 120, 1)).write_csv(path / "labelled.csv")
    pl.DataFrame(extractions(420, 40, 2)).drop("correct").write_ndjson(path / "new.jsonl")
    return path


def test_each_document_has_its_share(folder, tmp_path):
    out = tmp_path / "documents.csv"
    _, _, said = run("documents", folder / "model", folder / "labelled.csv", folder / "new.jsonl", "-o", out)
    frame = pl.read_csv(out)
    assert frame.columns == ["id", "rows", "expected", "low", "high"]
    assert frame["id"].to_list() == [f"invoice {at}" for at in range(420, 460)]
    assert frame["rows"].to_list() == [3] * 40
    assert ((frame["low"] <= frame["high"]) & (frame["low"] >= 0) & (frame["high"] <= 1)).all()
    words = " ".join(said.split())
    assert "40 documents written to" in words
    assert (
        "Intervals come from 120 labelled documents. Each contains the share of its document with probability 0.9."
        in words
    )
    share = pl.DataFrame(extractions(420, 40, 2)).group_by("id", maintain_order=True).agg(pl.col("correct").mean())
    assert ((frame["low"] - 1e-6 <= share["correct"]) & (share["correct"] <= frame["high"] + 1e-6)).sum() >= 32


def test_json_and_standard_output(folder, tmp_path):
    files = (folder / "model", folder / "labelled.csv", folder / "new.jsonl")
    content = json.loads(ok("documents", *files, "-o", tmp_path / "out.jsonl", "--json", "--alpha", "0.2"))
    assert (content["documents"], content["labelled"], content["alpha"]) == (40, 120, 0.2)
    lines = [json.loads(line) for line in ok("documents", *files).splitlines()]
    assert lines[0]["id"] == "invoice 420"


def test_documents_that_must_not_be_used_are_refused(folder):
    model, labelled = qacal.load(folder / "model"), extractions(300, 120, 1)
    with pytest.raises(InputError, match=r"fitted on some of these questions.*; intervals need other documents"):
        qacal.describe_documents(model, extractions(0, 300), extractions(420, 5))
    with pytest.raises(InputError, match="5 documents are labelled, and also among those to describe"):
        qacal.describe_documents(model, labelled, labelled[:15])
    nameless = [{name: row[name] for name in ("field", "confidence", "correct")} for row in labelled]
    with pytest.raises(InputError, match="both files need a column id"):
        qacal.describe_documents(model, nameless, nameless)
    assert "alpha is 3.0" in run("documents", folder / "model", "a.csv", "b.csv", "--alpha", "3")[2]


def test_documents_that_are_labelled_in_part_are_left_out(folder):
    """Only the easy fields have labels in 20 documents; their shares say nothing about whole documents."""
    model, new = qacal.load(folder / "model"), extractions(420, 5, 2)
    partly = [row if row["field"] == "name" else {**row, "correct": None} for row in extractions(300, 20, 1)]
    with pytest.warns(qacal.QacalWarning) as caught:
        found = qacal.describe_documents(model, partly + extractions(320, 100, 3), new)
    assert [str(one.message)[:62] for one in caught] == [
        "records: 40 of 360 rows have no label and are not used.",
        "labelled documents of which some rows have no label: 20. They ",
    ]
    assert found.equals(qacal.describe_documents(model, extractions(320, 100, 3), new))


def by_llm(rows, llm):
    return [
        {**row, "model": llm, "correct": row["correct"] and (llm == "sharp" or row["field"] != "date")} for row in rows
    ]


@pytest.fixture(scope="module")
def models():
    like = QACalibrator(partition=Column("field"), calibrator=QABinning(ties="merge"), learned_score=None)
    rows = [*by_llm(extractions(0, 300), "sharp"), *by_llm(extractions(0, 300, 3), "blunt")]
    with pytest.warns(qacal.RepeatedQuestionsWarning):
        return fit_set(like, rows, "model")


def test_each_model_of_a_set_describes_its_own_documents(models, tmp_path):
    """Both LLMs read the same invoices: two documents for each id, each with intervals of its own model."""
    labelled = {llm: by_llm(extractions(300, 120, seed), llm) for seed, llm in enumerate(("sharp", "blunt"), 4)}
    new = {llm: by_llm(extractions(420, 20, seed), llm) for seed, llm in enumerate(("sharp", "blunt"), 6)}
    all_new = [row for pair in zip(new["blunt"], new["sharp"], strict=True) for row in pair]
    frame = qacal.describe_documents(models, labelled["sharp"] + labelled["blunt"], all_new)
    assert frame.columns == ["id", "model", "rows", "expected", "low", "high"]
    assert frame.select("id", "model").head(3).rows() == [
        *(("invoice 420", llm) for llm in ("blunt", "sharp")),
        ("invoice 421", "blunt"),
    ]
    for llm, model in models.models.items():
        alone = qacal.describe_documents(model, labelled[llm], new[llm])
        assert frame.filter(pl.col("model") == llm).drop("model").equals(alone)

    models.save(tmp_path / "models")
    pl.DataFrame(labelled["sharp"] + labelled["blunt"]).write_csv(tmp_path / "labelled.csv")
    pl.DataFrame(all_new).write_csv(tmp_path / "new.csv")
    files = (tmp_path / "models", tmp_path / "labelled.csv", tmp_path / "new.csv")
    _, _, said = run("documents", *files, "-o", tmp_path / "documents.csv")
    assert pl.read_csv(tmp_path / "documents.csv")["model"].to_list() == ["blunt", "sharp"] * 20
    assert "Intervals come from 240 labelled documents." in " ".join(said.split())


def test_a_set_by_a_column_of_the_result_is_refused(models):
    model = models.models["sharp"]
    with pytest.raises(InputError, match="chosen by the column 'low', and the result has a column of that name"):
        qacal.describe_documents(ModelSet("low", {"sharp": model}), [], [])


def test_a_model_of_a_set_without_labelled_documents_is_named(models):
    labelled, new = by_llm(extractions(300, 120, 4), "sharp"), by_llm(extractions(420, 5, 6), "blunt")
    with pytest.raises(InputError, match=r"^model blunt: there is no labelled document"):
        qacal.describe_documents(models, labelled, new)
