"""From labels of served answers to a new version: draw, label, refit, put back."""

import errno
import json
import shutil
import sqlite3
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_OID, uuid4, uuid5

import numpy as np
import pytest

from qacal import ArtifactError, QACalibrator, load
from qacal.calibrators import PlattScaling
from qacal.model.versions import put_back, replaced, versions
from qacal.service.audits import Label
from qacal.service.learning import draw_answers
from qacal.service.store import Store, row_of
from qacal.storage import version_of
from tests.answers import answers
from tests.cli.test_cli import ok, run
from tests.service.test_app import serving
from tests.service.test_serve import ROWS, process
from tests.service.test_store import server, url  # noqa: F401

SERVED = answers(400, seed=11)
TRUTH = {row["question"]: row["correct"] for row in SERVED}
REFIT = ("refit", "--drop-threshold")
NAMES = ("id", "question", "answer", "confidence")


def records(rows):
    return [{name: row[name] for name in NAMES} for row in rows]


def fill(url, folder, *, keeps_text=True, name="model"):  # noqa: F811
    """Store answers as a service does, and return them by id. The ids are fixed, since a draw depends on them."""
    model, version, store = load(folder), version_of(folder), Store(url)
    rows, before = {}, len([*store.rows(columns=("id",))])
    found = model._explained_rows(records(SERVED), why=False, cells=True)
    for at, (record, evidence) in enumerate(zip(records(SERVED), found, strict=True)):
        kept = record if keeps_text else None
        row = row_of(
            uuid5(NAMESPACE_OID, f"{before + at}").hex,
            name,
            version,
            evidence,
            kept,
            own_id=record["id"],
            cells=evidence["cells"],
        )
        rows[row["id"]] = (row, record)
    store.record(row for row, _ in rows.values())
    store.close()
    return {id_: record for id_, (_, record) in rows.items()}


def audit(url, n, served):  # noqa: F811
    """Draw answers, and label them truly; then some users report wrong answers."""
    store = Store(url)
    drawn = draw_answers(store, "model", n, seed=0)
    labels = [Label(row["id"], TRUTH[served[row["id"]]["question"]], "audit") for row in drawn]
    taken = {row["id"] for row in drawn}
    labels += [Label(id_, 0.0) for id_, record in served.items() if id_ not in taken and not TRUTH[record["question"]]]
    assert store.label(labels).result(20) == [None] * len(labels)
    store.close()
    return len(labels) - n


def test_labels_make_a_new_version_and_the_old_one_can_be_put_back(folder, url, tmp_path):  # noqa: F811
    served = fill(url, folder)
    reported = audit(url, 150, served)
    before = version_of(folder)
    train = tmp_path / "train.jsonl"
    train.write_text("\n".join(json.dumps(row) for row in answers(500)), encoding="utf-8")
    said = json.loads(ok(*REFIT, folder, "--store", url, "--records", train, "--volunteered", "--json"))
    expected = {"audited": 150, "sample": 150, "volunteered": reported, "drawn_without_label": 0}
    assert {name: said[name] for name in expected} == expected
    # The two files share some questions.
    assert said["earlier"] + said["repeated"] == 500
    assert said["probability"] == pytest.approx(150 / 400)
    new = load(folder)
    assert said["version"] == version_of(folder)[:12] != before[:12] == said["replaced"]
    assert said["old_watch"]["labels"] == 150
    assert not said["old_watch"]["is_alarm"]
    assert (said["old"]["has_threshold"], said["new"]["has_threshold"]) == (True, False)
    assert said["new"]["certifying_rows"] == 150
    assert said["new"]["error_bound"] == new.calibrator_.maps_.median_error_bound()
    # Only the audit certifies, and the settings are those of the old model.
    assert new.rows_ == 150
    assert (new.features, new.examples) == ((), 2)
    assert "kept" in ok("versions", folder)
    code, _, told = run("versions", folder, "--put-back", before[:6])
    assert (code, version_of(folder)) == (0, before)
    assert f"is version {before[:12]} again" in told
    ok("versions", folder, "--put-back", "last")
    assert version_of(folder)[:12] == said["version"]


