"""Polars in a forked child: its threads stay behind in the parent, and what needs them waits for ever.

Calibrating rows that are in memory needs no threads of polars. What does asks here first. A child of which polars works
(it was not used before the fork, or the child was spawned) is not held up.
"""

from __future__ import annotations

import os
import sys
from threading import Thread

from qacal.errors import QacalError

_PATIENCE = 10.0
"""Seconds. What is tried takes milliseconds where it works."""

_is_doubtful = False
_is_stuck = False


def _doubt() -> None:
    global _is_doubtful
    _is_doubtful = "polars" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_doubt)


def require_polars() -> None:
    """Refuse work that would wait for threads that this process does not have."""
    global _is_doubtful, _is_stuck
    if _is_doubtful:
        trial = Thread(target=_use_polars, daemon=True)
        trial.start()
        trial.join(_PATIENCE)
        _is_doubtful, _is_stuck = False, trial.is_alive()
    if _is_stuck:
        raise QacalError(
            "this process was forked after polars had started its threads, which a fork does not copy: reading files, "
            'saving models and reports would wait for ever. Start processes with multiprocessing.get_context("spawn").'
        )


def _use_polars() -> None:
    import polars as pl

    pl.DataFrame({"a": [1]}).select(pl.col("a").sum(), b=pl.col("a").max())
