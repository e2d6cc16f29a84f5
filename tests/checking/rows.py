"""Labelled rows to check: correct answers have the higher confidences."""

import csv

import numpy as np


def labelled(count=600, *, seed=0, accuracy=0.6, gap=0.15):
    """Return rows; `gap` is how much higher the confidence of correct answers is."""
    rng = np.random.default_rng(seed)
    right = rng.random(count) < accuracy
    stated = np.clip(rng.normal(0.65 + gap * right, 0.15), 0.01, 0.99).round(2)
    return [
        {"question": f"What is {i} and {i}?", "answer": f"It is {2 * i}.", "confidence": c, "correct": int(y)}
        for i, (c, y) in enumerate(zip(stated.tolist(), right.tolist(), strict=True))
    ]


def renamed(rows, **names):
    """Return rows with other names of columns: ``question="prompt"``."""
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def changed(rows, column, change):
    """Return rows with one column changed."""
    return [{**row, column: change(row[column])} for row in rows]


def as_csv(path, rows, separator=",", encoding="utf-8"):
    """Write rows, and return the path."""
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.DictWriter(file, rows[0], delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)
    return path
