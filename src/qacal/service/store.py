"""The store: what was served, and the labels of it that arrive later. SQLite or PostgreSQL.

Answers must not wait for a disk, and must be given even if the database is gone. So one thread writes: served answers
are queued, and written many at a time; if that fails, they are counted as lost. A label is different: whoever sends one
waits until it is on disk. Both go through one queue, so the label of an answer comes after the answer.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Thread
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from qacal.errors import InputError, QacalError, counted

_log = logging.getLogger("qacal.service")

Source: TypeAlias = Literal["volunteered", "audit"]
"""How a label came about: somebody chose to give it, or the answer was drawn at random for labelling."""

# Served answers wait this long for others, so that they share a transaction; a label does not wait.
_GATHER = 0.05
_MOST_AT_ONCE = 2000
# More than this many served answers in the queue are lost: the database does not keep up.
_MOST_WAITING = 100_000
# Deletion of old rows goes in portions, so that labels do not wait long for it.
_PORTION = 5000
# Names of LLMs are cut after so many characters.
_LONGEST = 200
_DAY = 86_400.0
_CLEAN_EVERY = 600.0
# Any number that other programs are unlikely to use: two services that start at once must not both migrate.
_MIGRATION_LOCK = 7_212_025
_ID = re.compile("[0-9a-f]{32}")
_UNKNOWN = "there is no served answer with this id; it may be too old, or was not stored."

# The database is gone or has no such table: smaller portions would fail, too.
_NOT_DATA = (sa.exc.OperationalError, sa.exc.InternalError, sa.exc.ProgrammingError, sa.exc.TimeoutError)

metadata = sa.MetaData()
_version = sa.Table("qacal_schema", metadata, sa.Column("version", sa.Integer, nullable=False))
answers = sa.Table(
    "qacal_answers",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("time", sa.Double, nullable=False, index=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("model_version", sa.String(64), nullable=False),
    sa.Column("group", sa.Text),
    sa.Column("source", sa.Text),
    sa.Column("confidence", sa.Double),
    sa.Column("calibrated", sa.Double),
    sa.Column("low", sa.Double),
    sa.Column("high", sa.Double),
    sa.Column("unlike", sa.Double),
    sa.Column("decision", sa.Text),
    sa.Column("record", sa.Text),
    sa.Column("label", sa.Double),
    sa.Column("label_source", sa.Text),
    sa.Column("label_probability", sa.Double),
    sa.Column("label_time", sa.Double, index=True),
    sa.Column("own_id", sa.Text),
    sa.Column("upstream_model", sa.Text),
    sa.Column("drawn_time", sa.Double),
    sa.Column("drawn_probability", sa.Double),
    sa.Column("cells", sa.Text),
)
"""A row for each served answer.

time, label_time, drawn_time : in seconds since 1970, UTC.
group : as JSON, since groups may be texts or numbers.
record : the record as JSON, if the service keeps text.
label_probability : with which an audit drew the answer; NULL for a volunteered label.
own_id : the `id` of the record, as JSON.
upstream_model : the LLM that an upstream says it used.
drawn_time : when :meth:`Store.draw` drew the answer for labelling; NULL if it did not.
drawn_probability : with which the answer is in one of the draws so far, whether it is or not.
cells : as JSON, which intervals of the model's version the answer is about: the model of a set (else null), and the
    numbers of its cells. With it the watch needs no text.
