"""Findings about records: each has a problem and a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from shlex import quote

import numpy as np

from qacal.checking.confidences import Scale
from qacal.checking.summary import Summary
from qacal.errors import counted, some_of
from qacal.metrics.scores import doubt_of
from qacal.records.columns import EXPECTED_LABELS, PROVENANCE, expression_option
from qacal.records.provenance import COPIED, REMOVE_COPIES, is_provenance
from qacal.records.reading import LABEL_SOME, MAX_BAD, Reason
from qacal.records.text_files import NOT_UTF8, current_options, encoding_problem
from qacal.records.writers import free_name
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.tally.ids import combined, surplus

# A model learns little from fewer correct or wrong answers than this.
_FEW_OF_A_KIND = 20
FEWEST_LABELS = 20
"""With fewer labelled rows, a part of a split may be empty."""

GAP = "?"
"""Stands in an option for a value that the user must fill in."""

_NOT_UTF8 = "not UTF-8"
_MEANS = {"confidence": " (stated by the LLM)", "correct": " (the label: 1 for correct, 0 for wrong)"}


@dataclass(frozen=True)
class Finding:
    """A problem with the rows that stops a fit or makes its results less reliable.

    kind : a name for programs: "bad_rows", "duplicate_rows", "opposite_confidences", ...
    stops : whether a fit refuses the rows; if not, its results are less reliable.
    count : the number of rows concerned; None if all, or if it is not about rows.
    """

    kind: str
    stops: bool
    problem: str
    remedy: str
    count: int | None = None


# Columns


def on_columns(summary: Summary, stated: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings on columns that are missing or have other names."""
    names, columns = list(summary.names), summary.columns
    if not names:
        return
    for column, name in stated.items():
        if name not in names:
            option = f"--column {column}={name} (in Python: {column!r} in columns)"
            remedy = f"Leave out {option}, or name one of: {some_of(names, 12)}."
            yield Finding("missing_columns", True, f"There is no column {name!r} for the {column}.", remedy)
    if columns.guessed:
        mapping = {name: columns.names[name] for name in columns.guessed}
        guesses = ", ".join(f"{column} seems to be {name!r}" for column, name in mapping.items())
        remedy = f"If so, pass {' '.join(column_options(mapping))} (in Python: columns={mapping})."
        yield Finding("renamed_columns", True, f"Columns with other names: {guesses}.", remedy)
    missing = [column for column in columns.missing if column not in stated]
    if missing:
        what = ", ".join(f"{column!r}{_MEANS.get(column, '')}" for column in missing)
        option = f"--column {missing[0]}=NAME (in Python: columns)"
        remedy = f"If it has another name, pass {option}. The columns are {some_of(names, 12)}."
        if columns.reverse is not None:
            remedy = (
                f"{columns.reverse!r} seems to be the reverse of correct: 1 means wrong. Write a column correct that "
                "is 1 where the answer is correct."
            )
        elif "correct" in missing:
            remedy += " qacal judge labels answers."
        opening = "There is no column" if len(missing) == 1 else "There are no columns"
        yield Finding("missing_columns", True, f"{opening} {what}.", remedy)
    if columns.rival_answer is not None:
        problem = (
            f"Beside 'answer' there is {columns.rival_answer!r}: 'answer' may be the expected answer, not the LLM's."
        )
        mapping = {"answer": columns.rival_answer}
        remedy = f"If so, pass {column_options(mapping)[0]} (in Python: columns={mapping})."
        yield Finding("two_answers", False, problem, remedy)


def column_options(mapping: Mapping[str, str]) -> list[str]:
    """Return the options that name columns.

    >>> column_options({"confidence": "stated score"})
    ["--column 'confidence=stated score'"]
    """
    return [f"--column {quote(f'{column}={name}')}" for column, name in mapping.items()]


# Rows


