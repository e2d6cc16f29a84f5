"""Files of inspect_ai: a ZIP of JSON files, or one JSON document.

Members are packed with zstd, which `zipfile` reads from Python 3.14 on. Before, their bytes are found by the index that
`zipfile` reads and are unpacked with `zstandard`; nothing of the standard library is changed for others.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import SEEK_CUR
from pathlib import Path
from typing import Any

from qacal.errors import InputError, MissingPackageError
from qacal.records.files import OnFault, opened_bytes
from qacal.records.json_stream import JsonDocument, largest_row, too_large
from qacal.records.table import Fault
from qacal.sources.importers.items import Item, checked_items

_ZSTANDARD = 93
_CHUNK = 4_096
# Bytes before the name in the header of a member; the last four are the lengths of what follows.
_LOCAL_HEADER = 30
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
        with opened_bytes(path) as stream:
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
    header, problem = _loaded(archive, archive.getinfo(name), path)
    if not isinstance(header, dict):
        raise InputError(f"{path} {name}: {problem or 'it is not an object.'}")
    return header


def _samples(archive: zipfile.ZipFile, path: Path, on_fault: OnFault) -> Iterator[Item]:
    # A sample that was run again stands in the ZIP twice; the later one counts, as it does for unzip.
    latest = {member.filename: member for member in archive.infolist() if _SAMPLE.fullmatch(member.filename)}
    for member in latest.values():
        value, problem = _loaded(archive, member, path)
        if isinstance(value, dict):
            yield Item(str(path), member.filename, value)
        else:
            on_fault(Fault(str(path), member.filename, problem or "it is not an object."))


def _loaded(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> tuple[Any, str]:
    if member.file_size > largest_row():
        return None, too_large("what is packed in it") + "."
    try:
        is_ours = member.compress_type == _ZSTANDARD and sys.version_info < (3, 14)
        parts = _unpacked_zstd(path, member) if is_ours else _unpacked(archive, member)
        return json.loads(b"".join(parts)), ""
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


def _unpacked_zstd(path: Path, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield what is in a member that is packed with zstd: no more than the index says, and checked against its sum."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or not header.startswith(b"PK\x03\x04"):
            raise zipfile.BadZipFile("it is not where the index says")
        file.seek(sum(struct.unpack_from("<HH", header, _LOCAL_HEADER - 4)), SEEK_CUR)
        packed = file.read(member.compress_size)
    size, check = 0, 0
    with importlib.import_module("zstandard").ZstdDecompressor().stream_reader(packed) as reader:
        while size <= member.file_size and (part := reader.read(_CHUNK)):
            size, check = size + len(part), zlib.crc32(part, check)
            yield part
    if (size, check) != (member.file_size, member.CRC):
        raise zipfile.BadZipFile("it is not what the index says")


def _require_readable(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse a log that this Python needs `zstandard` for, if that is not installed."""
    if sys.version_info >= (3, 14) or all(member.compress_type != _ZSTANDARD for member in archive.infolist()):
        return
    if importlib.util.find_spec("zstandard") is None:
        raise MissingPackageError(
            f"{path} is packed with zstd, which Python reads from 3.14 on. Install what reads it in this version: "
            "pip install 'qacal[import]'."
        )
