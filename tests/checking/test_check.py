"""What `check` finds in rows; good rows have no findings."""

import json
import math

import polars as pl
import pytest

import qacal
from qacal import InputError
from qacal.cli.options import for_shell
from qacal.planning import plan_margins
from qacal.records.reading import read
from qacal.records.text_files import file_options
from tests.checking.rows import as_csv, changed, labelled, renamed
from tests.cli.test_cli import ok


def kinds(records, **options):
    return [finding.kind for finding in qacal.check(records, **options).findings]


def test_nothing_is_found_in_good_rows():
    found = qacal.check(labelled())
    assert found.is_fine
    assert (found.rows, found.labelled, found.questions, found.options) == (600, 600, 600, ())
    assert found.auroc.low > 0.5
    assert "No problems found." in str(found)


def test_rows_of_every_kind_give_the_same_check(tmp_path):
    rows = [{**row, "id": i} for i, row in enumerate(labelled(50))] + [{**labelled(1)[0], "id": 7, "confidence": None}]
    frame = pl.DataFrame(rows)
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ndjson(tmp_path / "a.jsonl")
    as_csv(tmp_path / "a.csv", rows)
    ways = (
        rows,
        frame,
        frame.to_pandas(),
        frame.to_arrow(),
        *(tmp_path / f"a.{end}" for end in ("parquet", "jsonl", "csv")),
    )
    told = [qacal.check(way).to_dict() for way in ways]
    for one in told[1:]:
        assert {
            name: one[name] for name in ("rows", "labelled", "questions", "columns", "scale", "auroc", "goals")
        } == {name: told[0][name] for name in ("rows", "labelled", "questions", "columns", "scale", "auroc", "goals")}
        assert [finding["kind"] for finding in one["findings"]] == [finding["kind"] for finding in told[0]["findings"]]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda c: round(100 * c), "percents"),
        (lambda c: round(10 * c), "grades"),
        (lambda c: round(100 * c) if c > 0.7 else c, "mixed_scales"),
        (math.log, "logarithms"),
        (lambda c: "high" if c > 0.7 else "low", "words"),
        (lambda c: 1000 * c, "unknown_scale"),
        (lambda c: str(c).replace(".", ","), "bad_rows"),
    ],
)
def test_scales(change, kind):
    assert kinds(changed(labelled(), "confidence", change)) == [kind]


def test_a_few_slips_are_bad_rows_and_not_another_scale():
    rows = labelled()
    rows[7]["confidence"] = 85
    found = qacal.check(rows)
    assert [finding.kind for finding in found.findings] == ["bad_rows"]
    assert (found.bad_rows[0].count, found.bad_rows[0].place) == (1, "row 8")


def test_words_among_numbers_can_have_a_number():
    rows = labelled()
    rows[7]["confidence"] = "Very sure"
    (found,) = qacal.check(rows).findings
    assert found.kind == "bad_rows"
    assert found.remedy.startswith("Give words a number: --expression 'very sure=NUMBER' (in Python: expressions). Fix")


def test_texts_of_percents_need_no_option_in_csv(tmp_path):
    """A fit reads "90%" in a CSV file by itself, alone and among fractions; among numbers from 1 to 100 it cannot."""
    for way in (lambda c, i: f"{100 * c:.0f}%", lambda c, i: f"{100 * c:.0f}%" if i % 3 else c):
        rows = [{**row, "confidence": way(row["confidence"], i)} for i, row in enumerate(labelled())]
        found = qacal.check(as_csv(tmp_path / "a.csv", rows))
        assert (found.findings, found.scale.kind, found.options) == ((), "0-1", ())
        assert sum(map(len, read(tmp_path / "a.csv", needs_labels=True))) == len(rows)
    rows = [{**row, "confidence": f"{100 * row['confidence']:.0f}{'%' * (i % 2)}"} for i, row in enumerate(labelled())]
    assert kinds(as_csv(tmp_path / "a.csv", rows)) == ["percents"]
    assert kinds(as_csv(tmp_path / "a.csv", rows), percent=True) == []
    assert kinds(changed(labelled(), "confidence", lambda c: f"{100 * c:.0f}%")) == ["bad_rows"]  # text is no number


