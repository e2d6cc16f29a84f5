"""MarginBinning: a slow version from the definition, and what cells, intervals, answers and files may contain."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qacal import NO_GROUP, InputError, MarginBinning, Paths, Tally
from qacal.calibrators.base import Rows
from qacal.calibrators.cells import Cells, plan_cells
from qacal.calibrators.margins import fit_margins
from qacal.planning import widths
from qacal.tally.groups import as_grouping
from qacal.tally.tally import DOCUMENTS
from tests.rebuilt import rebuilt
from tests.sizes import examples, sized


def clopper_pearson(right, n, tail):
    low = 0.0 if right == 0 else stats.beta.ppf(tail, right, n - right + 1)
    high = 1.0 if right == n else stats.beta.ppf(1 - tail, right + 1, n - right)
    return low, high


def slow_intervals(cells, tail):
    """Return (rows, accuracy, low, high) of lists of labels; an empty one has the middle of [0, 1]."""
    out = []
    for labels in cells:
        low, high = (0.0, 1.0) if not labels else clopper_pearson(sum(labels), len(labels), tail)
        out.append((len(labels), sum(labels) / len(labels) if labels else 0.5, low, high))
    return out


def slow_error(values):
    """Return the standard error of a mean: that of its rows and of one more, 0.5 away."""
    mean = sum(values) / max(len(values), 1)
    return (sum((value - mean) ** 2 for value in values) + 0.5**2) ** 0.5 / max(len(values), 1)


def slow_slope(bands):
    """Return the slope of answers on first scores within bands, in [0, 1]."""
    above = below = 0.0
    for pairs in bands:
        means = [sum(pair[at] for pair in pairs) / max(len(pairs), 1) for at in (0, 1)]
        above += sum((f - means[0]) * (p - means[1]) for f, p in pairs)
        below += sum((f - means[0]) ** 2 for f, _ in pairs)
    return min(max(above / max(below, 1e-12), 0.0), 1.0)


def slow_margins(rows, held, tops, min_rows, alpha, has_groups):
    """Return below, above and shift of each band, and low and high of each group, by loops over rows.

    rows : (first score, group, label), held : (first score, answer).
    """

    def band_of(score):
        return next(at for at, top in enumerate(tops) if score <= top)

    bands = [[row for row in rows if band_of(row[0]) == at] for at in range(len(tops))]
    groups = {group: [y for _, other, y in rows if other == group] for _, group, _ in rows if group != NO_GROUP}
    groups = {group: labels for group, labels in groups.items() if len(labels) >= min_rows}
    part = alpha / 2 if has_groups else alpha
    slope = (
        0.0
        if held is None
        else slow_slope([[pair for pair in held if band_of(pair[0]) == at] for at in range(len(tops))])
    )
    tail = part / (2 * sum(len(band) > 0 for band in bands))
    out = []
    for at, (_, accuracy, low, high) in enumerate(slow_intervals([[row[2] for row in band] for band in bands], tail)):
        scores = counted = [row[0] for row in bands[at]]
        answer, error = sum(scores) / max(len(scores), 1), slow_error(scores)
        if held is not None:
            moves = counted = [p - slope * f for f, p in held if band_of(f) == at]
            answer = min(max(slope * answer + sum(moves) / max(len(moves), 1), 0.0), 1.0)
            error = np.hypot(slope * error, slow_error(moves))
        if not scores or not counted:
            out.append((1.0, 1.0, 0.0))
            continue
        error *= stats.t.isf(tail, len(counted))
        wanted = answer + len(scores) / (len(scores) + 20) * len(counted) / (len(counted) + 2) * (accuracy - answer)
        error *= (1 - wanted) / (1 - answer) if wanted > answer else wanted / max(answer, 1e-300)
        lower, upper = accuracy - np.hypot(accuracy - low, error), accuracy + np.hypot(high - accuracy, error)
        wanted = min(max(wanted, lower, 0.0), upper, 1.0)
        out.append((min(wanted - lower, 1.0), min(upper - wanted, 1.0), wanted - answer))
    names = sorted(groups)
    intervals = slow_intervals([groups[name] for name in names], part / (2 * max(len(names), 1)))
    return np.array(out), {name: (low, high, n) for name, (n, _, low, high) in zip(names, intervals, strict=True)}


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 200),
    n_groups=st.integers(0, 5),
    n_bands=st.integers(1, 5),
    has_answers=st.booleans(),
)
def test_the_slow_version_agrees(seed, n, n_groups, n_bands, has_answers):
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 21, n) / 20 if rng.random() < 0.5 else rng.random(n).round(7)
    right = (rng.random(n) < score**2).astype(float)
    groups = rng.integers(-1, n_groups, n) if n_groups else None
    tops = np.append(np.sort(rng.choice(np.arange(1, 20), n_bands - 1, replace=False) / 20), np.inf)
    answer = np.clip(score + rng.normal(scale=0.1, size=n), 0, 1)
    is_held = rng.random(n) < 0.3
    held = Tally.of(score[is_held], answer[is_held]) if has_answers and is_held.any() else None
    names = [NO_GROUP] * n if groups is None else groups.tolist()
    slow_bands, slow_groups = slow_margins(
        list(zip(score.tolist(), names, right.tolist(), strict=True)),
        None if held is None else list(zip(score[is_held].tolist(), answer[is_held].tolist(), strict=True)),
        tops.tolist(),
        min_rows=30,
        alpha=0.2,
        has_groups=groups is not None,
    )
    cells = Cells(tops, 0 if groups is None else None)
    maps = fit_margins(Tally.of(score, right, groups=groups), cells, alpha=0.2, answers=held)
    np.testing.assert_allclose(np.stack([maps.below, maps.above, maps.shift], axis=1), slow_bands, atol=1e-9)
    of_groups = {
        name: (low, high, rows)
        for name, low, high, rows in zip(
            maps.cells.lineage.owner[1:].tolist(),
            maps.cells.low[n_bands:],
            maps.cells.high[n_bands:],
            maps.cells.rows[n_bands:],
            strict=True,
        )
    }
    assert of_groups.keys() == slow_groups.keys()
    for name, found in of_groups.items():
        np.testing.assert_allclose(found, slow_groups[name], atol=1e-9)


def world(n, seed=0, groups=2):
    """Return scores that are right on average, but not in every group."""
    rng = np.random.default_rng(seed)
    score, group = rng.uniform(0.3, 0.9, n), rng.integers(0, groups, n)
    return score, rng.random(n) < score + np.where(group % 2, 0.1, -0.1), group


def explained(model, score, groups):
    found = model.explain(score, groups=groups)
    names = ("calibrated", "low", "high", "rows", "group_low", "group_high", "group_rows")
    return np.stack([getattr(found, name) for name in names])


@examples(15)
@given(seed=st.integers(0, 1000), kind=st.sampled_from(["flat", "tree"]), has_documents=st.booleans())
def test_the_order_of_rows_is_irrelevant(seed, kind, has_documents):
    score, right, group = world(600, seed, groups=4)
    groups = Paths(group, np.full(600, 3), 2) if kind == "tree" else group
    ids = np.arange(600) // 3 if has_documents else np.arange(600)
    order = np.random.default_rng(seed).permutation(600)
    shuffled = Paths(group[order], np.full(600, 3), 2) if kind == "tree" else group[order]
    options = {"n_blocks": DOCUMENTS} if has_documents else {}
    one = MarginBinning(within=0.2).fit_tally(Tally.of(score, right, groups=groups, ids=ids, **options))
    tally = Tally.of(score[order], right[order], groups=shuffled, ids=ids[order], **options)
    other = MarginBinning(within=0.2).fit_tally(tally)
    assert len(one.maps_.below) > 1
    np.testing.assert_array_equal(explained(one, score, groups), explained(other, score, groups))


def test_saved_maps_are_equal_to_the_last_bit():
    score, right, group = world(2000)
    for groups in (None, group, Paths(group, np.full(2000, 2), 1)):
        model = MarginBinning().fit(score, right, groups=groups)
        again = MarginBinning()
        again.maps_ = rebuilt(model.maps_)
        np.testing.assert_array_equal(explained(model, score, groups), explained(again, score, groups))


def test_maps_that_no_fit_made_are_refused():
    score, right, group = world(2000)
    maps = MarginBinning().fit(score, right, groups=group).maps_
    for change in (
        {"shift": maps.shift[:-1]},
        {"below": maps.below - 2},
        {"above": maps.above[:-1]},
        {"cells": replace(maps.cells, low=maps.cells.high, high=maps.cells.low)},
        {"cells": replace(maps.cells, rows=maps.cells.rows[:-1])},
        {"curves": None},
    ):
        with pytest.raises(InputError):
            rebuilt(replace(maps, **change))


def test_one_group_has_the_interval_of_all_rows():
    """Bands of half of alpha are those without groups at half of alpha; one band is one group."""
    score, right, _ = world(3000)
    one, none = MarginBinning(), MarginBinning(alpha=0.05)
    with_group = one.fit(score, right, groups=np.full(3000, 7)).explain(score, groups=np.full(3000, 7))
    without = none.fit(score, right).explain(score)
    for name in ("calibrated", "low", "high", "rows"):
        np.testing.assert_allclose(getattr(with_group, name), getattr(without, name), atol=1e-12)
    assert np.isnan(without.group_low).all()
    assert (with_group.group_rows == 3000).all()
    expected = clopper_pearson(right.sum(), 3000, 0.1 / 4)
    np.testing.assert_allclose([with_group.group_low[0], with_group.group_high[0]], expected, atol=1e-9)


@examples(15)
@given(seed=st.integers(0, 1000), factor=st.integers(2, 20))
def test_more_rows_of_the_same_kind_give_narrower_intervals(seed, factor):
    score, right, group = world(300, seed)
    cells = Cells(np.array([0.5, 0.7, np.inf]), None)
    few, many = (
        fit_margins(Tally.of(np.tile(score, k), np.tile(right, k), groups=np.tile(group, k)), cells)
        for k in (1, factor)
    )
    assert (few.below + few.above > many.below + many.above).all()
    assert (few.cells.high - few.cells.low > many.cells.high - many.cells.low).all()


def test_a_smaller_width_gives_fewer_bands_and_groups():
    score, right, group = world(4000, groups=8)
    tree = Paths(group, np.full(4000, 4), 3)
    wanted = (0.03, 0.05, 0.08, 0.12, 0.2)
    models = [MarginBinning(within=within).fit(score, right, groups=tree) for within in wanted]
    bands, depths = [len(model.maps_.below) for model in models], [model.maps_.max_depth for model in models]
    assert bands == sorted(bands)
    assert depths == sorted(depths)
    assert (bands[0], depths[0]) < (bands[-1], depths[-1])
    for within, model in zip(wanted, models, strict=True):
        if len(model.maps_.below) > 1:
            assert model.maps_.median_error_bound() <= 1.25 * within
        if model.maps_.max_depth:
            assert model.maps_.median_group_width() <= 1.1 * within


def test_refusals():
    for within in (0, 1.5, 1, -0.1, float("nan"), "narrow", True):
        with pytest.raises(InputError, match=r"within is .*; expected a distance between 0 and 1, such as 0\.1"):
            MarginBinning(within=within).fit([0.5, 0.6], [1, 0])
    with pytest.raises(InputError, match="alpha"):
        MarginBinning(alpha=0).fit([0.5, 0.6], [1, 0])
    with pytest.raises(InputError, match="max_depth is 3, and the groups are not a tree"):
        MarginBinning(max_depth=3).fit([0.5, 0.6], [1, 0], groups=["a", "b"])
    with pytest.raises(InputError, match="max_depth is 3; the groups are a tree of depth 1"):
        MarginBinning(max_depth=3).fit([0.5, 0.6], [1, 0], groups=Paths(np.array([0, 1]), np.array([2, 2]), 1))


@pytest.mark.parametrize("has_answers", [False, True])
def test_rows_of_a_document_count_once(has_answers):
    """Ten equal rows with one id say no more than one row."""
    score, right, group = world(600)
    answer, cells = np.clip(score + 0.02, 0, 1), Cells(np.array([0.5, 0.7, np.inf]), None)

    def fitted(times, **options):
        columns = [np.repeat(column, times) for column in (score, right, group, answer, np.arange(600))]
        tally = Tally.of(columns[0], columns[1], groups=columns[2], ids=columns[4], **options)
        held = Tally.of(columns[0], columns[3], ids=columns[4], **options) if has_answers else None
        return fit_margins(tally, cells, answers=held)

    alone, repeated, as_if_new = fitted(1), fitted(10, n_blocks=DOCUMENTS), fitted(10)
    assert repeated.certificate.is_by_document
    for name in ("below", "above"):
        assert (getattr(repeated, name) >= getattr(alone, name) - 1e-12).all()
    assert (repeated.cells.low <= alone.cells.low + 1e-12).all()
    assert (repeated.cells.high >= alone.cells.high - 1e-12).all()
    # The test can fail: rows that are taken for new ones have narrower intervals.
    assert (as_if_new.below + as_if_new.above < alone.below + alone.above).all()


def test_ids_that_repeat_are_documents():
    score, right, group = world(600)
    ids = np.repeat(np.arange(600), 5)
    rows = [np.repeat(column, 5) for column in (score, right, group)]
    model = MarginBinning().fit(rows[0], rows[1], groups=rows[2], ids=ids)
    assert model.maps_.certificate.is_by_document
    assert model.maps_.cells.rows[: len(model.maps_.below)].sum() == 600


def test_the_mean_answer_is_that_of_documents():
    """Documents of one to nine rows: the interval is about a random row of a random document, in each band."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(300), rng.integers(1, 10, 300))
    score = np.clip(0.6 + 0.03 * np.bincount(ids)[ids] + rng.normal(scale=0.1, size=len(ids)), 0, 1).round(7)
    right = rng.random(len(ids)) < score
    tops = np.array([0.7, np.inf])
    maps = fit_margins(Tally.of(score, right, ids=ids, n_blocks=DOCUMENTS), Cells(tops, 0))
    for at in range(2):
        mine = np.searchsorted(tops, score) == at
        means = [score[mine & (ids == one)].mean() for one in np.unique(ids[mine])]
        assert abs(np.mean(means) - score[mine].mean()) > 0.0005
        assert maps.cells.value[at] - maps.shift[at] == pytest.approx(np.mean(means), abs=1e-9)


