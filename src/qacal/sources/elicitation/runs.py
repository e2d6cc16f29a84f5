"""A run from questions to answers: what `qacal elicit` does, for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.sources.elicitation.answers import Outcomes, answers, unread
from qacal.sources.elicitation.asking import Asking, NoLogprobsError, Progress
from qacal.sources.elicitation.client import Client, Traffic
from qacal.sources.elicitation.question_rows import read_questions
from qacal.sources.elicitation.reply import Reply
from qacal.sources.elicitation.requests import Setup, require_fields
from qacal.sources.elicitation.setups import NamedPrompt, find_prompt, plain_setup, stored_setup
from qacal.sources.elicitation.store import Asked, Store, open_store

# What servers count is theirs to say; English text has about so many characters a token, and a message some marks.
_CHARACTERS_A_TOKEN, _MARKS_A_MESSAGE = 4.0, 5


@dataclass(frozen=True)
class RunResult:
    """What a run did now, and what came of all its questions.

    run : its number in the store, which holds so many `runs`.
    begun_at : the base URL of its beginning, if that was another one.
    no_logprobs : what the server said when it was asked for token probabilities, if it refused and the run did without.
    """

    run: int
    runs: int
    begun_at: str | None
    progress: Progress
    outcomes: Outcomes
    no_logprobs: str | None = None


@dataclass(frozen=True)
class Plan:
    """What to ask.

    model : the name that the server knows the LLM by.
    prompt : a name, or a file that ends in .toml.
    logprobs : whether to ask for the probabilities of tokens.
    fields : further fields of requests; None leaves one out.
    columns : ``{"question": "prompt"}`` where the rows use other names.
    limit : ask the first so many questions only.
    expressions : what further expressions stand for, where the prompt asks for one: ``{"High": 0.85}``.
    """

    model: str
    prompt: str = "verb1s-top1"
    logprobs: bool = True
    fields: Mapping[str, Any] | None = None
    columns: Mapping[str, str] | None = None
    limit: int | None = None
    expressions: Mapping[str, float] = field(default_factory=dict)

    def found(self) -> tuple[Setup, NamedPrompt]:
        """Return the setup of the requests, and where its prompt is from."""
        found = find_prompt(self.prompt)
        require_fields(self.fields or {}, self.logprobs)
        if not self.logprobs and any(stage.alternatives for stage in found.prompt.stages):
            raise InputError(
                f"the prompt {found.prompt.name} reads its confidence off token probabilities; ask for them."
            )
        prompt = found.prompt.knowing(self.expressions)
        return Setup(self.model, prompt, self.logprobs, dict(self.fields or {})), found

    def foreseen(self, questions: Any) -> CostEstimate:
        """Return what asking would cost, without asking."""
        setup, _ = self.found()
        count, tokens, shown = 0, 0.0, ""
        for asked in islice(read_questions(questions, self.columns), self.limit):
            replies: list[Reply] = []
            for _ in setup.prompt.stages:
                messages = setup.prompt.messages(asked.question, replies)
                tokens += sum(len(said["content"]) / _CHARACTERS_A_TOKEN + _MARKS_A_MESSAGE for said in messages)
                if not count and not replies:
                    shown = "\n".join(f"[{said['role']}] {said['content']}" for said in messages)
                replies.append(Reply(""))
            count += 1
        most = count * sum(setup.most_tokens(stage) for stage in setup.prompt.stages)
        return CostEstimate(count, shown, round(tokens), most, count * len(setup.prompt.stages))


@dataclass(frozen=True)
class CostEstimate:
    """What a run would ask: the first prompt, and tokens, those sent by a rule of thumb and those received at most."""

    questions: int
    prompt: str
    tokens_sent: int
    tokens_received_at_most: int
    requests: int


def elicit(
    questions: Any,
    client: Client,
    plan: Plan,
    store: str | Path,
    *,
    workers: int = 8,
    telling: Callable[[int], Callable[[Progress], None]] | None = None,
) -> RunResult:
    """Ask all questions that have no reply in the store yet.

    A server that refuses to give token probabilities is asked without them, unless the prompt needs them.

    questions : a file, a frame or objects; see :func:`~qacal.sources.elicitation.question_rows.read_questions`.
    store : the file of the run; one that exists goes on.
    telling : given the number of questions, returns what is called with the progress.
    """
    setup, named = plan.found()
    # A file that cannot be read, or has no questions, must not leave a run behind.
    if next(read_questions(questions, plan.columns), None) is None:
        raise InputError("there is no question to ask: the file has no rows.")
    with open_store(store, to_write=True) as opened:
        asked = _Asked(opened, questions, client, workers, telling)
        less = replace(plan, logprobs=False)
        refused = asked.refusal_of_logprobs(plan, less)
        if refused is not None:
            return replace(asked.ran(less, *less.found()), no_logprobs=refused)
        try:
            return asked.ran(plan, setup, named)
        except NoLogprobsError as error:
            if any(stage.alternatives for stage in setup.prompt.stages):
                raise
            return replace(asked.ran(less, *less.found()), no_logprobs=error.said)


@dataclass(frozen=True)
class _Asked:
    """What is asked of whom, whatever the plan."""

    store: Store
    questions: Any
    client: Client
    workers: int
    telling: Callable[[int], Callable[[Progress], None]] | None
    traffic: Traffic = field(default_factory=Traffic)

    def refusal_of_logprobs(self, plan: Plan, less: Plan) -> str | None:
        """Return what the server said if it has refused log-probabilities before, and a run goes on without them."""
        setup, _ = plan.found()
        first = next(setup.conversation(next(self._rows(plan)).question))
        said = self.store.failure(first) if first.get("logprobs") else None
        if said is None or "logprob" not in said.lower():
            return None
        without, named = less.found()
        plain = plain_setup(without, named.origin, less.expressions)
        begun = [number for number, known in self.store.runs() if known == plain]
        is_here = any(self.store.base_url(number) == self.client.shown_url for number in begun)
        return f"{self.client.shown_url}: {said}" if is_here else None

    def ran(self, plan: Plan, setup: Setup, named: NamedPrompt) -> RunResult:
        """Ask, and return what came of it; a new run that cannot have log-probabilities is not kept."""
        known = len(self.store.runs())
        run = self.store.run(plain_setup(setup, named.origin, plan.expressions), self.client.shown_url)
        try:
            count = self.store.add_questions(run, self._rows(plan))
            tell = (lambda progress: None) if self.telling is None else self.telling(count)
            asking = Asking(self.store, self.client, self.workers, tell, Progress(traffic=self.traffic))
            # Those that were given, and not all that are in the store.
            progress = asking.all(setup.conversation(asked.question) for asked in self._rows(plan))
        except NoLogprobsError:
            if len(self.store.runs()) > known:
                self.store.forget(run)
            raise
        runs, begun_at = len(self.store.runs()), self.store.base_url(run)
        outcomes = _outcomes(self.store, run, setup)
        return RunResult(run, runs, begun_at if begun_at != self.client.shown_url else None, progress, outcomes)

    def _rows(self, plan: Plan) -> Iterator[Asked]:
        return islice(read_questions(self.questions, plan.columns), plan.limit)


@dataclass(frozen=True)
class StoredRun:
    """A run in a store: its number and its setup, from which its replies are read anew."""

    store: Store
    number: int
    setup: Setup

    def answers(self, outcomes: Outcomes | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of the stated guesses; `outcomes` counts these and all others."""
        return answers(self.store, self.number, self.setup, outcomes)

    def unread(self) -> Iterator[dict[str, Any]]:
        """Yield what became no record, and why."""
        return unread(self.store, self.number, self.setup)


def stored_run(store: Store, run: int | None = None, expressions: Mapping[str, float] | None = None) -> StoredRun:
    """Return a run by its number, or the only one; `expressions` are further ones to read its replies with."""
    runs = dict(store.runs())
    if not runs:
        raise InputError(f"{store.path} has no run in it; qacal elicit has not asked anything yet.")
    if run is None and len(runs) > 1:
        listed = "; ".join(f"{number}: {plain.get('model')}, {plain.get('prompt')}" for number, plain in runs.items())
        raise InputError(f"{store.path} holds several runs; choose one with --run ({listed}).")
    number = next(iter(runs)) if run is None else run
    if number not in runs:
        raise InputError(f"{store.path} has no run {number}; it has {', '.join(map(str, runs))}.")
    return StoredRun(store, number, stored_setup(runs[number], expressions))


def _outcomes(store: Store, run: int, setup: Setup) -> Outcomes:
    outcomes = Outcomes()
    for _ in answers(store, run, setup, outcomes):
        pass
    return outcomes
