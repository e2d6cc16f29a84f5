"""Encoders small enough to compute by hand, written to ONNX files without the onnx package.

An ONNX file is a protocol buffer. The few messages needed here are put together from numbered fields, whose numbers
stand in onnx.proto.
"""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "wrote", "emma", "austen", "jane", "ravel", "bolero"]
DIM = 3
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), DIM)).astype(np.float32)
TYPES = np.array([[0, 0, 0], [10, 20, 30]], dtype=np.float32)
_FLOAT, _INT64 = 1, 7

Node = tuple[str, list[str], list[str]]
LOOK_UP: list[Node] = [("Gather", ["table", "input_ids"], ["words"])]
WITH_TYPES: list[Node] = [
    *LOOK_UP,
    ("Gather", ["types", "token_type_ids"], ["typed"]),
    ("Add", ["words", "typed"], ["hidden"]),
]
# Rounded to 8 bits by the largest value in the batch, as dynamic quantisation does.
ROUNDED: list[Node] = [
    *WITH_TYPES[:2],
    ("Add", ["words", "typed"], ["exact"]),
    ("DynamicQuantizeLinear", ["exact"], ["bytes", "scale", "zero"]),
    ("DequantizeLinear", ["bytes", "scale", "zero"], ["hidden"]),
]


def folder(path: Path, nodes: list[Node] = WITH_TYPES, template: str = "[CLS] $A [SEP] $B:1 [SEP]:1") -> Path:
    """Write an encoder into a folder and return it."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.onnx").write_bytes(model(nodes))
    tokenizer(template).save(str(path / "tokenizer.json"))
    return path


def tokenizer(template: str) -> Tokenizer:
    words = {word: at for at, word in enumerate(WORDS)}
    out = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    out.pre_tokenizer = pre_tokenizers.Whitespace()
    if template:
        ends = [("[CLS]", 2), ("[SEP]", 3)]
        out.post_processor = processors.TemplateProcessing(single="$A", pair=template, special_tokens=ends)
    return out


def say(path: Path, **content: object) -> None:
    """Write settings beside an encoder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def model(nodes: list[Node]) -> bytes:
    used = {name for _, inputs, _ in nodes for name in inputs}
    tables = [_table(name, table) for name, table in (("table", TABLE), ("types", TYPES)) if name in used]
    inputs = [_value(name, _INT64, 2) for name in ("input_ids", "token_type_ids", "position_ids") if name in used]
    last = nodes[-1]
    output = _value(last[2][0], _FLOAT, 2 if last[0] == "ReduceMean" else 3)
    graph = b"".join(
        [
            *(_field(1, _node(*node)) for node in nodes),
            _field(2, b"tiny"),
            *(_field(5, table) for table in tables),
            *(_field(11, value) for value in inputs),
            _field(12, output),
        ]
    )
    return _field(1, 8) + _field(7, graph) + _field(8, _field(2, 13))


def _node(kind: str, inputs: list[str], outputs: list[str]) -> bytes:
    names = [_field(1, name.encode()) for name in inputs] + [_field(2, name.encode()) for name in outputs]
    attributes = [_reduced_axis()] if kind == "ReduceMean" else []
    return b"".join([*names, _field(4, kind.encode()), *attributes])


def _reduced_axis() -> bytes:
    keep = _field(1, b"keepdims") + _field(3, 0) + _field(20, 2)
    axes = _field(1, b"axes") + _field(8, 1) + _field(20, 7)
    return _field(5, keep) + _field(5, axes)


def _table(name: str, table: np.ndarray) -> bytes:
    sizes = b"".join(_field(1, size) for size in table.shape)
    return sizes + _field(2, _FLOAT) + _field(8, name.encode()) + _field(9, table.tobytes())


def _value(name: str, kind: int, axes: int) -> bytes:
    # Sizes have names instead of numbers, so they may vary.
    shape = b"".join(_field(1, _field(2, f"{name}_{axis}".encode())) for axis in range(axes))
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, kind) + _field(2, shape)))


def _field(number: int, content: int | bytes) -> bytes:
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
