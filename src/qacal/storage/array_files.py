"""Arrays as .npy files that can be checked before they are read.

The header of such a file is not parsed: given the type and the shape that are expected there is one header, byte for
byte, and a file either starts with it or is refused. The layout is version 1.0 of numpy's format (little endian, rows
first), so that `numpy.load` and everything else that knows it can read the files too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError

DTYPES = {"float64": "<f8", "float32": "<f4", "int64": "<i8", "uint64": "<u8", "bool": "|b1"}
"""What an array may hold, and its name in numpy's format."""

LARGEST = 2**31
"""Two gigabytes: models are far smaller, and no file may ask for more memory than that."""

_MOST_AXES = 4


def to_bytes(array: NDArray[Any]) -> bytes:
    """Return the file of an array.

    >>> from io import BytesIO
    >>> np.load(BytesIO(to_bytes(np.array([0.5, 1.0]))), allow_pickle=False)
    array([0.5, 1. ])
    """
    _require_type(array.dtype.name)
    return _header(array.dtype.name, array.shape) + array.astype(DTYPES[array.dtype.name], order="C").tobytes()


def size_of(dtype: Any, shape: Any) -> int:
    """Return how many bytes the file of such an array has, or refuse to have one."""
    _require_type(dtype)
    is_shape = isinstance(shape, list | tuple) and len(shape) <= _MOST_AXES
    if not is_shape or not all(type(length) is int and length >= 0 for length in shape):
        raise InputError(f"the shape is {shape!r:.80}; expected up to {_MOST_AXES} whole numbers.")
    # Empty axes count as one here: an array of no elements can still have a shape that numpy cannot hold.
    itemsize: int = np.dtype(DTYPES[dtype]).itemsize
    if math.prod(max(length, 1) for length in shape) > LARGEST // itemsize:
        raise InputError(f"the shape is {shape!r:.80}, more than the {LARGEST} bytes that a model may have.")
    return len(_header(dtype, tuple(shape))) + int(math.prod(shape)) * itemsize


def from_bytes(data: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array of a file; it cannot be written to. Anything but the expected header is refused."""
    header = _header(dtype, shape)
    if len(data) != size_of(dtype, shape) or not data.startswith(header):
        raise InputError(f"it is no .npy file of {dtype} in the shape {shape}.")
    if dtype == "bool" and max(data[len(header) :], default=0) > 1:
        raise InputError("it holds truth values that are neither true nor false.")
    stored = np.frombuffer(data, dtype=DTYPES[dtype], offset=len(header)).reshape(shape)
    return stored.astype(dtype, copy=False)


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Magic string, version, length of the rest, and a dictionary padded to a multiple of 64 bytes."""
    text = f"{{'descr': '{DTYPES[dtype]}', 'fortran_order': False, 'shape': {shape!r}, }}"
    text = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("ascii")


def _require_type(dtype: Any) -> None:
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InputError(f"the type is {dtype!r:.80}; a model holds arrays of {', '.join(DTYPES)}.")
