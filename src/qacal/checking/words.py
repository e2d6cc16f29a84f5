"""A check as text for a terminal of 80 columns: the most important findings first, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from qacal.checking.findings import GAP, column_options
from qacal.checking.names import NEEDED
from qacal.errors import counted, some_of
from qacal.records.files import ending_of

if TYPE_CHECKING:
    from qacal.checking.others import UsefulColumn
    from qacal.checking.records_check import RecordsCheck

_WIDTH = 79
_SCALES = {"0-1": "0 to 1", "percent": "percents", "mixed": "mixed scales", "logarithms": "logarithms"}


def described(found: RecordsCheck) -> str:
    """Return a check as text."""
    parts = (_head(found), _findings(found), _command(found), _facts(found), _useful(found), _enough(found))
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))


def _head(found: RecordsCheck) -> Iterator[str]:
    labelled = "" if not found.labelled else f", {found.labelled:,} of them labelled, {found.accuracy:.0%} correct"
    yield from _wrapped(f"{found.origin}: {counted(found.rows, 'row')}{labelled}.")
    stops = sum(finding.stops for finding in found.findings)
    others = len(found.findings) - stops
    if found.is_fine:
        yield "No problems found."
        return
    said = [f"{counted(stops, 'problem')} would stop a fit"] if stops else []
    said += [f"{counted(others, 'other finding' if stops else 'finding')} to look at"] if others else []
    yield f"{'. '.join(said)}."


def _findings(found: RecordsCheck) -> Iterator[str]:
    for number, finding in enumerate(found.findings, 1):
        problem, *details = finding.problem.split("\n")
        yield from _wrapped(problem, f"{number}. ")
        for detail in details:
            yield from _wrapped(detail, "     ")
        yield from _wrapped(finding.remedy, "   To do: ")


def _command(found: RecordsCheck) -> Iterator[str]:
    if not found.is_file or "correct" not in {*found.columns, *found.candidates}:
        return
    first = ["once the rest is fixed"] if _is_stuck(found) else []
    first += [f"with each {GAP} filled in"] if found.candidates or "words" in _kinds(found) else []
    yield f"{', '.join(['To paste', *first])}:"
    qacal = "qacal" if found.encoding is None else f"qacal --encoding {_quoted(found.encoding)}"
    fit, kept = (f"{name}{ending_of(found.origin)}" for name in ("train", "test"))
    if found.origin == "standard input" or any(Path(path).exists() for path in (fit, kept)):
        yield from _command_line(f"{qacal} fit {_quoted(found.origin)} -o model", found.options)
        return
    # A fit on the whole file would leave no held-out rows. The parts are UTF-8 in any case.
    names = {**found.columns, **dict.fromkeys(found.candidates, GAP)}
    options = column_options({name: names[name] for name in ("id", "question") if names.get(name, name) != name})
    options += ["--skip-bad-rows bad_split.jsonl"] if _skips(found) and "bad_rows" in _kinds(found) else []
    yield from _command_line(f"{qacal} split {_quoted(found.origin)} -o {fit} --rest {kept}", options)
    yield from _command_line(f"qacal fit {fit} -o model", found.options)


def _command_line(command: str, options: Sequence[str]) -> Iterator[str]:
    line = f"    {command}"
    for option in options:
        if len(line) + len(option) > _WIDTH - 3:
            yield f"{line} \\"
            line = "       "
        line += f" {option}"
    yield line


def _is_stuck(found: RecordsCheck) -> bool:
    """Return whether options alone are not enough."""
    by_option = {"renamed_columns", "percents", "several_models", "words"} | ({"encoding"} if found.encoding else set())
    by_option |= {"bad_rows", "unlabelled"} if _skips(found) else set()
    by_option |= {"missing_columns"} if {*NEEDED} <= {*found.columns, *found.candidates} else set()
    return any(finding.stops and finding.kind not in by_option for finding in found.findings)


def _kinds(found: RecordsCheck) -> set[str]:
    return {finding.kind for finding in found.findings}


def _skips(found: RecordsCheck) -> bool:
    return any(option.startswith("--skip-bad-rows") for option in found.options)


def _quoted(name: str) -> str:
    from shlex import quote

    return "FILE" if name == "standard input" else quote(name)


def _facts(found: RecordsCheck) -> Iterator[str]:
    if not found.names:
        return
    yield "Contents:"
    own = [column if own == column else f"{column} ({own})" for column, own in found.columns.items()]
    yield from _wrapped(", ".join(own) or "none of the standard ones", "    columns     ")
    others = [name for name in found.names if name not in found.columns.values()]
    if others:
        yield from _wrapped(some_of(others, 15), "    others      ")
    if found.questions is not None:
        yield f"    questions   {found.questions:,} different ones"
    if found.scale.kind is not None:
        yield from _wrapped(_confidence(found), "    confidence  ")


def _confidence(found: RecordsCheck) -> str:
    scale, ranking = found.scale, found.auroc
    kind = f"grades up to {scale.most:g}" if scale.kind == "grades" else _SCALES.get(str(scale.kind), str(scale.kind))
    text = kind if scale.kind == "words" else f"{kind}, {scale.low:g} to {scale.high:g} seen"
    if ranking is None:
        return text
    how = f"a correct answer has a higher one than a wrong answer in {ranking.value:.0%} of pairs"
    return f"{text}; {how} (AUROC {ranking.value:.2f}, {ranking.low:.2f} to {ranking.high:.2f})"


def _useful(found: RecordsCheck) -> Iterator[str]:
    if found.useful:
        yield "Columns that a fit could use:"
    for column in found.useful:
        yield from _wrapped(_use(column), "    ")


def _use(column: UsefulColumn) -> str:
    if column.auroc is not None:
        span = f"AUROC {column.auroc.value:.2f}, {column.auroc.low:.2f} to {column.auroc.high:.2f}"
        return f"{column.name}, another confidence ({span}): {column.options[0]}"
    if column.use == "vectors":
        return f"{column.name}, vectors of the texts: {column.options[0]}"
    shares = f"{column.values} values, {column.low:.0%} to {column.high:.0%} correct"
    effect, partition = column.options
    return f"{column.name} ({shares}): {effect} adds it to the score, {partition} makes groups of it"


def _enough(found: RecordsCheck) -> Iterator[str]:
    if not found.goals:
        return
    whose = "" if found.fewest is None else f" ({found.fewest[0]} has the fewest: {found.fewest[1]:,})"
    yield from _wrapped(f"{counted(found.labelled, 'label')}{whose}. What they are enough for:")
    for goal in found.goals:
        if goal.is_met:
            yield from _wrapped(f"{goal.what} ({goal.labels:,})", "    yes  ")
        elif goal.labels is None:
            yield from _wrapped(f"{goal.what}: impossible with the stated confidence alone", "    no   ")
        else:
            yield from _wrapped(f"{goal.what}: needs about {goal.labels:,}, {goal.more:,} more", "    no   ")


def _wrapped(text: str, opening: str = "") -> list[str]:
    """Return a text in lines, indented as far as the opening of the first line."""
    inset = " " * min(len(opening), 16)
    return wrap(text, _WIDTH, initial_indent=opening, subsequent_indent=inset, break_on_hyphens=False)
