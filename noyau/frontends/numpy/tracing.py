"""A NumPy function into a Graph, by calling it once. What cannot be traced is one clear text with its line."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy import contracting, functions, indexing  # noqa: F401  they fill the tables
from noyau.frontends.numpy.arrays import Traced
from noyau.frontends.numpy.creating import with_numpy
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.ufuncs import traced
from noyau.ir.checking import check
from noyau.ir.graph import Graph, Map, Node
from noyau.passes.unused import drop_unused


def trace(
    function: Callable[..., Any], inputs: Sequence[Node], results: Sequence[Node], constants: Mapping[str, Any]
) -> Graph:
    """The graph of a function of arrays: `inputs` and `results` are its signature, as Input nodes.

    Sizes stay names; what NumPy would ask of them (that they are equal, that a slice is within its axis) becomes the
    graph's demands. UnsupportedError names the line of what cannot be traced."""
    tape = Tape()
    given = [Traced(tape, tape.input(node.output, node.dtype, node.shape), alone=False) for node in inputs]
    try:
        with np.errstate(all="ignore"):
            returned = with_numpy(function, tape)(*given, **constants)
        parts = list(returned) if isinstance(returned, tuple | list) and len(results) > 1 else [returned]
        if len(parts) != len(results) or any(part is None for part in parts):
            raise UnsupportedError(f"it returns {len(parts)} results, and {len(results)} are signed")
        nodes = [_result(tape, *pair) for pair in zip(parts, results, strict=True)]
    except Exception as fault:
        name = getattr(function, "__name__", "the function")
        raise UnsupportedError(f"{name} cannot be traced{_line(function, fault)}: {fault}") from fault
    graph = Graph(tuple(tape.nodes), tuple(node.output for node in nodes), tuple(tape.demands))
    return check(drop_unused(graph))


def _result(tape: Tape, value: Any, wanted: Node) -> Node:
    node = traced(tape, value).node
    if node.dtype is not wanted.dtype or len(node.shape) != len(wanted.shape):
        found = f"{node.dtype.value}[{', '.join(map(str, node.shape))}]"
        signed = f"{wanted.dtype.value} of {len(wanted.shape)} axes"
        raise UnsupportedError(f"{wanted.output} is {found}, and signed {signed}; cast or reshape it")
    shaped = tape.shaped(node, wanted.shape)
    return tape.add(Node(wanted.output, Map("identity"), (shaped.output,), shaped.dtype, wanted.shape))


def _line(function: Callable[..., Any], fault: Exception) -> str:
    """Where in the function's own file it went wrong."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == file]
    return f" at line {lines[-1]} of {file}" if lines else ""
