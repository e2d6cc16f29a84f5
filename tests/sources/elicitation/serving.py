"""Starts the server of these tests as a separate process, and reads its log of requests."""

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
        """The requests, in order."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    @property
    def asked(self):
        """The last messages of the requests, in order."""
        return self.asked_at("/")

    def asked_at(self, path):
        """Requests below a path: an abandoned request of the previous test may still arrive."""
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
