from __future__ import annotations

import pytest
import torch

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.sites import ATEN, AtenSite, promote
from noyau.ir.builder import GraphBuilder
from tests.frontends.torch.exports import graph_of


def site_of(function, *args):
    graph = graph_of(function, args)
    return AtenSite(GraphBuilder(), next(node for node in graph.nodes if node.op == "call_function"), {})


def test_what_is_given_and_what_torch_knows_of_the_result():
    site = site_of(lambda x: torch.softmax(x, -1), torch.zeros(2, 3))
    assert site.argument(1) == -1
    assert site.number(2, "half_to_float", None) is False
    assert site.argument(7, "other", 5) == 5
    assert (site.dtype, [str(dim) for dim in site.shape]) == (DType.F32, ["2", "3"])
    assert site.axes(None, 3) == (0, 1, 2)
    assert site.axes([-1, 0], 3) == (0, 2)
    assert site.axes([0], 0) == ()
    assert site.axis(-1, 0) == 0


def test_a_tensor_that_was_not_followed():
    with pytest.raises(UnsupportedError, match="which is no tensor that is followed"):
        site_of(lambda x: x + 1, torch.zeros(2)).value(0)


def test_promotion_is_by_category():
    vector, scalar = torch.zeros(2, dtype=torch.float16), torch.zeros((), dtype=torch.float64)
    assert promote(vector, scalar) is DType.F16
    assert promote(vector, 2.5) is DType.F16
    assert promote(torch.zeros(2, dtype=torch.int8), 2.5) is DType.F32


def test_every_operator_is_named_with_its_overload():
    assert all("." in name for name in ATEN)
