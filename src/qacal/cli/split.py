"""`qacal split`: two files that share no question, one for training and one for evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options
from qacal.errors import InputError, counted

if TYPE_CHECKING:
    from qacal.records.files import File
    from qacal.records.reading import Reading
    from qacal.records.table import Table
    from qacal.tally.arrays import Hashes


def run(
    file: options.Rows,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Training rows: .parquet, .jsonl or .csv.")
    ],
    rest: Annotated[str, typer.Option("--rest", metavar="FILE", help="Held-out rows.")],
    share: Annotated[float, typer.Option(help="Share of the questions for training.")] = 0.7,
    seed: Annotated[int, typer.Option(help="Random seed of the split.")] = 0,
    json: options.Json = False,
    column: options.Columns = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Split rows into two files that share no question.

    All rows of a question go to the same file: those with the same id, or with the same text if there is no column id.
    A hash decides, so a question always goes to the same side, in any order and any file. Rows and columns do not
    change, and CSV keeps its separator. If one file cannot be written, neither is.

    \b
        qacal split answers.parquet -o train.parquet --rest test.parquet
        qacal fit train.parquet -o model
        qacal evaluate test.parquet --model model
    """
    from qacal.records.writers import output_format

    if not 0 < share < 1:
        raise typer.BadParameter(f"--share is {share:g}; expected a number between 0 and 1.")
    if "-" in (output, rest):
        raise typer.BadParameter("two files are written; name both instead of -.")
    options.require_apart(file, output, rest, skip_bad_rows)
    for path in (output, rest):
        options.require_writable(path)
    with options.input_rows(file, column, False, skip_bad_rows, max_bad) as (rows, reading, _):
        for path in (output, rest):
            if rows.format == "csv" and output_format(path, "csv") != "csv":
                raise typer.BadParameter(
                    f"CSV does not distinguish numbers from text, so {path} would not have the same rows; name a file "
                    "that ends in .csv."
                )
        parts = _write(rows, reading, (output, rest), (share, 1 - share), seed)
    if json:
        print(options.json_text(dict(zip(("output", "rest"), parts, strict=True))))
        return
    for part in parts:
        options.note(f"{part['file']}: {counted(part['rows'], 'row')} of {counted(part['questions'], 'question')}.")


def _write(
    rows: File, reading: Reading, paths: tuple[str, str], shares: tuple[float, float], seed: int
) -> list[dict[str, Any]]:
    """Write both files, and return their names with the numbers of rows and questions."""
    import numpy as np

    from qacal.records.writers import write_pair
    from qacal.tally.ids import id_hashes, split

    written: tuple[list[Hashes], list[Hashes]] = ([], [])
    with write_pair(*paths, rows.format, rows.separator()) as writers:
        for table, questions in _with_questions(rows, reading):
            hashes, sides = id_hashes(questions, len(table)), split(questions, shares, seed)
            for number, writer in enumerate(writers):
                is_here = sides == number
                if is_here.any():
                    writer.write(table.only(is_here))
                    written[number].append(hashes[is_here])
        for path, parts in zip(paths, written, strict=True):
            if not parts:
                if len({question for one in written for hashes in one for question in hashes.tolist()}) > 1:
                    raise InputError(
                        f"{rows.name}: all questions fall on one side, as in a file that an earlier split with this "
                        "seed wrote; pass another --seed. Nothing was written."
                    )
                raise InputError(
                    f"{rows.name}: no question is left for {path}, so nothing was written. Use more rows, or "
                    "another --share or --seed."
                )
    every = [np.concatenate(parts) for parts in written]
    return [
        {"file": path, "rows": len(hashes), "questions": len(np.unique(hashes))}
        for path, hashes in zip(paths, every, strict=True)
    ]


def _with_questions(rows: File, reading: Reading) -> Iterator[tuple[Table, list[Any]]]:
    """Yield the rows in batches, each with the ids of its questions (or their texts)."""
    import numpy as np

    from qacal.records.columns import asked_in, listed
    from qacal.records.reading import tables_of
    from qacal.tally.arrays import is_missing

    name = None
    for table, counting in tables_of(rows, reading):
        name = _question_column(table, reading, name)
        chats = ((one, asked_in(one)) for one in listed(table.column(name)))
        questions = [one if chat is None else chat[1] for one, chat in chats]
        # Missing values and empty text do not identify a question.
        are_good = np.array([type(one) in (str, int) and one != "" for one in questions], dtype=bool)
        for row in np.flatnonzero(~are_good).tolist():
            is_gone = is_missing(questions[row])
            problem = f"{name} is {'missing' if is_gone else repr(questions[row])}; expected text or a whole number."
            counting.on_fault(table.fault(row, problem, f"no {name}" if is_gone else f"invalid {name}"))
        if are_good.any():
            yield table.only(are_good), [questions[row] for row in np.flatnonzero(are_good).tolist()]


def _question_column(table: Table, reading: Reading, before: str | None) -> str:
    """Return the column that identifies questions; the first batch decides.

    before : the column of the earlier batches.
    """
    identity, question = reading.name("id"), reading.name("question")
    if before is not None:
        if before != identity and identity in table.names:
            raise InputError(f"{table.origin}: only some rows have an {identity}; give all of them one, or none.")
        return before
    if "id" in reading.columns:
        table.require(identity, f"--column id={identity} asks for it.")
        return identity
    if identity in table.names:
        return identity
    table.require(question, "Rows are kept together by id or question; for another name, --column question=NAME.")
    return question
