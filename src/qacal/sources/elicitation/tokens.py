r"""The probability that an LLM gave to the tokens of its answer: a confidence that it never states.

With tokens :math:`t_1 \dots t_m` that spell the answer, :func:`answer_probability` is the joint probability
:math:`\prod_i p(t_i)`: how likely the LLM was to write this answer after the text before it. Labels, quotes and line
breaks around the answer are left out.

Servers write -9999 for a token that is not among the likeliest 20. Its probability is unknown, and so is a product with
this factor: the result is None, neither 0 (which would be a claim) nor clipped (a number that depends on the server).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from qacal.sources.elicitation.reading.parsing import answer_place
from qacal.sources.elicitation.reply import Malformed, Reason, Reply, Token, malformed


def answer_probability(reply: Reply, answer: str) -> float | None:
    """Return the joint probability of the tokens that spell an answer in a reply; None if it is not clear.

    >>> tokens = tuple(Token(text, math.log(p)) for text, p in [("Guess:", 0.9), (" Par", 0.5), ("is", 0.8)])
    >>> round(answer_probability(Reply("Guess: Paris", tokens), "Paris"), 6)
    0.4
    """
    place = answer_place(reply.text, answer) if reply.tokens else None
    if place is None or reply.tokens is None:
        return None
    return joint_probability([token.logprob for token in _spelling(reply.tokens, reply.text, *place)])


def joint_probability(logprobs: Sequence[float]) -> float | None:
    """Return the product of probabilities from their logarithms; None if one is not known, or without any."""
    if not logprobs or not all(map(_is_known, logprobs)):
        return None
    return math.exp(math.fsum(min(logprob, 0.0) for logprob in logprobs))


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
    total = mass["true"] + mass["false"]
    return mass["true"] / total if total > 0 else malformed(Reason.NEITHER_TRUE_NOR_FALSE, reply.text)


def _is_known(logprob: float) -> bool:
    return math.isfinite(logprob) and logprob > -9999.0


def _spelling(tokens: tuple[Token, ...], text: str, start: int, end: int) -> list[Token]:
    """Return the tokens with more than white space of ``text[start:end]``; none if tokens and text do not fit.

    All is counted in bytes, since a character may be spread over tokens. Tokens may have more than the text: thoughts
    that a server leaves out, an end mark. They must have the text up to the end of the answer, or all of it, just once.
    """
    joined = b"".join(token.encoded for token in tokens)
    before, until, whole = (text[:at].encode(errors="surrogatepass") for at in (start, end, len(text)))
    once = [part for part in (until, whole) if part in joined and joined.find(part) == joined.rfind(part)]
    if not once:
        return []
    offset = joined.index(once[0])
    first, last = offset + len(before), offset + len(until)
    spelling, at = [], 0
    for token in tokens:
        piece = joined[max(at, first) : min(at + len(token.encoded), last)]
        at += len(token.encoded)
        if piece.strip():
            spelling.append(token)
    return spelling