def test_declared_percents_that_are_fractions():
    assert kinds(changed(labelled(), "confidence", lambda c: round(100 * c)), percent=True) == []
    assert kinds(labelled(), percent=True) == ["no_percents"]


def test_words_with_declared_values():
    rows = changed(labelled(), "confidence", lambda c: "High" if c > 0.7 else "low")
    found = qacal.check(rows, expressions={"high": 0.9, "low": 0.4})
    assert found.is_fine
    assert found.options == ("--expression high=0.9", "--expression low=0.4")
    assert [one.kind for one in qacal.check(rows, expressions={"high": 0.9}).bad_rows] == ["confidence in words"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_reported(tmp_path, encoding):
    path = as_csv(tmp_path / "a.csv", changed(labelled(), "answer", lambda text: f"café {text}"), encoding=encoding)
    assert kinds(path)[0] == "encoding"
    finding = qacal.check(path).findings[0]
    named = {"latin-1": "cp1252"}.get(encoding, encoding)
    assert f"Name it: qacal --encoding {named} COMMAND" in f"{finding.problem} {finding.remedy}"


def test_the_encoding_is_in_the_line_to_paste(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = labelled()
    rows[7]["answer"] = "café"
    path = as_csv(tmp_path / "a.csv", rows, encoding="latin-1")
    assert kinds(path) == ["encoding"]
    assert "Not in UTF-8: 1 row of 600 (the first: line 9)." in str(qacal.check(path))
    with file_options(encoding="latin-1"):
        found = qacal.check(path)
    assert found.is_fine
    # The parts of a split are UTF-8.
    split = f"qacal --encoding latin-1 split {path} -o train.csv --rest test.csv"
    assert f"Next:\n    {split}\n    qacal fit train.csv -o model\n" in str(found)


def test_an_encoding_that_was_named_is_not_advised(tmp_path):
    rows = labelled()
    rows[7]["answer"] = "café"
    path = as_csv(tmp_path / "a.csv", rows, encoding="latin-1")
    with file_options(encoding="ascii"):
        finding = qacal.check(path).findings[0]
    assert finding.problem == "1 row of 600 (the first: line 9) cannot be read as ascii."
    assert for_shell(finding.remedy) == "If these rows are damaged, skip them: --skip-bad-rows FILE."


def test_a_header_in_another_encoding_is_found(tmp_path):
    path = as_csv(tmp_path / "a.csv", renamed(labelled(), answer="réponse"), encoding="latin-1")
    assert qacal.check(path).findings[0].problem == "Not in UTF-8: the header."


def test_columns_that_cannot_be_guessed_are_missing():
    rows = renamed(labelled(), question="pytanie", answer="odpowiedz", confidence="pewnosc", correct="poprawna")
    renamed_columns, missing = qacal.check(rows).findings
    assert renamed_columns.problem.startswith("Columns with other names: confidence seems to be 'pewnosc'")
    assert missing.problem == "There are no columns 'question', 'answer'."
    assert "The columns are pytanie, odpowiedz, pewnosc" in missing.remedy


def test_words_are_all_counted_and_hide_no_other_problem(tmp_path):
    words = ["very low", "low", "medium", "high", "very high", "certain"]
    rows = [{**row, "confidence": words[i % 6], "model": "ab"[i % 2]} for i, row in enumerate(labelled(120))]
    for at in range(4):
        rows[at]["question"] = ""
    for at in range(4, 9):
        rows[at]["correct"] = None
    found = qacal.check(as_csv(tmp_path / "a.csv", rows))
    counts = {one.kind: one.count for one in found.findings if one.count is not None}
    assert counts == {"words": 120, "bad_rows": 4, "unlabelled": 5}
    assert found.findings[0].problem.endswith("very high (20) and 1 more.")
    assert found.options[:6] == tuple(f"--expression '{word}=?'" for word in words)
    assert "--skip-bad-rows bad.jsonl" in found.options
    assert found.fewest == ("a", 55)


def test_bad_rows_are_counted_by_kind_with_an_example(tmp_path):
    rows = labelled()
    for at, (column, value) in enumerate(
        [
            ("confidence", ""),
            ("confidence", "high"),
            ("confidence", 3),
            ("correct", "perhaps"),
            ("question", ""),
            ("question", " "),
        ]
    ):
        rows[at][column] = value
    found = qacal.check(as_csv(tmp_path / "a.csv", rows))
    assert {one.kind: (one.count, one.place) for one in found.bad_rows} == {
        "no confidence": (1, "line 2"),
        "confidence in words": (1, "line 3"),
        "confidence above 1": (1, "line 4"),
        "correct in words": (1, "line 5"),
        "no question": (1, "line 6"),
        "question empty": (1, "line 7"),
    }
    assert found.options == ("--skip-bad-rows bad.jsonl",)


def test_rows_without_a_label_do_not_make_bad_rows_few():
    bad, good, rest = labelled()[:30], labelled()[30:60], labelled()[60:]
    rows = [*({**row, "correct": "?"} for row in bad), *good, *({**row, "correct": None} for row in rest)]
    assert "--max-bad 0.74" in qacal.check(rows).options


def test_the_options_for_many_bad_rows_make_a_fit_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{**row, "confidence": "?" if i % 3 == 0 else row["confidence"]} for i, row in enumerate(labelled())]
    found = qacal.check(as_csv(tmp_path / "a.csv", rows))
    (finding,) = found.findings
    assert found.options == ("--skip-bad-rows bad.jsonl", "--max-bad 0.41")
    assert for_shell(finding.remedy) == "Fix them, or skip them: --skip-bad-rows bad.jsonl --max-bad 0.41"
    assert "skip them: on_fault=qacal.BadRows(), max_bad=0.41" in " ".join(str(found).split())
    ok("split", "a.csv", "-o", "train.csv", "--rest", "test.csv", "--skip-bad-rows", "bad_split.jsonl")
    ok("fit", "train.csv", "-o", "model", *" ".join(found.options).split(), "--no-columns")
    assert qacal.load("model").rows_ > 0


def test_unlabelled_rows_are_not_bad_rows():
    found = qacal.check(
        [{**row, "correct": None if i % 9 == 0 else row["correct"]} for i, row in enumerate(labelled())]
    )
    assert [(one.kind, one.count, one.stops) for one in found.findings] == [("unlabelled", 67, False)]
    assert found.options == ()
    assert (found.labelled, found.bad_rows) == (533, ())


def test_duplicates():
    rows = labelled()
    assert kinds([*rows, rows[3]]) == ["duplicate_rows"]
    assert "(for example rows 4 and 601)" in qacal.check([*rows, rows[3]]).findings[0].problem
    stamped = [{**row, "at": i} for i, row in enumerate([*rows, rows[3]])]
    assert kinds(stamped) == ["duplicate_rows"]  # further columns do not make it another answer
    again = [{**rows[3], "confidence": 0.123}]
    assert kinds(rows + again) == ["repeated_questions"]
    named = [{**row, "id": i} for i, row in enumerate(rows + again)]
    assert kinds(named) == ["scattered_questions"]
    assert kinds([{**row, "id": i // 2} for i, row in enumerate(rows)]) == ["shared_ids", "repeated_questions"]
    assert (
        kinds([*rows, {**rows[3], "confidence": 0.123, "correct": 1 - rows[3]["correct"]}])[-1]
        == "contradicting_labels"
    )


def test_several_llms_are_named_and_counted():
    rows = [{**row, "llm": "a" if i % 4 else "b"} for i, row in enumerate(labelled())]
    found = qacal.check(rows)
    assert [one.kind for one in found.findings] == ["renamed_columns", "several_models"]
    assert "a (450), b (150)" in found.findings[1].problem
    assert (found.options, found.fewest) == (("--column model=llm", "--by model"), ("b", 150))
    assert next(goal for goal in found.goals if goal.kind == "text").more == 150
    both = [{**row, "model": name} for name in "ab" for row in labelled()]
    assert kinds(both) == ["several_models"]  # each question once for each LLM


def test_labels_in_unknown_words_list_the_words_that_can_be_read():
    rows = renamed(changed(labelled(), "correct", lambda y: "ja" if y else "nein"), correct="richtig")
    found = qacal.check(rows)
    assert (found.columns["correct"], found.labelled) == ("richtig", 0)
    assert [one.kind for one in found.findings] == ["renamed_columns", "no_labels"]
    assert found.findings[1].problem.startswith("No label can be read: row 1, richtig is ")
    assert "1 (correct) or 0 (wrong), yes or no, true or false" in found.findings[1].remedy
    assert kinds(changed(labelled(), "correct", lambda y: 4 * y + 2)) == ["no_labels"]


def test_only_labels_of_usable_rows_count():
    rows = labelled()
    for row in rows[:30]:
        row["question"] = ""
    for row in rows[30:50]:
        row["confidence"] = None
    found = qacal.check(rows)
    assert (found.rows, found.labelled) == (600, 550)
    assert next(goal for goal in found.goals if goal.labels == 1000).more == 450
    assert str(found).startswith("records: 600 rows, 550 usable with a label, ")
    mixed = changed(rows[50:], "confidence", lambda c: round(100 * c) if c > 0.7 else c)
    assert qacal.check(mixed).labelled == 550  # a wrong scale can be put right


def test_too_few_labels_for_the_commands(tmp_path):
    found = qacal.check(as_csv(tmp_path / "a.csv", labelled(1)))
    assert [(one.kind, one.stops) for one in found.findings] == [("few_labels", True)]
    assert "1 row, 1 usable with a label" in " ".join(str(found).split())
    assert "1 different one\n" in str(found)
    assert "Next" not in str(found)
    found = qacal.check(as_csv(tmp_path / "a.csv", labelled(5)))
    assert [(one.kind, one.stops) for one in found.findings] == [("few_labels", False)]


def test_a_wrong_scale_and_wrong_values_are_distinguished():
    assert "confidence  scale 0 to 1; values from 0." in str(qacal.check(labelled()))


def test_labels_with_little_information():
    equal = qacal.check(changed(labelled(), "correct", lambda y: 1)).findings
    assert [(one.kind, one.stops) for one in equal] == [("one_label", False)]
    assert "A fit accepts them, but cannot learn when the LLM is wrong." in equal[0].remedy
    assert kinds(labelled(accuracy=0.98, gap=0.3)) == ["few_of_a_kind"]
    assert kinds(changed(labelled(), "correct", lambda y: None)) == ["no_labels"]


def test_whether_confidence_and_label_go_the_same_way():
    assert kinds(changed(labelled(), "correct", lambda y: 1 - y)) == ["opposite_confidences"]
    assert kinds(labelled(3000, gap=0.0)) == ["unrelated_confidences"]
    assert kinds(changed(labelled(), "confidence", lambda c: 0.9)) == ["constant_confidences"]


def test_rows_of_one_question_are_no_more_evidence():
    """They would make the interval too narrow, and raise a doubt that `fit` and `evaluate` do not have."""
    few = changed(labelled(12), "correct", lambda y: 1 - y)
    often = [{**row, "answer": f"try {k}"} for k in range(20) for row in few]
    assert "opposite_confidences" in kinds([{**row, "question": f"{i}?"} for i, row in enumerate(often)])
    assert "opposite_confidences" not in kinds(few)
    assert "opposite_confidences" not in kinds(often)
    assert "opposite_confidences" not in kinds([{**row, "model": name} for name in "ab" for row in often])
    assert qacal.check(often).auroc.low == pytest.approx(qacal.check(few).auroc.low)


def test_each_llm_is_judged_by_itself():
    rows = [{**row, "model": "upright"} for row in labelled()]
    rows += [{**row, "model": "upside-down", "answer": "", "correct": 1 - row["correct"]} for row in labelled()]
    found = qacal.check(rows)
    assert [one.kind for one in found.findings] == ["several_models", "opposite_confidences"]
    assert found.findings[1].problem.startswith("Upside-down: answers with higher confidence are more often wrong")


@pytest.mark.parametrize("other", [["Paris", "Paname"], {"by": "hand"}])
def test_a_column_of_texts_and_lists_is_not_categorical(other):
    """JSON lines may have it: one alias is a text, several are a list."""
    rows = [{**row, "aliases": other if place % 2 else "Paris"} for place, row in enumerate(labelled())]
    assert qacal.check(rows).useful == ()


def test_columns_that_look_useful():
    rows = [
        {
            **row,
            "topic": "easy" if (row["correct"] or i % 3 == 0) and i % 5 else "hard",
            "tokens": 0.5 + 0.3 * row["correct"] + (i % 7) / 50 - (0.4 if i % 4 == 0 else 0),
            "noise": i % 3,
            "random": (i * 37 % 100) / 100,
            "passed": row["correct"],
            "vector": [float(i)] * 8,
        }
        for i, row in enumerate(labelled(1000))
    ]
    useful = {column.name: column for column in qacal.check(rows).useful}
    assert {name: column.use for name, column in useful.items()} == {
        "topic": "groups",
        "tokens": "confidence",
        "vector": "vectors",
    }
    assert useful["topic"].options == ("--feature topic", "--partition column:topic")
    assert useful["tokens"].options == ("--feature tokens:confidence",)


def test_what_the_number_of_labels_allows():
    checked = qacal.check(labelled(2600))
    goals = checked.goals
    assert [(goal.kind, goal.labels, goal.is_met) for goal in goals if goal.kind != "threshold"] == [
        ("text", 1000, True),
        ("intervals", 2600, True),
        ("groups", 4900, False),
    ]
    assert next(goal for goal in goals if goal.labels == 4900).more == 2300
    now = plan_margins(round(0.7 * 2600), accuracy=checked.accuracy)
    what = f"intervals of ±{now.band_width:.2f} by probability, and of ±{now.group_width:.2f} by group in {now.groups} "
    assert next(goal.what for goal in goals if goal.kind == "intervals").startswith(what)
    assert plan_margins(round(0.7 * 4900), groups=16, accuracy=checked.accuracy).group_width <= 0.1
    documents = [row | {"id": at // 10} for at, row in enumerate(labelled(2600))]
    of_documents = next(goal.what for goal in qacal.check(documents).goals if goal.kind == "intervals")
    assert of_documents.startswith(f"intervals of ±{plan_margins(182, accuracy=checked.accuracy).band_width:.2f} by")
    few = next(goal for goal in qacal.check(labelled(60)).goals if goal.kind == "intervals")
    assert (few.what, few.is_met) == ("intervals of ±0.1 by probability", False)
    few, many = (
        next(g for g in qacal.check(labelled(600, gap=gap)).goals if g.kind == "threshold") for gap in (0.5, 0.25)
    )
    assert few.labels < many.labels
    assert qacal.check(labelled(20)).goals[0].more == 160


@pytest.mark.parametrize("name", ["empty.csv", "empty.jsonl", "empty.json"])
def test_an_empty_file_is_empty(tmp_path, name):
    (tmp_path / name).touch()
    assert kinds(tmp_path / name) == ["empty"]


def test_files_that_fit_refuses(tmp_path):
    without = [{name: row[name] for name in ("question", "answer")} for row in labelled()]
    assert kinds(without) == ["missing_columns"]
    assert kinds(changed(labelled(), "confidence", lambda c: [c])) == ["bad_rows"]
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    assert kinds(tmp_path / "a.parquet") == ["unreadable"]
    (tmp_path / "a.csv").write_text("question,answer,answer\n1,2,3\n")
    assert kinds(tmp_path / "a.csv") == ["unreadable"]
    late = labelled(20_000)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in late[:17_000]))
    with (tmp_path / "b.jsonl").open("a") as file:
        file.writelines(json.dumps({"question": row["question"]}) + "\n" for row in late[17_000:])
    assert {one.kind: one.count for one in qacal.check(tmp_path / "b.jsonl").bad_rows} == {"no answer": 3_000}


@pytest.mark.parametrize("column", ["id", "model", "question", "answer", "confidence", "correct"])
def test_a_column_that_ends_before_the_rows_do(tmp_path, column):
    rows = [{**row, "id": i, "model": "m"} for i, row in enumerate(labelled(17_000))]
    late = [{name: value for name, value in row.items() if name != column} for row in rows[16_384:]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:16_384] + late))
    found = qacal.check(tmp_path / "a.jsonl")
    counts = {one.kind: one.count for one in found.bad_rows} | {one.kind: one.count for one in found.findings}
    expected = {"correct": {"unlabelled": 616}, "model": {}}
    assert counts == expected.get(column, {f"no {column}": 616, "bad_rows": 616})


def test_input_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        qacal.check(tmp_path / "no.csv")
    with pytest.raises(InputError, match="expected a path"):
        qacal.check(3)
    with pytest.raises(InputError, match="no column 'wisdom' to map"):
        qacal.check(labelled(), columns={"wisdom": "x"})


def test_the_text_fits_a_terminal_and_names_python_arguments_for_python_rows():
    rows = renamed(changed(labelled(), "confidence", lambda c: round(100 * c)), question="prompt", confidence="conf")
    text = str(qacal.check(rows))
    assert max(map(len, text.splitlines())) <= 80
    assert "columns={'question': 'prompt', 'confidence': 'conf'}" in text.replace("\n          ", " ")
    assert "To do: Pass percent=True." in text


def test_python_is_told_no_options_of_the_command_line(tmp_path):
    """Rows with all that has a remedy: other names, a scale, several LLMs, bad rows, words, useful columns."""
    rows = [
        {**row, "model": "ab"[i % 2], "prompt": "xy"[i % 2], "topic": "ab"[row["correct"] ^ (i % 5 == 0)]}
        for i, row in enumerate(labelled(600))
    ]
    rows = renamed(changed(rows, "confidence", lambda c: round(100 * c)), answer="model_answer", correct="is_correct")
    for at, (column, value) in enumerate([("confidence", "high"), ("confidence", -5), ("question", "")]):
        rows[at][column] = value
    grades = changed(labelled(), "confidence", lambda c: round(10 * c))
    rival = [{**row, "model_answer": "x"} for row in labelled()]
    for records, options in ((rows, {}), (grades, {}), (labelled(), {"percent": True}), (rival, {})):
        found = qacal.check(records, **options)
        assert found.findings
        assert "--" not in str(found), str(found)
        assert "in Python" not in str(found)
    text = " ".join(str(qacal.check(rows)).split())
    assert "pass columns={'answer': 'model_answer', 'correct': 'is_correct'}." in text
    assert "features=['topic'] adds it to the score, partition='column:topic' makes groups of it" in text
    assert "One model for all of them: allow_mixed=True." in text
    missing = str(qacal.check(labelled(), columns={"answer": "reply"}))
    assert "Leave out 'answer' in columns" in missing
