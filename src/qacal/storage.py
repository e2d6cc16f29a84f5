"""Save fitted values as folders, and load them again. No pickle, no code.

A *value* is a frozen dataclass, or an estimator (:class:`~qacal.parameters.HasParameters`) of a class that the caller
lists. Its annotations are its schema: those of its fields, or of its parameters and of its attributes that end in an
underscore. An annotation is an array (``Floats``), a dataclass, an estimator, a tuple or mapping of these, a bool, int,
float or str, a ``Literal``, or ``Any``, which is a label (text or a number); each may be ``| None``. ``Annotated`` adds
constraints (:mod:`qacal.parameters`) that a saved field meets. What these cannot say, a method ``_validate()`` checks.

A folder has a *document* (``model.json``) and the parts that the document names: a file with the numbers of all arrays
(``arrays-1f2e3d4c``), or folders of other models. The document is JSON: the `schema` number of this layout, the
versions that wrote it, the `value`, the file of `arrays` with its digest, the `folders`, and a `digest` of all that. In
the value, an array is its dtype, its shape, and the place of its first number in the file: ``np.fromfile(file,
dtype)[start:]``. Saving writes new parts first. Then the document that names them replaces the old document in one
atomic step, and the old parts are removed. A save that is killed leaves the old model or the new one.

Loading trusts nothing. A digest detects damage, not malice. So loading follows no links, reads no more than a bound,
builds only listed classes from values of the declared types, and checks the constraints of every part before it builds
the part. After that, arrays have the shapes that lookups need, numbers are finite, and probabilities are in [0, 1].
"""

from __future__ import annotations

import inspect
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

import qacal
from qacal.errors import ArtifactError, InputError, QacalError, some_of
from qacal.parameters import HasParameters, is_whole, require, require_constraints, shown

T = TypeVar("T")
Plain: TypeAlias = dict[str, Any]

SCHEMA = 10
MODEL = "model.json"
MODEL_SET = "models.json"

_LARGEST = 2**31  # bytes of all arrays
_LARGEST_DOCUMENT = 64 * 2**20
_MOST_AXES = 4
_HALF = re.compile("[\ud800-\udfff]")  # of a character

_PART = re.compile(r"(?:arrays|[0-9]+|\.models?\.json\.new)-[0-9a-f]{8}")
_WITHIN = re.compile(rf"models?\.json|.*\.npy|{_PART.pattern}")  # earlier versions had folders of .npy files
_LONGEST_SAVE = 3600.0  # seconds
_WAITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # seconds, until Windows lets go of a file that another process reads


# Values and plain data


def flatten(value: Any, classes: Collection[type] = ()) -> tuple[Any, bytes]:
    """Return a value as plain data, and the numbers of its arrays.

    classes : the classes that estimators may have.

    >>> from qacal.tally.groups import GroupIndex
    >>> plain, numbers = flatten(GroupIndex(np.array([3, 7]), np.array([1, 2])))
    >>> plain["entries"], len(numbers)
    ({'dtype': 'int64', 'shape': [2], 'start': 2}, 32)
    """
    plain, arrays = _flat(value, classes)
    return plain, b"".join(arrays)


def _flat(value: Any, classes: Collection[type]) -> tuple[Any, list[Any]]:
    """Return a value as plain data, and its arrays, which are not copied."""
    arrays: list[Any] = []
    size = 0

    def flat(value: Any) -> Any:
        nonlocal size
        if isinstance(value, np.ndarray):
            plain = {"dtype": value.dtype.name, "shape": list(value.shape), "start": size // 8}
            size += value.nbytes
            _require_size("arrays", size, _LARGEST)
            # Other types are refused later; not all of them are buffers.
            arrays.append(np.ascontiguousarray(value) if value.dtype.kind in "iuf" else value.tobytes())
            return plain
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Mapping):
            pairs = [[flat(key), flat(inner)] for key, inner in value.items()]
            # JSON would turn keys that are numbers into text.
            return dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else pairs
        if isinstance(value, list | tuple):
            return [flat(inner) for inner in value]
        kind: type = type(value)
        if isinstance(value, HasParameters):
            known = ", ".join(one.__name__ for one in classes)
            require(kind in classes, f"{kind.__name__} is not one of the classes that are saved: {known}.")
            return {"class": kind.__name__} | {name: flat(getattr(value, name)) for name in _schema(kind)}
        return {name: flat(getattr(value, name)) for name in _schema(kind)} if is_dataclass(value) else value

    return flat(value), arrays


