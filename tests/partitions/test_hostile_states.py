"""States that no partition could have saved: each is refused, and told what is wrong with it."""

import copy

import numpy as np
import pytest

from qacal import InputError
from qacal.partitions import (
    BisectingTree,
    Column,
    KDTree,
    KMeans,
    LearnedTree,
    Product,
    partition_from_state,
    partition_state,
)
from tests.partitions.rows import clouds, labels

ROWS = {"embedding": clouds(0, n=60), "subject": ["law", "art", 7] * 20, **labels(clouds(0, n=60))}
SAVED = {
    "kdtree": partition_state(KDTree(max_depth=2).fit_rows(ROWS)),
    "coordinate": partition_state(KDTree(max_depth=2, axes="coordinate").fit_rows(ROWS)),
    "bisecting": partition_state(BisectingTree(max_depth=2).fit_rows(ROWS)),
    "learned": partition_state(LearnedTree(max_depth=2).fit_rows(ROWS)),
    "kmeans": partition_state(KMeans(n_groups=3).fit_rows(ROWS)),
    "column": partition_state(Column("subject").fit_rows(ROWS)),
    "product": partition_state(Product(Column("subject"), KDTree(max_depth=2)).fit_rows(ROWS)),
}


def broken(name, *steps, to=None):
    """Return a saved state in which the entry at the end of `steps` is another, or is gone."""
    plain, arrays = copy.deepcopy(SAVED[name])
    place = {"plain": plain, "arrays": arrays}
    for step in steps[:-1]:
        place = place[step]
    if to is GONE:
        del place[steps[-1]]
    else:
        place[steps[-1]] = to
    return plain, arrays


GONE = object()
NAN = float("nan")


@pytest.mark.parametrize("name", SAVED)
def test_what_was_saved_loads(name):
    partition_from_state(*copy.deepcopy(SAVED[name])).groups_of(ROWS)


