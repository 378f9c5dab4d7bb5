from __future__ import annotations

import pytest
import torch

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.tensors import FROM_TORCH, TO_TORCH, dim_of, dtype_of, shape_from
from noyau.ir.dims import Dim


@pytest.mark.parametrize("ours", list(FROM_TORCH.values()), ids=str)
def test_dtypes_there_and_back(ours):
    assert dtype_of(TO_TORCH[ours]) is ours


def test_dtypes_that_are_not_here():
    assert DType.OTHER not in TO_TORCH
    with pytest.raises(UnsupportedError, match=r"there is no dtype for torch\.float8_e5m2 here"):
        dtype_of(torch.float8_e5m2)


def test_sizes_of_torch_as_dims():
    found = []

    def keep(graph, example):
        found.extend(node.meta["example_value"] for node in graph.graph.nodes if "example_value" in node.meta)
        return graph.forward

    function = torch.compile(lambda x: torch.cat([x, x], 0)[1:].reshape(-1), backend=keep, dynamic=True, fullgraph=True)
    function(torch.zeros(4, 6))
    shapes = [shape_from(value) for value in found if isinstance(value, torch.Tensor)]
    names = sorted({name for shape in shapes for dim in shape for name in dim.names})
    first, second = (Dim.of(name) for name in names)
    assert ((first * 2 - 1) * second,) in shapes or ((second * 2 - 1) * first,) in shapes
    assert dim_of(5) == Dim.of(5)
