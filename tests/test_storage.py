"""Saving and loading: bit for bit, atomic, and no wrong answer from a damaged or altered folder."""

import copy
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from hashlib import sha256
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from sklearn.base import clone

import qacal
from qacal import (
    Column,
    InputError,
    LearnedScore,
    Paths,
    QABinning,
    QACalibrator,
    StepBinning,
    TreeBinning,
    storage,
)
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
from qacal.calibrators.base import Calibrator
from qacal.errors import ArtifactError, QacalError
from qacal.model.saved import CLASSES
from qacal.parameters import Axes, Between, Offsets, Rising
from qacal.partitions import BisectingTree, KDTree, Product
from qacal.storage import MODEL, SCHEMA, digest, flatten, load, save, unflatten, version_of
from qacal.tally.arrays import Floats, Ints
from tests.calibrators.contract import CALIBRATORS, name_of
from tests.sizes import FULL, sized

GRID = np.linspace(0, 1, 41)


@dataclass(frozen=True)
class Turn:
    """A calibrator, and which save it is of."""

    turn: int
    calibrator: Calibrator


def save_turn(path, turn, calibrator):
    save(path, Turn(turn, calibrator), CLASSES)


def load_turn(path):
    return load(path, Turn, CLASSES)


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


# Values and plain data


@dataclass(frozen=True, eq=False)
class Inner:
    values: Floats
    codes: Ints | None


@dataclass(frozen=True, eq=False)
class Outer:
    inner: Inner
    more: tuple[Inner, ...]
    label: Any
    labels: tuple[Any, ...]
    kind: Literal["a", "b"] | None
    share: float
    thresholds: Mapping[Any, float | None]
    about: Mapping[str, Any]
    part: Calibrator | None


def outer(**changes):
    inner, bare = Inner(np.arange(6.0).reshape(2, 3).T, np.array([2, 1])), Inner(np.empty(0), None)
    content = {
        "inner": inner,
        "more": (bare, inner),
        "label": 2,
        "labels": ("2", 2, 2.5, True, "größe"),
        "kind": "b",
        "share": np.float64(0.1),
        "thresholds": {1: 0.5, "1": None},
        "about": {"rows": 12, "at": "größe"},
        "part": fitted(PlattScaling()),
    }
    return Outer(**content | changes)


def there_and_back(value):
    plain, numbers = flatten(value, CLASSES)
    return unflatten(type(value), json.loads(json.dumps(plain, allow_nan=False)), numbers, CLASSES)


def test_every_kind_of_field_comes_back():
    value, back = outer(), there_and_back(outer())
    np.testing.assert_array_equal(back.inner.values, value.inner.values)
    np.testing.assert_array_equal(back.more[1].codes, value.more[1].codes)
    assert back.more[0].codes is None
    assert (back.label, back.labels, back.kind, back.share) == (value.label, value.labels, "b", 0.1)
    assert [type(label) for label in back.labels] == [str, int, float, bool, str]
    assert back.thresholds == {1: 0.5, "1": None}
    whole = there_and_back(outer(share=1)).share
    assert (whole, type(whole)) == (1.0, float)
    assert back.about == value.about
    assert back.part.predict([0.3]) == value.part.predict([0.3])
    plain, numbers = flatten(value, CLASSES)
    assert plain["inner"]["values"] == {"dtype": "float64", "shape": [3, 2], "start": 0}
    assert plain["inner"]["codes"] == {"dtype": "int64", "shape": [2], "start": 6}
    np.testing.assert_array_equal(np.frombuffer(numbers)[:6], [0, 3, 1, 4, 2, 5])


DEEP: list[Any] = functools.reduce(lambda inner, _: [inner], range(100_000), [])


@pytest.mark.parametrize(
    ("name", "plain", "match"),
    [
        ("inner", None, "inner is None, a NoneType; expected an object"),
        ("inner", {"values": 1}, r"inner lacks or adds \['codes'\]"),
        ("more", {}, "more is {}, a dict; expected a list"),
        ("label", None, "label is None, a NoneType; expected str or int or float or bool"),
        ("label", [1], r"label is \[1\], a list"),
        ("labels", [1, None], r"labels.1 is None"),
        ("kind", "c", "kind is 'c', a str; expected 'a' or 'b'"),
        ("share", "0.1", "share is '0.1', a str; expected float"),
        ("share", True, "share is True"),
        ("share", DEEP, "share is a very large list, a list"),
        ("thresholds", 0.5, "thresholds is 0.5, a float; expected an object, or a list of pairs"),
        ("thresholds", [[1, 0.5, 2]], "expected an object, or a list of pairs"),
        ("thresholds", [[1, 0.5], [1, 0.6]], "thresholds has a key twice"),
        ("thresholds", [[[1], 0.5]], r"a key of value.thresholds is \[1\]"),
        ("thresholds", [[1, "x"]], "thresholds.1 is 'x'"),
        ("about", 7, "about is 7, a int; expected an object"),
        ("about", [[3, 1]], "a key of value.about is 3, a int; expected str"),
        ("about", {"a": {"b": 1}}, "about.a is {'b': 1}, a dict; expected str or int or float or bool"),
        ("about", {"a": float("nan")}, "about.a is nan, a float; expected whole characters, or a number up to 1.8e308"),
        ("about", {"\ud800": 1}, "a key of value.about is .*; expected whole characters"),
        ("part", {"class": "LearnedScore"}, "part.class is 'LearnedScore'; this qacal knows Identity, PlattScaling"),
        ("part", {"class": ["x"]}, "part.class is"),
        ("part", {"class": DEEP}, "part.class is a very large list"),
        ("part", {"class": "Function"}, "part.class is 'Function'"),
        ("part", {"class": "PlattScaling", "feature": "x"}, r"part lacks or adds \['maps_'\]"),
        ("code", "import os", r"value lacks or adds \['code'\]"),
    ],
)
def test_other_fields_are_refused(name, plain, match):
    content, numbers = flatten(outer(), CLASSES)
    with pytest.raises(InputError, match=match):
        unflatten(Outer, {**content, name: plain}, numbers, CLASSES)


