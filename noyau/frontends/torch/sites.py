"""One ATen operator being imported: its operands as values of the graph, and how new ones are emitted.

ATen operators that noyau does not look into: boundaries, evaluated by torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch
from torch import fx

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.dtypes import TO_TORCH, dim_of, dtype_of, shape_from, unsupported_cells
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Node

Made: TypeAlias = "Node | Dim | tuple[Node | None, ...] | None"
Handler: TypeAlias = "Callable[[AtenSite], Made]"
ATEN: dict[str, Handler] = {}  # by the name of the operator, "add.Tensor"; each family file fills its part


@dataclass(frozen=True, slots=True)
class AtenSite:
    """An operator: `values` has what was imported before it, by the node of torch's graph."""

    builder: GraphBuilder
    node: fx.Node
    values: dict[fx.Node, Made]

    @property
    def meta(self) -> Any:
        """What torch knows of the result: a fake tensor, several, or a size."""
        return self.node.meta.get("val")

    @property
    def dtype(self) -> DType:
        """Of the result."""
        return dtype_of(self.meta.dtype)

    @property
    def shape(self) -> Shape:
        """Of the result."""
        return shape_from(self.meta)

    def argument(self, position: int, name: str = "", default: Any = None) -> Any:
        """An argument as torch's graph has it."""
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.kwargs.get(name, default)

    def value(self, position: int, name: str = "") -> Node:
        """A tensor among the arguments. UnsupportedError for what is none."""
        return self.tensor(self.argument(position, name))

    def tensor(self, given: Any) -> Node:
        found = self.values.get(given) if isinstance(given, fx.Node) else None
        if not isinstance(found, Node):
            raise UnsupportedError(f"{self.node.target} is given {given}, which is no tensor that is followed")
        if found.dtype is DType.OTHER:
            told = unsupported_cells(given.meta["val"])
            raise UnsupportedError(f"{self.node.target} is given {given}, {told}: noyau has no kernels for that")
        return found

    def operand(self, given: Any, dtype: DType) -> Node:
        """A tensor, a number or a size, in a dtype."""
        found = self.values.get(given) if isinstance(given, fx.Node) else given
        match found:
            case Node():
                return self.builder.cast(self.tensor(given), dtype)
            case Dim():
                return self.builder.size(found, dtype)
            case bool() | int() | float():
                return self.builder.constant(found, dtype)
            case _:
                raise UnsupportedError(f"{self.node.target} is given {given}, which is no tensor and no number")

    def dim(self, given: Any) -> Dim:
        """A size: an integer or one that torch's graph computes."""
        found = self.values.get(given) if isinstance(given, fx.Node) else given
        if isinstance(found, Dim):
            return found
        if isinstance(given, fx.Node) and isinstance(given.meta.get("val"), torch.SymInt):
            return dim_of(given.meta["val"])
        if isinstance(found, int):
            return Dim.of(found)
        raise UnsupportedError(f"{self.node.target} is given {given}, which is no size that is followed")

    def number(self, position: int, name: str, default: Any) -> Any:
        """A number that is known now. UnsupportedError for one that is not."""
        found = self.argument(position, name, default)
        if isinstance(found, fx.Node):
            raise UnsupportedError(f"{self.node.target} is given {found} as {name}, which has no number yet")
        return found

    def axis(self, given: Any, rank: int) -> int:
        """An axis from 0 on; of a value without axes, 0."""
        return int(given) % max(rank, 1)

    def axes(self, given: Any, rank: int) -> tuple[int, ...]:
        """Axes, each once; none given stands for all."""
        if given is None or (isinstance(given, list | tuple) and not given):
            return tuple(range(rank))
        wanted = given if isinstance(given, list | tuple) else [given]
        return tuple(sorted({self.axis(axis, rank) for axis in wanted})) if rank else ()

    def as_result(self, value: Node) -> Node:
        """A value under the shape and the dtype that torch gives the result."""
        return self.builder.assume_shape(self.builder.cast(value, self.dtype), self.shape)

    def view(self, value: Node, index: Sequence[Dim]) -> Node:
        """A view of the result's shape."""
        return self.builder.view(value, self.shape, index)


def promote(*tensors: Any) -> DType:
    """The dtype in which torch computes with tensors and numbers: categories, and tensors of rank 0 below others."""
    fakes = [each.meta["val"] if isinstance(each, fx.Node) else each for each in tensors]
    made = fakes[0].dtype if isinstance(fakes[0], torch.Tensor) else torch.result_type(fakes[0], fakes[0])
    if len(fakes) > 1:
        made = torch.result_type(*[_plain(fake) for fake in fakes])
    return dtype_of(made)


def _plain(fake: Any) -> Any:
    """What decides over promotion, without sizes: a tensor on no device, or the number."""
    if isinstance(fake, torch.Tensor):
        return torch.empty([1] * (fake.dim() > 0), dtype=fake.dtype, device="meta")
    return 0 if isinstance(fake, torch.SymInt) else fake


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
