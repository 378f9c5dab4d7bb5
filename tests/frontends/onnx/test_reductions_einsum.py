"""Einsum: contractions, transposes, diagonals, sums."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.ir.graph import Contract, View
from tests.frontends.onnx.models import agree, imported

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
SQUARE = X[:, :3].copy()


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk", "ij,jk->ki", "ij,jk->", "ij,jk->ijk", " ij , jk -> ik "])
def test_two_operands_are_a_contraction(equation):
    text = f'(float[a, b] x, float[b, c] z) => (float y) {{ y = Einsum<equation = "{equation}">(x, z) }}'
    found = agree(text, {"x": X, "z": X.T.copy()}, tolerance=1e-5)
    assert isinstance(found.graph["y"].kind, Contract)


@pytest.mark.parametrize("equation", ["ij->ji", "ij->i", "ij->j", "ij->", "ij", "ji"])
def test_one_operand_is_a_view_and_a_sum(equation):
    agree(f'(float[a, b] x) => (float y) {{ y = Einsum<equation = "{equation}">(x) }}', {"x": X}, tolerance=1e-5)


@pytest.mark.parametrize("equation", ["ii->i", "ii->", "ii"])
def test_diagonals(equation):
    found = agree(
        f'(float[a, a] x) => (float y) {{ y = Einsum<equation = "{equation}">(x) }}', {"x": SQUARE}, tolerance=1e-5
    )
    assert any(isinstance(node.kind, View) for node in found.graph.nodes)


@pytest.mark.parametrize(
    "equation", ["...i,ij->...j", "ij,jk,kl->il", "ii,ij->j", "ij,jk->iz", "ij,jk->ii", "i,j->", "", "->", "1,2->3"]
)
def test_the_rest_are_boundaries(equation):
    operands = "x, x, x" if equation.count(",") == 2 else "x, x"
    found = imported(f'(float[a, a] x) => (float y) {{ y = Einsum<equation = "{equation}">({operands}) }}')
    assert list(found.opaque) == [0]
