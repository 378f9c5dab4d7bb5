from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.errors import InputError
from noyau.kernels.programs.generate import build
from noyau.ops.dispatch.fast_entries import array_runner
from tests.ops.dispatch.ops import generated, linear_op, numbers

TABLE = np.array([[1.0, 2.0]])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.full_like(x, 2),
        lambda x: TABLE[:1, :1],
        lambda x: (x @ x.T).T,
        lambda x: (np.broadcast_to(TABLE, (3, 2)), x + 1),
    ],
)
def test_results_are_packed_and_new(function):
    op, x = noyau.op(function), np.arange(6.0).reshape(2, 3)
    for _ in range(2):  # the second call gives nothing that was written into what the first one gave
        pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (op(x), function(x))), strict=True)
        for result, want in pairs:
            assert np.array_equal(result, want)
            assert result.flags.c_contiguous
            result[0, 0] = 99


def test_a_program_of_several_steps():
    given = [numbers(3, 4), numbers(4, 5), numbers(5)]
    built = build(generated(linear_op(), *given))
    (got,) = array_runner(built)(*given)
    assert np.array_equal(got, built(*given)[0])
    with pytest.raises(InputError):
        array_runner(built)(given[0], given[1], numbers(4))


def test_what_a_library_makes_may_lie_in_any_order():
    @noyau.op("f32[a, b], f32[c, b] -> f32[c, a]")
    def turned(x, y):
        return np.exp(np.einsum("ab,cb->ca", x, y) + 1)

    given = [numbers(3, 4), numbers(5, 4)]
    assert np.allclose(array_runner(build(generated(turned, *given)))(*given)[0], turned.reference(*given), rtol=1e-5)


def test_a_program_without_a_kernel():
    @noyau.op("f16[m, k], f16[k, n] -> f16[m, n]")
    def product(x, y):
        return x @ y

    given = [numbers(3, 4).astype(np.float16), numbers(4, 5).astype(np.float16)]
    got = array_runner(build(generated(product, *given)))(*given)[0]
    assert got.dtype == np.float16
    assert np.allclose(got, product.reference(*given), rtol=1e-2)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,ji->ij", "ij,ij->i", "ji,ki->jk"])
def test_a_product_of_an_array_with_itself(equation):
    @noyau.op(f"f32[n, n] -> f32[{', '.join('n' for _ in equation.split('->')[1])}]")
    def squared(x):
        return np.exp(np.einsum(equation, x, x)) + 1

    x = numbers(4, 4)
    assert np.allclose(array_runner(build(generated(squared, x)))(x)[0], squared.reference(x), rtol=1e-5)


PRODUCTS = [
    lambda x, y: x @ y.T,
    lambda x, y: (x @ y.T).T,
    lambda x, y: np.dot(y, x.T),
    lambda x, y: np.einsum("ij,kj->ki", x, y),
]


def column_major(array):
    return np.asfortranarray(array)


@pytest.mark.parametrize("lie", [np.array, column_major, lambda array: array[::-1]])
@pytest.mark.parametrize("function", PRODUCTS)
def test_one_product_of_matrices_is_a_call_of_dot(function, lie, monkeypatch):
    op, x, y = noyau.op(function), lie(numbers(30, 21)), lie(numbers(40, 21))
    others = [lie(numbers(30, 21, seed=2)), lie(numbers(40, 21, seed=3))]
    for _ in range(2):
        assert np.allclose(op(x, y), function(x, y), rtol=1e-4)
    if x.flags.forc:  # nothing reads the arguments again
        monkeypatch.setattr("noyau.ops.dispatch.fast_entries.read_argument", None)
    got = op(*others)
    assert np.allclose(got, function(*others), rtol=1e-4)
    assert got.flags.c_contiguous
    assert got.dtype == np.float32


def test_one_product_takes_what_is_of_another_key_as_before():
    op, x = noyau.op(lambda x: x.T @ x), numbers(30, 20)
    for _ in range(2):
        assert np.allclose(op(x), x.T @ x, rtol=1e-4)
    for other in (x.astype(np.float64), x[:, :1], x[:0], x.astype(np.int64), x[::2, ::2]):
        assert np.allclose(op(other), other.T @ other, rtol=1e-4)
    out = np.empty((20, 20), np.float32)
    assert op(x, out=out) is out
    assert np.allclose(out, x.T @ x, rtol=1e-4)
    product = noyau.op(lambda x, y: x @ y)
    for _ in range(2):
        product(x, x.T)
    with pytest.warns(noyau.ReferenceWarning), pytest.raises(ValueError, match="mismatch"):
        product(x, x)
