"""The quiz as an LLM answered it: real answers with stated and token confidence, kept with the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

ANSWERS = files("qacal.quiz") / "answers.parquet"


def answers() -> pl.DataFrame:
    """Return the answers of a small LLM to the quiz, as records.

    Columns: `id`, `subject`, `question`, `answer`, `confidence` (as stated), `confidence_tokens` (the probability of
    the answer's tokens), `correct` (by comparing with the ground truth), and where they are from: `model`, `prompt`,
    `confidence_source`, `judge`.

    >>> rows = answers()
    >>> rows["model"].unique().to_list()
    ['Qwen2.5-Coder-1.5B-Instruct']
    """
    import polars as pl

    with ANSWERS.open("rb") as file:
        return pl.read_parquet(file)


def provenance() -> dict[str, Any]:
    """Return how the answers were made: the LLM and its file, the server, the prompt, the settings and the day.

    >>> provenance()["prompt"]
    'verb1s-top1/1'
    """
    import polars as pl

    with ANSWERS.open("rb") as file:
        said: dict[str, Any] = json.loads(pl.read_parquet_metadata(file)["provenance"])
    return said
