"""Groups that are learned from labels, on the whole road: whose labels, what is refused, and that it helps."""

import numpy as np
import pytest

import qacal
from qacal import Column, InputError, QABinning, QACalibrationClassifier, QACalibrator, Tally, split
from qacal.experiment.groups import Beta
from qacal.experiment.sample import Sample
from qacal.metrics import log_loss
from qacal.partitions import LearnedTree, Product
from qacal.tally.ids import id_hashes
from tests.answers import answers

# These LLMs say 0.8 to everything, so that only groups can help; fit says so.
pytestmark = pytest.mark.filterwarnings("ignore:all .* confidences are 0.8:qacal.QacalWarning")


def vectors(n=4_000, seed=0):
    """Rows that carry vectors: the LLM is too sure along the last coordinate, which varies least."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 6)) * np.linspace(3, 1, 6)
    right = rng.random(n) < 1 / (1 + np.exp(-1.5 * Z[:, -1]))
    return [
        {"id": f"{seed}-{at}", "confidence": 0.8, "correct": float(y), "vector": z}
        for at, (z, y) in enumerate(zip(Z.tolist(), right.tolist(), strict=True))
    ]


def fitted(partition, rows, **options):
    model = QACalibrator("column:vector", partition, QABinning(points_per_bin=100))
    return model.fit(rows, **options)


def beta_and_rest(rows):
    """Return 0 for the rows that a model makes groups from, 1 for those that calibrate."""
    return split(id_hashes([row["id"] for row in rows], len(rows)), (0.25, 0.75))


def loss(model, rows):
    calibrated = model.calibrate(rows)
    return log_loss([row["correct"] for row in rows], [row["calibrated"] for row in calibrated])


def test_groups_learned_from_labels_are_better_where_likeness_says_nothing():
    rows, new = vectors(), vectors(seed=1)
    assert loss(fitted("learned:2", rows), new) < loss(fitted("bisecting:2", rows), new) - 0.05


def test_only_the_labels_of_the_beta_part_make_groups():
    """Other labels in the calibration part change its maps, and no group."""
    rows = vectors()
    part = beta_and_rest(rows)
    others = [{**row, "correct": 1 - row["correct"]} if at else row for row, at in zip(rows, part, strict=True)]
    one, two = fitted("learned:3", rows), fitted("learned:3", others)
    np.testing.assert_array_equal(one.partition_.fitted_.offsets, two.partition_.fitted_.offsets)
    assert one.rows_ == int((part == 1).sum())
    assert one.partition_.describe()["rows"] == int((part == 0).sum())
    assert not np.array_equal(one.calibrator_.maps_.value, two.calibrator_.maps_.value)


def test_rows_of_their_own_make_the_same_groups_as_a_share():
    rows = vectors()
    part = beta_and_rest(rows)
    apart = [[row for row, at in zip(rows, part, strict=True) if at == which] for which in (0, 1)]
    shared, given = fitted("learned:3", rows), fitted("learned:3", apart[1], group_records=apart[0])
    np.testing.assert_array_equal(shared.partition_.fitted_.offsets, given.partition_.fitted_.offsets)
    assert loss(shared, rows) == loss(given, rows)


@pytest.mark.parametrize("missing", ["every label", "one label", "confidence"])
def test_beta_rows_need_labels_and_confidences(missing):
    rows = vectors(600)
    beta = [dict(row) for row in vectors(600, seed=1)]
    for row in beta if missing != "one label" else beta[7:8]:
        row["correct" if "label" in missing else "confidence"] = None
    if missing == "every label":
        beta = [{name: value for name, value in row.items() if name != "correct"} for row in beta]
    expected = "confidence is missing" if missing == "confidence" else "learns groups from labels.*bisecting:6"
    with pytest.raises(InputError, match=expected):
        fitted("learned:2", rows, group_records=beta)
    if missing != "confidence":
        fitted("bisecting:2", rows, group_records=beta)


def test_questions_that_groups_are_learned_from_do_not_calibrate():
    rows = vectors(600)
    with pytest.raises(InputError, match="600 rows have questions that the model was trained on"):
        fitted("learned:2", rows, group_records=rows)


def test_saved_and_loaded(tmp_path):
    model = QACalibrator(partition="learned:3").fit(answers(2_000))
    model.save(tmp_path / "model")
    again, new = qacal.load(tmp_path / "model"), answers(300, seed=1)
    assert again.calibrate(new) == model.calibrate(new)
    assert repr(again.partition_) == "LearnedTree(max_depth=3)"


def test_soft_targets_and_few_rows():
    for rows in (
        [{**row, "correct": 0.2 + 0.6 * row["correct"]} for row in vectors(1_000)],
        vectors(60),
    ):
        model = QACalibrator("column:vector", "learned:2", QABinning(points_per_bin=10)).fit(rows)
        assert model.partition_.describe()["n_groups"] == 4


def test_a_product_with_a_column():
    rows = [{**row, "tenant": "acme" if at % 3 else "zenith"} for at, row in enumerate(vectors())]
    model = fitted(Product(Column("tenant"), LearnedTree(max_depth=1)), rows)
    assert {group.group for group in model.describe_groups()} == {
        f"{t} / {s}" for t in ("acme", "zenith") for s in "01"
    }


def test_the_estimator_of_scikit_learn_refuses_it():
    X = np.column_stack([np.full(50, 0.8), np.arange(50.0)])
    with pytest.raises(InputError, match="learns groups from labels, and the same rows would calibrate"):
        QACalibrationClassifier(partition=LearnedTree(max_depth=1)).fit(X, np.arange(50) % 2)


def test_an_experiment_learns_from_its_beta_part_alone():
    rows = vectors(1_000)
    Z, y = np.array([row["vector"] for row in rows]), np.array([row["correct"] for row in rows])
    is_beta = np.arange(1_000) < 400
    found = [
        Beta("v", "learned:2").groups(
            Sample(np.full(1_000, 0.8), labels, np.arange(1_000, dtype=np.uint64), {"v": Z}), is_beta
        )
        for labels in (y, np.where(is_beta, y, 1 - y), 1 - y)
    ]
    np.testing.assert_array_equal(found[0].path, found[1].path)
    assert Tally.of(np.full(1_000, 0.8), y, groups=found[0]).grouping.is_tree
