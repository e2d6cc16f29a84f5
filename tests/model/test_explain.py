"""`explain` and `calibrate` are one path: the same numbers for one row and for many, and from many threads."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from qacal import QABinning, QACalibrator, StepBinning
from qacal.errors import InputError
from qacal.model.model_set import ModelSet
from tests.answers import answers

NUMBERS = ("calibrated", "low", "high", "group_low", "group_high", "alpha", "unlike", "threshold")
REST = ("group", "source", "rows", "group_rows", "decision")


def rows_of(n, seed, llm="parrot-1"):
    """Return rows with two columns that say something about the label."""
    rng = np.random.default_rng(seed)
    return [
        {
            **row,
            "tokens": float(rng.beta(4, 2) if row["correct"] else rng.beta(2, 4)),
            "tenant": "north" if rng.random() < (0.8 if row["correct"] else 0.2) else "south",
        }
        for row in answers(n, seed=seed, llm=llm)
    ]


@cache
def model_of(kind):
    rows = rows_of(900, 0)
    match kind:
        case "default":
            return QACalibrator(features=()).fit(rows).set_threshold(0.6)
        case "features":
            return QACalibrator(features=("tokens:confidence", "tenant:category")).fit(rows)
        case "steps":
            return QACalibrator(calibrator=StepBinning(), features=()).fit(rows)
        case "columns":
            return QACalibrator(partition="column:tenant").fit(rows)
        case "paper":
            return QACalibrator(partition="kdtree:2", calibrator=QABinning(points_per_bin=50)).fit(rows)
        case "continuous":
            return QACalibrator(output="continuous", features=()).fit(rows)
        case "set":
            models = {llm: QACalibrator(features=()).fit(rows_of(600, 0, llm)) for llm in ("parrot-1", "owl-2")}
            return ModelSet("model", models)


KINDS = ("default", "features", "steps", "columns", "paper", "continuous", "set")


def new_rows(kind):
    rows = rows_of(30, 1)
    if kind == "set":
        rows = [{**row, "model": ("parrot-1", "owl-2")[at % 2]} for at, row in enumerate(rows)]
    return [{name: value for name, value in row.items() if name not in ("id", "correct")} for row in rows]


def assert_same(found, expected):
    for name in NUMBERS:
        one, two = (np.nan if row[name] is None else row[name] for row in (found, expected))
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12, err_msg=name)
    assert [found[name] for name in REST] == [expected[name] for name in REST]


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_and_many_rows_have_the_same_evidence(kind):
    model, rows = model_of(kind), new_rows(kind)
    calibrated = model.calibrate(rows, prefix="new_")
    together = model._explained_rows(rows, why=True)
    for row, many, expected in zip(rows, together, calibrated, strict=True):
        one = model.explain(**row)
        assert_same(one, {name: expected[f"new_{name}"] for name in (*NUMBERS, *REST)})
        assert_same(many, one)
        assert list(many) == list(one)
        assert many["nearest"] == one["nearest"]
        assert many["lacking"] == one["lacking"]
        np.testing.assert_allclose(list(many["parts"].values()), list(one["parts"].values()), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["default", "features", "set"])
def test_parts_add_up_to_the_probability(kind):
    found = model_of(kind).explain(**new_rows(kind)[0])
    logit = sum(found["parts"].values())
    assert 1 / (1 + np.exp(-logit)) == pytest.approx(found["calibrated"], abs=1e-9)


def test_lacking_columns_are_those_of_the_row():
    rows = new_rows("features")[:3]
    del rows[1]["tokens"]
    rows[2]["tenant"] = None
    found = model_of("features")._explained_rows(rows, why=True)
    assert [one["lacking"] for one in found] == [[], ["tokens"], ["tenant"]]


def test_a_bad_row_raises_and_names_its_value():
    good, bad = new_rows("default")[:2]
    with pytest.raises(InputError, match=r"^confidence is 85; expected 0 to 1"):
        model_of("default")._explained_rows([good, {**bad, "confidence": 85}], why=False)


def test_explain_embeds_a_row_once(monkeypatch):
    model, row = model_of("default"), new_rows("default")[0]
    expected = model.explain(**row)
    texts = []
    embed = type(model.pipeline_.vectors.load()).embed

    def counting(self, questions, answers, progress=None):
        texts.extend(questions)
        return embed(self, questions, answers, progress)

    monkeypatch.setattr(type(model.pipeline_.vectors.load()), "embed", counting)
    assert model.explain(**row) == expected
    assert texts == [row["question"]]


def test_a_new_fit_forgets_the_examples_of_the_old_one():
    model = QACalibrator(features=()).fit(answers(400))
    model.explain("What is 3 plus 4, as a number?", "The sum is 7.", 0.9)
    sums = [row for row in answers(1600, seed=3) if "plus" in row["question"]]
    model.fit(sums)
    nearest = model.explain("Which city is the capital of Arden?", "Pell", 0.9)["nearest"]
    assert nearest
    assert all("plus" in example["question"] for example in nearest)


@pytest.mark.parametrize("kind", ["default", "features", "set"])
def test_many_threads_get_the_evidence_of_one(kind):
    model, rows = model_of(kind), new_rows(kind)
    # As after loading: nothing is prepared yet when the threads start.
    for one in model._models.values():
        one.__dict__.pop("_examples", None)
        one.pipeline_.vectors._loaded = None
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda row: model.explain(**row), rows * 8))
    expected = [model.explain(**row) for row in rows]
    for at, one in enumerate(found):
        assert one == expected[at % len(rows)]
