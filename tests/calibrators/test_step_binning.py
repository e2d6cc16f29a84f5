"""StepBinning: a slow version from the definition, and what maps, answers and files may contain."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import NO_GROUP, InputError, Paths, QACalibrationClassifier, RepeatedQuestionsWarning, StepBinning, Tally
from qacal.calibrators.step_binning import step_tops
from qacal.guarantee import document_intervals, mean_intervals
from qacal.partitions import KDTree
from qacal.storage import flatten, unflatten
from qacal.tally import ids as identity
from qacal.tally.ids import drawn_labels, id_hashes
from qacal.tally.tally import DOCUMENTS
from tests.rebuilt import rebuilt
from tests.sizes import examples

DEPTH = 3


def slow_bin(h, n_bins):
    """Return k of the bin (k/n, (k+1)/n] that h is in; 0 is in the first."""
    return next(k for k in range(n_bins) if h <= (k + 1) / n_bins)


def nodes_of(kind, label, leaves_tree_at):
    """Return the nodes of a row, by depth: the root, then its nodes in the tree or its label."""
    if kind != "tree":
        return [()] if kind == "none" or label == NO_GROUP else [(), label]
    return [f"{label:0{DEPTH}b}"[:depth] for depth in range(min(leaves_tree_at, DEPTH + 1))]


def slow_steps(rows, levels, n_bins, rows_per_map, alpha):
    """Return [answer, low, high, rows] of each row (h, t, w, nodes), by loops over rows, nodes and bins."""
    inside = {}
    for h, t, w, nodes in rows:
        for node in enumerate(nodes):
            inside.setdefault(node, []).append((slow_bin(h, n_bins), h, t, w))
    mapped = {node for node, members in inside.items() if node[0] == 0 or len(members) >= rows_per_map}
    occupied = [len({(node, row[0]) for node in mapped if node[0] == d for row in inside[node]}) for d in range(levels)]
    tail = alpha / (2 * levels * max(occupied))
    answers = []
    for h, _, _, nodes in rows:
        # A row without a group at the last level uses the root's map.
        reads = [node for node in enumerate(nodes) if node in mapped][-1 if len(nodes) == levels else 0]
        here = [row for row in inside[reads] if row[0] == slow_bin(h, n_bins)]
        t, w = np.array([row[2] for row in here]), np.array([row[3] for row in here])
        sums = (np.array([float(total)]) for total in (len(here), w.sum(), w @ t, w @ t**2, w @ w))
        (low,), (high,) = mean_intervals(*sums, tail, is_mixed=False)
        mean = sum(row[1] * row[3] for row in here) / w.sum()
        answers.append([min(max(mean, low), high), low, high, len(here)])
    return np.array(answers)


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 150),
    kind=st.sampled_from(["tree", "flat", "none"]),
    n_bins=st.sampled_from([1, 3, 10, 20]),
    rows_per_map=st.sampled_from([1, 10, 40]),
    is_weighted=st.booleans(),
    is_soft=st.booleans(),
)
def test_the_slow_twin_agrees(seed, n, kind, n_bins, rows_per_map, is_weighted, is_soft):
    rng = np.random.default_rng(seed)
    h = rng.integers(0, 21, n) / 20 if rng.random() < 0.5 else rng.random(n).round(7)
    t = rng.random(n) if is_soft else (rng.random(n) < 0.4).astype(float)
    w = rng.exponential(size=n) + 0.01 if is_weighted else np.ones(n)
    label = np.minimum(rng.geometric(0.4, n) - 1, 2**DEPTH - 1)
    leaves_tree_at = np.where(rng.random(n) < 0.1, rng.integers(1, DEPTH + 1, n), DEPTH + 1)
    if kind == "flat":
        label = np.where(rng.random(n) < 0.1, NO_GROUP, label)
    groups = {"tree": Paths(label, leaves_tree_at, DEPTH), "flat": label, "none": None}[kind]
    nodes = [nodes_of(kind, *where) for where in zip(label.tolist(), leaves_tree_at.tolist(), strict=True)]
    model = StepBinning(step=1 / n_bins, rows_per_map=rows_per_map, alpha=0.3)
    found = model.fit(h, t, groups=groups, sample_weight=w if is_weighted else None).explain(h, groups=groups)
    levels = {"tree": DEPTH + 1, "flat": 2, "none": 1}[kind]
    expected = slow_steps(list(zip(h, t, w, nodes, strict=True)), levels, n_bins, rows_per_map, 0.3)
    np.testing.assert_allclose(
        np.column_stack([found.calibrated, found.low, found.high, found.rows]), expected, atol=1e-9
    )


def many(seed=0, n=3000):
    rng = np.random.default_rng(seed)
    leaf = rng.choice(2**DEPTH, n, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.06, 0.03, 0.01])
    h = rng.random(n) * 0.9
    return h, (rng.random(n) < h).astype(float), Paths(leaf, np.full(n, DEPTH + 1), DEPTH)


def test_a_bin_without_rows_answers_its_middle_with_the_interval_0_to_1():
    h, right, paths = many()
    found = StepBinning().fit(h, right, groups=paths).explain([0.97], groups=Paths([0], [DEPTH + 1], DEPTH))
    assert (found.calibrated[0], found.low[0], found.high[0], found.rows[0]) == (0.975, 0, 1, 0)


def test_small_groups_read_the_nearest_ancestor_with_a_map():
    h, right, paths = many()
    leaves = Paths(np.arange(8), np.full(8, DEPTH + 1), DEPTH)
    found = StepBinning(rows_per_map=250).fit(h, right, groups=paths).explain(np.full(8, 0.5), groups=leaves)
    # Leaves 6 and 7 have about 120 rows together, and 4 to 7 about 600.
    assert found.source.tolist() == ["group"] * 5 + ["ancestor"] * 3
    shallow = StepBinning(max_depth=1).fit(h, right, groups=paths)
    assert len(shallow.maps_.offset) == 1 + 3


@pytest.mark.parametrize("step", [0.05, 0.1, 0.01, 1 / 3])
def test_a_score_on_an_edge_is_in_the_bin_below_it(step):
    tops = step_tops(step)
    edges = np.array([float(f"{k * step:.15g}") if step != 1 / 3 else k / 3 for k in range(1, len(tops))])
    np.testing.assert_array_equal(np.searchsorted(tops, edges), np.arange(len(edges)))
    found = StepBinning(step=step).fit(edges, np.ones(len(edges))).explain(edges)
    assert (found.rows == 1).all()


def test_answers_that_are_moved_into_their_intervals_need_not_be_monotone():
    """All rows at 0.1 are correct, so its answer is moved up to 0.98; the single row at 0.2 moves nothing."""
    model = StepBinning(step=0.1).fit([0.1] * 300 + [0.2], [1] * 301)
    low, high = model.predict([0.1, 0.2])
    assert low > 0.9
    assert high == 0.2
    assert not model.properties.is_monotone


def test_maps_that_nobody_reads_are_not_kept():
    """Both halves of a tree have their own map, and the root serves rows without a group."""
    h, right, paths = many()
    halves = Paths(paths.path >> 2, np.full(len(h), 2), 1)
    assert StepBinning(rows_per_map=1).fit(h, right, groups=halves).maps_.lineage.depth.tolist() == [0, 1, 1]
    quarters = Paths(paths.path >> 1, np.full(len(h), 3), 2)
    assert StepBinning(rows_per_map=1).fit(h, right, groups=quarters).maps_.lineage.depth.tolist() == [0, 2, 2, 2, 2]


def test_the_certificate_counts_the_bins_of_the_fullest_level_once_for_each_level():
    h = np.repeat([0.1, 0.5, 0.9], 100)
    small = StepBinning(rows_per_map=150).fit(h, h > 0.4, groups=np.tile([0, 1, 2], 100))
    assert small.maps_.certificate.statements == 2 * 3
    flat = StepBinning(rows_per_map=100).fit(h, h > 0.4, groups=np.tile([0, 1], 150))
    assert flat.maps_.certificate.statements == 2 * 6
    assert StepBinning().fit(h, h > 0.4).maps_.certificate.statements == 3
    assert flat.maps_.certificate.is_about_all


def test_saved_and_loaded_it_answers_the_same():
    h, right, paths = many()
    model = StepBinning(step=0.1).fit(h, right, groups=paths)
    back = unflatten(StepBinning, *flatten(model, [StepBinning]), [StepBinning])
    before, after = model.explain(h, groups=paths), back.explain(h, groups=paths)
    for name in ("calibrated", "low", "high", "rows", "source"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    assert back.get_params() == model.get_params()
    assert back.maps_.certificate == model.maps_.certificate


def test_a_file_whose_maps_differ_in_their_bins_is_refused():
    h, right, paths = many()
    maps = StepBinning(step=0.1).fit(h, right, groups=paths).maps_
    top = maps.top.copy()
    top[10] = 0.05
    with pytest.raises(InputError, match="the same bins in every map"):
        rebuilt(replace(maps, top=top))


def test_a_tally_that_was_snapped_is_looked_up_on_its_grid():
    tally = Tally.of([0.149, 0.151, 0.42], [1, 0, 1], resolution=0.1)
    model = StepBinning(step=0.1).fit_tally(tally)
    rebuilt(model)
    assert model.explain([0.149, 0.151, 0.42]).rows.tolist() == [1, 1, 1]


@pytest.mark.parametrize("step", [0, 2, -0.1, 0.3, 1e-5, float("nan"), "wide", None])
def test_invalid_steps_are_refused(step):
    with pytest.raises(InputError, match=r"step is .*; expected 1/k"):
        StepBinning(step=step).fit([0.5, 0.9], [0, 1])


@pytest.mark.parametrize("rows", [0, -3, 2.5, "many", None])
def test_invalid_rows_per_map_are_refused(rows):
    with pytest.raises(InputError, match=r"rows_per_map is .*; expected a whole number"):
        StepBinning(rows_per_map=rows).fit([0.5, 0.9], [0, 1])


def test_groups_made_of_the_same_rows_are_refused():
    X = np.random.default_rng(0).random((100, 3))
    with pytest.raises(InputError, match="fixed without the calibration rows"):
        QACalibrationClassifier(StepBinning(), KDTree(max_depth=1)).fit(X, np.arange(100) % 2)
    assert QACalibrationClassifier(StepBinning()).fit(X, np.arange(100) % 2).predict_proba(X).shape == (100, 2)


def test_every_row_reads_one_bin():
    """Rows of a group with its own map also count in the maps above it, but are not answered by them."""
    rng = np.random.default_rng(3)
    leaf, h = rng.integers(0, 8, 3000) ** 2 // 8, rng.random(3000)
    places = Paths(leaf, np.full(3000, 4), depth=3)
    model = StepBinning(rows_per_map=600).fit(h, rng.random(3000) < h, groups=places)
    read = np.bincount(model.maps_.bins_of(model._checked_rows(h, places, None)), minlength=len(model.maps_.value))
    np.testing.assert_array_equal(model.maps_.rows_read(), read)
    assert 2 < len(model.maps_.lineage.depth) < 8


@pytest.mark.parametrize("max_depth", [None, 2])
def test_a_row_is_in_a_bin_of_every_map_above_it(max_depth):
    """Like the calibration rows: some leave the tree at depth 2 and are counted at depth 1."""
    rng = np.random.default_rng(0)
    paths = Paths(np.minimum(rng.geometric(0.4, 2000) - 1, 7), rng.choice([2, 4], 2000, p=[0.1, 0.9]), 3)
    score, right = rng.random(2000), rng.integers(0, 2, 2000)
    model = StepBinning(step=0.25, rows_per_map=150, max_depth=max_depth).fit(score, right, groups=paths)
    maps, rows = model.maps_, model._checked_rows(score, paths, None)
    bins = maps.bins_by_level(rows)
    assert bins.shape == (2000, len(np.unique(maps.lineage.depth)))
    deepest = np.array([row[row >= 0][-1] for row in bins])
    stays = paths.exit > 2
    np.testing.assert_array_equal(deepest[stays], maps.bins_of(rows)[stays])
    counts = np.bincount(bins[bins >= 0], minlength=len(maps.rows))
    np.testing.assert_array_equal(counts, maps.rows)
    np.testing.assert_array_equal(maps.bins_by_level(model._checked_rows(score, None, None))[:, 1:], -1)


@pytest.mark.parametrize("depth", [2, 5])
def test_rows_beyond_the_maps_below_are_those_of_the_slow_twin(depth):
    """Some groups have too few rows for a map, so that a map's nearest ancestor may be any number of levels above."""
    rng = np.random.default_rng(depth)
    leaf = (2**depth * rng.random(800) ** 2).astype(int)
    paths = Paths(leaf, np.full(800, depth + 1), depth)
    maps = StepBinning(rows_per_map=30).fit(rng.random(800), rng.integers(0, 2, 800), groups=paths).maps_
    who, own = maps.lineage, rng.random(len(maps.lineage.depth))
    left = own.copy()
    for child in range(1, len(own)):
        above = np.flatnonzero(who.depth < who.depth[child])
        is_ancestor = who.owner[above] == who.owner[child] >> (who.depth[child] - who.depth[above])
        left[above[is_ancestor][-1] if is_ancestor.any() else 0] -= own[child]
    assert len(own) > depth
    np.testing.assert_array_equal(maps._without_descendants(own), np.maximum(left, 0.0))


