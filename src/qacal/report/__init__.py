"""The report: one HTML file that shows what was fitted and how good it is, and its figures for notebooks and papers.

In: a model and labelled records that it was not fitted on. Out: a page, or figures. Open `content.py` first: it holds
every value that the page shows.

Every figure is a function that takes tallies or records and an optional `ax`, and returns the axes:

>>> from qacal.report import reliability_diagram
>>> rows = [{"confidence": 0.9, "correct": n % 2, "calibrated": 0.5} for n in range(200)]
>>> ax = reliability_diagram(rows)
>>> ax.figure.savefig("reliability.pdf")  # doctest: +SKIP
"""

from qacal.report.content import Content, read_contents
from qacal.report.data import Scored
from qacal.report.figures.intervals import band_plot, group_plot
from qacal.report.figures.reliability import reliability_diagram, small_reliability_diagram
from qacal.report.figures.scatter import realised_error_plot, recalibration_scatter, sharpness_plot
from qacal.report.figures.selective import risk_coverage_plot, threshold_plot
from qacal.report.page import Block, render
from qacal.report.promise import Realised, realised_errors
from qacal.report.tables import Cell, Table

__all__ = [
    "Block",
    "Cell",
    "Content",
    "Realised",
    "Scored",
    "Table",
    "band_plot",
    "group_plot",
    "read_contents",
    "realised_error_plot",
    "realised_errors",
    "recalibration_scatter",
    "reliability_diagram",
    "render",
    "risk_coverage_plot",
    "sharpness_plot",
    "small_reliability_diagram",
    "threshold_plot",
]
