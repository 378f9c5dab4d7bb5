"""Digests of how values are computed and used, whatever they are called, and the order that they give operands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from noyau.compiler.passes.rewrite import Change, Rebuilder, rebuild
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Graph, Input, Map, Node, Reduce, View
from noyau.ir.operators import Fact, has


def order_operands(graph: Graph) -> Graph:
    """Commutative operands in the order of what they are made of, then of what is made of them, whatever they are
    called and however they were spelt."""
    keys = structure(graph)
    uses, roles = contexts(graph, keys), roles_of_sizes(graph)

    def order(name: str) -> tuple[str, str, list[str]]:
        kind = graph[name].kind
        index = kind.index if isinstance(kind, View) else ()
        return keys[name], uses[name], [str(dim.replace(roles)) for dim in index]

    def change(node: Node, rebuilder: Rebuilder) -> Change:
        match node.kind:
            case Map(function) if has(function, Fact.COMMUTATIVE):
                return (replace(node, inputs=tuple(sorted(node.inputs, key=order))),)
            case _:
                return (node,)

    return rebuild(graph, change)


def structure(graph: Graph) -> dict[str, str]:
    """For each value a digest of how it is computed, down to the dtypes and extents of inputs; neither names, of values
    or of sizes, nor the views on the way matter."""
    keys, roles = dict[str, str](), roles_of_sizes(graph)
    for node in graph.nodes:
        operands = [keys[name] for name in node.inputs]
        match node.kind:
            case View():
                keys[node.output] = operands[0]
                continue
            case Map(function) if has(function, Fact.COMMUTATIVE):
                what: object = (function, sorted(operands))
            case Map(function):
                what = (function, operands)
            case Reduce(monoid, _):
                what = (monoid, operands)
            case Constant(value):
                what = ("constant", value.tobytes())
            case Input():
                what = [str(dim.replace(roles)) for dim in node.shape if dim != Dim.of(1)]
            case _:
                what = (type(node.kind).__name__, operands)
        keys[node.output] = _digest((what, node.dtype.value))
    return keys


def roles_of_sizes(graph: Graph) -> dict[str, str]:
    """For each size a digest of where inputs bear it: the same whatever it is called, and seldom that of another."""
    places: dict[str, list[str]] = {}
    for node in graph.inputs:
        rank = sum(dim != Dim.of(1) for dim in node.shape)
        for axis, dim in enumerate(dim for dim in node.shape if dim != Dim.of(1)):
            for name in dim.names:
                text = dim.replace({other: "this" if other == name else "another" for other in dim.names})
                places.setdefault(name, []).append(f"{node.dtype.value} {rank} {axis} {text}")
    return {name: _digest(sorted(where)) for name, where in places.items()}


def contexts(graph: Graph, keys: Mapping[str, str]) -> dict[str, str]:
    """For each value a digest of what is made of it, up to the outputs; `keys` are those of `structure`."""
    uses: dict[str, list[str]] = {node.output: [] for node in graph.nodes}
    for name in graph.outputs:
        uses[name].append("output")
    digests: dict[str, str] = {}
    for node in reversed(graph.nodes):
        above = digests[node.output] = _digest(sorted(uses[node.output]))
        for place, name in enumerate(node.inputs):
            match node.kind:
                case View():
                    uses[name] += uses[node.output]
                case Map(function) if has(function, Fact.COMMUTATIVE):
                    uses[name].append(f"{keys[node.output]} {above}")
                case _:
                    uses[name].append(f"{keys[node.output]} {above} {place}")
    return digests


def _digest(what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]
