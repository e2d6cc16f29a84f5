"""Saved scores come back as they were; what no fit can have made is refused, or at least answers in [0, 1]."""

import copy
import json

import numpy as np
import pytest

from qacal import InputError
from qacal.calibrators.score import LearnedScore
from tests.calibrators.score.test_learned import answers, score

ROWS, Y = answers()
FEW = {name: values[:12] for name, values in ROWS.items()}
NAN, GONE = float("nan"), object()


def curved():
    """Confidence and correctness bent so that curves win."""
    rng = np.random.default_rng(0)
    h = rng.choice(np.linspace(0, 1, 11), 2000)
    tokens = rng.choice(np.linspace(0, 1, 11), 2000)
    y = rng.random(2000) < np.where(h > 0.75, 0.85, 0.35) * np.where(tokens > 0.35, 1, 0.3)
    return LearnedScore(text=False, confidences=["tokens"]).fit({"confidence": h, "tokens": tokens}, y)


FITTED = {
    "rich": score().fit(ROWS, Y),
    "text": LearnedScore().fit(ROWS, Y),
    "columns": LearnedScore(text=False, columns=["topic"]).fit(ROWS, Y),
    "curve": curved(),
    "stated": LearnedScore().fit(ROWS, Y, ids=np.zeros(400, dtype=int)),
}
SAVED = {name: fitted.state() for name, fitted in FITTED.items()}


def test_these_are_different_scores():
    assert FITTED["rich"].chosen.endswith("of 2 confidences + columns + text")
    assert FITTED["curve"].chosen == "pooled curve of 2 confidences"


@pytest.mark.parametrize("name", SAVED)
def test_what_was_saved_loads_and_answers_alike(name):
    plain, arrays = SAVED[name]
    again = LearnedScore.from_state(json.loads(json.dumps(plain, allow_nan=False)), copy.deepcopy(arrays))
    np.testing.assert_array_equal(again.predict(ROWS), FITTED[name].predict(ROWS))
    assert again.tried_ == FITTED[name].tried_
    assert again.chosen == FITTED[name].chosen
    assert (again.rows_, again._needs) == (FITTED[name].rows_, FITTED[name]._needs)
    assert json.dumps(again.state()[0]) == json.dumps(plain)


def test_a_text_and_a_number_stay_what_they_are():
    rng = np.random.default_rng(0)
    kinds = [1, "1", 2.5, True, "x"]
    at = rng.integers(0, 5, 1000)
    rows = {"confidence": np.full(1000, 0.7), "tenant": [kinds[k] for k in at]}
    fitted = LearnedScore(text=False, columns=["tenant"]).fit(rows, rng.random(1000) < (at + 1) / 6)
    plain, arrays = fitted.state()
    again = LearnedScore.from_state(json.loads(json.dumps(plain)), arrays)
    np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))


def broken(name, *steps, to=GONE):
    """Return a saved state in which the entry at the end of `steps` is another, or is gone."""
    plain, arrays = copy.deepcopy(SAVED[name])
    place = {"plain": plain, "arrays": arrays}
    for step in steps[:-1]:
        place = place[step]
    if to is GONE:
        del place[steps[-1]]
    else:
        place[steps[-1]] = to(place[steps[-1]]) if callable(to) else to
    return plain, arrays


def of(value):
    return lambda array: np.full_like(array, value)


def first(value):
    def changed(array):
        array = array.copy()
        array.flat[0] = value
        return array

    return changed


