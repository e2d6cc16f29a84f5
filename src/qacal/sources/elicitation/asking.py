"""Ask a server many requests at a time, and store each reply before the next request is made.

A conversation is a generator: it yields a request, is sent the reply, and so on until it ends. It may ask for several
samples of the reply (:class:`Ask`); what it is sent is a list.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from qacal.errors import InputError, QacalError, ServerError
from qacal.parameters import is_whole
from qacal.sources.elicitation.client import Client, Failed, Got, Traffic, Trouble
from qacal.sources.elicitation.reply import Reply, Request, separate_choices
from qacal.sources.elicitation.store import STORE_ERRORS, Store
from qacal.storage import digest


@dataclass(frozen=True)
class Ask:
    """A request, and the numbers of the samples of its reply that are wanted."""

    request: Request
    samples: Sequence[int] = (0,)


Conversation: TypeAlias = Generator[Ask, list[Reply], Any]

# A run ends after this many failures if no request has succeeded, or if they come one after the other.
_FAILURES = 10
# A server that does not take the field n may say so in these ways.
_MAY_BE_N = (Trouble.REFUSED, Trouble.SERVER, Trouble.STRANGE)


class NoLogprobsError(InputError):
    """The server does not give log-probabilities; `reason` is the message without the remedy."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class Progress:
    """How far a run is.

    done : conversations that have ended, including failed ones.
    fresh : ended conversations for which the server was asked.
    sent, known : replies of the server in this run, and stored replies.
    failed : requests without a reply; the next run makes them again.
    failures : the number of failures by reason.
    traffic : the client's number of requests; some are made several times.
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
    workers : the number of parallel requests.
    tell : called when a conversation has ended, or a request is to be made again.
    """

    store: Store
    client: Client
    workers: int = 8
    tell: Callable[[Progress], None] = lambda progress: None
    progress: Progress = field(init=False)
    _in_flight: dict[str, asyncio.Event] = field(default_factory=dict)
    _failures_in_a_row: int = 0
    _takes_n: bool = True

    def __post_init__(self) -> None:
        if not is_whole(self.workers, 1):
            raise InputError(f"workers is {self.workers!r}; expected a whole number from 1.")
        self.progress = Progress(traffic=self.client.traffic)

    def all(self, conversations: Iterable[Conversation]) -> Progress:
        try:
            asyncio.run(self._all(iter(conversations)))
        except* (QacalError, *STORE_ERRORS) as group:
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
                ask = next(conversation)
                while replies := await self._replies(ask):
                    ask = conversation.send(replies)
            except StopIteration:
                pass
            self.progress.done += 1
            # Another worker may have asked meanwhile; then this conversation most likely asked too.
            self.progress.fresh += self.progress.sent > before
            self.tell(self.progress)

    async def _replies(self, ask: Ask) -> list[Reply]:
        """Return the samples of a reply, from the store or the server; none if one of them is missing."""
        key = digest(ask.request)
        while key in self._in_flight:  # two questions with the same text are one request
            await self._in_flight[key].wait()
        replies = {number: self.store.reply(ask.request, number) for number in ask.samples}
        missing = [number for number, reply in replies.items() if reply is None]
        self.progress.known += len(replies) - len(missing)
        self._in_flight[key] = asyncio.Event()
        try:
            while missing and (bodies := await self._asked(ask.request, missing)):
                for number, body in zip(missing, bodies, strict=False):
                    replies[number] = Reply.from_text(body)
                missing = missing[len(bodies) :]
        finally:
            self._in_flight.pop(key).set()
        return [reply for reply in replies.values() if reply is not None] if not missing else []

    async def _asked(self, request: Request, missing: Sequence[int]) -> list[str]:
        """Ask for samples, all at once if the server takes ``n``; return the stored replies, none after a failure."""
        at_once = len(missing) if self._takes_n and "n" not in request else 1
        sent = request if at_once == 1 else {**request, "n": at_once}
        result = await self.client.ask(sent, lambda: self.tell(self.progress))
        if isinstance(result, Failed) and at_once > 1 and result.trouble in _MAY_BE_N:
            result = await self.client.ask(request, lambda: self.tell(self.progress))
            self._takes_n = self._takes_n and not isinstance(result, Got)
        if isinstance(result, Got):
            bodies = separate_choices(result.body, at_once)
            self._takes_n = self._takes_n and len(bodies) == at_once
            for number, body in zip(missing, bodies, strict=False):
                self.store.keep(request, body, None, result.seconds, number)
            self.progress.sent += len(bodies)
            self._failures_in_a_row = 0
            return bodies
        self.store.keep(request, None, result.why, result.seconds, missing[0])
        self.progress.failed += 1
        self.progress.failures[result.why] += 1
        # A refusal concerns one request; others may succeed.
        self._failures_in_a_row = 0 if result.is_refusal else self._failures_in_a_row + 1
        self._raise_if_hopeless(result)
        return []

    def _raise_if_hopeless(self, failed: Failed) -> None:
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


def require_fields(fields: Mapping[str, Any], logprobs: bool | None = None) -> None:
    """Refuse fields of requests that contradict other options, or whose effect would be ignored.

    logprobs : whether token probabilities are requested; None leaves that to the fields.

    >>> require_fields({"n": 5})
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: the field n is 5: several replies to one request are samples of an answer; ...
    """
    for name, value in fields.items():
        why = None
        if name in ("n", "best_of") and value not in (None, 1):
            why = "several replies to one request are samples of an answer; qacal elicit --samples asks for them."
        elif name in ("stream", "stream_options") and value:
            why = "replies are read whole, not as a stream. Leave it out."
        elif name == "model":
            why = "name the LLM with --model (in Python: model)."
        elif name == "messages":
            why = "the prompt says it. For another one, write a prompt of your own (.toml)."
        elif name == "logprobs" and logprobs and not value:
            why = "token probabilities are requested. To change that, pass --no-logprobs (in Python: logprobs=False)."
        elif name in ("logprobs", "top_logprobs") and logprobs is False and value:
            why = (
                "token probabilities are not requested. Leave it out, or leave out --no-logprobs (in Python: "
                "logprobs=False)."
            )
        if why is not None:
            raise InputError(f"the field {name} is {value!r}: {why}")
