"""What labels of served answers are worth.

    python -m benchmarks.refit [--worlds 10] [--same]

A model is fitted on 500 answers of four topics. Then the LLM becomes better at one topic and worse at another (with
--same it does not), and 2,000 answers are served. An audit draws a tenth of them, with equal chances or one topic four
times as often as others. Users report half of the wrong answers and a twentieth of the correct ones. Each model is
compared on 4,000 new answers.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from tests.answers import answers

from qacal import QACalibrator, Tally
from qacal.metrics import log_loss
from qacal.model.refitting import LabelledAnswer, refit

BETTER = {"arithmetic": 0.4, "medicine": -0.3}


def later(n: int, seed: int, rng: np.random.Generator, *, is_same: bool) -> list[dict[str, Any]]:
    """Return answers after the change."""
    rows = answers(n, seed=seed)
    for row in rows:
        change = 0.0 if is_same else BETTER.get(str(row["topic"]), 0.0)
        if change > 0 and not row["correct"]:
            row["correct"] = int(rng.random() < change / 0.65)
        elif change < 0 and row["correct"]:
            row["correct"] = int(rng.random() >= -change / 0.65)
    return [_without("topic", row) | {"topic_": row["topic"]} for row in rows]


def _without(column: str, row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


def labelled(rows: list[dict[str, Any]], rng: np.random.Generator, *, is_equal: bool) -> list[LabelledAnswer]:
    """Return the answers that an audit drew or that users reported."""
    out = []
    for row in rows:
        chance = 0.1 if is_equal else 0.16 if row["topic_"] == "medicine" else 0.04
        record = _without("topic_", row)
        if rng.random() < chance:
            out.append(LabelledAnswer(rng.bytes(16).hex(), record, chance))
        elif rng.random() < (0.05 if row["correct"] else 0.5):
            out.append(LabelledAnswer(rng.bytes(16).hex(), record))
    return out


def compared(seed: int, *, is_same: bool) -> dict[str, tuple[float, ...]]:
    """Return the log loss of each model, its half-width for half of the answers, and its certifying rows."""
    rng = np.random.default_rng(seed)
    first = [_without("topic", row) for row in answers(500, seed=10 * seed + 1)]
    old = QACalibrator(features=()).fit(first)
    served, new = (later(n, 10 * seed + at, rng, is_same=is_same) for n, at in ((2000, 2), (4000, 3)))
    records = [_without("topic_", row) for row in new]
    equal, unequal = (labelled(served, rng, is_equal=is_equal) for is_equal in (True, False))
    audits = [one for one in equal if one.probability is not None]
    fits = {
        "old": old,
        "audit": refit(old, audits).model,
        "audit and records of the first fit": refit(old, audits, first).model,
        "audit and volunteered labels": refit(old, equal).model,
        "all three": refit(old, equal, first).model,
        "all three, unequal chances": refit(old, unequal, first).model,
    }
    truth = [row["correct"] for row in records]
    return {
        name: (
            log_loss(Tally.of(model.predict(records), truth)),
            float(model.calibrator_.maps_.median_error_bound()),
            float(model.rows_),
        )
        for name, model in fits.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--same", action="store_true")
    arguments = parser.parse_args()
    found = [compared(seed, is_same=arguments.same) for seed in range(arguments.worlds)]
    print(f"{'':40}{'log loss':>10}{'error':>8}{'within':>8}{'rows':>6}")
    for name in found[0]:
        loss, width, rows = np.array([one[name] for one in found]).T
        error = (loss - [one["audit"][0] for one in found]).std() / np.sqrt(len(found))
        print(f"{name:40}{loss.mean():10.4f}{error:8.4f}{width.mean():8.3f}{rows.mean():6.0f}")


if __name__ == "__main__":
    main()
