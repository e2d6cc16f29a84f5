"""The same three answers as each tool would have logged them: small files in the schemas of the tools."""

import importlib
import json
import math
import sys
import zipfile
import zlib
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Case:
    question: str
    answer: str
    confidence: float
    correct: float
    truth: str
    subject: str


CASES = (
    Case("Capital of France?", "Paris", 0.95, 1.0, "Paris", "geography"),
    Case("2+2?", "5", 0.8, 0.0, "4", "arithmetic"),
    Case("Who wrote «Faust»?", "Goethe", 0.6, 1.0, "Goethe", "letters"),
)


def reply(case):
    return f"Guess: {case.answer}\nProbability: {case.confidence}"


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# lm-evaluation-harness


def choice_row(number, choices, likelihoods, target, *, doc=None, alone=None, **metrics):
    """Return a row of a multiple-choice task; `alone` are likelihoods without the question."""
    texts = [str(value) for value in (*likelihoods, *(alone or []))]
    contexts = ["Question: q\nAnswer:"] * len(choices) + [""] * len(alone or [])
    endings = [f" {choice}" for choice in choices] * (2 if alone else 1)
    return {
        "doc_id": number,
        "doc": doc or {"question": f"Question {number}?", "choices": choices, "answer": target, "subject": "law"},
        "target": str(target),
        "arguments": {
            f"gen_args_{at}": {"arg_0": context, "arg_1": ending}
            for at, (context, ending) in enumerate(zip(contexts, endings, strict=True))
        },
        "resps": [[[text, "False"]] for text in texts],
        "filtered_resps": [[text, "False"] for text in texts],
        "filter": "none",
        "metrics": list(metrics),
        "doc_hash": "d" * 64,
        **metrics,
    }


def reply_row(number, replies, filtered, *, filter_="none", target="Paris", doc=None, **metrics):
    """Return a row of a task with generated text; several replies are repeats."""
    metrics = metrics or {"exact_match": 1.0}
    return {
        "doc_id": number,
        "doc": doc or {"question": f"Question {number}?", "answer": target, "category": "geography"},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": "Question: q\nAnswer:", "arg_1": {"until": ["\n"]}}},
        "resps": [replies],
        "filtered_resps": [filtered],
        "filter": filter_,
        "metrics": list(metrics),
        **metrics,
    }


def lm_eval(folder, name="samples_quiz_2026-11-15T19-20-00.263815.jsonl"):
    rows = []
    for number, case in enumerate(CASES):
        other = case.truth if case.truth != case.answer else "neither"
        likelihoods = [math.log(1 - case.confidence), math.log(case.confidence)]
        doc = {"question": case.question, "subject": case.subject, "choices": [other, case.answer]}
        target = 1 if case.correct else 0
        rows.append(choice_row(number, [other, case.answer], likelihoods, target, doc=doc, acc=case.correct))
    return [write_lines(folder / "org__llm" / name, rows)]


def lm_eval_repeats(folder, steps=None):
    """Return a task with 20 samples per question; a filter extracts the answers, and the majority is judged."""
    time = "2026-11-15T19-20-00.263815"
    rows = []
    for number, case in enumerate(CASES):
        agreeing = round(20 * case.confidence)
        replies = [f"So it is {case.answer}."] * agreeing + [f"So it is {at}." for at in range(100, 120 - agreeing)]
        doc = {"question": case.question, "subject": case.subject}
        row = reply_row(
            number, replies, case.answer, filter_="maj", target=case.truth, doc=doc, exact_match=case.correct
        )
        rows.append(row)
    pattern = {"function": "regex", "regex_pattern": r"So it is (\w+)"}
    chosen = [pattern, {"function": "majority_vote"}, {"function": "take_first"}] if steps is None else steps
    filters = [{"name": "maj", "filter": chosen}]
    results = {"configs": {"quiz": {"filter_list": filters}}, "model_name": "org/llm"}
    write_json(folder / "org__llm" / f"results_{time}.json", results)
    return [write_lines(folder / "org__llm" / f"samples_quiz_{time}.jsonl", rows)]


# inspect_ai


def sample(number, case, **changes):
    return {
        "id": number,
        "epoch": 1,
        "input": case.question,
        "target": case.truth,
        "output": {
            "model": "llm",
            "choices": [{"message": {"role": "assistant", "content": reply(case)}, "stop_reason": "stop"}],
            "completion": reply(case),
        },
        "scores": {"match": {"value": "C" if case.correct else "I", "answer": case.answer, "explanation": "..."}},
        "metadata": {"subject": case.subject},
        **changes,
    }


