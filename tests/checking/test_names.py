"""Which column is which, by name and by content."""

import pytest

import qacal
from qacal.checking.names import find_columns
from qacal.records.table import as_table
from tests.checking.rows import changed, labelled, renamed


def found(rows, **given):
    return find_columns(as_table(rows), given)


@pytest.mark.parametrize(
    "names",
    [
        {"question": "prompt", "answer": "model_answer", "confidence": "conf", "correct": "is_correct"},
        {"question": "query", "answer": "response", "confidence": "probability", "correct": "label"},
        {"question": "userInput", "answer": "Output", "confidence": "Confidence", "correct": "isCorrect"},
        {"question": "input", "answer": "completion", "confidence": "score", "correct": "verdict"},
        {
            "question": "question_en",
            "answer": "gpt_answer",
            "confidence": "confidence in %",
            "correct": "answer correct",
        },
        {"question": "Frage", "answer": "Antwort", "confidence": "Sicherheit", "correct": "richtig"},
        {"answer": "Réponse", "confidence": "confiance", "correct": "juste"},
    ],
)
def test_other_names_are_guessed(names):
    rows = renamed(labelled(), **names)
    assert found(rows).mapping == names
    assert set(found(rows).guessed) == set(names)


def test_columns_with_unknown_names_are_recognised_by_content():
    rows = renamed(labelled(), confidence="pewnosc", correct="poprawna")
    assert found(rows).mapping == {"confidence": "pewnosc", "correct": "poprawna"}
    two = [{**row, "other": row["pewnosc"] / 2} for row in rows]
    assert "confidence" in found(two).missing


def test_labels_in_words_of_other_languages_are_guessed_by_their_name():
    for name in ("richtig", "korrekt", "juste", "correcto"):
        rows = renamed(changed(labelled(), "correct", lambda y: "ja" if y else "nein"), correct=name)
        assert found(rows).mapping == {"correct": name}
        assert found([{**row, "ok": i % 2} for i, row in enumerate(rows)]).mapping == {"correct": "ok"}


def test_a_score_of_zeros_and_ones_is_a_label():
    rows = renamed(labelled(), correct="score")
    assert found(rows).mapping == {"correct": "score"}


def test_the_name_of_a_prompt_is_not_a_question():
    rows = [{**row, "prompt": "v1"} for row in labelled()]
    assert found(rows).mapping == {}
    assert found(rows).names["prompt"] == "prompt"
    asked = renamed(rows, question="text_of_it", prompt="prompt")
    assert "question" in found([{k: v for k, v in row.items() if k != "text_of_it"} for row in asked]).missing
    texts = [{**row, "prompt": row["question"]} for row in labelled()]
    assert found(texts).mapping == {}


def test_the_expected_answer_is_not_taken_for_the_given_one():
    rows = [{**row, "expected_answer": "x", "reply": row["answer"]} for row in labelled()]
    without = [{name: value for name, value in row.items() if name != "answer"} for row in rows]
    assert found(without).mapping == {"answer": "reply"}
    assert found([{**row, "model_answer": "no"} for row in labelled()]).rival_answer == "model_answer"


def test_declared_names_are_used():
    rows = [{**row, "conf": 0.5} for row in labelled()]
    assert found(rows, confidence="conf").names["confidence"] == "conf"
    assert found(rows, confidence="konf").names["confidence"] == "confidence"


def test_confidences_in_words_are_found():
    rows = changed(labelled(), "confidence", lambda c: "high" if c > 0.7 else "low")
    assert found(renamed(rows, confidence="certainty")).mapping == {"confidence": "certainty"}


@pytest.mark.parametrize("name", ["is_wrong", "incorrect", "Hallucinated", "answer_error"])
def test_a_label_of_wrong_answers_is_not_taken_for_correct(name):
    rows = [
        {"prompt_text": f"What is {at} + {at}?", "answer": str(at), "confidence": 0.5 + at / 100, name: at % 2}
        for at in range(40)
    ]
    found = find_columns(as_table(rows), {})
    assert found.mapping == {"question": "prompt_text"}
    assert found.reverse == name
    said = qacal.check(rows)
    assert f"{name!r} seems to be the reverse of correct: 1 means wrong" in " ".join(str(said).split())
