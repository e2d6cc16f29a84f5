"""The paper's protocol: split, tune, test, over several seeds; tables as the paper has them."""

from qacal.experiment.methods import METHODS
from qacal.experiment.runner import Experiment, run_experiment

__all__ = ["METHODS", "Experiment", "run_experiment"]
