"""English forms, and words of other languages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tools.quiz.facts import facts, quoted
from tools.quiz.question import Item, Topic

_INDEFINITE = {
    "Spanish": {"el": "un", "la": "una"},
    "German": {"der": "ein", "die": "eine", "das": "ein"},
}


def _verbs() -> Iterator[Item]:
    for (verb,), past, participle in facts("verbs"):
        yield Item(f"past {verb}", f"What is the simple past tense of the English verb '{verb}'?", past)
        if participle:
            yield Item(f"participle {verb}", f"What is the past participle of the English verb '{verb}'?", participle)


def _plurals() -> Iterator[Item]:
    for (noun,), plurals in facts("plurals"):
        yield Item(noun, f"What is the plural of the English noun {quoted(noun)}?", plurals)


def _with_and_without_article(language: str, noun: str) -> tuple[str, ...]:
    article, _, bare = noun.partition(" ")
    indefinite = _INDEFINITE[language].get(article)
    return (bare, noun, f"{indefinite} {bare}") if indefinite else (noun,)


def _translated(language: str, column: int) -> Callable[[], Iterator[Item]]:
    def items() -> Iterator[Item]:
        for fact in facts("translations"):
            forms = tuple(form for noun in fact[column] for form in _with_and_without_article(language, noun))
            item = Item(fact[0][0], f"What is the {language} word for {quoted(fact[0][0])}?", forms)
            # Hand, Finger, Wind: the German word is the English one.
            if not item.gives_itself_away:
                yield item

    return items


TOPICS = (
    Topic("irregular-verbs", _verbs),
    Topic("plurals", _plurals),
    Topic("spanish", _translated("Spanish", 1)),
    Topic("german", _translated("German", 2)),
)
