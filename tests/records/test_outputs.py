"""Outputs: streams stay streams, links are followed, and no temporary files are left."""

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest
import typer

from qacal.cli.options import require_apart
from qacal.errors import InputError
from qacal.records.files import open_file
from qacal.records.table import as_table
from qacal.records.text_files import file_options
from qacal.records.writers import atomic_file, write_frame, write_objects, writing
from tests.cli.test_cli import run

ROWS = [{"question": "2+2?", "answer": "4", "confidence": 0.9, "correct": 1}]


def test_other_than_regular_files_are_written_to_as_streams(tmp_path):
    """Renaming a temporary file over a device would replace it; a pipe stands in for it here."""
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_objects(ROWS, pipe, "rows")
    reader.join()
    assert [json.loads(line) for line in got[0].splitlines()] == ROWS
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("source", ["jsonl", "csv"])
def test_a_stream_without_a_format_in_its_name_has_that_of_the_input(tmp_path, source):
    write_frame(pl.DataFrame(ROWS), tmp_path / f"in.{source}")
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    to_pipe = run("embed", tmp_path / f"in.{source}", "-o", tmp_path / "pipe")
    assert to_pipe[0] == 0, to_pipe[2]
    reader.join()
    to_dash = run("embed", tmp_path / f"in.{source}", "-o", "-")[1]
    assert run("embed", tmp_path / f"in.{source}", "-o", "/dev/stdout")[1] == to_dash == got[0]


def test_split_writes_to_a_stream_in_the_format_of_the_input(tmp_path):
    write_frame(pl.DataFrame([{**ROWS[0], "question": f"{i}+2?"} for i in range(20)]), tmp_path / "in.csv")
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    code, _, err = run("split", tmp_path / "in.csv", "-o", tmp_path / "out.csv", "--rest", tmp_path / "pipe")
    assert code == 0, err
    reader.join()
    assert got[0].startswith("question,answer,confidence,correct\n")


def test_a_stream_may_be_named_twice(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    require_apart(tmp_path / "in.csv", tmp_path / "pipe", str(tmp_path / "pipe"))
    with pytest.raises(typer.BadParameter, match="named twice"):
        require_apart(tmp_path / "in.csv", tmp_path / "pipe", tmp_path / "in.csv")


def test_a_file_without_a_format_in_its_name_is_refused(tmp_path):
    write_frame(pl.DataFrame(ROWS), tmp_path / "in.csv")
    assert "cannot tell the format" in run("embed", tmp_path / "in.csv", "-o", tmp_path / "out")[2]


def test_json_and_rows_do_not_share_standard_output(tmp_path):
    code, _, said = run("apply", tmp_path / "model", tmp_path / "a.csv", "--json", "-o", "/dev/stdout")
    assert code == 2
    assert "--json writes to standard output" in said


def test_a_device_stays_a_device(tmp_path):
    with atomic_file("/dev/null") as path:
        path.write_text("nothing")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    rows = [{**ROWS[0], "question": f"{n} + 2?"} for n in range(20)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {}]))
    assert "1 of 21 rows" in run("evaluate", tmp_path / "a.jsonl", "--skip-bad-rows", "/dev/null")[2]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["there.csv", "not_there.csv"])
def test_a_link_is_followed(tmp_path, name):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "there.csv").write_text("before")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / name)
    write_objects(ROWS, tmp_path / "link.csv", "rows")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real" / name).read_text().startswith("question,answer")


def test_standard_output_that_is_a_file_is_not_replaced(tmp_path):
    """With > out.txt, /dev/stdout is that file."""
    code = (
        "from qacal.records.writers import atomic_file\n"
        "with atomic_file('/dev/stdout') as path: path.write_text('page')"
    )
    with (tmp_path / "out.txt").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out.txt").read_text() == "page"


