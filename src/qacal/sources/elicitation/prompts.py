r"""Prompts: what is asked, in one or more stages, and how the replies are read.

=============  =======================================================================  ================================
name           asks for                                                                 confidence
=============  =======================================================================  ================================
verb1s-top1    the best guess and its probability                                       stated
verb1s-topK    the K best guesses with a probability each, K from 2 to 20: K rows       stated
verb1s-guided  as verb1s-top1, with three examples and a grammar: for very small LLMs   stated
ling1s-top1    the best guess and one of 13 expressions                                 what the expression is worth
verb2s-top1    the best guess; then, in a second turn, its probability                  stated
p-true         the best guess; then whether it is correct, True or False                of the token True
=============  =======================================================================  ================================

The words are those of the paper (`wording.py`). Records carry the identity of their prompt, since the same number means
something else after another prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Template
from types import MappingProxyType
from typing import TypeAlias

from qacal.errors import InputError
from qacal.records.columns import expression_key, require_expressions
from qacal.sources.elicitation import wording
from qacal.sources.elicitation.question import Question
from qacal.sources.elicitation.reading.characters import without_thoughts
from qacal.sources.elicitation.reading.expressions import EXPRESSIONS
from qacal.sources.elicitation.reading.parsing import (
    parse_answer,
    parse_confidence,
    parse_expression_guess,
    parse_guess,
    parse_guesses,
)
from qacal.sources.elicitation.reply import Malformed, Outcome, Refused, Reply, Stated, refused
from qacal.sources.elicitation.tokens import true_probability
from qacal.storage import digest

Message: TypeAlias = dict[str, str]
Outcomes: TypeAlias = tuple[Outcome, ...]
Reader: TypeAlias = Callable[[Sequence[Reply]], Outcomes]

# Two lines, because small LLMs do not keep to them otherwise; for servers that take a grammar (llama.cpp).
VERB1S_GRAMMAR = r"""root ::= "Guess: " guess "\nProbability: " probability
guess ::= [^ \t\r\n] [^\r\n]{0,59}
probability ::= "0." [0-9] [0-9]? | "1.0"
"""

# For LLMs that are too small to keep a form they have not seen; sure and unsure ones, so as to suggest no number.
VERB1S_EXAMPLES = (
    ("What is the capital of Italy?", "Guess: Rome\nProbability: 0.98"),
    ("How many moons does Saturn have?", "Guess: 146\nProbability: 0.45"),
    ("In which year was the first lighthouse of Alexandria lit?", "Guess: 280 BC\nProbability: 0.2"),
)


# Readers: from the replies to a question, one a stage, to its outcomes


def one_guess(replies: Sequence[Reply]) -> Outcomes:
    """Read a guess and its probability."""
    return (parse_guess(replies[0].text, is_cut=replies[0].is_cut),)


@dataclass(frozen=True)
class SeveralGuesses:
    """Reads `count` guesses with a probability each."""

    count: int

    def __call__(self, replies: Sequence[Reply]) -> Outcomes:
        """Return an outcome for each guess."""
        return parse_guesses(replies[0].text, self.count, is_cut=replies[0].is_cut)


@dataclass(frozen=True)
class ExpressionReader:
    r"""Reads a guess and an expression, such as "Highly Likely", for the number that it stands for.

    LLMs use words that the prompt does not list. They are read only if the caller gives their number:

    >>> replies = [Reply("Guess: Paris\nConfidence: High")]
    >>> ExpressionReader()(replies)[0].why
    <Reason.UNKNOWN_EXPRESSION: 'the expression is not one of the list'>
    >>> ExpressionReader().and_also({"High": 0.85})(replies)
    (Stated(answer='Paris', confidence=0.85),)
    """

    expressions: Mapping[str, float] = field(default_factory=lambda: EXPRESSIONS)

    def __post_init__(self) -> None:
        require_expressions(self.expressions)

    def __call__(self, replies: Sequence[Reply]) -> Outcomes:
        """Return the guess with the number of its expression."""
        return (parse_expression_guess(replies[0].text, self.expressions, is_cut=replies[0].is_cut),)

    def and_also(self, further: Mapping[str, float]) -> ExpressionReader:
        """Return a reader that knows further expressions, or other numbers for the same ones in any spelling."""
        require_expressions(further)
        renamed = {expression_key(name) for name in further}
        kept = {name: number for name, number in self.expressions.items() if expression_key(name) not in renamed}
        return ExpressionReader({**kept, **further})

    @property
    def mark(self) -> str:
        """A digest of the numbers, for the identity of the prompt; empty for the paper's numbers."""
        numbers, usual = (
            {expression_key(name): float(number) for name, number in given.items()}
            for given in (self.expressions, EXPRESSIONS)
        )
        return "" if numbers == usual else f"~{digest(numbers)[:8]}"


