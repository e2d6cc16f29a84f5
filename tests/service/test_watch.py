"""The watch of a service: labels of audits in the store, and what they say about the intervals."""

import json
from datetime import datetime

import numpy as np
import pytest
import sqlalchemy as sa

from qacal import Column, InputError, QACalibrator, watch
from qacal.model.model_set import ModelSet
from qacal.service.settings import Settings
from qacal.service.store import Store
from qacal.service.watch import of_other_versions
from tests.answers import answers as pairs
from tests.cli.test_cli import run
from tests.model.test_watching import answers
from tests.service.test_app import calibrate, serving, wait_for

NAMES = ("id", "subject", "confidence")


@pytest.fixture(scope="module")
def by_subject():
    return QACalibrator(partition=Column("subject")).fit(answers(0, 2000))


@pytest.fixture
def client(by_subject, tmp_path):
    by_subject.save(tmp_path / "subjects")
    with serving(str(tmp_path / "subjects"), tmp_path) as client:
        client.app.state.watches.seconds = 0.0
        yield client


def look(client):
    reply = client.get("/v1/watch")
    assert reply.status_code == 200, reply.text
    return reply.json()["models"]


def serve_and_label(client, rows, *, source="audit", probability=0.1, chances=None):
    for start in range(0, len(rows), 500):
        part = rows[start : start + 500]
        found = calibrate(client, [{name: row[name] for name in NAMES if name in row} for row in part])
        labels = [
            {"id": one["id"], "correct": row["correct"], "source": source} for one, row in zip(found, part, strict=True)
        ]
        if source == "audit":
            for at, label in enumerate(labels):
                label["probability"] = probability if chances is None else chances[start + at]
        # One at a time, so that each has its own time, as labels have.
        for label in labels:
            (result,) = client.post("/v1/feedback", json={"items": [label]}).json()["results"]
            assert result["stored"]


def test_it_says_what_watch_says_of_the_same_rows(client, by_subject):
    rows = answers(10_000, 300, seed=1, loss=0.35)
    serve_and_label(client, rows)
    (model,) = look(client)
    (part,) = model["parts"]
    expected = watch(by_subject, rows)
    assert expected.is_alarm
    assert (part["labels"], part["broken_after"]) == (expected.labels, expected.broken_after)
    assert part["headline"] == expected.headline
    assert [one["name"] for one in part["intervals"]] == [one.name for one in expected.intervals]
    for one, other in zip(part["intervals"], expected.intervals, strict=True):
        assert one["wealth"] == pytest.approx(other.wealth)
        assert (one["labels"], one["broken_after"], one["side"]) == (other.labels, other.broken_after, other.side)
    (law,) = [one for one in part["alarms"] if one["kind"] == "group"]
    assert (law["group"], law["side"]) == ("law", "low")
    assert datetime.fromisoformat(part["since"]) <= datetime.fromisoformat(law["since"])
    assert model["is_alarm"]


def test_texts_that_are_not_stored_are_not_needed(fitted, folder, tmp_path):
    rows = pairs(400, seed=5)
    names = ("question", "answer", "confidence")
    rng = np.random.default_rng(0)
    with serving(folder, tmp_path) as client:
        client.app.state.watches.seconds = 0.0
        found = calibrate(client, [{name: row[name] for name in names} for row in rows])
        assert all("cells" not in one for one in found)
        labels = [
            {"id": one["id"], "correct": bool(rng.random() < 0.02), "source": "audit", "probability": 1}
            for one in found
        ]
        client.post("/v1/feedback", json={"items": labels})
        ((part,),) = ([*one["parts"]] for one in look(client))
        assert part["is_alarm"]
        assert {one["side"] for one in part["alarms"]} == {"low"}
        assert part["labels"] == 400
        assert any("Stated confidence" in signal["text"] for signal in part["signals"])


def test_volunteered_labels_raise_no_alarm(client):
    serve_and_label(client, answers(10_000, 300, seed=1, loss=0.35), source="volunteered")
    (model,) = look(client)
    assert not model["is_alarm"]
    assert model["volunteered"] == 300
    assert model["parts"][0]["labels"] == 0


def test_rows_are_thinned_to_equal_chances(client):
    rows = answers(10_000, 200, seed=2)
    serve_and_label(client, rows, chances=[0.5 if at % 2 else 0.05 for at in range(200)])
    (part,) = look(client)[0]["parts"]
    assert part["labels"] + part["thinned"] == 200
    assert 60 <= part["thinned"] < 100


