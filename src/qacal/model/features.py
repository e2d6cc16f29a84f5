"""Columns of records as inputs of a score: the kind of each column, and the inputs that are made from it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from qacal.calibrators.score import LearnedScore
from qacal.calibrators.score.texts import PairTexts
from qacal.errors import InputError
from qacal.parameters import shown
from qacal.records.columns import parse_number
from qacal.tally.arrays import Floats, is_missing

Embed: TypeAlias = Callable[[Sequence[str]], NDArray[np.floating]]
Kind: TypeAlias = Literal["numeric", "category", "confidence", "logprobs", "context"]

NEVER_TRIED = (
    *("id", "question", "answer", "confidence", "correct", "calibrated"),
    *("model", "prompt", "confidence_source", "judge", "ground_truth", "embedding"),
    *("stratum", "label_probability", "by_judge"),  # how `qacal label-next` drew the row; verdicts of `qacal judge`
)
"""Columns that have a meaning of their own. No score reads them unless it is told to."""

# A column of numbers with at most this many values is one of categories.
_FEW_VALUES = 10
# Categories need rows: with fewer than this many for each value on average, a column is nearly unique.
_ROWS_A_VALUE = 5
# Of whole numbers, a column with a larger share of distinct values counts the rows: it is an id.
_IDS = 0.5
# A column in which fewer of the values are not numbers is one of numbers with mistakes.
_MISTAKES = 0.1
# The vectors of this many passages are in memory at a time.
_PASSAGES_A_STEP = 4096
# A text of this many characters is not the name of a category.
_LONG = 80
_CONFIDENCE = ("confidence", "prob", "certainty", "likelihood", "agreement")
_CONTEXT = ("context", "contexts", "passage", "passages", "document", "documents", "retrieved", "sources", "evidence")


# What is made from columns that hold no single values.
_PARTS: Mapping[Kind, Sequence[str]] = {
    "logprobs": ("sum", "mean", "least", "entropy"),
    "context": ("answer", "question", "answer cosine", "question cosine"),
}


@dataclass(frozen=True)
class Feature:
    """A column that a score may read.

    - "numeric": numbers on any scale, with a smooth effect.
    - "category": each value has an effect.
    - "confidence": another confidence in [0, 1].
    - "logprobs": a list of the log-probabilities of the answer's tokens: their sum, mean and least, and the entropy
      where each token comes with its alternatives.
    - "context": passages that the answer should rest on: which share of the words of answer and question they have, and
      the cosine of answer and question with the nearest passage, where the embedder is fast.

    >>> Feature.named("tenant"), Feature.named("retrieval:numeric")
    (Feature(name='tenant', kind=None), Feature(name='retrieval', kind='numeric'))

    What is made from a column can be named by itself:

    >>> Feature.named("tokens: sum")
    Feature(name='tokens', kind='logprobs')
    """

    name: str
    kind: Kind | None = None

    @staticmethod
    def named(text: str) -> Feature:
        """Return a feature from ``NAME``, ``NAME:KIND`` or ``NAME: PART``; a column may have a colon in its name."""
        name, _, kind = text.rpartition(":")
        for whole, parts in _PARTS.items():
            if name and kind.startswith(" ") and kind[1:] in parts:
                return Feature(name, whole)
        return Feature(name, kind) if name and kind in get_args(Kind) else Feature(text)  # type: ignore[arg-type]

    @property
    def most(self) -> float | None:
        """The largest value of a number; None for columns that hold something else."""
        return {"confidence": 1.0, "numeric": math.inf}.get(self.kind or "")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that are made from the column."""
        if self.kind is None or self.kind not in _PARTS:
            return (self.name,)
        return tuple(f"{self.name}: {part}" for part in _PARTS[self.kind])

    def read(
        self, values: Sequence[Any], questions: Sequence[str], answers: Sequence[str], embed: Embed | None = None
    ) -> dict[str, Any]:
        """Return the inputs that are made from a column; a value that cannot be read is missing.

        embed : gives texts vectors of length 1; None if that would take long.

        >>> Feature("tokens", "logprobs").read([[-0.1, -2.0], None], [], [])["tokens: mean"]
        array([-1.05,   nan])
        """
        if self.kind == "category":
            return {self.name: list(values)}
        if self.most is not None:
            is_plain = {*map(type, values)} <= {bool, float, type(None)}
            numbers = values if is_plain else [parse_number(value, most=math.inf) for value in values]
            return {self.name: np.array(numbers, dtype=np.float64)}
        if self.kind == "logprobs":
            table = np.array([_token_numbers(_listed(value)) for value in values], dtype=np.float64)
            columns = list(table.reshape(-1, 4).T)
        else:
            passages = [_passages(value) for value in values]
            columns = [*_overlap(passages, questions, answers), *_cosines(passages, questions, answers, embed)]
        return dict(zip(self.inputs, columns, strict=True))


