"""Every parameter of the public functions and estimators refuses values of wrong types with a QacalError."""

import inspect
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter

import numpy as np
import pytest

import qacal
from qacal.model.export import to_json
from qacal.model.sql import to_sql
from tests.answers import answers
from tests.tables import each

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
    qacal.planning.epsilon: {"points_per_bin": 10, "n": 1000, "alpha": 0.1, "nu": 0.0, "levels": 1},
    qacal.planning.points_per_bin: {"epsilon": 0.1, "n": 1000, "alpha": 0.1, "nu": 0.0, "levels": 1},
    qacal.split: {"ids": IDS, "shares": (0.5, 0.5), "seed": 0},
    qacal.planning.nu_bound: {"proxy": H, "truth": RIGHT, "confidence": H, "points_per_bin": 50, "alpha": 0.1},
    qacal.certified_threshold: {"y_true": RIGHT, "y_prob": H, "accuracy": 0.5, "alpha": 0.1, "others": None},
    qacal.cheapest_threshold: {"y_true": RIGHT, "y_prob": H, "wrong": 5, "abstain": 1},
}
MEASURES = [
    *(
        qacal.metrics.estimate_calibration_error,
        qacal.metrics.estimate_maximum_calibration_error,
    ),
    *(
        qacal.metrics.calibration_error,
        qacal.metrics.maximum_calibration_error,
    ),
    *(
        qacal.metrics.reliability_table,
        qacal.metrics.accuracy_confidence_curve,
        qacal.metrics.auac,
        qacal.metrics.risk_coverage_curve,
        qacal.metrics.aurc,
    ),
    *(
        qacal.metrics.brier_score,
        qacal.metrics.log_loss,
        qacal.metrics.sharpness,
        qacal.threshold_curve,
        qacal.Tally.of,
    ),
]
COLUMNS = ("confidence", "correct", "y_true", "y_prob", "groups", "sample_weight", "ids", "proxy", "truth")
CALIBRATORS = [
    *(
        qacal.calibrators.Identity,
        qacal.calibrators.PlattScaling,
        qacal.calibrators.IsotonicCalibration,
        qacal.calibrators.UniformMassBinning,
        qacal.calibrators.ScalingBinning,
    ),
    *(
        qacal.QABinning,
        qacal.calibrators.ScalingQABinning,
        qacal.calibrators.HierarchicalScaling,
        qacal.calibrators.TreeScaling,
        qacal.TreeBinning,
    ),
    qacal.StepBinning,
]
PARTITIONS = [qacal.partitions.KDTree, qacal.BisectingTree, qacal.partitions.KMeans]


def survives(call, name):
    """Call with every hostile value: the result is finite, or a QacalError names the parameter."""
    for value in HOSTILE:
        said = ""
        try:
            found = call(value)
            assert not isinstance(found, float) or np.isfinite(found)
        except (qacal.InputError, qacal.NotEnoughRowsError) as error:
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
        columns = ("y_true", "y_prob", "confidence", "correct")
        given = {name: RIGHT if name in ("y_true", "correct") else H for name in columns if name in names}
        yield from ((function, given, name) for name in names if name not in COLUMNS)


@each("function, given, name", list(of_functions()))
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
        survives(lambda value, name=name: kind(**{name: value})._fit_rows(rows).assign(VECTORS), name)


WRONG = ["x", None, [], [1], {}, NAN, -1, object(), len]
ANSWERS = answers(200)
TALLY = qacal.Tally.of(H, RIGHT, groups=GROUPS)


def calibrator(**given):
    plain = {"partition": qacal.Column("topic"), "calibrator": qacal.QABinning(points_per_bin=20)}
    return qacal.QACalibrator(**{**plain, **given})


def fitted_paths(**given):
    paths = qacal.Paths(**{"path": GROUPS, "exit": np.full(ROWS, 2), "depth": 1, **given})
    return qacal.QABinning().fit(H, RIGHT, groups=paths)


def searched(**given):
    return qacal.Search(**{"calibration": TALLY, "tuning": TALLY, **given}).tune(qacal.QABinning())


@pytest.fixture(scope="module")
def model():
    return calibrator().fit(ANSWERS)


COLUMNS_OF_ROWS = {"y_true": RIGHT, "y_prob": H}
CALLS = {
    "Search": lambda model, /, **given: searched(**given),
    "Search.tune": lambda model, calibrator: qacal.Search(TALLY, TALLY).tune(calibrator),
    "Paths": lambda model, /, **given: fitted_paths(**given),
    "Column": lambda model, name: calibrator(partition=qacal.Column(name)).fit(ANSWERS),
    "QACalibrator": lambda model, /, **given: calibrator(**given).fit(ANSWERS),
    "QACalibrator.fit": lambda model, /, **given: calibrator().fit(**{"records": ANSWERS, **given}),
    "QACalibrator.calibrate": lambda model, /, **given: model.calibrate(**{"records": ANSWERS, **given}),
    "QACalibrator.predict": lambda model, /, **given: model.predict(**{"records": H, **given}),
    "QACalibrationClassifier": lambda model, /, **given: qacal.QACalibrationClassifier(**given).fit(VECTORS, RIGHT),
    "QACalibrator.choose_threshold": lambda model, /, **given: model.choose_threshold(
        **{"records": ANSWERS, "accuracy": 0.5, **given}
    ),
    "check": lambda model, /, **given: qacal.check(**{"records": ANSWERS, **given}),
    "evaluate": lambda model, /, **given: qacal.evaluate(**{**COLUMNS_OF_ROWS, **given}),
    "metrics.estimate_auroc": lambda model, /, **given: qacal.metrics.estimate_auroc(**{**COLUMNS_OF_ROWS, **given}),
    "Tally.sql": lambda model, /, **given: qacal.Tally.sql(**{"table": "logs", "dialect": "duckdb", **given}),
    "model.sql.to_sql": lambda model, /, **given: to_sql(
        **{"calibrator": model.calibrator_, "dialect": "duckdb", **given}
    ),
    "model.export.to_json": lambda model, calibrator: to_json(calibrator),
    "load": lambda model, path: qacal.load(path),
    "embedder": lambda model, name: qacal.embedder(name),
}


@pytest.mark.filterwarnings("ignore::qacal.QacalWarning")
@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_for_all_other_functions(model, name):
    """Each call works or raises a QacalError; Python's own errors only where Python calls or opens the value."""
    taken = {"load": ["path"], "embedder": ["name"]}.get(name) or inspect.signature(attrgetter(name)(qacal)).parameters
    for parameter in [parameter for parameter in taken if parameter != "self"]:
        for value in WRONG:
            said, is_pythons = "something", False
            try:
                CALLS[name](model, **{parameter: value})
            except qacal.QacalError as error:
                said = str(error)
            except TypeError as error:
                said, is_pythons = str(error), True
            assert 0 < len(said) < 1000
            if is_pythons:
                assert parameter in ("progress", "on_fault", "path", "ranges"), (parameter, value, said)
                assert re.search("not callable|exactly one argument|expected str|should be a str", said)


def test_errors_name_the_value():
    with pytest.raises(qacal.InputError, match="points_per_bin is '50'; expected a whole number from 2 to n=1000"):
        qacal.planning.epsilon("50", 1000, 0.1)
    with pytest.raises(qacal.InputError, match="epsilon is None; expected a number between 0 and 1"):
        qacal.planning.points_per_bin(None, 1000, 0.1)
    with pytest.raises(qacal.InputError, match=r"feature is array.*a ndarray; expected a number or a word"):
        qacal.calibrators.PlattScaling(feature=np.array([1, 2])).fit(H, RIGHT)
