"""Check records before a fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any

import numpy as np

from qacal.checking import findings
from qacal.checking.confidences import Scale, scale_of, scale_of_values
from qacal.checking.findings import GAP, Finding, column_options
from qacal.checking.names import Columns, find_columns
from qacal.checking.others import UsefulColumn
from qacal.checking.summary import Summary
from qacal.errors import EncodingError, InputError
from qacal.metrics.scores import Auroc, auroc_of_counts
from qacal.model.defaults import CERTIFYING, DEPTH_WITH_SCORE
from qacal.model.pipeline import Progress, no_progress
from qacal.planning import plan_margins, rounded_up, rows_for_margins
from qacal.records.columns import expression_key, listed
from qacal.records.files import File
from qacal.records.reading import BadRows, Reading, as_source
from qacal.records.table import Table
from qacal.records.text_files import current_options
from qacal.records.writers import finite, free_name
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.thresholds.curve import threshold_curve
from qacal.thresholds.fit_record import CANDIDATES
from qacal.thresholds.outlook import rows_needed

# Measured on five LLMs.
_TEXT_HELPS = ((300, "half of the fits"), (1_000, "nearly all fits"))
# `qacal split` holds out this share of the questions, to choose a threshold on.
_HELD_OUT = 0.3
_TARGETS = (0.9, 0.95, 0.99)
_ALPHA = 0.1
# An interval of this width says something about an accuracy.
_WIDTH = 0.1


@dataclass(frozen=True)
class BadRowsOfAKind:
    """Bad rows with the same reason; `place` and `problem` are of the first row."""

    kind: str
    count: int
    place: str
    problem: str


@dataclass(frozen=True)
class Goal:
    """A use of labelled rows.

    kind : "text", "intervals", "groups" or "threshold", for programs.
    labels : the number of labels that it needs; None if no number is enough with the stated confidence.
    more : the number of labels that are still missing.
    """

    kind: str
    what: str
    labels: int | None
    more: int | None

    @property
    def is_met(self) -> bool:
        return self.more == 0


@dataclass(frozen=True)
class RecordsCheck:
    """What to know about records before a fit. ``print`` it to read it.

    origin : the path of a file, or "records".
    is_read : whether the file could be read to its end; if not, a finding says why.
    rows : the number of rows, including bad ones; `labelled` of them are usable and have a label.
    accuracy : the share of correct answers among the labelled rows; NaN without labels.
    questions : the number of different questions; None without a column for them.
    names : all columns. `columns` has the standard columns with their names here.
    auroc : how well the confidence separates correct from wrong answers; None if that cannot be measured.
    findings : those that stop a fit come first.
    bad_rows : the kinds of bad rows, with the first example of each.
    useful : further columns that a fit could use.
    fewest : the LLM with the fewest labels, and their number; None for a single LLM.
    goals : what the labels are enough for, and how many the next goal needs.
    options : the options that `qacal fit` needs for these rows.
    encoding : the value of `qacal --encoding`, before the command; None for UTF-8.
    """

    origin: str
    is_file: bool
    is_read: bool
    rows: int
    labelled: int
    accuracy: float
    questions: int | None
    names: tuple[str, ...]
    columns: Mapping[str, str]
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
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; NaN becomes None."""
        return {"is_fine": self.is_fine, **finite(asdict(self))}

    def __str__(self) -> str:
        from qacal.checking.words import described, for_python

        return described(self, for_python)


