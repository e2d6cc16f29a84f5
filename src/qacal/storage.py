"""Save fitted values as folders, and load them again. No pickle, no code.

A *value* is a frozen dataclass, or an estimator (:class:`~qacal.parameters.HasParameters`) of a class that the caller
lists. Its annotations are its schema: those of its fields, or of its parameters and of its attributes that end in an
underscore. An annotation is an array (``Floats``), a dataclass, an estimator, a tuple or mapping of these, a bool, int,
float or str, a ``Literal``, or ``Any``, which is a label (text or a number); each may be ``| None``. A
``Mapping[str, Any]`` holds any JSON. ``Annotated`` adds constraints (:mod:`qacal.parameters`) that a saved field meets.
What these cannot say, a method ``_validate()`` checks.

A folder has a *document* (``model.json``) and the folders that the document names: one of arrays
(``arrays-1f2e3d4c/*.npy``), or folders of other models. The document is JSON: the `schema` number of this layout, the
versions that wrote it, the `value`, the dtype, shape and digest of each of its `arrays`, the `folders`, and a `digest`
of all that. Saving writes new folders first. Then the document that names them replaces the old document in one atomic
step, and the old folders are removed. A save that is killed leaves the old model or the new one.

Loading trusts nothing. A digest detects damage, not malice. So loading follows no links, allocates no more than a
bound, builds only listed classes from values of the declared types, and checks the constraints of every part before it
builds the part. After that, arrays have the shapes that lookups need, numbers are finite, and probabilities are in
[0, 1].
"""

from __future__ import annotations

import inspect
import io
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

import qacal
from qacal.errors import ArtifactError, InputError, QacalError, some_of
from qacal.parameters import Constraint, HasParameters, in_order, is_whole, require, require_constraints

T = TypeVar("T")
Plain: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, NDArray[Any]]

SCHEMA = 7
MODEL = "model.json"
MODEL_SET = "models.json"

_DTYPES = ("float64", "int64", "uint64")
_MOST_AXES = 4
_HEADER = 4096  # the header of a .npy file is shorter
_LARGEST = 2**31  # bytes of all arrays
_LARGEST_DOCUMENT = 64 * 2**20
_LARGEST_INTEGER = 2**1000  # 300 digits; Python reads and writes 4,300
_DEEPEST = 50

_ARRAY_NAME = re.compile(r"[a-z0-9_][a-z0-9_.]{0,99}")
_FOLDER = re.compile("(arrays|[0-9]+)-[0-9a-f]{8}")
_UNFINISHED = re.compile(r"\.models?\.json\.new-[0-9a-f]{8}")
_LONGEST_SAVE = 3600.0  # seconds
_WAITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # seconds, until Windows lets go of a file that another process reads


# Values and plain data


def flatten(value: Any, classes: Collection[type] = ()) -> tuple[Plain, Arrays]:
    """Return a value as plain data, and its arrays by name.

    classes : the classes that estimators may have.

    >>> from qacal.tally.groups import GroupIndex
    >>> flatten(GroupIndex(np.array([3, 7]), np.array([1, 2])))
    ({}, {'codes': array([3, 7]), 'entries': array([1, 2])})
    """
    arrays: Arrays = {}

    def flat(value: Any, kind: Any, name: str) -> Any:
        options = _options(kind)
        arguments = get_args(options[0])
        if isinstance(value, np.ndarray):
            arrays[name] = np.ascontiguousarray(value)
            return None
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Mapping):
            key, inner = arguments or (str, Any)
            pairs = [[at, flat(one, inner, _inside(name, at))] for at, one in value.items()]
            return dict(pairs) if key is str else pairs  # JSON would turn keys that are numbers into text
        if isinstance(value, list | tuple):
            inner = arguments[0] if arguments else Any
            return [flat(one, inner, _inside(name, at)) for at, one in enumerate(value)]
        if is_dataclass(value) or isinstance(value, HasParameters):
            return fields_of(value, name)
        return float(value) if type(value) is int and float in options else value

    def fields_of(value: Any, name: str) -> Plain:
        plain: Plain = {}
        kind: Any = type(value)
        if _is_estimator(kind):
            value._require_savable()
            known = ", ".join(one.__name__ for one in classes)
            require(kind in classes, f"{kind.__name__} is not one of the classes that are saved: {known}.")
            plain["class"] = kind.__name__
        for at, inner in _schema(kind).items():
            part = flat(getattr(value, at), inner, _inside(name, at))
            if not _is_array(inner):
                plain[at] = part
        return plain

    return fields_of(value, ""), arrays


