"""Labelled rows, read once: a few numbers of each are kept, and some texts of every group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qacal.calibrators.bin_maps import BinMaps
from qacal.errors import InputError
from qacal.metrics.evaluation import require_labels
from qacal.model.answering import Answering, Progress
from qacal.model.groups import Sampler
from qacal.model.model import QACalibrator
from qacal.model.model_set import mask, rows_by
from qacal.records.provenance import AllowOtherSource, require_known_origin
from qacal.records.reading import Batch, Reading, read
from qacal.records.reading import Gathered as Columns
from qacal.report.inputs import Scored
from qacal.tally.arrays import Floats, Hashes, Ints
from qacal.tally.ids import mix


@dataclass
class Gathered:
    """What has been read so far for one model.

    grouped_by : the column whose values are the groups; the model's own groups by default.
    is_part : these are some of the model's rows, picked by a column.
    """

    model: QACalibrator
    grouped_by: str | None = None
    is_part: bool = False
    origins: dict[str, None] = field(default_factory=dict)
    labels: dict[Any, int] = field(default_factory=dict)
    sampler: Sampler = field(default_factory=Sampler)
    has_texts: bool = False
    sources: dict[str, int] = field(default_factory=dict)
    hashes: list[Hashes | None] = field(default_factory=list)
    _columns: Columns = field(default_factory=Columns)

    def add(self, batch: Batch) -> None:
        """Take more rows."""
        calibrator = self.model.calibrator_
        maps = calibrator.fitted_maps()
        rows = self.model.pipeline_.rows(batch)
        evidence = maps.explain(rows)
        names = batch.listed(self.grouped_by) if self.grouped_by else evidence.group
        correct = require_labels(batch.correct, batch.table.origin)
        self.origins[batch.table.origin] = None
        self.hashes.append(batch.row_hashes())
        self._columns.add(
            stated=batch.confidence,
            pooled=self.model.pipeline_.pooled(batch),
            calibrated=evidence.calibrated,
            correct=correct,
            groups=self._codes(names),
            ids=batch.ids,
            questions=None if batch.ids is None else batch.question_hashes(),
        )
        self._count_sources(evidence.source)
        if isinstance(maps, BinMaps):
            self._columns.add(bins=maps.bins_of(rows), levels=maps.bins_by_level(rows))
        self._sample(batch, names, correct, evidence.calibrated)

    def _codes(self, names: list[Any]) -> Ints:
        plain = [str(name) if isinstance(name, list | dict) else name for name in names]
        codes = (-1 if name is None else self.labels.setdefault(name, len(self.labels)) for name in plain)
        return np.fromiter(codes, dtype=np.int64, count=len(names))

    def _count_sources(self, source: Any) -> None:
        for name, count in zip(*np.unique(source, return_counts=True), strict=True):
            self.sources[str(name)] = self.sources.get(str(name), 0) + int(count)

    def _sample(self, batch: Batch, names: list[Any], correct: Floats, calibrated: Floats) -> None:
        if batch.question is None or batch.answer is None:
            return
        self.has_texts = True
        ids = np.zeros(len(batch), dtype=np.uint64) if batch.ids is None else batch.ids
        keys = [None if name is None else self.labels.get(name, str(name)) for name in names]
        texts = (batch.question, batch.answer)
        self.sampler.add(keys, mix(ids, 1), *texts, batch.confidence, correct, calibrated)

    def column(self, name: str) -> Any:
        """Return a column of all rows, None if there is none."""
        return self._columns.get(name)

    def scored(self) -> Scored:
        """Return the rows with their scores: the pooled one where it is another than the calibrated one."""
        has_groups = self.model.calibrator_.properties.uses_groups or self.model.score_ is not None
        names = ("stated", "pooled", "calibrated") if has_groups else _TWO
        codes: Ints = self.column("groups")
        ids: Hashes | None = self.column("ids")
        scores = {name: self.column(name) for name in names}
        return Scored(self.column("correct"), scores, codes if self.labels else None, ids)

    @property
    def is_familiar(self) -> bool:
        """Whether the model was fitted on some of these questions, as far as it remembers."""
        names = [column for column in (self.column("ids"), self.column("questions")) if column is not None]
        return bool(names) and bool(self.model.fit_record_.known(np.concatenate(names)))

    @property
    def has_ids(self) -> bool:
        """Whether these rows and the model have what tells questions again; if not, any of them may be familiar."""
        return "ids" in self._columns and len(self.model.fit_record_.questions) > 0

    @property
    def is_uneven(self) -> bool:
        """Whether some questions have more rows than others, so that a mean over rows is none over questions."""
        ids = self.column("ids")
        return ids is not None and len(set(np.unique(ids, return_counts=True)[1].tolist())) > 1

    @property
    def has_one_map(self) -> bool:
        """Whether one map answers for all rows, because there are no groups to tell apart."""
        return set(self.sources) == {"root"} and len(self.model.describe_groups()) <= 1


_TWO = ("stated", "calibrated")


def gather(
    model: Answering,
    records: Any,
    how: Reading | None = None,
    *,
    groups: str | None = None,
    by: str | None = None,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> dict[str, Gathered]:
    """Read labelled records through a model, apart for each model of a set, or for each value of a column `by`."""
    if model.by is not None and by not in (None, model.by):
        raise InputError(f"there is one model for each {model.by}, so that is what the report is by, not {by}.")
    out: dict[str, Gathered] = {}
    done, is_part = 0, by is not None and model.by is None
    for batch in read(records, how or model.reading(records), needs_labels=True, **model.needs):
        for value, one, rows in model.parts(batch):
            for name, mine in _by_value(rows, by) if is_part else [("" if value is None else str(value), rows)]:
                require_known_origin(mine, one.origins_, allow_other_source, uses_labels=True)
                with one.pipeline_.vectors.telling(progress):
                    out.setdefault(name, Gathered(one, groups, is_part)).add(mine)
        done += len(batch)
        if progress is not None:
            progress("calibrating", done)
    return dict(sorted(out.items()))


def _by_value(batch: Batch, by: str | None) -> Iterator[tuple[str, Batch]]:
    for value, rows in rows_by(batch.listed(str(by))).items():
        if value is None:
            raise InputError(f"{batch.table.origin}: {by} is missing in some rows; it is the column that --by names.")
        yield str(value), batch.only(mask(rows, len(batch)))
