"""Saving and loading: bit-equal, whole or nothing, and never a wrong answer from a damaged or hostile directory."""

import contextlib
import copy
import json
import os
import subprocess
import sys
from dataclasses import fields
from datetime import date
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from qacal import (
    HierarchicalScaling,
    Identity,
    InputError,
    IsotonicCalibration,
    NotFittedError,
    Paths,
    PlattScaling,
    QABinning,
    ScalingQABinning,
    TreeScaling,
    UniformMassBinning,
)
from qacal.errors import ArtifactError
from qacal.model import artifacts
from qacal.model.artifacts import load, save
from qacal.partitions import BisectingTree, Column, KDTree, KMeans, Product
from qacal.storage import array_files, plain
from qacal.tally.groups import NO_GROUP
from tests.calibrators.contract import CALIBRATORS, name_of

every_calibrator = pytest.mark.parametrize("calibrator", CALIBRATORS, ids=name_of)

GRID = np.linspace(0, 1, 41)


def groups_of(kind, rng, n, known=5):
    codes = rng.integers(-1, known, n)
    if kind == "none":
        return None
    if kind == "int":
        return codes
    if kind == "text":
        names = np.array(["law", "art", "größe", "2", "o'hara", None], dtype=object)
        return names[codes]
    if kind == "mixed":
        return [[2, "2", True, 2.5, -7, None][code] for code in codes]
    return Paths(rng.integers(0, 8, n), rng.integers(0, 5, n), 3)


def rows_of(kind, seed, n=150):
    rng = np.random.default_rng(seed)
    h = rng.choice(np.linspace(0, 1, 21), n) if seed % 2 else rng.random(n)
    correct = (rng.random(n) < 0.2 + 0.6 * h).astype(float)
    return {"confidence": h, "correct": correct, "groups": groups_of(kind, rng, n), "ids": np.arange(n) * 3}


def asked(kind, seed, n=60):
    rng = np.random.default_rng(seed + 1)
    h = np.concatenate([rng.random(n - len(GRID)), GRID])
    return {"confidence": h, "groups": groups_of(kind, rng, n, known=5), "ids": np.arange(n) + 1000}


def fitted(calibrator, kind="int", seed=1):
    return clone(calibrator).fit(**rows_of(kind, seed))


def assert_same(one, two):
    np.testing.assert_array_equal(one.calibrated, two.calibrated)
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(two, field.name))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


# Round trip


@every_calibrator
@pytest.mark.parametrize("kind", ["none", "int", "text", "mixed", "tree"])
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_what_is_loaded_answers_bit_for_bit_as_what_was_saved(calibrator, kind, seed, shelf):
    model = fitted(calibrator, kind, seed)
    save(shelf / "same", header={}, calibrator=model)
    back = load(shelf / "same").calibrator
    assert type(back) is type(model)
    assert back.get_params() == model.get_params()
    ask = asked(kind, seed)
    np.testing.assert_array_equal(back.predict(**ask), model.predict(**ask))
    assert_same(back.explain(**ask), model.explain(**ask))
    np.testing.assert_array_equal(back.predict(GRID, ids=np.arange(41)), model.predict(GRID, ids=np.arange(41)))


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize(
    "calibrator", [QABinning(points_per_bin=7), HierarchicalScaling(), IsotonicCalibration(pooling="none")], ids=name_of
)
def test_a_tree_cut_at_a_depth_comes_back(calibrator, depth, tmp_path):
    model = fitted(clone(calibrator).set_params(max_depth=depth), "tree")
    save(tmp_path / "model", header={}, calibrator=model)
    ask = asked("tree", 5)
    assert_same(load(tmp_path / "model").calibrator.explain(**ask), model.explain(**ask))


def vectors_of(seed, n=400):
    rng = np.random.default_rng(seed)
    return {"embedding": rng.normal(size=(n, 4)), "subject": rng.choice(["law", "art", "größe"], n).tolist()}


