import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError, Paths, Tally
from qacal.tally.cells import SUMS
from qacal.tally.table import repeated_sums
from qacal.tally.tally import DOCUMENTS


@st.composite
def rows(draw, min_rows=1, max_rows=50):
    n = draw(st.integers(min_rows, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return {
        "confidence": rng.choice([0.0, 0.5, 0.8, 0.9, 1.0], n) if draw(st.booleans()) else rng.random(n),
        "correct": rng.random(n) if draw(st.booleans()) else rng.integers(0, 2, n),
        "groups": rng.integers(-1, 4, n),
        "sample_weight": rng.exponential(size=n) if draw(st.booleans()) else None,
        "ids": rng.integers(0, 30, n),
    }


def slow(r, keys):
    """The slow version: a dictionary of cells, row by row."""
    n = len(r["confidence"])
    w = np.ones(n) if r["sample_weight"] is None else r["sample_weight"]
    cells = {}
    for i in range(n):
        key = (*(int(k[i]) for k in keys), float(r["confidence"][i]))
        t = float(r["correct"][i])
        row = (1, w[i], w[i] * t, w[i] * t * t, w[i] ** 2, w[i] ** 2 * t, w[i] ** 2 * t * t)
        cells[key] = tuple(a + b for a, b in zip(cells.get(key, (0,) * 7), row, strict=True))
    return dict(sorted(cells.items()))


def assert_same(tally, cells):
    assert len(tally) == len(cells)
    for at, (key, sums) in enumerate(cells.items()):
        assert tally.confidence[at] == key[-1]
        np.testing.assert_allclose([getattr(tally, name)[at] for name in SUMS], sums, atol=1e-12)


def assert_equal(first, second, exact=True):
    same = np.testing.assert_array_equal if exact else lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12)
    assert list(first.partitions) == list(second.partitions)
    for name, column in first.partitions.items():
        other = second.partitions[name]
        assert (column.labels, column.depth) == (other.labels, other.depth)
        same(column.code, other.code)
        if column.exit is not None:
            same(column.exit, other.exit)
    for name in ("confidence", *SUMS):
        same(getattr(first, name), getattr(second, name))
    assert (first.n_blocks, first.is_weighted, first.is_soft) == (second.n_blocks, second.is_weighted, second.is_soft)
    if first.block is not None:
        same(first.block, second.block)


@given(rows())
def test_cells_are_what_a_dictionary_counts(r):
    assert_same(Tally.of(**r), slow(r, [r["groups"]]))
    assert_same(Tally.of(**{**r, "groups": None}), slow(r, []))
    blocked = Tally.of(**r, n_blocks=3)
    assert_same(blocked.without_blocks(), slow(r, [r["groups"]]))


@pytest.mark.parametrize(
    ("n", "values"),
    [
        (500, np.linspace(0, 1, 21)),  # stated values, counted without sorting
        (500, [0.5, 0.5 + 1e-6, 0.9]),  # two that are too close for counting
        (500, np.arange(1, 501) / 501),  # one row per value
        (70_000, [0.0, 0.1, 0.7, 1.0]),
        (70_000, np.append(np.zeros(5_000), np.linspace(0, 1, 65_000))),  # few at first, then many
    ],
)
def test_few_values_and_many_are_counted_alike(n, values):
    confidence = np.resize(values, n)
    correct, groups = np.arange(n) % 3 == 0, np.arange(n) % 7 - 1
    tally = Tally.of(confidence, correct, groups=groups)
    cells, at = np.unique(np.column_stack([groups, confidence]), axis=0, return_inverse=True)
    np.testing.assert_array_equal(tally.confidence, cells[:, 1])
    np.testing.assert_array_equal(tally.partitions["group"].code, cells[:, 0])
    np.testing.assert_array_equal(tally.rows, np.bincount(at.ravel()))
    np.testing.assert_array_equal(tally.wt, np.bincount(at.ravel(), weights=correct))


def test_scores_beyond_the_unit_interval_are_merged_too():
    tally = Tally.of([0.2, 0.5, 0.8], [0, 1, 1], groups=[3, 3, 3]).with_confidence(np.array([2.0, -1.5, -1.5]))
    np.testing.assert_array_equal(tally.confidence, [-1.5, 2.0])
    np.testing.assert_array_equal(tally.wt, [2.0, 0.0])


@given(rows(), st.integers(0, 1000))
def test_row_order_changes_no_bit(r, seed):
    order = np.random.default_rng(seed).permutation(len(r["confidence"]))
    other = {name: None if column is None else column[order] for name, column in r.items()}
    assert_equal(Tally.of(**r, n_blocks=4), Tally.of(**other, n_blocks=4))
    assert_equal(Tally.of(**{**r, "ids": None}, n_blocks=4), Tally.of(**{**other, "ids": None}, n_blocks=4))


@given(rows(min_rows=2), st.integers(1, 49))
def test_tallies_add(r, cut):
    cut = min(cut, len(r["confidence"]) - 1)
    parts = [{k: None if v is None else v[s] for k, v in r.items()} for s in (slice(cut), slice(cut, None))]
    whole = Tally.of(**r, n_blocks=4)
    first, second = (Tally.of(**part, n_blocks=4) for part in parts)
    if first.is_soft == second.is_soft:
        assert_equal(first + second, whole, exact=False)
        assert_equal(sum([second, first]), whole, exact=False)


def test_groups_of_different_files_are_joined_by_name():
    first = Tally.of([0.5, 0.9], [1, 0], groups=["law", "art"])
    second = Tally.of([0.5, 0.9], [1, 1], groups=["zoo", "law"])
    both = first + second
    assert both.grouping.labels == ("art", "law", "zoo")
    assert [label for label, _ in both] == ["art", "law", "zoo"]
    assert both.group("law").n == 2


@st.composite
def trees(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, depth = draw(st.integers(1, 60)), draw(st.integers(0, 5))
    return (
        rng.choice([0.5, 0.8, 1.0], n),
        rng.integers(0, 2, n),
        Paths(rng.integers(0, 2**depth, n), rng.integers(0, depth + 2, n), depth),
    )


@given(trees(), st.integers(0, 5))
def test_rolling_up_is_tallying_at_that_depth(data, d):
    h, t, paths = data
    d = min(d, paths.depth)
    rolled = Tally.of(h, t, groups=paths).roll_up(d)
    there = Tally.of(h, t, groups=paths.groups(d))
    assert_same(rolled.flat(), slow({"confidence": h, "correct": t, "sample_weight": None}, [paths.groups(d)]))
    np.testing.assert_array_equal(rolled.flat().grouping.code, there.grouping.code)
    # Rolled up in two steps or in one: ancestors' rows include those that exit below.
    for e in range(d + 1):
        assert_equal(rolled.roll_up(e), Tally.of(h, t, groups=paths).roll_up(e))


def test_several_partitions_in_one_tally():
    r = {"confidence": [0.5, 0.5, 0.9, 0.9], "correct": [0, 1, 1, 1]}
    tally = Tally.of(**r, groups={"topic": ["law", "law", "art", "law"], "tenant": [1, 2, 1, 1]})
    assert repr(tally) == "Tally(4 rows in 4 cells, 2 groups of topic, 2 groups of tenant)"
    assert_equal(tally.only("tenant"), Tally.of(**r, groups={"tenant": [1, 2, 1, 1]}))
    assert_equal(tally.pooled(), Tally.of(**r))
    with pytest.raises(InputError, match=r"\['topic', 'tenant'\]; choose one"):
        _ = tally.grouping
    with pytest.raises(InputError, match="no partition 'language'"):
        tally.only("language")


def test_groups_with_very_many_codes():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2**62, 1000)
    r = {"confidence": rng.choice([0.5, 0.9], 1000), "correct": rng.integers(0, 2, 1000), "sample_weight": None}
    assert_same(Tally.of(r["confidence"], r["correct"], groups=groups), slow(r, [groups]))
    four = {str(k): rng.integers(0, 2**62, 1000) for k in range(4)}
    assert Tally.of(r["confidence"], r["correct"], groups=four).n == 1000
    many = {str(k): rng.integers(0, 2**62, 1000) for k in range(9)}
    with pytest.raises(InputError, match="too many combinations"):
        Tally.of(r["confidence"], r["correct"], groups=many)


@pytest.mark.parametrize("n_blocks", [1, 4])
@pytest.mark.parametrize("groups", [None, "labels", "tree", "several"])
def test_round_trip_through_tables(groups, n_blocks):
    rng = np.random.default_rng(0)
    n = 200
    column = {
        None: None,
        "labels": rng.choice(["law", "art", None], n),
        "tree": Paths(rng.integers(0, 8, n), rng.integers(0, 5, n), 3),
        "several": {"a": rng.integers(-1, 3, n), "b": rng.choice(["x", "y"], n)},
    }[groups]
    tally = Tally.of(rng.random(n), rng.random(n), groups=column, sample_weight=rng.random(n), n_blocks=n_blocks)
    assert_equal(Tally.from_polars(tally.to_polars()), tally)
    assert_equal(Tally.from_polars(pl.DataFrame(tally.to_polars().to_arrow())), tally)
    half = len(tally) // 2
    table = tally.to_polars()
    assert_equal(Tally.from_polars(pl.concat([table[half:], table[:half], table])), tally + tally, exact=False)


@pytest.mark.parametrize("labels", ["hard", "soft"])
@pytest.mark.parametrize("groups", [None, "labels", "tree"])
def test_tables_need_no_sums_that_repeat_others_and_no_order(groups, labels):
    rng = np.random.default_rng(0)
    n = 400
    column = {
        None: None,
        "labels": rng.choice(["law", "art", None], n),
        "tree": Paths(rng.integers(0, 8, n), rng.integers(0, 5, n), 3),
    }[groups]
    correct = rng.random(n) if labels == "soft" else rng.integers(0, 2, n)
    tally = Tally.of(rng.choice(np.arange(60) / 60, n), correct, groups=column)
    table = tally.to_polars().drop(repeated_sums(False, labels == "soft"))
    assert ("wtt" in table.columns) == (labels == "soft")
    assert_equal(Tally.from_polars(table.sample(fraction=1.0, shuffle=True, seed=0)), tally)
    assert_equal(Tally.from_polars(pl.concat([table, table[::-1]])), tally + tally)


def test_tables_that_are_not_tallies_are_refused():
    table = Tally.of([0.5, 0.9], [1, 0], n_blocks=2).to_polars()
    with pytest.raises(InputError, match=r"lacks the columns \['ww', 'wwtt'\]"):
        Tally.from_polars(table.drop("ww", "wwtt"))
    with pytest.raises(InputError, match=r"lacks the columns \['wt'\]"):
        Tally.from_polars(table.drop("wt"))
    with pytest.raises(InputError, match="empty"):
        Tally.from_polars(table[:0])
    with pytest.raises(InputError, match=r"got dict; pl\.DataFrame\(table\) may help"):
        Tally.from_polars({"confidence": [0.5]})
    with pytest.raises(InputError, match=r"rows\[0\] is -1"):
        Tally.from_polars(table.with_columns(rows=pl.lit(-1)))
    with pytest.raises(InputError, match=r"confidence\[0\] is 50"):
        Tally.from_polars(table.with_columns(confidence=pl.lit(50.0)))
    with pytest.raises(InputError, match="holds String"):
        Tally.from_polars(table.with_columns(wt=pl.lit("many")))
    with pytest.raises(InputError, match=r"w\[0\] is 0; the weight of a cell is above 0"):
        Tally.from_polars(table.with_columns(w=pl.lit(0.0)))
    with pytest.raises(InputError, match="labels are at most 1, so wt is at most w"):
        Tally.from_polars(table.with_columns(wt=pl.lit(1.5)))
    with pytest.raises(InputError, match=r"lacks the columns \['block'\]; it has 2 blocks"):
        Tally.from_polars(table.drop("block"))
    tree = Tally.of([0.5], [1], groups=Paths(np.array([0]), np.array([3]), 2)).to_polars()
    with pytest.raises(InputError, match=r"lacks the columns \['group:exit'\]"):
        Tally.from_polars(tree.drop("group:exit"))
    with pytest.raises(InputError, match="of several types"):
        Tally.of([0.5, 0.6], [1, 0], groups=["a", 1]).to_polars()
    # Flags follow from the sums: weights cannot be hidden.
    heavy = Tally.of([0.5, 0.9], [1, 0], sample_weight=[3, 4]).to_polars()
    assert Tally.from_polars(heavy).is_weighted
    with pytest.raises(InputError, match="mixes n_blocks"):
        Tally.from_polars(pl.concat([table, table.with_columns(n_blocks=pl.lit(4))]))


def test_tallies_that_differ_in_kind_do_not_add():
    plain = Tally.of([0.5], [1])
    for other, what in (
        (Tally.of([0.5], [1], groups=[1]), "the column of groups"),
        (Tally.of([0.5], [1], ids=[1], n_blocks=DOCUMENTS), "what is counted is rows in one and documents"),
        (Tally.of([0.5], [1], ids=[1], n_blocks=2), "n_blocks"),
        (Tally.of([0.5], [1], ids=[1], ties=True), "ties kept"),
        (Tally.of([0.5], [1], resolution=0.1), "resolution"),
    ):
        with pytest.raises(InputError, match=f"do not add: {what}"):
            plain + other
    trees = [Tally.of([0.5], [1], groups=Paths(np.array([0]), np.array([9]), d)) for d in (1, 2)]
    with pytest.raises(InputError, match="depth 1 and 2"):
        trees[0] + trees[1]


def test_tallies_of_different_seeds_do_not_add():
    first, second = (Tally.of([0.5], [1], ids=[1], n_blocks=2, seed=seed) for seed in (0, 1))
    with pytest.raises(InputError, match="the seed of the blocks is 0 in one and 1 in the other"):
        first + second


@pytest.mark.parametrize("n_blocks", [0, -2, 2.5])
def test_blocks_are_counted(n_blocks):
    with pytest.raises(InputError, match="n_blocks is"):
        Tally.of([0.5], [1], n_blocks=n_blocks)


def test_snapping_later_gives_the_same_tally():
    rng = np.random.default_rng(0)
    h, t = rng.random(200), rng.integers(0, 2, 200)
    assert_equal(Tally.of(h, t).snapped(0.1), Tally.of(h, t, resolution=0.1))
    with pytest.raises(InputError, match="needs the rows again"):
        Tally.of(h, t, resolution=0.1).snapped(0.01)


def test_folds_are_the_rows_of_their_blocks():
    tally = Tally.of(np.linspace(0, 1, 100), np.ones(100), ids=range(100), n_blocks=8)
    folds = [tally.fold(k, of=2) for k in (0, 1)]
    assert sum(fold.n for fold in folds) == 100
    assert min(fold.n for fold in folds) > 30
    halves = Tally.of(np.linspace(0, 1, 100), np.ones(100), ids=range(100), n_blocks=2)
    np.testing.assert_array_equal(folds[0].confidence, halves.fold(0, of=2).confidence)
    with pytest.raises(InputError, match="fold 2 of 2 does not exist"):
        tally.fold(2, of=2)
    with pytest.raises(InputError, match="multiple of 3"):
        tally.fold(0, of=3)


def test_rows_of_one_question_share_a_block():
    ids = np.repeat(np.arange(50), 4)
    tally = Tally.of(np.linspace(0, 1, 200), np.ones(200), ids=ids, n_blocks=256)
    assert tally.is_clustered
    of_row = dict(zip(tally.confidence, tally.block, strict=True))
    blocks = np.array([of_row[h] for h in np.linspace(0, 1, 200)]).reshape(50, 4)
    assert (blocks == blocks[:, :1]).all()


def test_ties_need_ids_that_differ():
    with pytest.raises(InputError, match=r"confidence 0\.5 occurs more than once"):
        Tally.of([0.5, 0.9, 0.5], [1, 0, 1], ties=True)
    with pytest.raises(InputError, match="rows 0 and 2 have the same id"):
        Tally.of([0.5, 0.9, 0.5], [1, 0, 1], ids=["a", "b", "a"], ties=True)
    assert len(Tally.of([0.5, 0.9, 0.5], [1, 0, 1], ids=["a", "b", "c"], ties=True)) == 3


WRONG = [pl.lit("x"), pl.lit(None), pl.lit([1]), pl.lit(1).cast(pl.Date), pl.lit(1.5), pl.lit(float("nan"))]


@pytest.mark.parametrize("column", ["block", "rows", "w", "n_blocks", "seed", "is_clustered", "is_sum", "group:path"])
def test_columns_of_a_wrong_type_are_refused_by_name(column):
    paths = Paths(np.array([0, 1, 3]), np.array([3, 3, 3]), 2)
    table = Tally.of([0.5, 0.6, 0.7], [1, 0, 1], groups=paths, ids=[1, 2, 3], n_blocks=4).to_polars()
    for value in WRONG[:4] if column == "w" else WRONG:
        with pytest.raises(InputError, match=rf"{column}.* (holds|is) "):
            Tally.from_polars(table.with_columns(**{column: value}))


@pytest.mark.parametrize("resolution", [0, -1, 0.3, 2])
def test_resolution_is_one_over_a_whole_number(resolution):
    with pytest.raises(InputError, match="expected 1/k"):
        Tally.of([0.5], [1], resolution=resolution)


def test_snapping_gives_the_decimals():
    tally = Tally.of(np.arange(101) / 100 + 1e-4 * (np.arange(101) < 100), np.ones(101), resolution=0.01)
    np.testing.assert_array_equal(tally.confidence, np.arange(101) / 100)


def test_new_scores_and_new_targets():
    tally = Tally.of([0.5, 0.6, 0.9], [0, 1, 1], groups=[0, 0, 1])
    scored = tally.with_confidence(np.array([0.3, 0.3, 1.0]))
    assert len(scored) == 2
    np.testing.assert_array_equal(scored.wt, [1, 1])
    targeted = tally.with_targets(np.array([0.25, 0.5, 1.0]))
    np.testing.assert_allclose(targeted.wtt, [0.0625, 0.25, 1.0])
    assert targeted.is_soft


def test_unknown_groups():
    tally = Tally.of([0.5], [1], groups=["law"])
    with pytest.raises(InputError, match="no row is in group 'art'"):
        tally.group("art")
    with pytest.raises(InputError, match="this tally has no groups"):
        Tally.of([0.5], [1]).group("art")
    with pytest.raises(InputError, match="only a tree"):
        tally.roll_up(0)
