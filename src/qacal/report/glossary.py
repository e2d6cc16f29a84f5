"""The words of the report and of the documentation, each in a sentence or two; docs/glossary.md has the same."""

from __future__ import annotations

GLOSSARY = (
    ("confidence", "How sure the LLM is that its answer is correct, from 0 to 1. Stated: as the LLM gave it."),
    ("accuracy", "The share of answers that are correct."),
    (
        "calibrated",
        "A confidence that means what it says: about 70% of the answers with 0.7 are correct. Also the confidence "
        "after qacal has corrected it.",
    ),
    (
        "learned score",
        "A model that predicts whether an answer is correct, trained on the stated confidence, the text and other "
        "columns.",
    ),
    (
        "group",
        "Questions of one kind: those with the same value of a column, or with similar texts. A confidence can be "
        "right on average and wrong in every group.",
    ),
    (
        "bin, map",
        "A bin is a range of confidences that all get the same calibrated value. A map is the table of bins for a "
        "group, or for all questions.",
    ),
    ("pooled map", "One correction for all questions, without regard to their group."),
    (
        "partition, beta",
        "The function that assigns questions to groups; the paper calls it beta. Group rows are the rows set aside "
        "to make the groups.",
    ),
    (
        "certificate",
        "An interval that contains the true accuracy of a bin. All intervals of a fit hold at once with "
        "probability 1 - alpha, however good or bad the score is.",
    ),
    (
        "alpha",
        "The probability that the guarantee fails by chance: with 0.1, at most one fit in ten has an interval that "
        "misses the true accuracy.",
    ),
    (
        "calibration error, plain",
        "The distance between confidence and accuracy, averaged over rows in bins. Also called plug-in. Noise "
        "makes it larger: with few rows a bin is off by chance.",
    ),
    (
        "calibration error, debiased",
        "The typical distance (a root mean square) without the noise. The estimate is below 0 if the noise was "
        "larger than the measured distance. Then no error is detected, and the upper end of its interval says how "
        "large one may still be.",
    ),
    (
        "noise floor",
        "The plain error that a perfectly calibrated confidence would show on as many rows. An error that is not "
        "clearly above it may be noise.",
    ),
    (
        "Brier score",
        "The mean squared difference between the confidence and the outcome (1 correct, 0 wrong). Lower is better; "
        "only better probabilities lower it.",
    ),
    (
        "log loss",
        "Like the Brier score, but with a high penalty for confident errors: the mean of -log(probability of the "
        "outcome). Lower is better.",
    ),
    (
        "AURC",
        "Area under the risk-coverage curve: the error rate when only the most confident 1%, 2%, ... 100% of the "
        "questions are answered, averaged. Lower is better; only the order of the confidences matters.",
    ),
    (
        "AUAC",
        "Area under the accuracy-confidence curve: the accuracy at or above a threshold, averaged over all "
        "thresholds. Higher is better, but confidences pushed towards 1 raise it too.",
    ),
    (
        "sharpness",
        "How much confidences differ from one another (their standard deviation in the report). A constant "
        "confidence has none. Good only if the confidences are also calibrated.",
    ),
)
"""(word, meaning), in the order in which to read them."""
