"""Langfuse and MLflow: which judgement counts, what it belongs to, and nested values in every form."""

import json

import pytest

from qacal.errors import InputError
from qacal.sources.importers import Selection, import_log
from tests.sources.importers import logs
from tests.sources.importers.logs import CASES, assessment, langfuse_score, observation, trace, write_lines

PARIS, FIVE, GOETHE = CASES


def langfuse(folder, observations, scores=(), **selection):
    return import_log("langfuse", logs.langfuse(folder, observations, scores), Selection(**selection))


def mlflow(folder, *traces, **selection):
    return import_log("mlflow", [write_lines(folder / "traces.jsonl", traces)], Selection(**selection))


# Langfuse


def test_files_that_are_not_pages_of_the_api_are_refused(tmp_path):
    pages = logs.langfuse(tmp_path)
    for name, row in (("export.json", {"id": 1, "input": "?"}), ("old.json", {"id": 1, "type": "GENERATION"})):
        other = write_lines(tmp_path / name, [row])
        with pytest.raises(InputError, match=rf"{name} has neither .* Exports are not read; get pages of the API"):
            import_log("langfuse", [*pages, other])
    empty = write_lines(tmp_path / "last.json", [{"data": [], "meta": {"cursor": None}}])
    assert len(import_log("langfuse", [*pages, empty]).frame) == len(CASES)


def test_a_score_of_the_trace_belongs_to_its_only_generation(tmp_path):
    of_trace = langfuse_score(0, 0, of_trace=True)
    span = observation(5, PARIS, type="SPAN", traceId="trace-0")
    found = langfuse(tmp_path, [observation(0, PARIS), span], [of_trace])
    assert found.frame["correct"].to_list() == [0.0]
    assert found.account.dropped == {"it is not a generation, or has another name": 1}


def test_a_score_of_a_trace_with_several_generations_is_not_used(tmp_path):
    of_trace = langfuse_score(0, 0, of_trace=True)
    search = observation(5, FIVE, traceId="trace-0", name="search")
    good = observation(1, FIVE)
    found = langfuse(tmp_path, [observation(0, PARIS), search, good], [of_trace])
    assert found.account.dropped == {"the score is of a trace with several generations (--observation chooses one)": 2}
    chosen = langfuse(tmp_path, [observation(0, PARIS), search], [of_trace], observation="answer")
    assert (chosen.frame["answer"].to_list(), chosen.frame["correct"].to_list()) == (["Paris"], [0.0])


def test_the_score_of_the_observation_comes_first(tmp_path):
    scores = [langfuse_score(0, 0, of_trace=True), langfuse_score(0, 1)]
    assert langfuse(tmp_path, [observation(0, PARIS)], scores).frame["correct"].to_list() == [1.0]


def test_people_come_before_judges_and_later_before_earlier_scores(tmp_path):
    judge = langfuse_score(0, 0, updatedAt="2026-11-17 00:00:00")
    person = langfuse_score(0, 1, source="ANNOTATION", updatedAt="2026-11-16 00:00:00")
    again = langfuse_score(0, 0.5, source="ANNOTATION", updatedAt="2026-11-16 00:00:01")
    for scores in ([judge, person, again], [again, person, judge]):
        row = langfuse(tmp_path, [observation(0, PARIS)], scores).frame.to_dicts()[0]
        assert (row["correct"], row["judge"]) == (0.5, "human")
    assert langfuse(tmp_path, [observation(0, PARIS)], [judge]).frame["judge"].to_list() == ["eval"]


@pytest.mark.parametrize(
    ("changes", "correct"),
    [
        ({"dataType": "BOOLEAN", "value": 1}, 1.0),
        ({"dataType": "BOOLEAN", "value": 0, "stringValue": "False"}, 0.0),
        ({"dataType": "CATEGORICAL", "value": None, "stringValue": "correct"}, 1.0),
        ({"dataType": "CATEGORICAL", "value": None, "stringValue": "wrong"}, 0.0),
    ],
)
def test_kinds_of_scores(tmp_path, changes, correct):
    scores = [langfuse_score(0, 1) | changes]
    assert langfuse(tmp_path, [observation(0, PARIS)], scores).frame["correct"].to_list() == [correct]


