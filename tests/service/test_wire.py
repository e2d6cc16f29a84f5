"""The service on a real socket: bodies that come slowly or not at all, and callers without the key."""

import json
import socket
from urllib.parse import urlsplit

import httpx2

from tests.service.servers import running
from tests.service.test_app import KEY


def test_a_body_that_does_not_arrive_in_time_is_refused(folder, tmp_path):
    with running(folder, tmp_path, store="none", max_seconds=0.3) as (_, address):
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port), timeout=20) as caller:
            head = f"POST /v1/calibrate HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
            caller.sendall(head.encode() + b'Content-Length: 500\r\n\r\n{"items": [')
            reply = b""
            while b"too_slow" not in reply:
                part = caller.recv(4096)
                assert part, reply
                reply += part
        assert reply.startswith(b"HTTP/1.1 408 ")
        body = json.loads(reply.partition(b"\r\n\r\n")[2])
        assert body["error"]["message"] == "the request did not arrive in time; send it again."
        # Others are answered meanwhile, and afterwards.
        assert httpx2.get(f"{address}/healthz").status_code == 200


def test_every_described_route_needs_the_key(folder, tmp_path):
    with running(folder, tmp_path, api_key=KEY) as (app, address):
        for path, methods in app.openapi()["paths"].items():
            for method in methods:
                status = httpx2.request(method.upper(), f"{address}{path}").status_code
                assert (status == 200) if path in ("/healthz", "/readyz") else (status == 401), path
        for path in ("/docs", "/openapi.json"):
            assert httpx2.get(f"{address}{path}").status_code == 401
