"""A NumPy function into a Graph, by calling it once. What cannot be traced is one clear text with its line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy import contracting, functions, indexing  # noqa: F401  they fill the tables
from noyau.frontends.numpy.arrays import Traced
from noyau.frontends.numpy.creating import with_numpy
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.ufuncs import traced
from noyau.ir.checking import check
from noyau.ir.graph import Constant, Graph, Map, Node
from noyau.passes.unused import drop_unused


def trace(
    function: Callable[..., Any], inputs: Sequence[Node], results: Sequence[Node], constants: Mapping[str, Any]
) -> Graph:
    """The graph of a function of arrays: `inputs` and `results` are its signature, as Input nodes; one of kind Constant
    is a number that the function is given as it is, and no input of the graph.

    Sizes stay names; what NumPy would ask of them (that they are equal, that a slice is within its axis) becomes the
    graph's demands. Values bear the names of the function's variables. UnsupportedError names the line of what cannot
    be traced."""
    tape = Tape()
    given = [_given(tape, node) for node in inputs]
    named: dict[str, str] = {}
    try:
        with np.errstate(all="ignore"), _variables(function, named):
            returned = with_numpy(function, tape)(*given, **constants)
        parts = list(returned) if isinstance(returned, tuple | list) and len(results) > 1 else [returned]
        if len(parts) != len(results) or any(part is None for part in parts):
            raise UnsupportedError(f"it returns {len(parts)} results, and {len(results)} are signed")
        nodes = [_result(tape, *pair) for pair in zip(parts, results, strict=True)]
    except Exception as fault:
        name = getattr(function, "__name__", "the function")
        raise UnsupportedError(f"{name} cannot be traced{_line(function, fault)}: {fault}") from fault
    graph = Graph(tuple(tape.nodes), tuple(node.output for node in nodes), tuple(tape.demands))
    return check(_renamed(drop_unused(graph), named))


def _given(tape: Tape, node: Node) -> Any:
    match node.kind:
        case Constant(value):
            return value.item()
        case _:
            return Traced(tape, tape.input(node.output, node.dtype, node.shape), alone=False)


@contextmanager
def _variables(function: Callable[..., Any], named: dict[str, str]) -> Iterator[None]:
    """Notes which value each variable of the function has as it returns: the name of the value to the variable's."""
    code: CodeType | None = getattr(function, "__code__", None)
    before = sys.getprofile()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame.f_code is code:
            for name, value in frame.f_locals.items():
                if isinstance(value, Traced):
                    named.setdefault(value.node.output, name)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def _renamed(graph: Graph, named: Mapping[str, str]) -> Graph:
    """The graph whose values bear the names of variables; inputs, outputs and what is called so already stay."""
    kept = {node.output for node in graph.inputs} | set(graph.outputs)
    taken, new = set(kept), {}
    for node in graph.nodes:
        name = named.get(node.output)
        if name is not None and node.output not in kept:
            while name in taken or name in graph.by_name:
                name += "_"
            new[node.output] = name
            taken.add(name)
    nodes = tuple(
        replace(node, output=new.get(node.output, node.output), inputs=tuple(new.get(x, x) for x in node.inputs))
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


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
