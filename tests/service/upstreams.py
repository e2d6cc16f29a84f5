"""An LLM server to stand behind the proxy: a real HTTP server whose replies a test chooses."""

import asyncio
import json
import math
import socket
import threading
import time
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

SECOND = "How likely is it that your guess is correct?"
TRUE_OR_FALSE = "Is your guess correct?"


def tokens_of(text, probability):
    """Return log-probabilities of tokens whose product is `probability`."""
    words = [word if at == 0 else f" {word}" for at, word in enumerate(text.split(" "))]
    each = math.log(probability) / len(words)
    return [{"token": word, "logprob": each, "bytes": list(word.encode()), "top_logprobs": []} for word in words]


class Stub:
    """A server with one answer, and faults on demand.

    answer, probability : the reply, and the probability of its tokens; None for a server without them.
    stated : the reply to the second question.
    fault : what goes wrong; see `_faulty`.
    refuses : whether it refuses all requests.
    requests, headers : what it was sent.
    cancelled : set when a request that hangs was broken off by the peer.
    """

    def __init__(self):
        self.reset()
        routes = [Route("/v1/chat/completions", self.chat, methods=["POST"]), Route("/v1/models", self.models)]
        self.app = Starlette(routes=routes)

    def reset(self):
        self.answer, self.probability, self.stated = "The capital is Belmar.", 0.8, "Probability: 0.7"
        self.fault, self.refuses = None, False
        self.finish, self.message, self.extra = "stop", {}, {}
        self.requests, self.headers = [], []
        self.cancelled = threading.Event()

    async def models(self, request):
        self.headers.append(dict(request.headers))
        return JSONResponse({"object": "list", "data": [{"id": "parrot-1", "object": "model"}]})

    async def chat(self, request):
        asked = json.loads(await request.body())
        self.requests.append(asked)
        self.headers.append(dict(request.headers))
        if self.refuses:
            return JSONResponse({"error": {"message": "refused"}}, 422)
        try:
            last = asked["messages"][-1]["content"]
        except (KeyError, IndexError, TypeError):
            last = None  # it answers anything
        is_second = isinstance(last, str) and last.startswith((SECOND, TRUE_OR_FALSE))
        if self.fault is not None and is_second == self.fault.startswith("second "):
            response = await self._faulty(request, self.fault.removeprefix("second "), asked)
            if response is not None:
                return response
        if is_second:
            return JSONResponse(self.second(asked, last))
        if asked.get("stream"):
            return StreamingResponse(self._events(asked), media_type="text/event-stream")
        return JSONResponse(self.completion(asked), headers={"x-request-id": "request-1"})

    def second(self, asked, last):
        choice = {"index": 0, "message": {"role": "assistant", "content": self.stated}, "finish_reason": "stop"}
        if last.startswith(TRUE_OR_FALSE):
            listed = [{"token": "True", "logprob": math.log(0.6)}, {"token": "False", "logprob": math.log(0.2)}]
            first = {"token": "True", "logprob": math.log(0.6), "top_logprobs": listed}
            choice |= {"message": {"role": "assistant", "content": "True"}, "logprobs": {"content": [first]}}
        return {"id": "chatcmpl-2", "object": "chat.completion", "created": 1, "model": "parrot-1", "choices": [choice]}

    def completion(self, asked):
        choices = []
        for number in range(asked.get("n") or 1):
            message = {"role": "assistant", "content": self.answer, **self.message}
            choice = {"index": number, "message": message, "finish_reason": self.finish, "own": 1}
            if asked.get("logprobs") and self.probability is not None:
                choice["logprobs"] = {"content": tokens_of(self.answer, self.probability)}
            choices.append(choice)
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "parrot-1", "choices": choices}
        return {**body, "usage": usage, "timings": {"predicted_ms": 1.5}, **self.extra}

    async def _events(self, asked):
        def chunk(delta, finish="", **others):
            choice = {"index": 0, "delta": delta, "finish_reason": finish, **others}
            body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "parrot-1"}
            return f"data: {json.dumps({**body, 'choices': [choice], 'own': 1, 'error': None})}\n\n"

        yield ": a comment\n\n"
        yield chunk({"role": "assistant", "content": "", **self.message})
        for at, token in enumerate(tokens_of(self.answer, self.probability or 0.5)):
            if at == 2 and self.fault == "dies in a stream":
                raise ConnectionResetError
            if at == 2 and self.fault == "ends in a stream":
                return
            if at == 2 and self.fault == "garbage in a stream":
                yield "data: <html>\n\n"
            if at == 2 and self.fault == "error in a stream":
                yield 'data: {"error": {"message": "out of memory", "type": "server_error"}}\n\n'
                return
            if at == 2 and self.fault == "hangs in a stream":
                await self._hang(None)
            given = asked.get("logprobs") and self.probability is not None
            yield chunk({"content": token["token"]}, logprobs={"content": [token]} if given else None)
        if self.fault != "no finish":
            yield chunk({}, self.finish)
        if (asked.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
            body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "parrot-1"}
            yield f"data: {json.dumps({**body, 'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"

    async def _hang(self, request):
        try:
            if request is None:
                await asyncio.sleep(60)
            while not await request.is_disconnected():
                await asyncio.sleep(0.01)
        finally:
            self.cancelled.set()

    async def _faulty(self, request, fault, asked):
        if fault == "hangs":
            await self._hang(request)
            return Response("gone")
        if fault == "no logprobs" and asked.get("logprobs"):
            return JSONResponse({"error": {"message": "logprobs are not supported"}}, 400)
        if fault == "no temperature" and "temperature" in asked:
            return JSONResponse({"error": {"message": "temperature is not supported"}}, 400)
        if fault == "garbage":
            return Response("<html>", media_type="text/html")
        if fault == "no completion":
            return JSONResponse({"hello": 1})
        if fault == "redirects":
            return Response(status_code=307, headers={"location": "http://127.0.0.1:1/v1/chat/completions"})
        if fault == "page 500":
            return Response("<script>1</script>", 500, media_type="text/html")
        if fault.isdigit():
            body = {"error": {"message": f"status {fault}, your key is {request.headers.get('authorization')}"}}
            return JSONResponse(body, int(fault), headers={"Retry-After": "7"})
        return None


@contextmanager
def running(app):
    """Run an application on a port of its own; yield the base URL."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", ws="none", lifespan="auto")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < until
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@contextmanager
def stubbed():
    stub = Stub()
    with running(stub.app) as address:
        stub.url = f"{address}/v1"
        yield stub
