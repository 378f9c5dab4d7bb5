"""Scatters by torch are those of the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import Lookup, Node, Scatter
from noyau.ir.graph_interpreter import Evaluator
from noyau.ops.torch.program_runner import scatter

ROW, COLUMN = Dim.of("#0"), Dim.of("#1")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("monoid", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(
    ("index", "updates"),
    [
        ((Lookup(1, (ROW,)), COLUMN), (40, 5)),  # rows of a table
        ((ROW, Lookup(1, (ROW,))), (9,)),  # a cell of each row
        ((Lookup(1, (ROW, COLUMN)), COLUMN + 1), (6, 4)),  # a cell for each update
    ],
    ids=["rows", "labels", "cells"],
)
def test_like_the_evaluator(monoid, index, updates):
    kind = Scatter(index, monoid)
    base, given = RNG.standard_normal((9, 5)), RNG.standard_normal(updates)
    rank = max(len(entry.at) for entry in index if isinstance(entry, Lookup))
    at = RNG.integers(0, 5, updates[:rank])
    node = Node("out", kind, ("a", "b", "c"), DType.F64, (Dim.of(9), Dim.of(5)))
    want = Evaluator(False, {}).value(node, [base, at, given], {})
    got = scatter(kind, [*map(torch.from_numpy, (base, at, given))], DType.F64, {})
    assert np.allclose(got.numpy(), want, rtol=1e-14)


def test_what_is_outside_is_left_out_and_halves_are_summed_wide():
    base = torch.zeros(3, 2, dtype=torch.float16)
    at = torch.tensor([0, 3, -1, 0])
    given = torch.tensor([[2048.0, 1], [7, 7], [7, 7], [1, 1]], dtype=torch.float16)
    many = torch.cat([given, given[3:].expand(6, 2)])
    kind = Scatter((Lookup(1, (ROW,)), COLUMN), "sum")
    made = scatter(kind, [base, torch.cat([at, torch.zeros(6, dtype=torch.int64)]), many], DType.F16, {})
    assert made.tolist() == [[2056.0, 8.0], [0, 0], [0, 0]]
