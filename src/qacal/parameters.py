"""get_params and set_params as in scikit-learn, without importing scikit-learn."""

from __future__ import annotations

import inspect
from typing import Any, Self, TypeGuard

import numpy as np

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
    except ValueError:  # Python refuses to write whole numbers of thousands of digits
        return f"a very large {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


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

    def _require_savable(self) -> None:
        """Raise if an estimator of this class can never be saved."""

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
