"""MCGrad: a calibrator of its own for every segment, here one isotonic curve (or Platt's) per group."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
from mcgrad import methods

from benchmarks.clock import best_of
from benchmarks.handover import read_given, tell


def main() -> None:
    given = read_given()
    table = pd.DataFrame({name: given[name] for name in ("confidence", "correct", "group")})

    def fit(base: Any) -> None:
        methods.SegmentwiseCalibrator(base).fit(
            table,
            prediction_column_name="confidence",
            label_column_name="correct",
            categorical_feature_column_names=["group"],
        )

    bases = {"isotonic": methods.IsotonicRegression, "Platt": methods.PlattScaling}
    tell(**{name: best_of(given["repeats"], partial(fit, base)) for name, base in bases.items()})


if __name__ == "__main__":
    main()