HEADER = {
    "version": 2,
    "status": "success",
    "eval": {"task": "quiz", "model": "org/llm"},
    "plan": {"steps": [{"solver": "prompt_template", "params": {"template": "Say how sure you are. {prompt}"}}]},
}


ZSTANDARD = 93


def write_eval(path, samples, header="header.json", method=zipfile.ZIP_DEFLATED):
    """A log; `method` is one of zipfile's, or ZSTANDARD, which inspect_ai uses."""
    members = {"_journal/start.json": {"version": 2, "eval": HEADER["eval"]}}
    members |= {f"samples/{one['id']}_epoch_{one['epoch']}.json": one for one in samples}
    members |= {} if header is None else {header: HEADER}
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if method == ZSTANDARD else method) as archive:
        for name, value in members.items():
            write_member(archive, name, json.dumps(value).encode(), method)
    return path


def write_member(archive, name, raw, method):
    """Add a member. Data compressed with zstd is stored unchanged, and the index names the method."""
    if method != ZSTANDARD:
        return archive.writestr(name, raw)
    info = zipfile.ZipInfo(name)
    archive.writestr(info, zstd_packed(raw))
    info.compress_type, info.CRC, info.file_size = ZSTANDARD, zlib.crc32(raw), len(raw)
    return None


def zstd_packed(raw):
    """Compress with Python's own module (3.14 or later) or with a backport."""
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "zstandard").compress(raw)


def inspect_eval(folder):
    return [write_eval(folder / "quiz.eval", [sample(number, case) for number, case in enumerate(CASES)])]


def inspect_json(folder):
    samples = [sample(number, case) for number, case in enumerate(CASES)]
    return [write_json(folder / "quiz.json", {**HEADER, "samples": samples, "reductions": []})]


def inspect_epochs(folder):
    """Three questions, each in two epochs, without a confidence in any reply."""
    header = {**HEADER, "eval": {**HEADER["eval"], "config": {"epochs": 2}}}
    samples = [
        sample(number, case, epoch=epoch, output={"completion": case.answer})
        for epoch in (1, 2)
        for number, case in enumerate(CASES)
    ]
    return [write_json(folder / "quiz.json", {**header, "samples": samples})]


# Batches


def batch_response(id_, text, *, logprobs=None, **changes):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": logprobs}
    body = {"object": "chat.completion", "model": "llm-1", "choices": [{**choice, "finish_reason": "stop"}]}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": f"batch_req_{id_}", "custom_id": id_, "response": response, "error": None, **changes}


def batch_request(id_, question):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    return {
        "custom_id": id_,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "llm", "messages": messages},
    }


def openai_batch(folder):
    requests = [batch_request(f"q-{at}", case.question) for at, case in enumerate(CASES)]
    responses = [batch_response(f"q-{at}", reply(case)) for at, case in enumerate(CASES)]
    labels = [
        {"custom_id": f"q-{at}", "correct": case.correct, "ground_truth": case.truth, "subject": case.subject}
        for at, case in enumerate(CASES)
    ]
    write_lines(folder / "labels" / "labels.jsonl", labels)
    return [write_lines(folder / "in.jsonl", requests), write_lines(folder / "out.jsonl", responses[::-1])]


# promptfoo and DeepEval


def promptfoo_result(number, case, **changes):
    passed = bool(case.correct)
    return {
        "id": f"result-{number}",
        "testIdx": number,
        "promptIdx": 0,
        "prompt": {"raw": f"Question: {case.question}", "label": "Question: {{question}}"},
        "provider": {"id": "org:llm", "label": ""},
        "response": {"output": reply(case)},
        "success": passed,
        "score": float(passed),
        "namedScores": {"exact": float(passed)},
        "gradingResult": {"pass": passed, "componentResults": [{"pass": passed, "score": float(passed)}]},
        "failureReason": 0 if passed else 1,
        "vars": {"question": case.question, "answer": case.truth},
        "metadata": {"subject": case.subject, "_promptfooFileMetadata": {}},
        **changes,
    }


def promptfoo_json(folder):
    results = [promptfoo_result(number, case) for number, case in enumerate(CASES)]
    whole = {"evalId": "e", "results": {"version": 3, "prompts": [{}], "results": results, "stats": {}}, "config": {}}
    return [write_json(folder / "out.json", whole)]


def promptfoo_lines(folder):
    return [write_lines(folder / "out.jsonl", [promptfoo_result(at, case) for at, case in enumerate(CASES)])]