# Cells


def test_cells_are_planned_without_labels():
    names = {"scores", "column", "rows", "alpha", "within", "bands", "max_depth", "repeats", "are_probabilities"}
    assert inspect.signature(plan_cells).parameters.keys() == names


@pytest.mark.parametrize("within", [None, 0.04, 0.06])
def test_the_planned_width_is_reached(within):
    """Scores of 1,000 rows plan; 4,000 others certify. Half of the answers get the width, up to noise."""
    found = []
    for seed in range(sized(40)):
        score, _, group = world(1000, seed, groups=8)
        column = as_grouping(Paths(group, np.full(1000, 4), 3), 1000)
        cells = plan_cells(score, column, rows=4000, alpha=0.1, within=within)
        assert len(cells.tops) > 1
        assert cells.depth > 0
        score, right, group = world(4000, 1000 + seed, groups=8)
        tally = Tally.of(score, right, groups=Paths(group, np.full(4000, 4), 3))
        maps = fit_margins(tally, cells, alpha=0.1)
        found.append((maps.median_error_bound(), maps.median_group_width()))
    for width, limit in zip(np.mean(found, axis=0), widths(4000, within), strict=True):
        assert 0.6 * limit < width <= 1.02 * limit


def test_equal_scores_are_one_band():
    assert plan_cells(np.full(500, 0.7), None, rows=1e6, alpha=0.1).tops.tolist() == [np.inf]
    tops = plan_cells(np.repeat([0.2, 0.7], 500), None, rows=1e6, alpha=0.1).tops
    assert tops.tolist() == [0.2, np.inf]


