"""Asking a server all requests of a run: some workers, and a store that knows what was asked before."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from qacal.errors import InputError, QacalError, ServerError
from qacal.sources.elicitation.client import Client, Failed, Got, Traffic, Trouble
from qacal.sources.elicitation.reply import Reply
from qacal.sources.elicitation.requests import Conversation, Request, request_key
from qacal.sources.elicitation.store import Store, StoreError

_SERVER_TROUBLES = (Trouble.UNREACHABLE, Trouble.TIMEOUT, Trouble.BUSY, Trouble.SERVER)
# A server that fails so many requests, and has answered none, fails all; so does one that has and then is silent.
_FAILURES = 10


class NoLogprobsError(InputError):
    """The server does not give log-probabilities, and says so.

    said : what it said, without the remedy that the message ends with.
    """

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


@dataclass
class Progress:
    """How far a run is.

    done : conversations that are over, failed ones included.
    fresh : those of them that a server was asked in.
    sent, known : requests that the server replied to now, and those that had a reply before.
    failed : requests without a reply; the next run makes them again.
    failures : why, and how many.
    traffic : how many requests that took: some are made several times.
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
    """Drives conversations until each is over, or one of its requests has failed.

    store : where replies are looked for first, and kept.
    client : asks for the others.
    workers : how many requests are on their way at a time.
    tell : called whenever a conversation is over, or a request is to be made again.
    """

    store: Store
    client: Client
    workers: int = 8
    tell: Callable[[Progress], None] = lambda progress: None
    progress: Progress = field(default_factory=Progress)
    _on_the_way: dict[str, asyncio.Event] = field(default_factory=dict)
    _silent: int = 0

    def all(self, conversations: Iterable[Conversation]) -> Progress:
        """Ask all; conversations are taken one by one, as workers become free."""
        try:
            asyncio.run(self._all(iter(conversations)))
        except* (QacalError, *StoreError) as group:
            raise _first(group) from None
        return self.progress

    async def _all(self, conversations: Iterator[Conversation]) -> None:
        asyncio.get_running_loop().set_exception_handler(_complain)
        # Workers take from the iterator itself, so no more questions are in memory than there are workers.
        async with self.client, asyncio.TaskGroup() as group:
            for _ in range(self.workers):
                group.create_task(self._work(conversations))

    async def _work(self, conversations: Iterator[Conversation]) -> None:
        for conversation in conversations:
            before = self.progress.sent
            await self._converse(conversation)
            self.progress.done += 1
            # Others may have been asked meanwhile, which is the usual case where anything is.
            self.progress.fresh += self.progress.sent > before
            self.tell(self.progress)

    async def _converse(self, conversation: Conversation) -> None:
        try:
            request = next(conversation)
            while (reply := await self._reply(request)) is not None:
                request = conversation.send(reply)
        except StopIteration:
            pass

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
            return self._kept(request, result)
        finally:
            self._on_the_way.pop(key).set()

    def _kept(self, request: Request, result: Got | Failed) -> Reply | None:
        if isinstance(result, Got):
            self.store.keep(request, result.body, None, result.seconds)
            self.progress.sent += 1
            self._silent = 0
            return result.reply
        self.store.keep(request, None, result.why, result.seconds)
        self.progress.failed += 1
        self.progress.failures[result.why] += 1
        # A refusal is an answer of a kind: it is about this request, and others may fare better.
        self._silent = 0 if result.is_refusal else self._silent + 1
        self._require_hope(result)
        return None

    def _require_hope(self, failed: Failed) -> None:
        """Stop where going on would only fail again: nothing has worked so far, or nothing works any more."""
        has_worked = self.progress.sent + self.progress.known > 0
        said = f"{self.client.shown_url}: {failed.why.rstrip('.')}."
        told = f"{said} {_remedy(failed)}"
        if failed.trouble is Trouble.NO_LOGPROBS and not has_worked:
            raise NoLogprobsError(told, said)
        is_wrong = failed.status in (404, None) or _names_field(failed)
        is_lost = self._silent >= _FAILURES or failed.status in (401, 403) or failed.trouble is Trouble.QUOTA
        is_lost = is_lost or self.client.is_strange
        if is_lost or (not has_worked and (is_wrong or self.progress.failed >= _FAILURES)):
            raise (ServerError if failed.trouble in _SERVER_TROUBLES else InputError)(told)


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # SIGTERM ends the program by SystemExit. Where it strikes within a task, asyncio also complains about that task.
    if not isinstance(context.get("exception"), SystemExit | KeyboardInterrupt):
        loop.default_exception_handler(context)


_GOES_ON = "What has replies is kept: the same command goes on from there."
_REMEDIES = {
    Trouble.TIMEOUT: f"Is the server running? --timeout gives it more time, fewer --workers less to do. {_GOES_ON}",
    Trouble.UNREACHABLE: f"Is the server running? {_GOES_ON}",
    Trouble.BUSY: f"The server gets too many requests: ask slower with --rpm 20, or fewer --workers. {_GOES_ON}",
    Trouble.QUOTA: f"The account has no quota or credit left, as the server counts it. {_GOES_ON}",
    Trouble.SERVER: f"Is the server running? The error is its own. {_GOES_ON}",
    Trouble.STRANGE: f"Is the base URL that of a chat API? Most end in /v1. {_GOES_ON}",
    Trouble.NO_LOGPROBS: "If the server has no token probabilities, pass --no-logprobs, and a prompt that needs none "
    "(--prompt verb1s-top1, not p-true).",
}


def _remedy(failed: Failed) -> str:
    if failed.trouble in _REMEDIES:
        return _REMEDIES[failed.trouble]
    if failed.status in (401, 403):
        return "Is the key the right one? It is read from the environment (--key-env NAME), or sent with --header."
    if failed.status == 404:
        return "Is the base URL the one that ends before /chat/completions, and does the server know this model?"
    if _names_field(failed):
        return "If it is a reasoning LLM, pass --preset reasoning; --field temperature=null leaves a field out."
    return "Fields that a server does not take can be left out or changed: --field temperature=null."


def _names_field(failed: Failed) -> bool:
    """Whether the server refuses a field that all requests have."""
    return failed.trouble is Trouble.REFUSED and any(name in failed.why for name in ("max_tokens", "temperature"))


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