def answer_then_probability(replies: Sequence[Reply]) -> Outcomes:
    """Read an answer from the first reply and its probability from the second."""
    return _answer_then(replies, parse_confidence(replies[1].text, is_cut=replies[1].is_cut))


def answer_then_true(replies: Sequence[Reply]) -> Outcomes:
    """Read an answer from the first reply, and from the second the probability of the token True."""
    return _answer_then(replies, true_probability(replies[1]))


def _answer_then(replies: Sequence[Reply], confidence: float | Refused | Malformed) -> Outcomes:
    answer = parse_answer(replies[0].text, is_cut=replies[0].is_cut)
    if not isinstance(answer, str):
        return (answer,)
    return (Stated(answer, confidence) if isinstance(confidence, float) else confidence,)


# Prompts


@dataclass(frozen=True)
class Stage:
    """One turn of a prompt.

    template : the text, with ``$question`` and ``$choices``. Without ``$choices``, the choices of a question follow
        after it, in the paper's words.
    max_tokens : how long the reply may be.
    wants_logprobs : whether to ask the server for the probabilities of the reply's tokens.
    alternatives : for how many tokens at each place; 0 for the written one alone.
    """

    template: str
    max_tokens: int = 100
    wants_logprobs: bool = True
    alternatives: int = 0

    def filled(self, question: Question) -> str:
        """Return the text for a question."""
        choices = json.dumps(question.choices, ensure_ascii=False) if question.choices else ""
        text = Template(self.template).safe_substitute(question=question.text, choices=choices)
        if not question.choices or "question" not in _names(self.template) or "choices" in _names(self.template):
            return text
        return f"{text}\n{wording.CHOICES.format(size=len(question.choices), choices=choices)}"


@dataclass(frozen=True)
class Prompt:
    r"""A prompt: its stages, and the reader of its replies.

    name, version : records carry both.
    stages : the turns.
    reader : turns the replies, one a stage, into outcomes.
    system : a system message, if any.
    examples : questions and replies that are shown first, as separate turns; small LLMs need a few.
    grammar : a GBNF grammar for the first reply, for servers that take one.
    guesses : the number of outcomes for a question.
    source : the kind of confidence; records carry it.

    Examples
    --------
    >>> prompt = prompt_named("verb1s-top1")
    >>> question = Question("q1", "What is the capital of France?")
    >>> prompt.messages(question)[0]["content"][-48:]
    'The question is: What is the capital of France?.'
    >>> prompt.read(question, [Reply("Guess: Paris\nProbability: 0.9")])
    (Stated(answer='Paris', confidence=0.9),)
    """

    name: str
    version: int | str
    stages: tuple[Stage, ...]
    reader: Reader
    system: str | None = None
    examples: tuple[tuple[str, str], ...] = ()
    grammar: str | None = None
    guesses: int = 1
    source: str = "stated"

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError(f"prompt {self.name} has no stages; give at least one.")
        for stage in self.stages:
            _require_template(stage.template, self.name, is_first=stage is self.stages[0])

    @property
    def needs_logprobs(self) -> bool:
        """Whether the confidence is read from token probabilities."""
        return any(stage.alternatives for stage in self.stages)

    @property
    def digest(self) -> str:
        """A digest of the text that the LLM is told."""
        said = {
            "stages": [stage.template for stage in self.stages],
            "system": self.system,
            "examples": [list(example) for example in self.examples],
            "grammar": self.grammar,
        }
        return digest(said)

    @property
    def identity(self) -> str:
        """Name and version, and a mark if the text or the numbers of expressions differ from the known prompt.

        >>> prompt_named("ling1s-top1").knowing({"High": 0.85}).identity
        'ling1s-top1/1~ea7a11f6'
        """
        own = f"{self.name}/{self.version}"
        known = PROMPTS.get(self.name)
        is_known = known is not None and known.version == self.version and known.digest == self.digest
        mark = self.reader.mark if isinstance(self.reader, ExpressionReader) else ""
        return (own if is_known else f"{own}+{self.digest[:8]}") + mark

    def knowing(self, expressions: Mapping[str, float]) -> Prompt:
        """Return the prompt with further expressions that replies may use, or other numbers for the same ones.

        The request stays the same, so stored replies can be read again.
        """
        if not expressions:
            return self
        if not isinstance(self.reader, ExpressionReader):
            raise InputError(f"the prompt {self.name} does not ask for expressions, so there is none to give a number.")
        return replace(self, reader=self.reader.and_also(expressions))

    def messages(self, question: Question, replies: Sequence[Reply] = ()) -> list[Message]:
        """Return the messages of the next stage: all turns so far, and the new one."""
        if len(replies) >= len(self.stages):
            raise InputError(f"prompt {self.name} has {len(self.stages)} stages; all of them have a reply.")
        turns = [] if self.system is None else [_message("system", self.system)]
        for asked, example in self.examples:
            first = self.stages[0].filled(Question("example", asked))
            turns += [_message("user", first), _message("assistant", example)]
        for stage, reply in zip(self.stages, replies, strict=False):
            answer = without_thoughts(reply.text).strip() or reply.text
            turns += [_message("user", stage.filled(question)), _message("assistant", answer)]
        return [*turns, _message("user", self.stages[len(replies)].filled(question))]

    def read(self, question: Question, replies: Sequence[Reply]) -> Outcomes:
        """Return the outcomes of the replies to a question, one for each guess."""
        if len(replies) != len(self.stages):
            raise InputError(f"prompt {self.name} has {len(self.stages)} stages; got {len(replies)} replies.")
        for reply in replies:
            if reply.refusal or (reply.finish == "content_filter" and not reply.text.strip()):
                return (refused(reply.refusal or "content filter"),) * self.guesses
        return self.reader(replies)


