"""The architecture: layers, folders, single definitions, and the path of a row."""

import ast
import builtins
import re
import tomllib
from pathlib import Path

import pytest

from qacal import Column, QABinning, QACalibrator

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "qacal"
FILES = {path.relative_to(SOURCE): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}
PACKAGES = sorted(path.parent for path in FILES if path.name == "__init__.py")


def test_there_are_few_layers_and_few_modules_in_the_root():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    assert len(contract["layers"]) <= 10
    assert contract["exhaustive"]
    assert len([path for path in FILES if path.parent == Path()]) <= 8


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_packages_say_what_comes_in_what_goes_out_and_what_to_open_first(package):
    text = " ".join(ast.get_docstring(FILES[package / "__init__.py"]).split())
    assert re.search(r"\. In: .*\. Out: .*", text)
    named = re.search(r"[Oo]pen (.*?) first", text)[1]
    files = re.findall(r"`([\w/]+\.py)`", named)
    assert files
    for file in files:
        assert (SOURCE / package / file).exists()


def test_only_the_model_package_handles_sets_of_models():
    """Elsewhere a set has the interface of a model."""
    for path, tree in FILES.items():
        if path.parts[0] != "model":
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            asked = [ast.unparse(call) for call in calls if ast.unparse(call.func) == "isinstance"]
            assert not [call for call in asked if "ModelSet" in call], path


def test_there_is_one_definition_of_missing():
    defined = [
        path
        for path, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.lstrip("_") in ("is_missing", "is_gone", "is_absent")
    ]
    assert defined == [Path("tally/arrays.py")]


@pytest.mark.parametrize("texts", ['"question": "?", "answer": "!", ', ""])
def test_a_fit_reads_its_input_at_most_three_times(texts, tmp_path, monkeypatch):
    row = '{{"id": {}, ' + texts + '"topic": "{}", "confidence": 0.{}, "correct": {}}}'
    rows = [row.format(i, i % 2, 5 + i % 5, i % 3 % 2) for i in range(200)]
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(rows), encoding="utf-8")
    opened = []
    real = builtins.open

    def counting(file, *arguments, **options):
        opened.append(str(file))
        return real(file, *arguments, **options)

    monkeypatch.setattr(builtins, "open", counting)
    monkeypatch.setattr("io.open", counting)
    QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=20)).fit(source)
    assert 1 <= opened.count(str(source)) <= 3


def test_readme_and_contributing_are_short():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    folders = [line for line in readme.partition("## Folders")[2].splitlines() if line.startswith("    ")]
    assert len(folders) <= 20
    for name in re.findall(r"([\w/]+(?:/|\.py)) ", "\n".join(folders)):
        assert list(ROOT.glob(f"{name}")) or list(SOURCE.glob(f"**/{name}")), name
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(contributing.splitlines()) <= 60
    for path in re.findall(r"[a-z]+/[\w/]+\.py", contributing):
        assert (SOURCE / path).exists() or (ROOT / path).exists(), path