@pytest.mark.parametrize(
    ("message", "name", "steps", "to"),
    [
        ("does not, or has more", "rich", ("plain", "tried"), GONE),
        ("does not, or has more", "rich", ("plain", "code"), "import os"),
        ("parameters lacks", "rich", ("plain", "parameters", "text"), GONE),
        ("parameters has", "rich", ("plain", "parameters", "shell"), True),
        ("parameters.text is 1", "rich", ("plain", "parameters", "text"), 1),
        ("columns is", "rich", ("plain", "parameters", "columns"), [7]),
        ("columns is", "stated", ("plain", "parameters", "columns"), ["embedding"]),
        ("confidences is", "stated", ("plain", "parameters", "confidences"), [3]),
        ("expected a list", "rich", ("plain", "parameters", "columns"), "topic"),
        ("read what its parameters do not name", "rich", ("plain", "parameters", "columns"), []),
        ("read what its parameters do not name", "rich", ("plain", "parameters", "confidences"), []),
        ("read what its parameters do not name", "rich", ("plain", "parameters", "text"), False),
        ("objective is 'x'", "rich", ("plain", "parameters", "objective"), "x"),
        ("rests on 0 rows", "rich", ("plain", "rows"), 0),
        ("rows is '3'", "rich", ("plain", "rows"), "3"),
        ("is a list", "rich", ("plain", "tried"), {}),
        ("one is chosen", "rich", ("plain", "tried"), lambda tried: [t | {"is_chosen": True} for t in tried]),
        ("one is chosen", "rich", ("plain", "tried"), lambda tried: [t | {"is_chosen": False} for t in tried]),
        ("log_loss is nan", "rich", ("plain", "tried", 0, "log_loss"), NAN),
        ("maps has", "rich", ("plain", "maps", "extra"), 1),
        ("maps lacks", "rich", ("plain", "maps", "centre"), GONE),
        ("centre is nan", "rich", ("plain", "maps", "centre"), NAN),
        ("effects\\[0\\] is 1e\\+60", "rich", ("plain", "maps", "centre"), 1e60),
        ("pooled.kind is 'x'", "rich", ("plain", "maps", "pooled", "kind"), "x"),
        ("arrays .'more'.", "rich", ("arrays", "more"), np.zeros(2)),
        ("fixed is missing", "rich", ("arrays", "fixed"), GONE),
        ("fixed is of int64", "rich", ("arrays", "fixed"), np.zeros(2, dtype=np.int64)),
        ("fixed has shape", "rich", ("arrays", "fixed"), np.zeros(3)),
        ("fixed has shape", "stated", ("arrays", "fixed"), np.zeros(2)),
        ("text has shape", "stated", ("arrays", "text"), np.zeros(1)),
        ("text has shape", "rich", ("arrays", "text"), np.zeros(3)),
        ("text_slopes has shape", "rich", ("arrays", "text_slopes"), np.zeros(25)),
        ("shifts has shape", "rich", ("arrays", "shifts"), np.zeros((3, 1))),
        ("level_slopes has shape", "rich", ("arrays", "level_slopes"), np.zeros(0)),
        ("effects\\[0\\] is nan", "rich", ("arrays", "shifts"), first(NAN)),
        ("effects\\[0\\] is inf", "rich", ("arrays", "text"), first(np.inf)),
        ("effects\\[0\\] is 1e\\+299", "rich", ("arrays", "text"), first(1e299)),
        ("column\\[0\\] is 1", "rich", ("arrays", "levels.column"), first(1)),
        ("column\\[0\\] is -1", "rich", ("arrays", "levels.column"), first(-1)),
        ("column has shape", "rich", ("arrays", "levels.column"), np.zeros(2, dtype=np.int64)),
        ("have names", "rich", ("plain", "maps", "levels", "names"), [3]),
        ("column has shape", "rich", ("plain", "maps", "levels", "labels"), ["law"]),
        ("has a value twice", "rich", ("plain", "maps", "levels", "labels"), ["law", "art", "law"]),
        ("has a value twice", "rich", ("plain", "maps", "levels", "labels"), ["law", 1, True]),
        ("labels\\[0\\] is None", "rich", ("plain", "maps", "levels", "labels"), [None, 1, 2]),
        ("are tables", "rich", ("arrays", "kernel.axes"), np.zeros(5)),
        ("is empty", "rich", ("arrays", "kernel.axes"), np.zeros((5, 0))),
        ("do not fit", "rich", ("arrays", "kernel.landmarks"), np.zeros((2, 2))),
        ("mean has shape", "rich", ("arrays", "kernel.mean"), np.zeros(4)),
        ("axes\\[0\\] is 1e\\+101", "rich", ("arrays", "kernel.axes"), first(1e101)),
        ("landmarks\\[0\\] is 1e\\+50", "rich", ("arrays", "kernel.landmarks"), first(1e50)),
        ("weights\\[0\\] is 1e\\+99", "rich", ("arrays", "kernel.weights"), first(1e99)),
        ("offset\\[0\\] is nan", "rich", ("arrays", "kernel.offset"), first(NAN)),
        ("reads one confidence or more", "rich", ("arrays", "pooled.slopes"), np.zeros(0)),
        ("slopes has shape \\(\\)", "rich", ("arrays", "pooled.slopes"), np.array(1.0)),
        ("lacking has shape", "rich", ("arrays", "pooled.lacking"), np.zeros(3)),
        ("logits\\[0\\] is nan", "rich", ("arrays", "pooled.lacking"), first(NAN)),
        ("logits\\[0\\] is 1e\\+300", "rich", ("arrays", "pooled.slopes"), first(1e300)),
        ("knot has shape \\(\\)", "curve", ("arrays", "pooled.knot"), np.array(0.5)),
        ("height has shape", "curve", ("arrays", "pooled.height"), lambda array: array[1:]),
        ("must rise from 0", "curve", ("arrays", "pooled.offset"), of(0)),
        ("must rise from 0", "curve", ("arrays", "pooled.offset"), first(-1)),
        ("offset has shape", "curve", ("arrays", "pooled.offset"), lambda array: array[:-1]),
        ("confidence\\[0\\] is nan", "curve", ("arrays", "pooled.knot"), first(NAN)),
        ("confidence\\[0\\] is 2.0", "curve", ("arrays", "pooled.knot"), first(2.0)),
        ("knots of a shape must rise", "curve", ("arrays", "pooled.knot"), first(0.99)),
        ("a shape falls", "curve", ("arrays", "pooled.height"), first(40.0)),
        ("logits\\[0\\] is inf", "curve", ("arrays", "pooled.height"), first(np.inf)),
    ],
)
def test_what_no_fit_can_have_made_is_refused(message, name, steps, to):
    plain, arrays = broken(name, *steps, to=to)
    with pytest.raises(InputError, match=message):
        LearnedScore.from_state(plain, arrays)


