"""Countries, cities and states."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tools.quiz.facts import asked, facts
from tools.quiz.question import Draws, Item, Topic, drawn, shuffled

_CAPITAL, _CONTINENT, _CURRENCY, _LANGUAGE, _AREA = 1, 2, 3, 4, 5
# Areas of countries differ by some percent between sources; the answer must be the same in all of them.
_CLEAR, _FAR = 1.25, 4.0


def _with_place(place: str, cities: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{city}, {_bare(place)}" for city in cities)


def _with_code(country: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return further usual forms of a currency: with its code, and in a sentence."""
    codes = [name for name in names if len(name) == 3 and name.isupper()]
    plain = [name for name in names if name not in codes]
    return (*(f"{name} ({code})" for code in codes[:1] for name in plain), *(f"{country} uses the {n}" for n in plain))


def _with_word(country: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{language} language" for language in languages)


def _bare(country: str) -> str:
    """Return a country without its article, and without the words in brackets that distinguish it from a state."""
    return country.removeprefix("the ").partition(" (")[0]


def _states() -> Iterator[Item]:
    for (state, *_), capitals in facts("states"):
        forms = (*capitals, *_with_place(state, capitals))
        if state not in capitals[0]:
            yield Item(state, f"What is the capital of the US state of {state}?", forms)
            yield Item(f"of {capitals[0]}", f"Which US state has {capitals[0]} as its capital?", (state,))


@cache
def _areas() -> dict[tuple[str, ...], float]:
    return {fact[0]: float(fact[_AREA][0]) for fact in facts("countries") if fact[_AREA]}


def _larger(draws: Draws) -> Item | None:
    areas = _areas()
    small, large = sorted(draws.some(sorted(areas), 2), key=areas.__getitem__)
    if not _CLEAR <= areas[large] / areas[small] <= _FAR:
        return None
    one, two = choices = shuffled((small[0], large[0]))
    question = f"Which country has the larger area, {one} or {two}?"
    return Item(" ".join(sorted(choices)), question, (*large, _bare(large[0])), choices)


TOPICS = (
    Topic("capitals", asked("countries", "What is the capital of {}?", _CAPITAL, _with_place)),
    Topic("continents", asked("countries", "On which of the seven continents is {}?", _CONTINENT)),
    Topic("currencies", asked("countries", "What is the currency of {}?", _CURRENCY, _with_code)),
    Topic(
        "languages", asked("countries", "Which language does the government of {} mainly use?", _LANGUAGE, _with_word)
    ),
    Topic("cities", asked("cities", "In which country is the city of {}?")),
    Topic("us-states", _states),
    drawn("larger-country", 150, _larger),
)
