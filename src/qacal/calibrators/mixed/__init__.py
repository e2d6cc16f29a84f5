"""The mixed models behind HierarchicalScaling and TreeScaling: one logistic curve per group, shrunk to its parent's.

In: sums per confidence and group. Out: a curve per group with the variances that shrink them. Open `flat.py` first
(groups side by side), then `tree.py` (groups in a tree).
"""
