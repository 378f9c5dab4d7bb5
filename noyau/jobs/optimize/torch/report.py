"""Report on an optimised module, in the words of the report on ONNX models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.record import EndToEnd, Report
from noyau.jobs.optimize.record_builder import left_alone, not_fused, record
from noyau.jobs.optimize.torch.compile import CompiledGraph
from noyau.timing.comparison import Comparison
from noyau.timing.conditions import Machine, this_machine
from noyau.toolchain.c import compiler as c_compiler


def report_of(name: str, graphs: Sequence[CompiledGraph], whole: Comparison | None, notes: Iterable[str]) -> Report:
    """The report on a module; `whole`: torch's own run of it against the compiled one, where they were timed."""
    before = sum(len(graph.source.nodes) - 1 for graph in graphs if graph.source)
    gone = sum(len(group.positions) - 1 for graph in graphs for one in graph.kept for group in one.planned.groups)
    return Report(
        machine(),
        name,
        before,
        before - gone,
        kernels=tuple(record(one) for one in distinct(graphs)),
        end_to_end=EndToEnd() if whole is None else end_to_end(whole),
        not_fused=not_fused(_left_to_torch(graphs)),
        inputs=tuple(notes),
    )


def machine() -> Machine:
    """This machine, with the version of torch."""
    found = this_machine(c_compiler.DEFAULTS)
    return replace(found, versions={**found.versions, "torch": torch.__version__})


def distinct(graphs: Iterable[CompiledGraph]) -> list[Candidate]:
    """Each kernel once, with all its places; kept where one graph has kept it."""
    by_name: dict[str, Candidate] = {}
    for graph in graphs:
        for one in graph.candidates:
            name = one.planned.operator
            if name in by_name:
                first = by_name[name]
                places = (*first.planned.groups, *one.planned.groups)
                best = first if first.kept or not one.kept else one
                one = replace(best, planned=replace(best.planned, groups=places))
            by_name[name] = one
    return list(by_name.values())


def end_to_end(whole: Comparison) -> EndToEnd:
    """Record of timing the whole module."""
    return EndToEnd(whole.before_median_s, whole.after_median_s, whole.verdict, whole.speedup)


def left(graph: CompiledGraph) -> Iterator[tuple[str, str]]:
    """The nodes of a graph that are in no kernel, with the reasons."""
    if graph.source is not None:
        names = [node.name for node in graph.source.nodes[:-1]]  # the last is what the graph returns
        yield from left_alone(names, graph.partition, graph.plan)


def _left_to_torch(graphs: Iterable[CompiledGraph]) -> Iterator[tuple[str, str]]:
    for graph in graphs:
        if graph.whole:
            yield f"the whole {graph.kind} graph", graph.whole
        yield from left(graph)
