"""The page as programs see it: forms, the key, headers, and texts that try to be markup."""

import gc
import re
import time
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest

from qacal import QACalibrator, load
from qacal.model.model_set import ModelSet
from qacal.service.pages import content
from qacal.service.pages.routes import COOKIE, _is_session, _session
from tests.answers import answers
from tests.service.test_app import KEY, ROWS, serving, stored, wait_for
from tests.service.upstreams import stubbed

HERE = {"origin": "http://127.0.0.1"}
FORM = {**{name: str(ROWS[0][name]) for name in ("question", "answer")}, "confidence": "0.95"}


@pytest.fixture
def client(folder, tmp_path):
    with serving(folder, tmp_path) as client:
        yield client


def post(client, form, path="/", **headers):
    return client.post(path, data=form, headers={**HERE, **headers}, follow_redirects=False)


class _Checked(HTMLParser):
    """Checks what screen readers need: every field has a label, ids are unique, headings do not skip a level."""

    def __init__(self):
        super().__init__()
        self.ids, self.labels, self.fields, self.levels, self.links = [], set(), [], [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.labels |= {found["for"]} if tag == "label" else set()
        if tag in ("textarea", "select") or (
            tag == "input" and found.get("type") != "hidden" and "hidden" not in found
        ):
            self.fields.append(found.get("id"))
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "a" and found["href"].startswith("#"):
            self.links.append(found["href"][1:])


def check(page):
    checked = _Checked()
    checked.feed(page)
    assert len(checked.ids) == len({*checked.ids})
    assert {*checked.fields} <= checked.labels
    assert checked.levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(checked.levels, checked.levels[1:], strict=False))
    assert {*checked.links} <= {*checked.ids}


def test_the_page_shows_models_groups_thresholds_and_the_watch(client, fitted):
    page = client.get("/")
    assert page.status_code == 200
    check(page.text)
    for group in fitted.describe_groups():
        assert f"group {group.group}" in page.text
    assert "No label yet, so nothing is tested." in page.text
    assert "0.60 or more:" in page.text


def test_an_answer_is_that_of_explain(client, fitted):
    page = post(client, FORM)
    assert page.status_code == 200
    check(page.text)
    expected = fitted.explain(FORM["question"], FORM["answer"], 0.95)
    assert f"calibrated {100 * expected['calibrated']:.0f}%" in page.text
    assert content.sentence(expected) in unescape(page.text)
    assert f"The group: <bdi>group {expected['group']}</bdi>" in page.text
    for example in expected["nearest"]:
        assert example["question"] in unescape(page.text)
    # The diagram of the group, with its own text for screen readers.
    assert "Reliability diagram: accuracy by confidence" in page.text
    wait_for(lambda: len(stored(client)) == 1)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"confidence": "sure"}, "The stated confidence is not a number"),
        ({"confidence": "90"}, "Confidence is 90; expected 0 to 1, such as 0.9 or 90%. For 90 percent, write 90%.<"),
        ({"confidence": "7,5"}, "Confidence is 7.5; expected 0 to 1, such as 0.9 or 90%. For 7.5 percent, write"),
        ({"confidence": "-1"}, "Confidence is -1; expected 0 to 1, such as 0.9 or 90%.<"),
        ({"confidence": "120%"}, "Confidence is 120%; expected 0 to 1, such as 0.9 or 90%.<"),
        ({"confidence": "nan"}, "confidence"),
        ({"question": " "}, "The question is empty"),
        ({"question": "x" * 200_000}, "at most 100,000"),
    ],
)
def test_a_bad_form_comes_back_with_what_was_typed(client, changed, problem):
    page = post(client, {**FORM, **changed})
    assert page.status_code == 422
    check(page.text)
    assert problem.lower() in unescape(page.text).lower()
    assert FORM["answer"] in page.text


def test_percents_are_read(client):
    assert post(client, {**FORM, "confidence": "95%"}).text.count("stated 95%") >= 1


def test_texts_are_never_markup(client):
    bad = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    page = post(client, {"question": bad, "answer": bad, "confidence": bad})
    assert "<script>alert" not in page.text
    assert "<img" not in page.text
    page = client.get("/", params={"model": bad, "threshold": bad, "question": bad})
    assert page.status_code == 200
    assert "<script>alert" not in page.text


def test_a_lone_surrogate_is_no_server_error(client):
    assert post(client, {**FORM, "question": b"\xff\xfe"}).status_code == 200
    assert client.post("/", content=b"question=%ff%00&&=&a", headers=HERE).status_code == 422


