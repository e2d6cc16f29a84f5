"""What qacal does, on real answers: a small LLM's to the quiz that comes with the package.

Fits on the answers to two thirds of the questions, applies the models to the others, and shows for every topic what the
LLM claimed, how often it was right, and what qacal makes of it: from the stated confidence and the text alone, as
`qacal fit` does, and with the probability of the answer's tokens as well. Writes the models, the rows and the report.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

import qacal
from qacal.report import Block, read_contents, render
from qacal.sources.questions.quiz import answers, provenance

SCORES = {"said": "confidence", "qacal": "calibrated", "+tokens": "with_tokens"}
"""What the columns of both tables are called, and where they are from."""

_LEGEND = (
    "said: the confidence that the LLM stated. qacal: from that and the text, as qacal fit does it. +tokens: from the "
    "probability of the answer's tokens too, which needs a server that gives log-probabilities."
)
_WIDTH = 100


def main() -> None:
    """Fit, apply, show, and say what to do next."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo"), help="where to write (demo)")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    # The LLM's topic is what we want to see afterwards; the models are not told.
    rows, made = answers(), provenance()
    part = qacal.split(rows["id"], (2 / 3, 1 / 3), seed=1)
    fitting, kept = rows.filter(part == 0), rows.filter(part == 1)
    model = qacal.QACalibrator().fit(fitting.drop("subject"))
    better = qacal.QACalibrator(learned_score=qacal.LearnedScore(confidences=["confidence_tokens"]))
    better.fit(fitting.drop("subject"))
    applied = model.calibrate(kept).with_columns(with_tokens=better.calibrate(kept)["calibrated"])

    print(f"{made['model']}, {len(rows):,} answers of {rows['subject'].n_unique()} topics, {made['asked'][0]}.")
    print(f"qacal was fitted on {len(fitting):,} of them, and not told the topics. The other {len(kept):,},")
    print("topic by topic, the worst overclaim first:\n")
    print(_topics(applied))
    print(_overall(applied))
    print(_certificate(model, applied))

    model.save(folder / "model")
    better.save(folder / "model_with_tokens")
    fitting.write_parquet(folder / "answers.parquet")
    kept.write_parquet(folder / "kept_aside.parquet")
    (content,) = read_contents(model, kept, groups="subject").values()
    page = render("How far to trust it: a small LLM on the quiz", [Block("the quiz", content)])
    (folder / "report.html").write_text(page, encoding="utf-8")
    _say_what_next(folder)


def _topics(applied: pl.DataFrame) -> str:
    """Return the table by topic, the ones with the worst overclaims first."""
    by = applied.group_by("subject").agg(pl.len().alias("rows"), pl.col("correct", *SCORES.values()).mean())
    by = by.sort(pl.col("confidence") - pl.col("correct"), "subject", descending=[True, False])
    lines = [f"{'topic':24}{'rows':>6}{'right':>9}" + "".join(f"{name:>9}" for name in SCORES)]
    for row in by.iter_rows(named=True):
        numbers = "".join(f"{row[name]:9.2f}" for name in ("correct", *SCORES.values()))
        lines.append(f"{row['subject']:24}{row['rows']:6}{numbers}")
    return "\n".join(lines)


def _overall(applied: pl.DataFrame) -> str:
    """Return how good the confidences are as probabilities, before and after."""
    right, topics = applied["correct"].to_numpy().astype(float), applied["subject"]
    measures: dict[str, Callable[[np.ndarray], float]] = {
        "Brier score (lower is better)": lambda p: qacal.metrics.brier_score(right, p),
        "log loss, cut at 0.001": lambda p: qacal.metrics.log_loss(right, p, cut=0.001),
        "error within topics": lambda p: _error(p, right, topics),
        "right, of the surer half": lambda p: _surer_half(p, right),
    }
    lines = [f"\n{'':39}" + "".join(f"{name:>9}" for name in SCORES)]
    for name, measure in measures.items():
        numbers = (measure(applied[column].to_numpy()) for column in SCORES.values())
        lines.append(f"{name:39}" + "".join(f"{number:9.3f}" for number in numbers))
    return "\n".join([*lines, "", textwrap.fill(_LEGEND, _WIDTH, break_on_hyphens=False)])


def _error(p: np.ndarray, right: np.ndarray, topics: pl.Series) -> float:
    """Return the calibration error within topics, as qacal evaluate has it; 0 where none can be seen."""
    found = qacal.evaluate(right, p, groups=topics).before.error_by_group
    return 0.0 if found is None else max(0.0, found.debiased)


def _surer_half(p: np.ndarray, right: np.ndarray) -> float:
    """Return how many of the surer half are right, on average over the orders of equal confidences."""
    cut = np.median(p)
    above, at = right[p > cut], right[p == cut]
    wanted = len(p) / 2
    return float((above.sum() + (wanted - len(above)) * at.mean()) / wanted)


def _certificate(model: qacal.QACalibrator, applied: pl.DataFrame) -> str:
    """Return what is certified, and of whom it speaks."""
    value, low, high = (applied[name].to_numpy() for name in ("calibrated", "low", "high"))
    bound = np.median(np.maximum(value - low, high - value))
    groups, own = model.describe_groups(), int((applied["source"] == "group").sum())
    text = (
        f"Every probability of qacal has an interval, certified by {model.rows_} rows that taught it nothing; half of "
        f"the intervals reach {bound:.2f} or less to the farther side. A group of questions has intervals of its own "
        "if 250 of the certifying rows are in it, which takes about 1,250 labelled rows in that group. The largest of "
        f"the {len(groups)} groups here has {groups[0].rows}, so {own or 'none'} of the intervals are a group's own: "
        "they speak of all answers with a like probability."
    )
    return "\n" + textwrap.fill(text, _WIDTH)


def _say_what_next(folder: Path) -> None:
    command = Path(sys.executable).parent / "qacal"
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    print(f"\nThe report: {(folder / 'report.html').resolve()}")
    print("\nTo go on with these answers:")
    print(f"    {shown} groups {folder / 'model'}")
    print(f"    {shown} explain {folder / 'model'} --question 'What is 17 * 23?' --answer 391 --confidence 0.9")
    print(f"    {shown} threshold {folder / 'model'} {folder / 'kept_aside.parquet'} --accuracy 0.8")
    print("With your own, a file with question, answer, confidence and correct (Parquet, JSONL or CSV):")
    print(f"    {shown} split answers.csv -o fit.csv --rest kept.csv")
    print(f"    {shown} fit fit.csv -o model")
    print(f"    {shown} fit fit.csv -o model --extra-confidence confidence_tokens    # with token probabilities")
    print(f"    {shown} evaluate kept.csv --model model")
    print(f"    {shown} apply model new_answers.csv -o calibrated.csv")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Stopped. Run it again: it starts from the beginning.")
