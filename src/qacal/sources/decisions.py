"""Decisions: typed questions about an input, and probabilities as answers, in the form of OpenAI's Decisions API.

Nothing here sends anything. There are three jobs: to put a question to an LLM that only chats, so that one token is the
answer and its alternatives have the probabilities; to read what was answered; and to write calibrated probabilities
beside the answered ones.

A question of the type `predicate` asks whether something is true, `choice` for one of some values, `score` for a level.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from qacal.sources.elicitation.reply import Malformed, Reply
from qacal.sources.elicitation.tokens import true_probability
from qacal.storage import digest

MOST_CHOICES = 20
"""As many tokens have a probability in a chat completion: `top_logprobs` is at most this."""

_TRUE_OR_FALSE = "Is this true? Answer with a single word, either True or False."
_ONE_LETTER = "Answer with a single letter, that of the best choice."
_LETTERS = ascii_uppercase[:MOST_CHOICES]
# What LLMs write around a letter in the same token.
_AROUND = " \t\r\n().:*\"'"


@dataclass(frozen=True)
class Given:
    """What was answered to a question.

    answer : the value that is claimed, as text: "true" for a predicate, which claims it with its probability.
    probability : of this value.
    probabilities : of all values; only this one for a predicate.
    place : of this value among them.
    """

    answer: str
    probability: float
    probabilities: tuple[float, ...]
    place: int = 0


def kind_of(question: Mapping[str, Any]) -> str:
    """Return the kind of a question: its name and a digest of its instructions. It is a ready column for groups.

    >>> kind_of({"type": "predicate", "name": "spam", "instructions": "The message is spam."})
    'spam-a2d7a20f'
    """
    name = question.get("name") or question["type"]
    return f"{name}-{digest({'type': question['type'], 'instructions': question['instructions']})[:8]}"


def text_of(content: Any) -> str:
    r"""Return a text, parts of a message, or items of an input as one text; images are only mentioned.

    >>> text_of([{"role": "user", "content": "Hi"}, {"type": "input_json", "data": {"a": 1}}])
    'Hi\n{"a": 1}'
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "\n".join(filter(None, map(text_of, content)))
    if not isinstance(content, Mapping):
        return ""
    for name in ("content", "text", "output", "refusal"):
        if isinstance(content.get(name), str | list):
            return text_of(content[name])
    if "data" in content:
        return json.dumps(content["data"], ensure_ascii=False)
    if content.get("type") in ("function_call", "custom_tool_call"):
        return f"{content.get('name')}({content.get('arguments', content.get('input'))})"
    return f"[{content.get('type', 'something')}]"


# Asking an LLM that only chats


