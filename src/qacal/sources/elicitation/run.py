"""A run: questions go to a server, replies into a store, and answers come out. `qacal elicit` for programs.

Replies come from the server while a run asks, and from the store when its answers are read. Both drive the same
conversation (`asking.py`), so both agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from qacal.errors import InputError
from qacal.parameters import is_whole
from qacal.sources.elicitation.agreement import Votes
from qacal.sources.elicitation.asking import Ask, Asking, NoLogprobsError, Progress, require_fields
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.prompt_files import load_prompt, prompt_from_text
from qacal.sources.elicitation.prompts import Prompt, prompt_named
from qacal.sources.elicitation.question import Question, read_questions
from qacal.sources.elicitation.reply import Malformed, Outcome, Refused, Reply, Request, Stated
from qacal.sources.elicitation.store import Store, open_store
from qacal.sources.elicitation.tokens import answer_probability

# The replies to a question, one for each stage, and their outcomes; one of these for each sample.
Sample: TypeAlias = tuple[tuple[Reply, ...], tuple[Outcome, ...]]
# Takes the number of questions, and returns the function that is called with the progress.
ShowProgress: TypeAlias = Callable[[int], Callable[[Progress], None]]

# Fields for kinds of LLMs. Reasoning LLMs take no temperature, give the limit another name, and think before they
# answer; they give no log-probabilities either.
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"reasoning": {"temperature": None, "max_tokens": None, "max_completion_tokens": 8192}}
)
# Rules of thumb for English text, since each server counts in its own way.
_CHARACTERS_PER_TOKEN, _TOKENS_PER_MESSAGE = 4.0, 5
MOST_SAMPLES = 1000
NOT_YET = "not answered yet"


# What is asked


@dataclass(frozen=True)
class Setup:
    """What all requests of a run share; :class:`Plan` describes it, with the prompt by name.

    samples : how often each question is asked.
    origin : the text of the prompt's file; empty for a prompt of qacal.

    >>> setup = Setup("tiny", prompt_named("verb1s-top1"), fields={"seed": 1, "temperature": None})
    >>> ask = next(setup.conversation(Question("q1", "Capital of France?")))
    >>> sorted(ask.request)
    ['logprobs', 'max_tokens', 'messages', 'model', 'seed']
    """

    model: str
    prompt: Prompt
    logprobs: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)
    origin: str = field(default="", repr=False)
    samples: int = 1

    def conversation(self, question: Question) -> Generator[Ask, list[Reply], list[Sample]]:
        """Yield the requests of a question, each after the reply to the one before: the first for all samples."""
        samples: list[Sample] = []
        numbers = range(self.samples)
        for number, first in zip(numbers, (yield Ask(self._request(question, []), numbers)), strict=True):
            replies = [first]
            while len(replies) < len(self.prompt.stages):
                replies += yield Ask(self._request(question, replies), (number,))
            samples.append((tuple(replies), self.prompt.read(replies)))
        return samples

    def _request(self, question: Question, replies: Sequence[Reply]) -> Request:
        stage = self.prompt.stages[len(replies)]
        request: Request = {
            "model": self.model,
            "messages": self.prompt.messages(question, replies),
            # As in the paper: close to 0, so that the same question has the same answer.
            "temperature": 0.0,
            "max_tokens": stage.max_tokens,
        }
        if self.logprobs and stage.wants_logprobs:
            request["logprobs"] = True
            if stage.alternatives:
                request["top_logprobs"] = stage.alternatives
        if self.prompt.grammar is not None and not replies:
            request["grammar"] = self.prompt.grammar
        request |= self.fields
        return {name: value for name, value in request.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return the setup as it is stored, so that a run can be read years later without its command line."""
        return {
            "model": self.model,
            "prompt": self.prompt.identity,
            "digest": self.prompt.digest,
            "origin": {"file": self.origin} if self.origin else {"name": self.prompt.name},
            "logprobs": self.logprobs,
            "fields": dict(self.fields),
        } | ({"samples": self.samples} if self.samples > 1 else {})

    @staticmethod
    def from_dict(stored: Mapping[str, Any], expressions: Mapping[str, float] | None = None) -> Setup:
        """Return a setup from :meth:`to_dict`; `expressions` are further ones to read replies with."""
        # Earlier versions stored further expressions with the run.
        earlier = stored.get("expressions")
        if isinstance(earlier, dict) and all(isinstance(number, int | float) for number in earlier.values()):
            stored = {name: value for name, value in stored.items() if name != "expressions"}
            expressions = expressions or earlier
        kinds = {"model": str, "prompt": str, "digest": str, "logprobs": bool, "origin": dict, "fields": dict}
        samples = stored.get("samples", 1)
        named = {name: value for name, value in stored.items() if name != "samples"}
        wrong = [name for name in (*kinds, *named) if not isinstance(stored.get(name), kinds.get(name, ()))]
        if not is_whole(samples, 1) or samples > MOST_SAMPLES:
            wrong = ["samples"]
        if not wrong and not isinstance(stored["origin"].get("file", stored["origin"].get("name")), str):
            wrong = ["origin"]
        if wrong:
            raise InputError(
                f"the run says {wrong[0]}: {stored.get(wrong[0])!r:.80}, which qacal elicit does not write. The file "
                "is damaged, or was changed by something else."
            )
        origin = stored["origin"]
        text = origin.get("file", "")
        prompt = prompt_from_text(text, "the prompt") if "file" in origin else prompt_named(origin["name"])
        if prompt.digest != stored["digest"]:
            raise InputError(
                f"the run was made with {stored['prompt']}, and the text of this prompt has changed since: its replies "
                "cannot be found. Read it with the qacal that made it."
            )
        prompt = prompt.with_expressions(expressions or {})
        return Setup(stored["model"], prompt, stored["logprobs"], stored["fields"], text, samples)


