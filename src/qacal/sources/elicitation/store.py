"""The store of a run: an SQLite file with the questions, and every request with its raw reply.

A reply is in the file before the next request is made, so a run that is killed loses only the requests on their way.
The file can be read while the run goes on. The key of a request is its digest, so a request that has a reply is never
made again. Several samples of one request are told apart by their number, which is part of the key.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from qacal.errors import InputError
from qacal.sources.elicitation.question import Question
from qacal.sources.elicitation.reply import Reply, Request
from qacal.storage import digest

_APPLICATION = 0x71616361  # "qaca", which tells our files from other databases
_VERSION = 1
_SQLITE = b"SQLite format 3\0"
_TABLES = """
CREATE TABLE run (
    id INTEGER PRIMARY KEY, setup TEXT NOT NULL UNIQUE, base_url TEXT NOT NULL, started TEXT DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE question (
    run INTEGER NOT NULL REFERENCES run, place INTEGER NOT NULL, id TEXT NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (run, place), UNIQUE (run, id)
) WITHOUT ROWID;
CREATE TABLE request (
    key TEXT PRIMARY KEY, asked TEXT NOT NULL, reply TEXT, failure TEXT, seconds REAL, at TEXT DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID;
"""
# The second is raised if a message of SQLite quotes bytes that are not text.
STORE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
# Everything in the file that concerns the three tables: themselves, or views, indexes and triggers of others.
_LAYOUT = """
SELECT sql FROM sqlite_master
WHERE sql IS NOT NULL AND (type = 'trigger' OR tbl_name IN ('run', 'question', 'request'))
"""
_BROKEN = "The file is damaged, or was changed by something else; write to a new one."
_AT_ONCE = 500
# A file with larger values is damaged, or was made to fill the memory: replies are shorter (client.py).
_LARGEST_VALUE = 2**28
# Another program may hold the file for a moment.
_SECONDS_TO_WAIT = 10.0


class Store:
    """An open store; see :func:`open_store`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._db = connection
        self.path = path

    # Runs and their questions

    def run(self, setup: Mapping[str, Any], base_url: str) -> int:
        """Return the number of the run with a setup, a new one if there is none yet."""
        text = json.dumps(setup, sort_keys=True, ensure_ascii=False)
        with self._db:
            self._db.execute("INSERT OR IGNORE INTO run (setup, base_url) VALUES (?, ?)", (text, base_url))
        (number,) = self._db.execute("SELECT id FROM run WHERE setup = ?", (text,)).fetchone()
        return int(number)

    def base_url(self, run: int) -> str:
        """Return the base URL at which a run began."""
        (url,) = self._db.execute("SELECT base_url FROM run WHERE id = ?", (run,)).fetchone()
        return str(url)

    def forget(self, run: int) -> None:
        """Remove a run and its questions; requests and replies stay."""
        with self._db:
            self._db.execute("DELETE FROM question WHERE run = ?", (run,))
            self._db.execute("DELETE FROM run WHERE id = ?", (run,))

    def runs(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the numbers of the runs and their setups, the oldest first."""
        rows = self._db.execute("SELECT id, setup FROM run ORDER BY id")
        return [(number, self._object(setup, f"run {number}")) for number, setup in rows]

    def add_questions(self, run: int, questions: Iterable[Question]) -> int:
        """Add questions to a run, all or none; return their number. Questions that are there keep their place."""
        ids: set[str] = set()
        with self._db:
            (last,) = self._db.execute("SELECT coalesce(max(place), 0) FROM question WHERE run = ?", (run,)).fetchone()
            for question in questions:
                if question.id in ids:
                    raise InputError(
                        f"the question {question.text!r:.80} (id {question.id!r}) is there twice. Give each row its "
                        "own id, or leave one of them out."
                    )
                ids.add(question.id)
                last += self._add_question(run, last + 1, question)
        return len(ids)

    def _add_question(self, run: int, place: int, question: Question) -> int:
        """Add a question, or update its other columns; return the number of new questions, 1 or 0."""
        content = {"question": question.text, "choices": question.choices, "ground_truth": question.ground_truth}
        text = json.dumps(content | {"others": dict(question.others)}, ensure_ascii=False, default=str)
        row = (run, question.id)
        stored = self._db.execute("SELECT content FROM question WHERE run = ? AND id = ?", row).fetchone()
        if stored is None:
            self._db.execute("INSERT INTO question VALUES (?, ?, ?, ?)", (run, place, question.id, text))
        elif (before := self._object(stored[0], f"question {question.id!r}").get("question")) != question.text:
            raise InputError(
                f"the id {question.id!r} belongs to two questions: {before!r:.80} and {question.text!r:.80}. Give each "
                "its own id, or write to a new file."
            )
        else:
            self._db.execute("UPDATE question SET content = ? WHERE run = ? AND id = ?", (text, *row))
        return int(stored is None)

    def questions(self, run: int) -> Iterator[Question]:
        """Yield the questions of a run in their order, reading a few at a time."""
        query = "SELECT place, id, content FROM question WHERE run = ? AND place > ? ORDER BY place LIMIT ?"
        last = 0
        while rows := self._db.execute(query, (run, last, _AT_ONCE)).fetchall():
            for place, identity, content in rows:
                name = f"question {identity!r:.80}"
                # A damaged file may give the same rows for ever.
                if not isinstance(place, int) or place <= last or not isinstance(identity, str):
                    raise InputError(f"{self.path}: {name} is at the place {place!r:.80}, after {last}. {_BROKEN}")
                last = place
                values = self._object(content, name)
                text, others = values.get("question"), values.get("others")
                choices, truths = values.get("choices"), values.get("ground_truth")
                lists = (truths,) if choices is None else (truths, choices)
                is_listed = all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists)
                if not isinstance(text, str) or not isinstance(others, dict) or not is_listed:
                    raise InputError(f"{self.path}: {name} is {content!r:.200}; expected a question. {_BROKEN}")
                offered = None if choices is None else tuple(choices)
                yield Question(identity, text, offered, tuple(truths or ()), others)

    # Requests and their replies

    def reply(self, request: Request, sample: int = 0) -> Reply | None:
        """Return the reply to a request, None if there is none; `sample` is its number if there are several.

        A reply that cannot be read, because the file is damaged, counts as none: the request is made again.
        """
        query = "SELECT reply FROM request WHERE key = ? AND reply IS NOT NULL"
        row = self._db.execute(query, (_key(request, sample),)).fetchone()
        try:
            return None if row is None else Reply.from_text(str(row[0]))
        except InputError:
            return None

    def days(self) -> tuple[str, str]:
        """Return the days of the first and the last reply."""
        query = "SELECT date(min(at)), date(max(at)) FROM request WHERE reply IS NOT NULL"
        first, last = self._db.execute(query).fetchone()
        return first, last

    def keep(self, request: Request, reply: str | None, failure: str | None, seconds: float, sample: int = 0) -> None:
        """Write a reply, or why there is none, to the file."""
        asked = json.dumps(request, ensure_ascii=False)
        with self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO request (key, asked, reply, failure, seconds) VALUES (?, ?, ?, ?, ?)",
                (_key(request, sample), asked, reply, failure, seconds),
            )

    def _object(self, text: Any, name: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise InputError(f"{self.path}: {name} is {text!r:.200}; expected a JSON object. {_BROKEN}")
        return value


def _key(request: Request, sample: int) -> str:
    # The first sample has the key of a request that is made once, so a run with more samples uses the earlier replies.
    return digest({**request, "sample": sample} if sample else request)


@contextmanager
def open_store(path: str | Path, *, to_write: bool) -> Iterator[Store]:
    """Open a store, or create one to write to. Only one process writes at a time."""
    path = Path(path)
    _require_place(path, to_write)
    try:
        with (
            _only_writer(path) if to_write and os.name == "posix" else nullcontext(),
            closing(sqlite3.connect(path, timeout=_SECONDS_TO_WAIT)) as connection,
        ):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
            _prepare(connection, path, to_write)
            yield Store(connection, path)
    except STORE_ERRORS as error:
        is_intact = any(word in str(error) for word in ("full", "readonly", "I/O", "unable to open"))
        remedy = "" if is_intact else _BROKEN
        if "locked" in str(error):
            remedy = "Another program holds it; close that, and try again."
        raise InputError(f"{path} cannot be used as a run: {error}. {remedy}".strip()) from error


def _require_place(path: Path, to_write: bool) -> None:
    """Refuse a path that cannot be a run, before any file is created."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected the file of a run, such as run.db.")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file; expected the file of a run, such as run.db.")
    if not to_write and not path.is_file():
        raise InputError(f"{path} does not exist; expected a run of qacal elicit.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist.")
    if path.is_file():
        with path.open("rb") as file:
            begins = file.read(len(_SQLITE))
        if begins != _SQLITE and (begins or not to_write):
            raise InputError(f"{path} is not a run of qacal elicit; expected an SQLite file.")


def _prepare(connection: sqlite3.Connection, path: Path, to_write: bool) -> None:
    # Functions that the file itself defines are not run.
    connection.execute("PRAGMA trusted_schema = OFF")
    (application,), (version,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    is_new = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if (not is_new or not to_write) and application != _APPLICATION:
        raise InputError(f"{path} is a database, but not a run of qacal elicit.")
    if version > _VERSION:
        raise InputError(f"{path} was written by a later qacal (layout {version}; this one reads {_VERSION}). Upgrade.")
    if is_new and not to_write:
        raise InputError(f"{path} is empty; expected a run of qacal elicit.")
    if not is_new:
        ours = {" ".join(text.split()) for text in _TABLES.split(";") if text.strip()}
        if {" ".join(str(text).split()) for (text,) in connection.execute(_LAYOUT)} != ours:
            raise InputError(f"{path} has other tables, indexes or triggers than a run of qacal elicit. {_BROKEN}")
    # A commit is in the file, past this process, at once; only a crash of the whole machine could lose the last ones.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if is_new:
        # One transaction: a process that is killed here leaves no half of a layout.
        connection.executescript(
            f"BEGIN; {_TABLES} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; COMMIT;"
        )


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process: two runs would ask everything twice."""
    # A file of its own: closing any handle of the database would drop the locks that SQLite holds on it.
    lock = path.with_name(path.name + "-lock")
    with _locked(lock, path):
        try:
            yield
        finally:
            # While it is still locked, so that it is ours.
            lock.unlink(missing_ok=True)


def _locked(lock: Path, path: Path) -> IO[str]:
    """Return the open file that only this process has locked."""
    import fcntl

    while True:
        # A link or a pipe of that name is neither followed nor waited for, and a file is not emptied.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.fdopen(os.open(lock, flags, 0o644), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise InputError(f"{path} is being written by another run; wait for it, or write elsewhere.") from None
        # The process that held the lock before may have removed the file: then this lock protects nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return file
        file.close()
