"""Tallies of files: the same as of the rows in memory, whatever the format, the number and the order of files."""

import subprocess
import sys
from itertools import islice
from threading import Barrier, Event, Timer

import numpy as np
import polars as pl
import pytest

from qacal import BadRows, InputError, QacalWarning
from qacal.records import tallying
from qacal.records.reading import Reading
from qacal.records.tallying import ahead, tally_files
from qacal.tally.cells import SUMS
from qacal.tally.tally import COARSE, Tally, TallySum

ROWS = 1000


def frame(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    topic = [[None, "", "law", "art", "Ärzte"][at] for at in rng.integers(0, 5, rows)]
    confidence = rng.choice([0.0, 0.1, 0.3, 0.75, 1.0], rows)
    correct = rng.integers(0, 2, rows)
    return pl.DataFrame(
        {"topic": topic, "tenant": rng.integers(-1, 3, rows), "confidence": confidence, "correct": correct}
    )


def same(one, two):
    assert repr(one) == repr(two)
    for name in ("confidence", *SUMS):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    for name, column in one.partitions.items():
        assert column.decode(column.code) == two.partitions[name].decode(two.partitions[name].code)
    for name in ("is_soft", "is_weighted", "is_clustered", "is_sum", "resolution", "n_blocks"):
        assert getattr(one, name) == getattr(two, name), name


def expected(rows, *groups, **options):
    columns = {name: rows[name] for name in groups}
    return Tally.of(rows["confidence"], rows["correct"], groups=columns, **options)


@pytest.fixture
def path(tmp_path):
    def write(rows, name="a.parquet"):
        {"parquet": rows.write_parquet, "jsonl": rows.write_ndjson, "csv": rows.write_csv}[name.split(".")[-1]](
            tmp_path / name
        )
        return tmp_path / name

    return write


@pytest.mark.parametrize("groups", [(), ("topic",), ("tenant",), ("topic", "tenant")])
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_a_file_has_the_tally_of_its_rows(path, groups, ending):
    rows = frame()
    same(tally_files(path(rows, f"a.{ending}"), groups), expected(rows, *groups))


@pytest.mark.parametrize("label", [1.0, 0.5])
def test_groups_are_read_from_the_column_that_stands_for_them(path, label):
    """Also in a file whose rows need a closer look, here for a soft label."""
    rows = frame().with_columns(llm="topic", model=pl.lit("other"), correct=pl.col("correct").cast(pl.Float64))
    rows[0, "correct"] = label
    found = tally_files(path(rows), "model", reading=Reading({"model": "llm"}))
    column = found.partitions["model"]
    assert {*column.decode(np.unique(column.code))} == {None, "law", "art", "Ärzte"}


def test_whole_float_groups_do_not_depend_on_the_file(path):
    rows = [
        pl.DataFrame({"shift": shift, "confidence": 0.5, "correct": 1}, schema_overrides={"shift": pl.Float64})
        for shift in ([1.0, 2.0], [1.0, 0.5], [None, 7.0])
    ]
    paths = [path(some, f"{at}.parquet") for at, some in enumerate(rows)]
    same(tally_files(paths, "shift"), tally_files(path(pl.concat(rows), "all.parquet"), "shift"))


def test_the_number_and_order_of_files_and_rows_do_not_matter(path, tmp_path, monkeypatch):
    rows = frame()
    whole = expected(rows, "topic")
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=1)
    parts = [path(shuffled[start : start + 300], f"part{start}.parquet") for start in range(0, ROWS, 300)]
    same(tally_files(parts[::-1], "topic"), whole)
    same(tally_files(tmp_path / "part*.parquet", "topic"), whole)
    path(shuffled[900:], "part900.jsonl")
    same(tally_files([*parts[:3], tmp_path / "part900.jsonl"], "topic"), whole)
    monkeypatch.setattr(tallying, "_ROWS_A_STEP", 70)
    monkeypatch.setattr(tallying, "_ROWS_A_STEP_ON_GRID", 70)
    same(tally_files(parts, "topic"), whole)
    same(tally_files(parts, "topic", resolution=0.1), expected(rows, "topic", resolution=0.1))


