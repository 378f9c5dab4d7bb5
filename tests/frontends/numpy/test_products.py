from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.errors import UnsupportedError
from noyau.ir.graph import Contract
from tests.frontends.numpy.traces import agrees, found, newer, traced_only, x


@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)),
     ((6, 1, 2, 3), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,))],
)  # fmt: skip
def test_products_of_matrices(shapes):
    graph = agrees(lambda a, b: a @ b, *(x(*shape, seed=k) for k, shape in enumerate(shapes)))
    assert any(isinstance(node.kind, Contract) for node in graph.nodes)


def test_dtypes_are_those_of_numpy():
    agrees(lambda a, b: a @ b, x(2, 3, dtype=np.int8), x(3, 4))
    agrees(lambda a, b: np.matmul(a, b), x(2, 3, dtype=np.float64), x(3, 4))


def test_dot_and_einsum():
    agrees(lambda a, b: np.dot(a, b) + a.dot(b), x(2, 3), x(3, 4))
    agrees(lambda a: np.dot(a, 2.0), x(2, 3))
    agrees(lambda a, b: np.einsum("bij,bkj->bik", a, b), x(5, 2, 3), x(5, 4, 3))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: a @ 3, "a matrix product takes no scalars|np.matmul"),
        (lambda a: np.dot(a, a[None, None], out=a), "np.dot of more than two axes is traced without out="),
        (lambda a: np.einsum(a, [0, 1, 2]), r"np\.einsum\('abc->'\) does not fit the axes|np\.einsum"),
        (
            lambda a: np.linalg.norm(a.sum(), axis=0),
            "the axis 0 is outside of 0 axes",
        ),
        (
            lambda a: np.linalg.norm(a, 3),
            "traced with ord= None, 'fro', 1, -1, inf and -inf, not 3, which takes",
        ),
        (lambda a: np.einsum("ijk,jk->i", a, a), "does not fit the axes of its operands"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij->", [(2, 3)]),
        ("i,j,k->kji", [(2,), (3,), (4,)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
        ("...i,...i", [(5, 2, 3), (2, 3)]),
        ("b...i->b...", [(2, 3, 4)]),
        ("ij,ij,jk->k", [(2, 3), (2, 3), (3, 4)]),
        ("iij,jk->ik", [(2, 2, 3), (3, 4)]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_einsum_as_it_may_be_spelt(equation, shapes, dtype):
    arrays = [x(*shape, seed=k, dtype=dtype) for k, shape in enumerate(shapes)]
    agrees(lambda *given: np.einsum(equation, *given), *arrays)


def test_products_of_vectors_and_stacks():
    agrees(lambda a, b: (np.inner(a, b), np.outer(a, b), np.vdot(a, b.ravel()[: a.size])), x(2, 3), x(4, 3))
    agrees(lambda a, b: np.tensordot(a, b, 2) + np.tensordot(a, b, axes=([2, 1], [1, 0])), x(2, 3, 4), x(3, 4))
    agrees(lambda a, v: np.dot(a, a)[..., 0, 0] + np.dot(a, v), x(2, 3, 3), x(3))
    agrees(lambda a, b: np.kron(a, b) + np.kron(b, a), x(2, 3), x(2, 3, seed=1))
    agrees(lambda a: (a > 0) @ (a > 0), x(3, 3))


@newer("2.2.0")
def test_products_with_vectors():
    agrees(lambda a, v: (np.matvec(a, v), np.vecmat(v, a), np.vecdot(a, v)), x(2, 3, 3), x(3))


@pytest.mark.parametrize("order", [None, 0, 1, 2, 3, np.inf, -np.inf])
def test_norms_of_vectors(order):
    agrees(lambda a: np.linalg.norm(a, order, axis=1, keepdims=True) + np.linalg.norm(a[0], order), x(3, 4))


def test_norms_of_matrices():
    agrees(lambda a: np.linalg.norm(a) + np.linalg.norm(a, "fro") + np.linalg.norm(a, "fro", axis=(0, 1)), x(3, 4))
    agrees(lambda a: np.linalg.norm(a, axis=0), x(3, 4, dtype=np.int32))


@pytest.mark.parametrize("ord", [1, -1, np.inf, -np.inf, "fro", None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_of_matrices_by_sums(ord, keepdims):  # noqa: A002  NumPy's own name
    found(lambda a: np.linalg.norm(a, ord, keepdims=keepdims), x(3, 4))
    found(lambda a: np.linalg.norm(a, ord, (2, 0), keepdims), x(3, 2, 4))


def test_an_einsum_spelt_with_numbers():
    found(lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), x(3, 4), x(4, 5, seed=1))
    found(lambda a: np.einsum(a, [..., 1]), x(3, 4))


@pytest.mark.parametrize(("left", "right"), [((2, 1), (3, 2)), ((2, 3), (1, 4)), ((3, 3, 1), (1, 3, 3)), ((1,), (3,))])
def test_an_inner_extent_of_one_is_not_repeated(left, right):
    with pytest.raises(ValueError, match="matmul: Input operand 1 has a mismatch"):
        noyau.op(lambda a, b: a @ b)(np.ones(left), np.ones(right))


@pytest.mark.parametrize(
    ("shapes", "known"),
    [
        (((50, 3), (3, 4)), {"x0_1": 3, "x1_1": 4}),  # rows of any number
        (((5, 3), (3, 4)), {"x0_1": 3, "x1_1": 4}),  # few of them too
        (((4, 3), (3, 40)), {"x0_0": 4, "x0_1": 3}),
        (((50, 3, 3), (50, 3, 2)), {"x0_1": 3, "x0_2": 3, "x1_2": 2}),
        (((50, 3), (3, 40)), {}),
        (((50, 30), (30, 4)), {}),
        (((50,), (50,)), {}),
    ],
)
def test_the_extents_of_a_small_product_are_asked_for(shapes, known):
    trace = found(lambda a, b: a @ b, *(x(*shape, seed=k) for k, shape in enumerate(shapes)))
    assert trace.specialised == known
