"""How fast the service is: latency of one record at a steady rate, and records a second beside `calibrate`.

    python -m benchmarks.service [--rate 200] [--seconds 20] [--model FOLDER]

The service runs as `qacal serve`, with a store, in a process of its own that is bound to one core; the caller runs on
another. Requests are sent when they are due, whether or not earlier ones were answered, so waiting counts. Times are
those of this machine now: the same load on /healthz stands beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tests.answers import answers

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


def request_of(path: str, items: list[dict[str, Any]] | None = None) -> bytes:
    body = b"" if items is None else json.dumps({"items": items}).encode()
    kind = "GET" if items is None else "POST"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--model", help="a saved model that reads question, answer and confidence; default: a new one")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [{name: row[name] for name in ("question", "answer", "confidence")} for row in answers(1000, seed=1)]
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as home:
        folder = options.model or f"{home}/model"
        if options.model is None:
            qacal.QACalibrator(features=()).fit(answers(2500)).save(folder)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        command = [sys.executable, "-m", "qacal.cli", "serve", folder, "--port", str(port)]
        server = subprocess.Popen(
            [*command, "--store", f"sqlite:///{home}/served.db"],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]),
            stderr=subprocess.DEVNULL,
        )
        os.sched_setaffinity(0, cores[-1:])
        try:
            measure(options, folder, port, server.pid, rows)
        finally:
            server.terminate()
            server.wait()


def measure(options: Any, folder: str, port: int, pid: int, rows: list[dict[str, Any]]) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            asyncio.run(Caller(port).ask(request_of("/healthz")))
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.1)
    ones = [request_of("/v1/calibrate", [row]) for row in rows]
    print(f"{options.rate:g} requests a second for {options.seconds:g} s; load {os.getloadavg()[0]:.1f}")
    for name, requests in (("/healthz", [request_of("/healthz")]), ("/v1/calibrate, one record", ones)):
        for at_random in (False, True):
            before = cpu_seconds(pid)
            times = asyncio.run(steady(port, requests, options.rate, options.seconds, at_random=at_random))
            used = 1000 * (cpu_seconds(pid) - before) / (options.rate * options.seconds)
            p50, p99 = np.quantile(times, [0.5, 0.99])
            when = "at random" if at_random else "evenly"
            print(f"  {name:<28}{when:<10} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms  processor {used:.2f} ms a request")
    model = qacal.load(folder, warm=True)
    batch = request_of("/v1/calibrate", rows[:100])
    model.calibrate(rows[:100], prefix="new_")
    inside = best(lambda: model.calibrate(rows[:100], prefix="new_"))

    async def ask_often() -> float:
        caller = Caller(port)
        times = []
        for _ in range(10):
            began = time.perf_counter()
            await caller.ask(batch)
            times.append(time.perf_counter() - began)
        return min(times)

    served = asyncio.run(ask_often())
    print(f"  batches of 100: {100 / served:,.0f} records a second, {inside / served:.2f} of calibrate in this process")
    one = best(lambda: [model.explain(**row) for row in rows[:100]]) / 100
    print(f"  model.explain: {1000 * one:.2f} ms a record")


if __name__ == "__main__":
    main()
