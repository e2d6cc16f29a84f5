"""Time and memory of tally, fit and apply over 10^6 to 10^8 generated rows, beside the least that any program would do.

    python -m benchmarks.scale --rows 1e6 1e7 1e8 --dir bench-data [--turns 5] [--texts FILE]

Each job runs in a process of its own. Its seconds leave out the start of Python; its memory is the peak of the process.
With --turns, a job and what it is compared with take turns, and the medians count. Results are kept in
DIR/results.json, so that a stopped run goes on where it was; delete that file to measure again.

- tally: `tally_files`, compared with a group-by-sum of polars over the same file (goal: at most twice as long);
- command: `qacal tally --groups topic --ids ignore`, compared with the same (goal: at most twice as long);
- fit: `QACalibrator(partition="column:topic")`, which has no goal but to be linear;
- apply: `qacal apply`, compared with reading its output and writing it with polars (goal: at most 3 times as long);
- text: `qacal apply` of the default model, compared with `qacal embed` of the same file (goal: at most 1.5 times as
  long), and with embedding its texts in memory, by qacal and by the package that the vectors come from;
- reading: `read` of JSON lines, written by polars and by Python, compared with Parquet (goal: at most twice as long).

Texts are short questions of the quiz, and with --texts also those of a Parquet file of yours, with the columns
question, answer, confidence and correct.

Nothing here fails when a goal is missed: machines are noisy. Processor seconds are less noisy than seconds if other
work runs at the same time, but count both cores of work that polars does in parallel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

GROUPS = 1024
VALUES = 51
RESOLUTION = 0.001
"""The grid for continuous confidences: without it, nearly every row would be a cell."""
KINDS = ("tied", "continuous")
TEXTS = 100_000
FITTED = 10_000
_ROWS_A_STEP = 2**20


# The rows


def generate(path: Path, rows: int, kind: str) -> None:
    """Write rows of 1,024 topics with their confidences and labels, few of them in memory at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng([20250101, rows])
    names = pa.array([f"topic {number:04}" for number in range(GROUPS)])
    schema = pa.schema({"topic": pa.string(), "confidence": pa.float64(), "correct": pa.int8()})
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, schema) as writer:
        for start in range(0, rows, _ROWS_A_STEP):
            count = min(_ROWS_A_STEP, rows - start)
            confidence = rng.beta(3.0, 1.5, count)
            if kind == "tied":
                confidence = np.rint(confidence * (VALUES - 1)) / (VALUES - 1)
            correct = (rng.random(count) < confidence**1.5).astype(np.int8)
            topic = pa.DictionaryArray.from_arrays(rng.integers(0, GROUPS, count).astype(np.int32), names)
            columns = [topic.cast(pa.string()), confidence, correct]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=_ROWS_A_STEP // 4)
    part.replace(path)