@pytest.mark.parametrize("name", ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2", "/dev/../dev/stderr", "link"])
def test_the_file_behind_a_descriptor_keeps_its_content(tmp_path, name):
    """With 2>> run.log, /dev/stderr is that file; once it was emptied, and a link to it was replaced."""
    (tmp_path / "link").symlink_to("/dev/stderr")
    (tmp_path / "run.log").write_text("old\n")
    code = (
        "import sys\nfrom qacal.records.writers import atomic_file\nprint('said', file=sys.stderr)\n"
        f"with atomic_file({name!r}) as path: path.write_text('written\\n')\nprint('more', file=sys.stderr)"
    )
    with (tmp_path / "run.log").open("ab") as log:
        subprocess.run([sys.executable, "-c", code], stderr=log, check=True, cwd=tmp_path)
    assert (tmp_path / "run.log").read_text() == "old\nsaid\nwritten\nmore\n"


def test_a_descriptor_is_written_to_at_its_position(tmp_path):
    with (tmp_path / "a.txt").open("wb", buffering=0) as file:
        file.write(b"before ")
        with atomic_file(f"/dev/fd/{file.fileno()}") as path:
            path.write_text("ours ")
        file.write(b"after")
    assert (tmp_path / "a.txt").read_text() == "before ours after"


def test_the_file_behind_a_descriptor_of_another_process_is_appended_to(tmp_path):
    (tmp_path / "a.txt").write_text("old ")
    with (
        (tmp_path / "a.txt").open("ab") as file,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=file) as other,
    ):
        with atomic_file(f"/proc/{other.pid}/fd/1") as path:
            path.write_text("new")
        other.communicate(b"\n")
    assert (tmp_path / "a.txt").read_text() == "old new"


def test_a_descriptor_that_is_not_open_is_named():
    with (
        pytest.raises(InputError, match="/dev/fd/987 cannot be written: Bad file"),
        atomic_file("/dev/fd/987") as path,
    ):
        path.write_text("lost")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.csv.gz", "a.parquet"])
def test_a_full_disk_is_named(tmp_path, name):
    """A limit on the size of files stands in for the disk; it gives the same kind of error."""
    code = (
        "import resource, signal, sys, polars as pl\nfrom qacal.errors import InputError\n"
        "from qacal.records.writers import write_frame\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "frame = pl.DataFrame({'x': [f'{n * 7919 % 1000003}{n}' for n in range(100_000)]})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n    write_frame(frame, sys.argv[1])\nexcept InputError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / name], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"{tmp_path / name} cannot be written: File too large"), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["jsonl", "csv", "json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "checksum"])
def test_damaged_gzip_says_so(tmp_path, kind, damage):
    path = tmp_path / f"a.{kind}.gz"
    rows = [{"question": f"{n} {n * 7919 % 1000003}?", "answer": "4", "confidence": 0.9} for n in range(2000)]
    write_objects(rows, path, "rows")
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "flipped":
        data[len(data) // 2 : len(data) // 2 + 20] = bytes(20)
    else:
        data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"\.gz cannot be read (beyond byte|as JSON)"):
        list(open_file(path).batches(lambda fault: None))


def test_files_that_decompress_to_far_too_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("qacal.records.text_files._UNPACKED", 100_000)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"question": "' + b"a" * 3_000_000 + b'"}\n'))
    with pytest.raises(InputError, match=r"unpacks to more than .* allow more: qacal --max-unpacked-gb GB"):
        list(open_file(path).batches())
    with file_options(max_unpacked_gb=1):
        assert len(next(open_file(path).batches())) == 1
    monkeypatch.chdir(tmp_path)
    assert run("check", "a.jsonl.gz")[0] == 1
    assert "unpacks to more than" in run("evaluate", "a.jsonl.gz")[2]
    assert "has no column 'correct'" in run("--max-unpacked-gb", "1", "evaluate", "a.jsonl.gz")[2]


LARGE = "a" * 2000


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.jsonl", f'{{"question": "b"}}\n{{"question": "{LARGE}"}}\n', 2),
        ("a.jsonl.gz", f'{{"question": "b"}}\n{{"question": "{LARGE}"}}\n', 2),
        ("a.csv", f"question\nb\n{LARGE}\n", 3),
        ("a.csv.gz", f"question\n{LARGE}\n", 2),
        ("a.csv", 'question,answer\nb,"c\n' + 600 * "d\n", None),  # a quote that is not closed
    ],
)
def test_a_row_that_is_too_large_is_refused_before_it_is_read(tmp_path, name, text, line):
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    place = rf" line {line or '.*'}: the row is broken, or is larger than 0.001 MB; .* qacal --max-row-mb MB"
    with file_options(max_row_mb=0.001), pytest.raises(InputError, match=place):
        list(open_file(tmp_path / name).batches(lambda fault: None))
    if line is not None:
        assert sum(len(table) for table in open_file(tmp_path / name).batches()) == line - name.startswith("a.csv")


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv"])
def test_batches_have_fewer_rows_if_rows_are_large(tmp_path, kind):
    rows = [{"question": f"{n} {'a' * 80}"} for n in range(12)]
    write_objects(rows, tmp_path / f"a.{kind}", "rows")
    with file_options(max_row_mb=0.001):
        tables = list(open_file(tmp_path / f"a.{kind}").batches())
    assert {len(table) for table in tables} <= {3, 4}
    assert [row for table in tables for row in table.rows()] == rows