@pytest.mark.parametrize(
    ("message", "name", "steps", "to"),
    [
        ("of kind 'forest'; this qacal knows", "kdtree", ("plain", "kind"), "forest"),
        ("of kind \\['a'\\]", "kdtree", ("plain", "kind"), ["a"]),
        ("a kind, parameters and a state", "kdtree", ("plain", "kind"), GONE),
        ("a kind, parameters and a state", "kdtree", ("plain", "code"), "import os"),
        ("must be dictionaries", "kdtree", ("plain", "parameters"), [1]),
        ("must be dictionaries", "kdtree", ("plain", "state"), None),
        ("has parameters", "kdtree", ("plain", "parameters", "leaf"), 1),
        ("has parameters", "kdtree", ("plain", "parameters", "axes"), GONE),
        ("max_depth is 3000", "kdtree", ("plain", "parameters", "max_depth"), 3000),
        ("max_depth is '2'", "kdtree", ("plain", "parameters", "max_depth"), "2"),
        ("max_depth is True", "kdtree", ("plain", "parameters", "max_depth"), True),
        ("pivots .* expected float64 of shape \\(7,\\)", "kdtree", ("plain", "parameters", "max_depth"), 3),
        ("axes is 'x'", "kdtree", ("plain", "parameters", "axes"), "x"),
        ("has the entries", "kdtree", ("plain", "parameters", "axes"), "coordinate"),
        ("width of a saved kdtree is 0", "kdtree", ("plain", "state", "width"), 0),
        ("width of a saved kdtree is 1000000000.0", "kdtree", ("plain", "state", "width"), 1e9),
        (
            "axes of a saved kdtree are .* expected float64 of shape \\(2, 9\\)",
            "kdtree",
            ("plain", "state", "width"),
            9,
        ),
        ("has the entries", "kdtree", ("plain", "state", "width"), GONE),
        ("has the entries", "kdtree", ("arrays", "pivots"), GONE),
        ("has the entries", "kdtree", ("arrays", "more"), np.zeros(3)),
        ("pivots .* hold nan", "kdtree", ("arrays", "pivots"), np.array([0.0, NAN, 0.0])),
        ("pivots .* hold -inf", "kdtree", ("arrays", "pivots"), np.array([0.0, -np.inf, 0.0])),
        ("pivots .* are int64 of shape", "kdtree", ("arrays", "pivots"), np.array([0, 1, 2])),
        ("pivots .* are object of shape", "kdtree", ("arrays", "pivots"), np.array([None, None, None])),
        ("pivots .* are list", "kdtree", ("arrays", "pivots"), [0.0, 0.0, 0.0]),
        ("low .* hold inf", "kdtree", ("arrays", "low"), np.array([0.0, np.inf])),
        ("high .* are float64 of shape \\(3,\\)", "kdtree", ("arrays", "high"), np.zeros(3)),
        ("axes .* are float64 of shape \\(2,\\)", "kdtree", ("arrays", "axes"), np.zeros(2)),
        ("has 0 axes", "kdtree", ("arrays", "axes"), np.zeros((0, 6))),
        ("has 3 axes; expected 1 to 2", "kdtree", ("arrays", "axes"), np.zeros((3, 6))),
        ("axes .* hold nan", "kdtree", ("arrays", "axes"), np.full((2, 6), NAN)),
        ("sizes .* hold -1", "kdtree", ("arrays", "sizes"), np.array([1, 1, 1, -1])),
        ("sizes .* are float64", "kdtree", ("arrays", "sizes"), np.zeros(4)),
        ("has the entries", "coordinate", ("arrays", "axes"), np.zeros((2, 6))),
        ("seed is 'x'", "bisecting", ("plain", "parameters", "seed"), "x"),
        ("directions .* are float64 of shape \\(3, 6\\)", "bisecting", ("plain", "state", "width"), 5),
        ("directions .* hold inf", "bisecting", ("arrays", "directions"), np.full((3, 6), np.inf)),
        ("a direction .* has length 0.5", "bisecting", ("arrays", "directions"), np.full((3, 6), 0.5 / 6**0.5)),
        ("a direction .* has length inf", "bisecting", ("arrays", "directions"), np.full((3, 6), 1e200)),
        ("offsets .* hold nan", "bisecting", ("arrays", "offsets"), np.full(3, NAN)),
        ("sizes .* are int64 of shape \\(3,\\)", "bisecting", ("arrays", "sizes"), np.zeros(3, dtype=np.int64)),
        ("pull is -1", "learned", ("plain", "parameters", "pull"), -1),
        ("pull is '2'", "learned", ("plain", "parameters", "pull"), "2"),
        ("seed is None", "learned", ("plain", "parameters", "seed"), None),
        ("has parameters", "learned", ("plain", "parameters", "pull"), GONE),
        ("has the entries", "learned", ("plain", "state", "spread"), GONE),
        ("spread of a saved learned is nan", "learned", ("plain", "state", "spread"), NAN),
        ("spread of a saved learned is -0.1", "learned", ("plain", "state", "spread"), -0.1),
        ("spread of a saved learned is inf", "learned", ("plain", "state", "spread"), float("inf")),
        ("spread of a saved learned is True", "learned", ("plain", "state", "spread"), True),
        ("width of a saved learned is 0", "learned", ("plain", "state", "width"), 0),
        ("has the entries", "learned", ("arrays", "offsets"), GONE),
        ("offsets .* hold nan", "learned", ("arrays", "offsets"), np.full(3, NAN)),
        ("directions of a saved learned are float64", "learned", ("arrays", "directions"), np.zeros((7, 6))),
        ("a direction of a saved learned tree has length", "learned", ("arrays", "directions"), np.ones((3, 6))),
        ("sizes .* hold -1", "learned", ("arrays", "sizes"), np.array([1, 1, 1, -1])),
        ("n_groups is 0", "kmeans", ("plain", "parameters", "n_groups"), 0),
        (
            "groups of a saved kmeans is 4; expected a whole number from 1 to 3",
            "kmeans",
            ("plain", "state", "groups"),
            4,
        ),
        ("centres .* hold nan", "kmeans", ("arrays", "centres"), np.full((3, 6), NAN)),
        ("centres .* are float32", "kmeans", ("arrays", "centres"), np.zeros((3, 6), dtype=np.float32)),
        ("name of a Column is 3", "column", ("plain", "parameters", "name"), 3),
        ("each of them once", "column", ("plain", "state", "labels"), ["law", "law", 7]),
        ("list of texts and numbers", "column", ("plain", "state", "labels"), ["law", ["art"], 7]),
        ("list of texts and numbers", "column", ("plain", "state", "labels"), ["law", NAN, 7]),
        ("list of texts and numbers", "column", ("plain", "state", "labels"), "law"),
        ("not as many counts as labels", "column", ("plain", "state", "labels"), ["law"]),
        ("whole numbers above 0", "column", ("plain", "state", "counts"), [1, 2, -1]),
        ("whole numbers above 0", "column", ("plain", "state", "counts"), [1, 2, True]),
        ("has the entries", "column", ("arrays", "labels"), np.zeros(3)),
        ("a list of 1 to 16", "product", ("plain", "state", "parts"), []),
        ("a list of 1 to 16", "product", ("plain", "state", "parts"), {"a": 1}),
        ("a kind, parameters and a state", "product", ("plain", "state", "parts", 0), None),
        ("not those of its parts", "product", ("plain", "parameters", "parts", 1, "parameters", "max_depth"), 3),
        ("not those of its parts", "product", ("plain", "parameters"), {}),
        ("max_depth is 99", "product", ("plain", "state", "parts", 1, "parameters", "max_depth"), 99),
        ("belongs to none of its 2 parts", "product", ("arrays", "2.pivots"), np.zeros(3)),
        ("has the entries", "product", ("arrays", "1.more"), np.zeros(3)),
        ("has the entries", "product", ("arrays", "1.pivots"), GONE),
        ("has a product among its parts", "product", ("plain", "state", "parts", 0), SAVED["product"][0]),
        ("never saved", "column", ("plain", "kind"), "function"),
    ],
)
def test_broken_states_are_refused(message, name, steps, to):
    with pytest.raises(InputError, match=message):
        partition_from_state(*broken(name, *steps, to=to))


@pytest.mark.parametrize("plain", [None, [], "kdtree", {}, {"kind": "kdtree"}])
def test_other_things_are_refused(plain):
    with pytest.raises(InputError, match="a kind, parameters and a state"):
        partition_from_state(plain, {})


def test_arrays_are_copied():
    """What a caller does to its arrays after loading does not reach the partition."""
    plain, arrays = copy.deepcopy(SAVED["bisecting"])
    partition = partition_from_state(plain, arrays)
    before = partition.assign(ROWS["embedding"]).tolist()
    arrays["offsets"][:] = 1e9
    assert partition.assign(ROWS["embedding"]).tolist() == before