@dataclass(frozen=True)
class Plan:
    """What to ask.

    model : the LLM's name on the server.
    prompt : a name, or a file that ends in .toml.
    logprobs : whether to ask for the probabilities of tokens, if the prompt wants them.
    fields : further fields of requests, or other values of the usual ones; None leaves a field out.
    columns : ``{"question": "prompt"}`` where the rows use other names.
    limit : ask only the first `limit` questions.
    samples : how often to ask each question, at a temperature above 0.
    temperature : None for 0, or for what `fields` say.
    """

    model: str
    prompt: str = "verb1s-top1"
    logprobs: bool = True
    fields: Mapping[str, Any] | None = None
    columns: Mapping[str, str] | None = None
    limit: int | None = None
    samples: int = 1
    temperature: float | None = None

    def setup(self) -> Setup:
        is_file = self.prompt.endswith(".toml")
        prompt = load_prompt(self.prompt) if is_file else prompt_named(self.prompt)
        fields = dict(self.fields or {}) | ({} if self.temperature is None else {"temperature": self.temperature})
        require_fields(fields, self.logprobs)
        if not self.logprobs and prompt.needs_logprobs:
            raise InputError(
                f"the prompt {prompt.name} needs token probabilities: leave out --no-logprobs (in Python: "
                "logprobs=False)."
            )
        self._require_samples(prompt, fields)
        text = Path(self.prompt).read_text(encoding="utf-8") if is_file else ""
        return Setup(self.model, prompt, self.logprobs, fields, text, self.samples)

    def _require_samples(self, prompt: Prompt, fields: Mapping[str, Any]) -> None:
        """Refuse samples that would be equal, or of several guesses."""
        if not is_whole(self.samples, 1) or self.samples > MOST_SAMPLES:
            raise InputError(f"samples is {self.samples!r}; expected a whole number from 1 to {MOST_SAMPLES:,}.")
        if self.samples == 1:
            return
        if fields.get("temperature", 0.0) == 0:
            raise InputError("samples at temperature 0 are equal; pass a temperature above 0: --temperature 0.7.")
        if fields.get("seed") is not None:
            raise InputError("samples with the same seed are equal; leave out the field seed.")
        if prompt.guesses > 1:
            raise InputError(
                f"the prompt {prompt.name} asks for several guesses in one reply; samples need a prompt for one guess, "
                "such as verb1s-top1."
            )

    def questions(self, source: Any) -> Iterator[Question]:
        """Yield the questions of a file, a frame or objects that are to be asked."""
        return islice(read_questions(source, self.columns), self.limit)

    def estimate(self, questions: Any) -> CostEstimate:
        """Return the cost of a run, without asking."""
        setup = self.setup()
        stages = setup.prompt.stages
        count, tokens, at_most, first = 0, 0.0, 0.0, ""
        for question in self.questions(questions):
            count += 1
            for number in range(len(stages)):
                messages = setup.prompt.messages(question, [Reply("")] * number)
                new = sum(len(one["content"]) / _CHARACTERS_PER_TOKEN + _TOKENS_PER_MESSAGE for one in messages)
                # Only the first stage is the same for all samples.
                tokens, at_most = tokens + new * (self.samples if number else 1), at_most + new * self.samples
                first = first or "\n".join(f"[{one['role']}] {one['content']}" for one in messages)
        limits = [setup.fields.get(name) for name in ("max_completion_tokens", "max_tokens")]
        limit = next((limit for limit in limits if isinstance(limit, int)), None)
        most = self.samples * count * sum(stage.max_tokens if limit is None else limit for stage in stages)
        later = self.samples * (len(stages) - 1)
        requests = count * (1 + later), count * (self.samples + later)
        return CostEstimate(count, first, round(tokens), most, requests[0], self.samples, requests[1], round(at_most))