@dataclass(frozen=True)
class FoundKind:
    """The kind of a column that was found in its values, or why it is not tried."""

    kind: Kind | None
    reason: str = ""


def find_kind(name: str, values: Sequence[Any]) -> FoundKind:
    """Return the kind of a column.

    >>> find_kind("topic", ["law", "art"] * 10)
    FoundKind(kind='category', reason='')
    >>> find_kind("price", [1.5, 2.25, None, 7] * 5 + list(range(20)))
    FoundKind(kind='numeric', reason='')
    >>> find_kind("row", range(100))
    FoundKind(kind=None, reason='nearly every row has its own value')
    >>> find_kind("version", ["1.2"] * 9)
    FoundKind(kind=None, reason='all rows have the same value')
    >>> find_kind("price", [*range(50), "unknown"])
    FoundKind(kind=None, reason="1 of 51 values is not a number, such as 'unknown'")
    >>> find_kind("agreement", [0.2, 0.6, 1.0] * 5)
    FoundKind(kind='confidence', reason='')
    >>> find_kind("token_logprobs", [[-0.1, -0.2], [-3.0]] * 5)
    FoundKind(kind='logprobs', reason='')
    """
    known = [value for value in values if not is_missing(value)]
    if not known:
        return FoundKind(None, "no row has a value")
    if any(isinstance(value, list | tuple | dict | np.ndarray) for value in known) or _is_json_list(known[0]):
        return _kind_of_lists(name, known)
    if not all(isinstance(value, str | int | float | bool | np.generic) for value in known):
        return FoundKind(None, f"it holds values of type {type(known[0]).__name__}")
    distinct = {*known}
    if len(distinct) == 1:
        return FoundKind(None, "all rows have the same value")
    if not any(isinstance(value, bool) for value in known):
        numbers = [parse_number(value, most=math.inf) for value in known]
        # A few values are categories, unless the name says that they are confidences: five samples agree by fifths.
        is_confidence = any(word in name.lower() for word in _CONFIDENCE) and all(
            0 <= number <= 1 for number in numbers
        )
        if is_confidence:
            return FoundKind("confidence")
        if all(map(math.isfinite, numbers)) and len({*numbers}) > _FEW_VALUES:
            is_whole = all(number.is_integer() for number in numbers)
            if is_whole and len({*numbers}) > _IDS * len(numbers):
                return FoundKind(None, "nearly every row has its own value")
            return FoundKind("numeric")
    if name.lower() in _CONTEXT and any(len(str(value)) > _LONG for value in known):
        return FoundKind("context")
    if len(distinct) * _ROWS_A_VALUE > len(known):
        wrong = [value for value in known if not math.isfinite(parse_number(value, most=math.inf))]
        if 0 < len(wrong) < _MISTAKES * len(known):
            are = "is not a number" if len(wrong) == 1 else "are not numbers"
            return FoundKind(None, f"{len(wrong):,} of {len(known):,} values {are}, such as {wrong[0]!r:.40}")
        return FoundKind(None, "nearly every row has its own value")
    return FoundKind("category")


