"""The store: the same tests on SQLite and on a real PostgreSQL."""

import logging
import sqlite3
import time
from itertools import pairwise
from uuid import uuid4

import pytest
import sqlalchemy as sa

from qacal.errors import InputError
from qacal.service import database
from qacal.service import store as module
from qacal.service.audits import Label, UnknownAnswerError, require_id
from qacal.service.database import MIGRATIONS, StoreError, answers, bets
from qacal.service.store import Store, row_of
from tests.service.databases import NEEDS, can_run, postgres

EVIDENCE = {
    "source": "band",
    "group": 3,
    "confidence": 0.9,
    "calibrated": 0.7,
    "low": 0.6,
    "high": None,
    "unlike": 0.2,
    "decision": None,
}


def row(**others):
    return {**row_of(uuid4().hex, "m", "v1", EVIDENCE, own_id="q1"), **others}


@pytest.fixture(scope="module")
def server():
    with postgres() as running:
        yield running


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param(
            "postgresql",
            marks=[
                pytest.mark.heavy,
                pytest.mark.skipif(not can_run(), reason=NEEDS),
            ],
        ),
    ]
)
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'served.db'}"
        return
    folder, _, _ = request.getfixturevalue("server")
    url = f"postgresql+psycopg://qacal@/postgres?host={folder}"
    yield url
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        database.metadata.drop_all(connection)
    engine.dispose()


@pytest.fixture
def store(url):
    store = Store(url)
    yield store
    store.close()


def wait(store, count):
    until = time.monotonic() + 10
    while store.counts.stored + store.counts.lost < count:
        assert time.monotonic() < until
        time.sleep(0.01)


