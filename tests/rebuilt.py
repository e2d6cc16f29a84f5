"""A fitted value as loaded from a file, with all its constraints checked."""

from typing import Any

from qacal.model.saved import CLASSES
from qacal.storage import flatten, unflatten


def rebuilt(value: Any) -> Any:
    """Return the value from its plain data and arrays; raise if no fit can have made it."""
    return unflatten(type(value), *flatten(value, CLASSES), CLASSES)