def generate_texts(folder: Path, source: Path | None) -> None:
    """Write question-answer pairs as Parquet and as JSON lines, and some to fit a model on.

    source : a Parquet file of them; None for those of the quiz, repeated.
    """
    import polars as pl

    from qacal.sources.questions.quiz import answers

    if source is None:
        quiz = answers()
        rows = pl.concat([quiz] * (TEXTS // len(quiz) + 1)).head(TEXTS)
        # Equal texts would be embedded once by some embedders.
        rows = rows.with_columns(pl.format("{} ({})", "question", pl.int_range(pl.len())).alias("question"))
    else:
        read = pl.read_parquet(source, columns=["question", "answer", "confidence", "correct"])
        rows = read.sample(min(len(read), TEXTS), shuffle=True, seed=1)
    rows = rows.with_columns(id=pl.int_range(pl.len()))
    folder.mkdir(exist_ok=True)
    rows.head(FITTED).write_parquet(folder / "texts_fit.parquet")
    rows.write_ndjson(folder / "texts.jsonl")
    with (folder / "python.jsonl").open("w") as lines:  # with spaces, and escapes for all that is not ASCII
        lines.writelines(f"{json.dumps(row)}\n" for row in rows.iter_rows(named=True))
    rows.write_parquet(folder / "texts.parquet")


# The jobs, each in a process of its own


def tally(path: str, kind: str) -> None:
    from qacal.records.tallying import tally_files

    tally_files(path, "topic", resolution=RESOLUTION if kind == "continuous" else None)


def command(path: str, kind: str, output: str) -> None:
    from qacal.cli.tally import run

    run([path], output, groups="topic", ids="ignore", resolution=RESOLUTION if kind == "continuous" else None)


def group_by_sum(path: str, kind: str) -> None:
    import polars as pl

    confidence = pl.col("confidence")
    if kind == "continuous":
        confidence = (confidence / RESOLUTION).round().cast(pl.UInt16)
    sums = pl.scan_parquet(path).group_by("topic", confidence).agg(pl.len(), pl.col("correct").cast(pl.Int64).sum())
    sums.collect(engine="streaming")


def fit(path: str, model: str) -> None:
    from qacal import QACalibrator

    QACalibrator(partition="column:topic").fit(path).save(model)


def apply(model: str, path: str, output: str) -> None:
    from qacal.cli.apply import run

    run(model, [path], output)


def read_write(path: str, output: str) -> None:
    import polars as pl

    pl.scan_parquet(path).sink_parquet(output)


def fit_texts(path: str, model: str) -> None:
    from qacal import QACalibrator

    QACalibrator().fit(path).save(model)


def embed_texts(path: str) -> None:
    import polars as pl

    from qacal.embedders import embedder

    static = embedder("static")
    for rows in pl.read_parquet(path, columns=["question", "answer"]).iter_slices(16_384):
        static.embed(rows["question"].to_list(), rows["answer"].to_list())


def embed_command(path: str, output: str) -> None:
    from qacal.cli.embed import run

    run([path], output)


def embed_wordllama(path: str) -> None:
    from pathlib import Path

    import polars as pl
    import wordllama

    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    rows = pl.read_parquet(path, columns=["question", "answer"])
    model.embed((rows["question"] + "\n" + rows["answer"]).to_list(), norm=True)


def read_rows(path: str) -> None:
    from qacal.records.reading import read

    for _ in read(path, needs_labels=True):
        pass


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job
    for job in (
        *(tally, command, group_by_sum, fit, apply, read_write),
        *(fit_texts, embed_command, embed_texts, embed_wordllama, read_rows),
    )
}


def child(name: str, arguments: list[str]) -> None:
    """Run a job, and print its seconds."""
    import polars  # noqa: F401 (its start is none of the job)

    import qacal.cli.apply
    import qacal.cli.embed
    import qacal.cli.tally
    import qacal.cluster.running  # noqa: F401

    began, cpu = perf_counter(), process_time()
    JOBS[name](*arguments)
    print(json.dumps({"seconds": perf_counter() - began, "cpu": process_time() - cpu}))


class Results:
    """The measures of jobs, kept in a file; `turns` is how often each is to be measured."""

    def __init__(self, folder: Path, turns: int) -> None:
        self._path, self._turns = folder / "results.json", turns
        self._kept: dict[str, list[dict[str, float]]] = (
            json.loads(self._path.read_text()) if self._path.exists() else {}
        )

    def measure(self, *jobs: tuple[str, Callable[..., None], *tuple[str | Path, ...]]) -> list[dict[str, float]]:
        """Return the medians of seconds, processor seconds and gigabytes of jobs that take turns.

        jobs : a name, the job and its arguments. What an earlier run measured is not measured again.
        """
        for turn in range(self._turns):
            for key, job, *arguments in jobs:
                kept = self._kept.setdefault(key, [])
                if len(kept) <= turn:
                    kept.append(_measured(job, arguments))
                    self._path.write_text(json.dumps(self._kept, indent=1))
        kept = [self._kept[key] for key, *_ in jobs]
        return [{name: median(turn[name] for turn in turns) for name in turns[0]} for turns in kept]


def _measured(job: Callable[..., None], arguments: list[str | Path]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", "--child", job.__name__, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    measured: dict[str, float] = json.loads(printed.splitlines()[-1])
    return measured | {"gigabytes": usage.ru_maxrss * 1024 / 1e9}


def line(what: str, ours: dict[str, float], other: str, theirs: dict[str, float] | None, goal: float | None) -> str:
    """Return one measure as a line of a table."""
    cells = [what, f"{ours['seconds']:.2f}", f"{ours['cpu']:.2f}", f"{ours['gigabytes']:.2f}", other]
    if theirs is None:
        return f"| {' | '.join([*cells, '', '', ''])} |"
    ratios = [f"{ours[name] / theirs[name]:.2f}" for name in ("seconds", "cpu")]
    return f"| {' | '.join([*cells, *ratios, '' if goal is None else f'at most {goal:g}'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="*", default=[1e6, 1e7, 1e8])
    parser.add_argument("--dir", type=Path, default=Path("bench-data"))
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--texts", type=Path, help="a Parquet file with question, answer, confidence and correct")
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1:])
        return
    folder = options.dir
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(folder, options.turns)
    print("| job | seconds | processor seconds | peak GB | compared with | ratio | by processor | goal |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for rows in map(int, options.rows):
        for kind in KINDS:
            measure_rows(results, folder, rows, kind)
    measure_texts(results, folder, "short texts")
    if options.texts is not None:
        measure_texts(results, folder / "texts", options.texts.stem, options.texts)


def measure_rows(results: Results, folder: Path, rows: int, kind: str) -> None:
    """Print the measures of generated rows."""
    path, model = folder / f"{kind}_{rows}.parquet", folder / f"model_{kind}_{rows}"
    if not path.exists():
        generate(path, rows, kind)
    output, copy, cells = (folder / f"{name}.parquet" for name in ("output", "copy", "cells"))
    name = f"{rows:.0e} {kind}".replace("e+0", "e")
    counted, by_command, bare = results.measure(
        (f"{name} tally", tally, path, kind),
        (f"{name} command", command, path, kind, cells),
        (f"{name} group-by-sum", group_by_sum, path, kind),
    )
    print(line(f"{name}: tally", counted, "polars, group-by-sum", bare, 2))
    print(line(f"{name}: qacal tally", by_command, "polars, group-by-sum", bare, 2), flush=True)
    (fitted,) = results.measure((f"{name} fit", fit, path, model))
    print(line(f"{name}: fit", fitted, "", None, None), flush=True)
    applied, copied = results.measure(
        (f"{name} apply", apply, model, path, output), (f"{name} read-write", read_write, output, copy)
    )
    print(line(f"{name}: apply", applied, "polars, read and write its output", copied, 3), flush=True)
    for left in (output, copy, cells):
        left.unlink(missing_ok=True)


def measure_texts(results: Results, folder: Path, name: str, source: Path | None = None) -> None:
    """Print the measures of question-answer pairs."""
    texts, model = folder / "texts.parquet", folder / "model_texts"
    output, vectors = folder / "output.parquet", folder / "vectors.parquet"
    if not (folder / "python.jsonl").exists():
        generate_texts(folder, source)
    results.measure((f"{name} fit", fit_texts, folder / "texts_fit.parquet", model))
    applied, by_command, embedded, by_wordllama = results.measure(
        (f"{name} apply", apply, model, texts, output),
        (f"{name} embed command", embed_command, texts, vectors),
        (f"{name} embed", embed_texts, texts),
        (f"{name} embed with wordllama", embed_wordllama, texts),
    )
    print(line(f"{name}: apply", applied, "`qacal embed`", by_command, 1.5), flush=True)
    print(line(f"{name}: apply", applied, "embedding in memory", embedded, 1.5), flush=True)
    print(line(f"{name}: apply", applied, "embedding in memory, by WordLlama", by_wordllama, 1.5), flush=True)
    by_polars, by_python, parquet = results.measure(
        *((f"{name} read {file}", read_rows, folder / file) for file in ("texts.jsonl", "python.jsonl", texts.name))
    )
    print(line(f"{name}: read JSON lines of polars", by_polars, "reading Parquet", parquet, 2))
    print(line(f"{name}: read JSON lines of Python", by_python, "reading Parquet", parquet, 2), flush=True)
    for left in (output, vectors):
        left.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
