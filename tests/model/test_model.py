"""The whole model: fit, calibrate, explain, describe, save, load."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn.base

import qacal
from qacal import (
    BisectingTree,
    Column,
    InputError,
    LearnedScore,
    NotFittedError,
    QABinning,
    QACalibrator,
    StepBinning,
    TreeBinning,
)
from qacal.calibrators import HierarchicalScaling, IsotonicCalibration, PlattScaling, ScalingQABinning, TreeScaling
from qacal.metrics import calibration_error, log_loss
from qacal.partitions import KDTree, Product
from qacal.tally.ids import id_hashes
from tests.answers import TOPICS, answers

EVIDENCE = ["calibrated", "low", "high", "group", "source", "rows", "group_low", "group_high", "group_rows", "alpha"]
EVIDENCE += ["unlike", "decision", "threshold"]


@pytest.fixture(scope="module")
def fitted():
    return QACalibrator(partition=BisectingTree(max_depth=3)).fit(answers(3000))


def column(rows, name):
    return np.array([row[name] for row in rows])


def debiased(rows, score="calibrated"):
    return calibration_error(column(rows, "correct"), column(rows, score), groups=column(rows, "topic"), bins=15)


def test_groups_from_text_correct_each_topic(fitted):
    new = fitted.calibrate(answers(3000, seed=1))
    pooled = QACalibrator(calibrator=PlattScaling()).fit(answers(3000)).calibrate(answers(3000, seed=1))
    assert debiased(new, "confidence") > 0.2
    assert debiased(pooled) > 0.2
    assert debiased(new) < 0.06


def test_calibrate_adds_columns_and_changes_nothing_else(fitted):
    rows = answers(200, seed=2)
    new = fitted.calibrate(rows)
    assert [list(row)[len(rows[0]) :] for row in new] == [EVIDENCE] * 200
    assert [{name: row[name] for name in rows[0]} for row in new] == rows
    for row in new:
        assert 0 <= row["calibrated"] <= 1
        assert (row["source"] == "far") == (row["unlike"] >= 0.99)
        if row["source"] == "far":
            assert row["low"] is row["high"] is row["group_low"] is row["group_high"] is row["alpha"] is None
        else:
            assert row["source"] == "band"
            assert 0 <= row["low"] <= row["calibrated"] <= row["high"] <= 1
            assert 0 <= row["group_low"] <= row["group_high"] <= 1
            assert 0 < row["group_rows"] < fitted.rows_
    assert any(row["source"] == "far" for row in new)
    # Answers are continuous: texts differ, and few answers are equal.
    assert len({row["calibrated"] for row in new}) > 150


@pytest.mark.parametrize("kind", [pl.DataFrame, pd.DataFrame, pa.Table.from_pylist])
def test_the_type_of_the_records_is_kept(fitted, kind):
    rows = answers(50, seed=2)
    out = fitted.calibrate(kind(rows))
    assert isinstance(out, type(kind(rows)))
    as_polars = pl.DataFrame(out.to_dict("list") if isinstance(out, pd.DataFrame) else out, strict=False)
    np.testing.assert_array_equal(as_polars["calibrated"], column(fitted.calibrate(rows), "calibrated"))


def same_answers(one, other):
    """Assert equal answers up to rounding, as for other batches or another CPU."""
    for name in ("group", "source", "rows", "group_low", "group_high", "group_rows"):
        assert [row[name] for row in one] == [row[name] for row in other], name
    # Intervals reach a fixed distance from an answer, so they are as exact as answers; far rows have none.
    for name in ("calibrated", "low", "high"):
        np.testing.assert_allclose(
            column(one, name).astype(float), column(other, name).astype(float), rtol=0, atol=1e-12, err_msg=name
        )


@pytest.mark.parametrize("output", ["certified", "continuous"])
def test_the_order_of_rows_and_their_batches_do_not_matter(output, tmp_path):
    rows = answers(3000)
    shuffled = [rows[at] for at in np.random.default_rng(0).permutation(3000)]
    pl.DataFrame(shuffled).write_parquet(tmp_path / "a.parquet")
    from qacal.records import files

    class Small(files.File):
        def batches(self, on_fault=files.refuse, batch_rows=700):
            return super().batches(on_fault, batch_rows)

    model = QACalibrator(partition=BisectingTree(max_depth=3), output=output)
    one = sklearn.base.clone(model).fit(rows)
    other = sklearn.base.clone(model).fit(Small(tmp_path / "a.parquet", "parquet", "a"))
    new = answers(300, seed=3)
    same_answers(one.calibrate(new), other.calibrate(new))
    same_answers(one.calibrate(new), [row for at in range(0, 300, 7) for row in one.calibrate(new[at : at + 7])])
    assert [group.to_dict() for group in one.describe_groups()] == [
        group.to_dict() for group in other.describe_groups()
    ]


@pytest.mark.parametrize("output", ["certified", "continuous"])
def test_a_saved_model_answers_alike_on_another_cpu(output, tmp_path):
    model = QACalibrator(partition=BisectingTree(max_depth=3), output=output).fit(answers(1000))
    model.save(tmp_path / "model")
    new = answers(1000, seed=3)[::3]  # questions have running numbers: these are like those of the fit
    pl.DataFrame(new).write_ndjson(tmp_path / "new.jsonl")
    command = [Path(sys.executable).with_name("qacal"), "apply", "model", "new.jsonl", "-o", "calibrated.jsonl"]
    # OpenBLAS kernels of an old CPU add in another order.
    other_cpu = {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, cwd=tmp_path, env=os.environ | other_cpu, check=True, capture_output=True)
    lines = (tmp_path / "calibrated.jsonl").read_text(encoding="utf-8").splitlines()
    same_answers(model.calibrate(new), [json.loads(line) for line in lines])


def test_no_question_is_in_both_parts():
    rows = answers(2000)
    model = QACalibrator(partition=KDTree(max_depth=1), calibrator=QABinning()).fit(rows)
    assert 0.68 < model.rows_ / 2000 < 0.82  # 60 of 80 blocks
    twice = rows + [{**row, "answer": "another"} for row in rows]
    with pytest.warns(qacal.RepeatedQuestionsWarning):
        both = QACalibrator(partition=KDTree(max_depth=1), calibrator=QABinning()).fit(twice)
    assert both.rows_ == 2 * model.rows_


@pytest.mark.usefixtures("wordless_unless_full")
def test_groups_can_be_made_from_rows_without_labels():
    unlabelled = [
        {name: row[name] for name in ("id", "question", "answer", "confidence")} for row in answers(800, seed=9)
    ]
    tree = BisectingTree(max_depth=2)
    model = QACalibrator(partition=tree, learned_score=None).fit(answers(1000), group_records=unlabelled)
    assert model.rows_ == 1000
    scored = QACalibrator(partition=tree).fit(answers(1000), group_records=unlabelled)
    assert 0.87 < scored.learned_score_.rows_ / 1000 < 0.93
    assert 0.67 < scored.rows_ / 1000 < 0.73
    steps = QACalibrator(partition=tree, calibrator=StepBinning()).fit(answers(1000), group_records=unlabelled)
    assert steps.learned_score_.rows_ + steps.rows_ == 1000
    np.testing.assert_array_equal(scored.partition_.fitted_.directions, model.partition_.fitted_.directions)


def test_groups_that_the_records_have_need_no_text():
    rows = [{name: row[name] for name in ("id", "confidence", "correct", "topic")} for row in answers(2000)]
    model = QACalibrator(partition=Column("topic"), calibrator=QABinning()).fit(rows)
    assert model.rows_ == 2000
    with pytest.warns(qacal.QacalWarning, match="2 of 6 rows have no topic that the model knows; they are"):
        new = model.calibrate([{"confidence": 0.9, "topic": topic} for topic in [*TOPICS, "chess", None]])
    assert [row["source"] for row in new] == ["group"] * 4 + ["root"] * 2
    assert [row["group"] for row in new] == [*TOPICS, None, None]
    with pytest.raises(InputError, match="no column 'topic'"):
        model.calibrate([{"confidence": 0.9}])
    # Some rows of JSON lines may lack it.
    with pytest.warns(qacal.QacalWarning, match="1 of 2 rows have no topic that the model knows; they are"):
        new = model.calibrate([{"confidence": 0.9}, {"confidence": 0.9, "topic": "cooking"}])
    assert [row["group"] for row in new] == [None, "cooking"]


def test_product_of_a_column_and_a_tree():
    rows = [{**row, "tenant": "acme" if number % 3 else "zenith"} for number, row in enumerate(answers(3000))]
    model = QACalibrator(partition=Product(Column("tenant"), BisectingTree(max_depth=1)), calibrator=QABinning()).fit(
        rows
    )
    groups = {group.group for group in model.describe_groups()}
    assert groups == {"acme / 0", "acme / 1", "zenith / 0", "zenith / 1"}


def test_vectors_that_the_records_carry():
    rows = answers(2000)
    vectors = qacal.embedder("static").embed([row["question"] for row in rows], [row["answer"] for row in rows])
    carried = [{**row, "embedding": vector.tolist()} for row, vector in zip(rows, vectors, strict=True)]
    one = QACalibrator(partition=BisectingTree(max_depth=2)).fit(rows)
    other = QACalibrator("column:embedding", BisectingTree(max_depth=2)).fit(carried)
    np.testing.assert_array_equal(
        column(one.calibrate(rows), "calibrated"), column(other.calibrate(carried), "calibrated")
    )
    with pytest.raises(InputError, match="reads the text: pass records with all their columns"):
        one.predict(column(rows, "confidence"), vectors=vectors)
    wordless = QACalibrator(partition=BisectingTree(max_depth=2), learned_score=LearnedScore(words=False)).fit(rows)
    np.testing.assert_array_equal(
        wordless.predict(column(rows, "confidence"), vectors=vectors), column(wordless.calibrate(rows), "calibrated")
    )


def test_explain_answers_one_question(fitted):
    said = fitted.explain("What is 5 plus 7, as a number? (no. 12)", "The sum is 7.", 0.9)
    assert said["confidence"] == 0.9
    assert said["calibrated"] < fitted.explain("Which city is the capital of Pell? (no. 3)", "Kell.", 0.9)["calibrated"]
    assert said["low"] <= said["calibrated"] <= said["high"]
    assert said["source"] == "band"
    assert said["group_low"] < said["group_high"] < 0.5  # sums are often wrong
    assert set(said) == {"confidence", *EVIDENCE, "parts", "nearest", "lacking"}
    with pytest.raises(InputError, match="confidence is 90; expected 0 to 1"):
        fitted.explain("What?", "That.", 90)


def test_groups_are_described_by_their_own_words(fitted):
    groups = fitted.describe_groups()
    assert sum(group.rows for group in groups) == fitted.rows_
    words = {word for group in groups for word in group.words[:4]}
    assert words & {"capital", "city"}
    assert words & {"sum", "plus", "number"}
    for group in groups:
        assert len(group.examples) == 3
        assert 0 < group.accuracy < 1
    assert [group.rows for group in groups] == sorted((group.rows for group in groups), reverse=True)


def test_no_text_is_stored_without_examples(tmp_path):
    model = QACalibrator(partition=BisectingTree(max_depth=2), examples=0).fit(answers(1000))
    model.save(tmp_path / "model")
    assert all(group.examples == () for group in model.describe_groups())
    assert "(no. 7)" not in (tmp_path / "model" / "model.json").read_text()


@pytest.mark.parametrize(
    ("partition", "calibrator"),
    [
        (BisectingTree(max_depth=2), None),
        (KDTree(max_depth=2), QABinning()),
        ("kmeans:4", HierarchicalScaling()),
        ("kdtree:3", TreeScaling()),
        (Column("topic"), QABinning()),
        ("column:topic*kdtree:1", QABinning()),
        (None, PlattScaling()),
    ],
)
def test_save_load_apply_is_bit_equal(tmp_path, partition, calibrator):
    model = QACalibrator(partition=partition, calibrator=calibrator).fit(answers(1500))
    model.save(tmp_path / "model")
    loaded = qacal.load(tmp_path / "model")
    new = answers(300, seed=4)
    assert loaded.calibrate(new) == model.calibrate(new)
    assert [group.to_dict() for group in loaded.describe_groups()] == [
        group.to_dict() for group in model.describe_groups()
    ]
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.json").read_text() == (tmp_path / "model" / "model.json").read_text()


def test_ids_order_ties_where_the_calibrator_divides_equal_confidences(fitted):
    stated = [0.9 if i % 4 else 0.5 for i in range(400)]
    rows = [{"id": f"q{i}", "topic": "law", "confidence": stated[i], "correct": i % 2} for i in range(400)]
    model = QACalibrator(partition=Column("topic"), calibrator=QABinning(ties="jitter")).fit(rows)
    hashes = id_hashes([row["id"] for row in rows], 400)
    expected = model.calibrator_.predict(stated, groups=["law"] * 400, ids=hashes)
    assert len(np.unique(expected[np.array(stated) == 0.9])) > 1
    np.testing.assert_array_equal(model.predict(rows), expected)
    ids = [row["id"] for row in rows]
    np.testing.assert_array_equal(model.predict(stated, groups=["law"] * 400, ids=ids), expected)
    np.testing.assert_array_equal(column(model.calibrate(rows), "calibrated"), expected)
    assert model.explain("?", "!", 0.9, topic="law", id="q7")["calibrated"] == expected[7]
    # Other models do not use ids, but an id that is none is still an error.
    with pytest.raises(InputError, match=r"id is 1\.5; expected text or a whole number"):
        fitted.calibrate([{**answers(1)[0], "id": 1.5}])


def test_another_llm_is_refused_unless_allowed(fitted):
    other = answers(50, llm="parrot-2")
    with pytest.raises(
        InputError, match=r"model is 'parrot-2'; this model was fitted on parrot-1.*--allow-other-source"
    ):
        fitted.calibrate(other)
    assert len(fitted.calibrate(other, allow_other_source=True)) == 50


def test_several_llms_are_mixed_only_if_allowed():
    rows = answers(400) + answers(400, seed=1, llm="parrot-2")
    with pytest.raises(InputError, match=r"answers of several LLMs: parrot-1, parrot-2.*--by model.*--allow-mixed"):
        QACalibrator(partition=KDTree(max_depth=1)).fit(rows)
    prompted = [{**row, "prompt": "ab"[at % 2]} for at, row in enumerate(rows)]
    several = "answers of several LLMs: parrot-1, parrot-2; prompts: a, b. Fit .*--by takes one column: model or prompt"
    with pytest.raises(InputError, match=several):
        QACalibrator(partition=KDTree(max_depth=1)).fit(prompted)
    model = QACalibrator(partition=KDTree(max_depth=1)).fit(rows, allow_mixed=True)
    assert model.origins_["model"] == ["parrot-1", "parrot-2"]


def test_a_model_with_another_embedder_is_refused(fitted, tmp_path):
    from dataclasses import replace

    from qacal import storage
    from qacal.model.saved import CLASSES, SavedModel

    fitted.save(tmp_path / "model")
    saved = storage.load(tmp_path / "model", SavedModel, CLASSES)
    other = replace(saved, embedder=replace(saved.embedder, digest="0" * 64))
    storage.save(tmp_path / "other", other, CLASSES)
    with pytest.raises(InputError, match="the embedder 'static' is not the one that the model was fitted with"):
        qacal.load(tmp_path / "other").calibrate(answers(5))


def test_columns_of_the_evidence_do_not_overwrite(fitted):
    rows = [{**row, "group": "mine"} for row in answers(5)]
    taken = r"already has calibrated confidences \(calibrated, low, high and 10 more\)\. .*--prefix"
    with pytest.raises(InputError, match=taken):
        fitted.calibrate(fitted.calibrate(answers(3)))
    with pytest.raises(InputError, match=r"already has a column 'group'.*--prefix"):
        fitted.calibrate(rows)
    assert fitted.calibrate(rows, prefix="qacal_")[0]["group"] == "mine"


def test_refusals(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        QACalibrator().calibrate(answers(5))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        QACalibrator().save(tmp_path / "model")
    with pytest.raises(InputError, match=r"train_share is 1\.5"):
        QACalibrator(train_share=1.5).fit(answers(50))
    with pytest.raises(InputError, match="calibrator is 'platt'"):
        QACalibrator(calibrator="platt").fit(answers(50))
    with pytest.raises(InputError, match="there is no embedder 'word2vec'"):
        QACalibrator("word2vec").fit(answers(50))
    rows = [{"confidence": (i % 2 + 1) / 3, "correct": i % 2, "topic": "a"} for i in range(50)]
    with pytest.raises(InputError, match="need a column id or question"):
        QACalibrator(partition=Column("topic"), calibrator=ScalingQABinning()).fit(rows)


def test_parameters_work_as_in_scikit_learn():
    from sklearn.base import clone

    model = QACalibrator(partition=BisectingTree(max_depth=3), seed=4)
    again = clone(model)
    assert again.get_params()["seed"] == 4
    assert again.get_params()["partition"].max_depth == 3


@pytest.mark.parametrize("text", ["", " ", "word " * 10_000, "二加二等于几?", "🦜" * 50, "\ud800", "a\x00b"])
def test_hard_texts_get_an_answer(fitted, text):
    for question, answer in ((text if text.strip() else "x", "x"), ("x", text)):
        assert 0 <= fitted.explain(question, answer, 0.9)["calibrated"] <= 1


def test_a_saved_model_applies_with_numpy_alone(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    texts = ["What is 5 plus 7, as a number? (no. 12)"], ["The sum is 7."]
    np.save(tmp_path / "vectors.npy", qacal.embedder("static").embed(*texts))
    row = "{'confidence': [0.9], 'embedding': np.load(" + repr(str(tmp_path / "vectors.npy")) + "), "
    row += "'question': {!r}, 'answer': {!r}}}".format(*texts)
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        absent = {'scipy', 'sklearn', 'polars', 'narwhals', 'pandas', 'typer', 'tokenizers'}\n"
        "        if name.partition('.')[0] in absent:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import numpy as np, qacal\n"
        "from dataclasses import replace\n"
        f"model = qacal.load({str(tmp_path / 'model')!r})\n"
        f"row = {row}\n"
        "groups = model.partition_.paths(row['embedding'])\n"
        "rows = model.calibrator_._rows(model.pipeline_.first.predict(row), groups, None)\n"
        "rows = replace(rows, answer=model.learned_score_.predict(row))\n"
        "print(repr(float(model.calibrator_.maps_.apply(rows)[0])))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(fitted.explain(texts[0][0], texts[1][0], 0.9)["calibrated"], abs=1e-12)


@pytest.mark.parametrize(("calibrator", "depth"), [(ScalingQABinning(cross_fit=True), 3), (TreeBinning(), None)])
def test_groups_by_name_vectors_and_sql_give_what_calibrate_gives(calibrator, depth):
    """The default tree is cut at a depth; groups are named at that depth."""
    import sqlite3
    from contextlib import closing

    from qacal.model.sql import to_sql

    rows = answers(3000)
    model = QACalibrator(calibrator=calibrator).fit(rows)
    assert model.calibrator_.max_depth == depth
    new = model.calibrate(answers(500, seed=5))
    h, groups, expected = (column(new, name) for name in ("confidence", "group", "calibrated"))
    np.testing.assert_array_equal(model.predict(h, groups=groups), expected)
    assert model._evidence_of_arrays(h, groups=groups).group == groups.tolist()
    expression = to_sql(model.calibrator_, dialect="sqlite", group="g")
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("CREATE TABLE answers (confidence REAL, g INTEGER)")
        base.executemany("INSERT INTO answers VALUES (?, ?)", zip(h.tolist(), groups.tolist(), strict=True))
        found = base.execute(f"SELECT {expression} FROM answers ORDER BY rowid").fetchall()
    np.testing.assert_array_equal([row[0] for row in found], expected)


def test_groups_are_made_from_other_questions():
    rows = answers(600)
    with pytest.raises(InputError, match="600 rows have questions that the model was trained on"):
        QACalibrator(partition=KDTree(max_depth=1)).fit(rows, group_records=rows)


def test_several_kinds_of_confidence_are_mixed_only_if_allowed():
    rows = [{**row, "confidence_source": ("stated", "tokens")[at % 2]} for at, row in enumerate(answers(200))]
    with pytest.raises(InputError, match="several confidence sources: stated, tokens"):
        QACalibrator(partition=KDTree(max_depth=1)).fit(rows)


def test_a_path_gives_a_frame(fitted, tmp_path):
    pl.DataFrame(answers(20)).write_ndjson(tmp_path / "a.jsonl")
    assert isinstance(fitted.calibrate(tmp_path / "a.jsonl"), pl.DataFrame)


@pytest.mark.parametrize("options", [{"examples": -1}, {"calibrator": QABinning(points_per_bin=0)}])
def test_invalid_parameters_are_refused_before_reading(options):
    with pytest.raises(InputError):
        QACalibrator(**options).fit(answers(50))


@pytest.mark.parametrize("partition", ["kdtree:4", "bisecting:3", "column:topic"])
def test_tuning_chooses_on_a_seventh_and_fits_on_all(partition):
    rows = answers(3000)
    model = QACalibrator(partition=partition, calibrator=QABinning(), tune="log_loss").fit(rows)
    plain = QACalibrator(partition=partition, calibrator=QABinning()).fit(rows)
    assert model.rows_ == plain.rows_ == model.calibrator_.maps_.rows[: model.calibrator_.maps_.offset[1]].sum()
    assert model.tuned_.rows == pytest.approx(model.rows_ / 7, rel=0.2)
    assert model.calibrator_.points_per_bin == model.tuned_.best.points_per_bin
    # For a tree, "no groups" is depth 0; the certificate of flat groups does not cover a fit without groups.
    without = model.tuned_.best_pooled
    assert (without is None) == (partition == "column:topic")
    assert without is None or model.tuned_.best.score < without.score - 0.02
    new = answers(3000, seed=1)
    scores = [log_loss(column(new, "correct"), column(one.calibrate(new), "calibrated")) for one in (model, plain)]
    assert scores[0] < scores[1] + 0.01


def test_uninformative_groups_are_tuned_away():
    # No group has enough rows for its own bin, so all use the root's map, and no groups is the simpler choice.
    rows = [{**row, "tenant": number // 5} for number, row in enumerate(answers(2000))]
    curves = IsotonicCalibration(pooling="none")
    flat = QACalibrator(partition="column:tenant", calibrator=curves, tune="brier").fit(rows)
    assert flat.tuned_.best.cut == 0
    assert {row["source"] for row in flat.calibrate(rows[:50])} == {"root"}
    assert flat.describe_groups() == []
    tree = QACalibrator(partition="kdtree:3", calibrator=QABinning(), tune="brier").fit(rows)
    assert tree.calibrator_.max_depth == tree.tuned_.best.cut


def test_tuning_needs_an_objective_and_a_certificate_that_survives_it():
    with pytest.raises(InputError, match="tune is 'fame'; expected one of log_loss"):
        QACalibrator(tune="fame").fit(answers(100))
    with pytest.raises(InputError, match="need them fixed before"):
        QACalibrator(calibrator=QABinning(certificate="conditional"), tune="brier").fit(answers(100))
    with pytest.raises(InputError, match="need them fixed before"):
        QACalibrator(calibrator=QABinning(ties="jitter"), tune="brier").fit(answers(100))
    with pytest.raises(InputError, match="StepBinning needs bins and depth that are fixed before the fit"):
        QACalibrator(calibrator=StepBinning(), learned_score=None, tune="brier").fit(answers(100))
    with pytest.raises(InputError, match="too few to tune on"):
        QACalibrator(partition="column:topic", calibrator=TreeBinning(), tune="brier").fit(answers(1))


def test_tuning_by_the_error_within_groups_treats_rows_of_a_question_as_dependent():
    rows = [{**row, "id": f"q{number // 3}"} for number, row in enumerate(answers(1500))]
    with pytest.warns(qacal.RepeatedQuestionsWarning):
        model = QACalibrator(partition="column:topic", calibrator=QABinning(), tune="error").fit(rows)
    assert np.isfinite(model.tuned_.best.score)


def test_questions_cannot_be_compared_if_only_one_side_has_ids():
    rows = answers(600)
    beta = [{name: value for name, value in row.items() if name != "id"} for row in answers(300, seed=1)]
    for given in ({"group_records": beta}, {"certify_records": beta}):
        with pytest.raises(InputError, match="only one of the two sets of rows has ids"):
            QACalibrator().fit(rows, **given)


@pytest.mark.usefixtures("wordless_unless_full")
def test_rows_of_two_prompts_are_not_mixed_silently():
    rows = [{**row, "prompt": f"ling1s-top1/1{'~aa' * (number % 2)}"} for number, row in enumerate(answers(300))]
    with pytest.raises(InputError, match="several prompts: ling1s-top1/1, ling1s-top1/1~aa"):
        QACalibrator().fit(rows)
    QACalibrator().fit(rows, allow_mixed=True)
    # A column with the question is not the name of a prompt, whatever the column is called.
    few = [{**row, "prompt": f"What is {number % 12}?"} for number, row in enumerate(rows)]
    with pytest.warns(qacal.QacalWarning):
        QACalibrator(partition="column:topic").fit(
            [{name: row[name] for name in row if name not in ("id", "question")} for row in few],
            columns={"question": "prompt"},
        )
    # A prompt that contains the question differs in every row, so it cannot be compared.
    QACalibrator().fit([{**row, "prompt": f"Answer: {row['question']}"} for row in rows])


def test_the_judge_matters_in_evaluation_only_and_each_source_is_allowed_by_itself():
    rows = [{**row, "judge": "people", "prompt": "one"} for row in answers(300)]
    fitted = QACalibrator(partition="column:topic").fit(rows)
    judged = [{**row, "judge": "gpt"} for row in rows[:20]]
    assert len(fitted.calibrate(judged)) == 20
    with pytest.raises(InputError, match=r"judge is 'gpt'.*--allow-other-source judge"):
        list(fitted._explained_batches(judged, needs_labels=True))
    other = [{**row, "prompt": "two"} for row in judged]
    for accepted in ("judge", ["judge", "model"]):
        with pytest.raises(InputError, match=r"prompt is 'two'.*--allow-other-source prompt"):
            list(fitted._explained_batches(other, needs_labels=True, allow_other_source=accepted))
    assert len(list(fitted._explained_batches(other, needs_labels=True, allow_other_source=["judge", "prompt"]))) == 1
    assert len(fitted.calibrate(other, allow_other_source=True)) == 20
    with pytest.raises(InputError, match="allow_other_source is 'llm'; expected model, prompt"):
        fitted.calibrate(other, allow_other_source="llm")


def sampled(rows, samples, temperature=0.7):
    """Return rows with an agreement; in every 50th row, one sample could not be read."""
    return [
        {**row, "agreement": 1.0, "samples": samples - (number % 50 == 7), "temperature": temperature}
        for number, row in enumerate(rows)
    ]


def test_agreements_of_other_samples_are_refused(tmp_path):
    """A few rows may have lost some samples, but cannot have more; the order of rows does not matter."""
    QACalibrator(partition="column:topic").fit(sampled(answers(300), 5)).save(tmp_path / "model")
    fitted, rows = qacal.load(tmp_path / "model"), answers(60, seed=1)
    assert fitted.origins_ == {"model": ["parrot-1"], "samples": [5], "temperature": [0.7]}
    assert len(fitted.calibrate(sampled(rows, 5))) == 60
    for samples, few in ((3, rows), (10, rows), (10, rows[:1])):
        other = sampled(few, samples)
        with pytest.raises(InputError, match=rf"samples is {samples}; this model was fitted on 5.*-source samples"):
            fitted.calibrate(other)
        assert len(fitted.calibrate(other, allow_other_source="samples")) == len(few)
    assert len(fitted.calibrate(sampled(rows[:1], 4))) == 1
    one, two = sampled(rows[:30], 5), sampled(rows[30:], 3)
    for mixed in ([*one, *two], [*two, *one]):
        with pytest.raises(InputError, match="samples is 3; this model was fitted on 5"):
            fitted.calibrate(mixed)
    for few in (rows, rows[:1]):
        with pytest.raises(InputError, match=r"temperature is 0.2; this model was fitted on 0.7"):
            fitted.calibrate(sampled(few, 5, 0.2))
    # Without an agreement, these columns mean something else.
    weather = [{**row, "temperature": number % 5, "samples": 3} for number, row in enumerate(answers(300))]
    assert "temperature" not in QACalibrator(partition="column:topic").fit(weather).origins_
