"""Files of inspect_ai: a ZIP of JSON files, or one JSON document."""

from __future__ import annotations

import importlib
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.files import OnFault
from qacal.importers.items import Item, checked_items, opened
from qacal.json_documents import LARGEST_ITEM, JsonDocument
from qacal.tables import Fault

_ZSTANDARD = 93
_CHUNK = 4_096
_SAMPLE = re.compile(r"samples/.+_epoch_\d+\.json")


@dataclass(frozen=True, eq=False)
class Log:
    """A log.

    header : what it says about the run; that of a JSON document is complete once its first sample was read.
    items : goes through the samples.
    """

    header: dict[str, Any]
    items: Callable[[], Iterator[Item]]


@contextmanager
def open_log(path: Path, on_fault: OnFault) -> Iterator[Log]:
    """Yield the log at a path."""
    if not zipfile.is_zipfile(path):
        with opened(path) as stream:
            document = JsonDocument(stream, str(path))
            yield Log(document.header, lambda: checked_items(path, document.items("samples"), on_fault))
        return
    try:
        with zipfile.ZipFile(path) as archive:
            _require_readable(archive, path)
            yield Log(_header(archive, path), lambda: _samples(archive, path, on_fault))
    except (zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}. Is the file whole?") from None


def _header(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    """Return the header; a run that crashed has only what it wrote at its start."""
    names = set(archive.namelist())
    name = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
    if name is None:
        raise InputError(f"{path} has neither header.json nor _journal/start.json; it is no log of inspect_ai.")
    header, problem = _loaded(archive, archive.getinfo(name))
    if not isinstance(header, dict):
        raise InputError(f"{path} {name}: {problem or 'it is not an object.'}")
    return header


def _samples(archive: zipfile.ZipFile, path: Path, on_fault: OnFault) -> Iterator[Item]:
    # A sample that was run again stands in the ZIP twice; the later one counts, as it does for unzip.
    latest = {member.filename: member for member in archive.infolist() if _SAMPLE.fullmatch(member.filename)}
    for member in latest.values():
        value, problem = _loaded(archive, member)
        if isinstance(value, dict):
            yield Item(str(path), member.filename, value)
        else:
            on_fault(Fault(str(path), member.filename, problem or "it is not an object."))


def _loaded(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[Any, str]:
    if member.file_size > LARGEST_ITEM:
        return None, f"it is larger than {LARGEST_ITEM >> 20} MB when unpacked."
    try:
        return json.loads(b"".join(_unpacked(archive, member))), ""
    except (ValueError, RecursionError) as error:
        return None, f"it is not JSON ({error})."
    except Exception as error:
        # Each way of packing has errors of its own for damaged data; zlib's and zstandard's share no parent.
        if type(error).__module__.partition(".")[0] not in ("zlib", "zstandard", "zipfile", "lzma", "compression"):
            raise
        return None, f"it cannot be unpacked ({error})."


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield what is in a member; little by little, for a reader of zstd unpacks all that it is given at once."""
    with archive.open(member) as file:
        while part := file.read(_CHUNK):
            yield part


def _require_readable(archive: zipfile.ZipFile, path: Path) -> None:
    """Make zipfile read members that are packed with zstd, which Python does from 3.14 on."""
    if sys.version_info >= (3, 14) or all(member.compress_type != _ZSTANDARD for member in archive.infolist()):
        return
    try:
        importlib.import_module("zipfile_zstd")
    except ImportError:
        raise InputError(
            f"{path} is packed with zstd, which Python reads from 3.14 on. Install what reads it in this version: "
            "pip install 'qacal[import]'."
        ) from None
