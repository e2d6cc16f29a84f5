"""The lines that `qacal fit` prints: what was fitted and certified, the candidates, and warnings about the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qacal.cli import options

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet

MODELS_IN_FULL = 3
"""A larger set of models is printed as a table with a line for each model."""


def show_set(models: dict[Any, QACalibrator], by: str) -> None:
    """Print a table with a line for each model."""
    has_losses = any(model.learned_score_ is not None for model in models.values())
    losses = ("log loss before", "log loss after") if has_losses else ()
    options.show_table(
        f"{len(models):,} models, one for each value of the column {by}",
        (by, "labelled rows", *losses, "certified within"),
        [(str(value), *_cells(model, has_losses)) for value, model in models.items()],
    )
    if has_losses:
        options.show(
            "log loss: of the stated confidence and of the score, by cross-validation, cut at 0.001; lower is better."
        )
    options.show(
        "certified within: for half of the answers, the accuracy of similar answers is within this distance of the "
        "calibrated probability; no: the distance is 0.5 or more, which says nothing."
    )


def _cells(model: QACalibrator, has_losses: bool) -> list[str]:
    from qacal.calibrators.bin_maps import BinMaps

    score, maps = model.learned_score_, model.calibrator_.maps_
    training = score.rows_ if score is not None and model.output == "certified" else 0
    tried = () if score is None else score.tried_
    losses = [trial.log_loss for trial in (*tried[:1], *(trial for trial in tried if trial.is_chosen))]
    shown = [f"{loss:.4f}" for loss in losses] or ["", ""]
    bound = maps.median_error_bound() if isinstance(maps, BinMaps) else 0.5
    return [
        f"{model.rows_ + training:,}",
        *(shown if has_losses else []),
        f"{bound:.2f}" if bound < 0.5 else "no",
    ]


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
    lines = []
    for value, model in fit._models.items():
        title = "" if fit._by is None else f"{fit._by} {value}: "
        for overview, file in zip(model.overviews_, files, strict=False):
            label = overview.only_label
            if label is not None:
                names = {1.0: ("correct", "wrong"), 0.0: ("wrong", "correct")}
                what, when = names.get(label, (f"labelled {label:g}", "wrong"))
                where = "" if len(files) == 1 else f" of {file}"
                lines.append(
                    f"Note: {title}all {overview.rows:,} rows{where} are {what}; a model cannot learn when the LLM is "
                    f"{when}."
                )
    yield from lines[:MODELS_IN_FULL]
    if len(lines) > MODELS_IN_FULL:
        yield f"Note: {len(lines) - MODELS_IN_FULL:,} more models have rows with equal labels."


def has_threshold(path: str) -> bool:
    """Return whether the model at `path`, or one of a set there, has a threshold; False if it cannot be read."""
    try:
        index = Path(path) / "models.json"
        names = json.loads(index.read_bytes())["folders"] if index.is_file() else [""]
        documents = [json.loads((Path(path) / name / "model.json").read_bytes()) for name in names]
        return any(document["value"]["decision_rule"] is not None for document in documents)
    except (OSError, ValueError, KeyError, TypeError):
        return False
