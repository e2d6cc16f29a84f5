"""How wide intervals are: with fewer and more labels than a fit has, and for a width that was asked for."""

import json
import re
import warnings
from dataclasses import asdict

import numpy as np
import pytest

from qacal import QACalibrator, QacalWarning, Tally
from qacal.calibrators import MarginBinning
from qacal.calibrators.cells import Cells
from qacal.calibrators.margins import fit_margins
from qacal.model.summary import described
from qacal.planning import shown_bound
from tests.answers import answers
from tests.cli.test_cli_fit import fit

ROWS = answers(2000)


@pytest.fixture(scope="module")
def model():
    return QACalibrator().fit(ROWS)


def table(model):
    """Return the lines of the table of widths."""
    lines = described(model).splitlines()
    title = "Widths by number of labels, measured with the scores of this fit (* expected):"
    return lines[lines.index(title) :]


def test_widths_are_measured_on_parts_of_the_rows(model):
    quarter, half, now, twice, four_times = model.widths_
    assert [one.labels for one in model.widths_] == [500, 1000, 2000, 4000, 8000]
    assert [one.is_measured for one in model.widths_] == [True, True, True, False, False]
    maps = model.calibrator_.maps_
    assert (now.bands, now.groups) == (maps.n_bands, maps.n_groups)
    assert (now.band_width, now.group_width) == (maps.median_error_bound(), maps.median_group_width())
    assert quarter.bands <= half.bands <= now.bands <= twice.bands <= four_times.bands
    assert quarter.groups <= half.groups <= now.groups <= twice.groups <= four_times.groups
    assert four_times.band_width < quarter.band_width
    assert four_times.group_width < quarter.group_width


def test_what_is_expected_of_more_rows_is_what_they_give(model):
    """With twice as many rows of the same kind."""
    expected, found = model.widths_[3], QACalibrator().fit(answers(4000)).widths_[2]
    assert abs(found.bands - expected.bands) <= 1
    assert found.groups == expected.groups
    assert found.band_width == pytest.approx(expected.band_width, rel=0.35)
    assert found.group_width == pytest.approx(expected.group_width, rel=0.2)


def test_what_is_measured_on_a_part_is_what_a_fit_on_it_gives(model):
    """A smaller fit has a worse score, but the width of an interval hardly depends on it."""
    half = model.widths_[1]
    alone = QACalibrator().fit(ROWS[::2]).widths_[2]
    assert (alone.bands, alone.groups) == (half.bands, half.groups)
    assert alone.band_width == pytest.approx(half.band_width, rel=0.35)
    assert alone.group_width == pytest.approx(half.group_width, rel=0.2)


def test_the_order_of_rows_does_not_matter(model):
    for one, other in zip(QACalibrator().fit(ROWS[::-1]).widths_, model.widths_, strict=True):
        assert asdict(one) == pytest.approx(asdict(other), abs=1e-9)


def test_the_table_fits_into_a_terminal(model):
    lines = table(model)
    assert len(lines) == 4
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].split() == ["labelled", "rows", "500", "1,000", "2,000", "*4,000", "*8,000"]
    now = model.widths_[2]
    assert f"±{shown_bound(now.band_width)} ({now.bands})" in lines[2]
    assert f"±{shown_bound(now.group_width)} ({now.groups})" in lines[3]


