"""Frozen values as plain JSON and named arrays, and back: the annotations of a dataclass are its schema.

A fitted map is a frozen dataclass of arrays, plain values and other frozen dataclasses. Its plain values become a
dictionary, nested as the classes are; its arrays become files, named by their place (``lineage.directory.codes``).
Nothing in that dictionary names a class or an array: what is expected where is known from the class, so a file cannot
ask for anything else.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.storage.plain import require_plain

Plain: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, NDArray[Any]]

_WORDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def flatten(value: Any) -> tuple[Plain, Arrays]:
    """Return a frozen value as plain values and arrays.

    >>> from qacal.tally.lookup import Directory
    >>> flatten(Directory(np.array([3, 7]), np.array([1, 2])))
    ({}, {'codes': array([3, 7]), 'entries': array([1, 2])})
    """
    arrays: Arrays = {}
    return _plain_fields(value, "", arrays), arrays


def unflatten(kind: type, plain: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value of a class from what :func:`flatten` gave; refuse what is missing, unknown or mistyped.

    Types only: whether the content makes sense, the value itself can tell.
    """
    left = dict(arrays)
    value = _from_fields(kind, plain, "", left)
    if left:
        raise InputError(f"there are arrays {sorted(left)}, which {kind.__name__} does not have.")
    return value


def checked_fields(kinds: Mapping[str, Any], plain: Any, name: str) -> Plain:
    """Return plain values by name, each of its kind, none missing and none unknown.

    >>> checked_fields({"seed": int}, {"seed": "7"}, "parameters")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: parameters.seed is '7'; expected a whole number.
    """
    _require_names(plain, set(kinds), name)
    return {key: checked(plain[key], kind, f"{name}.{key}") for key, kind in kinds.items()}


def checked(value: Any, kind: Any, name: str) -> Any:
    """Return a plain value if it is of a kind: bool, int, float, str, one of a Literal, labels; or None if it may."""
    options = _options(kind)
    if value is None and type(None) in options:
        return None
    inner = next(option for option in options if option is not type(None))
    if get_origin(inner) is tuple:
        return _labels(value, name)
    # True is an int to Python, and must not pass for 1.
    is_number = type(value) is int or type(value) is float
    if get_origin(inner) is Literal:
        is_so = type(value) is str and value in get_args(inner)
    else:
        is_so = is_number if inner is float else type(value) is inner
    if not is_so:
        raise InputError(f"{name} is {value!r:.80}; expected {_said(options)}.")
    require_plain(value, name)
    # A whole number where any number may be: numpy takes integers beyond 64 bits for objects.
    return float(value) if inner is float else value


def _plain_fields(value: Any, prefix: str, arrays: Arrays) -> Plain:
    plain: Plain = {}
    for name, kind in _schema(type(value)).items():
        inner = getattr(value, name)
        if isinstance(inner, np.ndarray):
            arrays[prefix + name] = np.ascontiguousarray(inner)
        elif is_dataclass(inner):
            plain[name] = _plain_fields(inner, f"{prefix}{name}.", arrays)
        elif _array_type(kind) is None:
            inner = list(inner) if isinstance(inner, tuple) else inner
            plain[name] = inner.item() if isinstance(inner, np.generic) else inner
    return plain


def _from_fields(kind: type, plain: Any, prefix: str, left: Arrays) -> Any:
    schema = _schema(kind)
    _require_names(plain, {name for name, inner in schema.items() if _array_type(inner) is None}, prefix or "maps.")
    return kind(**{name: _field(inner, plain.get(name), prefix + name, left) for name, inner in schema.items()})


def _field(kind: Any, value: Any, name: str, left: Arrays) -> Any:
    dtype, frozen = _array_type(kind), _frozen_type(kind)
    if dtype is not None:
        return _array(left.pop(name, None), dtype, name, may_miss=type(None) in _options(kind))
    if frozen is None:
        return checked(value, kind, name)
    if value is None and type(None) in _options(kind):
        return None
    return _from_fields(frozen, value, f"{name}.", left)


def _array(array: NDArray[Any] | None, dtype: np.dtype[Any], name: str, *, may_miss: bool) -> NDArray[Any] | None:
    if array is None and not may_miss:
        raise InputError(f"the array {name} is missing.")
    if array is not None and array.dtype != dtype:
        raise InputError(f"the array {name} is of {array.dtype}; expected {dtype}.")
    return array


def _labels(value: Any, name: str) -> tuple[Any, ...]:
    """Return labels, in which the number 2 and the text "2" differ, as they do in JSON."""
    if not isinstance(value, list):
        raise InputError(f"{name} is {value!r:.80}; expected a list.")
    for at, label in enumerate(value):
        if type(label) not in (str, int, bool, float):
            raise InputError(
                f"{name}[{at}] is {label!r:.80}, a {type(label).__name__}. Groups of text and numbers can be saved; "
                "convert others to text before fitting."
            )
        require_plain(label, f"{name}[{at}]")
    return tuple(value)


def _require_names(plain: Any, expected: set[str], name: str) -> None:
    name = name.removesuffix(".")
    if not isinstance(plain, dict):
        raise InputError(f"{name} is {plain!r:.80}; expected an object.")
    if set(plain) - expected:
        raise InputError(f"{name} has {sorted(set(plain) - expected)[:5]}, which this qacal does not know.")
    if expected - set(plain):
        raise InputError(f"{name} lacks {sorted(expected - set(plain))[:5]}.")


def _schema(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _array_type(kind: Any) -> np.dtype[Any] | None:
    """Return the dtype of an annotation such as ``Floats`` or ``Ints | None``; None if it is no array."""
    for option in _options(kind):
        if get_origin(option) is np.ndarray:
            dtype: np.dtype[Any] = np.dtype(get_args(get_args(option)[1])[0])
            return dtype
    return None


def _frozen_type(kind: Any) -> type | None:
    return next((option for option in _options(kind) if is_dataclass(option) and isinstance(option, type)), None)


def _said(options: tuple[Any, ...]) -> str:
    words = []
    for option in options:
        if get_origin(option) is Literal:
            words += [repr(choice) for choice in get_args(option)]
        else:
            words.append("null" if option is type(None) else _WORDS[option])
    return " or ".join(words)