def test_one_score_is_the_label(tmp_path):
    scores = [langfuse_score(0, 1), langfuse_score(0, 0.2, name="tone")]
    with pytest.raises(InputError, match=r"there are several scores: correctness, tone\. Choose one with --metric"):
        langfuse(tmp_path, [observation(0, PARIS)], scores)
    assert langfuse(tmp_path, [observation(0, PARIS)], scores, metric="tone").frame["correct"].to_list() == [0.2]


def test_observations_without_scores_are_not_judged(tmp_path):
    found = langfuse(tmp_path, [observation(0, PARIS)])
    assert found.frame["correct"].to_list() == [None]
    assert "judge" not in found.frame.columns


def test_confidences_in_metadata_and_scores(tmp_path):
    in_metadata = observation(0, PARIS, metadata={"confidence": "0.4"})
    scores = [langfuse_score(0, 1), langfuse_score(1, 0.3, name="confidence")]
    found = langfuse(tmp_path, [in_metadata, observation(1, FIVE)], scores).frame
    assert found["confidence"].to_list() == [0.4, 0.3]
    assert found["confidence_source"].to_list() == ["metadata"] * 2


def test_scores_and_confidences_on_another_scale_are_refused(tmp_path):
    observations = [observation(at, PARIS) for at in range(3)]
    grades = [langfuse_score(at, grade) for at, grade in enumerate((1, 5, 1))]
    with pytest.raises(InputError, match="the score correctness is 5; expected 0 to 1"):
        langfuse(tmp_path, observations, grades)
    sure = [langfuse_score(at, number, name="confidence") for at, number in enumerate((1, 95, 0))]
    with pytest.raises(InputError, match=r"the confidence in the metadata is 95; .*If these are percents"):
        langfuse(tmp_path, observations, sure)
    rated = [trace(at, PARIS, assessments=[assessment(grade)]) for at, grade in enumerate((1, 4))]
    with pytest.raises(InputError, match=r"the assessment correctness is 4; .*--correct-at SCORE"):
        mlflow(tmp_path, *rated)
    assert mlflow(tmp_path, *rated, correct_at=3).frame["correct"].to_list() == [0.0, 1.0]


def test_a_question_that_was_asked_twice_has_one_id(tmp_path):
    """Otherwise it could be on both sides of a split."""
    cases = (PARIS, PARIS, FIVE)
    found = langfuse(tmp_path, [observation(at, case) for at, case in enumerate(cases)]).frame
    traced = mlflow(tmp_path, *(trace(at, case) for at, case in enumerate(cases))).frame
    for frame in (found, traced):
        first, again, other = frame["id"].to_list()
        assert first == again != other
    assert found["observation_id"].to_list() == ["obs-0", "obs-1", "obs-2"]
    assert found["trace_id"].to_list() == ["trace-0", "trace-1", "trace-2"]
    assert traced["trace_id"].to_list() == ["tr-0", "tr-1", "tr-2"]


def test_a_trace_id_in_metadata_does_not_replace_that_of_the_log(tmp_path):
    row = langfuse(tmp_path, [observation(0, PARIS, metadata={"trace_id": "theirs"})]).frame.to_dicts()[0]
    assert (row["trace_id"], row["metadata_trace_id"]) == ("trace-0", "theirs")


@pytest.mark.parametrize(("reason", "confidence"), [("length", None), ("stop", 0.0)])
def test_a_cut_completion_is_not_read(tmp_path, reason, confidence):
    message = {"role": "assistant", "content": "Guess: Paris\nProbability: 0"}
    body = json.dumps({"choices": [{"message": message, "finish_reason": reason}]})
    files = {
        "langfuse": write_lines(tmp_path / "o.jsonl", [observation(0, PARIS, output=body)]),
        "mlflow": write_lines(tmp_path / "t.jsonl", [trace(0, PARIS, response=body)]),
    }
    for format_, path in files.items():
        assert import_log(format_, [path], keep_unscored=True).frame["confidence"].to_list() == [confidence]


def test_a_named_score_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no score 'correctness'; the log has none"):
        langfuse(tmp_path, [observation(0, PARIS)], metric="correctness")


