"""Drawings of graphs of operators. Large ones are collapsed by the scopes in the names of their nodes."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noyau.compiler.partition.traffic import ModelOperator
from noyau.hosts.onnxruntime.function_bodies import reads
from noyau.jobs.page.document import Drawing, Edge, Node
from noyau.text import printable, several

if TYPE_CHECKING:
    import onnx

MOST = 1_500  # nodes of a drawing: what a browser lays out in seconds
FEWEST = 24  # scopes that say enough about a large graph
_SCOPES = "pkg.torch.onnx.name_scopes"  # where torch.export leaves them
_KINDS = 4  # operator types that a collapsed node names

Scope = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """A graph to be drawn: its operators, the node of each, its inputs and outputs, what to say of values, and why two
    neighbours are apart, by their positions."""

    operators: Sequence[ModelOperator]
    nodes: Mapping[int, Node]
    scopes: Mapping[int, Scope] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[tuple[int, int], str] = field(default_factory=dict)


def draw(title: str, subject: Subject) -> Drawing:
    """The drawing of a graph, collapsed where it has more nodes than a browser lays out."""
    keys, note = _clusters(subject)
    members: dict[Hashable, list[int]] = defaultdict(list)
    for position, key in keys.items():
        members[key].append(position)
    nodes = [_node(key, positions, subject) for key, positions in members.items()]
    place = {position: number for number, positions in enumerate(members.values()) for position in positions}
    makers = {name: place[each.position] for each in subject.operators for name in each.outputs}
    readers = {name for each in subject.operators for name in each.inputs}
    for name in (name for name in subject.inputs if name in readers and name not in makers):
        makers[name] = len(nodes)
        nodes.append(Node((printable(name), subject.types.get(name, "input")), name, tone="end"))
    edges = _edges(subject, place, makers)
    for name in (name for name in subject.outputs if name in makers):
        edges[makers[name], len(nodes)] = Edge(makers[name], len(nodes), _value(name, subject))
        nodes.append(Node((printable(name), "output"), name, tone="end"))
    return Drawing(title, tuple(nodes), tuple(edges.values()), note)


def _edges(subject: Subject, place: Mapping[int, int], makers: Mapping[str, int]) -> dict[tuple[int, int], Edge]:
    """One edge between each two nodes, with the first value that goes there, and the reason of a cut between them."""
    reasons: dict[tuple[int, int], str] = {}
    for (producer, consumer), reason in subject.reasons.items():
        if producer in place and consumer in place:
            reasons.setdefault((place[producer], place[consumer]), reason)
    edges: dict[tuple[int, int], Edge] = {}
    for each in subject.operators:
        end = place[each.position]
        for name in each.inputs:
            start = makers.get(name, end)
            if start != end and (start, end) not in edges:
                edges[start, end] = Edge(start, end, _value(name, subject), reasons.get((start, end), ""))
    return edges


def _value(name: str, subject: Subject) -> str:
    return ": ".join(filter(None, [printable(name), subject.types.get(name, "")]))


def _clusters(subject: Subject) -> tuple[dict[int, Hashable], str]:
    """The key of the node that stands for each operator, and a line on what was collapsed.

    Scopes are cut at the greatest depth at which they are no more than a browser lays out; where that leaves few or
    there are none, runs of operators one after the other are collapsed too."""
    positions = [each.position for each in subject.operators]
    if len(positions) <= MOST:
        return {position: position for position in positions}, ""
    scopes = {position: subject.scopes.get(position, ()) for position in positions}
    deepest = max(map(len, scopes.values()), default=0)
    keys: dict[int, Hashable] = dict.fromkeys(positions, ())
    how = "by the scopes in the names of their nodes"
    for depth in range(1, deepest + 1):
        finer: dict[int, Hashable] = {position: scopes[position][:depth] for position in positions}
        if len(set(finer.values())) > MOST:
            break
        keys = finer
    if len(set(keys.values())) < FEWEST:
        run = -(-len(positions) // (MOST // 2))
        keys = {position: (keys[position], number // run) for number, position in enumerate(positions)}
        how = f"in runs of {run}, for the names of their nodes have too few scopes"
    count = len(set(keys.values()))
    return keys, f"{several(len(positions), 'node')} are collapsed into {count}, {how}"


def _node(key: Hashable, positions: Sequence[int], subject: Subject) -> Node:
    """The node itself, or one that stands for several."""
    nodes = [subject.nodes[position] for position in positions]
    if len(nodes) == 1:
        return nodes[0]
    kinds = Counter(node.lines[0] for node in nodes).most_common()
    groups = list(dict.fromkeys(node.group for node in nodes if node.group))
    scope = next((part for part in (key, *(key if isinstance(key, tuple) else ())) if _is_scope(part)), ())
    name = "/".join(map(printable, scope))
    rest = f" and {len(kinds) - _KINDS} more" if len(kinds) > _KINDS else ""
    facts = [("operators", ", ".join(f"{count} {kind}" for kind, count in kinds[:_KINDS]) + rest)]
    facts += [("kernels", ", ".join(groups))] if groups else []
    lines = (name.rpartition("/")[2] or nodes[0].lines[0] + " ...", several(len(nodes), "node"))
    return Node(lines, name, groups[0] if groups else "", facts=tuple(facts), holds=len(nodes))


def _is_scope(key: object) -> bool:
    return isinstance(key, tuple) and bool(key) and all(isinstance(part, str) for part in key)


def operators_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[ModelOperator]:
    """The nodes of an ONNX graph with what they read, in their bodies too, and make."""
    for position, node in enumerate(nodes):
        makes = tuple(name for name in node.output if name)
        yield ModelOperator(position, node.op_type, tuple(sorted(reads(node))), makes)


def scope_of(node: onnx.NodeProto) -> Scope:
    """The modules that a node is of, outermost first: as torch.export notes them, or from its name."""
    for each in node.metadata_props:
        if each.key == _SCOPES:
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                parts = ast.literal_eval(each.value)
                if isinstance(parts, list):
                    return tuple(str(part) for part in parts[1:])
    return tuple(part for part in re.split(r"[/:]+", node.name) if part)
