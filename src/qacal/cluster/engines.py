"""Engines hand out parts to workers: this process, Daft on this machine, or Daft on a Ray cluster.

An engine moves parts and results of a few numbers; rows and cells go from file to file. If a worker dies, its part is
done again. A part that a dead worker had finished is not: its output is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
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
_ATTEMPTS = 3
_MOST_PARTITIONS = 1000


def run(
    job: Job,
    parts: Sequence[Part],
    engine: Engine = "local",
    address: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Do all parts; return the result of each, in the order of the parts.

    address : of a Ray cluster; without one, a cluster of this machine is started.
    progress : called with the number of rows that are done.
    """
    results: dict[str, dict[str, Any]] = {}
    left, rows = list(parts), 0
    for attempt in range(_ATTEMPTS if engine != "local" else 1):
        try:
            for result in _STARTS[engine](job, left, address):
                results[result["part"]] = result
                rows += result.get("rows", 0)
                if progress is not None:
                    progress(rows)
        except (RuntimeError, OSError, EOFError) as error:
            # Daft gives up with a dead worker: all that was not reported is handed out again.
            if attempt == _ATTEMPTS - 1:
                raise InputError(
                    f"the engine {engine} gave up {_ATTEMPTS} times, the last time with: {error!s:.500}\nOutputs that "
                    "are done stay; start the command again to do what is left."
                ) from error
        left = [part for part in left if part.output not in results]
        if not left:
            break
    return [results[part.output] for part in parts]


def _local(job: Job, parts: Sequence[Part], address: str | None) -> Iterator[dict[str, Any]]:
    worker = Worker(job)
    for part in parts:
        yield worker.run(part)


def _daft(job: Job, parts: Sequence[Part], address: str | None) -> Iterator[dict[str, Any]]:
    daft = require_daft()
    daft.set_runner_native()
    yield from _with_daft(daft, job, parts, os.cpu_count() or 1, uses_processes=True)


def _ray(job: Job, parts: Sequence[Part], address: str | None) -> Iterator[dict[str, Any]]:
    daft, ray = require_daft(), optional_package("ray", "cluster")
    if not ray.is_initialized():
        start_ray(address)
    daft.set_runner_ray(noop_if_initialized=True)
    workers = int(ray.cluster_resources().get("CPU", 1))
    yield from _with_daft(daft, job, parts, workers, uses_processes=None)


def start_ray(address: str | None = None, **options: Any) -> None:
    """Connect to a Ray cluster; without an address, start one that only this machine can reach."""
    os.environ.update({name: value for name, value in _QUIET.items() if name not in os.environ})
    if address is None:
        # Ray listens on all addresses of a Linux machine, and takes 127.0.0.1 for the outer one, unless this is unset.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        options = {"include_dashboard": False, "object_store_memory": 256 * 2**20, **options}
    ray = optional_package("ray", "cluster")
    ray.init(address, logging_level="ERROR", log_to_driver=False, **options)


def _with_daft(
    daft: Any, job: Job, parts: Sequence[Part], workers: int, *, uses_processes: bool | None
) -> Iterator[dict[str, Any]]:
    """Yield the results of all parts, as they come."""

    @daft.cls(max_concurrency=min(workers, len(parts)), use_process=uses_processes)
    class Parts:
        def __init__(self, job: Job) -> None:
            self.worker = Worker(job)

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=1)
        def run(self, parts: Any) -> list[str]:
            return [json.dumps(self.worker.run(Part(**json.loads(part))), default=str) for part in parts.to_pylist()]

    table = daft.from_pydict({"part": [json.dumps(asdict(part)) for part in parts]})
    if uses_processes is None:  # a cluster hands out partitions
        table = table.into_partitions(min(len(parts), _MOST_PARTITIONS))
    for row in table.select(Parts(job).run(table["part"]).alias("result")).iter_rows():
        yield json.loads(row["result"])


def require_daft() -> Any:
    """Return the package daft, which sends and prints nothing of its own."""
    os.environ.update({name: value for name, value in _QUIET.items() if name not in os.environ})
    return optional_package("daft", "cluster")


_STARTS = {"local": _local, "daft": _daft, "ray": _ray}
