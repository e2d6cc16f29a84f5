r"""Prompts: what is asked, in one or more stages, and how the replies are read.

=============  =======================================================================  ================================
name           asks for                                                                 confidence
=============  =======================================================================  ================================
verb1s-top1    the best guess and its probability                                       stated
verb1s-topK    the K best guesses with a probability each, K from 2 to 20: K rows       stated
verb1s-guided  as verb1s-top1, with three examples and a grammar: for very small LLMs   stated
ling1s-top1    the best guess and one of 13 expressions                                 the number of the expression
verb2s-top1    the best guess; then, in a second turn, its probability                  stated
p-true         the best guess; then whether it is correct, True or False                of the token True
=============  =======================================================================  ================================

Records carry the identity of their prompt, since the same number means something else after another prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from string import Template
from types import MappingProxyType
from typing import TypeAlias

from qacal.errors import InputError
from qacal.records.columns import expression_key, require_expressions
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

# The words of the paper, as its tables "Prompts used" and "Important variables" print them, without LaTeX. Where the
# tables set a wide space there is a line break: a cell of a table cannot show one, and Tian et al. (2023), the source
# of these forms, have it there. Prompts of two stages consist of the same words.
_GUESS = "<{rank}most likely guess, as short as possible; not a complete sentence, just the guess!>"
_PROBABILITY = (
    "<the probability between 0.0 and 1.0 that {guess} is correct, without any extra commentary whatsoever; just the "
    "probability!>"
)
_NUMBERS = """
    one/first two/second three/third four/fourth five/fifth six/sixth seven/seventh eight/eighth nine/ninth ten/tenth
    eleven/eleventh twelve/twelfth thirteen/thirteenth fourteen/fourteenth fifteen/fifteenth sixteen/sixteenth
    seventeen/seventeenth eighteen/eighteenth nineteen/nineteenth twenty/twentieth
