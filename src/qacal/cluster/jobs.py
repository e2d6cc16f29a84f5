"""What is done with a part: functions from batches of rows to a frame, the same on every engine.

========  ================================================
embed     the rows, with their vectors as a column
apply     the rows, with calibrated confidences
tally     cells (:mod:`qacal.model.tallies`)
sample    the labelled rows of a random sample of questions
========  ================================================

A :class:`Job` has plain values only and travels to the workers, with the files of its model. A :class:`Worker` loads
the model once, and turns one part after another into its output.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from qacal import storage
from qacal.cluster.parts import Part, PartRows
from qacal.embedders import Embedder, embedder
from qacal.errors import BadRowsError, InputError, QacalWarning
from qacal.model.base import BaseModel
from qacal.model.fitting import Split
from qacal.model.pipeline import Progress, within_batch
from qacal.model.saved import load, load_model
from qacal.model.tallies import Counted, Ids, RowsOfFitError, count_by_model, count_column, count_rows
from qacal.records.columns import PROVENANCE
from qacal.records.files import reading_parquet, refuse
from qacal.records.provenance import SAMPLING
from qacal.records.reading import BadRows, Batch, Reading, Source, read
from qacal.records.table import Fault, FrameTable, Table
from qacal.records.tallying import TooManyCellsError, plain_tally
from qacal.tally.arrays import Bools, Hashes
from qacal.tally.ids import mix

if TYPE_CHECKING:
    import polars as pl

Kind: TypeAlias = Literal["embed", "apply", "tally", "sample"]
# No split uses this seed, so the sample is independent of the parts within it.
_SAMPLE = 2**44


@dataclass(frozen=True)
class Job:
    """What to do with every part.

    columns, percent, expressions, max_bad : how to read rows, as in :class:`Reading`.
    skips : bad rows are reported and skipped; else the first one stops its part.
    model, model_version : the files of a model by name, and its version.
    embedder : the name of an embedder.
    into : embed: the name of the column.
    prefix, threshold, allow_other_source : apply: as in `qacal apply`.
    groups, ids, resolution : tally: the column of groups, what to do about ids, and the grid of confidences.
    sample : the share of the questions that are in the sample; a tally leaves these out.
    needs : sample: what the fit needs of a row, as arguments of :func:`~qacal.records.reading.read`.
    """

    kind: Kind
    columns: Mapping[str, str] = field(default_factory=dict)
    percent: bool = False
    expressions: Mapping[str, float] = field(default_factory=dict)
    max_bad: float = 0.0
    skips: bool = False
    model: Mapping[str, bytes] | None = field(default=None, repr=False)
    model_version: str | None = None
    embedder: str | None = None
    into: str = "embedding"
    prefix: str = ""
    threshold: float | None = None
    allow_other_source: tuple[str, ...] = ()
    groups: str | None = None
    ids: Ids = "check"
    resolution: float | None = None
    sample: float | None = None
    needs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """The kind of job, and a digest of all that the output of a part depends on, beside its rows."""
        from qacal import __version__

        settings = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "model"}
        # Needs are written as text: the largest number of a column may be infinite.
        return f"{self.kind} {storage.digest({'qacal': __version__, **settings, 'needs': repr(self.needs)})}"


def model_files(path: str | Path) -> dict[str, Any]:
    """Return a saved model as arguments of :class:`Job`."""
    home = Path(path)
    files = {str(file.relative_to(home)): file.read_bytes() for file in sorted(home.rglob("*")) if file.is_file()}
    return {"model": files, "model_version": storage.version_of(path)}


def is_sampled(ids: Hashes, share: float) -> Bools:
    """Return which questions are in the sample."""
    return np.asarray(mix(ids, _SAMPLE) / 2.0**64 < share)


def embedded(
    rows: Source, reading: Reading, maker: Embedder, into: str, progress: Progress | None = None
) -> Iterator[Table]:
    """Yield rows in batches, with their vectors as a column."""
    import polars as pl

    done = 0
    for batch in read(rows, reading, needs_labels=False, needs_confidence=False, uses_ids=False):
        table = batch.table
        if into in table.names:
            raise InputError(
                f"{table.origin} already has a column {into!r}; pass another name with --into (in Python: into=)."
            )
        vectors = maker.embed(batch.question or [], batch.answer or [], within_batch("embedding", done, progress))
        done += len(table)
        column_type = pl.Array(pl.Float32, vectors.shape[1])
        yield table.extended(pl.DataFrame([pl.Series(into, vectors, dtype=column_type).arr.to_list()]))


class Worker:
    """Turns parts into outputs; the model is loaded once."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._model: BaseModel | None = None
        self._embedder, self._key = None, job.key
        if job.kind == "embed":
            self._embedder = embedder(job.embedder or "static")
            # The name stays if the files of an encoder are replaced.
            self._key = f"embed {storage.digest({'job': job.key, 'embedder': self._embedder.digest})}"
        if job.model is not None:
            with tempfile.TemporaryDirectory(prefix="qacal-") as folder:
                for name, content in job.model.items():
                    path = Path(folder) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                # A tally is by a single model; a set has groups and scores for each LLM.
                one = load_model if job.kind == "tally" else load
                self._model = one(folder, embedder=job.embedder)
            if job.threshold is not None:
                self._model.set_threshold(job.threshold)

    def run(self, part: Part, *, keeps: bool = False) -> dict[str, Any]:
        """Write the output of a part; return its counts, its bad rows and what to tell, or what is wrong with it.

        keeps : of a tally, return the cells instead.
        """
        faults = list[Fault]()
        try:
            if (noted := part.noted(self._key)) is not None and noted["result"] is not None:
                return {**noted["result"], "part": part.output, "is_old": True}
            bad = BadRows(faults.append)
            reading = self._reading(bad)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", QacalWarning)
                output = self._output(part, reading)
            notes = [str(one.message) for one in caught if issubclass(one.category, QacalWarning)]
            rows = [fault.as_row() for fault in faults]
            result = {"rows": part.rows, "bad": bad.count, "notes": notes, "faults": rows}
            if keeps and isinstance(output, Counted):
                return {**result, "part": part.output, "counted": output}
            frame, more = (output.to_frame(), output.metadata()) if isinstance(output, Counted) else (output, {})
            result["written"] = frame.height
            part.write(frame, self._key, result, more)
        except (InputError, OSError) as error:
            rows = [fault.as_row() for fault in faults]
            is_of_fit = isinstance(error, RowsOfFitError)
            return {"part": part.output, "error": str(error), "faults": rows, "is_of_fit": is_of_fit}
        return {**result, "part": part.output}

    def _reading(self, bad: BadRows) -> Reading:
        job = self.job
        reading = Reading(dict(job.columns), job.percent, expressions=dict(job.expressions))
        return replace(reading, on_fault=bad, max_bad=job.max_bad) if job.skips else reading

    def _output(self, part: Part, reading: Reading) -> pl.DataFrame | Counted:
        import polars as pl

        job = self.job
        if job.kind == "tally":
            return self.counted(part, reading)
        if job.kind == "sample":
            return self._sampled(part, reading)
        rows = PartRows(part)
        if job.kind == "embed":
            assert self._embedder is not None
            tables = embedded(rows, reading, self._embedder, job.into)
        else:
            assert self._model is not None
            tables = self._model._calibrated(
                rows, reading, allow_other_source=job.allow_other_source, prefix=job.prefix
            )
        return pl.concat([table.frame() for table in tables], how="diagonal_relaxed")

    def counted(self, rows: Part | FrameTable, reading: Reading, split: Split | None = None) -> Counted:
        """Count the labelled rows of a part, or of a table with rows of the fit and their split."""
        job, model = self.job, self._model
        if isinstance(rows, Part) and model is None and job.ids != "documents":
            try:
                if (counted := self._counted_by_polars(rows, reading)) is not None:
                    return counted
            except TooManyCellsError:
                raise
            except InputError:
                pass  # a bad row is told about below
        total = Counted.sum(self._counts(rows, reading, split))
        return total if total.tallies else Counted({}, job.model_version)

    def _counts(self, rows: Part | FrameTable, reading: Reading, split: Split | None) -> Iterator[Counted]:
        """Yield what is counted in each batch."""
        job, model = self.job, self._model
        needs: dict[str, Any] = {"needs_text": False, "hashes_ids": job.ids != "ignore"}
        if model is not None:
            needs |= {"hashes_ids": True, **model._needs}
        for batch in self._labelled(rows, reading, ("confidence", str(job.groups)), needs):
            if job.sample is not None and split is None and batch.ids is not None:
                batch = batch.only(~is_sampled(batch.ids, job.sample))
                if not len(batch):
                    continue
            if model is None:
                yield count_column(batch, str(job.groups), job.ids, job.resolution)
            else:
                (one,) = model._models.values()
                allowed = job.allow_other_source
                options: dict[str, Any] = {"split": split, "allow_other_source": allowed}
                yield count_by_model(one, str(job.model_version), batch, job.ids, **options)

    def _counted_by_polars(self, part: Part, reading: Reading) -> Counted | None:
        """Count rows by a column of groups; None if rows need a closer look."""
        job = self.job
        with reading_parquet(part.path):
            scan = part.scan()
            tally = plain_tally(scan, reading, [str(job.groups)], job.resolution, part.path)
            names = scan.collect_schema().names()
        if tally is None:
            return None
        rest = Counted({})
        if {*names} & {*self._identity(reading)}:
            kept = {
                name: column for name, column in reading.columns.items() if name not in ("confidence", "calibrated")
            }
            strict = replace(reading, columns=kept, on_fault=refuse)
            needs = {"needs_text": False, "needs_confidence": False, "hashes_ids": job.ids != "ignore"}
            batches = self._labelled(part, strict, (), needs)
            rest = Counted.sum(count_rows({}, batch, None, job.ids) for batch in batches)
        return replace(rest, tallies={"certify": replace(tally, is_sum=True)})

    def _identity(self, reading: Reading) -> list[str]:
        """Return the columns that tell where rows come from and, unless ids are ignored, which their questions are."""
        names = (*PROVENANCE, *SAMPLING, "agreement", *(() if self.job.ids == "ignore" else ("id", "question")))
        return [reading.name(name) for name in names]

    def _labelled(
        self, rows: Part | FrameTable, reading: Reading, columns: Sequence[str], needs: dict[str, Any]
    ) -> Iterator[Batch]:
        """Yield the labelled rows in batches.

        columns : without a model, only these are read, those of :meth:`_identity`, and those that have other names.
        """
        if not isinstance(rows, Part):
            yield from read(rows, reading, needs_labels=True, **needs)
            return
        source = PartRows(rows, reading.name("correct"))
        if source.is_unlabelled():
            return
        if self._model is None:  # numbers and groups fit into memory at once; texts and their vectors come in batches
            needed = [reading.name(name) for name in ("correct", *columns)] + [*reading.columns.values()]
            # If one is missing, all are read, so that the error can name those that there are.
            names = [*needed, *self._identity(reading)] if rows.has(needed) else None
            source = replace(source, columns=names, batch_rows=None)
        yield from read(source, reading, needs_labels=True, **needs)

    def _sampled(self, part: Part, reading: Reading) -> pl.DataFrame:
        """Return the rows of the sample, all of which the fit can use.

        If all rows are in the sample, nothing reads them later with their files, so bad ones are told here; else the
        tally tells about them.
        """
        import polars as pl

        share = float(self.job.sample or 0)
        rows = PartRows(part, reading.name("correct"))
        empty = replace(part, rows=0).read()
        if rows.is_unlabelled():
            return empty
        if share < 1:
            reading = replace(reading, on_fault=lambda fault: None, max_bad=1.0)
        try:
            frames = [empty]
            for batch in read(rows, reading, needs_labels=True, **{"needs_text": False, **self.job.needs}):
                if share >= 1:
                    frames.append(batch.table.frame())
                    continue
                if batch.ids is None:
                    raise InputError(f"{part.path}: rows need an id or a question, so that a sample can be drawn.")
                frames.append(batch.only(is_sampled(batch.ids, share)).table.frame())
        except BadRowsError:
            if share >= 1:
                raise
            return empty
        return pl.concat(frames)
