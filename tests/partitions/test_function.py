"""Functions of rows as partitions."""

import pytest

from qacal import InputError
from qacal.partitions import Function
from tests.rebuilt import rebuilt


def first_letters(rows):
    return [question[0] if question else None for question in rows["question"]]


def test_labels_of_a_function():
    groups = Function(first_letters)._fit_rows({"question": ["Why?"]})
    assert groups._groups_of({"question": ["Who?", "", "How?"]}).tolist() == ["W", None, "H"]
    assert groups.describe() == {
        "kind": "function",
        "parameters": {"name": "first_letters", "columns": []},
        "n_groups": None,
    }
    assert repr(groups) == "Function(first_letters)"


def test_it_is_given_the_columns_it_names():
    seen = []

    def labels(rows):
        seen.append(sorted(rows))
        return [0, 1]

    rows = {"question": ["a", "b"], "answer": ["c", "d"]}
    assert Function(labels, columns=["answer"])._needs == ("answer",)
    Function(labels, columns=["answer"])._groups_of(rows)
    Function(labels)._groups_of(rows)
    assert seen == [["answer"], ["answer", "question"]]
    with pytest.raises(InputError, match=r"Function\(labels\) needs 'id', and the rows have 'question', 'answer'"):
        Function(labels, columns=["id"])._groups_of(rows)


def test_refusals():
    with pytest.raises(InputError, match="returned 1 labels for the 2 rows of 'question'"):
        Function(lambda rows: [1], name="short")._groups_of({"question": ["a", "b"]})
    with pytest.raises(InputError, match="what one returned is one int; expected a list or column"):
        Function(lambda rows: 1, name="one")._groups_of({"question": ["a", "b"]})
    with pytest.raises(InputError, match="expected something that can be called"):
        Function(3)._groups_of({"question": ["a"]})
    with pytest.raises(InputError, match="expected a list of names"):
        Function(len, columns="question")._fit_rows({"question": ["a"]})
    with pytest.raises(InputError, match="takes columns by name"):
        Function(len)._groups_of(["a"])
    with pytest.raises(InputError, match=r"use Column\('kind'\) in its place"):
        rebuilt(Function(len))