def on_rows(summary: Summary, scale: Scale, is_usable: Bools) -> Iterator[Finding]:
    """Yield findings on bad, unlabelled and repeated rows."""
    # Other findings explain kinds of bad rows: on the scale, on the encoding, or on all labels.
    explained = {*_off_scale(summary, scale), _NOT_UTF8}
    if summary.has_no_label:
        explained |= {reason.kind for reason in _unread_labels(summary)}
    reasons = [reason for reason in summary.bad.reasons if reason.kind not in explained]
    has_labels = "correct" in summary.columns.names and not summary.has_no_label
    unlabelled = int(np.count_nonzero(np.isnan(summary.column("label")) & is_usable)) if has_labels else 0
    if reasons:
        count = sum(reason.count for reason in reasons)
        problem = f"{counted(count, 'row')} of {summary.bad.rows:,} cannot be used; the first of each kind:"
        for reason in reasons:
            problem += f"\n{reason.count:,} {reason.kind}: {_example(reason)}"
        option, hint = f"--skip-bad-rows {free_name('bad.jsonl')}", "on_fault=qacal.BadRows()"
        more = max_bad_option(count, summary.bad.rows - unlabelled)
        if more:
            option, hint = f"{option} {more}", f"{hint}, max_bad={more.split()[1]}"
        remedy = f"Fix them, or skip them: {option} (in Python: {hint})"
        if count == summary.bad.rows - unlabelled:
            remedy = "Fix them: without them, no row is left."
        in_words = f"{summary.columns.names.get('confidence', '')} in words"
        word = next((word for word, _ in summary.words.most_common() if any(map(str.isalpha, word))), None)
        if word is not None and any(reason.kind == in_words for reason in reasons):
            remedy = f"Give words a number: {expression_option(word)}. {remedy}"
        yield Finding("bad_rows", True, problem, remedy, count)
    if unlabelled:
        problem = f"{counted(unlabelled, 'row')} of {summary.bad.rows:,} without a label. A fit leaves them out."
        yield Finding("unlabelled", False, problem, "Label them (qacal judge) to use them, too.", unlabelled)
    yield from _repeats(summary)


def max_bad_option(count: int, rows: int) -> str:
    """Return the option with which a fit skips this many bad rows, also in the training part of a split.

    rows : without those that have no label.

    >>> max_bad_option(300, 1_000), max_bad_option(100, 1_000)
    ('--max-bad 0.36', '')
    """
    share = count / rows
    if share <= MAX_BAD:
        return ""
    # Three standard errors of the share in a part with 70% of the rows.
    most = share + 3 * (share * (1 - share) / (0.7 * rows)) ** 0.5
    return f"--max-bad {min(ceil(100 * most) / 100, 1):g}"


def _example(reason: Reason) -> str:
    """Return the place and the value of the first bad row of a kind, without the expected value."""
    return f"{reason.example.place}, {reason.example.problem.partition('; ')[0].rstrip('.')}"


def _off_scale(summary: Summary, scale: Scale) -> set[str]:
    """Return the kinds of bad rows that the finding on the scale explains."""
    if scale.kind == "words":
        explained = ["in words", "in quotes"]
    elif scale.kind in ("mixed", "0-1"):
        explained = ["between 0 and 1 among percents"]
    else:
        explained = ["below 0"] if scale.kind == "logarithms" else []
    return {f"{summary.columns.names.get('confidence', '')} {kind}" for kind in explained}


def are_usable(summary: Summary, scale: Scale) -> Bools:
    """Return which rows can be used, labelled or not; a wrong scale does not count, because it can be converted."""
    is_off = any(reason.kind in _off_scale(summary, scale) for reason in summary.bad.reasons)
    usable: Bools = summary.column("sound" if is_off else "good")
    return usable


def _unread_labels(summary: Summary) -> list[Reason]:
    """Return the kinds of labels that cannot be read."""
    return [reason for reason in summary.bad.reasons if reason.kind.startswith(f"{summary.columns.names['correct']} ")]


def on_encoding(summary: Summary) -> Iterator[Finding]:
    """Yield a finding on text that is not UTF-8, in the header or in rows."""
    first = next((reason for reason in summary.bad.reasons if reason.kind == _NOT_UTF8), None)
    parts = ["the header"] if any("\udc80" <= letter <= "\udcff" for name in summary.names for letter in name) else []
    if first is not None:
        parts.append(f"{counted(first.count, 'row')} of {summary.bad.rows:,} (the first: {first.example.place})")
    if parts:
        remedy = "If these rows are damaged, skip them: --skip-bad-rows FILE (in Python: on_fault=qacal.BadRows())."
        problem = f"{' and '.join(parts)} {encoding_problem()}"
        if current_options().encoding is None:
            remedy = f"{NOT_UTF8[0].upper()}{NOT_UTF8[1:]} {remedy}"
            problem = f"Not in UTF-8: {' and '.join(parts)}."
        count = None if first is None else first.count
        yield Finding("encoding", True, problem[0].upper() + problem[1:], remedy, count)


