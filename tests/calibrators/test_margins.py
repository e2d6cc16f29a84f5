"""Margins: how bands and groups share alpha."""

import numpy as np

from qacal import Paths, Tally
from qacal.calibrators.margins import Cells, fit_margins
from qacal.tally.tally import DOCUMENTS


def test_all_groups_of_documents_share_alpha_with_rows_or_without():
    """The rows of a document may be in several groups, so the number of groups with rows must not narrow intervals."""
    rng = np.random.default_rng(0)
    ids, correct, score = np.repeat(np.arange(200), 2), rng.random(400) < 0.7, rng.random(400)

    def interval(depth):
        groups = Paths(np.zeros(400, dtype=np.int64), np.full(400, depth + 1), depth)
        tally = Tally.of(score, correct, groups=groups, ids=ids, n_blocks=DOCUMENTS)
        cells = fit_margins(tally, Cells(np.array([np.inf]), depth)).cells
        assert cells.certificate.is_by_document
        return cells.low[1], cells.high[1]

    (low, high), (lower, higher) = interval(1), interval(3)
    assert lower < low < high < higher


def test_bands_have_half_of_alpha_even_if_no_group_has_enough_rows_for_an_interval():
    """Else the counts of groups, which depend on labels given the bands, would decide how wide bands are."""
    tops, score, correct = np.array([0.5, np.inf]), np.linspace(0, 1, 200), np.arange(200) % 2
    few = fit_margins(Tally.of(score, correct, groups=np.arange(200) // 10), Cells(tops, None))
    halved = fit_margins(Tally.of(score, correct), Cells(tops, 0), alpha=0.05)
    assert len(few.cells.low) == len(halved.cells.low) == 2
    assert np.allclose(few.cells.low, halved.cells.low)
