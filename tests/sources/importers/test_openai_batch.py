"""OpenAI batches: three joined files, failed requests, and two kinds of confidence in one reply."""

import pytest

from qacal.errors import InputError
from qacal.sources.importers import Selection, import_log
from tests.sources.importers.logs import batch_request, batch_response, write_lines

SAID = "Guess: Paris\nProbability: 0.9"
QUESTION = "Say how sure you are.\n\nThe question is: Capital of France?"


def imported(folder, responses, requests=None, labels=None, **selection):
    requests = [batch_request(row["custom_id"], QUESTION) for row in responses] if requests is None else requests
    paths = [write_lines(folder / "a.jsonl", requests), write_lines(folder / "b.jsonl", responses)]
    path = None if labels is None else write_lines(folder / "labels" / "labels.jsonl", labels)
    return import_log("openai-batch", paths, Selection(labels=path, **selection))


def test_files_are_recognised_by_content_in_any_order(tmp_path):
    requests = write_lines(tmp_path / "z.jsonl", [batch_request("q", QUESTION)])
    responses = write_lines(tmp_path / "a.jsonl", [batch_response("q", SAID)])
    for paths in ([requests, responses], [responses, requests], [tmp_path]):
        row = import_log("openai-batch", paths).frame.to_dicts()[0]
        assert (row["question"], row["answer"], row["confidence"]) == (QUESTION, "Paris", 0.9)
        assert (row["model"], row["prompt"]) == ("llm-1", f"system: Be brief.\nuser: {QUESTION}")
    with pytest.raises(InputError, match="no batch output among"):
        import_log("openai-batch", [requests])


def test_the_question_may_follow_a_prefix(tmp_path):
    found = imported(tmp_path, [batch_response("q", SAID)], question_after="The question is:")
    assert found.frame["question"].to_list() == ["Capital of France?"]


def test_without_labels_there_is_no_correct_column(tmp_path):
    found = imported(tmp_path, [batch_response("q", SAID)])
    assert found.frame["correct"].to_list() == [None]
    assert found.account.labelled == 0


def test_labels_add_correct_and_further_columns(tmp_path):
    labels = [
        {"custom_id": "a", "correct": "yes", "question": "Capital of France?", "level": 2, "judge": "ann"},
        {"custom_id": "b", "ground_truth": ["Paris", "Paname"], "correct": None},
    ]
    responses = [batch_response(id_, SAID) for id_ in "abc"]
    rows = {row["custom_id"]: row for row in imported(tmp_path, responses, labels=labels).frame.to_dicts()}
    assert [rows[id_]["correct"] for id_ in "abc"] == [1.0, None, None]
    assert (rows["a"]["question"], rows["a"]["level"], rows["a"]["judge"]) == ("Capital of France?", 2, "ann")
    assert rows["b"]["ground_truth"] == ["Paris", "Paname"]


def test_ambiguous_labels_are_refused(tmp_path):
    with pytest.raises(InputError, match="'q' is labelled twice"):
        imported(tmp_path, [batch_response("q", SAID)], labels=[{"id": "q", "correct": 1}] * 2)
    with pytest.raises(InputError, match="labels need a column custom_id, or id"):
        imported(tmp_path, [batch_response("q", SAID)], labels=[{"number": "q", "correct": 1}])


def test_failures_are_counted_by_reason(tmp_path):
    error = {"code": "batch_expired", "message": "too late"}
    responses = [
        batch_response("good", SAID),
        batch_response("late", SAID, response=None, error=error),
        batch_response("busy", SAID, response={"status_code": 429, "body": {"error": {"message": "slow down"}}}),
        batch_response("mute", ""),
        batch_response("unknown", SAID),
    ]
    refusal = batch_response("refused", "")
    refusal["response"]["body"]["choices"][0]["message"] = {"content": None, "refusal": "I cannot say."}
    requests = [batch_request(row["custom_id"], QUESTION) for row in (*responses[:4], refusal)]
    found = imported(tmp_path, [*responses, refusal], [*requests, batch_request("pending", QUESTION)])
    assert (found.account.read, found.account.kept) == (7, 1)
    assert found.account.dropped == {
        "the request failed (batch_expired)": 1,
        "the request failed (status 429)": 1,
        "there is no reply": 1,
        "the LLM refused": 1,
        "the question is not known: neither the requests nor the labels have its custom_id": 1,
        "the request has no response": 1,
    }


