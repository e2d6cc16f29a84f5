"""How fast qacal is beside numpy and the peers: one table of ratios, all measured in this run on the same rows.

    python -m benchmarks.speed

A peer that cannot be installed or does not finish has a line that says so. Nothing here fails when a goal is missed:
machines are noisy, and the table is to be read.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np

import qacal
from benchmarks.clock import best_of, race
from benchmarks.likelihood import laplace_loss
from benchmarks.peers import PEERS, Outcome, ask
from benchmarks.rows import Answers, grouped_answers, pooled_answers
from benchmarks.table import Line, header

CORES = os.cpu_count() or 1

PEER_LIMIT = 90.0
"""Seconds that a peer may take for one set of rows, its start included."""

LOSS_SLACK = 1e-3
"""Negative log likelihoods closer than this are the same: every optimiser stops a little short of the optimum."""

NOTES = f"""\
Times are the best of several runs (of one for statsmodels). A peer's time leaves out its start and the making of its
tables; it runs in one thread unless another number is given. NLL is Laplace's negative log likelihood at the fixed
effects and the covariance that each found, by one common function.

qacal        hierarchical: intercept and slope per group with a full covariance; the time includes counting the rows
gpboost      intercept and slope per group, independent (it knows no correlated grouped effects), the faster of 1 and
             {CORES} threads; Cholesky: with matrix_inversion_method="cholesky" in place of its default, iterative
             solvers; cells: given the rows already counted, as binomial shares
statsmodels  BinomialBayesMixedGLM.fit_vb: intercept and slope per group, independent, normal priors on the fixed
             effects and on the logarithms of the deviations; its NLL is at the posterior means
mcgrad       SegmentwiseCalibrator: an isotonic or Platt curve per group, no pooling and no intervals
uncertainty-calibration  HistogramCalibrator: bins of equal count, no intervals"""


def main() -> None:
    print(machine(), end="\n\n")
    print(header(), flush=True)
    above = ""
    for section in (uniform_mass_fits, predictions, qa_fits, hierarchical_fits, imports):
        for line in section():
            print(line.text(is_first=line.what != above), flush=True)
            above = line.what
    print(f"\n{NOTES}")


def machine() -> str:
    """Return the parts of the machine and of the installation that the numbers depend on."""
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    vectors = (simd.get("found") or simd.get("baseline") or ["none"])[-1]
    pins = ", ".join(pin for peer in PEERS.values() for pin in (*peer.packages, *peer.bare)[-1:])
    return (
        f"qacal {qacal.__version__}, numpy {np.__version__} (vector instructions up to {vectors}), "
        f"Python {platform.python_version()}, {CORES} cores, {platform.machine()}\nbeside {pins}"
    )


def uniform_mass_fits() -> Iterator[Line]:
    """Fit one map of bins."""
    for n, repeats in ((10**5, 20), (10**6, 7)):
        rows = pooled_answers(n)
        for options, n_bins in (({"n_bins": 50}, 50), ({"points_per_bin": 50}, n // 50)):
            model = qacal.calibrators.UniformMassBinning(**options)
            fit, argsort = race(
                repeats,
                partial(model.fit, rows.confidence, rows.correct),
                partial(np.argsort, rows.confidence),
            )
            what = f"uniform-mass fit, {n:,} rows, {_written(options)}"
            yield Line(what, fit, "numpy.argsort", argsort, goal=1 / 2)
            yield _beside(what, fit, "uncertainty-calibration", _histogram(n, n_bins), "fit")


def predictions() -> Iterator[Line]:
    """Apply fitted maps to a million rows."""
    n = 10**6
    rows = pooled_answers(n)
    for options, n_bins in (({"n_bins": 50}, 50), ({"points_per_bin": 50}, n // 50)):
        model = qacal.calibrators.UniformMassBinning(**options).fit(rows.confidence, rows.correct)
        what = f"uniform-mass predict, {n:,} rows, {_written(options)}"
        yield (line := _beside_search(what, model, rows))
        yield _beside(what, line.seconds, "uncertainty-calibration", _histogram(n, n_bins), "predict")
    for n_values in (21, None):
        fitted = grouped_answers(10**5, 256, n_values)
        grouped = qacal.QABinning().fit(fitted.confidence, fitted.correct, groups=fitted.groups)
        what = f"QA predict, {n:,} rows, 256 groups, {_kind(n_values)}"
        yield _beside_search(what, grouped, grouped_answers(n, 256, n_values))


def qa_fits() -> Iterator[Line]:
    """Fit bins in every group."""
    for n_values in (21, None):
        rows = grouped_answers(10**5, 256, n_values)
        fit = best_of(10, partial(_fitted, qacal.QABinning(), rows))
        what = f"QA fit, 100,000 rows, 256 groups, {_kind(n_values)}"
        outcome = ask("mcgrad", limit=PEER_LIMIT, **_columns(rows), repeats=3)
        for base in ("isotonic", "Platt"):
            yield _beside(what, fit, f"mcgrad, segmentwise {base}", outcome, base)


def hierarchical_fits() -> Iterator[Line]:
    """Fit a curve per group, drawn together."""
    for n, n_groups, n_values, goal in ((10**4, 64, 21, 100), (10**5, 256, 21, 100), (10**5, 256, None, 20)):
        rows = grouped_answers(n, n_groups, n_values)
        fit = best_of(10, partial(_fitted, qacal.calibrators.HierarchicalScaling(), rows))
        found = _fitted(qacal.calibrators.HierarchicalScaling(), rows).maps_.fit
        loss = laplace_loss(rows, found.fixed, found.covariance)
        what = f"hierarchical fit, {n:,} rows, {n_groups} groups, {_kind(n_values)}"
        for name, given, method, wanted in _gpboost_settings(rows, goal, is_tied=n_values is not None):
            threads, outcome = _faster_gpboost(given | {"method": method, "repeats": 2})
            beside = f"{name} ({threads} thread{'s' if threads > 1 else ''})"
            yield _beside_fit(what, fit, loss, beside, outcome, rows, wanted)
        outcome = ask("statsmodels", limit=PEER_LIMIT, **_columns(rows), repeats=1)
        yield _beside_fit(what, fit, loss, "statsmodels, variational", outcome, rows)


def imports() -> Iterator[Line]:
    """Start a fresh Python."""
    statements = ("import numpy", "import qacal", "from qacal import QABinning")
    runs = [{statement: _import(statement) for statement in statements} for _ in range(7)]
    best = {statement: min(run[statement][0] for run in runs) for statement in statements}
    for statement in statements[1:]:
        loaded = runs[0][statement][1]
        what = f"{statement} ({'with' if 'polars' in loaded else 'without'} polars)"
        holds = not {"sklearn", "matplotlib"} & set(loaded)
        condition = "no sklearn/matplotlib"
        yield Line(what, best[statement], "import numpy", best["import numpy"], condition=condition, holds=holds)


def _import(statement: str) -> tuple[float, list[str]]:
    """Return the seconds of an import in a fresh Python, and which heavy packages it loaded."""
    program = (
        f"import json, sys, time; start = time.perf_counter(); {statement}; took = time.perf_counter() - start; "
        "print(json.dumps([took, [name for name in ('sklearn', 'matplotlib', 'polars') if name in sys.modules]]))"
    )
    took, loaded = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    return took, loaded


def _fitted(model: Any, rows: Answers) -> Any:
    return model.fit(rows.confidence, rows.correct, groups=rows.groups)


def _beside(what: str, seconds: float, beside: str, outcome: Outcome, measure: str = "seconds", **more: Any) -> Line:
    """Return the line for what a peer told, or for why it told nothing."""
    other = outcome.told.get(measure, outcome.limit)
    return Line(what, seconds, beside, other, trouble=outcome.trouble, is_bound=outcome.limit is not None, **more)


def _beside_fit(
    what: str, seconds: float, loss: float, beside: str, outcome: Outcome, rows: Answers, goal: float | None = None
) -> Line:
    """Return the line of two fits of one likelihood, measured by the same function."""
    losses, holds = None, None
    if outcome.told:
        theirs = laplace_loss(rows, np.array(outcome.told["fixed"]), np.array(outcome.told["covariance"]))
        losses, holds = (loss, theirs), loss <= theirs + LOSS_SLACK
    condition = "NLL no worse" if goal else ""
    return _beside(what, seconds, beside, outcome, goal=goal, losses=losses, condition=condition, holds=holds)


def _beside_search(what: str, model: Any, rows: Answers) -> Line:
    """Return the line of a prediction beside a search of the same rows among all the edges of the model's bins."""
    top = model.maps_.top
    edges = np.sort(top[np.isfinite(top)])
    groups = rows.groups if model.properties.uses_groups else None
    predict, search = race(
        7,
        partial(model.predict, rows.confidence, groups=groups),
        partial(np.searchsorted, edges, rows.confidence),
    )
    return Line(what, predict, f"numpy.searchsorted, {len(edges)} edges", search, goal=1 / 3)


