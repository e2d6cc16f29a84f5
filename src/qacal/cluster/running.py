"""Run jobs over files: all their parts, what to tell about them, and a fit that is made of jobs.

A fit of text at scale has four steps. 1. A random sample of the questions is gathered. 2. It trains groups and score
and fixes bands and groups, as any fit does. 3. All other labelled rows are counted by these. 4. The ordinary solver
certifies bands and groups on the cells, together with the rows of the sample that may certify.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.cluster.engines import Engine, UnfinishedError, run
from qacal.cluster.jobs import Job, Worker, model_files
from qacal.cluster.parts import LARGE, LARGE_ON_GRID, Part, absolute, expanded, parts_of, remove_stale, require_apart
from qacal.embedders import embedder
from qacal.errors import InputError, QacalError, QacalWarning, counted, some_of
from qacal.model.defaults import SHARE_OF_FIRST, default_pipeline, features_of, share_to_train
from qacal.model.fitting import FitInputs, Split
from qacal.model.pipeline import Progress
from qacal.model.samples import MOST_CELLS
from qacal.model.tallies import Counted, fit_column, recertified
from qacal.records.reading import ReadAs, Reading, read
from qacal.records.table import FrameTable
from qacal.records.tallying import is_labelled
from qacal.records.writers import PARTS
from qacal.storage import version_of
from qacal.tally.cells import grid_steps
from qacal.tally.ids import surplus

if TYPE_CHECKING:
    import polars as pl

    from qacal.model.model import QACalibrator

SAMPLE_ROWS = 50_000
"""How many labelled rows a fit at scale trains on: as many as a score reads at most."""
_MOST_LINES, _MOST_ALIKE = 10, 3
_NUMBER = re.compile(r"\d+([.,]\d+)*")


@dataclass(frozen=True)
class Where:
    """Where a job runs, and who is told about it.

    progress : called with the name of the step and the number of rows.
    on_total : called with the number of rows of a step when it begins, and with None when it ends.
    on_bad : called with each bad row, as an object.
    works : for each step whose parts are all done, the tally or model that they are for.
    """

    engine: Engine = "local"
    address: str | None = None
    progress: Progress | None = None
    on_total: Callable[[int | None], None] = lambda rows: None
    on_bad: Callable[[dict[str, Any]], None] | None = None
    works: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """What a job did.

    rows, written, bad : of all parts; `written` are rows of outputs.
    old : the parts that an earlier run had done.
    notes : what to tell about files, in a line for each kind of note.
    counted : the cells of a tally that has a single part, if they are not in a file.
    sampled : the rows of the sample that a fit was trained on; 0 if all rows train.
    """

    parts: list[Part]
    rows: int = 0
    written: int = 0
    bad: int = 0
    old: int = 0
    notes: list[str] = field(default_factory=list)
    counted: Counted | None = None
    sampled: int = 0


class FailedFilesError(UnfinishedError):
    """Some files could not be processed.

    outcome : of the others.
    errors : what is wrong with each file.
    """

    def __init__(self, text: str, outcome: Outcome, errors: dict[str, str]) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.errors = errors


def run_job(job: Job, files: Sequence[str], output: str, where: Where) -> Outcome:
    """Do a job over all parts of files, with a file in the folder `output` for each; raise at the end for bad files."""
    if job.resolution is not None:
        grid_steps(job.resolution)  # it checks the resolution
    require_apart(files, output)
    output = absolute(output)
    times = 1
    if job.kind == "tally" and job.model is None:
        times = LARGE if job.resolution is None or where.engine != "local" else LARGE_ON_GRID
    named = expanded(files)
    parts, errors = parts_of(named, output, by_path=job.kind in ("tally", "sample"), times=times)
    paths = {part.path for part in parts}
    empty = [path for path in named if path not in paths and path not in errors]
    orphans = remove_stale(parts, output, job.kind, empty)
    step = {"embed": "embedding", "apply": "calibrating", "tally": "counting", "sample": "sampling"}[job.kind]
    outcome, done = Outcome(parts), 0

    def take(result: dict[str, Any]) -> None:
        nonlocal done
        done += result.get("rows", 0)
        for row in result.pop("faults", ()):
            if where.on_bad is not None:
                where.on_bad(row)
        if where.progress is not None:
            where.progress(step, done)

    where.on_total(sum(part.rows for part in parts))
    # The cells of a single part are the whole tally; to write and to read them again takes longer than to count.
    keeps = len(parts) == 1 and not errors
    if job.kind == "embed" and where.engine != "local":
        embedder(job.embedder or "static")  # what is wrong with it is told here, once
    results = run(job, parts, where.engine, where.address, take, keeps=keeps) if parts else []
    where.on_total(None)
    notes, of_fit = list[tuple[str, str]](), list[str]()
    for part, result in zip(parts, results, strict=True):
        if "error" in result:
            errors[part.path] = result["error"]
            of_fit += [result["error"]] * result["is_of_fit"]
            continue
        outcome.rows += result["rows"]
        outcome.written += result.get("written", 0)
        outcome.bad += result["bad"]
        outcome.old += bool(result.get("is_old"))
        notes += [(part.path, text) for text in result.get("notes", ())]
        outcome.counted = result.get("counted")
    outcome.notes += _grouped(notes, len(paths))
    has_outputs = job.kind in ("apply", "embed")
    if empty and has_outputs:
        outcome.notes.insert(
            0, f"{len(empty):,} of {len(named):,} files without rows, so without output: {some_of(empty)}."
        )
    if orphans and has_outputs:
        of = "is of an input that no longer exists" if len(orphans) == 1 else "are of inputs that no longer exist"
        files_in = f"{counted(len(orphans), 'file')} in {output} {of}: {some_of(orphans)}"
        outcome.notes.insert(0, f"{files_in}. Remove outputs whose rows are elsewhere now.")
    for text in outcome.notes[:_MOST_LINES]:
        warnings.warn(text, QacalWarning, stacklevel=2)
    if len(outcome.notes) > _MOST_LINES:
        warnings.warn(f"{len(outcome.notes) - _MOST_LINES:,} more notes.", QacalWarning, stacklevel=2)
    if of_fit:
        where.works.append(output.removesuffix(f"{PARTS}/cells"))
        raise InputError(
            f"Rows of the fit are in {len(of_fit):,} of {len(parts):,} parts of the files, such as:\n  {of_fit[0]}\n"
            "Other files may have some, too, since the model stores only a sample of its questions. So it does not "
            "help to remove these files."
        )
    if errors:
        text = _problems(errors, len(paths | {*errors}), None if has_outputs else os.path.dirname(output))
        raise FailedFilesError(text, outcome, errors)
    return outcome


def _alike(texts: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Return texts by path, those together that differ at most in numbers."""
    groups: dict[str, dict[str, str]] = {}
    for path, text in texts:
        groups.setdefault(_NUMBER.sub("0", text.replace(path, "")), {}).setdefault(path, text)
    return list(groups.values())


