"""The service against its own description: schemathesis makes requests out of it, good and bad ones."""

import importlib.util
import subprocess
import sys

import pytest

from tests.service.servers import running
from tests.service.test_app import KEY
from tests.service.upstreams import stubbed

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="needs schemathesis"),
]


@pytest.mark.parametrize("store", ["sqlite", "none"])
def test_no_request_is_a_server_error_and_replies_are_as_described(folder, tmp_path, store):
    others = {"store": "none"} if store == "none" else {}
    with running(folder, tmp_path, **others) as (_, address):
        checked(address, tmp_path)


def test_the_same_holds_with_a_key(folder, tmp_path):
    with running(folder, tmp_path, api_key=KEY) as (_, address):
        checked(address, tmp_path, "-H", f"Authorization: Bearer {KEY}")


@pytest.mark.parametrize(("routes", "probability"), [("chat|decisions|models|guardrail", 0.8), ("chat", None)])
def test_the_same_holds_for_routes_of_the_upstream(folder, tmp_path, routes, probability):
    """With log-probabilities and, for completions, without; what is valid, the upstream decides."""
    with stubbed() as stub, running(folder, tmp_path, upstream=stub.url) as (_, address):
        stub.probability = probability
        checks = "positive_data_acceptance,negative_data_rejection"
        checked(address, tmp_path, "--include-path-regex", routes, "--exclude-checks", checks)


def checked(address, tmp_path, *options):
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", "--seed", "1"]
    command += ["--max-examples", "100", "--generation-database", "none", "--no-color", *options]
    found = subprocess.run(command, capture_output=True, text=True, timeout=1200, cwd=tmp_path)
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
