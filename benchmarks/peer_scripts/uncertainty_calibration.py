"""uncertainty-calibration: histogram binning with equal counts, edges halfway between neighbours."""

from __future__ import annotations

import calibration

from benchmarks.clock import best_of
from benchmarks.handover import read_given, tell


def main() -> None:
    given = read_given()
    confidence, correct = given["confidence"], given["correct"]
    model = calibration.HistogramCalibrator(len(confidence), given["n_bins"])
    fit = best_of(given["repeats"], lambda: model.train_calibration(confidence, correct))
    tell(fit=fit, predict=best_of(given["repeats"], lambda: model.calibrate(confidence)))


if __name__ == "__main__":
    main()
