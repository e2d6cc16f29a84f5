"""Run the protocol over blocks and seeds, and write the results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from qacal.calibrators.binning import Ties
from qacal.errors import InputError, counted
from qacal.experiment.groups import Beta
from qacal.experiment.protocol import MEANING, SEEDS, Protocol, deal, methods, require_enough, run_method
from qacal.experiment.sample import Sample, read_samples
from qacal.experiment.tables import COLUMNS, LABEL_COLUMNS, Table, escaped, tables
from qacal.model.pipeline import Progress
from qacal.partitions import Column, Partition, as_partition
from qacal.records.reading import Reading
from qacal.records.writers import naming_full_disk, plain_errors

if TYPE_CHECKING:
    import polars as pl

_TAKEN = (
    *("beta_emb", "beta_bin", "seed", "rows", "method", "groups", "cut", "depth", "points_per_bin", "tuning"),
    *("sharpness", "outputs", *(column.name for column in (*COLUMNS, *LABEL_COLUMNS))),
)
RESULTS = "results.parquet"
FILES = (RESULTS, "results.md", "report.html")

_EXPLANATION = """\
The questions of every block were split {splits} into four parts, 20:60:10:10. The first made the groups,
the second fitted the maps, the third chose groups and points per bin (b) by {objective}, and the fourth measured all
numbers below. The numbers are means over splits, ± 1.96 standard deviations / sqrt({seeds}), which shows
how much the split matters. The best of a column is in bold.

- CE(h;β), CE(h) and β-MCE are the paper's plug-in estimates, on groups that are the same for all methods. They are
  mostly noise: the noise floor is what a perfectly calibrated score with the same outputs would measure, and it grows
  with the number of outputs. Do not compare methods by them.
- Debiased errors exclude the noise, and are measured in the same number of bins for every method. At 0 or below, no
  error is visible. Compare methods by these, by Brier score and by log loss.
- AUAC is the accuracy above a threshold, averaged over thresholds; stretching scores raises it. AURC is the error rate
  of the accepted answers, averaged over the share accepted; it measures only ranking.
- {label}The columns groups (2^depth for a tree) and b are medians of the choices; results.parquet has every choice.
- {ties}

Calibrators: {methods}."""

_TIES = {
    "merge": "Equal confidences share a bin.",
    "jitter": "Bins order equal confidences by the hash of the id, as the paper's randomised ties do.",
}


@dataclass(frozen=True, eq=False)
class Experiment:
    """The results of a run.

    results : a line for every block, beta, seed and method.
    by : the columns that blocks are made by.
    notes : blocks that could not be run.
    ranges : for each block, which points per bin were tried, and what they guarantee.
    """

    results: pl.DataFrame
    by: tuple[str, ...]
    protocol: Protocol
    notes: tuple[str, ...]
    ranges: Mapping[tuple[Any, ...], str]
    samples: Mapping[tuple[Any, ...], Sample]
    betas: tuple[Beta, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that tell tables apart: `by`, and the columns of beta if there are several."""
        return (*self.by, *(("beta_emb", "beta_bin") if len(self.betas) > 1 else ()))

    def tables(self) -> list[Table]:
        """Return a table for every block and beta."""
        return tables(self.results, self.names, self.protocol.label)

    def overview(self) -> list[Table]:
        """Return the means over all blocks, for every beta; nothing for a single block."""
        if len(self.samples) == 1:
            return []
        return tables(self.results, self.names[len(self.by) :], self.protocol.label, has_spread=False)

    def markdown(self) -> str:
        """Return all tables as a page, with an explanation."""
        blocks = [f"{called(name, self.by)}: {text}" for name, text in self.ranges.items()]
        notes = "\n".join(f"- {escaped(note)}" for note in (*self.notes, *blocks))
        label = self.protocol.label
        explanation = _EXPLANATION.format(
            splits=counted(self.protocol.seeds, "time"),
            seeds=self.protocol.seeds,
            objective=self.protocol.objective.replace("_", " "),
            label="" if label is None else f"Errors by {label} are within a column that no method has seen. ",
            ties=_TIES[self.protocol.ties],
            methods=", ".join(f"{name} ({meaning})" for name, meaning in MEANING.items()),
        )
        parts = ["# Results", explanation, notes]
        overview = self.overview()
        if overview:
            parts += ["## All blocks", *(table.markdown() for table in overview), "## Each block"]
        parts += [table.markdown() for table in self.tables()]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: str | Path, pages: Mapping[str, str] | None = None) -> None:
        """Write results.parquet and results.md, and other pages by their names, into a folder; whole or not at all."""
        require_own_folder(folder)
        target = Path(os.path.realpath(folder))
        with naming_full_disk(target), plain_errors(), _replaced(target) as new:
            self.results.write_parquet(new / RESULTS)
            for name, text in {"results.md": self.markdown(), **(pages or {})}.items():
                (new / name).write_text(text, encoding="utf-8")


def require_own_folder(folder: str | Path) -> None:
    """Refuse to overwrite anything but the results of an experiment."""
    target = Path(os.path.realpath(folder))
    if not target.parent.is_dir():
        raise InputError(f"{folder}: the folder {target.parent} does not exist.")
    if target.exists() and not target.is_dir():
        raise InputError(f"{folder} is a file; the results of an experiment are a folder. Choose another name.")
    foreign = sorted({member.name for member in target.iterdir()} - {*FILES}) if target.exists() else []
    if foreign:
        raise InputError(
            f"{folder} holds files that are not results of an experiment ({', '.join(foreign[:5])}), so it is not "
            "replaced. Choose another name."
        )