def _repeats(summary: Summary) -> Iterator[Finding]:
    question, identity, llm, pair = (summary.column(name) for name in ("question", "id", "llm", "pair"))
    copies = 0
    if pair is not None:
        parts = [column for column in (summary.column("written"), identity) if column is not None]
        row = combined(pair, *parts)[summary.column("asked")]
        copies = surplus(row)
    if copies > 0:
        is_copy = np.ones(len(row), dtype=bool)
        is_copy[np.unique(row, return_index=True)[1]] = False
        copy = int(np.argmax(is_copy))
        places = summary.column("place")[summary.column("asked")]
        first, second = places[np.argmax(row == row[copy])], places[copy]
        where = f"for example {summary.unit}s {first:,} and {second:,}"
        problem = f"{counted(copies, 'exact copy', 'exact copies')} of earlier rows ({where}): {COPIED}."
        yield Finding("duplicate_rows", False, problem, REMOVE_COPIES, copies)
    if question is not None and identity is not None:
        both = summary.column("asked") & summary.column("named")
        yield from _on_ids(identity[both], question[both])
    key = question if identity is None else identity
    if key is not None:
        by_llm = key if llm is None else combined(key, llm)
        more = surplus(by_llm[summary.column("asked" if identity is None else "named")]) - copies
        if more > 0:
            kept = "with one id" if identity is not None else "with one text (there is no column id)"
            repeat = "repeats" if more == 1 else "repeat"
            problem = f"{counted(more, 'row')} {repeat} a question. For a fit, rows {kept} are one question."
            remedy = (
                "The default model counts them as one document, and its intervals hold. Other calibrators assume "
                "independent rows: for their intervals, keep one row per question."
            )
            yield Finding("repeated_questions", False, problem, remedy, more)
    if pair is not None:
        right, wrong = (np.unique(pair[summary.column("label") == value]) for value in (1.0, 0.0))
        both = len(np.intersect1d(right, wrong, assume_unique=True))
        if both:
            problem = f"{both:,} answers are labelled correct in one row and wrong in another, with the same question."
            remedy = "Check how they were labelled: contradictory labels are noise for a fit."
            yield Finding("contradicting_labels", False, problem, remedy, both)


def _on_ids(identity: Hashes, question: Hashes) -> Iterator[Finding]:
    """Yield findings on ids that do not agree with the texts of questions."""
    _, first = np.unique(combined(identity, question), return_index=True)
    if (shared := _repeated(identity[first])) > 0:
        problem = f"{counted(shared, 'id')} with questions of different texts."
        remedy = (
            "That is right for the rows of one document. If these are unrelated questions, give each its own id: rows "
            "with one id count as one."
        )
        yield Finding("shared_ids", False, problem, remedy, shared)
    if (scattered := _repeated(question[first])) > 0:
        problem = f"{counted(scattered, 'question')} under several ids: a fit may certify on rows that it trained on."
        remedy = "Give each question one id; or rename the column id, and the text identifies questions."
        yield Finding("scattered_questions", False, problem, remedy, scattered)


def _repeated(hashes: Hashes) -> int:
    """Return the number of values that occur more than once."""
    return int(np.count_nonzero(np.unique(hashes, return_counts=True)[1] > 1))


# Where rows come from


def on_origins(summary: Summary) -> Iterator[Finding]:
    """Yield findings on rows of several LLMs, prompts, confidence sources or judges."""
    for name, plural in PROVENANCE.items():
        counts = summary.origins.get(name)
        if counts is not None and len(counts) > 1 and is_provenance(name, list(counts)):
            values = some_of([f"{value} ({count:,})" for value, count in counts.most_common()], 12)
            remedy = (
                f"One model for each: --by {name} (in Python: fit on the rows of each). One model for all of them: "
                "--allow-mixed (in Python: allow_mixed=True)."
            )
            yield Finding(f"several_{name}s", True, f"The rows come from {len(counts):,} {plural}: {values}.", remedy)


# Labels and confidences


