"""The page of an experiment: tables of every block, and figures of a model with settings that the run chose."""

import polars as pl
import pytest

from qacal import run_experiment
from qacal.report.experiment_page import experiment_page, showcase
from tests.experiment.rows import vectors_and_labels


def run(partition="kdtree:3", rows=800, **options):
    chosen = {"embedders": ["column:embedding"], "partitions": [partition], "seeds": 2, **options}
    return run_experiment(vectors_and_labels(rows), **chosen)


@pytest.mark.parametrize("partition", ["kdtree:3", "bisecting:2", "kmeans:4", "column:kind"])
def test_the_model_shown_has_the_settings_of_the_first_seed(partition):
    found = run(partition)
    method, model, test = showcase(found, ())
    line = found.results.filter(pl.col("method") == method, pl.col("seed") == 0).row(0, named=True)
    means = found.results.group_by("method").agg(pl.col("tuning").mean())
    others = means.filter(pl.col("method").is_in(["QAB", "HS-QAB", "S-QAB"]))
    assert others.filter(pl.col("method") == method)["tuning"][0] == others["tuning"].min()
    assert model.calibrator_.points_per_bin == line["points_per_bin"]
    assert getattr(model.calibrator_, "max_depth", None) == (
        line["depth"] if ":2" in partition or ":3" in partition else None
    )
    assert len(test) == pytest.approx(80, abs=30)
    out = model.calibrate(test)
    assert out["calibrated"].is_between(0, 1).all()


def test_no_row_of_the_figures_was_fitted_on():
    _, model, test = showcase(run(), ())
    assert not model.fit_record_.known(test["id"].to_numpy())


@pytest.mark.usefixtures("undrawn_unless_full")
def test_the_page_has_tables_and_figures_of_every_block():
    rows = pl.concat([vectors_and_labels(600, 1, "parrot-1"), vectors_and_labels(600, 2, "parrot <2>")])
    found = run_experiment(
        rows, by=["model"], label="kind", embedders=["column:embedding"], partitions=["kdtree:2"], seeds=2
    )
    page = experiment_page(found, "Two LLMs")
    assert page.count("<article") == 2
    assert "parrot &lt;2&gt;" in page
    assert page.count(">HS\N{NON-BREAKING HYPHEN}QAB<") == 3
    assert "CE by kind debiased" in page
    assert ">log loss, cut at 2.2e-16<" in page  # the other log losses of the page are cut at 0.001
    assert page == experiment_page(found, "Two LLMs")


@pytest.mark.usefixtures("undrawn")
def test_one_block_needs_no_table_over_all():
    page = experiment_page(run(), "One")
    assert "All blocks" not in page
    assert "All methods" in page


@pytest.mark.usefixtures("undrawn")
def test_every_beta_has_its_table():
    page = experiment_page(run(partitions=["kdtree:2", "kmeans:4"]), "Two betas")
    assert "All methods: column:embedding, kdtree:2" in page
    assert "All methods: column:embedding, kmeans:4" in page