@dataclass(frozen=True)
class CostEstimate:
    """What a run would ask: the first prompt, about how many tokens it would send, and how many it may receive.

    requests, tokens_sent : if the server takes all samples in one request; otherwise `requests_at_most` and
        `tokens_sent_at_most`.
    """

    questions: int
    prompt: str
    tokens_sent: int
    tokens_received_at_most: int
    requests: int
    samples: int
    requests_at_most: int
    tokens_sent_at_most: int


# Answers


@dataclass
class Outcomes:
    """The outcomes of a run: the number of stated guesses, and of others by reason.

    truths : how many of the questions have a known correct answer.
    examples : the beginning of the first reply for each reason.
    models : the server's names of the LLMs that replied, and how often.
    """

    questions: int = 0
    truths: int = 0
    stated: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        if isinstance(outcome, Stated):
            self.stated += 1
        else:
            self.lost[_reason(outcome)] += 1
            self.examples.setdefault(_reason(outcome), outcome.said)


def _reason(outcome: Refused | Malformed) -> str:
    return "refused" if isinstance(outcome, Refused) else f"malformed: {outcome.why}"


@dataclass(frozen=True)
class StoredRun:
    """A run in a store: its number, and the setup with which its replies are read."""

    store: Store
    number: int
    setup: Setup

    def answers(self, outcomes: Outcomes | None = None) -> Iterator[dict[str, Any]]:
        """Yield a record for every stated guess; `outcomes` counts these and all others.

        Records have the question's columns, and answer, confidence, confidence_tokens (the probability of the answer's
        tokens, if the server gave it), model, prompt and confidence_source; `guess` numbers several guesses. Of several
        samples there is one record, of the first sample with the most frequent answer, with the columns of
        :class:`~qacal.sources.elicitation.agreement.Votes` and the temperature.
        """
        outcomes = Outcomes() if outcomes is None else outcomes
        for question, samples in self._questions():
            outcomes.questions += 1
            outcomes.truths += bool(question.ground_truth)
            if not samples:
                outcomes.lost[NOT_YET] += 1
            records = []
            for replies, guesses in samples:
                outcomes.models.update(reply.model for reply in replies if reply.model is not None)
                for place, outcome in enumerate(guesses, 1):
                    outcomes.add(outcome)
                    if isinstance(outcome, Stated):
                        records.append(self._record(question, outcome, replies[0], place))
            if self.setup.samples > 1 and records:
                votes = Votes(record["answer"] for record in records)
                first = next(record for record in records if votes.key(record["answer"]) == votes.majority)
                temperature = self.setup.fields.get("temperature")
                records = [first | votes.columns_of(votes.majority) | {"temperature": temperature}]
            yield from records

    def outcomes(self) -> Outcomes:
        outcomes = Outcomes()
        for _ in self.answers(outcomes):
            pass
        return outcomes

    def unread(self) -> Iterator[dict[str, Any]]:
        """Yield replies that became no record: id and question, why, and the texts, for a person to look at."""
        for question, samples in self._questions():
            row = {"id": question.id, "question": question.text}
            if not samples:
                yield row | {"why": NOT_YET, "guess": None, "replies": []}
            for number, (replies, guesses) in enumerate(samples, 1):
                texts = [reply.refusal or reply.text for reply in replies]
                for place, outcome in enumerate(guesses, 1):
                    if not isinstance(outcome, Stated):
                        which = {"guess": place} | ({"sample": number} if self.setup.samples > 1 else {})
                        yield row | {"why": _reason(outcome)} | which | {"replies": texts}

    def _questions(self) -> Iterator[tuple[Question, list[Sample]]]:
        """Yield each question with its samples; without any if not all replies are in the store."""
        for question in self.store.questions(self.number):
            conversation = self.setup.conversation(question)
            ask: Ask | None = next(conversation)
            samples: list[Sample] = []
            while ask is not None:
                stored = [self.store.reply(ask.request, number) for number in ask.samples]
                replies = [reply for reply in stored if reply is not None]
                if len(replies) < len(stored):
                    break
                try:
                    ask = conversation.send(replies)
                except StopIteration as end:
                    ask, samples = None, end.value
            yield question, samples

    def _record(self, question: Question, stated: Stated, reply: Reply, place: int) -> dict[str, Any]:
        prompt = self.setup.prompt
        record = {
            "id": question.id,
            "question": question.text,
            "answer": stated.answer,
            "confidence": stated.confidence,
            "confidence_tokens": answer_probability(reply, stated.answer),
            "ground_truth": list(question.ground_truth) or None,
            "choices": None if question.choices is None else list(question.choices),
            "model": self.setup.model,
            "prompt": prompt.identity,
            "confidence_source": prompt.source,
        }
        # The columns of qacal win over those of the question.
        return dict(question.others) | record | ({"guess": place} if prompt.guesses > 1 else {})