def _kind_of_lists(name: str, known: Sequence[Any]) -> FoundKind:
    lists = [_listed(value) for value in known]
    tokens = [token for one in lists for token in one]
    if tokens and all(_log_probability(token) is not None for token in tokens):
        return FoundKind("logprobs")
    if name.lower() in _CONTEXT and any(_joined(value) for value in known):
        return FoundKind("context")
    return FoundKind(None, "it holds lists")


@dataclass(frozen=True)
class Features:
    """The columns that a score may read, before a fit has looked at them.

    named : by the user.
    parts : what is made from columns, if the user named it and not the columns; then nobody named their other parts.
    is_auto : whether all other columns that look useful are tried, too.
    found : these other columns.
    """

    named: tuple[Feature, ...] = ()
    is_auto: bool = False
    found: tuple[Feature, ...] = ()
    parts: tuple[str, ...] = ()

    @staticmethod
    def of(value: Any, score: LearnedScore | None, columns: Collection[str]) -> Features:
        """Return the features of a model: its parameter, those that its score names, and the columns of its groups."""
        is_list = isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
        if not is_list and not (isinstance(value, str) and value == "auto"):
            raise InputError(
                f'features is {shown(value)}; expected "auto", or names such as ["tenant", "price:numeric"].'
            )
        named = [Feature(name, "category") for name in columns]
        if score is not None:
            kinds: tuple[tuple[Kind, Sequence[str]], ...]
            kinds = ("category", score.columns), ("numeric", score.numbers), ("confidence", score.confidences)
            named += [Feature(name, kind) for kind, names in kinds for name in names]
        texts = {} if value == "auto" else {text: Feature.named(text) for text in value}
        parts = {text for text, one in texts.items() if text in one.inputs and text != one.name}
        wholes = {one.name for one in (*named, *(one for text, one in texts.items() if text not in parts))}
        parts -= {text for text in parts if texts[text].name in wholes}
        named += texts.values()
        for feature in named:
            if feature.name in ("question", "answer", "confidence", "correct"):
                raise InputError(f"{feature.name} cannot be a feature; a score reads other columns beside it.")
        features = tuple({one.name: one for one in named}.values())
        return Features(features, value == "auto" and score is None, parts=tuple(sorted(parts)))

    def over(self, names: Iterable[str], taken: Collection[str]) -> Features:
        """Return the features with all columns that are to be tried; `taken` have another use."""
        names = list(names)
        # A column may have the name of a part of another one.
        if columns := {text: Feature(text) for text in self.parts if text in names}:
            parts = tuple(text for text in self.parts if text not in columns)
            only = {Feature.named(text).name for text in columns} - {Feature.named(text).name for text in parts}
            named = (*(one for one in self.named if one.name not in only), *columns.values())
            return replace(self, named=named, parts=parts).over(names, taken)
        for feature in self.named:
            column, _, kind = feature.name.rpartition(":")
            if column in names and feature.name not in names:
                kinds = ", ".join(get_args(Kind))
                raise InputError(f"{feature.name}: there is no kind of column {kind!r}; the kinds are {kinds}.")
        known = {*NEVER_TRIED, *taken, *(feature.name for feature in self.named)}
        return replace(self, found=tuple(Feature(name) for name in names if self.is_auto and name not in known))


def named_again(features: Iterable[Feature], used: Collection[str]) -> tuple[str, ...]:
    """Return the names of features for another fit, of which scores use these inputs.

    >>> named_again([Feature("tenant", "category"), Feature("tokens", "logprobs")], ["tenant", "tokens: sum"])
    ('tenant:category', 'tokens: sum')
    """
    texts = list[str]()
    for one in features:
        parts = [name for name in one.inputs if name in used and name != one.name]
        texts += parts or [f"{one.name}:{one.kind}"]
    return tuple(texts)