"""
_COUNTS, _RANKS = zip(*(pair.split("/") for pair in _NUMBERS.split()), strict=True)
_VERB1S = (
    "Provide your best guess and the probability that it is correct (0.0 to 1.0) for the following question. Give ONLY "
    "the guess and probability, no other words or explanation. For example:\n"
    f"Guess: {_GUESS.format(rank='')}\n"
    f"Probability: {_PROBABILITY.format(guess='your guess')}\n"
    "The question is: $question."
)
_GUESS_ONLY = (
    "Provide your best guess for the following question. Give ONLY the guess, no other words or explanation. For "
    f"example:\nGuess: {_GUESS.format(rank='')}\n"
    "The question is: $question."
)
_HOW_LIKELY = (
    "How likely is it that your guess is correct? Give ONLY the probability (0.0 to 1.0), no other words or "
    f"explanation. For example:\nProbability: {_PROBABILITY.format(guess='your guess')}"
)
_TRUE_OR_FALSE = "Is your guess correct? Answer with a single word, either True or False."
_CHOICES = (
    "The answer must be chosen from the following list of size {size}: {choices}. Only the actual answer (not the "
    "choice number or index) from the list should be used in the response."
)
_LING1S = (
    "Provide your best guess for the following question, and describe how likely it is that your guess is correct as "
    f"one of the following expressions: {', '.join(EXPRESSIONS)}. Give ONLY the guess and your confidence, no other "
    f"words or explanation. For example:\nGuess: {_GUESS.format(rank='')}\n"
    "Confidence: <description of confidence, without any extra commentary whatsoever; just a short phrase!>\n"
    "The question is: $question"
)


def _verb1s_topk(count: int) -> str:
    first, last = (
        f"G{number}: {_GUESS.format(rank=f'{_RANKS[number - 1]} ')}\n"
        f"P{number}: {_PROBABILITY.format(guess=f'G{number}')}"
        for number in (1, count)
    )
    between = "\n...\n" if count > 2 else "\n"
    return (
        f"Provide your {_COUNTS[count - 1]} best guesses and the probability that each is correct (0.0 to 1.0) for the "
        "following question. Give ONLY the guesses and probabilities, no other words or explanation. For example:\n"
        f"{first}{between}{last}.\nThe question is: $question"
    )


# Small LLMs do not keep to two lines otherwise; for servers that take a grammar (llama.cpp).
VERB1S_GRAMMAR = r"""root ::= "Guess: " guess "\nProbability: " probability
guess ::= [^ \t\r\n] [^\r\n]{0,59}
probability ::= "0." [0-9] [0-9]? | "1.0"
"""

# For LLMs that are too small to keep a form they have not seen; of high and low confidence, to suggest neither.
VERB1S_EXAMPLES = (
    ("What is the capital of Italy?", "Guess: Rome\nProbability: 0.98"),
    ("How many moons does Saturn have?", "Guess: 146\nProbability: 0.45"),
    ("In which year was the first lighthouse of Alexandria lit?", "Guess: 280 BC\nProbability: 0.2"),
)


# Readers: from the replies to a question, one for each stage, to its outcomes


def one_guess(replies: Sequence[Reply]) -> Outcomes:
    """Read a guess and its probability."""
    return (parse_guess(replies[0].text, is_cut=replies[0].is_cut),)


def several_guesses(count: int, replies: Sequence[Reply]) -> Outcomes:
    """Read `count` guesses with a probability each."""
    return parse_guesses(replies[0].text, count, is_cut=replies[0].is_cut)


@dataclass(frozen=True)
class ExpressionReader:
    r"""Reads a guess and an expression, such as "Highly Likely", as the number of this expression.

    LLMs use words that the prompt does not list. They are read only if the caller gives their number:

    >>> replies = [Reply("Guess: Paris\nConfidence: High")]
    >>> ExpressionReader()(replies)[0].why
    <Reason.UNKNOWN_EXPRESSION: 'the expression is not one of the list'>
    >>> ExpressionReader().extended({"High": 0.85})(replies)
    (Stated(answer='Paris', confidence=0.85),)
    """

    expressions: Mapping[str, float] = field(default_factory=lambda: EXPRESSIONS)

    def __post_init__(self) -> None:
        require_expressions(self.expressions)

    def __call__(self, replies: Sequence[Reply]) -> Outcomes:
        return (parse_expression_guess(replies[0].text, self.expressions, is_cut=replies[0].is_cut),)

    def extended(self, further: Mapping[str, float]) -> ExpressionReader:
        """Return a reader with further expressions, or with other numbers for the same ones in any spelling."""
        renamed = {expression_key(name) for name in further}
        kept = {name: number for name, number in self.expressions.items() if expression_key(name) not in renamed}
        return ExpressionReader({**kept, **further})

    @property
    def mark(self) -> str:
        """A digest of the numbers, for the identity of the prompt; empty for the paper's numbers."""
        numbers, usual = (
            {expression_key(name): float(number) for name, number in expressions.items()}
            for expressions in (self.expressions, EXPRESSIONS)
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
    wants_logprobs : whether to ask the server for the probabilities of the reply's tokens.
    alternatives : for how many tokens at each place; 0 for the written one alone.
    """

    template: str
    max_tokens: int = 100
    wants_logprobs: bool = True
    alternatives: int = 0

    def filled(self, question: Question) -> str:
        choices = json.dumps(question.choices, ensure_ascii=False) if question.choices else ""
        text = Template(self.template).safe_substitute(question=question.text, choices=choices)
        if question.choices and self.names == {"question"}:
            text += f"\n{_CHOICES.format(size=len(question.choices), choices=choices)}"
        return text

    @property
    def names(self) -> set[str]:
        """The names in the template that are to be filled in."""
        return set(Template(self.template).get_identifiers())


@dataclass(frozen=True)
class Prompt:
    r"""A prompt: its stages, and the reader of its replies.

    name, version, source : records carry these; `source` is the kind of confidence.
    system : a system message, if any.
    examples : questions and replies that are shown first, as separate turns; small LLMs need a few.
    grammar : a GBNF grammar for the first reply, for servers that take one.
    guesses : the number of outcomes for a question.

    >>> prompt = prompt_named("verb1s-top1")
    >>> prompt.messages(Question("q1", "What is the capital of France?"))[0]["content"][-48:]
    'The question is: What is the capital of France?.'
    >>> prompt.read([Reply("Guess: Paris\nProbability: 0.9")])
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
        unknown = sorted({name for stage in self.stages for name in stage.names} - {"question", "choices"})
        if unknown:
            raise InputError(
                f"prompt {self.name}: there is nothing to put in for ${unknown[0]}; there are $question and $choices."
            )
        if "question" not in self.stages[0].names:
            raise InputError(f"prompt {self.name} has no place for the question; put $question into its template.")

    @property
    def needs_logprobs(self) -> bool:
        """Whether the confidence is read from token probabilities."""
        return any(stage.alternatives for stage in self.stages)

    @property
    def digest(self) -> str:
        """A digest of everything that is sent to the LLM, apart from the question."""
        content = {
            "stages": [stage.template for stage in self.stages],
            "system": self.system,
            "examples": [list(example) for example in self.examples],
            "grammar": self.grammar,
        }
        return digest(content)

    @property
    def identity(self) -> str:
        """Name and version, and a mark if the text or the numbers of expressions differ from the built-in prompt.

        >>> prompt_named("ling1s-top1").with_expressions({"High": 0.85}).identity
        'ling1s-top1/1~ea7a11f6'
        """
        built_in = PROMPTS.get(self.name)
        is_same = built_in is not None and (built_in.version, built_in.digest) == (self.version, self.digest)
        changes = "" if is_same else f"+{self.digest[:8]}"
        mark = self.reader.mark if isinstance(self.reader, ExpressionReader) else ""
        return f"{self.name}/{self.version}{changes}{mark}"

    def with_expressions(self, expressions: Mapping[str, float]) -> Prompt:
        """Return the prompt with further expressions that replies may use, or other numbers for the same ones.

        The request stays the same, so stored replies can be read again.
        """
        if not expressions:
            return self
        if not isinstance(self.reader, ExpressionReader):
            raise InputError(f"the prompt {self.name} does not ask for expressions, so no word needs a number.")
        return replace(self, reader=self.reader.extended(expressions))

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

    def read(self, replies: Sequence[Reply]) -> Outcomes:
        """Return the outcomes of the replies to a question, one for each guess."""
        if len(replies) != len(self.stages):
            raise InputError(f"prompt {self.name} has {len(self.stages)} stages; got {len(replies)} replies.")
        for reply in replies:
            if reply.refusal or (reply.finish == "content_filter" and not reply.text.strip()):
                return (refused(reply.refusal or "content filter"),) * self.guesses
        return self.reader(replies)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


_FIRST = Stage(_GUESS_ONLY, 60)
_TOP1 = Prompt("verb1s-top1", 1, (Stage(_VERB1S),), one_guess)

PROMPTS: Mapping[str, Prompt] = MappingProxyType(
    {
        prompt.name: prompt
        for prompt in (
            _TOP1,
            replace(_TOP1, name="verb1s-guided", examples=VERB1S_EXAMPLES, grammar=VERB1S_GRAMMAR),
            *(
                Prompt(f"verb1s-top{k}", 1, (Stage(_verb1s_topk(k), 60 * k),), partial(several_guesses, k), guesses=k)
                for k in range(2, 21)
            ),
            Prompt("ling1s-top1", 1, (Stage(_LING1S),), ExpressionReader(), source="expression"),
            Prompt(
                *("verb2s-top1", 1, (_FIRST, Stage(_HOW_LIKELY, 30, wants_logprobs=False))), answer_then_probability
            ),
            Prompt(
                *("p-true", 1, (_FIRST, Stage(_TRUE_OR_FALSE, 3, alternatives=20))), answer_then_true, source="p(true)"
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
    others = [other for other in PROMPTS if not other.startswith("verb1s-top")]
    listed = ", ".join(["verb1s-top1", "verb1s-top2 to verb1s-top20", *others])
    raise InputError(f"there is no prompt {name!r}; there are {listed}. A file of your own ends in .toml.")
