"""Questions from the rows of a benchmark, each once; rows that cannot be asked or judged are left out and counted."""

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

    id : the same in every split, slice and form of the question.
    choices : the answers to choose from; None for an open question.
    ground_truth : the spellings of the correct answer, the canonical one first.
    subject : the benchmark's category; None if it has none.
    """

    id: str
    question: str
    choices: tuple[str, ...] | None
    ground_truth: tuple[str, ...]
    subject: str | None
    dataset: str


Reader = Callable[[Row], BenchmarkQuestion]


class UnusableError(Exception):
    """A row that cannot be asked or judged: the reason, and the value that shows it."""

    def __init__(self, reason: str, got: str) -> None:
        super().__init__(reason, got)
        self.reason, self.got = reason, got


@dataclass(frozen=True)
class LeftOut:
    """Rows that were left out for one reason: their number, and the first of them."""

    count: int
    first: str


@dataclass(frozen=True)
class Gathered:
    """The questions of a benchmark, and by reason the rows that were left out."""

    questions: tuple[BenchmarkQuestion, ...]
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)

    def sample(self, limit: int) -> Gathered:
        """Return a sample of the questions: those with the lowest hashes of ids, in their order.

        Benchmarks are sorted by subject, so the first few questions would have one subject. The same ids are chosen
        each time, and a larger sample contains the smaller ones.
        """
        ids = sorted((one.id for one in self.questions), key=lambda id_: sha256(id_.encode()).digest())
        chosen = set(ids[:limit])
        return Gathered(tuple(one for one in self.questions if one.id in chosen), self.left_out)

    def frame(self) -> pl.DataFrame:
        """Return the questions as a table."""
        import polars as pl

        texts = pl.List(pl.String)
        schema = {name: texts if name in ("choices", "ground_truth") else pl.String for name in COLUMNS}
        return pl.DataFrame([asdict(one) for one in self.questions], schema=schema, orient="row")


def gather(rows: Iterable[Row], reader: Reader) -> Gathered:
    """Return the questions of rows, and count the rows that cannot be used.

    A row is left out if it cannot be asked or judged (no answer, a key that names no choice), or if an earlier row asks
    the same: an LLM would give the same answer, which would count twice, and be both in training and in test rows.

    >>> from qacal.sources.questions import mmlu
    >>> capital = {"question": "Capital of Peru?", "subject": "geography", "choices": ["Quito", "Lima"], "answer": 1}
    >>> gathered = gather([capital, capital, capital | {"question": "Capital of Chad?", "answer": 7}], mmlu)
    >>> [one.ground_truth for one in gathered.questions]
    [('Lima',)]
    >>> for reason, rows in gathered.left_out.items():
    ...     print(f"{rows.count}: {reason} (first: {rows.first})")
    1: an earlier row asks the same (first: row 2: Capital of Peru?)
    1: the answer is not among the choices (first: row 3: answer is 7; expected 0 to 1)
    """
    questions: dict[str, BenchmarkQuestion] = {}
    left_out: dict[str, LeftOut] = {}
    place = 0
    for place, row in enumerate(rows, 1):
        try:
            question = reader(row)
            _require_new(question, questions.get(question.id))
            questions[question.id] = question
        except InputError as error:
            raise InputError(f"row {place}: {error}") from None
        except UnusableError as unusable:
            before = left_out.get(unusable.reason, LeftOut(0, f"row {place}: {unusable.got}"))
            left_out[unusable.reason] = replace(before, count=before.count + 1)
    if not place:
        raise InputError("there is no row; ask for another --split.")
    if not questions:
        reasons = "; ".join(f"{reason} ({one.count:,} rows; {one.first:.100})" for reason, one in left_out.items())
        raise InputError(
            f"no row can be used: {reasons}. Test splits often hide their answers; ask for another --split."
        )
    return Gathered(tuple(questions.values()), left_out)


def _require_new(question: BenchmarkQuestion, earlier: BenchmarkQuestion | None) -> None:
    if earlier is None:
        return
    if question.question != earlier.question:
        raise InputError(
            f"id {question.id} belongs to {earlier.question!r:.60} already, and here to "
            f"{question.question!r:.60}. Each question needs its own id; fix them."
        )
    if (question.choices, question.ground_truth) == (earlier.choices, earlier.ground_truth):
        raise UnusableError("an earlier row asks the same", question.question)
    raise UnusableError("an earlier row asks the same, with another answer or other choices", question.question)