def test_thresholds_come_from_the_query(client):
    found = client.get("/", params={"threshold": "0.85"}).text
    assert "0.85 or more:" in found
    curve = content.curve_of(client.app.state.service.models.served["m"].model._models[None])
    assert content.at_threshold(curve, 0.85) in found
    coverage = [row[0] for row in curve]
    assert coverage == sorted(coverage, reverse=True)
    assert coverage[0] == 1.0


def test_a_certified_threshold_is_shown_with_its_guarantee(client, folder):
    assert "held-out answers." in client.get("/").text
    assert "With probability" not in client.get("/").text
    model = load(folder)
    held_out = [{**row, "correct": int(row["confidence"] > 0.55)} for row in answers(800, seed=9)]
    for per_group, more in ((False, ""), (True, ", in every group that has a threshold,")):
        certified = model.choose_threshold(held_out, accuracy=0.7, alpha=0.05, per_group=per_group)
        model.set_threshold(certified).save(folder)
        client.app.state.service.models.reload()
        expected = f"With probability 95%, at least 70% of the answers that it gives{more} are correct (certified on"
        assert f"{expected} {certified.rows:,} held-out answers)." in client.get("/").text


def test_labels_of_the_page_are_volunteered(client):
    id_ = re.search('name="id" value="([0-9a-f]{32})"', post(client, FORM).text).group(1)
    page = post(client, {"id": id_, "correct": "no"})
    assert "the label is stored" in page.text
    (row,) = stored(client)
    assert (row["label"], row["label_source"]) == (0.0, "volunteered")
    assert "there is no served answer" in post(client, {"id": "x", "correct": "no"}).text


def test_headers_allow_only_the_page_itself(client):
    policy = client.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert client.get("/").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://["])
def test_forms_of_other_origins_are_refused(client, origin):
    page = post(client, FORM, origin=origin)
    assert page.status_code == 403
    check(page.text)
    assert "came from another site" in page.text
    assert "<form" not in page.text  # there is no key to ask for
    assert post(client, {"key": KEY}, "/login", origin=origin).status_code == 403
    assert stored(client) == []


def test_a_key_is_asked_for_once(folder, tmp_path):
    with serving(folder, tmp_path, api_key=KEY) as client:
        asked = client.get("/")
        check(asked.text)
        assert "API key of this service" in asked.text
        assert "The groups" not in asked.text
        assert post(client, FORM).status_code == 401
        assert post(client, {"key": "wrong"}, "/login").status_code == 401
        reply = post(client, {"key": KEY}, "/login")
        assert reply.status_code == 303
        cookie = reply.headers["set-cookie"]
        assert KEY not in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Try an answer" in client.get("/").text
        assert post(client, FORM).status_code == 200
        # The cookie opens the page alone.
        assert client.get("/v1/model").status_code == 401
        assert client.get("/v1/model", headers={"authorization": f"Bearer {KEY}"}).status_code == 200
        post(client, {}, "/logout")
        assert "API key of this service" in client.get("/").text


def test_a_cookie_is_secure_behind_tls(folder, tmp_path):
    with serving(folder, tmp_path, api_key=KEY) as client:
        reply = client.post("https://127.0.0.1/login", data={"key": KEY}, follow_redirects=False)
    assert "Secure" in reply.headers["set-cookie"]


def test_sessions_end_and_cannot_be_made_up():
    later = int(time.time()) + 60
    assert _is_session(_session(KEY, later), KEY)
    assert not _is_session(_session("another-key-of-sixteen", later), KEY)
    assert not _is_session(_session(KEY, int(time.time()) - 1), KEY)
    for made_up in ("", ".", "9" * 30, f"{later}.", f"{later}.é", f"{later + 1}.{_session(KEY, later).split('.')[1]}"):
        assert not _is_session(made_up, KEY)


def test_a_cookie_that_is_no_cookie_is_no_error(folder, tmp_path):
    with serving(folder, tmp_path, api_key=KEY) as client:
        assert client.get("/", headers={b"cookie": f"{COOKIE}=\xe9;;=".encode()}).status_code == 200