class TestStore:
    def test_answers_come_back_as_they_were_served(self, store):
        rows = [row(), row(group=None), row(group='"law"')]
        store.record(rows)
        wait(store, 3)
        found = {one["id"]: one for one in store.rows()}
        assert [found[one["id"]]["group"] for one in rows] == [3, None, "law"]
        first = found[rows[0]["id"]]
        assert {name: first[name] for name in EVIDENCE} == EVIDENCE
        assert (first["model"], first["model_version"], first["record"], first["label"]) == ("m", "v1", None, None)
        assert abs(first["time"] - time.time()) < 60

    def test_a_label_is_on_disk_when_it_is_acknowledged(self, store, url):
        served = row()
        store.record([served])
        # At once: the answer itself may still be queued.
        assert store.label([Label(served["id"], 1.0)]).result(10) == [None]
        # Another connection sees it.
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            found = connection.execute(sa.select(answers)).mappings().one()
        engine.dispose()
        assert (found["label"], found["label_source"], found["label_probability"]) == (1.0, "volunteered", None)

    def test_labels_of_unknown_answers_are_refused_one_by_one(self, store):
        served = row()
        store.record([served])
        unknown, stored = store.label([Label(uuid4().hex, 1.0), Label(served["id"], 0.0)]).result(10)
        assert isinstance(unknown, UnknownAnswerError)
        assert stored is None
        assert [one["label"] for one in store.rows(labelled=True)] == [0.0]

    def test_a_volunteered_label_does_not_replace_that_of_an_audit(self, store):
        served = row()
        store.record([served])
        assert store.label([Label(served["id"], 0.0)]).result(10) == [None]
        assert store.label([Label(served["id"], 1.0, "audit", 0.25)]).result(10) == [None]
        (refused,) = store.label([Label(served["id"], 0.0)]).result(10)
        assert "label of an audit" in str(refused)
        (found,) = store.rows(labelled=True)
        assert (found["label"], found["label_source"], found["label_probability"]) == (1.0, "audit", 0.25)
        assert store.label([Label(served["id"], 0.0, "audit", 0.5)]).result(10) == [None]

    def test_labelled_rows_come_in_the_order_of_their_labels(self, store):
        rows = [row(time=float(at)) for at in range(3)] + [row(model="other")]
        store.record(rows)
        for at in (2, 0, 3):
            store.label([Label(rows[at]["id"], 1.0)]).result(10)
        assert [one["id"] for one in store.rows(labelled=True, model="m")] == [rows[2]["id"], rows[0]["id"]]

    def test_answers_are_deleted_by_id(self, store):
        one, two = row(), row()
        store.record([one, two])
        assert store.delete([one["id"]]).result(10) == 1
        assert store.delete([one["id"]]).result(10) == 0
        assert [found["id"] for found in store.rows()] == [two["id"]]

    def test_old_answers_are_deleted(self, store, url, monkeypatch):
        old, new = row(time=time.time() - 3 * 86_400), row()
        store.record([old, new])
        wait(store, 2)
        monkeypatch.setattr(module, "_CLEAN_EVERY", 0.05)
        cleaning = Store(url, keep_days=2.0)
        until = time.monotonic() + 10
        while not cleaning.counts.deleted and time.monotonic() < until:
            time.sleep(0.02)
        assert [found["id"] for found in cleaning.rows()] == [new["id"]]
        cleaning.close()

    def test_what_is_queued_is_written_before_the_store_closes(self, url):
        first = Store(url)
        first.record([row() for _ in range(500)])
        first.close()
        second = Store(url)
        assert len(list(second.rows())) == 500
        second.close()

    def test_a_failing_database_loses_answers_and_says_so_and_recovers(self, store, url, caplog):
        engine = sa.create_engine(url)
        store.record([row()])
        wait(store, 1)
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE qacal_answers RENAME TO hidden"))
        with caplog.at_level(logging.ERROR, "qacal.service"):
            store.record([row(record='{"question": "a secret"}')])
            wait(store, 2)
            with pytest.raises(StoreError, match="cannot be used now"):
                store.label([Label(uuid4().hex, 1.0)]).result(10)
        assert (store.counts.stored, store.counts.lost) == (1, 1)
        assert "secret" not in caplog.text
        assert "1 answer was not stored" in caplog.text
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE hidden RENAME TO qacal_answers"))
        engine.dispose()
        store.record([row()])
        wait(store, 3)
        assert (store.counts.stored, store.counts.lost) == (2, 1)

    def test_a_later_schema_is_refused(self, store, url):
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.execute(database.schema_version.update().values(version=99))
        with pytest.raises(StoreError, match="a later qacal wrote the store"):
            Store(url)
        engine.dispose()

    def test_migrations_keep_rows_and_happen_whole_or_not_at_all(self, url, monkeypatch):
        first = Store(url)
        first.record([row()])
        first.close()

        def add(connection):
            connection.execute(sa.text("ALTER TABLE qacal_answers ADD COLUMN note TEXT"))

        def fail(connection):
            raise sa.exc.InvalidRequestError("stopped")

        monkeypatch.setattr(database, "MIGRATIONS", [*MIGRATIONS, add, fail])
        with pytest.raises(StoreError, match="stopped"):
            Store(url)
        engine = sa.create_engine(url)
        assert "note" not in {column["name"] for column in sa.inspect(engine).get_columns("qacal_answers")}
        monkeypatch.setattr(database, "MIGRATIONS", [*MIGRATIONS, add])
        for _ in range(2):
            second = Store(url)
            assert len(list(second.rows())) == 1
            second.close()
        assert "note" in {column["name"] for column in sa.inspect(engine).get_columns("qacal_answers")}
        with engine.connect() as connection:
            assert connection.execute(sa.select(database.schema_version.c.version)).scalars().all() == [
                len(MIGRATIONS) + 1
            ]
        engine.dispose()

    def test_a_store_of_the_first_schema_gets_the_columns_for_draws(self, url):
        engine = sa.create_engine(url)
        later = ("own_id", "upstream_model", "drawn_time", "drawn_probability")
        first = sa.MetaData()
        table = sa.Table("qacal_answers", first, *(c._copy() for c in answers.columns if c.name not in later))
        version = database.schema_version.to_metadata(first)
        old = {name: value for name, value in row().items() if name not in later}
        with engine.begin() as connection:
            first.create_all(connection)
            connection.execute(version.insert().values(version=1))
            connection.execute(table.insert(), [old])
        store = Store(url)
        store.record([row(own_id='"q7"', upstream_model="parrot-1.1")])
        store.close()
        store = Store(url)
        found = {one["id"]: one for one in store.rows()}
        store.close()
        engine.dispose()
        assert [found[old["id"]][name] for name in later] == [None] * 4
        (new,) = (one for id_, one in found.items() if id_ != old["id"])
        assert (new["own_id"], new["upstream_model"]) == ("q7", "parrot-1.1")

    @pytest.mark.parametrize("lacking", [("cells",), ("own_id", "upstream_model", "drawn_time", "drawn_probability")])
    def test_both_schemas_2_get_the_columns_that_they_lack(self, url, lacking):
        Store(url).close()
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            for name in lacking:
                connection.execute(sa.text(f"ALTER TABLE qacal_answers DROP COLUMN {name}"))
            connection.execute(sa.text("UPDATE qacal_schema SET version = 2"))
        engine.dispose()
        store = Store(url)
        store.record([row(own_id='"q7"', cells="[null, 1]")])
        wait(store, 1)
        assert [(one["own_id"], one["cells"]) for one in store.rows()] == [("q7", "[null, 1]")]
        store.close()

    def test_labels_of_an_earlier_qacal_that_still_runs_get_their_bets(self, url):
        store, served = Store(url), [row(), row()]
        store.record(served)
        store.label([Label(one["id"], 1.0, "audit", 0.5) for one in served]).result()
        expected = [one["document"] for one in store.bets("m", "v1")]
        with store._engine.begin() as connection:
            connection.execute(bets.delete().where(bets.c.answer == served[1]["id"]))
        store.close()
        store = Store(url)
        assert [one["document"] for one in store.bets("m", "v1")] == expected
        store.close()

    def test_services_that_share_a_database_do_not_block_each_other(self, url, monkeypatch):
        """Each asks whether the store can be written while the other writes labels."""
        monkeypatch.setattr(module, "_PROBE_EVERY", 0.0)
        stores = [Store(url), Store(url)]
        futures = []
        for turn in range(60):
            for at, store in enumerate(stores):
                one = row()
                tasks = [store.check, lambda store=store, one=one: store.label([Label(one["id"], 1.0)])]
                store.record([one])
                futures += [task() for task in (tasks if (at + turn) % 2 else tasks[::-1])]
        for future in futures:
            future.result(30)
        assert [store.counts.lost for store in stores] == [0, 0]
        for store in stores:
            store.close()

    def test_a_store_of_schema_3_gets_the_bets_of_its_audits(self, url):
        store = Store(url)
        rows = [row(own_id="7", cells="[null, 1]"), row(own_id='"7"'), row(), row()]
        store.record(rows)
        labels = [Label(rows[at]["id"], at % 2, "audit", 0.25) for at in (2, 0, 1)]
        for label in labels:
            assert store.label([label]).result(10) == [None]
        assert store.label([Label(rows[3]["id"], 1.0)]).result(10) == [None]
        expected = store.bets("m", "v1")
        store.close()
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            bets.drop(connection)
            drawn = answers.update().values(drawn_time=answers.c.label_time - 1).where(answers.c.id == rows[1]["id"])
            connection.execute(drawn)
            later = answers.update().values(drawn_time=answers.c.label_time + 1).where(answers.c.id == rows[2]["id"])
            connection.execute(later)
            connection.execute(database.schema_version.update().values(version=3))
        engine.dispose()
        store = Store(url)
        found = store.bets("m", "v1")
        store.close()
        assert [one["answer"] for one in found] == [label.id for label in labels]
        assert found[1]["document"] == found[2]["document"] != found[0]["document"]
        assert found == [*expected[:2], {**expected[2], "chance": None}]

    def test_labels_of_two_services_are_one_sequence(self, store, url):
        """Whoever reads sees the bets of others only after those with a smaller number."""
        rows = [row() for _ in range(200)]
        store.record(rows)
        wait(store, 200)
        other = Store(url)
        labels = [
            (store, other)[at % 2].label([Label(one["id"], 1.0, "audit", 0.5)]) for at, one in enumerate([*rows, *rows])
        ]
        seen = []
        while not all(label.done() for label in labels):
            seen.append([one["number"] for one in store.bets("m", "v1")])
        assert all(label.result() == [None] for label in labels)
        seen.append([one["number"] for one in other.bets("m", "v1")])
        other.close()
        assert len(seen[-1]) == 200
        assert all(later[: len(before)] == before for before, later in pairwise(seen))

    def test_a_bad_row_is_lost_alone(self, store, caplog):
        before = row()
        store.record([before])
        wait(store, 1)
        rows = [row() for _ in range(20)]
        rows[7]["model"] = None
        rows[12]["id"] = before["id"]
        store.record(rows)
        assert store.label([Label(rows[19]["id"], 1.0)]).result(10) == [None]
        assert (store.counts.stored, store.counts.lost) == (19, 2)
        assert {one["id"] for one in store.rows()} == {before["id"]} | {one["id"] for one in rows} - {rows[7]["id"]}
        assert "1 answer was not stored" in caplog.text

    def test_a_task_that_fails_fails_alone(self, store):
        served = row()
        store.record([served])
        wait(store, 1)
        release = store._run(lambda connection: time.sleep(0.3))
        bad = store._run(lambda connection: 1 / 0)
        good = store.label([Label(served["id"], 1.0)])
        release.result(10)
        with pytest.raises(StoreError):
            bad.result(10)
        assert good.result(10) == [None]

    def test_the_name_of_an_llm_is_made_storable(self, store):
        store.record([row_of(uuid4().hex, "m", "v1", EVIDENCE, upstream_model="owl\0-2" + "x" * 10_000)])
        wait(store, 1)
        (found,) = store.rows()
        assert found["upstream_model"].startswith("owl-2x")
        assert len(found["upstream_model"]) < 201

    def test_rows_are_found_by_model_version_and_time(self, store):
        rows = [row(time=float(at), model_version=f"v{at % 2}") for at in range(4)] + [row(model="other")]
        store.record(rows)
        wait(store, 5)
        assert [one["id"] for one in store.rows(model="m", version="v1", since=2.0)] == [rows[3]["id"]]
        assert all([*one] == ["id", "group"] for one in store.rows(columns=["id", "group"]))
        assert store.models() == ["m", "other"]

    def test_draws_are_stored_with_the_chance_of_every_answer(self, store):
        rows = [row(time=float(at)) for at in range(10)] + [row(model="other")]
        store.record(rows)
        wait(store, 11)
        drawn = store.draw("m", 2, lambda pool: [one["id"] for one in pool[:2]])
        assert {one["drawn_probability"] for one in drawn} == {0.2}
        again = store.draw("m", 3, lambda pool: [one["id"] for one in pool[:3]], since=4.0)
        assert not {one["id"] for one in drawn} & {one["id"] for one in again}
        found = {one["id"]: one for one in store.rows()}
        pool = sum(one["time"] >= 4 and one["id"] not in {one["id"] for one in drawn} for one in rows[:10])
        for at, one in enumerate(rows[:10]):
            expected = 0.2 if at < 4 else 1 - 0.8 * (1 - 3 / pool)
            assert found[one["id"]]["drawn_probability"] == pytest.approx(expected)
        assert found[rows[10]["id"]]["drawn_probability"] is None
        assert sum(one["drawn_time"] is not None for one in found.values()) == 5
        assert len(store.unlabelled_draws("m")) == 5
        with pytest.raises(InputError, match="5 answers of 'm' to draw from"):
            store.draw("m", 6, lambda pool: [])

    def test_draws_and_labels_do_not_disturb_each_other(self, store, url):
        rows = [row() for _ in range(300)]
        store.record(rows)
        wait(store, 300)
        labels = [store.label([Label(one["id"], 1.0)]) for one in reversed(rows)]
        other, drawn = Store(url), []
        for _ in range(10):
            store.record([row()])
            drawn += other.draw("m", 10, lambda pool: [one["id"] for one in pool[-10:]])
        other.close()
        assert all(label.result(30) == [None] for label in labels)
        assert len({one["id"] for one in drawn}) == 100
        wait(store, 310)
        assert (store.counts.lost, store.counts.failures) == (0, 0)

    def test_the_label_of_a_drawn_answer_needs_no_probability(self, store):
        rows = [row(), row()]
        store.record(rows)
        wait(store, 2)
        (drawn,) = store.draw("m", 1, lambda pool: [pool[0]["id"]])
        other = next(one["id"] for one in rows if one["id"] != drawn["id"])
        stored, refused = store.label([Label(drawn["id"], 1.0, "audit"), Label(other, 1.0, "audit")]).result(10)
        assert stored is None
        assert "was not drawn" in str(refused)
        (found,) = store.rows(labelled=True)
        assert (found["label_source"], found["label_probability"]) == ("audit", 0.5)
        assert not store.unlabelled_draws("m")

    def test_a_store_that_cannot_keep_up_loses_answers_and_does_not_wait(self, store, url, monkeypatch):
        monkeypatch.setattr(module, "_MOST_WAITING", 10)
        held = Store(url)
        task = held._run(lambda connection: time.sleep(0.5))
        time.sleep(0.1)
        began = time.monotonic()
        held.record([row() for _ in range(30)])
        assert time.monotonic() - began < 0.3
        task.result(10)
        held.close()
        assert (held.counts.stored, held.counts.lost) == (10, 20)


