"""From a chat completion to its calibrated confidence: what to ask for, how to read it, and where to write it.

Nothing here sends anything: a service passes requests on (`qacal.service.proxy`), and a client of the package `openai`
can be wrapped (`qacal.sources.openai_client`). Both have a :class:`Planner` for a model and a plan for each request,
and say how to send one and how to calibrate a record.

A confidence comes from the probabilities of the answer's tokens, or from a second question about the answer just given,
or is stated with the answer if the question was put so. These mean different things, so by default it is of the kind
that the model was fitted on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from qacal.errors import InputError, some_of
from qacal.records.columns import KNOWN, USERS, asked_in, content_of
from qacal.sources.elicitation.prompts import PROMPTS, Prompt
from qacal.sources.elicitation.question import Question
from qacal.sources.elicitation.reading.characters import ends_in_thoughts, without_thoughts
from qacal.sources.elicitation.reading.parsing import declines, does_not_know, parse_confidence, parse_stated
from qacal.sources.elicitation.reply import Malformed, Reason, Refused, Reply, Request, Stated
from qacal.sources.elicitation.tokens import answer_probability, true_probability
from qacal.sources.importers.confidences import STATED, TOKENS

if TYPE_CHECKING:
    from qacal.model.base import BaseModel

NAME = "qa_calibration"
"""The name of the evidence in a completion."""

P_TRUE = "p(true)"
_ONE_CALL, _TWO_CALLS, _TRUE_OR_FALSE = PROMPTS["verb1s-top1"], PROMPTS["verb2s-top1"], PROMPTS["p-true"]
_REFUSED = "the LLM declined to answer"
# Fields that say who asks and how the LLM works; all others shape the answer, and a second question has its own form.
_KEPT_FIELDS = ("model", "user", "safety_identifier", "reasoning_effort", "service_tier", "chat_template_kwargs")
# What makes a completion more than one text that answers one text.
_OTHER_FORMS = ("tools", "functions", "audio", "web_search_options")
REFUSALS = (400, 403, 422, 501)
"""What a server that does not take a field of a request answers with."""
_MOST_REMEMBERED = 1000


class ConfidenceFrom(StrEnum):
    """Where the confidence of an answer comes from."""

    AUTO = "auto"
    LOGPROBS = "logprobs"
    SECOND_QUESTION = "second-question"
    ONE_CALL = "one-call"
    P_TRUE = "p-true"


SOURCES = {
    ConfidenceFrom.LOGPROBS: (TOKENS,),
    ConfidenceFrom.SECOND_QUESTION: (STATED,),
    ConfidenceFrom.ONE_CALL: (STATED,),
    ConfidenceFrom.P_TRUE: (P_TRUE,),
}
"""The kinds of confidence of each choice; those of AUTO depend on the model."""


@dataclass(frozen=True)
class Read:
    """What a completion says.

    reason : why there is no confidence.
    tokens : the probability of the answer's tokens, if it is known.
    """

    answer: str
    confidence: float | None = None
    source: str | None = None
    reason: str | None = None
    tokens: float | None = None


Reading: TypeAlias = Generator[Request, Reply | None, Read]
Found: TypeAlias = tuple[dict[str, Any], str | None]
"""The evidence of a completion, and the text that takes the place of its content, if one does."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Plan:
    """How the confidence of one completion is found.

    request : the caller's.
    sources : the kinds of confidence to try, in this order.
    wants_tokens : whether to ask for the probabilities of tokens.
    one_call : whether the question is put into the prompt that asks for answer and confidence.
    warning : what is doubtful about this way of asking, for this model.
    """

    request: Mapping[str, Any]
    sources: tuple[str, ...]
    wants_tokens: bool = False
    one_call: bool = False
    warning: str | None = None

    @property
    def adds_logprobs(self) -> bool:
        """Whether log-probabilities are asked for that the caller did not ask for."""
        return self.wants_tokens and not self.request.get("logprobs")

    def sent(self, *, with_logprobs: bool = True) -> Request:
        """Return the request for the upstream: the caller's, with what the confidence needs."""
        sent = dict(self.request)
        if self.adds_logprobs and with_logprobs:
            sent["logprobs"] = True
        if self.one_call:
            messages = list(sent["messages"])
            texts = [content_of(one.get("content")) if one.get("role") in USERS else None for one in messages]
            last = max(at for at, text in enumerate(texts) if text is not None)
            asked = _ONE_CALL.stages[0].filled(Question("question", self.question))
            messages[last] = {**messages[last], "content": asked}
            sent["messages"] = messages
        return sent

    @property
    def question(self) -> str:
        """The last turn of the user."""
        asked = asked_in(list(self.request["messages"]))
        return "" if asked is None else asked[0]

    def reading(self, reply: Reply) -> Reading:
        """Read a reply; what is yielded is a further request, to be sent its reply, or None if there is none."""
        answer = without_thoughts(reply.text).strip()
        if reply.refusal or (reply.finish == "content_filter" and not answer):
            return Read(answer, reason=_REFUSED)
        if not answer:
            return Read(answer, reason=Reason.THINKING if ends_in_thoughts(reply.text) else Reason.EMPTY)
        if reply.is_cut:
            return Read(answer, reason=Reason.CUT)
        if STATED in self.sources:
            # The caller's own prompt may ask for a confidence; then there is no need to ask again.
            outcome = _ONE_CALL.read([reply])[0] if self.one_call else parse_stated(reply.text)
            if isinstance(outcome, Stated):
                tokens = answer_probability(reply, outcome.answer)
                return Read(outcome.answer, outcome.confidence, STATED, tokens=tokens)
            if self.one_call:
                return Read(answer, reason=_REFUSED if isinstance(outcome, Refused) else str(outcome.why))
        if declines(answer) or does_not_know(answer):
            return Read(answer, reason=_REFUSED)
        tokens, reasons = answer_probability(reply, answer), []
        for source in self.sources:
            if source == TOKENS:
                found: float | Refused | Malformed | None = tokens
                why = "it is unclear which tokens spell the answer" if reply.tokens else str(Reason.NO_LOGPROBS)
            else:
                second = yield self._second(_TRUE_OR_FALSE if source == P_TRUE else _TWO_CALLS, answer)
                if second is None:
                    found, why = None, "the second question has no answer"
                elif source == P_TRUE:
                    found, why = true_probability(second), "the second question"
                else:
                    found, why = parse_confidence(second.text, is_cut=second.is_cut), "the second question"
            if isinstance(found, float):
                return Read(answer, found, source, tokens=tokens)
            reasons.append(f"{why}: {found.why}" if isinstance(found, Malformed) else why)
        return Read(answer, reason="; ".join(reasons) or self.warning, tokens=tokens)

    async def found(
        self,
        reply: Reply,
        known: Collection[Any],
        ask: Callable[[Request], Awaitable[Reply | None]],
        calibrate: Callable[[dict[str, Any]], Awaitable[tuple[Mapping[str, Any], str | None]]],
        *,
        abstains: bool = False,
    ) -> Found:
        """Return the evidence of a reply, and the text that takes the place of its content, if one does.

        known : the LLMs that models were fitted on.
        ask : sends a second question; returns None if it has no answer, and the first one is served all the same.
        calibrate : returns the evidence of a record, or an error in place of it, and what is doubtful about it.
        abstains : replace an answer that the model's threshold rejects.
        """
        reading = self.reading(reply)
        try:
            asked = next(reading)
            while True:
                asked = reading.send(await ask(asked))
        except StopIteration as end:
            read: Read = end.value
        if read.confidence is None:
            return unread(read), None
        evidence = self.evidence(read, *await calibrate(self.record(read, reply.model, known)))
        if abstains:
            evidence |= warned(evidence.get("warning"), without_threshold(evidence))
        replacement = abstention(evidence) if abstains else None
        if replacement is not None:
            evidence["replaced"] = True
        return evidence, replacement or (read.answer if self.one_call else None)

    def _second(self, prompt: Prompt, answer: str) -> Request:
        stage = prompt.stages[1]
        kept = {name: self.request[name] for name in _KEPT_FIELDS if name in self.request}
        messages = [
            *self.request["messages"],
            {"role": "assistant", "content": answer},
            {"role": "user", "content": stage.filled(Question("question", self.question))},
        ]
        request = {**kept, "messages": messages}
        if "max_completion_tokens" in self.request:  # an LLM that thinks first: it takes no other limit
            request["max_completion_tokens"] = self.request["max_completion_tokens"]
        else:
            request |= {"max_tokens": stage.max_tokens, "temperature": 0.0}
        if stage.alternatives:
            request |= {"logprobs": True, "top_logprobs": stage.alternatives}
        return request

    def record(self, read: Read, replied: str | None, known: Collection[Any]) -> dict[str, Any]:
        """Return the record of an answer; the request's `metadata` are further columns.

        replied : the upstream's name of the LLM, if it is among the `known` ones and the caller's name is not.
        """
        metadata = self.request.get("metadata")
        record: dict[str, Any] = {
            name: value
            for name, value in (metadata.items() if isinstance(metadata, Mapping) else ())
            if name not in KNOWN and isinstance(value, str | int | float)
        }
        record |= {"question": self.question, "answer": read.answer, "confidence": read.confidence}
        llm = llm_of(self.request.get("model"), replied, known)
        if llm is not None:
            record["model"] = llm
        if read.tokens is not None:
            record["confidence_tokens"] = read.tokens
        return {**record, "confidence_source": read.source}

    def evidence(self, read: Read, result: Mapping[str, Any], doubt: str | None = None) -> dict[str, Any]:
        """Return the evidence for the caller.

        result : the evidence of the model, or an error instead.
        doubt : what else is doubtful about it, such as another LLM.
        """
        error = result.get("error")
        if error is not None:
            return unread(replace(read, reason=error["message"]))
        said = {"raw_confidence": read.confidence, "confidence_source": read.source}
        return {**result, **said, **warned(self.warning, doubt)}


