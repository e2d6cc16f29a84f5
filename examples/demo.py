"""What qacal does, on real answers: a small LLM's to the quiz that comes with the package.

Fits on the answers to two thirds of the questions, applies the model to the others, and shows for every topic what the
LLM claimed, how often it was right, and what qacal makes of it. Writes the model, the rows and the report.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import polars as pl

import qacal
from qacal.quiz import answers, provenance
from qacal.report import Block, read_contents, render


def main() -> None:
    """Fit, apply, show, and say what to do next."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo"), help="where to write (demo)")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    # The LLM's topic is what we want to see afterwards; the model is not told.
    rows, made = answers(), provenance()
    part = qacal.split(rows["id"], (2 / 3, 1 / 3), seed=1)
    fitting, kept = rows.filter(part == 0), rows.filter(part == 1)
    model = qacal.QACalibrator(score=qacal.LearnedScore(confidences=["confidence_tokens"]))
    model.fit(fitting.drop("subject"))
    applied = model.calibrate(kept)

    print(f"{made['model']}, {len(rows):,} answers of {rows['subject'].n_unique()} topics, {made['asked'][0]}.")
    print(f"{len(fitting):,} of them taught the model, which was not told the topics. The other {len(kept):,}:\n")
    print(_topics(applied))
    print(_overall(applied))

    model.save(folder / "model")
    fitting.write_parquet(folder / "answers.parquet")
    kept.write_parquet(folder / "kept_aside.parquet")
    (content,) = read_contents(model, kept, groups="subject").values()
    page = render("How far to trust it: a small LLM on the quiz", [Block("the quiz", content)])
    (folder / "report.html").write_text(page, encoding="utf-8")
    _say_what_next(folder)


def _topics(applied: pl.DataFrame) -> str:
    """Return the table by topic, the ones with the worst claims first."""
    by = applied.group_by("subject").agg(
        pl.len().alias("rows"),
        pl.col("correct", "confidence", "calibrated").mean(),
    )
    by = by.sort((pl.col("confidence") - pl.col("correct")).abs(), descending=True)
    lines = [f"{'topic':24}{'rows':>6}{'right':>9}{'said':>9}{'qacal':>9}"]
    for row in by.iter_rows(named=True):
        numbers = "".join(f"{row[name]:9.2f}" for name in ("correct", "confidence", "calibrated"))
        lines.append(f"{row['subject']:24}{row['rows']:6}{numbers}")
    return "\n".join(lines)


def _overall(applied: pl.DataFrame) -> str:
    """Return how good the confidences are as probabilities, before and after."""
    right = applied["correct"].to_numpy().astype(float)
    lines = [f"\n{'':34}{'said':>9}{'qacal':>9}"]
    measures = {
        "Brier score (lower is better)": lambda p: qacal.brier_score(p, right).score,
        "log loss, cut at 0.001": lambda p: qacal.log_loss(p, right, cut=0.001),
        "error within topics": lambda p: max(0.0, _error(p, right, applied["subject"])),
        "right, of the surer half": lambda p: _surer_half(p, right),
    }
    for name, measure in measures.items():
        before, after = (measure(applied[column].to_numpy()) for column in ("confidence", "calibrated"))
        lines.append(f"{name:34}{before:9.3f}{after:9.3f}")
    return "\n".join(lines)


def _error(p: np.ndarray, right: np.ndarray, topics: pl.Series) -> float:
    # As qacal evaluate and the report measure it, the noise taken out.
    return float(qacal.evaluate(p, right, groups=topics).before.error_by_group.debiased)


def _surer_half(p: np.ndarray, right: np.ndarray) -> float:
    """Return how many of the surer half are right, on average over the orders of equal confidences."""
    cut = np.median(p)
    above, at = right[p > cut], right[p == cut]
    wanted = len(p) / 2
    return float((above.sum() + (wanted - len(above)) * at.mean()) / wanted)


def _say_what_next(folder: Path) -> None:
    command = Path(sys.executable).parent / "qacal"
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    print(f"\nThe report: {(folder / 'report.html').resolve()}")
    print("\nTo go on with these answers:")
    print(f"    {shown} groups {folder / 'model'}")
    print(f"    {shown} threshold {folder / 'model'} {folder / 'kept_aside.parquet'} --accuracy 0.8")
    print("With your own, a file with question, answer, confidence and correct (Parquet, JSONL or CSV):")
    print(f"    {shown} fit answers.csv -o model")
    print(f"    {shown} apply model new_answers.csv -o calibrated.csv")


if __name__ == "__main__":
    main()
