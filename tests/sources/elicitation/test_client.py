"""Peculiar servers, and servers of other kinds: the requests, the messages, and what is stored."""

import pytest

from qacal.errors import InputError, QacalError, ServerError
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.masking import Masking
from qacal.sources.elicitation.run import Plan, elicit, stored_run
from qacal.sources.elicitation.store import open_store
from tests.sources.elicitation.serving import questions, serving

WORKERS = 4


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def server(shared_server):
    shared_server._log.unlink(missing_ok=True)
    return shared_server


@pytest.fixture
def ran(server, tmp_path):
    def run(path, rows, plan=None, **how):
        client = Client(f"{server.root}{path}", tries=how.pop("tries", 6), **how)
        return elicit(rows, client, plan or Plan("tiny"), tmp_path / "run.db", workers=WORKERS)

    return run


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("html", "it is a web page: '<!doctype html><title>Welcome</title>'"),
        ("redirect", "/login. If that is the LLM server, use that address as --base-url. Is the base URL"),
        ("stream", "it is an event stream, which was not asked for"),
        ("noise", "got no JSON: it begins with"),
        ("deep", "got JSON that is nested too deeply"),
        ("bomb", "the reply has more than 64 MB"),
    ],
)
def test_a_server_that_is_not_an_llm_server_is_recognised_after_two_replies(ran, server, kind, said):
    with pytest.raises(InputError, match=r"Is the base URL that of a chat API\?") as caught:
        ran(f"/{kind}/v1", questions(80))
    assert said in str(caught.value)
    assert len(server.asked_at(f"/{kind}/")) <= 2 + WORKERS
    with pytest.raises(InputError):
        ran(f"/{kind}/v1", questions(80))


def test_a_deeply_nested_error_is_an_error(ran):
    with pytest.raises(InputError, match="status 400"):
        ran("/deep-error/v1", questions(20))


def test_a_reply_that_is_too_long_is_not_read(ran, monkeypatch):
    monkeypatch.setattr("qacal.sources.elicitation.client._LARGEST_REPLY", 200)
    with pytest.raises(InputError, match=r"more than 0.0001907 MB.*a shorter one \(--field max_tokens=1000\)\. Is"):
        ran("/v1", questions(3))


def test_a_quota_is_not_waited_for(ran, server):
    with pytest.raises(
        InputError, match=r"status 429: You exceeded your current quota\. The account has no quota"
    ) as told:
        ran("/quota/v1", questions(80))
    assert "Is the server running" not in str(told.value)
    assert len(server.asked_at("/quota/")) <= WORKERS


def test_a_server_that_stays_busy_is_an_error_that_suggests_a_lower_rate(ran, tmp_path):
    with pytest.raises(ServerError, match=r"The server gets too many requests: ask slower with --rpm") as told:
        ran("/busy/v1", questions(12), tries=2)
    # Control characters of a server reach neither the terminal nor the store.
    assert "\x1b" not in str(told.value)
    assert b"\x1b[31m" not in b"".join(path.read_bytes() for path in tmp_path.glob("run.db*"))


def test_a_query_in_the_base_url_goes_to_the_end(server, tmp_path):
    url = f"{server.root}/openai/deployments/tiny/?api-version=2024-06-01&sig=abcdefgh12345678"
    for given in (url, url.replace("/?", "/chat/completions?")):
        client = Client(given, headers={"api-key": "abcdefgh-secret"})
        done = elicit(questions(2, given[-30:]), client, Plan("tiny"), tmp_path / "run.db")
        assert done.progress.failed == 0
    for request in server.requests:
        assert (
            request["path"] == "/openai/deployments/tiny/chat/completions?api-version=2024-06-01&sig=abcdefgh12345678"
        )
        assert request["headers"]["api-key"] == "abcdefgh-secret"
        assert request["key"] is None
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("run.db*"))
    assert b"abcdefgh-secret" not in stored


