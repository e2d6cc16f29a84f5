"""What has changed since the fit, without labels: groups, stated confidences, texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qacal.calibrators.score.likeness import FAR
from qacal.model.model import QACalibrator
from qacal.tally.arrays import Floats

# A signal is notable if it is this many standard errors from the fit, and this large.
_DEVIATIONS, _LEAST, _FEWEST = 4.0, 0.05, 30


@dataclass(frozen=True)
class Signal:
    """A difference between these rows and those of the fit that needs no labels; at one look, without a guarantee.

    kind : "groups", "confidence", "unlike" or "columns"; and of a service "unreadable" and "upstream".
    is_notable : whether it is larger than chance explains (four standard errors), and large.
    """

    kind: Literal["groups", "confidence", "unlike", "columns", "unreadable", "upstream"]
    text: str
    is_notable: bool


def signals(
    model: QACalibrator, groups: list[Any], confidence: Floats, unlike: Floats, lacking: Iterable[str] = ()
) -> tuple[Signal, ...]:
    """Return how rows differ from those of the fit: by group, stated confidence, and distance of their text.

    groups, confidence, unlike : as in the evidence of rows.
    lacking : columns that the score reads and no row has.
    """
    out = []
    fit, n = model.describe_groups(), len(groups)
    if names := sorted(lacking):
        text = f"These rows have no column {' and '.join(names)}, which the score reads."
        out.append(Signal("columns", text, True))
    if fit and n >= _FEWEST:
        rows = np.array([group.rows for group in fit], dtype=np.float64)
        out.append(_group_signal({one.group: one.rows for one in fit}, groups))
        stated = float(rows @ [group.confidence for group in fit] / rows.sum())
        error = confidence.std() * np.sqrt(1 / n + 1 / rows.sum())
        change = float(confidence.mean()) - stated
        text = f"Stated confidence: {confidence.mean():.2f} on average, and {stated:.2f} in the fit."
        out.append(Signal("confidence", text, bool(abs(change) >= max(_DEVIATIONS * error, _LEAST))))
    rank = unlike[~np.isnan(unlike)]
    if len(rank) >= _FEWEST:
        # Of rows like those of the fit, 1% are far, and the average rank is one half.
        far, usual = float(np.mean(rank >= FAR)), 1 - FAR
        is_shifted = rank.mean() - 0.5 >= max(_DEVIATIONS / np.sqrt(12 * len(rank)), _LEAST)
        are_far = far - usual >= max(_DEVIATIONS * np.sqrt(usual * FAR / len(rank)), _LEAST)
        text = (
            f"Text: on average farther from the fit than {rank.mean():.0%} of it (usual: 50%); {far:.0%} of the rows "
            "are far and have no interval (usual: 1%)."
        )
        out.append(Signal("unlike", text, bool(is_shifted or are_far)))
    return tuple(out)


def unreadable_signal(unreadable: int, records: int) -> Signal | None:
    """Return the share of records with a confidence that could not be read; None for few records."""
    if records < _FEWEST:
        return None
    share = unreadable / records
    return Signal("unreadable", f"Unreadable confidences: {share:.0%} of {records:,} records.", share >= _LEAST)


def upstream_signal(names: list[str | None]) -> Signal | None:
    """Return by which LLMs an upstream says that answers are, the last answer first; None if it says nothing."""
    counts = Counter(name for name in names if name is not None)
    if not counts:
        return None
    last = next(name for name in names if name is not None)
    others = ", ".join(f"{name} ({count:,})" for name, count in counts.most_common() if name != last)
    text = f"Upstream: the last answers are by {last}" + (f"; earlier ones by {others}." if others else ".")
    return Signal("upstream", text, len(counts) > 1)


def _group_signal(fit: Mapping[Any, int], groups: list[Any]) -> Signal:
    """Return the group with the share that has changed most."""
    now, n, total = Counter(groups), len(groups), sum(fit.values())
    names = [*fit, *({*now} - {*fit})]
    shares = np.array([[now[name] / n, fit.get(name, 0) / total] for name in names])
    at = int(np.abs(shares[:, 0] - shares[:, 1]).argmax())
    both = (now[names[at]] + fit.get(names[at], 0)) / (n + total)
    error = np.sqrt(both * (1 - both) * (1 / n + 1 / total))
    is_notable = abs(shares[at, 0] - shares[at, 1]) >= max(_DEVIATIONS * error, _LEAST)
    which = "rows of no known group are" if names[at] is None else f"group {names[at]} is"
    text = (
        f"Groups: {which} {shares[at, 0]:.0%} of these rows, and {shares[at, 1]:.0%} in the fit; no other changed more."
    )
    return Signal("groups", text, bool(is_notable))
