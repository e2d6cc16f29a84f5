"""The models that a service has loaded, and the worker that calibrates with them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from qacal.embedders import ColumnEmbedder, StaticEmbedder
from qacal.errors import InputError, QacalError, some_of
from qacal.model.base import BaseModel
from qacal.model.saved import load
from qacal.records.columns import KNOWN
from qacal.records.provenance import SAMPLING
from qacal.storage import MODEL, MODEL_SET, version_of

_log = logging.getLogger("qacal.service")

# A request with more records, or with more characters in them, takes milliseconds: it is calibrated by another thread.
_MOST_SHORT = 4
_LONGEST_SHORT = 4000
# Short requests that are calibrated together.
_MOST_AT_ONCE = 32
Explained = list[dict[str, Any] | QacalError]


@dataclass(frozen=True, eq=False)
class Served:
    """One version of a model.

    seen : the state of its file when it was loaded; another state may be another version.
    """

    name: str
    path: str
    version: str
    model: BaseModel
    since: float
    seen: object = None

    @property
    def llms(self) -> set[Any]:
        """The LLMs whose answers it was fitted on, as the column `model` names them."""
        return self.model._fitted_on("model")

    @property
    def has_threshold(self) -> bool:
        """Whether there is a decision about any of its answers."""
        return any(model.decision_rule_ is not None for model in self.model._models.values())

    @cached_property
    def is_quick(self) -> bool:
        """Whether a record takes a few milliseconds: not with an embedder that is a neural network."""
        pipelines = [model.pipeline_ for model in self.model._models.values()]
        quick = StaticEmbedder, ColumnEmbedder
        return all(isinstance(one.vectors.load(), quick) for one in pipelines if one.needs_vectors)

    @cached_property
    def _columns(self) -> frozenset[str]:
        """All columns that may matter."""
        models = self.model._models.values()
        rules = {model.decision_rule_.column for model in models if model.decision_rule_ is not None}
        read = {name for model in models for name in model.pipeline_.values_seen()}
        return frozenset(name for name in {*read, *rules, self.model._by, *KNOWN, "agreement"} if name is not None)

    def explained(self, records: list[dict[str, Any]], *, why: bool) -> Explained:
        """Return the evidence of each record, or the error of a bad one; `why` adds what the evidence rests on.

        Beside the evidence are its `cells`, which the store keeps for the watch.

        A result does not depend on the other records: only those with the same columns and types of values form a
        table. How answers were sampled is checked for a table as a whole, so it is the same there, too.
        """
        if len(records) == 1:
            return self._found(records, why=why)
        alike: dict[Any, list[int]] = {}
        for at, record in enumerate(records):
            sampled = [repr(record.get(name)) for name in SAMPLING] if "agreement" in record else []
            kinds = [(name, _kind(record[name])) for name in self._columns if name in record]
            alike.setdefault((*kinds, *sampled), []).append(at)
        found: Explained = [{}] * len(records)
        for places in alike.values():
            for at, one in zip(places, self._found([records[at] for at in places], why=why), strict=True):
                found[at] = one
        return found

    def _found(self, records: list[dict[str, Any]], *, why: bool) -> Explained:
        try:
            return [*self.model._explained_rows(records, why=why, cells=True)]
        except QacalError as error:
            if len(records) == 1:
                return [error]
            # Some record is bad, or does not go together with others: each half by itself.
            middle = len(records) // 2
            return [*self._found(records[:middle], why=why), *self._found(records[middle:], why=why)]
        except BaseException as error:
            if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
                raise
            # A panic of a compiled library (polars, tokenizers) is no Exception, and would end the service.
            raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


class Models:
    """Models by name. A new version takes the place of the old one in one step, and requests in work keep theirs.

    paths : of the saved models by name.
    embedder : as in :func:`qacal.load`.
    may_lack : a model that does not exist yet is served when it does.
    """

    def __init__(self, paths: Mapping[str, str], embedder: str | None = None, *, may_lack: bool = False) -> None:
        self.paths, self._embedder = paths, embedder
        self._lock = Lock()
        self._failed: dict[str, object] = {}
        self._gone: set[str] = set()
        self.reloads = self.failures = 0
        self.served: Mapping[str, Served] = {
            name: self._load(name, path) for name, path in paths.items() if not may_lack or _state(path) is not None
        }

    @property
    def llms(self) -> set[Any]:
        """The LLMs whose answers any of them was fitted on."""
        return {llm for served in self.served.values() for llm in served.llms}

    def choose(self, name: str | None, record: dict[str, Any]) -> tuple[Served, dict[str, Any]]:
        """Return the model for a record, and the record as the model reads it.

        name : of a served model; without it the column `model` of the record decides, if several models are served. It
            has the name of a served model, or of the LLM that one of them was fitted on.
        """
        served = self.served
        if name is not None:
            if name not in served:
                raise InputError(f"there is no model {name!r:.80}; this service has {some_of([*served], 20)}.")
            return served[name], record
        if len(served) == 1:
            return next(iter(served.values())), record
        llm = record.get("model")
        if isinstance(llm, str) and llm in served:
            return served[llm], {name: value for name, value in record.items() if name != "model"}
        fitted = [one for one in served.values() if isinstance(llm, str | int) and llm in one.llms]
        if len(fitted) == 1:
            return fitted[0], record
        what = "no model was" if not fitted else "several models were"
        problem = "the record names no model" if llm is None else f"model is {llm!r:.80}, and {what} fitted on it"
        raise InputError(f"{problem}. Name one of {some_of([*served], 20)}: as model of the request, or in the record.")

    def reload(self) -> list[Served]:
        """Load models whose files have changed, and return them; a version that cannot be loaded leaves the old one."""
        changed = []
        with self._lock:
            for name, path in self.paths.items():
                state, old = _state(path), self.served.get(name)
                if state is None and old is not None and name not in self._gone:
                    _log.warning("model %s: %s is gone; version %s is served on", name, path, old.version[:12])
                self._gone = self._gone - {name} if state is not None else self._gone | {name}
                if state in (None if old is None else old.seen, self._failed.get(name)):
                    continue
                try:
                    new = self._load(name, path)
                except (QacalError, OSError) as error:
                    self._failed[name] = state
                    self.failures += 1
                    _log.error("model %s: the new version was not loaded, the old one stays: %s", name, error)
                    continue
                self.served = {**self.served, name: new}
                before = "none" if old is None else old.version
                if new.version != before:
                    self.reloads += 1
                    changed.append(new)
                    _log.info("model %s: version %s in place of %s", name, new.version[:12], before[:12])
                    if old is not None and old.has_threshold and not new.has_threshold:
                        _log.warning(
                            "model %s: version %s has no threshold, and the one before had one, so the service no "
                            "longer abstains; choose one: qacal threshold --save",
                            name,
                            new.version[:12],
                        )
        return changed

    def _load(self, name: str, path: str) -> Served:
        while True:
            state, version = _state(path), version_of(path)
            model = load(path, embedder=self._embedder, warm=True)
            if version_of(path) == version:  # else it was replaced meanwhile
                return Served(name, path, version, model, time.time(), state)


def _state(path: str) -> object:
    """Return what changes when the model in a folder does."""
    home = Path(path)
    with suppress(OSError):
        status = os.stat(home / (MODEL_SET if (home / MODEL_SET).is_file() else MODEL))
        return status.st_ino, status.st_mtime_ns, status.st_size
    return None


class Watcher:
    """Looks for new versions of models in a thread of its own: every few seconds, and when told to.

    seconds : between two looks; 0 for only when told to.
    told : called with each new version.
    """

    def __init__(self, models: Models, seconds: float, told: Callable[[Served], None] = lambda served: None) -> None:
        self._models, self._seconds, self._told = models, seconds, told
        self._wake, self._is_over = Event(), False
        self._thread = Thread(target=self._watch, name="qacal-models", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Look now; safe in a handler of signals."""
        self._wake.set()

    def close(self) -> None:
        self._is_over = True
        self._wake.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._wake.wait(self._seconds or None)
            self._wake.clear()
            if self._is_over:
                return
            for served in self._models.reload():
                self._told(served)


