"""A fitted model in a few lines of text: what `qacal fit` prints, and notebooks show."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.calibrators.base import FROM_ANCESTOR, FROM_GROUP, FROM_ROOT
from qacal.calibrators.maps import BinMaps, known_groups
from qacal.calibrators.margins import ROWS_OF_A_GROUP, MarginMaps
from qacal.calibrators.score.trials import CLEARLY, ColumnTrial
from qacal.errors import counted
from qacal.metrics.scores import SHOWN_CUT
from qacal.model.defaults import SHARE, SHARE_OF_FIRST, SHARE_WITH_MARGINS, SHARE_WITH_SCORE
from qacal.model.widths import Widths
from qacal.planning import rounded_up, rows_for_margins, rows_for_one_bin, shown_bound

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator

_FEW = 200
# With fewer labelled rows, the first line says that intervals say little, and how many rows would say this much.
_VERY_FEW, _ERROR = 100, 0.1


def described(model: QACalibrator, *, is_certified_apart: bool = False, is_refit: bool = False) -> str:
    """Return the summary of a fit.

    is_certified_apart : the certifying rows came in a separate file.
    is_refit : only labels of audits certify.
    """
    labels = "labels of audits" if is_refit else "certifying rows" if is_certified_apart else "labelled rows"
    maps = model.calibrator_.maps_
    # A continuous score has no other rows than those that trained it.
    is_continuous = model.output == "continuous" and model.learned_score_ is not None
    lines = [] if is_continuous else [*_too_few(model, is_certified_apart), _fitted(model, is_certified_apart)]
    lines += _tried(model)
    if isinstance(maps, MarginMaps):
        lines += [*_certified_margins(model, maps), *_widths(model.widths_, labels, maps.curves is None)]
    elif isinstance(maps, BinMaps):
        lines += [_certified(model, maps), *_certified_groups(model, maps, is_certified_apart)]
    elif model.rows_ < _FEW and model.learned_score_ is None:
        lines.append(f"With fewer than {_FEW} rows the calibration is unreliable.")
    return "\n".join(lines)


def key_figures(model: QACalibrator) -> dict[str, Any]:
    """Return what two versions of a model can be compared by without further rows; None where a model has none."""
    maps, score = model.calibrator_.maps_, model.learned_score_
    margins = maps if isinstance(maps, MarginMaps) else None
    return {
        "certifying_rows": model.rows_ if model.calibrator_.properties.is_certified else None,
        "score_rows": None if score is None else score.rows_,
        "error_bound": maps.median_error_bound() if isinstance(maps, BinMaps | MarginMaps) else None,
        "bands": None if margins is None else margins.n_bands,
        "group_width": None if margins is None else margins.median_group_width(),
        "groups": len(model.describe_groups()),
        "columns": model.pipeline_.columns,
        "has_threshold": model.decision_rule_ is not None,
    }


def _too_few(model: QACalibrator, is_certified_apart: bool) -> list[str]:
    """Return, for very few rows, that their intervals say little, and how many rows would say more."""
    maps = model.calibrator_.maps_
    if not isinstance(maps, BinMaps | MarginMaps):
        return []
    # The score of which no row certifies.
    score = model.pipeline_.first or model.learned_score_
    rows = model.rows_ + (0 if score is None or is_certified_apart else score.rows_)
    kind, learning = ("certifying row", 0.0) if is_certified_apart else ("labelled row", _learning_share(model))
    needed = rows_for_one_bin(_ERROR, maps.certificate.alpha)
    if isinstance(maps, MarginMaps):
        needed = rows_for_margins(_ERROR, alpha=maps.alpha_of_bands, is_fitted=maps.curves is not None)
        if maps.certificate.is_by_document:  # few documents have one band
            rows, kind, learning = int(maps.cells.rows[: len(maps.below)].sum()), "certifying document", 0.0
    labels = labels_for_group(needed, 1.0, learning)
    if rows >= min(labels, _VERY_FEW):
        return []
    return [
        f"{counted(rows, kind)}: the intervals say little. Even one interval for all answers is within {_ERROR:g} only "
        f"from about {labels:,} {kind}s on."
    ]


def _fitted(model: QACalibrator, is_certified_apart: bool) -> str:
    groups = model.describe_groups()
    verb = "certify" if model.calibrator_.properties.is_certified else "calibrate"
    text = f"{counted(model.rows_, 'row')} {verb}"
    if model.pipeline_.first is not None and model.widths_ and not is_certified_apart:
        total = model.overviews_[0].rows
        text = f"{total:,} labelled rows: {total - model.rows_:,} only train, {model.rows_:,} {verb}"
    if len(groups) == 1:
        text += ", in one group"
    elif groups:
        least, most = (choose(group.rows for group in groups) for choose in (min, max))
        text += f", in {len(groups)} groups of {'' if least == most else f'{least:,} to '}{counted(most, 'row')}"
    return f"{text} ({type(model.calibrator_).__name__}).{_chosen(model)}"


def _chosen(model: QACalibrator) -> str:
    """Return the settings that tuning chose, and their objective."""
    tuned = model.tuned_
    if tuned is None:
        return ""
    best, objective = tuned.best, str(model.tune).replace("_", " ")
    points = "" if best.points_per_bin is None else f", {best.points_per_bin} points per bin"
    depth = "one map for all" if not best.cut else f"depth {best.cut}" if isinstance(best.cut, int) else "groups"
    without = tuned.best_pooled
    pooled = "" if without is None or best.cut == 0 else f", {abs(without.score):.4f} without groups"
    tried = f"{objective} {abs(best.score):.4f} on {tuned.rows:,} rows{pooled}; {len(tuned.trials)} settings tried"
    return f" Chosen: {depth}{points} ({tried}; {tuned.note})."


def _tried(model: QACalibrator) -> list[str]:
    """Return the candidates for the score with their cross-validated losses, and the chosen one."""
    score = model.learned_score_
    if score is None:
        return []
    lines = [f"Score: {score.chosen}, trained on {score.rows_:,} rows."]
    if score.tried_:
        title = f"Cross-validated on {score.tried_[0].rows:,} of the training rows"
        width = max(43, *(len(trial.name) for trial in score.tried_))
        lines.append(f"{title:<{width + 3}} log loss   Brier")
    for trial in score.tried_:
        mark = "*" if trial.is_chosen else " "
        lines.append(f" {mark} {trial.name:<{width}} {trial.log_loss:8.4f}  {trial.brier:6.4f}")
    if score.tried_:
        lines.append(f"Log loss: probabilities are cut off at {SHOWN_CUT:g} and {1 - SHOWN_CUT:g}.")
    lines += [_column(trial) for trial in score.columns_tried_]
    return lines + [f"Column {name}: not tried; {reason}." for name, reason in model.not_tried_.items()]


def _column(trial: ColumnTrial) -> str:
    """Return what a column adds to the score."""
    if trial.is_leak:
        return f"Column {trial.name}: not used. It predicts the label almost perfectly, so it was made from the label."
    change = f"lowers the log loss by {trial.gain:.4f} ± {trial.error:.4f}"
    if not trial.is_used:
        if trial.gain <= trial.error:
            loss = f"{-trial.gain:+.4f} ± {trial.error:.4f}"
            return f"Column {trial.name}: not used. With it, the log loss is not clearly lower ({loss})."
        reason = "a simpler score is better"
        if trial.is_suspect:
            option = f"--feature {shlex.quote(trial.name)} (in Python: features={[trial.name]})"
            reason = f"that is suspiciously much; to use it, pass {option}"
        elif trial.gain <= CLEARLY * trial.error:
            reason = "that is too little for a column that nobody named"
        return f"Column {trial.name}: not used. By itself it {change}; {reason}."
    doubt = " That is suspiciously much: is it known before the answer is judged?" if trial.is_suspect else ""
    return f"Column {trial.name}: used. By itself it {change}.{doubt}"


def _certified_margins(model: QACalibrator, maps: MarginMaps) -> list[str]:
    """Return what is guaranteed by probability and by group."""
    wanted = getattr(model.calibrator_, "within", None)
    asked = "" if wanted is None else f" (asked for: {wanted:g})"
    documents = ", as documents, since ids repeat" if maps.certificate.is_by_document else ""
    similar = "similar scores" if maps.curves is None else "similar stated confidences"
    cells = f"in each of {maps.n_bands} bands of {similar}" if maps.n_bands > 1 else "over all answers together"
    within = f"within {shown_bound(maps.largest_error_bound())}"
    if maps.n_bands > 1:
        within = f"within {shown_bound(maps.median_error_bound())} for half of the answers{asked}, {within} for all"
    lines = [
        f"Certified on {counted(model.rows_, 'row')}{documents}. With probability "
        f"{100 * (1 - maps.certificate.alpha):.4g}%, all of this holds at once:",
        f"   by probability: {cells},\n      the mean calibrated probability is near the accuracy:\n      {within}.",
    ]
    if (width := maps.median_group_width()) is not None:
        groups = f"each of {maps.n_groups} groups" if maps.n_groups > 1 else "one group"
        lines.append(
            f"   by group: the accuracy of {groups} is known\n"
            f"      to ±{shown_bound(width)} for half of the answers{asked}, "
            f"to ±{shown_bound(maps.largest_group_width())} for all."
        )
    known = known_groups(maps.grouping, maps.max_depth)
    if (others := len(np.unique(known[known >= 0])) - maps.n_groups) and maps.max_depth is None:
        lines.append(f"   {counted(others, 'group')} with fewer than {ROWS_OF_A_GROUP} rows: no interval by group.")
    return lines


def _widths(widths: tuple[Widths, ...], labels: str, has_score: bool) -> list[str]:
    """Return a table of how wide intervals are with fewer and more of these labels, at most 80 characters wide."""
    if not widths:
        return []
    cells = [
        (labels, [f"{'' if one.is_measured else '*'}{one.labels:,}" for one in widths]),
        ("by probability (bands)", [f"±{shown_bound(one.band_width)} ({one.bands})" for one in widths]),
    ]
    if any(one.groups for one in widths):
        shown = [
            "no" if one.group_width is None else f"±{shown_bound(one.group_width)} ({one.groups})" for one in widths
        ]
        cells.append(("by group (groups)", shown))
    wide = max(11, *(len(text) + 1 for _, texts in cells for text in texts))
    how = "with the scores of this fit" if has_score else "on parts of the rows"
    if sum(one.is_measured for one in widths) == 1:  # a tally has no parts
        how = "on all rows"
    return [
        f"Widths by number of labels, measured {how} (* expected):",
        *(f"   {name:<22}{''.join(f'{text:>{wide}}' for text in texts)}" for name, texts in cells),
    ]


def _certified(model: QACalibrator, maps: BinMaps) -> str:
    """Return the certified bound on the error of half of the answers."""
    bound = maps.median_error_bound()
    certified = (
        f"Certified on {counted(model.rows_, 'row')} (with probability {100 * (1 - maps.certificate.alpha):.4g}%)"
    )
    similar = "similar answers"
    if maps.certificate.is_by_document:
        certified += ", as documents, since ids repeat"
        similar = "similar answers (a random row of a random document)"
    half = f"for half of the answers, the accuracy of {similar} is within {bound:.2f} of the calibrated probability"
    few = "" if bound < 0.5 else "\nThat says next to nothing, since 0.5 is always within 0.50: more rows are needed."
    return f"{certified}: {half}.{few}"


def _certified_groups(model: QACalibrator, maps: BinMaps, has_certify_records: bool) -> list[str]:
    """Return how many groups have intervals of their own, and how many rows a group needs."""
    own, larger, all_rows = interval_readers(maps)
    count = own + larger + all_rows
    if count < 2:
        return []
    others = [f"; {larger} use those of a larger group"] if larger else []
    others += [f"; {all_rows} use those of all rows"] if all_rows else []
    lines = [f"Groups with intervals of their own: {own} of {count}{''.join(others)}."]
    return lines + (_one_more(model, has_certify_records) if others and not maps.certificate.is_by_document else [])


def interval_readers(maps: BinMaps) -> tuple[int, int, int]:
    """Return how many groups use intervals of their own, of a larger group, and of all rows."""
    groups = known_groups(maps.grouping, maps.max_depth)
    source = maps.lineage.source[maps.lineage.directory.find(np.unique(groups[groups >= 0]))]
    own, larger, all_rows = (int((source == whose).sum()) for whose in (FROM_GROUP, FROM_ANCESTOR, FROM_ROOT))
    return own, larger, all_rows


def _one_more(model: QACalibrator, has_certify_records: bool) -> list[str]:
    """Return how many rows a group needs for intervals of its own: the same number after every fit."""
    parameters = model.calibrator_.get_params()
    needed = int(parameters.get("rows_per_map") or parameters.get("points_per_bin") or 1)
    most = max((group.rows for group in model.describe_groups() if group.rows < needed), default=0)
    if not most:
        return []
    share = 0.0 if has_certify_records else _learning_share(model)
    labels = (
        f", which about {labels_for_group(needed, 1.0, share):,} labelled rows of its kind give it" if share else ""
    )
    rule = f"A group has intervals of its own from {needed} certifying rows on{labels}"
    return [f"{rule}; the largest without them has {most}."]


def _learning_share(model: QACalibrator) -> float:
    """Return the share of the questions that trained groups and score, and do not certify."""
    if model.learned_score_ is None and not model.pipeline_.needs_vectors:
        return 0.0
    if model.pipeline_.first is not None:
        return SHARE_OF_FIRST * (SHARE_WITH_MARGINS if model.train_share is None else model.train_share)
    usual = SHARE if model.learned_score_ is None else SHARE_WITH_SCORE
    return usual if model.train_share is None else model.train_share


def labels_for_group(certifying: int, share: float, learning: float) -> int:
    """Return how many labelled rows are needed for a group to have its own intervals.

    certifying : number of certifying rows that the group needs.
    share : the group's share of the rows.
    learning : the share of the questions used for training.

    >>> labels_for_group(250, 1 / 16, 0.8)
    20000
    """
    return rounded_up(certifying / share / (1 - learning) - 1e-6)
