"""Blocks, notes, tables and files of an experiment; blocks that cannot be run."""

import errno
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from qacal import BadRows, InputError, run_experiment
from qacal.experiment.tables import COLUMNS, _cell
from qacal.partitions import KDTree
from qacal.records.reading import Reading
from tests.experiment.rows import vectors_and_labels

OPTIONS = {"embedders": ["column:embedding"], "partitions": ["kdtree:2"], "seeds": 2}


@cache
def once_run():
    """Return results that no test changes."""
    return run_experiment(vectors_and_labels(600), **OPTIONS)


def two_llms():
    return pl.concat([vectors_and_labels(800, 1, "parrot-1"), vectors_and_labels(800, 2, "parrot-2")])


def test_a_block_for_every_combination():
    rows = two_llms().with_columns(dataset=pl.Series(np.tile(["a", "b"], 800)))
    found = run_experiment(rows, by=["model", "dataset"], **OPTIONS)
    tables = found.tables()
    assert [table.names for table in tables] == [
        ("parrot-1", "a"), ("parrot-1", "b"), ("parrot-2", "a"), ("parrot-2", "b")
    ]  # fmt: skip
    assert tables[0].titles[:4] == ("LLM", "Dataset", "Calibrator", "CE(h;β)")
    assert all(len(table.lines) == 9 for table in tables)
    alone = run_experiment(rows.filter(model="parrot-2", dataset="b"), **OPTIONS)
    mine = found.results.filter(model="parrot-2", dataset="b").drop("model", "dataset")
    assert mine.equals(alone.results)


def test_two_embedders_and_two_partitions():
    rows, embedders = vectors_and_labels(600), ["column:embedding", "column:other"]
    found = run_experiment(rows, embedders=embedders, partitions=["kdtree:2", "kmeans:4"], seeds=1)
    assert found.names == ("beta_emb", "beta_bin")
    assert len(found.tables()) == 4
    pooled = found.results.filter(method="B")
    # The baselines use no groups; only the groups in which errors are measured change.
    assert pooled["auac"].n_unique() == 1


def test_numbers_are_means_with_half_widths_as_the_paper_has_them():
    values = np.array([0.1, 0.2, 0.4])
    cell = _cell(values, COLUMNS[0])
    assert cell.text == f"{values.mean():.3f} ± {1.96 * values.std(ddof=1) / np.sqrt(3):.3f}"
    debiased = next(column for column in COLUMNS if column.is_root)
    assert _cell(np.array([0.3, -0.3]), debiased).mean == pytest.approx(0.0)
    assert _cell(np.array([0.3, 0.4]), debiased).mean == pytest.approx(np.sqrt(0.125))
    assert _cell(np.array([np.nan]), debiased).text == "–"
    assert _cell(np.array([0.5]), COLUMNS[0]).text == "0.500"


def test_the_best_of_a_column_is_bold():
    found = once_run()
    table = found.tables()[0]
    place = [column.name for column in COLUMNS].index("log_loss")
    best = [line.cells[place] for line in table.lines if line.cells[place].is_best]
    assert [cell.mean for cell in best] == [min(line.cells[place].mean for line in table.lines)]
    assert f"**{best[0].text}**" in table.markdown()
    top = [column.name for column in COLUMNS].index("auac")
    assert [line.cells[top].mean for line in table.lines if line.cells[top].is_best] == [
        max(line.cells[top].mean for line in table.lines)
    ]
    assert "the best of" not in table.markdown()
    floor = [column.name for column in COLUMNS].index("ce_beta_floor")
    assert not any(line.cells[floor].is_best for line in table.lines)


def test_files_appear_whole_or_not_at_all(tmp_path):
    found = once_run()
    found.write(tmp_path / "out", {"report.html": "<p>"})
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.parquet", "results.md", "report.html"}
    assert pl.read_parquet(tmp_path / "out" / "results.parquet").equals(found.results)
    text = (tmp_path / "out" / "results.md").read_text()
    assert "| Calibrator | CE(h;β) |" in text
    assert "600 rows; points per bin from 10" in text
    # Earlier results are replaced; other files are not touched.
    found.write(tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("dear")
    with pytest.raises(InputError, match="holds files that are not results of an experiment"):
        found.write(tmp_path / "mine")
    with pytest.raises(FileNotFoundError):
        found.write(tmp_path / "out", {"no/such/page": ""})
    assert (tmp_path / "out" / "results.md").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]