def check(
    records: Any,
    *,
    columns: Mapping[str, str] | None = None,
    percent: bool = False,
    expressions: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> RecordsCheck:
    """Check records before a fit: problems, further columns that it could use, and what the labels are enough for.

    It reads the rows once, and also works on rows that a fit refuses. It guesses columns with other names, and checks
    everything else as if the guess were right. It keeps a few numbers of each row in memory, but no text.

    Parameters
    ----------
    records : a path (Parquet, JSONL, CSV), a frame of pandas, polars or Arrow, a list of objects.
    columns : the names of columns that differ from the standard names: ``{"confidence": "score"}``.
    percent : confidences are percents.
    expressions : the numbers of words in the column of confidences: ``{"high": 0.85}``.
    progress : called now and then with the current step and the number of rows so far.

    Raises
    ------
    InputError : there is no such file, or the input is not records.

    Examples
    --------
    >>> rows = [{"prompt": f"{i} + 2?", "model_answer": i + 2, "conf": 50 + i % 50, "is_correct": i % 50 > 20}
    ...         for i in range(500)]
    >>> checked = check(rows)
    >>> [finding.kind for finding in checked.findings]
    ['renamed_columns', 'percents']
    >>> checked.columns["question"], checked.auroc.value
    ('prompt', 1.0)
    """
    reading = Reading(columns or {}, percent, expressions=expressions or {})
    source = as_source(records)
    bad = BadRows()
    tables = source.batches(bad.add_unread)  # raises if there is no such file
    summary: Summary | None = None
    fault: InputError | None = None
    try:
        for table in tables:
            summary = summary or _begun(table, reading, bad)
            summary.add(table)
            (progress or no_progress)("checking", summary.rows)
    except InputError as error:  # the rows up to here are checked
        fault = error
    return _judged(summary or Summary(Columns({}), 1.0, bad, {}), reading, source, fault)


def _begun(first: Table, reading: Reading, bad: BadRows) -> Summary:
    """Return an empty summary; the first rows determine the columns and the scale for all rows."""
    columns = find_columns(first, reading.columns)
    name = columns.names.get("confidence")
    words = {expression_key(expression): number for expression, number in reading.expressions.items()}
    values = [] if name is None else listed(first.column(name))
    scale = scale_of_values(
        [value for value in values if not isinstance(value, str) or expression_key(value) not in words]
    )
    most = 100.0 if reading.percent or scale.kind == "mixed" else scale.most
    return Summary(columns, most, bad, words)


def _judged(summary: Summary, reading: Reading, source: Any, fault: InputError | None) -> RecordsCheck:
    is_file, names = isinstance(source, File), summary.columns.names
    stated, label = summary.column("stated"), summary.column("label")
    scale = scale_of(stated[~np.isnan(stated)], summary.words)
    is_usable = findings.are_usable(summary, scale)
    is_known = ~np.isnan(label) & is_usable
    key, is_asked = (summary.column(name) for name in (("id", "named") if "id" in names else ("question", "asked")))
    is_rated, confidence = _rated(stated, is_known, scale)
    question = None if key is None else key[is_rated]
    fewest = _fewest(summary, is_known)
    llm = None if fewest is None else summary.column("llm")[is_rated]
    labelled, rated = int(is_known.sum()), label[is_rated]
    issues = (
        *_on_file(summary, fault),
        *findings.on_encoding(summary),
        *findings.on_columns(summary, reading.columns),
        *findings.on_scale(scale, names.get("confidence", "confidence"), reading.percent),
        *findings.on_origins(summary),
        *findings.on_rows(summary, scale, is_usable),
        *findings.on_labels(summary, label[is_known]),
        *findings.on_doubts(confidence, rated, question, llm, summary.llms),
    )
    # The rows of one question, and of one LLM, are one document.
    keys = [one[is_known] for one in (key, None if fewest is None else summary.column("llm")) if one is not None]
    documents = 1.0 if key is None else np.unique(np.stack(keys), axis=1).shape[1] / max(labelled, 1)
    has_goals = labelled and not (len(rated) and (rated == rated[0]).all())
    return RecordsCheck(
        origin=source.name if is_file else "records",
        is_file=is_file,
        is_read=fault is None,
        rows=summary.bad.rows,
        labelled=labelled,
        accuracy=float(label[is_known].mean()) if labelled else math.nan,
        questions=None if key is None else len(np.unique(key[is_asked])),
        names=tuple(summary.names),
        columns=dict(names),
        scale=scale,
        auroc=_auroc(confidence, rated, question),
        findings=tuple(sorted(issues, key=lambda finding: not finding.stops)),
        bad_rows=tuple(
            BadRowsOfAKind(reason.kind, reason.count, reason.example.place, reason.example.problem)
            for reason in summary.bad.reasons
        ),
        useful=tuple(filter(None, (column.use(len(summary.others)) for column in summary.others.values()))),
        fewest=fewest,
        goals=_goals(labelled if fewest is None else fewest[1], documents, confidence, rated) if has_goals else (),
        options=tuple(_options(summary, reading, scale, issues)),
        encoding=current_options().encoding,
    )


def _on_file(summary: Summary, fault: InputError | None) -> Iterator[Finding]:
    if fault is not None:
        rows = f" {summary.rows:,} rows were read before." if summary.rows else ""
        is_encoding = isinstance(fault, EncodingError)
        remedy = "Give the encoding, or save the file as UTF-8." if is_encoding else "Fix it, or export it again."
        kind = "encoding" if is_encoding else "unreadable"
        yield Finding(kind, True, f"It cannot be read: {fault}{rows}", remedy)
    elif not summary.bad.rows:
        yield Finding("empty", True, "There are no rows.", "Check that this is the right file.")


def _fewest(summary: Summary, is_known: Bools) -> tuple[str, int] | None:
    """Return the LLM with the fewest labels, and their number; None for a single LLM."""
    if "model" not in summary.columns.names or not is_known.any():
        return None
    hashes, counts = np.unique(summary.column("llm")[is_known], return_counts=True)
    least = int(np.argmin(counts))
    return (summary.llms[int(hashes[least])], int(counts[least])) if len(hashes) > 1 else None


def _auroc(confidence: Floats, label: Floats, question: Hashes | None) -> Auroc | None:
    """Return the AUROC of labelled rows; rows of one question count as one."""
    values, which = np.unique(confidence, return_inverse=True)
    if len(values) < 2 or len(np.unique(label)) < 2:
        return None
    right, wrong = (np.bincount(which, weights=share).astype(np.float64) for share in (label, 1 - label))
    share = 1.0 if question is None else len(np.unique(question)) / len(question)
    return auroc_of_counts(share * right, share * wrong)


def _rated(stated: Floats, is_known: Bools, scale: Scale) -> tuple[Bools, Floats]:
    """Return which labelled rows have a confidence on the scale, and these confidences from 0 to 1."""
    unit = np.exp(stated) if scale.kind == "logarithms" else stated / scale.most
    is_scaled = scale.kind in ("0-1", "percent", "grades", "logarithms")
    is_rated = is_known & (unit >= 0) & (unit <= 1) & is_scaled
    return is_rated, unit[is_rated]


def _goals(labelled: int, documents: float, confidence: Floats, correct: Floats) -> tuple[Goal, ...]:
    """Return what this number of labelled rows is enough for, and the next steps, in the order of labels needed.

    documents : the number of different ids or questions for each row.
    confidence, correct : of all labelled rows, with confidences from 0 to 1; empty if the scale is unknown.
    """

    def goal(kind: str, what: str, labels: int | None) -> Goal:
        return Goal(kind, what, labels, None if labels is None else max(0, labels - labelled))

    texts = [goal("text", f"probabilities that use the text, in {often}", labels) for labels, often in _TEXT_HELPS]
    # The last step with enough labels, and the first without.
    steps = [step for step in texts if step.is_met][-1:] + [step for step in texts if not step.is_met][:1]
    accuracy = float(correct.mean()) if len(correct) else 0.0
    steps += [goal(*step) for step in _intervals(labelled, CERTIFYING * documents, accuracy or 0.5)]
    target = next((target for target in _TARGETS if 0 < accuracy < target), None)
    if target is not None:
        needed = rows_needed(threshold_curve(correct, confidence, thresholds=CANDIDATES, alpha=_ALPHA), target)
        if not math.isnan(needed):
            what = f"a certified threshold on the stated confidence with {target:.0%} accuracy above it"
            steps.append(goal("threshold", what, None if math.isinf(needed) else rounded_up(needed / _HELD_OUT)))
    return tuple(sorted(steps, key=lambda step: (step.labels is None, step.labels or 0)))


def _intervals(labelled: int, share: float, accuracy: float) -> Iterator[tuple[str, str, int]]:
    """Yield the kind of goal, the intervals that labels give, and the number of labels: now, and for many groups.

    share : the number of documents that certify, for each labelled row.
    """
    plan = plan_margins(max(1, round(share * labelled)), accuracy=accuracy, alpha=_ALPHA)
    if plan.band_width <= _WIDTH:
        what = f"intervals of ±{plan.band_width:.2f} by probability"
        if plan.group_width is not None:
            what += f", and of ±{plan.group_width:.2f} by group in {plan.groups} groups of texts, if equally large"
        yield "intervals", what, labelled
    else:
        rows = rows_for_margins(_WIDTH, accuracy=accuracy, alpha=_ALPHA)
        yield "intervals", f"intervals of ±{_WIDTH:g} by probability", rounded_up(rows / share)
    groups = 2**DEPTH_WITH_SCORE
    rows = rows_for_margins(_WIDTH, groups=groups, accuracy=accuracy, alpha=_ALPHA)
    what = f"intervals of ±{_WIDTH:g} for each of {groups} groups of texts, if equally large"
    yield "groups", what, rounded_up(rows / share)


def _options(summary: Summary, reading: Reading, scale: Scale, issues: Sequence[Finding]) -> Iterator[str]:
    kinds = {finding.kind for finding in issues}
    yield from column_options(summary.columns.mapping)
    if reading.percent or "percents" in kinds:
        yield "--percent"
    yield from (f"--expression {quote(f'{words}={number:g}')}" for words, number in reading.expressions.items())
    if "words" in kinds:
        yield from (f"--expression {quote(f'{word}={GAP}')}" for word in scale.words)
    if "several_models" in kinds:
        yield "--by model"
    bad, unlabelled = (sum(one.count or 0 for one in issues if one.kind == kind) for kind in ("bad_rows", "unlabelled"))
    if 0 < bad < summary.bad.rows - unlabelled:
        yield f"--skip-bad-rows {free_name('bad.jsonl')}"
        yield from filter(None, [findings.max_bad_option(bad, summary.bad.rows - unlabelled)])
