"""MCGrad as it comes, on several sets of rows: what it answers new rows, and the seconds of each fit."""

from __future__ import annotations

import logging
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from mcgrad import methods

from benchmarks.handover import read_given, tell


def main() -> None:
    logging.disable(logging.WARNING)
    given = read_given()
    names = [name.removeprefix("correct_") for name in given if name.startswith("correct_")]
    is_category = given["method"] == "mcgrad-groups"
    tell(**{name: answered(given, name, is_category) for name in names})


def answered(given: dict[str, Any], name: str, is_category: bool) -> dict[str, Any]:
    features = given[f"features_{name}"]
    columns = [f"f{place}" for place in range(features.shape[1])]
    kind = "categorical" if is_category else "numerical"
    roles = {"prediction_column_name": "confidence", f"{kind}_feature_column_names": columns}

    def frame(values: np.ndarray, confidence: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(values, columns=columns).assign(confidence=confidence)

    fitting = frame(features, given[f"confidence_{name}"]).assign(correct=given[f"correct_{name}"])
    start = process_time()
    model = methods.MCGrad().fit(fitting, label_column_name="correct", **roles)
    seconds = process_time() - start
    answers = model.predict(frame(given[f"asked_{name}"], given[f"stated_{name}"]), **roles)
    return {"answers": np.asarray(answers).tolist(), "seconds": seconds}


if __name__ == "__main__":
    main()