def test_an_alarm_stays_whatever_label_comes_later(client):
    serve_and_label(client, answers(10_000, 300, seed=1, loss=0.35), probability=0.5)
    (before,) = look(client)[0]["parts"]
    assert before["is_alarm"]
    serve_and_label(client, answers(20_000, 3, seed=2), probability=1e-6)
    without_id = [{name: row[name] for name in row if name != "id"} for row in answers(30_000, 2, seed=3)]
    serve_and_label(client, without_id, probability=0.5)
    (after,) = look(client)[0]["parts"]
    assert (after["since"], after["broken_after"]) == (before["since"], before["broken_after"])
    assert (after["labels"], after["rare"], after["thinned"]) == (302, 3, 0)


def test_an_answer_without_an_id_is_by_itself_and_others_stay_documents(client):
    rows = [{**row, "id": at // 2} for at, row in enumerate(answers(10_000, 60, seed=1))]
    serve_and_label(client, rows)
    serve_and_label(client, [{name: row[name] for name in row if name != "id"} for row in answers(20_000, 1, seed=2)])
    (part,) = look(client)[0]["parts"]
    assert (part["labels"], part["documents"]) == (61, 31)


def test_a_label_is_thinned_by_what_was_known_when_it_came(client):
    """An answer that the store draws after its label was no draw of the store then, also if it is labelled again."""
    rows = answers(10_000, 100, seed=1)
    serve_and_label(client, rows, chances=[0.05] * 10 + [0.5] * 90)
    (before,) = look(client)[0]["parts"]
    store = client.app.state.service.store
    drawn = store.draw("m", 100, lambda pool: [one["id"] for one in pool])
    items = [{"id": one["id"], "correct": one["label"] == 1, "source": "audit"} for one in drawn]
    assert all(one["stored"] for one in client.post("/v1/feedback", json={"items": items}).json()["results"])
    (after,) = look(client)[0]["parts"]
    assert before["thinned"] > 50
    assert {**after, "signals": None} == {**before, "signals": None}


# What is deleted


def test_an_alarm_survives_retention_and_a_restart(client, by_subject, tmp_path):
    rows = answers(10_000, 300, seed=1, loss=0.35)
    serve_and_label(client, rows)
    (before,) = look(client)[0]["parts"]
    assert before["is_alarm"]
    # Another process, which deletes everything when it starts.
    with serving(str(tmp_path / "subjects"), tmp_path, keep_days=0.0) as other:
        other.app.state.watches.seconds = 0.0
        store = other.app.state.service.store
        wait_for(lambda: store.label([]).result() == [] and store.counts.deleted == 300)
        assert [*store.rows()] == []
        (after,) = look(other)[0]["parts"]
        assert {**after, "signals": None} == {**before, "signals": None}
        # Later labels are bet on as if nothing had been deleted.
        more = answers(20_000, 40, seed=2, loss=0.35)
        serve_and_label(other, more)
        (later,) = look(other)[0]["parts"]
    expected = watch(by_subject, rows + more)
    assert (later["labels"], later["broken_after"]) == (340, before["broken_after"])
    for one, two in zip(later["intervals"], expected.intervals, strict=True):
        assert one["wealth"] == pytest.approx(two.wealth)


def test_the_command_sees_an_alarm_of_answers_that_are_deleted(client, tmp_path):
    serve_and_label(client, answers(10_000, 300, seed=1, loss=0.35))
    headline = look(client)[0]["parts"][0]["headline"]
    store = client.app.state.service.store
    store.delete([row["id"] for row in store.rows()]).result()
    url = f"sqlite:///{tmp_path / 'served.db'}"
    code, out, _ = run("watch", str(tmp_path / "subjects"), "--store", url, "--name", "m")
    assert code == 3
    assert headline in " ".join(out.split())


def test_deleting_answers_raises_no_alarm(client):
    """Without the correct answers about law the others would look as if the promise were broken."""
    rows = answers(10_000, 300, seed=1)
    serve_and_label(client, rows)
    (before,) = look(client)[0]["parts"]
    assert not before["is_alarm"]
    store = client.app.state.service.store
    correct = [row["id"] for row in store.rows(labelled=True) if row["group"] == "law" and row["label"] == 1]
    kept = [row for row in rows if row["subject"] != "law" or not row["correct"]]
    assert watch(client.app.state.service.models.served["m"].model, kept).is_alarm
    for id_ in correct:
        assert client.delete(f"/v1/answers/{id_}").status_code == 200
    client.app.state.watches._bets.clear()
    (after,) = look(client)[0]["parts"]
    assert {**after, "signals": None} == {**before, "signals": None}
    # Of a deleted answer the bet keeps no id, and whoever has the id can no longer change its label.
    with store._engine.connect() as connection:
        nameless = connection.execute(sa.text("SELECT count(*) FROM qacal_bets WHERE answer IS NULL")).scalar()
    assert nameless == len(correct)
    label = {"id": correct[0], "correct": 0, "source": "audit", "probability": 0.1}
    (refused,) = client.post("/v1/feedback", json={"items": [label]}).json()["results"]
    assert refused["error"]["code"] == "unknown_id"


def test_a_corrected_label_keeps_its_place(client, by_subject):
    rows = answers(10_000, 100, seed=1)
    serve_and_label(client, rows)
    store = client.app.state.service.store
    first = next(iter(store.bets("m", look(client)[0]["version"])))
    label = {"id": first["answer"], "correct": 1 - first["label"], "source": "audit", "probability": 0.1}
    client.post("/v1/feedback", json={"items": [label]})
    (part,) = look(client)[0]["parts"]
    expected = watch(by_subject, [{**rows[0], "correct": not rows[0]["correct"]}, *rows[1:]])
    assert part["labels"] == 100
    for one, two in zip(part["intervals"], expected.intervals, strict=True):
        assert one["wealth"] == pytest.approx(two.wealth)


def test_a_chance_that_is_almost_0_is_refused(client):
    (found,) = calibrate(client, [{"id": 1, "subject": "law", "confidence": 0.9}])
    label = {"id": found["id"], "correct": 1, "source": "audit", "probability": 1e-300}
    (result,) = client.post("/v1/feedback", json={"items": [label]}).json()["results"]
    assert "probability" in result["error"]["message"]


def test_draws_of_the_store_are_not_thinned(client):
    """Each draw is a sample of what there was, though later draws have other chances."""
    from qacal.service.learning import draw_answers

    store = client.app.state.service.store
    for number, size in enumerate((30, 60)):
        calibrate(
            client, [{name: row[name] for name in NAMES} for row in answers(1000 * (number + 1), 100, seed=number)]
        )
        store.label([]).result()
        drawn = draw_answers(store, "m", size, seed=number)
        labels = [{"id": row["id"], "correct": 1, "source": "audit"} for row in drawn]
        client.post("/v1/feedback", json={"items": labels})
    (part,) = look(client)[0]["parts"]
    assert (part["labels"], part["thinned"]) == (90, 0)


def test_answers_with_one_id_are_a_document(client):
    rows = [{**row, "id": at // 2} for at, row in enumerate(answers(10_000, 60, seed=1))]
    serve_and_label(client, rows)
    (part,) = look(client)[0]["parts"]
    assert part["documents"] == 30
    assert "all answers" not in {interval["name"] for interval in part["intervals"]}


def test_another_model_of_the_upstream_is_a_signal(client):
    calibrate(client, [{"id": 1, "subject": "law", "confidence": 0.9}] * 3)
    store = client.app.state.service.store
    store.label([]).result()
    with store._engine.begin() as connection:
        connection.execute(sa.text("UPDATE qacal_answers SET upstream_model = 'owl-2'"))
    assert look(client)[0]["signals"] == [
        {"kind": "upstream", "text": "Upstream: the last answers are by owl-2.", "is_notable": False}
    ]
    with store._engine.begin() as connection:
        one = "UPDATE qacal_answers SET upstream_model = 'crow-3' WHERE id = (SELECT max(id) FROM qacal_answers)"
        connection.execute(sa.text(one))
    (signal,) = look(client)[0]["signals"]
    assert signal["is_notable"]
    assert "crow-3" in signal["text"]


def test_signals_need_no_labels(client):
    calibrate(client, [{"id": at, "subject": "law", "confidence": 0.99} for at in range(200)])
    for _ in range(20):
        calibrate(client, [{"id": 1, "subject": "law", "confidence": "sure"}] * 3)
    client.app.state.service.store.label([]).result()
    (model,) = look(client)
    assert {signal["kind"]: signal["is_notable"] for signal in model["parts"][0]["signals"]} == {
        "groups": True,
        "confidence": True,
    }
    (unreadable,) = model["signals"]
    assert unreadable["text"] == "Unreadable confidences: 23% of 260 records."
    assert unreadable["is_notable"]


def test_a_new_version_starts_with_no_labels(client, by_subject, tmp_path):
    serve_and_label(client, answers(10_000, 40, seed=1))
    assert look(client)[0]["parts"][0]["labels"] == 40
    by_subject.set_threshold(0.7).save(tmp_path / "subjects")
    by_subject.set_threshold(None)
    client.app.state.service.models.reload()
    assert look(client)[0]["parts"][0]["labels"] == 0


def test_a_look_is_shared_for_some_seconds(client):
    client.app.state.watches.seconds = 60.0
    before = look(client)
    serve_and_label(client, answers(10_000, 5, seed=1))
    assert look(client) == before
    client.app.state.watches._until = 0.0
    assert look(client)[0]["parts"][0]["labels"] == 5


def test_bets_are_made_again_only_for_new_labels(client, monkeypatch):
    made = []
    found = __import__("qacal.service.watch", fromlist=["_bets"])
    bets = found._bets
    monkeypatch.setattr(found, "_bets", lambda *arguments: made.append(1) or bets(*arguments))
    look(client)
    look(client)
    assert len(made) == 1
    serve_and_label(client, answers(10_000, 3, seed=1))
    look(client)
    assert len(made) == 2


def test_each_model_of_a_set_is_watched(tmp_path):
    models = {llm: QACalibrator(features=()).fit(pairs(500, llm=llm)) for llm in ("parrot-1", "owl-2")}
    ModelSet("model", models).save(tmp_path / "set")
    names = ("question", "answer", "confidence")
    rows = [{name: row[name] for name in names} | {"model": "owl-2"} for row in pairs(200, seed=5)]
    with serving(str(tmp_path / "set"), tmp_path) as client:
        labels = [
            {"id": one["id"], "correct": 0, "source": "audit", "probability": 0.5} for one in calibrate(client, rows)
        ]
        client.post("/v1/feedback", json={"items": labels})
        parts = {part["value"]: part for part in look(client)[0]["parts"]}
    assert {value: (part["is_alarm"], part["labels"]) for value, part in parts.items()} == {
        "parrot-1": (False, 0),
        "owl-2": (True, 200),
    }
    assert len(parts["owl-2"]["signals"]) > len(parts["parrot-1"]["signals"])


def test_a_model_without_intervals_says_so(tmp_path):
    QACalibrator(output="continuous", features=()).fit(pairs(500)).save(tmp_path / "plain")
    with serving(str(tmp_path / "plain"), tmp_path) as client:
        calibrate(client, [{"question": "?", "answer": "!", "confidence": 0.5}])
        (part,) = look(client)[0]["parts"]
    assert "has no intervals" in part["headline"]
    assert not part["is_alarm"]


def test_without_a_store_there_is_no_watch(folder, tmp_path):
    with serving(folder, tmp_path, store="none") as client:
        reply = client.get("/v1/watch")
    assert reply.status_code == 409
    assert reply.json()["error"]["code"] == "no_store"


def test_answers_of_an_earlier_schema_are_counted(client):
    found = calibrate(client, [{name: row[name] for name in NAMES} for row in answers(10_000, 5, seed=1)])
    client.app.state.service.store.label([]).result()
    with client.app.state.service.store._engine.begin() as connection:
        connection.execute(sa.text("UPDATE qacal_answers SET cells = NULL"))
    labels = [{"id": one["id"], "correct": 1, "source": "audit", "probability": 0.1} for one in found]
    client.post("/v1/feedback", json={"items": labels})
    (model,) = look(client)
    assert model["without_cells"] == 5
    assert model["parts"][0]["labels"] == 0


def test_labels_of_answers_of_other_versions_are_counted_and_said(client, by_subject, tmp_path):
    serve_and_label(client, answers(10_000, 3, seed=1))
    serve_and_label(client, answers(20_000, 2, seed=1), source="volunteered")
    assert look(client)[0]["other_versions"] == 0
    assert "do not count here" not in client.get("/").text
    QACalibrator(partition=Column("subject")).fit(answers(0, 1000)).save(tmp_path / "subjects")
    client.app.state.service.models.reload()
    (model,) = look(client)
    assert (model["other_versions"], model["parts"][0]["labels"]) == (3, 0)
    said = of_other_versions(3)
    assert said == "3 labels of audits do not count here: this version did not serve their answers."
    assert said in client.get("/").text
    serve_and_label(client, answers(30_000, 1, seed=1))
    by_subject.save(tmp_path / "subjects")  # the first one is put back
    client.app.state.service.models.reload()
    (model,) = look(client)
    assert (model["other_versions"], model["parts"][0]["labels"]) == (1, 3)
    assert of_other_versions(1).startswith("1 label of an audit does not count here: this version did not")


def test_a_store_of_the_first_schema_gets_the_column(tmp_path):
    url = f"sqlite:///{tmp_path / 'old.db'}"
    Store(url).close()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE qacal_answers DROP COLUMN cells"))
        connection.execute(sa.text("UPDATE qacal_schema SET version = 1"))
    engine.dispose()
    store = Store(url)
    assert list(store.rows()) == []
    store.close()


def test_alpha_is_checked():
    with pytest.raises(InputError, match="alpha"):
        Settings({"m": "m"}, watch_alpha=2.0)


def test_the_reply_is_json_without_infinities(client):
    serve_and_label(client, answers(10_000, 100, seed=1, loss=0.5))
    json.dumps(look(client), allow_nan=False)