@pytest.mark.parametrize("resolution", [None, 0.1])
@pytest.mark.parametrize(
    "labels",
    [
        [True, False],
        [True, None],
        [-1, 0, 3],
        [-7, 2**40, None],
        ["", None, "b", "a"],
        [str(number) for number in range(300)],
    ],
)
def test_groups_of_any_type_are_those_of_the_rows_in_memory(path, labels, resolution, monkeypatch):
    monkeypatch.setattr(tallying, "_ROWS_A_STEP_ON_GRID", 700)
    topic = pl.Series("topic", labels * ROWS)[:ROWS]
    rows = frame().with_columns(topic, correct=pl.when(pl.int_range(pl.len()) != 3).then("correct"))
    with pytest.warns(QacalWarning, match="1 of 1,000 rows have no label|1 of 1,000 rows has no label"):
        counted = tally_files(path(rows), "topic", resolution=resolution)
    same(counted, expected(rows.drop_nulls("correct"), "topic", resolution=resolution))


@pytest.mark.parametrize("kind", [pl.Float32, pl.Float64])
@pytest.mark.parametrize("resolution", [None, 0.1, 0.001])
def test_confidences_are_read_and_rounded_as_in_memory(path, kind, resolution):
    rng = np.random.default_rng(3)
    # Halves of the grid are where rounding could differ.
    confidence = np.concatenate([rng.random(500), np.arange(500) / 500, [0.8, 0.05, 0.0005, 0.0015, 1.0, -0.0]])
    rows = pl.DataFrame({"confidence": pl.Series(confidence, dtype=kind), "correct": rng.random(len(confidence)) < 0.5})
    counted = tally_files(path(rows), resolution=resolution)
    same(counted, Tally.of(rows["confidence"], rows["correct"], resolution=resolution))


def test_soft_labels_are_counted_row_by_row(path):
    rows = frame().with_columns(correct=pl.Series(np.random.default_rng(4).random(ROWS)))
    same(tally_files(path(rows), "topic"), expected(rows, "topic"))


def test_rows_without_a_label_are_left_out_with_a_warning(path):
    rows = frame().with_columns(correct=pl.when(pl.int_range(pl.len()) % 10 > 0).then("correct"))
    bad = BadRows()
    with pytest.warns(QacalWarning, match=r"a\.parquet: 100 of 1,000 rows have no label and are not used\."):
        counted = tally_files(path(rows), "topic", reading=Reading(on_fault=bad))
    same(counted, expected(rows.filter(pl.col("correct").is_not_null()), "topic"))
    assert (bad.rows, bad.count) == (ROWS, 0)


def test_ids_tell_whether_questions_have_several_rows(path):
    rows = frame().with_columns(id=pl.int_range(pl.len()))
    first, second = path(rows[:500], "first.parquet"), path(rows[500:], "second.jsonl")
    assert not tally_files([first, second], "topic").is_clustered
    again = path(rows[:1].with_columns(id=pl.lit("999")), "third.parquet")  # the number 999 is in the second file
    assert tally_files([first, second, again], "topic").is_clustered
    questions = rows.drop("id").with_columns(question=pl.lit("the same"), answer=pl.lit(None, pl.String))
    assert tally_files(path(questions), "topic").is_clustered


def test_bad_rows_are_named_or_skipped(path):
    rows = frame().with_columns(confidence=pl.when(pl.int_range(pl.len()) == 7).then(1.5).otherwise("confidence"))
    with pytest.raises(InputError, match=r"a\.parquet row 8: confidence is 1\.5; expected 0 to 1\."):
        tally_files(path(rows), "topic")
    bad = BadRows()
    counted = tally_files(path(rows), "topic", reading=Reading(on_fault=bad))
    same(counted, expected(pl.concat([rows[:7], rows[8:]]), "topic"))
    assert (bad.rows, bad.count) == (ROWS, 1)