@pytest.mark.parametrize(
    ("output", "answer", "confidence"),
    [
        ({"answer": "Paris", "confidence": 0.9}, "Paris", 0.9),
        ("Guess: Paris\nProbability: 0.9", "Paris", 0.9),
        (
            [{"role": "user", "content": "?"}, {"role": "assistant", "content": "Answer: Paris\nConfidence: 90%"}],
            "Paris",
            0.9,
        ),
        ({"output": "Paris"}, "Paris", None),
        ("[1, 2]", "[1, 2]", None),
    ],
)
def test_outputs_in_every_form(tmp_path, output, answer, confidence):
    for dressed in (output, json.dumps(output)):
        for row in (
            import_log(
                "langfuse",
                [write_lines(tmp_path / "o.jsonl", [observation(0, PARIS, output=dressed)])],
                keep_unscored=True,
            ),
            import_log(
                "mlflow", [write_lines(tmp_path / "t.jsonl", [trace(0, PARIS, response=dressed)])], keep_unscored=True
            ),
        ):
            assert row.frame["answer"].to_list() == [answer]
            assert row.frame["confidence"].to_list() == [confidence]


def test_a_question_that_is_json_stays_a_question(tmp_path):
    for question in ("[1, 2, 3]", '{"a": 1}', '"Faust" was written by whom?', "17"):
        found = langfuse(tmp_path, [observation(0, PARIS, input=json.dumps([{"role": "user", "content": question}]))])
        assert found.frame["question"].to_list() == [question]
        assert langfuse(tmp_path, [observation(0, PARIS, input=question)]).frame["question"].to_list() == [question]


def test_scores_alone_make_no_rows(tmp_path):
    with pytest.raises(InputError, match="there are no observations among"):
        import_log("langfuse", [write_lines(tmp_path / "scores.jsonl", [langfuse_score(0, 1)])])


# MLflow


def test_people_come_before_code_and_code_before_judges(tmp_path):
    judge, code, person = (
        assessment(value, source) for value, source in ((0, "LLM_JUDGE"), (0.5, "CODE"), (1, "HUMAN"))
    )
    for assessments, expected in (
        ([judge, code, person], (1.0, "human")),
        ([code, judge], (0.5, "someone")),
        ([judge], (0.0, "someone")),
    ):
        row = mlflow(tmp_path, trace(0, PARIS, assessments=assessments)).frame.to_dicts()[0]
        assert (row["correct"], row["judge"]) == expected


def test_the_latest_valid_assessment_counts(tmp_path):
    early = assessment(0, last_update_time="2026-11-15T00:00:00Z")
    late = assessment(1, last_update_time="2026-11-16T00:00:00Z")
    void = assessment(0, last_update_time="2026-11-17T00:00:00Z", valid=False)
    found = mlflow(tmp_path, trace(0, PARIS, assessments=[late, void, early]))
    assert found.frame["correct"].to_list() == [1.0]


def test_one_assessment_is_the_label(tmp_path):
    one = trace(0, PARIS, assessments=[assessment(True), assessment("no", name="tone")])
    with pytest.raises(InputError, match=r"there are several assessments: correctness, tone\. Choose one with"):
        mlflow(tmp_path, one)
    assert mlflow(tmp_path, one, metric="tone").frame["correct"].to_list() == [0.0]
    assert mlflow(tmp_path, trace(0, PARIS, assessments=[])).frame["correct"].to_list() == [None]


def test_where_mlflow_may_have_a_confidence(tmp_path):
    rows = [
        trace(0, PARIS, assessments=[assessment(0.1, name="confidence"), assessment("yes")]),
        trace(1, PARIS, tags={"confidence": "0.2"}),
        trace(2, PARIS, trace_metadata={"confidence": "0.3"}),
        trace(3, PARIS),
    ]
    found = mlflow(tmp_path, *rows).frame
    assert found["confidence"].to_list() == [0.1, 0.2, 0.3, 0.95]
    assert found["confidence_source"].to_list() == ["metadata"] * 3 + ["stated"]
    assert found["correct"].to_list() == [1.0] * 4


def test_the_model_may_be_in_the_request(tmp_path):
    request = json.dumps({"messages": [{"role": "user", "content": "Capital?"}], "model": "llm-9"})
    row = mlflow(tmp_path, trace(0, PARIS, request=request, tags={"team": "support"})).frame.to_dicts()[0]
    assert (row["question"], row["model"], row["team"]) == ("Capital?", "llm-9", "support")


def test_traces_without_an_answer_are_counted(tmp_path):
    found = mlflow(
        tmp_path,
        trace(0, PARIS),
        trace(1, PARIS, state="ERROR"),
        trace(2, PARIS, response={}),
        trace(3, PARIS, request={}),
    )
    assert found.account.dropped == {
        "the trace ended with an error": 1,
        "there is no text in the response": 1,
        "there is no question in the request": 1,
    }
