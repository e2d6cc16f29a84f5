"""Files that the tools themselves wrote (see `written/README.md`): toy questions, scripted LLMs, current versions."""

from pathlib import Path

import pytest

from qacal.importers import Selection, import_log

WRITTEN = Path(__file__).parent / "written"


def imported(format_, *names, **selection):
    return import_log(format_, [WRITTEN / name for name in names], Selection(**selection))


def rows_of(found, *columns):
    return found.frame.select(columns).rows()


@pytest.mark.parametrize(
    ("filter_", "rows"),
    [
        ("score-first", [("7", 2 / 3, 1.0), ("25", 1 / 3, 1.0), ("30", 2 / 3, 1.0)]),
        ("maj@3", [("7", 2 / 3, 1.0), ("35", 2 / 3, 0.0), ("30", 2 / 3, 1.0)]),
        ("maj@2", [("7.", 1.0, 0.0), ("25.", 0.5, 0.0), ("30.", 0.5, 0.0)]),
    ],
)
def test_lm_eval_repeats_with_a_pattern(filter_, rows):
    """The form of gsm8k_cot_self_consistency: the share of repeats from which the filter takes the judged answer."""
    found = imported("lm-eval", "lm_eval", filter=filter_)
    assert rows_of(found, "answer", "confidence", "correct") == rows
    assert set(found.frame["confidence_source"]) == {"agreement"}
    assert set(found.frame["model"]) == {"toy"}
    assert found.dropped == {
        "it is of another filter": 8,
        "no confidence: the filter found no answer in what was judged": 1,
    }
