"""More labelled rows, or a better score, never make the intervals of the default model wider.

Scores are fixed and calibrated: an answer is correct with probability Phi(u + v + e); the first score knows u, the
score that answers knows u and v, and both are the exact probability given what they know. Samples are nested: the rows
of a smaller one come first in a larger one.
"""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr

from qacal import Paths, Tally
from qacal.calibrators.cells import Cells, plan_cells
from qacal.calibrators.margins import fit_margins
from qacal.planning import widths
from qacal.tally.groups import as_grouping
from tests.sizes import FULL, sized

ALPHA, DEPTH, WORLDS = 0.1, 4, sized(48)
MOST = 64_000 if FULL else 32_000
# The standard deviations of u, v and e.
USUAL, BETTER = (0.8, 0.3, 0.5), (0.9, 0.3, 0.25)


def paths(leaf):
    return Paths(leaf, np.full(len(leaf), DEPTH + 1), DEPTH)


@cache
def world(seed, spread):
    """Return leaves, first scores, answers and labels of the largest sample."""
    rng = np.random.default_rng(seed)
    leaf = rng.integers(0, 2**DEPTH, MOST)
    u, v, e = (rng.normal(0, size, MOST) for size in spread)
    u += 0.2 + leaf / (2**DEPTH - 1) - 0.5
    first = ndtr(u / np.sqrt(1 + spread[1] ** 2 + spread[2] ** 2))
    answer = ndtr((u + v) / np.sqrt(1 + spread[2] ** 2))
    return leaf, first, answer, rng.random(MOST) < ndtr(u + v + e)


@cache
def certified(seed, rows, within, spread, bands=None):
    """Return the number of bands, the depth, the reach of bands and the half-width of groups, as a default fit has."""
    leaf, first, answer, right = (column[:rows] for column in world(seed, spread))
    # Ids are hashed, so which rows plan, certify and are held out has nothing to do with their place.
    part = np.random.default_rng(0).random(MOST)[:rows]
    plans, held = part < 0.3, part >= 0.9
    column = as_grouping(paths(leaf[plans]), int(plans.sum()))
    cells = plan_cells(first[plans], column, rows=0.7 * rows, alpha=ALPHA, within=within, bands=bands)
    tally = Tally.of(first[~plans], right[~plans], groups=paths(leaf[~plans]))
    maps = fit_margins(tally, cells, alpha=ALPHA, answers=Tally.of(first[held], answer[held]))
    return len(cells.tops), cells.depth, maps.median_error_bound(), maps.median_group_width() or np.nan


def middle(rows, within=None, spread=USUAL):
    """Return the medians over worlds."""
    return np.median([certified(seed, rows, within, spread) for seed in range(WORLDS)], axis=0)


def error(rows, column, within=None, spread=USUAL):
    """Return the standard error of a median over worlds."""
    found = [certified(seed, rows, within, spread)[column] for seed in range(WORLDS)]
    return 1.25 * np.std(found) / np.sqrt(WORLDS)


def in_cells(seed, rows, cells):
    """Return the reach of bands and the half-width of groups, if cells are given."""
    leaf, first, answer, right = (column[:rows] for column in world(seed, USUAL))
    part = np.random.default_rng(0).random(MOST)[:rows]
    plans, held = part < 0.3, part >= 0.9
    tally = Tally.of(first[~plans], right[~plans], groups=paths(leaf[~plans]))
    maps = fit_margins(tally, cells, alpha=ALPHA, answers=Tally.of(first[held], answer[held]))
    return maps.median_error_bound(), maps.median_group_width()


SAME_CELLS = [1400, 2000, 2800, 4000, 5600, 8000]
SIZES = [500, 1000, 2000, 4000, 8000, 16_000, *((32_000, 64_000) if FULL else ())]


@pytest.mark.parametrize("within", [0.05, 0.1])
def test_the_width_that_was_asked_for_is_kept_from_the_first_time_on(within):
    by_rows = {rows: middle(rows, within) for rows in SIZES}
    reached = [rows for rows in SIZES if by_rows[rows][2] <= within]
    assert reached == SIZES[-len(reached) :]
    assert reached[0] <= 2000
    with_groups = [rows for rows in SIZES if by_rows[rows][1] > 0]
    assert with_groups == SIZES[-len(with_groups) :]
    assert all(by_rows[rows][3] <= within for rows in with_groups)


