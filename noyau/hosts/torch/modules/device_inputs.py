"""Sizes of a part of a graph, and inputs of these sizes, drawn on the device where it runs, adversarial ones too."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from math import isqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from noyau.compiler.partition.cut import Group
from noyau.errors import InputError
from noyau.frontends.torch.tensors import size_hint
from noyau.hosts.torch.modules.sites import TracedGraph, isolate
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.ir.graph import Graph, Map, Node, Select, View
from noyau.ir.sizes import bind
from noyau.verify.inputs import Maker
from noyau.verify.lookup_tables import require_inside, tables_of
from noyau.verify.uses import Use, is_under_a_root

Sized = Callable[[Any], int]


def other_sizes(source: TracedGraph) -> list[Sized]:
    """Sizes that torch did not see, where sizes of its graph are symbolic: about half of each, and primes above them;
    no two names get the same number. Empty where no name is a size by itself."""
    visited: dict[Any, int] = {}
    for node in source.program.nodes:
        fake = node.meta.get("val") if node.op == "placeholder" else None
        for size in (*fake.shape, *fake.stride()) if isinstance(fake, Tensor) else (fake,):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                visited[size.node.expr] = size_hint(size)
    if not visited:
        return []
    halves, primes = set[int](), set[int]()
    half = {name: _beyond(max(1, size // 2), halves, lambda _: True) for name, size in visited.items()}
    prime = {name: _beyond(size, primes, _is_prime) for name, size in visited.items()}
    return [partial(_size_at, half), partial(_size_at, prime)]


def _beyond(size: int, occupied: set[int], fits: Callable[[int], bool]) -> int:
    """The first number above a size that fits and is not occupied; it is occupied then."""
    result = next(number for number in count(size + 1) if fits(number) and number not in occupied)
    occupied.add(result)
    return result


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % step for step in range(2, isqrt(number) + 1))


def _size_at(numbers: Mapping[Any, int], size: Any) -> int:
    """A size of torch's with these numbers for its names. InputError where it has other names."""
    if isinstance(size, int):
        return int(size)
    number = size.node.expr.subs(numbers)
    if not number.is_Integer:
        raise InputError(f"the size {number} has names that stand in no size alone")
    return int(number)


def is_static(graph: fx.Graph) -> bool:
    """Whether every size in a graph is a number."""
    return not any(is_symbolic(node.meta.get("val")) for node in graph.nodes)


def is_symbolic(value: Any) -> bool:
    """Whether a size of a node's value, or of one in a list of values, is symbolic."""
    if isinstance(value, tuple | list):
        return any(map(is_symbolic, value))
    if isinstance(value, Tensor):
        return any(not isinstance(size, int) for size in (*value.shape, *value.stride(), value.storage_offset()))
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def sizes_of(group: Group, source: TracedGraph, sized: Sized = size_hint) -> dict[str, int]:
    """The sizes of a group as torch saw them, or by `sized`. InputError where they do not fit together."""
    return sizes_in(group.original, source, sized)


def sizes_in(graph: Graph, source: TracedGraph, sized: Sized = size_hint) -> dict[str, int]:
    """The sizes of a graph over values of torch's, as in `sizes_of`."""
    inputs = [node for node in graph.inputs if node.output in source.givers]
    shapes = [[sized(extent) for extent in source.givers[node.output].meta["val"].shape] for node in inputs]
    return bind([node.shape for node in inputs], shapes, [node.output for node in inputs])


Pattern = Callable[[Tensor, torch.Generator], Tensor]
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = 50  # one cell in so many is 0.0, and one is -0.0


