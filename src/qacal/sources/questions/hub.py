"""Where the benchmarks are on the Hugging Face hub, and loading them from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from qacal.embedders.packages import optional_package
from qacal.errors import InputError, QacalError, ServerError
from qacal.sources.questions import readers
from qacal.sources.questions.gathering import BenchmarkQuestion, Gathered, Row, gather

_LONGEST_REASON = 400
_OF_TASK = "_zero_shot"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on the hub.

    source, config, split : what to load; the split is the one that the paper's number of questions points to.
    columns : those that are read.
    read : makes a question of a row.
    forms : whether it can be asked with choices, the usual way first.
    has_tasks : whether it is made of tasks, each a config of its own; `config` then ends the name of each.
    """

    name: str
    source: str
    config: str
    split: str
    columns: tuple[str, ...]
    read: Callable[..., BenchmarkQuestion]
    forms: tuple[bool, ...]
    has_tasks: bool = False

    def reader(self, choices: bool | None) -> Callable[[Row], BenchmarkQuestion]:
        """Return what makes questions of rows, with choices or without; None is the usual way."""
        if choices is not None and choices not in self.forms:
            what = "no choices" if choices else "no questions that could be asked without their choices"
            raise InputError(f"{self.name} has {what}; leave --{'' if choices else 'no-'}choices out.")
        return self.read if len(self.forms) == 1 or choices is None else partial(self.read, with_choices=choices)

    def configs(self, tasks: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the configs to load, each with the columns that its rows get besides their own."""
        if not self.has_tasks and tasks:
            raise InputError(f"{self.name} is not made of tasks; leave --task {tasks[0]} out.")
        if not self.has_tasks:
            return {self.config: {}}
        if not tasks:
            raise InputError(
                f"{self.name} is made of some 160 tasks, and the paper does not say which it took; name yours: "
                "--task NAME, which may be repeated."
            )
        names = [task.removesuffix(self.config) for task in tasks]
        return {name + self.config: {"task": name} for name in names}


BENCHMARKS = {
    one.name: one
    for one in (
        Benchmark(
            *("triviaqa", "mandarjoshi/trivia_qa", "unfiltered.nocontext", "validation"),
            columns=("question_id", "question", "question_source", "answer"),
            read=readers.triviaqa,
            forms=(False,),
        ),
        Benchmark(
            *("sciq", "allenai/sciq", "default", "train"),
            columns=("question", "correct_answer", "distractor1", "distractor2", "distractor3"),
            read=readers.sciq,
            forms=(False, True),
        ),
        Benchmark(
            *("bigbench", "hails/bigbench", _OF_TASK, "default"),
            columns=("inputs", "targets", "multiple_choice_targets", "multiple_choice_scores"),
            read=readers.bigbench,
            forms=(True, False),
            has_tasks=True,
        ),
        Benchmark(
            *("openbookqa", "allenai/openbookqa", "main", "train"),
            columns=("id", "question_stem", "choices", "answerKey"),
            read=readers.openbookqa,
            forms=(True,),
        ),
        Benchmark(
            *("mmlu", "cais/mmlu", "all", "test"),
            columns=("question", "subject", "choices", "answer"),
            read=readers.mmlu,
            forms=(True,),
        ),
    )
}


def load(
    name: str,
    *,
    split: str | None = None,
    tasks: Sequence[str] = (),
    choices: bool | None = None,
    source: str | None = None,
    revision: str | None = None,
) -> Gathered:
    """Load a benchmark from the Hugging Face hub, or from where the package `datasets` has kept it before.

    Needs ``pip install 'qacal[hub]'``. The licences of the data are their own; look at their pages on the hub.

    name : triviaqa, sciq, bigbench, openbookqa or mmlu.
    split : another one than the paper's; also a slice as `datasets` knows it: ``"train[:1000]"``.
    tasks : of bigbench, which ones.
    choices : False asks bigbench without its choices, as in the paper; True asks sciq with them.
    source : another copy of the data, of the same shape: a name on the hub, or a folder.
    revision : a branch, tag or commit on the hub, so that the data stay the same.

    >>> load("bigbench")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: bigbench is made of some 160 tasks, and the paper does not say which it took; name yours:
    --task NAME, which may be repeated.
    """
    if name not in BENCHMARKS:
        raise InputError(f"{name!r} is not a benchmark; there are {', '.join(BENCHMARKS)}.")
    benchmark = BENCHMARKS[name]
    reader, configs = benchmark.reader(choices), benchmark.configs(tasks)
    place = _Place(source or benchmark.source, split or benchmark.split, revision)
    try:
        return gather(_rows(place, configs, benchmark.columns), reader)
    except QacalError as error:
        raise type(error)(f"{name}: {error}") from None


@dataclass(frozen=True)
class _Place:
    source: str
    split: str
    revision: str | None

    def __str__(self) -> str:
        return f"{self.source}{f' at {self.revision}' if self.revision else ''}"


def _rows(place: _Place, configs: dict[str, dict[str, str]], columns: Sequence[str]) -> Iterator[Row]:
    for config, further in configs.items():
        table = _table(place, config)
        missing = [column for column in columns if column not in table.column_names]
        if missing:
            raise InputError(
                f"{place}, {config}, has no column {missing[0]!r}; it has {', '.join(table.column_names)}. It may have "
                "changed since; ask for an earlier --revision."
            )
        # The others hold search results and whole articles.
        for row in table.select_columns(list(columns)):
            yield row | further


def _table(place: _Place, config: str) -> Any:
    datasets = optional_package("datasets", "hub")
    try:
        return datasets.load_dataset(place.source, config, split=place.split, revision=place.revision)
    except (datasets.exceptions.DatasetsError, OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        short = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]} ..."
        kind = ServerError if isinstance(error, ConnectionError) else InputError
        raise kind(f"{place}, {config}, split {place.split}, cannot be loaded. {short}. {_remedy(error)}") from None


def _remedy(error: Exception) -> str:
    if isinstance(error, OSError):
        return "Look whether the hub can be reached from here, or give a folder with a copy of the data: --from FOLDER."
    if isinstance(error, RuntimeError):
        return "Data that are loaded by a script may still be there as files: --revision refs/convert/parquet."
    return "Look at its page on the hub for what there is to load."
