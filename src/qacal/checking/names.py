"""Which column is which: by its name, by the names that others use, and by what it holds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qacal.checking.confidences import number_of
from qacal.records.columns import KNOWN, LABELS, listed
from qacal.records.table import Table
from qacal.tally.arrays import is_missing

NEEDED = ("question", "answer", "confidence", "correct")
"""The columns that `fit` needs."""

# What others call these columns, the likeliest first. `prompt` is also a column of ours, which names the prompt that an
# LLM was asked with; it is taken for the question only where there is no question.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "question": (
        *("question_text", "query", "prompt", "input", "problem", "user_input", "user_message", "user_prompt"),
        *("instruction", "request", "stem", "user", "q", "text", "frage", "pregunta", "domanda"),
    ),
    "answer": (
        *("model_answer", "llm_answer", "generated_answer", "predicted_answer", "answer_text", "response"),
        *("model_response", "llm_response", "output", "model_output", "llm_output", "actual_output", "completion"),
        *("generation", "generated_text", "prediction", "predicted", "pred", "reply", "guess", "assistant", "a"),
        *("antwort", "reponse", "respuesta", "risposta"),
    ),
    "confidence": (
        *("conf", "confidence_score", "stated_confidence", "model_confidence", "llm_confidence", "self_confidence"),
        *("verbalized_confidence", "verbalised_confidence", "answer_confidence", "certainty", "probability", "prob"),
        *("p_correct", "p_true", "likelihood", "confidence_level", "confidence_pct", "score", "p"),
        *("sicherheit", "konfidenz", "confiance", "confianza", "fiducia"),
    ),
    "correct": (
        *("is_correct", "correctness", "is_right", "right", "label", "human_label", "correct_label", "is_true"),
        *("accurate", "accuracy", "acc", "exact_match", "em", "passed", "pass", "success", "verdict", "graded"),
        *("grade", "judgement", "judgment", "evaluation", "outcome", "result", "score", "ok"),
        *("richtig", "korrekt", "juste", "correcte", "correcto", "correcta", "corretto"),
    ),
    "model": ("model_name", "model_id", "llm", "llm_name", "engine", "deployment"),
    "id": ("question_id", "qid", "item_id", "example_id", "sample_id", "doc_id", "task_id", "uid", "uuid", "key"),
}
# A longer name is taken for the role that one of its words names, unless another word says that it is something else.
_WORDS = {
    "question": {"question", "query", "prompt"},
    "answer": {"answer", "response", "completion", "prediction"},
    "confidence": {"confidence", "conf", "certainty"},
    "correct": {"correct", "correctness"},
}
_ELSE = {
    *("gold", "golden", "reference", "expected", "target", "truth", "ideal", "ground", "right", "true", "correct"),
    *("id", "length", "len", "time", "tokens", "source", "type", "count", "date", "hash", "model", "url"),
}

# Labels that are 1 where an answer is wrong; to take one for `correct` would reverse all labels.
_REVERSED = {"wrong", "incorrect", "error", "false", "fail", "failed", "failure", "hallucinated", "hallucination"}

_SAMPLE = 2_000
_LLMS = 50
_LEVELS = 30
_DIFFERENT = 21


@dataclass(frozen=True)
class Columns:
    """Which column of a table is which.

    names : the name in the table of each column of ours; those that were not found are left out.
    guessed : those of them that have another name, which no person gave.
    rival_answer : another column that looks like the LLM's answer, such as "model_answer".
    reverse : a column that seems to say which answers are wrong, where none says which are correct.
    candidates : for a column that a fit needs and that was not found, those that hold such values.
    """

    names: Mapping[str, str]
    guessed: tuple[str, ...] = ()
    rival_answer: str | None = None
    reverse: str | None = None
    candidates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """The columns that a fit needs, and that were not found."""
        return tuple(column for column in NEEDED if column not in self.names)

    @property
    def mapping(self) -> dict[str, str]:
        """The names of columns that have another name, as in ``columns=``."""
        return {column: name for column, name in self.names.items() if column != name}


def find_columns(table: Table, stated: Mapping[str, str]) -> Columns:
    """Return which column is which, judged by the first rows; `stated` are the names that a person gave.

    >>> from qacal.records.table import as_table
    >>> rows = [{"prompt": "2 + 2?", "model_answer": "5", "conf": 0.9, "is_correct": False},
    ...         {"prompt": "3 + 3?", "model_answer": "6", "conf": 0.8, "is_correct": True}]
    >>> find_columns(as_table(rows), {}).mapping
    {'question': 'prompt', 'answer': 'model_answer', 'confidence': 'conf', 'correct': 'is_correct'}
    """
    sample = _Sample(table)
    names = {column: own for column, own in stated.items() if own in sample.names}
    taken = {*names.values()}
    names |= {name: name for name in KNOWN if name in sample.names and name not in names and name not in taken}
    guessed = []
    for column in _OTHER_NAMES:
        # What a person has named is not guessed again.
        own = None if column in names or column in stated else _guess(column, sample, names)
        if own is not None:
            guessed.append(column)
            names = {name: other for name, other in names.items() if other != own} | {column: own}
    reverse = (name for name in sample.names if _is_reverse(name) and _are_labels(sample[name]))
    unsure = {column: _candidates(column, sample, names) for column in NEEDED if column not in {*names, *stated}}
    return Columns(
        {name: names[name] for name in KNOWN if name in names},
        tuple(guessed),
        _rival_answer(sample, names),
        None if "correct" in names else next(reverse, None),
        {column: candidates for column, candidates in unsure.items() if candidates},
    )


def column_called(name: str) -> str | None:
    """Return the column of ours that others give this name; None if none is known by it.

    >>> column_called("Frage"), column_called("modelAnswer"), column_called("subject")
    ('question', 'answer', None)
    """
    return next((column for column, others in _OTHER_NAMES.items() if _spelled(name) in others), None)


class _Sample(dict[str, list[Any]]):
    """The first rows of a table, column by column, without what is missing; a column is read when it is used."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.names = table.names

    def __missing__(self, name: str) -> list[Any]:
        first = listed(self._table.column(name))[:_SAMPLE]
        self[name] = [value for value in first if not is_missing(value)]
        return self[name]


