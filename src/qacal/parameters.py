"""Hyperparameters with scikit-learn's manners, without importing scikit-learn."""

from __future__ import annotations

import inspect
from typing import Any, Self

from qacal.errors import InputError


class HasParameters:
    """Base of everything that is configured by keyword-only hyperparameters, stored untouched.

    `sklearn.base.clone` and `GridSearchCV` need no more than this.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyperparameters by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set hyperparameters by name."""
        known = list(self._defaults())
        for name, value in params.items():
            if name not in known:
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has {known}.")
            setattr(self, name, value)
        return self

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
        parameters = inspect.signature(cls).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters}