def parameters_of(features: Iterable[Feature]) -> dict[str, list[str]]:
    """Return the parameters of a score that reads features: the names of its inputs by their kind."""
    out: dict[str, list[str]] = {"columns": [], "numbers": [], "confidences": []}
    for feature in features:
        out[{"category": "columns", "confidence": "confidences"}.get(feature.kind or "", "numbers")] += feature.inputs
    return out


def _is_json_list(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip().startswith("[")


def _listed(value: Any) -> list[Any]:
    """Return a list as such, also if it is written as JSON, as in CSV files; empty for other values."""
    if _is_json_list(value):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def _log_probability(token: Any) -> float | None:
    """Return the log-probability of a token, given as a number or as OpenAI's object; None for other values."""
    number = token.get("logprob") if isinstance(token, dict) else token
    if isinstance(number, bool) or not isinstance(number, int | float | np.number):
        return None
    return float(number) if number <= 1e-6 else None


def _token_numbers(tokens: Sequence[Any]) -> list[float]:
    """Return the sum, mean and least of log-probabilities, and the mean entropy of the alternatives."""
    found = [_log_probability(token) for token in tokens]
    known = np.array([number for number in found if number is not None], dtype=np.float64)
    if not len(known) or len(known) < len(tokens):
        return [np.nan] * 4
    known = np.maximum(known, -1e6)  # servers write -inf, or -9999
    entropies = [
        _entropy(token["top_logprobs"]) for token in tokens if isinstance(token, dict) and token.get("top_logprobs")
    ]
    return [known.sum(), known.mean(), known.min(), float(np.mean(entropies)) if entropies else np.nan]


def _entropy(alternatives: Sequence[Any]) -> float:
    """Return the entropy of a token among its alternatives; what they leave over counts as one more."""
    found = [_log_probability(one) for one in alternatives]
    p = np.exp([number for number in found if number is not None])
    p = np.append(p, max(0.0, 1.0 - p.sum()))
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def _joined(value: Any) -> str:
    """Return texts of a context as one text; "" if there are none."""
    if isinstance(value, dict):
        return " ".join(_joined(value[key]) for key in ("text", "content", "page_content") if key in value)
    parts = _listed(value)
    if parts:
        return "\n".join(_joined(part) for part in parts)
    return value if isinstance(value, str) else ""


def _passages(value: Any) -> list[str]:
    return [text for text in map(_joined, _listed(value) or [value]) if text]


def _overlap(passages: Sequence[list[str]], questions: Sequence[str], answers: Sequence[str]) -> list[Floats]:
    """Return which share of the words of answers, and of questions, is in the contexts; NaN without a context."""
    contexts = ["\n".join(texts) for texts in passages]
    has_context = np.array([bool(text) for text in contexts])
    shares = [PairTexts.of(contexts, list(texts)).form[:, -1] for texts in (answers, questions)]
    return [np.where(has_context, share, np.nan) for share in shares]


def _cosines(
    passages: Sequence[list[str]], questions: Sequence[str], answers: Sequence[str], embed: Embed | None
) -> list[Floats]:
    """Return the largest cosine of answers, and of questions, with a passage; NaN without a passage or a text.

    One passage is enough to support an answer; the others would only lower an average.
    """
    out = np.full((2, len(passages)), np.nan)
    if embed is None:
        return list(out)
    row = np.repeat(np.arange(len(passages)), [len(texts) for texts in passages])
    every = [text for texts in passages for text in texts]
    for first in range(0, len(every), _PASSAGES_A_STEP):
        step = slice(first, first + _PASSAGES_A_STEP)
        rows, own = np.unique(row[step], return_inverse=True)
        vectors = embed(every[step])
        for found, texts in zip(out, (answers, questions), strict=True):
            cosines = (vectors * embed([texts[at] for at in rows])[own]).sum(axis=1, dtype=np.float64)
            np.fmax.at(found, row[step], cosines)
    for found, texts in zip(out, (answers, questions), strict=True):
        found[[not text.strip() for text in texts]] = np.nan
    return list(out)
