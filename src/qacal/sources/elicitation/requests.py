r"""What is asked of a server: the requests that a prompt makes of a question, one a stage.

A conversation is a generator: it yields a request, is sent the reply, and ends with the outcomes. Whoever drives it
decides where replies come from, a server or a store, so a run and the reading of its results cannot disagree.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from qacal.errors import InputError
from qacal.sources.elicitation.outcomes import Outcome
from qacal.sources.elicitation.prompts import Prompt, Stage
from qacal.sources.elicitation.questions import Question
from qacal.sources.elicitation.reply import Reply
from qacal.storage.plain import digest

Request: TypeAlias = dict[str, Any]
Conversation: TypeAlias = Generator[Request, Reply, "Answered"]

# Fields for kinds of LLMs. Those that reason take no temperature, give the limit another name, and think before they
# answer; nor do they give log-probabilities.
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"reasoning": {"temperature": None, "max_tokens": None, "max_completion_tokens": 8192}}
)


@dataclass(frozen=True)
class Answered:
    """The replies to a question, one a stage, and what they come to."""

    replies: tuple[Reply, ...]
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class Setup:
    """What all requests of a run share.

    model : the name that the server knows the LLM by.
    prompt : what is said.
    logprobs : whether to ask for the probabilities of tokens, where the prompt wants them.
    fields : further fields of requests, or other values of the usual ones; None leaves a field out.

    >>> from qacal.sources.elicitation import prompt_named
    >>> setup = Setup("tiny", prompt_named("verb1s-top1"), fields={"seed": 1, "temperature": None})
    >>> request = next(setup.conversation(Question("q1", "Capital of France?")))
    >>> sorted(request)
    ['logprobs', 'max_tokens', 'messages', 'model', 'seed']
    """

    model: str
    prompt: Prompt
    logprobs: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)

    def conversation(self, question: Question) -> Conversation:
        """Yield the requests of a question, each once the one before has its reply."""
        replies: list[Reply] = []
        for _ in self.prompt.stages:
            replies.append((yield self._request(question, replies)))
        return Answered(tuple(replies), self.prompt.read(question, replies))

    def most_tokens(self, stage: Stage) -> int:
        """Return how long the reply of a stage may be."""
        given = (self.fields.get(name) for name in ("max_completion_tokens", "max_tokens"))
        return next((value for value in given if isinstance(value, int)), stage.max_tokens)

    def _request(self, question: Question, replies: list[Reply]) -> Request:
        stage = self.prompt.stages[len(replies)]
        request: Request = {
            "model": self.model,
            "messages": self.prompt.messages(question, replies),
            # The paper's: close to 0, so that the same question has the same answer.
            "temperature": 0.0,
            "max_tokens": stage.max_tokens,
        }
        if self.logprobs and stage.wants_logprobs:
            request["logprobs"] = True
            if stage.alternatives:
                request["top_logprobs"] = stage.alternatives
        if self.prompt.grammar is not None and not replies:
            request["grammar"] = self.prompt.grammar
        return {name: value for name, value in (request | dict(self.fields)).items() if value is not None}


def require_fields(fields: Mapping[str, Any], logprobs: bool | None = None) -> None:
    """Refuse fields that would be paid for and not read, or that contradict what is asked otherwise.

    logprobs : whether token probabilities are asked for; None if that is left to the fields.

    >>> require_fields({"n": 5})
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: the field n is 5: several replies to one request are paid for, ...
    """
    for name, value in fields.items():
        why = _refused(name, value, logprobs)
        if why is not None:
            raise InputError(f"the field {name} is {value!r}: {why}")


def _refused(name: str, value: Any, logprobs: bool | None) -> str | None:
    if name in ("n", "best_of") and value not in (None, 1):
        return "several replies to one request are paid for, and one is read. Leave it out."
    if name in ("stream", "stream_options") and value:
        return "replies are read whole, not as a stream. Leave it out."
    if name == "model":
        return "the LLM is named by --model (model=)."
    if name == "messages":
        return "the prompt says it. For another one, write a prompt of your own (.toml)."
    if name == "logprobs" and logprobs and not value:
        return "token probabilities are asked for. To leave them out, pass --no-logprobs (logprobs=False)."
    if name in ("logprobs", "top_logprobs") and logprobs is False and value:
        return "token probabilities are not asked for. Leave it out, or leave --no-logprobs (logprobs=False) out."
    return None


def request_key(request: Request) -> str:
    """Return a digest of a request: the same request, the same key, however its fields are ordered."""
    return digest(request)
