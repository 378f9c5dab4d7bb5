"""`noyau.explain(module, inputs)`: groups, cuts and their reasons, graph breaks, operators that noyau does not know."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from rich.console import RenderableType
from rich.text import Text
from torch import fx

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.errors import UnsupportedError
from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.executor import eager
from noyau.jobs.optimize.torch import candidates as torch_candidates
from noyau.jobs.optimize.torch.backend import trace_with_autograd
from noyau.jobs.optimize.torch.graph_hosts import CompiledGraph
from noyau.jobs.optimize.torch.run import as_inputs, as_it_was, leftovers, name_of
from noyau.jobs.optimize.torch.whole import time_wall_once
from noyau.jobs.profile.record import Wall
from noyau.jobs.profile.torch_wall import measure_wall
from noyau.jobs.report.text import Record, hanging
from noyau.jobs.show.stages import KernelStages, StagedKernels, stages_of
from noyau.text import few, printable, several
from noyau.toolchain.c import compiler as c_compiler

_PROFILED = 3  # calls of a profile
_MOST = 4  # the most names after one reason


@dataclass(frozen=True, slots=True, repr=False)
class ModuleExplanation(StagedKernels, Record):
    """View of a module, before anything is built; prints itself. `breaks`: why dynamo ended a graph, and where;
    `walls`: how the time of a call of each graph splits on torch's kernels, None if it was not measured."""

    name: str
    graphs: tuple[CompiledGraph, ...]
    breaks: tuple[str, ...]
    walls: tuple[Wall | None, ...] = ()

    @property
    def stages(self) -> list[KernelStages]:
        return [each for graph in self.graphs for each in map(stages_of, graph.plan.kernels)]

    def to_json(self) -> dict[str, Any]:
        pairs = zip_longest(self.graphs, self.walls[: len(self.graphs)])
        graphs = [{**_graph(graph), "wall": wall and wall.to_json()} for graph, wall in pairs]
        return {"module": self.name, "breaks": list(self.breaks), "graphs": graphs}

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        yield Text.assemble((printable(self.name), "bold"), f": {several(len(self.graphs), 'graph')}")
        for graph, wall in zip_longest(self.graphs, self.walls[: len(self.graphs)]):
            yield from _graph_parts(graph, width)
            yield from wall.renderables(width, ascii_only=ascii_only) if wall else ()
        for reason in self.breaks:
            yield from hanging(f"graph break: {printable(reason)}", width, "", "  ")


def explain(module: Callable[..., Any], inputs: Any, *, dynamic: bool | None = None) -> ModuleExplanation:
    """The groups of a module on some inputs, the reasons of its cuts and graph breaks, and the split of each graph's
    time. The module runs some ten times on torch's kernels; nothing is built. InputError for invalid inputs."""
    arguments, graphs, walls = as_inputs(inputs), list[CompiledGraph](), list[Wall | None]()

    def look(graph: fx.GraphModule, examples: Sequence[Any], kind: str) -> Callable[..., Any]:
        try:
            source = modules_sites.trace_graph(graph.graph)
            cut = modules_groups.cut(source)
            plan = torch_candidates.plan(cut.groups, source.operators, c_compiler.level())
            graphs.append(CompiledGraph(kind, source, cut, plan))
        except UnsupportedError as reason:
            graphs.append(CompiledGraph(kind, None, Partition((), ()), Plan(()), whole=str(reason)))
        return eager(graph, examples)

    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return time_wall_once(trace_with_autograd(graph, examples, look), walls.append, lambda: True)

    with torch.no_grad(), as_it_was(module, arguments):
        torch.compile(module, backend=backend, dynamic=dynamic)(*arguments)
        explanation = torch._dynamo.explain(module)(*arguments)
    breaks = tuple(dict.fromkeys(str(each.reason) for each in explanation.break_reasons))
    return ModuleExplanation(name_of(module), tuple(graphs), breaks, tuple(walls))


def profile(module: Callable[..., Any], inputs: Any, *, timeline: bool = False) -> Wall:
    """Split of the wall time of a call of a module, compiled or not, with an optional `timeline`. The module is called
    some dozen times, without gradients. InputError for invalid inputs."""
    with torch.no_grad(), as_it_was(module, inputs):
        return measure_wall(partial(module, *as_inputs(inputs)), _PROFILED, timeline=timeline)


def _graph(graph: CompiledGraph) -> dict[str, Any]:
    return {
        "kind": graph.kind,
        "whole": graph.whole,
        "groups": [
            {"kernel": k.operator, "places": len(k.groups), "replaces": [*k.replaces]} for k in graph.plan.kernels
        ],
        "left": [{"node": name, "reason": reason} for name, reason in leftovers(graph)],
        "cuts": [{"between": [one, other], "reason": reason} for one, other, reason in _cuts(graph)],
        "opaque": dict(graph.source.imported.opaque) if graph.source else {},
    }


def _cuts(graph: CompiledGraph) -> Iterator[tuple[str, str, str]]:
    """Neighbours that are not in one kernel, and why."""
    names = [node.name for node in graph.source.nodes] if graph.source else []
    for cut in graph.partition.cuts:
        if cut.consumer is not None:
            yield names[cut.producer], names[cut.consumer], cut.reason


def _graph_parts(graph: CompiledGraph, width: int) -> Iterator[RenderableType]:
    covered = sum(len(group.positions) for one in graph.plan.kernels for group in one.groups)
    count = len(graph.source.nodes) - 1 if graph.source else 0
    message = f"{covered} of {count} operators in {several(len(graph.plan.kernels), 'kernel')}"
    yield from hanging(f"{graph.kind}: {graph.whole or message}", width, "", "  ")
    for one in graph.plan.kernels:
        where = f", {len(one.groups)} places" if len(one.groups) > 1 else ""
        yield from hanging(f"{one.operator}{where}: {', '.join(one.replaces)}", width, "  ", "    ")
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, reason in (*leftovers(graph), *((f"{one} -> {other}", reason) for one, other, reason in _cuts(graph))):
        reasons[reason].append(name)
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        yield from hanging(printable(f"{reason}: {few(names, _MOST)}"), width, "  ", "    ")
