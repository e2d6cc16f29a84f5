"""Warnings about the rows of a fit: labels that are all the same, and confidences that no score uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from qacal.cli.fit_summary import MODELS_IN_FULL

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet
    from qacal.records.reading import Reading


def on_labels(fit: QACalibrator | ModelSet, files: Sequence[str]) -> Iterator[str]:
    """Yield a line for each set of rows that all have the same label: a model cannot learn from them.

    files : the rows that train and those that certify, if they are two.
    """
    alike = [value for value, model in fit._models.items() if model.overviews_[0].only_label is not None]
    if len(alike) > MODELS_IN_FULL:
        some = ", ".join(map(str, alike[:MODELS_IN_FULL]))
        yield (
            f"qacal: for {len(alike):,} LLMs ({fit._by} {some} and others) all rows have the same label; a model "
            "cannot learn when these LLMs are wrong."
        )
        return
    for value, model in fit._models.items():
        whose = "" if fit._by is None else f"{fit._by} {value}: "
        for overview, file in zip(model.overviews_, files, strict=False):
            label = overview.only_label
            if label is not None:
                known = {1.0: ("correct", "wrong"), 0.0: ("wrong", "correct")}
                what, when = known.get(label, (f"labelled {label:g}", "wrong"))
                where = "" if len(files) == 1 else f" of {file}"
                yield (
                    f"qacal: {whose}all {overview.rows:,} rows{where} are {what}; a model cannot learn when the LLM is "
                    f"{when}."
                )


def on_confidences(fit: QACalibrator | ModelSet, how: Reading) -> Iterator[str]:
    """Yield a line on further confidences in the rows that no score uses."""
    models = fit._models.values()
    if all(model.learned_score_ is None for model in models):
        return
    known = {*how.columns.values(), *(name for model in models for name in model.pipeline_.columns)}
    offered = dict.fromkeys(name for model in models for name in model.overviews_[0].further_confidences)
    unread = [name for name in offered if name not in known]
    if unread:
        options, it = " ".join(f"--extra-confidence {name}" for name in unread), "it" if len(unread) == 1 else "them"
        yield f"The rows also have {' and '.join(unread)}; to use {it}, pass {options}."