def test_values_of_headers_are_masked_like_the_key(server, tmp_path):
    rows = [*questions(1), *questions(3, "[echo]")[1:]]
    client = Client(server.base_url, headers={"X-Token": "hidden-4711-value", "Authorization": "Bearer very-hidden"})
    done = elicit(rows, client, Plan("tiny"), tmp_path / "run.db")
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("run.db*"))
    assert done.progress.failed == 2
    for secret in ("hidden-4711-value", "very-hidden"):
        assert secret not in str(done.progress)
        assert secret.encode() not in stored


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"headers": {"anthropic-version": "2023-06-01"}}, "2023-06-01"),
        ({"headers": {"X-Title": "capital of Australia"}}, "Canberra is in Australia"),
        ({"headers": {"X-Author": "Jane Austen"}}, "Jane Austen"),
        ({"headers": {"X-Account": "12345678"}}, "12345678"),
        ({"headers": {"X-Token": "12345678"}}, "1712345678"),
        ({"headers": {"X-Token": "capital of Australia"}}, "Canberra is in Australia"),
        ({"query": "?deployment=tiny-model-3"}, "tiny-model-3"),
    ],
)
def test_other_words_are_not_masked_in_answers(server, tmp_path, given, said):
    client = Client(f"{server.base_url}{given.get('query', '')}", headers=given.get("headers"))
    done = elicit([{"question": f"[say {said}]"}], client, Plan("tiny-model-3"), tmp_path / "run.db")
    with open_store(tmp_path / "run.db", to_write=False) as store:
        assert [row["answer"] for row in stored_run(store).answers()] == [said]
    assert [*done.outcomes.models] == ["tiny-model-3"]
    assert b'"created": 1712345678' in (tmp_path / "run.db").read_bytes()


@pytest.mark.parametrize(
    ("login", "query", "headers", "secret"),
    [
        ("", "", {"Ocp-Apim-Subscription-Key": "hidden-4711"}, "hidden-4711"),
        ("", "", {"Authorization": "Bearer hidden-4711"}, "hidden-4711"),
        ("", "", {"X-Secret": 'hid"den/4711'}, 'hid"den/4711'),
        ("me:hidden-4711@", "", {}, "hidden-4711"),
        ("", "?access_token=hidden%2F4711", {}, "hidden/4711"),
    ],
)
def test_credentials_are_masked_in_answers(server, tmp_path, login, query, headers, secret):
    client = Client(f"{server.base_url.replace('//', f'//{login}')}{query}", headers=headers)
    elicit([{"question": f"[say It is ({secret}).]"}], client, Plan("tiny", logprobs=False), tmp_path / "run.db")
    with open_store(tmp_path / "run.db", to_write=False) as store:
        assert [row["answer"] for row in stored_run(store).answers()] == ["It is (***)."]


def test_credentials_are_masked_however_json_spells_them():
    masking = Masking(["hidden/4711"])
    for spelled in ("hidden/4711", r"hidden\/4711", r"\u0068idden\u002f4711", "hidden%2F4711"):
        assert masking.reply(f'{{"a": "{spelled}", "n": 1e400}}') == '{"a": "***", "n": 1e400}'
    # Text that is not JSON is returned unchanged, in linear time.
    odd = '"' + '\\"' * 200_000 + "hidden/4711\\"
    assert masking.reply(odd) == odd


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"a b": "x"}, "'a b' is not a header"),
        ({"Content-Length": "3"}, "not a header that can be set"),
        ({"x": "secret\nHost: y"}, "the header x has letters that cannot be sent"),
    ],
)
def test_invalid_headers(headers, problem):
    with pytest.raises(InputError, match=problem) as told:
        Client("http://127.0.0.1/v1", headers=headers)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("number", [0, -1, 2.0, True])
