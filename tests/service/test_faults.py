"""Faults under load, each a real one: a full disk, a database that goes, hangs and comes back, an upstream that breaks.

The service is a process of its own, as users start it.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from qacal.service.store import Store
from tests.service.databases import NEEDS, can_run, postgres
from tests.service.servers import running
from tests.service.test_app import serving, wait_for
from tests.service.test_proxy import ASK, events
from tests.service.test_proxy import PATH as CHAT
from tests.service.test_serve import ROWS, process

SECONDS = 20


class Callers:
    """Threads that calibrate and send labels all the time.

    acknowledged : the ids of labels whose reply said that they are stored.
    answered, refused : how many requests were calibrated, and how many labels were refused with status 503.
    wrong : replies that should not be.
    """

    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}"
        self.acknowledged, self.wrong = [], []
        self.answered = self.refused = 0
        self._is_over = False
        self._threads = [threading.Thread(target=self._call, args=(number,)) for number in range(3)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def _call(self, number):
        with httpx2.Client(base_url=self.address, timeout=60) as client:
            while not self._is_over:
                try:
                    self._once(client, ROWS[number : number + 5])
                except httpx2.HTTPError as error:
                    self.wrong.append(repr(error))
                time.sleep(0.02)

    def _once(self, client, rows):
        reply = client.post("/v1/calibrate", json={"items": rows})
        results = reply.json().get("results", [])
        if reply.status_code != 200 or any("error" in one for one in results):
            self.wrong.append(reply.text)
            return
        self.answered += 1
        reply = client.post("/v1/feedback", json={"items": [{"id": one["id"], "correct": 1} for one in results]})
        if reply.status_code == 503:
            self.refused += 1
            if "retry-after" not in reply.headers:
                self.wrong.append(reply.text)
        elif reply.status_code == 200:
            # Answers that were lost have no label.
            self.acknowledged += [one["id"] for one in reply.json()["results"] if one.get("stored")]
        else:
            self.wrong.append(reply.text)

    def wait_for_more(self, name, count=5):
        before = self._count(name)
        wait_for(lambda: self._count(name) >= before + count)

    def _count(self, name):
        value = getattr(self, name)
        return value if isinstance(value, int) else len(value)


def number(client, name):
    (line,) = [line for line in client.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def ready(client):
    return client.get("/readyz").json()


def labels_in(url):
    store = Store(url)
    found = {row["id"] for row in store.rows(labelled=True)}
    store.close()
    return found


def served_through(client, callers, breaks, mends):
    """Check what callers get before, during and after a fault of the store."""
    callers.wait_for_more("acknowledged")
    assert (ready(client)["store"], number(client, "qacal_store_lost_total")) == ("ok", 0)
    assert "not stored since the start" not in client.get("/").text
    breaks()
    callers.wait_for_more("refused")
    callers.wait_for_more("answered")
    wait_for(lambda: number(client, "qacal_store_lost_total") > 0)
    # A full disk may have room for something small now and then.
    wait_for(lambda: ready(client)["store"] == "failed")
    wait_for(lambda: "The store cannot be written now" in client.get("/").text)
    lost = ready(client)["lost"]
    assert lost > 0
    mends()
    callers.wait_for_more("acknowledged")
    wait_for(lambda: ready(client)["store"] == "ok")
    assert ready(client)["lost"] >= lost
    page = client.get("/").text
    assert "The store cannot be written now" not in page
    assert "not stored since the start" in page
    assert callers.wrong == []


@contextmanager
def small_disk(folder, size):
    """Mount a file system of some size, in memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def can_mount():
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    tried = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return tried.returncode == 0


@pytest.mark.heavy
@pytest.mark.skipif(not can_mount(), reason="needs Linux and root, to mount a small disk")
def test_a_full_disk(folder, tmp_path):
    # Large beside the log of SQLite, which takes up to 4 MB: after the fault it must not be full again.
    with small_disk(tmp_path / "disk", "64m") as disk:
        url, rest = f"sqlite:///{disk / 'served.db'}", disk / "rest"

        def fill():
            with suppress(OSError), rest.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

        with process(folder, "--store", url) as (_, client, port), Callers(port) as callers:
            served_through(client, callers, fill, rest.unlink)
        assert {*callers.acknowledged} <= labels_in(url)


@pytest.mark.heavy
@pytest.mark.skipif(not can_run(), reason=NEEDS)
def test_a_database_that_is_stopped_and_started_again(folder):
    with postgres() as (home, stop, start):
        url = f"postgresql+psycopg://qacal@/postgres?host={home}"
        with process(folder, "--store", url) as (_, client, port), Callers(port) as callers:
            served_through(client, callers, stop, start)
        assert {*callers.acknowledged} <= labels_in(url)


