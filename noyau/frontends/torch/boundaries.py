"""ATen operators that noyau does not look into, evaluated by torch itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import fx

from noyau.frontends.torch.sites import Made
from noyau.frontends.torch.tensors import Array, as_array, as_tensor
from noyau.ir.dims import Dim
from noyau.ir.graph import Node


def evaluator(node: fx.Node, operands: Sequence[Node], values: dict[fx.Node, Made]) -> Callable[..., tuple[Array, ...]]:
    """The operator as a function of the arrays of its tensors. Floats that are given wider are narrowed: torch has one
    kernel a dtype."""
    function: Any = node.target
    places = {name.output: at for at, name in enumerate(operands)}

    def evaluate(*arrays: Array) -> tuple[Array, ...]:
        def tensor(argument: fx.Node) -> Any:
            value = values[argument]
            if isinstance(value, Node):
                return as_tensor(np.asarray(arrays[places[value.output]]), value.dtype)
            return _size(argument, value, operands, arrays)

        result = function(*fx.node.map_arg(node.args, tensor), **fx.node.map_arg(node.kwargs, tensor))
        return tuple(as_array(each) for each in (result if isinstance(result, tuple | list) else (result,)))

    return evaluate


def _size(argument: fx.Node, value: Any, operands: Sequence[Node], arrays: Sequence[Array]) -> int:
    """A size that the operator is given, from the shapes of its tensors."""
    assert isinstance(value, Dim), argument
    sizes: dict[str, int] = {}
    for operand, array in zip(operands, arrays, strict=True):
        for dim, extent in zip(operand.shape, np.shape(array), strict=True):
            if dim == Dim.of(str(dim)):
                sizes[str(dim)] = extent
    return int(value.evaluate(sizes))
