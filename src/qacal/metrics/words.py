"""Measured numbers as text for people: on the screen and in the report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qacal.metrics.calibration import CalibrationError


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.614), percent(0.9996), percent(0.004)
    ('61%', '99.9%', '0.4%')
    """
    value = 100 * share
    if 0 < value < 1 or 99 < value < 100:
        return f"{min(max(value, 0.1), 99.9):.1f}%"
    return f"{value:.0f}%"


def points(difference: float) -> str:
    """Return the difference of two percents.

    >>> points(0.37), points(-0.012), points(0.01)
    ('37 points', '1.2 points', '1 point')
    """
    value = abs(100 * difference)
    text = f"{value:.0f}" if value >= 9.5 else f"{value:.1f}".removesuffix(".0")
    return f"{text} point{'' if text == '1' else 's'}"


def off_by(error: CalibrationError, *, has_interval: bool = False) -> str:
    """Return the typical error of a score without noise; if none is seen, how large it may be.

    has_interval : also give the 95% interval of an error that is seen.
    """
    is_known = not math.isnan(error.high)
    if math.isnan(error.debiased):
        return "cannot be measured: too few rows"
    if not error.debiased > 0:
        most = f" (at most {points(error.high)} at 95%)" if is_known and error.high > 0 else ""
        return f"shows no error beyond noise{most}"
    if not (is_known and has_interval):
        return f"is off by {points(error.debiased)}"
    low, high = (points(max(end, 0.0)).partition(" ")[0] for end in (error.low, error.high))
    return f"is off by {points(error.debiased)} ({low} to {high} at 95%)"


NONE_SEEN = "none seen"
"""Stands for a debiased error that is not above 0: noise alone would measure as much."""


UNKNOWN = "\N{EN DASH}"
"""Stands for what cannot be measured on so few rows."""


def error_seen(error: float, digits: int = 3) -> str:
    """Return a debiased error for a table.

    >>> error_seen(0.0512), error_seen(-0.02), error_seen(float("nan"))
    ('0.051', 'none seen', '\N{EN DASH}')
    """
    if math.isnan(error):
        return UNKNOWN
    return decimal(error, digits) if error > 0 else NONE_SEEN


def decimal(value: float, digits: int = 3) -> str:
    """Return a rounded number, never as minus zero.

    >>> decimal(-0.0001), decimal(0.12345), decimal(float("nan"))
    ('0.000', '0.123', '')
    """
    if math.isnan(value):
        return ""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "\u2212")


def interval(low: float, high: float, digits: int = 3) -> str:
    """Return an interval.

    >>> interval(0.1, 0.25, 2)
    '0.10 to 0.25'
    """
    return "" if math.isnan(low) or math.isnan(high) else f"{decimal(low, digits)} to {decimal(high, digits)}"
