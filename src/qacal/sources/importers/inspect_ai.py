"""inspect_ai: logs as ``.eval`` (a ZIP with a JSON file for each sample) and as one ``.json``.

Nothing of a ZIP is written to disk, and only one sample at a time is in memory. Members of a ZIP are packed with zstd,
which `zipfile` reads from Python 3.14 on. In earlier versions `zipfile` reads the index and `zstandard` unpacks the
members.

The confidence in metadata is ``confidence`` in the metadata of the chosen scorer's score or, if it is missing there, of
the sample. Other scorers are ignored: a judge may state how sure it is of its own verdict. If the chosen scorer is such
a judge, use ``--confidence-from stated``.

Epochs are repeated samples of one question. The share of epochs that agree with a row's answer is a confidence; a log
with epochs is read twice to count them. Epochs without a reply, or with an error, do not count.
"""

from __future__ import annotations

import importlib
import json
import re
import struct
import sys
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from os import SEEK_CUR
from pathlib import Path
from typing import Any

from qacal.errors import InputError, MissingPackageError, pip_install
from qacal.records.columns import content_of
from qacal.records.files import OnFault
from qacal.records.table import Fault
from qacal.records.text_files import JsonDocument, largest_row, opened_text, too_large
from qacal.sources.elicitation.agreement import Votes
from qacal.sources.elicitation.reply import Reply
from qacal.sources.importers.base import Dropped, Item, Log, LogRow, Outcome, Question, UnusableRowError, checked_items
from qacal.sources.importers.confidences import (
    AGREEMENT,
    METADATA,
    STATED,
    TOKENS,
    Scored,
    by_tokens,
    is_cut_reason,
    stated_reply,
)
from qacal.sources.importers.formats import OnlyName
from qacal.sources.importers.texts import first, inside, listed, members, text_of, texts_of

_ATTACHMENT = "attachment://"
_ZSTANDARD = 93
_CHUNK = 4_096
# Bytes before the name in the header of a member; the last four are the lengths of what follows.
_LOCAL_HEADER = 30
_SAMPLE = re.compile(r"samples/.+_epoch_\d+\.json")


def read(log: Log) -> Iterator[Outcome]:
    """Yield the samples of logs, or of all logs in folders; each epoch of a question is a row."""
    name, _, part = (log.selection.metric or "").partition(":")
    scorers = OnlyName("scorer", name or None)
    for path in log.files("*.eval", "*.json"):
        agreeing = _agreeing(path, log, scorers, part)
        with open_log(path, log.on_fault) as (header, samples):
            reader = _Samples(log, header, scorers, part, agreeing)
            yield from log.rows(samples, reader.outcome)
            if "eval" not in header:
                raise InputError(f"{path} does not mention an eval; expected a log of inspect_ai.")
    scorers.check()


def _agreeing(path: Path, log: Log, scorers: OnlyName, part: str) -> dict[str, Votes]:
    """Return the number of epochs with each answer, by question; empty if the log has one epoch."""
    answers: dict[str, Votes] = defaultdict(Votes)

    def ignore(fault: Fault) -> None:
        """Leave a fault to the second reading."""

    with open_log(path, ignore) as (header, samples):
        sample = next(samples, None)
        epochs = inside(header, "eval", "config", "epochs")
        if sample is None or not isinstance(epochs, int) or epochs < 2:
            return answers
        reader = _Samples(log, header, scorers, part, answers)
        for outcome in replace(log, on_fault=ignore).rows(chain([sample], samples), reader.outcome):
            if isinstance(outcome, LogRow):
                answers[outcome.record["id"]].add(outcome.record["answer"])
    return answers