# Documents


def slow_documents(rows, levels, n_groups, n_bins, rows_per_map, alpha):
    """Return [answer, low, high, documents] of each row (h, t, id, nodes): each document is one row of each bin."""
    inside = {}
    for h, t, id_, nodes in rows:
        for node in enumerate(nodes):
            inside.setdefault(node, {}).setdefault((id_, slow_bin(h, n_bins)), []).append((h, t))
    mapped = {node for node, documents in inside.items() if node[0] == 0 or len(documents) >= rows_per_map}
    answers = []
    for h, _, _, nodes in rows:
        reads = [node for node in enumerate(nodes) if node in mapped][-1 if len(nodes) == levels else 0]
        here = {id_: found for (id_, k), found in inside[reads].items() if k == slow_bin(h, n_bins)}
        share = np.array([np.mean([t for _, t in found]) for found in here.values()])
        blocks = identity.blocks(id_hashes(list(here), len(here)), DOCUMENTS).view(np.uint64)
        tail = alpha / (2 * levels * n_bins * (1 if reads[0] == 0 else n_groups[reads[0]]))
        low, high = (
            float(end[0])
            for end in document_intervals(
                share,
                np.ones(len(share)),
                np.zeros(len(share), dtype=np.int64),
                np.array([drawn_labels(share, blocks).sum()]),
                np.array([tail]),
            )
        )
        mean = np.mean([np.mean([score for score, _ in found]) for found in here.values()])
        answers.append([min(max(mean, low), high), low, high, len(here)])
    return np.array(answers)