def on_labels(summary: Summary, labels: Floats) -> Iterator[Finding]:
    """Yield a finding if the labels of usable rows are too few, or nearly all the same."""
    if summary.has_no_label:
        problem, remedy = "No row has a label.", LABEL_SOME
        for reason in _unread_labels(summary)[:1]:
            problem, remedy = f"No label can be read: {_example(reason)}.", f"Write {EXPECTED_LABELS}."
        yield Finding("no_labels", True, problem, remedy)
    if not len(labels):
        return
    right, wrong = (int(np.count_nonzero(labels == value)) for value in (1.0, 0.0))
    if len(labels) < FEWEST_LABELS:
        problem = f"Only {counted(len(labels), 'row')} can be used and {'has' if len(labels) == 1 else 'have'} a label."
        remedy = "Label more answers: rows are needed to train, to certify and to evaluate."
        yield Finding("few_labels", len(labels) == 1, problem, remedy, len(labels))
    elif (labels == labels[0]).all():
        what = {1.0: "correct", 0.0: "wrong"}.get(float(labels[0]), f"labelled {labels[0]:g}")
        other = "correct" if what == "wrong" else "wrong"
        remedy = f"Check the labels. A fit accepts them, but cannot learn when the LLM is {other}."
        yield Finding("one_label", False, f"All {len(labels):,} labelled answers are {what}.", remedy)
    elif right + wrong == len(labels) and min(right, wrong) < _FEW_OF_A_KIND:
        few, what = (right, "correct") if right < wrong else (wrong, "wrong")
        remedy = f"Label more answers: a fit learns from these few when the LLM is {what}."
        yield Finding("few_of_a_kind", False, f"Only {few:,} of {len(labels):,} answers are {what}.", remedy, few)


def on_scale(scale: Scale, name: str, percent: bool) -> Iterator[Finding]:
    """Yield a finding on confidences that are not numbers from 0 to 1; `name` is the name of their column."""
    span = f"{name} goes from {scale.low:g} to {scale.high:g}"
    if scale.kind == "percent" and not percent:
        yield Finding("percents", True, f"{span}: these are percents.", "Pass --percent (in Python: percent=True).")
    elif scale.kind == "0-1" and percent and scale.above == 0 and scale.fractions:
        remedy = "Leave out --percent (in Python: percent=True)."
        yield Finding("no_percents", True, f"{span}: these are not percents.", remedy)
    elif scale.kind == "grades":
        wrong = f"--percent (in Python: percent=True) would read {scale.high:g} as {scale.high / 100:g}"
        remedy = f"Divide by {scale.most:g} first; {wrong}."
        yield Finding("grades", True, f"{span}: these look like grades up to {scale.most:g}.", remedy)
    elif scale.kind == "mixed":
        problem = f"{name} mixes scales: {scale.fractions:,} numbers lie between 0 and 1, and {scale.above:,} above 1."
        yield Finding("mixed_scales", True, problem, "Convert them to one scale first; a 1 may mean 1% or certain.")
    elif scale.kind == "logarithms":
        remedy = "Take exp() of them first: exp(-0.1) is 0.90."
        yield Finding("logarithms", True, f"{span}: these look like log-probabilities.", remedy)
    elif scale.kind == "unknown":
        yield Finding("unknown_scale", True, f"{span}, on an unknown scale.", "Convert them to 0 to 1 first.")
    elif scale.kind == "words":
        words = some_of([f"{word} ({count:,})" for word, count in scale.words.items()], 5)
        remedy = f"Give each a number from 0 to 1: {expression_option(next(iter(scale.words)))}."
        yield Finding("words", True, f"{name} contains words: {words}.", remedy, sum(scale.words.values()))


def on_doubts(
    confidence: Floats, label: Floats, question: Hashes | None, llm: Hashes | None, names: Mapping[int, str]
) -> Iterator[Finding]:
    """Yield findings on confidences that do not separate correct from wrong answers, for each LLM.

    confidence, label : of labelled rows, with confidences from 0 to 1.
    question : a hash of each row's question; None if there is no column for it.
    llm, names : a hash of each row's LLM, and the names by hash; `llm` is None for a single LLM.
    """
    for llm_hash in [None] if llm is None else np.unique(llm).tolist():
        rows = np.ones(len(label), dtype=bool) if llm is None else llm == llm_hash
        questions = None if question is None else len(np.unique(question[rows]))
        doubt = doubt_of(label[rows], confidence[rows], questions=questions) if rows.any() else None
        if doubt is not None:
            opening = "" if llm_hash is None else f"{names[llm_hash]}: "
            problem, _, remedy = doubt.text.partition(". ")
            problem = f"{opening}{problem.rstrip('.')}."
            remedy = remedy or "A fit can then use only the text; a further confidence, of the tokens, would help."
            yield Finding(f"{doubt.kind}_confidences", False, problem[0].upper() + problem[1:], remedy)
