"""Coordinates of texts: compared with scikit-learn's PCA and kernel PCA, and on difficult vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA, KernelPCA

from qacal import InputError
from qacal.calibrators.score.kernel import fit_kernel
from tests.partitions.rows import AWKWARD, clouds
from tests.rebuilt import rebuilt

LENGTH = 0.6


def aligned(one, other):
    """Return columns with their signs flipped to match another table."""
    return one * np.sign((one * other).sum(axis=0))


@pytest.mark.parametrize(("n", "width"), [(60, 4), (150, 30), (240, 10)])
def test_coordinates_are_those_of_two_principal_component_analyses(n, width):
    rng = np.random.default_rng(n)
    Z, new = rng.normal(size=(2, n, width)) * rng.exponential(size=width)
    kernel = fit_kernel(Z)
    plane = PCA(min(24, width)).fit(Z)
    spread = plane.explained_variance_.sum() * (n - 1) / n
    gamma = 1 / (2 * LENGTH**2 * 2 * spread)
    theirs = KernelPCA(min(112, n - 1), kernel="rbf", gamma=gamma).fit(plane.transform(Z))
    kept = kernel.width
    for vectors in (Z, new):
        ours, other = kernel.coordinates(vectors), theirs.transform(plane.transform(vectors))[:, :kept]
        np.testing.assert_allclose(aligned(ours, other), other, atol=1e-6)


def test_coordinates_are_zero_on_average_and_fall_in_variance():
    Z = clouds(0, n=240)
    found = fit_kernel(np.unique(Z, axis=0)).coordinates(np.unique(Z, axis=0))
    assert np.abs(found.mean(axis=0)).max() < 1e-9
    assert (np.diff((found**2).sum(axis=0)) < 1e-9).all()


@pytest.mark.parametrize("scale", [1e-40, 1e-8, 1.0, 1e8, 1e90])
def test_the_scale_of_vectors_does_not_matter(scale):
    Z = clouds(1, n=100)
    plain, scaled = fit_kernel(Z).coordinates(Z), fit_kernel(Z * scale).coordinates(Z * scale)
    np.testing.assert_allclose(aligned(scaled, plain), plain, atol=1e-6)


@pytest.mark.parametrize("name", AWKWARD)
def test_difficult_vectors_have_finite_coordinates_or_none(name):
    Z = AWKWARD[name]
    kernel = fit_kernel(Z)
    if name in ("one row", "constant", "zeros", "tiny"):
        assert kernel is None
    else:
        rebuilt(kernel)
        assert np.isfinite(kernel.coordinates(Z)).all()


def test_one_text_that_differs_from_thousands():
    """Landmarks were once drawn from the first rows alone: one landmark has no directions, and gave NaN."""
    for at in (7, 1500, 4999, 5001):
        Z = np.zeros((6000, 3))
        Z[at] = 1.0
        kernel = fit_kernel(Z)
        assert (kernel is None) == (at > 5000)
        if kernel is not None:
            rebuilt(kernel)
            assert np.abs(np.diff(kernel.coordinates(Z)[[0, at]], axis=0)).max() > 0.1


def test_texts_that_are_equal_up_to_rounding_beside_one_far_away():
    Z = np.random.default_rng(0).normal(size=(3000, 4)) * 1e-12
    Z[2999] = 1e3
    kernel = fit_kernel(Z)
    assert kernel is None or np.isfinite(kernel.coordinates(Z)).all()


def test_signed_zeros_are_one_text():
    Z = np.where(np.random.default_rng(0).random((500, 2)) < 0.5, -0.0, 0.0)
    assert fit_kernel(Z) is None
    Z[:3] = 1.0
    assert len(fit_kernel(Z).landmarks) == 2


def test_short_floats_are_read():
    Z = clouds(2, n=200)
    kernel = fit_kernel(Z)
    np.testing.assert_allclose(kernel.coordinates(Z.astype(np.float32)), kernel.coordinates(Z), atol=1e-4)


def test_coordinates_do_not_depend_on_the_batch():
    Z = np.random.default_rng(0).normal(size=(9000, 3))
    kernel = fit_kernel(Z[:400])
    whole = kernel.coordinates(Z)
    order = np.random.default_rng(1).permutation(9000)
    np.testing.assert_allclose(kernel.coordinates(Z[order]), whole[order], atol=1e-12)
    np.testing.assert_allclose(
        np.vstack([kernel.coordinates(Z[at : at + 1]) for at in range(5)]), whole[:5], atol=1e-12
    )


@given(st.integers(0, 99), st.floats(-1e100, 1e100))
def test_texts_far_from_all_landmarks_have_the_same_coordinates(seed, far):
    """If every kernel value is zero, coordinates are minus their average."""
    Z = clouds(seed, n=50)
    kernel = fit_kernel(Z)
    found = kernel.coordinates(np.full((1, 6), far))
    assert np.isfinite(found).all()
    if abs(far) > 1e4:
        np.testing.assert_array_equal(found[0], -kernel.offset)


@pytest.mark.parametrize(
    ("message", "vectors"),
    [
        ("have 2 coordinates; the score was fitted on 6", np.zeros((3, 2))),
        ("row 1 has nan at 0", np.array([[0.0] * 6, [np.nan] * 6])),
        ("row 0 has inf", np.full((1, 6), np.inf)),
        ("expected \\(rows, coordinates\\)", np.zeros(6)),
        ("are of type", [["a"] * 6]),
    ],
)
def test_invalid_vectors_are_refused(message, vectors):
    kernel = fit_kernel(clouds(0, n=50))
    with pytest.raises(InputError, match=message):
        kernel.coordinates(vectors)
