"""NumPy's functions that are traced by their own text."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from tests.frontends.numpy.traces import found, x

MATRICES = {
    "angle": np.angle,
    "apply_along_axis": lambda a: np.apply_along_axis(lambda row: row - row.mean(), 1, a),
    "apply_along_axis of sums": lambda a: np.apply_along_axis(np.sum, 0, a),
    "apply_over_axes": lambda a: np.apply_over_axes(np.sum, a, [0, 1]),
    "array_equiv": lambda a: np.array_equiv(a, a[:1]),
    "block": lambda a: np.block([[a, a[:, :1]], [a[:1] * 0, np.ones((1, 1))]]),
    "corrcoef": np.corrcoef,
    "cov": np.cov,
    "cov of columns": lambda a: np.cov(a, rowvar=False, ddof=0),
    "corrcoef of a vector": lambda a: np.corrcoef(a[0]),
    "cumulative_sum": lambda a: np.cumulative_sum(a, axis=1, include_initial=True),
    "cumulative_prod": lambda a: np.cumulative_prod(a, axis=0),
    "diag_indices_from": lambda a: a[:, :3][np.diag_indices_from(a[:, :3])],
    "ediff1d": np.ediff1d,
    "i0": np.i0,
    "imag": lambda a: np.imag(a) + a.imag,
    "isreal": np.isreal,
    "iscomplex": np.iscomplex,
    "put_along_axis": lambda a: put(a),
    "require": lambda a: np.require(a, np.float64),
    "sinc": lambda a: np.sinc(a - a[0, 0]),
    "take_along_axis": lambda a: np.take_along_axis(a, np.argsort([[1, 0, 0]] * a.shape[1]).T, 0),
    "take_along_axis of all": lambda a: np.take_along_axis(a, np.arange(5), None),
    "trapezoid": lambda a: np.trapezoid(a, axis=0),
    "trapezoid at places": lambda a: np.trapezoid(a, [0.5, 1, 2, 4]),
    "unstack": lambda a: np.unstack(a, axis=1)[2],
    "tril_indices": lambda a: a[np.tril_indices(3, m=4)],
    "tril_indices_from": lambda a: a[np.tril_indices_from(a)],
    "unwrap": lambda a: np.unwrap(a * 3, axis=0),
    "linalg.matrix_norm": lambda a: np.linalg.matrix_norm(a),
    "linalg.matrix_power": lambda a: np.linalg.matrix_power(a[:, :3], 5),
    "linalg.multi_dot": lambda a: np.linalg.multi_dot([a, a.T, a[:, 0]]),
    "linalg.vector_norm": lambda a: np.linalg.vector_norm(a, axis=1, keepdims=True),
    "mgrid": lambda a: np.mgrid[: a.shape[0], : a.shape[1]] + a,
    "ogrid": lambda a: np.ogrid[: a.shape[0], : a.shape[1]][1] * a,
    "r_ of matrices": lambda a: np.r_[a, a[:1]],
    "c_ of matrices": lambda a: np.c_[a, a[:, 0]],
    "r_ along an axis": lambda a: np.r_["-1", a, a],
}
VECTORS = {
    "ediff1d with ends": lambda v: np.ediff1d(v, to_begin=v[:1], to_end=v[:2]),
    "polyval": lambda v: np.polyval([2, 0, 1], v),
    "polyval of traced coefficients": lambda v: np.polyval(v, 2),
    "polyadd": lambda v: np.polyadd(v, v[1:]),
    "polyder": np.polyder,
    "polyint": np.polyint,
    "vander": np.vander,
    "vander, increasing": lambda v: np.vander(v, 3, increasing=True),
    "r_": lambda v: np.r_[0, v, v[0], 1:3],
    "c_": lambda v: np.c_[v, v * 2],
    "logspace": lambda v: np.logspace(0, 2, v.shape[0]) * v,
}


def put(a):
    out = a.copy()
    np.put_along_axis(out, np.argmax(out, 1, keepdims=True), 0, 1)
    return out


def there(name: str) -> bool:
    """Whether this NumPy has a function."""
    found = np
    for part in name.partition(" ")[0].partition(",")[0].split("."):
        found = getattr(found, part, None)
    return found is not None


def numpy_takes(function, array) -> bool:
    try:
        with np.errstate(all="ignore"):
            function(array.copy())
    except (TypeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("name", [*filter(there, MATRICES)])
def test_of_matrices(name):
    for dtype in ["f4", "f8", "i4", "?"]:
        array = x(3, 4, dtype=dtype)
        if numpy_takes(MATRICES[name], array):
            found(MATRICES[name], array)


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_of_vectors(name, dtype):
    found(VECTORS[name], x(5, dtype=dtype))


def test_sizes_stay_names():
    """One trace serves all sizes."""
    assert not found(np.cov, x(20, 30)).specialised
    assert not found(lambda v: np.r_[v, 0, v], x(5)).specialised
    for function in (np.flip, np.flipud, np.fliplr, np.sinc, lambda a: np.rollaxis(a, 1)):
        assert not found(function, x(3, 4)).specialised
    for stack in (np.vstack, np.dstack, np.hstack, np.column_stack):
        assert not found(lambda a, stack=stack: stack([a, a * 2]), x(3, 4)).specialised
    assert not found(np.convolve, x(400, dtype=np.float64), x(300, dtype=np.float64)).specialised
    assert found(np.convolve, x(400), x(3)).specialised == {"x1_0": 3}  # a short vector is unrolled
    for pair in (np.outer, np.append, lambda a, b: np.take_along_axis(a, np.zeros(1, int), 0) * b):
        assert not found(pair, x(5), x(3)).specialised


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: np.geomspace(a[0, 0], 1), "it asks for the number in an array"),
        (lambda a: np.polymul(a[0], a[1]), "np.polymul is not among the functions that are traced: the size of"),
        (lambda a: np.polydiv(a[0], a[1])[0], "np.polydiv is not among the functions that are traced: the size of"),
        (lambda a: np.roots(a[0]), "np.roots is not among the functions that are traced: it is a solver"),
    ],
)
def test_a_text_that_asks_for_numbers_is_refused_at_the_users_line(function, told):
    with pytest.raises(UnsupportedError) as refusal:
        found(function, np.abs(x(3, 4)) + 1)
    assert told in str(refusal.value)
    assert f"at line {function.__code__.co_firstlineno} of {__file__}" in str(refusal.value)