def test_a_refit_can_leave_the_model_as_it_is(folder, url, tmp_path):  # noqa: F811
    reported = audit(url, 100, fill(url, folder))
    before = version_of(folder)
    code, out, said = run("refit", folder, "--store", url, "-o", tmp_path / "new")
    assert code == 0, said
    assert "certify" in out
    assert f"{reported} volunteered labels were not used" in said
    assert "had a threshold" in said
    assert f"\n    qacal threshold {tmp_path / 'new'} labelled.jsonl --accuracy 0.8 --save\n" in said
    assert version_of(folder) == before != version_of(tmp_path / "new")
    assert len(versions(folder)) == 1


def test_a_threshold_is_not_dropped_unasked_and_a_model_can_be_put_in_place(folder, url, tmp_path):  # noqa: F811
    audit(url, 100, fill(url, folder))
    before = version_of(folder)
    code, _, said = run("refit", folder, "--store", url)
    assert (code, version_of(folder)) == (1, before)
    assert f"{folder} has a threshold, and a new version has none" in said
    assert f"\n    qacal versions {folder} --put new_model\n" in said
    assert run("refit", folder, "--store", url, "-o", folder)[0] == 1
    assert version_of(folder) == before
    ok("refit", folder, "--store", url, "-o", tmp_path / "new")
    code, _, said = run("versions", folder, "--put", tmp_path / "new")
    assert (code, version_of(folder)) == (1, before)
    assert f"\n    qacal threshold {tmp_path / 'new'} labelled.jsonl --accuracy 0.8 --save\n" in said
    code, out, said = run("versions", folder, "--put", tmp_path / "new", "--drop-threshold")
    assert code == 0, said
    assert version_of(folder) == version_of(tmp_path / "new")
    assert [line.split()[1] for line in out.splitlines() if before[:12] in line] == ["kept"]
    assert f"qacal versions {folder} --put-back {before[:12]}\n" in said
    ok("versions", folder, "--put-back", before[:12])
    assert version_of(folder) == before
    # What is no model changes nothing.
    for wrong, problem in (
        ((tmp_path / "no",), "does not exist"),
        ((tmp_path / "new", "--put-back", "last"), "give either --put-back VERSION or --put FOLDER"),
        ((folder,), "are the same version"),
        ((folder, "--put-back", "last", "--drop-threshold"), "give either"),
    ):
        code, _, said = run("versions", folder, "--put", *wrong)
        assert (code > 0, version_of(folder)) == (True, before)
        assert problem in said
    assert "does not exist, so there is nothing" in run("versions", f"{folder}_typo", "--put", folder)[2]
    assert "--drop-threshold goes with --put" in run("versions", folder, "--drop-threshold")[2]
    # A damaged model is renamed.
    (Path(folder) / "model.json").write_text("{")
    said = run("versions", folder, "--put", tmp_path / "new")[2]
    assert "held no model that this qacal can read" in said
    assert version_of(folder) == version_of(tmp_path / "new")


def test_a_refit_says_what_the_new_version_gives_up_and_what_labels_say_about_the_old_one(tmp_path, monkeypatch):
    folder, url = tmp_path / "model", f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    rows = [{**row, "tier": "ab"[(row["correct"] > 0) ^ (at % 4 == 0)]} for at, row in enumerate(answers(800))]
    old = QACalibrator(features=("tier",)).fit(rows)
    old.save(folder)
    monkeypatch.setattr(f"{__name__}.SERVED", [{**row, "tier": None} for row in SERVED])
    monkeypatch.setattr(f"{__name__}.NAMES", (*NAMES, "tier"))
    audit(url, 150, fill(url, folder))
    out = ok(*REFIT, folder, "--store", url)
    lines = {line[:44].strip(): line.split()[-2:] for line in out.splitlines()}
    assert lines["rows that certify"] == [f"{old.rows_}", f"{load(folder).rows_}"]
    assert "Columns that the new version no longer reads: tier." in out
    assert "The old version: No alarm after 150 labels" in out
    assert "Its intervals are narrower" in out
    assert "Which version predicts better is not measured: these labels trained the new one." in out
    # The new version has served nothing.
    assert "The old version: no label of an audit tests its answers, so" in ok(*REFIT, folder, "--store", url)