ARRAY = {"dtype": "float64", "shape": [2], "start": 1}


def test_an_array_is_a_view_of_the_numbers():
    plain = {"values": ARRAY, "codes": None}
    inner = unflatten(Inner, plain, np.arange(3.0).tobytes())
    assert inner.values.tolist() == [1, 2]
    assert not inner.values.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        *(None, 7, "float64", [], ["float64", [2], 1], {}, {"dtype": "float64"}),
        *({**ARRAY, "dtype": dtype} for dtype in ("int64", "object", "float128", ["float64"], None)),
        *({**ARRAY, "start": start} for start in (-1, -3, 2, 3, 2**31, 2**62, 2**70, True, 1.0, "1", None, [1])),
        *(
            {**ARRAY, "shape": shape}
            for shape in ([3], [-1], [-2], [2**31], [2**62], [0, 2**62], [2**32, 2**32], [2**70])
        ),
        *(
            {**ARRAY, "shape": shape}
            for shape in ([True], [1.0], ["1"], [[1]], [None], 2, "2", None, {"2": 1}, [1] * 99, [2, 1, 1, 1, 1])
        ),
        {**ARRAY, "more": 1},
    ],
)
def test_other_arrays_are_refused(array):
    with pytest.raises(InputError, match=r"value\.values is .*; expected an array of float64"):
        unflatten(Inner, {"values": array, "codes": None}, np.arange(3.0).tobytes())


def test_numbers_that_are_cut_are_refused():
    with pytest.raises(InputError, match="expected an array of float64"):
        unflatten(Inner, {"values": ARRAY, "codes": None}, np.arange(3.0).tobytes() + b"1")


@dataclass(frozen=True, eq=False)
class Curves:
    x: Annotated[Floats, Axes("knots"), Between(0, 1), Rising(within="offset")]
    y: Annotated[Floats, Axes("knots"), Rising(strictly=False, within="offset")]
    offset: Annotated[Ints, Offsets("knots")]
    lines: Annotated[Floats | None, Axes("lines", 2, may_be_empty=False)]
    share: Annotated[float, Between(0, 1)]


CURVES = Curves(np.array([0.1, 0.5, 0.2]), np.array([1.0, 1.0, 0.0]), np.array([0, 2, 3]), np.zeros((4, 2)), 0.5)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"x": np.array([0.1, 0.1, 0.2])}, "x must rise"),
        ({"x": np.array([0.1, np.nan, 0.2])}, r"x\[1\] is nan; expected 0 to 1"),
        ({"x": np.array([0.1, 0.5])}, r"y has shape \[3\]; expected \[2\]"),
        ({"y": np.array([1.0, 0.9, 0.0])}, "y must rise"),
        ({"y": np.zeros((3, 1))}, r"y has shape \[3, 1\]; expected \[3\]"),
        ({"offset": np.array([0, 2, 4])}, "offset must rise from 0 to 3"),
        ({"offset": np.array([0, 2, 2, 3])}, "offset must rise from 0 to 3"),
        ({"offset": np.array([0, 3, 2, 3])}, "offset must rise from 0 to 3"),
        ({"offset": np.array([], dtype=np.int64)}, "offset must rise from 0 to 3"),
        ({"offset": np.array([[0, 2, 3]])}, "offset must rise from 0 to 3"),
        ({"lines": np.zeros((4, 3))}, r"lines has shape \[4, 3\]; expected \[4, 2\]"),
        ({"lines": np.zeros((0, 2))}, "lines is empty"),
        ({"share": 1.5}, "share is 1.5; expected 0 to 1"),
    ],
)
def test_fields_that_do_not_meet_their_constraints_are_refused(changes, match):
    there_and_back(CURVES)
    there_and_back(replace(CURVES, lines=None))
    with pytest.raises(InputError, match=match):
        there_and_back(replace(CURVES, **changes))


# Round trip


def groups_of(kind, rng, n, known=5):
    codes = rng.integers(-1, known, n)
    if kind == "none":
        return None
    if kind == "int":
        return codes
    if kind == "mixed":
        return [[2, "2", True, 2.5, "größe", None][code] for code in codes]
    return Paths(rng.integers(0, 8, n), rng.integers(0, 5, n), 3)


def rows_of(kind, seed, n=150):
    rng = np.random.default_rng(seed)
    h = rng.choice(np.linspace(0, 1, 21), n) if seed % 2 else rng.random(n)
    correct = (rng.random(n) < 0.2 + 0.6 * h).astype(float)
    return {"confidence": h, "correct": correct, "groups": groups_of(kind, rng, n), "ids": np.arange(n) * 3}


def fitted(calibrator, kind="int", seed=1):
    return clone(calibrator).fit(**rows_of(kind, seed))