def _require_size(what: str, size: int, most: int) -> None:
    remedy = "Keep no examples (--examples 0), or make fewer groups."
    require(size <= most, f"it has {size:,} bytes or more of {what}; a model has at most {most:,}. {remedy}")


def unflatten(kind: Any, plain: Any, numbers: bytes, classes: Collection[type] = (), name: str = "value") -> Any:
    """Return the value that :func:`flatten` took.

    Raise if a part is missing, unknown, of another type, or does not meet its constraints.

    name : of the value in errors.

    >>> from qacal.tally.groups import GroupIndex
    >>> unflatten(GroupIndex, *flatten(GroupIndex(np.array([3, 7]), np.array([1, -2]))))
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: value.entries[1] is -2; expected 0 to 4611686018427387904.
    """
    options, origin, arguments = _options(kind)
    if plain is None and NoneType in options:
        return None
    if is_dataclass(options[0]) or (isinstance(options[0], type) and issubclass(options[0], HasParameters)):
        expected = "an object"
        if isinstance(plain, dict):
            return _built(options[0], plain, numbers, classes, name)
    elif origin is np.ndarray:
        dtype = np.dtype(get_args(arguments[1])[0])
        expected = f"an array of {dtype}"
        with suppress(KeyError, TypeError, ValueError):  # not an array, or not within the numbers
            lengths, start = plain["shape"], plain["start"]
            is_entry = len(plain) == 3 and len(lengths) <= _MOST_AXES and plain["dtype"] == dtype.name
            if is_entry and all(is_whole(one, 0, _LARGEST) for one in (start, *lengths)):
                # A view: no document can ask for more memory than the numbers have.
                return np.frombuffer(numbers, dtype)[start : start + math.prod(lengths)].reshape(lengths)
    elif origin in (tuple, Sequence):
        expected = "a list"
        if isinstance(plain, list):
            every = enumerate(plain)
            return tuple(unflatten(arguments[0], one, numbers, classes, f"{name}.{at}") for at, one in every)
    elif origin in (dict, Mapping):
        expected = "an object, or a list of pairs"
        pairs = list(plain.items()) if isinstance(plain, dict) else plain
        if isinstance(pairs, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            keys = [unflatten(arguments[0], key, b"", (), f"a key of {name}") for key, _ in pairs]
            require(len({*keys}) == len(keys), f"{name} has a key twice.")
            return {key: unflatten(arguments[1], one, numbers, classes, f"{name}.{key}") for key, one in pairs}
    else:
        # True is not 1, and the text "2" is not the number 2.
        types = (str, int, float, bool) if Any in options else options
        if type(plain) in types or plain in arguments or (type(plain) is int and float in types):
            expected = "whole characters, or a number up to 1.8e308"
            if not _HALF.search(plain) if isinstance(plain, str) else abs(plain) <= sys.float_info.max:
                return float(plain) if type(plain) is int and int not in types else plain
        else:
            names = [one.__name__ for one in types if one in (str, int, float, bool)]
            hint = ". Convert labels of other types to text before fitting" if Any in options else ""
            expected = " or ".join([*map(repr, arguments), *names]) + hint
    raise InputError(f"{name} is {shown(plain)}, a {type(plain).__name__}; expected {expected}.")


@cache
def _options(kind: Any) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
    """Return the types that an annotation allows, and what the first of them is made of."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    # From numpy 2.5 on, NDArray is an alias of its own, with the array as its value.
    if (alias := getattr(get_origin(options[0]), "__value__", None)) is not None:
        options = (alias[get_args(options[0])], *options[1:])
    return options, get_origin(options[0]), get_args(options[0])


def _built(kind: Any, plain: Plain, numbers: bytes, classes: Collection[type], name: str) -> Any:
    """Return a dataclass or an estimator, after all checks of its parts."""
    is_estimator = issubclass(kind, HasParameters)
    if is_estimator:
        known = {one.__name__: one for one in classes if issubclass(one, kind)}
        chosen = plain.get("class")
        kind = known.get(chosen) if isinstance(chosen, str) else None
        require(kind is not None, f"{name}.class is {shown(chosen)}; this qacal knows {', '.join(known)}.")
    schema = _schema(kind)
    odd = {*plain} ^ {*schema, *(["class"] if is_estimator else [])}
    require(not odd, f"{name} lacks or adds {sorted(odd)[:5]}.")
    values = {at: unflatten(inner, plain[at], numbers, classes, f"{name}.{at}") for at, inner in schema.items()}
    require_constraints({at: getattr(inner, "__metadata__", ()) for at, inner in schema.items()}, values, name)
    value = kind._restored(values) if is_estimator else kind(**values)
    if hasattr(value, "_validate"):
        value._validate()
    return value


@cache
def _schema(kind: Any) -> dict[str, Any]:
    """Return the annotations of the fields of a dataclass, or of the parameters and attributes of an estimator."""
    hints = get_type_hints(kind, include_extras=True)
    fitted = [name for name in hints if name.endswith("_")]
    hints |= get_type_hints(kind.__init__, include_extras=True)
    parameters = inspect.signature(kind).parameters
    taken = [name for name, one in parameters.items() if one.kind is not one.VAR_POSITIONAL]
    return {name: hints[name] for name in (*taken, *fitted)}


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain data, whatever its layout.

    >>> digest({"a": 1, "b": [2.0]}) == digest({"b": [2.0], "a": 1})
    True
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()


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
    is_new = not target.exists()  # asked once: of two who save to one new path, the second fails to make the folder
    try:
        _require_replaceable(target, document)
        # What cannot be loaded is not saved. A model that is loaded and saved again gives the same bytes.
        plain, numbers = flatten(value, classes)
        plain, _ = _flat(unflatten(type(value), plain, numbers, classes), classes)
        stated = sha256(numbers).hexdigest()
        # The same value gives the same bytes in a new folder. Beside an older model, the names must be new.
        mark = digest({"value": plain, "arrays": stated})[:8] if is_new else secrets.token_hex(4)
        arrays = {f"arrays-{mark}": stated} if numbers else {}
        folders = {f"{number}-{mark}": write for number, write in enumerate(parts)}
        versions = {"qacal": qacal.__version__, "numpy": np.__version__, "python": platform.python_version()}
        content = {"schema": SCHEMA, **versions, "value": plain, "arrays": arrays, "folders": list(folders)}
        content["digest"] = digest(content)
        text = f"{json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)}\n".encode()
        _require_size("JSON", len(text), _LARGEST_DOCUMENT)
        writers = {name: lambda path: _write(path, numbers) for name in arrays} | folders
        _replace(target, document, text, writers, is_new=is_new)
    except InputError as error:
        raise ArtifactError(f"the model cannot be saved: {error}") from error
    except OSError as error:
        reason = error.strerror or error
        raise ArtifactError(f"the model was not saved to {target}: {reason}. What was there is unchanged.") from error


def _require_replaceable(target: Path, document: str) -> None:
    """Raise if saving would write into anything but a model of the same kind, or an empty or new folder."""
    if not target.parent.is_dir():
        raise ArtifactError(f"{target.parent} is not a folder; create it first.")
    if target.exists() and not target.is_dir():
        raise ArtifactError(f"{target} is a file; a model is a folder. Choose another name.")
    names = {path.name for path in target.iterdir()} if target.exists() else set()
    is_model = document in names and _is_from_qacal(target / document)
    parts = {name for name in names if _PART.fullmatch(name) and (is_model or _holds_parts(target / name))}
    # A damaged document is from qacal if parts of a model are beside it.
    foreign = names - parts - ({document} if is_model or parts else set())
    if foreign:
        kind = "a single model" if document == MODEL else "a set of models"
        raise ArtifactError(
            f"{target} holds {some_of(sorted(foreign))}, which is no part of {kind}, and is not replaced. Choose "
            "another name, or move it away."
        )


def _is_from_qacal(path: Path) -> bool:
    """Return whether a file is a document, of any version of qacal."""
    try:
        content = json.loads(_read(path, _LARGEST_DOCUMENT))
    except (ArtifactError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and is_whole(content.get("schema"), 1) and "qacal" in content


def _holds_parts(path: Path) -> bool:
    """Return whether a path with the name of a part has nothing but parts in it; those with a number are folders."""
    if not path.is_dir():
        return not path.name[0].isdigit()
    return all(_WITHIN.fullmatch(inner.name) and _holds_parts(inner) for inner in path.iterdir())


def _replace(
    target: Path, document: str, text: bytes, writers: Mapping[str, Callable[[Path], None]], *, is_new: bool
) -> None:
    """Write the parts of a new document, then put it in the place of the old document in one step.

    writers : functions that write the parts, by their names.
    is_new : there was no folder.
    """
    unfinished = f".{document}.new-{secrets.token_hex(4)}"
    stale, oldest = {unfinished, *writers}, 0.0
    if is_new:
        target.mkdir()
    try:
        for name, write in writers.items():
            write(target / name)
        _write(target / unfinished, text)
        old = _named(target / document)
        patiently(lambda: os.replace(target / unfinished, target / document))
        # Other parts are of a save that is under way, or of one that was killed: nobody takes an hour to save.
        stale, oldest = old, time.time() - _LONGEST_SAVE
    finally:
        named = _named(target / document)  # in use, also if an interrupt came just after the replacement
        for part in [part for part in target.iterdir() if _PART.fullmatch(part.name) and part.name not in named]:
            with suppress(OSError):  # somebody else may remove it meanwhile
                if part.name in stale or (part.lstat().st_mtime < oldest and _holds_parts(part)):
                    shutil.rmtree(part) if part.is_dir() else part.unlink()
        if is_new:
            with suppress(OSError):  # after a save it is not empty, and stays
                target.rmdir()


def _named(path: Path) -> set[str]:
    """Return the parts that a document names, damaged or not: every word in it that is the name of a part."""
    try:
        return {*_PART.findall(_read(path, _LARGEST_DOCUMENT).decode("utf-8", "replace"))}
    except ArtifactError:
        return set()


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


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
    qacal.errors.ArtifactError: nowhere does not exist; a model is a folder that qacal fit makes (in Python: save).
    """
    home = _folder(path, document)
    while True:
        data = _read(home / document, _LARGEST_DOCUMENT)
        try:
            return made(*_loaded(home, data, kind, classes))
        except QacalError:
            # Another process may have saved a model meanwhile, and removed the parts of this one.
            if _read(home / document, _LARGEST_DOCUMENT) == data:
                raise


def _folder(path: str | Path, document: str) -> Path:
    """Return the folder of a model; raise if there is none."""
    home = Path(path)
    if not home.exists():
        raise ArtifactError(f"{home} does not exist; a model is a folder that qacal fit makes (in Python: save).")
    if not home.is_dir():
        raise ArtifactError(f"{home} is not a folder; a model is a folder with a {document} in it.")
    if not os.path.lexists(home / document) and os.access(home, os.R_OK | os.X_OK):
        names = sorted(path.name for path in home.iterdir())
        models = [home / name for name in names if any((home / name / kind).is_file() for kind in (MODEL, MODEL_SET))]
        remedy = f"Did you mean {some_of(models, 2)}?" if models else "Name a folder that qacal fit made."
        if any(map(_PART.fullmatch, names)):
            remedy = "Parts of a model are there: copy the whole model again."
        holds = f"it has no {document}, but {some_of(names)}" if names else "the folder is empty"
        raise ArtifactError(f"{home} is no model: {holds}. {remedy}")
    return home


def version_of(path: str | Path) -> str:
    """Return a digest of the model in a folder: the same for the same model, wherever and whenever it was saved.

    >>> from tempfile import TemporaryDirectory
    >>> from qacal.calibrators.curves import PlattScaling
    >>> fitted = PlattScaling().fit([0.2, 0.9], [0, 1])
    >>> with TemporaryDirectory() as home:
    ...     for name in ("one", "two"):
    ...         save(f"{home}/{name}", fitted, [PlattScaling])
    ...         save(f"{home}/{name}", fitted, [PlattScaling])
    ...     version_of(f"{home}/one") == version_of(f"{home}/two")
    True
    """
    document = MODEL_SET if (Path(path) / MODEL_SET).is_file() else MODEL
    home = _folder(path, document)
    try:
        content = _checked(_read(home / document, _LARGEST_DOCUMENT))
    except InputError as error:
        raise ArtifactError(f"{home} holds no sound model: {error} Copy the model again, or fit it again.") from error
    # The names of parts are new in each save.
    parts = [version_of(home / name) for name in content["folders"]]
    return digest({"value": content["value"], "arrays": [*content["arrays"].values()], "parts": parts})


def _loaded(home: Path, data: bytes, kind: type, classes: Collection[type]) -> tuple[Any, list[Path]]:
    """Return the value in a folder, and the folders of its parts."""
    try:
        content = _checked(data)
        folders, numbers = [home / name for name in content["folders"]], b""
        for folder in folders:
            require(folder.is_dir() and not folder.is_symlink(), f"{folder} is not a folder of its own.")
        for name, stated in content["arrays"].items():
            numbers = _read(home / name, _LARGEST)
            require(sha256(numbers).hexdigest() == stated, f"{name} does not match its digest: it was damaged.")
        return unflatten(kind, content["value"], numbers, classes), folders
    except InputError as error:
        raise ArtifactError(f"{home} holds no sound model: {error} Copy the model again, or fit it again.") from error


def _checked(data: bytes) -> Plain:
    """Return the content of a document; raise on another schema, on damage, and on names of files elsewhere."""
    try:
        content: Plain = json.loads(data.decode())
        stated = content.pop("digest", None) if isinstance(content, dict) else None
        actual = digest(content)
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, too deep, thousands of digits, or NaN
        raise InputError(f"the document is not JSON: {error}.") from None
    require(isinstance(content, dict), f"the document holds a {type(content).__name__}; expected an object.")
    schema = content.get("schema")
    is_older = is_whole(schema, 1, SCHEMA - 1)
    require(not is_older, f"an earlier qacal saved it (schema {schema}; this one reads {SCHEMA}): fit the model again.")
    is_newer = is_whole(schema, SCHEMA + 1)
    require(not is_newer, f"a later qacal saved it (schema {shown(schema)}; this one reads {SCHEMA}): upgrade qacal.")
    require(is_whole(schema, SCHEMA), "this qacal did not write the document.")
    require(stated == actual, "the document does not match its digest: it was changed or damaged.")
    kinds = {"schema": int, "qacal": str, "numpy": str, "python": str, "value": dict, "arrays": dict, "folders": list}
    require({name: type(part) for name, part in content.items()} == kinds, "this qacal did not write the document.")
    names = [*content["arrays"], *content["folders"]]
    are_parts = all(isinstance(name, str) and _PART.fullmatch(name) for name in names)
    require(are_parts and len(content["arrays"]) <= 1, f"the document names the parts {shown(names)}.")
    return content


def _read(path: Path, most: int) -> bytes:
    """Return the content of a regular file; raise on links, pipes and larger files without reading them."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(patiently(lambda: os.open(path, flags)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                raise ArtifactError(
                    f"{path} is no file of at most {most} bytes. Copy the model again, or fit it again."
                )
            return file.read(status.st_size)
    except OSError as error:
        raise ArtifactError(
            f"{path} cannot be read: {error.strerror}. Copy the model again, or fit it again."
        ) from error
