"""promptfoo and DeepEval: which answers were judged, and by which metric."""

import pytest

from qacal.errors import InputError
from qacal.sources.importers import Selection, import_log
from tests.sources.importers.logs import (
    CASES,
    deepeval_case,
    promptfoo_result,
    write_json,
    write_lines,
)

PARIS, FIVE, GOETHE = CASES


def promptfoo(folder, *results, **selection):
    return import_log("promptfoo", [write_lines(folder / "out.jsonl", results)], Selection(**selection))


def deepeval(folder, *cases, **selection):
    path = write_json(folder / "test_run_1.json", {"testCases": cases, "testPassed": 1})
    return import_log("deepeval", [path], Selection(**selection))


# promptfoo


def test_a_failed_provider_is_not_a_wrong_answer(tmp_path):
    failed = promptfoo_result(1, FIVE, failureReason=2, success=False, error="429")
    silent = promptfoo_result(2, GOETHE, response={"error": "timeout"})
    found = promptfoo(tmp_path, promptfoo_result(0, PARIS), failed, silent)
    assert found.account.dropped == {"the provider failed": 2}


def test_without_assertions_nothing_was_judged(tmp_path):
    grading = {"pass": True, "score": 1, "reason": "No assertions", "componentResults": []}
    found = promptfoo(tmp_path, promptfoo_result(0, PARIS, gradingResult=grading))
    assert found.frame["correct"].to_list() == [None]


def test_a_named_score_can_be_the_label(tmp_path):
    result = promptfoo_result(0, PARIS, namedScores={"facts": 0.4}, score=0.7)
    assert promptfoo(tmp_path, result).frame["correct"].to_list() == [1.0]
    assert promptfoo(tmp_path, result, metric="facts").frame["correct"].to_list() == [0.4]
    assert promptfoo(tmp_path, result, metric="facts", correct_at=0.5).frame["correct"].to_list() == [0.0]
    assert promptfoo(tmp_path, result, correct_at=0.8).frame["correct"].to_list() == [0.0]
    with pytest.raises(InputError, match="1: it has no metric tone"):
        promptfoo(tmp_path, result, metric="tone")


def test_providers_and_repeats_share_the_question(tmp_path):
    other = promptfoo_result(1, PARIS, id="other", provider={"id": "org:llm-2", "label": "two"})
    found = promptfoo(tmp_path, promptfoo_result(0, PARIS), other).frame
    assert found["id"].n_unique() == 1
    assert found["model"].to_list() == ["org:llm", "two"]
    assert found["prompt"].to_list() == ["Question: {{question}}"] * 2


def test_the_id_is_that_of_the_question(tmp_path):
    """Other variables do not make another question; without variables, the prompt is the question."""
    asked = [{"question": "2+2?", "tone": "rude"}, {"question": "2+2?", "tone": "kind"}, {"question": "2+3?"}]
    found = promptfoo(tmp_path, *(promptfoo_result(at, PARIS, vars=given) for at, given in enumerate(asked)))
    first, again, other = found.frame["id"].to_list()
    assert first == again != other
    prompts = [{"raw": raw, "label": "one"} for raw in ("Capital of France?", "Capital of Italy?", "Capital of Italy?")]
    bare = [promptfoo_result(at, PARIS, vars={}, prompt=prompt) for at, prompt in enumerate(prompts)]
    first, second, again = promptfoo(tmp_path, *bare).frame["id"].to_list()
    assert first != second == again


def test_a_cut_output_of_promptfoo_is_not_read(tmp_path):
    said = "Guess: Paris\nProbability: 0"
    results = [
        promptfoo_result(at, PARIS, response={"output": said, "finishReason": reason})
        for at, reason in enumerate(("length", "stop"))
    ]
    found = promptfoo(tmp_path, *results)
    why = "no confidence: none in the metadata; the reply is cut off; there are no token probabilities"
    assert (found.account.kept, found.account.dropped) == (1, {why: 1})


def test_a_named_score_on_another_scale_is_refused(tmp_path):
    results = [promptfoo_result(at, PARIS, namedScores={"stars": stars}) for at, stars in enumerate((1, 5))]
    with pytest.raises(InputError, match=r"line 2: the metric stars is 5; expected 0 to 1\. .*--correct-at"):
        promptfoo(tmp_path, *results, metric="stars")


def test_metadata_comes_before_the_stated_confidence(tmp_path):
    metadata = {"confidence": 0.5, "topic": "geo"}
    row = promptfoo(tmp_path, promptfoo_result(0, PARIS, metadata=metadata)).frame.to_dicts()[0]
    assert (row["confidence"], row["confidence_source"], row["confidence_stated"]) == (0.5, "metadata", 0.95)
    row = promptfoo(tmp_path, promptfoo_result(0, PARIS, metadata=metadata), confidence_from="stated").frame.to_dicts()[
        0
    ]
    assert (row["confidence"], row["confidence_source"]) == (0.95, "stated")


def test_variables_with_other_names(tmp_path):
    given = {"country": "France", "model": "a car", "topic": "cities"}
    result = promptfoo_result(0, PARIS, vars=given, metadata={"topic": "capitals", "country": "France"})
    row = promptfoo(tmp_path, result, question_after="Question:").frame.to_dicts()[0]
    assert row["question"] == "Capital of France?"
    assert (row["country"], row["vars_model"], row["model"]) == ("France", "a car", "org:llm")
    assert (row["topic"], row["metadata_topic"]) == ("cities", "capitals")


def test_outputs_that_are_objects(tmp_path):
    output = {"answer": "Paris", "confidence": 0.9}
    row = promptfoo(tmp_path, promptfoo_result(0, PARIS, response={"output": output})).frame.to_dicts()[0]
    assert (row["answer"], row["confidence"]) == ("Paris", 0.9)


# DeepEval


def test_a_metric_of_several(tmp_path):
    metrics = [
        {"name": "Exact Match", "success": False, "score": 0.0},
        {"name": "Relevancy", "success": True, "score": 0.6, "threshold": 0.5},
        {"name": "Bias", "success": None, "score": None, "error": "timeout"},
    ]
    case = deepeval_case(0, PARIS, success=False, metricsData=metrics)
    assert deepeval(tmp_path, case).frame["correct"].to_list() == [0.0]
    assert deepeval(tmp_path, case, metric="Relevancy").frame["correct"].to_list() == [1.0]
    assert deepeval(tmp_path, case, metric="Relevancy", correct_at=0.7).frame["correct"].to_list() == [0.0]
    with pytest.raises(InputError, match="1: the metric gave nothing"):
        deepeval(tmp_path, case, metric="Bias")


def test_a_threshold_needs_a_metric(tmp_path):
    with pytest.raises(InputError, match="--correct-at needs --metric"):
        deepeval(tmp_path, deepeval_case(0, PARIS), correct_at=0.5)


def test_cases_without_metrics_or_output(tmp_path):
    found = deepeval(tmp_path, deepeval_case(0, PARIS, metricsData=[]), deepeval_case(1, FIVE, actualOutput=None))
    assert found.frame["correct"].to_list() == [None]
    assert found.account.dropped == {"there is no reply": 1}


def test_the_latest_run_lies_deeper(tmp_path):
    path = write_json(tmp_path / ".latest_test_run.json", {"testRunData": {"testCases": [deepeval_case(0, PARIS)]}})
    assert import_log("deepeval", [path]).account.kept == 1
    with pytest.raises(InputError, match="has no testCases"):
        import_log("deepeval", [write_json(tmp_path / "test_run_2.json", {"testPassed": 0})])
