r"""Columns and vectors as checked arrays: the one place where values enter.

A row is a question, an answer, a confidence :math:`h \in [0, 1]` and, if known, whether the answer was correct,
:math:`y` (0/1, or a soft target in [0, 1]). All other code may rely on float64 arrays of one length without NaN.
Nothing is dropped or guessed here: an error names the value, its position and what to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MappingView, Sequence, Set, Sized
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.parameters import shown

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Hashes: TypeAlias = NDArray[np.uint64]

ArrayLike: TypeAlias = Any
"""A list, or any column of numpy, pandas, polars or Arrow."""

# A stated 0.8 stored as float32 comes back as 0.800000011920929. Rounded to the digits of its type it is 0.8 again.
_DIGITS = {"f": 7, "e": 3}

# The types of numbers in Arrow, and in polars in lower case.
_NUMBERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"bool", "boolean", "halffloat", "float", "double", "float32", "float64"}

_MISSING = "Leave the row out, or fill it in from what you know of it."

LARGEST = 1e100
"""Larger numbers than this cannot be squared and summed."""


def unit_values(values: ArrayLike, name: str) -> Floats:
    """Return `values` as float64 in [0, 1]; the error names the first value outside.

    >>> unit_values([True, 0, 0.5], "correct")
    array([1. , 0. , 0.5])
    >>> unit_values([0.9, 85], "confidence")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: confidence[1] is 85.0; expected 0 to 1. If these are percents, divide by 100.
    """
    array = _numbers(values, name)
    low, high = array.min(), array.max()
    # NaN fails every comparison, so this one line lets only finite values of [0, 1] pass.
    if not (low >= 0 and high <= 1):
        raise _outside(array, name)
    # -0.0 equals 0.0 but has other bits, and bits are hashed and sorted.
    return array + 0.0 if low == 0 else array


def weight_values(values: ArrayLike | None, length: int) -> Floats | None:
    """Return row weights as float64, finite and not negative; None stays None and means one each."""
    if values is None:
        return None
    array = _numbers(values, "sample_weight")
    require_length(array, length, "sample_weight")
    # Squares of weights are added up, and must neither overflow nor vanish.
    bad = ~((array == 0) | ((array >= 1e-100) & (array <= 1e100)))
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(f"sample_weight[{at}] is {array[at]}; expected 0, or a number from 1e-100 to 1e100.")
    if not array.any():
        raise InputError("sample_weight is 0 in every row: no row is left to train on.")
    return array


def require_sorted(values: ArrayLike, name: str) -> Floats:
    """Return numbers; raise if they are not in rising order."""
    array = _numbers(values, name)
    if not np.isfinite(array).all() or not (np.diff(array) >= 0).all():
        raise InputError(f"{name} are {shown(values)}; expected rising numbers.")
    return array


def column_of_any(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return a column of any container as an array: of numbers, of text, or of objects with None for missing values.

    numpy scalars among objects become Python's. Whole numbers stay whole numbers, however large and even if others are
    missing; the number 2 and the text "2" stay different.

    >>> column_of_any(np.ma.array([7, 8], mask=[False, True]), "groups")
    array([7, None], dtype=object)
    """
    if not _is_sized(values) or isinstance(values, str | bytes | Mapping | Set | MappingView):
        raise _no_column(values, name)
    if isinstance(values, np.ma.MaskedArray) and values.ndim == 1 and np.ma.is_masked(values):
        return _objects(values.tolist())
    if isinstance(values, np.ndarray):
        array = np.asarray(values)
        return _objects(array.tolist()) if array.dtype == object and array.ndim == 1 else array
    if isinstance(values, list | tuple | range):
        return _of_sequence(values, name)
    if len(shape := getattr(values, "shape", (0,))) > 1:
        raise InputError(f"{name} has shape {tuple(shape)}; expected one value per row, a flat list or column.")
    if hasattr(values, "to_native"):
        return column_of_any(values.to_native(), name)
    if hasattr(values, "to_pylist"):  # Arrow; of a dictionary column numpy reads a null as the last category
        is_plain = values.null_count == 0 and str(values.type) in _NUMBERS
        return np.asarray(values) if is_plain else _objects(values.to_pylist())
    if hasattr(values, "null_count"):  # polars
        is_plain = values.null_count() == 0 and str(values.dtype).lower() in _NUMBERS
        return np.asarray(values) if is_plain else _objects(values.to_list())
    return _of_pandas(values, name) if hasattr(values, "isna") else np.asarray(values)