def _grouped(notes: Iterable[tuple[str, str]], files: int) -> list[str]:
    """Return notes with their files, if there are several; the first of those that are alike."""
    grouped = []
    for texts in _alike(notes):
        path, text = next(iter(texts.items()))
        of = path if len(texts) == 1 else f"{len(texts):,} of {files:,} files, such as {path}"
        grouped.append(text if files == 1 or (len(texts) == 1 and text.startswith(path)) else f"{of}: {text}")
    return grouped


def _problems(errors: dict[str, str], files: int, work: str | None) -> str:
    """Say which files have errors; `work` is the folder of the parts, if the job has one result for all files."""
    texts = []
    for found in _alike(errors.items()):
        first = [text if text.startswith(path) else f"{path}: {text}" for path, text in found.items()]
        if len(found) == files > 1:
            texts.append(f"all {files:,} files, the first: {first[0]}")
        elif len(found) > _MOST_ALIKE:
            texts.append(f"{some_of([*found], _MOST_LINES)}, the first: {first[0]}")
        else:
            texts += first
    listed = "\n".join(f"  {text}".replace("\n", "\n  ") for text in texts[:_MOST_LINES])
    more = f"\n  and {len(texts) - _MOST_LINES:,} more" if len(texts) > _MOST_LINES else ""
    if files == len(errors):
        which = "The file could not" if files == 1 else f"None of {files:,} files could"
        rest = "Correct the files or the options, and start the command again."
    else:
        which = f"{len(errors):,} of {files:,} files could not"
        waits = f", and wait in {work}; the result needs all files, and is not written" if work else ""
        rest = (
            f"All others are done{waits}. Fix or remove these, and start the command again: it does only what is left."
        )
    return f"{which} be processed:\n{listed}{more}\n{rest}"


def count(
    job: Job, files: Sequence[str], output: str, where: Where, most: int | None = None
) -> tuple[Counted, Outcome]:
    """Count the labelled rows of files; the cells of each of several parts are in a folder beside the output.

    most : as in :meth:`Counted.sum`.
    """
    outcome = run_job(job, files, f"{output.rstrip('/')}{PARTS}/cells", where)
    where.works.append(output)
    kept = None if outcome.counted is None else [outcome.counted]
    name = output if most is None and job.model is None and job.ids != "documents" else ""

    def read_cells(part: Part) -> Counted:
        with suppress(OSError):
            if part.noted(job.key) is not None:
                return Counted.read(part.output)
        raise UnfinishedError(
            f"{part.output} is of another command, which has the same output {output}. Start this one again when that "
            "one has ended, or choose another output."
        )

    return Counted.sum(kept or map(read_cells, outcome.parts), most, name), outcome


