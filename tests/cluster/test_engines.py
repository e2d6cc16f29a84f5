"""Daft, a real Ray cluster of two workers, and DuckDB: the same results, and no row lost or twice if a process dies."""

import os
import signal
import subprocess
import sys
import uuid

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from qacal import Column, QACalibrator, Tally, load
from tests.answers import answers
from tests.cli.test_cli import ok, run
from tests.cluster.processes import descendants, kill_one, outside_listeners, wait_for
from tests.cluster.rows import all_rows, write_days

pytest.importorskip("daft", reason="needs the extra cluster")
pytest.importorskip("ray", reason="needs the extra cluster")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.filterwarnings("ignore::qacal.errors.QacalWarning"),  # generated texts of one seed are unlike another's
]

CLUSTER = """
import ray, sys
found = ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2**28, log_to_driver=False)
print("address", found.address_info["address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""
LOCAL_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "DO_NOT_TRACK": "true"}
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}


@pytest.fixture(scope="module")
def cluster():
    """Start a Ray cluster with two workers that only this machine can reach; yield its process and its address."""
    before = {name: os.environ.get(name) for name in TOKEN}
    os.environ.update(TOKEN)
    for _ in range(3):  # Ray gives a node thirty seconds to start, and a machine may be busy
        process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | LOCAL_ONLY,
            text=True,
        )
        address = next((line.split()[1] for line in process.stdout if line.startswith("address ")), None)
        if address is not None:
            break
        process.communicate()
    assert address is not None
    yield process.pid, address
    process.communicate(timeout=60)
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Write many files, and save a model of their groups and one of their texts."""
    home = tmp_path_factory.mktemp("data")
    write_days(home / "days", days=24, rows=500)
    QACalibrator(partition=Column("topic")).fit(answers(600, seed=5)).save(home / "columns")
    QACalibrator(features=()).fit(answers(900, seed=6)).save(home / "texts")
    return home


def engines(address):
    return {"local": [], "daft": ["--engine", "daft"], "ray": ["--engine", "ray", "--address", address]}


def counted_by_duckdb(files):
    """Return the cells of files, counted by DuckDB."""
    table = f"SELECT * FROM read_parquet({[*map(str, files)]})"
    with duckdb.connect() as base:
        return Tally.from_polars(base.sql(Tally.sql(table, dialect="duckdb", groups="topic")).pl()).to_polars()


def test_all_engines_give_the_same_tally_and_the_same_bins(cluster, data, tmp_path):
    tallies, models = {}, {}
    for name, options in engines(cluster[1]).items():
        path = tmp_path / f"{name}.parquet"
        files = sorted((data / "days").iterdir(), reverse=name == "daft")
        ok("tally", *files, "-o", path, "--groups", "topic", *options)
        tallies[name] = Tally.from_polars(pl.read_parquet(path).drop("tally")).to_polars()
    # A sum of tallies does not know whether ids repeat.
    is_cells = pl.exclude("is_sum")
    days = sorted((data / "days").iterdir())
    all_rows(data / "days").sample(fraction=1.0, shuffle=True, seed=1).write_parquet(tmp_path / "whole.parquet")
    for name, files in {"duckdb": days, "reversed": days[::-1], "whole": [tmp_path / "whole.parquet"]}.items():
        tallies[name] = counted_by_duckdb(files)
        tallies[name].write_parquet(tmp_path / f"{name}.parquet")
    for name in tallies:
        ok("fit", tmp_path / f"{name}.parquet", "-o", tmp_path / name, "--calibrator", "tree-binning")
        models[name] = load(tmp_path / name)
    for name in [*tallies][1:]:
        assert_frame_equal(tallies["local"].select(is_cells), tallies[name].select(is_cells))
        one, two = (models[which].calibrator_.maps_ for which in ("local", name))
        for column in ("top", "value", "low", "high", "rows", "offset"):
            np.testing.assert_array_equal(getattr(one, column), getattr(two, column))


