"""The paper's protocol on one's own rows.

In: labelled records. Out: a folder with a table of every method, over blocks and seeds. Open `protocol.py` first.
"""

from qacal.experiment.protocol import METHODS
from qacal.experiment.runner import Experiment, run_experiment

__all__ = ["METHODS", "Experiment", "run_experiment"]