def test_settings_that_would_send_no_request_are_refused(tmp_path, number):
    with pytest.raises(InputError, match=r"tries is .*; expected a whole number from 1"):
        Client("http://127.0.0.1:9/v1", tries=number)
    with pytest.raises(InputError, match=r"workers is .*; expected a whole number from 1"):
        elicit(questions(1), Client("http://127.0.0.1:9/v1"), Plan("tiny"), tmp_path / "run.db", workers=number)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/v1\n", "http://127.0.0.1:9/v\r1", "http://a b/v1", "http://x\x00y/v1"]
)
def test_a_url_with_a_line_break_is_invalid(url):
    with pytest.raises(InputError, match=r"the base URL is .*; expected one such as"):
        Client(url)


def test_an_invalid_host_is_an_error(tmp_path):
    with pytest.raises(QacalError, match=r"no request can be sent there|cannot be reached"):
        elicit(questions(1), Client("http://\u2024\u2024/v1", tries=1), Plan("tiny"), tmp_path / "run.db")


def test_all_requests_are_counted(ran, server):
    done = ran("/v1", [*questions(4), *questions(8, "[broken] counted")[4:]])
    assert done.progress.traffic.requests == len(server.asked) == 4 + 3 * 4
    assert done.progress.traffic.again.total() == 8
    assert (done.progress.sent, done.progress.failed) == (8, 0)


def test_timeouts_are_reported_while_waiting(server, tmp_path):
    told = []

    def telling(total):
        return lambda progress: told.append((progress.done, dict(progress.traffic.again)))

    client = Client(f"{server.root}/slow/v1", timeout=1.0, tries=2)
    with pytest.raises(
        ServerError, match=r"no reply within 1 s\. Is the server running\? --timeout gives it more time"
    ):
        elicit(questions(1), client, Plan("tiny"), tmp_path / "run.db", progress=telling)
    assert told == [(0, {"no reply in time": 1})]


def test_a_rate_is_kept(ran, server):
    ran("/v1", questions(9, "rate"), rpm=600)
    times = sorted(request["at"] for request in server.requests)
    # Nine requests, 0.1 s apart; a busy machine may deliver the first ones late.
    assert times[-1] - times[0] > 0.5


def test_a_server_without_log_probabilities_is_asked_without_them(ran, server, tmp_path):
    def asked_without():
        return sum("logprobs" not in request["request"] for request in server.requests)

    done = ran("/no-logprobs/v1", questions(12))
    assert (done.outcomes.stated, done.progress.failed, done.run, done.runs) == (12, 0, 1, 1)
    assert "status 403: Unsupported parameter: 'logprobs'" in done.no_logprobs
    # The first refusal cancels requests of other workers, so some of them may never arrive.
    assert 12 < done.progress.traffic.requests <= 12 + WORKERS
    assert asked_without() == 12
    with open_store(tmp_path / "run.db", to_write=False) as store:
        assert len(list(stored_run(store).answers())) == 12
    again = ran("/no-logprobs/v1", questions(14)[::-1])
    assert (again.outcomes.stated, again.runs) == (14, 1)
    assert again.no_logprobs is not None
    assert asked_without() == 14


def test_a_prompt_that_needs_log_probabilities_says_so(ran, server):
    with pytest.raises(InputError, match=r"pass --no-logprobs, and a prompt that needs none \(--prompt verb1s-top1"):
        ran("/no-logprobs/v1", questions(12), Plan("tiny", "p-true"))


def test_a_server_that_refuses_the_usual_fields_is_named_with_the_remedy(ran, server):
    with pytest.raises(InputError, match=r"'temperature' is not supported.*pass --preset reasoning"):
        ran("/reasoning/v1", questions(80))
    # A worker may have started another request when the first refusal is read.
    assert len(server.asked_at("/reasoning/")) <= 2 * WORKERS


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ("[long]", "malformed: the reply is cut off"),
        ("[long] think", "malformed: the reply ends within the LLM's thoughts"),
        ("[long] hidden", "malformed: the reply ends within the LLM's thoughts"),
    ],
)
def test_replies_that_end_too_early_are_reported(ran, mark, why):
    assert ran("/v1", questions(2, mark)).outcomes.lost == {why: 2}