def llm_of(asked: Any, replied: Any, known: Collection[Any]) -> Any:
    """Return the name of an LLM: the caller's, or the upstream's if it is among the `known` ones and the other is not.

    >>> llm_of("fast", "parrot-1", {"parrot-1"}), llm_of("fast", "owl-2", {"parrot-1"})
    ('parrot-1', 'fast')
    """
    return replied if asked is None or (asked not in known and replied in known) else asked


def warned(*doubts: str | None) -> dict[str, str]:
    """Return the field of the evidence with all doubts, if there is one.

    >>> warned(None, "a", "b"), warned(None)
    ({'warning': 'a; b'}, {})
    """
    found = [doubt for doubt in doubts if doubt is not None]
    return {"warning": "; ".join(found)} if found else {}


def without_threshold(evidence: Mapping[str, Any]) -> str | None:
    """Return the doubt about an answer that was to be replaced if it is bad, by a model that cannot decide.

    >>> without_threshold({"calibrated": 0.3, "decision": None})
    'the model has no threshold, so no answer is withheld; qacal threshold --save chooses one'
    """
    if evidence["calibrated"] is None or evidence["decision"] is not None:
        return None
    return "the model has no threshold, so no answer is withheld; qacal threshold --save chooses one"


def other_than_fitted(what: str, value: Any, fitted: Collection[Any]) -> str | None:
    """Return the doubt about an answer that was allowed though its origin is not among those of the fit.

    >>> other_than_fitted("answers of", "parrot-2", ["parrot-1"])
    'the model was fitted on answers of parrot-1, and this is parrot-2'
    """
    if value is None or not fitted or value in fitted:
        return None
    return f"the model was fitted on {what} {some_of(sorted(map(str, fitted)))}, and this is {value}"