PARTITIONS = [
    KDTree(max_depth=3),
    KDTree(max_depth=3, axes="coordinate"),
    BisectingTree(max_depth=2),
    KMeans(n_groups=4),
    Column("subject"),
    Product(Column("subject"), KDTree(max_depth=1)),
]


@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
def test_a_partition_comes_back(partition, tmp_path):
    rng = np.random.default_rng(0)
    rows, near, h = vectors_of(0), vectors_of(1), rng.random(400)
    partition = partition.fresh().fit_rows(rows)
    model = QABinning(points_per_bin=20).fit(h, rng.random(400) < h, groups=partition.groups_of(rows))
    save(tmp_path / "model", header={}, calibrator=model, partition=partition)
    back = load(tmp_path / "model")
    assert repr(back.partition) == repr(partition)
    loaded = back.calibrator.explain(h, groups=back.partition.groups_of(near))
    assert_same(loaded, model.explain(h, groups=partition.groups_of(near)))


def test_the_header_comes_back_and_the_document_is_for_people(tmp_path):
    header = {"embedder": {"name": "static", "dim": 256}, "rows": 12, "share": 0.1, "note": "größer", "none": None}
    save(tmp_path / "model", header=header, calibrator=fitted(PlattScaling()))
    assert load(tmp_path / "model").header == header
    text = (tmp_path / "model" / "model.json").read_text(encoding="utf-8")
    assert "größer" in text
    assert json.loads(text)["schema"] == 1
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_arrays_are_plain_npy_files(tmp_path):
    model = fitted(QABinning(points_per_bin=7))
    save(tmp_path / "model", header={}, calibrator=model)
    top = np.load(tmp_path / "model" / "arrays" / "calibrator.top.npy", allow_pickle=False)
    np.testing.assert_array_equal(top, model.maps_.top)
    for array in (np.zeros((0, 2)), np.ones((3, 2), dtype=np.float32), np.array([True, False])):
        data = array_files.to_bytes(array)
        assert len(data) == array_files.size_of(array.dtype.name, array.shape)
        np.testing.assert_array_equal(array_files.from_bytes(data, array.dtype.name, array.shape), array)


def test_maps_remember_groups_and_not_cells():
    rng = np.random.default_rng(0)
    rows = {"confidence": rng.random(2000), "correct": rng.integers(0, 2, 2000), "groups": rng.integers(0, 4, 2000)}
    for calibrator in (QABinning(), HierarchicalScaling(), TreeScaling(), IsotonicCalibration(pooling="none")):
        assert calibrator.fit(**rows).maps_.grouping.code.tolist() == [0, 1, 2, 3]


def test_the_same_model_is_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        save(tmp_path / name, header={"b": 1, "a": 2}, calibrator=fitted(HierarchicalScaling()))
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) > 5
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


# What cannot be saved


@pytest.mark.parametrize("label", [date(2024, 1, 1), (1, 2), float("inf"), "\ud800", 10**400])
def test_labels_that_files_cannot_hold_are_refused(label, tmp_path):
    labels = np.empty(60, dtype=object)
    labels[:] = [label, "law"] * 30
    model = QABinning(points_per_bin=5).fit(np.full(60, 0.5), np.tile([0, 1, 1], 20), groups=labels)
    with pytest.raises(ArtifactError, match=r"grouping.labels\[\d\]"):
        save(tmp_path / "model", header={}, calibrator=model)
    assert list(tmp_path.iterdir()) == []


def test_unfitted_foreign_and_changed_calibrators_are_refused(tmp_path):
    class Mine(PlattScaling):
        pass

    with pytest.raises(NotFittedError, match="call fit"):
        save(tmp_path / "model", header={}, calibrator=QABinning())
    with pytest.raises(ArtifactError, match="Mine is not one of"):
        save(tmp_path / "model", header={}, calibrator=fitted(Mine()))
    with pytest.raises(ArtifactError, match=r"alpha is 0\.5, and the maps were fitted with 0\.1"):
        save(tmp_path / "model", header={}, calibrator=fitted(QABinning()).set_params(alpha=0.5))
    with pytest.raises(ArtifactError, match=r"header\.at is a date"):
        save(tmp_path / "model", header={"at": date(2024, 1, 1)}, calibrator=fitted(Identity()))
    with pytest.raises(ArtifactError, match="a key of header is 3"):
        save(tmp_path / "model", header={3: 1}, calibrator=fitted(Identity()))


