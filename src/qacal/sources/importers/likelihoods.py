r"""Choices by likelihood, as lm-evaluation-harness judges them.

Each choice :math:`c` has a log-likelihood :math:`\ell_c`. A metric is a rule for the best choice:

* ``acc``: the largest :math:`\ell_c`;
* ``acc_norm``: the largest :math:`\ell_c` for each character of the choice;
* ``acc_bytes``: the largest :math:`\ell_c` for each byte of the choice in UTF-8;
* ``acc_mutual_info``: the largest :math:`\ell_c - \ell_c^0`, where :math:`\ell_c^0` is that without the question.

The confidence is the softmax of the same numbers at the best choice, so that answer, confidence and `correct` speak of
one rule. After division by a length the numbers lie close together, and so do these confidences: they stay near one
over the number of choices. They rank answers and have to be calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from qacal.sources.importers.base import Confidence, Scored, Unscored
from qacal.sources.importers.confidences import LIKELIHOOD


@dataclass(frozen=True)
class Choice:
    """A choice with its log-likelihood; `alone` is that without the question, where a log has it."""

    text: str
    loglikelihood: float
    alone: float = math.nan


def _by_length(length: Callable[[str], int]) -> Callable[[Choice], float]:
    # An empty choice has no length to divide by, and cannot be compared with others.
    return lambda choice: choice.loglikelihood / length(choice.text) if choice.text else math.nan


RULES: Mapping[str, Callable[[Choice], float]] = MappingProxyType(
    {
        "acc": lambda choice: choice.loglikelihood,
        "acc_norm": _by_length(len),
        "acc_bytes": _by_length(lambda text: len(text.encode(errors="surrogatepass"))),
        "acc_mutual_info": lambda choice: choice.loglikelihood - choice.alone,
    }
)


def best_choice(choices: Sequence[Choice], metric: str = "acc") -> tuple[int, Confidence]:
    """Return which choice is best by a metric's rule (the first of equals), and the confidence in it.

    >>> best, confidence = best_choice([Choice("Rome", math.log(0.2)), Choice("Paris", math.log(0.6))])
    >>> best, round(confidence.value, 6), confidence.source
    (1, 0.75, 'choice likelihood')
    """
    values = [RULES[metric](choice) for choice in choices]
    if any(math.isnan(value) for value in values) or not math.isfinite(max(values)):
        return 0, Unscored("no confidence: a choice has no likelihood")
    best = max(range(len(values)), key=values.__getitem__)
    total = math.fsum(math.exp(value - values[best]) for value in values)
    return best, Scored(1 / total, LIKELIHOOD if metric == "acc" else f"{LIKELIHOOD} ({metric})")