# Answers


@examples(15)
@given(seed=st.integers(0, 10**6), off=st.sampled_from([-0.25, -0.1, 0.0, 0.1, 0.25]))
def test_answers_are_moved_to_the_accuracy_of_their_band(seed, off):
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0.3, 0.7, 2000)
    score, right = (truth + off).round(7), rng.random(2000) < truth
    cells = plan_cells(score, None, rows=2000, alpha=0.1, within=0.1)
    maps = fit_margins(Tally.of(score, right), cells)
    found = maps.explain(Rows(score, None, None))
    assert (found.low <= found.calibrated).all()
    assert (found.calibrated <= found.high).all()
    band = np.searchsorted(cells.tops, score)
    rows = np.bincount(band)
    before, after = (np.bincount(band, one) / rows for one in (score, found.calibrated))
    # The mean answer counts as 20 rows of its own, and as two of those that tell it, which are all rows here.
    accuracy = np.bincount(band, right) / rows
    wanted = before + rows / (rows + 20) * rows / (rows + 2) * (accuracy - before)
    np.testing.assert_allclose(after, wanted, atol=1e-6)
    np.testing.assert_allclose(after - before, maps.shift, atol=1e-6)


def test_few_rows_hardly_move_answers():
    maps = fit_margins(Tally.of([0.3], [1]), Cells(np.array([np.inf]), 0))
    assert maps.apply(Rows(np.array([0.3]), None, None))[0] == pytest.approx(0.3 + 0.7 / 21 / 3)