def test_models_of_a_set_and_columns_have_fields(tmp_path):
    rows = [{**row, "tenant": ("north", "south")[at % 2]} for at, row in enumerate(answers(600))]
    QACalibrator(partition="column:tenant").fit(rows).save(tmp_path / "tenants")
    models = {llm: QACalibrator(features=()).fit(answers(500, llm=llm)) for llm in ("parrot-1", "owl-2")}
    ModelSet("model", models).save(tmp_path / "set")
    with serving({"t": str(tmp_path / "tenants"), "s": str(tmp_path / "set")}, tmp_path) as client:
        page = client.get("/").text
        check(page)
        keys = [unescape(key) for key in re.findall('<option value="([^"]+)"', page)]
        assert keys == ['["t", null]', '["s", "parrot-1"]', '["s", "owl-2"]']
        found = post(client, {"model": keys[0], "confidence": "0.8", "column tenant": "south"}).text
        assert "The group: <bdi>south</bdi>" in found
        assert "tenant" in unescape(post(client, {"model": keys[0], "confidence": "0.8"}).text)
        found = post(client, {**FORM, "model": keys[2]}).text
        assert "Model <bdi>s: owl-2</bdi>" in found
        expected = models["owl-2"].explain(FORM["question"], FORM["answer"], 0.95)
        assert f"calibrated {100 * expected['calibrated']:.0f}%" in found


def test_a_model_without_groups_and_intervals_has_a_page(tmp_path):
    QACalibrator(output="continuous", features=(), examples=0).fit(answers(500)).save(tmp_path / "plain")
    with serving(str(tmp_path / "plain"), tmp_path, store="none") as client:
        page = post(client, FORM)
        assert page.status_code == 200
        check(page.text)
        assert "This model has no groups" in page.text
        assert "no guaranteed intervals" in page.text
        assert "keeps no store" in page.text


def test_a_store_that_fails_leaves_the_page(client, monkeypatch):
    from qacal.service.database import StoreError

    def fail(*arguments, **options):
        raise StoreError("gone")

    monkeypatch.setattr(client.app.state.service.store, "bets_made", fail)
    page = client.get("/")
    assert page.status_code == 200
    assert "The store cannot be read now: gone" in page.text


def test_a_question_is_asked(folder, tmp_path):
    question = "Which city is the capital of Arden?"
    with stubbed() as stub, serving(folder, tmp_path, upstream=stub.url) as client:
        check(client.get("/").text)
        page = post(client, {"question": question, "llm": "parrot-1"}, "/ask")
        check(page.text)
        assert page.status_code == 200
        assert "stated 80%" in page.text
        assert stub.answer in page.text
        assert stub.requests[-1]["messages"] == [{"role": "user", "content": question}]
        wait_for(lambda: len(stored(client)) == 1)
        (row,) = stored(client)
        assert row["upstream_model"] == "parrot-1"
        assert f"calibrated {100 * row['calibrated']:.0f}%" in page.text
        # An answer without a confidence is shown, with the reason.
        stub.probability, stub.stated = None, "Who knows?"
        page = post(client, {"question": question, "llm": "parrot-1"}, "/ask")
        assert "there is no calibrated confidence" in page.text
        assert stub.answer in page.text
        stub.refuses = True
        page = post(client, {"question": question, "llm": "parrot-1"}, "/ask")
        assert page.status_code == 422
        assert "The LLM did not answer" in page.text
        assert "The LLM did not answer: the question is empty." in post(client, {"question": ""}, "/ask").text
        assert post(client, {"question": question}, "/ask", origin="http://evil.example").status_code == 403


def test_without_an_upstream_nobody_is_asked(client):
    assert "Ask the LLM" not in client.get("/").text
    assert "no upstream" in post(client, {"question": "?"}, "/ask").text


@pytest.mark.parametrize("asked", ["nan", "inf", "-inf", "1e999", "-3", "x", ""])
def test_any_threshold_is_answered(client, asked):
    assert client.get("/", params={"threshold": asked}).status_code == 200


def test_a_session_opens_the_list_of_routes(folder, tmp_path):
    with serving(folder, tmp_path, api_key=KEY) as client:
        assert "v1/calibrate" not in client.get("/?routes=page").text
        assert client.get("/?routes=json").headers["content-type"].startswith("text/html")
        post(client, {"key": KEY}, "/login")
        (link,) = re.findall('href="([^"]*)">Routes<', client.get("/").text)
        routes = client.get(link.removeprefix("."))
        assert "POST /v1/calibrate" in routes.text
        (link,) = re.findall('href="([^"]*)">openapi.json<', routes.text)
        assert "/v1/calibrate" in client.get(link.removeprefix(".")).json()["paths"]


def test_diagrams_of_a_version_go_with_it(client):
    service = client.app.state.service
    served = service.models.served["m"]
    copy = replace(served)
    assert content.diagram(copy, None, next(iter(copy.model.fit_record_.outlooks().groups))) is not None
    assert copy in content._DRAWN
    count = len(content._DRAWN)
    del copy
    gc.collect()
    assert len(content._DRAWN) == count - 1


def test_the_page_says_what_the_rows_are_for(client, fitted):
    assert f"certified with {fitted.rows_:,} labelled answers" in client.get("/").text
