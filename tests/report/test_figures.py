"""Every figure on every kind of rows: it draws on the given axes, and has a text alternative."""

import io
import re

import matplotlib
import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from qacal import StepBinning, Tally
from qacal.errors import InputError
from qacal.report import (
    realised_error_plot,
    realised_errors,
    recalibration_scatter,
    reliability_diagram,
    risk_coverage_plot,
    sharpness_plot,
    small_reliability_diagram,
    threshold_plot,
)
from qacal.report.data import merged
from tests.report.rows import content, scored
from tests.sizes import FULL

FIGURES = [
    reliability_diagram,
    small_reliability_diagram,
    recalibration_scatter,
    sharpness_plot,
    threshold_plot,
    risk_coverage_plot,
]
ROWS = {
    "one row": scored(1),
    "two rows": scored(2),
    "all right": scored(80, mean=1.0),
    "all wrong": scored(80, mean=0.0),
    "one confidence": scored(200, values=1),
    "300 rows": scored(300),
    "continuous": scored(3000, values=None),
}


# The small suite makes all figures and renders those of a few kinds of rows: rendering takes most of the time.
RENDERED = ROWS if FULL else ["two rows", "all right", "continuous"]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.__name__)
def test_every_figure_draws_every_kind_of_rows(figure):
    for kind, rows in ROWS.items():
        ax = figure(rows)
        if kind in RENDERED:
            ax.figure.savefig(io.BytesIO(), format="svg")
        assert len(ax.get_title(loc="left")) > 20, kind
        assert len(ax.get_label()) > 40, kind
        assert "nan" not in (ax.get_title(loc="left") + ax.get_label()).lower(), kind


@pytest.mark.parametrize("rows", ROWS if FULL else ["one row", "300 rows"])
@pytest.mark.parametrize("figure", [one for one in FIGURES if one is not small_reliability_diagram])
def test_the_key_covers_nothing(figure, rows):
    """It is below the axes and their labels, and within the figure."""
    ax = figure(ROWS[rows])
    ax.figure.draw_without_rendering()
    key, whole = ax.get_legend().get_window_extent(), ax.figure.bbox
    assert key.y1 <= ax.xaxis.get_tightbbox().y0 + 1
    assert key.y1 < ax.get_window_extent().y0
    assert key.x0 >= whole.x0
    assert key.y0 >= whole.y0
    assert key.x1 <= whole.x1


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.__name__)
def test_every_figure_uses_the_axes_it_is_given(figure):
    fig = Figure()
    left, right = fig.subplots(1, 2)
    left.errorbar([0.5], [0.5], yerr=[0.1], label="mine")
    assert figure(scored(300), ax=left) is left
    assert not right.has_data()
    fig.savefig(io.BytesIO(), format="pdf")


def test_figures_take_tallies_and_records_alike():
    rows = scored(500)
    records = pl.DataFrame({"confidence": rows.scores["stated"], "correct": rows.correct})
    from_records = reliability_diagram(records)
    tally = Tally.of(rows.scores["stated"], rows.correct, n_blocks=256)
    assert from_records.get_label() == reliability_diagram(tally).get_label()
    both = records.with_columns(calibrated=rows.scores["calibrated"])
    assert len(sharpness_plot(both).get_legend().get_texts()) == 2
    assert "calibrated" in recalibration_scatter(both).get_label()
    with pytest.raises(InputError, match="only the stated confidence"):
        recalibration_scatter(records)


def test_figures_leave_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    content()
    reliability_diagram(scored(100))
    assert dict(matplotlib.rcParams) == before


def test_titles_match_the_rows():
    said = Tally.of([0.9] * 1000, [1] * 500 + [0] * 500)
    assert reliability_diagram(said).get_title(loc="left") == "Stated confidence is off by 40 points"
    even = {"stated": said, "calibrated": Tally.of([0.5] * 1000, [1] * 500 + [0] * 500)}
    assert reliability_diagram(even).get_title(loc="left").endswith("calibrated confidence shows no error beyond noise")
    few = reliability_diagram(scored(200)).get_title(loc="left")
    assert re.search(r"calibrated confidence shows no error beyond noise \(at most [\d.]+ points at 95%\)$", few)
    assert "; no calibrated one is as high" in threshold_plot(even).get_title(loc="left")
    assert risk_coverage_plot(even).get_title(loc="left").startswith("The ranking is about the same: error rate 50%")


def test_wrong_answers_are_spread_evenly_over_ties():
    """Half of the rows at 0.9, all right; half at 0.5, all wrong: answering 3/4 of them, 1/3 is wrong."""
    ax = risk_coverage_plot(Tally.of([0.9] * 500 + [0.5] * 500, [1] * 500 + [0] * 500))
    coverage, risk = ax.lines[0].get_data()
    np.testing.assert_allclose(np.interp([0.5, 0.75, 1], coverage, risk), [0, 1 / 3, 1 / 2], atol=4e-3)


def test_a_threshold_is_marked_on_every_score():
    ax = threshold_plot(scored(500), threshold=0.6)
    assert [line.get_xdata()[0] for line in ax.lines].count(0.6) == 1 + 1  # the line, and one mark: stated
    assert len(risk_coverage_plot(scored(500), threshold=0.4).lines) == 3 + 3