def mix_magnitudes(cases: Tensor, noise: torch.Generator) -> Tensor:
    """Many magnitudes, zeros of either sign among them, and a few infinities and NaN."""
    exponents = torch.empty_like(cases).normal_(generator=noise) * 2
    values, rare = cases * torch.exp2(exponents), max(cases.numel() // 2, 4 * _ODD)
    for text, one_in in {"0.0": _ODD, "-0.0": _ODD, "inf": rare, "-inf": rare, "nan": rare}.items():
        values = values.masked_fill(_some(cases, noise, one_in), float(text))
    return values


def alternating(cases: Tensor) -> Tensor:
    """Signs that alternate, so that sums cancel."""
    flat = cases.abs().reshape(-1)
    signs = 1 - 2 * (torch.arange(flat.numel(), device=flat.device) % 2)
    return (flat * signs).reshape(cases.shape)


_PATTERNS: Mapping[str, Pattern] = {
    "normal numbers": lambda cases, noise: cases,
    "many magnitudes, infinities and NaN mixed in": mix_magnitudes,
    "far from zero": lambda cases, noise: cases * 0.01 + 100,
    "one large number a row": lambda cases, noise: cases.masked_fill(_some(cases, noise, 1000), 300.0),
    "alternating signs": lambda cases, noise: alternating(cases),
    "all equal": lambda cases, noise: cases.reshape(-1)[:1].expand(cases.numel()).reshape(cases.shape).clone(),
    "zeros": lambda cases, noise: torch.zeros_like(cases),
    "denormals": lambda cases, noise: cases * torch.finfo(torch.float32).tiny / 4,
}
PATTERNS = tuple(_PATTERNS)


def _some(like: Tensor, noise: torch.Generator, one_in: int) -> Tensor:
    return torch.rand(like.shape, generator=noise, device=like.device) < 1 / one_in


class Drawer:
    """Inputs of a group that are valid for its graph; `sized`: numbers for sizes. InputError where they do not fit."""

    def __init__(self, group: Group, source: TracedGraph, device: torch.device, sized: Sized = size_hint) -> None:
        self.group, self.source, self.device, self.sized = group, source, device, sized
        self.maker = Maker(group.original, sizes_of(group, source, sized), np.random.default_rng(0), frozenset())
        self.reads = isolate(source, group)[1]
        self.looks_up = any(tables_of(self.maker.uses, node) for node in group.original.inputs)

    def draw(self, pattern: str, seed: int) -> dict[str, Any]:
        """Values by name: for each node that the group reads, and for each input of its graph."""
        noise = torch.Generator(self.device).manual_seed(seed)
        self.maker.rng = np.random.default_rng(seed)
        result, integers = dict[str, Any](), dict[str, np.ndarray]()
        known = {node.output: node for node in self.group.original.inputs}
        for node in sorted(known.values(), key=lambda node: bool(tables_of(self.maker.uses, node))):
            if (giver := self.source.givers.get(node.output)) is None:
                raise InputError(f"{node.output} is no value of torch's")
            result[node.output] = result[giver.name] = self.tensor(node, giver.meta["val"], pattern, noise, integers)
        for read in self.reads:
            if read.name not in result:
                result[read.name] = self.beside(read)
        # On a GPU torch's own kernels end the context of the process where an index is outside.
        graph, kinds = self.group.original, {node.dtype.kind for node in known.values()}
        require_inside(graph, self.maker.sizes, lambda name: array_of(result[name].cpu()), "made-up inputs", kinds)
        return result

    def beside(self, read: fx.Node) -> Any:
        """The value of a node that the group's graph has itself, as positions, or whose shape alone is read."""
        fake = read.meta["val"]
        if not isinstance(fake, Tensor):
            return self.sized(fake)
        if read.op == "call_function" and all(each.op == "call_function" for each in read.all_input_nodes):
            known = {each: self.beside(each) for each in read.all_input_nodes}
            args, kwargs = fx.node.map_arg((read.args, read.kwargs), lambda each: known[each])
            return read.target(*args, **kwargs)
        return self.room(fake).expand([self.sized(extent) for extent in fake.shape])

    def tensor(
        self, node: Node, fake: Tensor, pattern: str, noise: torch.Generator, integers: dict[str, np.ndarray]
    ) -> Tensor:
        """One input, with the strides of torch's tensor."""
        room, shape = self.room(fake), [self.sized(extent) for extent in fake.shape]
        if fake.dtype.is_floating_point:
            wide = torch.float64 if fake.dtype is torch.float64 else torch.float32
            cases = torch.empty(room.shape, dtype=wide, device=self.device).normal_(generator=noise)
            values = _PATTERNS[pattern](cases, noise)
            room.copy_(values.abs() if self.is_under_a_root(node) else values)
        elif fake.dtype is torch.bool:
            room.copy_(torch.rand(room.shape, generator=noise, device=self.device) < 0.7)
            if self.looks_up:  # a mask between integers may bound them
                integers[node.output] = array_of(room.expand(shape).cpu())
        else:
            integers[node.output] = self.maker.make(node, integers)[0]
            room.copy_(tensor_of(integers[node.output][tuple(slice(0, extent) for extent in room.shape)]))
        return room.expand(shape)

    def room(self, fake: Tensor) -> Tensor:
        """Zeros with the strides of torch's tensor; axes along which it is expanded have one cell."""
        strides = [self.sized(step) for step in fake.stride()]
        shape = [self.sized(n) if step else min(self.sized(n), 1) for n, step in zip(fake.shape, strides, strict=True)]
        return torch.empty_strided(shape, strides, dtype=fake.dtype, device=self.device).zero_()

    def is_under_a_root(self, node: Node) -> bool:
        """Whether a root or a logarithm is taken of an input."""
        return any(is_under_a_root(use) for use in self.maker.uses.reach(node, _stays_positive))


def _stays_positive(use: Use) -> bool:
    match use.node.kind:
        case View() | Select() | Map("cast" | "identity" | "add"):
            return True
        case _:
            return False


def perturb(value: Any, noise: torch.Generator) -> Any:
    """A float tensor, each cell moved by -1, 0 or +1 ulp; cells that are 0 or not finite, and other values, stay."""
    if not isinstance(value, Tensor) or not value.dtype.is_floating_point or value.element_size() not in _BITS:
        return value
    bits = value.view(_BITS[value.element_size()])
    steps = torch.randint(-1, 2, bits.shape, generator=noise, device=bits.device, dtype=torch.int8)
    after = (bits + steps).view(value.dtype)
    return torch.where(after.isfinite() & value.isfinite() & (value != 0), after, value)