def assert_same(one, two):
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(two, field.name))


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=name_of)
def test_what_is_loaded_answers_bit_for_bit_as_what_was_saved(calibrator, tmp_path):
    kinds = ("none", "int", "mixed", "tree")
    for kind, seed in itertools.product(kinds, (1, 2)) if FULL else zip(kinds, (1, 2, 1, 2), strict=True):
        model = fitted(calibrator, kind, seed)
        save(tmp_path / "model", model, CLASSES)
        back = load(tmp_path / "model", Calibrator, CLASSES)
        assert type(back) is type(model)
        assert back.get_params() == model.get_params()
        rng = np.random.default_rng(seed + 1)
        h = np.concatenate([rng.random(19), GRID])
        ask = {"confidence": h, "groups": groups_of(kind, rng, 60), "ids": np.arange(60) + 1000}
        np.testing.assert_array_equal(back.predict(**ask), model.predict(**ask))
        assert_same(back.explain(**ask), model.explain(**ask))


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize(
    "calibrator", [QABinning(points_per_bin=7), HierarchicalScaling(), IsotonicCalibration(pooling="none")], ids=name_of
)
def test_a_tree_cut_at_a_depth_comes_back(calibrator, depth):
    model = fitted(clone(calibrator).set_params(max_depth=depth), "tree")
    ask = {"confidence": GRID, "groups": groups_of("tree", np.random.default_rng(5), 41), "ids": np.arange(41)}
    assert_same(there_and_back(model).explain(**ask), model.explain(**ask))


def test_the_largest_numbers_are_labels_too():
    labels = np.repeat([2**63 - 1, 2**62 + 5, 3], 40)
    model = QABinning(points_per_bin=20).fit(np.full(120, 0.5), np.tile([0, 1, 1], 40), groups=labels)
    assert there_and_back(model).explain([0.5], groups=[2**63 - 1]).source == ["group"]


def test_the_document_is_for_people_and_says_where_each_array_is(tmp_path):
    model = fitted(QABinning(points_per_bin=7), "mixed")
    save(tmp_path / "model", model, CLASSES)
    text = (tmp_path / "model" / MODEL).read_text(encoding="utf-8")
    document = json.loads(text)
    assert "größe" in text
    assert document["schema"] == SCHEMA
    assert (document["value"]["class"], document["value"]["points_per_bin"]) == ("QABinning", 7)
    assert list(document) == sorted(document)
    (file,) = document["arrays"]
    top = document["value"]["maps_"]["top"]
    numbers = np.fromfile(tmp_path / "model" / file, top["dtype"])
    np.testing.assert_array_equal(numbers[top["start"] :][: top["shape"][0]], model.maps_.top)


def test_maps_remember_groups_and_not_cells():
    rng = np.random.default_rng(0)
    rows = {"confidence": rng.random(2000), "correct": rng.integers(0, 2, 2000), "groups": rng.integers(0, 4, 2000)}
    for calibrator in (QABinning(), HierarchicalScaling(), TreeScaling(), IsotonicCalibration(pooling="none")):
        assert calibrator.fit(**rows).maps_.grouping.code.tolist() == [0, 1, 2, 3]


def test_the_same_model_is_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        save(tmp_path / name, fitted(HierarchicalScaling()), CLASSES)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 2
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


# What cannot be saved


@pytest.mark.parametrize("label", [date(2024, 1, 1), (1, 2), float("inf"), "\ud800", 10**400])
def test_labels_that_files_cannot_hold_are_refused(label, tmp_path):
    labels = np.empty(60, dtype=object)
    labels[:] = [label, "law"] * 30
    model = QABinning(points_per_bin=5).fit(np.full(60, 0.5), np.tile([0, 1, 1], 20), groups=labels)
    with pytest.raises(ArtifactError, match=r"grouping.labels.\d"):
        save(tmp_path / "model", model, CLASSES)
    assert list(tmp_path.iterdir()) == []


def test_foreign_and_changed_calibrators_are_refused(tmp_path):
    class Mine(PlattScaling):
        pass

    with pytest.raises(ArtifactError, match="Mine is not one of"):
        save(tmp_path / "model", fitted(Mine()), CLASSES)
    with pytest.raises(ArtifactError, match=r"alpha is 0\.5, and the maps were fitted with 0\.1"):
        save(tmp_path / "model", fitted(QABinning()).set_params(alpha=0.5), CLASSES)
    with pytest.raises(ArtifactError, match=r"value\.about\.at is datetime\.date\(2024, 1, 1\), a date; expected str"):
        save(tmp_path / "model", outer(about={"at": date(2024, 1, 1)}), CLASSES)
    with pytest.raises(ArtifactError, match=r"a key of value\.about is 3"):
        save(tmp_path / "model", outer(about={3: 1}), CLASSES)


def test_a_model_that_is_too_large_is_refused_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_LARGEST", 100)
    with pytest.raises(ArtifactError, match=r"it has 104 bytes or more of arrays; a model has at most 100\. Keep no"):
        save(tmp_path / "model", Inner(np.zeros(13), None))
    with pytest.raises(ArtifactError, match="expected an array of float64"):
        save(tmp_path / "model", Inner(np.array(["x", None], dtype=object), None))


