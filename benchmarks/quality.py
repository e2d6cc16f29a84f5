"""How good the probabilities are, beside the paper's methods and the peers, on questions that nobody has seen.

    python -m benchmarks.quality DATA [--embedder static|minilm] [--splits 5] [--only dev|judge|all]
                                      [--methods NAME ...] [--remeasure NAME ...] [--beside NAME] [--cache DIR]

DATA holds `openqa_verb1s.parquet` and `mmlu_pro_stated.parquet`: thirteen combinations of an LLM and a file. Questions
are dealt 80:20 by id, several times; `contenders` says what each method does with its 80%. What is measured:

- Log loss as :func:`qacal.metrics.log_loss` has it (cut at 2e-16: a wrong answer at 1.0 costs 36), and cut at 0.001 for
  all, which is kinder to those who say 0 or 1; places are taken by this one.
- The debiased calibration error, in 15 bins within each value of a column (subject, dataset) that no method was given.
- Brier score, AURC and AUAC.
- Seconds of one thread's work, whatever else the machine does: from vectors to probabilities, fitting and answering. Of
  MCGrad the fit alone.

Results are cached: a stopped run continues, and a new run measures only what is missing. `--remeasure NAME` measures a
method again after a change to its code. Develop with `--only dev`; `--only judge` is for the final comparison.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

import numpy as np
import scipy.linalg  # noqa: F401  (its threads can be limited only once it is there)
from threadpoolctl import threadpool_limits

import qacal
from benchmarks.combinations import Combination, Split, combinations
from benchmarks.contenders import CONTENDERS
from benchmarks.ledger import Key, Ledger
from benchmarks.mcgrad_jobs import MCGRAD, mcgrad_answers
from benchmarks.verdict import Verdict

METHODS = (*CONTENDERS, *MCGRAD)


def main() -> None:
    asked = _arguments()
    asked.cache.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(asked.cache / "lines.jsonl", asked.remeasure)
    keys = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", qacal.RepeatedQuestionsWarning)
        for combination in combinations(asked.data, asked.embedder, asked.cache):
            if asked.only == "all" or combination.is_for_judging == (asked.only == "judge"):
                keys += run(combination, asked.embedder, asked.splits, asked.methods, ledger)
    if not keys:
        sys.exit(f"{asked.data} holds none of the files; see the top of this one.")
    print(Verdict(ledger.table(keys), asked.beside).text())


def run(combination: Combination, embedder: str, splits: int, methods: Sequence[str], ledger: Ledger) -> Iterator[Key]:
    """Measure what is missing, and yield the keys of all lines that belong to the run."""
    for method in methods:
        keys = {split: Key(embedder, combination.name, split, method) for split in range(splits)}
        missing = [combination.deal(split) for split, key in keys.items() if key not in ledger]
        for deal, answers, seconds in answered(method, missing):
            measures = measured(deal, answers) | {"seconds": seconds}
            ledger.add(keys[deal.seed], measures)
            said = f"{combination.name}, split {deal.seed}, {method}: {measures['log_loss_cut']:.4f}, {seconds:.2f} s"
            print(said, file=sys.stderr, flush=True)
        yield from keys.values()


def answered(method: str, deals: Sequence[Split]) -> Iterator[tuple[Split, np.ndarray, float]]:
    """Yield what a method answers the test rows of each deal, and the seconds it took."""
    if method in MCGRAD:
        if deals:
            yield from mcgrad_answers(method, deals)
        return
    for deal in deals:
        fitting, testing = deal.fitting, deal.testing
        start = process_time()
        answers = CONTENDERS[method](fitting, testing)
        yield deal, answers, process_time() - start


def measured(deal: Split, answers: np.ndarray) -> dict[str, float]:
    """Return what the answers are worth."""
    correct = deal.tested["correct"].to_numpy()
    within = qacal.metrics.estimate_calibration_error(
        correct, answers, groups=deal.tested["label"], ids=deal.tested["id"], bins=15, redraws=0
    )
    return {
        "log_loss": qacal.metrics.log_loss(correct, answers),
        "log_loss_cut": qacal.metrics.log_loss(correct, answers, cut=0.001),
        "brier": qacal.metrics.brier_score(correct, answers),
        "ce_label": within.debiased,
        "aurc": qacal.metrics.aurc(correct, answers),
        "auac": qacal.metrics.auac(correct, answers),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="the folder with the two files")
    parser.add_argument("--embedder", default="static", help="static or minilm")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--only", choices=["dev", "judge", "all"], default="dev")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="NAME")
    parser.add_argument(
        "--remeasure", nargs="+", choices=METHODS, default=[], metavar="NAME", help="measure these again"
    )
    parser.add_argument("--beside", choices=METHODS, default="default", metavar="NAME", help="compare with this one")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "qacal-quality")
    asked = parser.parse_args()
    asked.methods = list(dict.fromkeys([*asked.methods, asked.beside]))
    return asked


if __name__ == "__main__":
    main()
