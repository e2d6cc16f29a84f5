"""Setups in and out of a store, so that a run can be read years later without its command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.sources.elicitation.prompt_files import load_prompt, prompt_from_text
from qacal.sources.elicitation.prompts import Prompt, prompt_named
from qacal.sources.elicitation.requests import Setup


@dataclass(frozen=True)
class NamedPrompt:
    """A prompt and where it is from: a name that qacal knows, or the text of a user's file."""

    prompt: Prompt
    origin: Mapping[str, str]


def find_prompt(name: str) -> NamedPrompt:
    """Return the prompt of a name, or of a file that ends in .toml.

    >>> find_prompt("verb1s-top1").prompt.identity
    'verb1s-top1/1'
    """
    if not name.endswith(".toml"):
        return NamedPrompt(prompt_named(name), {"name": name})
    return NamedPrompt(load_prompt(name), {"file": Path(name).read_text(encoding="utf-8")})


def plain_setup(setup: Setup, origin: Mapping[str, str], expressions: Mapping[str, float]) -> dict[str, Any]:
    """Return a setup as the store keeps it; `expressions` are those that its prompt was told of."""
    plain = {
        "model": setup.model,
        "prompt": setup.prompt.identity,
        "digest": setup.prompt.digest,
        "origin": dict(origin),
        "logprobs": setup.logprobs,
        "fields": dict(setup.fields),
    }
    return plain | ({"expressions": dict(expressions)} if expressions else {})


def stored_setup(plain: Mapping[str, Any], expressions: Mapping[str, float] | None = None) -> Setup:
    """Return the setup that :func:`plain_setup` was called on, told of further expressions if there are any."""
    _require_setup(plain)
    origin = plain["origin"]
    prompt = prompt_from_text(origin["file"], "the prompt") if "file" in origin else prompt_named(origin["name"])
    if prompt.digest != plain["digest"]:
        raise InputError(
            f"the run was made with {plain['prompt']}, whose text has changed since: its replies cannot be found. "
            "Read it with the qacal that made it."
        )
    known = prompt.knowing({**plain.get("expressions", {}), **(expressions or {})})
    return Setup(plain["model"], known, plain["logprobs"], plain["fields"])


def _require_setup(plain: Mapping[str, Any]) -> None:
    """Refuse what was not written by :func:`plain_setup`."""
    kinds = {"model": str, "prompt": str, "digest": str, "origin": dict, "logprobs": bool, "fields": dict}
    wrong = [name for name, kind in kinds.items() if not isinstance(plain.get(name), kind)]
    origin = plain.get("origin")
    if isinstance(origin, dict) and not isinstance(origin.get("file", origin.get("name")), str):
        wrong = ["origin"]
    expressions = plain.get("expressions", {})
    if not isinstance(expressions, dict) or not all(isinstance(worth, int | float) for worth in expressions.values()):
        wrong = ["expressions"]
    if wrong:
        raise InputError(
            f"the run says {wrong[0]}: {plain.get(wrong[0])!r:.80}, which qacal elicit does not write. The file is "
            "damaged, or was changed by something else."
        )
