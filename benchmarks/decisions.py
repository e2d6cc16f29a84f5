"""Are calibrated decisions better? Predicates and choices about the quiz, answered by a small LLM on this machine.

    python -m benchmarks.decisions --answers decisions.jsonl [--llm qwen2.5-1.5b] [--subjects 5] [--most 300]

The LLM has chat completions only, so its decisions are probabilities of tokens, as `/v1/decisions` asks for them. The
questions are cut into two halves. A model is fitted on the decisions about each half, with the kind of question as
group, and calibrates those about the other one. Answers are kept in a file; a run that was broken off goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

import qacal
from qacal.sources.decisions import Given, answer_of, calibrated_fields, given_in, kind_of, request_for, text_of
from qacal.sources.elicitation.reply import Reply
from qacal.sources.questions.quiz import questions
from qacal.storage import digest
from tools import local_llm

SUBJECTS = (
    "capitals", "continents", "us-states", "symbol-of-element", "currencies",
    "cities", "authors", "animals", "spanish", "irregular-verbs",
)  # fmt: skip
# What a value without a probability counts with in the log loss: chat completions list 20 tokens.
LEAST = 1e-4


@dataclass(frozen=True)
class Task:
    """A question about an input; `truth` is the value that is correct to claim, and `id` that of the quiz question."""

    id: str
    content: str
    question: dict[str, Any]
    truth: str

    @property
    def key(self) -> str:
        return f"{self.id}, {digest({**self.question, 'input': self.content})[:12]}"


def tasks(subjects: int) -> list[Task]:
    """Return a choice of up to four values, and a predicate that is true half of the time, for each quiz question."""
    rows = [row for row in questions().to_dicts() if row["subject"] in SUBJECTS[:subjects]]
    truths = {subject: {row["ground_truth"][0] for row in rows if row["subject"] == subject} for subject in SUBJECTS}
    found: list[Task] = []
    for row in rows:
        truth, subject, rng = row["ground_truth"][0], row["subject"], random.Random(row["id"])
        wrong = sorted(truths[subject] - {*row["ground_truth"]})
        values = [truth, *rng.sample(wrong, min(3, len(wrong)))]
        rng.shuffle(values)
        instructions = "Which answer to the question is correct?"
        choices = [{"value": value} for value in values]
        asked = {"type": "choice", "name": subject, "instructions": instructions, "choices": choices}
        found.append(Task(row["id"], row["question"], asked, truth))
        claimed = rng.choice((truth, rng.choice(wrong)))
        asked = {"type": "predicate", "name": f"{subject}-check", "instructions": "The answer is correct."}
        is_true = "true" if claimed == truth else "false"
        found.append(Task(row["id"], f"{row['question']} {claimed}.", asked, is_true))
    random.Random(0).shuffle(found)
    return found


def answered(server: local_llm.Running, wanted: list[Task], path: Path) -> list[Any]:
    """Return the LLM's answers to some tasks; those that the file has are not asked for again."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {one["task"]: one["answer"] for one in lines if one["llm"] == server.model}
    lacking = [task for task in wanted if task.key not in known]
    with httpx2.Client(base_url=server.base_url, timeout=600) as client, ThreadPoolExecutor(server.slots) as pool:

        def ask(task: Task) -> Any:
            body = client.post("chat/completions", json=request_for(server.model, task.content, task.question)).json()
            return answer_of(task.question, Reply.from_body(body))

        with path.open("a") as file:
            for task, answer in zip(lacking, pool.map(ask, lacking), strict=True):
                known[task.key] = answer
                file.write(json.dumps({"llm": server.model, "task": task.key, "answer": answer}) + "\n")
                file.flush()
    return [known[task.key] for task in wanted]


def record_of(task: Task, given: Given, llm: str) -> dict[str, Any]:
    """Return the record that the service makes of a decision, with its label."""
    return {
        "id": task.id,
        "question": f"{text_of(task.question['instructions'])}\n\n{task.content}",
        "answer": given.answer,
        "confidence": given.probability,
        "model": llm,
        "confidence_source": "decision-tokens",
        "question_kind": kind_of(task.question),
        "correct": given.answer == task.truth,
    }


