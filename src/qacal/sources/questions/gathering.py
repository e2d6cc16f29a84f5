"""Questions from the rows of a benchmark: each asked once, and what cannot be asked or judged left out and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from qacal.errors import InputError

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("id", "question", "choices", "ground_truth", "subject", "dataset")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class BenchmarkQuestion:
    """A question of a benchmark.

    id : tells it from others; the same in every split, slice and form in which the question is met.
    choices : what to choose from; None for an open question.
    ground_truth : the right answer and its other spellings, the canonical one first.
    subject : what the benchmark sorts it under; None if it does not.
    """

    id: str
    question: str
    choices: tuple[str, ...] | None
    ground_truth: tuple[str, ...]
    subject: str | None
    dataset: str


Reader = Callable[[Row], BenchmarkQuestion]


class UnusableError(Exception):
    """A row cannot be asked or judged: why, in words that can be counted, and what it holds."""

    def __init__(self, reason: str, got: str) -> None:
        super().__init__(reason, got)
        self.reason, self.got = reason, got


@dataclass(frozen=True)
class LeftOut:
    """Rows that were left out for one reason: how many, and the first of them."""

    count: int
    first: str


@dataclass(frozen=True)
class Gathered:
    """The questions of a benchmark, and why its other rows are none.

    left_out : reasons, the number of rows for each, and the first such row.
    """

    questions: tuple[BenchmarkQuestion, ...]
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)

    def sample(self, limit: int) -> Gathered:
        """Return so many questions from all over the set: those whose ids have the lowest hashes, in their old order.

        Benchmarks are sorted by subject, so the first few questions would be of one. The same ids are chosen each time,
        and a larger sample holds the smaller ones.
        """
        lowest = sorted(self.questions, key=lambda one: sha256(one.id.encode()).digest())[:limit]
        chosen = {one.id for one in lowest}
        return Gathered(tuple(one for one in self.questions if one.id in chosen), self.left_out)

    def frame(self) -> pl.DataFrame:
        """Return the questions as a table, a row a question."""
        import polars as pl

        texts = pl.List(pl.String)
        schema = {name: texts if name in ("choices", "ground_truth") else pl.String for name in COLUMNS}
        return pl.DataFrame([asdict(one) for one in self.questions], schema=schema, orient="row")


def gather(rows: Iterable[Row], reader: Reader) -> Gathered:
    """Make questions of rows, and count those that cannot be used.

    A row is left out if it cannot be asked or judged (no answer, a key that names no choice), or if an earlier row has
    asked the same: an LLM would answer it in the same way, so its answers would be counted twice, and be among the rows
    that fit a model and those that measure it.

    >>> from qacal.sources.questions import mmlu
    >>> capital = {"question": "Capital of Peru?", "subject": "geography", "choices": ["Quito", "Lima"], "answer": 1}
    >>> gathered = gather([capital, capital, capital | {"question": "Capital of Chad?", "answer": 7}], mmlu)
    >>> [one.ground_truth for one in gathered.questions]
    [('Lima',)]
    >>> for reason, rows in gathered.left_out.items():
    ...     print(f"{rows.count}: {reason} (first: {rows.first})")
    1: an earlier row asks the same (first: row 2: Capital of Peru?)
    1: the answer is none of the choices (first: row 3: answer is 7; expected 0 to 1)
    """
    found: dict[str, BenchmarkQuestion] = {}
    left_out: dict[str, LeftOut] = {}
    place = 0
    for place, row in enumerate(rows, 1):
        try:
            question = _read(row, reader, place)
            _require_new(question, found.get(question.id), place)
            found[question.id] = question
        except UnusableError as unusable:
            before = left_out.get(unusable.reason, LeftOut(0, f"row {place}: {unusable.got}"))
            left_out[unusable.reason] = replace(before, count=before.count + 1)
    if not found:
        raise InputError(_nothing(place, left_out))
    return Gathered(tuple(found.values()), left_out)


def _read(row: Row, reader: Reader, place: int) -> BenchmarkQuestion:
    try:
        return reader(row)
    except InputError as error:
        raise InputError(f"row {place}: {error}") from None


def _require_new(question: BenchmarkQuestion, earlier: BenchmarkQuestion | None, place: int) -> None:
    if earlier is None:
        return
    if question.question != earlier.question:
        raise InputError(
            f"row {place}: id {question.id} belongs to {earlier.question!r:.60} already, and here to "
            f"{question.question!r:.60}. Ids must tell questions apart; mend them."
        )
    if (question.choices, question.ground_truth) == (earlier.choices, earlier.ground_truth):
        raise UnusableError("an earlier row asks the same", question.question)
    raise UnusableError("an earlier row asks the same, with another answer or other choices", question.question)


def _nothing(rows: int, left_out: Mapping[str, LeftOut]) -> str:
    if not rows:
        return "there is no row; ask for another --split."
    reasons = "; ".join(f"{reason} ({one.count:,} rows; {one.first:.100})" for reason, one in left_out.items())
    return f"no row can be used: {reasons}. Test splits often hide their answers; ask for another --split."