def test_a_loaded_model_has_no_table(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = QACalibrator.load(tmp_path / "model")
    assert loaded.widths_ == ()
    assert described(loaded).splitlines()[1:] == described(model).splitlines()[1:-4]


@pytest.mark.usefixtures("wordless_unless_full")
def test_json_has_the_widths(tmp_path):
    found = json.loads(fit(tmp_path, ROWS, "--json")[0])
    assert [one["labels"] for one in found["widths"]] == [500, 1000, 2000, 4000, 8000]
    assert found["widths"][2]["band_width"] == found["median_epsilon_of_a_row"]
    assert found["widths"][2]["groups"] == found["groups_with_intervals"]


@pytest.mark.usefixtures("wordless_unless_full")
def test_very_few_rows_have_a_table_too():
    model = QACalibrator().fit(answers(40))
    assert [one.labels for one in model.widths_[-3:]] == [40, 80, 160]
    assert all(0 < one.band_width <= 1 for one in model.widths_)


@pytest.mark.usefixtures("wordless_unless_full")
def test_few_rows_are_told_how_many_would_say_more(tmp_path):
    out, _ = fit(tmp_path, answers(80))
    said = "80 labelled rows: the intervals say little. Even one interval for all answers is within 0.1 only from"
    labels = int(re.match(rf"{said} about (\d+) labelled rows on\.\n", out)[1])
    assert "say little" not in fit(tmp_path, answers(120))[0]

    def bound(labels, seed):
        rng, rows = np.random.default_rng(seed), round(0.7 * labels)
        score = rng.uniform(0.4, 0.6, rows)
        tally = Tally.of(score, rng.random(rows) < score, groups=np.arange(rows) % 2)
        return fit_margins(tally, Cells(np.array([np.inf]), None)).median_error_bound()

    # With as many, one band is within 0.1 in most fits, and with half of them it is not.
    assert np.median([bound(labels, seed) for seed in range(50)]) <= 0.1
    assert np.median([bound(labels // 2, seed) for seed in range(50)]) > 0.1


# A width that was asked for


def labels_in(message):
    return [int(number.replace(",", "")) for number in re.findall(r"about ([\d,]+) labelled rows", message)]


def test_a_width_out_of_reach_is_told_with_the_rows_that_it_takes(tmp_path):
    with pytest.warns(QacalWarning, match="intervals within 0.03 are out of reach") as caught:
        model = QACalibrator(calibrator=MarginBinning(within=0.03)).fit(ROWS[:500])
    (message,) = [str(one.message) for one in caught if "out of reach" in str(one.message)]
    maps = model.calibrator_.maps_
    assert (maps.n_bands, maps.n_groups) == (1, 0)
    assert f"by probability, these rows give {maps.median_error_bound():.2g} in one band" in message
    for_one_band, for_two_groups = labels_in(message)
    assert 1000 < for_one_band < for_two_groups
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert f"Note: {message}" in fit(tmp_path, ROWS[:500], "--within", "0.03")[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reached = QACalibrator(calibrator=MarginBinning(within=0.03)).fit(answers(for_two_groups))
    # The number of rows is an estimate, and one fit is one draw.
    assert reached.calibrator_.maps_.median_error_bound() <= 1.1 * 0.03
    assert reached.calibrator_.maps_.median_group_width() <= 1.1 * 0.03


@pytest.mark.usefixtures("wordless_unless_full")
def test_a_width_that_is_reached_is_told_with_bands_and_groups(tmp_path):
    out, err = fit(tmp_path, ROWS, "--within", "0.1")
    assert "out of reach" not in err
    asked = r"for half of the answers \(asked for: 0\.1\),"
    bands, bound = re.search(
        rf"by probability: in each of (\d+) bands .*\n.*\n +within (0\.\d\d) {asked} within", out
    ).groups()
    groups, width = re.search(
        rf"by group: the accuracy of each of (\d+) groups is known\n +to ±(0\.\d\d) {asked} to ±", out
    ).groups()
    assert (int(bands) > 2, int(groups) > 1) == (True, True)
    assert (float(bound) <= 0.1, float(width) <= 0.1) == (True, True)


def test_arrays_are_told_too():
    rng = np.random.default_rng(0)
    score, subject = rng.uniform(0.3, 0.9, 300), rng.integers(0, 3, 300)
    right = rng.random(300) < score
    with pytest.warns(QacalWarning, match="out of reach: by probability, .*; by group, these rows give 0"):
        MarginBinning(within=0.02).fit(score, right, groups=subject)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MarginBinning(within=0.3).fit(score, right, groups=subject)
