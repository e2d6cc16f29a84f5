"""GPBoost: logistic regression with a random intercept and an independent random slope, by Laplace's approximation.

Grouped random effects are independent in GPBoost, so its covariance is diagonal. Where `trials` are given, `correct`
holds shares of them: the same model on cells.
"""

from __future__ import annotations

from typing import Any

import gpboost
import numpy as np

from benchmarks.clock import best_of
from benchmarks.handover import read_given, tell


def main() -> None:
    given = read_given()
    x, trials = given["confidence"], given.get("trials")
    X = np.column_stack([np.ones_like(x), x])
    model: Any = None

    def fit() -> None:
        nonlocal model
        model = gpboost.GPModel(
            likelihood="bernoulli_logit" if trials is None else "binomial_logit",
            group_data=given["group"],
            group_rand_coef_data=x,
            ind_effect_group_rand_coef=[1],
            weights=trials,
            num_parallel_threads=given["threads"],
            matrix_inversion_method=given["method"],
        )
        model.fit(y=given["correct"], X=X)

    seconds = best_of(given["repeats"], fit)
    fixed, variances = (np.ravel(values).tolist() for values in (model.get_coef(), model.get_cov_pars()))
    tell(seconds=seconds, fixed=fixed, covariance=np.diag(variances).tolist())


if __name__ == "__main__":
    main()
