"""Sizes of a graph of torch's: whether they are numbers, those that torch saw, and others to try a kernel at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from math import isqrt
from typing import Any

import torch
from torch import Tensor, fx

from noyau.compiler.partition.cut import Group
from noyau.errors import InputError
from noyau.frontends.torch.tensors import size_hint
from noyau.hosts.torch.modules.sites import TracedGraph
from noyau.ir.graph import Graph
from noyau.ir.sizes import bind

Sized = Callable[[Any], int]


def other_sizes(source: TracedGraph) -> list[Sized]:
    """Sizes that torch did not see, where sizes of its graph are names: about half of each, and primes above them; no
    two names have the same. None where a name stands in no size alone."""
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
    """The first number above a size that fits and is not taken, which then it is."""
    result = next(number for number in count(size + 1) if fits(number) and number not in occupied)
    occupied.add(result)
    return result


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % step for step in range(2, isqrt(number) + 1))


def _size_at(numbers: Mapping[Any, int], size: Any) -> int:
    """A size of torch's where its names are these numbers. InputError where it has names that are none of them."""
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
    """Whether a size in what a node makes, or in a list of such, is a name."""
    if isinstance(value, tuple | list):
        return any(map(is_symbolic, value))
    if isinstance(value, Tensor):
        sizes = (*value.shape, *value.stride(), value.storage_offset())
        return any(not isinstance(size, int) for size in sizes)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def sizes_of(group: Group, source: TracedGraph, sized: Sized = size_hint) -> dict[str, int]:
    """The sizes of a group as torch saw them, or as `sized` has them. InputError where they do not fit together."""
    return sizes_in(group.original, source, sized)


def sizes_in(graph: Graph, source: TracedGraph, sized: Sized = size_hint) -> dict[str, int]:
    """The sizes of a graph over values of torch's, as `sizes_of` has them."""
    inputs = [node for node in graph.inputs if node.output in source.givers]
    shapes = [[sized(extent) for extent in source.givers[node.output].meta["val"].shape] for node in inputs]
    return bind([node.shape for node in inputs], shapes, [node.output for node in inputs])
