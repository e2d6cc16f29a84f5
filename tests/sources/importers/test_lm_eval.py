"""lm-evaluation-harness: which row counts, which choice is best, where the confidence comes from."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.errors import InputError
from qacal.sources.importers import Selection, import_log
from qacal.sources.importers.lm_eval import Choice, best_choice, filtered_replies
from tests.sources.importers.logs import choice_row, lm_eval_repeats, reply_row, write_json, write_lines

NAME = "samples_quiz_2026-11-15T19-20-00.263815.jsonl"


def imported(folder, *rows, name=NAME, keep_unscored=False, **selection):
    path = write_lines(folder / "llm" / name, rows)
    return import_log("lm-eval", [path], Selection(**selection), keep_unscored=keep_unscored)


def only(folder, *rows, **options):
    found = imported(folder, *rows, **options)
    assert found.account.kept == 1
    return found.frame.to_dicts()[0]


# Likelihoods and the row of brier_score that lm-eval 0.4.13 wrote for them with its `dummy` model.
LIKELIHOODS = [-0.10905784593110368, -0.5512672460905512, -0.7065614098668896, -0.5474409113284238]
PROBABILITIES = [0.35237608, 0.22644217, 0.19387148, 0.22731028]


def test_the_confidence_is_the_probability_that_lm_eval_computes(tmp_path):
    row = choice_row(0, ["Paris", "Rome", "Oslo", "Bern"], LIKELIHOODS, 0, acc=1.0)
    assert only(tmp_path, row)["confidence"] == pytest.approx(PROBABILITIES[0], abs=5e-9)


def twin(texts, likelihoods, alone, metric):
    """The rules, written slowly."""
    likelihoods = np.array(likelihoods)
    lengths = {
        "acc": np.ones(len(texts)),
        "acc_norm": np.array([float(len(text)) for text in texts]),
        "acc_bytes": np.array([float(len(text.encode("utf-8"))) for text in texts]),
    }
    values = likelihoods - np.array(alone) if metric == "acc_mutual_info" else likelihoods / lengths[metric]
    shares = np.exp(values - values.max())
    return int(np.argmax(values)), shares.max() / shares.sum()


@given(
    choices=st.lists(
        st.tuples(st.text("aäé字 b", min_size=1, max_size=9), st.floats(-80, 0), st.floats(-80, 0)),
        min_size=2,
        max_size=6,
    ),
    metric=st.sampled_from(["acc", "acc_norm", "acc_bytes", "acc_mutual_info"]),
)
def test_the_best_choice_is_that_of_the_twin(choices, metric):
    best, confidence = best_choice([Choice(*choice) for choice in choices], metric)
    expected, share = twin(*zip(*choices, strict=True), metric)
    assert best == expected
    assert confidence.value == pytest.approx(share, rel=1e-12)


def test_answer_confidence_and_correct_are_of_one_metric(tmp_path):
    # By likelihood the short choice wins (-2 > -3), for each character the long one (-3/11 > -2/3).
    row = choice_row(0, ["Kyd", "Shakespeare"], [-2.0, -3.0], 1, acc=0.0, acc_norm=1.0)
    by_acc, by_norm = only(tmp_path, row), only(tmp_path, row, metric="acc_norm")
    assert (by_acc["answer"], by_acc["correct"]) == ("Kyd", 0.0)
    assert by_acc["confidence"] == pytest.approx(1 / (1 + math.exp(-1)))
    assert by_acc["confidence_source"] == "choice likelihood"
    assert (by_norm["answer"], by_norm["correct"]) == ("Shakespeare", 1.0)
    assert by_norm["confidence"] == pytest.approx(1 / (1 + math.exp(-2 / 3 + 3 / 11)))
    assert by_norm["confidence_source"] == "choice likelihood (acc_norm)"


def test_likelihoods_without_the_question_are_no_choices(tmp_path):
    row = choice_row(0, ["a", "b"], [-1.0, -2.0], 0, alone=[-0.1, -5.0], acc=1.0, acc_mutual_info=0.0)
    assert only(tmp_path, row)["confidence"] == pytest.approx(1 / (1 + math.exp(-1)))
    mutual = only(tmp_path, row, metric="acc_mutual_info")
    # Likelihood minus that without the question: -1 + .1 = -.9 and -2 + 5 = 3.
    assert (mutual["answer"], mutual["confidence"]) == ("b", pytest.approx(1 / (1 + math.exp(-3.9))))


def test_a_metric_that_contradicts_its_rule_is_an_error(tmp_path):
    row = choice_row(0, ["a", "b"], [-1.0, -2.0], 0, acc=0.0)
    with pytest.raises(InputError, match=r"line 1: acc is 0\.0, though by its rule the best choice is the target"):
        imported(tmp_path, row)


def test_fractional_metrics_and_single_choices_give_no_label(tmp_path):
    good = choice_row(0, ["a", "b"], [-1.0, -2.0], 0, acc=1.0)
    share = choice_row(1, ["a", "b"], [-1.0, -2.0], 0, acc=0.43)
    single = choice_row(2, ["a"], [-1.0], "a", acc=1.0)
    # The first choice is not taken as the best, neither as the answer nor to find which rule the log uses.
    unknown = [choice_row(number, ["a", "b"], ["nan", "-inf"], 0, acc=acc) for number, acc in ((3, 1.0), (4, 0.0))]
    found = imported(tmp_path, good, share, single, *unknown, keep_unscored=True)
    assert (found.account.read, found.account.kept) == (5, 1)
    assert found.account.dropped == {
        "acc is a fraction, so it does not say whether the choice is correct": 1,
        "there is one choice only: its likelihood is that of the target, not of an answer": 1,
        "a choice has no likelihood, so the best one is not known": 2,
    }


@pytest.mark.parametrize(
    ("choices", "target", "correct", "truth"),
    [
        (["Rome", "Paris"], 1, 1.0, "Paris"),  # a place
        (["Rome", "Paris"], "Paris", 1.0, "Paris"),  # the text of a choice
        (["7", "8"], 1, 1.0, "8"),  # a place, though the choices are numbers
        (["0", "1", "2"], 2, 0.0, "2"),  # a place and a text that are the same choice
        (["1", "0"], 1, 1.0, "0"),  # place 1, or the choice "1"? Unclear, but the chosen one is correct
        (["1", "0"], 0, 0.0, None),  # place 0, or the choice "0"? Unclear
        (["Rome", "Paris"], [0, 1], 1.0, ["Rome", "Paris"]),  # several are correct
    ],
)
def test_targets_are_places_or_texts(tmp_path, choices, target, correct, truth):
    likelihoods = [-9.0] * len(choices)
    likelihoods[1] = -1.0
    row = only(tmp_path, choice_row(0, choices, likelihoods, target, acc=correct))
    assert row.get("ground_truth") == truth


def test_letters_become_the_texts_of_their_choices(tmp_path):
    doc = {"question": "Capital?", "choices": {"text": ["Rome", "Paris"], "label": ["A", "B"]}, "answerKey": "B"}
    row = only(tmp_path, choice_row(0, ["A", "B"], [-3.0, -1.0], 1, doc=doc, acc=1.0))
    assert (row["answer"], row["ground_truth"], row["answerKey"]) == ("Paris", "Paris", "B")


def test_choices_that_are_contexts(tmp_path):
    """In Winogrande the choices differ in the context, and the continuation is the same."""
    row = choice_row(0, ["x", "y"], [-3.0, -1.0], "was small.", doc={"sentence": "s"}, acc=1.0, acc_norm=1.0)
    contexts = ["Ann met Bo because Ann", "Ann met Bo because Bo"]
    row["arguments"] = {
        f"gen_args_{at}": {"arg_0": context, "arg_1": " was small."} for at, context in enumerate(contexts)
    }
    assert only(tmp_path, row)["answer"] == "Bo"
    by_length = imported(tmp_path, row, choice_row(1, ["a", "b"], [-1.0, -2.0], 0, acc_norm=1.0), metric="acc_norm")
    assert by_length.account.dropped == {
        "its choices are contexts: lm-eval does not log the lengths that acc_norm divides by": 1
    }


def test_rows_of_old_versions_are_refused(tmp_path):
    row = choice_row(7, ["Rome", "Paris"], [-3.0, -1.0], 1, acc=1.0)
    for old in ({"arguments": [["Question: q", " Rome"], ["Question: q", " Paris"]]}, {"metrics": None}):
        with pytest.raises(InputError, match="Those of old versions cannot be read"):
            imported(tmp_path, row | old)


def test_one_filter_is_imported(tmp_path):
    said = "Guess: Paris\nProbability: 0.7"
    rows = [
        reply_row(0, [said], said, filter_="none", target="Rome", exact_match=0.0),
        reply_row(0, [said], "Paris", filter_="guess", target="Rome", exact_match=0.0),
    ]
    with pytest.raises(InputError, match=r"there are several filters: none, guess\. Choose one with --filter\."):
        imported(tmp_path, *rows)
    with pytest.raises(InputError, match=r"1: it is of the filter none\n  1: it is of the filter guess"):
        imported(tmp_path, *rows, filter="strict")
    found = imported(tmp_path, *rows, filter="guess")
    assert (found.account.read, found.account.kept, found.account.dropped) == (2, 1, {"it is of the filter none": 1})
    assert found.frame["filter"].to_list() == ["guess"]


def test_a_score_of_the_whole_reply_is_not_the_label_of_an_answer(tmp_path):
    said = "Guess: Paris\nProbability: 0.7"
    with pytest.raises(InputError, match="exact_match is 0 though the answer 'Paris' is the target"):
        imported(tmp_path, reply_row(0, [said], said, target="Paris", exact_match=0.0))


def test_two_rows_of_a_question_and_filter_are_refused(tmp_path):
    row = reply_row(0, ["Guess: Paris\nProbability: 0.7"], "Paris")
    with pytest.raises(InputError, match="two rows of llm, quiz:0, none"):
        imported(tmp_path, row, row)


def test_stated_confidences_come_from_the_raw_reply(tmp_path):
    row = only(tmp_path, reply_row(0, ["Guess: Paris\nProbability: 0.7"], "Paris"))
    assert (row["answer"], row["confidence"], row["confidence_source"]) == ("Paris", 0.7, "stated")
    assert (row["category"], row["doc_answer"]) == ("geography", "Paris")


def test_an_answer_that_the_filter_did_not_find_is_parsed(tmp_path):
    row = only(tmp_path, reply_row(0, ["Guess: Paris\nProbability: 0.7"], "[invalid]", target="Rome", exact_match=0.0))
    assert row["answer"] == "Paris"


def test_replies_without_confidence_are_dropped_or_kept_empty(tmp_path):
    rows = [reply_row(0, ["Guess: Paris\nProbability: 0.7"], "Paris"), reply_row(1, ["Paris"], "Paris")]
    found = imported(tmp_path, *rows)
    assert found.account.dropped == {"no confidence: there is no guess": 1}
    kept = imported(tmp_path, *rows, keep_unscored=True)
    assert kept.frame["confidence"].to_list() == [0.7, None]
    assert kept.frame["confidence_source"].to_list() == ["stated", None]
    with pytest.raises(
        InputError, match=r"no row is left of 1:\n  1: no confidence: .*\nRows that .* are kept with --keep-unscored"
    ):
        imported(tmp_path, rows[1])


def test_agreement_of_repeats_is_with_the_judged_answer(tmp_path):
    repeats = ["Paris", "Lyon", "paris.", "The Paris"]
    majority = only(tmp_path, reply_row(0, repeats, "Paris"))
    assert (majority["answer"], majority["confidence"], majority["confidence_source"]) == ("Paris", 0.75, "agreement")
    # A filter that takes the first reply judges that one, whatever the others say.
    first = only(tmp_path, reply_row(0, ["Lyon", *repeats], "Lyon", target="Paris", exact_match=0.0))
    assert (first["answer"], first["confidence"]) == ("Lyon", 0.4)


def test_a_source_that_a_row_does_not_have_is_not_replaced(tmp_path):
    said, choice = (
        reply_row(0, ["Guess: Paris\nProbability: 0.7"], "Paris"),
        choice_row(1, ["a", "b"], [-1.0, -2.0], 0, acc=1.0),
    )
    assert imported(tmp_path, said, choice, confidence_from="choice likelihood").frame["id"].to_list() == ["quiz:1"]
    assert imported(tmp_path, said, choice, confidence_from="stated").frame["id"].to_list() == ["quiz:0"]
    with pytest.raises(InputError, match="1: no confidence: there are no repeats"):
        imported(tmp_path, said, choice, confidence_from="agreement")


def test_repeats_with_stated_confidences(tmp_path):
    repeats = ["Guess: Lyon\nProbability: 0.5", "Guess: Paris\nProbability: 0.9", "Guess: Paris\nProbability: 0.7"]
    agreed = only(tmp_path, reply_row(0, repeats, "Paris"))
    assert (agreed["answer"], agreed["confidence"]) == ("Paris", pytest.approx(2 / 3))
    stated = only(tmp_path, reply_row(0, repeats, "Paris"), confidence_from="stated")
    assert (stated["answer"], stated["confidence"], stated["confidence_source"]) == ("Paris", 0.9, "stated")
    for row in (agreed, stated):
        assert (row["agreement"], row["samples"]) == (pytest.approx(2 / 3), 3)


def test_repeats_that_a_filter_kept_apart(tmp_path):
    repeats = ["... so it is B", "well, A", "I say B", "A, for sure"]
    right = only(tmp_path, reply_row(0, repeats, ["B", "A", "B", "A"], target="B", exact_match=1.0))
    # A tie: a digest of the answer decides.
    assert (right["answer"], right["confidence"]) == ("B", 0.5)
    mixed = reply_row(1, repeats, ["B", "A", "B", "A"], target="B", exact_match=0.5)
    apart = reply_row(2, repeats, "C")
    found = imported(tmp_path, reply_row(0, repeats, ["B"] * 4), mixed, apart)
    assert found.account.dropped == {
        "the score is shared by repeats that differ": 1,
        "no confidence: the judged answer is not among the repeats (no results_*.json beside the samples says "
        "what the filter extracts)": 1,
    }


@pytest.mark.parametrize(
    ("pattern", "place", "replies"),
    [
        (
            r"The answer is (\-?[0-9\.\,]*[0-9]+)",
            0,
            ["The answer is -1,234.", "The answer is 3. The answer is 4.", "?"],
        ),
        (r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1, ["1 of 2", "$3.50 for 12", "7 and", "none"]),
        (r"\d+", 1, ["10 and 20", "30 or 40 or 50", "no numbers"]),
        (r"(\d+)$", 0, ["It is 42\n", "It is 43", "44\n\n"]),
        (r"(?i)answer:\s*([A-D])?", 0, ["ANSWER: B", "answer: ", "Answer:C"]),
        (r"(?<=is )\b(\w+)\b(?! or)", 0, ["It is a or it is b", "?"]),
        (r"a\Z", -1, ["a\ud800a", "a\n"]),
    ],
)
def test_a_pattern_finds_what_lm_eval_finds(pattern, place, replies):
    found = [re.findall(pattern, reply) for reply in replies]
    chosen = [all_[place] if all_ else "[invalid]" for all_ in found]
    expected = [next(filter(None, one)) if isinstance(one, tuple) else one for one in chosen]
    step = {"function": "regex", "regex_pattern": pattern, "group_select": place}
    assert filtered_replies(replies, [step, {"function": "take_first"}]) == expected


def test_the_other_steps_of_a_filter():
    steps = [{"function": "take_first_k", "k": 2}, {"function": "remove_whitespace"}, {"function": "uppercase"}]
    assert filtered_replies([" a", "b ", "c"], steps) == ["A", "B"]
    assert filtered_replies(["a"], [{"function": "custom", "filter_fn": "..."}]) is None
    assert filtered_replies(["a"], [{"function": "regex", "regex_pattern": "(a"}]) is None
    assert filtered_replies(["a"], None) is None


def test_a_step_that_cannot_be_done_is_named(tmp_path):
    paths = lm_eval_repeats(tmp_path, [{"function": "custom"}])
    with pytest.raises(
        InputError, match=r"3: no confidence: .* \(a step of its filter cannot be applied here: it is a custom function"
    ):
        import_log("lm-eval", paths)


def test_one_metric_is_the_label(tmp_path):
    row = reply_row(0, ["Guess: Paris\nProbability: 0.7"], "Paris", f1=0.8, bleu=31.0)
    with pytest.raises(InputError, match=r"line 1: there are several metrics: f1, bleu\. Choose one with --metric"):
        imported(tmp_path, row)
    assert only(tmp_path, row, metric="f1")["correct"] == 0.8
    assert only(tmp_path, row, metric="f1", correct_at=0.5)["correct"] == 1.0
    assert only(tmp_path, row, metric="bleu", correct_at=50)["correct"] == 0.0
    with pytest.raises(InputError, match=r"line 1: the metric bleu is 31; expected 0 to 1\. .*--correct-at SCORE"):
        imported(tmp_path, row, metric="bleu")
    with pytest.raises(InputError, match="1: it has no metric rouge, but f1, bleu"):
        imported(tmp_path, row, metric="rouge")


def test_a_target_that_looks_like_a_list_of_numbers_is_one_text(tmp_path):
    said = ["Guess: [1, 2, 3]\nProbability: 0.7"]
    assert only(tmp_path, reply_row(0, said, "[1, 2, 3]", target="[1, 2, 3]"))["ground_truth"] == "[1, 2, 3]"
    assert only(tmp_path, reply_row(0, said, "a", target="['a', 'b']"))["ground_truth"] == ["a", "b"]
    places = choice_row(0, ["a", "b", "c"], [-1.0, -2.0, -3.0], "[0, 2]", acc=1.0)
    assert only(tmp_path, places)["ground_truth"] == ["a", "c"]


def test_values_that_are_not_numbers_are_not_metrics(tmp_path):
    row = choice_row(0, ["a", "b"], [-1.0, -2.0], 0, acc=1.0, brier_score=[0, "[0.7 0.3]"])
    assert only(tmp_path, row)["correct"] == 1.0
    unjudged = reply_row(0, ["Guess: Paris\nProbability: 0.7"], "Paris", bypass=None)
    assert only(tmp_path, unjudged)["correct"] is None


def test_a_folder_is_all_its_tasks_and_the_results_name_the_model(tmp_path):
    rows = [choice_row(0, ["a", "b"], [-1.0, -2.0], 0, acc=1.0)]
    for task in ("mmlu_law", "mmlu_art"):
        write_lines(tmp_path / "org__llm" / f"samples_{task}_2026-11-15T19-20-00.263815.jsonl", rows)
    found = import_log("lm-eval", [tmp_path])
    assert found.frame["id"].to_list() == ["mmlu_art:0", "mmlu_law:0"]
    assert set(found.frame["model"]) == {"org/llm"}
    write_json(tmp_path / "org__llm" / "results_2026-11-15T19-20-00.263815.json", {"model_name": "org/llm-instruct"})
    assert set(import_log("lm-eval", [tmp_path]).frame["model"]) == {"org/llm-instruct"}
    assert set(import_log("lm-eval", [tmp_path], Selection(model="mine")).frame["model"]) == {"mine"}


def test_two_runs_of_a_task_are_not_mixed(tmp_path):
    rows = [choice_row(0, ["a", "b"], [-1.0, -2.0], 0, acc=1.0)]
    for time in ("2026-11-15T19-20-00.263815", "2026-11-16T08-00-00.000001"):
        write_lines(tmp_path / "llm" / f"samples_quiz_{time}.jsonl", rows)
    with pytest.raises(InputError, match=r"two rows of llm, quiz:0, none\. Are two runs of the same task"):
        import_log("lm-eval", [tmp_path])


def test_chats_and_prompts_become_questions(tmp_path):
    row = choice_row(0, ["a", "b"], [-1.0, -2.0], 0, doc={"label": 0}, acc=1.0)
    chat = json.dumps([{"role": "system", "content": "Choose."}, {"role": "user", "content": "Q: a or b?\nA:"}])
    for request in row["arguments"].values():
        request["arg_0"] = [chat]
    assert only(tmp_path, row)["question"] == "Q: a or b?\nA:"
    assert only(tmp_path, row, question_after="Q:")["question"] == "a or b?\nA:"
    assert only(tmp_path, row)["prompt"] == "system: Choose.\nuser: Q: a or b?\nA:"


def test_columns_with_reserved_names_are_renamed(tmp_path):
    doc = {"question": "?", "id": "d1", "source": "web", "confidence": 0.1, "correct": 1, "level": 3, "tags": ["x"]}
    row = only(tmp_path, choice_row(0, ["a", "b"], [-1.0, -2.0], 0, doc=doc, acc=1.0))
    assert row["confidence"] == pytest.approx(1 / (1 + math.exp(-1)))
    expected = {"doc_id": "d1", "doc_source": "web", "doc_confidence": 0.1, "doc_correct": 1, "level": 3}
    assert {name: row[name] for name in expected} == expected
    assert "tags" not in row