def unread(read: Read) -> dict[str, Any]:
    """Return the evidence of an answer without a calibrated confidence, which is null and never 0."""
    return {
        "calibrated": None,
        "decision": None,
        "raw_confidence": read.confidence,
        "confidence_source": read.source,
        "reason": read.reason,
    }


class Planner:
    """Plans for a model: which kinds of confidence it was fitted on, and how to ask for one of them.

    model : None if there is none yet.
    any_prompt : whether other prompts than those of the fit are no reason to warn.
    """

    def __init__(self, choice: ConfidenceFrom, model: BaseModel | None, *, any_prompt: bool = False) -> None:
        self._any_prompt = any_prompt
        self._by_llm = model is not None and model._by == "model"
        self._parts = {} if model is None else {value: self._of(choice, part) for value, part in model._models.items()}
        self._all = self._of(choice, model)

    def plan(self, request: Any) -> Plan | None:
        """Return how to find the confidence of a completion; None unless it is one text that answers a text."""
        if not is_plain(request):
            return None
        llm = request.get("model")
        return replace((self._parts.get(llm) if self._by_llm else None) or self._all, request=request)

    @property
    def warnings(self) -> list[str]:
        """What is doubtful about the confidences that are asked for."""
        return [*dict.fromkeys(plan.warning for plan in self._parts.values() if plan.warning is not None)]

    def _of(self, choice: ConfidenceFrom, model: BaseModel | None) -> Plan:
        known = set() if model is None else model._fitted_on("confidence_source")
        prompts = set() if model is None else {str(prompt) for prompt in model._fitted_on("prompt")}
        sources = _automatic(known) if choice is ConfidenceFrom.AUTO else SOURCES[choice]
        parts = () if model is None else model._models.values()
        reads_tokens = any("confidence_tokens" in part.pipeline_.values_seen() for part in parts)
        return Plan(
            {},
            sources,
            wants_tokens=TOKENS in sources or reads_tokens,
            one_call=choice is ConfidenceFrom.ONE_CALL,
            warning=_doubt(choice, sources, known, () if self._any_prompt else prompts),
        )


