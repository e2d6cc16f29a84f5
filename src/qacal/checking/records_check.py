"""Everything about records at once, before any fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import Any

import numpy as np

from qacal.checking import findings
from qacal.checking.confidences import Scale, scale_of, scale_of_values
from qacal.checking.enough import Goal, goals
from qacal.checking.findings import GAP, Finding, column_options
from qacal.checking.gathering import Gathering
from qacal.checking.names import Columns, find_columns
from qacal.checking.others import UsefulColumn, useful_columns
from qacal.errors import EncodingError, InputError
from qacal.metrics.ranking import Auroc, auroc_of_counts
from qacal.model.answering import Progress, no_progress
from qacal.records.bad_rows import MAX_BAD, BadRows
from qacal.records.columns import expression_key, listed
from qacal.records.files import File, given_encoding, text_encoding
from qacal.records.reading import Reading, as_source
from qacal.records.table import Table
from qacal.tally.arrays import Bools, Floats, Hashes

# What text is read in that is not UTF-8: the encoding that spreadsheets write.
_ENCODING = "cp1252"


@dataclass(frozen=True)
class BadRowsOfAKind:
    """Rows that cannot be used for the same reason; `place` and `problem` are those of the first."""

    kind: str
    count: int
    place: str
    problem: str


@dataclass(frozen=True)
class RecordsCheck:
    """What is to be known of records before a fit. ``print`` it to read it.

    origin : what the records are called; the path of a file.
    rows : how many there are, bad ones among them.
    labelled : how many have a label.
    accuracy : the share of right answers among these; NaN if there are none.
    questions : how many different ones are asked; None if no column tells it.
    names : all columns. `columns` says which of them is which, under its name in qacal.
    candidates : for columns that a fit needs and that were not found, those that hold what they would.
    scale : on which scale confidences are.
    auroc : how well the confidence tells right answers from wrong ones; None if that cannot be measured.
    findings : what stops or misleads a fit, what stops it first.
    bad_rows : the kinds of rows that cannot be used, with the first of each kind.
    useful : further columns that a fit could use.
    fewest : of several LLMs that with the fewest labels, and how many it has; None for a single LLM.
    goals : what the labels are enough for, and how many the next thing takes.
    options : what `qacal fit` has to be told of these rows.
    encoding : what `qacal --encoding` has to be told, before the command; None for UTF-8.
    """

    origin: str
    is_file: bool
    rows: int
    labelled: int
    accuracy: float
    questions: int | None
    names: tuple[str, ...]
    columns: Mapping[str, str]
    candidates: Mapping[str, tuple[str, ...]]
    scale: Scale
    auroc: Auroc | None
    findings: tuple[Finding, ...]
    bad_rows: tuple[BadRowsOfAKind, ...]
    useful: tuple[UsefulColumn, ...]
    fewest: tuple[str, int] | None
    goals: tuple[Goal, ...]
    options: tuple[str, ...]
    encoding: str | None

    @property
    def is_fine(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON; what is not known is None."""
        plain: dict[str, Any] = _plain(asdict(self))
        return {"is_fine": self.is_fine, **plain}

    def __str__(self) -> str:
        from qacal.checking.words import described

        return described(self)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check(
    records: Any,
    *,
    columns: Mapping[str, str] | None = None,
    percent: bool = False,
    expressions: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> RecordsCheck:
    """Look at records before a fit: what stops it, what misleads it, what could be used, what they are enough for.

    It goes once through the rows, and also works on rows that a fit refuses. Columns with other names are guessed, and
    everything else is judged as if the guess were right. Of each row a few numbers are kept, and no text.

    Parameters
    ----------
    records : a path (Parquet, JSONL, CSV), a frame of pandas, polars or Arrow, a list of objects.
    columns : what columns are called, as far as it is known: ``{"confidence": "score"}``.
    percent : confidences are percents.
    expressions : what a confidence in words stands for: ``{"high": 0.85}``.
    progress : called now and then with what is being done, and for how many rows it is.

    Raises
    ------
    InputError : there is no such file, or what was given are no records.

    Examples
    --------
    >>> rows = [{"prompt": f"{i} + 2?", "model_answer": i + 2, "conf": 50 + i % 50, "is_correct": i % 50 > 20}
    ...         for i in range(500)]
    >>> found = check(rows)
    >>> [finding.kind for finding in found.findings]
    ['renamed_columns', 'percents']
    >>> found.columns["question"], found.auroc.value
    ('prompt', 1.0)
    """
    given = Reading(columns or {}, percent, expressions=expressions or {})
    source = as_source(records)
    found, encoding, has_utf8 = _checked(source, given, progress)
    if encoding is None or given_encoding.get() is not None:
        return found
    if not has_utf8:
        with text_encoding(_ENCODING):
            readable, _, _ = _checked(source, given, progress)
        if not any(finding.kind == "encoding" for finding in readable.findings):  # else it is not in this one either
            found = readable
            encoding = replace(encoding, problem=f"{encoding.problem} All that follows is read as {_ENCODING}.")
    return replace(found, findings=findings.in_order([encoding, *found.findings]))


def _checked(source: Any, given: Reading, progress: Progress | None) -> tuple[RecordsCheck, Finding | None, bool]:
    """Return what is to be known of records; whether rows are in another encoding; whether some are UTF-8."""
    bad = BadRows()
    tables = _Tables(source.batches(bad.add_unread))
    first = next(tables, None)
    seen = Gathering(Columns({}), 1.0, bad, {}) if first is None else _begun(first, given, bad)
    for table in tables:
        seen.add(table)
        (progress or no_progress)("checking", seen.rows)
    return _judged(seen, given, source, tables.fault), findings.on_encoding(seen), seen.has_utf8


def _begun(first: Table, given: Reading, bad: BadRows) -> Gathering:
    """Return a pass over the rows; the first ones tell which column is which, and the scale to read all rows by."""
    columns = find_columns(first, given.columns)
    own = columns.names.get("confidence")
    words = {expression_key(one): worth for one, worth in given.expressions.items()}
    values = [] if own is None else listed(first.column(own))
    scale = scale_of_values(
        [value for value in values if not isinstance(value, str) or expression_key(value) not in words]
    )
    most = 100.0 if given.percent or scale.kind == "mixed" else scale.most
    seen = Gathering(columns, most, bad, words)
    seen.add(first)
    return seen


class _Tables(Iterator[Table]):
    """Tables up to where the file cannot be read any further."""

    def __init__(self, tables: Iterator[Table]) -> None:
        self._tables = tables
        self.fault: InputError | None = None

    def __next__(self) -> Table:
        try:
            return next(self._tables)
        except InputError as error:
            self.fault = error
            raise StopIteration from None


def _judged(seen: Gathering, given: Reading, source: Any, fault: InputError | None) -> RecordsCheck:
    is_file = isinstance(source, File)
    stated, label = (np.empty(0) if not seen.rows else seen.column(name) for name in ("stated", "label"))
    scale = scale_of(stated[~np.isnan(stated)], seen.words, seen.commas)
    is_known, is_both = ~np.isnan(label), ~np.isnan(label) & ~np.isnan(stated)
    question = seen.column("id" if "id" in seen.columns.names else "question")
    asked = None if question is None else question[is_both]
    ranking = None if scale.kind in ("mixed", "unknown") else _ranking(stated[is_both], label[is_both], asked)
    is_rated, confidence = _rated(stated, is_known, scale)
    own = seen.columns.names.get("confidence", "confidence")
    by_llm = [(str(name), labelled) for name, labelled in seen.labelled_by_llm.most_common()]
    fewest = by_llm[-1] if len(by_llm) > 1 else None
    llm = None if fewest is None else seen.column("llm")[is_rated]
    said = (
        *_on_file(seen, fault),
        *findings.on_columns(seen, given.columns, is_file=is_file),
        *findings.on_scale(scale, own, given.percent),
        *findings.on_outputs(seen),
        *findings.on_origins(seen),
        *findings.on_rows(seen, scale),
        *(findings.on_labels(label) if "correct" in seen.columns.names else ()),
        *findings.on_doubts(
            confidence, label[is_rated], None if question is None else question[is_rated], llm, seen.llms
        ),
    )
    return RecordsCheck(
        origin=source.name if is_file else "records",
        is_file=is_file,
        rows=seen.bad.rows,
        labelled=int(is_known.sum()),
        accuracy=float(label[is_known].mean()) if is_known.any() else math.nan,
        questions=_questions(seen),
        names=tuple(seen.names),
        columns=dict(seen.columns.names),
        candidates=dict(seen.columns.candidates),
        scale=scale,
        auroc=ranking,
        findings=findings.in_order(said),
        bad_rows=tuple(
            BadRowsOfAKind(reason.kind, reason.count, reason.example.place, reason.example.problem)
            for reason in seen.bad.reasons
        ),
        useful=tuple(useful_columns(list(seen.others.values()))),
        fewest=fewest,
        goals=_goals(fewest, int(is_known.sum()), confidence, label[is_rated]),
        options=tuple(_options(seen, given, scale, said)),
        encoding=given_encoding.get(),
    )


def _on_file(seen: Gathering, fault: InputError | None) -> Iterator[Finding]:
    if fault is not None:
        rows = f" {seen.rows:,} rows were read before." if seen.rows else ""
        is_encoding = isinstance(fault, EncodingError)
        remedy = "Give the encoding, or save the file as UTF-8." if is_encoding else "Mend it, or export it again."
        kind = "encoding" if is_encoding else "unreadable"
        yield Finding(kind, True, f"It cannot be read: {fault}{rows}", remedy)
    elif not seen.bad.rows:
        yield Finding("empty", True, "There is no row in it.", "Check that this is the file you mean.")


def _ranking(stated: Floats, label: Floats, question: Hashes | None) -> Auroc | None:
    """Return the AUROC of labelled rows; rows of one question count as one."""
    values, which = np.unique(stated, return_inverse=True)
    if len(values) < 2 or len(np.unique(label)) < 2:
        return None
    right, rows = np.zeros(len(values)), np.zeros(len(values))
    np.add.at(right, which, label)
    np.add.at(rows, which, 1.0)
    share = 1.0 if question is None else len(np.unique(question)) / len(question)
    return auroc_of_counts(share * right, share * (rows - right))


def _questions(seen: Gathering) -> int | None:
    names = ("id", "named") if "id" in seen.columns.names else ("question", "asked")
    key, is_there = (seen.column(name) for name in names)
    return None if key is None else len(np.unique(key[is_there]))


def _rated(stated: Floats, is_known: Bools, scale: Scale) -> tuple[Bools, Floats]:
    """Return which labelled rows have a confidence on the scale, and these as numbers from 0 to 1."""
    unit = np.exp(stated) if scale.kind == "logarithms" else stated / scale.most
    is_scaled = scale.kind in ("0-1", "percent", "grades", "logarithms")
    rated = is_known & (unit >= 0) & (unit <= 1) & is_scaled
    return rated, unit[rated]


def _goals(fewest: tuple[str, int] | None, labelled: int, confidence: Floats, label: Floats) -> tuple[Goal, ...]:
    is_one = len(label) > 0 and (label == label[0]).all()
    return () if not labelled or is_one else goals(labelled if fewest is None else fewest[1], confidence, label)


def _options(seen: Gathering, given: Reading, scale: Scale, said: Sequence[Finding]) -> Iterator[str]:
    yield from column_options(seen.columns.mapping | dict.fromkeys(seen.columns.candidates, GAP))
    kinds = {finding.kind for finding in said}
    if given.percent or "percents" in kinds:
        yield "--percent"
    yield from (f"--expression {quote(f'{words}={worth:g}')}" for words, worth in given.expressions.items())
    if "words" in kinds:
        yield from (f"--expression {quote(f'{word}={GAP}')}" for word in scale.words)
    if "several_models" in kinds:
        yield "--by model"
    bad = sum(reason.count for reason in findings.unexplained(seen, scale))
    bad += seen.unlabelled(in_words=scale.kind == "words")
    if 0 < bad <= MAX_BAD * seen.bad.rows:
        yield "--skip-bad-rows bad.jsonl"