def request_for(model: str, content: Any, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chat completion request of one question about an input: one token, with its alternatives."""
    messages, asked = _messages(content), _asked(question)
    if messages and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], str):
        # Templates of some LLMs want turns to alternate.
        messages[-1] = {"role": "user", "content": f"{messages[-1]['content']}\n\n{asked}"}
    else:
        messages.append({"role": "user", "content": asked})
    return {
        "model": model,
        "messages": messages,
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": MOST_CHOICES,
    }


def _asked(question: Mapping[str, Any]) -> str:
    instructions = text_of(question["instructions"])
    if question["type"] == "predicate":
        return f"{instructions}\n{_TRUE_OR_FALSE}"
    listed = [
        f"{letter}. {_shown(one.get('value', one.get('label')))}"
        + (f": {one['description']}" if one.get("description") else "")
        for letter, one in zip(_LETTERS, _options(question), strict=False)
    ]
    order = ", from the lowest to the highest" if question["type"] == "score" else ""
    return f"{instructions}\nThe choices are{order}:\n" + "\n".join(listed) + f"\n{_ONE_LETTER}"


def _messages(content: Any) -> list[dict[str, Any]]:
    """Return an input as the messages of a chat."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    messages: list[dict[str, Any]] = []
    for item in content:
        role = {"assistant": "assistant", "system": "system", "developer": "system"}.get(str(item.get("role")), "user")
        if item.get("type") in ("function_call", "custom_tool_call"):
            role = "assistant"
        parts = item.get("content")
        images = [part for part in parts if _is_image(part)] if isinstance(parts, list) else []
        if not images:
            messages.append({"role": role, "content": text_of(item)})
            continue
        shown = [
            {"type": "image_url", "image_url": {"url": part["image_url"]}}
            if _is_image(part)
            else {"type": "text", "text": text_of(part)}
            for part in parts
        ]
        messages.append({"role": role, "content": shown})
    return messages


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "input_image" and isinstance(part.get("image_url"), str)


def answer_of(question: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """Return the answer to a question out of the probabilities of a reply's first token; a refusal if it has none.

    A choice whose letter is not among the listed tokens has probability 0: it is less likely than all of these.
    """
    name = question.get("name")
    if question["type"] == "predicate":
        found = true_probability(reply)
        return (
            _refusal(name)
            if isinstance(found, Malformed)
            else {"type": "predicate", "name": name, "probability": found}
        )
    options = _options(question)
    mass = _mass(reply, _LETTERS[: len(options)])
    total = math.fsum(mass)
    if total <= 0:
        return _refusal(name)
    probabilities = [one / total for one in mass]
    best = max(range(len(options)), key=probabilities.__getitem__)
    if question["type"] == "choice":
        listed = [{"value": one["value"], "probability": p} for one, p in zip(options, probabilities, strict=True)]
        return {
            "type": "choice",
            "name": name,
            "choice": options[best]["value"],
            "confidence": probabilities[best],
            "probabilities": listed,
        }
    levels = [
        {"value": value, "label": one["label"], "probability": p}
        for value, (one, p) in enumerate(zip(options, probabilities, strict=True))
    ]
    return {
        "type": "score",
        "name": name,
        "score": math.fsum(value * p for value, p in enumerate(probabilities)),
        "confidence": probabilities[best],
        "probabilities": levels,
    }


def _mass(reply: Reply, letters: str) -> list[float]:
    """Return the probability of each letter as the first token that is more than space."""
    tokens = reply.tokens or ()
    first = next((token for token in tokens if token.text.strip()), tokens[0] if tokens else None)
    if first is None:
        return [0.0] * len(letters)
    listed = [*first.alternatives]
    if first.text not in [text for text, _ in listed]:
        listed.append((first.text, first.logprob))
    return [
        math.fsum(math.exp(min(p, 0.0)) for text, p in listed if text.strip(_AROUND) == letter and p > -9999.0)
        for letter in letters
    ]


def _refusal(name: Any) -> dict[str, Any]:
    return {"type": "refusal", "name": name}


def _options(question: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = question["choices" if question["type"] == "choice" else "levels"]
    return found


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Reading answers, and writing calibrated ones


def given_in(answer: Any) -> Given | str:
    """Return what an answer claims, or why that cannot be read.

    The confidence of a choice or a score is the probability of its likeliest value. The field `confidence` is not read:
    servers compute it from the whole distribution, each in its own way.
    """
    kind = answer.get("type") if isinstance(answer, Mapping) else None
    if kind == "refusal":
        return "the LLM declined to answer"
    if kind == "predicate":
        probability = _probability(answer.get("probability"))
        return "it has no probability" if probability is None else Given("true", probability, (probability,))
    listed = answer.get("probabilities") if kind in ("choice", "score") else None
    if not isinstance(listed, list) or not listed or not all(isinstance(one, Mapping) for one in listed):
        return "it has no probabilities"
    found = [_probability(one.get("probability")) for one in listed]
    probabilities = tuple(one for one in found if one is not None)
    if len(probabilities) < len(found):
        return "one of its probabilities is not between 0 and 1"
    if kind == "choice":
        # A text and a boolean of the same spelling differ, and so do True and 1.
        chosen = [at for at, one in enumerate(listed) if _typed(one.get("value")) == _typed(answer.get("choice"))]
        if not chosen:
            return "its choice has no probability"
        return Given(_shown(answer["choice"]), probabilities[chosen[0]], probabilities, chosen[0])
    best = max(range(len(listed)), key=probabilities.__getitem__)
    return Given(str(listed[best].get("label", best)), probabilities[best], probabilities, best)


def _typed(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


def _probability(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 1 else None


def rescaled(probabilities: Sequence[float], place: int, calibrated: float) -> list[float]:
    """Return probabilities that sum to 1, of which one is calibrated; the others keep their ratios.

    A model is fitted on answers that were given, and says how often such an answer is correct. It has not seen what the
    others would be as answers; calibrating each and dividing by the sum would change the one number that is certified.
    The given answer may end up less likely than another one: then answers like it are mostly wrong.

    >>> [round(p, 6) for p in rescaled([0.8, 0.15, 0.05], 0, 0.6)]
    [0.6, 0.3, 0.1]
    >>> rescaled([1.0, 0.0, 0.0], 0, 0.5)
    [0.5, 0.25, 0.25]
    """
    others = math.fsum(p for at, p in enumerate(probabilities) if at != place)
    rest, count = 1.0 - calibrated, len(probabilities) - 1
    scaled = [rest * p / others if others > 0 else rest / max(count, 1) for p in probabilities]
    scaled[place] = calibrated
    return scaled


def calibrated_fields(answer: Mapping[str, Any], given: Given, calibrated: float) -> dict[str, Any]:
    """Return the fields of an answer that have a calibrated number."""
    if answer["type"] == "predicate":
        return {"probability": calibrated}
    scaled = rescaled(given.probabilities, given.place, calibrated)
    listed = [{**one, "probability": p} for one, p in zip(answer["probabilities"], scaled, strict=True)]
    fields: dict[str, Any] = {"confidence": calibrated, "probabilities": listed}
    if answer["type"] == "score":
        # The value of a level is its place, from 0.
        fields["score"] = math.fsum(value * p for value, p in enumerate(scaled))
    return fields
