"""The report of the default model: what bands and groups guarantee, whether it held, and the menu of thresholds."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from qacal import MarginBinning, QACalibrator, QacalWarning
from qacal.calibrators.base import Rows
from qacal.calibrators.cells import Cells
from qacal.calibrators.margins import fit_margins
from qacal.planning import shown_bound
from qacal.report import Block, band_plot, group_plot, read_contents, realised_errors, render
from qacal.report.sentences import in_short, verdict_of
from qacal.report.style import COLOURS
from qacal.report.tables import menu_table
from qacal.tally.ids import id_hashes
from qacal.tally.tally import Tally
from tests.answers import answers
from tests.report.rows import content as content_of_bins

SCORES = np.tile([0.3, 0.9], 2000)
GROUPS = np.repeat(["art", "law"], 2000)


def labels(by_cell, score, group):
    """Return labels with exactly these accuracies, by (score, group)."""
    out = np.zeros(len(score))
    for (value, name), share in by_cell.items():
        at = np.flatnonzero((score == value) & (group == name))
        out[at[: round(share * len(at))]] = 1.0
    return out


AS_FITTED = {(0.3, "art"): 0.2, (0.9, "art"): 0.8, (0.3, "law"): 0.4, (0.9, "law"): 1.0}


@cache
def maps():
    """Return two bands, with accuracies 0.3 and 0.9, and two groups, with 0.5 and 0.7."""
    tally = Tally.of(SCORES, labels(AS_FITTED, SCORES, GROUPS), groups=GROUPS)
    return fit_margins(tally, Cells(np.array([0.6, np.inf]), None))


def realised(by_cell, n=400):
    score, group = SCORES[:n], np.repeat(["art", "law"], n // 2)
    levels = maps().cells.bins_by_level(Rows(score, group, None))
    return realised_errors(maps(), levels[:, 0], levels, labels(by_cell, score, group), answers=score)


def verdict(found):
    return verdict_of(replace(content_of_bins(), realised=found))


def test_bands_and_groups_that_hold():
    found = realised(AS_FITTED)
    assert found.group == (None, None, "art", "law")
    np.testing.assert_allclose(found.accuracy, [0.3, 0.9, 0.5, 0.7])
    np.testing.assert_allclose(found.answer, [0.3, 0.9, np.nan, np.nan])
    assert found.typical == pytest.approx(0.0)
    said = verdict(found)
    assert said.answer == "Yes, as far as these rows can tell."
    assert said.reasons.startswith("4 of 4 intervals (2 bands, 2 groups) have enough rows here to be tested.")


def test_a_broken_band():
    """Accuracies of the groups are as in the fit; those of the bands are exchanged."""
    found = realised({(0.3, "art"): 0.8, (0.9, "art"): 0.2, (0.3, "law"): 1.0, (0.9, "law"): 0.4})
    assert found.is_broken.tolist() == [True, True, False, False]
    said = verdict(found)
    assert said.answer == "No: 2 of 4 testable intervals missed the true accuracy."
    low, high = maps().cells.low[0], maps().cells.high[0]
    assert (
        f"The worst is the band of answers near 0.30: its accuracy was certified to be {low:.2f} to {high:.2f}, "
        "but 90% of 200 answers are correct."
    ) in said.reasons
    assert found.typical == pytest.approx(0.6)
    assert band_plot(found).get_title(loc="left") == "2 of 2 bands: the accuracy contradicts the interval"
    assert group_plot(found).get_title(loc="left") == "The accuracy lies in the interval of every group"


def test_a_broken_group():
    """Accuracies of the bands are as in the fit; those of the groups are not."""
    found = realised({(0.3, "art"): 0.6, (0.9, "art"): 1.0, (0.3, "law"): 0.0, (0.9, "law"): 0.8})
    np.testing.assert_allclose(found.accuracy, [0.3, 0.9, 0.8, 0.4])
    assert found.is_broken.tolist() == [False, False, True, True]
    assert "The worst is art: its accuracy was certified to be 0.4" in verdict(found).reasons
    assert "but 80% of 200 answers are correct." in verdict(found).reasons
    assert found.typical == pytest.approx(0.0)
    assert group_plot(found).get_title(loc="left") == "2 of 2 groups: the accuracy contradicts the interval"
    assert "contradicts 2." in group_plot(found).get_label()


def test_the_legend_names_every_mark_in_its_colour():
    """One of the two bands is off."""
    half = realised({(0.3, "art"): 0.2, (0.9, "art"): 0.1, (0.3, "law"): 0.4, (0.9, "law"): 0.3})
    assert half.is_broken[:2].tolist() == [False, True]
    key = {text.get_text(): text.get_color() for text in band_plot(half).get_legend().get_texts()}
    assert key == {
        "certified interval": COLOURS["pooled"],
        "accuracy of the test rows": COLOURS["calibrated"],
        "accuracy that contradicts its interval": COLOURS["stated"],
    }


def test_a_wrong_answer_within_a_true_interval_is_an_error_and_no_breach():
    """The certified accuracy of the bands holds, and the answers of the test rows are 0.1 too high."""
    score, group = SCORES[:400], np.repeat(["art", "law"], 200)
    levels = maps().cells.bins_by_level(Rows(score, group, None))
    correct = labels(AS_FITTED, score, group)
    found = realised_errors(maps(), levels[:, 0], levels, correct, answers=score + 0.1)
    assert not found.is_broken.any()
    np.testing.assert_allclose(found.answer[:2], [0.4, 1.0])
    assert found.typical == pytest.approx(0.1)


def test_few_rows_of_bands_and_groups():
    found = realised(AS_FITTED, n=4)
    assert verdict(found).answer == "Too few rows to tell."
    assert "no band or group has more than 2 rows." in verdict(found).reasons


def test_one_row_of_each_document_counts_in_each_band_and_group():
    ids = np.repeat(np.arange(500), 8)
    fitted = MarginBinning().fit(SCORES, labels(AS_FITTED, SCORES, GROUPS), groups=GROUPS, ids=ids).maps_
    assert fitted.certificate.is_by_document
    levels = fitted.cells.bins_by_level(Rows(SCORES, GROUPS, None))
    correct = labels(AS_FITTED, SCORES, GROUPS)
    found = realised_errors(fitted, levels[:, 0], levels, correct, id_hashes(ids, len(ids)), SCORES)
    bands = ~found.is_group
    assert found.rows[bands].sum() == len({*zip(ids.tolist(), levels[:, 0].tolist(), strict=True)})
    assert found.rows[~bands].sum() == 500
    assert "of each document in each band and group was counted" in verdict(found).reasons


@cache
def model():
    return QACalibrator(partition="bisecting:2").fit(answers(2000))


@cache
def content():
    return read_contents(model(), answers(1500, seed=1))[""]


@pytest.fixture(scope="module")
def page():
    return render("Margins", [Block("parrot-1", content())])


def text_of(page):
    return " ".join(re.sub(r"<[^>]+>", "", page).split())


def test_the_guarantee_in_plain_sentences(page):
    promise, said = content().promise, text_of(page)
    assert promise.bands > 1
    assert promise.groups == 4
    assert f"With probability 90% over the {promise.rows:,} certifying rows, all of this holds at once".lower() in (
        said.lower()
    )
    assert (
        f"The mean calibrated probability of the answers of a band is within {shown_bound(promise.certified)} of their "
        f"accuracy for half of the test rows, and within {shown_bound(promise.largest)} in every band."
    ) in said
    assert "the accuracy of all answers of a group lies in its interval, for all 4 groups." in said
    assert "every range of confidences" not in said
    assert verdict_of(content()).answer == "Yes, as far as these rows can tell."


def test_the_promise_is_that_of_the_rows():
    rows = [row for row in model().calibrate(answers(1500, seed=1)) if row["low"] is not None]
    is_cut = [row["low"] == 0 or row["high"] == 1 for row in rows]
    reach = {
        round(max(row["calibrated"] - row["low"], row["high"] - row["calibrated"]), 5)
        for row, cut in zip(rows, is_cut, strict=True)
        if not cut
    }
    width = {round((row["group_high"] - row["group_low"]) / 2, 5) for row in rows}
    promise = content().promise
    assert round(promise.certified, 5) in reach
    assert round(promise.largest, 5) == max(reach)
    assert round(promise.group_width, 5) in width
    assert round(promise.widest_group, 5) == max(width)


def test_groups_have_their_certified_interval(page):
    intervals = model().calibrator_.maps_.group_intervals()
    by_row = {row["group"]: (row["group_low"], row["group_high"]) for row in model().calibrate(answers(300, seed=1))}
    for group, ends in by_row.items():
        assert intervals[group] == pytest.approx(ends, abs=1e-6)
    for group in content().groups:
        low, high = group.certified
        assert (low, high) == intervals[group.group]
        assert f'<td data-label="certified">{100 * low:.0f}–{100 * high:.0f}%</td>' in page


@pytest.mark.usefixtures("undrawn_unless_full")
def test_groups_of_another_column_have_no_interval():
    found = read_contents(model(), answers(400, seed=1), groups="topic")[""]
    assert not found.has_intervals
    assert 'data-label="certified"' not in render("Topics", [Block("One", found)])


@pytest.mark.usefixtures("wordless_unless_full", "undrawn_unless_full")
def test_a_model_without_groups_promises_bands_only():
    alone = QACalibrator(calibrator=MarginBinning(max_depth=0)).fit(answers(1000))
    found = read_contents(alone, answers(500, seed=1))[""]
    assert found.promise.groups == 0
    assert not found.realised.is_group.any()
    assert "By group: nothing is guaranteed; no group has an interval." in render("Bands", [Block("One", found)])
    assert found.to_dict()["promise"]["group_width"] is None


# The menu of thresholds


def test_the_menu_comes_before_everything_about_intervals(page):
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    assert titles[0] == "When to answer"
    assert titles.index("What is guaranteed, and did it hold?") > 0
    assert in_short(content())[0].startswith("If only the answers with the highest calibrated confidence are given")


def test_the_menu_is_that_of_choose_threshold():
    rows = answers(1500, seed=1)
    for line in content().menu.lines:
        alone = model().choose_threshold(rows, accuracy=line.accuracy, alpha=0.1 / 4)
        assert alone.parts == line.parts
    assert content().to_dict()["menu"]["lines"][0]["accuracy"] == 0.7


def test_the_menu_in_words():
    menu = content().menu
    table = menu_table(menu, has_ids=True)
    assert "With probability 90%, all thresholds in this table have at least their accuracy" in table.intro
    assert "on other answers like these test rows" in table.intro
    assert "(One line by itself: with probability 97.5%.)" in table.intro
    for line, cells in zip(menu.lines, table.cells, strict=True):
        part = line.parts[0]
        assert cells[0].text == f"at least {100 * line.accuracy:.0f}%"
        if part.threshold is not None:
            assert cells[1].text == f"{part.threshold:g}"
            assert cells[2].note == f"{part.accepted:,} of 1,500"


def test_accuracies_out_of_reach():
    found = read_contents(model(), answers(40, seed=1))[""]
    last = menu_table(found.menu, has_ids=True).cells[-1]
    assert found.menu.lines[-1].threshold is None
    assert last[0].note.startswith("not reachable with these rows")
    assert [cell.text for cell in last[1:]] == ["–", "–", "–"]


def test_rows_of_the_fit_certify_no_threshold():
    with pytest.warns(QacalWarning, match="the model was fitted on some of these questions"):
        found = read_contents(model(), answers(500))[""]
    assert found.menu is None
    assert "No threshold is certified here" in render("Same", [Block("One", found)])


def test_rows_that_may_be_of_the_fit_certify_with_a_warning():
    rows = [{name: row[name] for name in row if name != "id"} for row in answers(300, seed=1)]
    found = read_contents(model(), rows)[""]
    shown = menu_table(found.menu, has_ids=False)
    assert "This holds only if the model was not fitted on these rows" in shown.intro
