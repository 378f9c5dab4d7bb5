"""Bodies of composite ATen operators: what torch's own decompositions make of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from noyau.errors import UnsupportedError

# What a library does better whole: products, convolutions and attention. Their bodies would be imported as boundaries.
WHOLE = (
    *("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "_linalg", "linalg", "conv", "_conv", "cudnn", "mkldnn"),
    *("_scaled_dot_product", "scaled_dot_product", "_efficient_attention", "_flash_attention"),
)


# What draws numbers at random: a body would draw others.
RANDOM = ("bernoulli", "native_dropout", "rand", "normal", "uniform", "exponential", "multinomial", "poisson")


@cache
def table() -> Any:
    """torch's decompositions by operator."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **core_aten_decompositions()}


def body(node: fx.Node) -> fx.Graph | None:
    """The body of an operator: a graph of ATen operators over the tensors and sizes that it is given, in the order of
    `all_input_nodes`. None where torch has none, or a library does it better whole. UnsupportedError where it cannot
    be traced."""
    name = str(node.target).removeprefix("aten.").removeprefix("_")
    if not isinstance(node.target, torch._ops.OpOverload) or name.startswith((*WHOLE, *RANDOM)):
        return None
    decomposition = table().get(node.target)
    if decomposition is None:
        return None
    arguments = node.all_input_nodes

    def call(*values: Any) -> Any:
        values_of = dict(zip(arguments, values, strict=True))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values_of.__getitem__)
        results = decomposition(*args, **kwargs)
        return tuple(results) if isinstance(results, tuple) else results  # a named tuple would be a node of its own

    values = [each.meta["val"] for each in arguments]
    tensor = next((each for each in values if isinstance(each, torch.Tensor)), None)
    mode = getattr(tensor, "fake_mode", None)
    if mode is None:
        raise UnsupportedError(f"{node.target} is given no tensor, so it has no body")
    try:
        with mode:
            results = make_fx(call)(*values)
    except Exception as fault:
        raise UnsupportedError(f"the body of {node.target} cannot be traced: {type(fault).__name__}") from fault
    return results.graph
