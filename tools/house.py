"""Measure the size and shape of the code: python -m tools.house prints each number with its limit.

A limit is raised only by a commit that says what the code does for it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "qacal"


def main() -> None:
    """Print the table."""
    sys.setrecursionlimit(10_000)
    files = sorted(SOURCE.rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    with tempfile.TemporaryDirectory() as folder:
        fit_modules, _, opened = _run(Path(folder), _fit)
        apply_modules, apply_functions, _ = _run(Path(folder), _apply)
    once, private = _private_functions(files)
    print(f"{'':45}{'now':>14}   limit")
    for name, value, target in [
        ("modules in the root of src/qacal", len(list(SOURCE.glob("*.py"))), "at most 8"),
        ("import layers", _layers(), "at most 10"),
        ("Python files / lines", f"{len(files)} / {lines:,}", "at most 246 / 50,550"),
        ("modules run by one row: apply / fit", f"{apply_modules} / {fit_modules}", "at most 42 / 55"),
        ("functions run by one row through apply", apply_functions, "at most 281"),
        ("times fit opens its input", opened, "at most 3"),
        ("private functions named in one place only", f"{once} of {private}", "inline the short ones"),
    ]:
        print(f"{name:45}{value!s:>14}   {target}")


def _layers() -> int:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return len(settings["tool"]["importlinter"]["contracts"][0]["layers"])


def _private_functions(files: list[Path]) -> tuple[int, int]:
    """Count private module functions that their file names once besides the definition, and all of them."""
    once = total = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        names = [
            node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name[0] == "_"
        ]
        words = Counter(re.findall(r"\w+", text))
        once += sum(words[name] == 2 for name in names)
        total += len(names)
    return once, total


def _run(folder: Path, command: Callable[[Path], list[str]]) -> tuple[int, int, int]:
    """Run a command; return how many modules and functions of qacal ran, and how often the input was opened."""
    from qacal.cli.main import main as qacal

    arguments = command(folder)
    functions: set[tuple[str, str, int]] = set()
    opened = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        # Bodies of modules and classes have no CO_OPTIMIZED; they run on import.
        if event == "call" and frame.f_code.co_flags & 1 and not frame.f_code.co_name.startswith("<"):
            code = frame.f_code
            functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    def audit(event: str, values: tuple[Any, ...]) -> None:
        nonlocal opened
        if event == "open" and str(values[0]).endswith("rows.jsonl"):
            opened += 1

    sys.addaudithook(audit)
    sys.argv = ["qacal", *arguments]
    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            qacal()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
    inside = {(file, name) for file, name, _ in functions if str(SOURCE) in file and name != "<module>"}
    return len({file for file, _ in inside}), len(inside), opened


def _fit(folder: Path) -> list[str]:
    rows = [
        f'{{"id": "{i}", "question": "What is {i} plus {i % 7}?", "answer": "{i + i % 5}", '
        f'"confidence": {0.5 + i % 5 / 10}, "correct": {i % 3 % 2}}}'
        for i in range(400)
    ]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    return ["fit", str(folder / "rows.jsonl"), "-o", str(folder / "model")]


def _apply(folder: Path) -> list[str]:
    (folder / "new.jsonl").write_text('{"question": "What is 3 plus 4?", "answer": "7", "confidence": 0.8}')
    return ["apply", str(folder / "model"), str(folder / "new.jsonl"), "-o", str(folder / "out.jsonl")]


if __name__ == "__main__":
    main()
