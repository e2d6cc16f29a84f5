"""The peers' environments, one each since they do not resolve together, and running a peer's script in its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.handover import read_told, write_given

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".bench"

INSTALL_LIMIT = 900.0
"""Seconds after which an installation counts as failed."""


@dataclass(frozen=True)
class Peer:
    """A package to compare with.

    script : the module in `peer_scripts` that times it.
    packages : what is installed, pinned.
    bare : what is installed without its dependencies.
    """

    script: str
    packages: tuple[str, ...]
    bare: tuple[str, ...] = ()

    @property
    def pins(self) -> str:
        """Everything that is installed, to see whether an environment is the one that is wanted."""
        return "\n".join((*self.packages, *self.bare))


_ARRAYS = ("numpy==2.4.6", "scipy==1.17.1")
_TABLES = (*_ARRAYS, "pandas==3.1.1")

PEERS = {
    "uncertainty-calibration": Peer(
        "uncertainty_calibration", (*_ARRAYS, "scikit-learn==1.9.1", "uncertainty-calibration==0.1.4")
    ),
    # MCGrad asks for torch and ax-platform, five gigabytes that its segmentwise calibrator never imports.
    "mcgrad": Peer(
        "mcgrad",
        (*_TABLES, "scikit-learn==1.9.1", "lightgbm==4.7.0", "psutil==7.2.2", "typing-extensions==4.16.0"),
        bare=("mcgrad==0.1.5",),
    ),
    "gpboost": Peer("gpboost", (*_TABLES, "gpboost==1.8.0")),
    "statsmodels": Peer("statsmodels", (*_TABLES, "statsmodels==0.15.0")),
}


@dataclass(frozen=True)
class Outcome:
    """What came of asking a peer.

    told : its answer; empty if there is none.
    trouble : why there is none.
    limit : the seconds after which it was stopped, if it was.
    """

    told: dict[str, Any]
    trouble: str = ""
    limit: float | None = None


def ask(name: str, *, limit: float, script: str = "", threads: int = 1, **given: Any) -> Outcome:
    """Run a peer's script on the given arrays, in one thread if not told otherwise: on small data more only wait.

    script : another one than the peer's own.

    The environment is made when it is first needed and kept for later runs. Whatever goes wrong is an outcome too.
    """
    python, trouble = _environment(name)
    if trouble:
        return Outcome({}, trouble)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "given.npz"
        write_given(file, threads=threads, **given)
        try:
            module = f"benchmarks.peer_scripts.{script or PEERS[name].script}"
            output = _run([python, "-m", module, str(file)], limit, threads)
            return Outcome(read_told(output))
        except subprocess.TimeoutExpired:
            return Outcome({}, limit=limit)
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            return Outcome({}, f"failed: {_last_words(error)}")


@cache
def _environment(name: str) -> tuple[str, str]:
    """Return the Python of a peer's environment, made if need be, and what went wrong; tried once in a run."""
    folder = ENVIRONMENTS / name
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    try:
        _install(PEERS[name], folder, python)
    except (subprocess.SubprocessError, OSError) as error:
        return python, f"not installed: {_last_words(error)}"
    return python, ""


def _install(peer: Peer, folder: Path, python: str) -> None:
    mark = folder / ".ready"
    if mark.exists() and mark.read_text() == peer.pins:
        return
    print(f"installing {' '.join(peer.pins.split())}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], INSTALL_LIMIT)
        install = [uv, "pip", "install", "--quiet", "--python", python]
    else:
        _run([sys.executable, "-m", "venv", str(folder)], INSTALL_LIMIT)
        install = [python, "-m", "pip", "install", "--quiet"]
    _run([*install, *peer.packages], INSTALL_LIMIT)
    if peer.bare:
        _run([*install, "--no-deps", *peer.bare], INSTALL_LIMIT)
    mark.write_text(peer.pins)


def _run(command: Sequence[str], limit: float, threads: int = 1) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit, check=True)
    return done.stdout


def _last_words(error: Exception) -> str:
    """Return the last line of what a failed command has said, or the error's own words."""
    said = str(getattr(error, "stderr", "") or "").strip() or str(error)
    return said.rsplit("\n", 1)[-1].strip()