def test_lines_with_knots_are_refused():
    plain, arrays = copy.deepcopy(SAVED["stated"])
    arrays |= {"pooled.knot": np.array([0.5]), "pooled.height": np.array([0.0])}
    with pytest.raises(InputError, match="a line has no knots"):
        LearnedScore.from_state(plain, arrays)


def test_columns_without_values_are_refused():
    """Such a score would be accepted, and fail at the first row."""
    plain, arrays = copy.deepcopy(SAVED["columns"])
    plain["parameters"]["columns"], plain["maps"]["levels"] = [], {"names": [], "labels": []}
    arrays |= {"levels.column": np.empty(0, dtype=np.int64), "shifts": np.empty(0), "level_slopes": np.empty(0)}
    with pytest.raises(InputError, match="have no values"):
        LearnedScore.from_state(plain, arrays)


@pytest.mark.parametrize("plain", [None, [], "x", {}, {"parameters": 1, "maps": 2, "tried": 3, "rows": 4}])
def test_other_things_are_refused(plain):
    with pytest.raises(InputError):
        LearnedScore.from_state(plain, {})


HARD = [0.0, -0.0, NAN, np.inf, -np.inf, 1e308, -1e308, 1e100, 1e50, -1e50, 1e3, 5e-324, 1.0, -1.0]


def mutated(rng, name):
    """Return a state with one to three changes: of numbers, shapes, types, order, or by other arrays of its own."""
    plain, arrays = copy.deepcopy(SAVED[name])
    for _ in range(rng.integers(1, 4)):
        key = rng.choice(sorted(arrays))
        array = arrays[key]
        how = rng.integers(0, 9)
        if how <= 3 and array.size:
            array.flat[rng.integers(array.size, size=rng.integers(1, 4))] = (
                rng.choice(HARD) if array.dtype.kind == "f" else rng.choice([-1, 0, 1, 2, 99, 2**62])
            )
        elif how == 4:
            arrays[key] = np.full_like(array, rng.choice(HARD[9:]) if array.dtype.kind == "f" else 1)
        elif how == 5:
            arrays[key] = array.ravel()[: rng.integers(0, array.size + 1)]
        elif how == 6:
            arrays[key] = array * array.dtype.type(10.0 ** rng.integers(0, 51) if array.dtype.kind == "f" else -1)
        elif how == 7:
            arrays[key] = copy.deepcopy(arrays[rng.choice(sorted(arrays))])
        else:
            maps = plain["maps"]
            where = (
                maps["pooled"] if rng.random() < 0.5 and isinstance(maps["pooled"], dict) and maps["pooled"] else maps
            )
            changes = [None, 0, 1e49, -1e300, "line", "curve", "stated", [], {}]
            where[rng.choice(sorted(where))] = changes[rng.integers(len(changes))]
    return plain, arrays


@pytest.mark.parametrize("name", SAVED)
def test_no_accepted_state_answers_outside_of_0_and_1(name):
    """Warnings are errors here: nothing overflows on the way either."""
    rng = np.random.default_rng(0)
    accepted = 0
    far = FEW | {"embedding": np.resize([1e100, -1e100, 1e-300, 0.0], (12, 5))}
    for _ in range(300):
        plain, arrays = mutated(rng, name)
        try:
            found = LearnedScore.from_state(plain, arrays)
        except InputError:
            continue
        accepted += 1
        for rows in (FEW, far):
            p = found.predict(rows)
            assert ((p >= 0) & (p <= 1)).all()
        p = found.pooled(np.array([0.0, 0.5, 1.0]))
        assert ((p >= 0) & (p <= 1)).all()
    assert accepted >= 10
