"""Graphs of torch's on a GPU cut into kernels by another process, while this one traces, runs and compiles others.

Of torch's nodes a cut reads which are views, and how their tensors lie: that process has stand-ins for them."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx

from noyau.compiler.partition.cut import Model
from noyau.hosts.torch.modules.groups import is_view
from noyau.hosts.torch.modules.sites import TracedGraph, trace_graph
from noyau.ir.graph import Opaque
from noyau.jobs.optimize.cuda.host import plan_for_triton, with_updates_apart
from noyau.jobs.optimize.torch.candidates import PLANNER, EarlySketch
from noyau.toolchain.triton.compile_server import serve
from noyau.workers.channel import Channel

MOST_AT_ONCE = 2  # the graphs of a forward and of its backward


@dataclass(frozen=True, slots=True)
class PlanTask:
    """What a cut reads of a graph: which positions are `views`, and of each value a tensor without cells."""

    model: Model
    views: frozenset[int]
    tensors: Mapping[str, Tensor]

    @property
    def source(self) -> TracedGraph:
        """The graph, with stand-ins for torch's nodes."""
        view, none = SimpleNamespace(target=torch.ops.aten.alias.default), SimpleNamespace(target=None)
        nodes: Any = tuple(view if at in self.views else none for at in range(len(self.model.places)))
        givers: Any = {name: SimpleNamespace(meta={"val": tensor}) for name, tensor in self.tensors.items()}
        absent: Any = None
        return TracedGraph(absent, absent, self.model, nodes, givers)


def task_of(source: TracedGraph) -> PlanTask:
    """The task to cut a graph whose sizes are numbers; what evaluates its boundaries stays here."""
    graph, fakes = source.model.graph, {name: node.meta["val"] for name, node in source.givers.items()}
    opaque = {node.output: replace(node.kind, evaluate=None) for node in graph.nodes if isinstance(node.kind, Opaque)}
    nodes = tuple(replace(node, kind=opaque.get(node.output, node.kind)) for node in graph.nodes)
    forms = {name: (each.shape, each.stride(), each.dtype) for name, each in fakes.items() if isinstance(each, Tensor)}
    tensors = {name: torch.empty_strided(*lies, dtype=each, device="meta") for name, (*lies, each) in forms.items()}
    views = frozenset(at for at in range(len(source.nodes)) if is_view(source, at))
    return PlanTask(replace(source.model, graph=replace(graph, nodes=nodes)), views, tensors)


def begin(program: fx.Graph) -> EarlySketch | None:
    """Begin with a graph whose sizes are numbers. None where it cannot be, for whatever reason: who compiles the graph
    cuts it then, and is told."""
    with contextlib.suppress(Exception):
        source = with_updates_apart(trace_graph(program))
        early = EarlySketch(source, tempfile.TemporaryDirectory(prefix="noyau-plan-"))
        early.file.write_bytes(pickle.dumps(task_of(source)))
        early.event = PLANNER.send(pickle.dumps(str(early.file)))
        return early if early.event else None
    return None


def planned(path: str) -> None:
    """Cut the graph of a task in a file, and leave its groups and kernels there."""
    file = Path(path)
    task: PlanTask = pickle.loads(file.read_bytes())  # noqa: S301  from the process that started this one
    file.unlink()
    file.write_bytes(pickle.dumps(plan_for_triton(task.source, reasons=False)))


def main(channel: Channel) -> None:
    """Serve the process that has started this one."""
    serve(channel, MOST_AT_ONCE, planned)