@pytest.mark.heavy
@pytest.mark.skipif(not can_run(), reason=NEEDS)
def test_a_database_that_hangs(folder):
    """All of its processes stop: nothing is refused, and nothing is answered."""
    with postgres() as (home, _, _):
        url = f"postgresql+psycopg://qacal@/postgres?host={home}"

        def send(number):
            # Those that are stopped first cannot start others.
            main = int((Path(home) / "data" / "postmaster.pid").read_text().split()[0])
            children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
            for pid in (main, *map(int, children)):
                os.kill(pid, number)

        options = ("--store", url, "--max-seconds", "8")
        with process(folder, *options) as (_, client, port), Callers(port) as callers:
            callers.wait_for_more("acknowledged")
            assert "No label yet, so nothing is tested." in client.get("/").text
            send(signal.SIGSTOP)
            try:
                callers.wait_for_more("answered", 3)
                # Many looks do not use up the threads.
                with httpx2.Client(base_url=callers.address, timeout=60) as other:
                    looks = [threading.Thread(target=other.get, args=("/v1/watch",)) for _ in range(20)]
                    for look in looks:
                        look.start()
                    assert ready(client)["store"] == "failed"
                    problem = "The store cannot be read now: the database does not answer."
                    wait_for(lambda: problem in client.get("/").text)  # what was seen before is shown for a while
                    for look in looks:
                        look.join()
            finally:
                send(signal.SIGCONT)
            callers.wait_for_more("acknowledged")
            wait_for(lambda: ready(client)["store"] == "ok")
        assert callers.wrong == []
        assert {*callers.acknowledged} <= labels_in(url)


@pytest.mark.heavy
@pytest.mark.skipif(not can_run(), reason=NEEDS)
def test_acknowledged_labels_survive_a_kill_with_postgresql(folder):
    with postgres() as (home, _, _):
        url = f"postgresql+psycopg://qacal@/postgres?host={home}"
        with process(folder, "--store", url) as (server, _, port), Callers(port) as callers:
            callers.wait_for_more("acknowledged", 100)
            server.kill()
            server.wait()
        assert {*callers.acknowledged} <= labels_in(url)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_what_is_queued_is_written_when_the_service_is_stopped(folder, tmp_path, how):
    url = f"sqlite:///{tmp_path / 'served.db'}"
    with process(folder, "--store", url) as (server, client, _):
        served = [
            one["id"] for _ in range(20) for one in client.post("/v1/calibrate", json={"items": ROWS}).json()["results"]
        ]
        server.send_signal(how)
        _, said = server.communicate(timeout=SECONDS)
    assert "Traceback" not in said
    assert server.returncode == 128 + how
    store = Store(url)
    assert {row["id"] for row in store.rows()} == {*served}
    store.close()


def test_a_second_interrupt_does_not_wait_for_requests_and_writes_what_is_queued(folder, tmp_path):
    url, is_asked = f"sqlite:///{tmp_path / 'served.db'}", threading.Event()
    with (
        answering(hangs=True, is_asked=is_asked) as upstream,
        process(folder, "--store", url, "--upstream", upstream) as (server, client, port),
    ):

        def hang():
            with suppress(httpx2.HTTPError):
                httpx2.post(f"http://127.0.0.1:{port}{CHAT}", json=ASK, timeout=60)

        waiting = threading.Thread(target=hang)
        waiting.start()
        assert is_asked.wait(SECONDS)
        served = client.post("/v1/calibrate", json={"items": ROWS}).json()["results"]
        server.send_signal(signal.SIGINT)
        time.sleep(1)
        assert server.poll() is None
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=SECONDS)
        waiting.join()
    assert server.returncode == 130
    store = Store(url)
    assert {row["id"] for row in store.rows()} == {one["id"] for one in served}
    store.close()


# The upstream


@contextmanager
def answering(*parts, hangs=False, is_asked=None):
    """Run a server that sends some bytes to whoever asks, whatever is asked, and hangs up, or only hangs.

    is_asked : set when a request has arrived.
    """
    is_over = threading.Event()

    def answer(connection):
        with connection:
            connection.settimeout(SECONDS)
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(65536)
            # A socket that is closed with something unread in it resets the connection: what was sent may be lost.
            head, _, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            while length is not None and len(body) < int(length[1]):
                body += connection.recv(65536)
            if is_asked is not None:
                is_asked.set()
            for part in parts:
                connection.sendall(part)
            if hangs:
                is_over.wait(SECONDS)

    def accept():
        while not is_over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            is_over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def head(*lines, status="200 OK"):
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *lines, "")).encode()