@dataclass(frozen=True, eq=False)
class _Job:
    served: Served
    records: list[dict[str, Any]]
    why: bool
    done: asyncio.Future[Explained]


class Worker:
    """Calibrates the records of requests.

    Short requests are calibrated by the thread that answers them: waking another one, and waiting for the lock of the
    interpreter, would take longer than the work. Those that have arrived at the same time are calibrated together, as
    ten records take little longer than one. Long requests, and models whose embedder takes long, have a thread, so that
    others are answered meanwhile.
    """

    def __init__(self) -> None:
        self._waiting: list[_Job] = []
        self._thread = ThreadPoolExecutor(1, "qacal-worker")

    async def explained(self, served: Served, records: list[dict[str, Any]], *, why: bool) -> Explained:
        """Return the evidence of each record, or its error, as :meth:`Served.explained` does."""
        loop = asyncio.get_running_loop()
        is_short = len(records) <= _MOST_SHORT and sum(map(_length, records)) <= _LONGEST_SHORT
        if not (is_short and served.is_quick):
            return await loop.run_in_executor(self._thread, partial(served.explained, records, why=why))
        job = _Job(served, records, why, loop.create_future())
        self._waiting.append(job)
        if len(self._waiting) == 1:
            loop.call_soon(self._work)
        return await job.done

    def close(self) -> None:
        self._thread.shutdown()

    def _work(self) -> None:
        # As many as take little longer than one; others that are answered meanwhile must not wait for all of them.
        jobs, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._work)
        together: dict[tuple[Served, bool], list[_Job]] = {}
        for job in jobs:
            if not job.done.cancelled():  # else nobody waits for it any more
                together.setdefault((job.served, job.why), []).append(job)
        for (served, why), mine in together.items():
            _finish(served, mine, why=why)


def _length(value: Any) -> int:
    """Return the number of characters and numbers in a record, or in a value of it."""
    if isinstance(value, dict | list):
        return sum(map(_length, value.values() if isinstance(value, dict) else value))
    return len(value) if isinstance(value, str) else 1


def _finish(served: Served, jobs: list[_Job], *, why: bool) -> None:
    """Calibrate the records of some jobs together."""
    try:
        found = iter(served.explained([record for job in jobs for record in job.records], why=why))
        for job in jobs:
            job.done.set_result([*islice(found, len(job.records))])
    except Exception as error:  # requests must not wait for ever
        for job in jobs:
            if not job.done.done():
                job.done.set_exception(error)
