"""What `qacal fit` says of a model: what was fitted, what was tried, and how much of it is certified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qacal.cli import options as shared

if TYPE_CHECKING:
    from qacal.calibrators.bin_maps import BinMaps
    from qacal.model.model import QACalibrator
    from qacal.thresholds.decisions import DecisionRule

_FEW = 200
_ALPHA = 0.1
MODELS_IN_FULL = 3
"""Of a set with more models, each has a line of a table, and beyond these so many the others have one together."""
_MODELS_IN_TABLE = 20


def described(model: QACalibrator, *, is_certified_apart: bool = False) -> str:
    """Return what was fitted in a few lines.

    is_certified_apart : the rows that certify came in a file of their own.
    """
    from qacal.calibrators.bin_maps import BinMaps

    maps = model.calibrator_.maps_
    lines = [_fitted(model), *_tried(model)]
    if isinstance(maps, BinMaps):
        lines += [_certified(model, maps), *_certified_groups(model, maps, is_certified_apart)]
    elif model.rows_ < _FEW and model.score_ is None:
        lines.append("So few rows carry little.")
    return "\n".join(lines)


def show_set(models: dict[Any, QACalibrator], by: str) -> None:
    """Show what was fitted for many LLMs: a line for each, and one for all beyond twenty."""
    lines = {value: _Line.of(model) for value, model in models.items()}
    shown, rest = list(lines), list[Any]()
    title = f"{len(lines):,} models, one for each value of the column {by}"
    if len(lines) > _MODELS_IN_TABLE:
        ranked = sorted(lines, key=lambda value: -lines[value].rows)
        shown, rest = ranked[:_MODELS_IN_TABLE], ranked[_MODELS_IN_TABLE:]
        title += f"; the {len(shown)} with the most rows"
    has_losses = any(line.before is not None for line in lines.values())
    losses = ("log loss before", "log loss after") if has_losses else ()
    rows = [(str(value), *lines[value].cells(has_losses)) for value in shown]
    shared.show(shared.table(title, by, "labelled rows", *losses, "certified within", rows=rows))
    if rest:
        shared.show(_summary([lines[value] for value in rest]))
    if has_losses:
        shared.show("log loss: on rows held out, of the stated confidence and of the score; lower is better.")
    shared.show("certified within: half of the answers are this close to the truth; no: 0.5 or more certifies nothing.")


@dataclass(frozen=True)
class _Line:
    """What is said of one of many models.

    rows : those that it was fitted on, to learn and to certify.
    before, after : log loss held out, of the stated confidence and of the score; None if no score was chosen.
    within : how far off half of the answers may be; None if nothing is certified, which 0.5 would be.
    """

    rows: int
    before: float | None
    after: float | None
    within: float | None

    @staticmethod
    def of(model: QACalibrator) -> _Line:
        from qacal.calibrators.bin_maps import BinMaps

        score, maps = model.score_, model.calibrator_.maps_
        learned = score.rows_ if score is not None and model.output == "certified" else 0
        tried = () if score is None else score.tried_
        bound = maps.median_error_bound() if isinstance(maps, BinMaps) else 0.5
        return _Line(
            model.rows_ + learned,
            tried[0].log_loss if tried else None,
            next((trial.log_loss for trial in tried if trial.is_chosen), None),
            bound if bound < 0.5 else None,
        )

    def cells(self, has_losses: bool) -> list[str]:
        """Return the cells of a table."""
        losses = ["" if loss is None else f"{loss:.4f}" for loss in (self.before, self.after)] if has_losses else []
        return [f"{self.rows:,}", *losses, "no" if self.within is None else f"{self.within:.2f}"]


def _summary(lines: list[_Line]) -> str:
    """Return the models that have no line of their own, in one."""
    from statistics import fmean

    fewest, most = min(line.rows for line in lines), max(line.rows for line in lines)
    sizes = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    text = f"{len(lines):,} more, of {sizes} labelled rows"
    losses = [(line.before, line.after) for line in lines if line.before is not None and line.after is not None]
    if losses:
        before, after = (fmean(column) for column in zip(*losses, strict=True))
        text += f": mean log loss {before:.4f} before, {after:.4f} after"
    certified = sum(line.within is not None for line in lines)
    return f"{text}; {certified:,} certified. --json has all."


def to_dict(model: QACalibrator) -> dict[str, Any]:
    """Return the same as numbers, for JSON; `tried` are the scores that were compared on rows held out."""
    from dataclasses import asdict

    from qacal.calibrators.bin_maps import BinMaps
    from qacal.metrics.evaluation import without_nan

    maps, score = model.calibrator_.maps_, model.score_
    out: dict[str, Any] = {
        "calibrator": type(model.calibrator_).__name__,
        "rows": model.rows_,
        "groups": len(model.describe_groups()),
        "score": None if score is None else score.chosen,
        "rows_learned_from": None if score is None else score.rows_,
        "tried": [] if score is None else [asdict(trial) for trial in score.tried_],
    }
    if isinstance(maps, BinMaps):
        own, larger, all_rows = _readers(maps)
        certified = {"own": own, "of_a_larger_group": larger, "of_all_rows": all_rows}
        out |= {"alpha": float(maps.certificate.alpha), "median_epsilon_of_a_row": maps.median_error_bound()}
        out |= {"certificates": certified}
    return dict(without_nan(out))


def _fitted(model: QACalibrator) -> str:
    groups = model.describe_groups()
    text = f"{type(model.calibrator_).__name__} on {shared.counted(model.rows_, 'row')}"
    if groups:
        sizes = [group.rows for group in groups]
        text += f" in {len(groups)} groups of {min(sizes):,} to {max(sizes):,}" if len(groups) > 1 else " in one group"
    return f"{text}.{_chosen(model)}"


def _chosen(model: QACalibrator) -> str:
    """Return what tuning has chosen, and what it is worth."""
    found = model.tuned_
    if found is None:
        return ""
    best, what = found.best, str(model.tune).replace("_", " ")
    b = "" if best.points_per_bin is None else f", {best.points_per_bin} points per bin"
    depth = (
        f"depth {best.cut}"
        if isinstance(best.cut, int) and best.cut
        else "one map for all"
        if not best.cut
        else "groups"
    )
    without = found.best_pooled
    pooled = "" if without is None or best.cut == 0 else f", {abs(without.score):.4f} without groups"
    tried = f"{what} {abs(best.score):.4f} on {found.rows:,} rows{pooled}; {len(found.trials)} settings were tried"
    return f" Chosen: {depth}{b} ({tried}; {found.note})."


def _tried(model: QACalibrator) -> list[str]:
    """Return what was tried for a score, line by line, and what was chosen."""
    score = model.score_
    if score is None:
        return []
    others = "other rows" if model.output == "certified" else "rows"
    lines = [f"The score: {score.chosen}, learned from {score.rows_:,} {others}."]
    width = max([43, *(len(trial.name) for trial in score.tried_)])
    if score.tried_:
        lines.append(f"{f'Tried on {score.tried_[0].rows:,} rows held out':<{width + 3}} log loss   Brier")
    for trial in score.tried_:
        mark = "*" if trial.is_chosen else " "
        lines.append(f" {mark} {trial.name:<{width}} {trial.log_loss:8.4f}  {trial.brier:6.4f}")
    return lines


def _certified(model: QACalibrator, maps: BinMaps) -> str:
    """Return how far off the answers may be, by their certificate."""
    bound, sure = maps.median_error_bound(), f"with probability {1 - maps.certificate.alpha:g}"
    rows, half = shared.counted(model.rows_, "row"), f"half of the answers are within {bound:.2f} of the truth"
    if bound < 0.5:
        return f"Certified by {rows}, {sure}: {half}."
    return f"Certified by {rows}: next to nothing. With few rows {half}, {sure}; to say 0.5 always is within 0.50."


def _certified_groups(model: QACalibrator, maps: BinMaps, has_certify_records: bool) -> list[str]:
    """Return how many groups have intervals of their own, and how many rows one more would take."""
    own, larger, all_rows = _readers(maps)
    count = own + larger + all_rows
    if count < 2:
        return []
    others = [f"{larger} read that of a larger group"] if larger else []
    others += [f"{all_rows} read that of all rows"] if all_rows else []
    whose = f" ({', '.join(others)}){_one_more(model, has_certify_records)}" if others else ""
    return [f"Groups with a certificate of their own: {own} of {count}{whose}."]


def _readers(maps: BinMaps) -> tuple[int, int, int]:
    """Return how many groups read intervals of their own, those of a larger group, and those of all rows."""
    import numpy as np

    from qacal.calibrators.ancestry import known_groups
    from qacal.calibrators.evidence import FROM_ANCESTOR, FROM_GROUP, FROM_ROOT

    groups = known_groups(maps.grouping, maps.max_depth)
    source = maps.lineage.source[maps.lineage.directory.find(np.unique(groups[groups >= 0]))]
    own, larger, all_rows = (int((source == whose).sum()) for whose in (FROM_GROUP, FROM_ANCESTOR, FROM_ROOT))
    return own, larger, all_rows


def _one_more(model: QACalibrator, has_certify_records: bool) -> str:
    """Return what it would take for another group to have intervals of its own."""
    from qacal.checking.enough import labels_for_group

    parameters = model.calibrator_.get_params()
    needed = int(parameters.get("rows_per_map") or parameters.get("points_per_bin") or 1)
    most = max((group.rows for group in model.describe_groups() if group.rows < needed), default=0)
    if not most:
        return ""
    share = 0.0 if has_certify_records else _learning_share(model)
    rows = labels_for_group(needed, most / model.rows_, share)
    kind = "labelled rows" if share else "rows to certify with"
    return f"; another takes {needed} certifying rows and has {most}, so about {rows:,} {kind} like these"


def _learning_share(model: QACalibrator) -> float:
    """Return the share of the questions that groups and score were learned from."""
    from qacal.model.defaults import SHARE, SHARE_WITH_SCORE

    if model.score_ is None and not model.pipeline_.needs_vectors:
        return 0.0
    usual = SHARE if model.score_ is None else SHARE_WITH_SCORE
    return usual if model.train_share is None else model.train_share


def lost_threshold(path: str) -> str | None:
    """Return how the threshold of the model at `path` was asked for; None if it has none, or cannot be read."""
    from qacal.errors import QacalError
    from qacal.model.model_set import load_any

    try:
        loaded = load_any(path)
    except (QacalError, OSError):
        return None
    rules = [model.decision_rule_ for model in loaded.models.values()]
    rule = next((rule for rule in rules if rule is not None), None)
    return None if rule is None else _asked(rule)


def _asked(rule: DecisionRule) -> str:
    """Return the options of `qacal threshold` that ask for such a rule, as far as it says how it came about.

    >>> from qacal.thresholds.decisions import DecisionRule
    >>> _asked(DecisionRule(0.7, None, {"kind": "certified", "accuracy": 0.9, "alpha": 0.05}))
    '--accuracy 0.9 --alpha 0.05'
    >>> _asked(DecisionRule(0.8, None, {"kind": "cheapest", "wrong": 5, "abstain": 1})), _asked(DecisionRule(0.8))
    ('--wrong 5 --abstain 1', '--accuracy 0.9')
    """
    about = {name: value for name, value in rule.about.items() if isinstance(value, int | float)}
    options = [f"--{name} {about[name]:g}" for name in ("accuracy", "wrong", "abstain") if name in about]
    options += [f"--alpha {about['alpha']:g}"] if about.get("alpha", _ALPHA) != _ALPHA else []
    options += ["--per-group"] if rule.groups is not None else []
    return " ".join(options) or "--accuracy 0.9"
