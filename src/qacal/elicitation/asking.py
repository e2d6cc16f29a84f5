"""Asking a server all requests of a run: some workers, and a store that knows what was asked before."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from qacal.elicitation.client import Client, Failed, Got
from qacal.elicitation.replies import Reply
from qacal.elicitation.requests import Conversation, Request, request_key
from qacal.elicitation.store import Store
from qacal.errors import InputError

# A server that fails so many requests, and has answered none, fails all; so does one that has and then is silent.
_FAILURES = 10


@dataclass
class Progress:
    """How far a run is.

    done : conversations that are over, failed ones included.
    fresh : those of them that a server was asked in.
    sent, known : requests that the server replied to now, and those that had a reply before.
    failed : requests without a reply; the next run makes them again.
    failures : why, and how many.
    """

    done: int = 0
    fresh: int = 0
    sent: int = 0
    known: int = 0
    failed: int = 0
    failures: Counter[str] = field(default_factory=Counter)


@dataclass
class Asking:
    """Drives conversations until each is over, or one of its requests has failed.

    store : where replies are looked for first, and kept.
    client : asks for the others.
    workers : how many requests are on their way at a time.
    tell : called whenever a conversation is over.
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
        except* InputError as group:
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
        body = self.store.reply(request)
        if body is not None:
            self.progress.known += 1
            return Reply.from_body(body)
        self._on_the_way[key] = asyncio.Event()
        try:
            return self._kept(request, await self.client.ask(request))
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
        is_wrong = failed.status in (401, 403, 404) or failed.status is None
        is_lost = self._silent >= _FAILURES or failed.status in (401, 403)
        if is_lost or (not has_worked and (is_wrong or self.progress.failed >= _FAILURES)):
            raise InputError(f"{self.client.shown_url}: {failed.why.rstrip('.')}. {_remedy(failed)}")


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # SIGTERM ends the program by SystemExit. Where it strikes within a task, asyncio also complains about that task.
    if not isinstance(context.get("exception"), SystemExit | KeyboardInterrupt):
        loop.default_exception_handler(context)


def _remedy(failed: Failed) -> str:
    if failed.status in (401, 403):
        return "Is the key the right one? It is read from the environment (--key-env NAME)."
    if failed.status == 404:
        return "Is the base URL the one that ends before /chat/completions, and does the server know this model?"
    if failed.status == 200:
        return "Is the base URL that of a chat API? What has replies is kept: the same command goes on from there."
    if failed.status is None or not failed.is_refusal:
        return "Is the server running? What has replies is kept: the same command goes on from there."
    if "logprob" in failed.why.lower():
        return "If the server has no token probabilities, pass --no-logprobs."
    return "Fields that a server does not take can be left out or changed: --field temperature=null."


def _first(group: BaseExceptionGroup[InputError]) -> InputError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
