"""A server with the chat completion API that misbehaves on demand: a separate process, which logs its requests.

python llm_server.py FOLDER: prints its port; writes a line to FOLDER/requests.jsonl for every request that it has read,
before it replies. Words in the question decide what it does with a request: see `_Handler`. Under paths such as
/html/v1 it is another server altogether: see `other_server`.
"""

import gzip
import hashlib
import json
import sys
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
LOCK = threading.Lock()
SEEN: dict[str, int] = {}
SERVED: dict[str, int] = {}
SAMPLES = ("Paris", "Lyon", "paris.", "Nice", "the Paris")


def confidence(question: str) -> float:
    """Return the confidence in the reply to a question."""
    return int(hashlib.sha256(question.encode()).hexdigest()[:8], 16) % 100 / 100


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(body)
        said = request["messages"][-1]["content"]
        with LOCK:
            SEEN[said] = SEEN.get(said, 0) + 1
            times = SEEN[said]
            line = {"at": time.monotonic(), "said": said, "key": self.headers.get("authorization"), "request": request}
            line |= {"path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()}}
            with (FOLDER / "requests.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
        other = other_server(self.path.split("/")[1], request, self.headers)
        if other is not None:
            self._raw(*other)
            return
        if "[slow]" in said:
            time.sleep(0.05)
        if "[hang]" in said and times == 1:
            time.sleep(5)
        if "[busy]" in said and times == 1:
            self._reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "1"})
        elif "[broken]" in said and times <= 2:
            self._reply(503, {"error": {"message": "away"}})
        elif "[bad]" in said:
            self._reply(400, {"error": {"message": "the question is bad"}})
        elif "[garbage]" in said and times == 1:
            self._raw(200, b"<html>")
        elif "[down]" in said:
            self._reply(500, {"error": "out of order"})
        elif "[echo]" in said:
            key = self.headers.get("authorization")
            self._reply(
                400, {"error": {"message": f"Incorrect API key provided: {key}. You sent {dict(self.headers)}"}}
            )
        elif "[echo part]" in said:
            key = self.headers.get("authorization").split()[-1]
            self._reply(
                400, {"error": {"message": f"Incorrect API key: {key[:8]}{'*' * 9}{key[-4:]}, see {self.path}"}}
            )
        elif self.headers.get("authorization") == "Bearer wrong":
            self._reply(401, {"error": {"message": "no such key"}})
        else:
            if self.path.startswith("/ignores-n/"):
                request.pop("n", None)
            with LOCK:
                served = SERVED.get(said, 0)
                SERVED[said] = served + request.get("n", 1)
            said = said.replace("[key]", str(self.headers.get("authorization")))
            self._reply(200, completion(request, said, served))

    def do_GET(self):
        if self.path.endswith("/models"):
            self._reply(200, {"object": "list", "data": [{"id": name} for name in ("tiny", "other-7b")]})
        else:
            self._reply(404, {"error": "nothing here"})

    def _reply(self, status, body, headers=None):
        self._raw(status, json.dumps(body).encode(), headers)

    def _raw(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (
            {"content-type": "application/json", "content-length": len(body)} | (headers or {})
        ).items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@cache
def bomb():
    return gzip.compress(b" " * 2**27, compresslevel=1)


def other_server(kind, request, headers):
    """Return status, body and headers of a peculiar or wrong server; None for a normal one."""
    if kind == "redirect":
        return 302, b"", {"location": "/login?next=secret"}
    if kind == "html":
        return 200, b"<!doctype html><title>Welcome</title>", {"content-type": "text/html"}
    if kind == "stream":
        return 200, b'data: {"choices": []}\n\ndata: [DONE]\n\n', {"content-type": "text/event-stream"}
    if kind == "noise":
        return 200, bytes(range(256)), {}
    if kind == "deep":
        return 200, b'{"choices":' + b"[" * 50_000 + b"]" * 50_000 + b"}", {}
    if kind == "deep-error":
        return 400, b'{"error":' + b"[" * 50_000 + b"]" * 50_000 + b"}", {}
    if kind == "bomb":
        return 200, bomb(), {"content-encoding": "gzip"}
    if kind == "quota":
        error = {"message": "You exceeded your current quota.", "type": "insufficient_quota"}
        return 429, json.dumps({"error": error}).encode(), {}
    if kind == "busy":
        return 429, b'{"error": "slow \\u001b[31mdown"}', {"retry-after": "0"}
    if kind == "slow":
        time.sleep(1.5)
    refused = {"no-n": ["n"], "no-logprobs": ["logprobs"], "reasoning": ["temperature", "max_tokens", "logprobs"]}.get(
        kind, []
    )
    for name in refused:
        if name in request:
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            return 403 if name == "logprobs" else 400, json.dumps({"error": {"message": message}}).encode(), {}
    return None


def completion(request, said, served=0):
    """Return the requested number of replies in the form of the prompt; `served` is the number of earlier replies."""
    about = {"id": "x", "object": "chat.completion", "created": 1712345678}
    about["model"] = "other-7b" if "[other]" in said else request["model"]
    choices = [choice(request, said, served + number) for number in range(request.get("n", 1))]
    return about | {"choices": choices, "usage": {"total_tokens": 12}}


def choice(request, said, number):
    text = f"Guess: Paris\nProbability: {confidence(said)}"
    if "Bearer " in said:
        text = f"Guess: {said.split('Bearer ')[1].split()[0]}\nProbability: 0.5"
    elif "[say " in said:
        text = f"Guess: {said.split('[say ')[1].split(']')[0]}\nProbability: 0.5"
    elif "[vary]" in said:
        text = f"Guess: {SAMPLES[number % 5]}\nProbability: 0.{number % 5}"
    elif "[half]" in said:
        text = "Guess: caf\ud83d\nProbability: 0.5"
    elif "[refused]" in said:
        text = "I'm sorry, but I can't help with that."
    elif "[chatty]" in said:
        text = "Well, it is hard to say."
    elif "Confidence:" in said:
        text = f"Guess: Paris\nConfidence: {'Likely' if 'number 3' in said else 'High'}"
    elif "G1:" in said:
        text = "G1: Paris\nP1: 0.6\nG2: Lyon\nP2: 0.3\nG3: Nice\nP3: 0.1"
    elif said.startswith("Reply with one word"):
        text = "Perhaps." if "[stubborn]" in request["messages"][0]["content"] else "Yes."
    elif "A1:" in said:
        text = (
            "Yes. They agree."
            if "[same]" in said
            else "Perhaps."
            if "[unsure]" in said or "[stubborn]" in said
            else "No. They differ."
        )
    finish = "stop"
    if "[long]" in said and request.get("max_completion_tokens", request.get("max_tokens", 0)) < 1000:
        text, finish = ("<think>Is it Paris?", "length") if "[long] think" in said else ("Let me see: it", "length")
    pieces = [text[at : at + 4] for at in range(0, len(text), 4)]
    tokens = [
        {"token": piece, "logprob": -0.1, "bytes": list(piece.encode(errors="replace")), "top_logprobs": []}
        for piece in pieces
    ]
    made = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    if "[long] hidden" in said:
        made["message"] = {"role": "assistant", "content": None, "reasoning_content": text}
    if request.get("logprobs"):
        made["logprobs"] = {"content": tokens}
    return made


if __name__ == "__main__":
    # Set on the class, before the socket listens: a connection beyond the queue is tried again after a second.
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
