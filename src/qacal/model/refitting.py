r"""Fit a model again with labels of answers that it served: a random sample of them certifies.

Labels come in two ways. An *audit* draws answers at random, answer :math:`i` with a known probability :math:`\pi_i`
that may depend on everything but the label. *Volunteered* labels come from people who chose to give them, often because
an answer was wrong: nobody knows with which probability, so no weight repairs them.

*What is certified*: the intervals of the new model, for the answers that were drawn from (all answers of the model
since some time). A :class:`~qacal.model.fitting.Audit` is the random sample. Everything else (the records of the first
fit, volunteered labels, and what is left of audits) fixes bands and groups, and trains the score; so does a part of the
sample if there are few others. Given these rows, bands and groups are fixed functions of an answer, whatever the rows
are and however they were chosen. The rest of the sample is independent of them, so the proof of docs/guarantees.md
holds word for word. Rows whose question is in the sample are left out of the others.

*Unequal probabilities.* Weights :math:`1/\pi_i` make a mean unbiased, but Clopper-Pearson does not hold for a weighted
mean, and :func:`~qacal.guarantee.weighted_interval` covers the mean probability of these rows, not that of all answers.
So the sample is thinned: answer :math:`i` stays with probability :math:`\min_j \pi_j / \pi_i`, by a hash of its random
id. Then each answer has been chosen with the probability :math:`\min_j \pi_j`, independently of its label, and the
binomial intervals are exact again. It costs rows: of :math:`n` rows,
:math:`\sum_i \min_j \pi_j / \pi_i` stay on average, and the others train. Draws of equal probability lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.model.fitting import Audit, FitInputs
from qacal.model.model import QACalibrator
from qacal.model.pipeline import Progress
from qacal.records.columns import PROVENANCE
from qacal.records.files import OnFault, refuse
from qacal.records.reading import Reading, as_source, read
from qacal.records.table import Table, as_table
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.tally.ids import distinct, id_hashes, mix

# No split uses this seed. It is also that of `model/watching.py`, which thins rows in the same way.
_SEED = 2**46


@dataclass(frozen=True)
class LabelledAnswer:
    """A served answer with its label.

    key : its id, a random text.
    record : question, answer, confidence (0 to 1), correct, and the other columns that the model reads.
    probability : with which an audit drew it; None if the label was volunteered.
    is_drawn : whether the store drew it; all answers of one of its draws have the same chance.
    """

    key: str
    record: Mapping[str, Any]
    probability: float | None = None
    is_drawn: bool = False


@dataclass(frozen=True)
class Refit:
    """A model that was fitted again, and the labelled rows behind it.

    audited : labels of audits.
    sample : of these, the ones with equal chances; only they may certify.
    probability : the chance that each answer had to be in the sample.
    volunteered : volunteered labels.
    earlier : rows of the records that were given.
    repeated : volunteered labels, earlier rows and others that were left out, since their question is in the sample.
    """

    model: QACalibrator
    audited: int
    sample: int
    probability: float
    volunteered: int
    earlier: int
    repeated: int


def refit(
    model: QACalibrator,
    answers: Sequence[LabelledAnswer],
    records: Any = None,
    *,
    allow_mixed: bool = False,
    progress: Progress | None = None,
) -> Refit:
    """Fit a model with the settings of `model` to labelled answers that were served.

    records : labelled rows that train, too: those of the first fit, in the form that it read.
    allow_mixed : accept answers of several LLMs or prompts.
    """
    audited = [one for one in answers if one.probability is not None]
    if not audited:
        raise InputError(
            "no answer has a label of an audit, and volunteered labels cannot certify: nobody knows how they were "
            "chosen. Draw answers at random (qacal label-next --store), and label all of them."
        )
    chance = np.array([one.probability for one in audited], dtype=np.float64)
    keep = thinned([one.key for one in audited], chance)
    sample = [one.record for one, stays in zip(audited, keep.tolist(), strict=True) if stays]
    others = [one.record for one in answers if one.probability is None]
    volunteered = len(others)
    others += [one.record for one, stays in zip(audited, keep.tolist(), strict=True) if not stays]
    rows = _Rows.of(model, sample, others, records)
    origins = [values for name, values in model.origins_.items() if name in PROVENANCE]
    is_mixed = allow_mixed or any(len(values) > 1 for values in origins)
    inputs = FitInputs(rows, rows.reading, allow_mixed=is_mixed, audit=rows.audit)
    fitted = QACalibrator(**model.get_params(deep=False))._fit_inputs(inputs, progress)
    # Served records need not say by which LLM and prompt they are; a judge is about labels, and these are new.
    fitted.origins_ |= {
        name: values for name, values in model.origins_.items() if name not in ("judge", *fitted.origins_)
    }
    return Refit(
        fitted, len(audited), len(sample), float(chance.min()), volunteered, rows.earlier, repeated=rows.repeated
    )


def thinned(keys: Sequence[str], chance: Floats) -> Bools:
    """Return which of some rows stay, so that all had the same chance: the smallest of theirs.

    keys : random texts, which decide.

    >>> thinned(["a", "b", "c"], np.array([0.25, 0.25, 0.25]))
    array([ True,  True,  True])
    """
    place = mix(id_hashes(keys, len(keys)), _SEED) / 2.0**64
    return np.asarray(place * chance < chance.min())


@dataclass(frozen=True, eq=False)
class _Rows:
    """All labelled rows of a refit, as a source that is read several times.

    earlier : how many rows of the records there are.
    repeated : how many rows were left out, since their question is in the sample.
    """

    tables: tuple[Table, ...]
    reading: Reading
    audit: Audit
    earlier: int
    repeated: int

    def batches(self, on_fault: OnFault = refuse) -> Iterator[Table]:
        yield from self.tables

    @staticmethod
    def of(model: QACalibrator, sample: list[Any], others: list[Any], records: Any) -> _Rows:
        given: list[Table] = [] if records is None else list(as_source(records).batches())
        reading = Reading() if records is None else model._reading(records)
        has_ids = (
            any(reading.name("id") in table.names for table in given)
            if given
            else all(record.get("id") is not None for record in (*sample, *others))
        )
        drawn, served = (
            [as_table([_named(record, reading, has_ids=has_ids) for record in rows], name)] if rows else []
            for rows, name in ((sample, "labels of audits"), (others, "other labels"))
        )
        (batch,) = read(drawn[0], reading, needs_labels=True, needs_text=False, warns=False)
        if batch.ids is None:
            raise InputError("the served answers need a question or an id, so that those of one question are known.")
        own, texts = distinct(batch.ids), distinct(batch.question_hashes())
        kept, counts = [], []
        for table in (*given, *served):
            is_shared, rows = _shared(table, reading, own, texts)
            kept.append(table.only(~is_shared))
            counts.append(rows)
        tables = tuple(table for table in kept if len(table))
        before = sum(map(len, (*given, *served)))
        return _Rows(
            (*tables, *drawn),
            reading,
            Audit(own, len(batch), sum(counts)),
            earlier=sum(counts[: len(given)]),
            repeated=before - sum(map(len, tables)),
        )


def _named(record: Mapping[str, Any], reading: Reading, *, has_ids: bool) -> dict[str, Any]:
    """Return a served record with the names and the scale that other rows have; all rows have ids, or none has."""
    out = {name: value for name, value in record.items() if name != "id" and name not in reading.columns.values()}
    out = {reading.name(name): value for name, value in out.items()}
    if reading.percent:
        out[reading.name("confidence")] = 100 * record["confidence"]
    if has_ids:
        id_ = record.get("id")
        out[reading.name("id")] = str(record.get("question")) if id_ is None else id_
    return out


def _shared(table: Table, reading: Reading, ids: Hashes, texts: Hashes) -> tuple[Bools, int]:
    """Return which rows have a question of the sample, by its id or its text, and how many labelled rows do not."""
    is_shared, count = np.zeros(len(table), dtype=bool), 0
    tolerant = replace(reading, on_fault=lambda fault: None, max_bad=1.0)
    if len(table):
        for batch in read(table, tolerant, needs_labels=True, needs_text=False, warns=False, keeps_bad=True):
            if batch.ids is None:
                raise InputError(f"{table.origin}: rows need a question or an id, to be kept apart from the sample.")
            asked = batch.question_hashes()
            mine = np.isin(batch.ids, ids) | (np.isin(asked, texts) & (asked != 0))
            is_shared[batch.kept[mine]] = True
            count = int(np.count_nonzero(~mine))
    return is_shared, count
