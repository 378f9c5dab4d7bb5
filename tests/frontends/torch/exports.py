"""Functions of torch exported, imported and evaluated, beside what torch gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch._export import utils

from noyau.frontends.torch.importer import ImportedGraph, import_graph
from noyau.frontends.torch.tensors import as_array
from noyau.ir.graph_interpreter import evaluate

# Each export has torch go over all operators twice for each of their 25 libraries: a third of what it takes.
utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)


class Called(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def graph_of(function: Callable[..., Any], args: Sequence[torch.Tensor], *, dynamic: bool = False) -> torch.fx.Graph:
    """The graph of core ATen operators of a function."""
    shapes = None
    if dynamic:
        shapes = ([dict.fromkeys(range(each.dim()), torch.export.Dim.AUTO) for each in args],)
        shapes = (tuple(shapes[0]),)
    program = torch.export.export(Called(function), tuple(args), dynamic_shapes=shapes)
    return program.run_decompositions().graph_module.graph


def imported(function: Callable[..., Any], args: Sequence[torch.Tensor], *, dynamic: bool = False) -> ImportedGraph:
    return import_graph(graph_of(function, args, dynamic=dynamic))


def results(made: ImportedGraph, args: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """What an imported graph evaluates to."""
    graph = made.graph
    given = {node.output: as_array(arg) for node, arg in zip(graph.inputs, args, strict=True)}
    found = evaluate(graph, given)
    return [found[name] for name in graph.outputs]


def compare(
    function: Callable[..., Any], *args: torch.Tensor, dynamic: bool = False, rtol: float = 1e-5, opaque: bool = False
) -> None:
    """The imported graph gives what torch gives, in its dtypes and shapes, and has no boundary unless there may be."""
    made = imported(function, args, dynamic=dynamic)
    assert bool(made.opaque) == opaque, made.opaque
    want = function(*args)
    want = [each for each in (want if isinstance(want, tuple | list) else [want]) if each is not None]
    for place, (got, right) in enumerate(zip(results(made, args), want, strict=True)):
        array = as_array(right)
        assert got.dtype == array.dtype, f"result {place}"
        assert got.shape == array.shape, f"result {place}"
        wide = np.float64 if array.dtype.kind in "fV" else array.dtype
        got, array = got.astype(wide), array.astype(wide)
        assert np.allclose(got, array, rtol=rtol, atol=rtol * 1e-1, equal_nan=True), f"result {place}: {got}, {array}"


def together(cases: Sequence[tuple[Callable[..., Any], int]]) -> Callable[..., tuple[Any, ...]]:
    """One function of several, each with so many of the tensors, in their order: an export takes half a second."""

    def every(*args: torch.Tensor) -> tuple[Any, ...]:
        found: list[Any] = []
        start = 0
        for function, count in cases:
            made = function(*args[start : start + count])
            found += made if isinstance(made, tuple | list) else [made]
            start += count
        return tuple(found)

    return every
