"""Loading a saved model: what its directory says is checked before it is believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.embedders import ColumnEmbedder, Embedder
from qacal.errors import ArtifactError, InputError
from qacal.model import artifacts
from qacal.model.fitting import Fitted
from qacal.model.groups import GroupSummary
from qacal.model.model import QACalibrator
from qacal.model.pipeline import ForeignName, Pipeline, RowVectors
from qacal.partitions import BisectingTree
from qacal.records.reading import ReadAs
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.memory import NO_RECORD, FitRecord


def load(path: str | Path, *, embedder: str | Embedder | None = None, warm: bool = False) -> QACalibrator:
    """Return the model that was saved at `path`; a damaged, foreign or newer one is an error, and runs no code.

    embedder : what the model was fitted with, if it is not "static", "minilm" or "column:NAME". Others ("hf:ID",
        "onnx:DIR", your own) are loaded only if they are named here, and never because the model names them.
    warm : load the embedder and all packages now, not at the first answer, which then takes milliseconds.
    """
    saved = artifacts.load(path)
    header = _Header(saved.header, str(path))
    known = header.dictionary("embedder")
    parameters = header.dictionary("parameters")
    name = known.get("name", "static")
    if not isinstance(name, str):
        raise ArtifactError(f"{path} holds no sound model: the name of its embedder is {name!r:.80}.")
    model = QACalibrator(
        ForeignName.unless_known(name) if embedder is None else embedder,
        saved.partition,
        # It follows from the output there, and is refused beside it in a new fit.
        None if parameters.get("output") == "continuous" else saved.calibrator,
        learned_score=saved.score,
        **{name: parameters[name] for name in ("output", "train_share", "examples", "seed") if name in parameters},
    )
    partition = BisectingTree() if saved.partition is None else saved.partition
    found = Fitted(
        pipeline=Pipeline(partition, saved.score, saved.calibrator, _vectors(model.embedder, known)),
        tuned=None,
        rows=header.whole("rows"),
        origins=header.dictionary("origins"),
        groups=[GroupSummary.from_dict(group) for group in header.listed("groups")],
        memory=header.optional("memory", FitRecord.from_plain) or NO_RECORD,
    )
    model._set_fitted(found, header.optional("thresholds", DecisionRule.from_plain))
    model.read_as_ = header.optional("read_as", ReadAs.from_plain) or ReadAs()
    model.fitted_for_ = header.optional("fitted_for", _column_and_value)
    if warm:
        model._warm()
    return model


def _column_and_value(plain: Any) -> dict[str, Any]:
    """Return the column and the value that all rows of a model have in it, if the model is one of a set."""
    if not (isinstance(plain, dict) and set(plain) == {"column", "value"} and isinstance(plain["value"], str | int)):
        raise InputError(f"fitted_for is {plain!r:.80}; expected a column and its value.")
    return plain


def _vectors(embedder: str | Embedder, known: Mapping[str, Any]) -> RowVectors:
    """Return where vectors come from, by what the model says of it."""
    if isinstance(embedder, str) and embedder == known.get("name") and embedder.startswith("column:"):
        return RowVectors(ColumnEmbedder(embedder[7:], known.get("dim")))
    return RowVectors(embedder, known)


@dataclass(frozen=True)
class _Header:
    """Reads what `QACalibrator.save` wrote, and says what is wrong with anything else."""

    content: Mapping[str, Any]
    path: str

    def _get(self, name: str, kind: type) -> Any:
        value = self.content.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"{self.path}: {name} is {type(value).__name__} in model.json; expected {kind.__name__}.")
        return value

    def dictionary(self, name: str) -> dict[str, Any]:
        return dict(self._get(name, dict))

    def listed(self, name: str) -> list[Any]:
        return list(self._get(name, list))

    def whole(self, name: str) -> int:
        return int(self._get(name, int))

    def optional(self, name: str, read: Callable[[Any], Any]) -> Any:
        """Return what models of an earlier qacal do not have; None for them."""
        if self.content.get(name) is None:
            return None
        try:
            return read(self.content[name])
        except InputError as error:
            raise ArtifactError(f"{self.path} holds no sound model: {error}") from error
