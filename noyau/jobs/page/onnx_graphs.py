"""Drawings of ONNX models: each node with its kernel, its reason, and what a job knows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.jobs.page.document import Drawing, Fact, Node
from noyau.jobs.page.graphs import Subject, draw, operators_of, scope_of
from noyau.text import printable

if TYPE_CHECKING:
    import onnx

Remark = Callable[[str, Node], Node]  # what a job adds to the node of a kernel, by the kernel's name


def plan_drawing(
    title: str,
    original: SourceModel,
    partition: Partition,
    plan: Plan,
    extra: Mapping[int, tuple[tuple[str, ...], tuple[Fact, ...]]],
) -> Drawing:
    """A model as it came, its nodes in the colours of their kernels, with the reasons of cuts. `extra`: further lines
    and facts of nodes, by position."""
    kernels = {position: each.operator for each in plan.kernels for g in each.groups for position in g.positions}
    reasons = {cut.producer: cut.reason for cut in partition.cuts if cut.consumer is None}
    reasons |= {position: reason for group, reason in plan.refused for position in group.positions}
    graph, nodes = original.model.graph, dict[int, Node]()
    operators = [each for each in operators_of(graph.node) if original.labels[each.position]]
    for each in operators:
        at = each.position
        node, kernel = graph.node[at], kernels.get(at, "")
        lines, facts = extra.get(at, ((), ()))
        known = [("node", original.labels[at]), ("name", node.name), ("kernel", kernel)]
        known += [] if kernel else [("not fused", reasons.get(at, ""))]
        shown = tuple((name, printable(text)) for name, text in known if text) + facts
        nodes[at] = Node((printable(node.op_type), *lines), printable(node.name), kernel, "", shown, kernel)
    cuts = {(cut.producer, cut.consumer): cut.reason for cut in partition.cuts if cut.consumer is not None}
    values = original.imported.graph.nodes
    types = {each.output: f"{each.dtype.value}[{', '.join(map(str, each.shape))}]" for each in values}
    scopes = {each.position: scope_of(graph.node[each.position]) for each in operators}
    stored = original.imported.initializers
    inputs = [each.name for each in graph.input if each.name not in stored]
    outputs = [each.name for each in original.runnable.graph.output]
    return draw(title, Subject(operators, nodes, scopes, inputs, outputs, types, cuts))


def model_drawing(title: str, model: onnx.ModelProto, remark: Remark, tones: Sequence[str] = ()) -> Drawing:
    """A model as its file has it; `remark` adds to the nodes of noyau's kernels. `tones`: of nodes, by position."""
    graph, nodes = model.graph, dict[int, Node]()
    operators = list(operators_of(graph.node))
    for each, node in zip(operators, graph.node, strict=True):
        facts = (("node", f"{node.op_type}#{each.position}"), ("name", printable(node.name)))
        plain = Node((printable(node.op_type),), printable(node.name), facts=facts)
        shown = remark(node.op_type, replace(plain, group=node.op_type)) if is_own(node.domain) else plain
        nodes[each.position] = replace(shown, tone=tones[each.position]) if tones else shown
    stored = {each.name for each in graph.initializer}
    inputs = [each.name for each in graph.input if each.name not in stored]
    scopes = {each.position: scope_of(node) for each, node in zip(operators, graph.node, strict=True)}
    return draw(title, Subject(operators, nodes, scopes, inputs, [each.name for each in graph.output]))