"""


def _create(connection: Any) -> None:
    metadata.create_all(connection)


def _add_columns(connection: Any) -> None:
    """Add the columns that earlier schemas did not have."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(answers.name)}
    for column in answers.c:
        if column.name not in there:
            kind = column.type.compile(connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {answers.name} ADD COLUMN {column.name} {kind}"))


# There were two schemas 2, with other columns each, so both steps add whatever lacks.
MIGRATIONS: list[Callable[[Any], None]] = [_create, _add_columns, _add_columns]
"""Step n brings a database from schema version n to n + 1."""


class StoreError(QacalError):
    """The database cannot be used now."""


class UnknownAnswerError(InputError):
    """No served answer has this id."""


def require_id(id_: str) -> None:
    """Raise unless a text can be the id of a served answer; databases refuse some other texts."""
    if not _ID.fullmatch(id_):
        raise UnknownAnswerError(_UNKNOWN)


@dataclass(frozen=True)
class Label:
    """The label of a served answer.

    correct : 1 or 0, or a number in between.
    probability : with which an audit drew the answer; None if the label was volunteered, or if the store drew it.
    """

    id: str
    correct: float
    source: Source = "volunteered"
    probability: float | None = None

    def __post_init__(self) -> None:
        require_id(self.id)
        if self.source == "volunteered" and self.probability is not None:
            raise InputError("a volunteered label has no probability; only an audit draws answers at random.")


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
    """

    def __init__(self, url: str, keep_days: float | None = None, *, must_exist: bool = False) -> None:
        self.counts = Counts()
        self._keep_days = keep_days
        self._queue: Queue[dict[str, Any] | _Task | None] = Queue(_MOST_WAITING)
        self._cleaned = -math.inf
        try:
            self._engine = _engine(url, must_exist=must_exist)
            try:
                self._migrate()
            except BaseException:
                self._engine.dispose()
                raise
        except (sa.exc.SQLAlchemyError, ImportError, OSError) as error:
            raise StoreError(f"the store cannot be opened: {_said(error)}. Check --store.") from None
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
        return self._run(lambda connection: [self._label(connection, label) for label in labels])

    def delete(self, ids: Sequence[str]) -> Future[int]:
        """Delete answers with their labels; the result is how many there were."""
        return self._run(lambda connection: connection.execute(answers.delete().where(answers.c.id.in_(ids))).rowcount)

    def _run(self, run: Callable[[Any], Any]) -> Future[Any]:
        task = _Task(run)
        try:
            self._queue.put_nowait(task)
        except Full:
            task.done.set_exception(StoreError("the database does not keep up; try again later."))
        return task.done

    def _label(self, connection: Any, label: Label) -> InputError | None:
        found = connection.execute(
            sa.select(answers.c.label_source, answers.c.drawn_time, answers.c.drawn_probability).where(
                answers.c.id == label.id
            )
        ).first()
        if found is None:
            return UnknownAnswerError(_UNKNOWN)
        if label.source == "volunteered" and found.label_source == "audit":
            return InputError("this answer has a label of an audit, which a volunteered one does not replace.")
        probability = label.probability
        if label.source == "audit" and probability is None:
            if found.drawn_time is None:
                return InputError(
                    "this answer was not drawn for labelling; a label of an audit needs the probability with which "
                    "the answer was drawn."
                )
            probability = found.drawn_probability
        values = {
            "label": label.correct,
            "label_source": label.source,
            "label_probability": probability,
            "label_time": time.time(),
        }
        connection.execute(answers.update().where(answers.c.id == label.id).values(values))
        return None

    def draw(
        self, model: str, n: int, choose: Callable[[list[dict[str, Any]]], list[str]], since: float | None = None
    ) -> list[dict[str, Any]]:
        """Draw answers of a model for labelling, and return them.

        Answers that were drawn before are not drawn again. The probability that an answer is in one of the draws so
        far is stored with each answer, drawn or not: after a chance of p and now one of n in m, p + (1 - p) n/m.

        choose : returns the ids of `n` of the answers that it gets, each with the same chance.
        since : draw from answers that were served since then.
        """
        names = ("id", "calibrated", "group", "drawn_time")
        query = sa.select(*(answers.c[name] for name in names)).where(answers.c.model == model)
        if since is not None:
            query = query.where(answers.c.time >= since)
        with _reported(), self._writing() as connection:
            if connection.dialect.name == "postgresql":
                # Others wait. Without it a draw and a service could each wait for rows that the other one has changed.
                connection.execute(sa.text(f"LOCK TABLE {answers.name} IN SHARE ROW EXCLUSIVE MODE"))
            found = [dict(row) for row in connection.execute(query.order_by(answers.c.id)).mappings()]
            pool = [row for row in found if row["drawn_time"] is None]
            if n > len(pool):
                raise InputError(
                    f"there are only {counted(len(pool), 'answer')} of {model!r} to draw from; ask for at most as "
                    "many (-n)."
                )
            ids = choose(pool)
            before = sa.func.coalesce(answers.c.drawn_probability, 0.0)
            raised = before + (1 - before) * (n / len(pool))
            for some in _portions([row["id"] for row in found]):
                connection.execute(answers.update().where(answers.c.id.in_(some)).values(drawn_probability=raised))
            now = time.time()
            for some in _portions(ids):
                connection.execute(answers.update().where(answers.c.id.in_(some)).values(drawn_time=now))
            # In the order of their ids, which are random: who labels in this order labels at random.
            return [
                _with_group(row)
                for some in _portions(sorted(ids))
                for row in connection.execute(
                    sa.select(answers).where(answers.c.id.in_(some)).order_by(answers.c.id)
                ).mappings()
            ]

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
                _log.error("the store failed to delete old answers: %s", _said(error))

    def _do(self, rows: list[dict[str, Any]], tasks: list[_Task]) -> None:
        """Write rows, then do the tasks; whatever is wrong with the database, later work is tried again.

        If the database is there and refuses something, each half is tried by itself: others lose nothing by it.
        """
        try:
            with self._writing() as connection:
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
            lost = counted(len(rows), "answer was", "answers were")
            _log.error("the store failed, %s not stored: %s", lost, _said(error))
            for task in tasks:
                task.done.set_exception(StoreError(f"the database cannot be used now: {_said(error)}"))
            return
        self.counts.stored += len(rows)
        for task, result in zip(tasks, results, strict=True):
            task.done.set_result(result)

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Open a transaction that writes. SQLite takes its lock at once: later, it would fail instead of waiting."""
        with self._engine.connect().execution_options(qacal_writes=True) as connection, connection.begin():
            yield connection

    def _gathered(self) -> list[dict[str, Any] | _Task | None]:
        """Return what is to be written next: at least one thing, or nothing if it is time to clean up."""
        try:
            work = [self._queue.get(timeout=_CLEAN_EVERY)]
        except Empty:
            return []
        until = time.monotonic() + _GATHER
        with suppress(Empty):
            while len(work) < _MOST_AT_ONCE and isinstance(work[-1], dict):
                work.append(self._queue.get(timeout=max(until - time.monotonic(), 0.0)))
            # Somebody waits for the last one: take only what is there already.
            while len(work) < _MOST_AT_ONCE and work[-1] is not None:
                work.append(self._queue.get_nowait())
        return work

    def _clean(self) -> None:
        """Delete answers that are too old, if it is time to."""
        if self._keep_days is None or time.monotonic() < self._cleaned + _CLEAN_EVERY:
            return
        self._cleaned = time.monotonic()
        since = time.time() - self._keep_days * _DAY
        old = sa.select(answers.c.id).where(answers.c.time < since).limit(_PORTION)
        deleted = _PORTION
        while deleted == _PORTION:
            with self._writing() as connection:
                deleted = connection.execute(answers.delete().where(answers.c.id.in_(old))).rowcount
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
        with _reported(), self._engine.connect() as connection:
            for row in connection.execution_options(yield_per=1000).execute(query).mappings():
                yield _with_group(row)

    def models(self) -> list[str]:
        """Return the names of the models of which there are answers."""
        with _reported(), self._engine.connect() as connection:
            return sorted(connection.execute(sa.select(answers.c.model).distinct()).scalars())

    def unlabelled_draws(self, model: str, since: float | None = None) -> int:
        """Return how many answers were drawn for labelling and have no label of an audit."""
        query = sa.select(sa.func.count()).where(
            answers.c.model == model,
            answers.c.drawn_time.is_not(None),
            answers.c.label_source.is_distinct_from("audit"),
        )
        if since is not None:
            query = query.where(answers.c.time >= since)
        with _reported(), self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def labels_of(self, model: str, version: str) -> tuple[int, float]:
        """Return how many labels the answers of a version have, and the time of the last one."""
        query = sa.select(sa.func.count(), sa.func.max(answers.c.label_time)).where(
            answers.c.label_time.is_not(None), answers.c.model == model, answers.c.model_version == version
        )
        with _reported(), self._engine.connect() as connection:
            count, last = connection.execute(query).one()
        return count, last or 0.0

    @property
    def waiting(self) -> int:
        """How many answers and labels are queued."""
        return self._queue.qsize()

    def check(self) -> None:
        """Raise a :class:`StoreError` if the database cannot be read."""
        with _reported(), self._engine.connect() as connection:
            connection.execute(sa.select(_version.c.version)).first()

    def close(self) -> None:
        """Write what is queued, and close the database."""
        self._queue.put(None)
        self._thread.join()
        self._engine.dispose()

    # Schema versions

    def _migrate(self) -> None:
        """Bring the database to the schema of this version of qacal: all steps, or none."""
        with self._engine.connect().execution_options(qacal_writes=True) as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            found = 0
            if sa.inspect(connection).has_table(_version.name):
                found = connection.execute(sa.select(_version.c.version)).scalar_one()
            if found > len(MIGRATIONS):
                raise StoreError(
                    f"a later qacal wrote the store (schema {found}); upgrade qacal, or use another store."
                )
            for step in MIGRATIONS[found:]:
                step(connection)
            if found == 0:
                connection.execute(_version.insert().values(version=len(MIGRATIONS)))
            elif found < len(MIGRATIONS):
                connection.execute(_version.update().values(version=len(MIGRATIONS)))


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


def _portions(ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(ids), _PORTION):
        yield ids[first : first + _PORTION]


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(f"the database cannot be used now: {_said(error)}") from None


def _said(error: Exception) -> str:
    """Return what a database says, without the statement and its values: these may be texts of users."""
    said = getattr(error, "orig", None) or error
    if isinstance(error, sa.exc.StatementError) and error.orig is None:
        return type(error).__name__
    return str(said).strip().partition("\n")[0]


def _engine(url: str, *, must_exist: bool) -> Any:
    """Return the engine for a URL; SQLite with a write-ahead log, and commits that are on disk."""
    if "://" not in url:
        raise StoreError(f"the store is {url}, which is no URL; for a file, write sqlite:///{url}.")
    address = sa.make_url(url)
    if address.get_backend_name() == "postgresql":
        return sa.create_engine(address, pool_pre_ping=True, connect_args={"connect_timeout": 5})
    if address.get_backend_name() != "sqlite":
        raise StoreError(
            f"the store is {address.render_as_string()}; expected sqlite:///FILE or postgresql+psycopg://..."
        )
    if address.database in (None, "", ":memory:"):
        raise StoreError("the store needs a file: sqlite:///served.db.")
    if must_exist and not Path(str(address.database)).is_file():
        raise StoreError(f"there is no store {address.database}; qacal serve makes it. Check --store.")
    engine = sa.create_engine(address, connect_args={"timeout": 30})

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun below: Python's sqlite3 leaves tables out of them
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}")

    def began(connection: Any) -> None:
        writes = connection.get_execution_options().get("qacal_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", began)
    return engine