@pytest.mark.parametrize("where", ["results.parquet", "results.md"])
def test_a_full_disk_is_an_error_that_names_the_output(tmp_path, monkeypatch, where):
    found = once_run()

    def fails(*arguments, **options):
        if where == "results.md":
            raise OSError(errno.ENOSPC, "No space left on device")
        raise pl.exceptions.ComputeError("No space left on device (os error 28)")

    monkeypatch.setattr(*((Path, "write_text") if where == "results.md" else (pl.DataFrame, "write_parquet")), fails)
    with pytest.raises(InputError, match="out cannot be written: No space left on device"):
        found.write(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_blocks_that_cannot_be_run_leave_a_note():
    rows = pl.concat(
        [
            vectors_and_labels(500, 1, "good"),
            vectors_and_labels(60, 2, "short"),
            vectors_and_labels(500, 3, "perfect").with_columns(correct=pl.lit(1, dtype=pl.Int64)),
        ]
    )
    found = run_experiment(rows, by=["model"], **OPTIONS)
    assert found.results["model"].unique().to_list() == ["good"]
    notes = " ".join(found.notes)
    assert "model short was left out: 60 questions are too few" in notes
    assert "model perfect was left out: all answers are correct; there is nothing to calibrate" in notes


def test_a_block_with_bad_rows_only_leaves_a_note():
    rows = pl.concat(
        [vectors_and_labels(500, 1, "good"), vectors_and_labels(60, 2, "bad").with_columns(confidence=pl.lit(85.0))]
    )
    found = run_experiment(rows, by=["model"], reading=Reading(on_fault=BadRows()), **OPTIONS)
    assert found.results["model"].unique().to_list() == ["good"]
    assert found.notes == ("model bad was left out: all of its rows are bad.",)


def test_refusals():
    rows = vectors_and_labels(600).with_columns(tags=pl.lit(["a"]), gap=pl.lit(None, dtype=pl.String))
    for bad, said in (
        (rows.drop("correct"), "no column 'correct'"),
        (rows.with_columns(correct=pl.lit(0)), "all answers are wrong"),
        (rows.head(100), "100 questions are too few"),
        (two_llms(), "several LLMs"),
    ):
        with pytest.raises(InputError, match=said):
            run_experiment(bad, **OPTIONS)
    for options, said in (
        ({"label": "id"}, "the column id has 600 values in 600 rows"),
        ({"label": "colour"}, "colour"),
        ({"by": ["colour"]}, "colour"),
        ({"by": ["tags"]}, r"\['a'\] cannot separate rows; expected a column of text or whole numbers"),
        ({"by": ["gap"]}, "row 1: gap is missing; it is a column that --by names"),
        ({"objective": "fame"}, "objective is 'fame'"),
        ({"search": "deep"}, "search is 'deep'"),
        ({"seeds": 0}, "seeds is 0"),
        ({"alpha": 2.0}, "alpha is 2.0"),
        ({"partitions": ["forest"]}, "names no partition"),
        ({"partitions": ["column:kind*kdtree:2"]}, "cannot be searched"),
        ({"partitions": [len]}, "is not a partition"),
        ({"partitions": [KDTree(max_depth="deep")]}, "max_depth is 'deep'"),
        ({"partitions": [KDTree(axes="x")]}, "axes is 'x'"),
        ({"ties": "random"}, "ties is 'random'; expected merge or jitter"),
        ({"search": "paper", "epsilon": 0.01}, "Or search widely"),
    ):
        with pytest.raises(InputError, match=said):
            run_experiment(rows, **{**OPTIONS, **options})
    assert run_experiment(two_llms(), allow_mixed=True, **OPTIONS).results["rows"].unique().to_list() == [1600]


def test_the_input_file_is_not_deleted(tmp_path):
    """A folder with results and other files is not replaced."""
    found = once_run()
    found.write(tmp_path / "out")
    (tmp_path / "out" / "answers.parquet").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"not results of an experiment \(answers.parquet\)"):
        found.write(tmp_path / "out")
    assert (tmp_path / "out" / "answers.parquet").read_bytes() == b"mine"


