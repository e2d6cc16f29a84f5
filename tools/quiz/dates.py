"""Weekdays, days between dates, and years of events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from tools.quiz.facts import facts
from tools.quiz.numbers import number_forms
from tools.quiz.question import Draws, Item, Topic, drawn

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = (("Mon",), ("Tue", "Tues"), ("Wed",), ("Thu", "Thur", "Thurs"), ("Fri",), ("Sat",), ("Sun",))
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def _written(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def _day(draws: Draws, first: date, last: date) -> date:
    return first + timedelta(days=draws.number(0, (last - first).days))


def _weekday(draws: Draws) -> Item:
    day = _day(draws, date(1900, 1, 1), date(2025, 12, 31))
    number = day.weekday()
    return Item(day.isoformat(), f"What day of the week was {_written(day)}?", (_WEEKDAYS[number], *_SHORT[number]))


def _days_between(draws: Draws) -> Item:
    start = _day(draws, date(1950, 1, 1), date(2024, 12, 31))
    # Within a month this is a subtraction; across the end of a month few LLMs are correct.
    days = draws.number(2, 40)
    end = start + timedelta(days=days)
    question = f"How many days after {_written(start)} is {_written(end)}?"
    return Item(f"{start} {end}", question, number_forms(days, "days"))


def _years() -> Iterator[Item]:
    for (year,), (event,) in facts("events"):
        yield Item(year, f"In which year {event}?", (year, f"{year} AD"))


TOPICS = (
    drawn("weekdays", 130, _weekday),
    drawn("days-between", 120, _days_between),
    Topic("years", _years),
)
