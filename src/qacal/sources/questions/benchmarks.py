"""Questions from the rows of benchmarks, with a reader for each benchmark.

Each question is taken once; rows that cannot be asked or judged are left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from qacal.errors import InputError
from qacal.storage import digest

if TYPE_CHECKING:
    import polars as pl

# How some tasks of BIG-bench list choices in the text of a question.
_LISTED = "  choice: "
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

        Benchmarks are sorted by subject, so the first questions would share one subject. The same ids are chosen each
        time, and a larger sample contains the smaller ones.
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
    the same: its answer would count twice, and could be in training and test rows.

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
            first = questions.setdefault(question.id, question)
            if first is not question:
                same = "asks the same" if first.question == question.question else "has the same id"
                raise UnusableError(f"an earlier row {same}", question.question)
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


# Readers


def triviaqa(row: Row) -> BenchmarkQuestion:
    """Read a row of TriviaQA: an open question, its answer with many aliases, and its site as subject.

    >>> answer = {"value": "Sunset Boulevard", "aliases": ["Sunset Blvd", "Sunset Boulevard", ""]}
    >>> row = {"question_id": "tc_1", "question": "Which film?", "question_source": "quiz.net", "answer": answer}
    >>> triviaqa(row).ground_truth
    ('Sunset Boulevard', 'Sunset Blvd')
    """
    answer = _inner(row, "answer", ("value", "aliases"))
    value = _text(answer, "value")
    if value == "<unk>":
        raise UnusableError("the answer is hidden", f"answer.value is {value!r}")
    truth = _distinct([value, *_texts(answer, "aliases")])
    subject = _stripped(row, "question_source") or None
    return BenchmarkQuestion(_text(row, "question_id"), _text(row, "question"), None, truth, subject, "triviaqa")


def sciq(row: Row, with_choices: bool = False) -> BenchmarkQuestion:
    """Read a row of SciQ: an open question, as in the paper, or one with four choices."""
    question, answer = _text(row, "question"), _text(row, "correct_answer")
    choices = None
    if with_choices:
        others = [text for number in (1, 2, 3) if (text := _stripped(row, f"distractor{number}"))]
        choices = _shuffled(question, _distinct([answer, *others]))
    return BenchmarkQuestion(_id("sciq", question), question, choices, (answer,), None, "sciq")


def bigbench(row: Row, with_choices: bool = True) -> BenchmarkQuestion:
    r"""Read a row of BIG-bench, which needs the name of its task as a further column `task`.

    Most tasks with choices list them in the text of the question. They are moved from there to the choices, in the
    order of the text. Without choices, the text is unchanged.

    >>> row = {"task": "pets", "inputs": "Q: It barks?\n  choice: Cat\n  choice: Dog\nA:", "targets": ["Dog"],
    ...        "multiple_choice_targets": ["Dog", "Cat"], "multiple_choice_scores": [1, 0]}
    >>> bigbench(row).question, bigbench(row).choices
    ('Q: It barks?\nA:', ('Cat', 'Dog'))
    >>> bigbench(row, with_choices=False).question
    'Q: It barks?\n  choice: Cat\n  choice: Dog\nA:'
    """
    text, offered = _text(row, "inputs"), _choices(row, "multiple_choice_targets")
    truth = _bigbench_truth(row, offered)
    identity, task = _id("bigbench", text, *sorted(offered)), _text(row, "task")
    if not with_choices or not offered:
        return BenchmarkQuestion(identity, text, None, truth, task, "bigbench")
    lines = text.split("\n")
    choices = tuple(line.removeprefix(_LISTED).strip() for line in lines if line.startswith(_LISTED))
    if sorted(choices) == sorted(offered):
        text = "\n".join(line for line in lines if not line.startswith(_LISTED))
    else:
        choices = _shuffled(text, offered)
    return BenchmarkQuestion(identity, text, choices, truth, task, "bigbench")


def openbookqa(row: Row) -> BenchmarkQuestion:
    """Read a row of OpenBookQA: a sentence to complete with one of four choices.

    >>> choices = {"text": ["puppies", "plants"], "label": ["A", "B"]}
    >>> openbookqa({"id": "7-980", "question_stem": "The sun makes", "choices": choices, "answerKey": "B"}).ground_truth
    ('plants',)
    """
    inner = _inner(row, "choices", ("text", "label"))
    choices, labels, key = _choices(inner, "text"), _texts(inner, "label"), _stripped(row, "answerKey")
    if len(labels) != len(choices):
        raise _changed("choices.label", labels, f"{len(choices)} labels, one for each choice")
    if key not in labels:
        raise UnusableError(
            "the answer is not among the choices", f"answerKey is {key!r}; expected one of {', '.join(labels)}"
        )
    truth = choices[labels.index(key)]
    return BenchmarkQuestion(_text(row, "id"), _text(row, "question_stem"), choices, (truth,), None, "openbookqa")


def mmlu(row: Row) -> BenchmarkQuestion:
    """Read a row of MMLU: a question with four choices, and the place of the correct one.

    The text and the choices make the id, not the subject: some questions are in two subjects.
    """
    question, choices, answer = _text(row, "question"), _choices(row, "choices"), row["answer"]
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise _changed("answer", answer, "the place of the correct choice, from 0")
    # A hidden answer is -1, which Python would take for the last choice.
    if not 0 <= answer < len(choices):
        raise UnusableError(
            "the answer is not among the choices", f"answer is {answer}; expected 0 to {len(choices) - 1}"
        )
    identity, subject = _id("mmlu", question, *choices), _stripped(row, "subject") or None
    return BenchmarkQuestion(identity, question, choices, (choices[answer],), subject, "mmlu")


def _bigbench_truth(row: Row, offered: Sequence[str]) -> tuple[str, ...]:
    """Return the targets; with choices, those among the choices or, if there are none, the best-scored choices."""
    targets = _distinct(_texts(row, "targets"))
    truth = tuple(target for target in targets if target in offered or not offered)
    if not truth and offered:
        scores = row["multiple_choice_scores"] or ()
        truth = _distinct(
            [text for text, score in zip(offered, scores, strict=False) if score and score == max(scores)]
        )
    if not truth:
        reason = "the answer is not among the choices" if offered else "there is no answer"
        raise UnusableError(reason, f"targets is {list(targets)}")
    return truth


def _shuffled(question: str, choices: Sequence[str]) -> tuple[str, ...]:
    """Return choices in an order that depends on the question alone: in the data the correct one may be the first.

    The order comes from hashes, because Python's own generator may draw differently in its next version.
    """
    left, order = sorted(choices), []
    for draw in range(len(left)):
        number = int.from_bytes(sha256(f"{question}/{draw}".encode()).digest()[:8], "big")
        order.append(left.pop(number % len(left)))
    return tuple(order)


def _id(dataset: str, *texts: str) -> str:
    return f"{dataset}-{digest({'texts': texts})[:16]}"


def _text(row: Row, column: str) -> str:
    value = _stripped(row, column)
    if not value:
        raise UnusableError(f"there is no {column}", f"{column} is {row[column]!r}")
    return value


def _stripped(row: Row, column: str) -> str:
    value = row[column]
    if value is not None and not isinstance(value, str):
        raise _changed(column, value, "text")
    return (value or "").strip()


def _texts(row: Row, column: str) -> list[str]:
    values = row[column]
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(isinstance(one, str) for one in values):
        raise _changed(column, values, "a list of texts")
    return [text.strip() for text in values]


def _choices(row: Row, column: str) -> tuple[str, ...]:
    choices = tuple(_texts(row, column))
    if not all(choices):
        raise UnusableError("a choice is empty", f"{column} is {list(choices)}")
    return choices


def _distinct(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def _inner(row: Row, column: str, names: Sequence[str]) -> Mapping[str, Any]:
    value = row[column]
    if not isinstance(value, Mapping) or not set(names) <= set(value):
        raise _changed(column, value, f"an object with {' and '.join(names)}")
    return value


def _changed(column: str, value: Any, expected: str) -> InputError:
    return InputError(
        f"{column} is {value!r:.80}; expected {expected}. The data may have changed since this reader was written; "
        "ask for an earlier --revision, or make the questions yourself."
    )
