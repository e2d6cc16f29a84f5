"""Running an ONNX file on all cores of this machine."""

from __future__ import annotations

from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from qacal.embedders.base import Vectors
from qacal.embedders.batches import Batch, TokenRow
from qacal.embedders.packages import optional_package
from qacal.errors import InputError

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Errors are raised; that they are printed as well is of no use.
_FATAL_ONLY = 4


def network(path: Path) -> Callable[[Batch], Vectors]:
    """Return the function that an ONNX file holds: from a batch to the vectors of its tokens."""
    session = _session(path)
    inputs = {value.name: np.int32 if "int32" in value.type else np.int64 for value in session.get_inputs()}
    unknown = [name for name in inputs if name not in _INPUTS]
    if unknown:
        raise InputError(f"{path} wants {unknown}; an encoder of text wants {list(_INPUTS)} at most. Export it as one.")
    output = _token_vectors(session, path)

    def hidden(batch: Batch) -> Vectors:
        feeds = {name: getattr(batch, name).astype(kind, copy=False) for name, kind in inputs.items()}
        try:
            return np.asarray(session.run([output], feeds)[0], dtype=np.float32)
        except Exception as error:  # onnxruntime's own errors have no common base but this
            raise InputError(
                f"{path} failed on rows of {batch.input_ids.shape[1]} tokens: {error}. If it reads fewer than that, "
                'say so in tokenizer_config.json beside it: {"model_max_length": 128}, for instance.'
            ) from None

    return hidden


def is_batch_dependent(path: Path) -> bool:
    """Return whether a row's vector varies with the other rows of its batch.

    It does under dynamic quantisation, which rounds by the largest value in the batch. The names of a network's
    operations stand in its file as they are.
    """
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(b"DynamicQuantize") >= 0


def tokenizer_of(tokenizer: Any, max_length: int) -> Callable[[list[str], list[str]], list[TokenRow]]:
    """Return the function that reads pairs with a tokenizer; the longer text of a pair is cut first."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length, strategy="longest_first")

    def tokenize(questions: list[str], answers: list[str]) -> list[TokenRow]:
        pairs = list(zip(questions, answers, strict=True))
        return [TokenRow(row.ids, row.type_ids) for row in tokenizer.encode_batch_fast(pairs)]

    return tokenize


def _session(path: Path) -> Any:
    runtime = optional_package("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors have no common base but this
        raise InputError(f"{path} cannot be run: {error}") from None


def _token_vectors(session: Any, path: Path) -> str:
    """Return the name of the output that has a vector per token."""
    outputs = session.get_outputs()
    for value in outputs:
        if len(value.shape) == 3:
            return str(value.name)
    shapes = {value.name: value.shape for value in outputs}
    raise InputError(f"{path} gives {shapes}; expected an output of shape (rows, tokens, dim). Export without pooling.")
