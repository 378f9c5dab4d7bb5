"""Runs of torch's nodes that keep more bits than they are written with: the truth, and its like rounded otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from noyau.frontends.torch.tensors import TO_TORCH
from noyau.ir.graph import Graph
from noyau.ir.operators import OPERATORS, Fact
from noyau.verify.brackets import LONG
from noyau.verify.rounding import Direction, lost_of, shortest_of

_HALF_TO_FLOAT = (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default)
_ROUNDING = [each for each in OPERATORS.values() if Fact.ROUNDS in each.facts or each.ulp > 0]
ROUNDING = frozenset(name for each in _ROUNDING for name in each.names.torch.split())
BELOW_ONE = frozenset(name for each in _ROUNDING if Fact.BELOW_ONE in each.facts for name in each.names.torch.split())
_BITS = 20  # of a float64: a result of which the last ones are all 0 is taken for exact


class WideInterpreter(fx.Interpreter):  # type: ignore[misc]  # torch's class has no types
    """The nodes of a part on tensors of a width: casts to shorter floats are casts to it."""

    def __init__(self, part: fx.GraphModule, width: torch.dtype = torch.float64) -> None:
        super().__init__(part)
        self.width = width

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A node, its dtypes widened."""
        args, kwargs = pytree.tree_map(self.widened, (args, kwargs))
        if target in _HALF_TO_FLOAT:
            args = (*args[:2], False)
        return super().call_function(target, args, kwargs)

    def widened(self, value: Any) -> Any:
        is_short = isinstance(value, torch.dtype) and value.is_floating_point and value.itemsize < self.width.itemsize
        return self.width if is_short else value

    def run_on(self, inputs: Sequence[Any]) -> Any:
        """Run the part on inputs, widened."""
        return self.run(*[widen(each, self.width) for each in inputs])


def widen(tensor: Any, width: torch.dtype = torch.float64) -> Any:
    """A float tensor of a width, or of its own where that has more bits; anything else as it is."""
    is_float = isinstance(tensor, Tensor) and tensor.dtype.is_floating_point
    return tensor.to(width) if is_float and tensor.element_size() < width.itemsize else tensor


class RoundingInterpreter(WideInterpreter):
    """The same with each result that is not exact rounded in a direction, or up or down at random, as
    noyau.verify.rounding has it."""

    def __init__(
        self, part: fx.GraphModule, width: torch.dtype, noise: torch.Generator, direction: Direction | None = None
    ) -> None:
        super().__init__(part, width)
        self.noise, self.direction, self.exact = noise, direction, WideInterpreter(part)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A node, rounded otherwise."""
        result = super().call_function(target, args, kwargs)
        name = getattr(getattr(target, "overloadpacket", None), "__name__", "")
        if self.width == torch.float64:
            return self.shifted(name, result, self.lost(name, args, result)) if name in ROUNDING else result
        exact = self.exact.call_function(target, *pytree.tree_map(widen, (args, kwargs)))
        return pytree.tree_map(lambda one, more: self.shifted(name, one, more - one), result, exact)

    def lost(self, name: str, args: Sequence[Any], result: Tensor) -> Tensor:
        """The part of a result in float64 that rounding took; where no more bits can tell it, a number of either
        sign, but 0 of a result of few bits."""
        if name in ("add", "sub") and len(args) == 2:
            operands = [torch.as_tensor(each, dtype=result.dtype, device=result.device) for each in args]
            lost: Tensor = lost_of("add" if name == "add" else "subtract", operands, result)
            return lost
        is_short = result.view(torch.int64) & ((1 << _BITS) - 1) == 0
        return torch.where(is_short, 0.0, self.drawn(result) - 0.5)

    def shifted(self, name: str, result: Any, lost: Any) -> Any:
        """The result, or at random the neighbour of it on the side of what was lost; of a function that never comes to
        1, where it has, the one below."""
        if not isinstance(result, Tensor) or result.dtype != self.width:
            return result
        if name in BELOW_ONE:
            lost = torch.where((result.abs() == 1) & (lost == 0), -result, lost)
        other = torch.nextafter(result, torch.copysign(torch.full_like(result, torch.inf), lost))
        moves = (lost != 0) & lost.isfinite() & other.isfinite() & result.isfinite()
        goes = self.drawn(result) < 0.5 if self.direction is None else self.direction(result, lost)
        return torch.where(moves & goes, other, result)

    def drawn(self, result: Tensor) -> Tensor:
        """Numbers from 0 to 1, one for each cell."""
        return torch.rand(result.shape, generator=self.noise, device=result.device, dtype=result.dtype)


def rounded_runs(
    part: fx.GraphModule,
    inputs: Sequence[Any],
    graph: Graph,
    directions: Sequence[Direction | None],
    noise: torch.Generator,
) -> Iterator[Any]:
    """Runs of a graph's part in float32, unless all is longer, and in float64, one rounded in each direction."""
    shortest = shortest_of(graph)
    for width, direction in product((TO_TORCH[each] for each in LONG if each.bytes >= shortest), directions):
        yield RoundingInterpreter(part, width, noise, direction).run_on(inputs)
