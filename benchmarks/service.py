"""How fast the service is: latency of one record at a steady rate, records a second beside `calibrate`, and the proxy.

    python -m benchmarks.service [--rate 200] [--seconds 20] [--model FOLDER]
    python -m benchmarks.service --proxy [--delay 0.05] [--rate 50]

The service runs as `qacal serve`, with a store, in a process of its own that is bound to one core; the caller runs on
another. Requests are sent when they are due, whether or not earlier ones were answered, so waiting counts. Times are
those of this machine now. Beside them stand /healthz, and a bare server on the same core that sends one fixed reply:
no service can be faster than that one. Loads take turns. On a virtual machine, others may take the processor away; the
share of the time that they took is printed. So is what latency would be if nobody did: the processor time of each of
many requests, one after the other, and the waiting that follows from it at this rate, if one request is worked on at a
time.

With --proxy: chat completions through the proxy, beside the same ones without it. The upstream answers each request
after a fixed delay, so what exceeds it is the time of the proxy, of the caller and of waiting for a core. Rounds with
and without the proxy take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from tests.answers import answers
from threadpoolctl import threadpool_limits

import qacal


class Caller:
    """A connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None

    async def ask(self, request: bytes) -> bytes:
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await self.reader.readexactly(length)
        assert head.split(b" ", 2)[1] == b"200", body
        return body


def request_of(path: str, content: dict[str, Any] | None = None) -> bytes:
    body = b"" if content is None else json.dumps(content).encode()
    kind = "GET" if content is None else "POST"
    head = f"{kind} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