def _gpboost_settings(
    rows: Answers, goal: float, *, is_tied: bool
) -> Iterator[tuple[str, dict[str, Any], str, float | None]]:
    """Yield the ways to use GPBoost: as it comes, as it suits these groups, and on rows that qacal has counted."""
    yield "gpboost", _columns(rows), "default", goal
    yield "gpboost, Cholesky", _columns(rows), "cholesky", goal
    if is_tied:
        yield "gpboost, Cholesky, cells", _cells(rows), "cholesky", None


def _faster_gpboost(given: dict[str, Any]) -> tuple[int, Outcome]:
    """Return the outcome with as many threads as suit GPBoost: on a busy machine, more than one can take far longer."""
    outcomes = {threads: ask("gpboost", limit=PEER_LIMIT, **given, threads=threads) for threads in (1, CORES)}
    return min(outcomes.items(), key=lambda item: item[1].told.get("seconds", PEER_LIMIT))


@cache
def _histogram(n: int, n_bins: int) -> Outcome:
    rows = pooled_answers(n)
    columns = {"confidence": rows.confidence, "correct": rows.correct}
    return ask("uncertainty-calibration", limit=PEER_LIMIT, n_bins=n_bins, repeats=3, **columns)


def _columns(rows: Answers) -> dict[str, Any]:
    return {"confidence": rows.confidence, "correct": rows.correct.astype(np.float64), "group": rows.groups}


def _cells(rows: Answers) -> dict[str, Any]:
    """Return the rows counted: for every group and confidence the share of right answers and the number of rows."""
    tally = qacal.Tally.of(rows.confidence, rows.correct, groups=rows.groups)
    share = {"confidence": tally.confidence, "correct": tally.wt / tally.w}
    return share | {"group": tally.grouping.code, "trials": tally.w}


def _written(options: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _kind(n_values: int | None) -> str:
    return "continuous" if n_values is None else f"{n_values} values"


if __name__ == "__main__":
    main()