def deepeval_case(number, case, **changes):
    passed = bool(case.correct)
    return {
        "name": f"test_case_{number}",
        "input": case.question,
        "actualOutput": case.answer,
        "expectedOutput": case.truth,
        "success": passed,
        "metricsData": [{"name": "Exact Match", "threshold": 1.0, "success": passed, "score": float(passed)}],
        "metadata": {"confidence": case.confidence, "subject": case.subject},
        **changes,
    }


def deepeval(folder):
    cases = [deepeval_case(number, case) for number, case in enumerate(CASES)]
    return [write_json(folder / "test_run_20261115_195607.json", {"testCases": cases, "testPassed": 2})]


def deepeval_conversations(folder):
    """Conversations of one turn each."""
    cases = []
    for number, case in enumerate(CASES):
        turns = [{"role": "user", "content": case.question}, {"role": "assistant", "content": case.answer}]
        one = deepeval_case(number, case, turns=turns, expectedOutput=case.truth)
        cases.append({name: value for name, value in one.items() if name not in ("input", "actualOutput")})
    whole = {"testCases": [], "conversationalTestCases": cases, "testPassed": 2}
    return [write_json(folder / "test_run_20261115_195607.json", whole)]


# Langfuse and MLflow


def observation(number, case, **changes):
    return {
        "id": f"obs-{number}",
        "traceId": f"trace-{number}",
        "type": "GENERATION",
        "name": "answer",
        "metadata": {"subject": case.subject, "expected": case.truth},
        "input": [{"role": "user", "content": case.question}],
        "output": {"role": "assistant", "content": reply(case)},
        "providedModelName": "llm",
        **changes,
    }


def langfuse_score(number, value, *, of_trace=False, **changes):
    """A score of an observation, or of its trace."""
    observed = {"kind": "observation", "id": f"obs-{number}", "traceId": f"trace-{number}"}
    return {
        "id": f"score-{number}",
        "name": "correctness",
        "value": value,
        "dataType": "NUMERIC",
        "source": "EVAL",
        "updatedAt": "2026-11-15T19:05:00Z",
        "subject": {"kind": "trace", "id": f"trace-{number}"} if of_trace else observed,
        **changes,
    }


def langfuse(folder, observations=None, scores=None):
    if observations is None:
        observations = [observation(at, case) for at, case in enumerate(CASES)]
        scores = [langfuse_score(at, case.correct) for at, case in enumerate(CASES)]
    paths = [write_json(folder / "observations.json", {"data": observations, "meta": {"cursor": None}})]
    if scores:
        paths.insert(0, write_json(folder / "scores.json", {"data": scores, "meta": {"cursor": None}}))
    return paths


def assessment(value, source="HUMAN", name="correctness", **changes):
    return {
        "assessment_name": name,
        "source": {"source_type": source, "source_id": "someone"},
        "feedback": {"value": value},
        "last_update_time": "2026-11-15T19:05:00Z",
        **changes,
    }


def trace(number, case, request=None, response=None, **changes):
    """A trace as Trace.to_dict gives it; `request` and `response` are what the root span has."""
    info = {
        "trace_id": f"tr-{number}",
        "state": "OK",
        "trace_metadata": {"mlflow.user": "ann", "subject": case.subject},
        "tags": {"mlflow.traceName": "answer", "model": "llm"},
        "assessments": [
            assessment("yes" if case.correct else "no"),
            {"assessment_name": "expected_response", "expectation": {"value": case.truth}},
        ],
        "request_preview": case.question[:5],
        "response_preview": reply(case)[:5],
    }
    root = {
        "mlflow.spanInputs": json.dumps({"question": case.question}) if request is None else request,
        "mlflow.spanOutputs": json.dumps(reply(case)) if response is None else response,
    }
    search = {"mlflow.spanInputs": '{"q": "no"}', "mlflow.spanOutputs": "nothing"}
    spans = [{"parent_span_id": "1", "attributes": search}, {"parent_span_id": None, "attributes": root}]
    return {"info": info | changes, "data": {"spans": spans}}


def mlflow_json(folder):
    return [write_json(folder / "traces.json", [trace(number, case) for number, case in enumerate(CASES)])]


def _mlflow_frame():
    """The columns of search_traces that are used, and one other."""
    traces = [trace(number, case) for number, case in enumerate(CASES)]
    return [{"trace_id": whole["info"]["trace_id"], "trace": json.dumps(whole)} for whole in traces]


def mlflow_lines(folder):
    return [write_lines(folder / "traces.jsonl", _mlflow_frame())]


def mlflow_parquet(folder):
    path = folder / "traces.parquet"
    pl.DataFrame(_mlflow_frame()).write_parquet(path)
    return [path]
