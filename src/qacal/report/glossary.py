"""The words of the report and of the documentation, each in a sentence or two; docs/glossary.md has the same."""

from __future__ import annotations

GLOSSARY = (
    (
        "confidence",
        "How sure the LLM says it is that its answer is right, from 0 to 1. Stated: as it came with the answer.",
    ),
    (
        "calibrated",
        "A confidence that means what it says: of the answers with 0.7, about 70% are right. Also what qacal makes "
        "of a stated confidence.",
    ),
    (
        "score",
        "A prediction of whether an answer is right, learned from the stated confidence, the text and whatever else "
        "the rows have.",
    ),
    (
        "group",
        "Questions of one kind: those with one value of a column, or texts that are alike. A confidence can be "
        "right on average and wrong in every group.",
    ),
    (
        "bin, map",
        "A bin is a range of confidences that get one answer; a map is the table of bins that corrects the "
        "confidences of a group, or of all questions.",
    ),
    (
        "pooled map",
        "One correction for all questions, whatever their group: what could be had without looking at their kind.",
    ),
    (
        "partition, beta",
        "How questions are dealt into groups; the paper calls this function beta. Beta rows are set aside to make "
        "the groups.",
    ),
    (
        "certificate",
        "An interval in which the true share of right answers of a bin lies. All intervals of a fit hold at once "
        "with probability 1 - alpha, whatever the score is worth.",
    ),
    (
        "alpha",
        "How often a promise may be broken by bad luck: with 0.1, at most one fit in ten has some interval that "
        "misses.",
    ),
    (
        "calibration error, plain",
        "How far confidence and share of right answers are apart, averaged over rows in bins. Also called plug-in. "
        "Noise makes it larger: with few rows a bin misses by chance.",
    ),
    (
        "calibration error, debiased",
        "The typical distance with the noise taken out (a root mean square). Noise may have been larger than all "
        "that was measured, so it can come out below 0; then no error is seen, and the upper end of its interval "
        "says how large one may still be.",
    ),
    (
        "noise floor",
        "The plain error that a perfectly calibrated confidence would show on as many rows. What is not clearly "
        "above it may be noise.",
    ),
    (
        "Brier score",
        "The mean squared distance between the confidence and what happened (1 right, 0 wrong). Lower is better; "
        "only better probabilities lower it.",
    ),
    (
        "log loss",
        "Like the Brier score, with a high price for being sure and wrong: the mean of -log(probability given to "
        "what happened). Lower is better.",
    ),
    (
        "AURC",
        "Area under the risk-coverage curve. Answer only the surest 1%, 2%, ... 100% of the questions: the share "
        "that is wrong, averaged. Lower is better; only the order of the confidences matters.",
    ),
    (
        "AUAC",
        "Area under the accuracy-confidence curve: the share of right answers at or above a threshold, averaged "
        "over all thresholds. Higher is better, but confidences pushed towards 1 raise it too.",
    ),
    (
        "sharpness",
        "How much confidences differ from one another (their standard deviation in the report). The average said to "
        "everybody has none. Good only if it is also true.",
    ),
)
"""(word, what it means), in an order in which they can be read."""
