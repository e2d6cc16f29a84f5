"""Progress: one line on a terminal that fits into it, nothing elsewhere; and the account of a run in JSON."""

import io
import json
import re
from contextlib import redirect_stderr

import polars as pl
import pytest

from qacal.cli import options, progress_line
from qacal.cluster.jobs import Job
from qacal.cluster.running import count
from qacal.sources.questions.quiz import answers
from tests.cli.test_cli import ok, run


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress_line, "_SECONDS", 0.0)
    monkeypatch.setattr(progress_line, "is_quiet", False)
    return Terminal()


def lines(screen):
    return [line for line in re.split(r"\r\x1b\[2K|\n", screen.getvalue()) if line]


def test_progress_has_rows_speed_and_time_left(terminal):
    with redirect_stderr(terminal), progress_line.showing(lambda: 3_000_000) as tell:
        for rows in range(0, 3_000_001, 1_000_000):
            tell("calibrating", rows)
        tell("a step with a name that is too long for any terminal of eighty columns or fewer", 7)
    shown = lines(terminal)
    assert shown[0] == "calibrating: 0 of 3,000,000 rows"
    assert re.fullmatch(r"calibrating: 2,000,000 of 3,000,000 rows, [\d,]+ a second, 0 s left", shown[2])
    assert all(len(line) < 80 for line in shown)
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_a_job_knows_how_many_rows_are_left(terminal, tmp_path):
    (tmp_path / "days").mkdir()
    for day in range(3):
        answers().slice(100 * day, 100).write_parquet(tmp_path / "days" / f"{day}.parquet")
    job = Job("tally", groups="subject", ids="ignore")
    with redirect_stderr(terminal), options.job_runs("local", None, None) as where:
        count(job, [str(tmp_path / "days")], str(tmp_path / "t"), where)
        where.progress("training", 7)  # the rows of another step are not those of the job
    shown = lines(terminal)
    assert [re.match(r"counting: (\d+) of 300 rows", line)[1] for line in shown[:3]] == ["100", "200", "300"]
    assert shown[1].endswith(" left")
    assert shown[3].startswith("training: 7 rows")


def test_a_note_takes_the_place_of_the_line(terminal):
    with redirect_stderr(terminal), progress_line.showing() as tell:
        tell("reading", 10)
        options.note("Note: something.")
    assert terminal.getvalue() == "\r\x1b[2Kreading: 10 rows\r\x1b[2KNote: something.\n"


def test_the_speed_is_that_of_the_step():
    pace = progress_line.Pace()
    assert pace.add("reading", 100, 1.0)
    assert not pace.add("reading", 300, 2.0)
    assert pace.line() == "reading: 300 rows, 200 a second"
    assert pace.add("training", 10, 4.0)
    assert pace.line() == "training: 10 rows, 5.0 a second"
    assert pace.add("training", 5, 5.0)  # the step starts again


def test_steps_that_take_turns_have_the_rate_of_all_their_batches():
    pace, lines = progress_line.Pace(total=800), []
    for batch in range(1, 5):
        for at, what in enumerate(("embedding", "calibrating"), 2 * batch):
            assert pace.add(what, 100 * batch, at) == (batch == 1)
            lines.append(pace.line())
    assert lines[-2:] == [
        "embedding: 400 of 800 rows, 50 a second, 8 s left",
        "calibrating: 400 of 800 rows, 57 a second, 7 s left",
    ]


@pytest.mark.parametrize("is_quiet", [True, False])
def test_nothing_is_shown_if_quiet_or_piped(terminal, monkeypatch, is_quiet):
    monkeypatch.setattr(progress_line, "is_quiet", is_quiet)
    if not is_quiet:
        monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    with redirect_stderr(terminal), progress_line.showing() as tell:
        assert tell is None
    assert terminal.getvalue() == ""


def test_the_account_of_a_run(tmp_path):
    rows = answers().head(600)
    rows.write_parquet(tmp_path / "rows.parquet")
    ok("fit", tmp_path / "rows.parquet", "-o", tmp_path / "model", "--continuous")
    bad = [{**row, "confidence": 7} if at == 3 else row for at, row in enumerate(rows.iter_rows(named=True))]
    text = "".join(json.dumps(row) + "\n" for row in bad) + "not JSON\n"
    (tmp_path / "rows.jsonl").write_text(text)
    skip = ("--skip-bad-rows", tmp_path / "bad.jsonl")
    out = tmp_path / "out.jsonl"
    account = json.loads(ok("apply", tmp_path / "model", tmp_path / "rows.jsonl", "-o", out, "--json", *skip))
    assert (account["rows_read"], account["rows_written"], account["bad_rows"]) == (601, 600, 2)
    assert account["output"] == str(out)
    assert account["seconds"] >= 0
    out = tmp_path / "embedded.parquet"
    account = json.loads(ok("embed", tmp_path / "rows.parquet", "-o", out, "--json"))
    assert (account["rows_read"], account["rows_written"], account["bad_rows"]) == (600, 600, 0)
    assert pl.read_parquet(out).height == 600
    code, _, err = run("embed", tmp_path / "rows.parquet", "--json")
    assert code == 2
    assert "--json writes to standard output" in err
    fitted = json.loads(ok("fit", tmp_path / "rows.parquet", "-o", tmp_path / "model", "--continuous", "--json"))
    assert fitted["run"]["rows_read"] == 600


@pytest.mark.parametrize(
    ("stop", "says"), [(KeyboardInterrupt(), True), (SystemExit(143), True), (SystemExit(129), False)]
)
def test_a_stopped_job_says_what_stays_unless_its_terminal_is_gone(stop, says, capsys):
    with pytest.raises(type(stop)), options.job_runs("local", None, None):
        raise stop
    assert ("Parts that are done stay" in capsys.readouterr().err) == says
