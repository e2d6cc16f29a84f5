"""Print a check on 80 columns: the findings with their remedies, commands to paste, and facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING

from qacal.checking.findings import GAP, column_options
from qacal.errors import counted, some_of
from qacal.records.writers import free_name, held_out_name, split_names

if TYPE_CHECKING:
    from qacal.checking.records_check import RecordsCheck

_WIDTH = 79
_SCALES = {"0-1": "scale 0 to 1", "percent": "percents", "mixed": "mixed scales", "logarithms": "logarithms"}
# Options of the command line, and what to pass in Python instead; that may contain two levels of parentheses.
_OPTION = r"--[a-z-]+(?: (?:'[^'\n]*'|[^\s(-]\S*))?"
_HINT = r" \(in Python: ((?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*)\)"
_OPTIONS = re.compile(f"{_OPTION}(?: {_OPTION})*{_HINT}")
_ARGUMENTS = {"--feature": "features=[{!r}]", "--partition": "partition={!r}", "--embedder": "embedder={!r}"}


def for_python(text: str) -> str:
    """Return a text with arguments of Python in place of the options of the command line.

    >>> for_python("Pass --percent (in Python: percent=True), or --column answer=NAME (in Python: columns).")
    'Pass percent=True, or the argument columns.'
    >>> for_python("--partition column:topic")
    "partition='column:topic'"
    """
    option, _, value = text.partition(" ")
    if option in _ARGUMENTS:
        return _ARGUMENTS[option].format(value)
    return _OPTIONS.sub(lambda found: f"the argument {found[1]}" if found[1].isidentifier() else found[1], text)


def described(checked: RecordsCheck, edited: Callable[[str], str]) -> str:
    """Return a check as text for a terminal.

    edited : changes options and the texts of findings before lines are wrapped: for a shell or for Python.
    """
    parts = (
        _head(checked),
        _findings(checked, edited),
        _command(checked),
        _facts(checked),
        _useful(checked, edited),
        _enough(checked),
    )
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))


def _head(checked: RecordsCheck) -> Iterator[str]:
    labelled = f", {checked.labelled:,} usable with a label, {checked.accuracy:.0%} correct" if checked.labelled else ""
    yield from _wrapped(f"{checked.origin}: {counted(checked.rows, 'row')}{labelled}.")
    if checked.is_fine:
        yield "No problems found."
        return
    stops = sum(finding.stops for finding in checked.findings)
    others = len(checked.findings) - stops
    counts = [f"{counted(stops, 'problem')} would stop a fit"] if stops else []
    counts += [f"{counted(others, 'other finding' if stops else 'finding')} to look at"] if others else []
    yield f"{'. '.join(counts)}."


def _findings(checked: RecordsCheck, edited: Callable[[str], str]) -> Iterator[str]:
    for number, finding in enumerate(checked.findings, 1):
        problem, *details = edited(finding.problem).split("\n")
        yield from _wrapped(problem, f"{number}. ")
        for detail in details:
            yield from _wrapped(detail, "     ")
        yield from _wrapped(edited(finding.remedy), "   To do: ")


def _command(checked: RecordsCheck) -> Iterator[str]:
    kinds = {finding.kind for finding in checked.findings}
    if not checked.is_file or not checked.names or "few_labels" in kinds:
        return
    skips = any(option.startswith("--skip-bad-rows") for option in checked.options)
    by_option = {"renamed_columns", "percents", "several_models", "words"}
    by_option |= {"bad_rows"} if skips else set()
    is_stuck = any(finding.stops and finding.kind not in by_option for finding in checked.findings)
    first = ["once the rest is fixed"] if is_stuck else []
    first += [f"with each {GAP} filled in"] if "words" in kinds else []
    yield f"{', '.join(['Next', *first])}:"
    qacal = "qacal" if checked.encoding is None else f"qacal --encoding {quote(checked.encoding)}"
    is_stdin, held_out = checked.origin == "standard input", held_out_name(checked.origin)
    if is_stdin or (held_out is not None and Path(held_out).exists()):
        file = "FILE" if is_stdin else quote(checked.origin)
        yield from _command_line(f"{qacal} fit {file} -o model", checked.options)
        return
    # A fit on the whole file would leave no held-out rows. The parts are UTF-8 in any case.
    train, test = map(quote, split_names(checked.origin))
    names = checked.columns
    options = column_options({name: names[name] for name in ("id", "question") if names.get(name, name) != name})
    options += [f"--skip-bad-rows {free_name('bad_split.jsonl')}"] if skips and "bad_rows" in kinds else []
    yield from _command_line(f"{qacal} split {quote(checked.origin)} -o {train} --rest {test}", options)
    yield from _command_line(f"qacal fit {train} -o model", checked.options)


def _command_line(command: str, options: Sequence[str]) -> Iterator[str]:
    line = f"    {command}"
    for option in options:
        if len(line) + len(option) > _WIDTH - 3:
            yield f"{line} \\"
            line = "       "
        line += f" {option}"
    yield line


def _facts(checked: RecordsCheck) -> Iterator[str]:
    if not checked.names:
        return
    yield "Contents:"
    columns = [column if name == column else f"{column} ({name})" for column, name in checked.columns.items()]
    yield from _wrapped(", ".join(columns) or "none of the standard ones", "    columns     ")
    others = [name for name in checked.names if name not in checked.columns.values()]
    if others:
        yield from _wrapped(some_of(others, 15), "    others      ")
    if checked.questions is not None:
        yield f"    questions   {counted(checked.questions, 'different one')}"
    if checked.scale.kind is not None:
        yield from _wrapped(_confidence(checked), "    confidence  ")


def _confidence(checked: RecordsCheck) -> str:
    scale, ranking = checked.scale, checked.auroc
    kind = f"grades up to {scale.most:g}" if scale.kind == "grades" else _SCALES.get(str(scale.kind), str(scale.kind))
    text = kind if scale.kind == "words" else f"{kind}; values from {scale.low:g} to {scale.high:g}"
    if ranking is None:
        return text
    pairs = f"A correct answer has a higher one than a wrong answer in {ranking.value:.0%} of pairs"
    return f"{text}. {pairs} (AUROC {ranking.value:.2f}, {ranking.low:.2f} to {ranking.high:.2f})"


def _useful(checked: RecordsCheck, edited: Callable[[str], str]) -> Iterator[str]:
    if checked.useful:
        yield "Columns that a fit could use (if there are texts, it tries all but vectors):"
    for column in checked.useful:
        first, *others = map(edited, column.options)
        if column.auroc is not None:
            span = f"AUROC {column.auroc.value:.2f}, {column.auroc.low:.2f} to {column.auroc.high:.2f}"
            use = f", another confidence ({span}): {first}"
        elif column.use == "vectors":
            use = f", vectors of the texts: {first}"
        else:
            shares = f"{column.values} values, {column.low:.0%} to {column.high:.0%} correct"
            use = f" ({shares}): {first} adds it to the score, {others[0]} makes groups of it"
        yield from _wrapped(column.name + use, "    ")


def _enough(checked: RecordsCheck) -> Iterator[str]:
    if not checked.goals:
        return
    fewest = "" if checked.fewest is None else f" ({checked.fewest[0]} has the fewest: {checked.fewest[1]:,})"
    yield from _wrapped(f"{counted(checked.labelled, 'label')}{fewest}. What they are enough for:")
    for goal in checked.goals:
        if goal.is_met:
            need = f" ({goal.labels:,})"
        elif goal.labels is None:
            need = ": impossible with the stated confidence alone"
        else:
            need = f": needs about {goal.labels:,}, {goal.more:,} more"
        yield from _wrapped(goal.what + need, "    yes  " if goal.is_met else "    no   ")


def _wrapped(text: str, opening: str = "") -> list[str]:
    """Return the lines of a text; they are indented like the opening of the first line."""
    inset = " " * min(len(opening), 16)
    return wrap(text, _WIDTH, initial_indent=opening, subsequent_indent=inset, break_on_hyphens=False)