@pytest.mark.heavy
@pytest.mark.skipif(not can_run(), reason=NEEDS)
def test_postgresql_may_go_and_come_back():
    with postgres() as (folder, stop, start):
        store = Store(f"postgresql+psycopg://qacal@/postgres?host={folder}")
        store.record([row()])
        wait(store, 1)
        stop()
        store.record([row()])
        wait(store, 2)
        with pytest.raises(StoreError):
            store.check().result(10)
        start()
        store.record([row()])
        wait(store, 3)
        assert (store.counts.stored, store.counts.lost) == (2, 1)
        store.close()


def test_a_full_disk_loses_answers_and_says_so(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'served.db'}")
    sa.event.listen(store._engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count=20"))
    store._engine.dispose()
    store.record([row(record="x" * 100_000)])
    wait(store, 1)
    assert store.counts.lost == 1
    with pytest.raises(StoreError, match="full"):
        store._run(lambda connection: connection.execute(answers.insert(), row(record="x" * 100_000))).result(10)
    store.close()


def test_sqlite_commits_are_on_disk_and_readers_do_not_wait(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'served.db'}")
    with store._engine.connect() as connection:
        settings = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    assert settings == ["wal", 2]
    reader = sqlite3.connect(tmp_path / "served.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM qacal_answers").fetchone()
    store.record([row()])
    wait(store, 1)
    assert store.counts.stored == 1
    reader.close()
    store.close()


@pytest.mark.parametrize("id_", ["", "x", "a" * 31, "A" * 32, "\x00" * 32, "é" * 32, "a" * 33])
def test_other_texts_are_no_ids(id_):
    with pytest.raises(UnknownAnswerError):
        require_id(id_)
    with pytest.raises(UnknownAnswerError):
        Label(id_, 1.0)


def test_only_audits_have_probabilities():
    with pytest.raises(InputError, match="volunteered label has no probability"):
        Label("a" * 32, 1.0, "volunteered", 0.5)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite://", "needs a file"),
        ("mysql://host/name", "expected sqlite"),
        ("no url", "write sqlite:///no url"),
        ("sqlite:////no/such/folder/served.db", "no folder /no/such/folder"),
    ],
)
def test_stores_that_cannot_be_used_are_named(url, problem):
    with pytest.raises(StoreError, match=problem):
        Store(url)


def test_a_password_is_not_shown():
    with pytest.raises(StoreError) as raised:
        Store("mysql://user:hunter2@host/name")
    assert "hunter2" not in str(raised.value)
