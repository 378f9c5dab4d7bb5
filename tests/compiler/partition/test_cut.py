"""Real exports cut into groups: both exporters give the same kernels, and each path is one of them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import onnx
import pytest

from noyau.codegen.plan import Plan, plan
from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition import cut as partition_cut
from noyau.compiler.partition.cut import Partition, partition
from noyau.frontends.onnx import ImportedModel, import_model, partition_model, read
from noyau.hosts.onnxruntime.write_back import put_back
from noyau.ir.graph import Graph, Map, Reduce

EXPORTERS = ("dynamo", "torchscript")
LAYERS = 2
MOST_LEFT = 42  # of the 125 float nodes of a model of two layers


@cache
def cut(exporter: str) -> tuple[onnx.ModelProto, ImportedModel, Partition, Plan]:
    path = Path(str(files("noyau.jobs.demo.models") / f"llama_tiny_{exporter}.onnx"))
    model = read(path)
    imported = import_model(model, path.parent)
    found = partition(partition_model(model, imported))
    return model, imported, found, plan(found.groups, [node.op_type for node in model.graph.node], "x86-64-v3")


def has(graph: Graph, *words: str) -> bool:
    """Whether a graph has these scalar functions and reductions, at least."""
    names = {node.kind.function for node in graph.nodes if isinstance(node.kind, Map)}
    names |= {node.kind.monoid for node in graph.nodes if isinstance(node.kind, Reduce)}
    return set(words) <= names


def digests(exporter: str) -> set[str]:
    return {kernel.operator.rsplit("_", 1)[1] for kernel in cut(exporter)[3].kernels}


def test_no_graph_is_lowered_twice(monkeypatch):
    """The kernel of a trial is that of its group; a reason that names the operators' own values is kept."""
    model, imported, found, _ = cut("dynamo")
    lowered = []
    monkeypatch.setattr(partition_cut, "lower", lambda graph, name: lowered.append(graph) or lower(graph, name))
    again = partition(partition_model(model, imported))
    assert again.cuts == found.cuts and [group.graph for group in again.groups] == [each.graph for each in found.groups]
    assert len(lowered) == len(set(lowered)) > len(found.groups)


def test_both_exporters_give_the_same_kernels():
    assert digests("dynamo") == digests("torchscript")


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    ("words", "places"),
    [
        (("sum", "rsqrt"), 2 * LAYERS + 1),
        (("max", "exp", "sum", "divide"), LAYERS),
        (("negative", "multiply", "add"), 2 * LAYERS),
        (("sigmoid", "multiply"), LAYERS),
    ],
    ids=["every RMSNorm", "every softmax", "every rotary", "every SwiGLU"],
)
def test_each_path_is_one_kernel(exporter, words, places):
    assert sum(has(group.graph, *words) for group in cut(exporter)[2].groups) == places


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_the_residual_is_added_in_the_norm_s_kernel(exporter):
    norms = [group for group in cut(exporter)[2].groups if has(group.graph, "sum", "rsqrt")]
    assert sum(len(group.outputs) == 2 for group in norms) >= 2 * LAYERS


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_few_float_nodes_are_left(exporter):
    model, imported, _, planned = cut(exporter)
    fused = put_back(model, planned.kernels, Path())
    constants = {"Constant", "ConstantOfShape"}
    values = imported.graph.by_name
    left = [
        node.op_type
        for node in fused.graph.node
        if node.op_type not in constants and any(values[name].dtype.is_float for name in node.output if name in values)
    ]
    assert len(left) <= MOST_LEFT


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_layers_share_their_kernels(exporter):
    shared = [kernel for kernel in cut(exporter)[3].kernels if len(kernel.groups) >= LAYERS]
    assert len(shared) >= 6


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_every_operator_is_in_a_group_or_has_a_reason(exporter):
    model, imported, found, _ = cut(exporter)
    covered = {position for group in found.groups for position in group.positions}
    told = {one.producer for one in found.cuts if one.consumer is None}
    for position, node in enumerate(model.graph.node):
        if node.op_type != "Constant" and position not in imported.arithmetic:
            made = [imported.graph[name] for name in node.output if name in imported.places]
            if any(value.dtype.is_float for value in made):
                assert position in covered | told, f"{node.op_type}#{position}"
