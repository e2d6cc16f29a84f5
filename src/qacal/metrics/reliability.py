"""Reliability: confidence against accuracy, bin by bin, as a table and as a diagram."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from qacal.errors import InputError
from qacal.guarantee import check_alpha, mean_intervals
from qacal.metrics.binned import BinChoice, Binned
from qacal.metrics.scores import as_tally, ordered
from qacal.parameters import is_whole, shown
from qacal.tally.arrays import ArrayLike, Floats
from qacal.tally.bins import Bins
from qacal.tally.groups import Paths
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    import polars as pl

Strategy = Literal["uniform", "quantile"]


def reliability_table(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    groups: ArrayLike | Paths | None = None,
    sample_weight: ArrayLike | None = None,
    bins: BinChoice = None,
    alpha: float = 0.05,
) -> pl.DataFrame:
    """Return one row per group and bin.

    Columns: `group`; `from` and `to`, the bin's lowest and highest confidence; `rows`; `confidence`, its mean;
    `accuracy`, with `low` and `high` its (1 - alpha) interval, each bin by itself; `gap`, confidence minus accuracy.

    >>> reliability_table([1, 0, 0, 0], [0.8] * 4, groups=["law"] * 4).select("group", "rows", "accuracy", "gap")
    shape: (1, 4)
    ┌───────┬──────┬──────────┬──────┐
    │ group ┆ rows ┆ accuracy ┆ gap  │
    │ ---   ┆ ---  ┆ ---      ┆ ---  │
    │ str   ┆ i64  ┆ f64      ┆ f64  │
    ╞═══════╪══════╪══════════╪══════╡
    │ law   ┆ 4    ┆ 0.25     ┆ 0.55 │
    └───────┴──────┴──────────┴──────┘
    """
    import polars as pl

    check_alpha(alpha)
    binned = Binned.of(as_tally(y_true, y_prob, groups, sample_weight).without_blocks(), bins)
    cells, bins_ = binned.tally, binned.bins
    columns: dict[str, Any] = {} if cells.grouping is None else {"group": cells.grouping.decode(bins_.group)}
    columns |= {"from": cells.confidence[bins_.start], "to": bins_.top, **bin_means(cells, bins_, alpha)}
    columns["gap"] = columns["confidence"] - columns["accuracy"]
    return pl.DataFrame(columns, strict=False)


def bin_means(cells: Tally, bins: Bins, alpha: float) -> dict[str, Any]:
    """Return the `rows`, mean `confidence` and `accuracy` of each bin, and the `low` and `high` end of its interval."""
    rows, w, wt = bins.sum(cells.rows), bins.sum(cells.w), bins.sum(cells.wt)
    low, high = mean_intervals(rows, w, wt, bins.sum(cells.wtt), bins.sum(cells.ww), alpha / 2)
    confidence = bins.sum(cells.w * cells.confidence) / w
    accuracy = np.clip(wt / w, 0.0, 1.0)
    return {"rows": rows.astype(np.int64), "confidence": confidence, "accuracy": accuracy, "low": low, "high": high}


@dataclass(eq=False, repr=False)
class ReliabilityDisplay:
    """The share of correct answers against the mean probability, bin by bin, with an exact interval for each bin.

    Make one with :meth:`from_predictions` or :meth:`from_estimator`. Signatures and attributes are the same as in
    scikit-learn's `CalibrationDisplay`.

    Attributes
    ----------
    prob_true, prob_pred : of each bin that has rows, the share of correct answers and the mean probability.
    low, high : the (1 - alpha) interval of the share (Clopper-Pearson), each bin by itself.
    y_prob : the probabilities.
    line_, band_, ax_, figure_ : what :meth:`plot` drew, and where.
    """

    prob_true: Floats
    prob_pred: Floats
    y_prob: Floats
    _: KW_ONLY
    low: Floats | None = None
    high: Floats | None = None
    estimator_name: str | None = None
    pos_label: Any = None

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        n_bins: int = 5,
        strategy: Strategy = "uniform",
        pos_label: Any = None,
        name: str | None = None,
        ax: Any = None,
        ref_line: bool = True,
        alpha: float = 0.05,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw labels and probabilities.

        Parameters
        ----------
        n_bins, strategy : bins of equal width ("uniform") or of equally many rows ("quantile").
        pos_label : the label that counts as correct, where labels are not 0 and 1.
        name : in the legend.
        alpha : how often the interval of one bin may miss the truth.
        kwargs : for the line, as matplotlib's `plot` takes them.
        """
        check_alpha(alpha)
        labels = y_true if pos_label is None else np.asarray(y_true) == pos_label
        label = 1 if pos_label is None else pos_label
        right, p = ordered(labels, y_prob)
        if not is_whole(n_bins, 1):
            raise InputError(f"n_bins is {shown(n_bins)}; expected a whole number of 1 or more.")
        if strategy not in ("uniform", "quantile"):
            raise InputError(f'strategy is {shown(strategy)}; expected "uniform" or "quantile".')
        edges = np.linspace(0.0, 1.0, n_bins + 1)
        edges = edges if strategy == "uniform" else np.percentile(p, edges * 100)
        of = np.searchsorted(edges[1:-1], p)
        of = np.unique(of, return_inverse=True)[1]
        rows, correct, squares, total = (
            np.bincount(of, column).astype(np.float64) for column in (np.ones(len(p)), right, right * right, p)
        )
        low, high = mean_intervals(rows, rows, correct, squares, rows, alpha / 2, is_mixed=False)
        display = cls(correct / rows, total / rows, p, low=low, high=high, estimator_name=name, pos_label=label)
        return display.plot(ax=ax, name=name, ref_line=ref_line, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        n_bins: int = 5,
        strategy: Strategy = "uniform",
        pos_label: Any = None,
        name: str | None = None,
        ax: Any = None,
        ref_line: bool = True,
        alpha: float = 0.05,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the probabilities of a fitted model against labels.

        estimator : a :class:`~qacal.QACalibrator`, with records as `X`; or a binary classifier of scikit-learn.
        """
        if hasattr(estimator, "predict_proba"):
            classes = list(estimator.classes_)
            pos_label = classes[-1] if pos_label is None else pos_label
            y_prob = np.asarray(estimator.predict_proba(X))[:, classes.index(pos_label)]
        else:
            y_prob = estimator.predict(X)
        name = type(estimator).__name__ if name is None else name
        options = {"n_bins": n_bins, "strategy": strategy, "ax": ax, "ref_line": ref_line, "alpha": alpha}
        return cls.from_predictions(y, y_prob, pos_label=pos_label, name=name, **options, **kwargs)

    def plot(
        self, *, ax: Any = None, name: str | None = None, ref_line: bool = True, **kwargs: Any
    ) -> ReliabilityDisplay:
        """Draw on `ax`, or on a new figure."""
        # Here, not at the top: only drawing needs it.
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots()
        name = self.estimator_name if name is None else name
        if ref_line and "Perfectly calibrated" not in ax.get_legend_handles_labels()[1]:
            ax.plot([0, 1], [0, 1], "k:", label="Perfectly calibrated")
        style = {"marker": "s", "linestyle": "-"} | ({} if name is None else {"label": name}) | kwargs
        (self.line_,) = ax.plot(self.prob_pred, self.prob_true, **style)
        self.band_ = None
        if self.low is not None and self.high is not None:
            color = self.line_.get_color()
            self.band_ = ax.fill_between(self.prob_pred, self.low, self.high, alpha=0.2, color=color, linewidth=0)
        ax.legend(loc="lower right")
        ax.set(xlabel="Mean probability", ylabel="Share of correct answers")
        self.ax_, self.figure_ = ax, ax.figure
        return self
