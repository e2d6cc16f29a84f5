import numpy as np
import pytest

from qacal import InputError
from qacal.tally import ids as identity


def test_hashes_are_pinned():
    """Splits of last year's rows must come out the same today: these numbers never change."""
    assert identity.id_hashes([0, 1, -5], 3).tolist() == [
        16294208416658607535,
        10451216379200822465,
        1635312068028924514,
    ]
    assert identity.id_hashes(["", "q1", "Größe"], 3).tolist() == [
        13020603013274838756,
        7530267129497158631,
        8433303749423783192,
    ]


def test_whole_numbers_and_their_text_are_one_id():
    numbers = identity.id_hashes(np.array([7, 12]), 2)
    np.testing.assert_array_equal(identity.id_hashes(["7", "12"], 2), numbers)
    np.testing.assert_array_equal(identity.id_hashes(np.array([7, "12"], dtype=object), 2), numbers)
    assert (identity.id_hashes(["07", "1_2"], 2) != numbers).all()
    large = [-5, 2**62 + 12345, 2**63 + 7, 10**30]
    np.testing.assert_array_equal(identity.id_hashes(large, 4), identity.id_hashes([str(n) for n in large], 4))
    np.testing.assert_array_equal(
        identity.id_hashes(np.array([2**63 + 7], dtype=np.uint64), 1), identity.id_hashes(large, 4)[2:3]
    )


def test_blocks_are_even_whatever_the_pattern_of_ids():
    for ids in (np.arange(25600), np.arange(0, 25600 * 1024, 1024), np.arange(25600) * 2 + 1):
        counts = np.bincount(identity.blocks(identity.id_hashes(ids, len(ids)), 256), minlength=256)
        # 100 expected in each; chi-square with 255 degrees of freedom stays below 360 in 99.999 of 100 cases.
        assert ((counts - 100.0) ** 2 / 100).sum() < 360


def test_seeds_make_unrelated_splits():
    hashes = identity.id_hashes(range(10_000), 10_000)
    first, second = identity.blocks(hashes, 2, seed=0), identity.blocks(hashes, 2, seed=1)
    assert abs(np.mean(first == second) - 0.5) < 0.03


def test_finer_splits_refine_coarser_ones():
    hashes = identity.id_hashes(range(1000), 1000)
    np.testing.assert_array_equal(identity.blocks(hashes, 256) % 2, identity.blocks(hashes, 2))


def test_rows_without_ids_are_identified_by_their_values():
    rng = np.random.default_rng(0)
    h, t = rng.choice([0.5, 0.9], 1000), rng.integers(0, 2, 1000).astype(float)
    hashes = identity.value_hashes(h, t)
    assert len(set(hashes.tolist())) == 1000
    order = rng.permutation(1000)
    # Equal rows may be exchanged, so compare by kind of row.
    again = identity.value_hashes(h[order], t[order])
    for value, label in ((0.5, 0), (0.5, 1), (0.9, 0), (0.9, 1)):
        assert set(hashes[(h == value) & (t == label)]) == set(again[(h[order] == value) & (t[order] == label)])
    half = identity.blocks(hashes, 2)
    # The split is independent of labels: both halves have the same accuracy.
    assert abs(t[half == 0].mean() - t[half == 1].mean()) < 0.1


def test_every_set_without_ids_is_split_differently():
    """Otherwise the correct answers at one stated value would be in the same half in every set."""
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(300):
        t = (rng.random(200) < 0.5).astype(float)
        half = identity.blocks(identity.value_hashes(np.full(200, 0.9), t), 2)
        shares.append(t[half == 0].mean() - t[half == 1].mean())
    assert abs(np.mean(shares)) < 4 * np.std(shares) / np.sqrt(300)
    assert np.std(shares) == pytest.approx(np.sqrt(0.25 * (2 / 100)), rel=0.2)


@pytest.mark.parametrize("bad", [[1.5], [None], [True], [b"x"]])
def test_ids_are_text_or_whole_numbers(bad):
    with pytest.raises(InputError, match=r"ids\[0\] is"):
        identity.id_hashes(bad, 1)


def test_splitting_by_id():
    ids = np.repeat(np.arange(5000), 3)
    part = identity.split(ids, shares=(0.2, 0.6, 0.1, 0.1))
    np.testing.assert_allclose(np.bincount(part) / len(ids), [0.2, 0.6, 0.1, 0.1], atol=0.02)
    assert all(len(set(part[ids == k])) == 1 for k in range(50))
    order = np.random.default_rng(0).permutation(len(ids))
    np.testing.assert_array_equal(identity.split(ids[order], shares=(0.2, 0.6, 0.1, 0.1)), part[order])
    # Halves of a part are still halves: the two splits are independent.
    half = identity.blocks(identity.id_hashes(ids, len(ids)), 2)
    assert abs(half[part == 2].mean() - 0.5) < 0.06
    assert (identity.split(ids, seed=1) != identity.split(ids)).any()
    for shares in ((0.5, 0.6), (), (1.5, -0.5)):
        with pytest.raises(InputError, match="add up to 1"):
            identity.split(ids, shares=shares)


def test_numbers_of_64_bits_are_ids_like_others():
    """numpy converts a list with both large and small ones to floats and loses the last digits."""
    large = [2**64 - 1, 2**63 + 1, 2**63 + 2, 3]
    assert len(set(identity.id_hashes(large, 4).tolist())) == 4
    assert identity.id_hashes(large, 4).tolist() == identity.id_hashes(np.array(large, dtype=np.uint64), 4).tolist()


def test_each_row_of_a_question_is_equally_likely_to_be_kept():
    """One of ten otherwise equal rows is correct: it is kept a tenth of the time, not half of the time."""
    questions = 4000
    hashes = identity.id_hashes(np.repeat(np.arange(questions), 10), 10 * questions)
    right = np.tile(np.arange(10) == 3, questions).astype(float)
    kept = identity.one_of_each(hashes, np.full(10 * questions, 0.9), right)
    assert kept.sum() == questions
    assert right[kept].mean() == pytest.approx(0.1, abs=0.02)
    order = np.random.default_rng(0).permutation(10 * questions)
    again = identity.one_of_each(hashes[order], np.full(10 * questions, 0.9), right[order])
    assert right[order][again].sum() == right[kept].sum()


def test_ids_that_are_hashes_of_a_column_do_not_cancel_it():
    questions = identity.id_hashes([f"Question {n}?" for n in range(50)], 50)
    assert identity.surplus(identity.combined(identity.id_hashes(questions, 50), questions)) == 0
