"""The store: what was served, and the labels of it that arrive later. SQLite or PostgreSQL.

Answers must not wait for a disk, and must be given even if the database is gone. So one thread writes: served answers
are queued, and written many at a time; if that fails, they are counted as lost. A label is different: whoever sends one
waits until it is on disk. Both go through one queue, so the label of an answer comes after the answer.

`database.py` has the tables, and `audits.py` what a label and a draw change in them.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any

import sqlalchemy as sa

from qacal.errors import InputError, counted
from qacal.service import audits
from qacal.service.audits import Label
from qacal.service.database import (
    StoreError,
    answers,
    bets,
    engine_of,
    lock,
    migrate,
    reported,
    said,
    schema_version,
    writing,
)

_log = logging.getLogger("qacal.service")

# Served answers wait this long for others, so that they share a transaction; a label does not wait.
_GATHER = 0.25
_MOST_AT_ONCE = 2000
# More than this many served answers in the queue are lost: the database does not keep up.
_MOST_WAITING = 100_000
# Names of LLMs are cut after so many characters.
_LONGEST = 200
_DAY = 86_400.0
_CLEAN_EVERY = 600.0
# Whether the database can be written is tried at most once in so many seconds.
_PROBE_EVERY = 1.0
# A failure is logged at most once in so many seconds: a full disk should not be filled by its messages.
_TELL_EVERY = 5.0
# At the end, what is queued has so long to be written: a database that hangs must not keep the process.
_CLOSE_SECONDS = 20.0

# The database is gone, full, or has no such table: smaller portions would fail, too.
_NOT_DATA = (
    *(sa.exc.OperationalError, sa.exc.InternalError, sa.exc.ProgrammingError, sa.exc.TimeoutError),
    StoreError,
)


@dataclass
class Counts:
    """What became of served answers since the start."""

    stored: int = 0
    lost: int = 0
    deleted: int = 0
    failures: int = 0


@dataclass(frozen=True)
class _Task:
    """Something that a caller waits for; it runs in the transaction of the queue."""

    run: Callable[[Any], Any]
    done: Future[Any] = field(default_factory=Future)


class Store:
    """Answers and labels in a database.

    url : of SQLAlchemy, such as ``sqlite:///served.db`` or ``postgresql+psycopg://user@host/name``.
    keep_days : delete older answers, with their labels; None keeps them.
    must_exist : raise if there is no such file; a service makes it.

    problem : why the database could not be written the last time; None if it could.
    """

    def __init__(self, url: str, keep_days: float | None = None, *, must_exist: bool = False) -> None:
        self.counts = Counts()
        self._keep_days = keep_days
        self._queue: Queue[dict[str, Any] | _Task | None] = Queue(_MOST_WAITING)
        self._is_awaited = Event()  # somebody waits for what is in the queue
        self._cleaned = -math.inf
        self.problem: str | None = None
        self._probe: Future[Any] | None = None
        self._probed = -math.inf
        self._unsaid, self._told = 0, -math.inf  # answers that were lost since the log last told about a failure
        try:
            self._engine = engine_of(url, must_exist=must_exist)
            try:
                migrate(self._engine)
            except BaseException:
                self._engine.dispose()
                raise
        except (sa.exc.SQLAlchemyError, ImportError, OSError) as error:
            remedy = "pip install 'psycopg[binary]'." if isinstance(error, ImportError) else "Check --store."
            raise StoreError(f"the store cannot be opened: {said(error)}. {remedy}") from None
        self._thread = Thread(target=self._write, name="qacal-store", daemon=True)
        self._thread.start()

    # Writing

    def record(self, rows: Iterable[dict[str, Any]]) -> None:
        """Queue served answers: rows of :data:`answers` without label. Returns at once; what does not fit is lost."""
        for row in rows:
            try:
                self._queue.put_nowait(row)
            except Full:
                self.counts.lost += 1

    def label(self, labels: Sequence[Label]) -> Future[list[InputError | None]]:
        """Write labels; the result comes when they are on disk: None for each, or why it was refused.

        The label of an audit stays if somebody volunteers another one: audits alone certify.
        """
        return self._run(lambda connection: audits.write_labels(connection, labels))

    def delete(self, ids: Sequence[str]) -> Future[int]:
        """Delete answers with their labels; the result is how many there were."""
        return self._run(lambda connection: _delete(connection, answers.c.id.in_(ids)))

    def _run(self, run: Callable[[Any], Any]) -> Future[Any]:
        task = _Task(run)
        try:
            self._queue.put_nowait(task)
            self._is_awaited.set()
        except Full:
            task.done.set_exception(StoreError("the database does not keep up; try again later."))
        return task.done

    def draw(
        self, model: str, n: int, choose: Callable[[list[dict[str, Any]]], list[str]], since: float | None = None
    ) -> list[dict[str, Any]]:
        """Draw answers of a model for labelling, and return them, as :func:`qacal.service.audits.draw` does."""
        with reported(), writing(self._engine) as connection:
            return [_with_group(row) for row in audits.draw(connection, model, n, choose, since)]

    # The thread that writes

    def _write(self) -> None:
        is_open = True
        while is_open:
            work = self._gathered()
            is_open = None not in work
            rows = [one for one in work if isinstance(one, dict)]
            tasks = [one for one in work if isinstance(one, _Task) and one.done.set_running_or_notify_cancel()]
            if rows or tasks:
                self._do(rows, tasks)
            try:
                self._clean()
            except Exception as error:
                self.counts.failures += 1
                _log.error("the store failed to delete old answers: %s", said(error))

    def _do(self, rows: list[dict[str, Any]], tasks: list[_Task]) -> None:
        """Write rows, then do the tasks; whatever is wrong with the database, later work is tried again.

        If the database is there and refuses something, each half is tried by itself: others lose nothing by it.
        """
        try:
            with writing(self._engine) as connection:
                if rows:
                    connection.execute(answers.insert(), rows)
                results = [task.run(connection) for task in tasks]
        except Exception as error:
            if len(rows) + len(tasks) > 1 and not isinstance(error, _NOT_DATA):
                by_row, by_task = (len(rows) + 1) // 2, 0 if rows else (len(tasks) + 1) // 2
                self._do(rows[:by_row], tasks[:by_task])
                self._do(rows[by_row:], tasks[by_task:])
                return
            self.counts.failures += 1
            self.counts.lost += len(rows)
            if isinstance(error, _NOT_DATA):
                self.problem = said(error)
            self._unsaid += len(rows)
            if time.monotonic() >= self._told + _TELL_EVERY:
                lost = f", {counted(self._unsaid, 'answer was', 'answers were')} not stored" if self._unsaid else ""
                _log.error("the store failed%s: %s", lost, said(error))
                self._unsaid, self._told = 0, time.monotonic()
            for task in tasks:
                task.done.set_exception(StoreError(f"the database cannot be used now: {said(error)}"))
            return
        self.problem = None
        self.counts.stored += len(rows)
        for task, result in zip(tasks, results, strict=True):
            task.done.set_result(result)

    def _gathered(self) -> list[dict[str, Any] | _Task | None]:
        """Return what is to be written next: at least one thing, or nothing if it is time to clean up."""
        try:
            work = [self._queue.get(timeout=_CLEAN_EVERY)]
        except Empty:
            return []
        if isinstance(work[0], dict) and self._queue.qsize() < _MOST_AT_ONCE - 1:
            self._is_awaited.wait(_GATHER)
        self._is_awaited.clear()
        with suppress(Empty):
            while len(work) < _MOST_AT_ONCE and work[-1] is not None:
                work.append(self._queue.get_nowait())
        return work

    def _clean(self) -> None:
        """Delete answers that are too old, if it is time to."""
        if self._keep_days is None or time.monotonic() < self._cleaned + _CLEAN_EVERY:
            return
        self._cleaned = time.monotonic()
        since = time.time() - self._keep_days * _DAY
        # In portions, so that labels do not wait long for it.
        old = sa.select(answers.c.id).where(answers.c.time < since).limit(audits.PORTION)
        deleted = audits.PORTION
        while deleted == audits.PORTION:
            with writing(self._engine) as connection:
                deleted = _delete(connection, answers.c.id.in_(old))
            self.counts.deleted += deleted

    # Reading

    def rows(
        self,
        *,
        labelled: bool = False,
        model: str | None = None,
        version: str | None = None,
        since: float | None = None,
        columns: Sequence[str] | None = None,
        latest: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield stored answers in the order of time; labelled ones in the order of their labels.

        labelled : only those with a label.
        model, version : only those of one served model, or of one version.
        since : only those that were served since then.
        columns : only these columns.
        latest : only so many, the last ones first.
        """
        wanted = answers.c if columns is None else [answers.c[name] for name in columns]
        order = answers.c.label_time if labelled else answers.c.time
        query = sa.select(*wanted).order_by(order if latest is None else order.desc(), answers.c.id).limit(latest)
        if labelled:
            query = query.where(answers.c.label.is_not(None))
        for column, value in ((answers.c.model, model), (answers.c.model_version, version)):
            if value is not None:
                query = query.where(column == value)
        if since is not None:
            query = query.where(answers.c.time >= since)
        with reported(), self._engine.connect() as connection:
            for row in connection.execution_options(yield_per=1000).execute(query).mappings():
                yield _with_group(row)

    def models(self) -> list[str]:
        """Return the names of the models of which there are answers, or were when audits labelled them."""
        names = sa.union(sa.select(answers.c.model), sa.select(bets.c.model))
        with reported(), self._engine.connect() as connection:
            return sorted(connection.execute(names).scalars())

    def unlabelled_draws(self, model: str, since: float | None = None) -> list[dict[str, Any]]:
        """Return the answers that were drawn for labelling and have no label of an audit."""
        with reported(), self._engine.connect() as connection:
            return [_with_group(row) for row in audits.unlabelled_draws(connection, model, since)]

    def count_unlabelled_draws(self, model: str, since: float | None = None) -> int:
        """Return how many answers :meth:`unlabelled_draws` returns."""
        with reported(), self._engine.connect() as connection:
            return len(audits.unlabelled_draws(connection, model, since, (answers.c.id,)))

    def bets(self, model: str, version: str, since: float | None = None) -> list[dict[str, Any]]:
        """Return the labels of audits of a version in the order in which they came, also of answers that are deleted.

        since : only of answers that were served since then.
        """
        query = _of_version(sa.select(bets), bets, model, version, since).order_by(bets.c.number)
        with reported(), self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def bets_made(self, model: str, version: str) -> tuple[int, float]:
        """Return how many labels of audits the answers of a version have had, and the time of the last one."""
        query = _of_version(sa.select(sa.func.count(), sa.func.max(bets.c.label_time)), bets, model, version)
        with reported(), self._engine.connect() as connection:
            count, last = connection.execute(query).one()
        return count, last or 0.0

    def bets_on_others(self, model: str, version: str, since: float | None = None) -> int:
        """Return how many labels of audits the answers of all other versions of a model have had."""
        query = sa.select(sa.func.count()).where(bets.c.model == model, bets.c.model_version != version)
        if since is not None:
            query = query.where(bets.c.time >= since)
        with reported(), self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def last_of_others(self, model: str, version: str) -> float:
        """Return when an answer was last served by another version of a model."""
        is_other = answers.c.model == model, answers.c.model_version != version
        with reported(), self._engine.connect() as connection:
            return connection.execute(sa.select(sa.func.max(answers.c.time)).where(*is_other)).scalar_one() or 0.0

    def volunteered(self, model: str, version: str, since: float | None = None) -> list[tuple[str | None, int]]:
        """Return the cells of the answers of a version that have a volunteered label, and how many have them."""
        query = _of_version(sa.select(answers.c.cells, sa.func.count()), answers, model, version, since)
        query = query.where(answers.c.label_source == "volunteered").group_by(answers.c.cells)
        with reported(), self._engine.connect() as connection:
            return [(cells, count) for cells, count in connection.execute(query)]

    @property
    def waiting(self) -> int:
        """How many answers and labels are queued."""
        return self._queue.qsize()

    def check(self) -> Future[None]:
        """Write something; the result is a :class:`StoreError` if that fails. It waits for what is queued."""
        if self._probe is None or (self._probe.done() and time.monotonic() >= self._probed + _PROBE_EVERY):
            self._probe = self._run(_rewrite)
            self._probed = time.monotonic()
        return self._probe

    def close(self) -> None:
        """Write what is queued, and close the database."""
        with suppress(Full):
            self._queue.put(None, timeout=_CLOSE_SECONDS)
            self._is_awaited.set()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.error("the database hangs; what was queued is not stored: %d answers and labels", self.waiting)
            return
        self._engine.dispose()