def fit_files(
    model: QACalibrator,
    files: Sequence[str],
    output: str,
    job: Job,
    where: Where,
    *,
    sample_rows: int = SAMPLE_ROWS,
    allow_mixed: bool = False,
) -> tuple[QACalibrator, Outcome]:
    """Fit a model to the labelled rows of many files.

    output : where the model will be saved; a folder beside it has the work that is done.
    job : how to read rows, and what to do about ids.
    """
    from qacal.partitions import Column, as_partition

    work = output.rstrip("/") + PARTS
    if model.partition is not None and isinstance(column := as_partition(model.partition), Column):
        counted, outcome = count(replace(job, kind="tally", groups=column.name), files, output, where, MOST_CELLS)
        read_as = ReadAs(dict(job.columns), job.percent, dict(job.expressions))
        return fit_column(model, counted, allow_mixed=allow_mixed, read_as=read_as), outcome
    reading = Reading(dict(job.columns), job.percent, expressions=dict(job.expressions))
    labelled = _labelled(expanded(files), reading.name("correct"))
    share = min(1.0, sample_rows / max(labelled, 1))
    pipeline = default_pipeline(model)
    needs = replace(pipeline, features=features_of(model, pipeline).named).needs
    drawn = run_job(replace(job, kind="sample", sample=share, needs=needs), files, f"{work}/sample", where)
    where.works.append(output)
    sample = _gathered(drawn.parts)
    is_whole = share == 1.0
    table = FrameTable("the sample", "row", np.arange(1, sample.height + 1), sample)
    if job.ids == "check" and _repeats_ids(table, reading):
        job = replace(job, ids="documents")  # as in a fit of a single file
    inputs = FitInputs(sample, reading, allow_mixed=allow_mixed, rows_to_certify=None if is_whole else labelled)
    fitted = model._fit_inputs(inputs, where.progress)
    if is_whole:
        return fitted, drawn
    if fitted.calibrator_.properties.is_certified is False or fitted.tuned_ is not None:
        raise InputError(
            "a fit on a sample needs a calibrator that certifies, and no --tune (in Python: tune=None); or a "
            "larger --sample-rows (in Python: sample_rows=)."
        )
    fitted.save(f"{work}/model")
    version = version_of(f"{work}/model")
    counting = replace(job, kind="tally", sample=share, embedder=_name_of(model), **model_files(f"{work}/model"))
    rest, outcome = count(counting, files, output, where)
    # The split of the fit: of the sample, the part that made bands and groups does not certify.
    has_first = fitted.pipeline_.first is not None
    rows, has_score = fitted.overviews_[0].rows, fitted.pipeline_.score is not None
    trained = share_to_train(model, rows, has_score=has_score, has_margins=has_first)
    split = Split(trained, model.seed, SHARE_OF_FIRST if has_first else None)
    own = Worker(counting).counted(table, reading, split)
    outcome.sampled = sample.height
    return recertified(fitted, version, Counted.sum([own, rest]), allow_mixed=allow_mixed), outcome


@contextmanager
def removing_useless(where: Where) -> Iterator[None]:
    """Remove the parts of a tally or a fit if it fails by what is in them: to start it again would not help."""
    try:
        yield
    except UnfinishedError:
        raise
    except QacalError:
        for output in where.works:
            clean_up(output)
        raise


def clean_up(output: str) -> None:
    """Remove what a tally or a fit kept beside its output, once this is written; files of others stay."""
    work = output.rstrip("/") + PARTS
    for name in ("cells", "sample", "model"):
        shutil.rmtree(f"{work}/{name}", ignore_errors=True)
    with suppress(OSError):  # somebody else's files are in it
        os.rmdir(work)


def _labelled(files: Iterable[str], correct: str) -> int:
    """Return the number of labelled rows."""
    import polars as pl

    total = 0
    for path in files:
        try:
            scan = pl.scan_parquet(path, glob=False)
            total += int(scan.select(is_labelled(correct, scan.collect_schema()).sum()).collect().item())
        except (pl.exceptions.PolarsError, OSError, KeyError):
            continue  # the job names it
    return total


def _gathered(parts: Sequence[Part]) -> pl.DataFrame:
    """Return the rows of a sample, in the order of the files."""
    import polars as pl

    frames = [pl.read_parquet(part.output, glob=False) for part in parts]
    frames = [frame for frame in frames if frame.height]
    if not frames:
        raise InputError(
            "the sample has no row: none has a label, or --sample-rows (in Python: sample_rows=) is too small for them."
        )
    return pl.concat(frames, how="diagonal_relaxed")


def _repeats_ids(sample: FrameTable, reading: Reading) -> bool:
    """Return whether labelled rows share an id; all rows of an id are in a sample, or none."""
    bad_too = replace(reading, on_fault=lambda fault: None, max_bad=1.0)
    batches = read(sample, bad_too, needs_labels=True, needs_text=False, warns=False)
    ids = np.concatenate([batch.ids for batch in batches if batch.ids is not None] or [np.empty(0, np.uint64)])
    return surplus(ids) > 0


def _name_of(model: QACalibrator) -> str | None:
    """Return the embedder to load by name; workers load built-in ones and columns by the model alone."""
    name = str(model.embedder)
    return name if name.startswith(("hf:", "onnx:")) else None
