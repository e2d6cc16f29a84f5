"""A run: questions go to a server, replies into a store, and answers come out. `qacal elicit` for programs.

A conversation is a generator: it yields a request, is sent the reply, and ends with the outcomes. Replies come from the
server while a run asks, and from the store when its answers are read; the code is the same, so both agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from qacal.errors import InputError, QacalError, ServerError
from qacal.sources.elicitation.answers import Outcomes, answers, unread
from qacal.sources.elicitation.client import Client, Failed, Got, Traffic, Trouble
from qacal.sources.elicitation.outcomes import Outcome
from qacal.sources.elicitation.prompt_files import load_prompt, prompt_from_text
from qacal.sources.elicitation.prompts import Prompt, Stage, prompt_named
from qacal.sources.elicitation.question import Asked, Question, read_questions
from qacal.sources.elicitation.reply import Reply, Request
from qacal.sources.elicitation.store import Store, StoreError, open_store, request_key

Conversation: TypeAlias = Generator[Request, Reply, "Answered"]

# Fields for kinds of LLMs. Reasoning LLMs take no temperature, give the limit another name, and think before they
# answer; they give no log-probabilities either.
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"reasoning": {"temperature": None, "max_tokens": None, "max_completion_tokens": 8192}}
)
# Rules of thumb for English text, since each server counts in its own way.
_CHARACTERS_A_TOKEN, _TOKENS_A_MESSAGE = 4.0, 5
# A run ends after this many failures if no request has succeeded, or if they come one after the other.
_FAILURES = 10


# What is asked


@dataclass(frozen=True)
class Answered:
    """The replies to a question, one a stage, and their outcomes."""

    replies: tuple[Reply, ...]
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class Setup:
    """What all requests of a run share.

    model : the name that the server knows the LLM by.
    prompt : what the LLM is told.
    logprobs : whether to ask for the probabilities of tokens, if the prompt wants them.
    fields : further fields of requests, or other values of the usual ones; None leaves a field out.
    origin : the text of the prompt's file; empty for a prompt of qacal, which is found by its name.
    expressions : the further expressions that the prompt was given.

    >>> setup = Setup("tiny", prompt_named("verb1s-top1"), fields={"seed": 1, "temperature": None})
    >>> request = next(setup.conversation(Question("q1", "Capital of France?")))
    >>> sorted(request)
    ['logprobs', 'max_tokens', 'messages', 'model', 'seed']
    """

    model: str
    prompt: Prompt
    logprobs: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)
    origin: str = field(default="", repr=False)
    expressions: Mapping[str, float] = field(default_factory=dict)

    def conversation(self, question: Question) -> Conversation:
        """Yield the requests of a question, each after the reply to the one before."""
        replies: list[Reply] = []
        for stage in self.prompt.stages:
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
            replies.append((yield {name: value for name, value in request.items() if value is not None}))
        return Answered(tuple(replies), self.prompt.read(question, replies))

    def most_tokens(self, stage: Stage) -> int:
        """Return how long the reply of a stage may be."""
        limits = (self.fields.get(name) for name in ("max_completion_tokens", "max_tokens"))
        return next((limit for limit in limits if isinstance(limit, int)), stage.max_tokens)

    def to_dict(self) -> dict[str, Any]:
        """Return the setup as a store has it, so that a run can be read years later without its command line."""
        stored = {
            "model": self.model,
            "prompt": self.prompt.identity,
            "digest": self.prompt.digest,
            "origin": {"file": self.origin} if self.origin else {"name": self.prompt.name},
            "logprobs": self.logprobs,
            "fields": dict(self.fields),
        }
        return stored | ({"expressions": dict(self.expressions)} if self.expressions else {})

    @staticmethod
    def from_dict(stored: Mapping[str, Any], expressions: Mapping[str, float] | None = None) -> Setup:
        """Return the setup that :meth:`to_dict` has written; `expressions` are further ones to read replies with."""
        kinds = {"model": str, "prompt": str, "digest": str, "origin": dict, "logprobs": bool, "fields": dict}
        wrong = [name for name, kind in kinds.items() if not isinstance(stored.get(name), kind)]
        origin, known = stored.get("origin"), stored.get("expressions", {})
        if isinstance(origin, dict) and not isinstance(origin.get("file", origin.get("name")), str):
            wrong = ["origin"]
        if not isinstance(known, dict) or not all(isinstance(number, int | float) for number in known.values()):
            wrong = ["expressions"]
        if wrong or not isinstance(origin, dict):
            raise InputError(
                f"the run says {wrong[0]}: {stored.get(wrong[0])!r:.80}, which qacal elicit does not write. The file "
                "is damaged, or was changed by something else."
            )
        text = origin.get("file", "")
        prompt = prompt_from_text(text, "the prompt") if "file" in origin else prompt_named(origin["name"])
        if prompt.digest != stored["digest"]:
            raise InputError(
                f"the run was made with {stored['prompt']}, whose text has changed since: its replies cannot be found. "
                "Read it with the qacal that made it."
            )
        all_expressions = {**known, **(expressions or {})}
        prompt = prompt.knowing(all_expressions)
        return Setup(stored["model"], prompt, stored["logprobs"], stored["fields"], text, all_expressions)


@dataclass(frozen=True)
class Plan:
    """What to ask.

    model : the name that the server knows the LLM by.
    prompt : a name, or a file that ends in .toml.
    logprobs : whether to ask for the probabilities of tokens.
    fields : further fields of requests; None leaves one out.
    columns : ``{"question": "prompt"}`` where the rows use other names.
    limit : ask only the first `limit` questions.
    expressions : the number of further expressions, if the prompt asks for one: ``{"High": 0.85}``.
    """

    model: str
    prompt: str = "verb1s-top1"
    logprobs: bool = True
    fields: Mapping[str, Any] | None = None
    columns: Mapping[str, str] | None = None
    limit: int | None = None
    expressions: Mapping[str, float] = field(default_factory=dict)

    def setup(self) -> Setup:
        """Return what all requests share.

        >>> Plan("tiny").setup().prompt.identity
        'verb1s-top1/1'
        """
        is_file = self.prompt.endswith(".toml")
        prompt = load_prompt(self.prompt) if is_file else prompt_named(self.prompt)
        require_fields(self.fields or {}, self.logprobs)
        if not self.logprobs and any(stage.alternatives for stage in prompt.stages):
            raise InputError(f"the prompt {prompt.name} reads its confidence off token probabilities; ask for them.")
        return Setup(
            self.model,
            prompt.knowing(self.expressions),
            self.logprobs,
            dict(self.fields or {}),
            Path(self.prompt).read_text(encoding="utf-8") if is_file else "",
            self.expressions,
        )

    def questions(self, source: Any) -> Iterator[Asked]:
        """Yield the questions of a file, a frame or objects that are to be asked."""
        return islice(read_questions(source, self.columns), self.limit)

    def estimate(self, questions: Any) -> CostEstimate:
        """Return what asking would cost, without asking."""
        setup = self.setup()
        count, tokens, first = 0, 0.0, ""
        for asked in self.questions(questions):
            replies: list[Reply] = []
            for _ in setup.prompt.stages:
                messages = setup.prompt.messages(asked.question, replies)
                tokens += sum(len(one["content"]) / _CHARACTERS_A_TOKEN + _TOKENS_A_MESSAGE for one in messages)
                first = first or "\n".join(f"[{one['role']}] {one['content']}" for one in messages)
                replies.append(Reply(""))
            count += 1
        most = count * sum(setup.most_tokens(stage) for stage in setup.prompt.stages)
        return CostEstimate(count, first, round(tokens), most, count * len(setup.prompt.stages))


@dataclass(frozen=True)
class CostEstimate:
    """What a run would ask: the first prompt, about how many tokens it would send, and how many it may receive."""

    questions: int
    prompt: str
    tokens_sent: int
    tokens_received_at_most: int
    requests: int


def require_fields(fields: Mapping[str, Any], logprobs: bool | None = None) -> None:
    """Refuse fields whose effect nobody would read, or that contradict other options.

    logprobs : whether token probabilities are asked for; None leaves that to the fields.

    >>> require_fields({"n": 5})
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: the field n is 5: several replies to one request are paid for, ...
    """
    for name, value in fields.items():
        why = None
        if name in ("n", "best_of") and value not in (None, 1):
            why = "several replies to one request are paid for, and one is read. Leave it out."
        elif name in ("stream", "stream_options") and value:
            why = "replies are read whole, not as a stream. Leave it out."
        elif name == "model":
            why = "name the LLM with --model (in Python: model)."
        elif name == "messages":
            why = "the prompt says it. For another one, write a prompt of your own (.toml)."
        elif name == "logprobs" and logprobs and not value:
            why = "token probabilities are asked for. To stop that, pass --no-logprobs (in Python: logprobs=False)."
        elif name in ("logprobs", "top_logprobs") and logprobs is False and value:
            why = (
                "token probabilities are not asked for. Leave it out, or leave out --no-logprobs (in Python: "
                "logprobs=False)."
            )
        if why is not None:
            raise InputError(f"the field {name} is {value!r}: {why}")


# Asking


class NoLogprobsError(InputError):
    """The server says that it does not give log-probabilities.

    reason : what it said, without the remedy at the end of the message.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class Progress:
    """How far a run is.

    done : conversations that have ended, failed ones included.
    fresh : those of them for which the server was asked.
    sent, known : requests that the server replied to now, and those that had a reply before.
    failed : requests without a reply; the next run makes them again.
    failures : the number of failures by reason.
    traffic : how many requests were made; some are made several times.
    """

    done: int = 0
    fresh: int = 0
    sent: int = 0
    known: int = 0
    failed: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)