# Whole or nothing


def test_a_model_replaces_a_model(tmp_path):
    save(tmp_path / "model", header={"turn": 1}, calibrator=fitted(QABinning(points_per_bin=7)))
    save(tmp_path / "model", header={"turn": 2}, calibrator=fitted(PlattScaling()))
    assert load(tmp_path / "model").header == {"turn": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_empty_directory_and_a_link_to_a_model_are_taken(tmp_path):
    (tmp_path / "model").mkdir()
    save(tmp_path / "model", header={"turn": 1}, calibrator=fitted(Identity()))
    (tmp_path / "latest").symlink_to("model")
    save(tmp_path / "latest", header={"turn": 2}, calibrator=fitted(Identity()))
    assert load(tmp_path / "model").header == load(tmp_path / "latest").header == {"turn": 2}
    assert (tmp_path / "latest").is_symlink()


def test_anything_else_is_left_alone(tmp_path):
    model = fitted(Identity())
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="is a file"):
        save(tmp_path / "file", header={}, calibrator=model)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("mine")
    with pytest.raises(ArtifactError, match=r"chapter\.tex"):
        save(tmp_path / "thesis", header={}, calibrator=model)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.json").write_text('{"format": "of another tool"}')
    with pytest.raises(ArtifactError, match="no part of a qacal model"):
        save(tmp_path / "other", header={}, calibrator=model)
    save(tmp_path / "model", header={}, calibrator=model)
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match=r"notes\.txt"):
        save(tmp_path / "model", header={}, calibrator=model)
    with pytest.raises(ArtifactError, match="create it first"):
        save(tmp_path / "no" / "where", header={}, calibrator=model)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "mine"


