"""Find the standard columns in a table: by their names, by common other names, and by their values."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qacal.checking.confidences import number_of
from qacal.records.columns import KNOWN, LABELS, listed
from qacal.records.table import Table
from qacal.tally.arrays import is_missing

NEEDED = ("question", "answer", "confidence", "correct")
"""The columns that `fit` needs."""

# Common other names of these columns, the likeliest first. `prompt` is also a standard column, the name of a prompt
# template; it is taken for the question only if there is no question.
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
}
# A longer name matches if it contains one of these words and none of the words in _ELSE.
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

# Names of labels that are 1 if an answer is wrong; such a column must not be taken for `correct`.
_REVERSED = {"wrong", "incorrect", "error", "false", "fail", "failed", "failure", "hallucinated", "hallucination"}

_SAMPLE = 2_000
_LLMS = 50
_LEVELS = 30
_DIFFERENT = 21


@dataclass(frozen=True)
class Columns:
    """The standard columns of a table.

    names : their names in the table; columns that were not found are left out.
    guessed : columns with another name that the caller did not give.
    rival_answer : another column that looks like the LLM's answer, such as "model_answer".
    reverse : a column that seems to mark wrong answers, if no column marks correct ones.
    """

    names: Mapping[str, str]
    guessed: tuple[str, ...] = ()
    rival_answer: str | None = None
    reverse: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The columns that a fit needs and that were not found."""
        return tuple(column for column in NEEDED if column not in self.names)

    @property
    def mapping(self) -> dict[str, str]:
        """The columns with other names, as in ``columns=``."""
        return {column: name for column, name in self.names.items() if column != name}


def find_columns(table: Table, stated: Mapping[str, str]) -> Columns:
    """Find the standard columns by the first rows; `stated` are the names that the caller gave.

    >>> from qacal.records.table import as_table
    >>> rows = [{"prompt": "2 + 2?", "model_answer": "5", "conf": 0.9, "is_correct": False},
    ...         {"prompt": "3 + 3?", "model_answer": "6", "conf": 0.8, "is_correct": True}]
    >>> find_columns(as_table(rows), {}).mapping
    {'question': 'prompt', 'answer': 'model_answer', 'confidence': 'conf', 'correct': 'is_correct'}
    """
    sample = _Sample(table)
    names = {column: name for column, name in stated.items() if name in sample.names}
    taken = {*names.values()}
    names |= {name: name for name in KNOWN if name in sample.names and name not in names and name not in taken}
    guessed = []
    for column in _HOLDS:
        guess = None if column in names or column in stated else _guess(column, sample, names)
        if guess is not None:
            guessed.append(column)
            names = {name: other for name, other in names.items() if other != guess} | {column: guess}
    reverse = (name for name in sample.names if _is_reverse(name) and _are_labels(sample[name]))
    return Columns(
        {name: names[name] for name in KNOWN if name in names},
        tuple(guessed),
        _rival_answer(sample, names),
        None if "correct" in names else next(reverse, None),
    )


class _Sample(dict[str, list[Any]]):
    """The first rows of a table as columns without missing values; a column is read on its first use."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.names = table.names

    def __missing__(self, name: str) -> list[Any]:
        first = listed(self._table.column(name))[:_SAMPLE]
        self[name] = [value for value in first if not is_missing(value)]
        return self[name]


def _guess(column: str, sample: _Sample, names: Mapping[str, str]) -> str | None:
    """Return the most likely name of a standard column in the table; None if there is no likely one."""
    taken = {*names.values()} - ({"prompt"} if column == "question" else set())
    free = [name for name in sample.names if name not in taken and not (column == "correct" and _is_reverse(name))]
    spelled = {name: _spelled(name) for name in free}
    by_name = [name for name in free if spelled[name] == column]
    by_name += [name for other in _OTHER_NAMES[column] for name in free if spelled[name] == other]
    words = _WORDS.get(column, set())
    parts = {name: {*spelled[name].split("_")} for name in free}
    by_name += [name for name in free if parts[name] & words and not parts[name] & (_ELSE - words)]
    named = [name for name in by_name if _HOLDS[column](sample[name])]
    if named or column not in ("confidence", "correct"):
        return named[0] if named else None
    # Otherwise the only column with such values, whatever its name.
    holds = _are_probabilities if column == "confidence" else _are_two_labels
    fitting = [name for name in free if holds(sample[name])]
    if len(fitting) == 1:
        return fitting[0]
    # Otherwise labels in words that qacal does not read, such as "ja" and "nein".
    pairs = [name for name in by_name if column == "correct" and len({*map(str, sample[name])}) == 2]
    return pairs[0] if pairs else None


def _spelled(name: str) -> str:
    """Return a name in snake case without accents.

    >>> _spelled("modelAnswer"), _spelled(" Is Correct? "), _spelled("Réponse")
    ('model_answer', 'is_correct', 'reponse')
    """
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")


def _is_reverse(name: str) -> bool:
    return bool({*_spelled(name).split("_")} & _REVERSED)


def _rival_answer(sample: _Sample, names: Mapping[str, str]) -> str | None:
    """Return another column that may be the LLM's answer, because `answer` may be the expected one."""
    if names.get("answer") != "answer":
        return None
    spelled = {_spelled(name): name for name in sample.names if name not in names.values()}
    likely = (spelled[other] for other in _OTHER_NAMES["answer"] if other in spelled and len(other) > 1)
    return next((name for name in likely if _are_texts(sample[name])), None)


# Values that a column must have


def _are_texts(values: list[Any]) -> bool:
    texts = sum(isinstance(value, str) and number_of(value) is None for value in values)
    return bool(values) and texts > len(values) / 2


def _are_questions(values: list[Any]) -> bool:
    """Return whether values are texts that differ from row to row, unlike names of prompts."""
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
    # With a single LLM the name of the column does not matter.
    "model": lambda values: 1 < len({*map(str, values)}) <= _LLMS,
}