def test_results_behind_a_link_are_replaced_in_place(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    once_run().write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "results.md").is_file()


def test_names_of_blocks_cannot_collide_with_results_or_break_a_table():
    rows = vectors_and_labels(600)
    with pytest.raises(InputError, match="a column 'seed' of their own"):
        run_experiment(rows.with_columns(seed=pl.lit(1)), by=["seed"], **OPTIONS)
    hostile = "<script>|x\ny"
    text = run_experiment(rows.with_columns(model=pl.lit(hostile)), by=["model"], **OPTIONS).markdown()
    assert "&lt;script>\\|x y" in text
    assert "<script>" not in text
    numbers = pl.concat(
        [
            vectors_and_labels(600, 1).with_columns(model=pl.lit(1)),
            vectors_and_labels(600, 2).with_columns(model=pl.lit(2)),
        ]
    )
    assert run_experiment(numbers, by=["model"], **OPTIONS).results["model"].unique().sort().to_list() == ["1", "2"]


def test_errors_are_measured_within_a_label_that_no_method_saw():
    rows = vectors_and_labels(600)
    with pytest.raises(InputError, match="the groups are made of kind"):
        run_experiment(rows, label="kind", partitions=["column:kind"], seeds=1)
    with pytest.raises(InputError, match="errors cannot be measured within correct"):
        run_experiment(rows, label="correct", **OPTIONS)
    with pytest.raises(InputError, match="the column id has 600 values"):
        run_experiment(rows, partitions=["column:id"], seeds=1)


def test_copies_of_questions_do_not_tighten_the_guarantee():
    one = vectors_and_labels(700)
    thrice = pl.concat([one, one.with_columns(confidence=0.5), one.with_columns(confidence=0.7)])
    promised = [run_experiment(rows, **OPTIONS).ranges[()].partition("promise")[2] for rows in (one, thrice)]
    assert promised[0] == promised[1]
    assert run_experiment(thrice, objective="error", **OPTIONS).results["tuning"].is_not_nan().all()


def test_jittered_ties_need_an_id_for_every_row_of_a_block():
    rows, options = vectors_and_labels(500), OPTIONS | {"ties": "jitter", "seeds": 1}
    twice = pl.concat([rows, rows.with_columns(model=pl.lit("parrot-2"))])
    with pytest.raises(InputError, match=r"rows \d+ and \d+ have the same id and the same confidence"):
        run_experiment(twice, allow_mixed=True, **options)
    found = run_experiment(twice, by=["model"], **options)
    assert found.notes == ()
    assert "Bins order equal confidences by the hash of the id" in found.markdown()


def test_every_seed_needs_questions_in_every_part():
    few = pl.concat([vectors_and_labels(30, 1).with_columns(id=pl.col("id")) for _ in range(40)])
    with pytest.raises(InputError, match="30 questions are too few"):
        run_experiment(few, **OPTIONS)


def test_every_beta_has_a_mean_over_blocks_of_its_own():
    found = run_experiment(
        two_llms(),
        by=["model"],
        embedders=["column:embedding", "column:embedding"],
        partitions=["kdtree:2", "kmeans:4"],
        seeds=1,
    )
    assert [table.names for table in found.overview()] == [
        ("column:embedding", "kdtree:2"), ("column:embedding", "kmeans:4")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("by", "model"),
        ("by", 3),
        ("embedders", "static"),
        ("partitions", True),
        ("partitions", KDTree()),
        ("partitions", []),
        ("label", [1]),
    ],
)
def test_invalid_lists_and_names_are_refused(name, value):
    with pytest.raises(InputError, match=rf"^{name} is .*; expected (a list|the name)"):
        run_experiment(two_llms(), **{name: value})
