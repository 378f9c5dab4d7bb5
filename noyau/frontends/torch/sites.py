"""One ATen operator being imported: its operands as values, the nodes that it emits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.tensors import dim_of, dtype_of, shape_from, unsupported_cells
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Node

Made: TypeAlias = "Node | Dim | tuple[Node | None, ...] | None"
Handler: TypeAlias = "Callable[[AtenSite], Made]"
ATEN: dict[str, Handler] = {}  # by the name of the operator, "add.Tensor"; each family file fills its part


@dataclass(frozen=True, slots=True)
class AtenSite:
    """An operator. `values`: the values that were imported before it, by the node of torch's graph."""

    builder: GraphBuilder
    node: fx.Node
    values: dict[fx.Node, Made]

    @property
    def meta(self) -> Any:
        """The result as torch knows it: a fake tensor, several, or a size."""
        return self.node.meta.get("val")

    @property
    def dtype(self) -> DType:
        return dtype_of(self.meta.dtype)

    @property
    def shape(self) -> Shape:
        return shape_from(self.meta)

    def argument(self, position: int, name: str = "", default: Any = None) -> Any:
        """An argument as torch's graph has it."""
        args, kwargs = self.node.args, self.node.kwargs
        return args[position] if position < len(args) else kwargs.get(name, default)

    def value(self, position: int, name: str = "") -> Node:
        """A tensor among the arguments. UnsupportedError for any other argument."""
        return self.tensor(self.argument(position, name))

    def tensor(self, argument: Any) -> Node:
        value = self.values.get(argument) if isinstance(argument, fx.Node) else None
        if not isinstance(value, Node):
            raise UnsupportedError(f"{self.node.target} is given {argument}, which is no tensor that is followed")
        if value.dtype is DType.OTHER:
            what = unsupported_cells(argument.meta["val"])
            raise UnsupportedError(f"{self.node.target} is given {argument}, {what}: noyau has no kernels for that")
        return value

    def operand(self, argument: Any, dtype: DType) -> Node:
        """A tensor, a number or a size, in a dtype."""
        value = self.values.get(argument) if isinstance(argument, fx.Node) else argument
        match value:
            case Node():
                return self.builder.cast(self.tensor(argument), dtype)
            case Dim():
                return self.builder.size(value, dtype)
            case bool() | int() | float():
                return self.builder.constant(value, dtype)
            case _:
                raise UnsupportedError(f"{self.node.target} is given {argument}, which is no tensor and no number")

    def dim(self, argument: Any) -> Dim:
        """A size: an integer, or a size that torch's graph computes."""
        value = self.values.get(argument) if isinstance(argument, fx.Node) else argument
        size = argument.meta.get("val") if isinstance(argument, fx.Node) and not isinstance(value, Dim) else value
        if isinstance(size, torch.SymInt):
            return dim_of(size)
        if isinstance(size, Dim | int):
            return Dim.of(size)
        raise UnsupportedError(f"{self.node.target} is given {argument}, which is no size that is followed")

    def number(self, position: int, name: str, default: Any) -> Any:
        """A constant number. UnsupportedError for a number that the graph computes."""
        value = self.argument(position, name, default)
        if isinstance(value, fx.Node):
            raise UnsupportedError(f"{self.node.target} is given {value} as {name}, which has no number yet")
        return value

    def axis(self, argument: Any, rank: int) -> int:
        """An axis counted from the front; 0 for a value without axes."""
        return int(argument) % max(rank, 1)

    def axes(self, argument: Any, rank: int, *, none_is_all: bool = True) -> tuple[int, ...]:
        """Axes in order, each once; None stands for all axes, as does an empty list with `none_is_all`."""
        if argument is None or (none_is_all and isinstance(argument, list | tuple) and not argument):
            return tuple(range(rank))
        listed = argument if isinstance(argument, list | tuple) else [argument]
        return tuple(sorted({self.axis(axis, rank) for axis in listed})) if rank else ()

    def with_axis(self, value: Node) -> Node:
        """A value of rank 0 as a vector of one cell, as in torch's functions along an axis."""
        return value if value.shape else self.builder.restore_axes(value, (0,))

    def view(self, value: Node, index: Sequence[Dim]) -> Node:
        """A view of the result's shape."""
        return self.builder.view(value, self.shape, index)


def promote(one: Any, other: Any) -> DType:
    """The dtype of torch's promotion of two tensors or numbers: by category, with tensors of rank 0 below others."""
    fakes = [each.meta["val"] if isinstance(each, fx.Node) else each for each in (one, other)]
    return dtype_of(torch.result_type(*map(_plain, fakes)))


def _plain(fake: Any) -> Any:
    """A sample for torch's promotion, without sizes: a tensor of rank 0 or 1 without a device, or the number."""
    if isinstance(fake, torch.Tensor):
        return torch.empty([1] * (fake.dim() > 0), dtype=fake.dtype, device="meta")
    return 0 if isinstance(fake, torch.SymInt) else fake
