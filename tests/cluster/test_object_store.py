"""Jobs on an object store: a server of moto, if it is installed (pip install 'moto[server]')."""

import shutil
import socket
import subprocess
import urllib.request

import polars as pl
import pytest

from qacal import Column, QACalibrator
from qacal.cluster import parts as parts_module
from tests.answers import answers
from tests.cli.test_cli import ok
from tests.cluster.processes import wait_for
from tests.cluster.rows import write_days

pytest.importorskip("daft", reason="needs the extra cluster")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(shutil.which("moto_server") is None, reason="needs moto_server"),
    pytest.mark.filterwarnings("ignore::qacal.errors.QacalWarning"),
]


@pytest.fixture
def bucket(monkeypatch):
    """Start a server with an empty bucket; yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(["moto_server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)

    def is_up():
        with socket.socket() as there:
            return there.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(is_up)
        endpoint = f"http://127.0.0.1:{port}"
        for name, value in {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"))
        yield "s3://bucket"
    finally:
        server.terminate()
        server.wait()


def test_old_outputs_of_an_input_are_removed_and_nothing_else(bucket, tmp_path, monkeypatch):
    write_days(tmp_path / "days", days=2)
    for day in ("0", "1"):
        pl.read_parquet(tmp_path / "days" / f"{day}.parquet").write_parquet(f"{bucket}/days/{day}.parquet")
    QACalibrator(partition=Column("topic")).fit(answers(600, seed=5)).save(tmp_path / "model")

    def objects():
        return [url.removeprefix(f"{bucket}/out/") for url in parts_module._listed(f"{bucket}/out/")]

    apply = ("apply", tmp_path / "model", f"{bucket}/days/", "-o", f"{bucket}/out")
    monkeypatch.setattr(parts_module, "PART_ROWS", 150)
    ok(*apply)
    halves = [f"{day}-0000{part}-of-00003.parquet" for day in "01" for part in range(3)]
    assert sorted(objects()) == halves
    # An object of somebody else, one of another input, and outputs of local files with these names.
    pl.DataFrame({"a": [1]}).write_parquet(f"{bucket}/out/0-00009-of-00009.parquet")
    other = ("apply", tmp_path / "model", tmp_path / "days", "-o", f"{bucket}/out/local")
    ok(*other)
    monkeypatch.setattr(parts_module, "PART_ROWS", 1000)
    ok(*apply)
    ok(*other)
    local = [f"local/{name}" for name in (*halves, "0.parquet", "1.parquet")]
    assert sorted(objects()) == sorted(["0.parquet", "1.parquet", "0-00009-of-00009.parquet", *local])
    assert pl.read_parquet(f"{bucket}/out/[01].parquet").height == 800
