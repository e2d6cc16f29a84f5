"""inspect_ai: logs as ``.eval`` (a ZIP with a JSON file for each sample) and as one ``.json``.

Nothing of a ZIP is written to disk, and of its samples only the one at hand is in memory.

A confidence in metadata is that of the LLM only if it stands as ``confidence`` in the metadata of the chosen scorer's
score, or in those of the sample; the first counts before the second. That of another scorer is not looked at: a judge
may say how sure it is of its own verdict. If the chosen scorer is such a judge, choose ``--confidence-from stated``.

Epochs are samples of one LLM on one question. The share of them that give a row's answer is a confidence in it; to
count them, a log with epochs is read twice. Epochs that ended with an error, or have no reply, do not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qacal.errors import InputError
from qacal.records.files import OnFault
from qacal.records.table import Fault
from qacal.sources.importers.base import (
    Confidence,
    Dropped,
    Found,
    OnlyName,
    Outcome,
    Scored,
    Selection,
    Unscored,
    UnusableRowError,
    inside,
    listed,
    members,
    plain_columns,
    text_of,
    texts_of,
)
from qacal.sources.importers.confidences import (
    AGREEMENT,
    METADATA,
    STATED,
    TOKENS,
    answer_in,
    by_tokens,
    choose_confidence,
    parsed,
    stated,
    written,
)
from qacal.sources.importers.correctness import graded
from qacal.sources.importers.eval_files import open_log
from qacal.sources.importers.finish_reasons import is_cut_reason
from qacal.sources.importers.items import Item, files_in, read_each
from qacal.sources.importers.texts import Question, content_of, digest, question_of

if TYPE_CHECKING:
    from qacal.sources.elicitation.reply import Reply

_ATTACHMENT = "attachment://"


def read(paths: Sequence[Path], selection: Selection, on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the samples of logs, or of all logs in folders; each epoch of a question is a row."""
    name, _, part = (selection.scorer or "").partition(":")
    scorers = OnlyName("scorer", name or None)
    for path in files_in(paths, "*.eval", "*.json"):
        agreeing = _agreeing(path, selection, scorers, part)
        with open_log(path, on_fault) as log:
            reader = _Samples(log.header, selection, scorers, part, agreeing)
            yield from read_each(log.items(), reader.outcome, on_fault)
            if "eval" not in log.header:
                raise InputError(f"{path} says nothing of an eval; expected a log of inspect_ai.")
    scorers.check()


def _agreeing(path: Path, selection: Selection, scorers: OnlyName, part: str) -> dict[str, Counter[str]]:
    """Return how often each answer was given to each question, if a log has several epochs; nothing for other logs."""
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    with open_log(path, _ignore) as log:
        items = log.items()
        first = next(items, None)
        epochs = inside(dict(log.header), "eval", "config", "epochs")
        if first is None or not isinstance(epochs, int) or epochs < 2:
            return answers
        reader = _Samples(log.header, selection, scorers, part, answers)
        for outcome in read_each(chain([first], items), reader.outcome, _ignore):
            if isinstance(outcome, Found):
                answers[outcome.id][_alike(outcome.answer)] += 1
    return answers


def _alike(answer: str) -> str:
    """Return what is the same for answers that are spelled alike; short, since there is one for each of a log."""
    from qacal.sources.elicitation.matching import normalise_answer

    return digest(normalise_answer(answer))


def _ignore(fault: Fault) -> None:
    """Leave a fault to the second reading."""


