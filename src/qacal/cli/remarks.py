"""What a person should know of the rows of a fit: labels that are all the same, and confidences that nobody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from qacal.cli.fit_summary import MODELS_IN_FULL, models_of
from qacal.errors import InputError

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet
    from qacal.records.reading import Batch, Reading

_PREFIX = "confidence_"


def on_labels(records: Any, how: Reading, fit: QACalibrator | ModelSet, file: str | None = None) -> Iterator[str]:
    """Yield a line for each model whose rows all have the same label: then there is nothing to learn.

    file : where the rows are, if there are others too.
    """
    from qacal.records.reading import read

    by = getattr(fit, "by", None)
    batches = read(records, how, needs_labels=True, **fit.needs)
    found = alike(batches, by, [*models_of(fit)])
    if len(found) > MODELS_IN_FULL:
        some = ", ".join(map(str, [*found][:MODELS_IN_FULL]))
        yield (
            f"qacal: of {len(found):,} LLMs ({by} {some} and others) all rows have the same label; nothing can be "
            "learned about when these err."
        )
        return
    for value, (label, rows) in found.items():
        whose = "" if by is None else f"{by} {value}: "
        what, when = {1.0: ("right", "errs"), 0.0: ("wrong", "is right")}.get(label, (f"labelled {label:g}", "errs"))
        where = "" if file is None else f" of {file}"
        yield f"qacal: {whose}all {rows:,} rows{where} are {what}; nothing can be learned about when the LLM {when}."


def alike(batches: Iterable[Batch], by: str | None, values: Sequence[Any]) -> dict[Any, tuple[float, int]]:
    """Return the label that all rows of a model have, and how many they are, for those models that have only one.

    Rows are read no further than it takes to know that there are none, which usually is a batch.

    >>> from qacal.records.reading import read
    >>> rows = [{"confidence": 0.9, "correct": right, "model": name} for name, right in [("a", 1), ("a", 1), ("b", 0)]]
    >>> alike(read(rows, needs_labels=True, needs_text=False), "model", ["a", "b"])
    {'a': (1.0, 2), 'b': (0.0, 1)}
    """
    counts: dict[Any, Counter[float]] = {value: Counter() for value in values}
    for batch in batches:
        labels = [] if batch.correct is None else batch.correct.tolist()
        whose = [None] * len(labels) if by is None else batch.listed(by)
        for label, own in zip(labels, whose, strict=True):
            if isinstance(own, str | int | None) and own in counts:
                counts[own][label] += 1
        if all(len(count) > 1 for count in counts.values()):
            break
    return {value: next(iter(count.items())) for value, count in counts.items() if len(count) == 1}


def on_confidences(records: Any, how: Reading, fit: QACalibrator | ModelSet) -> Iterator[str]:
    """Yield a line on further confidences that the rows have and no score reads."""
    from qacal.records.reading import read

    if all(model.score_ is None for model in models_of(fit).values()):
        return
    batch = next(iter(read(records, how, needs_labels=True, **fit.needs)))
    known = {"confidence_source", *how.columns.values()}
    known.update(name for model in models_of(fit).values() for name in model.pipeline_.columns)
    unread = [name for name in batch.table.names if name.startswith(_PREFIX) and name not in known]
    unread = [name for name in unread if _is_confidence(batch, name)]
    if unread:
        options, it = " ".join(f"--extra-confidence {name}" for name in unread), "it" if len(unread) == 1 else "them"
        yield f"The rows also have {' and '.join(unread)}; {options} lets the score read {it}."


def _is_confidence(batch: Batch, name: str) -> bool:
    """Return whether a column holds numbers in [0, 1], and some at least."""
    try:
        values = batch.partial(name)
    except InputError:
        return False
    return bool((values >= 0).any())