def test_all_engines_fit_and_apply_the_same_model_of_text(cluster, data, tmp_path):
    for name, options in engines(cluster[1]).items():
        more = ["--sample-rows", "1500", "--no-columns", *options]
        ok("fit", data / "days", "-o", tmp_path / f"model-{name}", *more)
        ok("apply", data / "texts", data / "days", "-o", tmp_path / f"out-{name}", *options)
        ok("embed", data / "days", "-o", tmp_path / f"vectors-{name}", *options)
    new = pl.DataFrame(answers(300, seed=9))
    expected = load(tmp_path / "model-local").calibrate(new)
    for name in ("daft", "ray"):
        assert_frame_equal(load(tmp_path / f"model-{name}").calibrate(new), expected, rel_tol=0, abs_tol=1e-9)
        for kind in ("out", "vectors"):
            one, two = (all_rows(tmp_path / f"{kind}-{which}") for which in ("local", name))
            assert_frame_equal(one, two, abs_tol=1e-6)


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "qacal.cli", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def outputs(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


@pytest.mark.parametrize("command", ["apply", "embed"])
def test_a_worker_of_ray_that_is_killed_costs_no_row(command, cluster, data, tmp_path):
    pid, address = cluster
    model = [data / "texts"] if command == "apply" else []
    job = start(command, *model, data / "days", "-o", tmp_path / "out", "--engine", "ray", "--address", address)
    wait_for(lambda: len(outputs(tmp_path / "out")) >= 2 or job.poll() is not None)
    assert kill_one(pid, "UDFActor")
    said = job.communicate(timeout=300)[0].decode()
    assert job.returncode == 0, said
    assert all_rows(tmp_path / "out")["id"].to_list() == all_rows(data / "days")["id"].to_list()
    assert len(outputs(tmp_path / "out")) == 24


@pytest.mark.parametrize("victim", ["serve()", "daft"])
def test_a_process_of_daft_that_is_killed_costs_no_row(victim, data, tmp_path):
    """Either the process of the engine, or one of its workers."""
    job = start("apply", data / "texts", data / "days", "-o", tmp_path / "out", "--engine", "daft")
    wait_for(lambda: len(outputs(tmp_path / "out")) >= 2 or job.poll() is not None)
    engine = next(pid for pid, text in descendants(job.pid).items() if "serve()" in text)
    if victim == "serve()":
        os.kill(engine, signal.SIGKILL)
    else:
        assert kill_one(engine, victim)
    said = job.communicate(timeout=300)[0].decode()
    assert job.returncode == 0, said
    assert all_rows(tmp_path / "out")["id"].to_list() == all_rows(data / "days")["id"].to_list()


def test_a_job_that_was_stopped_does_only_what_is_left(data, tmp_path):
    arguments = ("apply", data / "texts", data / "days", "-o", tmp_path / "out", "--engine", "daft")
    job = start(*arguments)
    wait_for(lambda: len(outputs(tmp_path / "out")) >= 2 or job.poll() is not None)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert job.returncode == 143
    before = outputs(tmp_path / "out")
    assert 2 <= len(before) < 24
    job = start(*arguments)
    said = job.communicate(timeout=300)[0].decode()
    assert job.returncode == 0, said
    after = outputs(tmp_path / "out")
    assert len(after) == 24
    assert {path: after[path] for path in before} == before
    assert all_rows(tmp_path / "out")["id"].to_list() == all_rows(data / "days")["id"].to_list()


def test_a_command_that_is_killed_leaves_no_process(data, tmp_path):
    """They would do all parts that are left, while the command is started again."""
    rows = pl.concat([pl.read_parquet(path) for path in (data / "days").iterdir()] * 8)
    (tmp_path / "days").mkdir()
    for number in range(6):
        rows.write_parquet(tmp_path / "days" / f"{number}.parquet")
    job = start("apply", data / "texts", tmp_path / "days", "-o", tmp_path / "out", "--engine", "daft")
    wait_for(lambda: len([text for text in descendants(job.pid).values() if "udf_worker" in text]) >= 2)
    below = [pid for pid in descendants(job.pid) if pid != job.pid]
    job.kill()
    job.communicate()
    # A process that waits for its parent to look at it has no command line any more.
    wait_for(lambda: not any(descendants(pid)[pid] for pid in below), 10)
    assert len(outputs(tmp_path / "out")) < 6


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_without_a_cluster_is_given_up(data, tmp_path, monkeypatch, address):
    monkeypatch.setattr("qacal.cluster.engines._SECONDS_TO_CONNECT", 3.0)
    options = ["--groups", "topic", "--engine", "ray", "--address", address]
    code, _, said = run("tally", data / "days", "-o", tmp_path / "t.parquet", *options)
    assert code == 1
    assert f"there is no Ray cluster at {address}: it did not answer within 3 seconds" in " ".join(said.split())


def test_an_address_in_the_environment_is_not_taken_for_a_cluster_of_this_machine(data, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    ok("tally", data / "days", "-o", tmp_path / "t.parquet", "--groups", "topic", "--engine", "ray")


def test_a_cluster_for_one_command_listens_on_this_machine_alone(data, tmp_path):
    job = start("tally", data / "days", "-o", tmp_path / "t.parquet", "--groups", "topic", "--engine", "ray")
    most, reachable = 0, set()

    def looked():
        nonlocal most
        count, outside = outside_listeners(job.pid)
        most = max(most, count)
        reachable.update(outside)
        return job.poll() is not None

    wait_for(looked, 400)
    said = job.communicate()[0].decode()
    assert job.returncode == 0, said
    assert most >= 3
    assert not reachable
