"""Every calibrator that ships, in every variant that behaves differently."""

from qacal import MarginBinning, QABinning, StepBinning, TreeBinning
from qacal.calibrators import (
    HierarchicalScaling,
    Identity,
    IsotonicCalibration,
    PlattScaling,
    ScalingBinning,
    ScalingQABinning,
    TreeScaling,
    UniformMassBinning,
)

CALIBRATORS = [
    Identity(),
    PlattScaling(),
    PlattScaling(feature="logit"),
    IsotonicCalibration(),
    IsotonicCalibration(pooling="none", rows_per_group=5),
    UniformMassBinning(points_per_bin=7),
    UniformMassBinning(n_bins=3, certificate="conditional"),
    UniformMassBinning(points_per_bin=7, resolution=0.05),
    UniformMassBinning(points_per_bin=7, ties="jitter"),
    ScalingBinning(points_per_bin=7),
    ScalingBinning(points_per_bin=7, cross_fit=True, feature="logit"),
    ScalingBinning(points_per_bin=7, ties="jitter"),
    QABinning(points_per_bin=7),
    QABinning(points_per_bin=7, resolution=0.05, certificate="conditional"),
    QABinning(points_per_bin=7, ties="jitter"),
    ScalingQABinning(pooling="full", points_per_bin=7),
    ScalingQABinning(pooling="partial", points_per_bin=7),
    ScalingQABinning(pooling="partial", points_per_bin=7, cross_fit=True),
    ScalingQABinning(pooling="full", points_per_bin=7, ties="jitter"),
    HierarchicalScaling(),
    HierarchicalScaling(feature="logit"),
    TreeScaling(),
    TreeBinning(),
    TreeBinning(step=0.1, feature="logit", resolution=0.05),
    TreeScaling(feature="confidence"),
    StepBinning(rows_per_map=7),
    StepBinning(step=0.25, rows_per_map=30),
    MarginBinning(),
    MarginBinning(alpha=0.4),
]


def name_of(calibrator):
    return repr(calibrator)


def recalibrate(calibrator):
    """Return whether answers follow the labels; one that certifies a score only moves it into intervals."""
    return not isinstance(calibrator, Identity | StepBinning)