@contextmanager
def _replaced(target: Path) -> Iterator[Path]:
    """Yield a new folder to fill; it replaces `target` once all is written, and is removed if that fails."""
    # Beside the target: renaming works only within one file system.
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as home:
        new, old = Path(home, "new"), Path(home, "old")
        new.mkdir()
        yield new
        if target.exists():
            os.rename(target, old)
        try:
            os.rename(new, target)
        except BaseException:
            if old.exists():
                os.rename(old, target)
            raise


def run_experiment(
    records: Any,
    *,
    by: Sequence[str] = (),
    label: str | None = None,
    embedders: Sequence[str] = ("static",),
    partitions: Sequence[str | Partition] = ("kdtree",),
    ties: Ties = "merge",
    seeds: int = SEEDS,
    objective: str = "log_loss",
    search: str = "auto",
    epsilon: float = 0.1,
    alpha: float = 0.1,
    allow_mixed: bool = False,
    reading: Reading | None = None,
    progress: Progress | None = None,
) -> Experiment:
    """Compare the paper's seven methods and two isotonic ones on labelled rows, by the paper's protocol.

    Parameters
    ----------
    records : as in :meth:`qacal.QACalibrator.fit`.
    by : columns, such as ("model", "dataset"); every combination of their values is a block of its own.
    label : a column such as the subject; errors are measured within it too. No method sees it.
    embedders, partitions : every combination is run; ``("static", "minilm")`` and ``("kdtree", "kmeans")`` are the
        appendix's 2 x 2. "kdtree:8", ``KDTree(max_depth=8)`` or "kmeans:32" say how deep, and how many groups, the
        search may go. "kdtree:10:coordinate" splits raw coordinates, as the paper does.
    ties : "merge" keeps equal confidences in one bin; "jitter" orders them by the hash of the id, as the paper's
        randomised ties do.
    seeds, objective, search, epsilon, alpha : see :class:`~qacal.experiment.protocol.Protocol`.
    allow_mixed : go on if rows of several LLMs are in one block.
    reading : how to read the records: their columns, percents, bad rows.
    """
    import polars as pl

    reading = reading or Reading()
    for parameter, values in {"by": by, "embedders": embedders, "partitions": partitions}.items():
        if not isinstance(values, list | tuple) or not (values or parameter == "by"):
            raise InputError(f"{parameter} is {values!r:.60}; expected a list, also of one.")
    taken = [name for name in by if name in _TAKEN]
    if taken:
        raise InputError(f"results have a column {taken[0]!r} of their own; rename yours to make blocks by it.")
    protocol = Protocol(search, objective, epsilon, alpha, label, ties, seeds)
    protocol.validate()
    embedders = list(dict.fromkeys(embedders))
    partitions = list({str(partition): partition for partition in partitions}.values())
    grouped_by = [partition.name for partition in map(as_partition, partitions) if isinstance(partition, Column)]
    if label in grouped_by:
        raise InputError(
            f"the groups are made of {label}; errors are measured within a column that no method has seen."
        )
    betas = [Beta(embedder, partition) for embedder in embedders for partition in partitions]
    columns = list(dict.fromkeys([*grouped_by, *([] if label is None else [label])]))
    samples = read_samples(
        records,
        reading,
        by=by,
        embedders=[] if len(grouped_by) == len(partitions) else list(embedders),
        columns=columns,
        allow_mixed=allow_mixed or "model" in by,
        progress=progress,
    )
    notes: list[str] = []
    usable = {}
    for name, sample in samples.items():
        if not len(sample):
            notes.append(f"{called(name, by)} was left out: all of its rows are bad.")
            continue
        try:
            require_enough(sample, protocol, columns)
            usable[name] = sample
        except InputError as error:
            if len(samples) == 1:
                raise
            notes.append(f"{called(name, by)} was left out: {error}")
    if not usable:
        raise InputError("no block can be run. " + " ".join(notes))
    ranges: dict[tuple[Any, ...], str] = {}
    lines: list[dict[str, Any]] = []
    for (name, sample), beta, seed in product(usable.items(), betas, range(seeds)):
        if progress is not None:
            progress(f"{called(name, by)}, seed {seed + 1} of {seeds}", len(sample))
        parts = deal(sample, beta, seed, protocol)
        ranges.setdefault(name, f"{len(sample):,} rows; {parts.search.ranges.note}.")
        # As text: one file may name blocks by numbers and by words.
        block = dict(zip(by, map(str, name), strict=True))
        common = {**block, "beta_emb": beta.embedder, "beta_bin": beta.name, "seed": seed, "rows": len(sample)}
        lines += [{**common, **run_method(parts, method, one)} for method, one in methods(ties).items()]
    results = pl.DataFrame(lines, infer_schema_length=None)
    return Experiment(results, tuple(by), protocol, tuple(notes), ranges, usable, tuple(betas))


def called(name: tuple[Any, ...], by: Sequence[str]) -> str:
    """Return a block's name for a person."""
    return ", ".join(f"{column} {value}" for column, value in zip(by, name, strict=True)) or "the rows"