def test_answers_of_another_score():
    """Bands come from the first score; the mean answer is estimated on rows that trained neither."""
    score, right, _ = world(4000)
    tally, cells = Tally.of(score, right), Cells(np.array([0.5, 0.7, np.inf]), 0)
    same = fit_margins(tally, cells, answers=Tally.of(score[:400], score[:400]))
    low = fit_margins(tally, cells, answers=Tally.of(score[:400], score[:400] - 0.2))
    few = fit_margins(tally, cells, answers=Tally.of(score[:20], score[:20] - 0.2))
    np.testing.assert_allclose(low.shift - same.shift, 0.2, atol=0.01)
    np.testing.assert_allclose(low.below, same.below, atol=0.01)
    # A mean answer that few rows estimate has a wider interval.
    assert (few.below + few.above > low.below + low.above).all()


def test_answers_stay_below_the_accuracy_by_their_cut():
    """What form may not add is not given back by moving the band; the ends are those of the accuracy all the same."""
    score, right, _ = world(4000)
    tally, cells = Tally.of(score, right), Cells(np.array([0.5, 0.7, np.inf]), 0)
    cut = np.array([0.0, 0.01, 0.2])
    answers = Tally.of(score[:400], score[:400])
    whole, lower = (
        fit_margins(tally, cells, answers=answers),
        fit_margins(tally, replace(cells, cut=cut), answers=answers),
    )
    moved = whole.cells.value[:3] - lower.cells.value[:3]
    np.testing.assert_allclose(moved, cut, rtol=0.1)
    np.testing.assert_allclose(
        lower.cells.value[:2] - lower.below[:2], whole.cells.value[:2] - whole.below[:2], atol=0.003
    )
    np.testing.assert_allclose(lower.cells.value[:3] + lower.above, whole.cells.value[:3] + whole.above, atol=0.02)
    # The accuracy is certainly higher than the last band's answers: no more is said on that side.
    assert lower.below[2] == 0


