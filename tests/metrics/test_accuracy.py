"""The accuracy of a sample of labels, by people alone and with a judge."""

import numpy as np
import pytest
from scipy import stats

from qacal import InputError
from qacal.metrics import estimate_accuracy, estimate_judged_accuracy
from tests.tables import each

PEOPLE = np.repeat([1, 0], [60, 20])


def test_it_is_the_interval_of_clopper_and_pearson():
    found = estimate_accuracy(PEOPLE, alpha=0.1)
    exact = stats.binomtest(60, 80).proportion_ci(0.9)
    assert (found.value, found.low, found.high) == pytest.approx((0.75, exact.low, exact.high))


def test_soft_labels_have_an_interval_too():
    found = estimate_accuracy(np.full(80, 0.75))
    assert found.low < 0.7 < 0.75 < 0.8 < found.high


def test_right_and_wrong_are_symmetric():
    judged = np.repeat([1, 0, 1, 0], [55, 5, 2, 18])
    others = np.repeat([1, 0], [290, 110])
    one, other = (
        estimate_judged_accuracy(*labels) for labels in ((PEOPLE, judged, others), (1 - PEOPLE, 1 - judged, 1 - others))
    )
    assert (one.value, one.low, one.high) == pytest.approx((1 - other.value, 1 - other.high, 1 - other.low))


def test_the_order_of_rows_does_not_matter():
    judged, others = np.repeat([1, 0, 1, 0], [55, 5, 2, 18]), np.repeat([1, 0], [290, 110])
    order = np.random.default_rng(0).permutation(80)
    assert estimate_judged_accuracy(PEOPLE, judged, others) == estimate_judged_accuracy(
        PEOPLE[order], judged[order], others[::-1]
    )


def test_a_useless_judge_costs_no_more_than_its_part_of_alpha():
    judged, others = np.tile([1, 0], 40), np.tile([1, 0], 200)
    found, alone = estimate_judged_accuracy(PEOPLE, judged, others), estimate_accuracy(PEOPLE, alpha=0.05)
    assert alone.low <= found.low <= found.high <= alone.high


def test_more_rows_of_a_good_judge_narrow_the_interval():
    judged = np.repeat([1, 0, 1, 0], [58, 2, 2, 18])
    widths = [
        found.high - found.low
        for rows in (40, 200, 2000)
        for found in [estimate_judged_accuracy(PEOPLE, judged, np.repeat([1, 0], [3 * rows, rows]), alone=0)]
    ]
    assert widths[0] > widths[1] > widths[2]


@each(
    "arguments, problem",
    [
        (([0.5], [1], [1]), "y_true has the value 0.5; expected labels 0 and 1"),
        (([1], [1, 0], [1]), "judged"),
        (([1], [1], []), "judged_others"),
        (([1], [1], [1], 0.1, 1), "alone is 1; expected a share of alpha"),
        (([1], [1], [1], 2), "alpha is 2"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments, problem):
    labels, options = arguments[:3], dict(zip(("alpha", "alone"), arguments[3:], strict=False))
    with pytest.raises(InputError, match=problem):
        estimate_judged_accuracy(*labels, **options)