def stored_run(store: Store, run: int | None = None, expressions: Mapping[str, float] | None = None) -> StoredRun:
    """Return a run by its number, or the only one; `expressions` are further ones to read its replies with."""
    runs = dict(store.runs())
    if not runs:
        raise InputError(f"{store.path} has no run in it; qacal elicit has not asked anything yet.")
    if run is None and len(runs) > 1:
        listed = "; ".join(f"{number}: {setup.get('model')}, {setup.get('prompt')}" for number, setup in runs.items())
        raise InputError(f"{store.path} holds several runs; choose one with --run ({listed}).")
    number = next(iter(runs)) if run is None else run
    if number not in runs:
        raise InputError(f"{store.path} has no run {number}; it has {', '.join(map(str, runs))}.")
    return StoredRun(store, number, Setup.from_dict(runs[number], expressions))


# Runs


@dataclass(frozen=True)
class RunResult:
    """What a run did now, and the outcomes of all its questions.

    run : its number in the store, which holds `runs` of them.
    begun_at : the base URL at which it began, if that was another one.
    no_logprobs : the server's message if it refused to give token probabilities and the run went on without them.
    """

    run: int
    runs: int
    begun_at: str | None
    progress: Progress
    outcomes: Outcomes
    no_logprobs: str | None = None


def elicit(
    questions: Any,
    client: Client,
    plan: Plan,
    store: str | Path,
    *,
    workers: int = 8,
    progress: ShowProgress = lambda count: lambda progress: None,
) -> RunResult:
    """Ask all questions that have no reply in the store yet.

    A server that refuses to give token probabilities is asked without them, unless the prompt needs them.

    questions : a file, a frame or objects; see :func:`~qacal.sources.elicitation.question.read_questions`.
    store : the file of the run; an existing one is continued.
    progress : takes the number of questions, and returns the function to call with the :class:`Progress`.
    """
    setup = plan.setup()
    # A file that cannot be read, or has no questions, must not leave a run behind.
    if next(read_questions(questions, plan.columns), None) is None:
        raise InputError("there is no question to ask: the file has no rows.")
    with open_store(store, to_write=True) as opened:

        def ask(setup: Setup) -> RunResult:
            return _ask(setup, opened, client, lambda: plan.questions(questions), workers, progress)

        try:
            return ask(setup)
        except NoLogprobsError as error:
            if setup.prompt.needs_logprobs or not plan.logprobs:
                raise
            asks_for_them = ("logprobs", "top_logprobs")
            fields = {name: value for name, value in setup.fields.items() if name not in asks_for_them}
            return replace(ask(replace(setup, logprobs=False, fields=fields)), no_logprobs=error.reason)


def _ask(
    setup: Setup,
    store: Store,
    client: Client,
    questions: Callable[[], Iterator[Question]],
    workers: int,
    show: ShowProgress,
) -> RunResult:
    """Ask all questions; a new run that cannot have log-probabilities is removed again."""
    runs_before = len(store.runs())
    run = store.run(setup.to_dict(), client.shown_url)
    try:
        tell = show(store.add_questions(run, questions()))
        # The questions of this call, not all that are in the store.
        progress = Asking(store, client, workers, tell).all(map(setup.conversation, questions()))
    except NoLogprobsError:
        if len(store.runs()) > runs_before:
            store.forget(run)
        raise
    outcomes = StoredRun(store, run, setup).outcomes()
    begun_at = store.base_url(run)
    other = begun_at if begun_at != client.shown_url else None
    return RunResult(run, len(store.runs()), other, progress, outcomes)