@dataclass
class Asking:
    """Drives conversations until each has ended, or one of its requests has failed.

    store : where replies are looked up first, and stored.
    client : asks for the others.
    workers : how many requests are on their way at a time.
    tell : called when a conversation has ended, or a request is to be made again.
    """

    store: Store
    client: Client
    workers: int = 8
    tell: Callable[[Progress], None] = lambda progress: None
    progress: Progress = field(default_factory=Progress)
    _on_the_way: dict[str, asyncio.Event] = field(default_factory=dict)
    _failures_in_a_row: int = 0

    def all(self, conversations: Iterable[Conversation]) -> Progress:
        """Ask all; conversations are taken one by one, as workers become free."""
        try:
            asyncio.run(self._all(iter(conversations)))
        except* (QacalError, *StoreError) as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None
        return self.progress

    async def _all(self, conversations: Iterator[Conversation]) -> None:
        asyncio.get_running_loop().set_exception_handler(_report_exception)
        # Workers take from the iterator itself, so no more questions are in memory than there are workers.
        async with self.client, asyncio.TaskGroup() as group:
            for _ in range(self.workers):
                group.create_task(self._work(conversations))

    async def _work(self, conversations: Iterator[Conversation]) -> None:
        for conversation in conversations:
            before = self.progress.sent
            try:
                request = next(conversation)
                while (reply := await self._reply(request)) is not None:
                    request = conversation.send(reply)
            except StopIteration:
                pass
            self.progress.done += 1
            # Other workers may have asked meanwhile, which is the usual case if anything is asked.
            self.progress.fresh += self.progress.sent > before
            self.tell(self.progress)

    async def _reply(self, request: Request) -> Reply | None:
        key = request_key(request)
        while key in self._on_the_way:  # two questions with the same text are one request
            await self._on_the_way[key].wait()
        known = self.store.reply(request)
        if known is not None:
            self.progress.known += 1
            return known
        self._on_the_way[key] = asyncio.Event()
        try:
            result = await self.client.ask(request, self.progress.traffic, lambda: self.tell(self.progress))
            if isinstance(result, Got):
                self.store.keep(request, result.body, None, result.seconds)
                self.progress.sent += 1
                self._failures_in_a_row = 0
                return result.reply
            self.store.keep(request, None, result.why, result.seconds)
            self.progress.failed += 1
            self.progress.failures[result.why] += 1
            # A refusal concerns one request; others may succeed.
            self._failures_in_a_row = 0 if result.is_refusal else self._failures_in_a_row + 1
            self._require_hope(result)
            return None
        finally:
            self._on_the_way.pop(key).set()

    def _require_hope(self, failed: Failed) -> None:
        """Raise if further requests would fail too: nothing has worked so far, or nothing works any more."""
        has_worked = self.progress.sent + self.progress.known > 0
        reason = f"{self.client.shown_url}: {failed.why.rstrip('.')}."
        message = f"{reason} {failed.remedy}"
        if failed.trouble is Trouble.NO_LOGPROBS and not has_worked:
            raise NoLogprobsError(message, reason)
        is_wrong = failed.status in (404, None) or failed.names_usual_field
        is_lost = self._failures_in_a_row >= _FAILURES or failed.status in (401, 403)
        is_lost = is_lost or failed.trouble is Trouble.QUOTA or self.client.is_strange
        if is_lost or (not has_worked and (is_wrong or self.progress.failed >= _FAILURES)):
            is_server = failed.trouble in (Trouble.UNREACHABLE, Trouble.TIMEOUT, Trouble.BUSY, Trouble.SERVER)
            raise (ServerError if is_server else InputError)(message)


