"""ATen operators that noyau does not look into: boundaries, evaluated by torch itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import fx

from noyau.dtypes import DType
from noyau.frontends.torch.dtypes import TO_TORCH
from noyau.frontends.torch.sites import Made
from noyau.ir.dims import Dim
from noyau.ir.graph import Node

Array = np.ndarray


def as_tensor(array: Array, dtype: DType) -> torch.Tensor:
    """An array as a tensor of this dtype, where torch has it; bfloat16 by its bits."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    made = torch.from_numpy(np.array(array))
    return made.to(TO_TORCH[dtype]) if dtype in TO_TORCH else made  # complex numbers are as they come


def as_array(tensor: torch.Tensor) -> Array:
    """A tensor as an array; bfloat16 by its bits."""
    plain = tensor.detach().contiguous()
    if plain.dtype is torch.bfloat16:
        bits: Array = plain.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    made: Array = plain.numpy()
    return made


def evaluator(node: fx.Node, operands: Sequence[Node], values: dict[fx.Node, Made]) -> Callable[..., tuple[Array, ...]]:
    """The operator as a function of the arrays of its tensors. Floats that are given wider are narrowed: torch has one
    kernel a dtype."""
    function: Any = node.target
    places = {name.output: at for at, name in enumerate(operands)}

    def evaluate(*arrays: Array) -> tuple[Array, ...]:
        def tensor(argument: fx.Node) -> Any:
            found = values[argument]
            if isinstance(found, Node):
                return as_tensor(np.asarray(arrays[places[found.output]]), found.dtype)
            return _size(argument, found, operands, arrays)

        made = function(*fx.node.map_arg(node.args, tensor), **fx.node.map_arg(node.kwargs, tensor))
        results = made if isinstance(made, tuple | list) else (made,)
        return tuple(as_array(each) for each in results)

    return evaluate


def _size(argument: fx.Node, found: Any, operands: Sequence[Node], arrays: Sequence[Array]) -> int:
    """A size that the operator is given, from the shapes of its tensors."""
    assert isinstance(found, Dim), argument
    sizes: dict[str, int] = {}
    for operand, array in zip(operands, arrays, strict=True):
        for dim, extent in zip(operand.shape, np.shape(array), strict=True):
            if dim == Dim.of(str(dim)):
                sizes[str(dim)] = extent
    return int(found.evaluate(sizes))