def row_of(
    id_: str,
    model: str,
    version: str,
    evidence: dict[str, Any],
    record: Any = None,
    *,
    own_id: Any = None,
    upstream_model: str | None = None,
    cells: Any = None,
) -> dict[str, Any]:
    """Return the row of a served answer.

    record : to keep with it; None for none.
    own_id : the `id` of the record, by which it can be found later; None if it has none.
    upstream_model : the LLM that an upstream says it used.
    cells : the intervals that it is about.
    """
    names = ("source", "confidence", "calibrated", "low", "high", "unlike", "decision")
    group = evidence["group"]
    return {
        "id": id_,
        "time": time.time(),
        "model": model,
        "model_version": version,
        "group": None if group is None else json.dumps(group),
        **{name: evidence[name] for name in names},
        "record": None if record is None else json.dumps(record),
        "own_id": json.dumps(own_id) if isinstance(own_id, str | int) else None,
        "upstream_model": None if upstream_model is None else _storable(upstream_model),
        "cells": None if cells is None else json.dumps(cells),
    }


def _storable(text: str) -> str:
    r"""Return a text of an upstream without what databases refuse, and not too long.

    >>> _storable("owl\0-2\ud800")
    'owl-2?'
    """
    return text[:_LONGEST].encode("utf-8", "replace").decode().replace("\0", "")


def _with_group(row: Any) -> dict[str, Any]:
    """Return a row as an object, with group and own id as they were served."""
    return {**row, **{name: json.loads(row[name]) for name in ("group", "own_id") if row.get(name) is not None}}


def _delete(connection: Any, condition: Any) -> int:
    """Delete answers; the bets on them stay, and no longer name them."""
    lock(connection, bets)
    return int(connection.execute(answers.delete().where(condition)).rowcount)


def _rewrite(connection: Any) -> None:
    """Write what is there already. As for labels, the lock comes first: no two services then wait for each other."""
    lock(connection, bets)
    connection.execute(schema_version.update().values(version=schema_version.c.version))


def _of_version(query: Any, table: sa.Table, model: str, version: str, since: float | None = None) -> Any:
    found = query.where(table.c.model == model, table.c.model_version == version)
    return found if since is None else found.where(table.c.time >= since)