@pytest.mark.parametrize("within", [0.05, 0.1, None])
def test_more_rows_never_have_fewer_bands_or_groups(within):
    for seed in range(WORLDS):
        cells = [certified(seed, rows, within, USUAL)[:2] for rows in SIZES]
        for column in zip(*cells, strict=True):
            assert list(column) == sorted(column)


def test_more_rows_in_the_same_bands_and_groups_have_narrower_intervals():
    """Without finer cells, every row narrows them: by a twentieth or more for 1.4 times as many rows."""
    cells = Cells(np.array([0.5, 0.65, np.inf]), 2)
    for few, many in itertools.pairwise(SAME_CELLS):
        found = [np.median([in_cells(seed, rows, cells) for seed in range(WORLDS)], axis=0) for rows in (few, many)]
        assert (found[1] < 0.95 * found[0]).all(), (few, many, found)


def test_with_a_fixed_number_of_bands_more_rows_are_never_wider():
    """Bands are made again for every sample, and every sample has narrower ones than the one before."""
    for bands in (1, 2, 4):
        reach = [
            np.median([certified(seed, rows, None, USUAL, bands)[2] for seed in range(WORLDS)]) for rows in SAME_CELLS
        ]
        assert all(many < 0.95 * few for few, many in itertools.pairwise(reach)), (bands, reach)
        # Without the fixed number they would not: a further band is wider at first.
    free = [middle(rows)[2] for rows in SAME_CELLS]
    assert any(many > few for few, many in itertools.pairwise(free))


def test_more_rows_are_never_wider_than_fewer_were_promised_to_be():
    """Finer cells take up what rows gain: widths rise then, but never above what fewer rows were planned for."""
    for column, wanted in ((2, 0), (3, 1)):
        promised = [widths(0.7 * rows)[wanted] for rows in SAME_CELLS]
        for rows, most in zip(SAME_CELLS, promised, strict=True):
            found = middle(rows)[column]
            if not np.isnan(found):
                assert found <= most + 2 * error(rows, column), (rows, column)
        assert promised == sorted(promised, reverse=True)


def test_four_times_as_many_rows_have_narrower_intervals():
    wanted = np.array([widths(rows) for rows in range(1, 100_000)])
    assert (np.diff(wanted, axis=0) <= 0).all()
    for rows in (1000, 4000, 16_000):
        if 4 * rows <= MOST:
            few, many = middle(rows), middle(4 * rows)
            for column in (2, 3):
                slack = 2 * np.hypot(error(rows, column), error(4 * rows, column))
                assert many[column] <= few[column] + slack, (rows, column)


def test_with_fixed_widths_the_intervals_would_not_narrow():
    """What the default would do without widths that fall: as many bands as have the width, and no narrower."""
    fixed = [middle(rows, 0.05)[2] for rows in (4000, 16_000)]
    assert fixed[1] > 0.85 * fixed[0]
    assert middle(16_000)[2] < 0.85 * middle(4000)[2]


@pytest.mark.parametrize("rows", [1000, 4000, 16_000])
def test_a_better_score_gives_narrower_intervals_or_more_bands(rows):
    """One more band may take up the gain, up to the width that is wanted.

    With as many bands they are no wider, but for a twentieth: the mean of answers that differ more is harder to tell.
    """
    usual, better = middle(rows), middle(rows, spread=BETTER)
    assert tuple(better[:2]) >= tuple(usual[:2])
    for column, wanted in ((2, widths(0.7 * rows)[0]), (3, widths(0.7 * rows)[1])):
        slack = 2 * np.hypot(error(rows, column), error(rows, column, spread=BETTER))
        most = 1.05 * usual[column] if better[column - 2] == usual[column - 2] else max(usual[column], wanted)
        assert better[column] <= most + slack, (rows, column)