@examples(40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 100),
    kind=st.sampled_from(["tree", "flat", "none"]),
    n_bins=st.sampled_from([1, 4, 20]),
    is_soft=st.booleans(),
)
def test_documents_are_those_of_the_definition(seed, n, kind, n_bins, is_soft):
    rng = np.random.default_rng(seed)
    h, ids = rng.integers(0, 21, n) / 20, rng.integers(0, max(n // 4, 1), n)
    t = rng.integers(0, 3, n) / 2 if is_soft else rng.integers(0, 2, n)
    label = rng.integers(0, 2**DEPTH, n)
    exits = np.full(n, DEPTH + 1)
    groups = {"tree": Paths(label, exits, DEPTH), "flat": label, "none": None}[kind]
    levels = {"tree": DEPTH + 1, "flat": 2, "none": 1}[kind]
    n_groups = {depth: 2**depth if kind == "tree" else len(np.unique(label)) for depth in range(levels)}
    model = StepBinning(step=1 / n_bins, rows_per_map=5, alpha=0.2).fit(h, t, groups=groups, ids=ids)
    if len(np.unique(ids)) == n:
        return
    nodes = [nodes_of(kind, int(one), DEPTH + 1) for one in label]
    rows = list(zip(h.tolist(), t.tolist(), ids.tolist(), nodes, strict=True))
    evidence = model.explain(h, groups=groups)
    found = np.column_stack([evidence.calibrated, evidence.low, evidence.high, evidence.rows])
    np.testing.assert_allclose(found, slow_documents(rows, levels, n_groups, n_bins, 5, 0.2), atol=1e-9)


def test_documents_in_other_orders_and_added_tallies_are_the_same():
    rng = np.random.default_rng(0)
    h, y, ids, groups = rng.random(400), rng.random(400) < 0.7, np.repeat(np.arange(100), 4), rng.integers(0, 3, 400)
    options = {"step": 0.2, "rows_per_map": 50}
    one = StepBinning(**options).fit(h, y, ids=ids, groups=groups).maps_
    order = rng.permutation(400)
    two = StepBinning(**options).fit(h[order], y[order], ids=ids[order], groups=groups[order]).maps_
    # The rows of a document may be in two batches.
    first, second = order[:130], order[130:]
    parts = [
        Tally.of(h[part], y[part], ids=ids[part], groups=groups[part], n_blocks=DOCUMENTS) for part in (first, second)
    ]
    three = StepBinning(**options).fit_tally(parts[0] + parts[1]).maps_
    for other in (two, three):
        for name in ("value", "low", "high", "rows"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-12)
    assert one.certificate.is_by_document


def test_ids_that_do_not_repeat_change_nothing():
    rng = np.random.default_rng(0)
    h, y = rng.random(300), rng.random(300) < 0.7
    plain, named = StepBinning().fit(h, y).maps_, StepBinning().fit(h, y, ids=np.arange(300)).maps_
    np.testing.assert_array_equal(plain.low, named.low)
    assert not named.certificate.is_by_document


def test_documents_need_ids_in_the_tally():
    """A tally that knows that ids repeat, but not which ids a cell has, raises a warning."""
    tally = Tally.of([0.5, 0.6, 0.7], [1, 0, 1], ids=[1, 1, 2])
    with pytest.warns(RepeatedQuestionsWarning):
        StepBinning().fit_tally(tally)