async def second_reply(
    asked: Request, send: Callable[[Request], Awaitable[Any]], failures: tuple[type[Exception], ...]
) -> Reply | None:
    """Return the reply to a second question; None if there is none: the answer is served all the same.

    A server may refuse fields such as the temperature; then it is asked once more without them.

    send : returns the body of the completion, or raises one of the `failures`.
    """
    bare: Request = {name: asked[name] for name in ("model", "messages", "logprobs", "top_logprobs") if name in asked}
    for sent in (asked, bare):
        try:
            return Reply.from_body(await send(sent))
        except InputError:
            return None
        except failures as error:
            if getattr(error, "status_code", None) not in REFUSALS:
                return None
    return None


class Asking:
    """Asks for completions with the log-probabilities that plans need, unless a server refuses them for an LLM."""

    def __init__(self) -> None:
        self._without: set[str | None] = set()

    async def completion(self, plan: Plan, send: Callable[[Request], Awaitable[Result]]) -> Result:
        """Return what is sent back; a server that may refuse a field which the caller did not send is asked again."""
        llm = plan.request.get("model")
        sent = plan.sent(with_logprobs=llm not in self._without)
        try:
            return await send(sent)
        except Exception as error:
            is_refusal = getattr(error, "status_code", None) in REFUSALS
            if not (is_refusal and plan.adds_logprobs and "logprobs" in sent):
                raise
        answered = await send(plan.sent(with_logprobs=False))
        if len(self._without) < _MOST_REMEMBERED:
            self._without.add(llm)
        return answered


def _automatic(known: Collection[str]) -> tuple[str, ...]:
    """Return the kinds of confidence to try for a model that was fitted on `known` ones.

    >>> _automatic(["stated"]), _automatic([]), _automatic(["agreement"])
    (('stated',), ('tokens', 'stated'), ())
    """
    return tuple(source for source in (TOKENS, STATED, P_TRUE) if source in known) if known else (TOKENS, STATED)


def _doubt(
    choice: ConfidenceFrom, sources: tuple[str, ...], known: Collection[str], prompts: Collection[str]
) -> str | None:
    if known and not set(sources) & set(known):
        asked = f"and the source {some_of(sources)} is asked for" if sources else "which cannot be asked for"
        return f"the model was fitted on confidences of the source {some_of(sorted(known))}, {asked} here"
    prompt = _ONE_CALL if choice is ConfidenceFrom.ONE_CALL else _TRUE_OR_FALSE if P_TRUE in sources else _TWO_CALLS
    if sources != (TOKENS,) and prompts and prompt.identity not in prompts:
        fitted = f"the model was fitted on answers to the prompt {some_of(sorted(prompts))}"
        doubt = f"{fitted}, and {prompt.identity} is asked here: the same number may mean something else"
        if _ONE_CALL.identity in prompts:  # never chosen by auto: the caller's messages stay as they are
            doubt += " (--confidence-from one-call asks in the prompt of the fit: it puts the question into it)"
        return doubt
    return None


def is_plain(request: Any) -> bool:
    """Return whether a request asks for one text as the answer to texts: no tools, images or several choices.

    >>> hello = {"messages": [{"role": "user", "content": "Hello"}]}
    >>> is_plain(hello), is_plain({**hello, "n": 2}), is_plain({**hello, "tools": [{}]})
    (True, False, False)
    """
    if not isinstance(request, Mapping) or any(request.get(name) for name in _OTHER_FORMS):
        return False
    if not isinstance(request.get("model"), str | None):
        return False
    messages = request.get("messages")
    if request.get("n") not in (None, 1) or not isinstance(messages, list):
        return False
    if not all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages):
        return False
    parts = [part for one in messages if isinstance(one.get("content"), list) for part in one["content"]]
    if not all(isinstance(part, dict) and part.get("type") in ("text", "refusal") for part in parts):
        return False
    asked = asked_in(messages)
    return asked is not None and bool(asked[0].strip())


