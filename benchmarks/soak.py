"""Mixed load on the service for some minutes: its memory over time, requests, errors.

    python -m benchmarks.soak [--seconds 600] [--rate 30]

`qacal serve` runs with a store and an upstream, in processes of their own. Requests of all kinds come at random times:
records and batches, chat completions and streams, labels, the watch, the page, numbers for Prometheus. Every half
minute the model is replaced by another version. An error is any reply but the expected one. The slope of the memory is
that of a line through all measurements after a quarter, a half and three quarters of the time: what fills caches has a
slope that goes to 0, and what leaks has not. The exit code is 1 if there was an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter, deque
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from tests.answers import answers

import qacal
from benchmarks.service import await_server, free_port, started

_SHARES = {
    "record": 0.4,
    "batch of 50": 0.05,
    "completion": 0.14,
    "stream": 0.14,
    "labels": 0.15,
    "watch": 0.04,
    "page": 0.03,
    "metrics": 0.03,
    "readyz": 0.02,
}
_RELOAD_SECONDS = 30.0
_MEASURE_SECONDS = 5.0


class Load:
    """What is sent, and what came back."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.rows = [
            {name: row[name] for name in ("question", "answer", "confidence")} for row in answers(1000, seed=1)
        ]
        self.rng = random.Random(0)
        self.ids: deque[tuple[str, float]] = deque(maxlen=5000)
        self.requests: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    async def warm_up(self) -> None:
        """Send all texts once: the tokenizer keeps short ones, up to 10,000."""
        for first in range(0, len(self.rows), 50):
            some = self.rows[first : first + 50]
            await self._ok("POST", "/v1/calibrate", {"items": some})
            for at in range(0, len(some), 10):
                asked = [self._ok("POST", "/v1/chat/completions", _asked(row)) for row in some[at : at + 10]]
                await asyncio.gather(*asked)

    async def send(self, kind: str) -> None:
        self.requests[kind] += 1
        try:
            await self._send(kind)
        except (AssertionError, KeyError, ValueError, httpx2.HTTPError) as error:
            self.errors[f"{kind}: {type(error).__name__} {str(error)[:200]}"] += 1

    async def _send(self, kind: str) -> None:
        if kind in ("record", "batch of 50"):
            items = self.rng.sample(self.rows, 1 if kind == "record" else 50)
            reply = await self._ok("POST", "/v1/calibrate", {"items": items})
            self.ids += [(one["id"], one["calibrated"]) for one in reply.json()["results"]]
        elif kind == "labels":
            items = [self._label(*self.ids.popleft()) for _ in range(min(len(self.ids), 3))]
            if items:
                results = (await self._ok("POST", "/v1/feedback", {"items": items})).json()["results"]
                assert all(one.get("stored") for one in results), results
        elif kind == "completion":
            evidence = (await self._ok("POST", "/v1/chat/completions", _asked(self.rng.choice(self.rows)))).json()[
                "qa_calibration"
            ]
            assert evidence["calibrated"] is not None, evidence
        elif kind == "stream":
            reply = await self._ok(
                "POST", "/v1/chat/completions", {**_asked(self.rng.choice(self.rows)), "stream": True}
            )
            *_, last, done = [line for line in reply.text.split("\n") if line.startswith("data: ")]
            assert done == "data: [DONE]"
            assert json.loads(last.removeprefix("data: "))["qa_calibration"]["calibrated"] is not None, last
        else:
            path = {"watch": "/v1/watch", "page": "/"}.get(kind, f"/{kind}")
            reply = await self._ok("GET", path)
            assert kind != "readyz" or reply.json()["store"] == "ok", reply.text

    def _label(self, id_: str, probability: float) -> dict[str, Any]:
        label = {"id": id_, "correct": self.rng.random() < probability}
        return {**label, "source": "audit", "probability": 0.5} if self.rng.random() < 0.3 else label

    async def _ok(self, method: str, path: str, content: Any = None) -> httpx2.Response:
        reply = await self.client.request(method, path, json=content)
        assert reply.status_code == 200, f"{reply.status_code} {reply.text}"
        return reply


