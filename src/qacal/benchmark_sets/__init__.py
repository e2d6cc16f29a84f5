"""The paper's benchmarks as questions to ask: TriviaQA, SciQ, BigBench, OpenBookQA and MMLU.

`load(name)` fetches one from the Hugging Face hub; `gather(rows, reader)` makes questions of rows.
"""

from qacal.benchmark_sets.gathering import COLUMNS, BenchmarkQuestion, Gathered, LeftOut, gather
from qacal.benchmark_sets.hub import BENCHMARKS, Benchmark, load
from qacal.benchmark_sets.readers import bigbench, mmlu, openbookqa, sciq, triviaqa

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
