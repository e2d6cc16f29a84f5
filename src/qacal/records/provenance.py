"""Where rows come from: LLM, prompt, confidence source, samples and judge; 0.9 may mean something else for each.

Also rows that come twice: exact copies.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from qacal.errors import InputError, QacalWarning, some_of
from qacal.parameters import require_kind
from qacal.records.columns import PROVENANCE, listed, parse_number
from qacal.tally.arrays import Hashes
from qacal.tally.ids import Repeats

AllowOtherSource: TypeAlias = bool | str | Collection[str]
"""Which origins may differ from those of the fit: True for all, or the names of some."""

if TYPE_CHECKING:
    from qacal.records.reading import Batch

# A column with more values differs from row to row, such as a prompt that contains the question: not an origin.
_ORIGINS = 20
# How answers with an agreement were sampled. The majority of 5 answers is right more often than that of 3, and 5 of 5
# that agree tell more than 3 of 3.
SAMPLING = ("samples", "temperature")
# Samples that cannot be read do not count, so some rows of a run have fewer: numbers of a smaller share of the rows are
# ignored, and a few rows, fewer than these, may have fewer samples than those of the fit.
_RARE, _FEW_ROWS = 0.05, 20

COPIED = "the same question, answer, confidence and label, by the same LLM"
REMOVE_COPIES = "Remove the copies if rows were stored twice; keep them if the LLM was asked several times."


class Sources:
    """The values of the provenance columns, gathered from batches."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Any, None]] = {name: {} for name in PROVENANCE}
        self._sampling: dict[str, Counter[float]] = {name: Counter() for name in SAMPLING}

    def add(self, batch: Batch) -> None:
        for name, counts in self._sampling.items():
            counts.update(_sampling(batch, name))
        for name, values in self._values.items():
            if name == "model" or len(values) <= _ORIGINS:
                values.update(dict.fromkeys(batch.values_of(name)))

    def to_plain(self) -> dict[str, list[Any]]:
        """Return all that :meth:`add_plain` needs, as plain data of bounded size."""
        values = {name: list(found) for name, found in self._values.items() if found}
        # One value more than the limit tells that there are too many.
        kept = {name: found if name == "model" else found[: _ORIGINS + 1] for name, found in values.items()}
        return kept | {name: [*map(list, counts.items())] for name, counts in self._sampling.items() if counts}

    def add_plain(self, plain: Mapping[str, Sequence[Any]]) -> None:
        """Take what :meth:`to_plain` returned for other rows: as if their batches were added here."""
        for name, values in plain.items():
            if name in self._sampling:
                self._sampling[name].update(dict(values))
            else:
                self._values[name].update(dict.fromkeys(values))

    def known(self) -> dict[str, list[Any]]:
        """Return the values of each provenance column, and how answers were sampled."""
        known = {name: list(values) for name, values in self._values.items() if is_provenance(name, list(values))}
        for name, counts in self._sampling.items():
            usual = _usual(counts)
            known |= {name: usual} if usual else {}
        return known

    def sampled_unlike(self, known: dict[str, list[Any]]) -> list[str]:
        """Return the columns of :data:`SAMPLING` with other numbers than `known`."""
        return [name for name, counts in self._sampling.items() if name in known and _unlike(counts, known[name], name)]

    def require_one(self) -> None:
        """Raise if rows come from several LLMs, prompts, confidence sources or judges."""
        known = self.known()
        if several := mixture(known):
            names = [name for name in PROVENANCE if len(known.get(name, ())) > 1]
            by = f"--by {names[0]}" if len(names) == 1 else f"--by takes one column: {' or '.join(names)}"
            raise InputError(
                f"the records hold answers of several {several}. Fit one model for each ({by}; of many files or "
                "tallies, fit those of each apart), or one for all of them: --allow-mixed (in Python: "
                "allow_mixed=True)."
            )


def mixture(known: Mapping[str, Sequence[Any]]) -> str:
    """Return the LLMs, prompts, confidence sources and judges that rows come from, if they are several; else "".

    >>> mixture({"model": ["gpt", "qwen"], "prompt": ["short"], "judge": ["Ann", "Bo"]})
    'LLMs: gpt, qwen; judges: Ann, Bo'
    """
    parts = ((plural, known.get(name, ())) for name, plural in PROVENANCE.items())
    return "; ".join(f"{plural}: {some_of(values)}" for plural, values in parts if len(values) > 1)


def is_provenance(name: str, values: list[Any]) -> bool:
    """Return whether a column with these values tells where rows come from."""
    return bool(values) and (name == "model" or len(values) <= _ORIGINS)


