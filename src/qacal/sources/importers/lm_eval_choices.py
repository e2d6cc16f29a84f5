"""Rows of lm-evaluation-harness in which an LLM chooses: the likelihood of each choice, and which one is best."""

from __future__ import annotations

import math
import re
from itertools import takewhile
from typing import Any

from qacal.sources.importers.base import Dropped, Selection, Unscored, UnusableRowError, inside, texts_of
from qacal.sources.importers.confidences import LIKELIHOOD
from qacal.sources.importers.likelihoods import RULES, Choice, best_choice
from qacal.sources.importers.lm_eval_rows import Judged, Sample, as_number


def judged(sample: Sample, selection: Selection) -> Judged | Dropped:
    """Return the best choice by the rule of the metric, which is `acc` by default."""
    choices = _choices(sample)
    if len(choices) < 2:
        return Dropped("there is one choice only: its likelihood is that of the target, not of an answer")
    metric = selection.metric or next((name for name in RULES if name in sample.metrics), "acc")
    if metric not in RULES:
        return Dropped(f"{metric} does not judge one choice")
    if metric in ("acc_norm", "acc_bytes") and _are_contexts(sample):
        return Dropped(f"its choices are contexts: lm-eval does not log the lengths that {metric} divides by")
    best, confidence = best_choice(choices, metric)
    if selection.confidence_from not in (None, LIKELIHOOD):
        confidence = Unscored(f"no confidence: it is a choice by likelihood, not {selection.confidence_from}")
    correct = sample.row.get(metric)
    if correct is not None and correct not in (0, 1):
        return Dropped(f"{metric} is a share, and does not judge one choice")
    texts = _shown(sample, [choice.text for choice in choices])
    right = _right(sample, texts, [choice.text for choice in choices])
    _require_agreement(metric, correct, best, right)
    truths = tuple(texts[place] for place in sorted(right)) if right else (texts[best],) if correct else ()
    return Judged(texts[best], confidence, None if correct is None else float(correct), truths)


def _choices(sample: Sample) -> list[Choice]:
    """Return the choices. With acc_mutual_info each stands there twice, the second time without a context."""
    numbers = [as_number(inside(response, 0)) for response in sample.row["filtered_resps"]]
    pairs = [(request[0], request[1]) for request in sample.arguments if len(request) > 1]
    if len(pairs) != len(numbers):
        raise UnusableRowError(f"there are {len(numbers)} likelihoods and {len(pairs)} arguments; expected as many.")
    with_context = [place for place, (context, _) in enumerate(pairs) if context != ""]
    without = [place for place, (context, _) in enumerate(pairs) if context == ""]
    if len(with_context) != len(without):
        with_context, without = list(range(len(pairs))), []
    texts = _texts([pairs[place] for place in with_context])
    alone = [numbers[place] for place in without] or [math.nan] * len(with_context)
    return [Choice(texts[i], numbers[place], alone[i]) for i, place in enumerate(with_context)]


def _are_contexts(sample: Sample) -> bool:
    return len({str(request[1]) for request in sample.arguments}) == 1


def _texts(pairs: list[tuple[Any, Any]]) -> list[str]:
    """Return what the choices are: what follows the context, or, where that is the same for all, the contexts."""
    endings = [str(ending) for _, ending in pairs]
    if len(set(endings)) > 1 or len(pairs) == 1:
        # lm-eval measures the choice without the space that it puts before it.
        return [ending.lstrip() for ending in endings]
    contexts = [str(context) for context, _ in pairs]
    words = [re.split(r"(?<=\s)", context) for context in contexts]
    alike = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))
    return ["".join(parts[alike:]) for parts in words]


def _shown(sample: Sample, texts: list[str]) -> list[str]:
    """Return the choices as a person reads them: what the letters A, B, ... stand for, if the question says it."""
    if texts != [chr(ord("A") + place) for place in range(len(texts))]:
        return texts
    listed = sample.doc.get("choices")
    named = texts_of(inside(listed, "text") if isinstance(listed, dict) else listed)
    return list(named) if len(named) == len(texts) else texts


def _right(sample: Sample, shown: list[str], texts: list[str]) -> set[int]:
    """Return which choices are right, as far as that is clear: a target is a place, or the text of a choice."""
    right = set()
    for target in sample.targets:
        by_text = {place for place in range(len(texts)) if target in (texts[place], shown[place])}
        by_place = {place for place in range(len(texts)) if target == str(place)}
        if by_text and by_place and by_text != by_place:
            return set()
        right |= by_text or by_place
    return right


def _require_agreement(metric: str, correct: Any, best: int, right: set[int]) -> None:
    if right and correct is not None and (best in right) != bool(correct):
        raise UnusableRowError(
            f"{metric} is {correct}, though by its rule the best choice is {'' if best in right else 'not '}the "
            "target; the log judges by another rule. Try another --metric."
        )
