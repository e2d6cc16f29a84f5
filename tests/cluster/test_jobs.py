"""Jobs over many files, in this process: what is written, what is left after a stop, and what is wrong."""

import json
import shutil
import sys
import weakref

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from qacal import Column, QACalibrator, Tally, load
from qacal.calibrators.margins import fit_margins
from qacal.cluster import engines, jobs, running
from qacal.cluster import parts as parts_module
from qacal.cluster.jobs import Job, model_files
from qacal.cluster.parts import expanded, parts_of
from qacal.errors import InputError, QacalWarning
from qacal.model.tallies import Counted, fit_column
from qacal.records import tallying
from qacal.records.reading import read
from tests.answers import answers
from tests.cli.test_cli import ok, run
from tests.cluster.rows import all_rows, write_days


@pytest.fixture
def days(tmp_path):
    write_days(tmp_path / "days")
    return tmp_path / "days"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    QACalibrator(partition=Column("topic")).fit(answers(600, seed=5)).save(path)
    return path


@pytest.fixture(autouse=True)
def _wordless(wordless_unless_full):
    """Files are the point here."""


# Apply and embed


def test_many_files_are_calibrated_as_one_is(days, model, tmp_path):
    ok("apply", model, days, "-o", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.parquet", "1.parquet", "2.parquet"]
    whole = load(model).calibrate(all_rows(days))
    assert_frame_equal(all_rows(tmp_path / "out"), whole)
    ok("apply", model, f"{days}/[01].parquet", "-o", tmp_path / "some")
    assert all_rows(tmp_path / "some").height == 800


def test_a_store_whose_old_outputs_cannot_be_looked_for_is_told():
    part = parts_module.Part("nowhere://bucket/a.parquet", 1, 0, 0, 10, 10, "nowhere://bucket/out", "a.parquet")
    with pytest.warns(QacalWarning, match=r"nowhere://bucket/out: outputs of earlier runs could not be looked for \("):
        parts_module.remove_stale([part], "nowhere://bucket/out", "apply")


def test_large_files_become_several_parts_with_the_same_rows(days, model, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_module, "PART_ROWS", 150)
    ok("apply", model, days, "-o", tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names[:3] == [f"0-0000{part}-of-00003.parquet" for part in range(3)]
    assert len(names) == 9
    assert_frame_equal(all_rows(tmp_path / "out"), load(model).calibrate(all_rows(days)))


def test_embedding_many_files_gives_the_vectors_of_one(days, tmp_path):
    ok("embed", days, "-o", tmp_path / "out")
    ok("embed", days / "0.parquet", "-o", tmp_path / "0.parquet")
    assert_frame_equal(pl.read_parquet(tmp_path / "out" / "0.parquet"), pl.read_parquet(tmp_path / "0.parquet"))


@pytest.mark.parametrize("command", ["apply", "embed"])
def test_a_job_tells_what_it_did_as_json(command, days, model, tmp_path):
    options = [model] if command == "apply" else []
    told = json.loads(ok(command, *options, days, "-o", tmp_path / "out", "--json"))
    assert told.pop("seconds") >= 0
    counts = {"rows_read": 1200, "rows_written": 1200, "bad_rows": 0, "parts": 3, "done_before": 0, "errors": {}}
    assert told == {**counts, "notes": [], "output": f"{tmp_path}/out"}


@pytest.mark.filterwarnings("always::qacal.errors.QacalWarning")
def test_notes_name_files_and_those_that_differ_in_numbers_are_told_once(days, tmp_path):
    ok("fit", days / "0.parquet", "-o", tmp_path / "model", "--no-columns")
    strange = pl.concat_str(pl.lit("Zqx jjk 12345 "), pl.col("id"))
    for name, rows in (("1", 400), ("2", 300)):
        frame = pl.read_parquet(days / f"{name}.parquet").head(rows)
        frame.with_columns(question=strange, answer=strange).write_parquet(days / f"{name}.parquet")
    apply = ("apply", tmp_path / "model", days, "-o", tmp_path / "out", "--json")
    code, told, said = run(*apply)
    assert code == 0
    (note,) = json.loads(told)["notes"]
    assert note.startswith(f"2 of 3 files, such as {days}/1.parquet: ")
    assert note in said
    (days / "2.parquet").unlink()
    (tmp_path / "out" / "2.parquet").unlink()
    (note,) = json.loads(run(*apply)[1])["notes"]
    assert note.startswith(f"{days}/1.parquet: ")
    (note,) = json.loads(run(*apply[:2], f"{days}/1*", *apply[3:])[1])["notes"]
    assert "parquet" not in note


def test_a_model_of_many_files_knows_how_they_were_read(days, tmp_path):
    for path in days.iterdir():
        pl.read_parquet(path).with_columns(confidence=pl.col("confidence") * 100).write_parquet(path)
    ok("fit", days, "-o", tmp_path / "model", "--partition", "column:topic", "--percent")
    assert load(tmp_path / "model").read_as_.percent
    ok("apply", tmp_path / "model", days, "-o", tmp_path / "out")


def test_folders_within_a_folder_keep_their_names(days, model, tmp_path):
    (tmp_path / "logs" / "day=1").mkdir(parents=True)
    (tmp_path / "logs" / "day=2").mkdir()
    shutil.copy(days / "0.parquet", tmp_path / "logs" / "day=1" / "a.parquet")
    shutil.copy(days / "1.parquet", tmp_path / "logs" / "day=2" / "a.parquet")
    ok("apply", model, tmp_path / "logs", "-o", tmp_path / "out")
    assert (tmp_path / "out" / "day=1" / "a.parquet").exists()
    assert all_rows(tmp_path / "out").height == 800


def test_names_of_outputs_do_not_depend_on_which_other_files_there_are(days, model, tmp_path):
    logs, out = tmp_path / "logs", tmp_path / "out"
    (logs / "day=1").mkdir(parents=True)
    shutil.copy(days / "0.parquet", logs / "day=1" / "a.parquet")
    ok("apply", model, logs, "-o", out)
    (logs / "day=2").mkdir()
    shutil.copy(days / "1.parquet", logs / "day=2" / "a.parquet")
    ok("apply", model, logs, "-o", out)
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.parquet")) == [
        "day=1/a.parquet",
        "day=2/a.parquet",
    ]
    ok("apply", model, f"{logs}/day=*/*.parquet", "-o", out)
    assert all_rows(out).height == 800
    # Files by themselves have other names; those that the same rows had are removed.
    ok("apply", model, logs / "day=1" / "a.parquet", days / "2.parquet", "-o", out)
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.parquet")) == [
        "2.parquet",
        "a.parquet",
        "day=2/a.parquet",
    ]


@pytest.mark.filterwarnings("default::qacal.errors.QacalWarning")
def test_an_output_whose_input_no_longer_exists_stays_and_is_named(days, model, tmp_path):
    out = tmp_path / "out"
    ok("apply", model, days, "-o", out)
    (days / "1.parquet").rename(days / "b.parquet")
    _, _, notes = run("apply", model, days, "-o", out)
    assert f"1 file in {out} is of an input that no longer exists: 1.parquet. Remove outputs whose" in notes
    assert len(written(out)) == 4
    (days / "2.parquet").unlink()
    _, _, notes = run("apply", model, days / "0.parquet", days / "b.parquet", "-o", out)
    assert f"2 files in {out} are of inputs that no longer exist: 1.parquet, 2.parquet." in notes
    (out / "1.parquet").unlink()
    (out / "2.parquet").unlink()
    _, _, notes = run("apply", model, f"{days}/0*", "-o", out)  # b.parquet is that of another job
    assert "no longer exist" not in notes


