"""Cells that only move: every case over symbolic extents, with sizes 0, 1 and more."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.views import reshape_target
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import View
from tests.frontends.onnx.models import agree, imported

CASES = [
    ("(float[a, b, 6] x) => (float y) { t = Constant<value_ints = [0, -1, 3]>() y = Reshape(x, t) }", (2, 5, 6)),
    ("(float[a, b, 6] x) => (float y) { t = Constant<value_ints = [-1]>() y = Reshape(x, t) }", (2, 5, 6)),
    ("(float[a, b, 6] x) => (float y) { t = Constant<value_ints = [0, 0, 2, 3]>() y = Reshape(x, t) }", (1, 5, 6)),
    ("(float[a, b, 6] x) => (float y) { t = Constant<value_ints = [3, -1]>() y = Reshape(x, t) }", (3, 1, 6)),
    ("(float[a, 0] x) => (float y) { t = Constant<value_ints = [0, 4]>() y = Reshape<allowzero = 1>(x, t) }", (3, 0)),
    ("(float[a, b, c] x) => (float y) { y = Flatten(x) }", (2, 3, 4)),
    ("(float[a, b, c] x) => (float y) { y = Flatten<axis = 0>(x) }", (2, 3, 4)),
    ("(float[a, b, c] x) => (float y) { y = Flatten<axis = 3>(x) }", (2, 1, 4)),
    ("(float[a, b, c] x) => (float y) { y = Flatten<axis = -1>(x) }", (2, 3, 4)),
    ("(float[a, b, c] x) => (float y) { y = Transpose(x) }", (2, 3, 4)),
    ("(float[a, b, c] x) => (float y) { y = Transpose<perm = [1, 2, 0]>(x) }", (2, 3, 4)),
    ("(float[a, 1, c] x) => (float y) { k = Constant<value_ints = [1]>() y = Squeeze(x, k) }", (2, 1, 4)),
    ("(float[a, b, c] x) => (float y) { k = Constant<value_ints = [-2]>() y = Squeeze(x, k) }", (2, 1, 4)),
    ("(float[2, 1, 1] x) => (float y) { y = Squeeze(x) }", (2, 1, 1)),
    ("(float[a, b] x) => (float y) { k = Constant<value_ints = [0, -1, 2]>() y = Unsqueeze(x, k) }", (2, 3)),
    ("(float[a, 1] x) => (float y) { t = Constant<value_ints = [2, 1, 5]>() y = Expand(x, t) }", (3, 1)),
    ("(float[a, b] x) => (float y) { t = Constant<value_ints = [4, 1, 3]>() y = Expand(x, t) }", (1, 3)),
    ("(float[a, b] x) => (float y) { t = Constant<value_ints = [2, 3]>() y = Tile(x, t) }", (3, 2)),
    ("(float[a, b] x) => (float y) { t = Constant<value_ints = [0, 3]>() y = Tile(x, t) }", (3, 2)),
    ("(float[a, b] x, float[a, b] z) => (float y) { y = Concat<axis = -1>(x, z, x) }", (3, 2)),
    ("(float[a, 5] x) => (float y, float z) { y, z = Split<axis = 1, num_outputs = 2>(x) }", (3, 5)),
    (
        "(float[a, 5] x) => (float y, float z) { k = Constant<value_ints = [1, 4]>() y, z = Split<axis = -1>(x, k) }",
        (3, 5),
    ),
    ("(float[a, 8, b, c] x) => (float y) { y = DepthToSpace<blocksize = 2>(x) }", (2, 8, 3, 4)),
    ('(float[a, 8, b, c] x) => (float y) { y = DepthToSpace<blocksize = 2, mode = "CRD">(x) }', (2, 8, 3, 4)),
    ("(float[a, 2, b, c] x) => (float y) { y = SpaceToDepth<blocksize = 2>(x) }", (2, 2, 4, 6)),
]


@pytest.mark.parametrize(("text", "shape"), CASES)
def test_views(text, shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    agree(text, {"x": x, **({"z": -x} if " z)" in text.partition("=>")[0] else {})})


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_reshape_keeps_the_prefix_it_can(batch):
    found = agree(
        "(float[batch, seq, 6] x) => (float y) { t = Constant<value_ints = [0, 0, 2, 3]>() y = Reshape(x, t) }",
        {"x": np.arange(batch * 24, dtype=np.float32).reshape(batch, 4, 6)},
    )
    assert found.graph["y"].kind == View((Dim.of("#0"), Dim.of("#1"), Dim.of("#2") * 3 + "#3"))


@pytest.mark.parametrize(
    ("target", "result"),
    [
        (["b", "s", -1, 4], ["b", "s", 3, 4]),
        ([-1, 12], [Dim.of("b") * "s", 12]),
        ([0, -1], ["b", Dim.of("s") * 12]),
        (["b", -1], ["b", Dim.of("s") * 12]),
        ([-1], [Dim.of("b") * "s" * 12]),
    ],
)
def test_the_extent_that_is_left(target, result):
    assert reshape_target(shape_of(["b", "s", 12]), shape_of(target), keep_zero=False) == shape_of(result)


@pytest.mark.parametrize("target", [[-1, -1], [-2], [4, 5, 6, 0], [0, 0, 0, 0]])
def test_shapes_that_are_none(target):
    with pytest.raises(UnsupportedError, match="Reshape"):
        reshape_target(shape_of(["b", "s", 12]), shape_of(target), keep_zero=False)


def test_what_cannot_be_is_a_boundary():
    for text, reason in (
        (
            "(float[2, 3] x) => (float y) { t = Constant<value_ints = [7]>() y = Reshape(x, t) }",
            "shapes do not fit: an extent is 6 and 7 at once",
        ),
        (
            "(float[2, 3] x) => (float y) { k = Constant<value_ints = [0]>() y = Squeeze(x, k) }",
            "shapes do not fit: an extent is 2 and 1 at once",
        ),
        ("(float[2, 3] x) => (float y) { t = Constant<value_ints = [4]>() y = Expand(x, t) }", "the extents 3 and 4"),
        ("(float[n, 3] x) => (float y) { y = Squeeze(x) }", "which axes Squeeze drops is only known"),
        ("(float[n, 3] x) => (float y, float z) { y, z = Split<num_outputs = 2>(x) }", "whether Split cuts"),
        ("(float[2, 3] x) => (float y) { y = Flatten<axis = 4>(x) }", "the axis 4 of Flatten is outside"),
    ):
        assert next(iter(imported(text).opaque.values())).startswith(reason)


def test_more_unknown_extents_than_can_be_reasoned_about():
    names = [f"a{k}" for k in range(25)]
    text = f"""(float[{", ".join(names)}] x) => (float y) {{ t = Transpose(x) s = Shape(x) y = Reshape(t, s) }}"""
    found = imported(text)
    assert found.opaque == {2: "the formula of its number of cells is too long"}
    assert found.graph["y"].shape == tuple(map(Dim.of, [f"d{k}" for k in range(25)]))


def test_extents_that_must_agree_are_demanded():
    found = imported("(float[a, b] x, float[c, d] z) => (float y) { y = Concat<axis = 1>(x, z) }")
    assert list(map(str, chain.from_iterable(found.demands.values()))) == ["a = c"]
    assert found.graph["y"].shape == (Dim.of("a"), Dim.of("b") + "d")


@pytest.mark.parametrize(
    ("shapes", "target", "demands"),
    [
        (("a, b", "c"), "s, k", ["a*max(-1*c + 1, 0) <= 0", "1 <= c"]),
        (("a, b", "a"), "s, k", []),  # its 0 is the old extent, and it divides the cells
        (("2, a, b", "a"), "s, k", ["2*max(-1*a + 1, 0) <= 0"]),
        (("c, b", "c, b"), "s", []),
    ],
)
def test_an_extent_of_0_in_a_target_is_the_old_one(shapes, target, demands):
    """A size there must not be 0 where the old extent is not."""
    found = imported(
        f"(float[{shapes[0]}] x, float[{shapes[1]}] v) => (float y) <int64[1] k = {{-1}}> "
        f"{{ s = Shape(v) t = Concat<axis = 0>({target}) y = Reshape(x, t) }}"
    )
    every = chain.from_iterable(found.demands.values())
    assert [str(demand) for demand in every if demand.relation == "at most"] == demands
