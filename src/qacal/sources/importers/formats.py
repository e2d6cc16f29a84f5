"""The formats that can be imported, the options of each, and how to recognise the format of a file."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from qacal.errors import InputError
from qacal.sources.importers.base import Selection
from qacal.sources.importers.confidences import AGREEMENT, LIKELIHOOD, METADATA, STATED, TOKENS
from qacal.sources.importers.gathering import Importer
from qacal.sources.importers.items import TABLES, files_in, first_item


@dataclass(frozen=True)
class Format:
    """A format.

    module : the module that reads the format; it is loaded on first use.
    sources : the sources of confidence, in the order of preference.
    own_options : the fields of :class:`Selection` that the format uses besides those of all formats.
    """

    name: str
    module: str
    sources: tuple[str, ...]
    own_options: tuple[str, ...]

    @property
    def importer(self) -> Importer:
        read: Importer = importlib.import_module(f"qacal.sources.importers.{self.module}").read
        return read

    def require(self, selection: Selection) -> None:
        """Refuse a selection with options that the format does not use.

        >>> FORMATS["mlflow"].require(Selection(filter="strict"))
        Traceback (most recent call last):
        qacal.errors.InputError: mlflow has no filter to choose (--filter); it takes assessment, ...
        """
        everywhere = ("correct_at", "model", "confidence_from") if self.sources else ("correct_at", "model")
        options = sorted((*everywhere, *self.own_options))
        for name, default in vars(Selection()).items():
            if getattr(selection, name) != default and name not in options:
                option, taken = name.replace("_", "-"), ", ".join(options).replace("_", "-")
                raise InputError(f"{self.name} has no {option} to choose (--{option}); it takes {taken}.")
        if selection.confidence_from not in (None, *self.sources):
            raise InputError(
                f"{self.name} has no confidence from {selection.confidence_from!r}; it has {', '.join(self.sources)}."
            )


_CHATS = ("question_after", "last_turn")
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        log_format.name: log_format
        for log_format in (
            Format("table", "table", (), ("columns", "percent", "expressions")),
            Format("lm-eval", "lm_eval", (LIKELIHOOD, AGREEMENT, STATED), ("filter", "metric", *_CHATS)),
            Format("inspect", "inspect_ai", (METADATA, STATED, TOKENS, AGREEMENT), ("scorer", "percent", *_CHATS)),
            Format("openai-batch", "openai_batch", (STATED, TOKENS), ("labels", *_CHATS)),
            Format("promptfoo", "promptfoo", (METADATA, STATED, TOKENS), ("metric", "percent", *_CHATS)),
            Format("langfuse", "langfuse", (METADATA, STATED), ("score", "observation", "percent", *_CHATS)),
            Format("mlflow", "mlflow", (METADATA, STATED), ("assessment", "percent", *_CHATS)),
            Format("deepeval", "deepeval", (METADATA, STATED), ("metric", "percent", *_CHATS)),
        )
    }
)


# Where a document of each format has its rows.
_DOCUMENTS = (
    (("samples",), "inspect"),
    (("results", "results"), "promptfoo"),
    (("testCases",), "deepeval"),
    (("conversationalTestCases",), "deepeval"),
    (("testRunData", "testCases"), "deepeval"),
    (("testRunData", "conversationalTestCases"), "deepeval"),
)
# The columns that a row of each format needs, as lists of alternatives; the first format that fits is chosen.
_SHAPES: tuple[tuple[Sequence[Sequence[str]], str], ...] = (
    ((("doc_id",), ("resps", "filtered_resps")), "lm-eval"),
    ((("custom_id",),), "openai-batch"),
    ((("success",), ("vars", "testCase")), "promptfoo"),
    ((("metricsData",),), "deepeval"),
    ((("trace_id", "traceId", "subject"), ("data_type", "dataType", "provided_model_name", "type")), "langfuse"),
    ((("trace_id", "request_id", "info"), ("assessments", "spans", "trace", "info")), "mlflow"),
    ((("question",), ("answer",)), "table"),
)


def format_named(name: str, paths: Sequence[Path]) -> Format:
    """Return a format by its name; ``auto`` looks at the files."""
    wanted = detected(paths) if name == "auto" else name
    if wanted not in FORMATS:
        raise InputError(f"there is no format {name!r}; there are {', '.join(FORMATS)}, and auto.")
    return FORMATS[wanted]


def detected(paths: Sequence[Path]) -> str:
    """Return the format of the files, recognised by their first rows."""
    formats = {path: _looks_like(path) for path in paths}
    names = set(formats.values())
    if len(names) > 1:
        listed = "; ".join(f"{path} looks like {name}" for path, name in formats.items())
        raise InputError(f"the files are of several formats: {listed}. Import them one by one.")
    return names.pop()


def _looks_like(path: Path) -> str:
    if path.is_dir():
        for pattern, name in (("samples_*.jsonl*", "lm-eval"), ("*.eval", "inspect")):
            if next(path.rglob(pattern), None) is not None:
                return name
    file = files_in([path], *TABLES)[0]
    if zipfile.is_zipfile(file):
        return "inspect"
    if ".json" in file.suffixes:
        for inside, name in _DOCUMENTS:
            if first_item(file, *inside) and not first_item(file):
                return name
    row = first_item(file) or first_item(file, "traces") or first_item(file, "data")
    for needs, name in _SHAPES:
        if all(any(part in row for part in either) for either in needs):
            return name
    columns = ", ".join(list(row)[:12]) or "no list of rows"
    raise InputError(f"{file}: cannot tell the format; it has {columns}. Name one of {', '.join(FORMATS)}.")
