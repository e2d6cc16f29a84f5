"""The benchmarks on the Hugging Face hub, and how to load them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import shorten

from qacal.embedders.base import optional_package
from qacal.errors import InputError, QacalError, ServerError
from qacal.sources.questions import benchmarks
from qacal.sources.questions.benchmarks import BenchmarkQuestion, Gathered, Row, gather

_LONGEST_REASON = 400


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on the hub.

    source, config, split : what to load; the split is the one with the paper's number of questions.
    columns : the columns to read.
    read : turns a row into a question.
    forms : whether it can be asked with choices, the usual form first.
    has_tasks : whether it consists of tasks, each a config; `config` is then the end of their names.
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
        """Return the reader of rows, with choices or without; None chooses the usual form."""
        if choices is not None and choices not in self.forms:
            what = "no choices" if choices else "no questions that could be asked without their choices"
            raise InputError(f"{self.name} has {what}; leave out --{'' if choices else 'no-'}choices.")
        return self.read if len(self.forms) == 1 or choices is None else partial(self.read, with_choices=choices)

    def configs(self, tasks: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the configs to load, each with further columns for its rows."""
        if not self.has_tasks and tasks:
            raise InputError(f"{self.name} does not consist of tasks; leave out --task {tasks[0]}.")
        if not self.has_tasks:
            return {self.config: {}}
        if not tasks:
            raise InputError(
                f"{self.name} consists of some 160 tasks, and the paper does not say which it used; name yours: "
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
            read=benchmarks.triviaqa,
            forms=(False,),
        ),
        Benchmark(
            *("sciq", "allenai/sciq", "default", "train"),
            columns=("question", "correct_answer", "distractor1", "distractor2", "distractor3"),
            read=benchmarks.sciq,
            forms=(False, True),
        ),
        Benchmark(
            *("bigbench", "hails/bigbench", "_zero_shot", "default"),
            columns=("inputs", "targets", "multiple_choice_targets", "multiple_choice_scores"),
            read=benchmarks.bigbench,
            forms=(True, False),
            has_tasks=True,
        ),
        Benchmark(
            *("openbookqa", "allenai/openbookqa", "main", "train"),
            columns=("id", "question_stem", "choices", "answerKey"),
            read=benchmarks.openbookqa,
            forms=(True,),
        ),
        Benchmark(
            *("mmlu", "cais/mmlu", "all", "test"),
            columns=("question", "subject", "choices", "answer"),
            read=benchmarks.mmlu,
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
    """Load a benchmark from the Hugging Face hub, or from the cache of the package `datasets`.

    Needs ``pip install -e '.[hub]'``. Each benchmark has its own licence: see its page on the hub.

    name : triviaqa, sciq, bigbench, openbookqa or mmlu.
    split : another one than the paper's; also a slice as `datasets` knows it: ``"train[:1000]"``.
    tasks : the tasks of bigbench to load.
    choices : False asks bigbench without its choices, as in the paper; True asks sciq with them.
    source : another copy of the data, of the same shape: a name on the hub, or a folder.
    revision : a branch, tag or commit on the hub, so that the data stay the same.

    >>> load("bigbench")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: bigbench consists of some 160 tasks, and the paper does not say which it used; name yours:
    --task NAME, which may be repeated.
    """
    if name not in BENCHMARKS:
        raise InputError(f"{name!r} is not a benchmark; there are {', '.join(BENCHMARKS)}.")
    benchmark = BENCHMARKS[name]
    reader, configs = benchmark.reader(choices), benchmark.configs(tasks)
    rows = _rows(configs, benchmark.columns, source or benchmark.source, split or benchmark.split, revision)
    try:
        return gather(rows, reader)
    except QacalError as error:
        raise type(error)(f"{name}: {error}") from None


def _rows(
    configs: dict[str, dict[str, str]], columns: Sequence[str], source: str, split: str, revision: str | None
) -> Iterator[Row]:
    datasets = optional_package("datasets", "hub")
    for config, further in configs.items():
        place = f"{source}{f' at {revision}' if revision else ''}, {config}"
        try:
            table = datasets.load_dataset(source, config, split=split, revision=revision)
        except (datasets.exceptions.DatasetsError, OSError, ValueError, RuntimeError) as error:
            remedy = "Look at its page on the hub for what there is to load."
            if isinstance(error, OSError):
                remedy = "Can the hub be reached from here? A folder with a copy of the data will do: --from FOLDER."
            elif isinstance(error, RuntimeError):
                remedy = "Data that a script loads may also be there as files: --revision refs/convert/parquet."
            reason = shorten(str(error).strip().partition("\n")[0].rstrip("."), _LONGEST_REASON)
            kind = ServerError if isinstance(error, ConnectionError) else InputError
            raise kind(f"{place}, split {split}, cannot be loaded. {reason}. {remedy}") from None
        missing = [column for column in columns if column not in table.column_names]
        if missing:
            raise InputError(
                f"{place}, has no column {missing[0]!r}; it has {', '.join(table.column_names)}. The data may have "
                "changed; ask for an earlier --revision."
            )
        # Other columns have search results and whole articles.
        for row in table.select_columns(list(columns)):
            yield row | further
