r"""Prompts of users: a template and how to read the replies, in a TOML file.

::

    name = "short"
    version = 1
    parser = "guess"          # or "expression", "probability", or a regular expression
    max_tokens = 60
    template = '''
    $question
    Reply with two lines, "Guess: ..." and "Probability: ...", the probability from 0.0 to 1.0.'''

    [[examples]]
    question = "What is the capital of Italy?"
    reply = '''
    Guess: Rome
    Probability: 0.99'''

``$question`` is where the question goes, and ``$choices`` where the choices do, as a JSON list; without it the choices
of a question follow in the paper's words. A prompt with the parser ``probability`` asks twice: its ``followup`` is the
second turn, and asks for the probability. An ``[expressions]`` table has the number of each expression. Further keys
are ``system`` and ``grammar``.

A regular expression has the groups ``answer`` and ``confidence``; the confidence is read as a number. It is searched
for in the whole reply; one that takes seconds for that is an error (`patterns.py`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.sources.elicitation.patterns import PatternError, all_matches, compiled
from qacal.sources.elicitation.prompts import (
    ExpressionReader,
    Outcomes,
    Prompt,
    Reader,
    Stage,
    answer_then_probability,
    one_guess,
)
from qacal.sources.elicitation.reading.characters import without_thoughts
from qacal.sources.elicitation.reading.expressions import EXPRESSIONS
from qacal.sources.elicitation.reading.numbers import read_probability
from qacal.sources.elicitation.reading.parsing import declines
from qacal.sources.elicitation.reply import Malformed, Reason, Reply, Stated, malformed, refused

_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "template", "parser", "followup", "system", "grammar"), (str,)),
    "version": (int, str),
    "max_tokens": (int,),
    "examples": (list,),
    "expressions": (dict,),
}
_NEEDED = ("name", "version", "template", "parser")


@dataclass(frozen=True)
class PatternReader:
    r"""Reads a reply with a regular expression that has the groups ``answer`` and ``confidence``.

    Several matches must agree. A reply that was cut off is not read: the pattern may have matched more.

    >>> PatternReader(r"(?P<answer>.+), (?P<confidence>\S+)$")([Reply("Paris, 90%")])
    (Stated(answer='Paris', confidence=0.9),)
    """

    pattern: str

    def __post_init__(self) -> None:
        try:
            groups = compiled(self.pattern).groupindex
        except PatternError as error:
            raise InputError(f"the parser: {error}") from None
        if "answer" not in groups or "confidence" not in groups:
            raise InputError(
                f"the parser {self.pattern!r} is neither guess, expression nor probability, nor a regular expression "
                "with the groups (?P<answer>...) and (?P<confidence>...)."
            )

    def __call__(self, replies: Sequence[Reply]) -> Outcomes:
        (reply,) = replies
        if reply.is_cut:
            return (malformed(Reason.CUT, reply.text),)
        text = without_thoughts(reply.text)
        stated: set[Stated | Malformed] = set()
        for match in all_matches(self.pattern, text):
            answer = (match["answer"] or "").strip()
            if answer:
                confidence = read_probability(match["confidence"] or "")
                stated.add(confidence if isinstance(confidence, Malformed) else Stated(answer, confidence))
        if not stated:
            return (refused(text) if declines(text) else malformed(Reason.NO_GUESS, text),)
        return (stated.pop() if len(stated) == 1 else malformed(Reason.SEVERAL_GUESSES, text),)


def load_prompt(path: str | Path) -> Prompt:
    """Return the prompt of a TOML file; the module describes the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a prompt: {error}.") from None
    return prompt_from_text(text, str(path))


def prompt_from_text(text: str, origin: str) -> Prompt:
    """Return the prompt that a TOML text describes; messages call it `origin`."""
    try:
        return _prompt(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{origin} cannot be read as a prompt: {error}.") from None
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None


def _prompt(values: Mapping[str, Any]) -> Prompt:
    missing = [key for key in _NEEDED if key not in values]
    if missing:
        raise InputError(f"there is no {missing[0]}; a prompt needs {', '.join(_NEEDED)}.")
    for key, value in values.items():
        if key not in _KINDS:
            raise InputError(f"{key} is not known; a prompt has {', '.join(_KINDS)}.")
        if type(value) not in _KINDS[key]:
            raise InputError(f"{key} is {value!r}; expected {' or '.join(kind.__name__ for kind in _KINDS[key])}.")
    stages = [Stage(values["template"].strip(), values.get("max_tokens", 100))]
    if "followup" in values:
        stages.append(Stage(values["followup"].strip(), 30, wants_logprobs=False))
    return Prompt(
        values["name"],
        values["version"],
        tuple(stages),
        reader=_reader(values),
        system=values.get("system"),
        examples=tuple(_example(example) for example in values.get("examples", [])),
        grammar=values.get("grammar"),
        source="expression" if values["parser"] == "expression" else "stated",
    )


def _reader(values: Mapping[str, Any]) -> Reader:
    parser = values["parser"]
    if (parser == "probability") != ("followup" in values):
        raise InputError('a prompt with a followup, and no other, has parser = "probability".')
    if parser == "expression":
        return ExpressionReader(values.get("expressions", EXPRESSIONS))
    return {"probability": answer_then_probability, "guess": one_guess}.get(parser) or PatternReader(parser)


def _example(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict) or set(value) != {"question", "reply"}:
        raise InputError(f"an example is {value!r}; expected a question and a reply.")
    if not all(isinstance(text, str) for text in value.values()):
        raise InputError(f"an example is {value!r}; expected texts.")
    return value["question"].strip(), value["reply"].strip()
