r"""Fit on tallies: rows are counted where they are, and only cells come together.

With groups that are a column, a tally has confidence, group and label, and the calibrator is fitted on the sum.

With a model of text, a sample of the rows trained its parts and fixed bands and groups. Others are counted by these:

========  ===========================================  ==============================
certify   end of the band (or score), group, label     certifies bands and groups
held      end of the band, answer                      the mean answer of each band
answered  answer (at candidate thresholds), group,     where a threshold starts
          label
stated    confidence (three decimals), group, label    what `qacal groups` prints
========  ===========================================  ==============================

Bands and groups are functions of a row that were fixed without these rows, so the proof for the margins holds for them
(docs/guarantees.md, section 3): they all certify, and all that trained no score show the mean answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from qacal.calibrators.margins import MarginBinning, MarginMaps
from qacal.errors import InputError, some_of
from qacal.model.defaults import default_pipeline, require_parameters
from qacal.model.fitting import Fitted, Split, recorded
from qacal.model.groups import Sampler, Summaries
from qacal.model.model import QACalibrator
from qacal.model.samples import CalibrationRows, ids_of
from qacal.model.widths import Widths, widths_by_labels
from qacal.partitions import Column, as_partition
from qacal.partitions.column import LabelCounts
from qacal.records.columns import PROVENANCE
from qacal.records.provenance import SAMPLING, AllowOtherSource, Sources, is_provenance, require_known_origin
from qacal.records.reading import Batch, ReadAs
from qacal.records.tallying import require_few
from qacal.records.writers import atomic_file, plain_errors
from qacal.tally.arrays import Ints, seven_decimals
from qacal.tally.cells import SUMS
from qacal.tally.table import repeated_sums
from qacal.tally.tally import DOCUMENTS, Tally, TallySum
from qacal.thresholds.fit_record import CANDIDATES, MOST_QUESTIONS, FitRecord, at_candidates, lowest

if TYPE_CHECKING:
    import polars as pl

Ids: TypeAlias = Literal["check", "documents", "ignore"]
"""What to do about ids: refuse rows of one id, count them as documents, or take all rows as independent."""

# The lowest hashes of ids that a tally keeps, to notice repeated ids and rows of a fit.
_MOST_IDS = 4096
_METADATA = "qacal.tally"
_NONE: Ints = np.empty(0, dtype=np.int64)


class RowsOfFitError(InputError):
    """Some rows that a model is to be certified on are of its fit. Only a sample of questions is compared."""


@dataclass(frozen=True, eq=False)
class Counted:
    """Labelled rows, counted.

    tallies : by name; the table above has the names.
    model : the version of the model that groups and scores are from; None if groups are a column.
    sources : where the rows come from. Which columns tell that is decided at the end, so that it does not matter how
        rows are divided into files.
    ids, ids_rows : the lowest hashes of ids, and how many rows each of these ids has.
    texts : the lowest hashes of the texts of questions that have ids.
    has_ids : whether rows have ids of their own; None if ids were not read.
    """

    tallies: dict[str, Tally]
    model: str | None = None
    sources: Sources = field(default_factory=Sources)
    ids: Ints = field(default_factory=lambda: _NONE)
    ids_rows: Ints = field(default_factory=lambda: _NONE)
    texts: Ints = field(default_factory=lambda: _NONE)
    has_ids: bool | None = None

    @property
    def certify(self) -> Tally:
        if "certify" not in self.tallies:
            raise InputError("no row was counted; label some answers, or count other files.")
        return self.tallies["certify"]

    @staticmethod
    def sum(parts: Iterable[Counted], most: int | None = None, name: str = "") -> Counted:
        """Add up what was counted in parts, one after another; only cells that differ are in memory.

        most : with more cells than this, confidences of a column's groups are rounded, as in any fit
            (:class:`~qacal.tally.tally.TallySum`).
        name : of the sum, if it may not have nearly as many cells as rows.
        """
        tallies: dict[str, TallySum] = {}
        sources, models, kinds, knows = Sources(), set[str | None](), set[bool](), set[bool]()
        ids, ids_rows, texts = _NONE, _NONE, _NONE
        for one in parts:
            models.add(one.model)
            if one.has_ids is not None:
                kinds.add(one.has_ids)
            if one.tallies:
                knows.add(one.has_ids is not None)
            if len(knows) > 1:
                raise InputError(
                    "only some of these files or tallies have ids (SQL and --ids ignore give none), so repeated "
                    "questions cannot be noticed: count all with ids, or all with --ids ignore."
                )
            if len(models) > 1:
                raise InputError(
                    "these tallies were made with different models, or some without one; they do not add. Tallies for "
                    "--from need the model that made all of them: keep it, and save others elsewhere (-o)."
                )
            if len(kinds) > 1:
                raise InputError(
                    "only some of the files have ids, so repeated questions cannot be noticed; all need them."
                )
            for kind, tally in one.tallies.items():
                tallies.setdefault(kind, TallySum(most if one.model is None else None)).add(tally)
                if name:
                    require_few(tallies[kind], name)
            sources.add_plain(one.sources.to_plain())
            # An id that is among the lowest at the end was so after every part.
            ids, place = np.unique(np.concatenate([ids, one.ids]), return_inverse=True)
            ids_rows = np.bincount(place, np.concatenate([ids_rows, one.ids_rows])).astype(np.int64)[:_MOST_IDS]
            ids, texts = ids[:_MOST_IDS], np.union1d(texts, one.texts)[:_MOST_IDS]
        totals = {kind: replace(tally.total(), is_sum=True) for kind, tally in tallies.items()}
        return Counted(totals, next(iter(models), None), sources, ids, ids_rows, texts, next(iter(kinds), None))

    def require_independent(self) -> None:
        """Refuse rows that share an id, unless they were counted as documents; a few such ids may not be noticed."""
        n = self.certify.n
        if self.certify.n_blocks == DOCUMENTS or not len(self.ids):
            return
        is_complete = len(self.ids) < _MOST_IDS
        # The k-th lowest of D hashes is near k / D of their range, with a relative error of 1 / sqrt(k).
        questions = len(self.ids) if is_complete else (_MOST_IDS - 1) / (float(self.ids[-1]) / 2.0**53)
        if (self.ids_rows > 1).any() or (not is_complete and n > questions * (1 + 5 / np.sqrt(_MOST_IDS))):
            raise InputError(
                f"some of the {n:,} rows have the same id (or, without ids, the same question), so they are not "
                "independent. Count them as documents with --ids documents, or keep one row of each."
            )

    # As a file

    def to_frame(self) -> pl.DataFrame:
        """Return the cells of all tallies as one table, without sums that repeat others."""
        import polars as pl

        frames = [
            one.to_polars().drop(repeated_sums(one.is_weighted, one.is_soft)).with_columns(tally=pl.lit(name))
            for name, one in self.tallies.items()
            if len(one)
        ]
        if len(frames) < 2:
            return frames[0] if frames else pl.DataFrame()
        return pl.concat(frames, how="diagonal_relaxed")

    def metadata(self) -> dict[str, str]:
        """Return the rest, for the metadata of the file."""
        arrays = {name: getattr(self, name).tolist() for name in ("ids", "ids_rows", "texts")}
        others = {"model": self.model, "sources": self.sources.to_plain(), "has_ids": self.has_ids}
        return {_METADATA: json.dumps(others | arrays)}

    def save(self, path: str | Path) -> None:
        """Write a file."""
        with atomic_file(path) as temporary, plain_errors():
            self.to_frame().write_parquet(temporary, metadata=self.metadata())

    @staticmethod
    def read(path: str | Path) -> Counted:
        """Read a file of `qacal tally`, or one with a table of :meth:`Tally.to_polars`."""
        import polars as pl

        frame, text = pl.read_parquet(path, glob=False), pl.read_parquet_metadata(path).get(_METADATA, "{}")
        if "tally" not in frame.columns:
            return Counted({"certify": Tally.from_polars(frame)} if frame.height else {}, **_fields(text))
        tallies = {}
        for name in (names := frame["tally"].unique(maintain_order=True)):
            part = frame if len(names) == 1 else frame.filter(pl.col("tally") == name)
            unused: list[str] = [
                one for one in ("block", "tie", *SUMS) if one in part.columns and part[one].null_count() == part.height
            ]
            if name == "held":
                unused += [one for one in part.columns if ":" in one]
            tallies[name] = Tally.from_polars(part.drop("tally", *unused))
        return Counted(tallies, **_fields(text))


def _fields(text: str) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(text)
    sources = Sources()
    sources.add_plain(plain.pop("sources", {}))
    arrays = {name: np.array(value, dtype=np.int64) for name, value in plain.items() if isinstance(value, list)}
    return plain | arrays | {"sources": sources}


def is_tally(path: str) -> bool:
    """Return whether a file has a tally."""
    import polars as pl

    try:
        return {"rows", "wt", "n_blocks"} <= {*pl.read_parquet_schema(path)}
    except (pl.exceptions.PolarsError, OSError):
        return False  # the command that reads it says what is wrong


# Rows to cells


def count_column(batch: Batch, column: str, ids: Ids, resolution: float | None = None) -> Counted:
    """Count rows by confidence and the groups of a column."""
    if ids == "documents" and batch.ids is None:
        raise InputError(f"{batch.table.origin}: rows need an id or a question, to be counted as documents.")
    options: dict[str, Any] = {"n_blocks": DOCUMENTS, "ids": batch.ids} if ids == "documents" else {}
    groups = {column: batch.column(column)}
    tally = Tally.of(batch.confidence, batch.correct, groups=groups, resolution=resolution, **options)
    return count_rows({"certify": tally}, batch, None, ids)


def count_by_model(
    model: QACalibrator,
    version: str,
    batch: Batch,
    ids: Ids,
    *,
    split: Split | None = None,
    allow_other_source: AllowOtherSource = False,
) -> Counted:
    """Count rows by the scores and groups of a model.

    split : that of the fit, for rows of the fit; None for rows of other questions.
    """
    pipeline, calibrator = model.pipeline_, model.calibrator_
    require_known_origin(batch, model.origins_, allow_other_source, uses_labels=True)
    is_held = np.ones(len(batch), dtype=bool)
    if split is not None:
        batch = split.for_calibrator(batch)
        is_held = split.is_held(ids_of(batch))
    elif shared := model.fit_record_.known(batch.ids, batch.question_hashes()):
        raise RowsOfFitError(
            f"{batch.table.origin}: the model was fitted on some of these questions: {shared} of those that it stores "
            "are here. Count rows of other questions."
        )
    if not len(batch):
        return Counted({}, version)
    options = calibrator._tally_options()
    if ids == "documents" and calibrator.properties.counts_documents:
        options = {"n_blocks": DOCUMENTS} | options
    read, groups = pipeline.inputs(batch)
    first = read.score if read.first is None else read.first
    if isinstance(maps := calibrator.maps_, MarginMaps) and pipeline.first is not None:
        # Any score of the band would do; with its end there are few cells.
        tops = maps.planned.tops
        first = np.minimum(tops, 1.0)[np.searchsorted(tops, seven_decimals(first))]
    named: dict[str, Any] = (
        {} if batch.ids is None or not options.get("n_blocks", options.get("ties")) else {"ids": batch.ids}
    )
    tallies = {"certify": Tally.of(first, batch.correct, groups=groups, **named, **options)}
    if pipeline.score is not None:
        tallies["stated"] = Tally.of(batch.confidence.round(3), batch.correct, groups=groups)
    if read.first is not None:
        answers = at_candidates(read.score, CANDIDATES)
        tallies["answered"] = Tally.of(answers, batch.correct, groups=groups)
        if is_held.any():
            few = {name: values[is_held] for name, values in named.items()}
            tallies["held"] = Tally.of(first[is_held], read.score[is_held], **few, **options)
    return count_rows(tallies, batch, version, ids)


def count_rows(tallies: dict[str, Tally], batch: Batch, version: str | None, ids: Ids) -> Counted:
    """Return tallies of rows, with where these come from and which questions they are of."""
    sources = Sources()
    sources.add(batch)
    if ids == "ignore" or batch.ids is None:
        return Counted(tallies, version, sources)
    has_ids = batch.reading.name("id") in batch.table.names
    texts = lowest(batch.question_hashes(), _MOST_IDS)[0] if has_ids else _NONE
    return Counted(tallies, version, sources, *lowest(batch.ids, _MOST_IDS), texts, has_ids)


# Cells to a model


def fit_column(
    model: QACalibrator, counted: Counted, *, allow_mixed: bool = False, read_as: ReadAs | None = None
) -> QACalibrator:
    """Fit a model whose groups are a column to a tally of its rows.

    model : has the other parameters.
    read_as : how the rows were read; a tally does not tell.
    """
    tally = _certifying(counted, allow_mixed=allow_mixed)
    if len(tally.partitions) != 1:
        found = some_of([*tally.partitions]) or "none"
        raise InputError(
            f"a model is fitted to a tally with one column of groups; this one has {found}. Count the rows again."
        )
    (name,) = tally.partitions
    asked = Column(name) if model.partition is None else as_partition(model.partition)
    if not isinstance(asked, Column) or asked.name != name:
        raise InputError(f"the tally has the groups of {name!r}, and the partition is {model.partition!r}.")
    model.set_params(partition=Column(name))
    require_parameters(model)
    pipeline = default_pipeline(model)
    if pipeline.score is not None or model.tune is not None:
        raise InputError("a tally has no texts, and its rows cannot be split: leave out --feature and --tune.")
    column = tally.grouping
    assert column is not None
    assert isinstance(pipeline.partition, Column)
    counts = LabelCounts(pipeline.partition.name)
    counts.add_column(column, tally.rows)
    pipeline.partition.fit(counts)
    calibrator = pipeline.calibrator.fit_tally(tally)
    widths: tuple[Widths, ...] = ()
    if isinstance(calibrator, MarginBinning):
        plan = partial(calibrator._cells_of, tally, 1.0)
        widths = widths_by_labels(calibrator, CalibrationRows(pipeline), tally, tally.n, plan)
    return model._set_fitted(
        Fitted(
            pipeline=pipeline,
            tuned=None,
            rows=tally.n,
            origins=counted.sources.known(),
            groups=Summaries(tally, pipeline.depth, Sampler(), 0),
            fit_record=_record(tally.with_confidence(calibrator.predict_tally(tally)), pipeline.depth, counted),
            read_as=read_as or ReadAs(),
            widths=widths,
        )
    )


def recertified(model: QACalibrator, version: str, counted: Counted, *, allow_mixed: bool = False) -> QACalibrator:
    """Return a model with the parts of another one, certified on rows that were counted by that one."""
    if counted.model != version:
        raise InputError("the tallies were not made with this model; count the rows again: qacal tally --model.")
    is_mixed = any(len(values) > 1 for name, values in model.origins_.items() if name in PROVENANCE)
    tally = _certifying(counted, allow_mixed=allow_mixed or is_mixed)
    pipeline, maps = model.pipeline_, model.calibrator_.maps_
    calibrator = type(model.calibrator_)(**model.calibrator_.get_params())
    if isinstance(calibrator, MarginBinning) and isinstance(maps, MarginMaps) and pipeline.first is not None:
        held = counted.tallies.get("held")
        if held is None:
            raise InputError("no row is left to show the mean answer of each band; count other rows, too.")
        calibrator._fit_cells(tally, maps.planned, held if tally.block is not None else held.without_blocks())
    else:
        calibrator.fit_tally(tally)
    pipeline = replace(pipeline, calibrator=calibrator)
    stated = counted.tallies.get("stated", tally)
    before = {group.group: group for group in model.groups_}
    groups = [
        replace(group, words=before[group.group].words, examples=before[group.group].examples)
        if group.group in before
        else group
        for group in Summaries(stated, pipeline.depth, Sampler(), 0)
    ]
    answered = counted.tallies.get("answered")
    if answered is None:
        answered = tally.with_confidence(calibrator.predict_tally(tally))
    return QACalibrator(**model.get_params(deep=False))._set_fitted(
        Fitted(
            pipeline=pipeline,
            tuned=None,
            rows=tally.n,
            origins=_both(model.origins_, counted.sources.known()),
            groups=tuple(groups),
            fit_record=_record(answered, pipeline.depth, counted, model.fit_record_),
            read_as=model.read_as_,
            fitted_for=model.fitted_for_,
        )
    )


def _both(one: dict[str, list[Any]], two: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the origins of two sets of rows."""
    both = {name: list(dict.fromkeys([*one.get(name, ()), *two.get(name, ())])) for name in one | two}
    return {name: values for name, values in both.items() if name in SAMPLING or is_provenance(name, values)}


