"""The methods that are compared: the seven of the paper's tables under their names there, and isotonic curves."""

from __future__ import annotations

from qacal.calibrators.base import Calibrator
from qacal.calibrators.bin_maps import Ties
from qacal.calibrators.binning import BinningCalibrator
from qacal.calibrators.identity import Identity
from qacal.calibrators.isotonic import IsotonicCalibration
from qacal.calibrators.platt import PlattScaling
from qacal.calibrators.qa_binning import QABinning
from qacal.calibrators.scaling_binning import ScalingBinning
from qacal.calibrators.scaling_qa_binning import ScalingQABinning
from qacal.calibrators.uniform_mass import UniformMassBinning

METHODS: dict[str, Calibrator] = {
    "QAB": QABinning(),
    "HS-QAB": ScalingQABinning(pooling="partial"),
    "S-QAB": ScalingQABinning(pooling="full"),
    "S-B": ScalingBinning(),
    "S": PlattScaling(),
    "B": UniformMassBinning(),
    "None": Identity(),
    "Iso": IsotonicCalibration(),
    "QA-Iso": IsotonicCalibration(pooling="none"),
}
"""Each method by the name it has in tables."""


def methods(ties: Ties) -> dict[str, Calibrator]:
    """Return the methods; those that make bins treat equal confidences in this way."""
    found = {name: type(method)(**method.get_params()) for name, method in METHODS.items()}
    for method in found.values():
        if isinstance(method, BinningCalibrator):
            method.set_params(ties=ties)
    return found


MEANING = {
    "QAB": "QA binning",
    "HS-QAB": "hierarchical scaling, then QA binning",
    "S-QAB": "Platt scaling, then QA binning",
    "S-B": "scaling-binning",
    "S": "Platt scaling",
    "B": "uniform-mass binning",
    "None": "the confidence as stated",
    "Iso": "one isotonic curve",
    "QA-Iso": "an isotonic curve per group",
}
