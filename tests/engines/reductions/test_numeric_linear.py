import numpy as np
import pytest

import noyau
from noyau.engines.laws import check_laws

NOISE = np.random.default_rng(0)
X = NOISE.normal(size=(4000, 4))


def test_a_tall_matrix_has_the_triangle_of_one_factorisation():
    r = noyau.stream(noyau.reductions.TallQR, {"x": X}, memory=24 * 32 * 300).value
    want = np.linalg.qr(X, mode="r")
    np.testing.assert_allclose(r, want * np.sign(np.diagonal(want))[:, None], rtol=0, atol=1e-12)
    assert check_laws(noyau.reductions.TallQR()).ok


def test_least_squares_keep_what_normal_equations_lose():
    """Columns that agree to 1e-9: x.T @ x, of condition 1e18, has nothing left of their difference."""
    x = np.stack([X[:, 0], X[:, 0] + 1e-9 * X[:, 1]], axis=1)
    columns = {"x": x, "y": x @ [3.0, -1.0] + 2.0}
    result = noyau.stream(noyau.reductions.LeastSquares, columns, memory=24 * 24 * 300).value
    plain = np.linalg.lstsq(np.c_[np.ones(len(x)), x], columns["y"])[0]
    assert result["coefficients"].tolist() == pytest.approx([2, 3, -1], abs=1e-5)
    assert plain.tolist() == pytest.approx([2, 3, -1], abs=1e-5)
    assert check_laws(noyau.reductions.LeastSquares()).ok


def test_least_squares_say_what_is_left():
    y = X @ [1.0, 2, 3, 4] + NOISE.normal(size=len(X))
    result = noyau.reductions.LeastSquares(constant=False).over(X, y)
    coefficients, left, _, _ = np.linalg.lstsq(X, y)
    assert result["coefficients"].tolist() == pytest.approx(coefficients.tolist())
    assert result["residual_norm"] == pytest.approx(np.sqrt(left[0]))
    nothing = noyau.reductions.LeastSquares()
    assert nothing.finish(nothing.zero())["residual_norm"] == 0
