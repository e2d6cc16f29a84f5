"""The README's example with noise: two subjects, one stated confidence, wrong in opposite directions.

Calibrates on one half of generated answers and shows, on the other half, what the LLM said, what one pooled map makes
of it, and what a map per group does.
"""

from __future__ import annotations

import numpy as np

import qacal

TRUTH = {"law": 0.65, "physics": 0.95}


def answers(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (subject, confidence, correct): the LLM says about 0.8 to everything."""
    rng = np.random.default_rng(seed)
    subject = rng.choice(list(TRUTH), n)
    confidence = rng.choice([0.75, 0.8, 0.85], n)
    correct = rng.random(n) < np.array([TRUTH[name] for name in subject])
    return subject, confidence, correct


def main() -> None:
    """Calibrate, and print what a person would want to see."""
    subject, confidence, correct = answers(4000, seed=1)
    pooled = qacal.UniformMassBinning(points_per_bin=300).fit(confidence, correct)
    grouped = qacal.QABinning(points_per_bin=300, certificate="conditional").fit(confidence, correct, groups=subject)

    subject, confidence, correct = answers(4000, seed=2)
    evidence = grouped.explain(confidence, groups=subject)
    methods = {
        "stated": confidence,
        "pooled": pooled.predict(confidence),
        "by group": evidence.calibrated,
    }

    print("4,000 answers calibrate; 4,000 others are judged. Right answers and mean confidence of each subject:\n")
    print(f"{'subject':10}{'rows':>6}{'right':>9}" + "".join(f"{name:>10}" for name in methods) + "   certified")
    for name in TRUTH:
        mine = subject == name
        shown = "".join(f"{values[mine].mean():10.3f}" for values in methods.values())
        interval = f"   {evidence.low[mine].min():.2f} to {evidence.high[mine].max():.2f}"
        print(f"{name:10}{mine.sum():6}{correct[mine].mean():9.3f}{shown}{interval}")

    print("\nCertified: the share that is truly right lies in there, in every bin of every subject at once, with 90%.")
    print("\nRoot mean squared error of the confidences, without noise, with its 95% interval (0 is perfect):\n")
    print(f"{'':10}{'on average: CE(h)':>26}{'by subject: CE(h;beta)':>30}")
    errors = {}
    for name, values in methods.items():
        overall = qacal.calibration_error(values, correct)
        by_group = qacal.calibration_error(values, correct, groups=subject)
        errors[name] = overall.debiased, by_group.debiased
        print(f"{name:10}{_shown(overall):>26}{_shown(by_group):>30}")
    on_average, within = errors["stated"]
    print(f"\nThe stated confidences are off by {on_average:.2f} on average and by {within:.2f} within a subject.")
    print("One pooled map mends the first number and not the second; a map per group mends both, within noise.")


def _shown(error: qacal.metrics.calibration.CalibrationError) -> str:
    value, low, high = (max(0.0, number) for number in (error.debiased, error.low, error.high))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
