"""docs/cli.md is the help of every command; this test says when it is out of date, and how to refresh it."""

import re
from pathlib import Path

from tests.cli.test_cli import ok

COMMANDS = [
    *(
        "",
        "questions",
        "elicit",
        "answers",
        "judge",
        "import",
        "agree",
    ),
    *("check", "split", "fit", "apply", "explain", "evaluate", "report", "threshold", "documents"),
    *("label-next", "watch", "groups", "plan", "experiment", "embed", "tally", "export", "serve", "refit", "versions"),
]
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def written():
    parts = ["# The command line\n\nWhat `qacal COMMAND --help` prints.\n"]
    for command in COMMANDS:
        text = ok(*command.split(), "--help")
        lines = "\n".join(f"    {line}".rstrip() for line in text.strip().splitlines())
        parts.append(f"## qacal {command}".rstrip() + f"\n\n{lines}\n")
    return "\n".join(parts)


def test_the_reference_of_commands_is_up_to_date():
    said = "docs/cli.md is out of date; refresh it with: python -m tests.cli.test_cli_docs"
    assert re.sub(r"\s+", " ", DOCS.read_text(encoding="utf-8")) == re.sub(r"\s+", " ", written()), said


def test_every_command_is_in_the_reference_and_has_an_example():
    listed = re.findall(r"^  ([a-z-]+)  ", ok("--help").partition("Commands:")[2], re.MULTILINE)
    assert {*listed, ""} == {*COMMANDS}
    for command in listed:
        assert f"\n      qacal {command}" in ok(command, "--help"), command


def test_names_with_hyphens_are_not_broken(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in COMMANDS:
        broken = [line for line in ok(*command.split(), "--help").splitlines() if re.search(r"\w-$", line)]
        assert broken == [], command


def test_the_lists_of_commands_show_their_summaries_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = ok("--help").partition("Commands:\n")[2].rstrip().splitlines()
    assert len(lines) >= 3
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


if __name__ == "__main__":
    DOCS.write_text(written(), encoding="utf-8")