def unflatten(kind: type, plain: Any, arrays: Arrays, classes: Collection[type] = ()) -> Any:
    """Return the value that :func:`flatten` took.

    Raise if a part is missing, unknown, of another type, or does not meet its constraints.

    >>> from qacal.tally.groups import GroupIndex
    >>> unflatten(GroupIndex, {}, {"codes": np.array([7, 3]), "entries": np.array([1, 2])})
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: codes must rise, and does not.
    """
    left = dict(arrays)

    def build(kind: Any, plain: Any, name: str) -> Any:
        options = _options(kind)
        first, origin, arguments = options[0], get_origin(options[0]), get_args(options[0])
        if _is_array(kind):
            array, dtype = left.pop(name, None), np.dtype(get_args(arguments[1])[0])
            is_declared = NoneType in options if array is None else array.dtype == dtype
            actual = "missing" if array is None else array.dtype
            require(is_declared, f"{name} is {actual}; expected an array of {dtype}.")
            return array
        if plain is None and NoneType in options:
            return None
        if origin in (tuple, Sequence):
            _expect(isinstance(plain, list), plain, name, "a list")
            return tuple(build(arguments[0], one, _inside(name, at)) for at, one in enumerate(plain))
        if origin in (dict, Mapping) and arguments[0] is not str:
            are_pairs = isinstance(plain, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in plain)
            _expect(are_pairs, plain, name, "a list of pairs")
            pairs = {_scalar(key, (arguments[0],), name): build(arguments[1], one, name) for key, one in plain}
            require(len(pairs) == len(plain), f"{name} has a key twice.")
            return pairs
        if origin in (dict, Mapping):
            _expect(isinstance(plain, dict), plain, name, "an object")
            inner = arguments[1]
            return plain if inner is Any else {at: build(inner, plain[at], _inside(name, at)) for at in plain}
        if is_dataclass(first) or _is_estimator(first):
            return build_fields(first, plain, name)
        return _scalar(plain, options, name)

    def build_fields(kind: Any, plain: Any, name: str) -> Any:
        _expect(isinstance(plain, dict), plain, name, "an object")
        is_estimator = _is_estimator(kind)
        if is_estimator:
            known = {one.__name__: one for one in classes if issubclass(one, kind)}
            chosen = str(plain.get("class"))
            require(chosen in known, f"{name}.class is {chosen!r:.80}; this qacal knows {', '.join(known)}.")
            kind = known[chosen]
        schema = _schema(kind)
        expected = {at for at, inner in schema.items() if not _is_array(inner)} | ({"class"} if is_estimator else set())
        odd = {*plain} ^ expected
        require(not odd, f"{name or 'value'} lacks or adds {sorted(odd)[:5]}.")
        values = {at: build(inner, plain.get(at), _inside(name, at)) for at, inner in schema.items()}
        require_constraints(_constraints(kind), values, name)
        value = kind._restored(values) if is_estimator else kind(**values)
        if hasattr(value, "_validate"):
            value._validate()
        return value

    value = build(kind, plain, "")
    require(not left, f"there are arrays {sorted(left)[:5]}, which belong to nothing.")
    return value


def _scalar(value: Any, options: tuple[Any, ...], name: str) -> Any:
    """Return a value if it has exactly one of the types: True is not 1, and the text "2" is not the number 2."""
    kinds = (str, int, float, bool) if Any in options else options
    choices = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if type(value) in kinds or (type(value) is str and value in choices):
        return value
    if type(value) is int and float in kinds:
        return float(value)
    types = [one.__name__ for one in kinds if isinstance(one, type) and one is not NoneType]
    expected = " or ".join([*map(repr, choices), *types])
    hint = " Convert labels of other types to text before fitting." if Any in options else ""
    raise InputError(f"{name} is {value!r:.80}, a {type(value).__name__}; expected {expected}.{hint}")


