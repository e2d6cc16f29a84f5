"""Where rows come from: which LLM, prompt, confidence source and judge. Other origins, other meanings of 0.9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qacal.errors import InputError

if TYPE_CHECKING:
    from qacal.records import Batch, Reading

# A column that differs from row to row (a prompt with the question in it) tells nothing about where rows are from.
_ORIGINS = 20


def gather_origins(batch: Batch, origins: dict[str, list[Any]]) -> None:
    """Add the origins of a batch to those seen before."""
    for name, values in origins.items():
        if name == "model" or len(values) <= _ORIGINS:
            values.extend(value for value in batch.values_of(name) if value not in values)


def tells(name: str, values: list[Any]) -> bool:
    """Return whether a column tells where rows come from."""
    return bool(values) and (name == "model" or len(values) <= _ORIGINS)


def require_one_origin(records: Any, how: Reading, pool: bool) -> None:
    """Refuse rows of several LLMs, kinds of confidence or judges, before anything is embedded."""
    from qacal.records import as_source, distinct

    if pool:
        return
    for name, plural in (("model", "LLMs"), ("confidence_source", "confidence sources"), ("judge", "judges")):
        values = distinct(as_source(records), how, name)
        if len(values) > 1:
            raise InputError(
                f"the records hold answers of several {plural}: {_said(values)}. Fit one model for each (--by {name}, "
                "or only its rows); pass --pool (pool=True) if one model for all of them is what you want."
            )


def require_known_origin(batch: Batch, origins: dict[str, list[Any]]) -> None:
    """Refuse rows of another origin than those of the fit."""
    for name, known in origins.items():
        others = [value for value in batch.values_of(name) if value not in known]
        if others:
            raise InputError(
                f"{batch.table.origin}: {name} is {others[0]!r}; this model was fitted on {_said(known)}. Fit a "
                "model for it; or pass --any-origin (any_origin=True) to go on, though its confidences may mean "
                "something else."
            )


def _said(values: list[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"
