"""The database of the store, SQLite or PostgreSQL: its tables, steps from one schema to the next, and connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from qacal.errors import QacalError
from qacal.tally.ids import id_hashes

# Any number that other programs are unlikely to use: two services that start at once must not both migrate.
_MIGRATION_LOCK = 7_212_025
# A PostgreSQL that is out of reach is given up after so many seconds.
_CONNECT_SECONDS = 5
_SILENT_MILLISECONDS = 20_000

metadata = sa.MetaData()
schema_version = sa.Table("qacal_schema", metadata, sa.Column("version", sa.Integer, nullable=False))
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
drawn_time : when the store drew the answer for labelling; NULL if it did not.
drawn_probability : with which the answer is in one of the draws so far, whether it is or not.
cells : as JSON, which intervals of the model's version the answer is about: the model of a set (else null), and the
    numbers of its cells. With it the watch needs no text.
"""

bets = sa.Table(
    "qacal_bets",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("answer", sa.String(32), sa.ForeignKey(answers.c.id, ondelete="SET NULL"), unique=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("model_version", sa.String(64), nullable=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("document", sa.String(16), nullable=False),
    sa.Column("label", sa.Double, nullable=False),
    sa.Column("label_time", sa.Double, nullable=False),
    sa.Column("chance", sa.Double),
    sa.Column("calibrated", sa.Double),
    sa.Column("source", sa.Text),
    sa.Column("cells", sa.Text),
    sa.Index("qacal_bets_of_version", "model", "model_version"),
)
"""A row for each label of an audit: all that the watch bets on, in the order of `number`, which is that of arrival.

Rows are never deleted and never change their place, so the bets of a version are one sequence whatever is deleted of
its answers. They have no text.

answer : NULL when the answer was deleted.
time : when the answer was served.
document : a hash of the `id` of the record, or of the answer if it has none; answers with one hash are a document.
label : as it was last corrected; label_time is the time of that.
chance : with which an audit drew the answer; NULL if the store drew it.
"""


def bet_of(row: Any, label: float, label_time: float, probability: float | None) -> dict[str, Any]:
    """Return the row of :data:`bets` for a label of an audit.

    row : of the answer.
    probability : with which the audit drew it. An answer that the store draws after its label was no draw of the store.
    """
    own = row["id"] if row["own_id"] is None else str(json.loads(row["own_id"]))
    is_drawn = row["drawn_time"] is not None and row["drawn_time"] <= label_time
    return {
        "answer": row["id"],
        **{name: row[name] for name in ("model", "model_version", "time", "calibrated", "source", "cells")},
        "document": f"{int(id_hashes([own], 1)[0]):016x}",
        "label": label,
        "label_time": label_time,
        "chance": None if is_drawn else probability,
    }


def _create(connection: Any) -> None:
    metadata.create_all(connection)


def _add_columns(connection: Any) -> None:
    """Add the columns that earlier schemas did not have."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(answers.name)}
    for column in answers.c:
        if column.name not in there:
            kind = column.type.compile(connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {answers.name} ADD COLUMN {column.name} {kind}"))


def _add_bets(connection: Any) -> None:
    bets.create(connection, checkfirst=True)


def _bet_on_all(connection: Any) -> None:
    """Add the labels of audits that an earlier qacal wrote, in the order of their times; it may still run beside."""
    lock(connection, bets)
    has_bet = sa.exists().where(bets.c.answer == answers.c.id)
    audits = sa.select(answers).where(answers.c.label_source == "audit", ~has_bet)
    audits = audits.order_by(answers.c.label_time, answers.c.id)
    rows = [
        bet_of(row, row["label"], row["label_time"], row["label_probability"])
        for row in connection.execute(audits).mappings()
    ]
    if rows:
        connection.execute(bets.insert(), rows)


# There were two schemas 2, with other columns each, so both steps add whatever lacks.
MIGRATIONS: list[Callable[[Any], None]] = [_create, _add_columns, _add_columns, _add_bets]
"""Step n brings a database from schema version n to n + 1."""


class StoreError(QacalError):
    """The database cannot be used now."""


def migrate(engine: Any) -> None:
    """Bring a database to the schema of this version of qacal: all steps, or none."""
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
        found = 0
        if sa.inspect(connection).has_table(schema_version.name):
            found = connection.execute(sa.select(schema_version.c.version)).scalar_one()
        if found > len(MIGRATIONS):
            raise StoreError(f"a later qacal wrote the store (schema {found}); upgrade qacal, or use another store.")
        for step in MIGRATIONS[found:]:
            step(connection)
        if found == 0:
            connection.execute(schema_version.insert().values(version=len(MIGRATIONS)))
        elif found < len(MIGRATIONS):
            connection.execute(schema_version.update().values(version=len(MIGRATIONS)))
        _bet_on_all(connection)


@contextmanager
def writing(engine: Any) -> Iterator[Any]:
    """Open a transaction that writes. SQLite takes its lock at once: later, it would fail instead of waiting."""
    with engine.connect().execution_options(qacal_writes=True) as connection, connection.begin():
        yield connection


def lock(connection: Any, table: sa.Table) -> None:
    """Let others that write to a table wait for the end of the transaction; with SQLite they always do."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE"))


@contextmanager
def reported() -> Iterator[None]:
    """Raise what a database refuses as a :class:`StoreError`."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(f"the database cannot be used now: {said(error)}") from None


def said(error: Exception) -> str:
    """Return what a database says, without the statement and its values: these may be texts of users."""
    first = getattr(error, "orig", None) or error
    if isinstance(error, sa.exc.StatementError) and error.orig is None:
        return type(error).__name__
    return str(first).strip().partition("\n")[0]


def engine_of(url: str, *, must_exist: bool) -> Any:
    """Return the engine for a URL; SQLite with a write-ahead log, and commits that are on disk."""
    if "://" not in url:
        raise StoreError(f"the store is {url}, which is no URL; for a file, write sqlite:///{url}.")
    address = sa.make_url(url)
    if address.get_backend_name() == "postgresql":
        limits = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": _SILENT_MILLISECONDS}
        return sa.create_engine(address, pool_pre_ping=True, connect_args=limits)
    if address.get_backend_name() != "sqlite":
        raise StoreError(
            f"the store is {address.render_as_string()}; expected sqlite:///FILE or postgresql+psycopg://..."
        )
    if address.database in (None, "", ":memory:"):
        raise StoreError("the store needs a file: sqlite:///served.db.")
    if must_exist and not Path(str(address.database)).is_file():
        raise StoreError(f"there is no store {address.database}; qacal serve makes it. Check --store.")
    file = Path(str(address.database))
    if not file.parent.is_dir():
        raise StoreError(f"there is no folder {file.parent} for the store; make it, or check --store.")
    engine = sa.create_engine(address, connect_args={"timeout": 30})

    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below: Python's sqlite3 leaves tables out of them
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}")
        record.info["file"] = _identity(file)

    def began(connection: Any) -> None:
        writes = connection.get_execution_options().get("qacal_writes")
        # SQLite writes on into a file that was deleted, and everything would be lost at the end.
        if writes and connection.info["file"] != _identity(file):
            raise StoreError(f"{file} was deleted or replaced while the service ran; start the service again.")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", began)
    return engine


def _identity(file: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of the same name; None if there is no file."""
    with suppress(OSError):
        status = file.stat()
        return status.st_dev, status.st_ino
    return None
