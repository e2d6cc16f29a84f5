"""Make small data sets, and fit them with lme4.

    python tests/reference/lme4/make_sets.py        # writes the CSV files here
    Rscript tests/reference/lme4/fit.R              # writes expected.json and the random effects (r-cran-lme4)

The files are committed; run this again only to add a set.
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def simulate(seed, rows_per_group, values, sd, slope_sd, correlation, fixed=(-1.5, 2.5)):
    rng = np.random.default_rng(seed)
    covariance = np.array([[sd**2, correlation * sd * slope_sd], [correlation * sd * slope_sd, slope_sd**2]])
    effects = rng.multivariate_normal([0, 0], covariance, len(rows_per_group))
    group = np.repeat(np.arange(len(rows_per_group)), rows_per_group)
    confidence = np.round(rng.beta(3, 1.3, len(group)) * values) / values
    eta = fixed[0] + effects[group, 0] + (fixed[1] + effects[group, 1]) * confidence
    correct = (rng.random(len(group)) < 1 / (1 + np.exp(-eta))).astype(int)
    return group, confidence, correct


def uneven(seed, groups, low, high):
    return np.random.default_rng(seed).integers(low, high, groups)


SETS = {
    "tied": simulate(1, [50] * 12, values=10, sd=0.8, slope_sd=1.2, correlation=-0.4),
    "uneven": simulate(2, uneven(2, 20, 3, 80), values=20, sd=0.6, slope_sd=1.0, correlation=0.3),
    "continuous": simulate(3, [40] * 10, values=10**6, sd=1.0, slope_sd=0.5, correlation=0.8),
    "no_group_effect": simulate(4, [60] * 10, values=20, sd=0.0, slope_sd=0.0, correlation=0.0),
    "many_small": simulate(5, [6] * 80, values=5, sd=1.0, slope_sd=0.0, correlation=0.0),
}

if __name__ == "__main__":
    for name, columns in SETS.items():
        header = "group,confidence,correct"
        np.savetxt(
            HERE / f"{name}.csv",
            np.column_stack(columns),
            fmt=["%d", "%.6g", "%d"],
            delimiter=",",
            header=header,
            comments="",
        )
