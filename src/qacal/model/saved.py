"""Save a model and load it: its parts as one dataclass, which :mod:`qacal.storage` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal import storage
from qacal.calibrators.base import Calibrator
from qacal.calibrators.binning import QABinning, ScalingBinning, ScalingQABinning, UniformMassBinning
from qacal.calibrators.hierarchical import HierarchicalScaling
from qacal.calibrators.identity import Identity
from qacal.calibrators.isotonic import IsotonicCalibration
from qacal.calibrators.platt import PlattScaling
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.step_binning import StepBinning
from qacal.calibrators.tree_binning import TreeBinning
from qacal.calibrators.tree_scaling import TreeScaling
from qacal.embedders import ColumnEmbedder, Embedder
from qacal.model.defaults import Output
from qacal.model.fitting import Fitted
from qacal.model.groups import GroupSummary
from qacal.model.model import QACalibrator
from qacal.model.pipeline import ForeignName, Pipeline, RowVectors
from qacal.partitions import BisectingTree, Column, KDTree, KMeans, Partition, Product
from qacal.records.reading import ReadAs
from qacal.storage import require
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.fit_record import FitRecord

CLASSES: tuple[type, ...] = (
    *(Identity, PlattScaling, IsotonicCalibration, UniformMassBinning, ScalingBinning, QABinning, ScalingQABinning),
    *(HierarchicalScaling, TreeScaling, TreeBinning, StepBinning, LearnedScore),
    *(KDTree, BisectingTree, KMeans, Column, Product),
)
"""Every class that can be saved. A file chooses among these and nothing else."""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The saved parts of a :class:`~qacal.QACalibrator`.

    embedder : the name, dimension and digest of the embedder; empty if the model reads no vectors.
    output, train_share, examples, seed : the parameters.
    partition, score : None if the model does not use one.
    rows, origins, groups, fit_record, decision_rule, read_as, fitted_for : the attributes of the fitted model.
    """

    embedder: Mapping[str, Any]
    output: Output
    train_share: float | None
    examples: int
    seed: int
    calibrator: Calibrator
    partition: Partition | None
    score: LearnedScore | None
    rows: int
    origins: Mapping[str, tuple[Any, ...]]
    groups: tuple[GroupSummary, ...]
    fit_record: FitRecord
    decision_rule: DecisionRule | None
    read_as: ReadAs
    fitted_for: Mapping[str, Any] | None

    def validate(self) -> None:
        kinds = {"name": str, "dim": int, "digest": str}
        is_described = {name: type(value) for name, value in self.embedder.items()} in ({}, kinds)
        require(is_described, f"embedder is {dict(self.embedder)!r:.80}; expected its name, dim and digest.")
        require(self.rows >= 0, f"rows is {self.rows}; expected 0 or more.")
        column = self.fitted_for
        is_one = column is None or ({*column} == {"column", "value"} and isinstance(column["value"], str | int))
        require(is_one, f"fitted_for is {column!r:.80}; expected a column and its value.")
        parts = (self.calibrator, self.partition, self.score, self.fit_record, self.decision_rule, self.read_as)
        for part in (*parts, *self.groups):
            if part is not None:
                part.validate()


def save(model: QACalibrator, path: str | Path) -> None:
    """Write a fitted model as a folder; see :func:`qacal.storage.save`."""
    pipeline = model.pipeline_
    value = SavedModel(
        embedder=pipeline.vectors.described() if pipeline.needs_vectors else {},
        output=model.output,
        train_share=model.train_share,
        examples=model.examples,
        seed=model.seed,
        calibrator=pipeline.calibrator,
        partition=pipeline.partition if pipeline.uses_groups else None,
        score=pipeline.score,
        rows=model.rows_,
        origins={name: tuple(values) for name, values in model.origins_.items()},
        groups=tuple(model.groups_),
        fit_record=model.fit_record_,
        decision_rule=model.decision_rule_,
        read_as=model.read_as_,
        fitted_for=model.fitted_for_,
    )
    storage.save(path, value, CLASSES)


def load(path: str | Path, *, embedder: str | Embedder | None = None, warm: bool = False) -> QACalibrator:
    """Return the model that was saved at `path`; see :func:`qacal.load`."""
    saved: SavedModel = storage.load(path, SavedModel, CLASSES)
    name = saved.embedder.get("name", "static")
    model = QACalibrator(
        ForeignName.unless_known(name) if embedder is None else embedder,
        saved.partition,
        # A continuous output determines the calibrator, and a new fit raises if both are named.
        None if saved.output == "continuous" else saved.calibrator,
        learned_score=saved.score,
        output=saved.output,
        train_share=saved.train_share,
        examples=saved.examples,
        seed=saved.seed,
    )
    partition = BisectingTree() if saved.partition is None else saved.partition
    vectors = RowVectors(model.embedder, saved.embedder)
    if isinstance(model.embedder, str) and model.embedder == name and name.startswith("column:"):
        vectors = RowVectors(ColumnEmbedder(name.removeprefix("column:"), saved.embedder["dim"]))
    fitted = Fitted(
        pipeline=Pipeline(partition, saved.score, saved.calibrator, vectors),
        tuned=None,
        rows=saved.rows,
        origins={name: list(values) for name, values in saved.origins.items()},
        groups=saved.groups,
        fit_record=saved.fit_record,
    )
    model._set_fitted(fitted, saved.decision_rule)
    model.read_as_ = saved.read_as
    model.fitted_for_ = None if saved.fitted_for is None else dict(saved.fitted_for)
    if warm:
        model._warm()
    return model
