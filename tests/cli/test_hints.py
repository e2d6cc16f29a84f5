"""Messages have hints for Python beside options; the command line removes the hints for Python."""

import ast
import re
from functools import cache
from pathlib import Path

import qacal
from qacal.cli.options import for_shell


@cache
def texts() -> list[str]:
    """Return all texts in the source; a value in an f-string is an x."""
    found = []
    for path in sorted(Path(qacal.__file__).parent.rglob("*.py")):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if node in parts:
                continue
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_the_shell_sees_no_hint_for_python():
    messages = {text for text in texts() if "(in Python:" in text and not text.startswith(" \\(")}
    assert len(messages) > 15
    for message in messages:
        shown = for_shell(message)
        assert "in Python" not in shown
        assert shown.count("(") - shown.count(")") == message.count("(") - message.count(")")
        assert not re.search(r"\([a-z_]+=[^()]*\)", shown), shown


def test_hints_are_marked():
    hint = re.compile(r"--[a-z][a-z-]*[^.(]* \([a-z_]+=[^ ]*\)")
    assert [text for text in texts() if hint.search(text) and ">>>" not in text] == []
    name_first = re.compile(r"\b[a-z]+_[a-z]+ \(--[a-z-]+\)|--[a-z][^(]* in Python\b")
    assert [text for text in texts() if name_first.search(text)] == []


def test_parentheses_inside_a_hint_belong_to_it():
    assert for_shell("Use --a (in Python: f(x=(1,))), or (b).") == "Use --a, or (b)."
    assert for_shell("Use --a (in Python: with f(x=1): ...). So (b).") == "Use --a. So (b)."
    assert for_shell("question is 'f (x=1)'; expected") == "question is 'f (x=1)'; expected"


def test_a_long_text_without_an_end_is_left_alone():
    text = " (in Python: " * 20_000  # quadratic time would take minutes
    assert for_shell(text) == text
