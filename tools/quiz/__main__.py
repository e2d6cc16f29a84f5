"""Write the questions that ship with the package: python -m tools.quiz FILE."""

import sys

from tools.quiz import questions

questions().write_parquet(sys.argv[1], compression="zstd", compression_level=19)