@pytest.mark.parametrize(("failing", "after"), [("fsync", 0), ("fsync", 3), ("rename", 1), ("replace", 0)])
def test_a_failure_in_the_middle_leaves_the_old_model(failing, after, tmp_path, monkeypatch):
    save(tmp_path / "model", header={"turn": 1}, calibrator=fitted(QABinning(points_per_bin=7)))
    real, left = getattr(os, failing), [after]

    def fails(*arguments):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(artifacts.os, failing, fails)
    with pytest.raises(ArtifactError, match="No space left"):
        save(tmp_path / "model", header={"turn": 2}, calibrator=fitted(QABinning(points_per_bin=5)))
    monkeypatch.undo()
    assert load(tmp_path / "model").header == {"turn": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["arrays", "model.json"]


@pytest.mark.parametrize("step", ["mkdir", "fsync", "rename", "replace", "rmdir"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_stops_a_save_leaves_the_old_model_or_the_new_one(step, when, tmp_path, monkeypatch):
    """SystemExit is how the command line takes SIGTERM; it may come between any two steps."""
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

        save(tmp_path / "model", header={"turn": 1}, calibrator=one)
        with monkeypatch.context() as patch:
            patch.setattr(os, step, stopped)
            try:
                save(tmp_path / "model", header={"turn": 2}, calibrator=two)
            except SystemExit:
                seen.add(load(tmp_path / "model").header["turn"])
            else:
                break
    assert seen
    assert seen <= {1, 2}
    assert load(tmp_path / "model").header == {"turn": 2}


def test_what_a_killed_save_left_behind_is_removed_later(tmp_path):
    save(tmp_path / "model", header={}, calibrator=fitted(Identity()))
    old = [tmp_path / ".model.new-00000001", tmp_path / "model" / "arrays-00000001"]
    new = tmp_path / "model" / "arrays-00000002"
    foreign = tmp_path / ".model.new-ideas"
    for folder in (*old, new, foreign):
        folder.mkdir()
    for folder in (*old, foreign):
        os.utime(folder, (0, 0))
    save(tmp_path / "model", header={}, calibrator=fitted(Identity()))
    assert not any(folder.exists() for folder in old)
    # This one may be of somebody who is saving right now.
    assert new.exists()
    assert foreign.exists()
    load(tmp_path / "model")


SAVING = """
import itertools, os, sys
from qacal import Identity, PlattScaling
from qacal.model.artifacts import save
os.fsync = lambda handle: None
models = [kind().fit([0.1, 0.5, 0.6, 0.9], [0, 1, 0, 1]) for kind in (Identity, PlattScaling)]
for turn in itertools.count():
    save(sys.argv[1], header={"turn": turn % 2}, calibrator=models[turn % 2])
    print(turn, flush=True)
"""


def test_processes_that_load_find_a_whole_model_while_others_save_and_are_killed(tmp_path):
    path, answers = tmp_path / "model", set()
    save(path, header={"turn": 0}, calibrator=fitted(Identity()))
    saving = [sys.executable, "-c", SAVING, path]
    with (
        subprocess.Popen(saving, stdout=subprocess.PIPE) as one,
        subprocess.Popen(saving, stdout=subprocess.PIPE) as two,
    ):
        for saver in (one, two):
            assert saver.stdout is not None
            while int(saver.stdout.readline()) < 40:
                loaded = load(path)
                answers.add((loaded.header["turn"], type(loaded.calibrator).__name__))
            saver.kill()
    load(path)
    assert answers == {(0, "Identity"), (1, "PlattScaling")}


# What is wrong with a directory


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model"
    save(path, header={"rows": 3}, calibrator=fitted(QABinning(points_per_bin=7), "text"))
    return path


def rewrite(path, change):
    """Change the document and make its digest agree: what somebody would do who means harm."""
    document = json.loads((path / "model.json").read_text(encoding="utf-8"))
    document.pop("digest")
    change(document)
    try:
        document["digest"] = plain.digest(document)
        text = json.dumps(document)
    except (ValueError, TypeError):
        return
    (path / "model.json").write_text(text, encoding="utf-8")


def replace_array(path, name, array):
    """Write another array, and make the document agree."""
    content = array_files.to_bytes(array)
    (path / "arrays" / f"{name}.npy").write_bytes(content)
    entry = {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": sha256(content).hexdigest()}
    rewrite(path, lambda document: document["arrays"].update({name: entry}))


def refuses(path, match):
    with pytest.raises(ArtifactError, match=match):
        load(path)


def test_each_fault_has_its_message(model):
    refuses(model / "not", "is not a directory; a model is a directory with a model.json")
    document = (model / "model.json").read_bytes()

    def with_document(content, match):
        (model / "model.json").write_bytes(content)
        refuses(model, match)
        (model / "model.json").write_bytes(document)

    with_document(b"", "is no JSON")
    with_document(b"[1]", "holds a list; expected an object")
    with_document(b"\xff", "is no JSON")
    with_document(b'{"schema": 3}', "has schema 3; this qacal reads 1. Upgrade qacal or refit.")
    with_document(b'{"schema": true}', "has schema True")
    with_document(b"{}", "has schema None")
    with_document(b'{"schema": 1, "schema": 1}', "the key 'schema' twice")
    with_document(b'{"schema": 1, "x": NaN}', "holds NaN")
    with_document(b'{"schema": 1, "x": 1e999}', "holds 1e999")
    with_document(b'{"schema": 1' + b"1" * 5000 + b"}", "is no JSON")
    with_document(b'{"a":' * 100_000, "nested too deeply")
    with_document(b'{"a":' * 200 + b"1" + b"}" * 200, "nested more than")
    with_document(document.replace(b'"alpha": 0.1', b'"alpha": 0.01'), "does not match its digest")
    with_document(b" " * (64 * 2**20 + 1), "at most 67108864")
    (model / "model.json").unlink()
    refuses(model, "model.json cannot be read: No such file")
    (model / "model.json").mkdir()
    refuses(model, "link or no file at all")


def test_laying_the_document_out_anew_is_no_damage(model):
    document = json.loads((model / "model.json").read_bytes())
    (model / "model.json").write_text(json.dumps(document), encoding="utf-8")
    assert load(model).header == {"rows": 3}


def test_each_fault_of_an_array_has_its_message(model):
    file = model / "arrays" / "calibrator.value.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"\x00")
    refuses(model, r"calibrator.value.npy does not match its digest: the file was changed or damaged; copy")
    file.write_bytes(content + b"\x00")
    refuses(model, r"bytes; expected")
    file.unlink()
    refuses(model, "No such file")
    file.write_bytes(content)
    (model / "arrays" / "more.npy").write_bytes(content)
    refuses(model, r"more.npy.*does not list")


def test_listed_names_types_and_shapes_are_checked_before_anything_is_read(model):
    document = (model / "model.json").read_bytes()
    entry = json.loads(document)["arrays"]["calibrator.value"]
    for name in ("../value", "/etc/passwd", ".hidden", "a/b", "", "Ä", "A", "a" * 101):
        rewrite(model, lambda document, name=name: document["arrays"].update({name: entry}))
        refuses(model, "is no name for an array|does not list")
        (model / "model.json").write_bytes(document)
    for change in (
        {"shape": [2**40]},
        {"shape": [0, 2**62]},
        {"shape": [-1]},
        {"shape": [True]},
        {"shape": [1.0]},
        {"shape": 5},
        {"shape": [1] * 9},
        {"dtype": "object"},
        {"dtype": "float128"},
        {"dtype": ["float64"]},
        {"extra": 1},
    ):
        rewrite(model, lambda d, change=change: d["arrays"]["calibrator.value"].update(change))
        refuses(model, "lists the array 'calibrator.value' wrongly")
        (model / "model.json").write_bytes(document)
    rewrite(model, lambda document: document["arrays"]["calibrator.value"].update(sha256=7))
    refuses(model, "does not match its digest")


def test_a_sparse_giant_is_not_read(model):
    with open(model / "arrays" / "calibrator.value.npy", "ab") as file:
        file.truncate(2**40)
    refuses(model, "bytes; expected")


def test_links_are_not_followed(model, tmp_path):
    file = model / "arrays" / "calibrator.value.npy"
    file.rename(tmp_path / "elsewhere.npy")
    file.symlink_to(tmp_path / "elsewhere.npy")
    refuses(model, "link or no file")
    file.unlink()
    (tmp_path / "elsewhere.npy").rename(file)
    (model / "arrays").rename(tmp_path / "arrays")
    (model / "arrays").symlink_to(tmp_path / "arrays")
    refuses(model, "not a directory of its own")


def test_pipes_are_not_waited_for(model):
    file = model / "arrays" / "calibrator.value.npy"
    file.unlink()
    os.mkfifo(file)
    refuses(model, "link or no file")


def test_a_header_other_than_the_listed_is_refused_though_digests_agree(model):
    file = model / "arrays" / "calibrator.value.npy"
    content = file.read_bytes().replace(b"'fortran_order': False", b"'fortran_order': True ")
    file.write_bytes(content)
    digest = sha256(content).hexdigest()
    rewrite(model, lambda document: document["arrays"]["calibrator.value"].update(sha256=digest))
    refuses(model, "is no .npy file of float64")


@pytest.mark.parametrize(
    ("name", "array", "match"),
    [
        ("value", [1.5, 0.5], r"value\[0\] is 1.5; expected 0 to 1"),
        ("value", [np.nan, 0.5], r"value\[0\] is nan"),
        ("value", [[0.5], [0.5]], r"value has shape \(2, 1\)"),
        ("value", [0.5], r"value has shape \(1,\); expected 2 values"),
        ("low", [0.9, 0.9], "low above its high"),
        ("top", [np.inf, np.inf], r"top\[0\] is inf"),
        ("top", [0.5, 1.0], "last bin of a map must have no top"),
        ("top", [-0.5, np.inf], r"top\[0\] is -0.5"),
        ("rows", [-1, 10], r"rows\[0\] is -1"),
        ("rows", [1.0, 10.0], "is of float64; expected int64"),
        ("offset", [0, 3], "offset must rise from 0 to 2"),
        ("offset", [0, 0], "offset must rise"),
        ("offset", [1, 2], "offset must rise"),
        ("offset", [-5, 2], "offset must rise"),
        ("lineage.depth", [1], "root must be the first"),
        ("lineage.owner", [0], "root must be the first"),
        ("lineage.source", [0], "source does not agree"),
        ("lineage.source", [7], "source does not agree"),
        ("lineage.directory.codes", [3], "entries has shape"),
    ],
)
def test_content_that_no_fit_makes_is_refused(name, array, match, tmp_path):
    rows = {"confidence": [0.5] * 10 + [0.9] * 10, "correct": [0, 1] * 10}
    fitted = UniformMassBinning(points_per_bin=10).fit(**rows)
    assert len(fitted.maps_.top) == 2
    save(tmp_path / "model", header={}, calibrator=fitted)
    replace_array(tmp_path / "model", f"calibrator.{name}", np.array(array))
    refuses(tmp_path / "model", match)


# Fuzz


def still_answers(path):
    """Load; what loads must answer with probabilities, whatever is asked."""
    try:
        found = load(path)
    except ArtifactError:
        return False
    model = found.calibrator
    column = getattr(model.maps_, "grouping", None)
    codes = [NO_GROUP] if column is None else [*np.unique(column.leaves())[:4].tolist(), NO_GROUP]
    labels = [None] if column is None else column.decode(np.array(codes))
    groups = np.empty(len(labels) * len(GRID), dtype=object)
    groups[:] = np.repeat(np.array(labels, dtype=object), len(GRID))
    ask = {"confidence": np.tile(GRID, len(labels)), "ids": np.arange(len(groups))}
    for given_groups in (None, groups.tolist()):
        evidence = model.explain(**ask, groups=given_groups)
        p = model.predict(**ask, groups=given_groups)
        assert ((p >= 0) & (p <= 1)).all()
        np.testing.assert_array_equal(evidence.calibrated, p)
        bounds = evidence.low[~np.isnan(evidence.low)]
        assert ((bounds >= 0) & (bounds <= 1)).all()
        evidence.to_polars() if column is None or column.labels is None else None
    if found.partition is not None:
        # A partition may ask for other columns, or vectors of another length, and say so.
        with contextlib.suppress(InputError):
            assert len(found.partition.groups_of(vectors_of(2, n=5))) == 5
    return True


FUZZED = {
    "text bins": (QABinning(points_per_bin=30), "text", Column("subject")),
    "tree bins": (
        ScalingQABinning(points_per_bin=15, max_depth=2, resolution=0.05),
        "tree",
        KDTree(max_depth=2),
    ),
    "jittered": (QABinning(points_per_bin=40, ties="jitter"), "int", KMeans(n_groups=3)),
    "curves": (HierarchicalScaling(feature="logit"), "mixed", Product(Column("subject"), KDTree(max_depth=1))),
    "tree curves": (HierarchicalScaling(max_depth=1), "tree", BisectingTree(max_depth=2)),
    "curves along a tree": (TreeScaling(max_depth=2), "tree", BisectingTree(max_depth=3)),
    "isotonic": (IsotonicCalibration(pooling="none", rows_per_group=20), "tree", None),
    "platt": (PlattScaling(feature="logit"), "none", None),
    "identity": (Identity(), "none", None),
}


@pytest.fixture(params=FUZZED, ids=lambda name: name.replace(" ", "_"))
def fuzzed(request, tmp_path):
    calibrator, kind, partition = FUZZED[request.param]
    partition = None if partition is None else partition.fresh().fit_rows(vectors_of(0, n=60))
    save(tmp_path / "model", header={"rows": 3}, calibrator=fitted(calibrator, kind), partition=partition)
    assert still_answers(tmp_path / "model")
    return tmp_path / "model"


def test_damage_is_noticed(fuzzed):
    """Every flipped byte and every cut is found, but for the blanks and line ends of the document."""
    rng = np.random.default_rng(1)
    for file in sorted(path for path in fuzzed.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for at in rng.choice(len(content), min(40, len(content)), replace=False).tolist():
            for damaged in (content[:at], content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]):
                file.write_bytes(damaged)
                assert not still_answers(fuzzed) or (file.name == "model.json" and is_same_json(damaged, content))
        file.write_bytes(content)


def is_same_json(one, two):
    return json.loads(one) == json.loads(two)


VALUES = [
    None,
    True,
    -1,
    0,
    3,
    10**30,
    0.5,
    -0.5,
    1e300,
    5e-324,
    "",
    "merge",
    "\ud800",
    [],
    [[1]],
    ["a", "b"],
    {},
    {"a": 1},
]


def places(document, at=()):
    yield at
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inner:
        yield from places(value, (*at, key))


def inside(document, at):
    for key in at:
        document = document[key]
    return document


def test_documents_of_another_structure_are_refused_or_answer(fuzzed):
    original = (fuzzed / "model.json").read_bytes()
    answered, some = 0, list(json.loads(original)["arrays"])[::6]
    for at in list(places(json.loads(original)))[1:]:
        # One array's entry is as good as another's.
        if at == ("digest",) or (at[0] == "arrays" and len(at) > 1 and at[1] not in some):
            continue

        def drop(document, at=at):
            del inside(document, at[:-1])[at[-1]]

        def add(document, at=at):
            where = inside(document, at)
            where.update(unknown=1) if isinstance(where, dict) else where.append(1)

        changes = [drop]
        for value in VALUES:
            changes.append(lambda d, at=at, value=value: inside(d, at[:-1]).__setitem__(at[-1], copy.deepcopy(value)))
        if isinstance(inside(json.loads(original), at), dict | list):
            changes.append(add)
        for change in changes:
            rewrite(fuzzed, change)
            answered += still_answers(fuzzed)
            (fuzzed / "model.json").write_bytes(original)
    assert answered > 0


def test_arrays_of_other_content_are_refused_or_answer(fuzzed):
    original = (fuzzed / "model.json").read_bytes()
    for name, entry in json.loads(original)["arrays"].items():
        file = fuzzed / "arrays" / f"{name}.npy"
        content = file.read_bytes()
        array = array_files.from_bytes(content, entry["dtype"], tuple(entry["shape"]))
        for other in hostile(array):
            replace_array(fuzzed, name, other)
            still_answers(fuzzed)
            (fuzzed / "model.json").write_bytes(original)
        file.write_bytes(content)
    assert still_answers(fuzzed)


def hostile(array):
    """Other content of one array: odd values in odd places, other lengths, other axes, another order."""
    yield from (
        array[:0],
        array[:-1],
        np.concatenate([array, array[:1]]),
        array[::-1].copy(),
        array[None],
        array.ravel(),
    )
    yield from (array.astype(np.float32), array.astype(np.int64) if array.dtype.kind != "f" else array > 0.5)
    odd = {
        "f": [np.nan, np.inf, -np.inf, -1.0, 2.0, 1e308, 5e-324],
        "i": [-(2**63), -2, -1, 0, 1, 2**20, 2**62, 2**63 - 1],
    }
    for value in odd.get(array.dtype.kind, [0, 1]):
        for at in {0, array.size // 2, array.size - 1} if array.size else ():
            other = array.copy()
            other.flat[at] = value
            yield other
        yield np.full_like(array, value)
