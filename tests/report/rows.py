"""Generated rows and models for the tests of the report, some of them with hostile texts."""

from __future__ import annotations

from functools import cache

import numpy as np

from qacal import Column, QABinning, QACalibrator
from qacal.calibrators import HierarchicalScaling, UniformMassBinning
from qacal.report import Scored, read_contents
from tests.answers import answers

HOSTILE = [
    "<script>alert(1)</script>",
    "</svg></style></details><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "{{ 7 * 7 }} {% raw %}",
    "שלום, מה שלומך? مرحبا",
    "👩‍👩‍👧‍👦 🇩🇪 emoji",
    "$\\frac{1$ and $$ mathtext",
    "very long " * 500,
    "line\nbreak\ttab \u202e turned",
    "half a pair \ud83d",
]


@cache
def model(kind: str = "bins") -> QACalibrator:
    """Return a model over topics: with bins, with curves, or without groups."""
    calibrators = {
        "bins": QABinning(points_per_bin=60),
        "curves": HierarchicalScaling(),
        "pooled": UniformMassBinning(points_per_bin=100),
    }
    return QACalibrator(partition=Column("topic"), calibrator=calibrators[kind]).fit(answers(2000))


@cache
def content(kind: str = "bins", n: int = 1500, threshold: float | None = 0.6):
    """Return the content of a report about it, on other rows."""
    return read_contents(model(kind), answers(n, seed=1), threshold=threshold)[""]


def uneven(n: int, seed: int) -> list[dict[str, object]]:
    """Return rows of easy questions, ten of each, and of hard ones, one of each."""
    rows, rng = answers(n, seed=seed), np.random.default_rng(seed)
    is_easy = rng.random(n) < 0.5
    return [
        row | {"correct": int(rng.random() < (0.95 if easy else 0.4))}
        for row, easy in zip(rows, is_easy.tolist(), strict=True)
        for _ in range(10 if easy else 1)
    ]


def hostile_rows(n: int = 600) -> list[dict[str, object]]:
    """Return rows whose texts and groups would break a careless page."""
    rows = answers(n, seed=3)
    for number, row in enumerate(rows):
        text = HOSTILE[number % len(HOSTILE)]
        row |= {"question": f"{text} {number}", "answer": text, "kind": text[:60]}
    return rows


def scored(n: int, *, values: int | None = 6, mean: float = 0.5) -> Scored:
    """Return scored rows: tied or (values None) continuous, of about this accuracy."""
    rng = np.random.default_rng(0)
    stated = rng.random(n) if values is None else rng.choice(np.linspace(0.5, 1, values), n)
    calibrated = np.clip(mean + 0.2 * (stated - 0.75), 0, 1)
    correct = (rng.random(n) < calibrated).astype(float) if 0 < mean < 1 else np.full(n, mean)
    scores = {"stated": stated, "pooled": np.full(n, mean), "calibrated": calibrated}
    return Scored(correct, scores)