def _asked(row: dict[str, Any]) -> dict[str, Any]:
    return {"model": "parrot-1", "messages": [{"role": "user", "content": row["question"]}]}


def megabytes(pid: int) -> float:
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


async def soak(port: int, pid: int, model: qacal.QACalibrator, folder: str, seconds: float, rate: float) -> int:
    limits = httpx2.Limits(max_connections=50)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits) as client:
        load = Load(client)
        await load.warm_up()
        began = time.monotonic()
        memory: list[tuple[float, float]] = []

        async def reload() -> None:
            while True:
                await asyncio.sleep(_RELOAD_SECONDS)
                threshold = round(0.5 + 0.01 * load.rng.randrange(40), 2)
                await asyncio.to_thread(model.set_threshold(threshold).save, folder)
                load.requests["new version"] += 1

        async def measure() -> None:
            while True:
                memory.append((time.monotonic() - began, megabytes(pid)))
                at, now = memory[-1]
                if (len(memory) - 1) % max(1, round(seconds / 20 / _MEASURE_SECONDS)) == 0:
                    total, wrong = load.requests.total(), load.errors.total()
                    print(f"  {at:6.0f} s  {now:7.1f} MB  {total:7,} requests  {wrong} errors", flush=True)
                await asyncio.sleep(_MEASURE_SECONDS)

        others = [asyncio.create_task(reload()), asyncio.create_task(measure())]
        sent: set[asyncio.Task[None]] = set()
        kinds, weights = [*_SHARES], [*_SHARES.values()]
        while time.monotonic() < began + seconds:
            task = asyncio.create_task(load.send(load.rng.choices(kinds, weights)[0]))
            sent.add(task)
            task.add_done_callback(sent.discard)
            await asyncio.sleep(load.rng.expovariate(rate))
        await asyncio.gather(*sent)
        for task in others:
            task.cancel()
        numbers = (await client.get("/metrics")).text
    report(load, np.array(memory), seconds, numbers)
    return load.errors.total()


def report(load: Load, memory: np.ndarray, seconds: float, numbers: str) -> None:
    print("requests: " + ", ".join(f"{count:,} {kind}" for kind, count in load.requests.most_common()))
    wanted = (
        "qacal_store_written_total",
        "qacal_store_lost_total",
        "qacal_store_failures",
        "qacal_model_reloads_total",
    )
    print("the service says: " + ", ".join(line for line in numbers.splitlines() if line.startswith(wanted)))
    for text, count in load.errors.most_common(10):
        print(f"  {count} x {text}")
    for share in (0.25, 0.5, 0.75):
        warm = memory[memory[:, 0] >= share * seconds]
        slope = 3600 * np.polyfit(warm[:, 0], warm[:, 1], 1)[0]
        middle = warm[:, 1].mean()
        print(f"memory after {share * seconds:.0f} s: {middle:.1f} MB on average, slope {slope:+.1f} MB an hour")
    print(f"errors: {load.errors.total()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=30.0, help="requests a second")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as home:
        folder, behind, port = f"{home}/model", free_port(), free_port()
        model = qacal.QACalibrator(features=()).fit(answers(2500))
        model.save(folder)
        ours = ["--upstream-port", str(behind), "--delay", "0.05"]
        other = subprocess.Popen([sys.executable, "-m", "benchmarks.service", *ours])
        try:
            await_server(behind)
            address = f"http://127.0.0.1:{behind}/v1"
            with started(folder, home, port, "--upstream", address, "--confidence-from", "logprobs") as server:
                print(f"{options.rate:g} requests a second for {options.seconds:g} s; load {os.getloadavg()[0]:.1f}")
                found = asyncio.run(soak(port, server.pid, model, folder, options.seconds, options.rate))
        finally:
            other.terminate()
            other.wait()
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
