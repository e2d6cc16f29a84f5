"""beta: from a row to its group, by its vector or by what is known of it."""

from qacal.partitions.base import EMBEDDING, Partition
from qacal.partitions.bisecting import BisectingTree
from qacal.partitions.column import Column, Function
from qacal.partitions.kdtree import KDTree
from qacal.partitions.kmeans import KMeans
from qacal.partitions.learned import LearnedTree
from qacal.partitions.names import as_partition
from qacal.partitions.product import Product

__all__ = [
    "EMBEDDING",
    "BisectingTree",
    "Column",
    "Function",
    "KDTree",
    "KMeans",
    "LearnedTree",
    "Partition",
    "Product",
    "as_partition",
]
