"""Make the answers to the quiz that come with the package, from a run of a local LLM.

qacal questions quiz -o questions.parquet
make local-llm-qwen
qacal elicit questions.parquet --base-url URL --model Qwen2.5-Coder-1.5B-Instruct -o run.db --workers 4
python -m benchmarks.quiz_answers run.db src/qacal/sources/questions/data/quiz_answers.parquet
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import polars as pl
from tools.local_llm import MODELS

from qacal.records.writers import atomic_file
from qacal.sources.elicitation.judging import Judge, Verdicts, judged
from qacal.sources.elicitation.run import Outcomes, stored_run
from qacal.sources.elicitation.store import open_store
from qacal.sources.questions.quiz import questions

COLUMNS = (
    *("id", "subject", "question", "answer", "confidence", "confidence_tokens", "correct"),
    *("model", "prompt", "confidence_source", "judge"),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quiz_answers", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    outcomes, verdicts = Outcomes(), Verdicts()
    truths = dict(questions().select("id", "ground_truth").iter_rows())
    with open_store(given.run, to_write=False) as store:
        # Facts may have been mended since the run; questions may not.
        records = (row | {"ground_truth": truths[row["id"]]} for row in stored_run(store).answers(outcomes))
        rows = pl.DataFrame(list(judged(records, Judge(), None, verdicts)), infer_schema_length=None)
        setup = store.runs()[0][1]
        days = store.days()
    rows = rows.select(COLUMNS).sort("subject", "id").with_columns(pl.col("correct").cast(pl.Int8))
    rows = rows.with_columns(pl.col("confidence", "confidence_tokens").round(6).cast(pl.Float32))
    kept = provenance(setup, days, outcomes)
    with atomic_file(given.output) as path:
        rows.write_parquet(path, compression="zstd", compression_level=19, metadata={"provenance": json.dumps(kept)})
    print(json.dumps(kept, indent=2))
    print(rows.group_by("subject").agg(pl.len(), pl.mean("correct", "confidence", "confidence_tokens")).sort("correct"))
    print(f"{len(rows):,} answers, {rows['correct'].mean():.3f} right, {given.output.stat().st_size:,} bytes")


def provenance(setup: dict, days: tuple[str, str], outcomes: Outcomes) -> dict:
    model = next((model for model in MODELS.values() if model.name == setup["model"]), None)
    try:
        server = f"xllamacpp {version('xllamacpp')}"
    except PackageNotFoundError:
        server = "xllamacpp"
    return {
        "model": setup["model"],
        "weights_sha256": None if model is None else model.digest,
        "server": server,
        "prompt": setup["prompt"],
        "prompt_digest": setup["digest"],
        "temperature": setup["fields"].get("temperature", 0.0),
        "asked": list(days),
        "questions": outcomes.questions,
        "stated": outcomes.stated,
        "lost": dict(outcomes.lost),
        "labels": "by comparing with the ground truth and its spellings",
    }


if __name__ == "__main__":
    main()
