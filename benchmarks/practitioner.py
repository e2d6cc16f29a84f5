"""What a good practitioner writes in an afternoon: two models on the text itself, to be beaten.

- TF-IDF of question (one and two words) and answer (one word) beside the logit of the confidence, in a logistic
  regression with scikit-learn's default penalty.
- Boosted trees, regularised, on the confidence, principal components of the vectors, and 25 numbers that describe the
  form of question and answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import hstack
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks.features import components, logits

_QUESTION_WORDS = ("what", "who", "when", "where", "which", "how", "why")


def tfidf_regression(fitting: pl.DataFrame, testing: pl.DataFrame) -> np.ndarray:
    """Return what a logistic regression on words and confidence answers."""
    vectorizers = {
        "question": TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True),
        "answer": TfidfVectorizer(min_df=2, sublinear_tf=True),
    }
    seen = [maker.fit_transform(fitting[name]) for name, maker in vectorizers.items()]
    asked = [maker.transform(testing[name]) for name, maker in vectorizers.items()]
    X, Z = (
        hstack([*parts, logits(rows["confidence"])[:, None]]).tocsr()
        for parts, rows in ((seen, fitting), (asked, testing))
    )
    return LogisticRegression(max_iter=300).fit(X, fitting["correct"].to_numpy()).predict_proba(Z)[:, 1]


def boosted_trees_with_form(settings: dict[str, Any], fitting: pl.DataFrame, testing: pl.DataFrame) -> np.ndarray:
    """Return what boosted trees answer that also read the form of the texts."""
    trees = HistGradientBoostingClassifier(early_stopping=True, random_state=0, **settings)
    pairs = zip((fitting, testing), components(fitting, testing), strict=True)
    X, asked = (np.column_stack([logits(rows["confidence"]), parts, form(rows)]) for rows, parts in pairs)
    return trees.fit(X, fitting["correct"].to_numpy()).predict_proba(asked)[:, 1]


def form(rows: pl.DataFrame) -> np.ndarray:
    """Return 25 numbers for each row: lengths, digits, capitals, punctuation, shared words, tell-tale words."""
    return np.array([_form(*pair) for pair in rows.select("question", "answer").iter_rows()], dtype=float)


def _form(question: str, answer: str) -> list[float]:
    low, short = question.lower(), answer.lower().strip()
    words, others = low.split(), short.split()
    distinct = {*words}
    first = next((at for at, word in enumerate(_QUESTION_WORDS) if word in distinct), len(_QUESTION_WORDS))
    return [
        *(len(question), len(answer), len(words), len(others)),
        *(sum(map(str.isdigit, question)), sum(map(str.isdigit, answer))),
        *(sum(map(str.isupper, question)), sum(map(str.isupper, answer))),
        *(question.count("?"), len(distinct & {*others}), " not " in low, "except" in low),
        *(question.count(","), answer.count(","), short.count(" and "), short in ("true", "false")),
        "none of" in short or "all of" in short,
        *(len(low) / (len(words) + 1), len(short) / (len(others) + 1), first),
        *(word in distinct for word in _QUESTION_WORDS[:5]),
    ]
