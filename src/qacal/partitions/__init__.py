"""From a row to its group: the paper's beta.

In: vectors of texts, or columns of the rows. Out: a label per row, or its path in a tree. Open `base.py` first, then
`bisecting.py` (the default).
"""

from qacal.partitions.base import EMBEDDING, Partition
from qacal.partitions.bisecting import BisectingTree
from qacal.partitions.column import Column
from qacal.partitions.kdtree import KDTree
from qacal.partitions.kmeans import KMeans
from qacal.partitions.names import as_partition
from qacal.partitions.product import Product

__all__ = [
    "EMBEDDING",
    "BisectingTree",
    "Column",
    "KDTree",
    "KMeans",
    "Partition",
    "Product",
    "as_partition",
]