def _names(template: str) -> set[str]:
    """Return the names in a template that are to be filled in."""
    return set(Template(template).get_identifiers())


def _require_template(template: str, name: str, *, is_first: bool) -> None:
    unknown = sorted(_names(template) - {"question", "choices"})
    if unknown:
        raise InputError(
            f"prompt {name}: there is nothing to put in for ${unknown[0]}; there are $question and $choices."
        )
    if is_first and "question" not in _names(template):
        raise InputError(f"prompt {name} does not say where the question goes; put $question into its template.")


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


_GUESS_ONLY = Stage(wording.GUESS_ONLY, 60)

PROMPTS: Mapping[str, Prompt] = MappingProxyType(
    {
        prompt.name: prompt
        for prompt in (
            Prompt("verb1s-top1", 1, (Stage(wording.VERB1S),), one_guess),
            Prompt(
                "verb1s-guided",
                1,
                (Stage(wording.VERB1S),),
                one_guess,
                examples=VERB1S_EXAMPLES,
                grammar=VERB1S_GRAMMAR,
            ),
            *(
                Prompt(f"verb1s-top{k}", 1, (Stage(wording.verb1s_topk(k), 60 * k),), SeveralGuesses(k), guesses=k)
                for k in range(2, 21)
            ),
            Prompt("ling1s-top1", 1, (Stage(wording.ling1s(EXPRESSIONS)),), ExpressionReader(), source="expression"),
            Prompt(
                "verb2s-top1",
                1,
                (_GUESS_ONLY, Stage(wording.HOW_LIKELY, 30, wants_logprobs=False)),
                answer_then_probability,
            ),
            Prompt(
                "p-true",
                1,
                (_GUESS_ONLY, Stage(wording.TRUE_OR_FALSE, 3, alternatives=20)),
                answer_then_true,
                source="p(true)",
            ),
        )
    }
)


def prompt_named(name: str) -> Prompt:
    """Return one of the prompts of qacal.

    >>> prompt_named("verb1s")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: there is no prompt 'verb1s'; there are verb1s-top1, verb1s-top2 to verb1s-top20, ...
    """
    if name in PROMPTS:
        return PROMPTS[name]
    fixed = [known for known in PROMPTS if known not in {f"verb1s-top{count}" for count in range(1, 21)}]
    listed = ", ".join(["verb1s-top1", "verb1s-top2 to verb1s-top20", *fixed])
    raise InputError(f"there is no prompt {name!r}; there are {listed}. A file of your own ends in .toml.")
