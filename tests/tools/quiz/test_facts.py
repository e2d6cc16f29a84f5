"""Facts: some typed again independently, and properties of all of them."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from tools.quiz.facts import facts

from tests.tables import each
from tests.tools.quiz.rows import everything

KNOWN = {
    "What is the capital of Kazakhstan?": "Astana",
    "What is the capital of Burundi?": "Gitega",
    "What is the capital of Australia?": "Canberra",
    "What is the capital of Myanmar?": "Naypyidaw",
    "What is the capital of the United States?": "Washington DC",
    "What is the capital of Georgia (the country)?": "Tbilisi",
    "What is the capital of the US state of Georgia?": "Atlanta",
    "What is the capital of the US state of Minnesota?": "St. Paul",
    "Which US state has Montpelier as its capital?": "Vermont",
    "On which of the seven continents is Suriname?": "South America",
    "On which of the seven continents is Honduras?": "North America",
    "What is the currency of Hungary?": "forint",
    "What is the currency of Poland?": "zloty",
    "What is the currency of China?": "yuan",
    "Which language does the government of Mozambique mainly use?": "Portuguese",
    "Which language does the government of Iran mainly use?": "Farsi",
    "In which country is the city of Timbuktu?": "Mali",
    "In which country is the city of Izmir?": "Turkey",
    "What is the chemical symbol of tungsten?": "W",
    "What is the chemical symbol of potassium?": "K",
    "Which chemical element has the symbol Sb?": "antimony",
    "Which chemical element has the symbol Al?": "aluminum",
    "Which chemical element has the symbol Og?": "oganesson",
    "What is the atomic number of gold?": "79",
    "What is the atomic number of uranium?": "92",
    "What is the atomic number of iron?": "26",
    "Who wrote 'Middlemarch'?": "George Eliot",
    "Who wrote 'One Hundred Years of Solitude'?": "Gabriel Garcia Marquez",
    "Who wrote 'Crime and Punishment'?": "Dostoyevsky",
    "Who directed the film 'Rashomon'?": "Kurosawa",
    'Who directed the film "Schindler\'s List"?': "Steven Spielberg",
    "Who painted The Night Watch?": "Rembrandt",
    "Who composed La traviata?": "Verdi",
    "Who composed the New World Symphony?": "Dvorak",
    "In which year was the Battle of Hastings fought?": "1066",
    "In which year did the Berlin Wall fall?": "1989",
    "In which year was the Suez Canal opened?": "1869",
    "What is a young hare called?": "leveret",
    "How many hearts does an octopus have?": "three",
    "Is a scorpion an insect, an arachnid or a crustacean?": "arachnid",
    "What is the past participle of the English verb 'swim'?": "swum",
    "What is the simple past tense of the English verb 'teach'?": "taught",
    "What is the plural of the English noun 'criterion'?": "criteria",
    "What is the Spanish word for 'butterfly'?": "la mariposa",
    "What is the German word for 'key' (for a lock)?": "Schlüssel",
    "How many yards are in 4 miles?": "7,040",
    "How many square metres are in 3 hectares?": "30000",
}
AREAS = (
    *("Russia", "Australia", "India", "Kazakhstan", "Mexico", "Peru", "Ethiopia", "Chile", "Spain", "Sweden"),
    *("Japan", "Italy", "Romania", "Greece", "Iceland", "Austria", "Ireland", "Denmark", "Belgium", "Slovenia"),
)


@cache
def truths():
    return {row.question: row.ground_truth for row in everything()}


@each("question, answer", KNOWN.items())
def test_well_known_facts(question, answer):
    assert answer in truths()[question]


def test_countries_from_the_largest_to_the_smallest():
    areas = {forms[0]: float(area[0]) for forms, *_, area in facts("countries") if area}
    ordered = [areas[country] for country in AREAS]
    assert ordered == sorted(ordered, reverse=True)
    assert all(0 < area < 20_000 for area in areas.values())


@pytest.mark.parametrize("name", ["capitals", "currencies", "languages", "continents"])
def test_disputed_and_changing_facts_are_not_asked(name):
    asked = {row.id for row in everything() if row.subject == name}
    left_out = {
        "capitals": ("israel", "bolivia", "south-africa", "indonesia", "equatorial-guinea", "yemen", "sri-lanka"),
        "currencies": ("bulgaria", "croatia", "zimbabwe", "venezuela", "el-salvador"),
        "languages": ("mali", "niger", "burkina-faso", "belgium", "switzerland"),
        "continents": ("russia", "turkey", "azerbaijan", "kazakhstan", "cyprus"),
    }
    assert asked.isdisjoint(f"{name}-{country}" for country in left_out[name])


def test_continents_are_asked_only_for_countries_on_one_continent():
    said = Counter(row.ground_truth for row in everything() if row.subject == "continents")
    assert set(said) == {("Africa",), ("Asia",), ("Europe",), ("North America",), ("South America",)}
    assert said[("South America",)] == 12


def test_elements_are_complete_and_their_symbols_differ():
    symbols = [symbol for _, (symbol,) in facts("elements")]
    assert len(symbols) == len(set(symbols)) == 118
    at = {number: symbols[number - 1] for number in (1, 2, 10, 18, 36, 54, 86, 118)}
    assert at == {1: "H", 2: "He", 10: "Ne", 18: "Ar", 36: "Kr", 54: "Xe", 86: "Rn", 118: "Og"}
    assert all(symbol[0].isupper() and symbol[1:].islower() == (len(symbol) == 2) for symbol in symbols)
    assert not any("J" in symbol or "Q" in symbol for symbol in symbols)


def test_every_us_state_is_there_once():
    states = [state for (state,), _ in facts("states")]
    assert len(states) == len(set(states)) == 50
    assert states == sorted(states)


def test_letters_with_marks_may_be_written_without():
    assert {"Brasília", "Brasilia"} <= set(truths()["What is the capital of Brazil?"])
    assert "Jorn Utzon" in truths()["Who designed the Sydney Opera House?"]
    assert "Strasse" in truths()["What is the German word for 'street'?"]


def test_makers_may_be_called_by_their_surname_unless_it_is_shared():
    assert "Austen" in truths()["Who wrote 'Emma'?"]
    assert "Brontë" not in truths()["Who wrote 'Jane Eyre'?"]
    assert "Strauss" not in truths()["Who composed Der Rosenkavalier?"]


@each(
    "name, columns",
    [
        *(("countries", {6}), ("cities", {2}), ("states", {2}), ("elements", {2}), ("units", {4}), ("events", {2})),
        *(("books", {2}), ("films", {2}), ("artworks", {3}), ("animals", {2, 3}), ("verbs", {3}), ("plurals", {2})),
        *(("translations", {3}), ("words", {1})),
    ],
)
def test_tables_are_complete(name, columns):
    rows = list(facts(name))
    assert {len(row) for row in rows} <= columns
    assert all(row[0] for row in rows)
    assert all(form == form.strip() for row in rows for column in row for form in column)
    keys = [row[1] if name == "artworks" else row[0] for row in rows]
    if name != "units":
        assert len(set(keys)) == len(keys)
