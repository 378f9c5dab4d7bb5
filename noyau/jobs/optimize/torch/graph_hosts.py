"""Graphs of torch on their hosts, the CPU or a GPU: the kernels of each, the executor of the rest, a record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import fx

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.hosts.torch.modules import executor
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.executor import Boxed
from noyau.hosts.torch.modules.rewrite import KernelSwap
from noyau.hosts.torch.modules.sites import TracedGraph
from noyau.jobs.optimize import pipeline
from noyau.jobs.optimize.pipeline import Candidate
from noyau.jobs.optimize.torch.candidates import AheadOfTime
from noyau.jobs.optimize.torch.host import TorchHost
from noyau.jobs.optimize.torch.options import CompileOptions
from noyau.jobs.page.document import MOST, Node, Section
from noyau.jobs.profile.record import Wall
from noyau.text import printable, several

if TYPE_CHECKING:
    from noyau.jobs.optimize.cuda.host import CudaHost
    from noyau.jobs.optimize.torch.weights import FewBits

log = logging.getLogger("noyau")


def runner(program: fx.Graph, wishes: CompileOptions) -> Callable[[fx.GraphModule, Sequence[Any]], Boxed]:
    """The executor of a graph with its kernels: on a GPU one flat function, unless the rest runs in inductor."""
    if wishes.rest == "eager" and modules_sites.device_of(program) != modules_sites.CPU:
        from noyau.hosts.torch.modules import flat_codegen  # imports a hundred modules, needed with a GPU alone

        return partial(flat_codegen.flat, replays=wishes.graphs)
    return executor.RESTS[wishes.rest]


def optimize_graph(
    host: TorchHost | CudaHost, kind: str, dropped: Mapping[str, str] = pipeline.NOTHING
) -> tuple[CompiledGraph, list[KernelSwap]]:
    """The kernels of a graph, each with its evidence, and the replacements of torch's nodes by the kept ones.
    `dropped`: kernels to leave out, with the reason."""
    outcome = pipeline.optimize(host, host.wishes.keep, log.debug, dropped)
    return CompiledGraph(kind, host.source, outcome.partition, outcome.plan, outcome.candidates), outcome.installed


def host_of(program: fx.Graph, wishes: CompileOptions, ahead: AheadOfTime, registered: bool) -> TorchHost | CudaHost:
    """The host of a graph, the CPU or the device of its tensors, with the graph cut into kernels; launches on a device
    begin to compile. UnsupportedError for an input that noyau does not know."""
    sketch = ahead.sketch(program)
    source = sketch.source if sketch else modules_sites.trace_graph(program)
    if source.device == modules_sites.CPU:
        return TorchHost(sketch or ahead.make_sketch(source), wishes, ahead, registered)
    from noyau.jobs.optimize.cuda.host import CudaHost, with_updates_apart  # imports Triton, needed with a GPU alone

    host = CudaHost(with_updates_apart(source), source.device, wishes, ahead, registered)
    host.plan()
    return host


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """Outcome of one graph: `kind` is inference, forward or backward; `whole`: why torch runs all of it, or ""."""

    kind: str
    source: TracedGraph | None
    partition: Partition
    plan: Plan
    candidates: tuple[Candidate, ...] = ()
    whole: str = ""

    @property
    def kept(self) -> tuple[Candidate, ...]:
        return tuple(one for one in self.candidates if one.kept)


@dataclass(slots=True)
class GraphRecord:
    """Every graph that was compiled for a module, in order; none if it `forgets`: graphs are large, and torch keeps
    their compiler as long as the module. `dropped`: kernels that no graph may use, with the reason; `gains`: the
    seconds that each kept kernel gains in all its places. While it `measures`, each graph that is called adds the split
    of its wall time to `walls`, once. `weights`: the outcomes of weights in few bits, by graph, of earlier attempts
    too; `calibration`: further arguments of a graph."""

    graphs: list[CompiledGraph] = field(default_factory=list)
    forgets: bool = False
    dropped: Mapping[str, str] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)
    measures: bool = False
    walls: list[Wall | None] = field(default_factory=list)
    weights: dict[Any, FewBits] = field(default_factory=dict)
    calibration: Mapping[Any, Sequence[Sequence[Any]]] = field(default_factory=dict)

    def tell(self, graph: CompiledGraph) -> None:
        for one in graph.kept:
            before_s, after_s = (0.0, 0.0) if one.comparison is None else one.comparison.medians_s
            name = one.planned.operator
            self.gains[name] = self.gains.get(name, 0.0) + len(one.planned.groups) * (before_s - after_s)
        if not self.forgets:
            self.graphs.append(graph)


def drawing_of(graph: CompiledGraph, title: str, *, is_fused: bool) -> Section:
    """The drawing of a torch graph in the colours of its kernels; `is_fused`: with each place of a kept kernel as one
    node. A graph with too many nodes for a browser's layout has no drawing but a note."""
    operators = graph.source.nodes if graph.source else ()
    kept = {one.planned.operator for one in graph.kept}
    fused = [(kernel.operator, group) for kernel in graph.plan.kernels for group in kernel.groups]
    groups = {
        position: (number, name)
        for number, (name, group) in enumerate(fused)
        for position in group.positions
        if not is_fused or name in kept
    }
    left_out = len(operators) > MOST
    places = {node: position for position, node in enumerate(() if left_out else operators) if node.op != "get_attr"}
    keys = {node: -1 - groups[at][0] if is_fused and at in groups else at for node, at in places.items()}
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys.values()))}
    nodes: list[Node] = [{} for _ in numbers]
    edges: dict[tuple[int, int], str] = {}
    for node, at in places.items():
        kernel, number = groups.get(at, (0, ""))[1], numbers[keys[node]]
        name = kernel if is_fused and kernel else printable(str(node.target)).removeprefix("aten.")
        shape = printable(str(getattr(node.meta.get("val"), "shape", "")))
        facts = {"node": node.name, "kernel": kernel, "shape": shape}
        end = {"tone": "end"} if node.op in ("placeholder", "output") else {}
        nodes[number] = {"lines": [name], "name": node.name, "facts": facts, "group": kernel, "source": kernel, **end}
        waiting = list(node.all_input_nodes)
        for other in waiting:
            if other not in keys:  # a getitem, whose operand is the node with several results
                waiting += other.all_input_nodes
            elif numbers[keys[other]] != number:
                edges.setdefault((numbers[keys[other]], number), other.name)
    note = f"{several(len(operators), 'node')} are more than a browser lays out." if left_out else ""
    return {"title": title, "nodes": nodes, "edges": [[*ends, name, ""] for ends, name in edges.items()], "note": note}
