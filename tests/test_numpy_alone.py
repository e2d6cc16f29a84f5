"""A saved model applies with numpy alone, for small servers and cloud functions."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

from qacal.model.saved import CLASSES
from qacal.partitions import KDTree
from qacal.storage import save
from tests.calibrators.contract import CALIBRATORS, name_of

# All dependencies of qacal except numpy, and their dependencies.
ALONE = """
import json, sys
from pathlib import Path

ABSENT = {"scipy", "sklearn", "polars", "narwhals", "pandas", "pyarrow", "typer", "rich", "joblib", "matplotlib"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Absent())
import numpy as np
from qacal.model.saved import CLASSES
from qacal.partitions import Partition
from qacal.calibrators.base import Calibrator
from qacal.storage import load

ask = json.loads(sys.stdin.read())
answers = {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    model = load(path / "calibrator", Calibrator, CLASSES)
    groups = ask["groups"]
    if (path / "partition").exists():
        groups = load(path / "partition", Partition, CLASSES).paths(np.array(ask["vectors"]))
    rows = {"confidence": ask["confidence"], "groups": groups, "ids": ask["ids"]}
    evidence = model.explain(**rows)
    np.testing.assert_array_equal(model.predict(**rows), evidence.calibrated)
    answers[path.name] = [evidence.calibrated.tolist(), evidence.source.tolist(), evidence.rows.tolist()]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    h = rng.choice(np.linspace(0, 1, 21), 300)
    Z = rng.normal(size=(300, 4))
    subject = rng.choice(["law", "art", "chess"], 300).tolist()
    return {"confidence": h, "correct": rng.random(300) < h, "groups": subject, "ids": np.arange(300)}, Z


def test_every_saved_calibrator_applies_with_numpy_alone(rows, tmp_path):
    rows, Z = rows
    asked = {"confidence": rows["confidence"], "groups": rows["groups"], "ids": rows["ids"]}
    tree = KDTree(max_depth=2).fit(Z)
    expected = {}
    for at, calibrator in enumerate(CALIBRATORS):
        for partition in (None, tree):
            place = rows["groups"] if partition is None else tree.paths(Z)
            model = clone(calibrator).fit(**(rows | {"groups": place}))
            name = f"{at:02d}-{'labels' if partition is None else 'tree'}"
            (tmp_path / name).mkdir()
            save(tmp_path / name / "calibrator", model, CLASSES)
            if partition is not None:
                save(tmp_path / name / "partition", partition, CLASSES)
            evidence = model.explain(**(asked | {"groups": place}))
            expected[name] = [evidence.calibrated.tolist(), evidence.source.tolist(), evidence.rows.tolist()]
    answers = answer(tmp_path, asked, Z)
    assert sorted(answers) == sorted(expected)
    for name, found in answers.items():
        assert found == expected[name], name_of(CALIBRATORS[int(name[:2])])


def answer(models, asked, Z):
    plain = {name: np.asarray(column).tolist() for name, column in asked.items()} | {"vectors": Z.tolist()}
    command = [sys.executable, "-W", "error", "-c", ALONE, str(models)]
    done = subprocess.run(command, input=json.dumps(plain), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
