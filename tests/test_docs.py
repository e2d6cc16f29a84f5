"""README and docs: columns, commands and installation."""

import re
from dataclasses import fields
from pathlib import Path

from qacal.calibrators.base import Evidence

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_all_new_columns_are_described():
    columns = {field.name for field in fields(Evidence)} - {"confidence"}
    text = re.search(r"with more columns: (.*?)\(", README, re.DOTALL)[1]
    assert {*re.findall(r"`(\w+)`", text)} == columns
    part = (ROOT / "docs" / "answers.md").read_text(encoding="utf-8").partition("## What comes out")[2]
    rows = [line.split("|")[1] for line in part.partition("\n\nIf your rows")[0].splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == columns


def test_the_environment_is_activated_before_the_command_is_used():
    before = README.partition("    qacal check")[0]
    assert "source .venv/bin/activate" in before


def test_extras_are_installed_from_the_clone():
    """There is no release: `pip install 'qacal[hub]'` finds nothing. Without -e, a copy would replace the clone."""
    files = [*ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py")]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    assert [name for name, text in texts.items() if re.search(r"install\b[^\n]*'qacal\[|install\s+'\.\[", text)] == []
    assert not re.search(r"install\b[^\n]*'qacal\[", README)