def cross_calibrated(records: list[dict[str, Any]], **settings: Any) -> list[float]:
    """Return calibrated confidences; the model of each was fitted on the other half of the questions."""
    ids = sorted({record["id"] for record in records})
    random.Random(1).shuffle(ids)
    first = {*ids[: len(ids) // 2]}
    out = [math.nan] * len(records)
    for half in (first, {*ids} - first):
        model = qacal.QACalibrator(**settings).fit([record for record in records if record["id"] not in half])
        mine = [at for at, record in enumerate(records) if record["id"] in half]
        for at, p in zip(mine, model.predict([records[at] for at in mine]), strict=True):
            out[at] = float(p)
    return out


def distribution(answer: dict[str, Any], given: Given, p: float | None) -> dict[str, float]:
    """Return the probabilities of all values; `p` is the calibrated one of the claimed value, None for the raw ones."""
    fields = answer if p is None else calibrated_fields(answer, given, p)
    if answer["type"] == "predicate":
        return {"true": fields["probability"], "false": 1 - fields["probability"]}
    return {one["value"]: one["probability"] for one in fields["probabilities"]}


def losses(found: dict[str, float], truth: str) -> tuple[float, float]:
    """Return log loss and Brier score of a distribution, over all values."""
    return -math.log(max(found[truth], LEAST)), sum((p - (value == truth)) ** 2 for value, p in found.items())


def clustered(values: np.ndarray, ids: list[str]) -> tuple[float, float]:
    """Return a mean and its standard error; the two decisions about one quiz question are not independent."""
    _, places = np.unique(ids, return_inverse=True)
    sums = np.bincount(places, values - values.mean())
    return float(values.mean()), float(np.sqrt(np.sum(sums**2)) / len(values))


def scored(kept: list[tuple[Task, Any, Given]], calibrated: list[float | None]) -> np.ndarray:
    """Return log loss, Brier score, and whether the likeliest value is correct, for each decision."""
    rows = []
    for (task, answer, given), p in zip(kept, calibrated, strict=True):
        found = distribution(answer, given, p)
        rows.append((*losses(found, task.truth), max(found, key=found.__getitem__) == task.truth))
    return np.array(rows, dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--llm", choices=local_llm.MODELS, default="smollm2")
    parser.add_argument("--subjects", type=int, default=5)
    parser.add_argument("--most", type=int, help="use only so many of the decisions; by default all")
    parser.add_argument("--answers", type=Path, required=True, help="the file of the answers; it is made or continued")
    chosen = parser.parse_args()
    wanted, server = tasks(chosen.subjects)[: chosen.most], local_llm.start(chosen.llm)
    answers = answered(server, wanted, chosen.answers)
    read = [(task, answer, given_in(answer)) for task, answer in zip(wanted, answers, strict=True)]
    kept = [(task, answer, given) for task, answer, given in read if isinstance(given, Given)]
    records = [record_of(task, given, server.model) for task, _, given in kept]
    print(f"{server.model}: {len(kept)} decisions, {len(wanted) - len(kept)} refused")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ways = {
            "raw": scored(kept, [None] * len(kept)),
            "calibrated, by kind of question": scored(
                kept, [*cross_calibrated(records, partition="column:question_kind")]
            ),
            "calibrated, by text": scored(kept, [*cross_calibrated(records)]),
        }
    for kind in ("predicate", "choice"):
        mine = np.array([task.question["type"] == kind for task, _, _ in kept])
        ids = [task.id for (task, _, _), is_mine in zip(kept, mine.tolist(), strict=True) if is_mine]
        for way, scores in ways.items():
            means = dict(
                zip(("log loss", "Brier", "likeliest correct"), scores[mine].mean(axis=0).round(3), strict=True)
            )
            line = {"type": kind, "decisions": len(ids), "way": way, **means}
            for column, name in enumerate(("log loss", "Brier") if way != "raw" else ()):
                mean, error = clustered((scores - ways["raw"])[mine, column], ids)
                line[f"{name}, difference to raw"] = f"{mean:+.3f} (standard error {error:.3f})"
            print(json.dumps(line))


if __name__ == "__main__":
    main()
