"""Kernels made of an op's reference: traced, cut into a program, printed in a language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from noyau.descriptions import Description
from noyau.dispatching.layouts import PACKED, Layout, laid_out, strided_names
from noyau.dispatching.programs import Program, program
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tracing import trace
from noyau.ir.graph import Graph, Input, Node, constant
from noyau.languages import c
from noyau.lowering.names import identifier
from noyau.references import Reference
from noyau.schedules.choosing import USUAL, Options
from noyau.signatures.types import Instance, Value

GENERATED = ("c",)  # languages that programs are printed in
NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What kernels are made for: dtypes and ranks settled, the op's constants, the integer parameters that give a dim
    as numbers, and how the inputs lie (nothing: packed)."""

    instance: Instance
    constants: Mapping[str, Any] = field(default_factory=lambda: NONE)
    integers: Mapping[str, int] = field(default_factory=lambda: NONE)
    layouts: tuple[Layout, ...] = ()

    def layout(self, at: int) -> Layout:
        """How input `at` lies."""
        return self.layouts[at] if self.layouts else PACKED


@dataclass(frozen=True, slots=True)
class Generated:
    """The kernels of an op for one key. `graph`: what was traced, its inputs in the order of a call; `program`: what
    computes it from arrays that lie as they are wanted to; `text`: all kernels, in one file that stands alone."""

    name: str
    language: str
    wanted: Wanted
    graph: Graph
    program: Program
    text: str

    @property
    def called(self) -> str:
        """Its name in messages: `softmax[c]`."""
        return f"{self.name}[{self.language}]"


def generate(description: Description, wanted: Wanted, language: str = "c", options: Options = USUAL) -> Generated:
    """The kernels of an op's reference in a language.

    UnsupportedError where the reference cannot be traced, with its line, or the language lacks what it needs."""
    if language not in GENERATED:
        known = " and ".join(GENERATED)
        raise UnsupportedError(f"{description.name}: no kernels are generated in {language!r} yet; {known} are")
    graph = traced(description.reference, wanted)
    layouts = [wanted.layout(at) for at in range(len(wanted.instance.inputs))]
    memory = laid_out(graph, layouts)
    made = program(memory, identifier(description.name), strided_names(memory, layouts), options)
    text = printed(made, language, f"{description.name}: {wanted.instance}")
    return Generated(description.name, language, wanted, graph, made, text)


def printed(made: Program, language: str, comment: str) -> str:
    """The text of all kernels of a program; none gives the comment alone."""
    match language:
        case "c":
            return c.together(made.kernels, comment)
        case _:
            raise UnsupportedError(f"no programs are printed in {language!r}; {' and '.join(GENERATED)} are")


def traced(reference: Reference, wanted: Wanted) -> Graph:
    """The graph of a reference, with every input of the instance, in order. UnsupportedError with the line of what
    cannot be traced."""
    if reference.outputs:
        told = "it fills its outputs, so it is evaluated and not traced"
        raise UnsupportedError(f"the reference {reference.name} has no graph: {told}; let it return them")
    instance = wanted.instance
    inputs = [_input(value, wanted.integers) for value in instance.inputs]
    taken = {value.name for value in instance.inputs}
    results = [Node(v.name, Input(), (), v.dtype, v.shape) for v in instance.outputs]
    graph = trace(reference.function, inputs, results, wanted.constants)
    given = [Node(value.name, Input(), (), value.dtype, value.shape) for value in instance.inputs]
    made = [node for node in graph.nodes if node.output not in taken]
    return replace(graph, nodes=(*given, *made))


def _input(value: Value, integers: Mapping[str, int]) -> Node:
    """A parameter as tracing takes it: an integer that gives a dim is a number."""
    if value.scalar and value.name in integers:
        return constant(value.name, np.array(integers[value.name], value.dtype.numpy))
    return Node(value.name, Input(), (), value.dtype, value.shape)