# Writing the evidence into a completion


def abstention(evidence: Mapping[str, Any]) -> str | None:
    """Return the text in place of an answer that the model's threshold rejects; None for others."""
    if evidence.get("decision") != "abstain":
        return None
    return f"No answer: the probability that the LLM's answer is correct is {rejected(evidence)}."


def rejected(evidence: Mapping[str, Any]) -> str:
    """Return the calibrated confidence, and why the model's threshold rejects it.

    >>> rejected({"calibrated": 0.314, "threshold": 0.6})
    '0.31, below the threshold of 0.6'
    >>> rejected({"calibrated": 0.314, "threshold": None})
    '0.31, and no threshold is certified for such answers'
    """
    threshold = evidence["threshold"]
    why = (
        "and no threshold is certified for such answers"
        if threshold is None
        else f"below the threshold of {threshold:g}"
    )
    return f"{evidence['calibrated']:.2f}, {why}"


def annotated(
    body: Mapping[str, Any], evidence: Mapping[str, Any], content: str | None = None, *, hides_logprobs: bool = False
) -> dict[str, Any]:
    """Return a completion with the evidence at the top, in its choice and in its message: clients drop some of them.

    content : another text in place of the answer.
    hides_logprobs : whether the caller did not ask for log-probabilities.
    """
    first, *others = body["choices"]
    message = {**first["message"], NAME: evidence}
    if content is not None:
        message = {"role": "assistant", "content": content, NAME: evidence}
    choice = {**first, "message": message, NAME: evidence}
    if "logprobs" in choice and (hides_logprobs or content is not None):
        choice["logprobs"] = None
    return {**body, "choices": [choice, *others], NAME: evidence}


@dataclass
class Gathered:
    """The chunks of a streamed completion, put together.

    chunk : the last one with a choice; further chunks are made like it.
    finish : the reason why the answer ended; None until then.
    """

    chunk: dict[str, Any] | None = None
    finish: str | None = None
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _tokens: list[Any] = field(default_factory=list)

    def add(self, chunk: Mapping[str, Any]) -> None:
        choice = first_choice(chunk)
        if choice is None:
            return
        self.chunk = dict(chunk)
        delta, logprobs = choice.get("delta"), choice.get("logprobs")
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            text = delta.get(name) if isinstance(delta, Mapping) else None
            if isinstance(text, str):
                self._texts.setdefault(name, []).append(text)
        tokens = logprobs.get("content") if isinstance(logprobs, Mapping) else None
        self._tokens += tokens if isinstance(tokens, list) else []
        finish = choice.get("finish_reason")  # some servers send an empty one before the end
        self.finish = finish if isinstance(finish, str) and finish else self.finish

    @property
    def reply(self) -> Reply:
        message = {name: "".join(texts) for name, texts in self._texts.items()}
        logprobs = {"content": self._tokens} if self._tokens else None
        choice = {"message": message, "finish_reason": self.finish, "logprobs": logprobs}
        return Reply.from_body({"choices": [choice], "model": (self.chunk or {}).get("model")})

    def ending(self, evidence: Mapping[str, Any], chunk: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the chunk that ends the answer with the evidence in it.

        chunk : the server's; None for a new one, if the server sent none or its text is replaced.
        """
        choice = dict(first_choice(chunk) or {"index": 0, "delta": {}, "finish_reason": self.finish or "stop"})
        delta = choice.get("delta")
        choice |= {"delta": {**(delta if isinstance(delta, Mapping) else {}), NAME: evidence}, NAME: evidence}
        return {**(chunk or self.chunk or {}), "choices": [choice], NAME: evidence}

    def text(self, content: str) -> dict[str, Any]:
        """Return a chunk with a whole text."""
        choice = {"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": None}
        return {**(self.chunk or {}), "choices": [choice]}


def first_choice(chunk: Any) -> Mapping[str, Any] | None:
    """Return the first choice of a chunk; None if it has none, such as the one with the usage at the end."""
    choices = chunk.get("choices") if isinstance(chunk, Mapping) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else None


def without_logprobs(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk, or a completion, without the log-probabilities that the caller did not ask for."""
    choice = first_choice(chunk)
    if choice is None or choice.get("logprobs") is None:
        return dict(chunk)
    return {**chunk, "choices": [{**choice, "logprobs": None}, *chunk["choices"][1:]]}
