"""Rows of lm-evaluation-harness in which an LLM writes: its confidence is stated in the text, or told by repeats.

The answer of a repeat is what the task's filter takes out of it. A row has that of the repeat that was judged only; the
steps of the filter stand in ``results_*.json`` and are applied to the others here.

The log does not say why a reply ended. One that was cut within its number cannot be told from one that was not, so a
task needs a limit (``max_gen_toks``) that leaves room.
"""

from __future__ import annotations

from collections.abc import Sequence

from qacal.errors import InputError
from qacal.sources.importers.base import Confidence, Dropped, Selection, Unscored, inside
from qacal.sources.importers.confidences import (
    AGREEMENT,
    STATED,
    agreement,
    answer_in,
    choose_confidence,
    parsed,
    stated,
)
from qacal.sources.importers.correctness import graded
from qacal.sources.importers.lm_eval_filters import NOTHING_FOUND, filtered_replies
from qacal.sources.importers.lm_eval_rows import Judged, Sample

_NO_RESULTS = "no results_*.json beside the samples says what the filter takes out of a reply"
_NO_STEP = "a step of its filter cannot be done here: a function of its own"


def judged(sample: Sample, selection: Selection) -> Judged | Dropped:
    """Return the answer that was judged: what the filter took out of the reply, or what the parser reads in it."""
    repeats = _texts(inside(sample.row, "resps", 0)) or _texts(sample.row["filtered_resps"])
    filtered = sample.row["filtered_resps"][0]
    if not repeats:
        return Dropped("there is no reply")
    metric = _metric(sample, selection)
    correct = None if metric is None else graded(sample.row[metric], selection.correct_at, f"the metric {metric}")
    if isinstance(correct, Dropped):
        return correct
    wanted = selection.confidence_from
    if wanted == AGREEMENT or (wanted is None and len(repeats) > 1):
        if isinstance(filtered, list) and correct not in (None, 0.0, 1.0):
            return Dropped("the score is shared by repeats that differ")
        answer, confidence = _agreed(repeats, filtered, sample)
    else:
        answer, confidence = _said(repeats, filtered, wanted)
    if correct == 0 and filtered == repeats[0] != answer and answer in sample.targets:
        raise InputError(
            f"{metric} is 0 though the answer {answer!r} is the target: it judges the whole reply, not the answer in "
            "it. Choose a filter that takes out the answer (--filter)."
        )
    return Judged(answer, confidence, correct, sample.targets)


def _said(repeats: Sequence[str], filtered: object, wanted: str | None = None) -> tuple[str, Confidence]:
    """Return the answer and the stated confidence; of several replies, those of the first that gives the answer."""
    outcomes = [parsed(reply) for reply in repeats]
    picked = 0
    if isinstance(filtered, str) and len(repeats) > 1:
        answers = map(answer_in, outcomes, repeats)
        picked = next((place for place, answer in enumerate(answers) if _is_alike(answer, filtered)), 0)
    is_extract = isinstance(filtered, str) and filtered.strip() not in (repeats[picked].strip(), NOTHING_FOUND)
    answer = str(filtered) if is_extract else answer_in(outcomes[picked], repeats[picked])
    return answer, choose_confidence({STATED: stated(outcomes[picked])}, wanted).confidence


def _agreed(repeats: Sequence[str], filtered: object, sample: Sample) -> tuple[str, Confidence]:
    """Return the answer that was judged and the share of repeats that give it; of a list, the most frequent one."""
    if len(repeats) == 1:
        return _said(repeats, filtered)[0], Unscored("no confidence: there are no repeats")
    unknown = ""
    if isinstance(filtered, list):
        answer, confidence = agreement(_texts(filtered) or repeats)
    else:
        answers = filtered_replies(repeats, sample.steps)
        if answers is None:
            unknown = f" ({_NO_STEP if sample.steps else _NO_RESULTS})"
            answers = [answer_in(parsed(reply), reply) for reply in repeats]
            filtered = answers[repeats.index(filtered)] if filtered in repeats else filtered
        answer, confidence = agreement(answers, str(filtered))
    if answer.strip() in ("", NOTHING_FOUND):
        confidence = Unscored("no confidence: the filter found no answer in what was judged")
    elif isinstance(confidence, Unscored):
        confidence = Unscored(confidence.why + unknown)
    return answer, confidence


def _metric(sample: Sample, selection: Selection) -> str | None:
    """Return the metric that says what is right: the one asked for, exact_match, acc, or the only one."""
    if selection.metric is not None:
        return selection.metric
    known: list[str | None] = [name for name in ("exact_match", "acc") if name in sample.metrics]
    if not known and len(sample.metrics) > 1:
        raise InputError(f"there are several metrics: {', '.join(sample.metrics)}. Choose one with --metric.")
    return (known or [*sample.metrics, None])[0]


def _is_alike(answer: str, other: str) -> bool:
    from qacal.sources.elicitation.matching import normalise_answer

    return bool(normalise_answer(answer) == normalise_answer(other))


def _texts(replies: object) -> list[str]:
    if isinstance(replies, str):
        return [replies]
    return [reply for reply in replies if isinstance(reply, str)] if isinstance(replies, list) else []
