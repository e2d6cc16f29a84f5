"""What parameters and saved fields may be; get_params and set_params as in scikit-learn, without importing it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError

MOST = 2**62
"""No whole number that counts anything is larger."""


def is_whole(value: Any, least: int, most: int = MOST) -> TypeGuard[int]:
    """Return whether a value is a whole number (of Python or numpy) in a range; True and False are not.

    >>> is_whole(50, 1), is_whole(0, 1), is_whole(50.0, 1), is_whole("50", 1), is_whole(True, 1)
    (True, False, False, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)


def is_number(value: Any, low: float, high: float) -> TypeGuard[float]:
    """Return whether a value is a number (of Python or numpy) in a range; True, False and NaN are not.

    >>> is_number(0.1, 0, 1), is_number(np.float64(2.0), 0, 1), is_number("0.1", 0, 1), is_number(float("nan"), 0, 1)
    (True, False, False, False)
    """
    is_numeric = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_numeric and bool(low <= value <= high)


def require_kind(value: Any, kind: Any, name: str, expected: str) -> None:
    """Raise if a parameter has another type; None, which stands for a default, passes.

    >>> require_kind("law", dict, "columns", 'names by name, such as {"confidence": "score"}')
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: columns is 'law'; expected names by name, such as {"confidence": "score"}.
    """
    if value is not None and not isinstance(value, kind):
        raise InputError(f"{name} is {shown(value)}; expected {expected}.")


def shown(value: Any) -> str:
    """Return a value as errors show it, at most 80 characters long.

    >>> shown("0.1"), shown(np.float64(2.0)), shown(10**5000)
    ("'0.1'", '2.0', 'a very large int')
    """
    try:
        text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    except (ValueError, RecursionError):  # Python writes no numbers of thousands of digits, and no very deep lists
        return f"a very large {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


# Constraints of saved fields: the annotations of fitted dataclasses and estimators say what their fields hold


class Axes:
    """The length of each axis: a number, or a name. Axes with the same name in one value have the same length.

    may_be_empty : whether an axis may have length 0.
    """

    def __init__(self, *lengths: int | str, may_be_empty: bool = True) -> None:
        self.lengths, self.may_be_empty = lengths, may_be_empty


@dataclass(frozen=True)
class Offsets:
    """Offsets that cut a named axis into pieces: from 0 to its length, and no piece is empty."""

    axis: str


@dataclass(frozen=True)
class Between:
    """Numbers from `low` to `high`; NaN is refused."""

    low: float
    high: float


@dataclass(frozen=True)
class Rising:
    """Numbers that rise along the last axis.

    strictly : refuse equal neighbours.
    within : the field with the offsets of pieces, each of which rises by itself.
    """

    strictly: bool = True
    within: str | None = None


MODERATE = Between(-1e300, 1e300)
"""A line a + b x of larger numbers could overflow; no fit comes near."""

FACTORS = Between(-1e50, 1e50)
"""Products of several of these, and sums of such products, are finite."""

Constraint: TypeAlias = Axes | Offsets | Between | Rising


def require_constraints(constraints: Mapping[str, Sequence[Constraint]], values: dict[str, Any], name: str) -> None:
    """Raise if a field does not meet one of its constraints.

    constraints, values : by the names of fields.
    name : of the value that has the fields.

    >>> require_constraints({"high": [Between(0, 1)]}, {"high": np.array([0.5, 1.5])}, "maps_")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: maps_.high[1] is 1.5; expected 0 to 1.
    """
    order = get_args(Constraint)  # offsets refer to lengths, and pieces that rise to offsets
    pairs = [(at, one) for at, several in constraints.items() for one in several]
    lengths: dict[str | int, int] = {}
    for at, constraint in sorted(pairs, key=lambda pair: order.index(type(pair[1]))):
        value, where = values[at], f"{name}.{at}"
        if value is None:
            continue
        array = np.asarray(value)
        if isinstance(constraint, Axes):
            if array.ndim == len(constraint.lengths):
                for axis, length in zip(constraint.lengths, array.shape, strict=True):
                    lengths.setdefault(axis, axis if isinstance(axis, int) else length)
            expected = [lengths.get(axis, axis) for axis in constraint.lengths]
            require([*array.shape] == expected, f"{where} has shape {[*array.shape]}; expected {expected}.")
            require(constraint.may_be_empty or array.size > 0, f"{where} is empty; expected one value or more.")
        elif isinstance(constraint, Offsets):
            end = lengths[constraint.axis]
            is_cut = array.ndim == 1 and len(array) > 0 and array[0] == 0 and array[-1] == end and rises(array)
            require(is_cut, f"{where} must rise from 0 to {end}, and does not.")
        elif isinstance(constraint, Between):
            is_good = (array >= constraint.low) & (array <= constraint.high)
            if not is_good.all():
                bad = int(np.argmin(is_good))
                place = f"{where}[{bad}]" if array.ndim else where
                raise InputError(f"{place} is {array.flat[bad]}; expected {constraint.low} to {constraint.high}.")
        elif isinstance(constraint, Rising):
            below, above = array[..., :-1], array[..., 1:]
            is_rising = above > below if constraint.strictly else above >= below
            if constraint.within is not None:
                is_rising[values[constraint.within][1:-1] - 1] = True
            require(bool(is_rising.all()), f"{where} must rise, and does not.")


def rises(values: NDArray[Any]) -> bool:
    """Return whether each value is above the one before it."""
    return bool((values[1:] > values[:-1]).all())


def require(condition: bool, complaint: str) -> None:
    """Raise `InputError` unless a condition holds.

    >>> require(2 + 2 == 5, "sums are off; count again.")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: sums are off; count again.
    """
    if not condition:
        raise InputError(complaint)


# Estimators


class HasParameters:
    """Base of everything that is configured by keyword-only hyperparameters, stored untouched.

    `sklearn.base.clone` and `GridSearchCV` need no more than this.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyperparameters by name.

        deep : also the hyperparameters of hyperparameters, such as `calibrator__points_per_bin`.
        """
        params = {name: getattr(self, name) for name in self._defaults()}
        for name, part in list(params.items()):
            if deep and isinstance(part, HasParameters):
                params |= {f"{name}__{inner}": value for inner, value in part.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set hyperparameters by name; `calibrator__points_per_bin=20` sets `points_per_bin` of the calibrator.

        A part is set before its own parameters, so that one call can set both.
        """
        names = list(self._defaults())
        for path, value in sorted(params.items(), key=lambda item: "__" in item[0]):
            name, separator, inner = path.partition("__")
            if name not in names:
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has {names}.")
            if not separator:
                setattr(self, name, value)
                continue
            part = getattr(self, name)
            if not isinstance(part, HasParameters):
                raise InputError(f"{path} cannot be set: {name} is {shown(part)}, which has no parameters.")
            part.set_params(**{inner: value})
        return self

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        """Return a fitted estimator from its parameters and its attributes, which end in "_"."""
        estimator = cls(**{name: value for name, value in values.items() if not name.endswith("_")})
        vars(estimator).update({name: value for name, value in values.items() if name.endswith("_")})
        return estimator

    def __repr__(self) -> str:
        """Show what differs from the defaults."""
        changed = (
            f"{name}={value!r}"
            for name, default in self._defaults().items()
            if (value := getattr(self, name)) != default
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
