"""Show what qacal does, on a small LLM's real answers to the quiz in the package.

Trains on the answers to two thirds of the questions, applies the models to the others, and shows for every topic the
accuracy, the stated confidence and the calibrated one: from the stated confidence and the text alone, as `qacal fit`
does, and with the probability of the answer's tokens as well. Writes the models, the rows and the report.
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
from qacal.planning import shown_bound
from qacal.report import Block, read_contents, render
from qacal.sources.questions.quiz import answers, provenance

SCORES = {"stated": "confidence", "qacal": "calibrated", "+tokens": "with_tokens"}
"""The columns of both tables, and the columns of the rows they are computed from."""

_LEGEND = (
    "stated: the confidence that the LLM stated. qacal: computed from this confidence and the text alone. "
    "+tokens: also uses the probability of the answer's tokens, which needs a server that gives log-probabilities. "
    "An error within topics of 0.000: none is seen beyond chance."
)
_WIDTH = 79


def main() -> None:
    """Fit, apply, show, and say what to do next."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo"), help="where to write (demo)")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    # The models do not see the topics, which are used only to show the results.
    rows, made = answers(), provenance()
    part = qacal.split(rows["id"], (2 / 3, 1 / 3), seed=1)
    train, test = rows.filter(part == 0), rows.filter(part == 1)
    model = qacal.QACalibrator(features=()).fit(train.drop("subject"))
    better = qacal.QACalibrator(features=["confidence_tokens"]).fit(train.drop("subject"))
    applied = model.calibrate(test).with_columns(with_tokens=better.calibrate(test)["calibrated"])

    print(
        _wrapped(
            f"{made['model']}, {len(rows):,} answers of {rows['subject'].n_unique()} topics, {made['asked'][0]}. qacal "
            f"had {len(train):,} of them with labels, without the topics. The table shows the other {len(test):,}, the "
            "most overconfident topics first:"
        )
    )
    print(_topics(applied))
    print(_overall(applied))
    print(_certificate(model, applied))

    model.save(folder / "model")
    better.save(folder / "model_with_tokens")
    train.write_parquet(folder / "train.parquet")
    test.write_parquet(folder / "test.parquet")
    (content,) = read_contents(model, test, groups="subject").values()
    page = render("How far to trust it: a small LLM on the quiz", [Block("the quiz", content)])
    (folder / "report.html").write_text(page, encoding="utf-8")
    _print_next(folder)


def _wrapped(text: str) -> str:
    """Return a paragraph that fits a terminal of 80 columns, and an empty line."""
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False) + "\n"


def _topics(applied: pl.DataFrame) -> str:
    """Return the table by topic, the most overconfident ones first."""
    by = applied.group_by("subject").agg(pl.len().alias("rows"), pl.col("correct", *SCORES.values()).mean())
    by = by.sort(pl.col("confidence") - pl.col("correct"), "subject", descending=[True, False])
    lines = [f"{'topic':24}{'rows':>6}{'accuracy':>9}" + "".join(f"{name:>9}" for name in SCORES)]
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
        "accuracy of the more confident half": lambda p: _confident_half(p, right),
    }
    lines = [f"\n{'':39}" + "".join(f"{name:>9}" for name in SCORES)]
    for name, measure in measures.items():
        numbers = (measure(applied[column].to_numpy()) for column in SCORES.values())
        lines.append(f"{name:39}" + "".join(f"{number:9.3f}" for number in numbers))
    return "\n".join([*lines, "", _wrapped(_LEGEND)])


def _error(p: np.ndarray, right: np.ndarray, topics: pl.Series) -> float:
    """Return the calibration error within topics, as in qacal evaluate; 0 if no error is detected."""
    error = qacal.evaluate(right, p, groups=topics).before.error_by_group
    return 0.0 if error is None else max(0.0, error.debiased)


def _confident_half(p: np.ndarray, right: np.ndarray) -> float:
    """Return the accuracy of the more confident half; ties count with their mean accuracy."""
    cut = np.median(p)
    above, at = right[p > cut], right[p == cut]
    wanted = len(p) / 2
    missing = wanted - len(above)
    return float((above.sum() + (missing * at.mean() if missing else 0.0)) / wanted)


def _certificate(model: qacal.QACalibrator, applied: pl.DataFrame) -> str:
    """Return what is certified."""
    names = ("calibrated", "low", "high", "group_low", "group_high")
    value, low, high, group_low, group_high = (applied[name].to_numpy() for name in names)
    bound = float(np.nanmedian(np.maximum(value - low, high - value)))
    width = float(np.nanmedian(group_high - group_low)) / 2
    text = (
        f"Certified on {model.rows_:,} rows, all at once with probability 90%. By probability: for half of the "
        f"answers, the calibrated probabilities of similar answers are off by at most {shown_bound(bound)} on average. "
        f"By group: qacal made {len(model.describe_groups())} groups of similar texts; for half of the answers, the "
        f"accuracy of their group is known to ±{shown_bound(width)}."
    )
    return _wrapped(text)


def _print_next(folder: Path) -> None:
    command = Path(sys.executable).parent / "qacal"
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    print(f"The report: {(folder / 'report.html').resolve()}")
    print("\nTo go on with these answers:")
    print(f"    {shown} groups {folder / 'model'}")
    print(f"    {shown} explain {folder / 'model'} \\")
    print("        --question 'What is 17 * 23?' --answer 391 --confidence 0.9")
    print(f"    {shown} threshold {folder / 'model'} {folder / 'test.parquet'} --accuracy 0.8")
    print("With your own (question, answer, confidence, correct; Parquet, JSONL or CSV):")
    print(f"    {shown} split answers.csv -o train.csv --rest test.csv")
    print(f"    {shown} fit train.csv -o model")
    print(f"    {shown} evaluate test.csv --model model")
    print(f"    {shown} apply model new.csv -o calibrated.csv")
    print("Other columns, such as the probability of the tokens, are used if they help.")
    print("To use only the text and the stated confidence:")
    print(f"    {shown} fit train.csv -o model --no-columns")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Stopped. Run it again: it starts from the beginning.")
