"""The lines that `qacal fit` prints: what was fitted and certified, the candidates, and warnings about the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qacal.cli import options

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet
    from qacal.records.reading import Reading
    from qacal.thresholds.decisions import DecisionRule

_ALPHA = 0.1
MODELS_IN_FULL = 3
"""A larger set of models is printed as a table with a line for each model."""
_MODELS_IN_TABLE = 20


def show_set(models: dict[Any, QACalibrator], by: str) -> None:
    """Print a table with a line for each model; models beyond the largest twenty share one line."""
    lines = {value: _Line.of(model) for value, model in models.items()}
    title = f"{len(lines):,} models, one for each value of the column {by}"
    if len(lines) > _MODELS_IN_TABLE:
        lines = dict(sorted(lines.items(), key=lambda item: -item[1].rows))
        title += f"; the {_MODELS_IN_TABLE} with the most rows"
    has_losses = any(line.before is not None for line in lines.values())
    losses = ("log loss before", "log loss after") if has_losses else ()
    rows = [(str(value), *line.cells(has_losses)) for value, line in lines.items()]
    header = (by, "labelled rows", *losses, "certified within")
    options.show_table(title, header, rows[:_MODELS_IN_TABLE])
    if len(rows) > _MODELS_IN_TABLE:
        options.show(_summary([*lines.values()][_MODELS_IN_TABLE:]))
    if has_losses:
        options.show("log loss: of the stated confidence and of the score, by cross-validation; lower is better.")
    options.show(
        "certified within: for half of the answers the true accuracy is within this distance of the printed value; "
        "no: the distance is 0.5 or more, which says nothing."
    )


@dataclass(frozen=True)
class _Line:
    """One of many models in the table.

    rows : number of rows of the fit, training and certifying.
    before, after : cross-validated log loss of the stated confidence and of the learned score; None without a score.
    within : bound on the error of half of the answers; None if it is 0.5 or more, which is uninformative.
    """

    rows: int
    before: float | None
    after: float | None
    within: float | None

    @staticmethod
    def of(model: QACalibrator) -> _Line:
        from qacal.calibrators.bin_maps import BinMaps

        score, maps = model.learned_score_, model.calibrator_.maps_
        training = score.rows_ if score is not None and model.output == "certified" else 0
        tried = () if score is None else score.tried_
        bound = maps.median_error_bound() if isinstance(maps, BinMaps) else 0.5
        return _Line(
            model.rows_ + training,
            tried[0].log_loss if tried else None,
            next((trial.log_loss for trial in tried if trial.is_chosen), None),
            bound if bound < 0.5 else None,
        )

    def cells(self, has_losses: bool) -> list[str]:
        losses = ["" if loss is None else f"{loss:.4f}" for loss in (self.before, self.after)] if has_losses else []
        return [f"{self.rows:,}", *losses, "no" if self.within is None else f"{self.within:.2f}"]


def _summary(lines: list[_Line]) -> str:
    """Return one line for all models that are not in the table."""
    from statistics import fmean

    fewest, most = min(line.rows for line in lines), max(line.rows for line in lines)
    sizes = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    text = f"{len(lines):,} more models with {sizes} labelled rows"
    losses = [(line.before, line.after) for line in lines if line.before is not None and line.after is not None]
    if losses:
        before, after = (fmean(column) for column in zip(*losses, strict=True))
        text += f": mean log loss {before:.4f} before, {after:.4f} after"
    certified = sum(line.within is not None for line in lines)
    return f"{text}; {certified:,} of them certified. --json has all models."


def to_dict(model: QACalibrator) -> dict[str, Any]:
    """Return what was fitted, for JSON; `tried` are the candidates that cross-validation compared."""
    from dataclasses import asdict

    from qacal.calibrators.bin_maps import BinMaps
    from qacal.metrics.evaluation import without_nan
    from qacal.model.summary import interval_readers

    maps, score = model.calibrator_.maps_, model.learned_score_
    out: dict[str, Any] = {
        "calibrator": type(model.calibrator_).__name__,
        "rows": model.rows_,
        "groups": len(model.describe_groups()),
        "score": None if score is None else score.chosen,
        "rows_learned_from": None if score is None else score.rows_,
        "tried": [] if score is None else [asdict(trial) for trial in score.tried_],
    }
    if isinstance(maps, BinMaps):
        own, larger, all_rows = interval_readers(maps)
        out |= {"alpha": float(maps.certificate.alpha), "median_epsilon_of_a_row": maps.median_error_bound()}
        out["certificates"] = {"own": own, "of_a_larger_group": larger, "of_all_rows": all_rows}
    return dict(without_nan(out))


def equal_labels(fit: QACalibrator | ModelSet, files: Sequence[str]) -> Iterator[str]:
    """Yield a line for each set of rows that all have the same label: a model cannot learn from them.

    files : the rows that train and those that certify, if they are two.
    """
    affected = [value for value, model in fit._models.items() if model.overviews_[0].only_label is not None]
    if len(affected) > MODELS_IN_FULL:
        some = ", ".join(map(str, affected[:MODELS_IN_FULL]))
        yield (
            f"qacal: for {len(affected):,} LLMs ({fit._by} {some} and others) all rows have the same label; a model "
            "cannot learn when these LLMs are wrong."
        )
        return
    for value, model in fit._models.items():
        title = "" if fit._by is None else f"{fit._by} {value}: "
        for overview, file in zip(model.overviews_, files, strict=False):
            label = overview.only_label
            if label is not None:
                names = {1.0: ("correct", "wrong"), 0.0: ("wrong", "correct")}
                what, when = names.get(label, (f"labelled {label:g}", "wrong"))
                where = "" if len(files) == 1 else f" of {file}"
                yield (
                    f"qacal: {title}all {overview.rows:,} rows{where} are {what}; a model cannot learn when the LLM is "
                    f"{when}."
                )


def unused_confidences(fit: QACalibrator | ModelSet, reading: Reading) -> Iterator[str]:
    """Yield a line on further confidences in the rows that no score uses."""
    models = fit._models.values()
    if all(model.learned_score_ is None for model in models):
        return
    used = {*reading.columns.values(), *(name for model in models for name in model.pipeline_.columns)}
    present = dict.fromkeys(name for model in models for name in model.overviews_[0].further_confidences)
    unused = [name for name in present if name not in used]
    if unused:
        flags = " ".join(f"--extra-confidence {name}" for name in unused)
        yield f"The rows also have {' and '.join(unused)}; to use {'it' if len(unused) == 1 else 'them'}, pass {flags}."


def lost_threshold(path: str) -> str | None:
    """Return the options that chose the threshold of the model at `path`; None without a threshold or a model."""
    from qacal.errors import QacalError
    from qacal.model.saved import load

    try:
        loaded = load(path)
    except (QacalError, OSError):
        return None
    rules = [model.decision_rule_ for model in loaded._models.values() if model.decision_rule_ is not None]
    return _threshold_options(rules[0]) if rules else None


def _threshold_options(rule: DecisionRule) -> str:
    """Return the options of `qacal threshold` that give such a rule, as far as it stores them.

    >>> from qacal.thresholds.decisions import DecisionRule
    >>> _threshold_options(DecisionRule(0.7, None, {"kind": "certified", "accuracy": 0.9, "alpha": 0.05}))
    '--accuracy 0.9 --alpha 0.05'
    """
    about = {name: value for name, value in rule.about.items() if isinstance(value, int | float)}
    words = [f"--{name} {about[name]:g}" for name in ("accuracy", "wrong", "abstain") if name in about]
    words += [f"--alpha {about['alpha']:g}"] if about.get("alpha", _ALPHA) != _ALPHA else []
    words += ["--per-group"] if rule.groups is not None else []
    return " ".join(words) or "--accuracy 0.9"
