r"""The probability that an LLM gave to the tokens of its answer: a confidence that it never states.

With tokens :math:`t_1 \dots t_m` that spell the answer, :func:`answer_probability` is the joint probability
:math:`\prod_i p(t_i)`: how likely the LLM was to write just this, given all before it. Long answers have low ones
whatever the LLM knows; :func:`length_normalised` is the geometric mean :math:`(\prod_i p(t_i))^{1/m}`, which forgives
length. Both are of the answer alone: labels, quotes and line breaks around it are left out.

Servers write -9999 for a token that is not among the likeliest 20. Its probability is then not known, only bounded, and
a product with an unknown factor is unknown: the result is None, neither 0 (which would be a claim) nor clipped (a
number that depends on the server).
"""

from __future__ import annotations

import math

from qacal.sources.elicitation.reading.parsing import answer_place
from qacal.sources.elicitation.reply import Malformed, Reason, Reply, Token, malformed

_OUTSIDE_OF_LIST = -9999.0


def answer_probability(reply: Reply, answer: str) -> float | None:
    """Return the joint probability of the tokens that spell an answer in a reply; None if it cannot be told.

    >>> tokens = tuple(Token(text, math.log(p)) for text, p in [("Guess:", 0.9), (" Par", 0.5), ("is", 0.8)])
    >>> round(answer_probability(Reply("Guess: Paris", tokens), "Paris"), 6)
    0.4
    >>> answer_probability(Reply("Guess: Paris"), "Paris") is None
    True
    """
    logprobs = _answer_logprobs(reply, answer)
    return math.exp(math.fsum(logprobs)) if logprobs else None


def length_normalised(reply: Reply, answer: str) -> float | None:
    """Return the geometric mean of the probabilities of the tokens that spell an answer; None if it cannot be told.

    >>> tokens = tuple(Token(text, math.log(p)) for text, p in [("Guess:", 0.9), (" Par", 0.5), ("is", 0.5)])
    >>> round(length_normalised(Reply("Guess: Paris", tokens), "Paris"), 6)
    0.5
    """
    logprobs = _answer_logprobs(reply, answer)
    return math.exp(math.fsum(logprobs) / len(logprobs)) if logprobs else None


def true_probability(reply: Reply) -> float | Malformed:
    r"""Return :math:`p(\text{True}) / (p(\text{True}) + p(\text{False}))` at the first token that is more than space.

    Capitals and spaces do not matter: " true" and "True" are added up. If one of the two is not listed, it counts as 0:
    it is less likely than all that are listed.

    >>> listed = (("True", math.log(0.6)), (" true", math.log(0.1)), ("False", math.log(0.1)), ("Yes", math.log(0.2)))
    >>> round(true_probability(Reply("True", (Token("True", math.log(0.6), listed),))), 6)
    0.875
    """
    if not reply.tokens:
        return malformed(Reason.NO_LOGPROBS, reply.text)
    first = next((token for token in reply.tokens if token.text.strip()), reply.tokens[0])
    listed = [*first.alternatives]
    if first.text not in [text for text, _ in listed]:
        listed.append((first.text, first.logprob))
    mass = {"true": 0.0, "false": 0.0}
    for text, logprob in listed:
        if text.strip().lower() in mass and _is_known(logprob):
            mass[text.strip().lower()] += math.exp(min(logprob, 0.0))
    true, false = mass["true"], mass["false"]
    if not true + false > 0:
        return malformed(Reason.NEITHER_TRUE_NOR_FALSE, reply.text)
    return true / (true + false)


def _is_known(logprob: float) -> bool:
    return math.isfinite(logprob) and logprob > _OUTSIDE_OF_LIST


def _answer_logprobs(reply: Reply, answer: str) -> list[float] | None:
    """Return the log-probabilities of the tokens that spell an answer, None if not all are known."""
    place = answer_place(reply.text, answer) if reply.tokens else None
    if place is None or reply.tokens is None:
        return None
    tokens = _spelling(reply.tokens, reply.text, *place)
    known = [min(token.logprob, 0.0) for token in tokens if _is_known(token.logprob)]
    return known if known and len(known) == len(tokens) else None


def _spelling(tokens: tuple[Token, ...], text: str, start: int, end: int) -> list[Token]:
    """Return the tokens that hold more than white space of ``text[start:end]``; none if tokens and text do not fit.

    All is counted in bytes, since a character may be spread over tokens. Tokens may have more than the text: thoughts
    that a server leaves out, an end mark. They must have the text up to the end of the answer, and only once.
    """
    joined = b"".join(token.encoded for token in tokens)
    before, upto = (text[:at].encode(errors="surrogatepass") for at in (start, end))
    offset = _only_place(joined, upto, text.encode(errors="surrogatepass"))
    if offset is None:
        return []
    first, last = offset + len(before), offset + len(upto)
    found, at = [], 0
    for token in tokens:
        piece = joined[max(at, first) : min(at + len(token.encoded), last)]
        at += len(token.encoded)
        if piece.strip():
            found.append(token)
    return found


def _only_place(joined: bytes, upto: bytes, whole: bytes) -> int | None:
    for part in (upto, whole):
        place = joined.find(part)
        if place >= 0 and joined.find(part, place + 1) < 0:
            return place
    return None
