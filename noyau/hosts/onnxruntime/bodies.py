"""Bodies of If, Loop and Scan, flattened behind the main graph so that they are fused like it, and restored afterwards.

The flat model is for planning: one graph has the values of all graphs, those of a body with its name as a prefix. Main
nodes keep their positions. The inputs of a body are results of operators of a domain that nothing runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from noyau.dtypes import DType
from noyau.frontends.onnx.boundary_types import ENTRIES
from noyau.frontends.onnx_messages import CORE_DOMAINS, subgraphs
from noyau.hosts.onnxruntime.function_bodies import drop, is_own, value_names
from noyau.hosts.onnxruntime.write_back import drop_unread
from noyau.ir.dims import equal
from noyau.ir.graph import Graph

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto


@dataclass(frozen=True, slots=True)
class Body:
    """A body, the `attribute` of the node at `place` of the flat model. `name`: of the node and the attribute.

    `owner`: the first output of the node. `entries`, `operators`: the positions of the nodes that stand for its inputs,
    and of its own nodes; `outputs`: its results; `locals`: from names in the flat model to names in the body."""

    name: str
    place: int
    attribute: str
    owner: str
    entries: range
    operators: range
    outputs: tuple[str, ...]
    locals: Mapping[str, str]

    @property
    def prefix(self) -> str:
        return f"{self.name}/"


def laid_flat(model: ModelProto, typed: Sequence[NodeProto]) -> tuple[ModelProto, tuple[Body, ...]]:
    """The model with its bodies behind its main graph, at any depth, outer ones first. `typed`: its nodes with bodies,
    whose values have their types, as far as ONNX infers them."""
    result, bodies, nodes = deepcopy(model), list[Body](), {"": typed}
    graph, names, place = result.graph, value_names(model.graph), 0
    while place < len(graph.node):  # nodes of bodies are appended, and visited in turn
        node = graph.node[place]
        outer = next((body for body in bodies if place in body.operators), None)
        name = _name(node, place, outer, bodies, names) if _is_control(node) else ""
        for attribute in node.attribute if name else ():
            if attribute.HasField("g") and not attribute.g.sparse_initializer:
                twin = _twin(nodes[outer.name if outer else ""], node, outer, attribute)
                bodies.append(_add_body(graph, place, attribute, f"{name}/{attribute.name}", twin))
                nodes[bodies[-1].name] = twin.node
        place += 1
    return result, tuple(bodies)


def _is_control(node: NodeProto) -> bool:
    """Whether a node is an If, a Loop or a Scan with outputs, as every node in its bodies has."""
    nodes = [node, *(inner for graph in subgraphs(node) for inner in graph.node)]
    is_named = node.domain in CORE_DOMAINS and node.op_type in ("If", "Loop", "Scan")
    return is_named and all(any(each.output) for each in nodes)


def _name(node: NodeProto, place: int, outer: Body | None, bodies: Sequence[Body], names: set[str]) -> str:
    """A name for a node with bodies that no other node has, and that is no prefix of values."""
    label = node.name or f"{node.op_type}_{place if outer is None else place - outer.operators.start}"
    wanted = name = label if outer is None else outer.prefix + label
    used, count = {body.name.rpartition("/")[0] for body in bodies}, 1
    while name in used or any(each.startswith(f"{name}/") for each in names):
        count += 1
        name = f"{wanted}_{count}"
    return name


def _twin(nodes: Sequence[NodeProto], node: NodeProto, outer: Body | None, attribute: AttributeProto) -> GraphProto:
    """The body in the typed nodes; the body itself where it is not among them."""
    names = outer.locals if outer else {}
    own = {names.get(name, name) for name in node.output if name}
    twins = (each for other in nodes if own & set(other.output) for each in other.attribute)
    return next((twin.g for twin in twins if twin.name == attribute.name), attribute.g)


def _add_body(graph: GraphProto, place: int, attribute: AttributeProto, name: str, twin: GraphProto) -> Body:
    """Add the nodes and the tensors of a body, and the types of its twin, to a graph under new names."""
    body, start = attribute.g, len(graph.node)
    own = [value.name for value in chain(body.input, body.initializer)]
    own += [output for node in body.node for output in node.output]
    names = {each: f"{name}/{each}" for each in own if each}
    for number, value in enumerate(body.input):
        _enter(graph, graph.node[place], number, value, names.get(value.name, f"{name}/"))
    entries = range(start, len(graph.node))
    graph.node.extend(rename_values(node, names) for node in body.node)
    for tensor in body.initializer:
        graph.initializer.add().CopyFrom(tensor)
        graph.initializer[-1].name = names[tensor.name]
    results = {output for node in body.node for output in node.output}
    for value in (each for each in twin.value_info if each.name in names):
        graph.value_info.add(name=names[value.name], type=value.type)
    for end, value in {value.name: value for value in twin.output if value.name in results}.items():
        graph.output.add(name=names[end], type=value.type if value.HasField("type") else None)
    outputs = tuple(names.get(value.name, value.name) for value in body.output)
    local = {there: here for here, there in names.items()}
    owner = next(filter(None, graph.node[place].output))
    return Body(name, place, attribute.name, owner, entries, range(entries.stop, len(graph.node)), outputs, local)


def _enter(graph: GraphProto, node: NodeProto, number: int, value: ValueInfoProto, name: str) -> None:
    """Add the node that stands for an input of a body: typed by the body, else like the first value that enters it."""
    entry = graph.node.add(domain=ENTRIES, op_type="Open", output=[name])
    typed = type(value)(name=name, type=value.type)
    kind = typed.type.tensor_type
    if node.op_type == "Loop" and number < 2:  # the iteration, and whether to go on
        kind.elem_type = kind.elem_type or (DType.I64, DType.BOOL)[number].onnx
        kind.shape.SetInParent()
    if kind.elem_type and kind.HasField("shape"):
        graph.value_info.append(typed)
    elif number < len(node.input):
        entry.op_type, entry.input[:] = "Same", [node.input[number]]
        states = len(node.input) - (integers(node, "num_scan_inputs") or [0])[0]
        if node.op_type == "Scan" and number >= states:
            axes = dict(enumerate(integers(node, "scan_input_axes")))
            entry.op_type = "Step"
            entry.attribute.add(name="axis", type=2, i=axes.get(number - states, 0))


def integers(node: NodeProto, name: str) -> list[int]:
    """The integers of an attribute of a node; empty without it."""
    return [number for each in node.attribute if each.name == name for number in (each.ints or [each.i])]


def rename_values(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """A copy of a node with other names for values, also where its subgraphs capture them."""
    copy = deepcopy(node)
    _rename(copy, names)
    return copy


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    for ends in (node.input, node.output):
        ends[:] = [names.get(name, name) for name in ends]
    for graph in subgraphs(node):
        own = {value.name for value in chain(graph.input, graph.initializer)}
        own |= {output for inner in graph.node for output in inner.output}
        visible = {here: there for here, there in names.items() if here not in own}
        for inner in graph.node:
            _rename(inner, visible)
        for value in graph.output:
            value.name = visible.get(value.name, value.name)


def loosen_loops(model: ModelProto, bodies: Sequence[Body], graph: Graph) -> bool:
    """Whether a flat model assumes what a Loop does not keep: that a value it carries leaves an iteration with the
    shape with which it enters. In the model, axes that differ are opened; all of a value if its dtype or rank
    differs."""
    loose = False
    for body in bodies:
        carried = list(body.entries)[2:] if model.graph.node[body.place].op_type == "Loop" else []
        for position, result in zip(carried, body.outputs[1:], strict=False):
            entry = model.graph.node[position]
            before, after = graph.by_name[entry.output[0]], graph.by_name.get(result)
            if entry.op_type != "Same":
                continue
            if after is None or (before.dtype, len(before.shape)) != (after.dtype, len(after.shape)):
                entry.op_type, loose = "Open", True
                continue
            pairs, axes = zip(before.shape, after.shape, strict=True), set(integers(entry, "open"))
            unlike = {axis for axis, pair in enumerate(pairs) if equal(*pair) is not True}
            if not unlike <= axes:
                del entry.attribute[:]
                entry.attribute.add(name="open", type=7, ints=sorted(axes | unlike))
                loose = True
    return loose


def graphs_of(model: ModelProto, bodies: Sequence[Body]) -> Iterator[tuple[Body, GraphProto]]:
    """Each body with its graph in a model that has the bodies in their nodes; outer ones first."""
    graphs = [(range(len(model.graph.node)), model.graph)]
    for body in bodies:
        positions, graph = next(each for each in graphs if body.place in each[0])
        node = graph.node[positions.index(body.place)]
        graphs.append((body.operators, next(each.g for each in node.attribute if each.name == body.attribute)))
        yield body, graphs[-1][1]


def align_names(model: ModelProto, bodies: Sequence[Body]) -> ModelProto:
    """A copy of a model whose nodes with bodies have the names that the flat model gave them, by their outputs."""
    result, names = deepcopy(model), {body.owner: body.name.rpartition("/")[0] for body in bodies}
    graphs = [("", result.graph)]
    for prefix, graph in graphs:  # the list grows meanwhile
        for node in graph.node:
            if full := names.get(f"{prefix}{next(filter(None, node.output), '')}"):
                node.name = full.removeprefix(prefix)
                graphs += [(f"{full}/{each.name}/", each.g) for each in node.attribute if each.HasField("g")]
    return result


def restore_bodies(fused: ModelProto, bodies: Sequence[Body]) -> ModelProto:
    """Restore the bodies of a flat model into their nodes; bodies without a fused node are unchanged."""
    homes = {name: body.name for body in bodies for name in body.locals}
    inner = {name: local for body in bodies for name, local in body.locals.items()}

    def home(name: str) -> str:
        if name not in homes:  # it was added to the model, or is of the main graph
            homes[name] = max((body.name for body in bodies if name.startswith(body.prefix)), key=len, default="")
        return homes[name]

    nodes: dict[str, list[NodeProto]] = defaultdict(list)
    for node in fused.graph.node:
        if node.domain != ENTRIES:
            nodes[home(next(filter(None, node.output), ""))].append(rename_values(node, {}))
    changed, result = set[str](), deepcopy(fused)
    for body in reversed(bodies):  # inner ones first
        own = nodes[body.name]
        if any(is_own(node.domain) for node in own) or any(name.startswith(body.prefix) for name in changed):
            changed.add(body.name)
            node = next(each for each in nodes[home(body.owner)] if body.owner in each.output)
            graph = next(each.g for each in node.attribute if each.name == body.attribute)
            _fill(graph, fused.graph, own, inner, lambda name, at=body.name: home(name) == at)  # type: ignore[misc]
    _fill(result.graph, fused.graph, nodes[""], inner, lambda name: not home(name))
    drop(result.graph.output, lambda value: bool(home(value.name)))
    return result


def _fill(
    graph: GraphProto,
    source: GraphProto,
    nodes: Iterable[NodeProto],
    names: Mapping[str, str],
    holds: Callable[[str], bool],
) -> None:
    """Give a graph its nodes, and the tensors and types of `source` that it `holds`, under their names in the graph.

    A body gets no types but those that it had and the inferred ones of fused nodes: the results of a Loop that does not
    run once get the rank that onnxruntime knows by types, or none."""
    before = deepcopy(graph)
    for messages in (graph.node, graph.initializer, graph.value_info):
        del messages[:]
    graph.node.extend(rename_values(node, names) for node in nodes)
    graph.initializer.extend(each for each in source.initializer if holds(each.name))
    graph.value_info.extend(each for each in source.value_info if holds(each.name))
    for each in chain(graph.initializer, graph.value_info):
        each.name = names.get(each.name, each.name)
    fused = {output for node in graph.node if is_own(node.domain) for output in node.output}
    typed = {value.name for value in graph.value_info if value.type.tensor_type.HasField("shape")} & fused
    typed |= {value.name for value in before.value_info}
    drop(graph.value_info, lambda value: value.name not in typed)
    drop_unread(graph, before)