async def steady(port: int, requests: list[bytes], rate: float, seconds: float, *, at_random: bool) -> np.ndarray:
    """Send requests at a rate, evenly or at random times; return the times from when each was due, in ms."""
    free: list[Caller] = []
    times: list[float] = []
    rng = random.Random(0)

    async def one(at: int, due: float) -> None:
        caller = free.pop() if free else Caller(port)
        await caller.ask(requests[at % len(requests)])
        times.append(time.perf_counter() - due)
        free.append(caller)

    tasks, due = [], time.perf_counter() + 0.1
    end = due + seconds
    while due < end:
        while (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left if left > 0.001 else 0)
        tasks.append(asyncio.create_task(one(len(tasks), due)))
        due += rng.expovariate(rate) if at_random else 1 / rate
    await asyncio.gather(*tasks)
    return 1000 * np.array(times[len(times) // 10 :])


async def processor_times(pid: int, port: int, requests: list[bytes], count: int) -> np.ndarray:
    """Return the processor time that a server uses for each of some requests, one after the other, in ms."""
    clock = (~pid << 3) | 2  # how Linux names the clock of a process's processor time
    caller = Caller(port)
    times = []
    for at in range(count):
        await caller.ask(requests[at % len(requests)])
        await asyncio.sleep(0.002)  # the clock is exact when the server waits again
        times.append(time.clock_gettime(clock))
    return 1000 * np.diff(times)


def delays(work: np.ndarray, rate: float, at_random: bool) -> np.ndarray:
    """Return how long each request takes from when it is due, if `work` is done for one after the other, in ms."""
    rng = random.Random(0)
    due = end = 0.0
    times = []
    for one in work:
        due += 1000 * (rng.expovariate(rate) if at_random else 1 / rate)
        end = max(end, due) + one
        times.append(end - due)
    return np.array(times)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def best(act: Any, runs: int = 7) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return min(times)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, help="requests a second; default: 200, with --proxy 50")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--model", help="a saved model that reads question, answer and confidence; default: a new one")
    parser.add_argument("--proxy", action="store_true", help="measure the proxy")
    parser.add_argument("--delay", type=float, default=0.05, help="of the upstream behind the proxy, in seconds")
    parser.add_argument("--upstream-port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream_port is not None:
        asyncio.run(upstream(options.upstream_port, options.delay))
        return
    options.rate = options.rate or (50.0 if options.proxy else 200.0)
    warnings.simplefilter("ignore")
    gc.disable()  # a pause of the caller is none of the service
    rows = [{name: row[name] for name in ("question", "answer", "confidence")} for row in answers(1000, seed=1)]
    with tempfile.TemporaryDirectory() as home:
        folder = options.model or f"{home}/model"
        if options.model is None:
            qacal.QACalibrator(features=()).fit(answers(2500)).save(folder)
        if options.proxy:
            measure_proxy(options, folder, home, rows)
            return
        port = free_port()
        with started(folder, home, port) as server:
            measure(options, folder, port, server.pid, rows)


@contextmanager
def started(folder: str, home: str, port: int, *others: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the service on one core, and leave another one to this process."""
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "qacal.cli", "serve", folder, "--port", str(port), *others]
    server = subprocess.Popen(
        [*command, "--store", f"sqlite:///{home}/served.db"],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]),
        stderr=subprocess.DEVNULL,
    )
    os.sched_setaffinity(0, cores[-1:])
    try:
        await_server(port)
        yield server
    finally:
        os.sched_setaffinity(0, cores)
        server.terminate()
        server.wait()


def await_server(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            asyncio.run(Caller(port).ask(request_of("/healthz")))
            return
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.1)


async def upstream(port: int, delay: float) -> None:
    """Answer every request with the same completion after a delay, or word by word; a second question with a number."""
    answer = "The capital of Arden is Belmar, which lies on the river Kell."
    words = [word if at == 0 else f" {word}" for at, word in enumerate(answer.split(" "))]
    tokens = [{"token": word, "logprob": -0.05, "bytes": list(word.encode()), "top_logprobs": []} for word in words]

    def reply(text: str, logprobs: Any) -> bytes:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        choices = [{**choice, "logprobs": logprobs}]
        named = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "parrot-1"}
        body = json.dumps({**named, "choices": choices}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def events() -> list[bytes]:
        named = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "parrot-1"}
        choices = [
            {"delta": {"content": one["token"]}, "finish_reason": None, "logprobs": {"content": [one]}}
            for one in tokens
        ]
        choices.append({"delta": {}, "finish_reason": "stop"})
        chunks = [json.dumps({**named, "choices": [{"index": 0, **choice}]}) for choice in choices]
        return [f"data: {chunk}\n\n".encode() for chunk in (*chunks, "[DONE]")]

    plain, scored = reply(answer, None), reply(answer, {"content": tokens})
    second = reply("Probability: 0.8", None)
    streamed = events()
    length = sum(map(len, streamed))
    opening = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n".encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                body = await reader.readexactly(int(size or 0))
                if b"/healthz" not in head:
                    await asyncio.sleep(delay)
                if b'"stream": true' in body:
                    writer.write(opening)
                    for event in streamed:
                        writer.write(event)
                        await writer.drain()
                        await asyncio.sleep(delay / len(streamed))
                    continue
                is_second = b"How likely is it that your guess" in body
                writer.write(second if is_second else scored if b'"logprobs": true' in body else plain)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


def measure_proxy(options: Any, folder: str, home: str, rows: list[dict[str, Any]]) -> None:
    behind = free_port()
    ours = ["--upstream-port", str(behind), "--delay", str(options.delay)]
    other = subprocess.Popen([sys.executable, "-m", "benchmarks.service", *ours])
    path = "/v1/chat/completions"
    asked = [{"model": "parrot-1", "messages": [{"role": "user", "content": row["question"]}]} for row in rows]
    bare = [request_of(path, {**one, "logprobs": True}) for one in asked]
    proxied = [request_of(path, one) for one in asked]
    ones = [request_of("/v1/calibrate", {"items": [row]}) for row in rows]
    print(
        f"{options.rate:g} requests a second for {options.seconds:g} s, the upstream answers after "
        f"{1000 * options.delay:g} ms; load {os.getloadavg()[0]:.1f}"
    )
    try:
        await_server(behind)
        for choice, calls in (("logprobs", 1), ("second-question", 2)):
            port = free_port()
            address = f"http://127.0.0.1:{behind}/v1"
            others = ("--upstream", address, "--confidence-from", choice)
            with started(folder, home, port, *others) as server:
                evidence = json.loads(asyncio.run(Caller(port).ask(proxied[0])))["qa_calibration"]
                assert evidence["calibrated"] is not None, evidence
                times: dict[str, list[np.ndarray]] = {"bare": [], "proxy": [], "calibrate": []}
                used = 0.0
                rounds = 4
                for _ in range(rounds):
                    loads = (("bare", behind, bare), ("proxy", port, proxied), ("calibrate", port, ones))
                    for name, to, requests in loads:
                        before = cpu_seconds(server.pid)
                        run = steady(to, requests, options.rate, options.seconds / rounds, at_random=True)
                        times[name].append(asyncio.run(run))
                        used += (cpu_seconds(server.pid) - before) if name == "proxy" else 0.0
            (b50, b99), (p50, p99), (c50, c99) = (
                np.quantile(np.concatenate(one), [0.5, 0.99]) for one in times.values()
            )
            print(f"  {choice}: {calls} call(s) of the upstream")
            print(f"    /v1/calibrate alone: p50 {c50:.2f} ms  p99 {c99:.2f} ms")
            print(f"    bare   p50 {b50:7.2f} ms  p99 {b99:7.2f} ms")
            print(f"    proxy  p50 {p50:7.2f} ms  p99 {p99:7.2f} ms")
            print(
                f"    ratio  p50 {p50 / b50:7.2f}     p99 {p99 / b99:7.2f}     beyond the bare calls: p50 "
                f"{p50 - calls * b50:.2f} ms, p99 {p99 - calls * b99:.2f} ms; processor "
                f"{1000 * used / (options.rate * options.seconds):.2f} ms a request"
            )
    finally:
        other.terminate()
        other.wait()


def measure(options: Any, folder: str, port: int, pid: int, rows: list[dict[str, Any]]) -> None:
    cores = sorted(os.sched_getaffinity(pid))
    ones = [request_of("/v1/calibrate", {"items": [row]}) for row in rows]
    healthz = [request_of("/healthz")]
    bare_port = free_port()
    bare = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.service", "--upstream-port", str(bare_port)],
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    loads = {
        "a bare server": (bare.pid, bare_port, healthz),
        "/healthz": (pid, port, healthz),
        "/v1/calibrate, one record": (pid, port, ones),
    }
    print(f"{options.rate:g} requests a second for {options.seconds:g} s; load {os.getloadavg()[0]:.1f}")
    rounds = 4
    try:
        await_server(bare_port)
        for at_random in (False, True):
            times: dict[str, list[np.ndarray]] = {name: [] for name in loads}
            used = dict.fromkeys(loads, 0.0)
            before = cpu_fields()
            for _ in range(rounds):
                for name, (process, to, requests) in loads.items():
                    used[name] -= cpu_seconds(process)
                    run = steady(to, requests, options.rate, options.seconds / rounds, at_random=at_random)
                    times[name].append(asyncio.run(run))
                    used[name] += cpu_seconds(process)
            spent = cpu_fields() - before
            when = "at random times" if at_random else "evenly"
            print(f"  {when}; {spent[7] / spent.sum():.1%} of the time was taken by other machines")
            for name, found in times.items():
                p50, p90, p99 = np.quantile(np.concatenate(found), [0.5, 0.9, 0.99])
                cpu = 1000 * used[name] / (options.rate * options.seconds)
                print(
                    f"    {name:<26} p50 {p50:6.2f} ms  p90 {p90:6.2f} ms  p99 {p99:6.2f} ms  "
                    f"processor {cpu:.2f} ms a request"
                )
        print("  by processor time, on a core that nobody else uses")
        for name, (process, to, requests) in loads.items():
            used_by = asyncio.run(processor_times(process, to, requests, int(options.rate * options.seconds)))
            evenly, at_random = (np.quantile(delays(used_by, options.rate, how), [0.5, 0.99]) for how in (False, True))
            print(
                f"    {name:<26} p50 {evenly[0]:5.2f} ms  p99 {evenly[1]:5.2f} ms evenly, "
                f"p50 {at_random[0]:5.2f} ms  p99 {at_random[1]:5.2f} ms at random times"
            )
    finally:
        bare.terminate()
        bare.wait()
    model = qacal.load(folder, warm=True)
    batch = request_of("/v1/calibrate", {"items": rows[:100]})

    async def ask_often() -> float:
        caller = Caller(port)
        times = []
        for _ in range(10):
            began = time.perf_counter()
            await caller.ask(batch)
            times.append(time.perf_counter() - began)
        return min(times)

    served = asyncio.run(ask_often())
    with threadpool_limits(1):  # as many threads as the service has
        model.calibrate(rows[:100], prefix="new_")
        inside = best(lambda: model.calibrate(rows[:100], prefix="new_"))
        one = best(lambda: [model.explain(**row) for row in rows[:100]]) / 100
    print(f"  batches of 100: {100 / served:,.0f} records a second, {inside / served:.2f} of calibrate in this process")
    print(f"  model.explain: {1000 * one:.2f} ms a record")


def cpu_fields() -> np.ndarray:
    """Return the time that all cores have spent on each kind of work so far; the eighth was taken by other machines."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    return np.array(line.split()[1:9], dtype=float)


if __name__ == "__main__":
    main()