def _report_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # SIGTERM ends the program by SystemExit. If it arrives within a task, asyncio would also report that task.
    if not isinstance(context.get("exception"), SystemExit | KeyboardInterrupt):
        loop.default_exception_handler(context)


# Runs


@dataclass(frozen=True)
class RunResult:
    """What a run did now, and the outcomes of all its questions.

    run : its number in the store, which holds `runs` of them.
    begun_at : the base URL at which it began, if that was another one.
    no_logprobs : what the server said if it refused to give token probabilities and the run went on without them.
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
    progress: Callable[[int], Callable[[Progress], None]] | None = None,
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
        asker = _Asker(opened, client, workers, progress, lambda: plan.questions(questions))
        needs_logprobs = any(stage.alternatives for stage in setup.prompt.stages)
        if needs_logprobs or not plan.logprobs:
            return asker.ask(setup)
        without = replace(plan, logprobs=False).setup()
        refusal = asker.earlier_refusal(without)
        if refusal is None:
            try:
                return asker.ask(setup)
            except NoLogprobsError as error:
                refusal = error.reason
        return replace(asker.ask(without), no_logprobs=refusal)


@dataclass(frozen=True)
class _Asker:
    """Asks the questions with one setup or another."""

    store: Store
    client: Client
    workers: int
    progress: Callable[[int], Callable[[Progress], None]] | None
    questions: Callable[[], Iterator[Asked]]
    traffic: Traffic = field(default_factory=Traffic)

    def earlier_refusal(self, without: Setup) -> str | None:
        """Return what the server said if it has refused log-probabilities before, and a run went on without them."""
        # Of the first requests some are cancelled when another is refused: any of them may hold the refusal.
        refusal = self.store.logprobs_refusal(without.model)
        stored = without.to_dict()
        begun = [number for number, other in self.store.runs() if other == stored]
        is_here = any(self.store.base_url(number) == self.client.shown_url for number in begun)
        return f"{self.client.shown_url}: {refusal}" if refusal and is_here else None

    def ask(self, setup: Setup) -> RunResult:
        """Ask, and return the result; a new run that cannot have log-probabilities is removed again."""
        known = len(self.store.runs())
        run = self.store.run(setup.to_dict(), self.client.shown_url)
        try:
            count = self.store.add_questions(run, self.questions())
            tell = (lambda progress: None) if self.progress is None else self.progress(count)
            asking = Asking(self.store, self.client, self.workers, tell, Progress(traffic=self.traffic))
            # The given questions, not all that are in the store.
            progress = asking.all(setup.conversation(asked.question) for asked in self.questions())
        except NoLogprobsError:
            if len(self.store.runs()) > known:
                self.store.forget(run)
            raise
        outcomes = Outcomes()
        for _ in answers(self.store, run, setup, outcomes):
            pass
        begun_at = self.store.base_url(run)
        other = begun_at if begun_at != self.client.shown_url else None
        return RunResult(run, len(self.store.runs()), other, progress, outcomes)


@dataclass(frozen=True)
class StoredRun:
    """A run in a store: its number, and the setup with which its replies are read."""

    store: Store
    number: int
    setup: Setup

    def answers(self, outcomes: Outcomes | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of the stated guesses; `outcomes` counts these and all others."""
        return answers(self.store, self.number, self.setup, outcomes)

    def unread(self) -> Iterator[dict[str, Any]]:
        """Yield the replies that became no record, and why."""
        return unread(self.store, self.number, self.setup)


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
