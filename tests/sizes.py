"""How large the tests are: all worlds, rows and examples with FULL_TESTS=1, as in `make test-all`, else a part of them.

The smaller part is drawn from the same seeds. A statement that is slow, or needs the full size, is marked `full_only`
or stands under `if FULL`.
"""

import os
from typing import Any

import pytest
from hypothesis import settings

FULL = os.environ.get("FULL_TESTS", "0") not in ("", "0")

# For slow tests of what other tests check too, or of formulas that must fail.
full_only = pytest.mark.skipif(not FULL, reason="needs FULL_TESTS=1")


def sized(full: int) -> int:
    """Return how many worlds or rows to draw: `full`, or a quarter."""
    return full if FULL else -(-full // 4)


def examples(full: int, part: int = 3, **others: Any) -> settings:
    """Return Hypothesis' settings for this many examples, or a third of them."""
    return settings(max_examples=full if FULL else -(-full // part), **others)
