"""`qacal experiment` as a person uses it."""

import polars as pl
import pytest

from qacal import load
from tests.answers import answers
from tests.cli.test_cli import ok, run
from tests.experiment.rows import vectors_and_labels

# Figures are tested with the report.
pytestmark = pytest.mark.usefixtures("undrawn")

QUICK = ("--embedder", "column:embedding", "--partition", "kdtree:2", "--seeds", "2")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiment") / "answers.parquet"
    pl.concat([vectors_and_labels(600, 1, "parrot-1"), vectors_and_labels(600, 2, "parrot-2")]).write_parquet(path)
    return path


def test_tables_on_the_screen_and_in_files(file, tmp_path):
    out = tmp_path / "results"
    code, printed, said = run("experiment", file, "--output", out, "--by", "model", "--group-column", "kind", *QUICK)
    assert code == 0, said
    assert "parrot-1" in printed
    assert "CE by kind debiased" in printed
    assert "HS-QAB" in printed
    assert "guarantee an error of" in said
    assert f"Written to {out}" in said
    # Two blocks, and the mean over both.
    assert (out / "results.md").read_text().count("| QA-Iso |") == 3
    page = (out / "report.html").read_text()
    assert page.count("<h3>All methods</h3>") == 2
    assert "All blocks" in page
    assert "The figures show" in page
    assert pl.read_parquet(out / "results.parquet")["seed"].n_unique() == 2


def test_from_text(tmp_path):
    """Without ids, the question identifies a row; different questions are not copies."""
    pl.DataFrame(answers(800)).drop("id").write_parquet(tmp_path / "answers.parquet")
    code, printed, said = run("experiment", tmp_path / "answers.parquet", "--output", tmp_path / "out", "--seeds", "1")
    assert code == 0, said
    assert "QAB" in printed
    assert "copies" not in said


def test_four_betas_in_one_command(file, tmp_path):
    two = ("--embedder", "column:embedding,column:other", "--partition", "kdtree,kmeans")
    ok("experiment", file, "--output", tmp_path / "out", *two, "--seeds", "1", "--by", "model")
    found = pl.read_parquet(tmp_path / "out" / "results.parquet")
    assert sorted(found.select("beta_emb", "beta_bin").unique().rows()) == [
        ("column:embedding", "kdtree"), ("column:embedding", "kmeans"),
        ("column:other", "kdtree"), ("column:other", "kmeans"),
    ]  # fmt: skip


def test_the_papers_own_choices(file, tmp_path):
    """Raw coordinates and randomised ties can be spelled, in `experiment` and in `fit`."""
    paper = ("--partition", "kdtree:2:coordinate", "--ties", "jitter")
    one = tmp_path / "one.parquet"
    pl.read_parquet(file).filter(pl.col("model") == "parrot-1").write_parquet(one)
    ok("experiment", one, "--output", tmp_path / "out", *QUICK[:2], *paper, "--objective", "auac", "--seeds", "1")
    found = pl.read_parquet(tmp_path / "out" / "results.parquet")
    assert found["beta_bin"].unique().to_list() == ["kdtree:2:coordinate"]
    fit = ("fit", one, "-o", tmp_path / "model", *QUICK[:2], *paper)
    ok(*fit, "--calibrator", "qa-binning", "--points-per-bin", "40")
    model = load(tmp_path / "model")
    assert (model.partition_.axes, model.partition_.fitted_.axes) == ("coordinate", None)
    assert model.calibrator_.maps_.is_jittered
    for extra, said in (
        ((), "margin-binning does not divide equal confidences; leave out --ties"),
        (("--calibrator", "step-binning"), "step-binning does not divide equal confidences; leave out --ties"),
        (("--calibrator", "isotonic-calibration"), "isotonic-calibration does not divide equal confidences"),
        (("--continuous",), "leave out --calibrator, --ties, --within and --bands"),
        (("--ties", "random"), "--ties is 'random'; expected one of merge, jitter"),
    ):
        code, _, error = run(*fit, *extra)
        assert code == 2
        assert said in " ".join(error.split())


def test_wrong_use_and_bad_input_leave_nothing(file, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("dear")
    for arguments, code, said in (
        (("--partition", "magic"), 2, "names no partition"),
        (("--by", "model,colour"), 1, "no column 'colour'"),
        (("--group-column", "id", "--by", "model"), 1, "no block can be run"),
        (("--objective", "fame", "--by", "model"), 2, "--objective is 'fame'; expected one of log-loss, brier, auac"),
        (("--search", "deep", "--by", "model"), 2, "--search is 'deep'; expected one of auto, paper, wide"),
        ((), 1, "several LLMs"),
    ):
        got, printed, error = run(
            "experiment", file, "--output", tmp_path / "out", *QUICK[:2], "--seeds", "1", *arguments
        )
        assert (got, printed) == (code, ""), arguments
        assert said in " ".join(error.split())
        assert "Traceback" not in error
    code, _, error = run("experiment", file, "--output", tmp_path / "mine", "--by", "model")
    assert code == 1
    assert "holds files that are not results of an experiment (thesis.tex)" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]
