"""A graph as ONNX nodes: what the function body of an op is, and what other runtimes can run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import assert_never

import numpy as np
import onnx

from noyau.codegen.numpy.printer import Readers
from noyau.codegen.onnx import reductions, views
from noyau.codegen.onnx.emitter import ZERO, NodeWriter, OnnxTerm, SizeWriter
from noyau.codegen.onnx.maps import CellWriter, cast, map_term
from noyau.compiler.lowering.names import identifier
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import graph as dag
from noyau.ir.sizes import Demand


def spell(graph: dag.Graph, writer: NodeWriter, names: Mapping[str, str], measured: Iterable[dag.Node] = ()) -> range:
    """Write the nodes that compute the outputs of a graph; the result are their positions. `names`: those in the model
    of its inputs and outputs, and of those `measured`, inputs of the whole model that tell sizes too.

    UnsupportedError, with the name of what it is, where something has no ONNX operator."""
    start = len(writer.nodes)
    writer.values.clear()  # what is spelled apart shares no nodes
    _Speller(graph, writer, names, tuple(measured)).write()
    return range(start, len(writer.nodes))


@dataclass
class _Speller:
    graph: dag.Graph
    writer: NodeWriter
    called: Mapping[str, str]
    measured: tuple[dag.Node, ...]

    def __post_init__(self) -> None:
        self.sizes = SizeWriter(self.writer, (*self.graph.inputs, *self.measured), self.called)
        self.readers = Readers(self.graph)
        self.terms = {n.output: OnnxTerm(self.called[n.output], n.dtype, n.shape) for n in self.graph.inputs}
        self.fixed = {term.name for term in self.terms.values()}  # names that stay

    def write(self) -> None:
        live = self.readers.live()
        guarded = self.least(live) if self.graph.demands else None
        for node in self.graph.nodes:
            if node.output in live and node.output not in self.terms:
                self.writer.stem = identifier(node.output)
                try:
                    value = self.term(node)
                except UnsupportedError as error:
                    raise UnsupportedError(f"{node.output}: {error}") from error
                self.terms[node.output] = self.demanded(value) if node is guarded else value
        for name in self.graph.outputs:
            self.finish(name)

    def least(self, live: Collection[str]) -> dag.Node | None:
        """The computed value of the fewest axes: what is asked of the sizes is asked there, for it costs a pass."""
        able = (dag.Map, dag.Reduce, dag.Scan, dag.Select, dag.Gather, dag.Scatter, dag.Contract)
        nodes = [node for node in self.graph.nodes if node.output in live]
        computed = [node for node in nodes if isinstance(node.kind, able)] or nodes[-1:]
        return min(computed, key=lambda node: sum(dim.constant is None for dim in node.shape), default=None)

    def finish(self, name: str) -> None:
        """An output, whole, under its name."""
        self.writer.stem = identifier(name)
        value = views.whole(self.terms[name], self.graph[name].shape, self.sizes)
        target = self.called[name]
        if value.name == target:
            return
        if value.name in self.fixed or not self.writer.rename(value.name, target):
            self.writer.nodes.append(onnx.helper.make_node("Identity", [value.name], [target]))
        self.fixed.add(target)
        self.terms = {key: replace(t, name=target) if t.name == value.name else t for key, t in self.terms.items()}

    def whole(self, name: str) -> OnnxTerm:
        return views.whole(self.terms[name], self.graph[name].shape, self.sizes)

    def term(self, node: dag.Node) -> OnnxTerm:
        sources = [self.graph[name] for name in node.inputs]
        operands = [self.terms[name] for name in node.inputs]
        if ZERO in node.shape:  # it has no cells, whatever makes them
            return self.writer.number(0, node.dtype)
        match node.kind:
            case dag.Input():
                return self.terms[node.output]
            case dag.Constant(value):
                return OnnxTerm(self.writer.constant(value), node.dtype, node.shape)
            case dag.Iota(index):
                return cast(CellWriter(self.writer), self.sizes.indexed(index, node.shape), node.dtype)
            case dag.Map(function):
                return map_term(CellWriter(self.writer), function, operands, node.dtype)
            case dag.Reduce():
                keep = self.keeps_axes(node)
                return reductions.reduce_term(node.kind, self.whole(node.inputs[0]), node.dtype, self.sizes, keep=keep)
            case dag.Scan():
                return reductions.scan_term(node.kind, self.whole(node.inputs[0]), node.dtype, self.writer)
            case dag.View() if self.keeps_axes(sources[0]):
                return operands[0]
            case dag.View(index):
                return views.view_term(index, operands[0], sources[0].shape, node.shape, self.sizes)
            case dag.Select(axis, _):
                pieces = [self.whole(name).name for name in node.inputs]
                return OnnxTerm(self.writer.emit("Concat", *pieces, axis=axis), node.dtype, node.shape)
            case dag.Gather():
                return views.gather_term(node, operands, sources, self.sizes)
            case dag.Scatter():
                return views.scatter_term(node, operands, sources, self.sizes)
            case dag.Contract(equation):
                wholes = [self.whole(name) for name in node.inputs]
                return reductions.contract_term(equation, wholes, node.dtype, node.shape, self.writer)
            case dag.Opaque(name):
                raise UnsupportedError(f"{name} has no ONNX operator that is known here")
            case dag.Part(position):
                raise UnsupportedError(f"result {position} of what has no ONNX operator")
            case _:
                assert_never(node.kind)

    def keeps_axes(self, node: dag.Node) -> bool:
        """Whether it is a reduction that keeps its axes, as 1."""
        is_place = isinstance(node.kind, dag.Reduce) and node.kind.monoid.startswith("arg")
        return not is_place and self.readers.restore_axes(node)

    def demanded(self, term: OnnxTerm) -> OnnxTerm:
        """The value, where all that is demanded of the sizes holds; else an index outside of a table fails the call."""
        cells = CellWriter(self.writer)
        sure = reduce(partial(cells, "And"), map(self.holds, self.graph.demands))
        place = self.writer.cast(cells("Not", sure), DType.I64)
        sure = OnnxTerm(self.writer.emit("Gather", self.writer.constant(np.array([True])), place.name), DType.BOOL, ())
        return map_term(cells, "where", [sure, term, term], term.dtype)

    def holds(self, demand: Demand) -> OnnxTerm:
        cells = CellWriter(self.writer)
        left, right = (OnnxTerm(self.sizes.scalar(dim), DType.I64, ()) for dim in (demand.left, demand.right))
        match demand.relation:
            case "equal":
                return cells("Equal", left, right)
            case "broadcast":
                one, zero = (self.writer.number(value, DType.I64) for value in (1, 0))
                pairs = (left, right), (right, left)
                ones = [cells("And", cells("Equal", a, one), cells("Greater", b, zero)) for a, b in pairs]
                return cells("Or", cells("Equal", left, right), cells("Or", *ones))
            case _:
                return cells("LessOrEqual", left, right)
