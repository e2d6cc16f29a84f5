"""Products: one label for each combination, and no two combinations with one label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from qacal import InputError
from qacal.partitions import BisectingTree, Column, KDTree, KMeans, Product

texts = st.text(alphabet="a/ ", min_size=1, max_size=4)


def fitted(rows, *names):
    return Product(*map(Column, names))._fit_rows(rows)


def test_labels_are_joined():
    rows = {"tenant": ["acme", "acme", None], "topic": ["a/b", 3, "x"]}
    assert fitted(rows, "tenant", "topic")._groups_of(rows).tolist() == ["acme / a//b", "acme / 3", None]


@given(st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=20))
def test_different_combinations_have_different_labels(rows):
    a, b, c = map(list, zip(*rows, strict=True))
    groups = fitted({"a": a, "b": b, "c": c}, "a", "b", "c")._groups_of({"a": a, "b": b, "c": c})
    assert len(set(groups.tolist())) == len(set(rows))


def test_no_group_in_one_part_is_no_group():
    rows = {"tenant": ["a", "b"], "embedding": [[0.0], [1.0]]}
    product = Product(Column("tenant"), KDTree(max_depth=1, axes="coordinate"))._fit_rows(rows)
    new = {"tenant": ["a", "c", "a"], "embedding": [[0.0], [0.0], [9.0]]}
    assert product._groups_of(new).tolist() == ["a / 0", None, None]


def test_parts_are_left_as_they_were():
    tree = BisectingTree(max_depth=1)
    product = Product(Column("tenant"), tree)._fit_rows({"tenant": ["a"], "embedding": [[0.0]]})
    assert not hasattr(tree, "fitted_")
    assert product.parts[1] is tree
    copy = clone(product)
    assert not hasattr(copy, "fitted_")
    assert copy.parts[1] is not tree


def test_needs_are_joined():
    assert Product(Column("a"), KDTree(), KMeans(), Column("a"))._needs == ("a", "embedding")


def test_refusals():
    with pytest.raises(InputError, match="expected 1 to 16 partitions"):
        Product()._fit_rows({})
    with pytest.raises(InputError, match="a part of the Product is 'column:a'"):
        Product("column:a")._fit_rows({"a": [1]})
    with pytest.raises(InputError, match="list its parts instead"):
        Product(Product(Column("a")), Column("b"))._fit_rows({"a": [1], "b": [1]})
    rows = {"a": [1, 2], "b": ["x", "y"]}
    with pytest.raises(InputError, match="the columns have 1, 2 rows"):
        fitted(rows, "a", "b")._groups_of({"a": [1, 2], "b": ["x"]})


def test_many_rows():
    rng = np.random.default_rng(0)
    rows = {"a": rng.integers(0, 50, 10_000), "b": rng.integers(0, 50, 10_000)}
    groups = fitted(rows, "a", "b")._groups_of(rows)
    assert groups[17] == f"{rows['a'][17]} / {rows['b'][17]}"
