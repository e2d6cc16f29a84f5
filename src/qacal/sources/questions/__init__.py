"""The paper's benchmarks as questions to ask: TriviaQA, SciQ, BigBench, OpenBookQA and MMLU.

`load(name)` fetches one from the Hugging Face hub; `gather(rows, reader)` makes questions of rows.
"""

from qacal.sources.questions.gathering import COLUMNS, BenchmarkQuestion, Gathered, LeftOut, gather
from qacal.sources.questions.hub import BENCHMARKS, Benchmark, load
from qacal.sources.questions.readers import bigbench, mmlu, openbookqa, sciq, triviaqa

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
