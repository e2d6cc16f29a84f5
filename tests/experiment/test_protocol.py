"""The protocol compared with a slow version that fits every setting on the rows; what must not change its numbers."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from qacal import run_experiment, split
from qacal.experiment import METHODS
from qacal.experiment.groups import Beta, common_groups
from qacal.experiment.protocol import BETA, SHARES, Protocol, deal, methods
from qacal.experiment.sample import read_samples
from qacal.metrics import auac, aurc, brier_score, estimate_calibration_error, log_loss
from qacal.partitions import KDTree
from qacal.planning import search_ranges
from qacal.records.reading import Reading
from qacal.tally.groups import Paths
from qacal.tally.ids import id_hashes
from tests.experiment.rows import vectors_and_labels
from tests.sizes import FULL, full_only

USING_VECTORS = {"embedders": ["column:embedding"], "partitions": ["kdtree:3"]}


def run(rows, **options):
    return run_experiment(rows, **{**USING_VECTORS, "seeds": 2, **options})


def one_seed_by_hand(rows, seed, axes="principal", ties="merge", depth=3):
    """The slow version: four parts, a tree from the first, every (depth, b) fitted on rows, the best one tested."""
    h, y, Z = (np.array(rows[name].to_list(), dtype=float) for name in ("confidence", "correct", "embedding"))
    ids = id_hashes(rows["id"].to_list(), len(h))
    part = split(ids, SHARES, seed)
    paths = KDTree(max_depth=depth, axes=axes).fit(Z[part == BETA]).paths(Z)
    inside = {which: Paths(paths.path[part == which], paths.exit[part == which], depth) for which in range(4)}
    ranges = search_ranges(int((part == 1).sum()), [1, 2, 4, 8])
    assert ranges.bins_a_group is None
    out = {}
    for name, method in methods(ties).items():
        given = method.get_params()
        depths = range(depth + 1) if "max_depth" in given and method.properties.uses_groups else [None]
        points = ranges.points_per_bin if "points_per_bin" in given else [None]
        tried = []
        for d in depths:
            for b in points:
                chosen = {"max_depth": d, "points_per_bin": b}
                params = given | {key: value for key, value in chosen.items() if key in given}
                fitted = type(method)(**params).fit(h[part == 1], y[part == 1], groups=inside[1], ids=ids[part == 1])
                found = fitted.predict(h[part == 2], groups=inside[2], ids=ids[part == 2])
                tried.append((log_loss(y[part == 2], found), d, b, fitted))
        lowest = min(one[0] for one in tried)
        _, d, b, best = next(one for one in tried if one[0] <= lowest + 1e-12)
        out[name] = (d, b, best.predict(h[part == 3], groups=inside[3], ids=ids[part == 3]), y[part == 3])
    return out


@pytest.mark.parametrize(
    ("partition", "twin"),
    [
        ("kdtree:3", {}),
        ("kdtree:3:coordinate", {"axes": "coordinate", "ties": "jitter"}),
        pytest.param(
            KDTree(max_depth=3, axes="coordinate"),
            {"axes": "coordinate", "ties": "jitter", "seed": 1},
            marks=full_only,
        ),
    ],
)
def test_a_run_is_what_the_twin_finds(partition, twin):
    """With the defaults, and with the paper's own choices: raw coordinates and randomised ties."""
    rows, seed = vectors_and_labels(1200 if FULL else 500), twin.get("seed", 0)
    results = run(rows, partitions=[partition], ties=twin.get("ties", "merge"), seeds=seed + 1).results
    found = results.filter(pl.col("seed") == seed)
    for name, (d, b, p, y) in one_seed_by_hand(rows, **{"seed": seed, **twin}).items():
        line = found.row(by_predicate=pl.col("method") == name, named=True)
        assert (line["depth"], line["points_per_bin"]) == (d, b), name
        assert line["log_loss"] == pytest.approx(log_loss(y, p), rel=1e-9)
        assert line["brier"] == pytest.approx(brier_score(y, p), rel=1e-9)
        assert line["auac"] == pytest.approx(auac(y, p), rel=1e-9)
        assert line["aurc"] == pytest.approx(aurc(y, p), rel=1e-9)
        assert line["ce"] == pytest.approx(estimate_calibration_error(y, p).plugin, rel=1e-9)