def require_same_source(train: Sources, certify: Sources) -> None:
    """Raise if training and certifying rows differ in LLM, prompt, confidence source or samples; judges may differ."""
    one, two = train.known(), certify.known()
    names = ("model", "prompt", "confidence_source")
    others = [name for name in names if name in one and name in two and {*one[name]} != {*two[name]}]
    for name in others or certify.sampled_unlike(one):
        raise InputError(
            f"{name} is {some_of(one[name])} in the training rows and {some_of(two[name])} in the certifying "
            "rows; expected the same. To combine them, pass --allow-mixed (in Python: allow_mixed=True)."
        )


def require_comparable_ids(one: bool, other: bool) -> None:
    """Raise if only one of two sets of rows has ids."""
    if one != other:
        raise InputError(
            "only one of the two sets of rows has ids, so shared questions cannot be detected. Give both of them ids, "
            "or neither."
        )


def allowed_sources(accepted: AllowOtherSource, every: Collection[str]) -> set[str]:
    """Return the names of the origins that may differ; `every` are those that True stands for."""
    require_kind(accepted, bool | Iterable, "allow_other_source", "True, or names such as model")
    allowed = {*every} if accepted is True else {accepted} if isinstance(accepted, str) else {*(accepted or ())}
    unknown = sorted(allowed - {*PROVENANCE, *SAMPLING})
    if unknown:
        expected = ", ".join((*PROVENANCE, *SAMPLING))
        raise InputError(f"allow_other_source is {unknown[0]!r}; expected {expected}, or True.")
    return allowed


def require_known_origin(
    batch: Batch, origins: dict[str, list[Any]], accepted: AllowOtherSource = False, *, uses_labels: bool
) -> None:
    """Raise if rows have another origin than those of the fit.

    accepted : the origins that may differ.
    uses_labels : whether labels are read; if not, the judge may differ too.
    """
    allowed = allowed_sources(accepted, {*origins})
    for name, fitted in origins.items():
        if name in allowed or (name == "judge" and not uses_labels):
            continue
        others = [value for value in batch.values_of(name) if value not in fitted]
        if name in SAMPLING:
            others = _unlike(_sampling(batch, name), fitted, name)
        if others:
            raise InputError(
                f"{batch.table.origin}: {name} is {others[0]!r}; this model was fitted on {some_of(fitted)}. Fit a "
                f"model for it, since its confidences or labels may mean something else; or pass --allow-other-source "
                f"{name} (in Python: allow_other_source={name!r})."
            )


def _sampling(batch: Batch, name: str) -> Counter[float]:
    """Return the numbers of a column of :data:`SAMPLING` with their counts; none of rows without an agreement."""
    if "agreement" not in batch.table.names or name not in batch.table.names:
        return Counter()
    numbers = (parse_number(value) for value in listed(batch.table.column(name)))
    return Counter(int(number) if number.is_integer() else number for number in numbers if math.isfinite(number))


def _usual(counts: Counter[float]) -> list[float]:
    """Return the numbers that are not rare."""
    return sorted(value for value, count in counts.items() if count >= _RARE * counts.total())


def _unlike(counts: Counter[float], fitted: list[Any], name: str) -> list[float]:
    """Return the usual numbers of a column of :data:`SAMPLING` that are not among those of a fit."""
    others = [value for value in _usual(counts) if value not in fitted]
    return [value for value in others if name != "samples" or value > max(fitted) or counts[value] >= _FEW_ROWS]


def copies_among(rows: Sequence[Hashes | None]) -> str:
    """Return how many rows are exact copies of earlier ones, and what to do about them; empty without copies.

    rows : :meth:`Batch.row_hashes` of all batches.
    """
    repeats = Repeats()
    for batch in rows:
        if batch is not None:
            repeats.add(batch)
    return copies_of(repeats)


def copies_of(hashes: Repeats) -> str:
    """Return what :func:`copies_among` does, for hashes that are gathered already."""
    copies = hashes.surplus()
    if not copies:
        return ""
    are, count = "are exact copies of earlier rows", "count as further rows"
    if copies == 1:
        are, count = "is an exact copy of an earlier row", "counts as a further row"
    return f"{copies:,} of {hashes.rows:,} rows {are} ({COPIED}) and {count} of one question. {REMOVE_COPIES}"


def warn_of_copies(rows: Repeats | Sequence[Hashes | None], prefix: str = "") -> None:
    """Warn (:class:`~qacal.QacalWarning`) about exact copies; `prefix` opens the warning, such as "model gpt-4: "."""
    message = copies_of(rows) if isinstance(rows, Repeats) else copies_among(rows)
    if message:
        warnings.warn(f"{prefix}{message}", QacalWarning, stacklevel=2)