def test_a_band_without_held_out_answers_or_without_rows_has_no_interval():
    """Its mean answer is unknown, and nothing is said about it."""
    score, right, _ = world(4000)
    cells = Cells(np.array([0.5, 0.7, 1.0, np.inf]), 0)
    is_held = np.arange(4000) % 10 == 0
    for held in (is_held & (score <= 0.5), np.zeros(4000, dtype=bool)):
        answers = Tally.of(score[is_held], score[is_held] * 0.3)
        answers = answers._select(np.isin(answers.confidence, score[held]))
        maps = fit_margins(Tally.of(score, right), cells, answers=answers)
        found = maps.explain(Rows(np.array([0.4, 0.6, 0.9, 1.5]), None, None, answer=np.array([0.1, 0.2, 0.7, 0.6])))
        is_known = np.array([held.any(), False, False, False])
        assert (found.high - found.low < 1).tolist() == is_known.tolist()
        np.testing.assert_allclose(maps.shift[~is_known], 0, atol=1e-12)


def test_held_out_answers_are_in_the_bands_of_their_first_scores():
    """Also if scores are tied, and differ from the end of a band by less than seven decimals."""
    score = np.repeat([0.3333333333, 0.6666666666], 500)
    right, cells = np.arange(1000) % 3 > 0, plan_cells(score, None, rows=1000, alpha=0.1, within=0.2)
    model = MarginBinning()
    model._fit_cells(Tally.of(score, right), cells, Tally.of(score[::5], score[::5]))
    assert len(cells.tops) == 2
    assert (model.maps_.below < 0.2).all()
    np.testing.assert_allclose(model.maps_.cells.value[:2] - model.maps_.shift, [1 / 3, 2 / 3], atol=1e-6)


