"""statsmodels: a Bayesian mixed logistic regression with independent effects, by variational Bayes.

Its other way, `fit_map`, looks for the joint mode of effects and variances, where a variance falls to zero.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

from benchmarks.clock import best_of
from benchmarks.handover import read_given, tell


def main() -> None:
    given = read_given()
    x, group = given["confidence"], given["group"]
    n_groups = int(group.max()) + 1
    rows = np.arange(len(x))
    parts = [sparse.csr_matrix((values, (rows, group)), (len(x), n_groups)) for values in (np.ones_like(x), x)]
    effects = sparse.hstack(parts, format="csr")
    design = np.column_stack([np.ones_like(x), x])
    result: Any = None

    def fit() -> None:
        nonlocal result
        model = BinomialBayesMixedGLM(given["correct"], design, effects, np.repeat([0, 1], n_groups))
        result = model.fit_vb(rng=0)

    warnings.simplefilter("ignore")
    seconds = best_of(given["repeats"], fit)
    covariance = np.diag(np.exp(2 * result.vcp_mean))
    tell(seconds=seconds, fixed=result.fe_mean.tolist(), covariance=covariance.tolist())


if __name__ == "__main__":
    main()