def test_realised_errors_are_drawn_over_their_bounds():
    realised = content().realised
    ax = realised_error_plot(realised)
    assert f"{len(realised.rows)} bins" in ax.get_label()
    assert ax.get_xlim()[1] >= realised.bound.max()


def test_a_million_rows_are_few_marks():
    rng = np.random.default_rng(0)
    many = scored(200_000, values=None)
    many.scores["calibrated"][:] = np.clip(many.scores["stated"] * 0.5 + rng.normal(0, 0.1, 200_000), 0, 1)
    ax = recalibration_scatter(many)
    assert sum(len(line.get_xdata()) for line in ax.lines) < 2000
    assert sum(len(line.get_xdata()) for line in risk_coverage_plot(many).lines) < 1000


def test_the_guarantee_is_drawn_with_what_chance_explains():
    """Two bins with an accuracy of 0.5, each certified on 2,000 rows and tested on 100 new ones."""
    score = np.repeat([0.25, 0.75], 2000)
    model = StepBinning(step=0.5).fit(score, np.tile([0.0, 1.0], 2000))
    bins = model.maps_.bins_of(model._checked_rows(score[::20], None, None))

    def title(right):
        found = realised_errors(
            model.maps_, bins, bins[:, None], np.tile(np.repeat([1.0, 0.0], [right, 100 - right]), 2)
        )
        return realised_error_plot(found).get_title(loc="left")

    assert title(48) == "All 2 bins are within their bound"
    assert title(60) == "0 of 2 bins are within their bound; chance explains the others"
    assert title(90) == "2 of 2 bins exceed their bound by more than chance explains"


def scatter_of(stated, calibrated):
    rows = zip(stated.tolist(), calibrated.tolist(), strict=True)
    return recalibration_scatter(
        [{"confidence": a, "correct": k % 2, "calibrated": b} for k, (a, b) in enumerate(rows)]
    )


@pytest.mark.parametrize("slope", [3.59, 1.0, -2.5, 0.0])
def test_the_regression_line_has_the_slope_that_the_key_names(slope):
    """Confidences from 0 to 1: a steep line leaves the square; it is cut and keeps its slope."""
    stated = np.append(np.linspace(0.4, 0.6, 199), [0.0, 1.0])
    ax = scatter_of(stated, np.clip(0.5 + slope * (stated - 0.5), 0, 1))
    line = next(line for line in ax.lines if line.get_label().startswith("calibrated"))
    x, y = line.get_data()
    named = float(re.search(r"slope (.+)", line.get_label()).group(1).replace("\u2212", "-"))
    np.testing.assert_allclose(y[1] - y[0], named * (x[1] - x[0]), atol=0.006)
    assert y.min() >= 0
    assert y.max() <= 1


def test_marks_are_at_the_means_of_their_rows_with_areas_on_one_scale():
    pairs = {"pooled": scored(900).pairs()["calibrated"], "calibrated": scored(100).pairs()["calibrated"]}
    ax = recalibration_scatter(pairs)
    marks = [line for line in ax.lines if line.get_linestyle() == "None"]
    largest = {kind: max(line.get_markersize() for line in marks if line.get_marker() == kind) for kind in "so"}
    assert largest["o"] < 0.6 * largest["s"]
    ax = scatter_of(np.full(50, 0.95), np.linspace(0.600, 0.612, 50))
    assert {round(float(x), 6) for line in ax.lines[1:] for x in line.get_xdata()} == {0.95}


def test_a_frequent_confidence_is_in_the_column_that_it_begins():
    for kind in (np.float64, np.float32):
        stated = np.array([0.15, 0.3, 0.7, 0.95], dtype=kind).astype(np.float64)
        heights = sharpness_plot(Tally.of(stated, [0, 1, 0, 1])).patches[0].get_data().values
        assert np.flatnonzero(heights).tolist() == [3, 6, 14, 19]


def test_a_bin_within_its_bound_is_drawn_below_the_diagonal():
    bound, error = np.array([0.1024, 0.3]), np.array([0.1023, 0.31])
    x, y, rows = merged(bound, error, np.array([10, 10]), fine=0.005, coarse=0.02)
    assert (y <= x).tolist() == [True, False]
    x, y, rows = merged(np.array([0.100, 0.101]), np.array([0.101, 0.100]), np.array([5, 7]), fine=0.02, coarse=0.02)
    assert rows.tolist() == [7, 5]
    assert (y > x).tolist() == [False, True]


def test_ranks_that_read_the_same_are_not_called_better():
    """AURC 0.3330 before and 0.3300 after: both are 33% in the title."""
    right = np.tile([1.0, 0.0, 1.0], 200)
    before = Tally.of(np.linspace(1, 0, 600), right)
    after = Tally.of(np.append(np.linspace(0.99, 0, 596), [1.0] * 4), right)
    assert (
        risk_coverage_plot({"stated": before, "calibrated": after})
        .get_title(loc="left")
        .startswith("The ranking is about")
    )
