"""Was the promise kept? The answer in words; :mod:`qacal.report.realised` has the test behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qacal.report.content import Content
from qacal.report.group_rows import group_name
from qacal.report.realised import Realised
from qacal.report.words import counted, percent


@dataclass(frozen=True)
class Verdict:
    """What to say of a promise: the answer, and what it rests on."""

    answer: str
    reasons: str


def verdict_of(content: Content) -> Verdict | None:
    """Return whether the promise was kept, as far as the test rows tell; None where nothing was promised."""
    if content.promise is None:
        return None
    if content.realised is None:
        return Verdict("Cannot be told from these rows.", _sentence(content.why_not_judged))
    return Verdict(_answer(content.realised), " ".join(_reasons(content.realised)))


def _answer(found: Realised) -> str:
    can_tell, broken = int(found.can_be_judged.sum()), int(found.is_broken.sum())
    if broken:
        return f"Broken: {broken:,} of {counted(can_tell, 'interval')} that can be tested missed the truth."
    if can_tell == 0:
        return "Too few rows to tell."
    if 2 * can_tell < found.intervals:
        return "No breach is seen, but most of the intervals have too few rows to tell."
    return "Kept, as far as these rows can tell."


def _reasons(found: Realised) -> Iterator[str]:
    can_tell = int(found.can_be_judged.sum())
    yield _tested(found, can_tell)
    if found.is_broken.any():
        yield _worst(found)
        yield (
            f"One fit in {1 / found.alpha:.0f} may break its promise by bad luck; if it was not that, these questions "
            "are unlike those of the fit, or were labelled otherwise."
        )
    elif can_tell:
        yield _agreeing(found, can_tell)
    if can_tell:
        yield "(Of kept promises, chance calls at most one in 20 broken.)"
    if not found.is_about_all:
        yield "It is taken for granted that new confidences are spread as those of the fit were."
    if found.left_out:
        yield f"Of questions with several rows one was counted; {counted(found.left_out, 'row')} were left out."


def _tested(found: Realised, can_tell: int) -> str:
    total = found.intervals
    if can_tell == 0:
        largest = counted(int(found.rows.max()), "row")
        return (
            f"Were all of them right, or all wrong, no interval would be contradicted: no bin has more than {largest}."
        )
    if total == 1:
        return "The only interval has enough rows here to be tested."
    if can_tell == total:
        return f"All {total:,} intervals have enough rows here to be tested."
    how_many = "One" if can_tell == 1 else f"{can_tell:,}"
    has = "has" if can_tell == 1 else "have"
    return f"{how_many} of the {total:,} intervals {has} enough rows here to be tested, {_untested(found, can_tell)}."


def _untested(found: Realised, can_tell: int) -> str:
    few, none = len(found.rows) - can_tell, found.intervals - len(found.rows)
    parts = [f"{few:,} {'has' if few == 1 else 'have'} too few"] * (few > 0) + [f"{none:,} none"] * (none > 0)
    return " and ".join(parts)


def _agreeing(found: Realised, can_tell: int) -> str:
    inside = int((found.is_inside & found.can_be_judged).sum())
    outside = can_tell - inside
    if outside == 0:
        return f"The share of right answers lies inside of {_these(can_tell)}."
    where = f"inside of {inside:,} of these, and outside of {outside:,}" if inside else f"outside of {_these(outside)}"
    return f"The share of right answers lies {where}, by no more than chance explains."


def _these(count: int) -> str:
    return "it" if count == 1 else "each of these"


def _worst(found: Realised) -> str:
    at = int(np.argmax(found.excess))
    group = found.group[at]
    where = f"in {group_name(group)}, where" if group is not None else "where"
    promised = f"{found.low[at]:.2f} to {found.high[at]:.2f}"
    seen = f"of {counted(int(found.rows[at]), 'answer')} {percent(found.accuracy[at])} are right"
    return f"The worst is {where} it answers {found.answer[at]:.2f}: promised were {promised}, and {seen}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