def test_an_alarm_of_the_old_version_speaks_for_the_new_one(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    fill(url, folder)
    relabel(url, 120, lambda row: float(TRUTH[json.loads(row["record"])["question"]] == 0))
    train = tmp_path / "train.jsonl"
    train.write_text("\n".join(json.dumps(row) for row in answers(100)), encoding="utf-8")
    warning = "answers are no longer like the rows of --records"
    said = run("refit", folder, "--store", url, "--records", train, "-o", tmp_path / "new")[2]
    assert warning in said
    _, out, said = run(*REFIT, folder, "--store", url)
    assert "The old version: Alarm after" in out
    assert "That speaks for the new one." in out
    assert warning not in said


def test_rows_without_a_label_are_not_said_to_be_labels_of_audits(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    audit(url, 100, fill(url, folder))
    train = tmp_path / "train.jsonl"
    rows = [{**row, "correct": row["correct"] if at % 5 else None} for at, row in enumerate(answers(500))]
    train.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    said = run("refit", folder, "--store", url, "--records", train, "-o", tmp_path / "new")[2]
    assert "100 of 599 rows have no label and are not used" in said
    assert "labels of audits: 100" not in said


def test_a_day_after_all_labels_is_named(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    audit(url, 50, fill(url, folder))
    code, _, said = run(*REFIT, folder, "--store", url, "--since", "2099-01-01")
    assert (code, "no answer that was served since 2099-01-01 00:00 UTC (--since) has a label of" in said) == (1, True)
    assert "50 answers that were served before have one" in said


def test_texts_can_come_from_a_file(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    audit(url, 100, fill(url, folder, keeps_text=False))
    code, _, said = run(*REFIT, folder, "--store", url)
    assert code == 1
    assert "no texts of 100 answers with a label of an audit" in said
    assert "--texts FILE" in said
    texts = tmp_path / "log.jsonl"
    texts.write_text("\n".join(json.dumps(row) for row in records(SERVED)), encoding="utf-8")
    assert json.loads(ok(*REFIT, folder, "--store", url, "--texts", texts, "--json"))["audited"] == 100


def test_without_a_random_sample_nothing_is_certified(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    served = fill(url, folder)
    store = Store(url)
    store.label([Label(id_, 0.0) for id_ in [*served][:50]]).result(20)
    store.close()
    before = version_of(folder)
    code, _, said = run(*REFIT, folder, "--store", url)
    assert code == 1
    assert "volunteered labels cannot certify" in said
    assert version_of(folder) == before


def test_draws_without_labels_are_told(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    served = fill(url, folder)
    audit(url, 100, served)
    store = Store(url)
    draw_answers(store, "model", 1)
    _, _, said = run("refit", folder, "--store", url, "-o", tmp_path / "new")
    assert "1 answer was drawn for labelling and has no label of an audit" in said
    draw_answers(store, "model", 6)
    store.close()
    _, _, said = run("refit", folder, "--store", url, "-o", tmp_path / "new")
    assert "7 answers were drawn for labelling and have no label of an audit" in said
    assert "1 version of" in ok("versions", folder)


def test_one_row_is_left_out_and_several_rows_are(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    audit(url, 100, fill(url, folder))
    store = Store(url)
    drawn = [json.loads(row["record"]) for row in store.rows() if row["label_source"] == "audit"]
    store.close()
    train = tmp_path / "train.jsonl"
    for n, says in ((1, "1 row was left out: its question is in"), (2, "2 rows were left out: their questions are in")):
        train.write_text("\n".join(json.dumps({**one, "correct": 1}) for one in drawn[:n]), encoding="utf-8")
        said = run("refit", folder, "--store", url, "--records", train, "-o", tmp_path / "new")[2]
        assert f"{says} the sample of the audits." in said


def test_mistakes_are_named(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    code, _, said = run(*REFIT, folder, "--store", url)
    assert (code, "there is no store" in said) == (1, True)
    fill(url, folder, name="other")
    code, _, said = run(*REFIT, folder, "--store", url)
    assert (code, "It has answers of other; name one of them: --name" in said) == (1, True)
    code, _, said = run("versions", folder, "--put-back", "last")
    assert (code, "no earlier version" in said) == (1, True)
    for arguments, message in (
        (("label-next", folder), "there are no rows: name a file of rows, or the store"),
        (("label-next", folder, "x.jsonl", "--store", url), "leave out it or x.jsonl"),
    ):
        code, _, said = run(*arguments)
        assert (code, message in " ".join(said.split())) == (2, True)
    code, _, said = run("label-next", folder, "--store", url, "--name", "other", "-n", 5, "-o", "to_label.csv")
    assert (code, "name it to_label.json." in " ".join(said.split())) == (2, True)
    for no_name in (".", ".."):
        code, _, said = run("label-next", folder, "--store", url, "--name", "other", "-n", 5, "-o", no_name)
        assert (code, "name it to_label.json." in " ".join(said.split())) == (2, True)
    store = Store(url)
    assert not store.unlabelled_draws("other")
    store.close()


# Drawing


def test_what_was_drawn_can_be_sent_as_it_is(folder, url, tmp_path):  # noqa: F811
    served, file = fill(url, folder), tmp_path / "to_label.json"
    code, _, said = run("label-next", folder, "--store", url, "-n", 40, "-o", file)
    assert code == 0, said
    content = json.loads(file.read_text(encoding="utf-8"))
    assert len(content["items"]) == 40
    # A file that may have labels is never written over, and what was drawn can be had again.
    code, _, said = run("label-next", folder, "--store", url, "-n", 40, "-o", file)
    assert (code, "exists, and may have labels" in " ".join(said.split())) == (2, True)
    code, out, said = run("label-next", folder, "--store", url, "--again")
    assert (code, json.loads(out), "40 answers are drawn" in said) == (0, content, True)
    for item in content["items"]:
        assert item["question"] == served[item["id"]]["question"]
        assert (item["correct"], item["source"], item["probability"]) == (None, "audit", pytest.approx(0.1))
        item["correct"] = TRUTH[item["question"]]
    with serving(folder, tmp_path, store=url) as client:
        reply = client.post("/v1/feedback", json=content).json()["results"]
    assert all(one.get("stored") for one in reply)
    again = json.loads(ok("label-next", folder, "--store", url, "-n", 40))
    assert not {one["id"] for one in again["items"]} & {one["id"] for one in content["items"]}
    assert json.loads(ok("label-next", folder, "--store", url, "--again")) == again
    assert "--again goes with --store" in run("label-next", folder, file, "--again")[2]
    assert "neither -n nor --seed" in run("label-next", folder, "--store", url, "--again", "-n", 5)[2]
    for item in again["items"]:
        item["correct"] = 1
    with serving(folder, tmp_path, store=url) as client:
        client.post("/v1/feedback", json=again)
    code, out, said = run("label-next", folder, "--store", url, "--again", "-o", tmp_path / "none.json")
    assert (code, out, "All answers that were drawn have labels" in said) == (0, "", True)
    assert not (tmp_path / "none.json").exists()


def test_answers_of_other_versions_are_counted(folder, tmp_path, fitted):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    fill(url, folder)
    assert "other versions" not in run("label-next", folder, "--store", url, "-n", 20)[2]
    fitted.set_threshold(0.7).save(folder)
    fitted.set_threshold(0.6)
    note = "20 of these answers were served by other versions than the one in"
    said = run("label-next", folder, "--store", url, "--again")[2]
    assert note in said
    store = Store(url)
    last = max(row["time"] for row in store.rows(columns=("time",)))
    store.close()
    since = datetime.fromisoformat(said.split("--since ")[1].rstrip(".\n")).replace(tzinfo=UTC)
    assert 0 < since.timestamp() - last <= 1
    fill(url, folder)
    said = run("label-next", folder, "--store", url, "-n", 400)[2]
    assert 150 < int(said.partition(" of these answers were")[0].split()[-1]) < 250
    shutil.rmtree(folder)  # as before the first fit
    code, _, said = run("label-next", folder, "--store", url, "-n", 20)
    assert (code, "other versions" in said) == (0, False)


def test_every_answer_has_the_same_chance(folder, tmp_path):
    """Also answers with volunteered labels: in 12 draws of 40 of 400, each is drawn 1.2 times on average."""
    rng = np.random.default_rng(0)
    times = dict.fromkeys((row["id"] for row in SERVED), 0)
    found = load(folder)._explained_rows(records(SERVED), why=False)
    for number in range(12):
        store = Store(f"sqlite:///{tmp_path / f'{number}.db'}")
        ids = [rng.bytes(16).hex() for _ in SERVED]
        rows = zip(ids, SERVED, found, strict=True)
        store.record(row_of(id_, "model", "v", evidence, own_id=row["id"]) for id_, row, evidence in rows)
        store.label([Label(id_, 0.0) for id_, row in zip(ids, SERVED, strict=True) if not row["correct"]]).result(20)
        for row in draw_answers(store, "model", 40, seed=number):
            times[row["own_id"]] += 1
        store.close()
    counts = np.array([*times.values()])
    is_right = np.array([row["correct"] for row in SERVED]) == 1
    assert counts[is_right].mean() == pytest.approx(1.2, abs=0.2)
    assert counts[~is_right].mean() == pytest.approx(1.2, abs=0.2)
    assert counts.max() <= 6


# Watching


def relabel(url, n, truth):  # noqa: F811
    """Draw answers, label them, and add complaints about others."""
    store = Store(url)
    for row in draw_answers(store, "model", n, seed=1):
        assert store.label([Label(row["id"], truth(row), "audit")]).result(20) == [None]
    complaints = [row["id"] for row in store.rows() if row["label"] is None][:60]
    store.label([Label(id_, 0.0) for id_ in complaints]).result(20)
    store.close()


def test_answers_that_keep_the_promise_raise_no_alarm_whatever_users_report(folder, url):  # noqa: F811
    fill(url, folder)
    relabel(url, 120, lambda row: TRUTH[json.loads(row["record"])["question"]])
    code, out, said = run("watch", folder, "--store", url)
    assert code == 0, said
    assert "No alarm after 120 labels" in out
    assert "60 volunteered labels raise no alarm" in out
    assert "Groups:" in out


def test_a_broken_promise_is_named_from_the_store(folder, url):  # noqa: F811
    fill(url, folder)
    relabel(url, 120, lambda row: 0.0)
    code, out, _ = run("watch", folder, "--store", url, "--json")
    assert code == 3
    assert json.loads(out)["labels"] == 120
    assert json.loads(out)["is_alarm"]
    assert json.loads(out)["volunteered"] == 60


@pytest.mark.parametrize("keeps_text", [True, False])
def test_it_says_what_the_service_says(folder, tmp_path, keeps_text):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    served = fill(url, folder, keeps_text=keeps_text, name="m")
    store = Store(url)
    for at, id_ in enumerate([*served][:200]):
        label = Label(id_, 0.0, "audit", 0.5 if at % 2 else 0.2) if at % 10 else Label(id_, 0.0)
        assert store.label([label]).result(20) == [None]
    store.close()
    code, out, _ = run("watch", folder, "--store", url, "--name", "m", "--json")
    with serving(folder, tmp_path, store=url) as client:
        (model,) = client.get("/v1/watch").json()["models"]
    (part,), said = model["parts"], json.loads(out)
    assert code == 3
    assert said["volunteered"] == model["volunteered"] == 20
    for name in ("is_alarm", "labels", "thinned", "rare", "far", "documents", "broken_after", "signals"):
        assert said[name] == part[name], name
    assert [(one["name"], one["wealth"], one["broken_after"]) for one in said["intervals"]] == [
        (one["name"], one["wealth"], one["broken_after"]) for one in part["intervals"]
    ]


def test_draws_of_different_sizes_are_watched_together(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    fill(url, folder)
    for n in (30, 90):
        relabel(url, n, lambda row: TRUTH[json.loads(row["record"])["question"]])
    assert json.loads(run("watch", folder, "--store", url, "--json")[1])["labels"] == 120


def test_other_audits_are_thinned_by_their_chances(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    served = fill(url, folder)
    store = Store(url)
    chances = {id_: 0.5 if at % 2 else 0.1 for at, id_ in enumerate([*served][:300])}
    labels = [Label(id_, TRUTH[served[id_]["question"]], "audit", chance) for id_, chance in chances.items()]
    store.label(labels).result(20)
    store.close()
    found = json.loads(run("watch", folder, "--store", url, "--json")[1])
    assert found["labels"] + found["thinned"] == 300
    assert found["labels"] == pytest.approx(150 + 150 / 5, abs=20)


def test_without_labels_only_changes_are_told(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    served = fill(url, folder, keeps_text=False)
    code, out, said = run("watch", folder, "--store", url)
    assert code == 0
    assert "No answer of this version has a label of an audit yet" in said
    assert "Stated confidence:" in out
    audit(url, 50, served)
    code, out, said = run("watch", folder, "--store", url)
    assert (code, "after 50 labels" in out, "No answer" in said) == (0, True, False)


def test_answers_of_an_earlier_qacal_are_told(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    audit(url, 50, fill(url, folder))
    with sqlite3.connect(tmp_path / "served.db") as connection:
        connection.execute("UPDATE qacal_bets SET cells = NULL")
    connection.close()
    assert "50 labels are left out: an earlier qacal stored" in run("watch", folder, "--store", url)[2]
    said = json.loads(ok(*REFIT, folder, "--store", url, "--since", "2020-01-01", "--json"))["old_watch"]
    assert (said["labels"], said["is_alarm"]) == (0, False)
    assert "no label of an audit tests its answers since 2020-01-01 00:00 UTC, so" in said["text"]
    assert "50 labels are left out: an earlier qacal stored" in said["text"]


def test_a_file_in_place_of_a_url_is_told(folder):
    code, _, said = run("watch", folder, "--store", "served.db")
    assert (code, "write sqlite:///served.db" in said) == (1, True)


def test_a_changed_upstream_is_told(folder, tmp_path):
    url = f"sqlite:///{tmp_path / 'served.db'}"  # noqa: F811
    store = Store(url)
    evidence = load(folder)._explained_rows(records(SERVED[:40]), why=False)
    names = ["parrot-1.0"] * 30 + ["parrot-1.1"] * 10
    rows = zip(evidence, names, strict=True)
    store.record(row_of(uuid4().hex, "model", version_of(folder), one, upstream_model=name) for one, name in rows)
    store.close()
    said = run("watch", folder, "--store", url)[2]
    assert "Changed: Upstream: the last answers are by parrot-1.1; earlier ones by parrot-1.0 (30)." in said


# A running service


@pytest.mark.heavy
def test_new_and_old_versions_are_served_without_dropping_a_request(folder, tmp_path, fitted):
    store = f"sqlite:///{tmp_path / 'served.db'}"
    audit(store, 100, fill(store, folder))
    before = version_of(folder)
    over, seen, failures = threading.Event(), set(), []
    with process(folder, "--store", store, "--reload-seconds", "0.05") as (_, client, port):

        def load_it(number):
            import httpx2

            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as mine:
                while not over.is_set():
                    reply = mine.post("/v1/calibrate", json={"items": ROWS[number : number + 3]})
                    if reply.status_code != 200 or any("error" in one for one in reply.json()["results"]):
                        failures.append(reply.text)
                    seen.update(one["model_version"] for one in reply.json()["results"])

        threads = [threading.Thread(target=load_it, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()

        def wait_for(version):
            until = time.monotonic() + 60
            while client.get("/v1/model").json()["models"][0]["version"] != version:
                assert time.monotonic() < until
                time.sleep(0.02)
            time.sleep(0.3)  # some requests with this version

        wait_for(before)
        ok(*REFIT, folder, "--store", store)
        after = version_of(folder)
        wait_for(after)
        ok("versions", folder, "--put-back", before[:12])
        wait_for(before)
        over.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert seen == {before, after}


def test_a_version_is_kept_once_and_comes_back_whole(folder, fitted):
    first = version_of(folder)
    other = QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=2))
    assert replaced(folder, other) == first[:12]
    assert replaced(folder, other) == version_of(folder)[:12]
    assert [one.name for one in versions(folder)] == [version_of(folder)[:12], first[:12]]
    assert put_back(folder) == first[:12]
    assert version_of(folder) == first
    assert load(folder).decision_rule_.threshold == fitted.decision_rule_.threshold


def test_versions_say_which_is_in_use_and_since_when(folder):
    first = version_of(folder)[:12]
    code, _, said = run("versions", folder, "--put-back", first[:6])
    assert (code, f"version {first} is in use" in said) == (1, True)
    replaced(folder, QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=2)))
    code, _, said = run("versions", folder, "--put-back", version_of(folder)[:6])
    assert (code, "is in use" in said, "no kept version" in said) == (1, True, False)
    out = " ".join(ok("versions", folder).split())
    assert f"in use since 20{datetime.now(UTC):%y-%m}" in out
    assert f"{first} kept since 20{datetime.now(UTC):%y-%m}" in out
    present, kept = json.loads(ok("versions", folder, "--json"))
    assert abs(datetime.fromisoformat(present["in_use_since"]).timestamp() - time.time()) < 60
    assert abs(datetime.fromisoformat(kept["kept_since"]).timestamp() - time.time()) < 60


@pytest.mark.filterwarnings("always:.* held no model that this qacal can read")
@pytest.mark.parametrize("damage", ["{}", "no JSON", None])
def test_a_version_takes_the_place_of_a_damaged_model(folder, damage):
    first = version_of(folder)[:12]
    replaced(folder, QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=2)))
    if damage is None:
        shutil.rmtree(folder)
    else:
        Path(folder, "model.json").write_text(damage)
    present, kept = json.loads(ok("versions", folder, "--json"))
    assert (present["version"], present["certifying_rows"], kept["version"]) == (None, None, first)
    assert "damaged, or not there" in ok("versions", folder)
    code, _, said = run("versions", folder, "--put-back", "last")
    assert (code, ".damaged-" in said) == (0, damage is not None)
    assert version_of(folder)[:12] == first
    aside = [*Path(folder).parent.glob("*.damaged-*")]
    assert [(one / "model.json").read_text() for one in aside] == ([] if damage is None else [damage])


def test_a_model_that_cannot_be_read_now_or_replaced_stays(folder, monkeypatch):
    replaced(folder, QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=2)))
    second, document = version_of(folder), Path(folder, "model.json")

    def no_more(*args):
        raise OSError(errno.ENOSPC, "no more")

    def loaded(path):
        if Path(path) == Path(folder):
            raise ArtifactError("too many files are open") from OSError(errno.EMFILE, "no more")
        return load(path)

    with monkeypatch.context() as patch:
        patch.setattr("qacal.model.versions.load", loaded)
        with pytest.raises(ArtifactError, match="too many files"):
            put_back(folder)
    assert version_of(folder) == second
    document.write_text("{}")
    monkeypatch.setattr(QACalibrator, "save", no_more)
    with pytest.raises(OSError, match="no more"):
        put_back(folder)
    assert document.read_text() == "{}"
    assert not [*Path(folder).parent.glob("*.damaged-*")]


def test_a_version_whose_save_was_killed_is_kept_again(folder):
    first = version_of(folder)[:12]
    unfinished = Path(f"{folder}.versions") / first
    unfinished.mkdir(parents=True)
    (unfinished / "arrays-01234567").write_bytes(b"half")
    replaced(folder, QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=2)))
    assert put_back(folder) == first == version_of(folder)[:12]


def test_a_kept_version_that_cannot_be_read_now_stays(folder, monkeypatch):
    first, other = version_of(folder)[:12], QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=2))
    replaced(folder, other)
    put_back(folder)
    kept = Path(f"{folder}.versions") / first

    def busy(path):
        if Path(path) == kept:
            raise ArtifactError("too many files are open") from OSError(errno.EMFILE, "no more")
        return load(path)

    monkeypatch.setattr("qacal.model.versions.load", busy)
    with pytest.raises(ArtifactError, match="too many files"):
        replaced(folder, other)
    assert version_of(kept)[:12] == first == version_of(folder)[:12]


def test_an_empty_version_is_no_version(folder):
    replaced(folder, QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=2)))
    before = version_of(folder)
    code, _, said = run("versions", folder, "--put-back", "")
    assert (code, "--put-back is empty" in said, version_of(folder)) == (2, True, before)


def test_the_version_that_was_there_last_is_put_back_though_it_was_kept_before(folder):
    first = version_of(folder)[:12]
    second, third = (QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=seed)) for seed in (2, 3))
    replaced(folder, second)
    replaced(folder, third)
    put_back(folder, first)
    replaced(folder, second)
    assert put_back(folder) == first
