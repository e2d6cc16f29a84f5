"""Which points per bin are tried: the paper's if the rows allow it, else from 10 up, with a note on the guarantee."""

import pytest

from qacal import InputError
from qacal.planning import SMALLEST, epsilon, paper_ranges, search_ranges, wide_ranges

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
