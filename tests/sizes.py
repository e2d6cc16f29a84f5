"""How large the tests are: all worlds, rows and examples with FULL_TESTS=1, as in `make test-all`, else a part of them.

What is smaller is drawn from the same seeds. Every statement is tested at both sizes.
"""

import os
from typing import Any

import pytest
from hypothesis import settings

FULL = os.environ.get("FULL_TESTS", "0") not in ("", "0")

# For the longest simulations of formulas that must fail: `make test-all` runs them.
full_only = pytest.mark.skipif(not FULL, reason="needs FULL_TESTS=1")


def sized(full: int) -> int:
    """Return how many worlds or rows to draw: `full`, or a quarter."""
    return full if FULL else -(-full // 4)


def examples(full: int, part: int = 3, **others: Any) -> settings:
    """Return Hypothesis' settings for so many examples, or a part of them: a third."""
    return settings(max_examples=full if FULL else -(-full // part), **others)
