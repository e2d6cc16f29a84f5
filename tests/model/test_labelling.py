"""`label_next`: a stratified draw in which all answers have the same chance."""

import numpy as np
import polars as pl
import pytest

from qacal import Column, InputError, QABinning, QACalibrator, label_next, load
from qacal.model.labelling import draw
from qacal.model.model_set import fit_set
from qacal.records.reading import Reading
from qacal.tally.ids import id_hashes
from tests.tables import each


def answers(first, n, seed=0, **more):
    rng = np.random.default_rng(seed)
    return [
        {
            "id": first + at,
            "subject": str(rng.choice(["art", "law"], p=[0.8, 0.2])),
            "confidence": float(rng.choice([0.6, 0.9])),
            "correct": bool(rng.random() < 0.7),
            **more,
        }
        for at in range(n)
    ]


def fitted(rows=400):
    model = QACalibrator(partition=Column("subject"), calibrator=QABinning(), learned_score=None)
    return model.fit(answers(0, rows))


@pytest.fixture(scope="module")
def model():
    return fitted()


def test_every_range_and_group_has_its_share(model):
    rows = pl.DataFrame(answers(1000, 2000)).drop("correct")
    drawn = label_next(model, rows, 100)
    assert drawn.columns == [*rows.columns, "stratum", "label_probability"]
    assert sorted(drawn["stratum"]) == [*range(1, 101)]
    assert drawn["label_probability"].to_list() == [0.05] * 100
    assert drawn["id"].is_sorted()  # the order says nothing about the answers
    assert drawn.drop("stratum", "label_probability").equals(rows.filter(pl.col("id").is_in(drawn["id"].to_list())))
    for by in ("subject", "confidence"):
        share, of_drawn = (frame.group_by(by).len().sort(by) for frame in (rows, drawn))
        assert (share["len"] / 20 - of_drawn["len"]).abs().max() <= 4


def test_the_draw_depends_on_ids_and_seed_alone(model):
    rows = answers(1000, 500)
    one = {row["id"] for row in label_next(model, rows, 50)}
    assert one == {row["id"] for row in label_next(model, rows[::-1], 50)}
    assert one != {row["id"] for row in label_next(model, rows, 50, seed=1)}
    flipped = [{**row, "correct": not row["correct"]} for row in rows]
    assert one == {row["id"] for row in label_next(model, flipped, 50)}


def test_every_row_has_the_same_chance():
    """Also next to the border of strata, and if strata do not divide the rows."""
    hashes, order = id_hashes(range(23), 23), np.sort(np.arange(23) % 3)
    draws = 3000
    counts = np.bincount(np.concatenate([draw(hashes, order, 5, seed) for seed in range(draws)]), minlength=23)
    expected = draws * 5 / 23
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_one_row_of_a_document_is_drawn(model):
    rows = [{**row, "id": 1000 + at // 4} for at, row in enumerate(answers(0, 400))]
    drawn = label_next(model, rows, 100)
    assert len({row["id"] for row in drawn}) == 100
    assert {row["label_probability"] for row in drawn} == {0.25}


def test_a_set_of_models_draws_for_each_model():
    rows = [{**row, "model": name} for name in ("one", "two") for row in answers(0, 300)]
    parts = QACalibrator(partition=Column("subject"), calibrator=QABinning(), learned_score=None)
    models = fit_set(parts, rows, "model", Reading())
    new = [{**row, "model": name} for name in ("one", "two") for row in answers(1000, 200)]
    drawn = label_next(models, new, 40)
    assert [sum(row["model"] == name for row in drawn) for name in ("one", "two")] == [20, 20]


def test_a_file_is_read_and_a_frame_returned(model, tmp_path):
    pl.DataFrame(answers(1000, 300)).drop("correct").write_csv(tmp_path / "rows.csv")
    model.save(tmp_path / "model")
    assert len(label_next(load(tmp_path / "model"), str(tmp_path / "rows.csv"), 30)) == 30


@each(
    "rows, n, problem",
    [
        (answers(1000, 20), 21, "n is 21 and there are answers to 20 questions"),
        (answers(1000, 20), 0, "n is 0; expected the number of rows"),
        (answers(0, 400), 10, "the model was fitted on some of these questions"),
        (answers(1000, 20, stratum=1), 10, "already has a column 'stratum'"),
        ([{"subject": "art", "confidence": 0.6}] * 20, 10, "drawn by their id"),
    ],
)
def test_what_cannot_be_drawn_is_refused(rows, n, problem):
    with pytest.raises(InputError, match=problem):
        label_next(fitted(), rows, n)