def test_the_smallest_alpha_has_finite_answers():
    found = MarginBinning(alpha=1e-20).fit(np.linspace(0, 1, 50), np.arange(50) % 2).explain([0.2, 0.8])
    assert np.isfinite([found.calibrated, found.low, found.high]).all()


def test_all_groups_of_documents_share_alpha_with_rows_or_without():
    """The rows of a document may be in several groups, so the number of groups with rows must not narrow intervals."""
    rng = np.random.default_rng(0)
    ids, correct, score = np.repeat(np.arange(200), 2), rng.random(400) < 0.7, rng.random(400)

    def interval(depth):
        groups = Paths(np.zeros(400, dtype=np.int64), np.full(400, depth + 1), depth)
        tally = Tally.of(score, correct, groups=groups, ids=ids, n_blocks=DOCUMENTS)
        cells = fit_margins(tally, Cells(np.array([np.inf]), depth)).cells
        assert cells.certificate.is_by_document
        return cells.low[1], cells.high[1]

    (low, high), (lower, higher) = interval(1), interval(3)
    assert lower < low < high < higher


def test_bands_have_half_of_alpha_even_if_no_group_has_enough_rows_for_an_interval():
    """Else the counts of groups, which depend on labels given the bands, would decide how wide bands are."""
    tops, score, correct = np.array([0.5, np.inf]), np.linspace(0, 1, 200), np.arange(200) % 2
    few = fit_margins(Tally.of(score, correct, groups=np.arange(200) // 10), Cells(tops, None))
    halved = fit_margins(Tally.of(score, correct), Cells(tops, 0), alpha=0.05)
    assert len(few.cells.low) == len(halved.cells.low) == 2
    assert np.allclose(few.cells.low, halved.cells.low)
