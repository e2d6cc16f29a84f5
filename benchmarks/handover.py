"""What passes between the benchmark and a peer's script: arrays in a file one way, a line of JSON the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def write_given(path: Path, **given: Any) -> None:
    """Save what a script needs, arrays and numbers alike."""
    np.savez(path, **given)


def read_given() -> dict[str, Any]:
    """Return, in the script, what the benchmark has saved; numbers come back as numbers."""
    with np.load(sys.argv[1]) as saved:
        return {name: saved[name] if saved[name].ndim else saved[name].item() for name in saved.files}


def tell(**answer: Any) -> None:
    """Print the script's answer as its last line."""
    print(json.dumps(answer), flush=True)


def read_told(output: str) -> dict[str, Any]:
    """Return the answer; whatever the peer printed before is left out."""
    answer: dict[str, Any] = json.loads(output.strip().rsplit("\n", 1)[-1])
    return answer