def _is_sized(values: Any) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, type) and getattr(values, "ndim", 1) != 0


def _no_column(values: Any, name: str) -> InputError:
    remedy = ""
    if hasattr(values, "collect"):
        remedy = " Collect it first, and take a column."
    elif hasattr(values, "__iter__") and not isinstance(values, str | bytes):
        remedy = " Make a list of it first."
    return InputError(f"{name} is one {type(values).__name__}; expected a list or column, one value per row.{remedy}")


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, empty text, NaN of any type, pandas.NA, or masked by numpy.

    This is the one definition for labels, groups, confidences and ids, in arrays, frames and files. Only a column of
    texts, such as the answers, may hold an empty text.

    >>> [is_missing(value) for value in (None, "", float("nan"), 0, False, " ", "nan")]
    [True, True, True, False, False, False, False]
    """
    if value is None or value is np.ma.masked:
        return True
    if isinstance(value, str):
        return not value
    try:
        return bool(value != value)
    except ValueError:  # an array, which has one answer per element
        return False
    except (TypeError, ArithmeticError):  # pandas.NA and a signalling NaN do not say whether they equal themselves
        return True


def _objects(values: Sequence[Any]) -> NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    if {*map(type, values)} <= {str, int, bool}:
        array[:] = values
        return array
    for at, value in enumerate(values):
        # Empty text stays: a column of texts may have it.
        if isinstance(value, str) or not is_missing(value):
            array[at] = value.item() if isinstance(value, np.generic) else value
    return array


def _of_sequence(values: Sequence[Any], name: str) -> NDArray[Any]:
    if type(np.ma.masked) in {*map(type, values)}:
        return _objects(values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{name} has rows of different lengths; expected one value per row.") from None
    # numpy makes text of numbers beside text, and floats of large whole numbers beside NaN.
    is_changed = array.dtype.kind in "US" or (
        array.ndim == 1
        and array.dtype.kind == "f"
        and any(isinstance(value, int) and abs(value) >= 2**53 for value in values)
    )
    return _objects(values) if is_changed or (array.ndim == 1 and array.dtype == object) else array


def _of_pandas(values: Any, name: str) -> NDArray[Any]:
    if isinstance(values.dtype, np.dtype):
        return column_of_any(np.asarray(values), name)
    if hasattr(values.dtype, "categories"):
        coded = getattr(values, "cat", values)
        codes: Ints = np.asarray(coded.codes)
        labels = column_of_any(coded.categories, name)
        # The last entry serves rows without a category; their code is -1.
        return labels[codes] if (codes >= 0).all() else _objects([*labels.tolist(), None])[codes]
    is_plain = values.dtype.kind in "biuf" and not np.asarray(values.isna()).any()
    return np.asarray(values) if is_plain else _objects(list(values))


def require_length(array: Sized, length: int, name: str) -> None:
    """Raise if a column has another length than `confidence`."""
    if not _is_sized(array):
        raise _no_column(array, name)
    if len(array) != length:
        raise InputError(f"{name} has {len(array)} values and confidence has {length}; give one per row.")


def _numbers(values: ArrayLike, name: str) -> Floats:
    raw = column_of_any(values, name)
    if raw.ndim != 1:
        raise InputError(f"{name} has shape {raw.shape}; expected one value per row, a flat list or column.")
    if len(raw) == 0:
        raise InputError(f"{name} is empty; at least one row is needed.")
    if raw.dtype.kind not in "biuf":
        raw = _from_objects(raw, name)
    return as_written(raw)


def as_written(raw: NDArray[Any]) -> Floats:
    """Return numbers as float64; numbers of a shorter type become the decimals that they stand for.

    Numbers without a short decimal do not change. Converting back to the shorter type gives the same number.

    >>> as_written(np.array([0.8], dtype=np.float32))
    array([0.8])
    """
    digits = _DIGITS.get(raw.dtype.char)
    array = raw.astype(np.float64, copy=False)
    if digits is None:
        return array
    with np.errstate(divide="ignore", invalid="ignore"):
        power = digits - 1 - np.floor(np.log10(np.abs(array)))
        # 10^22 is the last power of ten that float64 holds exactly; smaller numbers need no rounding.
        scale = 10.0 ** np.clip(power, 0, 22)
        decimals = np.rint(array * scale) / scale
        return np.where(np.isfinite(decimals) & (decimals.astype(raw.dtype) == raw), decimals, array)


def seven_decimals(confidence: Floats) -> Floats:
    """Return confidences as calibrators compare them: to seven decimals, the precision of a 32-bit float.

    A number gives the same bits from a 32-bit float, a 64-bit float or text, and decimals of up to seven places do not
    change. A score that depends in its last bits on the machine is in the same bin on every machine.

    >>> seven_decimals(np.array([0.8, np.float32(0.8), 0.1 + 0.2, 1e-9]))
    array([0.8, 0.8, 0.3, 0. ])
    """
    with np.errstate(under="ignore"):
        single = confidence.astype(np.float32).astype(np.float64)
    # The product of 24 bits and 10^7 is exact, and the quotient is the float64 nearest to the decimal.
    rounded: Floats = np.rint(single * 1e7) / 1e7
    return rounded


def _from_objects(raw: NDArray[Any], name: str) -> Floats:
    """Convert one by one, so that the error can name the value. Text is never read as a number."""
    out = np.empty(len(raw))
    for at, value in enumerate(raw.tolist()):
        try:
            if value is None or isinstance(value, str | bytes):
                raise TypeError
            out[at] = value
        except (TypeError, ValueError, OverflowError):
            advice = _MISSING
            if isinstance(value, str | bytes):
                advice = "Text is not read as a number: convert the column first, so that you see what becomes of it."
            raise InputError(f"{name}[{at}] is {value!r}; expected a number. {advice}") from None
    return out


def _outside(array: Floats, name: str) -> InputError:
    bad = ~((array >= 0) & (array <= 1))
    at = int(np.argmax(bad))
    value = float(array[at])
    others = f" (and {bad.sum() - 1} more)" if bad.sum() > 1 else ""
    advice = ""
    if np.isnan(value):
        advice = f" {_MISSING}"
    elif 1 < value <= 100 and name == "confidence":
        advice = " If these are percents, divide by 100."
        if np.nanmax(array) <= 10:
            advice = " None is above 10, as on a scale from 0 to 10 or 1 to 5: bring them to 0 to 1 first."
    return InputError(f"{name}[{at}] is {value}{others}; expected 0 to 1.{advice}")


# Vectors, one per row


def as_vectors(Z: ArrayLike, width: int | None = None, fitted: str = "tree") -> NDArray[np.floating]:
    """Return vectors as a matrix; float32 and float64 are not copied.

    width, fitted : the expected number of coordinates, and the name of the fitted object, for the error.

    >>> as_vectors([[1.0, 2.0, 3.0]], width=2)
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: the vectors have 3 coordinates; the tree was fitted on 2.
    """
    if np.ma.is_masked(Z):
        raise InputError("some numbers of the vectors are masked; leave those rows out, or fill them.")
    try:
        matrix = np.asarray(Z)
        if matrix.dtype.kind == "O":  # a column of lists, or numbers of any type
            matrix = np.array(matrix.tolist(), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("the vectors are not all numbers, as many in every row; expected a matrix of them.") from None
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"the vectors are of type {matrix.dtype}; expected numbers, such as the rows of an embedding.")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"the vectors have shape {matrix.shape}; expected (rows, coordinates), at least one of each.")
    if width is not None and matrix.shape[1] != width:
        raise InputError(f"the vectors have {matrix.shape[1]} coordinates; the {fitted} was fitted on {width}.")
    return matrix


def portions(Z: NDArray[np.floating], n_rows: int = 1024) -> Iterator[tuple[slice, Floats]]:
    """Yield the rows as float64, in portions that fit into the processor's cache, with their places."""
    for start in range(0, len(Z), n_rows):
        rows = slice(start, start + n_rows)
        yield rows, Z[rows].astype(np.float64, copy=False)


def require_finite(block: Floats, numbers: Sequence[int] | Ints) -> None:
    """Raise on NaN, infinity and numbers too large to be squared; `numbers` are the row numbers for the error."""
    if not (block.max(initial=0.0) <= LARGEST and block.min(initial=0.0) >= -LARGEST):  # NaN fails both
        row, column = np.argwhere(~(np.abs(block) <= LARGEST))[0]
        raise InputError(
            f"the vector of row {numbers[row]} has {block[row, column]} at {column}; expected finite numbers."
        )


_is_forked = False


def is_forked() -> bool:
    """Return whether this process was forked after polars had started its threads, which a fork does not copy."""
    return _is_forked


def _note_fork() -> None:
    global _is_forked
    _is_forked = "polars" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