@dataclass(frozen=True)
class _Samples:
    """Reads the samples of one log; `header` may only be complete once the first sample is read.

    answers : how often each was given in all epochs, by question.
    """

    header: Mapping[str, Any]
    selection: Selection
    scorers: OnlyName
    part: str
    answers: Mapping[str, Counter[str]]

    def outcome(self, item: Item) -> Outcome:
        sample = item.value
        if "input" not in sample or "id" not in sample:
            raise UnusableRowError("there are no id and input; expected a sample of an inspect_ai log.")
        if sample.get("error") is not None:
            return Dropped("the sample ended with an error")
        name, score = self._score(sample)
        value = self._value(score)
        correct = None if value is None else graded(value, self.selection.correct_at, f"the scorer {name}")
        if isinstance(correct, Dropped):
            return correct
        completion = text_of(inside(sample, "output", "completion"))
        if completion is None:
            completion = content_of(inside(sample, "output", "choices", 0, "message", "content"))
        return Dropped("there is no reply") if completion is None else self._found(sample, score, correct, completion)

    def _score(self, sample: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        # All names are shown to the choice, so that it can say which there are.
        taken = [(name, score) for name, score in members(sample.get("scores")).items() if self.scorers.takes(name)]
        return (taken[0][0], members(taken[0][1])) if taken else ("", {})

    def _value(self, score: dict[str, Any]) -> Any:
        value = inside(score, "value")
        return value.get(self.part) if isinstance(value, dict) and self.part in value else value

    def _found(self, sample: dict[str, Any], score: Any, correct: float | None, completion: str) -> Found:
        outcome = parsed(completion, is_cut=is_cut_reason(inside(sample, "output", "choices", 0, "stop_reason")))
        choices = texts_of(sample.get("choices"))
        given = text_of(inside(score, "answer"))
        is_whole = not given or given.strip().lower() == completion.strip().lower()
        answer = given if given and not is_whole else answer_in(outcome, completion)
        task = text_of(inside(self.header, "eval", "task")) or "inspect"
        id_, epoch = f"{task}:{sample['id']}", sample.get("epoch")
        confidence = choose_confidence(
            {
                METADATA: self._written(sample, score),
                STATED: stated(outcome),
                TOKENS: by_tokens(_reply(sample, completion), answer),
                **self._agreement(id_, _meant(answer, choices)),
            },
            self.selection.confidence_from,
        )
        model = self.selection.model or text_of(inside(self.header, "eval", "model"))
        question = question_of(_attached(sample), self.selection) or Question("")
        return Found(
            id=id_,
            question=question.text,
            answer=_meant(answer, choices),
            confidence=confidence.confidence,
            correct=correct,
            key=(model, id_, text_of(epoch)),
            ground_truth=tuple(_meant(target, choices) for target in texts_of(sample.get("target"))),
            model=model,
            prompt=_template(self.header),
            task=task,
            columns={
                "epoch": epoch if isinstance(epoch, int) else 1,
                **confidence.columns,
                **plain_columns(("metadata", sample.get("metadata")), used=("confidence",)),
            },
            off_scale=confidence.off_scale,
            turns=question.turns,
        )

    def _agreement(self, id_: str, answer: str) -> dict[str, Confidence]:
        """Return the share of epochs that give an answer; nothing if there is only one."""
        answers = self.answers.get(id_, Counter())
        return {AGREEMENT: Scored(answers[_alike(answer)] / answers.total(), AGREEMENT)} if answers.total() > 1 else {}

    def _written(self, sample: dict[str, Any], score: Any) -> Confidence:
        """Return the confidence in the metadata of the chosen score, or of the sample."""
        for holder in (score, sample):
            value = inside(holder, "metadata", "confidence")
            if value is not None:
                return written(value, percent=self.selection.percent)
        return Unscored("none in the metadata")


def _attached(sample: dict[str, Any]) -> Any:
    """Return what was asked; long texts lie elsewhere in a sample, under a name."""
    attachments = sample.get("attachments")

    def resolved(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            return inside(attachments, value.removeprefix(_ATTACHMENT)) or value
        if isinstance(value, list):
            return [resolved(part) for part in value]
        return {name: resolved(part) for name, part in value.items()} if isinstance(value, dict) else value

    return resolved(sample["input"])


def _meant(answer: str, choices: Sequence[str]) -> str:
    """Return the choice that a letter stands for.

    >>> _meant("B", ["Rome", "Paris"]), _meant("Paris", ["Rome", "Paris"]), _meant("B", [])
    ('Paris', 'Paris', 'B')
    """
    place = ord(answer) - ord("A") if len(answer) == 1 else -1
    return choices[place] if 0 <= place < len(choices) else answer


def _reply(sample: dict[str, Any], completion: str) -> Reply:
    from qacal.sources.elicitation.reply import Reply

    try:
        return Reply.from_body(sample.get("output"))
    except InputError:
        return Reply(completion)


def _template(header: Mapping[str, Any]) -> str | None:
    """Return the template of the prompt, if the log's plan has one."""
    steps = listed(inside(dict(header), "plan", "steps"))
    templates = [text_of(inside(step, "params", "template")) for step in steps]
    return next((template for template in templates if template), None)
