r"""Regular expressions out of files: matched in a process of their own, which is ended if they take too long.

A stored run and a log may come from anybody, with a pattern for which Python tries 2 to the power of n ways. Neither
compiling nor matching can be stopped within a process. Honest patterns take microseconds. All patterns together may
take what is set aside for each text by its length, and some seconds more.

>>> found(r"(\w+) @ (?P<share>\S+)", "Paris @ 90%, Rome @ 8%")[0]
Match(whole='Paris @ 90%,', groups=('Paris', '90%,'), named={'share': '90%,'})
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from threading import Lock, Timer
from time import monotonic
from typing import Any, NamedTuple

from qacal.errors import InputError

_SECONDS = 10.0
_SECONDS_A_TEXT, _SECONDS_A_CHARACTER = 1e-3, 1e-6
# It gets a pattern and a text a line, and replies with the names of the groups and the matches, or with an error. What
# it keeps of the matches is bounded by the text, and what it takes of the memory by 4 GB where that can be said.
_PROGRAM = """
import json, re, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (2**32, resource.getrlimit(resource.RLIMIT_AS)[1]))
except (ImportError, ValueError, OSError):
    pass
print("ready", flush=True)
for line in sys.stdin:
    try:
        pattern, text = json.loads(line)
        compiled, matches, size = re.compile(pattern), [], 0
        for match in compiled.finditer(text):
            matches.append([match[0], match.groups(), match.groupdict()])
            size += sum(len(part or "") + 8 for part in (match[0], *match.groups(), *match.groupdict().values()))
            if size > 100 * len(text) + 10000:
                raise MemoryError
        reply = {"names": [*compiled.groupindex], "matches": matches}
    except re.error as error:
        reply = {"error": str(error)}
    except (RecursionError, OverflowError, MemoryError) as error:
        reply = {"error": type(error).__name__ + ", it is too large"}
    print(json.dumps(reply), flush=True)
"""


class Match(NamedTuple):
    """A match: its text, those of its groups in order, and those of the groups that have a name."""

    whole: str
    groups: tuple[str | None, ...]
    named: dict[str, str | None]


class PatternError(InputError):
    """A pattern that is no regular expression."""


def found(pattern: str, text: str) -> list[Match]:
    """Return all matches of a pattern in a text, as ``re.finditer`` gives them."""
    return [Match(whole, tuple(groups), named) for whole, groups, named in _replied(pattern, text)["matches"]]


def group_names(pattern: str) -> set[str]:
    """Return the names of a pattern's groups."""
    return set(_replied(pattern, "")["names"])


_lock = Lock()
_left = _SECONDS
_child: subprocess.Popen[str] | None = None
_owner = 0


def _replied(pattern: str, text: str) -> dict[str, Any]:
    global _left
    with _lock:
        _left = min(_left + _SECONDS_A_TEXT + _SECONDS_A_CHARACTER * len(text), _SECONDS)
        child, start = _running(), monotonic()
        timer = Timer(_left, child.kill)
        timer.start()
        try:
            line = _exchanged(child, json.dumps([pattern, text]))
        except BaseException:
            _end()
            raise
        finally:
            timer.cancel()
        _left -= monotonic() - start
        if not line:
            _end()
            _left = _SECONDS
            raise InputError(
                f"the pattern {pattern!r:.200} takes more than {_SECONDS:g} s for a text of {len(text):,} characters, "
                "or for many such texts: it tries too many ways, as (a+)+ does. If it is yours, write it without "
                "repeats within repeats; if not, it may have been made to do harm."
            )
    reply: dict[str, Any] = json.loads(line)
    if "error" in reply:
        raise PatternError(f"the pattern {pattern!r:.200} is no regular expression: {reply['error']}.")
    return reply


def _exchanged(child: subprocess.Popen[str], request: str) -> str:
    """Return the reply of the child; nothing if it was ended."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(request + "\n")
        child.stdin.flush()
        return child.stdout.readline()
    except BrokenPipeError:
        return ""


def _running() -> subprocess.Popen[str]:
    global _child, _owner
    if _child is None or _owner != os.getpid() or _child.poll() is not None:
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
        quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
        _child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, encoding="ascii")
        _owner = os.getpid()
        assert _child.stdout is not None
        _child.stdout.readline()  # it is ready: its start is not the pattern's fault
    return _child


def _end() -> None:
    global _child
    if _child is not None and _owner == os.getpid():
        _child.kill()
        with _child:  # closes its pipes
            pass
    _child = None


atexit.register(_end)
