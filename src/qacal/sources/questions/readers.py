"""One reader for each benchmark: from a row of the hub to a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from qacal.errors import InputError
from qacal.sources.questions.gathering import BenchmarkQuestion, Row, UnusableError
from qacal.storage import digest

# How some tasks of BIG-bench list choices in the text of a question.
_LISTED = "  choice: "


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
    """Return the targets; of a question with choices, those that are choices, or else the choices with a score."""
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
    """Return choices in an order that hashes of the question decide: in the data the correct one may be the first.

    Python's own generator may draw differently in its next version.
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
