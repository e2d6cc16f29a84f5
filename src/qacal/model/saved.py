"""Save a model or a set of models, and load it: the parts as one dataclass, which :mod:`qacal.storage` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from qacal import storage
from qacal.calibrators.base import Calibrator
from qacal.calibrators.binning import QABinning, ScalingBinning, ScalingQABinning, UniformMassBinning
from qacal.calibrators.curves import PlattScaling
from qacal.calibrators.hierarchical import HierarchicalScaling
from qacal.calibrators.identity import Identity
from qacal.calibrators.isotonic import IsotonicCalibration
from qacal.calibrators.margins import MarginBinning
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.step_binning import StepBinning
from qacal.calibrators.tree_binning import TreeBinning
from qacal.calibrators.tree_scaling import TreeScaling
from qacal.embedders import ColumnEmbedder, Embedder
from qacal.errors import ArtifactError, InputError
from qacal.model.base import BaseModel
from qacal.model.defaults import Output
from qacal.model.features import Feature, named_again
from qacal.model.fitting import Fitted, FittedFor
from qacal.model.groups import GroupSummary
from qacal.model.model import QACalibrator
from qacal.model.model_set import ModelSet
from qacal.model.pipeline import BUILT_IN, EmbedderId, ForeignName, Pipeline, RowVectors
from qacal.parameters import MOST, Between, require, shown
from qacal.partitions import BisectingTree, Column, KDTree, KMeans, Partition, Product
from qacal.records.columns import PROVENANCE
from qacal.records.provenance import SAMPLING
from qacal.records.reading import ReadAs
from qacal.storage import MODEL_SET
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.fit_record import FitRecord

CLASSES: tuple[type, ...] = (
    *(Identity, PlattScaling, IsotonicCalibration, UniformMassBinning, ScalingBinning, QABinning, ScalingQABinning),
    *(HierarchicalScaling, TreeScaling, TreeBinning, StepBinning, MarginBinning, LearnedScore),
    *(KDTree, BisectingTree, KMeans, Column, Product),
)
"""Every class that can be saved. A file chooses among these and nothing else."""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The saved parts of a :class:`~qacal.QACalibrator`.

    embedder : None if the model reads no vectors.
    output, train_share, examples, seed : the parameters.
    partition, score, first : None if the model does not use one.
    features : the columns that the score reads.
    rows, origins, groups, fit_record, decision_rule, read_as, fitted_for : the attributes of the fitted model.
    """

    embedder: EmbedderId | None
    output: Output
    train_share: float | None
    examples: int
    seed: int
    calibrator: Calibrator
    partition: Partition | None
    score: LearnedScore | None
    first: LearnedScore | None
    features: tuple[Feature, ...]
    rows: Annotated[int, Between(0, MOST)]
    origins: Mapping[str, tuple[Any, ...]]
    groups: tuple[GroupSummary, ...]
    fit_record: FitRecord
    decision_rule: DecisionRule | None
    read_as: ReadAs
    fitted_for: FittedFor | None

    def _validate(self) -> None:
        for name, values in self.origins.items():
            require(name in (*PROVENANCE, *SAMPLING) and len(values) > 0, f"origins has no values of {name!r:.80}.")
            are_numbers = name not in SAMPLING or all(isinstance(value, int | float) for value in values)
            require(are_numbers, f"origins.{name} is {shown(values)}; expected numbers.")


@dataclass(frozen=True)
class _Index:
    """What a saved set has beside its models.

    values : the values of the column `by`, in the order of the models.
    """

    by: str
    values: tuple[Any, ...]

    def _validate(self) -> None:
        are_names = all(isinstance(value, str | int) for value in self.values)
        require(are_names and len({*self.values}) == len(self.values), "the values of a set of models must differ.")


def save(model: QACalibrator, path: str | Path) -> None:
    """Write a fitted model as a folder; see :func:`qacal.storage.save`."""
    pipeline = model.pipeline_
    value = SavedModel(
        embedder=pipeline.vectors.described() if pipeline.needs_vectors else None,
        output=model.output,
        train_share=model.train_share,
        examples=model.examples,
        seed=model.seed,
        calibrator=pipeline.calibrator,
        partition=pipeline.partition if pipeline.uses_groups else None,
        score=pipeline.score,
        first=pipeline.first,
        features=pipeline.features,
        rows=model.rows_,
        origins={name: tuple(values) for name, values in model.origins_.items()},
        groups=tuple(model.groups_),
        fit_record=model.fit_record_,
        decision_rule=model.decision_rule_,
        read_as=model.read_as_,
        fitted_for=model.fitted_for_,
    )
    storage.save(path, value, CLASSES)


def save_set(models: ModelSet, path: str | Path) -> None:
    """Write the models as folders within one folder."""
    parts = [model.save for model in models.models.values()]
    storage.save(path, _Index(models._by, tuple(models.models)), document=MODEL_SET, parts=parts)