def test_same_rows_in_any_order_give_the_same_numbers():
    rows = vectors_and_labels(900)
    first = run(rows, label="kind").results
    assert first.equals(run(rows, label="kind").results)
    shuffled = run(rows.sample(fraction=1.0, shuffle=True, seed=1), label="kind").results
    assert_frame_equal(first, shuffled, abs_tol=1e-9)


def test_a_label_is_used_to_measure_and_seen_by_no_method():
    rows = vectors_and_labels(900)
    plain, labelled = run(rows).results, run(rows, label="kind").results
    assert labelled.select(plain.columns).equals(plain)
    assert set(labelled.columns) - set(plain.columns) == {"ce_label", "ce_label_floor", "ce_label_debiased"}


def test_rows_of_a_question_stay_together():
    one = vectors_and_labels(600)
    rows = pl.concat([one, one.with_columns(confidence=0.5)])
    sample = read_samples(rows, Reading(), embedders=["column:embedding"])[()]
    dealt = deal(sample, Beta("column:embedding", "kdtree:3"), 0, Protocol())
    assert (dealt.part[:600] == dealt.part[600:]).all()
    assert run(rows).results["seed"].n_unique() == 2


def test_groups_help_where_questions_differ():
    """Four kinds of question with the same stated confidences: maps per group must find what pooled ones cannot."""
    found = run(vectors_and_labels(4000), label="kind", seeds=4).results
    mean = {name: found.filter(pl.col("method") == name).mean() for name in METHODS}
    for grouped, pooled in (("QAB", "B"), ("HS-QAB", "S-B"), ("QA-Iso", "Iso")):
        assert mean[grouped]["log_loss"][0] < mean[pooled]["log_loss"][0] - 0.05
        assert mean[grouped]["ce_label_debiased"][0] < mean[pooled]["ce_label_debiased"][0] - 0.1
    assert (found.filter(pl.col("method") == "QAB")["depth"] >= 2).all()


@pytest.mark.parametrize("partition", ["kmeans:8", "column:kind", "bisecting:2"])
def test_other_partitions(partition):
    found = run(vectors_and_labels(1200), partitions=[partition], seeds=1).results
    assert found["groups"].drop_nulls().max() >= 4
    line = found.row(by_predicate=pl.col("method") == "QAB", named=True)
    assert line["log_loss"] < found.row(by_predicate=pl.col("method") == "B", named=True)["log_loss"]


def test_the_common_groups_have_thirty_rows_on_average():
    paths = Paths(np.arange(1000) % 64, np.full(1000, 7), 6)
    assert len(np.unique(common_groups(paths, 1000))) == 32
    assert len(np.unique(common_groups({"9": np.arange(100) % 9, "3": np.arange(100) % 3}, 100))) == 3
    assert len(np.unique(common_groups(Paths(np.zeros(10, dtype=int), np.full(10, 2), 1), 10))) == 1


def test_the_papers_objective_and_ranges():
    rows = vectors_and_labels(2000)
    by_loss, by_area = (run(rows, objective=name).results for name in ("log_loss", "auac"))
    area = [table.filter(pl.col("method") == "QAB")["tuning"].mean() for table in (by_loss, by_area)]
    assert area[1] < 0 < area[0]
    wide = run(rows, search="wide").results["points_per_bin"].drop_nulls()
    assert wide.min() < 100
    strict = run(rows, search="paper", epsilon=0.2).results["points_per_bin"].drop_nulls()
    assert strict.min() >= 60
