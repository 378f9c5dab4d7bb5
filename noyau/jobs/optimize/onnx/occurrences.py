"""The places of a model that compute the same as a path, which is walked backwards beside each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from noyau.compiler.passes.rewrite import nameless
from noyau.errors import NoyauError
from noyau.hosts.onnxruntime.path_ends import Ends
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.hosts.onnxruntime.subgraph import Path, path_between
from noyau.ir.graph import Graph
from noyau.jobs.extract.run import path_graph, wires_of

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A path, and what it computes, its inputs in the order in which an op takes them."""

    path: Path
    graph: Graph


def places_of(original: SourceModel, path: Path) -> list[Occurrence]:
    """The path itself, then every other place of the model that computes the same, in the model's order.

    Places do not overlap: of two that do, the earlier one is taken."""
    wires = wires_of(original)
    first = _ordered(path_graph(wires, path), path.ends.sources)
    places, taken = [Occurrence(path, first)], set(path.positions)
    for ends in _candidates(original, path):
        try:
            other = path_between(original, ends)
            graph = _ordered(path_graph(wires, other), ends.sources)
        except NoyauError:
            continue
        if taken.isdisjoint(other.positions) and nameless(graph) == nameless(first):
            places.append(Occurrence(other, graph))
            taken |= other.positions
    return places


def _ordered(graph: Graph, sources: tuple[str, ...]) -> Graph:
    """The graph with its inputs at the front: the sources, then the others as they come."""
    inputs = [graph[name] for name in sources if name in graph.by_name]
    inputs += [node for node in graph.inputs if node.output not in sources]
    names = {node.output for node in inputs}
    return replace(graph, nodes=(*inputs, *(node for node in graph.nodes if node.output not in names)))


def _candidates(original: SourceModel, path: Path) -> Iterator[Ends]:
    """The ends of each place that hangs together as the path does."""
    walk = _PathWalk(original, path)
    result = max(path.ends.results, key=lambda name: walk.makers[name])
    last = walk.nodes[walk.makers[result]]
    at = list(last.output).index(result)
    for position, node in enumerate(walk.nodes):
        if position != walk.makers[result] and node.op_type == last.op_type and len(node.output) > at:
            ends = walk.ends(result, node.output[at])
            if ends is not None:
                yield ends


class _PathWalk:
    """A path beside another place: which value there is which value here."""

    def __init__(self, original: SourceModel, path: Path) -> None:
        self.path, self.nodes = path, original.model.graph.node
        self.makers = {name: at for at, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def ends(self, result: str, other: str) -> Ends | None:
        """The ends of the place in which one value is another; None where its operators are not the same."""
        known = self.backwards({result: other})
        if known is None:
            return None
        for position in sorted(self.path.positions):
            self.forwards(self.nodes[position], known)
        names = (self.path.ends.sources, self.path.ends.results)
        if not all(known.get(name) for each in names for name in each):
            return None
        sources, results = (tuple(known[name] for name in each) for each in names)
        return Ends(sources, results)

    def backwards(self, mapping: dict[str, str]) -> dict[str, str] | None:
        """Match what the operators read that make a value, one after the other, up to the sources."""
        waiting, done = list(mapping), set[str]()
        while waiting:
            name = waiting.pop()
            if name in done or name in self.path.ends.sources or self.makers.get(name) not in self.path.positions:
                continue
            done.add(name)
            if mapping[name] not in self.makers:
                return None
            one, other = self.nodes[self.makers[name]], self.nodes[self.makers[mapping[name]]]
            if not _alike(one, other):
                return None
            for left, right in (
                *zip(one.input, other.input, strict=True),
                *zip(one.output, other.output, strict=False),
            ):
                mapping.setdefault(left, right)
            waiting += [left for left in one.input if left]
        return mapping

    def forwards(self, one: onnx.NodeProto, mapping: dict[str, str]) -> None:
        """An operator that makes another result, found by what it reads of what is known."""
        if all(name in mapping for name in one.output if name):
            return
        read = [mapping[name] for name in one.input if name in mapping]
        for other in self.readers.get(read[0], ()) if read else ():
            same = _alike(one, other) and all(
                mapping.get(left, right) == right for left, right in zip(one.input, other.input, strict=True)
            )
            if same:
                mapping.update(zip(one.input, other.input, strict=True))
                mapping.update(zip(one.output, other.output, strict=False))
                return


def _alike(one: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    return (one.op_type, one.domain, len(one.input)) == (other.op_type, other.domain, len(other.input))