def test_one_id_for_two_requests_is_refused(tmp_path):
    requests = [batch_request("q", QUESTION), batch_request("q", "Another?")]
    with pytest.raises(InputError, match=r"a\.jsonl line 2: custom_id 'q' belongs to two requests"):
        imported(tmp_path, [batch_response("q", SAID)], requests)


def test_stated_and_token_confidence_are_both_kept(tmp_path):
    logprobs = {
        "content": [{"token": token, "logprob": -0.25} for token in ("Guess:", " Par", "is", "\nProbability: 0.9")]
    }
    responses = [batch_response("q", SAID, logprobs=logprobs)]
    row = imported(tmp_path, responses).frame.to_dicts()[0]
    tokens = pytest.approx(0.60653066)  # exp(-.25) for each of two tokens
    assert (row["confidence"], row["confidence_stated"], row["confidence_tokens"]) == (0.9, 0.9, tokens)
    chosen = imported(tmp_path, responses, confidence_from="tokens").frame.to_dicts()[0]
    assert (chosen["confidence"], chosen["confidence_source"]) == (tokens, "tokens")


def test_a_cut_reply_is_not_read(tmp_path):
    cut = batch_response("q", "Guess: Paris\nProbability: 0.9")
    cut["response"]["body"]["choices"][0]["finish_reason"] = "length"
    with pytest.raises(InputError, match="the reply is cut off"):
        imported(tmp_path, [cut])


def test_a_question_that_was_asked_twice_has_one_id(tmp_path):
    requests = [batch_request(id_, question) for id_, question in zip("abc", ("2+2?", "2+2?", "2+3?"), strict=True)]
    found = imported(tmp_path, [batch_response(id_, SAID) for id_ in "abc"], requests).frame
    first, again, other = found["id"].to_list()
    assert first == again != other
    assert found["custom_id"].to_list() == ["a", "b", "c"]


def test_labels_on_another_scale_are_refused(tmp_path):
    labels = [{"custom_id": id_, "correct": grade} for id_, grade in (("a", 1), ("b", 5))]
    responses = [batch_response(id_, SAID) for id_ in "ab"]
    with pytest.raises(InputError, match="the column 'correct' of the labels is 5; expected 0 to 1"):
        imported(tmp_path, responses, labels=labels)
    assert imported(tmp_path, responses, labels=labels, correct_at=3).frame["correct"].to_list() == [0.0, 1.0]


def test_a_ground_truth_that_is_a_list_of_numbers_is_one_truth(tmp_path):
    labels = [{"custom_id": "q", "ground_truth": "[1, 2, 3]"}]
    assert imported(tmp_path, [batch_response("q", SAID)], labels=labels).frame["ground_truth"].to_list() == [
        "[1, 2, 3]"
    ]


def test_the_responses_api(tmp_path):
    response = batch_response("q", "")
    response["response"]["body"] = {
        "model": "llm-1",
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": SAID}]},
        ],
    }
    request = batch_request("q", "")
    request["body"] = {"model": "llm", "input": QUESTION}
    row = imported(tmp_path, [response], [request]).frame.to_dicts()[0]
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    response["response"]["body"] |= cut
    with pytest.raises(InputError, match="the reply is cut off"):
        imported(tmp_path, [response], [request])
    assert (row["question"], row["answer"], row["confidence"]) == (QUESTION, "Paris", 0.9)


def test_lines_with_all_fields_that_the_api_writes(tmp_path):
    """The fields are those of published lines that the API wrote in 2024 and 2025, with our own ids and texts."""
    usage = {
        "prompt_tokens": 57,
        "completion_tokens": 9,
        "total_tokens": 66,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0},
    }
    completion = {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 1734986202,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": SAID, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage,
        "system_fingerprint": "fp_0",
    }
    quota = {"message": "You exceeded your quota.", "type": "insufficient_quota", "param": None, "code": "quota"}
    rows = [
        {"id": f"batch_req_{id_}", "custom_id": id_, "response": response, "error": None}
        for id_, response in (
            ("good", {"status_code": 200, "request_id": "0", "body": completion}),
            ("late", {"status_code": 429, "request_id": "1", "body": {"error": quota}}),
        )
    ]
    found = imported(tmp_path, rows)
    assert found.frame.select("answer", "confidence", "model").rows() == [("Paris", 0.9, "gpt-4o-mini-2024-07-18")]
    assert found.account.dropped == {"the request failed (status 429)": 1}