def test_too_many_columns_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(f"c{n}" for n in range(100_000)) + "\n")
    with pytest.raises(InputError, match="the header names 100,000 columns; at most 10,000 are read"):
        list(open_file(tmp_path / "a.csv").batches())


def test_what_a_killed_run_left_is_removed_after_a_week(tmp_path):
    code = (
        "import os, signal, sys\nfrom qacal.records.writers import writing\n"
        "from qacal.records.table import as_table\n"
        "with writing(sys.argv[1] + '/a.parquet', '') as writer:\n"
        "    writer.write(as_table([{'x': 1}]))\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    left = sorted(tmp_path.iterdir())
    assert len(left) == 2
    write_frame(pl.DataFrame(ROWS), tmp_path / "a.parquet")
    assert all(path.exists() for path in left)
    # Files with similar names stay.
    others = [tmp_path / name for name in (".a.parquet.notes.qacal-tmp", ".b.parquet.notes_01.qacal-tmp", "notes.txt")]
    for path in others:
        path.write_text("keep")
    others.append(tmp_path / ".a.parquet.notes_01.qacal-tmp")  # a folder that qacal does not make
    others[-1].mkdir()
    for path in [*left, *others]:
        os.utime(path, (time.time() - 6 * 86_400,) * 2)
    write_frame(pl.DataFrame(ROWS), tmp_path / "a.parquet")
    assert all(path.exists() for path in left)
    for path in [*left, *others]:
        os.utime(path, (0, 0))
    write_frame(pl.DataFrame(ROWS), tmp_path / "a.parquet")
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / "a.parquet"])


def test_files_are_closed_before_renaming_and_renaming_is_retried(tmp_path, monkeypatch):
    """Windows cannot rename open files; this imitates it while another process reads the old file for a moment."""

    class Windows:
        name = "nt"

        def __getattr__(self, name):
            return getattr(os, name)

    tried, replace = [], os.replace

    def replace_closed(source, target):
        tried.append(source)
        opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        if len(tried) == 1 or str(source) in opened:
            raise PermissionError(13, "The process cannot access the file")
        replace(source, target)

    monkeypatch.setattr("qacal.storage.os", Windows())
    monkeypatch.setattr(os, "replace", replace_closed)
    write_objects(ROWS, tmp_path / "a.jsonl", "rows")
    assert len(tried) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    "arguments", [("--help",), ("fit", "--help"), ("plan",), ("plan", "--json"), ("apply", "--help")]
)
def test_a_closed_pipe_is_not_an_error(arguments):
    read, write = os.pipe()
    os.close(read)
    code = "from qacal.cli.main import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_hangup_unwinds(tmp_path):
    code = (
        "import os, signal, sys\nfrom qacal.cli import main\nfrom qacal.records.writers import atomic_file\n"
        "out = sys.argv[1]\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the signal may be ignored here, as under nohup
        "def run():\n    with atomic_file(out) as path:\n        os.kill(os.getpid(), signal.SIGHUP)\n"
        "main.app.command('wait')(run)\nsys.argv = ['qacal', 'wait']\nmain.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.txt"], capture_output=True, check=False)
    assert done.returncode == 128 + signal.SIGHUP, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_signal_at_any_line_leaves_the_whole_output_or_nothing(tmp_path):
    """Also while the temporary file is created: a trace function raises what Ctrl-C raises, at each line in turn."""
    lines, stop_at = [0], 0
    writers = writing.__wrapped__.__code__.co_filename

    def trace(frame, event, argument):
        if frame.f_code.co_filename != writers and frame.f_code not in (Path.touch.__code__, Path.unlink.__code__):
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == stop_at:
                raise KeyboardInterrupt
        return trace

    def write():
        lines[0] = 0
        sys.settrace(trace)
        try:
            with atomic_file(tmp_path / "a.txt") as path:
                path.write_text("all")
        finally:
            sys.settrace(before)

    before, counts = sys.gettrace(), {"all": 0, "nothing": 0}
    write()
    for stop_at in range(1, lines[0] + 1):
        (tmp_path / "a.txt").unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt):
            write()
        left = {path.name: path.read_text() for path in tmp_path.iterdir()}
        assert left in ({}, {"a.txt": "all"}), stop_at
        counts["all" if left else "nothing"] += 1
    assert min(counts.values()) > 0
    assert counts["nothing"] > 20