def _certifying(counted: Counted, *, allow_mixed: bool) -> Tally:
    """Return the tally to fit on; refuse rows of several LLMs or prompts, and rows that share a question."""
    if not allow_mixed:
        counted.sources.require_one()
    counted.require_independent()
    tally = counted.certify
    is_by_document = tally.is_by_document
    # A file of `Tally.sql` or `tally_files` has no ids. Rows that a model counts may have them for the order of ties.
    if tally.is_clustered and not is_by_document and counted.model is None:
        raise InputError(
            "some ids have several rows, and this tally does not keep documents apart: intervals would be too narrow. "
            "Count documents (qacal tally --ids documents), keep one row of each id, or, if rows with one id are "
            "independent, count without ids."
        )
    if tally.n_blocks == DOCUMENTS and not is_by_document:
        tally = tally.without_blocks()
    return replace(tally, is_clustered=is_by_document, is_sum=False)


def _record(answers: Tally, depth: int, counted: Counted, before: FitRecord | None = None) -> FitRecord:
    """Return what the model stores about the rows, and about those of the fit that it comes from."""
    record = recorded(answers, depth, np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64))
    questions, texts = [counted.ids], [counted.texts]
    if before is not None:
        questions, texts = [*questions, before.questions], [*texts, before.texts]
    marks = (np.unique(np.concatenate(parts))[:MOST_QUESTIONS] for parts in (questions, texts))
    return replace(record, questions=next(marks), texts=next(marks))