JSON = "Content-Type: application/json"
EVENTS = "Content-Type: text/event-stream"
CHUNK = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"Bel"}}]}\n\n'


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([], "upstream_failed"),
        ([b"\x00\xff SSH-2.0 no HTTP at all\r\n\r\n"], "upstream_failed"),
        ([head(JSON, "Content-Length: 1000"), b'{"id": "chatcmpl-1", "cho'], "upstream_failed"),
        ([head(JSON, "Transfer-Encoding: chunked"), b"ffff\r\n{"], "upstream_failed"),
        ([head(JSON, "Transfer-Encoding: chunked"), b"not a length\r\n{}"], "upstream_failed"),
        ([head(JSON, "Content-Encoding: gzip", "Content-Length: 5"), b"hello"], "upstream_failed"),
        ([head(JSON, "Content-Length: 5"), b'{"\xff\xfe"'], "upstream_garbage"),
        ([head(JSON, "Content-Length: 4"), b"null"], "upstream_garbage"),
        ([head(JSON, "Content-Length: 18"), b'{"choices": [null]'], "upstream_garbage"),
        ([head(JSON, f"Content-Length: {200_000}"), b"[" * 200_000], "upstream_garbage"),
        ([head("Content-Length: 0", status="204 No Content")], "upstream_garbage"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_an_upstream_that_answers_garbage_or_dies(folder, tmp_path, sent, code, streams):
    with answering(*sent) as url, serving(folder, tmp_path, store="none", upstream=url) as client:
        reply = client.post(CHAT, json={**ASK, "stream": streams})
        found = reply.json()["error"]["code"]
        assert (reply.status_code, found) == (502, code if not streams else found)
        assert found.startswith("upstream_")
        decision = {"type": "predicate", "name": "refund", "instructions": "The customer asks for money back."}
        asked = {"model": "m", "input": "I was charged twice.", "questions": [decision]}
        assert client.post("/v1/decisions", json=asked).status_code == 502
        assert client.get("/v1/models").status_code in (200, 502)
        page = client.post("/ask", data={"question": "Which city?", "llm": "parrot-1"})
        assert page.status_code == 422
        assert "The LLM did not answer" in page.text
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("sent", "hangs", "code"),
    [
        ([head(EVENTS), CHUNK], False, "upstream_failed"),
        ([head(EVENTS, "Transfer-Encoding: chunked"), b"10\r\ndata"], False, "upstream_failed"),
        ([head(EVENTS, "Content-Length: 1000"), CHUNK], False, "upstream_failed"),
        ([head(EVENTS), CHUNK, b"data: \xff\xfe\x00\n\n"], False, "upstream_garbage"),
        ([head(EVENTS), CHUNK, b"data: [1]\n\n"], False, "upstream_garbage"),
        ([head(EVENTS), CHUNK], True, "upstream_timeout"),
    ],
)
def test_an_upstream_that_breaks_in_a_stream(folder, tmp_path, sent, hangs, code):
    with (
        answering(*sent, hangs=hangs) as url,
        serving(folder, tmp_path, store="none", upstream=url, upstream_seconds=0.5) as client,
    ):
        reply = client.post(CHAT, json={**ASK, "stream": True})
    assert reply.status_code == 200
    assert events(reply)[-1]["error"]["code"] == code


def test_an_upstream_that_is_killed_in_a_stream(folder, tmp_path):
    """The process of the upstream dies while the caller reads; the next request is told that nobody is there."""
    program = (
        "import socket, sys, time\n"
        "with socket.create_server(('127.0.0.1', 0)) as listening:\n"
        "    print(listening.getsockname()[1], flush=True)\n"
        "    connection, _ = listening.accept()\n"
        f"    connection.recv(65536); connection.sendall({head(EVENTS) + CHUNK!r}); time.sleep(60)\n"
    )
    upstream = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{int(upstream.stdout.readline())}/v1"
        with (
            running(folder, tmp_path, store="none", upstream=url) as (_, address),
            httpx2.Client(base_url=address, timeout=SECONDS) as client,
        ):
            with client.stream("POST", CHAT, json={**ASK, "stream": True}) as reply:
                lines = reply.iter_lines()
                assert "Bel" in next(lines)
                upstream.kill()
                rest = [line for line in lines if line]
            assert "upstream_failed" in rest[-1]
            reply = client.post(CHAT, json=ASK)
            assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_unreachable")
    finally:
        upstream.kill()
        upstream.communicate()
