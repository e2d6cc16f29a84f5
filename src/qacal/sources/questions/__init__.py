"""Questions to ask: the paper's benchmarks (TriviaQA, SciQ, BigBench, OpenBookQA and MMLU) and a quiz.

In: the name of a benchmark on the Hugging Face hub, or rows of one. Out: questions with their answers. Open `hub.py`
first; `benchmarks.py` reads rows, `quiz.py` has the quiz that ships with qacal.
"""

from qacal.sources.questions.benchmarks import (
    COLUMNS,
    BenchmarkQuestion,
    Gathered,
    LeftOut,
    bigbench,
    gather,
    mmlu,
    openbookqa,
    sciq,
    triviaqa,
)
from qacal.sources.questions.hub import BENCHMARKS, Benchmark, load

__all__ = [
    "BENCHMARKS",
    "COLUMNS",
    "Benchmark",
    "BenchmarkQuestion",
    "Gathered",
    "LeftOut",
    "bigbench",
    "gather",
    "load",
    "mmlu",
    "openbookqa",
    "sciq",
    "triviaqa",
]
