"""A slow version of the procedure, what must not matter, and edge cases: all correct, all wrong, ties, no row."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qacal import InputError, Paths, Tally, certified_threshold
from qacal.thresholds.certified import lowest_rejected, threshold_menu
from qacal.thresholds.curve import relative_entropy
from qacal.thresholds.fit_record import CANDIDATES, Forecast, Forecasts
from qacal.thresholds.outlook import best_start, fewest_rows

VALUES = [0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0]


def slow_start(outlook, candidates, n, target, alpha):
    """Return the start: the threshold with the strongest expected evidence; the strictest of equals."""
    total, best, found = sum(outlook.rows), None, 0
    for place, t in enumerate(candidates):
        seen = sum(rows for score, rows in zip(outlook.score, outlook.rows, strict=True) if score >= t)
        right = sum(r for score, r in zip(outlook.score, outlook.right, strict=True) if score >= t)
        expected = n * seen / total if total else 0
        if expected < 1.25 * fewest_rows(target, alpha):
            continue
        evidence = expected * float(relative_entropy(np.array(right / seen), target))
        evidence = evidence if right / seen > target else -evidence
        if best is None or evidence >= best - 1e-12 * abs(best):
            best, found = evidence, place
    return found


def slow_threshold(h, y, outlook, candidates, target, alpha):
    """Test one threshold after the other, from the start downwards, and stop at the first that fails."""
    found = None
    for t in candidates[slow_start(outlook, candidates, len(h), target, alpha) :: -1]:
        accepted = [right for score, right in zip(h, y, strict=True) if score >= t]
        if not accepted or stats.binom.sf(sum(accepted) - 1, len(accepted), target) > alpha:
            break
        found = t
    return found


@st.composite
def some_rows(draw):
    n = draw(st.integers(1, 80))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    h = rng.choice(VALUES, n)
    return h, (rng.random(n) < np.clip(h + draw(st.floats(-0.3, 0.6)), 0, 1)).astype(int)


@given(some_rows(), some_rows(), st.sampled_from([0.3, 0.6, 0.8]), st.sampled_from([0.05, 0.1, 0.4]))
def test_the_slow_twin(rows, others, target, alpha):
    expected = Forecasts.of(Tally.of(*others))
    found = certified_threshold(*rows[::-1], accuracy=target, alpha=alpha, candidates=VALUES, others=Tally.of(*others))
    assert found.threshold == slow_threshold(*rows, expected.everywhere, VALUES, target, alpha)


@given(some_rows(), st.integers(0, 100))
def test_the_order_of_rows_does_not_matter(rows, seed):
    h, y = rows
    order = np.random.default_rng(seed).permutation(len(h))
    ids, groups = np.arange(len(h)) // 2, np.arange(len(h)) % 3
    whole = certified_threshold(y, h, accuracy=0.6, groups=groups, ids=ids)
    mixed = certified_threshold(y[order], h[order], accuracy=0.6, groups=groups[order], ids=ids[order])
    assert whole == mixed
    assert certified_threshold(y, h, accuracy=0.6) == certified_threshold(y[order], h[order], accuracy=0.6)


@given(some_rows())
def test_one_group_is_no_group(rows):
    h, y = rows
    others = Tally.of([0.5, 0.9], [0, 1])
    alone = certified_threshold(y, h, accuracy=0.6, others=others)
    grouped = certified_threshold(y, h, accuracy=0.6, others=others, groups=["law"] * len(h))
    assert grouped.thresholds == {"law": alone.threshold}


def test_reported_numbers():
    h, y = np.repeat([0.5, 0.9], 100), np.repeat([1, 0, 1, 0], [40, 60, 98, 2])
    part = certified_threshold(y, h, accuracy=0.9, others=Tally.of(h, y)).parts[0]
    assert (part.threshold, part.rows, part.accepted, part.coverage) == (0.51, 200, 100, 0.5)
    assert (part.accuracy, part.withheld, part.withheld_share) == (0.98, 40, 40 / 138)
    assert part.p_value == pytest.approx(stats.binom.sf(97, 100, 0.9))
    # The lower end is above the target exactly if the target is certified.
    low = stats.beta.ppf(0.1, 98, 3)
    assert (part.low, part.rows_needed) == (pytest.approx(low), None)
    assert low > 0.9


@pytest.mark.parametrize("n", [1, 2, 22, 100])
def test_all_correct_is_certified_with_the_fewest_rows(n):
    found = certified_threshold(np.ones(n), np.ones(n), accuracy=0.9, others=Tally.of([1.0], [1]))
    assert found.threshold == (0.0 if n >= 22 else None)
    assert found.parts[0].rows_needed is None
    assert found.parts[0].outlook == (None if n >= 22 else "unclear")  # one or two rows are no basis for an estimate


def test_rows_needed_exceed_the_rows_and_are_estimated_from_enough_of_them():
    start = Tally.of([0.5, 0.95], [1, 1])  # starts where nothing can be certified
    low = np.full(1000, 0.5), np.tile([1, 0], 500)

    def certify(h, y):
        return certified_threshold(y, h, accuracy=0.9, others=start)

    handful = certify(np.append(low[0], np.full(6, 0.95)), np.append(low[1], np.ones(6)))
    assert (handful.parts[0].rows_needed, handful.parts[0].outlook) == (None, "unclear")
    some = certify(np.append(low[0], np.full(30, 0.95)), np.append(low[1], np.repeat([1, 0], [28, 2])))
    assert (some.parts[0].rows_needed > 1030, some.parts[0].outlook) == (True, None)
    assert certify(*low).parts[0].outlook == "never"


def test_all_wrong_can_never_be_certified():
    found = certified_threshold(np.zeros(500), np.ones(500), accuracy=0.1)
    assert (found.threshold, found.is_certified, found.parts[0].rows_needed) == (None, False, None)
    assert found.parts[0].outlook == "never"
    assert found.parts[0].withheld_share == 0.0


def test_one_row():
    found = certified_threshold([1], [0.7], accuracy=0.9)
    assert found.threshold is None
    assert found.parts[0].rows + found.pilot_rows == 1
    json.dumps(found.to_dict(), allow_nan=False)


def test_thresholds_that_accept_nothing_are_skipped():
    h, y = np.full(400, 0.6), np.ones(400)
    found = certified_threshold(y, h, accuracy=0.9)
    assert found.threshold == 0.0
    assert found.parts[0].start <= 0.6


def test_ties_and_the_ends_of_the_scale():
    h, y = np.repeat([0.0, 1.0], 300), np.repeat([0, 1], 300)
    found = certified_threshold(y, h, accuracy=0.9)
    assert found.threshold == 0.01  # all candidates above 0 accept the same rows
    assert certified_threshold(np.ones(600), h, accuracy=0.9).threshold == 0.0


def test_a_threshold_accepts_what_is_equal_to_it():
    others = Tally.of(np.repeat([0.29, 0.7], 50), np.repeat([0, 1], 50))
    h, y = np.repeat([0.29, 0.7], 50), np.repeat([0, 1], 50)
    found = certified_threshold(y, h, accuracy=0.9, candidates=[0.29, 0.7, 1.0], others=others)
    assert (found.threshold, found.parts[0].accepted) == (0.7, 50)


def test_groups_share_alpha_and_abstain_without_a_certificate():
    h, y = np.full(240, 0.8), np.repeat([1, 1, 0], 80)
    groups = np.repeat(["law", "art", "chess"], 80)
    found = certified_threshold(y, h, accuracy=0.9, groups=groups, others=Tally.of(h, y, groups=groups))
    assert found.thresholds == {"art": 0.0, "chess": None, "law": 0.0}
    assert {part.alpha for part in found.parts} == {0.1 / 3}
    with pytest.raises(InputError, match="thresholds"):
        _ = found.threshold
    known = ["law", "art", "chess", "music", "physics"]
    five = certified_threshold(y, h, accuracy=0.9, groups=groups, known_groups=known)
    assert list(five.thresholds) == known
    assert five.parts[3].rows == 0
    assert five.parts[0].alpha == 0.1 / 5


def test_rows_of_no_known_group_are_counted_and_not_used():
    h, y = np.full(90, 0.8), np.ones(90)
    groups = ["law"] * 60 + ["art"] * 20 + [None] * 10
    found = certified_threshold(y, h, accuracy=0.8, groups=groups, known_groups=["law"], others=Tally.of(h, y))
    assert (found.rows, found.ungrouped, found.thresholds) == (60, 30, {"law": 0.0})
    nobody = certified_threshold(y, h, accuracy=0.8, groups=[None] * 90)
    assert (nobody.parts, nobody.is_certified) == ((), False)


def test_groups_may_be_leaves_of_a_tree():
    paths = Paths(np.repeat([0, 1], 100), np.full(200, 2), 1)
    found = certified_threshold(np.repeat([1, 0], 100), np.full(200, 0.8), accuracy=0.7, groups=paths)
    assert found.thresholds == {0: 0.0, 1: None}


def test_a_document_counts_once():
    ids = np.repeat(np.arange(15), 10)
    found = certified_threshold(np.ones(150), np.full(150, 0.9), accuracy=0.9, ids=ids, others=Tally.of([0.9], [1]))
    assert (found.parts[0].documents, found.rows, found.threshold) == (15, 150, None)
    assert certified_threshold(np.ones(150), np.full(150, 0.9), accuracy=0.9).threshold == 0.0


def test_the_row_that_counts_for_a_question_is_independent_of_its_label():
    n = 4000
    ids, y = np.repeat(np.arange(n), 2), np.tile([0, 1], n)
    found = certified_threshold(y, np.full(2 * n, 0.5), accuracy=0.4, ids=ids, others=Tally.of([0.5], [1]))
    assert abs(found.parts[0].accuracy - 0.5) < 0.03


def test_soft_targets_need_more_rows_than_labels_do():
    h, others = np.full(60, 0.9), Tally.of([0.9], [1])
    assert certified_threshold(np.full(60, 0.99), h, accuracy=0.9, others=others).threshold == 0.0
    assert certified_threshold(np.ones(30), h[:30], accuracy=0.9, others=others).threshold == 0.0
    assert certified_threshold(np.full(30, 0.99), h[:30], accuracy=0.9, others=others).threshold is None
    assert certified_threshold(np.full(60, 0.85), h, accuracy=0.9, others=others).threshold is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accuracy": None}, "accuracy is None"),
        ({"accuracy": 1.0}, "accuracy is 1.0"),
        ({"accuracy": 0}, "accuracy is 0"),
        ({"accuracy": float("nan")}, "accuracy is nan"),
        ({"accuracy": "0.9"}, "accuracy is '0.9'"),
        ({"accuracy": 0.9, "alpha": 1}, "alpha is 1"),
        ({"accuracy": 0.9, "candidates": [0.5, 2]}, r"candidates\[1\] is 2"),
        ({"accuracy": 0.9, "candidates": []}, "candidates is empty"),
        ({"accuracy": 0.9, "groups": ["law"]}, "groups has 1"),
        ({"accuracy": 0.9, "ids": [1]}, "ids has 1"),
    ],
)
def test_invalid_targets_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        certified_threshold([0, 1], [0.5, 0.9], **options)


def test_invalid_rows_are_refused():
    for h, y, said in (
        ([0.5, np.nan], [0, 1], r"y_prob\[1\] is nan"),
        ([0.5, 0.9], [0, np.nan], r"y_true\[1\] is nan"),
        ([0.5, 0.9], [1], "y_prob has 2"),
        ([], [], "y_true is empty"),
    ):
        with pytest.raises(InputError, match=said):
            certified_threshold(y, h, accuracy=0.9)


def test_the_sequence_ends_at_the_first_failure():
    p = np.array([0.01, 0.2, 0.01, 0.01])
    assert lowest_rejected(p, 3, 0.05) == 2
    assert lowest_rejected(p, 1, 0.05) is None
    assert lowest_rejected(p, 0, 0.05) == 0


def test_the_rows_that_are_needed_are_enough():
    """With the printed number of rows and the observed accuracy, four in five simulations pass."""
    h, y = np.full(60, 0.8), np.repeat([1, 0], [54, 6])
    needed = certified_threshold(y, h, accuracy=0.85, others=Tally.of(h, y)).parts[0].rows_needed
    rng = np.random.default_rng(0)
    accuracy = (54 + 0.85) / 61
    passed = stats.binom.sf(rng.binomial(needed, accuracy, 20_000) - 1, needed, 0.85) <= 0.1
    assert 0.79 < passed.mean() < 0.83


def test_with_too_few_fit_rows_the_start_accepts_all():
    outlook = Forecast(np.array([0.5, 0.9]), np.array([90.0, 10.0]), np.array([45.0, 10.0]))
    assert best_start(outlook, CANDIDATES, 5, 0.9, 0.1) == 0
    assert CANDIDATES[best_start(outlook, CANDIDATES, 1000, 0.9, 0.1)] == 0.9
    nothing = Forecast(*(np.empty(0),) * 3)
    assert best_start(nothing.smoothed(), CANDIDATES, 1000, 0.9, 0.1) == 0


def test_the_lines_of_a_menu_share_alpha():
    rng = np.random.default_rng(0)
    score = rng.choice(VALUES, 3000)
    right = rng.random(3000) < 0.2 + 0.75 * score
    menu = threshold_menu(right, score, alpha=0.2)
    assert sum(line.alpha for line in menu.lines) == pytest.approx(menu.alpha)
    for line in menu.lines:
        assert line == certified_threshold(right, score, accuracy=line.accuracy, alpha=0.05)
    assert menu.certified == tuple(line for line in menu.lines if line.threshold is not None)
    assert 0 < len(menu.certified) < len(menu.lines)