def load(path: str | Path, *, embedder: str | Embedder | None = None, warm: bool = False) -> QACalibrator | ModelSet:
    """Return the model that was saved at `path`, without running code from it; raise for a damaged or newer one.

    For a set (`qacal fit --by`), return a :class:`ModelSet`: each row goes to the model of its LLM. `models` has them.

    embedder : the embedder of the fit, if it is not "static", "minilm" or "column:NAME". Others ("hf:ID", "onnx:DIR",
        your own) are loaded only if you name them here, and never because the model names them.
    warm : load the embedder and all packages now, so that the first row takes milliseconds.
    """

    def made(index: _Index, folders: list[Path]) -> ModelSet:
        models = {}
        for value, folder in _named(index, folders).items():
            models[value] = load_model(folder, embedder)
            _require_fitted_for(models[value], FittedFor(index.by, value), folder)
        return ModelSet(index.by, models)

    is_set = (Path(path) / MODEL_SET).is_file()
    loaded: QACalibrator | ModelSet
    loaded = storage.load(path, _Index, document=MODEL_SET, made=made) if is_set else load_model(path, embedder)
    if warm:
        loaded._warm()
    return loaded


def as_model(model: BaseModel | str | Path, *, warm: bool = False) -> BaseModel:
    """Return a fitted model as it is, and load the one that is saved at a path."""
    if not isinstance(model, BaseModel | str | Path):
        raise InputError(f"model is {shown(model)}; expected a fitted model or the path of a saved one.")
    return load(model, warm=warm) if isinstance(model, str | Path) else model


def load_one(path: str | Path, *, embedder: str | Embedder | None = None) -> QACalibrator:
    """Return the single model that was saved at `path`; for a set, raise and name its models."""
    loaded = load(path, embedder=embedder)
    if isinstance(loaded, QACalibrator):
        return loaded
    folders = storage.load(path, _Index, document=MODEL_SET, made=_named)
    each = ", ".join(f"{folder} ({value})" for value, folder in folders.items())
    raise InputError(f"{path} holds one model for each {loaded._by}; name one of them: {each}.")


def load_model(path: str | Path, embedder: str | Embedder | None = None) -> QACalibrator:
    """Return the single model that was saved at `path`."""
    saved: SavedModel = storage.load(path, SavedModel, CLASSES)
    name = "static" if saved.embedder is None else saved.embedder.name
    used = {column for score in (saved.score, saved.first) if score is not None for column in score.columns_used}
    if embedder is None:
        embedder = name if name in BUILT_IN or name.startswith("column:") else ForeignName(name)
    model = QACalibrator(
        embedder,
        saved.partition,
        # A continuous output determines the calibrator, and a new fit raises if both are named.
        None if saved.output == "continuous" else saved.calibrator,
        # Its columns are among `features`.
        learned_score=None
        if saved.score is None
        else LearnedScore(text=saved.score.text, words=saved.score.words, objective=saved.score.objective),
        features=named_again(saved.features, used),
        output=saved.output,
        train_share=saved.train_share,
        examples=saved.examples,
        seed=saved.seed,
    )
    partition = BisectingTree() if saved.partition is None else saved.partition
    vectors = RowVectors(embedder, saved.embedder)
    if saved.embedder is not None and name.startswith("column:") and embedder == name:
        vectors = RowVectors(ColumnEmbedder(name.removeprefix("column:"), saved.embedder.dim))
    return model._set_fitted(
        Fitted(
            pipeline=Pipeline(partition, saved.score, saved.calibrator, vectors, saved.features, saved.first),
            tuned=None,
            rows=saved.rows,
            origins={column: list(values) for column, values in saved.origins.items()},
            groups=saved.groups,
            fit_record=saved.fit_record,
            read_as=saved.read_as,
            decision_rule=saved.decision_rule,
            fitted_for=saved.fitted_for,
        )
    )


def _named(index: _Index, folders: list[Path]) -> dict[Any, Path]:
    if not len(index.values) == len(folders) > 0:
        raise ArtifactError(f"{MODEL_SET} names {len(index.values)} models in {len(folders)} folders; copy them again.")
    return dict(zip(index.values, folders, strict=True))


def _require_fitted_for(model: QACalibrator, expected: FittedFor, folder: Path) -> None:
    """Refuse a model of another value than the index names: its numbers would be another LLM's."""
    actual = model.fitted_for_ or FittedFor("no column", "")
    if actual != expected:
        raise ArtifactError(
            f"{folder} holds the model of {actual.column} {actual.value}, and {MODEL_SET} names it as the model "
            f"of {expected.column} {expected.value}: names or folders were exchanged. Copy the models again, or "
            "fit them again."
        )
