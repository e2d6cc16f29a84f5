"""Every parameter of the public functions and estimators, with values of every wrong type: refused, in words."""

import inspect
from datetime import date
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import qacal

ROWS = 60
RNG = np.random.default_rng(0)
H, RIGHT, GROUPS = RNG.random(ROWS).round(1), RNG.integers(0, 2, ROWS), RNG.integers(0, 2, ROWS)
VECTORS, IDS = RNG.random((ROWS, 3)), np.arange(ROWS)

NAN, INFINITY = float("nan"), float("inf")
HOSTILE = [
    *(None, "0.1", b"x", "", [], [0.1], {}, (), True, False, NAN, INFINITY, -INFINITY, -1, 0, 0.5, 1, 2, 3.0, 10**30),
    *(-(10**30), 10**400, 10**5000, 2**63, 1 + 2j, 5e-324, 1e-300, object(), Decimal("0.1"), Fraction(1, 10), len, int),
    *(np.array([1, 2]), np.array(2), np.float64(0.1), np.int64(5), np.bool_(True), np.datetime64("2020-01-01")),
    *(range(3), date(2020, 1, 1)),
]

PLANNING = {
    qacal.epsilon: {"points_per_bin": 10, "n": 1000, "alpha": 0.1, "nu": 0.0, "levels": 1},
    qacal.points_per_bin: {"epsilon": 0.1, "n": 1000, "alpha": 0.1, "nu": 0.0, "levels": 1},
    qacal.epsilon_of_bins: {"n_bins": 4, "n": 1000, "alpha": 0.1, "nu": 0.0},
    qacal.n_bins: {"epsilon": 0.1, "n": 1000, "alpha": 0.1, "nu": 0.0},
    qacal.split: {"ids": IDS, "shares": (0.5, 0.5), "seed": 0},
    qacal.nu_bound: {"proxy": H, "truth": RIGHT, "confidence": H, "points_per_bin": 50, "alpha": 0.1},
    qacal.certified_threshold: {"confidence": H, "correct": RIGHT, "accuracy": 0.5, "alpha": 0.1, "others": None},
    qacal.cheapest_threshold: {"confidence": H, "correct": RIGHT, "wrong": 5, "abstain": 1},
}
MEASURES = [
    *(qacal.calibration_error, qacal.maximum_calibration_error, qacal.confidence_bias, qacal.validity_curve),
    *(qacal.reliability_table, qacal.accuracy_confidence_curve, qacal.auac, qacal.risk_coverage_curve, qacal.aurc),
    *(qacal.brier_score, qacal.log_loss, qacal.sharpness, qacal.threshold_curve, qacal.Tally.of),
]
COLUMNS = ("confidence", "correct", "groups", "weights", "ids", "proxy", "truth")
CALIBRATORS = [
    *(qacal.Identity, qacal.PlattScaling, qacal.IsotonicCalibration, qacal.UniformMassBinning, qacal.ScalingBinning),
    *(qacal.QABinning, qacal.ScalingQABinning, qacal.HierarchicalScaling, qacal.TreeScaling, qacal.TreeBinning),
    qacal.StepBinning,
]
PARTITIONS = [qacal.KDTree, qacal.BisectingTree, qacal.LearnedTree, qacal.KMeans]


def survives(call, name):
    """Call with every hostile value: what comes is finite, or an error of qacal that names the parameter."""
    for value in HOSTILE:
        said = ""
        try:
            found = call(value)
            assert not isinstance(found, float) or np.isfinite(found)
        except (qacal.InputError, qacal.UnreachableError) as error:
            said = str(error)
        except Exception as error:
            raise AssertionError(f"{name} of type {type(value).__name__}: {error!r:.100}") from error
        assert len(said) < 1000
        assert not said or name.partition("_")[0] in said, said


def of_functions():
    for function, given in PLANNING.items():
        yield from ((function, given, name) for name in given if name not in COLUMNS)
    for function in MEASURES:
        names = list(inspect.signature(function).parameters)
        given = {"confidence": H, "correct": RIGHT}
        yield from ((function, given, name) for name in names if name not in COLUMNS)


@pytest.mark.parametrize(
    ("function", "given", "name"), list(of_functions()), ids=lambda value: getattr(value, "__name__", "")
)
def test_parameters_of_functions(function, given, name):
    survives(lambda value: function(**{**given, name: value}), name)


@pytest.mark.parametrize("kind", CALIBRATORS)
def test_parameters_of_calibrators(kind):
    columns = {"groups": GROUPS, "ids": IDS}
    for name in kind().get_params():

        def call(value, name=name):
            answers = kind(**{name: value}).fit(H, RIGHT, **columns).predict(H, **columns)
            assert ((answers >= 0) & (answers <= 1)).all()

        survives(call, name)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_parameters_of_partitions(kind):
    rows = {"embedding": VECTORS, "confidence": H, "correct": RIGHT}
    for name in kind().get_params():
        survives(lambda value, name=name: kind(**{name: value}).fit_rows(rows).assign(VECTORS), name)


def test_what_was_got_is_said():
    with pytest.raises(qacal.InputError, match="points_per_bin is '50'; expected a whole number from 2 to n=1000"):
        qacal.epsilon("50", 1000, 0.1)
    with pytest.raises(qacal.InputError, match="epsilon is None; expected a number between 0 and 1"):
        qacal.points_per_bin(None, 1000, 0.1)
    with pytest.raises(qacal.InputError, match=r"feature is array.*a ndarray; expected a number or a word"):
        qacal.PlattScaling(feature=np.array([1, 2])).fit(H, RIGHT)
