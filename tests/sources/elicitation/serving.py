"""Starts the server of these tests as a process of its own, and reads what it was asked."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path


class Server:
    def __init__(self, port, folder):
        self.root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.root}/v1"
        self._log = folder / "requests.jsonl"

    @property
    def requests(self):
        """What was asked, in order."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    @property
    def asked(self):
        """The last messages of the requests, in order."""
        return self.asked_at("/")

    def asked_at(self, path):
        """Those of the requests below a path: a request of the test before, given up on its way, may still arrive."""
        return [request["said"] for request in self.requests if request["path"].startswith(path)]


@contextmanager
def serving(folder):
    folder.mkdir(exist_ok=True)
    script = Path(__file__).with_name("llm_server.py")
    process = subprocess.Popen([sys.executable, script, folder], stdout=subprocess.PIPE, text=True)
    try:
        yield Server(int(process.stdout.readline()), folder)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def questions(count, mark=""):
    return [{"id": f"q{n}", "question": f"{mark} What is number {n}?", "ground_truth": "Paris"} for n in range(count)]