def _guess(column: str, sample: _Sample, known: Mapping[str, str]) -> str | None:
    """Return the column of the table that is most likely meant, None if none is likely."""
    taken = {*known.values()} - ({"prompt"} if column == "question" else set())
    free = [name for name in sample.names if name not in taken and not (column == "correct" and _is_reverse(name))]
    if column == "id":
        return _guessed_id(sample, free, known.get("question"))
    spelled = {name: _spelled(name) for name in free}
    by_name = [name for name in free if spelled[name] == column]
    by_name += [name for other in _OTHER_NAMES[column] for name in free if spelled[name] == other]
    words = _WORDS.get(column, set())
    parts = {name: {*spelled[name].split("_")} for name in free}
    by_name += [name for name in free if parts[name] & words and not parts[name] & (_ELSE - words)]
    named = [name for name in by_name if _HOLDS[column](sample[name])]
    if named or column not in ("confidence", "correct"):
        return named[0] if named else None
    # The only column that holds such values, whatever its name.
    holds = _are_probabilities if column == "confidence" else _are_two_labels
    fitting = [name for name in free if holds(sample[name])]
    if len(fitting) == 1:
        return fitting[0]
    # Labels in words that are not read, such as "ja" and "nein".
    pairs = [name for name in by_name if column == "correct" and len({*map(str, sample[name])}) == 2]
    return pairs[0] if pairs else None


def _spelled(name: str) -> str:
    """Return a name in small letters without accents, with underscores.

    >>> _spelled("modelAnswer"), _spelled(" Is Correct? "), _spelled("Réponse")
    ('model_answer', 'is_correct', 'reponse')
    """
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")


def _is_reverse(name: str) -> bool:
    return bool({*_spelled(name).split("_")} & _REVERSED)


def _candidates(column: str, sample: _Sample, known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that hold what is looked for, and are not known to be something else."""
    holds = _are_texts if column == "answer" else _HOLDS[column]
    free = [name for name in sample.names if name not in known.values() and not _is_reverse(name)]
    return tuple(name for name in free if holds(sample[name]))


def _guessed_id(sample: _Sample, free: list[str], question: str | None) -> str | None:
    """Return a column of ids, if it tells more than the texts do: a question may be worded in two ways."""
    if question is None:
        return None
    texts = len({*map(str, sample[question])})
    named = (name for other in _OTHER_NAMES["id"] for name in free if _spelled(name) == other)
    return next((name for name in named if 1 < len({*map(str, sample[name])}) < texts), None)


def _rival_answer(sample: _Sample, known: Mapping[str, str]) -> str | None:
    """Return another column that seems to be the answer of the LLM; the one called `answer` may be the expected one."""
    if known.get("answer") != "answer":
        return None
    names = {_spelled(name): name for name in sample.names if name not in known.values()}
    likely = (names[other] for other in _OTHER_NAMES["answer"] if other in names and len(other) > 1)
    return next((name for name in likely if _are_texts(sample[name])), None)


# What a column must hold


def _are_texts(values: list[Any]) -> bool:
    texts = sum(isinstance(value, str) and number_of(value) is None for value in values)
    return bool(values) and texts > len(values) / 2


def _are_questions(values: list[Any]) -> bool:
    """Return whether values are texts that differ from row to row: the name of a prompt is the same in many."""
    return _are_texts(values) and len({*map(str, values)}) >= min(_DIFFERENT, len(values) / 2)


def _are_confidences(values: list[Any]) -> bool:
    numbers = [number_of(value) for value in values if not isinstance(value, bool)]
    if sum(number is not None for number in numbers) > len(values) / 2:
        return not {*numbers} <= {None, 0.0, 1.0}
    words = {value.strip().lower() for value in values if isinstance(value, str)}
    return 1 < len(words) <= _LEVELS and not words <= {*LABELS} and len(words) < len(values) / 2


def _are_probabilities(values: list[Any]) -> bool:
    numbers = {None if isinstance(value, bool) else number_of(value) for value in values}
    return len(numbers) > 2 and all(number is not None and 0 <= number <= 1 for number in numbers)


def _are_labels(values: list[Any]) -> bool:
    return bool(values) and sum(_is_label(value) for value in values) > len(values) / 2


def _is_label(value: Any) -> bool:
    is_word = isinstance(value, str) and value.strip().lower() in LABELS
    return is_word or isinstance(value, bool) or number_of(value) in (0.0, 1.0)


def _are_two_labels(values: list[Any]) -> bool:
    return len({str(value) for value in values}) == 2 and all(map(_is_label, values))


_HOLDS: Mapping[str, Callable[[list[Any]], bool]] = {
    "question": _are_questions,
    "answer": lambda values: bool(values) and all(isinstance(value, str | int | float) for value in values),
    "confidence": _are_confidences,
    "correct": _are_labels,
    # A single LLM is no problem, whatever its column is called.
    "model": lambda values: 1 < len({*map(str, values)}) <= _LLMS,
}
