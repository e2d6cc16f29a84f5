"""Where rows come from: which LLM, prompt, confidence source and judge. Other origins, other meanings of 0.9."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from qacal.errors import InputError, some_of
from qacal.parameters import require_kind

AllowOtherSource: TypeAlias = bool | str | Collection[str]
"""Which origins may be others than those of the fit: True for all, or the names of some."""

if TYPE_CHECKING:
    from qacal.records.reading import Batch

# A column that differs from row to row (a prompt with the question in it) tells nothing about where rows are from.
_ORIGINS = 20

APART = (
    *(("model", "LLMs"), ("prompt", "prompts")),
    *(("confidence_source", "confidence sources"), ("judge", "judges")),
)


class Sources:
    """The values of the columns that say where rows come from, gathered from batches."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Any, None]] = {name: {} for name, _ in APART}

    def add(self, batch: Batch) -> None:
        """Take more rows."""
        for name, values in self._values.items():
            if name == "model" or len(values) <= _ORIGINS:
                values.update(dict.fromkeys(batch.values_of(name)))

    def known(self) -> dict[str, list[Any]]:
        """Return the values of each column that says where rows come from."""
        return {name: list(values) for name, values in self._values.items() if is_provenance(name, list(values))}

    def require_one(self) -> None:
        """Refuse rows of several LLMs, prompts, kinds of confidence or judges."""
        for name, plural in APART:
            values = self.known().get(name, ())
            if len(values) > 1:
                raise InputError(
                    f"the records hold answers of several {plural}: {some_of(values)}. Fit one model for each (--by "
                    f"{name}), or one for all of them: --allow-mixed (in Python: allow_mixed=True)."
                )


def is_provenance(name: str, values: list[Any]) -> bool:
    """Return whether a column tells where rows come from."""
    return bool(values) and (name == "model" or len(values) <= _ORIGINS)


def require_same_source(train: Sources, certify: Sources) -> None:
    """Refuse rows that certify and come from another LLM, prompt or kind of confidence than those that train.

    Their judges may differ: that is what the two sets are for.
    """
    one, two = train.known(), certify.known()
    for name in ("model", "prompt", "confidence_source"):
        if name in one and name in two and {*one[name]} != {*two[name]}:
            raise InputError(
                f"{name} is {some_of(one[name])} in the training rows and {some_of(two[name])} in the certifying "
                "rows; expected the same. To combine them, pass --allow-mixed (in Python: allow_mixed=True)."
            )


def require_comparable_ids(one: bool, other: bool) -> None:
    """Refuse two sets of rows, only one of which has ids."""
    if one != other:
        raise InputError(
            "only one of the two sets of rows has ids, so it is unknown whether they share questions. Give both of "
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
                f"{batch.table.origin}: {name} is {others[0]!r}; this model was fitted on {some_of(known)}. Fit a "
                f"model for it, since its confidences or labels may mean something else; or pass --allow-other-source "
                f"{name} (in Python: allow_other_source={name!r})."
            )