def test_saving_copies_the_arrays_once(tmp_path):
    value = Inner(np.zeros(2**20), None)
    tracemalloc.start()
    save(tmp_path / "model", value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * value.values.nbytes


# Atomic saving


def test_a_model_replaces_a_model(tmp_path):
    save_turn(tmp_path / "model", 1, fitted(QABinning(points_per_bin=7)))
    save_turn(tmp_path / "model", 2, fitted(PlattScaling()))
    assert load_turn(tmp_path / "model").turn == 2
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert [path.name for path in (tmp_path / "model").iterdir()] == [MODEL]


def test_a_damaged_model_is_replaced(tmp_path):
    save_turn(tmp_path / "model", 1, fitted(QABinning(points_per_bin=7)))
    (tmp_path / "model" / MODEL).write_text('{"schema": ')
    save_turn(tmp_path / "model", 2, fitted(QABinning(points_per_bin=7)))
    assert load_turn(tmp_path / "model").turn == 2


def test_a_model_of_an_earlier_version_is_replaced(tmp_path):
    (tmp_path / "model" / "arrays-00000001").mkdir(parents=True)
    (tmp_path / "model" / "arrays-00000001" / "top.npy").write_bytes(b"")
    (tmp_path / "model" / MODEL).write_text('{"schema": 7, "folders": ["arrays-00000001"]}')
    save_turn(tmp_path / "model", 2, fitted(Identity()))
    assert load_turn(tmp_path / "model").turn == 2
    assert [path.name for path in (tmp_path / "model").iterdir()] == [MODEL]


def test_an_empty_directory_and_a_link_to_a_model_are_taken(tmp_path):
    (tmp_path / "model").mkdir()
    save_turn(tmp_path / "model", 1, fitted(Identity()))
    (tmp_path / "latest").symlink_to("model")
    save_turn(tmp_path / "latest", 2, fitted(Identity()))
    assert load_turn(tmp_path / "model").turn == load_turn(tmp_path / "latest").turn == 2
    assert (tmp_path / "latest").is_symlink()


def test_anything_else_is_left_alone(tmp_path):
    model = fitted(QABinning())
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="is a file"):
        save(tmp_path / "file", model, CLASSES)
    for name in ("thesis/chapter.tex", "arrays/vectors.npy", "vectors/v.npy", "1/v.npy", "other/notes.json"):
        path = tmp_path / name.replace("/", "-") / name
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        with pytest.raises(ArtifactError, match="no part of a single model"):
            save(path.parent.parent, model, CLASSES)
        with pytest.raises(ArtifactError, match="no part of a single model"):
            save(path.parent, model, CLASSES)
        assert path.read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / MODEL).write_text('{"format": "of another tool"}')
    with pytest.raises(ArtifactError, match=r"holds model\.json, which is no part of a single model"):
        save(tmp_path / "other", model, CLASSES)
    (tmp_path / "other" / MODEL).write_text('{"schema": "mine", "uses": ["qacal"]}')
    with pytest.raises(ArtifactError, match=r"holds model\.json, which is no part of a single model"):
        save(tmp_path / "other", model, CLASSES)
    (tmp_path / "other" / MODEL).unlink()
    (tmp_path / "other" / MODEL).symlink_to(tmp_path / "file")
    with pytest.raises(ArtifactError, match=r"holds model\.json, which is no part of a single model"):
        save(tmp_path / "other", model, CLASSES)
    save(tmp_path / "set", model, CLASSES, document="models.json")
    with pytest.raises(ArtifactError, match=r"holds models\.json, which is no part of a single model"):
        save(tmp_path / "set", model, CLASSES)
    save(tmp_path / "model", model, CLASSES)
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match=r"notes\.txt"):
        save(tmp_path / "model", model, CLASSES)
    with pytest.raises(ArtifactError, match="create it first"):
        save(tmp_path / "no" / "where", model, CLASSES)


@pytest.mark.parametrize("has_document", [False, True])
def test_folders_with_dates_are_not_parts(has_document, tmp_path):
    model, thesis = fitted(Identity()), tmp_path / "runs" / "1-20240101" / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine")
    (tmp_path / "runs" / "2-20240101").write_text("mine")
    os.utime(thesis.parent, (0, 0))
    if has_document:
        save(tmp_path / "model", model, CLASSES)
        shutil.copy(tmp_path / "model" / MODEL, tmp_path / "runs")
        save(tmp_path / "runs", model, CLASSES)
    else:
        with pytest.raises(ArtifactError, match="holds 1-20240101, 2-20240101, which is no part of a single model"):
            save(tmp_path / "runs", model, CLASSES)
    assert thesis.read_text() == "mine"


def test_of_two_who_save_to_one_new_path_one_fails(tmp_path, monkeypatch):
    """The other save has written its arrays, and not yet its document."""
    model, real = fitted(QABinning(points_per_bin=7)), storage.digest

    def digest_during_another_save(content):
        monkeypatch.undo()
        save(tmp_path / "model", model, CLASSES)
        (tmp_path / "model" / MODEL).rename(tmp_path / MODEL)
        return real(content)

    monkeypatch.setattr(storage, "digest", digest_during_another_save)
    with pytest.raises(ArtifactError, match=r"was not saved to .*: File exists\. What was there is unchanged"):
        save(tmp_path / "model", model, CLASSES)
    (tmp_path / MODEL).rename(tmp_path / "model" / MODEL)
    assert_same(load(tmp_path / "model", QABinning, CLASSES).explain(GRID), model.explain(GRID))


