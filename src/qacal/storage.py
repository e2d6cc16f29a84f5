"""Fitted values to files and back: one way for everything that a model keeps. No pickle, no code.

A *value* is a frozen dataclass, or an estimator (:class:`~qacal.parameters.HasParameters`) of a class that the caller
names. Its annotations are its schema: those of its fields, or of its parameters and of its attributes that end in an
underscore. An annotation is an array (``Floats``), a dataclass, an estimator, a tuple or mapping of these, a
bool, int, float or str, a ``Literal``, or ``Any``, which is a label (text or a number); each may be ``| None``. What
``Mapping[str, Any]`` holds is any JSON.

A folder has a *document* (``model.json``), and what the document names: a folder of arrays, ``arrays-1f2e3d4c/*.npy``,
or folders of other models. The document is strict JSON: the `schema` number of this layout, the versions that wrote it,
the `value`, the dtype, shape and digest of each of its `arrays`, the `folders`, and a `digest` of all that. New folders
are written first; then, in one atomic step, the document that names them replaces the one of before, and the folders
of before are removed. Readers who miss a folder start again.

Reading trusts nothing. A digest detects damage, not malice: whoever can write a model can write another one. So reading
follows no links, allocates no more than a bound, builds known classes from values of the declared types only, and asks
the value to ``validate()`` itself. After that its arrays have the shapes that lookups need, its numbers are finite, and
its probabilities are in [0, 1].
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
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

import qacal
from qacal.errors import ArtifactError, InputError, QacalError
from qacal.parameters import HasParameters

T = TypeVar("T")
Plain: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, NDArray[Any]]

SCHEMA = 4
MODEL = "model.json"
MODEL_SET = "models.json"

_DTYPES = ("float64", "int64", "uint64")
_MOST_AXES = 4
_HEADER = 4096  # the header of a .npy file is shorter
_LARGEST = 2**31
_LARGEST_DOCUMENT = 64 * 2**20
_LARGEST_INTEGER = 2**1000  # 300 digits; Python reads and writes 4,300
_DEEPEST = 50
_MODERATE = 1e300  # a line a + b x of larger numbers could overflow; no fit comes near

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_FOLDER = re.compile("(arrays|[0-9]+)-[0-9a-f]{8}")
_NEW = re.compile(r"\.models?\.json\.new-[0-9a-f]{8}")
_OURS = re.compile(  # in a folder, beside its document
    rf"({_FOLDER.pattern}/)*({_FOLDER.pattern}|{_NEW.pattern})|({_FOLDER.pattern}/)+(models?\.json|{_NAME.pattern}\.npy)"
)
_TRIES = 100  # of a reader, if somebody saves meanwhile
_LEFT_BEHIND = 3600.0  # seconds after which an unnamed folder is taken for that of a process that was killed
_WAITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # seconds, until Windows lets go of a file that somebody reads


# Values and plain data


def flatten(value: Any, classes: Collection[type] = ()) -> tuple[Plain, Arrays]:
    """Return a value as plain data, and its arrays by their places.

    classes : those that estimators may have.

    >>> from qacal.tally.lookup import GroupIndex
    >>> flatten(GroupIndex(np.array([3, 7]), np.array([1, 2])))
    ({}, {'codes': array([3, 7]), 'entries': array([1, 2])})
    """
    arrays: Arrays = {}

    def flat(value: Any, kind: Any, name: str) -> Any:
        options = _options(kind)
        arguments = get_args(options[0])
        if isinstance(value, np.ndarray):
            arrays[name] = np.ascontiguousarray(value)
        elif isinstance(value, np.generic):
            return value.item()
        elif isinstance(value, Mapping):
            key, inner = arguments or (str, Any)
            pairs = [[at, flat(one, inner, _inside(name, at))] for at, one in value.items()]
            return dict(pairs) if key is str else pairs  # JSON would make text of keys that are numbers
        elif isinstance(value, list | tuple):
            inner = arguments[0] if arguments else Any
            return [flat(one, inner, _inside(name, at)) for at, one in enumerate(value)]
        elif is_dataclass(value) or isinstance(value, HasParameters):
            plain = {}
            if isinstance(value, HasParameters):
                plain["class"] = type(value).__name__
                known = ", ".join(one.__name__ for one in classes)
                require(type(value) in classes, f"{plain['class']} is not one of the classes that are saved: {known}.")
            kind = type(value)
            for at, inner in _schema(kind).items():
                found = flat(getattr(value, at), inner, _inside(name, at))
                plain |= {} if _array_type(inner) is not None else {at: found}
            return plain
        else:
            return float(value) if type(value) is int and float in options else value
        return None

    return flat(value, type(value), ""), arrays


def unflatten(kind: type, plain: Any, arrays: Arrays, classes: Collection[type] = ()) -> Any:
    """Return the value that :func:`flatten` was given; refuse what is missing, unknown or of another type."""
    left = dict(arrays)

    def built(kind: Any, plain: Any, name: str) -> Any:
        options = _options(kind)
        inner, origin, arguments = options[0], get_origin(options[0]), get_args(options[0])
        if origin is np.ndarray:
            array, dtype = left.pop(name, None), _array_type(kind)
            is_so = None in options if array is None else array.dtype == dtype
            require(is_so, f"{name} is {'missing' if array is None else array.dtype}; expected an array of {dtype}.")
            return array
        if plain is None and None in options:
            return None
        if origin in (tuple, Sequence):
            _expect(isinstance(plain, list), plain, name, "a list")
            return tuple(built(arguments[0], one, _inside(name, at)) for at, one in enumerate(plain))
        if origin in (dict, Mapping) and arguments[0] is not str:
            are_pairs = isinstance(plain, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in plain)
            _expect(are_pairs, plain, name, "a list of pairs")
            pairs = {_scalar(key, (arguments[0],), name): built(arguments[1], one, name) for key, one in plain}
            require(len(pairs) == len(plain), f"{name} has a key twice.")
            return pairs
        if origin in (dict, Mapping):
            _expect(isinstance(plain, dict), plain, name, "an object")
            # Any JSON is as it should be.
            kind = arguments[1]
            return {at: one if kind is Any else built(kind, one, _inside(name, at)) for at, one in plain.items()}
        if is_dataclass(inner) or _is_estimator(inner):
            return fields_of(inner, plain, name)
        return _scalar(plain, options, name)

    def fields_of(kind: Any, plain: Any, name: str) -> Any:
        _expect(isinstance(plain, dict), plain, name, "an object")
        others = set()
        if _is_estimator(kind):
            known = {one.__name__: one for one in classes if issubclass(one, kind)}
            chosen, others = str(plain.get("class")), {"class"}
            require(chosen in known, f"{name}.class is {chosen!r:.80}; this qacal knows {', '.join(known)}.")
            kind = known[chosen]
        schema = _schema(kind)
        odd = {*plain} ^ {at for at, inner in schema.items() if _array_type(inner) is None} ^ others
        require(not odd, f"{name or 'value'} lacks or adds {sorted(odd)[:5]}.")
        values = {at: built(inner, plain.get(at), _inside(name, at)) for at, inner in schema.items()}
        return kind._restored(values) if others else kind(**values)

    value = built(kind, plain, "")
    require(not left, f"there are arrays {sorted(left)[:5]}, which belong to nothing.")
    return value


def _scalar(value: Any, options: tuple[Any, ...], name: str) -> Any:
    """Return a value if it is of one of the types, exactly: True is no 1, and the text "2" is not the number 2."""
    kinds = (str, int, float, bool) if Any in options else options
    choices = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if type(value) in kinds or (type(value) is str and value in choices):
        return value
    if type(value) is int and float in kinds:
        return float(value)
    expected = " or ".join([*map(repr, choices), *(one.__name__ for one in kinds if isinstance(one, type))])
    hint = " Convert labels of other types to text before fitting." if Any in options else ""
    raise InputError(f"{name} is {value!r:.80}, a {type(value).__name__}; expected {expected}.{hint}")


@cache
def _schema(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        return {field.name: hints[field.name] for field in fields(kind) if field.init}
    parameters = [one for one in inspect.signature(kind).parameters.values() if one.kind is not one.VAR_POSITIONAL]
    taken = get_type_hints(kind.__init__)
    return {one.name: taken[one.name] for one in parameters} | {at: hints[at] for at in hints if at.endswith("_")}


def _is_estimator(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, HasParameters)


def _options(kind: Any) -> tuple[Any, ...]:
    """Return the types of an annotation; None comes last."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return (*(one for one in options if one is not type(None)), *(None for one in options if one is type(None)))


