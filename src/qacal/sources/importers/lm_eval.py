r"""lm-evaluation-harness: the files ``samples_<task>_<time>.jsonl`` of ``--log_samples``, one row per question.

A task with several filters has a row for each of them, with another answer and another score. One filter is imported.

**Choices.** Each choice :math:`c` has a log-likelihood :math:`\ell_c`. A metric is a rule for the best choice:

* ``acc``: the largest :math:`\ell_c`;
* ``acc_norm``: the largest :math:`\ell_c` for each character of the choice;
* ``acc_bytes``: the largest :math:`\ell_c` for each byte of the choice in UTF-8;
* ``acc_mutual_info``: the largest :math:`\ell_c - \ell_c^0`; :math:`\ell_c^0` is computed without the question.

The confidence is the softmax of the same numbers at the best choice, so answer, confidence and `correct` follow one
rule. After division by a length the numbers are close together, so these confidences stay near one over the number of
choices. They rank answers, but need calibration.

**Replies.** The confidence is stated in the text, or is the share of repeats that agree. The answer of a repeat is what
the task's filter extracts. A row has only the answer of the judged repeat; the steps of the filter are in
``results_*.json`` and are applied to the other repeats here. The log does not say why a reply ended. A reply that was
cut off within its number looks like any other, so the limit of a task (``max_gen_toks``) must be large enough.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.records.text_files import JsonDocument, opened_text
from qacal.sources.elicitation.agreement import Votes
from qacal.sources.elicitation.patterns import PatternError, all_matches
from qacal.sources.importers.base import Dropped, Item, Log, Outcome, Question, UnusableRowError
from qacal.sources.importers.confidences import (
    AGREEMENT,
    LIKELIHOOD,
    STATED,
    Confidence,
    Scored,
    Unscored,
    agreement,
    bare_number,
    stated_reply,
)
from qacal.sources.importers.formats import OnlyName
from qacal.sources.importers.texts import first, inside, listed, members, named_text, prompt_of, texts_of

_NAME = re.compile(r"samples_(?P<task>.+?)(?:_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+))?\.jsonl(?:\.gz)?")
_QUESTIONS = ("question", "question_stem", "query", "problem", "goal", "input", "inputs")
_KINDS = {"arguments": dict, "metrics": list, "filtered_resps": list}
_NO_RESULTS = "no results_*.json beside the samples says what the filter extracts"
_NO_STEP = "a step of its filter cannot be applied here: it is a custom function"
# The text that lm-eval's filters write if they find no answer.
_NOTHING_FOUND = "[invalid]"
# lm-eval's default.
_PATTERN = r"#### (\-?[0-9\.\,]+)"


def read(log: Log) -> Iterator[Outcome]:
    """Yield the rows of sample files, or of all of them in folders."""
    selection = log.selection
    for path in log.files("samples_*.jsonl", "samples_*.jsonl.gz"):
        filters = OnlyName("filter", selection.filter, "--filter", f"{path}: ")
        name = _NAME.fullmatch(path.name)
        task = name["task"] if name else path.name.removesuffix(".gz").removesuffix(".jsonl")
        folder = path.absolute().parent
        # The results of the same run are beside its samples, and lm-eval names the folder after the LLM.
        files = sorted(folder.glob("results_*.json"))
        of_run = [file for file in files if name and name["time"] and name["time"] in file.name] or files[-1:]
        results = _results(of_run[0]) if of_run else {}
        model_name = inside(results, "model_name")
        logged = model_name if isinstance(model_name, str) else None
        model = selection.model or logged or folder.name.replace("__", "/")
        samples = _Samples(log, task, model, filters, _steps(results, task))
        yield from log.rows(path, samples.outcome)
        if selection.filter is None:
            filters.check()


def _results(path: Path) -> dict[str, Any]:
    with opened_text(path) as stream:
        document = JsonDocument(stream, str(path))
        list(document.items())
        return document.header


@dataclass(frozen=True)
class _Samples:
    log: Log
    task: str
    model: str
    filters: OnlyName
    steps: Mapping[str, list[dict[str, Any]]]

    def outcome(self, item: Item) -> Outcome:
        row = item.value
        is_sample = all(isinstance(row.get(name), kind) for name, kind in _KINDS.items())
        if "doc_id" not in row or not is_sample or not row["filtered_resps"]:
            raise UnusableRowError(
                "there are no doc_id, arguments, metrics and filtered_resps; expected a row of lm-eval's samples. "
                "Those of old versions cannot be read."
            )
        filter_ = str(row.get("filter", "none"))
        if not self.filters.takes(filter_):
            return Dropped(f"it is of the filter {filter_}")
        sample = Sample.of(row, self.steps.get(filter_))
        if self.log.selection.metric not in (None, *sample.metrics):
            return Dropped(f"it has no metric {self.log.selection.metric}, but {', '.join(sample.metrics) or 'none'}")
        judged = (_judged_choice if sample.has_likelihoods else _judged_reply)(sample, self.log)
        if isinstance(judged, Dropped):
            return judged
        id_ = f"{self.task}:{row['doc_id']}"
        named = named_text(sample.doc, _QUESTIONS)
        return self.log.row(
            Question(named[1]) if named else self.log.question(sample.prompt) or Question(""),
            judged.answer,
            judged.correct,
            {judged.source: judged.confidence},
            identity=id_,
            model=self.model,
            key=(self.model, id_, filter_),
            ground_truth=judged.ground_truth,
            prompt=prompt_of(sample.prompt),
            task=self.task,
            columns={"filter": filter_, **judged.columns},
            objects=[("doc", sample.doc)],
            used=named[:1] if named else (),
        )


def _steps(results: Any, task: str) -> dict[str, list[dict[str, Any]]]:
    """Return the steps of each filter of a task."""
    filters = listed(inside(results, "configs", task, "filter_list"))
    steps = {inside(filter_, "name"): inside(filter_, "filter") for filter_ in filters}
    return {
        name: parts
        for name, parts in steps.items()
        if isinstance(name, str) and isinstance(parts, list) and all(isinstance(part, dict) for part in parts)
    }


@dataclass(frozen=True, slots=True)
class Judged:
    """The answer of a row with its confidence, the source of that, its label, and the columns of its repeats."""

    answer: str
    source: str
    confidence: Confidence
    correct: float | None
    ground_truth: tuple[str, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """A row.

    requests : what the LLM was asked: a context, and the text that follows it or how to generate one.
    metrics : the names of metrics with a number.
    steps : the steps of the row's filter, if the results list them.
    """

    row: dict[str, Any]
    doc: dict[str, Any]
    requests: list[list[Any]]
    metrics: tuple[str, ...]
    steps: Sequence[Mapping[str, Any]] | None

    @staticmethod
    def of(row: dict[str, Any], steps: Sequence[Mapping[str, Any]] | None) -> Sample:
        """Return the parts of a row."""
        values = {name: row.get(name) for name in row["metrics"] if isinstance(name, str)}
        numeric = (
            name
            for name, value in values.items()
            if isinstance(value, bool) or (isinstance(value, int | float) and math.isfinite(bare_number(value)))
        )
        requests = [list(request.values()) for request in map(members, row["arguments"].values()) if request]
        return Sample(row, members(row.get("doc")), requests, tuple(numeric), steps)

    @property
    def has_likelihoods(self) -> bool:
        """True if choices were compared, false if text was generated."""
        response = first(inside(self.row, "resps", 0, 0), self.row["filtered_resps"][0])
        return isinstance(response, list) and len(response) == 2 and str(response[1]) in ("True", "False")

    @property
    def prompt(self) -> Any:
        """The context of the first request: text, or the messages of a chat."""
        context = inside(self.requests, 0, 0)
        return context[0] if isinstance(context, list) and len(context) == 1 else context

    @property
    def targets(self) -> tuple[str, ...]:
        """The correct answers; a list is text in the log, and its numbers are places of choices or part of the text."""
        target = self.row.get("target")
        # Longer texts are answers, not lists of answers.
        if isinstance(target, str) and target[:1] == "[" and len(target) <= 10_000:
            try:
                parts = ast.literal_eval(target)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return (target,)
            are_texts = isinstance(parts, list) and all(isinstance(part, str) for part in parts)
            return texts_of(parts if self.has_likelihoods or are_texts else target)
        return texts_of(target)


@dataclass(frozen=True)
class Choice:
    """A choice with its log-likelihood; `alone` is the one without the question, if the log has it."""

    text: str
    loglikelihood: float
    alone: float = math.nan


def _by_length(length: Callable[[str], int]) -> Callable[[Choice], float]:
    # An empty choice has no length to divide by, and cannot be compared with others.
    return lambda choice: choice.loglikelihood / length(choice.text) if choice.text else math.nan


RULES: dict[str, Callable[[Choice], float]] = {
    "acc": lambda choice: choice.loglikelihood,
    "acc_norm": _by_length(len),
    "acc_bytes": _by_length(lambda text: len(text.encode(errors="surrogatepass"))),
    "acc_mutual_info": lambda choice: choice.loglikelihood - choice.alone,
}


def best_choice(choices: Sequence[Choice], metric: str = "acc") -> tuple[int, Scored] | None:
    """Return which choice is best by a metric's rule (the first of equals), and the confidence in it.

    None if a choice has no likelihood: it might be the best.

    >>> best, confidence = best_choice([Choice("Rome", math.log(0.2)), Choice("Paris", math.log(0.6))])
    >>> best, round(confidence.value, 6), confidence.source
    (1, 0.75, 'choice likelihood')
    """
    values = [RULES[metric](choice) for choice in choices]
    if any(math.isnan(value) for value in values) or not math.isfinite(max(values)):
        return None
    best = max(range(len(values)), key=values.__getitem__)
    total = math.fsum(math.exp(value - values[best]) for value in values)
    return best, Scored(1 / total, LIKELIHOOD if metric == "acc" else f"{LIKELIHOOD} ({metric})")


def _judged_choice(sample: Sample, log: Log) -> Judged | Dropped:
    """Return the best choice by the rule of the metric, which is `acc` by default."""
    choices = _choices(sample)
    if len(choices) < 2:
        return Dropped("there is one choice only: its likelihood is that of the target, not of an answer")
    metric = log.selection.metric or next((name for name in RULES if name in sample.metrics), "acc")
    if metric not in RULES:
        return Dropped(f"{metric} does not say whether the choice is correct")
    if metric in ("acc_norm", "acc_bytes") and len({str(request[1]) for request in sample.requests}) == 1:
        return Dropped(f"its choices are contexts: lm-eval does not log the lengths that {metric} divides by")
    chosen = best_choice(choices, metric)
    if chosen is None:
        return Dropped("a choice has no likelihood, so the best one is not known")
    best, confidence = chosen
    correct = sample.row.get(metric)
    if correct is not None and correct not in (0, 1):
        return Dropped(f"{metric} is a fraction, so it does not say whether the choice is correct")
    texts = _shown(sample, [choice.text for choice in choices])
    right = _right(sample, texts, [choice.text for choice in choices])
    if right and correct is not None and (best in right) != bool(correct):
        raise UnusableRowError(
            f"{metric} is {correct}, though by its rule the best choice is {'' if best in right else 'not '}the "
            "target; the log judges by another rule. Try another --metric."
        )
    truths = tuple(texts[place] for place in sorted(right)) if right else (texts[best],) if correct else ()
    return Judged(texts[best], LIKELIHOOD, confidence, None if correct is None else float(correct), truths)


def _choices(sample: Sample) -> list[Choice]:
    """Return the choices. With acc_mutual_info each is listed twice, the second time without a context."""
    numbers = [bare_number(inside(response, 0)) for response in sample.row["filtered_resps"]]
    pairs = [(request[0], request[1]) for request in sample.requests if len(request) > 1]
    if len(pairs) != len(numbers):
        raise UnusableRowError(f"there are {len(numbers)} likelihoods and {len(pairs)} arguments; expected as many.")
    alone = [number for number, (context, _) in zip(numbers, pairs, strict=True) if context == ""]
    if 2 * len(alone) == len(pairs):
        numbers = [number for number, (context, _) in zip(numbers, pairs, strict=True) if context != ""]
        pairs = [pair for pair in pairs if pair[0] != ""]
    else:
        alone = [math.nan] * len(pairs)
    return list(map(Choice, _choice_texts(pairs), numbers, alone))


def _choice_texts(pairs: list[tuple[Any, Any]]) -> list[str]:
    """Return the texts of the choices: what follows the context or, if that is the same for all, the contexts."""
    endings = [str(ending) for _, ending in pairs]
    if len(set(endings)) > 1 or len(pairs) == 1:
        # lm-eval measures the choice without the space that it puts before it.
        return [ending.lstrip() for ending in endings]
    words = [re.split(r"(?<=\s)", str(context)) for context, _ in pairs]
    shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))
    return ["".join(parts[shared:]) for parts in words]


def _shown(sample: Sample, texts: list[str]) -> list[str]:
    """Return the choices as the question lists them, instead of the letters A, B, ..."""
    if texts != [chr(ord("A") + place) for place in range(len(texts))]:
        return texts
    choices = sample.doc.get("choices")
    named = texts_of(inside(choices, "text") if isinstance(choices, dict) else choices)
    return list(named) if len(named) == len(texts) else texts


def _right(sample: Sample, shown: list[str], texts: list[str]) -> set[int]:
    """Return the correct choices, as far as they are clear: a target is a place, or the text of a choice."""
    right = set()
    for target in sample.targets:
        by_text = {place for place in range(len(texts)) if target in (texts[place], shown[place])}
        by_place = {place for place in range(len(texts)) if target == str(place)}
        if by_text and by_place and by_text != by_place:
            return set()
        right |= by_text or by_place
    return right


def _judged_reply(sample: Sample, log: Log) -> Judged | Dropped:
    """Return the judged answer: the text that the filter extracted or, without one, the answer of the parser."""
    repeats = _reply_texts(inside(sample.row, "resps", 0)) or _reply_texts(sample.row["filtered_resps"])
    filtered = sample.row["filtered_resps"][0]
    if not repeats:
        return Dropped("there is no reply")
    metric = _metric(sample, log.selection.metric)
    correct = None if metric is None else log.grade(sample.row[metric], f"the metric {metric}")
    if isinstance(correct, Dropped):
        return correct
    wanted = log.selection.confidence_from
    if wanted == AGREEMENT or (wanted is None and len(repeats) > 1):
        if isinstance(filtered, list) and correct not in (None, 0.0, 1.0):
            return Dropped("the score is shared by repeats that differ")
        source, (answer, confidence, columns) = AGREEMENT, _agreed(repeats, filtered, sample)
    else:
        source, (answer, confidence), columns = STATED, _stated_reply(repeats, filtered), {}
        if len(repeats) > 1 and Votes.key((agreed := _agreed(repeats, filtered, sample))[0]) == Votes.key(answer):
            columns = agreed[2]
    if correct == 0 and filtered == repeats[0] != answer and answer in sample.targets:
        raise InputError(
            f"{metric} is 0 though the answer {answer!r} is the target: it judges the whole reply, not the answer in "
            "it. Choose a filter that extracts the answer (--filter)."
        )
    return Judged(answer, source, confidence, correct, sample.targets, columns)


def _stated_reply(repeats: Sequence[str], filtered: object) -> tuple[str, Confidence]:
    """Return the answer and the stated confidence; of several replies, those of the first that gives the answer."""
    replies, picked = [stated_reply(text) for text in repeats], 0
    if isinstance(filtered, str) and len(repeats) > 1:
        matches = [Votes.key(answer) == Votes.key(filtered) for answer, _ in replies]
        picked = matches.index(True) if any(matches) else 0
    is_extract = isinstance(filtered, str) and filtered.strip() not in (repeats[picked].strip(), _NOTHING_FOUND)
    answer, stated = replies[picked]
    return str(filtered) if is_extract else answer, stated


def _agreed(repeats: Sequence[str], filtered: object, sample: Sample) -> tuple[str, Confidence, dict[str, Any]]:
    """Return the answer that was judged, the share of repeats that give it, and columns; of a list, the majority."""
    if len(repeats) == 1:
        return _stated_reply(repeats, filtered)[0], Unscored("there are no repeats"), {}
    unknown = ""
    if isinstance(filtered, list):
        answer, confidence, columns = agreement(_reply_texts(filtered) or repeats)
    else:
        answers = filtered_replies(repeats, sample.steps)
        if answers is None:
            unknown = f" ({_NO_STEP if sample.steps else _NO_RESULTS})"
            answers = [stated_reply(reply)[0] for reply in repeats]
            filtered = answers[repeats.index(filtered)] if filtered in repeats else filtered
        answer, confidence, columns = agreement(answers, str(filtered))
    if answer.strip() in ("", _NOTHING_FOUND):
        confidence, columns = Unscored("the filter found no answer in what was judged"), {}
    elif isinstance(confidence, Unscored):
        confidence = Unscored(confidence.why + unknown)
    return answer, confidence, columns


def _metric(sample: Sample, wanted: str | None) -> str | None:
    """Return the metric that decides correctness: the one asked for, exact_match, acc, or the only one."""
    if wanted is not None:
        return wanted
    usual: list[str | None] = [name for name in ("exact_match", "acc") if name in sample.metrics]
    if not usual and len(sample.metrics) > 1:
        raise InputError(f"there are several metrics: {', '.join(sample.metrics)}. Choose one with --metric.")
    return (usual or [*sample.metrics, None])[0]


def _reply_texts(replies: object) -> list[str]:
    return [reply for reply in ([replies] if isinstance(replies, str) else listed(replies)) if isinstance(reply, str)]


def filtered_replies(replies: Sequence[str], steps: Sequence[Mapping[str, Any]] | None) -> list[str] | None:
    r"""Return what a filter extracts from each of the replies; None if a step cannot be applied here.

    >>> steps = [{"function": "regex", "regex_pattern": r"The answer is (\d+)"}, {"function": "majority_vote"}]
    >>> filtered_replies(["So 7. The answer is 7.", "The answer is 8.", "Hard to say."], steps)
    ['7', '8', '[invalid]']
    """
    texts: list[str] | None = list(replies) if steps else None
    for step in steps or ():
        name, number = step.get("function"), step.get("k")
        if texts is None or name in ("take_first", "majority_vote"):
            # These choose among replies and change none.
            continue
        if name == "take_first_k" and isinstance(number, int) and number > 0:
            texts = texts[:number]
        elif name == "remove_whitespace":
            texts = [text.strip() for text in texts]
        elif name in ("lowercase", "uppercase"):
            texts = [text.lower() if name == "lowercase" else text.upper() for text in texts]
        else:
            texts = _matches(texts, step) if name == "regex" else None
    return texts


def _matches(texts: Sequence[str], step: Mapping[str, Any]) -> list[str] | None:
    """Return the chosen match of a pattern in each text."""
    pattern, place = step.get("regex_pattern", _PATTERN), step.get("group_select", 0)
    fallback = step.get("fallback", _NOTHING_FOUND)
    if not (isinstance(pattern, str) and isinstance(place, int) and isinstance(fallback, str)):
        return None
    try:
        matches = [all_matches(pattern, text) for text in texts]
    except PatternError:
        return None
    extracts = []
    for in_text in matches:
        parts: Sequence[str | None] = (fallback,)
        if -len(in_text) <= place < len(in_text):
            # As re.findall: the whole match, its only group, or the first group with text.
            parts = in_text[place].groups() or (in_text[place][0],)
        extracts.append((parts[0] or "" if len(parts) == 1 else next(filter(None, parts), fallback)).strip())
    return extracts