@cache
def _schema(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    if not _is_estimator(kind):
        return {field.name: hints[field.name] for field in fields(kind) if field.init}
    parameters = [one for one in inspect.signature(kind).parameters.values() if one.kind is not one.VAR_POSITIONAL]
    taken = get_type_hints(kind.__init__)
    return {one.name: taken[one.name] for one in parameters} | {at: hints[at] for at in hints if at.endswith("_")}


@cache
def _constraints(kind: Any) -> list[tuple[str, Constraint]]:
    """Return the fields with constraints, each with its constraint, in the order to check them."""
    hints = get_type_hints(kind, include_extras=True)
    return in_order(
        [(at, one) for at in _schema(kind) if at in hints for one in getattr(hints[at], "__metadata__", ())]
    )


def _options(kind: Any) -> tuple[Any, ...]:
    """Return the types of an annotation; ``NoneType`` is last, since annotations end with ``| None``."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _is_array(kind: Any) -> bool:
    return get_origin(_options(kind)[0]) is np.ndarray


def _is_estimator(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, HasParameters)


def _expect(condition: bool, value: Any, name: str, expected: str) -> None:
    if not condition:
        raise InputError(f"{name or 'value'} is {value!r:.80}; expected {expected}.")


def _inside(name: str, at: Any) -> str:
    return f"{name}.{at}" if name else str(at)


# Plain data and JSON


def require_plain(value: Any, name: str, depth: int = 0) -> None:
    """Raise if JSON cannot hold a value, or would change it.

    >>> require_plain({"rows": 12, "share": float("nan")}, "header")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: header.share is nan; JSON has no such number.
    """
    require(depth <= _DEEPEST, f"{name} is nested more than {_DEEPEST} levels deep.")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _expect(isinstance(key, str), key, f"a key of {name}", "text")
            require_plain(key, f"a key of {name}", depth + 1)
            require_plain(inner, f"{name}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            require_plain(inner, f"{name}.{at}", depth + 1)
    elif isinstance(value, str):
        is_whole_text = value.isascii() or value.encode("utf-8", "replace").decode() == value
        _expect(is_whole_text, value, name, "whole characters, not half of one")
    elif isinstance(value, float):
        require(math.isfinite(value), f"{name} is {value}; JSON has no such number.")
    elif isinstance(value, int):
        require(abs(value) < _LARGEST_INTEGER, f"{name} is a number of more than 300 digits; write it as text.")
    elif value is not None:
        expected = "text, a number, true, false, null, or lists of these"
        raise InputError(f"{name} is a {type(value).__name__}; expected {expected}.")


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain data, whatever its layout.

    >>> digest({"a": 1, "b": [2.0]}) == digest({"b": [2.0], "a": 1})
    True
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()


def _read_json(data: bytes) -> Plain:
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, too deep, or thousands of digits
        raise InputError(f"the document is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise InputError(f"the document holds a {type(content).__name__}; expected an object.")
    require_plain(content, "document")
    return content


# Saving


def save(
    path: str | Path,
    value: Any,
    classes: Collection[type] = (),
    *,
    document: str = MODEL,
    parts: Sequence[Callable[[Path], None]] = (),
) -> None:
    """Write a value as a folder, completely or not at all.

    An older model at `path` is replaced in one step, while others may load it. Anything else raises and is not touched.

    path : its parent must exist.
    classes : the classes that its estimators may have.
    document : the name of the document.
    parts : functions that each write one folder.

    Examples
    --------
    >>> import tempfile
    >>> from qacal.calibrators import PlattScaling
    >>> with tempfile.TemporaryDirectory() as home:
    ...     save(f"{home}/model", PlattScaling().fit([0.5, 0.9, 0.9], [0, 1, 0]), [PlattScaling])
    ...     load(f"{home}/model", PlattScaling, [PlattScaling]).predict([0.9])
    array([0.5])
    """
    target = Path(os.path.realpath(path))
    try:
        _require_replaceable(target, document)
        is_new = not target.exists()
        plain, arrays = flatten(value, classes)
        unflatten(type(value), plain, arrays, classes)  # what cannot be loaded is not saved
        require_plain(plain, "value")
        files = {name: _npy(array) for name, array in arrays.items()}
        listed = {
            name: {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": sha256(files[name]).hexdigest()}
            for name, array in arrays.items()
        }
        _require_arrays(listed)
        # The same value gives the same bytes in a new folder. Beside an older model, the names must be new.
        mark = digest({"value": plain, "arrays": listed})[:8] if is_new else secrets.token_hex(4)
        writers = {f"arrays-{mark}": lambda folder: _write_arrays(folder, files)} if arrays else {}
        writers |= {f"{number}-{mark}": write for number, write in enumerate(parts)}
        text = _document(plain, listed, list(writers))
        if is_new:
            target.mkdir()
        try:
            _replace(target, document, text, writers)
        finally:
            if is_new:
                with suppress(OSError):  # after a save it is not empty, and stays
                    target.rmdir()
    except InputError as error:
        raise ArtifactError(f"the model cannot be saved: {error}") from error
    except OSError as error:
        reason = error.strerror or error
        raise ArtifactError(f"the model was not saved to {target}: {reason}. What was there is unchanged.") from error


def _replace(target: Path, document: str, text: bytes, writers: Mapping[str, Callable[[Path], None]]) -> None:
    """Write the folders of a new document, then put it in the place of the old document in one step.

    writers : functions that write the folders, by the folders' names.
    """
    unfinished, stale = target / f".{document}.new-{secrets.token_hex(4)}", {*writers}
    try:
        for name, write in writers.items():
            write(target / name)
        _write(unfinished, text)
        old = _folders(target / document)
        patiently(lambda: os.replace(unfinished, target / document))
        stale = old
    finally:
        # An interrupt may come just after the replacement. Folders that the document names are in use.
        named = _folders(target / document)
        for name in (stale | _abandoned(target)) - named:
            if (target / name).is_dir():
                shutil.rmtree(target / name, ignore_errors=True)
            else:
                (target / name).unlink(missing_ok=True)
        unfinished.unlink(missing_ok=True)


def _abandoned(target: Path) -> set[str]:
    """Return the folders and unfinished documents of saves that were killed: nobody takes an hour to save."""
    oldest = time.time() - _LONGEST_SAVE
    with suppress(OSError):  # somebody else may remove them meanwhile
        parts = [part for part in target.iterdir() if _FOLDER.fullmatch(part.name) or _UNFINISHED.fullmatch(part.name)]
        return {part.name for part in parts if part.stat().st_mtime < oldest}
    return set()


def _require_replaceable(target: Path, document: str) -> None:
    """Raise if saving would write into anything but a model of the same kind, or an empty or new folder."""
    if not target.parent.is_dir():
        raise ArtifactError(f"{target.parent} is not a directory; create it first.")
    if target.exists() and not target.is_dir():
        raise ArtifactError(f"{target} is a file; a model is a directory. Choose another name.")
    names = [path.name for path in target.iterdir()] if target.exists() else []
    foreign = [name for name in names if not (_FOLDER.fullmatch(name) or _UNFINISHED.fullmatch(name))]
    if document in foreign:
        content = _readable(target / document)
        # A damaged document is from qacal if folders of qacal are beside it.
        if any(map(_FOLDER.fullmatch, names)) or (type(content.get("schema")) is int and "qacal" in content):
            foreign.remove(document)
    if foreign:
        kind = "a single model" if document == MODEL else "a set of models"
        raise ArtifactError(
            f"{target} holds {some_of(sorted(foreign))}, which is no part of {kind}, and is not replaced. Choose "
            "another name, or move it away."
        )


def _document(plain: Plain, arrays: Plain, folders: list[str]) -> bytes:
    versions = {"qacal": qacal.__version__, "numpy": np.__version__, "python": platform.python_version()}
    content = {"schema": SCHEMA, **versions, "value": plain, "arrays": arrays, "folders": folders}
    content["digest"] = digest(content)
    text = f"{json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)}\n".encode()
    if len(text) > _LARGEST_DOCUMENT:
        raise InputError(
            f"it has {len(text):,} bytes of JSON; a model has at most {_LARGEST_DOCUMENT:,}. Keep no examples "
            "(--examples 0), or make fewer groups."
        )
    return text


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _write_arrays(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        _write(folder / f"{name}.npy", content)


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _folders(path: Path) -> set[str]:
    """Return the folders that a document names; none if it cannot be read."""
    named = _readable(path).get("folders")
    return {str(name) for name in named if _FOLDER.fullmatch(str(name))} if isinstance(named, list) else set()


def _readable(path: Path) -> Plain:
    try:
        return _read_json(_read(path, _LARGEST_DOCUMENT))
    except (ArtifactError, InputError):
        return {}


def patiently(act: Callable[[], T]) -> T:
    """Do something with a file; on Windows, retry for a second while another process has it open."""
    for wait in _WAITS if os.name == "nt" else ():
        try:
            return act()
        except PermissionError:
            time.sleep(wait)
    return act()


# Loading


def load(
    path: str | Path,
    kind: type,
    classes: Collection[type] = (),
    *,
    document: str = MODEL,
    made: Callable[[Any, list[Path]], Any] = lambda value, parts: value,
) -> Any:
    """Return the value in a folder, or raise an :class:`~qacal.errors.ArtifactError` that says what is wrong with it.

    The folder may be a link; nothing in it may.

    kind : the type of the value.
    classes : the classes that its estimators may have.
    document : the name of the document.
    made : makes the result from the value and the folders of its parts.

    Examples
    --------
    >>> load("nowhere", dict)
    Traceback (most recent call last):
    ...
    qacal.errors.ArtifactError: nowhere does not exist; a model is a directory that qacal fit makes (in Python: save).
    """
    home = Path(path)
    if not home.exists():
        raise ArtifactError(f"{home} does not exist; a model is a directory that qacal fit makes (in Python: save).")
    if not home.is_dir():
        raise ArtifactError(f"{home} is not a directory; a model is a directory with a {document} in it.")
    while True:
        data = _read(home / document, _LARGEST_DOCUMENT)
        try:
            return made(*_loaded(home, data, kind, classes))
        except QacalError:
            # Another process may have saved a model meanwhile, and removed the folders of this one.
            if _read(home / document, _LARGEST_DOCUMENT) == data:
                raise


def _loaded(home: Path, data: bytes, kind: type, classes: Collection[type]) -> tuple[Any, list[Path]]:
    """Return the value in a folder, and the folders of its parts."""
    try:
        content = _checked(data)
        folders, arrays = [home / name for name in content["folders"]], {}
        for folder in folders:
            require(folder.is_dir() and not folder.is_symlink(), f"{folder} is not a directory of its own.")
        if content["arrays"]:
            folder, *folders = folders
            arrays = {name: _array(folder, name, entry) for name, entry in content["arrays"].items()}
        value = unflatten(kind, content["value"], arrays, classes)
    except InputError as error:
        raise ArtifactError(f"{home} holds no sound model: {error} Copy the model again, or refit.") from error
    return value, folders


def _checked(data: bytes) -> Plain:
    """Return the content of a document; raise on another schema, damage, or more than a model may have."""
    content = _read_json(data)
    schema = content.get("schema")
    is_older = is_whole(schema, 1, SCHEMA - 1)
    require(not is_older, f"an earlier qacal saved it (schema {schema}; this one reads {SCHEMA}): fit the model again.")
    is_known = is_whole(schema, SCHEMA, SCHEMA)
    require(is_known, f"the document has schema {schema!r:.80}; this qacal reads {SCHEMA}. Upgrade qacal.")
    # Before any part is used.
    stated = content.pop("digest", None)
    require(stated == digest(content), "the document does not match its digest: it was changed or damaged.")
    kinds = {"schema": int, "qacal": str, "numpy": str, "python": str, "value": dict, "arrays": dict, "folders": list}
    require({name: type(part) for name, part in content.items()} == kinds, "this qacal did not write the document.")
    names, arrays = content["folders"], content["arrays"]
    are_names = all(isinstance(name, str) and _FOLDER.fullmatch(name) for name in names)
    require(are_names and bool(names or not arrays), f"the document names the folders {names!r:.80}.")
    _require_arrays(arrays)
    return content


def _require_arrays(arrays: Plain) -> None:
    """Raise if listed arrays have other names, types or shapes than a model has, or more bytes."""
    total = 0
    for name, entry in arrays.items():
        require(_ARRAY_NAME.fullmatch(name) is not None, f"{name!r:.80} is not a name of an array.")
        is_entry = isinstance(entry, dict) and {*entry} == {"dtype", "shape", "sha256"} and entry["dtype"] in _DTYPES
        is_entry = is_entry and isinstance(entry["shape"], list) and 1 <= len(entry["shape"]) <= _MOST_AXES
        is_entry = is_entry and all(is_whole(length, 0, _LARGEST) for length in entry["shape"])
        require(is_entry, f"the document lists an array as {entry!r:.120}; expected a dtype, a shape and a digest.")
        total += 8 * math.prod(entry["shape"])
    require(total <= _LARGEST, f"the document lists arrays of {total} bytes; a model has at most {_LARGEST}.")


def _array(folder: Path, name: str, entry: Plain) -> NDArray[Any]:
    """Return an array with the listed type and shape; numpy's header in the file is not used."""
    size = 8 * math.prod(entry["shape"])
    data = _read(folder / f"{name}.npy", size + _HEADER)
    require(sha256(data).hexdigest() == entry["sha256"], f"{name}.npy does not match its digest: it was damaged.")
    require(data.startswith(b"\x93NUMPY") and len(data) > size, f"{name}.npy is not an array of {entry['shape']}.")
    return np.frombuffer(data[len(data) - size :], dtype=entry["dtype"]).reshape(entry["shape"]).copy()


def _read(path: Path, most: int) -> bytes:
    """Return the content of a regular file; raise on links, pipes and larger files without reading them."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(patiently(lambda: os.open(path, flags)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                raise ArtifactError(f"{path} is no file of at most {most} bytes. Copy the model again, or refit.")
            return file.read(most)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}. Copy the model again, or refit.") from error
