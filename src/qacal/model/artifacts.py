"""A fitted model on disk: a directory of one readable file and plain arrays. No code, no pickle.

``model.json``
    strict JSON for people and programs: the `schema` of this layout, the versions that wrote it, the calibrator with
    its parameters, the partition, the score, whatever the caller knows of the model (`header`), a list of the `arrays`
    with their digests, and a `digest` of all that.
``arrays/NAME.npy``
    one file an array, in numpy's plain format; see `storage/array_files.py`. A model that replaces another has its
    arrays in a folder of its own (``arrays-1f2e3d4c``), which `model.json` names as its `folder`.

Saving is whole or nothing, also for those who load the model at that moment. Loading trusts nothing: it reads only
files that are in the directory and listed, of the size and digest that are listed, builds only classes that it knows,
and asks each whether its content makes sense. A digest tells damage from health, not friend from foe: whoever may write
a model may write another one. But no content, whoever wrote it, can run code, crash, or answer with anything but a
probability.
"""

from __future__ import annotations

import os
import platform
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import qacal
from qacal.calibrators.base import Calibrator
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.state import calibrator_from_state, calibrator_state
from qacal.errors import ArtifactError, InputError
from qacal.partitions.base import partition_from_state, partition_state
from qacal.storage.array_files import LARGEST, from_bytes, size_of, to_bytes
from qacal.storage.folders import (
    flush_directory,
    new_mark,
    patiently,
    read_whole,
    replaced_whole,
    write_flushed,
)
from qacal.storage.frozen import Arrays, Plain
from qacal.storage.plain import digest, read_document, require_plain, write_document

SCHEMA = 1

_DOCUMENT = "model.json"
_ARRAYS = "arrays"
_LARGEST_DOCUMENT = 64 * 2**20
_NAME = re.compile(r"[a-z0-9_-][a-z0-9_.-]*")
_FOLDER = re.compile(rf"{_ARRAYS}(-[0-9a-f]{{8}})?")
_KEYS = {
    *("schema", "qacal", "numpy", "python", "calibrator", "partition", "score", "header"),
    *("folder", "arrays", "digest"),
}
_WORDS: dict[type, str] = {dict: "an object", str: "text"}


@dataclass(frozen=True)
class Saved:
    """What a directory holds.

    header : what the caller of :func:`save` had to say.
    partition, score : None if the model has none.
    """

    header: dict[str, Any]
    calibrator: Calibrator
    partition: Any | None
    score: LearnedScore | None


# Saving


def save(
    path: str | Path,
    *,
    header: Mapping[str, Any],
    calibrator: Calibrator,
    partition: Any | None = None,
    score: LearnedScore | None = None,
) -> None:
    """Write a fitted model as a directory; it is there whole, or not at all.

    Everything is written and flushed beside the target first, and then takes its place. A model that was there is
    replaced in one step, while others load it if need be; anything else is left alone, with an error.

    path : where to; its parent must exist.
    header : any plain data that belongs to the model: where its rows came from, what its groups are.
    partition : the fitted partition that the groups come from.
    score : the fitted score that the calibrator reads in place of the confidence.

    Examples
    --------
    >>> import tempfile
    >>> from qacal import PlattScaling
    >>> with tempfile.TemporaryDirectory() as home:
    ...     save(f"{home}/model", header={"rows": 3}, calibrator=PlattScaling().fit([0.5, 0.9, 0.9], [0, 1, 0]))
    ...     load(f"{home}/model").calibrator.predict([0.9])
    array([0.5])
    """
    target = Path(os.path.realpath(path))
    _require_replaceable(target)
    try:
        document, arrays = _described(header, calibrator, partition, score)
        # What could not be read back is not written.
        _rebuilt(document, arrays)
        folder = f"{_ARRAYS}{new_mark(target)}"
        files = _files(document, arrays, folder)
    except InputError as error:
        raise ArtifactError(f"the model cannot be saved: {error}") from error
    _write_whole(target, files, folder)


def _described(
    header: Mapping[str, Any], calibrator: Calibrator, partition: Any, score: LearnedScore | None
) -> tuple[Plain, Arrays]:
    """Return the document of a model, all but its list of arrays and digest, and its arrays."""
    require_plain(header, "header")
    of_calibrator, arrays = calibrator_state(calibrator)
    of_partition, more = (None, {}) if partition is None else partition_state(partition)
    of_score, most = (None, {}) if score is None else score.state()
    document = {
        "schema": SCHEMA,
        "qacal": qacal.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "header": dict(header),
        "calibrator": of_calibrator,
        "partition": of_partition,
        "score": of_score,
    }
    named = {f"calibrator.{name}": array for name, array in arrays.items()}
    named |= {f"partition.{name}": np.asarray(array) for name, array in more.items()}
    named |= {f"score.{name}": array for name, array in most.items()}
    return document, named