@pytest.mark.parametrize(
    ("failing", "after", "is_new"),
    [
        *itertools.chain(*([("fsync", 0, new), ("fsync", 1, new), ("replace", 0, new)] for new in (False, True))),
        ("mkdir", 0, True),
    ],
)
def test_a_failure_in_the_middle_leaves_what_was_there(failing, after, is_new, tmp_path, monkeypatch):
    if not is_new:
        save_turn(tmp_path / "model", 1, fitted(QABinning(points_per_bin=7)))
    before = sorted(tmp_path.rglob("*"))
    real, left = getattr(os, failing), [after]

    def fails(*arguments, **more):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(28, "No space left on device")
        return real(*arguments, **more)

    monkeypatch.setattr(os, failing, fails)
    with pytest.raises(ArtifactError, match="No space left"):
        save_turn(tmp_path / "model", 2, fitted(QABinning(points_per_bin=5)))
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before
    if not is_new:
        assert load_turn(tmp_path / "model").turn == 1


@pytest.mark.parametrize("step", ["fsync", "replace", "unlink"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_save_leaves_the_old_or_the_new_model(step, when, tmp_path, monkeypatch):
    """The command line turns SIGTERM into SystemExit, which may come between any two steps."""
    one, two = fitted(QABinning(points_per_bin=7)), fitted(QABinning(points_per_bin=5))
    real = getattr(os, step)
    seen = set()
    for at in range(40):
        calls = iter(range(at + 1))

        def stopped(*arguments, calls=calls, at=at, **more):
            number = next(calls, None)
            if when == "before" and number == at:
                raise SystemExit(143)
            try:
                return real(*arguments, **more)
            finally:
                if number == at:
                    raise SystemExit(143)

        save_turn(tmp_path / "model", 1, one)
        with monkeypatch.context() as patch:
            patch.setattr(os, step, stopped)
            try:
                save_turn(tmp_path / "model", 2, two)
            except SystemExit:
                seen.add(load_turn(tmp_path / "model").turn)
            else:
                break
    assert seen
    assert seen <= {1, 2}
    assert load_turn(tmp_path / "model").turn == 2


def test_a_failure_removes_nothing_but_its_own_parts(tmp_path, monkeypatch):
    """The document cannot be read for a moment, so nobody knows which parts it names."""
    save_turn(tmp_path / "model", 1, fitted(QABinning(points_per_bin=7)))
    before = (tmp_path / "model" / MODEL).read_bytes(), arrays_of(tmp_path / "model").read_bytes()
    os.utime(arrays_of(tmp_path / "model"), (0, 0))

    def fails(*_, **__):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        patch.setattr(os, "open", fails)
        with pytest.raises(ArtifactError, match="Too many open files"):
            save_turn(tmp_path / "model", 2, fitted(QABinning(points_per_bin=5)))
    assert ((tmp_path / "model" / MODEL).read_bytes(), arrays_of(tmp_path / "model").read_bytes()) == before
    assert len(list((tmp_path / "model").iterdir())) == 2


def test_what_a_killed_save_left_behind_is_removed_later(tmp_path, monkeypatch):
    save_turn(tmp_path / "model", 1, fitted(Identity()))
    old = [tmp_path / "model" / name for name in ("arrays-00000001", "0-00000001", ".model.json.new-00000001")]
    new = tmp_path / "model" / "arrays-00000002"
    for folder in (*old[:2], new):
        folder.mkdir()
    old[2].write_text("{")
    for path in old:
        os.utime(path, (0, 0))
    save_turn(tmp_path / "model", 2, fitted(Identity()))
    assert not any(path.exists() for path in old)
    # This one may belong to a save in progress.
    assert new.exists()
    replace, notes = os.replace, tmp_path / "model" / "notes.txt"

    def replace_beside_notes(*paths):
        notes.write_text("mine")
        os.utime(notes, (0, 0))
        replace(*paths)

    monkeypatch.setattr(os, "replace", replace_beside_notes)
    save_turn(tmp_path / "model", 2, fitted(Identity()))
    monkeypatch.undo()
    assert notes.read_text() == "mine"
    notes.unlink()
    (tmp_path / "model" / MODEL).unlink()
    save_turn(tmp_path / "model", 3, fitted(Identity()))
    assert load_turn(tmp_path / "model").turn == 3


SAVING = """
import itertools, os, sys
from dataclasses import dataclass
from qacal import storage
from qacal.calibrators import UniformMassBinning

@dataclass(frozen=True)
class Turn:
    turn: int
    calibrator: UniformMassBinning

os.fsync = lambda handle: None
models = [UniformMassBinning(n_bins=n).fit([0.1, 0.5, 0.6, 0.9], [0, 1, 0, 1]) for n in (1, 2)]
for turn in itertools.count():
    storage.save(sys.argv[1], Turn(turn % 2, models[turn % 2]), [UniformMassBinning])
    print(turn, flush=True)
"""


def test_processes_that_load_find_a_whole_model_while_others_save_and_are_killed(tmp_path):
    path, answers = tmp_path / "model", set()
    save_turn(path, 0, UniformMassBinning(n_bins=1).fit([0.1, 0.5, 0.6, 0.9], [0, 1, 0, 1]))
    saving = [sys.executable, "-c", SAVING, path]
    with (
        subprocess.Popen(saving, stdout=subprocess.PIPE) as one,
        subprocess.Popen(saving, stdout=subprocess.PIPE) as two,
    ):
        for saver in (one, two):
            assert saver.stdout is not None
            while int(saver.stdout.readline()) < 40:
                loaded = load_turn(path)
                answers.add((loaded.turn, loaded.calibrator.n_bins, len(loaded.calibrator.maps_.top)))
            saver.kill()
    load_turn(path)
    assert answers == {(0, 1, 1), (1, 2, 2)}


# What is wrong with a folder


@pytest.fixture
def model(tmp_path):
    save_turn(tmp_path / "model", 3, fitted(QABinning(points_per_bin=7), "mixed"))
    return tmp_path / "model"


def arrays_of(path):
    return next(path.glob("arrays-*"))


def rewrite(path, change):
    """Change the document and update its digest, as an attacker would."""
    document = json.loads((path / MODEL).read_text(encoding="utf-8"))
    document.pop("digest")
    change(document)
    document["digest"] = digest(document)
    (path / MODEL).write_text(json.dumps(document), encoding="utf-8")


def is_array(part):
    return isinstance(part, dict) and {*part} == {*ARRAY}


def entries_of(document, at=""):
    """Return the arrays of a document by name, as it describes them."""
    if is_array(document):
        return {at: document}
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return {name: entry for key, part in pairs for name, entry in entries_of(part, f"{at}.{key}".strip(".")).items()}


def replace_array(path, name, array):
    """Write another array after all others, and make the document agree."""
    file = arrays_of(path)
    numbers = file.read_bytes()
    file.write_bytes(numbers + array.tobytes())

    def change(document):
        entry = {"dtype": array.dtype.name, "shape": list(array.shape), "start": len(numbers) // 8}
        entries_of(document["value"]).get(name, {}).update(entry)
        document["arrays"][file.name] = sha256(file.read_bytes()).hexdigest()

    rewrite(path, change)


def refuses(path, match):
    with pytest.raises(ArtifactError, match=match):
        load_turn(path)


def test_each_fault_has_its_message(model):
    refuses(model / "not", "does not exist; a model is a folder that qacal fit makes")
    refuses(model / "model.json", "is not a folder; a model is a folder with a model.json")
    document = (model / MODEL).read_bytes()

    def with_document(content, match):
        (model / MODEL).write_bytes(content)
        refuses(model, match)
        (model / MODEL).write_bytes(document)

    with_document(b"", "is not JSON")
    with_document(b"[1]", "holds a list; expected an object")
    with_document(b"\xff", "is not JSON")
    with_document(
        b'{"schema": 1}', f"an earlier qacal saved it .schema 1; this one reads {SCHEMA}.: fit the model again"
    )
    later = rf"a later qacal saved it .schema 99; this one reads {SCHEMA}.: upgrade qacal. Copy .* or fit it again."
    with_document(b'{"schema": 99}', later)
    with_document(b'{"schema": 1, "qacal": "0.1"}', "an earlier qacal saved it .schema 1")
    with_document(b'{"schema": true}', "this qacal did not write")
    with_document(b"{}", "this qacal did not write")
    with_document(b'{"schema": 1, "x": NaN}', "is not JSON: Out of range float values")
    with_document(b'{"schema": 1, "x": 1e999}', "is not JSON: Out of range float values")
    with_document(b'{"schema": 1' + b"1" * 5000 + b"}", "is not JSON")
    with_document(b'{"schema": 1' + b"1" * 500 + b"}", "this qacal did not write")
    with_document(b'{"a":' * 100_000, "is not JSON: maximum recursion depth")
    with_document(document.replace(b'"alpha": 0.1', b'"alpha": 0.01'), "does not match its digest")
    with_document(b" " * (64 * 2**20 + 1), "no file of at most 67108864 bytes")
    (model / MODEL).unlink()
    refuses(model, "is no model: it has no model.json, but arrays-.* copy the whole model again")
    (model / MODEL).mkdir()
    refuses(model, "model.json cannot be read: Is a directory")


def test_a_folder_that_is_no_model_is_told_with_what_it_has(model, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for read in (load_turn, version_of):
        with pytest.raises(ArtifactError, match=r"other is no model: the folder is empty\. Name a folder"):
            read(other)
    (other / "notes.txt").touch()
    refuses(other, r"other is no model: it has no model\.json, but notes\.txt\. Name a folder that qacal fit made")
    shutil.copytree(model, other / "mine")
    refuses(other, r"but mine, notes\.txt\. Did you mean .*mine\?")


def test_another_layout_of_the_document_is_accepted(model):
    document = json.loads((model / MODEL).read_bytes())
    (model / MODEL).write_text(json.dumps(document), encoding="utf-8")
    assert load_turn(model).turn == 3


def test_each_fault_of_the_arrays_has_its_message(model):
    file = arrays_of(model)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"\x01")
    refuses(model, r"arrays-[0-9a-f]{8} does not match its digest")
    file.write_bytes(content[:-1])
    refuses(model, "does not match its digest")
    file.unlink()
    refuses(model, "No such file")
    file.mkdir()
    refuses(model, "Is a directory")


def test_only_parts_of_the_model_are_read(model):
    document = (model / MODEL).read_bytes()
    stated = json.loads(document)["arrays"][arrays_of(model).name]
    for arrays in (
        *({name: stated} for name in ("../value", "/etc/passwd", ".hidden", "a/b", "", "arrays", "arrays-1/../../a")),
        {arrays_of(model).name: stated, "arrays-00000000": stated},
    ):
        rewrite(model, lambda document, arrays=arrays: document.update(arrays=arrays))
        refuses(model, "names the parts")
    for folders in (["../arrays"], ["arrays"], [3], ["/tmp"], ["0-00000000/.."]):
        (model / MODEL).write_bytes(document)
        rewrite(model, lambda document, folders=folders: document.update(folders=folders))
        refuses(model, "names the parts")
    for change in ({"arrays": []}, {"folders": {}}, {"value": []}, {"qacal": 1}, {"more": 1}):
        (model / MODEL).write_bytes(document)
        rewrite(model, lambda document, change=change: document.update(change))
        refuses(model, "this qacal did not write the document")
    for arrays, match in (({}, "expected an array of"), ({arrays_of(model).name: 7}, "does not match its digest")):
        (model / MODEL).write_bytes(document)
        rewrite(model, lambda document, arrays=arrays: document.update(arrays=arrays))
        refuses(model, match)


def test_a_sparse_giant_is_not_read(model):
    with open(arrays_of(model), "ab") as file:
        file.truncate(2**40)
    refuses(model, "no file of at most")


def test_reading_takes_as_much_memory_as_the_file(model):
    tracemalloc.start()
    load_turn(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24


def test_links_are_not_followed(model, tmp_path):
    file = arrays_of(model)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    refuses(model, "cannot be read: Too many levels of symbolic links")
    file.unlink()
    (tmp_path / "elsewhere").rename(file)
    load_turn(model)
    (tmp_path / "folder").mkdir()
    (model / "0-00000000").symlink_to(tmp_path / "folder")
    rewrite(model, lambda document: document.update(folders=["0-00000000"]))
    refuses(model, "not a folder of its own")


def test_pipes_are_not_waited_for(model):
    file = arrays_of(model)
    file.unlink()
    os.mkfifo(file)
    refuses(model, "no file of at most")


@pytest.mark.parametrize(
    ("name", "array", "match"),
    [
        ("value", [1.5, 0.5], r"value\[0\] is 1.5; expected 0 to 1"),
        ("value", [np.nan, 0.5], r"value\[0\] is nan"),
        ("value", [[0.5], [0.5]], r"value has shape \[2, 1\]; expected \[2\]"),
        ("value", [0.5], r"value has shape \[1\]; expected \[2\]"),
        ("low", [0.9, 0.9], "low above its high"),
        ("top", [np.inf, np.inf], "top of a bin is a number from 0 to 1"),
        ("top", [0.5, 1.0], "last bin of a map must have no top"),
        ("rows", [-1, 10], r"rows\[0\] is -1"),
        ("rows", [1.0, 10.0], "float64.*; expected an array of int64"),
        ("offset", [0, 3], "offset must rise from 0 to 2"),
        ("offset", [-5, 2], "offset must rise"),
        ("lineage.depth", [1], "first node must be the root"),
    ],
)
def test_content_that_no_fit_makes_is_refused(name, array, match, tmp_path):
    rows = {"confidence": [0.5] * 10 + [0.9] * 10, "correct": [0, 1] * 10}
    save_turn(tmp_path / "model", 1, UniformMassBinning(points_per_bin=10).fit(**rows))
    replace_array(tmp_path / "model", f"calibrator.maps_.{name}", np.array(array))
    refuses(tmp_path / "model", match)


# Altered models of every kind are refused, or still return probabilities


def answers(n, seed=0):
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(n, 4)).round(2)
    h = rng.choice([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], n)
    tenant = rng.choice(["acme", "globex", "größe"], n)
    right = rng.random(n) < 1 / (1 + np.exp(-(3 * (h - 0.7) + v[:, 0] + (tenant == "acme"))))
    tokens = np.where(rng.random(n) < 0.2, np.nan, h**2)
    return [
        {"id": f"{seed}-{i}", "question": f"Q{i}?", "answer": "A", "confidence": float(h[i]), "correct": int(right[i])}
        | {"v": v[i].tolist(), "tenant": str(tenant[i]), "tokens": None if np.isnan(tokens[i]) else float(tokens[i])}
        for i in range(n)
    ]


MODELS = {
    "default": {},
    "continuous": {"output": "continuous"},
    "score of columns": {"learned_score": LearnedScore(columns=["tenant"], confidences=["tokens"])},
    "step bins": {"calibrator": StepBinning(rows_per_map=50), "partition": Column("tenant")},
    "curves with margins": {"partition": Column("tenant")},
    "tree bins": {"calibrator": TreeBinning(), "partition": "bisecting:2"},
    "bins": {"calibrator": QABinning(points_per_bin=30), "partition": Column("tenant")},
    "jittered": {"calibrator": QABinning(points_per_bin=40, ties="jitter"), "partition": KDTree(axes="coordinate")},
    "on a grid": {
        "calibrator": ScalingQABinning(points_per_bin=15, max_depth=2, resolution=0.05),
        "partition": "kdtree:3",
    },
    "curves": {"calibrator": HierarchicalScaling(feature="logit"), "partition": "kmeans:3"},
    "curves of a product": {
        "calibrator": HierarchicalScaling(),
        "partition": Product(Column("tenant"), KDTree(max_depth=1)),
    },
    "curves along a tree": {"calibrator": TreeScaling(max_depth=2), "partition": BisectingTree(max_depth=2)},
    "isotonic": {"calibrator": IsotonicCalibration(pooling="none"), "partition": "bisecting:2"},
    "one isotonic": {"calibrator": IsotonicCalibration()},
    "platt": {"calibrator": PlattScaling(feature="logit")},
    "pooled bins": {"calibrator": ScalingBinning(points_per_bin=20, certificate="conditional")},
    "uniform mass": {"calibrator": UniformMassBinning(points_per_bin=20)},
    "identity": {"calibrator": Identity()},
}
ROWS = answers(24, seed=1)


@pytest.fixture(scope="module", params=MODELS, ids=lambda name: name.replace(" ", "_"))
def saved(request, tmp_path_factory):
    """A model of a kind, with a threshold of its own for each group."""
    path = tmp_path_factory.mktemp("models") / "model"
    settings = {"learned_score": None if "calibrator" in MODELS[request.param] else "auto"} | MODELS[request.param]
    model = QACalibrator("column:v", **copy.deepcopy(settings)).fit(answers(300))
    groups = [group.group for group in model.describe_groups()]
    model.set_threshold(dict.fromkeys(groups, 0.5) if groups else 0.5).save(path)
    assert still_answers(path)
    return path


def still_answers(path):
    """Load a model; if it loads, it must return probabilities."""
    try:
        model = qacal.load(path)
    except QacalError:
        return False
    try:
        found = model.calibrate(ROWS, allow_other_source=True)
    except InputError:  # it may need other columns or vectors of another length, with an error
        return True
    for row in found:
        assert 0 <= row["calibrated"] <= 1
        assert row["low"] is None or 0 <= row["low"] <= row["high"] <= 1
    model.describe_groups()
    assert model.fit_record_.outlooks().everywhere.rows.sum() >= 0
    return True


@pytest.mark.parametrize("origins", [{"samples": ["x"]}, {"samples": []}, {"id": ["x"]}])
def test_origins_that_no_fit_has_are_refused(origins, tmp_path):
    QACalibrator("column:v", calibrator=Identity(), learned_score=None).fit(answers(30)).save(tmp_path / "model")
    rewrite(tmp_path / "model", lambda document: document["value"].update(origins=origins))
    with pytest.raises(ArtifactError, match=r"holds no sound model: origins[ .]"):
        qacal.load(tmp_path / "model")


def test_what_is_loaded_is_the_same_model(saved, tmp_path):
    model = qacal.load(saved)
    model.save(tmp_path / "again")
    assert (tmp_path / "again" / MODEL).read_bytes() == (saved / MODEL).read_bytes()
    assert qacal.load(tmp_path / "again").calibrate(ROWS) == model.calibrate(ROWS)


def test_damage_is_noticed(saved, tmp_path):
    """Flipped bytes and cuts are found, but for the blanks and line ends of the document."""
    rng = np.random.default_rng(1)
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    for file in sorted(path for path in path.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for at in rng.choice(len(content), 1).tolist():
            for damaged in (content[:at], content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]):
                file.write_bytes(damaged)
                is_same = file.name == MODEL and damaged.split() == content.split()
                assert not still_answers(path) or is_same
        file.write_bytes(content)


VALUES = [None, True, -1, 0, 3, 10**30, 0.5, -0.5, 1e300, 5e-324, "", "merge", [], [[1]], ["a", "b"], {}, {"a": 1}]
FLOATS = [np.nan, np.inf, -np.inf, -1.0, 0.0, 2.0, 1e308, -1e308, 1e100, 1e50, 5e-324]
INTEGERS = [-(2**63), -2, -1, 0, 1, 2**20, 2**62, 2**63 - 1]


def places(document, at=()):
    """Yield where something is in a document; arrays count as a whole."""
    yield at
    if is_array(document):
        return
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from places(value, (*at, key))


def alter_document(document, rng):
    every = [at for at in places(document) if at and at[0] not in ("digest", "arrays")]
    *outer, last = every[rng.integers(len(every))]
    for key in outer:
        document = document[key]
    how = rng.integers(8)
    if how == 0:
        del document[last]
    elif how == 1 and isinstance(document[last], dict | list):
        document[last].update(unknown=1) if isinstance(document[last], dict) else document[last].append(1)
    else:
        document[last] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])


def altered(array, others, rng):
    """Return other content of an array: odd values in odd places, other lengths, axes and types, another order."""
    is_float, how = array.dtype.kind == "f", rng.integers(12)
    odd = np.array(FLOATS if is_float else INTEGERS).astype(array.dtype)
    if how < 6 and array.size:
        array = array.copy()
        array.flat[rng.integers(array.size, size=rng.integers(1, 4))] = rng.choice(odd)
    elif how == 6:
        array = np.full_like(array, rng.choice(odd))
    elif how == 7:
        array = array[: rng.integers(len(array) + 1)] if rng.random() < 0.5 else np.concatenate([array, array[:1]])
    elif how == 8:
        array = array[::-1].copy()
    elif how == 9:
        array = array[None] if rng.random() < 0.5 else array.ravel()
    elif how == 10:
        array = array.astype(np.int64 if is_float and np.isfinite(array).all() else np.float64)
    else:
        array = others[rng.integers(len(others))]
    return array


def test_altered_models_are_refused_or_answer_with_probabilities(saved, tmp_path):
    """Digests agree, as an attacker would ensure. Warnings are errors, so nothing overflows either."""
    rng = np.random.default_rng(0)
    original = (saved / MODEL).read_bytes()
    numbers = arrays_of(saved).read_bytes()
    arrays = {
        name: np.ndarray(entry["shape"], entry["dtype"], numbers, 8 * entry["start"])
        for name, entry in entries_of(json.loads(original)["value"]).items()
    }
    names = list(arrays)
    answered = 0
    for number in range(sized(30)):
        path = tmp_path / str(number)
        shutil.copytree(saved, path)
        for _ in range(rng.integers(1, 3)):
            if rng.random() < 0.5:
                name = names[rng.integers(len(names))]
                replace_array(path, name, altered(arrays[name], [*arrays.values()], rng))
            else:
                rewrite(path, lambda document: alter_document(document, rng))
        answered += still_answers(path)
        shutil.rmtree(path)
    assert answered < sized(30)
    assert answered or not FULL
