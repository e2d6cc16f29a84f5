"""Where rows come from: which LLM, prompt, confidence source and judge. Other origins, other meanings of 0.9."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from qacal.errors import InputError
from qacal.parameters import require_kind

AllowOtherSource: TypeAlias = bool | str | Collection[str]
"""Which origins may be others than those of the fit: True for all, or the names of some."""

if TYPE_CHECKING:
    from qacal.records.reading import Batch, Reading

# A column that differs from row to row (a prompt with the question in it) tells nothing about where rows are from.
_ORIGINS = 20

APART = (
    *(("model", "LLMs"), ("prompt", "prompts")),
    *(("confidence_source", "confidence sources"), ("judge", "judges")),
)


def gather_origins(batch: Batch, origins: dict[str, list[Any]]) -> None:
    """Add the origins of a batch to those seen before."""
    for name, values in origins.items():
        if name == "model" or len(values) <= _ORIGINS:
            values.extend(value for value in batch.values_of(name) if value not in values)


def is_provenance(name: str, values: list[Any]) -> bool:
    """Return whether a column tells where rows come from."""
    return bool(values) and (name == "model" or len(values) <= _ORIGINS)


def require_one_origin(records: Any, how: Reading, allow_mixed: bool) -> None:
    """Refuse rows of several LLMs, kinds of confidence or judges, before anything is embedded."""
    from qacal.records.reading import as_source, distinct

    if allow_mixed:
        return
    found = distinct(as_source(records), how, [name for name, _ in APART])
    for name, plural in APART:
        values = found[name]
        if len(values) > 1 and is_provenance(name, values):
            raise InputError(
                f"the records hold answers of several {plural}: {_said(values)}. Fit one model for each (--by {name}, "
                "or only its rows); pass --allow-mixed (allow_mixed=True) for one model for all of them."
            )


def require_same_origin(records: Any, others: Any, how: Reading, allow_mixed: bool) -> None:
    """Refuse two sets of rows, one to learn from and one to certify with, that are not of one kind.

    Their judges may differ: that is what the two sets are for.
    """
    from qacal.records.reading import as_source, distinct

    require_comparable_ids(records, others, how)
    names = ("model", "prompt", "confidence_source")
    of_records, of_others = (distinct(as_source(given), how, names) for given in (records, others))
    for name in names:
        one, two = of_records[name], of_others[name]
        if not allow_mixed and one and two and len(one) <= _ORIGINS and len(two) <= _ORIGINS and {*one} != {*two}:
            raise InputError(
                f"{name} is {_said(one)} in the rows to learn from, and {_said(two)} in those that certify; expected "
                "the same. Pass --allow-mixed (allow_mixed=True) if they are to go together."
            )


def require_comparable_ids(records: Any, others: Any, how: Reading) -> None:
    """Refuse two sets of rows of which it cannot be told whether they share questions."""
    from qacal.records.reading import as_source

    tables = [next(iter(as_source(one).batches(how.on_fault)), None) for one in (records, others)]
    has_ids = {how.name("id") in table.names for table in tables if table is not None}
    if len(has_ids) > 1:
        raise InputError(
            "only one of the two sets of rows has ids, so it cannot be told whether they share questions. Give both of "
            "them ids, or neither."
        )


def require_known_origin(
    batch: Batch, origins: dict[str, list[Any]], accepted: AllowOtherSource = False, *, uses_labels: bool
) -> None:
    """Refuse rows of another origin than those of the fit.

    accepted : which of the origins may be others.
    uses_labels : whether labels are read; if not, who judged does not matter.
    """
    require_kind(accepted, bool | Iterable, "allow_other_source", "True, or names such as model")
    allowed = {*origins} if accepted is True else {accepted} if isinstance(accepted, str) else {*(accepted or ())}
    unknown = sorted(allowed - {*origins} - {name for name, _ in APART})
    if unknown:
        raise InputError(
            f"allow_other_source is {unknown[0]!r}; expected {', '.join(name for name, _ in APART)}, or True."
        )
    for name, known in origins.items():
        if name in allowed or (name == "judge" and not uses_labels):
            continue
        others = [value for value in batch.values_of(name) if value not in known]
        if others:
            raise InputError(
                f"{batch.table.origin}: {name} is {others[0]!r}; this model was fitted on {_said(known)}. Fit a "
                f"model for it; or pass --allow-other-source {name} (allow_other_source={name!r}) to go on, though its "
                "confidences or labels may mean something else."
            )


def _said(values: list[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"