def test_no_output_is_outside_of_its_folder(days, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shutil.copy(days / "0.parquet", "0.parquet")
    above = f"{tmp_path}/day*/../../{tmp_path.name}/days/1.parquet"
    for files in (["../days/1.parquet", "0.parquet"], ["../days/*1.parquet"], ["../days"], [above]):
        names = list(expanded(files).values())
        assert names
        assert not [name for name in names if name.startswith((".", "/"))]


# What is left after a stop


def written(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}


def test_a_job_that_is_started_again_does_only_what_is_left(days, model, tmp_path):
    out = tmp_path / "out"
    ok("apply", model, days, "-o", out)
    before = written(out)
    (out / "1.parquet").unlink()
    _, _, notes = run("apply", model, days, "-o", out)
    assert "2 parts of 3 had been done before and stayed." in notes
    after = written(out)
    assert {name for name in before if after[name] == before[name]} == {"0.parquet", "2.parquet"}
    assert_frame_equal(all_rows(out), load(model).calibrate(all_rows(days)))


def test_changed_inputs_and_other_settings_are_done_again(days, model, tmp_path):
    out = tmp_path / "out"
    ok("apply", model, days, "-o", out)
    before = written(out)
    pl.read_parquet(days / "1.parquet").head(100).write_parquet(days / "1.parquet")
    ok("apply", model, days, "-o", out)
    assert [name for name in before if written(out)[name] != before[name]] == ["1.parquet"]
    assert all_rows(out).height == 900
    ok("apply", model, days, "-o", out, "--threshold", "0.5")
    assert not set(before.values()) & set(written(out).values())
    assert "decision" in all_rows(out).columns


def test_parts_of_an_input_that_has_shrunk_are_removed(days, model, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(parts_module, "PART_ROWS", 150)
    ok("apply", model, days, "-o", out)
    (out / "1-00000-of-00009.parquet").write_bytes((days / "0.parquet").read_bytes())  # somebody's own file
    pl.read_parquet(days / "1.parquet").head(100).write_parquet(days / "1.parquet")
    ok("apply", model, days, "-o", out)
    names = sorted(path.name for path in out.iterdir() if path.name.startswith("1"))
    assert names == ["1-00000-of-00009.parquet", "1.parquet"]


def test_a_file_that_no_job_wrote_is_not_replaced(days, model, tmp_path):
    (tmp_path / "out").mkdir()
    shutil.copy(days / "0.parquet", tmp_path / "out" / "0.parquet")
    code, _, notes = run("apply", model, days, "-o", tmp_path / "out")
    assert code == 1
    assert "0.parquet exists, and no job of qacal wrote it, or it is damaged." in notes
    assert "calibrated" not in pl.read_parquet(tmp_path / "out" / "0.parquet").columns


def test_an_object_that_no_job_wrote_is_not_replaced(days, model, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "0.parquet").write_text("somebody's notes")
    url = (tmp_path / "out").as_uri()
    code, _, notes = run("apply", model, days, "-o", url)
    assert code == 1
    assert f"{url}/0.parquet exists, and no job of qacal wrote it, or it is damaged." in notes
    assert (tmp_path / "out" / "0.parquet").read_text() == "somebody's notes"
    assert (tmp_path / "out" / "1.parquet").exists()


def test_the_output_of_another_input_is_not_replaced(tmp_path, model):
    """As with a command for each day."""
    for at, day in enumerate(("monday", "tuesday")):
        write_days(tmp_path / day, days=1, seed=at)
    out = tmp_path / "out"
    ok("apply", model, tmp_path / "monday", "-o", out)
    before = (out / "0.parquet").read_bytes()
    for command in (("apply", model, tmp_path / "tuesday"), ("embed", tmp_path / "monday")):
        code, _, said = run(*command, "-o", out)
        assert code == 1
        assert f"0.parquet has the output of qacal apply for {tmp_path}/monday/0.parquet." in said.replace("\n  ", " ")
        assert (out / "0.parquet").read_bytes() == before
    (tmp_path / "monday").rename(tmp_path / "wednesday")  # its output is found again
    assert "Nothing was left to do" not in run("apply", model, tmp_path / "wednesday", "-o", out)[2]


def test_bad_rows_are_written_if_there_are_too_many(days, model, tmp_path):
    pl.read_parquet(days / "1.parquet").with_columns(confidence=pl.lit(7.0)).write_parquet(days / "1.parquet")
    command = ("apply", model, days, "-o", tmp_path / "out", "--skip-bad-rows", tmp_path / "bad.jsonl")
    code, _, said = run(*command)
    assert code == 1
    assert "1 of 3 files could not be processed" in said
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 400
    # A scheduler can see what is done, and what is not.
    code, told, _ = run(*command, "--json")
    found = json.loads(told)
    assert (code, found["rows_written"], found["done_before"], found["parts"]) == (1, 800, 2, 3)
    assert [*found["errors"]] == [str(days / "1.parquet")]


def test_cells_of_another_command_are_not_added(days, tmp_path, monkeypatch):
    """Two commands with one output and other options, at once: the second one replaced a part of the first."""
    own, other = (Job("tally", groups="topic", ids="ignore", max_bad=share) for share in (0.0, 0.5))
    output, run_job = str(tmp_path / "t.parquet"), running.run_job

    def interrupted(job, files, folder, where):
        outcome = run_job(job, files, folder, where)
        if job is own:
            run_job(other, [str(days / "1.parquet"), str(days / "0.parquet")], folder, where)
        return outcome

    monkeypatch.setattr(running, "run_job", interrupted)
    with pytest.raises(InputError, match=r"is of another command, which has the same output .*t\.parquet"):
        running.count(own, [str(days)], output, running.Where())


def test_links_count_once_and_a_folder_may_have_wildcards_in_its_name(days, tmp_path, monkeypatch):
    (days / "latest.parquet").symlink_to(days / "2.parquet")
    (days / "sub").symlink_to(".")
    found = [str(days / f"{day}.parquet") for day in range(3)]
    assert [*expanded([str(days)])] == [*expanded([f"{days}/*.parquet"])] == found
    with pytest.raises(InputError, match=r"latest\.parquet is named twice"):
        expanded([found[2], str(days / "latest.parquet")])
    with pytest.raises(InputError, match="without a name does not exist"):
        expanded([""])
    (tmp_path / "run[1]" / "in").mkdir(parents=True)
    shutil.copy(found[0], tmp_path / "run[1]" / "in")
    monkeypatch.chdir(tmp_path / "run[1]")
    for one in ("in/*.parquet", "in", "in/0.parquet", "../run[1]/in"):
        assert expanded([one]) == {str(tmp_path / "run[1]" / "in" / "0.parquet"): "0.parquet"}


def test_an_input_that_is_named_from_another_folder_has_one_output(tmp_path, model, monkeypatch):
    write_days(tmp_path / "in", days=1, rows=100)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    ok("apply", model, "../in", "-o", "../out")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts_module, "PART_ROWS", 60)
    ok("apply", model, "in", "-o", "out")
    assert all_rows(tmp_path / "out").height == 100


def test_a_name_that_is_not_utf8_is_told(days):
    shutil.copy(days / "0.parquet", bytes(days) + b"/\xe9.parquet")
    with pytest.raises(InputError, match=r"\\udce9.parquet': the name of the file is not UTF-8; rename it"):
        expanded([str(days)])


def test_outputs_of_other_jobs_stay(days, model, tmp_path, monkeypatch):
    (out := tmp_path / "out").mkdir()
    ok("apply", model, days, "-o", out / "second", "--threshold", "0.5")
    ok("embed", days, "-o", out / "vectors")
    ok("embed", days / "0.parquet", "-o", out)
    monkeypatch.setattr(parts_module, "PART_ROWS", 150)
    ok("apply", model, days, "-o", out)
    assert len(list((out / "second").iterdir())) == len(list((out / "vectors").iterdir())) == 3
    assert "embedding" in pl.read_parquet(out / "0.parquet").columns
    assert len([path for path in out.iterdir() if path.name.startswith("0-")]) == 3


def test_a_folder_with_the_name_of_a_file_counts_once_and_hidden_files_do_not(tmp_path, model):
    """As Spark and Delta write them."""
    home = tmp_path / "days"
    write_days(home / "day1.parquet", days=2)
    write_days(home / "_delta_log", days=1)
    write_days(home / ".trash", days=1)
    write_days(home / "_day=2", days=1)
    (home / "day1.parquet" / "1.parquet").rename(home / "day1.parquet" / "1.pq")
    shutil.copy(home / "day1.parquet" / "0.parquet", home / "day1.parquet" / ".0.parquet")
    found = ["_day=2/0.parquet", "day1.parquet/0.parquet", "day1.parquet/1.pq"]
    assert [*expanded([str(home)]).values()] == found
    assert [*expanded([f"{home}/*"]).values()] == found
    assert [*expanded([f"{home}/day*.parquet"]).values()] == found[1:]
    ok("apply", model, home, "-o", tmp_path / "out")
    assert sum(len(pl.read_parquet(path)) for path in (tmp_path / "out").rglob("*.parquet") if path.is_file()) == 1200
    ok("tally", home / "day1.parquet", "-o", tmp_path / "t.parquet", "--groups", "topic", "--ids", "ignore")
    assert Counted.read(tmp_path / "t.parquet").certify.n == 800


def test_paths_mean_the_same_in_another_folder(days, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ok("apply", model, "days", "-o", "out")
    monkeypatch.chdir(days)
    code, _, notes = run("apply", model, ".", "-o", "../out")
    assert code == 0, notes
    assert "Nothing was left to do" in notes
    assert "no longer exist" not in notes
    write_days(tmp_path / "other" / "days")
    monkeypatch.chdir(tmp_path / "other")
    ok("apply", model, "days", "-o", tmp_path / "out" / "other")
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == 6


def test_an_output_among_the_inputs_is_refused(days, model, tmp_path):
    for files, output in [
        ([days], days),
        ([days], days / "out"),
        ([f"{days}/**/*.parquet"], days / "out"),
        ([days / "0.parquet", days / "1.parquet"], days),
    ]:
        code, _, notes = run("apply", model, *files, "-o", output)
        assert code == 1
        assert "is among the inputs" in notes
    ok("apply", model, f"{days}/*.parquet", "-o", days / "out")
    before = written(days)
    for files in ([days], [f"{days}/*.parquet"], [days / "0.parquet"]):
        code, _, _ = run("tally", *files, "-o", days / "0.parquet", "--groups", "topic")
        assert code in (1, 2)
    shutil.copy(days / "0.parquet", tmp_path / "t.parquet")
    code, _, notes = run("tally", days / "1.parquet", "-o", tmp_path / "t.parquet", "--groups", "topic")
    assert code == 1
    assert "exists, and is no tally" in notes
    code, _, _ = run("fit", days, "-o", days / "model", "--partition", "column:topic")
    assert code == 1
    assert written(days) == before


def test_files_of_others_beside_a_tally_or_a_model_stay(days, tmp_path):
    for name in ("t.parquet", "model"):
        (tmp_path / f"{name}.parts").mkdir()
        (tmp_path / f"{name}.parts" / "mine").touch()
    (tmp_path / "model.parts" / "cells").mkdir()
    ok("tally", days, "-o", tmp_path / "t.parquet", "--groups", "topic")
    assert [path.name for path in (tmp_path / "t.parquet.parts").iterdir()] == ["mine"]
    ok("fit", tmp_path / "t.parquet", "-o", tmp_path / "model")
    assert (tmp_path / "model.parts" / "cells").exists()  # no job made it
    ok("fit", days, "-o", tmp_path / "model", "--partition", "column:topic")
    assert [path.name for path in (tmp_path / "model.parts").iterdir()] == ["mine"]


# Bad files and bad rows


def test_a_bad_file_is_named_and_all_others_are_done(days, model, tmp_path):
    (days / "bad.parquet").write_bytes(b"PAR1 no rows PAR1")
    pl.DataFrame({"question": ["?"], "answer": ["!"]}).write_parquet(days / "lacking.parquet")
    code, _, notes = run("apply", model, days, "-o", tmp_path / "out")
    assert code == 1
    assert "2 of 5 files could not be processed" in notes
    assert f"{days}/bad.parquet cannot be read as Parquet" in notes
    assert f"{days}/lacking.parquet" in notes
    assert all_rows(tmp_path / "out").height == 1200
    code, _, notes = run("tally", days, "-o", tmp_path / "tally.parquet", "--groups", "topic")
    assert code == 1
    assert not (tmp_path / "tally.parquet").exists()
    (days / "bad.parquet").unlink()
    (days / "lacking.parquet").unlink()
    _, _, notes = run("tally", days, "-o", tmp_path / "tally.parquet", "--groups", "topic")
    assert notes.startswith("Nothing was left to do: ")
    assert not (tmp_path / "tally.parquet.parts").exists()


def test_parts_of_a_command_stay_only_if_it_can_go_on_from_them(days, tmp_path):
    """A fit's have the texts of its sample."""
    tally = ("tally", days, "-o", tmp_path / "t.parquet", "--groups", "topic")
    fit = ("fit", days, "-o", tmp_path / "model", "--sample-rows", "1000", "--no-columns")
    frame = pl.read_parquet(days / "1.parquet")
    frame.with_columns(id=pl.lit("one")).write_parquet(days / "1.parquet")
    assert "have the same id" in run(*tally)[2]
    frame.with_columns(model=pl.lit("parrot-2")).write_parquet(days / "1.parquet")
    assert "answers of several LLMs" in run(*fit)[2]
    assert not [*tmp_path.glob("*.parts")]
    (days / "1.parquet").write_bytes(b"PAR1 no rows PAR1")
    assert f"wait in {tmp_path}/t.parquet.parts; " in run(*tally)[2]
    assert f"wait in {tmp_path}/model.parts; " in run(*fit)[2]
    assert len([*tmp_path.glob("t.parquet.parts/*/*")]) == len([*tmp_path.glob("model.parts/*/*")]) == 2
    assert run("tally", days / "no", *tally[2:])[0] != 0
    assert len([*tmp_path.glob("t.parquet.parts/*/*")]) == 2


def test_what_is_wrong_with_many_files_is_told_once(days, model, tmp_path):
    tally = ("tally", days, "-o", tmp_path / "t.parquet", "--groups")
    notes = run(*tally, "nope")[2]
    assert (
        f"None of 3 files could be processed:\n  all 3 files, the first: {days}/0.parquet has no column 'nope'" in notes
    )
    assert "Correct the files or the options, and start the command again." in notes
    assert notes.count("has no column") == 1
    apply = ("apply", model, days, "-o", tmp_path / "out", "--percent")
    notes = run(*apply)[2]
    assert notes.count(" row ") == 1, notes
    for number in range(4):
        (days / f"bad{number}.parquet").write_bytes(b"PAR1 no rows PAR1")
    notes = run(*tally, "topic")[2]
    assert "4 of 7 files could not be processed" in notes
    assert ", ".join(f"{days}/bad{number}.parquet" for number in range(4)) + ", the first: " in notes
    _, _, notes = run(*tally, "topic", "--resolution", "0.003")
    assert notes.startswith("qacal: resolution is 0.003; expected 1/k")


def test_a_readable_file_beside_a_bad_one_is_not_counted_again(days, tmp_path):
    (days / "1.parquet").write_bytes(b"PAR1 no rows PAR1")
    tally = ("tally", days / "0.parquet", days / "1.parquet", "-o", tmp_path / "t.parquet", "--groups", "topic")
    assert "it does only what is left" in run(*tally)[2]
    shutil.copy(days / "2.parquet", days / "1.parquet")
    assert "1 part of 2 had been done before" in run(*tally)[2]


def test_bad_rows_are_named_by_file_and_row_and_skipped(days, model, tmp_path, monkeypatch):
    broken = pl.read_parquet(days / "1.parquet").with_columns(
        confidence=pl.when(pl.int_range(pl.len()) == 7).then(1.7).otherwise("confidence")
    )
    broken.write_parquet(days / "1.parquet")
    code, _, notes = run("apply", model, days, "-o", tmp_path / "out")
    assert code == 1
    assert f"{days}/1.parquet row 8: confidence is 1.7" in notes
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.parquet", "2.parquet"]
    bad = tmp_path / "bad.jsonl"
    _, _, notes = run("apply", model, days, "-o", tmp_path / "out", "--skip-bad-rows", bad)
    assert f"Bad rows: 1. They are in {bad}." in notes
    (row,) = map(json.loads, bad.read_text().splitlines())
    (tmp_path / "out" / "0.parquet").unlink()
    _, _, notes = run("apply", model, days, "-o", tmp_path / "out", "--skip-bad-rows", bad)
    assert "2 parts of 3 had been done before" in notes
    assert f"Bad rows: 1. They are in {bad}." in notes
    assert [*map(json.loads, bad.read_text().splitlines())] == [row]
    # More of them than a file can note: the part is done again.
    monkeypatch.setattr(parts_module, "_MOST_NOTED", 100)
    for _ in range(2):
        _, _, notes = run("apply", model, days, "-o", tmp_path / "out", "--skip-bad-rows", bad, "--max-bad", "0.3")
        assert "done before" not in notes
        assert [*map(json.loads, bad.read_text().splitlines())] == [row]
    assert row["place"] == "row 8"
    assert row["row"]["confidence"] == 1.7
    assert all_rows(tmp_path / "out")["calibrated"].null_count() == 1


def test_files_are_not_counted_twice(days):
    with pytest.raises(InputError, match="is named twice; its rows would count twice"):
        expanded([str(days), str(days / "1.parquet")])
    with pytest.raises(InputError, match="there is no Parquet file"):
        expanded([str(days / "no*.parquet")])
    with pytest.raises(InputError, match="there is no Parquet file"):
        expanded([str(days / "1.parquet"), str(days / "no*.parquet")])
    (days.parent / "link.parquet").symlink_to(days / "1.parquet")
    for other in (days.parent / "link.parquet", f"{days}/../days/1.parquet"):
        with pytest.raises(InputError, match="is named twice; its rows would count twice"):
            expanded([str(days), str(other)])
    (days.parent / "rows.csv").touch()
    with pytest.raises(InputError, match=r"read Parquet alone; expected a name ending in \.parquet"):
        expanded([str(days.parent / "rows.csv")])


def test_an_empty_file_has_no_part(tmp_path):
    pl.DataFrame({"a": [1]}).clear().write_parquet(tmp_path / "none.parquet")
    assert parts_of(expanded([str(tmp_path / "none.parquet")]), "out") == ([], {})


@pytest.mark.filterwarnings("always::qacal.errors.QacalWarning")
def test_a_file_that_has_no_rows_is_named_and_its_old_output_removed(days, model, tmp_path):
    apply = ("apply", model, days, "-o", tmp_path / "out")
    ok(*apply)
    pl.read_parquet(days / "1.parquet").clear().write_parquet(days / "1.parquet")
    assert f"1 of 3 files without rows, so without output: {days}/1.parquet." in run(*apply)[2]
    assert written(tmp_path / "out").keys() == {"0.parquet", "2.parquet"}


def test_two_inputs_never_share_an_output(days, model, tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    shutil.copy(days / "0.parquet", tmp_path / "logs" / "a.parquet")
    shutil.copy(days / "1.parquet", tmp_path / "logs" / "a.pq")
    files = tmp_path / "logs" / "a.parquet", tmp_path / "logs" / "a.pq"
    code, _, notes = run("apply", model, *files, "-o", tmp_path / "out")
    assert code == 1
    assert "would have one output, a.parquet." in notes
    assert not (tmp_path / "out").exists()
    ok("tally", *files, "-o", tmp_path / "t.parquet", "--groups", "topic")  # nobody reads the names of its parts
    assert Counted.read(tmp_path / "t.parquet").certify.n == 800
    monkeypatch.setattr(parts_module, "PART_ROWS", 300)
    shutil.copy(days / "0.parquet", tmp_path / "logs" / "x.parquet")
    pl.read_parquet(days / "1.parquet").head(10).write_parquet(tmp_path / "logs" / "x-00000-of-00002.parquet")
    code, _, notes = run("apply", model, f"{tmp_path}/logs/x*", "-o", tmp_path / "out")
    assert code == 1
    assert "would have one output, x-00000-of-00002.parquet." in notes


def test_a_feature_on_any_scale_can_be_named_for_many_files(days, tmp_path):
    for path in days.iterdir():
        frame = pl.read_parquet(path)
        frame.with_columns(length=pl.col("question").str.len_chars()).write_parquet(path)
    ok("fit", days, "-o", tmp_path / "model", "--feature", "length:numeric")


def test_wrong_use_is_refused_early(days, model, tmp_path):
    for arguments, said in [
        (["apply", model, days, "-o", "out.parquet"], "-o is out.parquet; several files, a folder, a URL, and"),
        (["apply", model, "s3://bucket/a.parquet", "-o", "-"], "need a folder for their output: -o FOLDER"),
        (["apply", model, days, "-o", "out", "--engine", "spark"], "expected one of local, daft, ray"),
        (["apply", model, days, "-o", "out", "--address", "auto"], "pass --engine ray, too"),
        (["tally", days, "-o", "t.parquet"], "name the column of groups"),
        (["fit", days, "-o", "m", "--tune", "brier"], "--tune does not go with many files"),
        (["fit", days / "0.parquet", "-o", "m", "--from", model], "has no tally; --from takes tallies"),
    ]:
        code, _, notes = run(*arguments)
        assert code == 2
        assert said in " ".join(notes.split())


@pytest.mark.parametrize("command", ["apply", "embed"])
def test_one_file_goes_to_a_folder_too_and_must_exist(command, days, model, tmp_path):
    options = [command, *([model] if command == "apply" else [])]
    (tmp_path / "there").mkdir()
    for folder in ("there", "new/"):
        ok(*options, days / "0.parquet", "-o", f"{tmp_path}/{folder}")
        assert pl.read_parquet(tmp_path / folder / "0.parquet").height == 400
    for files in (["nothing"], ["nothing.parquet"], ["nothing", days / "0.parquet"]):
        code, _, notes = run(*options, *files, "-o", f"{tmp_path}/there")
        assert (code, notes) == (1, f"qacal: {files[0]} does not exist.\n")
    (tmp_path / "a.csv").write_text("question,answer,confidence\nwhy,so,0.5\n")
    _, _, notes = run(*options, tmp_path / "a.csv", "-o", tmp_path / "there")
    assert notes == f"qacal: {tmp_path}/there is a folder; only rows of Parquet files go to one. Name a file with -o.\n"


def test_a_missing_engine_says_what_to_install(days, model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "daft", None)
    code, _, notes = run("apply", model, days, "-o", tmp_path / "out", "--engine", "daft")
    assert code == 1
    assert "the package daft is not installed" in notes
    assert "'.[cluster]'" in notes


def test_an_engine_that_never_starts_is_given_up(days, model, tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: True)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    code, _, notes = run("apply", model, days, "-o", tmp_path / "out", "--engine", "daft")
    assert code == 1
    assert "the engine daft stopped 3 times, the last time with:\nexit code 1" in notes


# Tallies


def test_a_tally_of_files_is_the_tally_of_their_rows_in_any_number_and_order(days, tmp_path, monkeypatch):
    ok("tally", days, "-o", tmp_path / "one.parquet", "--groups", "topic")
    ok("tally", *sorted(days.iterdir(), reverse=True), "-o", tmp_path / "two.parquet", "--groups", "topic")
    monkeypatch.setattr(parts_module, "PART_ROWS", 77)
    ok("tally", days, "-o", tmp_path / "three.parquet", "--groups", "topic")
    one, two, three = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("one", "two", "three"))
    assert_frame_equal(one, two)
    assert_frame_equal(one, three)
    rows = all_rows(days)
    expected = Tally.of(rows["confidence"], rows["correct"], groups={"topic": rows["topic"]}).to_polars()
    assert_frame_equal(Tally.from_polars(one.drop("tally")).to_polars().drop("is_sum"), expected.drop("is_sum"))


@pytest.mark.parametrize("grid", [(), ("--resolution", "0.05")])
@pytest.mark.parametrize("ids", ["ignore", "check", "documents"])
def test_cells_of_a_single_part_are_not_written_and_read_again(days, tmp_path, monkeypatch, ids, grid):
    all_rows(days).write_parquet(tmp_path / "all.parquet")
    arguments = ("--groups", "topic", "--ids", ids, *grid)
    wrote = []
    monkeypatch.setattr(
        parts_module.Part,
        "write",
        lambda part, *rest, write=parts_module.Part.write: (wrote.append(part), write(part, *rest)),
    )
    ok("tally", tmp_path / "all.parquet", "-o", tmp_path / "one.parquet", *arguments)
    assert not wrote
    monkeypatch.setattr(parts_module, "PART_ROWS", 77)
    monkeypatch.setattr("qacal.cluster.running.LARGE_ON_GRID" if grid else "qacal.cluster.running.LARGE", 1)
    ok("tally", tmp_path / "all.parquet", "-o", tmp_path / "two.parquet", *arguments)
    assert len(wrote) > 1
    one, two = (Counted.read(tmp_path / f"{name}.parquet") for name in ("one", "two"))
    assert_frame_equal(one.to_frame(), two.to_frame())
    assert one.metadata() == two.metadata()
    assert [*tmp_path.glob("*.parts")] == []


@pytest.mark.parametrize("ids", ["ignore", "check"])
@pytest.mark.parametrize("kind", ["plain", "named", "from somewhere", "sampled", "unlabelled", "without ids", "bad id"])
def test_polars_counts_what_is_counted_row_by_row(days, tmp_path, monkeypatch, ids, kind):
    number = pl.int_range(pl.len())
    change = {
        "from somewhere": {
            "model": pl.lit("m"),
            "prompt": pl.format("p{}", number % 3),
            "judge": pl.lit(None, pl.String),
        },
        "sampled": {"agreement": pl.lit(0.5), "samples": 5 - number // 390, "temperature": pl.lit(0.7)},
        "unlabelled": {"correct": pl.when(number % 3 > 0).then("correct")},
        "bad id": {"id": pl.when(number != 7).then("id")},
    }.get(kind, {})
    for path in days.iterdir():
        rows = pl.read_parquet(path).with_columns(**change)
        rows = rows.rename({"confidence": "score", "id": "number"}) if kind == "named" else rows
        (rows.drop("id") if kind == "without ids" else rows).write_parquet(path)
    monkeypatch.setattr(parts_module, "PART_ROWS", 150)
    names = ["--column", "confidence=score", "--column", "id=number"] if kind == "named" else []
    bad = ["--skip-bad-rows", tmp_path / "bad.jsonl"]
    counted = []
    for way in (tallying.plain_tally, lambda *arguments: None):
        monkeypatch.setattr(jobs, "plain_tally", way)
        code, said, noted = run(
            "tally", days, "-o", tmp_path / "out.parquet", "--groups", "topic", "--ids", ids, *names, *bad
        )
        assert code == 0, noted
        found = Counted.read(tmp_path / "out.parquet")
        counted.append(
            (found.to_frame().to_dicts(), found.metadata(), said, noted, (tmp_path / "bad.jsonl").read_text())
        )
        (tmp_path / "out.parquet").unlink()
    assert counted[0] == counted[1]
    assert (kind == "bad id" and ids == "check") == bool(counted[0][-1])


@pytest.mark.parametrize(("most", "said"), [("0.05", "Bad rows: 30."), ("0.02", "30 of 1,000 rows (3%)")])
def test_the_share_of_bad_rows_is_that_of_a_part_not_of_a_piece(most, said, tmp_path, monkeypatch):
    rows = pl.DataFrame(answers(1000)).with_row_index()
    is_bad = pl.col("index").is_between(310, 339)
    confidence = pl.when(is_bad).then(2.0).otherwise("confidence")
    rows.with_columns(confidence=confidence).write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(parts_module, "PART_ROWS", 50)
    bad = ["--skip-bad-rows", tmp_path / "bad.jsonl", "--max-bad", most]
    _, _, notes = run("tally", tmp_path / "a.parquet", "-o", tmp_path / "out.parquet", "--groups", "topic", *bad)
    assert said in notes


def test_tallies_of_days_fit_the_model_of_all_rows(days, tmp_path):
    for day in range(3):
        ok("tally", days / f"{day}.parquet", "-o", tmp_path / f"{day}.tally.parquet", "--groups", "topic")
    ok("fit", *(tmp_path / f"{day}.tally.parquet" for day in range(3)), "-o", tmp_path / "sum")
    ok("fit", days, "-o", tmp_path / "at_once", "--partition", "column:topic")
    rows = QACalibrator(partition=Column("topic")).fit(all_rows(days))
    new = pl.DataFrame(answers(200, seed=9))
    for name in ("sum", "at_once"):
        model = load(tmp_path / name)
        assert_frame_equal(model.calibrate(new), rows.calibrate(new), abs_tol=1e-9)
        assert model.rows_ == 1200
        assert [(group.group, group.rows) for group in model.describe_groups()] == [
            (group.group, group.rows) for group in rows.describe_groups()
        ]
        assert model.fit_record_.known(np.array([], dtype=np.uint64)) == 0
        np.testing.assert_array_equal(model.fit_record_.questions, rows.fit_record_.questions)


def test_tallies_are_found_in_folders_and_by_patterns(days, tmp_path):
    home = tmp_path / "tallies"
    home.mkdir()
    for day in range(3):
        ok("tally", days / f"{day}.parquet", "-o", home / f"{day}.parquet", "--groups", "topic")
    for files in (home, home / "*.parquet"):
        ok("fit", files, "-o", tmp_path / "model")
        assert load(tmp_path / "model").rows_ == 1200
    code, _, said = run("fit", home / "0.parquet", home, "-o", tmp_path / "model")
    assert (code, "0.parquet is named twice" in " ".join(said.split())) == (1, True)


def test_a_fit_of_tallies_ignores_no_option(days, tmp_path):
    frame = pl.read_parquet(days / "0.parquet")
    frame.select("id", "topic", "correct", score=pl.col("confidence") * 100).write_parquet(tmp_path / "rows.parquet")
    reads = ("--column", "confidence=score", "--percent")
    ok("tally", tmp_path / "rows.parquet", "-o", tmp_path / "t.parquet", "--groups", "topic", *reads)
    fit = ("fit", tmp_path / "t.parquet", "-o", tmp_path / "model")
    for option in (("--embedder", "minilm"), ("--ids", "ignore"), ("--train-share", "0.5"), ("--feature", "x")):
        code, _, said = run(*fit, *option)
        assert (code, f"{option[0]} would have no effect" in said) == (2, True), said
    code, _, said = run(*fit, "--partition", "column:user")
    assert (code, "the tally has the groups of 'topic', and the partition is 'column:user'" in said) == (1, True), said
    ok(*fit, *reads, "--partition", "column:topic")
    counted = Counted.read(tmp_path / "t.parquet")
    assert fit_column(fit_column(QACalibrator(partition=Column("topic")), counted), counted).rows_ == 400
    ok("apply", tmp_path / "model", tmp_path / "rows.parquet", "-o", tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet")["calibrated"].is_between(0, 1).all()


@pytest.mark.parametrize(("groups", "found"), [((), "none"), (("topic", "model"), "topic, model")])
def test_a_tally_needs_one_column_of_groups_to_be_fitted(days, tmp_path, groups, found):
    tallying.tally_files(days / "0.parquet", groups).to_polars().write_parquet(tmp_path / "t.parquet")
    code, _, said = run("fit", tmp_path / "t.parquet", "-o", tmp_path / "model")
    assert code == 1
    assert f"a tally with one column of groups; this one has {found}." in " ".join(said.split())


def test_tallies_with_and_without_ids_do_not_add(days, tmp_path):
    ok("tally", days / "0.parquet", "-o", tmp_path / "0.parquet", "--groups", "topic")
    ok("tally", days / "1.parquet", "-o", tmp_path / "1.parquet", "--groups", "topic", "--ids", "ignore")
    tallying.tally_files(days / "2.parquet", "topic").to_polars().write_parquet(tmp_path / "2.parquet")
    for other in ("1.parquet", "2.parquet"):
        code, _, said = run("fit", tmp_path / "0.parquet", tmp_path / other, "-o", tmp_path / "model")
        assert (
            code,
            "of these files or tallies have ids (SQL and --ids ignore give none)" in " ".join(said.split()),
        ) == (1, True)
    ok("fit", tmp_path / "1.parquet", tmp_path / "2.parquet", "-o", tmp_path / "model")


def test_a_sample_has_rows_with_labels_only(days):
    labels = pl.when(pl.int_range(pl.len()) < 300).then(float("nan")).otherwise("correct").cast(pl.Float64)
    pl.read_parquet(days / "0.parquet").with_columns(correct=labels).write_parquet(days / "0.parquet")
    yes = pl.when(pl.int_range(pl.len()) < 100).then(pl.lit("")).otherwise(pl.lit("yes"))
    pl.read_parquet(days / "1.parquet").with_columns(correct=yes).write_parquet(days / "1.parquet")
    assert running._labelled(map(str, sorted(days.iterdir())), "correct") == 100 + 300 + 400


def test_rows_without_a_label_and_files_without_one_are_left_out(days, tmp_path):
    pl.read_parquet(days / "1.parquet").with_columns(correct=pl.lit(None, dtype=pl.Int64)).write_parquet(
        days / "1.parquet"
    )
    half = pl.when(pl.int_range(pl.len()) % 2 == 0).then("correct")
    pl.read_parquet(days / "2.parquet").with_columns(correct=half).write_parquet(days / "2.parquet")
    ok("tally", days, "-o", tmp_path / "t.parquet", "--groups", "topic")
    assert Counted.read(tmp_path / "t.parquet").certify.n == 600


def test_repeated_ids_are_refused_or_counted_as_documents(days, tmp_path):
    frame = pl.read_parquet(days / "2.parquet").with_columns(id=pl.col("id").str.replace("..$", "00"))
    frame.write_parquet(days / "2.parquet")
    code, _, notes = run("tally", days, "-o", tmp_path / "t.parquet", "--groups", "topic")
    assert code == 1
    assert "Count them as documents with --ids documents" in notes
    ok("tally", days, "-o", tmp_path / "t.parquet", "--groups", "topic", "--ids", "documents")
    ok("fit", tmp_path / "t.parquet", "-o", tmp_path / "model")
    rows = QACalibrator(partition=Column("topic")).fit(all_rows(days))
    assert load(tmp_path / "model").calibrator_.maps_.certificate.is_by_document
    new = pl.DataFrame(answers(200, seed=9))
    assert_frame_equal(load(tmp_path / "model").calibrate(new), rows.calibrate(new), abs_tol=1e-9)
    ok("tally", days, "-o", tmp_path / "u.parquet", "--groups", "topic", "--ids", "ignore")
    assert Counted.read(tmp_path / "u.parquet").certify.n_blocks == 1


def test_a_tally_made_elsewhere_is_refused_if_its_ids_repeat(tmp_path):
    frame = pl.DataFrame(answers(300, seed=3))
    for name, rows in (("once", frame), ("twice", pl.concat([frame, frame]))):
        rows.write_parquet(tmp_path / f"{name}.parquet")
        tally = tallying.tally_files(tmp_path / f"{name}.parquet", "topic")
        tally.to_polars().write_parquet(tmp_path / f"{name}.tally.parquet")
    ok("fit", tmp_path / "once.tally.parquet", "-o", tmp_path / "model")
    code, _, said = run("fit", tmp_path / "twice.tally.parquet", "-o", tmp_path / "other")
    assert (code, "does not keep documents apart" in " ".join(said.split())) == (1, True)


def test_rows_that_cannot_be_checked_for_independence_are_told(tmp_path):
    pl.DataFrame(answers(300, seed=3)).select("topic", "confidence", "correct").write_parquet(tmp_path / "rows.parquet")
    code, _, said = run("tally", tmp_path / "rows.parquet", "-o", tmp_path / "a.parquet", "--groups", "topic")
    assert (code, "neither ids nor questions" in " ".join(said.split())) == (0, True)


def test_ids_that_repeat_beyond_the_stored_ones_are_noticed():
    """One question of a million rows is not among the lowest hashes; too few distinct hashes give it away."""
    marks = np.sort(np.random.default_rng(0).integers(0, 2**53, 20_000))[:4096]
    rows = Tally.of(np.full(20_000, 0.5), np.ones(20_000))
    Counted({"certify": rows}, ids=marks, ids_rows=np.ones(4096, dtype=np.int64)).require_independent()
    more = Tally.of(np.full(25_000, 0.5), np.ones(25_000))
    with pytest.raises(InputError, match="some of the 25,000 rows have the same id"):
        Counted({"certify": more}, ids=marks, ids_rows=np.ones(4096, dtype=np.int64)).require_independent()


def test_tallies_that_do_not_belong_together_are_refused(days, tmp_path):
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    ok("tally", days / "0.parquet", "-o", one, "--groups", "topic")
    pl.read_parquet(days / "1.parquet").with_columns(model=pl.lit("parrot-2")).write_parquet(days / "1.parquet")
    ok("tally", days / "1.parquet", "-o", two, "--groups", "topic")
    code, _, notes = run("fit", one, two, "-o", tmp_path / "model")
    assert code == 1
    assert "answers of several LLMs: parrot-1, parrot-2" in notes
    ok("fit", one, two, "-o", tmp_path / "model", "--allow-mixed")
    pl.read_parquet(days / "2.parquet").drop("id").write_parquet(days / "2.parquet")
    ok("tally", days / "2.parquet", "-o", two, "--groups", "topic", "--ids", "documents")
    code, _, notes = run("fit", one, two, "-o", tmp_path / "model")
    assert code == 1
    assert "only some of the files have ids" in notes


def test_where_rows_come_from_does_not_depend_on_how_they_are_divided_into_files(tmp_path):
    """A prompt with the question in it is no origin; a few rows of it alone would look like one."""
    rows = pl.DataFrame(answers(400, seed=1)).with_columns(
        prompt="question",
        judge=pl.lit("people"),
        agreement=pl.lit(1.0),
        samples=pl.when(pl.int_range(400) < 10).then(3).otherwise(5),
    )
    found = []
    for size in (400, 100, 15):
        folder = tmp_path / f"by_{size}"
        folder.mkdir()
        for number, part in enumerate(rows.iter_slices(size)):
            part.write_parquet(folder / f"{number:02}.parquet")
        ok("fit", folder, "-o", tmp_path / f"model_{size}", "--partition", "column:topic")
        found.append(load(tmp_path / f"model_{size}").origins_)
    assert found[0] == {"model": ["parrot-1"], "judge": ["people"], "samples": [5]}
    assert found[1:] == found[:1] * 2


def test_a_sum_holds_one_part_at_a_time():
    """Not all parts at once: there may be as many as a billion rows make."""
    alive, most = weakref.WeakSet(), 0

    def parts():
        nonlocal most
        rng = np.random.default_rng(0)
        for _ in range(50):
            ids = np.sort(rng.integers(0, 2**53, 300))
            one = Counted({"certify": Tally.of([0.5, 0.9], [0, 1])}, ids=ids, ids_rows=np.ones(300, dtype=np.int64))
            alive.add(one)
            most = max(most, len(alive))
            yield one
            del one

    total = Counted.sum(parts())
    assert most <= 2
    assert total.certify.rows.tolist() == [50, 50]
    assert len(total.ids) == 4096
    rng = np.random.default_rng(0)
    every = np.sort(np.concatenate([rng.integers(0, 2**53, 300) for _ in range(50)]))
    np.testing.assert_array_equal(total.ids, every[:4096])


def test_a_fit_of_many_files_rounds_confidences_that_hardly_repeat_and_a_tally_refuses_them(
    days, tmp_path, monkeypatch
):
    noise = pl.int_range(pl.len()).cast(pl.Float64) * 1e-7
    for path in days.iterdir():
        frame = pl.read_parquet(path)
        frame.with_columns(confidence=pl.col("confidence") * 0.9 + noise).write_parquet(path)
    fine = Counted({"certify": Tally.of(np.linspace(0, 1, 2501), np.ones(2501))})
    assert Counted.sum([fine, fine], 2000).certify.resolution == 0.001
    assert Counted.sum([fine, fine]).certify.resolution is None
    monkeypatch.setattr(running, "MOST_CELLS", 500)
    ok("fit", days, "-o", tmp_path / "model", "--partition", "column:topic")
    assert load(tmp_path / "model").rows_ == 1200
    monkeypatch.setattr(tallying, "MOST_CELLS", 500)
    code, _, notes = run("tally", days, "-o", tmp_path / "t.parquet", "--groups", "topic")
    assert code == 1
    assert "--resolution 0.001" in notes
    ok("tally", days, "-o", tmp_path / "t.parquet", "--groups", "topic", "--resolution", "0.01")


def test_bad_rows_are_told_as_parts_are_done(days, model, tmp_path):
    for path in days.iterdir():
        frame = pl.read_parquet(path)
        frame.with_columns(
            confidence=pl.when(pl.int_range(pl.len()) == 7).then(1.7).otherwise("confidence")
        ).write_parquet(path)
    done = []
    job = Job("apply", skips=True, max_bad=0.2, **model_files(model))
    where = running.Where(on_bad=lambda row: done.append(len(written(tmp_path / "out"))))
    running.run_job(job, [str(days)], str(tmp_path / "out"), where)
    assert done == [1, 2, 3]


# Fits on a sample, certified on all rows


@pytest.fixture(scope="module")
def at_scale(tmp_path_factory):
    home = tmp_path_factory.mktemp("scale")
    frame = write_days(home / "days", days=4, rows=1000, seed=3)
    ok("fit", home / "days", "-o", home / "model", "--sample-rows", "1200", "--no-columns")
    return home, frame


def test_a_sample_trains_and_all_other_labelled_rows_certify(at_scale):
    home, frame = at_scale
    model = load(home / "model")
    assert 1000 < model.learned_score_.rows_ < 1150  # 90% of the sample
    made_bands = model.pipeline_.first.rows_
    assert 300 < made_bands < 420  # 30% of it
    assert model.rows_ == frame.height - made_bands
    assert not (home / "model.parts").exists()
    cells = model.calibrator_.maps_.cells
    bands = len(model.calibrator_.maps_.below)
    assert cells.rows[:bands].sum() == model.rows_


def test_the_sample_does_not_depend_on_the_files(at_scale, tmp_path):
    home, frame = at_scale
    (tmp_path / "other").mkdir()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    for number, part in enumerate(shuffled.iter_slices(1700)):
        part.write_parquet(tmp_path / "other" / f"{number}.parquet")
    ok("fit", tmp_path / "other", "-o", tmp_path / "model", "--sample-rows", "1200", "--no-columns")
    one, two = load(home / "model"), load(tmp_path / "model")
    assert one.rows_ == two.rows_
    assert one.learned_score_.rows_ == two.learned_score_.rows_


@pytest.mark.parametrize("most", [[], ["--sample-rows", "500"]])
def test_a_fit_counts_documents_if_ids_repeat_whether_or_not_all_rows_are_its_sample(days, tmp_path, most):
    for path in days.iterdir():
        pl.read_parquet(path).with_columns(id=pl.col("id").str.replace(".$", "0")).write_parquet(path)
    ok("fit", days, "-o", tmp_path / "model", "--no-columns", *most)
    assert load(tmp_path / "model").calibrator_.maps_.certificate.is_by_document
    ok("fit", days, "-o", tmp_path / "model", "--no-columns", "--ids", "ignore", "--sample-rows", "500")
    assert not load(tmp_path / "model").calibrator_.maps_.certificate.is_by_document


@pytest.mark.parametrize("most", [[], ["--sample-rows", "1000"]])
def test_a_fit_tells_about_bad_rows_whether_or_not_all_rows_are_its_sample(days, tmp_path, most):
    number = pl.int_range(pl.len())
    pl.read_parquet(days / "1.parquet").with_columns(
        confidence=pl.when(number == 7).then(1.7).otherwise("confidence"),
        question=pl.when(number == 9).then(None).otherwise("question"),
    ).write_parquet(days / "1.parquet")
    options = ["-o", tmp_path / "model", "--no-columns", *most]
    code, _, notes = run("fit", days, *options)
    assert code == 1
    assert f"{days}/1.parquet row 8: confidence is 1.7" in notes
    bad = tmp_path / "bad.jsonl"
    _, _, notes = run("fit", days, *options, "--skip-bad-rows", bad)
    assert "Bad rows: 2." in notes
    assert [json.loads(line)["place"] for line in bad.read_text().splitlines()] == ["row 8", "row 10"]
    assert (tmp_path / "model").is_dir()
    code, _, notes = run("fit", days, *options, "--skip-bad-rows", bad, "--max-bad", "0.001")
    assert code == 1
    assert "Too many rows cannot be used: 2 of 400 rows" in notes


def test_a_fit_leaves_out_files_without_labels(days, tmp_path):
    pl.read_parquet(days / "1.parquet").with_columns(correct=pl.lit(None, dtype=pl.Int64)).write_parquet(
        days / "1.parquet"
    )
    ok("fit", days, "-o", tmp_path / "model", "--no-columns")
    assert 500 < load(tmp_path / "model").rows_ < 620  # 70% of 800


def test_tallies_by_a_model_certify_it_on_other_rows(tmp_path):
    write_days(tmp_path / "days", days=3, rows=800, seed=4)
    ok("fit", tmp_path / "days" / "0.parquet", "-o", tmp_path / "first", "--no-columns")
    for ids in ("check", "documents", "ignore"):
        options = ["--model", tmp_path / "first", "--ids", ids]
        code, _, notes = run("tally", tmp_path / "days", "-o", tmp_path / "t.parquet", *options)
        assert code == 1
        assert "the model was fitted on some of these questions" in notes
        assert "does not help to remove these files" in " ".join(notes.split())
    for day in (1, 2):
        ok(
            *("tally", tmp_path / "days" / f"{day}.parquet", "-o", tmp_path / f"{day}.parquet"),
            *("--model", tmp_path / "first"),
        )
    ok("fit", tmp_path / "1.parquet", tmp_path / "2.parquet", "--from", tmp_path / "first", "-o", tmp_path / "second")
    for option in (["--alpha", "0.2"], ["--bands", "4"], ["--percent"], ["--ids", "ignore"]):
        code, _, notes = run("fit", tmp_path / "1.parquet", "--from", tmp_path / "first", "-o", tmp_path / "x", *option)
        assert code == 2
        assert f"{option[0]} would have no effect" in " ".join(notes.split())
    first, second = load(tmp_path / "first"), load(tmp_path / "second")
    assert second.rows_ == 1600
    np.testing.assert_array_equal(first.calibrator_.maps_.planned.tops, second.calibrator_.maps_.planned.tops)
    new = answers(100, seed=8)
    one, two = (model.calibrate(pl.DataFrame(new)) for model in (first, second))
    assert_frame_equal(one.select("group"), two.select("group"))
    assert (two["high"] - two["low"]).mean() < (one["high"] - one["low"]).mean()
    assert second.describe_groups()[0].words
    code, _, notes = run("fit", tmp_path / "1.parquet", "-o", tmp_path / "third")
    assert code == 2
    code, _, notes = run("fit", tmp_path / "1.parquet", "--from", tmp_path / "second", "-o", tmp_path / "third")
    assert code == 1
    assert "not made with this model" in notes


def test_a_certificate_by_cells_is_the_one_by_rows(tmp_path):
    """Cells keep the end of a band in place of a score: accuracies of bands and groups, and mean answers, stay."""
    write_days(tmp_path / "days", days=2, rows=800, seed=6)
    ok("fit", tmp_path / "days" / "0.parquet", "-o", tmp_path / "first", "--no-columns")
    ok("tally", tmp_path / "days" / "1.parquet", "-o", tmp_path / "t.parquet", "--model", tmp_path / "first")
    ok("fit", tmp_path / "t.parquet", "--from", tmp_path / "first", "-o", tmp_path / "second")
    pipeline, maps = load(tmp_path / "first").pipeline_, load(tmp_path / "second").calibrator_.maps_
    (batch,) = read(str(tmp_path / "days" / "1.parquet"), needs_labels=True, **pipeline.needs)
    scores, groups = pipeline.inputs(batch)
    tally = Tally.of(scores.first, batch.correct, groups=groups).to_seven_decimals()
    answered = Tally.of(scores.first, scores.score).to_seven_decimals()
    by_rows = fit_margins(tally, pipeline.calibrator.maps_.planned, answers=answered)
    for name in ("rows", "low", "high", "top", "offset"):
        np.testing.assert_array_equal(getattr(maps.cells, name), getattr(by_rows.cells, name))
    np.testing.assert_allclose(maps.shift, by_rows.shift, atol=1e-6)
    assert maps.cells.rows[: len(maps.below)].sum() == 800


def test_the_same_job_in_two_folders_writes_the_same_bytes(days, model, tmp_path):
    for name in ("one", "two"):
        ok("apply", model, days, "-o", tmp_path / name)
    assert (tmp_path / "one" / "0.parquet").read_bytes() == (tmp_path / "two" / "0.parquet").read_bytes()
