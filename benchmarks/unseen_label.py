"""Groups from the embedding, measured on a label that the model never saw.

    python -m benchmarks.unseen_label DATA [EMBEDDER]

DATA holds `openqa_verb1s.parquet` (label: dataset) and `mmlu_pro_stated.parquet` (label: subject). For every LLM, half
of the questions are fitted on, the other half is calibrated, and the debiased calibration error is measured within the
label: of the raw confidence, of one pooled map, and of maps per group of the embedding.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import qacal

SETS = {"openqa_verb1s.parquet": "dataset", "mmlu_pro_stated.parquet": "subject"}


def methods(embedder: str, label: str) -> Iterator[tuple[str, qacal.QACalibrator]]:
    curves = qacal.calibrators.HierarchicalScaling()
    yield "one pooled map: isotonic", qacal.QACalibrator(calibrator=qacal.calibrators.IsotonicCalibration())
    yield "one pooled map: bins", qacal.QACalibrator(calibrator=qacal.calibrators.UniformMassBinning())
    yield "embedding: as it comes", qacal.QACalibrator(embedder)
    yield "embedding: QA binning", qacal.QACalibrator(embedder, calibrator=qacal.QABinning())
    yield "embedding: hierarchical", qacal.QACalibrator(embedder, calibrator=curves)
    yield "embedding: hierarchical, k-means", qacal.QACalibrator(embedder, "kmeans:32", curves)
    yield "embedding: hierarchical, kd-tree", qacal.QACalibrator(embedder, "kdtree:5", curves)
    yield f"the {label} itself: as it comes", qacal.QACalibrator(partition=f"column:{label}")
    yield f"the {label} itself: hierarchical", qacal.QACalibrator(partition=f"column:{label}", calibrator=curves)


def measured(rows: pl.DataFrame, label: str, embedder: str) -> Iterator[dict[str, Any]]:
    part = qacal.split(rows["id"], seed=1)
    fitting, testing = rows.filter(part == 0), rows.filter(part == 1)
    stated, correct, groups = testing["confidence"], testing["correct"], testing[label]
    yield {"method": "raw", **numbers(stated, correct, groups)}
    for name, model in methods(embedder, label):
        out = model.fit(fitting).calibrate(testing)
        yield {"method": name, **numbers(out["calibrated"], correct, groups)}


def numbers(scores: Any, correct: Any, groups: Any) -> dict[str, float]:
    error = qacal.metrics.estimate_calibration_error(correct, scores, groups=groups, bins=15, redraws=0)
    return {
        "error": error.debiased,
        "brier": qacal.metrics.brier_score(correct, scores),
        "loss": 1000 * qacal.metrics.log_loss(correct, scores),
        "aurc": qacal.metrics.aurc(correct, scores),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    embedder = sys.argv[2] if len(sys.argv) > 2 else "static"
    for file, label in SETS.items():
        if not (folder / file).is_file():
            continue
        rows = pl.read_parquet(folder / file)
        start = time.perf_counter()
        maker = qacal.embedder(embedder)
        vectors = maker.embed(rows["question"].to_list(), rows["answer"].to_list())
        print(f"{file}: {len(rows):,} rows embedded by {embedder} in {time.perf_counter() - start:.0f} s", flush=True)
        rows = rows.with_columns(
            embedding=pl.Series(vectors, dtype=pl.Array(pl.Float32, vectors.shape[1])).arr.to_list()
        )
        found = [
            {"model": llm, **line}
            for llm in rows["model"].unique(maintain_order=True)
            for line in measured(rows.filter(pl.col("model") == llm), label, "column:embedding")
        ]
        table = pl.DataFrame(found)
        wide = table.pivot("model", index="method", values="error").with_columns(
            mean=pl.mean_horizontal(pl.exclude("method"))
        )
        with pl.Config(tbl_rows=-1, tbl_cols=-1, fmt_str_lengths=40, float_precision=4, tbl_width_chars=220):
            print(f"debiased calibration error within {label}, unseen by the model\n{wide}")
            print(table.group_by("method", maintain_order=True).agg(pl.col("error", "brier", "loss", "aurc").mean()))
        sys.stdout.flush()


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
