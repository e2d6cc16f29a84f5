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
from qacal.sources.importers.confidences import AGREEMENT, LIKELIHOOD, MAX_PROB, METADATA, STATED, TOKENS
from qacal.sources.importers.gathering import Importer
from qacal.sources.importers.items import TABLES, files_in, first_item

_SEEN_COLUMNS = 12


@dataclass(frozen=True)
class Format:
    """A format.

    module : the module that reads it; loaded when it is used.
    options : the fields of :class:`Selection` that it uses.
    sources : where it looks for a confidence, first to last.
    """

    name: str
    module: str
    options: frozenset[str]
    sources: tuple[str, ...]

    @property
    def importer(self) -> Importer:
        """The function that reads it."""
        read: Importer = importlib.import_module(f"qacal.sources.importers.{self.module}").read
        return read

    def require(self, selection: Selection) -> None:
        """Refuse a selection with options that the format does not use.

        >>> FORMATS["helm"].require(Selection(filter="strict"))
        Traceback (most recent call last):
        qacal.errors.InputError: helm has no filter to choose (--filter); it takes confidence-from, ..., metric, model.
        """
        for name, default in vars(Selection()).items():
            if getattr(selection, name) != default and name not in self.options:
                taken = ", ".join(sorted(option.replace("_", "-") for option in self.options))
                said = name.replace("_", "-")
                raise InputError(f"{self.name} has no {said} to choose (--{said}); it takes {taken}.")
        if selection.confidence_from not in (None, *self.sources):
            raise InputError(
                f"{self.name} has no confidence from {selection.confidence_from!r}; it has {', '.join(self.sources)}."
            )


def _format(name: str, module: str, sources: Sequence[str], *options: str) -> tuple[str, Format]:
    everywhere = ("correct_at", "model", *(("confidence_from",) if sources else ()))
    return name, Format(name, module, frozenset((*everywhere, *options)), tuple(sources))


FORMATS: Mapping[str, Format] = MappingProxyType(
    dict(
        [
            _format("table", "table", [], "columns", "percent", "expressions"),
            _format(
                "lm-eval", "lm_eval", [LIKELIHOOD, AGREEMENT, STATED], "filter", "metric", "question_after", "last_turn"
            ),
            _format(
                "inspect",
                "inspect_ai",
                [METADATA, STATED, TOKENS, AGREEMENT],
                "scorer",
                "percent",
                "question_after",
                "last_turn",
            ),
            _format("openai-batch", "openai_batch", [STATED, TOKENS], "labels", "question_after", "last_turn"),
            _format(
                "promptfoo", "promptfoo", [METADATA, STATED, TOKENS], "metric", "percent", "question_after", "last_turn"
            ),
            _format(
                "langfuse",
                "langfuse",
                [METADATA, STATED],
                "score",
                "observation",
                "percent",
                "question_after",
                "last_turn",
            ),
            _format("mlflow", "mlflow", [METADATA, STATED], "assessment", "percent", "question_after", "last_turn"),
            _format("helm", "helm", [MAX_PROB, STATED], "metric"),
            _format("deepeval", "deepeval", [METADATA, STATED], "metric", "percent", "question_after", "last_turn"),
        ]
    )
)


def format_named(name: str, paths: Sequence[Path]) -> Format:
    """Return a format by its name; ``auto`` looks at the files."""
    wanted = detected(paths) if name == "auto" else name
    if wanted not in FORMATS:
        raise InputError(f"there is no format {name!r}; there are {', '.join(FORMATS)}, and auto.")
    return FORMATS[wanted]


def detected(paths: Sequence[Path]) -> str:
    """Return the one format that all files seem to have."""
    found = {path: _looks_like(path) for path in paths}
    names = set(found.values())
    if len(names) > 1:
        listed = "; ".join(f"{path} looks like {name}" for path, name in found.items())
        raise InputError(f"the files are of several formats: {listed}. Import them one by one.")
    return names.pop()


def _looks_like(path: Path) -> str:
    if path.is_dir():
        for pattern, name in (("scenario_state.json", "helm"), ("samples_*.jsonl*", "lm-eval"), ("*.eval", "inspect")):
            if next(path.rglob(pattern), None) is not None:
                return name
    file = files_in([path], *TABLES)[0]
    if zipfile.is_zipfile(file):
        return "inspect"
    return _of_row(file)


def _of_row(file: Path) -> str:
    if ".json" in file.suffixes:
        for inside, name in _DOCUMENTS:
            if first_item(file, *inside) and not first_item(file):
                return name
    row = first_item(file) or first_item(file, "traces") or first_item(file, "data")
    for needs, name in _SHAPES:
        if all(any(part in row for part in either) for either in needs):
            return name
    seen = ", ".join(list(row)[:_SEEN_COLUMNS]) or "no list of rows"
    raise InputError(f"{file}: cannot tell the format; it has {seen}. Name one of {', '.join(FORMATS)}.")


# Where a document of each format has its rows.
_DOCUMENTS = (
    (("samples",), "inspect"),
    (("results", "results"), "promptfoo"),
    (("testCases",), "deepeval"),
    (("conversationalTestCases",), "deepeval"),
    (("testRunData", "testCases"), "deepeval"),
    (("testRunData", "conversationalTestCases"), "deepeval"),
)
# The columns of a row of each format, alternatives together; the first format that fits is taken.
_SHAPES: tuple[tuple[Sequence[Sequence[str]], str], ...] = (
    ((("doc_id",), ("resps", "filtered_resps")), "lm-eval"),
    ((("custom_id",),), "openai-batch"),
    ((("success",), ("vars", "testCase")), "promptfoo"),
    ((("metricsData",),), "deepeval"),
    ((("trace_id", "traceId", "subject"), ("data_type", "dataType", "provided_model_name", "type")), "langfuse"),
    ((("trace_id", "request_id", "info"), ("assessments", "spans", "trace", "info")), "mlflow"),
    ((("question",), ("answer",)), "table"),
)
