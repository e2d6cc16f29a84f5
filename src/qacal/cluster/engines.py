"""Engines hand out parts to workers: this process, Daft on this machine, or Daft on a Ray cluster.

An engine moves parts and results of a few numbers; rows and cells go from file to file. If a worker dies, its part is
done again; a part that it had finished is not, for its output is there. Daft and Ray run in a process of their own,
which is started again if it dies.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from threading import Event, Thread, Timer
from time import sleep
from typing import Any, Literal, TypeAlias

from qacal.cluster.jobs import Job, Worker
from qacal.cluster.parts import Part
from qacal.embedders.base import optional_package
from qacal.errors import InputError

Engine: TypeAlias = Literal["local", "daft", "ray"]

# Nothing is sent to the makers of the engines, and they print nothing of their own.
_QUIET = {
    "DO_NOT_TRACK": "true",
    "DAFT_ANALYTICS_ENABLED": "0",
    "SCARF_NO_ANALYTICS": "true",
    "DAFT_PROGRESS_BAR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# How often the process of an engine may die without having done a part.
_ATTEMPTS = 3
_MOST_PARTITIONS = 1000
_RESULT = "qacal result "
# A cluster that does not answer for so many seconds is given up.
_SECONDS_TO_CONNECT = 60.0
_CONNECTING, _CONNECTED, _REFUSED = "qacal connects", "qacal is connected", "qacal is refused: "


def run(
    job: Job,
    parts: Sequence[Part],
    engine: Engine,
    address: str | None,
    on_result: Callable[[dict[str, Any]], None],
    *,
    keeps: bool,
) -> list[dict[str, Any]]:
    """Do all parts; return the result of each, in the order of the parts.

    address : of a Ray cluster; without one, a cluster of this machine is started.
    on_result : called with each result when it is there.
    keeps : the engine `local` returns the cells of a tally, and does not write them.
    """
    results: dict[str, dict[str, Any]] = {}
    left, failures = list(parts), 0
    while left:
        try:
            for result in _locally(job, left, keeps) if engine == "local" else _in_process(job, left, engine, address):
                on_result(result)
                results[result["part"]] = result
                failures = 0
        except EngineError as error:
            failures += 1
            if failures == _ATTEMPTS:
                raise UnfinishedError(
                    f"the engine {engine} stopped {_ATTEMPTS} times, the last time with:\n{error}\nOutputs that are "
                    "done stay; start the command again to do what is left."
                ) from error
        left = [part for part in left if part.output not in results]
    return [results[part.output] for part in parts]


class UnfinishedError(InputError):
    """Parts are left, which the same command may do when it is started again; those that are done stay."""


class EngineError(Exception):
    """The process of an engine ended before all parts were done; the text is what it wrote last."""


def _locally(job: Job, parts: Sequence[Part], keeps: bool) -> Iterator[dict[str, Any]]:
    worker = Worker(job)
    for part in parts:
        yield worker.run(part, keeps=keeps)


def _in_process(job: Job, parts: Sequence[Part], engine: Engine, address: str | None) -> Iterator[dict[str, Any]]:
    """Yield results from a process that runs an engine."""
    for name in ("daft", "ray") if engine == "ray" else ("daft",):
        if find_spec(name) is None:
            optional_package(name, "cluster")  # raises, and says what to install
    command = [sys.executable, "-c", "from qacal.cluster.engines import serve; serve()"]
    count = 0
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=_environment(engine, address)
        )
        assert child.stdin is not None
        assert child.stdout is not None
        is_late = Event()

        def give_up() -> None:
            is_late.set()
            child.kill()  # Ray tries again and again, and does not end when it is asked to

        limit = Timer(_SECONDS_TO_CONNECT, give_up)
        limit.daemon = True
        try:
            with suppress(BrokenPipeError):  # it has ended; what it wrote comes below
                pickle.dump((job, list(parts), engine, address), child.stdin)
                child.stdin.flush()
            for line in child.stdout:
                text = line.decode("utf-8", "replace")
                if text.startswith(_RESULT):
                    count += 1
                    yield json.loads(text.removeprefix(_RESULT))
                elif text.startswith(_CONNECTING):
                    limit.start()
                elif text.startswith(_CONNECTED):
                    limit.cancel()
                elif text.startswith(_REFUSED):
                    raise _no_cluster(address, text.removeprefix(_REFUSED).strip())
            if is_late.is_set():
                raise _no_cluster(address, f"it did not answer within {_SECONDS_TO_CONNECT:g} seconds")
        finally:
            limit.cancel()
            child.terminate()
            with suppress(BrokenPipeError):
                child.stdin.close()
            child.stdout.close()
            child.wait()
        if count < len(parts):
            log.seek(0)
            raise EngineError(log.read()[-2000:].decode("utf-8", "replace").strip() or f"exit code {child.returncode}")


def _no_cluster(address: str | None, reason: str) -> UnfinishedError:
    return UnfinishedError(
        f"there is no Ray cluster at {address}: {reason}. Check the address; on its machine, ray status tells whether "
        "it runs."
    )


def _environment(engine: Engine, address: str | None) -> dict[str, str]:
    found = _QUIET | os.environ
    if engine == "ray" and (address is None or address.startswith(("127.", "localhost"))):
        # A cluster for this machine: with this setting, Ray listens on 127.0.0.1 alone, on Linux, too. Without it, Ray
        # takes 127.0.0.1 for the outer address of the machine.
        found["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return found


def serve() -> None:
    """Run an engine for the process that started this one: parts come by standard input, results go by output."""
    job, parts, engine, address = pickle.load(sys.stdin.buffer)
    # Standard input ends when that process has ended, even if it was killed. A second run may have begun then.
    _end_after(lambda: sys.stdin.buffer.read())
    for result in _with_daft(job, parts, engine, address):
        print(_RESULT + result, flush=True)
    if engine == "ray":
        optional_package("ray", "cluster").shutdown()
    # Threads of Daft may still run, and crash while Python ends.
    os._exit(0)


def _end_after(wait: Callable[[], object]) -> None:
    """End this process when `wait`, which runs in a thread, returns."""

    def end() -> None:
        wait()
        os._exit(1)

    Thread(target=end, daemon=True).start()


def _until_alone(parent: int) -> None:
    """Return when the parent of this process has ended; never on Windows, where a process keeps it."""
    while os.getppid() == parent:
        sleep(0.5)


def _with_daft(job: Job, parts: Sequence[Part], engine: Engine, address: str | None) -> Iterator[str]:
    """Yield the results of all parts as JSON, as they come."""
    daft = optional_package("daft", "cluster")

    if engine == "ray":
        ray = optional_package("ray", "cluster")
        own = {"include_dashboard": False, "object_store_memory": 256 * 2**20} if address is None else {}
        if address is not None:
            print(_CONNECTING, flush=True)
        try:
            # Without an address, Ray would take that of the environment, or of a cluster that somebody else started.
            ray.init(address or "local", logging_level="ERROR", log_to_driver=False, **own)
        except (ConnectionError, ValueError) as error:
            if address is None:
                raise
            print(f"{_REFUSED}{(str(error).splitlines() or ['it does not answer'])[0]:.300}", flush=True)
            os._exit(1)
        print(_CONNECTED, flush=True)
        daft.set_runner_ray()
        workers = int(ray.cluster_resources().get("CPU", 1))
    else:
        daft.set_runner_native()
        workers = os.cpu_count() or 1

    # On one machine a worker is a process, for Python runs one thread at a time; on a cluster it is an actor.
    @daft.cls(max_concurrency=min(workers, len(parts)), use_process=None if engine == "ray" else True)
    class Parts:
        def __init__(self, job: Job) -> None:
            if engine == "daft":  # Ray ends actors whose driver has ended; Daft lets a process do its part to the end
                _end_after(partial(_until_alone, os.getppid()))
            self.worker = Worker(job)

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=1)  # type: ignore[untyped-decorator]
        def run(self, parts: Any) -> list[str]:
            return [json.dumps(self.worker.run(Part(**json.loads(part))), default=str) for part in parts.to_pylist()]

    table = daft.from_pydict({"part": [json.dumps(asdict(part)) for part in parts]})
    if engine == "ray":
        table = table.into_partitions(min(len(parts), _MOST_PARTITIONS))
    for row in table.select(Parts(job).run(table["part"]).alias("result")).iter_rows():
        yield row["result"]
