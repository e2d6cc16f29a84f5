"""The real package `datasets` loads local folders in the documented format; errors if it cannot.

Tests run the command in a separate process, with networking switched off.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import polars as pl
import pytest

from tests.sources.questions.rows import BIGBENCH, BIGBENCH_OPEN, HIDDEN, MMLU, OPENBOOKQA, SCIQ, TRIVIAQA

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(find_spec("datasets") is None, reason="needs pip install -e '.[hub]'"),
]

# As on the hub, where answers of MMLU are class labels.
FEATURES = """dataset_info:
- config_name: all
  features:
  - {name: question, dtype: string}
  - {name: subject, dtype: string}
  - {name: choices, sequence: string}
  - name: answer
    dtype: {class_label: {names: {'0': A, '1': B, '2': C, '3': D}}}
"""
# Further columns of TriviaQA: pages and search results, with a list for each field.
PAGES = {
    "entity_pages": {"title": ["Nile"], "wiki_context": ["A river."]},
    "search_results": {"url": [""], "rank": [0]},
}


def without(row, *columns):
    return {name: value for name, value in row.items() if name not in columns}


def copy(folder, splits, features=""):
    """Write a dataset as on the hub: Parquet files, and a list of those that make each split of a config."""
    listed = ""
    for (config, split), rows in splits.items():
        (folder / config).mkdir(parents=True, exist_ok=True)
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / config / f"{split}-00000-of-00001.parquet")
        entry = f"  - split: {split}\n    path: {config}/{split}-*\n"
        listed += entry if f"config_name: {config}\n" in listed else f"- config_name: {config}\n  data_files:\n{entry}"
    (folder / "README.md").write_text(f"---\n{features}configs:\n{listed}---\n")
    return folder


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    return {
        "triviaqa": copy(
            folder / "triviaqa",
            {
                ("unfiltered.nocontext", "validation"): [TRIVIAQA | PAGES],
                ("unfiltered.nocontext", "test"): [TRIVIAQA | PAGES | {"answer": HIDDEN | TRIVIAQA["answer"] | HIDDEN}],
            },
        ),
        "sciq": copy(folder / "sciq", {("default", "train"): [SCIQ, SCIQ]}),
        "bigbench": copy(
            folder / "bigbench",
            {
                ("odd_one_out_zero_shot", "default"): [without(BIGBENCH, "task")],
                ("sums_zero_shot", "default"): [
                    without(BIGBENCH_OPEN, "task", "multiple_choice_targets", "multiple_choice_scores")
                    | {"multiple_choice_targets": [], "multiple_choice_scores": []}
                ],
            },
        ),
        "openbookqa": copy(folder / "openbookqa", {("main", "train"): [OPENBOOKQA], ("main", "test"): [OPENBOOKQA]}),
        "mmlu": copy(folder / "mmlu", {("all", "test"): [MMLU, MMLU | {"question": "Two?"}]}, FEATURES),
    }


def ask(tmp_path, *arguments):
    """Run the command; return its exit code, its messages and the rows that it wrote."""
    out = tmp_path / "questions.parquet"
    command = [sys.executable, "-c", "from qacal.cli.main import main; main()", "questions", *map(str, arguments)]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    done = subprocess.run([*command, "-o", str(out)], env=env, capture_output=True, text=True)
    return done.returncode, done.stderr, pl.read_parquet(out).rows(named=True) if out.exists() else []


def test_each_benchmark_through_the_real_library(hub, tmp_path):
    expected = {
        "triviaqa": ("tc_7", None, ["Nile", "The Nile", "River Nile"], "http://www.triviacountry.com/"),
        "sciq": ("sciq-94d8e22cb3557f47", None, ["carbon dioxide"], None),
        "openbookqa": ("7-980", ["melt", "burn", "sing", "grow"], ["melt"], None),
        "mmlu": ("mmlu-0c7aa6fcd5a9e142", ["21", "27", "29", "33"], ["29"], "elementary_mathematics"),
    }
    for name, row in expected.items():
        code, said, found = ask(tmp_path, name, "--from", hub[name])
        assert code == 0, said
        first = found[0]
        assert (first["id"], first["choices"], first["ground_truth"], first["subject"]) == row
        assert first["dataset"] == name
        assert f"Questions of {name}: {len(found)}." in said


def test_tasks_of_bigbench_become_subjects(hub, tmp_path):
    tasks = ("--task", "odd_one_out", "--task", "sums")
    code, said, found = ask(tmp_path, "bigbench", "--from", hub["bigbench"], *tasks)
    assert code == 0, said
    assert [(row["subject"], row["choices"], row["ground_truth"]) for row in found] == [
        ("odd_one_out", ["pear", "brick", "plum"], ["brick"]),
        ("sums", None, ["7", "seven"]),
    ]


def test_options(hub, tmp_path):
    _, said, found = ask(tmp_path, "sciq", "--from", hub["sciq"], "--choices")
    assert sorted(found[0]["choices"]) == ["carbon dioxide", "helium", "nitrogen", "oxygen"]
    assert "Rows left out: 1; an earlier row asks the same (row 2:" in said
    assert len(ask(tmp_path, "mmlu", "--from", hub["mmlu"], "--split", "test[:1]")[2]) == 1
    assert len(ask(tmp_path, "mmlu", "--from", hub["mmlu"], "--limit", "1")[2]) == 1


def test_errors_of_loading_take_one_line(hub, tmp_path):
    for arguments, said in (
        (("sciq",), "qacal: sciq: allenai/sciq, default, split train, cannot be loaded. Couldn't reach"),
        (("sciq",), "A folder with a copy of the data will do: --from FOLDER."),
        (("sciq", "--from", tmp_path / "none"), "cannot be loaded. Couldn't"),
        (("sciq", "--from", hub["sciq"], "--split", "trai"), "Unknown split \"trai\". Should be one of ['train']."),
        (("sciq", "--from", hub["mmlu"]), "BuilderConfig 'default' not found"),
        (("bigbench", "--from", hub["bigbench"], "--task", "sum"), "BuilderConfig 'sum_zero_shot' not found"),
        (("triviaqa", "--from", hub["triviaqa"], "--split", "test"), "no row can be used: the answer is hidden"),
    ):
        code, error, found = ask(tmp_path, *arguments)
        assert (code, found) == (1, []), arguments
        assert said in error
        assert "Traceback" not in error


def test_columns_that_are_gone_are_named(hub, tmp_path):
    folder = copy(tmp_path / "sciq", {("default", "train"): [without(SCIQ, "correct_answer")]})
    code, error, _ = ask(tmp_path, "sciq", "--from", folder)
    assert code == 1
    assert f"{folder}, default, has no column 'correct_answer'; it has question, distractor1," in error