def test_parquet_has_one_type_for_a_column_whose_values_change(tmp_path):
    """As in one batch: what has lists or objects and other values is text, as JSON."""
    rows = [
        {"": 1, "v": [1], "w": [1, 2], "x": [1], "y": 1, "z": None, "column_0": "a"},
        {"": 2, "v": "s", "w": {"b": 1}, "x": [0.5], "y": "t", "z": None, "column_0": "b"},
        {"": 3, "v": {"a": 1}, "w": None, "x": None, "y": True, "z": None, "column_0": "c"},
    ]
    with writing(tmp_path / "rows.parquet", "jsonl") as writer:
        for row in rows:
            writer.write(as_table([row]))
    found = pl.read_parquet(tmp_path / "rows.parquet")
    assert found.equals(as_table(rows).frame())
    assert found.columns == [*rows[0]]
    assert found["v"].to_list() == ["[1]", "s", '{"a": 1}']


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[], ["p"]], pl.List(pl.String)),
        ([[1], [0.5]], pl.List(pl.Float64)),
        ([{"x": 1}, {"x": 1, "y": 2}], pl.Struct({"x": pl.Int64, "y": pl.Int64})),
        ([[1], None], pl.List(pl.Int64)),
    ],
)
def test_lists_and_objects_of_a_frame_stay_what_they_are_if_they_have_a_type(tmp_path, values, kind):
    with writing(tmp_path / "rows.parquet", "jsonl") as writer:
        for value in values:
            writer.write(as_table(pl.DataFrame({"v": [value]})))
    assert pl.read_parquet_schema(tmp_path / "rows.parquet") == {"v": kind}


def test_csv_refuses_a_column_that_its_first_rows_lack(tmp_path):
    with writing(tmp_path / "rows.csv", "csv") as writer:
        writer.write(as_table([{"question": "a"}], "new"))
        with pytest.raises(InputError, match=r"new: a row has columns that the first rows lack: later\."):
            writer.write(as_table([{"question": "b", "later": 1}], "new"))


def test_batches_that_lack_columns_or_have_no_values_go_to_the_part_before(tmp_path):
    """To join parts takes long if they are many; a column of few rows is in every second batch, say."""
    batches = [
        {"a": 1, "": 2},
        {"a": None, "": 5, "note": "x"},
        {"a": 3},
        {"note": None, "a": 4, "b": None},
        {"b": 0.5},
    ]
    with writing(tmp_path / "rows.parquet", "jsonl") as writer:
        for batch in batches * 3:
            writer.write(as_table([batch]))
        assert len(writer.parts) == 4  # the columns grow twice, and b gets its type
    rows = pl.read_parquet(tmp_path / "rows.parquet").to_dicts()
    assert rows == [{name: batch.get(name) for name in ("a", "", "note", "b")} for batch in batches * 3]


@pytest.mark.parametrize("ending", ["jsonl", "json", "jsonl.gz"])
def test_csv_has_the_columns_that_only_later_rows_of_a_file_have(tmp_path, ending):
    rows = [{"question": "x" * 400, "late": at} if at > 8000 else {"question": "x" * 400} for at in range(9000)]
    lines = json.dumps(rows) if ending == "json" else "".join(json.dumps(row) + "\n" for row in rows)
    opener = gzip.open if ending.endswith("gz") else open
    with opener(tmp_path / f"a.{ending}", "wt") as file:
        file.write(lines)
    with writing(tmp_path / "out.csv", "csv") as writer:
        tables = list(open_file(tmp_path / f"a.{ending}").batches())
        assert (len(tables) > 1, "late" in tables[0].names) == (ending != "json", ending == "json")
        for table in tables:
            writer.write(table.extended(pl.DataFrame({"new": [0.5] * len(table)})))
    found = pl.read_csv(tmp_path / "out.csv", infer_schema_length=None)
    assert found.columns == (["question", "late", "new"] if ending == "json" else ["question", "new", "late"])
    assert found["late"].to_list() == [row.get("late") for row in rows]


def test_csv_has_an_empty_cell_where_a_row_lacks_a_column(tmp_path):
    with writing(tmp_path / "rows.csv", "csv") as writer:
        writer.write(as_table([{"question": "a", "note": None}, {"question": "b", "list": [1, 0.5]}], "new"))
        writer.write(as_table([{"question": "c", "list": 0.1}], "new"))
    assert (tmp_path / "rows.csv").read_text() == 'question,note,list\na,,\nb,,"[1, 0.5]"\nc,,0.1\n'
