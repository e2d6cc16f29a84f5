"""What does the agreement of samples add to the stated confidence and the tokens? Cross-validation over questions.

python -m benchmarks.agreement answers.parquet

The file comes from `qacal elicit --samples` and `qacal judge`. qacal is `QACalibrator(output="continuous")`: there are
too few rows to hold some out for intervals as well. Logistic regression on the logits of the confidences is a second
opinion, without text. Every split of the questions into ten folds, one for each seed, predicts each row once; the table
has means over the splits.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import scipy
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from qacal import LearnedScore, QACalibrator, split
from qacal.metrics import aurc, brier_score, log_loss

FURTHER = {
    "stated": (),
    "stated, tokens": ("confidence_tokens",),
    "stated, agreement": ("agreement",),
    "stated, tokens, agreement": ("confidence_tokens", "agreement"),
}
FOLDS = 10


def by_qacal(train: pl.DataFrame, test: pl.DataFrame, further: tuple[str, ...]) -> np.ndarray:
    score = LearnedScore(confidences=list(further))
    return QACalibrator(learned_score=score, output="continuous").fit(train).predict(test)


def by_regression(train: pl.DataFrame, test: pl.DataFrame, further: tuple[str, ...]) -> np.ndarray:
    columns = ["confidence", *further]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    logits = [scipy.special.logit(part.select(columns).to_numpy().clip(0.02, 0.98)) for part in (train, test)]
    return model.fit(logits[0], train["correct"].to_numpy()).predict_proba(logits[1])[:, 1]


METHODS = {"regression": by_regression, "qacal": by_qacal}


def predicted(rows: pl.DataFrame, further: tuple[str, ...], method: str, seed: int) -> np.ndarray:
    """Return the probability of each row by a model that was trained on other questions."""
    fold, out = split(rows["id"], (1 / FOLDS,) * FOLDS, seed), np.full(len(rows), np.nan)
    for number in range(FOLDS):
        out[fold == number] = METHODS[method](rows.filter(fold != number), rows.filter(fold == number), further)
    return out


def losses(correct: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Return the log loss of each row."""
    return -np.log(np.where(correct == 1, probability, 1 - probability).clip(1e-15))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agreement", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("answers", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = pl.read_parquet(given.answers)
    correct = rows["correct"].to_numpy()
    print(f"{len(rows)} questions, {correct.mean():.3f} correct, {rows['samples'].mean():.2f} samples read")
    print(rows.group_by("agreement").agg(pl.len(), pl.mean("correct")).sort("agreement"))
    for name in ("confidence", "confidence_tokens", "agreement"):
        known = rows.filter(pl.col(name).is_not_null())
        y, p = known["correct"].to_numpy(), known[name].to_numpy()
        print(f"as it is: {name:20} n {len(known)} brier {brier_score(y, p):.3f} aurc {aurc(y, p):.3f}")
    rows = rows.filter(pl.col("confidence_tokens").is_not_null())
    correct = rows["correct"].to_numpy()
    for method in METHODS:
        by_row = {}
        for name, further in FURTHER.items():
            runs = [predicted(rows, further, method, seed) for seed in range(given.seeds)]
            scores = np.mean([[f(correct, p) for f in (log_loss, brier_score, aurc)] for p in runs], axis=0)
            by_row[name] = np.mean([losses(correct, p) for p in runs], axis=0)
            print(f"{method:10} {name:26}", *(f"{score:.3f}" for score in scores), flush=True)
        for more, less in (("stated, agreement", "stated"), ("stated, tokens, agreement", "stated, tokens")):
            gain = by_row[less] - by_row[more]
            error = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
            print(f"  log loss of {less} minus {more}: {gain.mean():.3f} +- {error:.3f}")


if __name__ == "__main__":
    main()
