"""Questions to ask: the paper's benchmarks (TriviaQA, SciQ, BigBench, OpenBookQA and MMLU) and a quiz.

In: the name of a benchmark on the Hugging Face hub, or rows of one. Out: questions with their answers. Open `hub.py`
first; `quiz.py` has the quiz that ships with qacal.
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