def _array_type(kind: Any) -> np.dtype[Any] | None:
    """Return the dtype of an annotation such as ``Floats`` or ``Ints | None``; None if it is no array."""
    inner = _options(kind)[0]
    return np.dtype(get_args(get_args(inner)[1])[0]) if get_origin(inner) is np.ndarray else None


def _expect(is_so: bool, value: Any, name: str, expected: str) -> None:
    if not is_so:
        raise InputError(f"{name or 'value'} is {value!r:.80}; expected {expected}.")


def _inside(name: str, at: Any) -> str:
    return f"{name}.{at}" if name else str(at)


# Plain data and JSON


def require_plain(value: Any, name: str, depth: int = 0) -> None:
    """Refuse what does not come back from JSON as it went in.

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
        is_whole = value.isascii() or value.encode("utf-8", "replace").decode() == value
        _expect(is_whole, value, name, "whole characters, not half of one")
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


def read_json(data: bytes) -> Plain:
    """Return the object that strict JSON holds.

    >>> read_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: it has the key 'a' twice.
    """
    try:
        document = json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_refuse_number)
    except InputError:
        raise
    except RecursionError:
        raise InputError("it is nested too deeply.") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise InputError(f"it is no JSON: {error}.") from None
    if not isinstance(document, dict):
        raise InputError(f"it holds a {type(document).__name__}; expected an object.")
    require_plain(document, "document")
    return document


def _object(pairs: list[tuple[str, Any]]) -> Plain:
    found: Plain = {}
    for key, value in pairs:
        require(key not in found, f"it has the key {key!r:.80} twice.")
        found[key] = value
    return found


def _refuse_number(text: str) -> NoReturn:
    raise InputError(f"it holds {text}, which JSON does not know.")


# Saving


def save(
    path: str | Path,
    value: Any,
    classes: Collection[type] = (),
    *,
    document: str = MODEL,
    parts: Sequence[Callable[[Path], None]] = (),
) -> None:
    """Write a value as a folder; the folder is there whole, or not at all.

    What `save` wrote before is replaced in one step, while others load it. Anything else is left alone, with an error.

    path : where to; its parent must exist.
    value : it validates itself, before it is written and after it is read.
    classes : those that its estimators may have.
    document : the name of the document.
    parts : each writes a folder of its own.

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
    is_empty = _require_replaceable(target, document)
    try:
        value.validate()
        plain, arrays = flatten(value, classes)
        # What cannot be read back is not written.
        unflatten(type(value), plain, arrays, classes).validate()
        require_plain(plain, "value")
        contents = {name: _npy(array) for name, array in arrays.items()}
        listed = {
            name: {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": sha256(contents[name]).hexdigest()}
            for name, array in arrays.items()
        }
        # The names of new folders are nobody else's; where nobody else is, the same value has the same names.
        mark = digest({"value": plain, "arrays": listed})[:8] if is_empty else secrets.token_hex(4)
        numbered = [f"{number}-{mark}" for number in range(len(parts))]
        folders = [f"arrays-{mark}", *numbered] if arrays else numbered
        text = _document(plain, listed, folders)
        _checked(text)
    except InputError as error:
        raise ArtifactError(f"the model cannot be saved: {error}") from error
    try:
        with _replacing(target, document, folders) as new:
            for folder, write in zip(numbered, parts, strict=True):
                write(target / folder)
            for name, content in contents.items():
                _write(target / folders[0] / f"{name}.npy", content)
            if arrays:
                _flush(target / folders[0])
            _write(new, text)
    except OSError as error:
        reason = error.strerror or error
        raise ArtifactError(f"the model was not saved to {target}: {reason}. What was there is unchanged.") from error


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


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


def _require_replaceable(target: Path, document: str) -> bool:
    """Refuse to write over anything but what :func:`save` wrote, or nothing; return whether it is nothing."""
    if not target.parent.is_dir():
        raise ArtifactError(f"{target.parent} is not a directory; create it first.")
    if target.exists() and not target.is_dir():
        raise ArtifactError(f"{target} is a file; a model is a directory. Choose another name.")
    # Somebody else may be replacing the model: what vanishes meanwhile is not there.
    paths = [Path(home) / name for home, folders, names in os.walk(target) for name in (*folders, *names)]
    found = [path.relative_to(target).as_posix() for path in paths]
    foreign = sorted(name for name in found if name != document and not _OURS.fullmatch(name))
    known = _readable(target / document)
    # Without a document, all that is there may have been left by a process that was killed. A damaged document is
    # ours if our folders are beside it.
    is_ours = (type(known.get("schema")) is int and "qacal" in known) or not (target / document).exists()
    is_ours = is_ours or any(_FOLDER.fullmatch(name) for name in found)
    if foreign and {*foreign} <= {MODEL, MODEL_SET}:
        raise ArtifactError(
            f"{target} holds {'a single model' if MODEL in foreign else 'a set of models'}, and is not replaced by "
            f"{'a set of models' if MODEL in foreign else 'a single model'}. Choose another name, or delete it first."
        )
    if foreign or not is_ours:
        raise ArtifactError(
            f"{target} holds what is no part of a qacal model ({', '.join(foreign[:5]) or document}), and is not "
            "replaced. Choose another name, or move it away."
        )
    return not found


@contextmanager
def _replacing(target: Path, document: str, folders: list[str]) -> Iterator[Path]:
    """Make new folders, and yield a path to write the document to that names them; then it takes the old one's place.

    Whoever stops this, and whenever, leaves the document of before or the new one, with all that it names.
    """
    is_new, before, made = not target.exists(), _folders(target / document), set()
    new = target / f".{document}.new-{secrets.token_hex(4)}"
    try:
        target.mkdir(exist_ok=True)
        for name in folders:
            (target / name).mkdir()
            made.add(name)
        yield new
        _flush(target)
        patiently(lambda: os.replace(new, target / document))
    except BaseException:
        # It may have come just after the last step.
        _remove([new, *(target / name for name in made - _folders(target / document))])
        if is_new:
            with suppress(OSError):
                target.rmdir()
        raise
    # The new document is in place by now; that the disk may forget it is no reason to call it unsaved.
    with suppress(OSError):
        _flush(target)
        _flush(target.parent)
        now = _folders(target / document)
        _remove(target / name for name in before - now)
        for part in target.iterdir():
            is_left = part.name not in now and (_FOLDER.fullmatch(part.name) or _NEW.fullmatch(part.name))
            _remove([part] if is_left and time.time() - part.stat().st_mtime > _LEFT_BEHIND else [])


def _folders(path: Path) -> set[str]:
    """Return the folders that a document names; none if it cannot be read."""
    named = _readable(path).get("folders")
    return {str(name) for name in named if _FOLDER.fullmatch(str(name))} if isinstance(named, list) else set()


def _readable(path: Path) -> Plain:
    try:
        return read_json(_read(path, _LARGEST_DOCUMENT))
    except (ArtifactError, InputError):
        return {}


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush(folder: Path) -> None:
    """Have the names in a folder written to the disk."""
    if os.name == "posix":  # elsewhere folders cannot be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def patiently(act: Callable[[], T]) -> T:
    """Do something with a file; on Windows, again and again for a second if another process has it open."""
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
    classes : those that its estimators may have.
    document : the name of the document.
    made : makes what is returned of the value and the folders of its parts.

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
    for _ in range(_TRIES):
        content = _read(home / document, _LARGEST_DOCUMENT)
        try:
            return made(*_loaded(home, document, content, kind, classes))
        except QacalError:
            if _read(home / document, _LARGEST_DOCUMENT) == content:
                raise
    raise ArtifactError(f"{home / document} was replaced {_TRIES} times while it was read; try again.")


def _loaded(home: Path, document: str, data: bytes, kind: type, classes: Collection[type]) -> tuple[Any, list[Path]]:
    try:
        content = _checked(data)
    except InputError as error:
        raise ArtifactError(f"{home / document} cannot be read: {error} Copy the model again, or refit.") from error
    folders, listed = [home / name for name in content["folders"]], content["arrays"]
    for folder in folders:
        if folder.is_symlink() or not folder.is_dir():
            raise ArtifactError(f"{folder} is not a directory of its own; copy the model again.")
    try:
        arrays = {name: _array(folders[0], name, entry) for name, entry in listed.items()}
        value = unflatten(kind, content["value"], arrays, classes)
        value.validate()
    except InputError as error:
        raise ArtifactError(f"{home} holds no sound model: {error} Copy the model again, or refit.") from error
    return value, folders[1:] if listed else folders


def _checked(data: bytes) -> Plain:
    """Return the content of a document; refuse another schema, damage, and more than a model may have."""
    content = read_json(data)
    schema = content.get("schema")
    is_older = type(schema) is int and 0 < schema < SCHEMA
    require(not is_older, f"an earlier qacal saved it (schema {schema}; this one reads {SCHEMA}): fit the model again.")
    is_known = type(schema) is int and schema == SCHEMA
    require(is_known, f"it has schema {schema!r:.80}; this qacal reads {SCHEMA}. Upgrade qacal.")
    # Before any part is used.
    stated = content.pop("digest", None)
    require(stated == digest(content), "it does not match its digest: it was changed or damaged.")
    kinds = {"schema": int, "qacal": str, "numpy": str, "python": str, "value": dict, "arrays": dict, "folders": list}
    require({name: type(value) for name, value in content.items()} == kinds, "this qacal did not write it.")
    names, arrays = content["folders"], content["arrays"]
    are_names = all(isinstance(name, str) and _FOLDER.fullmatch(name) for name in names)
    require(are_names and bool(names or not arrays), f"it names the folders {names!r:.80}.")
    total = sum(map(_size, arrays.values()))
    require(total <= _LARGEST, f"it lists arrays of {total} bytes; a model has at most {_LARGEST}.")
    return content


def _size(entry: Any) -> int:
    """Return how many bytes the numbers of a listed array have."""
    is_so = isinstance(entry, dict) and {*entry} == {"dtype", "shape", "sha256"} and entry["dtype"] in _DTYPES
    shape: Any = entry["shape"] if is_so else ()
    is_so = isinstance(shape, list) and 1 <= len(shape) <= _MOST_AXES
    is_so = is_so and all(type(length) is int and 0 <= length <= _LARGEST for length in shape)
    require(is_so, f"it lists an array as {entry!r:.120}; expected a dtype, a shape and a digest.")
    return int(math.prod(shape)) * 8


def _array(folder: Path, name: str, entry: Plain) -> NDArray[Any]:
    """Return a listed array, of the type and shape that are listed; numpy's header in the file is for others."""
    require(_NAME.fullmatch(name) is not None and len(name) <= 100, f"{name!r:.80} is no name of an array.")
    size = _size(entry)
    data = _read(folder / f"{name}.npy", size + _HEADER)
    require(sha256(data).hexdigest() == entry["sha256"], f"{name}.npy does not match its digest: it was damaged.")
    require(data.startswith(b"\x93NUMPY") and len(data) > size, f"{name}.npy is no array of shape {entry['shape']}.")
    return np.frombuffer(data[len(data) - size :], dtype=entry["dtype"]).reshape(entry["shape"]).copy()


def _read(path: Path, most: int) -> bytes:
    """Return the content of a regular file; of links, pipes and larger files nothing is read."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(patiently(lambda: os.open(path, flags)), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > most:
                raise ArtifactError(f"{path} is no file of at most {most} bytes. Copy the model again, or refit.")
            return file.read(most)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}. Copy the model again, or refit.") from error


# What validate() asks


def require(is_so: bool, complaint: str) -> None:
    """Refuse content of which a claim is not true.

    >>> require(2 + 2 == 5, "sums are off; count again.")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: sums are off; count again.
    """
    if not is_so:
        raise InputError(complaint)


def require_columns(length: int, /, **columns: NDArray[Any]) -> None:
    """Refuse columns that are not flat or not of one length."""
    for name, column in columns.items():
        require(column.shape == (length,), f"{name} has shape {column.shape}; expected {length} values.")


def require_between(low: float, high: float, /, **columns: NDArray[Any]) -> None:
    """Refuse arrays with a value that is NaN or outside of [low, high].

    >>> require_between(0, 1, value=np.array([0.5, 1.5]))
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: value[1] is 1.5; expected 0 to 1.
    """
    for name, column in columns.items():
        bad = ~((column >= low) & (column <= high))
        if bad.any():
            at = int(np.argmax(bad))
            raise InputError(f"{name}[{at}] is {column.flat[at]}; expected {low} to {high}.")


def require_moderate(**columns: NDArray[Any] | float) -> None:
    """Refuse numbers that are not finite, or so large that sums and products of them are not."""
    require_between(-_MODERATE, _MODERATE, **{name: np.asarray(column) for name, column in columns.items()})


def require_offsets(offset: NDArray[np.int64], pieces: int, end: int) -> None:
    """Refuse offsets that do not cut ``range(end)`` into so many pieces, none of them empty."""
    require_columns(pieces + 1, offset=offset)
    is_cut = offset[0] == 0 and offset[-1] == end and rises(offset)
    require(is_cut, f"offset must rise from 0 to {end}, and does not.")


def rises(values: NDArray[Any]) -> bool:
    """Return whether each value is above the one before it."""
    return bool((values[1:] > values[:-1]).all())


def rises_within(offset: NDArray[np.int64], *keys: NDArray[Any]) -> bool:
    """Return whether, within each piece, the tuples of keys rise.

    >>> rises_within(np.array([0, 2, 3]), np.array([.2, .8, .1]))
    True
    """
    above = np.zeros(len(keys[0]) - 1, dtype=bool)
    for key in reversed(keys):
        above = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & above)
    is_start = np.zeros(len(keys[0]), dtype=bool)
    is_start[offset[:-1]] = True
    return bool((above | is_start[1:]).all())