@pytest.mark.parametrize("value", [1.5, 1 + 1e-9, -1e-9, float("nan"), float("inf"), None])
@pytest.mark.parametrize("resolution", [None, 0.1])
def test_a_confidence_that_is_no_confidence_is_named_on_any_grid(path, value, resolution):
    rows = frame().with_columns(confidence=pl.Series([value, *frame()["confidence"][1:]]))
    with pytest.raises(InputError, match=r"a\.parquet row 1: confidence is "):
        tally_files(path(rows), "topic", resolution=resolution)


def test_too_many_cells_are_an_error_with_a_remedy(path, monkeypatch):
    monkeypatch.setattr(tallying, "MOST_CELLS", 100)
    rows = frame().with_columns(confidence=pl.Series(np.random.default_rng(5).random(ROWS)))
    for ending in ("parquet", "jsonl"):
        with pytest.raises(
            InputError, match=r"more than 100 cells.*--resolution 0\.001 \(in Python: resolution=0\.001"
        ):
            tally_files(path(rows, f"a.{ending}"))
    assert len(tally_files(path(rows), resolution=0.1)) == 11


def test_files_that_do_not_exist_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no file matches .*none\*\.parquet"):
        tally_files(tmp_path / "none*.parquet")
    with pytest.raises(InputError, match="does not exist"):
        tally_files(tmp_path / "none.parquet")
    with pytest.raises(InputError, match="name at least one"):
        tally_files([])


def test_a_sum_of_many_cells_is_rounded_whatever_the_order():
    rng = np.random.default_rng(6)
    parts = [Tally.of(rng.random(300), rng.random(300) < 0.5) for _ in range(20)]
    sums = []
    for order in (parts, parts[::-1]):
        total = TallySum(most=2000)
        for part in order:
            total.add(part)
        sums.append(total.total())
    same(sums[0], sums[1])
    assert sums[0].resolution == COARSE
    same(sums[0], sum(parts).snapped(COARSE))
    few = TallySum(most=6000)
    for part in parts:
        few.add(part)
    same(few.total(), sum(parts))


def test_items_are_worked_on_before_they_are_asked_for():
    taken, two = [], Barrier(2, timeout=20)

    def items():
        for item in range(10):
            taken.append(item)
            yield item

    def make(item):
        if item < 6:
            two.wait()  # for another item that is worked on at the same time
        return 1 / (6 - item)

    found = ahead(make, items(), threads=2)
    assert next(found) == (0, 1 / 6)
    assert taken == [0, 1, 2]
    assert [item for item, _ in islice(found, 5)] == [1, 2, 3, 4, 5]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert taken == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_items_before_an_error_are_yielded():
    def items():
        yield from range(5)
        raise OSError("cut off")

    found = ahead(str, items(), threads=3)
    assert [*islice(found, 5)] == [(at, str(at)) for at in range(5)]
    with pytest.raises(OSError, match="cut off"):
        next(found)


def test_no_more_is_begun_than_there_are_threads_for():
    begun, go = [], Event()

    def make(item):
        begun.append(item)
        go.wait()

    found = ahead(lambda item: make(item) if item else None, range(9), threads=3)
    assert next(found) == (0, None)
    Timer(0.1, go.set).start()
    found.close()
    assert len(begun) <= 3


def test_items_are_worked_on_while_the_interpreter_ends():
    """A thread may outlive the main one; no others can be started then."""
    program = (
        "import threading, time\n"
        "from qacal.records.tallying import ahead\n"
        "def work():\n"
        "    threading.main_thread().join()\n"
        "    time.sleep(0.1)\n"
        "    print(*ahead(str, range(3), threads=2))\n"
        "threading.Thread(target=work).start()\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("(0, '0') (1, '1') (2, '2')\n", "")
