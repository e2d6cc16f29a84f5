"""Generated question-answer pairs: four topics, each miscalibrated in its own way."""

from __future__ import annotations

from functools import cache

import numpy as np

TOPICS = {
    "geography": ("Which city is the capital of {x}?", "The capital of {x} is {y}.", 0.95),
    "arithmetic": ("What is {n} plus {m}, as a number?", "The sum is {k}.", 0.35),
    "medicine": ("Which drug treats the disease {x} in adults?", "Patients take {y} daily.", 0.65),
    "cooking": ("How long does a {x} cake bake in the oven?", "Bake it for {n} minutes.", 0.8),
}
NAMES = [
    "Arden",
    "Belmar",
    "Corvia",
    "Dunmere",
    "Elsin",
    "Farrow",
    "Garth",
    "Hollin",
    "Ister",
    "Jorvik",
    "Kell",
    "Lumen",
    "Marrow",
    "Nessel",
    "Orrin",
    "Pell",
]
STATED = np.array([0.6, 0.7, 0.8, 0.9, 0.95, 1.0])


def answers(n: int = 2000, seed: int = 0, llm: str = "parrot-1") -> list[dict[str, object]]:
    """Return rows whose accuracy depends on the topic and a little on the confidence; every LLM is overconfident."""
    return [dict(row) for row in _drawn(n, seed, llm)]


@cache
def _drawn(n: int, seed: int, llm: str) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    topics = list(TOPICS)
    rows = []
    for number in range(n):
        topic = topics[int(rng.integers(4))]
        question, answer, base = TOPICS[topic]
        blanks = {
            "x": rng.choice(NAMES),
            "y": rng.choice(NAMES),
            "n": int(rng.integers(99)),
            "m": int(rng.integers(99)),
            "k": 7,
        }
        stated = float(rng.choice(STATED))
        right = rng.random() < np.clip(base + 0.3 * (stated - 0.8), 0, 1)
        rows.append(
            {
                "id": f"{seed}-{number}",
                "question": f"{question.format(**blanks)} (no. {number})",
                "answer": answer.format(**blanks),
                "confidence": stated,
                "correct": int(right),
                "topic": topic,
                "model": llm,
            }
        )
    return rows
