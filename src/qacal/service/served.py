"""The models that a service has loaded, and the thread that calibrates with them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from qacal.errors import InputError, QacalError, some_of
from qacal.model.base import BaseModel
from qacal.model.saved import load
from qacal.records.columns import KNOWN
from qacal.records.provenance import SAMPLING
from qacal.storage import MODEL, MODEL_SET, version_of

_log = logging.getLogger("qacal.service")

# Records of several requests that are calibrated together.
_MOST_AT_ONCE = 256
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
        raise InputError(
            f"model is {llm!r:.80}, and {what} fitted on it. Name one of {some_of([*served], 20)}: as model of the "
            "request, or in the record."
        )

    def reload(self) -> list[Served]:
        """Load models whose files have changed, and return them; a version that cannot be loaded leaves the old one."""
        changed = []
        with self._lock:
            for name, path in self.paths.items():
                state, old = _state(path), self.served.get(name)
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
    done: Future[Explained] = field(default_factory=Future)


class Worker:
    """A thread that calibrates. Requests that wait are calibrated together: ten records take little longer than one."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="qacal-worker", daemon=True)
        self._thread.start()

    def submit(self, served: Served, records: list[dict[str, Any]], *, why: bool) -> Future[Explained]:
        """Return the evidence of each record, when it is there."""
        job = _Job(served, records, why)
        self._jobs.put(job)
        return job.done

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs, count = [job], len(job.records)
            with suppress(Empty):
                while count < _MOST_AT_ONCE:
                    if (job := self._jobs.get_nowait()) is None:
                        self._jobs.put(None)
                        break
                    jobs.append(job)
                    count += len(job.records)
            together: dict[tuple[Served, bool], list[_Job]] = {}
            for job in jobs:
                if job.done.set_running_or_notify_cancel():  # else nobody waits for it any more
                    together.setdefault((job.served, job.why), []).append(job)
            for (served, why), mine in together.items():
                _finish(served, mine, why=why)


def _finish(served: Served, jobs: list[_Job], *, why: bool) -> None:
    """Calibrate the records of some jobs together."""
    try:
        found = served.explained([record for job in jobs for record in job.records], why=why)
        first = 0
        for job in jobs:
            job.done.set_result(found[first : first + len(job.records)])
            first += len(job.records)
    except Exception as error:  # a mistake in qacal must not end the thread: requests would wait for ever
        for job in jobs:
            if not job.done.done():
                job.done.set_exception(error)
