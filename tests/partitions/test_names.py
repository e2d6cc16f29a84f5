"""Partitions by name, as typed on the command line."""

import pytest

from qacal import InputError
from qacal.partitions import KMeans, Product, as_partition


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("kdtree", "KDTree()"),
        ("kdtree:6", "KDTree()"),
        ("bisecting:5", "BisectingTree(max_depth=5)"),
        ("kmeans:8", "KMeans(n_groups=8)"),
        ("column:subject", "Column('subject')"),
        ("column:my subject: long", "Column('my subject: long')"),
        ("column:tenant*bisecting:4", "Product(Column('tenant'), BisectingTree(max_depth=4))"),
        (" column:a * column:b * kmeans:2 ", "Product(Column('a'), Column('b'), KMeans(n_groups=2))"),
    ],
)
def test_spellings(text, meant):
    assert repr(as_partition(text)) == meant


def test_partitions():
    kmeans = KMeans()
    assert as_partition(kmeans) is kmeans
    assert isinstance(as_partition("kdtree:1*kmeans:2"), Product)


@pytest.mark.parametrize(
    "wrong", ["", "forest", "kdtree:", "kdtree:x", "kdtree:-1", "kdtree:²", "column", "column:", "a*"]
)
def test_other_texts_are_refused(wrong):
    with pytest.raises(InputError, match='names no partition; there are "kdtree:6"'):
        as_partition(wrong)


@pytest.mark.parametrize("wrong", [None, 3, KMeans, len, ["kdtree"]])
def test_other_values_are_refused(wrong):
    with pytest.raises(InputError, match="is not a partition; there are"):
        as_partition(wrong)


def test_the_part_that_is_wrong_is_named():
    with pytest.raises(InputError, match=r"'tree:3' in 'column:a\*tree:3' names no partition"):
        as_partition("column:a*tree:3")