def _files(document: Plain, arrays: Arrays, folder: str) -> dict[str, bytes]:
    """Return the content of every file, by name; complete the document with its list of arrays and its digest."""
    files, listed = {}, {}
    for name, array in arrays.items():
        _require_name(name)
        content = to_bytes(array)
        files[f"{folder}/{name}.npy"] = content
        listed[name] = {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": sha256(content).hexdigest()}
    document |= {"folder": folder, "arrays": listed}
    require_plain(document, "model")
    document["digest"] = digest(document)
    files[_DOCUMENT] = write_document(document)
    if len(files[_DOCUMENT]) > _LARGEST_DOCUMENT or sum(map(len, files.values())) > LARGEST:
        raise InputError(
            f"it has {len(files[_DOCUMENT]):,} bytes of JSON and {sum(map(len, files.values())):,} in all; a model may "
            f"have {_LARGEST_DOCUMENT:,} and {LARGEST:,}. Keep no examples (--examples 0), or make fewer groups."
        )
    return files


def _require_replaceable(target: Path) -> None:
    """Refuse to write over anything but a model, or nothing."""
    if not target.parent.is_dir():
        raise ArtifactError(f"{target.parent} is not a directory; create it first.")
    if not target.exists():
        return
    if not target.is_dir():
        raise ArtifactError(f"{target} is a file; a model is a directory. Choose another name.")
    # Somebody else may be replacing the model: what vanishes meanwhile is not there.
    paths = [Path(home) / name for home, folders, names in os.walk(target) for name in (*folders, *names)]
    members = [path.relative_to(target).as_posix() for path in paths]
    foreign = sorted(name for name in members if not _is_ours(name))
    if foreign or (members and not _is_model(target / _DOCUMENT)):
        there = ", ".join((foreign or sorted(members))[:5])
        raise ArtifactError(
            f"{target} holds what is no part of a qacal model ({there}), and is not replaced. Choose another name, or "
            "move it away."
        )


def _is_ours(name: str) -> bool:
    folder, slash, file = name.partition("/")
    return name == _DOCUMENT or (_FOLDER.fullmatch(folder) is not None and (not slash or file.endswith(".npy")))


def _is_model(path: Path) -> bool:
    """Return whether a file is a model's document, of any schema; its arrays may be damaged."""
    document = _readable(path)
    return type(document.get("schema")) is int and "qacal" in document


def _folders(path: Path) -> list[str]:
    """Return the folder that a document names; none if it cannot be read."""
    folder = str(_readable(path).get("folder", _ARRAYS))
    return [folder] if _FOLDER.fullmatch(folder) else []


def _readable(path: Path) -> Plain:
    try:
        return read_document(_read(path, path.name, most=_LARGEST_DOCUMENT))
    except (ArtifactError, InputError):
        return {}


def _write_whole(target: Path, files: Mapping[str, bytes], folder: str) -> None:
    try:
        with replaced_whole(target, _DOCUMENT, _folders) as fresh:
            (fresh / folder).mkdir()
            for name, content in files.items():
                write_flushed(fresh / name, content)
            flush_directory(fresh / folder)
    except OSError as error:
        raise ArtifactError(f"the model was not saved to {target}: {error}. What was there is unchanged.") from error


# Loading


def load(path: str | Path) -> Saved:
    """Return the model in a directory, or say what is wrong with it, in an :class:`~qacal.errors.ArtifactError`.

    Needs numpy alone. The directory may be a link; nothing in it may.

    Examples
    --------
    >>> load("nowhere")
    Traceback (most recent call last):
    ...
    qacal.errors.ArtifactError: nowhere is not a directory; a model is a directory with a model.json in it.
    """
    home = Path(path)
    if not home.is_dir():
        raise ArtifactError(f"{home} is not a directory; a model is a directory with a model.json in it.")
    return read_whole(home / _DOCUMENT, read_file, lambda data: _loaded(home, data))


def read_file(path: Path) -> bytes:
    """Return the content of a document."""
    return _read(path, str(path), most=_LARGEST_DOCUMENT)


def _loaded(home: Path, data: bytes) -> Saved:
    document = _document(home / _DOCUMENT, data)
    arrays = _read_arrays(home / document["folder"], document["arrays"])
    try:
        return Saved(document["header"], *_rebuilt(document, arrays))
    except InputError as error:
        raise ArtifactError(f"{home} holds no sound model: {error}") from error


def _document(path: Path, data: bytes) -> Plain:
    try:
        document = read_document(data)
    except InputError as error:
        raise ArtifactError(f"{path} cannot be read: {error} Copy the model again, or refit.") from error
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise ArtifactError(f"{path} has schema {schema!r:.80}; this qacal reads {SCHEMA}. Upgrade qacal or refit.")
    # Before any part is used: sizes, names and digests of the arrays are in here.
    stated = document.pop("digest", None)
    if stated != digest(document):
        raise ArtifactError(f"{path} does not match its digest: it was changed or damaged. Copy it again, or refit.")
    # Models of an earlier qacal have none.
    document = {"score": None, "folder": _ARRAYS, **document}
    if {*document, "digest"} != _KEYS:
        odd = sorted({*document, "digest"} ^ _KEYS)
        raise ArtifactError(f"{path} lacks or adds {odd[:5]}; this qacal did not write it. Refit.")
    for name, kind in {"header": dict, "arrays": dict, "qacal": str, "numpy": str, "python": str}.items():
        if not isinstance(document[name], kind):
            raise ArtifactError(f"{path} has {document[name]!r:.80} for {name}; expected {_WORDS[kind]}. Refit.")
    if not _FOLDER.fullmatch(str(document["folder"])):
        raise ArtifactError(f"{path} has {document['folder']!r:.80} for folder; this qacal did not write it. Refit.")
    return document


def _read_arrays(folder: Path, listed: Plain) -> Arrays:
    """Return the arrays that the document lists; each file is of the size and digest it must have, or is refused."""
    home = folder.parent
    if folder.is_symlink() or not folder.is_dir():
        raise ArtifactError(f"{folder} is not a directory of its own; copy the model again.")
    try:
        there = {name for name in os.listdir(folder) if name.endswith(".npy")}
    except OSError as error:
        raise ArtifactError(f"{folder} cannot be read: {error.strerror}. Copy the model again, or refit.") from error
    unlisted = sorted(there - {f"{name}.npy" for name in listed})
    if unlisted:
        raise ArtifactError(f"{folder} holds {unlisted[:5]}, which {_DOCUMENT} does not list. Copy the model again.")
    sizes = {name: _listed_size(home, name, entry) for name, entry in listed.items()}
    if sum(sizes.values()) > LARGEST:
        raise ArtifactError(f"{home} lists arrays of {sum(sizes.values())} bytes; a model has at most {LARGEST}.")
    return {name: _read_array(folder / f"{name}.npy", listed[name], size) for name, size in sizes.items()}


def _listed_size(home: Path, name: str, entry: Any) -> int:
    try:
        _require_name(name)
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "sha256"}:
            raise InputError("expected its dtype, shape and sha256")
        return size_of(entry["dtype"], entry["shape"])
    except InputError as error:
        raise ArtifactError(f"{home / _DOCUMENT} lists the array {name!r:.80} wrongly: {error}") from error