@dataclass(frozen=True)
class _Samples:
    """Reads the samples of one log; `header` may be complete only after the first sample was read.

    answers : the number of epochs with each answer, by question.
    """

    log: Log
    header: Mapping[str, Any]
    scorers: OnlyName
    part: str
    answers: Mapping[str, Votes]

    def outcome(self, item: Item) -> Outcome:
        sample = item.value
        if "input" not in sample or "id" not in sample:
            raise UnusableRowError("there are no id and input; expected a sample of an inspect_ai log.")
        if sample.get("error") is not None:
            return Dropped("the sample ended with an error")
        message = inside(sample, "output", "choices", 0, "message", "content")
        completion = first(text_of(inside(sample, "output", "completion")), content_of(message))
        # `takes` is called with all names, so that `check` can list them.
        taken = [(name, score) for name, score in members(sample.get("scores")).items() if self.scorers.takes(name)]
        name, score = taken[0] if taken else ("", {})
        value = inside(score, "value")
        if isinstance(value, dict) and self.part in value:
            value = value[self.part]
        correct = self.log.grade(value, f"the scorer {name}")
        if completion is None:
            return Dropped("there is no reply")
        return self._row(sample, score, correct, completion)

    def _row(self, sample: dict[str, Any], score: Any, correct: float | Dropped | None, completion: str) -> Outcome:
        stop_reason = inside(sample, "output", "choices", 0, "stop_reason")
        said, stated = stated_reply(completion, is_cut=is_cut_reason(stop_reason))
        choices = texts_of(sample.get("choices"))
        scored = text_of(inside(score, "answer"))
        is_part = bool(scored) and str(scored).strip().lower() != completion.strip().lower()
        written = str(scored) if is_part else said
        answer = _choice(written, choices)
        task = text_of(inside(self.header, "eval", "task")) or "inspect"
        model = text_of(inside(self.header, "eval", "model"))
        id_, epoch = f"{task}:{sample['id']}", sample.get("epoch")
        number = first(*(inside(holder, "metadata", "confidence") for holder in (score, sample)))
        try:
            output = Reply.from_body(sample.get("output"))
        except InputError:
            output = Reply(completion)
        offers = {
            METADATA: self.log.confidence(number),
            STATED: stated,
            TOKENS: by_tokens(output, written),
        }
        columns: dict[str, Any] = {"epoch": epoch if isinstance(epoch, int) else 1}
        epochs = self.answers.get(id_, Votes())
        if epochs.samples > 1:
            columns |= epochs.columns_of(epochs.key(answer))
            offers[AGREEMENT] = Scored(columns["agreement"], AGREEMENT)
        steps = listed(inside(self.header, "plan", "steps"))
        templates = (text_of(inside(step, "params", "template")) for step in steps)
        return self.log.row(
            self.log.question(_attached(sample)) or Question(""),
            answer,
            correct,
            offers,
            identity=id_,
            model=model,
            key=(self.log.selection.model or model, id_, text_of(epoch)),
            ground_truth=tuple(_choice(target, choices) for target in texts_of(sample.get("target"))),
            prompt=next(filter(None, templates), None),
            task=task,
            columns=columns,
            objects=[("metadata", sample.get("metadata"))],
            used=("confidence",),
        )


def _attached(sample: dict[str, Any]) -> Any:
    """Return the input of a sample, with its attachments, which hold long texts, in their places."""
    attachments = sample.get("attachments")

    def resolved(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            return inside(attachments, value.removeprefix(_ATTACHMENT)) or value
        if isinstance(value, list):
            return [resolved(part) for part in value]
        return {name: resolved(part) for name, part in value.items()} if isinstance(value, dict) else value

    return resolved(sample["input"])


def _choice(answer: str, choices: Sequence[str]) -> str:
    """Return the choice that a letter stands for; other answers are returned unchanged.

    >>> _choice("B", ["Rome", "Paris"]), _choice("Paris", ["Rome", "Paris"]), _choice("B", [])
    ('Paris', 'Paris', 'B')
    """
    place = ord(answer) - ord("A") if len(answer) == 1 else -1
    return choices[place] if 0 <= place < len(choices) else answer


@contextmanager
def open_log(path: Path, on_fault: OnFault) -> Iterator[tuple[dict[str, Any], Iterator[Item]]]:
    """Yield the header of a log and its samples.

    The header of a JSON document is complete only after its first sample was read.
    """
    if not zipfile.is_zipfile(path):
        with opened_text(path) as stream:
            document = JsonDocument(stream, str(path))
            yield document.header, checked_items(path, document.items("samples"), on_fault)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield _header(archive, path), _samples(archive, path, on_fault)
    except (zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}. Is the file whole?") from None


def _header(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    """Return the header; a run that crashed has only what it wrote at its start."""
    names = set(archive.namelist())
    name = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
    if name is None:
        raise InputError(f"{path} has neither header.json nor _journal/start.json; it is not a log of inspect_ai.")
    header, problem = _loaded(archive, archive.getinfo(name), path)
    if not isinstance(header, dict):
        raise InputError(f"{path} {name}: {problem or 'it is not an object.'}")
    return header


def _samples(archive: zipfile.ZipFile, path: Path, on_fault: OnFault) -> Iterator[Item]:
    # A sample that was run again is in the ZIP twice; the later one counts, as it does for unzip.
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
        # Each way of packing raises its own errors for damaged data; those of zlib and zstandard share no base class.
        if type(error).__module__.partition(".")[0] not in ("zlib", "zstandard", "zipfile", "lzma", "compression"):
            raise
        return None, f"it cannot be unpacked ({error})."


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the content of a member in small parts, because a reader of zstd unpacks a part as a whole."""
    with archive.open(member) as file:
        while part := file.read(_CHUNK):
            yield part


def _unpacked_zstd(path: Path, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the content of a member packed with zstd: no more than the index says, and checked against its sum."""
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        raise MissingPackageError(
            f"{path} is compressed with zstd, which Python reads from 3.14 on. Install a package that reads it, in "
            f"the clone of qacal: {pip_install('import')}"
        ) from None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or not header.startswith(b"PK\x03\x04"):
            raise zipfile.BadZipFile("it is not where the index says")
        file.seek(sum(struct.unpack_from("<HH", header, _LOCAL_HEADER - 4)), SEEK_CUR)
        packed = file.read(member.compress_size)
    size, check = 0, 0
    with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
        while size <= member.file_size and (part := reader.read(_CHUNK)):
            size, check = size + len(part), zlib.crc32(part, check)
            yield part
    if (size, check) != (member.file_size, member.CRC):
        raise zipfile.BadZipFile("it is not what the index says")
