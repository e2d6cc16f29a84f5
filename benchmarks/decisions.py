"""What calibration does to the decisions of a small local LLM: predicates and choices about the quiz, half held out.

    python -m benchmarks.decisions [--questions 1200]

The LLM has chat completions only, so its decisions are probabilities of tokens. A model is fitted on the answers to one
half of the questions, with the kind of question as group; the other half is asked through `/v1/decisions`.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import numpy as np
from tests.service.upstreams import running

import qacal
from qacal.metrics import brier_score, log_loss
from qacal.service.app import create_app
from qacal.service.settings import Settings
from qacal.sources.decisions import Given, answer_of, given_in, kind_of, request_for, text_of
from qacal.sources.elicitation.reply import Reply
from qacal.sources.questions.quiz import questions
from tools import local_llm

SUBJECTS = ("capitals", "continents", "us-states", "symbol-of-element")


def tasks(count: int) -> list[tuple[str, dict[str, Any], str]]:
    """Return inputs with a question about each, and the value that is correct to claim."""
    rng = random.Random(0)
    rows = [row for row in questions().to_dicts() if row["subject"] in SUBJECTS]
    truths = {subject: {row["ground_truth"][0] for row in rows if row["subject"] == subject} for subject in SUBJECTS}
    found: list[tuple[str, dict[str, Any], str]] = []
    for row in rows:
        truth, subject = row["ground_truth"][0], row["subject"]
        wrong = sorted(truths[subject] - {*row["ground_truth"]})
        values = [truth, *rng.sample(wrong, min(3, len(wrong)))]
        rng.shuffle(values)
        instructions = "Which answer to the question is correct?"
        choices = [{"value": value} for value in values]
        asked = {"type": "choice", "name": subject, "instructions": instructions, "choices": choices}
        found.append((row["question"], asked, truth))
        claimed = rng.choice((truth, rng.choice(wrong)))
        asked = {"type": "predicate", "name": f"{subject}-check", "instructions": "The answer is correct."}
        found.append((f"{row['question']} {claimed}.", asked, "true" if claimed == truth else "false"))
    rng.shuffle(found)
    return found[:count]


Task = tuple[str, dict[str, Any], str]


def asked_directly(client: httpx2.Client, llm: str, task: Task) -> dict[str, Any] | None:
    """Return the labelled record of a decision of the LLM."""
    content, question, truth = task
    reply = client.post("chat/completions", json=request_for(llm, content, question)).json()
    given = given_in(answer_of(question, Reply.from_body(reply)))
    if not isinstance(given, Given):
        return None
    return {
        "question": f"{text_of(question['instructions'])}\n\n{content}",
        "answer": given.answer,
        "confidence": given.probability,
        "model": llm,
        "confidence_source": "decision-tokens",
        "question_kind": kind_of(question),
        "correct": given.answer == truth,
    }


def served(client: httpx2.Client, llm: str, task: Task) -> dict[str, Any] | None:
    """Return the evidence of a decision of the service, with its label."""
    content, question, truth = task
    body = {"model": llm, "input": content, "questions": [question]}
    (answer,) = client.post("decisions", json=body).json()["answers"]
    claimed = "true" if answer["type"] == "predicate" else answer.get("choice")
    evidence = answer["qa_calibration"]
    if evidence["calibrated"] is None:
        return None
    return {**evidence, "type": answer["type"], "correct": claimed == truth}


def asked(
    of: Callable[[httpx2.Client, str, Task], dict[str, Any] | None], url: str, llm: str, some: list[Task]
) -> list[dict[str, Any]]:
    with httpx2.Client(base_url=url, timeout=300) as client, ThreadPoolExecutor(4) as pool:
        return [one for one in pool.map(lambda task: of(client, llm, task), some) if one is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--questions", type=int, default=1200)
    count = parser.parse_args().questions
    everything = tasks(count)
    server = local_llm.start("smollm2")
    half = len(everything) // 2
    rows = asked(asked_directly, server.base_url, server.model, everything[:half])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        qacal.QACalibrator(partition="column:question_kind").fit(rows).save(f"{folder}/model")
        settings = Settings({"m": f"{folder}/model"}, store="none", upstream=server.base_url)
        with running(create_app(settings)) as address:
            found = asked(served, f"{address}/v1", server.model, everything[half:])
    print(f"{server.model}: {len(rows)} decisions to fit, {len(found)} of {len(everything) - half} held out")
    for kind in ("predicate", "choice"):
        mine = [one for one in found if one["type"] == kind]
        correct = np.array([one["correct"] for one in mine], dtype=float)
        for name in ("raw_confidence", "calibrated"):
            p = np.array([one[name] for one in mine])
            kinds = np.array([one["question_kind"] for one in mine])
            gaps = [abs(p[kinds == one].mean() - correct[kinds == one].mean()) for one in np.unique(kinds)]
            weights = [np.mean(kinds == one) for one in np.unique(kinds)]
            print(
                json.dumps(
                    {
                        "type": kind,
                        "rows": len(mine),
                        "accuracy": round(correct.mean(), 3),
                        "of": name,
                        "mean": round(p.mean(), 3),
                        "log loss": round(log_loss(correct, p), 3),
                        "Brier score": round(brier_score(correct, p), 3),
                        "gap by kind": round(float(np.dot(weights, gaps)), 3),
                    }
                )
            )


if __name__ == "__main__":
    main()