def _read_array(path: Path, entry: Plain, size: int) -> Any:
    data = _read(path, str(path), exactly=size)
    if sha256(data).hexdigest() != entry["sha256"]:
        raise ArtifactError(
            f"{path} does not match its digest: the file was changed or damaged; copy the model again or refit."
        )
    try:
        return from_bytes(data, entry["dtype"], tuple(entry["shape"]))
    except InputError as error:
        raise ArtifactError(f"{path} cannot be read: {error} Copy the model again, or refit.") from error


def _rebuilt(document: Plain, arrays: Arrays) -> tuple[Calibrator, Any, LearnedScore | None]:
    """Return the calibrator, the partition and the score; raise `InputError` if they are not sound."""
    parts: dict[str, Arrays] = {"calibrator": {}, "partition": {}, "score": {}}
    for name, array in arrays.items():
        part, _, inner = name.partition(".")
        if part not in parts:
            raise InputError(f"there is an array {name!r}, which belongs to no part of a model.")
        parts[part][inner] = array
    calibrator = calibrator_from_state(document["calibrator"], parts["calibrator"])
    partition = _unless_missing(partition_from_state, document["partition"], parts["partition"])
    return calibrator, partition, _unless_missing(LearnedScore.from_state, document["score"], parts["score"])


def _unless_missing(read: Callable[[Any, Arrays], Any], plain: Any, arrays: Arrays) -> Any:
    return None if plain is None and not arrays else read(plain, arrays)


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > 100:
        raise InputError(
            f"{name!r:.80} is no name for an array; expected a-z, 0-9, _, . and -, not starting with a dot."
        )


def _read(path: Path, name: str, *, exactly: int | None = None, most: int = LARGEST) -> bytes:
    """Return the content of a regular file; of links, pipes and files of another size nothing is read."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ArtifactError(f"{name} is a link or no file at all; the files of a model are regular. Copy it again.")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with open(patiently(lambda: os.open(path, flags)), "rb") as file:
            # Of the file that was opened: by now another one may have its name.
            size = os.fstat(file.fileno()).st_size
            if size > most or exactly not in (None, size):
                expected = f"at most {most}" if exactly is None else exactly
                raise ArtifactError(f"{name} has {size} bytes; expected {expected}. Copy the model again, or refit.")
            data = file.read(size + 1)
    except OSError as error:
        raise ArtifactError(f"{name} cannot be read: {error.strerror}. Copy the model again, or refit.") from error
    if len(data) != size:
        raise ArtifactError(f"{name} changed while it was read; try again.")
    return data
