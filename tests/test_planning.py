"""Which points per bin are tried, and how many rows the bands and groups of the default model need."""

import numpy as np
import pytest

from qacal import InputError
from qacal.guarantee import binomial_interval
from qacal.planning import (
    MOST_BANDS,
    SMALLEST,
    epsilon,
    paper_ranges,
    plan_margins,
    rounded_up,
    rows_for_margins,
    search_ranges,
    wide_ranges,
    widths,
)

TREE = [2**depth for depth in range(11)]


def test_the_papers_range_ends_where_epsilon_is_reached():
    found = paper_ranges(8400, epsilon=0.1, alpha=0.1, nu=0.05)
    largest, smallest = found.points_per_bin[0], found.points_per_bin[-1]
    assert epsilon(smallest, 8400, 0.1) <= 0.1 < epsilon(smallest - 1, 8400, 0.1)
    assert epsilon(largest, 8400, 0.1, 0.05) <= 0.1 < epsilon(largest - 1, 8400, 0.1, 0.05)
    assert len(found.points_per_bin) == 12
    assert list(found.points_per_bin) == sorted(found.points_per_bin, reverse=True)


def test_groups_have_three_to_ten_bins():
    found = paper_ranges(8400)
    assert found.admits(8400, 8, 315)
    assert not found.admits(8400, 16, 315)
    assert found.admits(1099, 1, 100)
    assert not found.admits(1200, 1, 100)
    assert not found.admits(299, 1, 100)


@pytest.mark.parametrize("rows", [2, 5, 29, 300, 1700, 2850])
def test_with_few_rows_the_range_is_wide_and_states_its_guarantee(rows):
    found = search_ranges(rows, TREE)
    assert found.bins_a_group is None
    assert min(found.points_per_bin) <= SMALLEST
    assert f"{rows:,} rows" in found.note
    assert all(found.admits(rows, groups, b) for groups in TREE for b in found.points_per_bin)


@pytest.mark.parametrize("rows", [7000, 8400, 10**6])
def test_with_enough_rows_it_is_the_papers(rows):
    found = search_ranges(rows, TREE)
    assert found.bins_a_group == (3, 10)
    assert "guarantee an error of 0.1" in found.note


def test_a_smaller_epsilon_takes_more_points():
    assert search_ranges(50_000, TREE, epsilon=0.06).points_per_bin[-1] > paper_ranges(50_000).points_per_bin[-1]


def test_without_groups_to_choose_from_the_range_is_wide():
    assert search_ranges(10**5, [1]).bins_a_group is None
    assert wide_ranges(10**5).points_per_bin[0] == 10**5 // 3


def test_one_row_is_refused():
    with pytest.raises(InputError, match="1 rows are left to calibrate on"):
        search_ranges(1, TREE)


def test_a_range_of_one_value_is_printed_as_one_value():
    found = paper_ranges(600, epsilon=0.1)
    assert len(found.points_per_bin) == 1
    assert f"from {found.points_per_bin[0]} to {found.points_per_bin[0]}," in found.note


# Bands and groups of the default model


@pytest.mark.parametrize("groups", [0, 2, 8, 16])
@pytest.mark.parametrize("within", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("accuracy", [0.5, 0.8, 0.0])
def test_rows_for_a_width_are_the_fewest_that_reach_it(within, groups, accuracy):
    rows = rows_for_margins(within, groups=groups, accuracy=accuracy)

    def widest(rows):
        plan = plan_margins(rows, within=within, groups=groups, accuracy=accuracy)
        return max(plan.band_width, plan.group_width or 0.0)

    assert widest(rows) <= within < widest(rows - 1)


def test_more_bands_or_groups_need_more_rows():
    assert rows_for_margins(0.1) < rows_for_margins(0.1, bands=3) < rows_for_margins(0.1, bands=3, groups=16)
    assert rows_for_margins(0.05) > 3 * rows_for_margins(0.1)
    assert rows_for_margins(0.1, accuracy=0.9) < rows_for_margins(0.1)


@pytest.mark.parametrize("rows", [1, 30, 700, 3500, 10**6])
@pytest.mark.parametrize("within", [None, 0.02, 0.1])
def test_a_plan_has_as_many_bands_and_groups_as_allow_the_width(rows, within):
    plan = plan_margins(rows, within=within)
    for_bands, for_groups = widths(rows, within)
    assert plan.bands == 1 or plan.band_width <= for_bands
    if plan.bands < MOST_BANDS:
        assert rows_for_margins(for_bands, bands=plan.bands + 1, groups=max(plan.groups, 1)) > rows
    if plan.groups:
        assert plan.group_width <= for_groups
    if plan.groups < 16:
        assert plan_margins(rows, groups=max(2, 2 * plan.groups)).group_width > for_groups


def test_the_width_of_a_group_is_that_of_its_interval():
    """That of an exact interval at its share of alpha, for the expected count."""
    plan = plan_margins(1600, groups=8, accuracy=0.7, alpha=0.1)
    low, high = binomial_interval(np.array([140.0]), np.array([200.0]), 0.1 / 2 / 8 / 2)
    assert plan.group_width == pytest.approx((high[0] - low[0]) / 2)


def test_plans_refuse_what_they_cannot_plan():
    for arguments in ({"within": 0.0}, {"within": 1.5}, {"groups": -1}, {"accuracy": 2.0}, {"alpha": 0.0}):
        ((name, value),) = arguments.items()
        with pytest.raises(InputError, match=f"{name} is {value}; expected"):
            plan_margins(1000, **arguments)
    with pytest.raises(InputError, match="rows is 0; expected"):
        plan_margins(0)
    with pytest.raises(InputError, match="within is 0; expected"):
        rows_for_margins(0)
    with pytest.raises(InputError, match="bands is 0; expected"):
        rows_for_margins(0.1, bands=0)


def test_estimates_are_rounded_up_to_two_digits():
    assert [rounded_up(number) for number in (1, 9.5, 99.1, 100, 101, 12_345)] == [1, 10, 100, 100, 110, 13_000]
