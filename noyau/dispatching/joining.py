"""Kernels of a program that are taken together as one: what both read is read once, and is launched from one place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from noyau.ir.graph import Graph, Input, Node, downstream
from noyau.ir.loops import Kernel, Role

Lowered: TypeAlias = tuple[Kernel, Graph]  # a kernel that is not scheduled, and what it computes
Joining: TypeAlias = Callable[[Kernel, Kernel, Collection[str]], Kernel | None]


def join(parts: Sequence[Lowered], tidy: Graph, joining: Joining) -> list[Lowered]:
    """The kernels of a graph, each two of them as one that `joining` makes one of, told what others need of the first.
    Two stay apart where one of them waits for what a third makes of the other."""
    left = list(parts)
    for one in parts:
        for other in parts:
            if one in left and other in left and one is not other and not _is_between(one, other, tidy):
                made = joining(one[0], other[0], _wanted(one, other, left, tidy))
                if made is not None:
                    left[left.index(one)] = made, _graph_of(made, tidy)
                    left.remove(other)
    return left


def _is_between(one: Lowered, other: Lowered, tidy: Graph) -> bool:
    """Whether something stands between two kernels, or the second comes first."""
    needed, given = ({node.output for node in part[1].inputs} for part in (other, one))
    made = set(one[1].outputs)
    return bool((needed - made) & downstream(tidy, made)) or bool(given & downstream(tidy, other[1].outputs))


def _wanted(one: Lowered, other: Lowered, parts: Sequence[Lowered], tidy: Graph) -> set[str]:
    """What is needed of the first by others than the second."""
    read = {node.output for part in parts if part is not other for node in part[1].inputs}
    made = {node.output for part in parts for node in part[1].nodes if not isinstance(node.kind, Input)}
    library = {name for node in tidy.nodes if node.output not in made for name in node.inputs}
    return {*tidy.outputs, *read, *library} & set(one[1].outputs)


def _graph_of(kernel: Kernel, tidy: Graph) -> Graph:
    """What a kernel computes, its inputs and outputs in the kernel's order."""
    given = [replace(tidy[b.source], kind=Input(), inputs=()) for b in kernel.of(Role.INPUT)]
    outputs, names = tuple(b.source for b in kernel.of(Role.OUTPUT)), {node.output for node in given}
    rest: dict[str, Node] = {}

    def enter(name: str) -> None:
        if name not in names and name not in rest:
            for operand in tidy[name].inputs:
                enter(operand)
            rest[name] = tidy[name]

    for name in outputs:
        enter(name)
    return Graph((*given, *rest.values()), outputs)
