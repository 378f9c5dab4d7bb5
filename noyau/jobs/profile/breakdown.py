"""The measured time of a run, shared out among nodes and operator types; and the largest values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.jobs.profile.attribution import Attribution, attributions_of
from noyau.jobs.profile.onnx_overheads import Overhead
from noyau.jobs.profile.paths import ProfiledModel, TimedNodes, paths
from noyau.jobs.profile.record import LargeValue, NodeTime, OperatorTime, PathTime, by_name
from noyau.jobs.profile.session_runs import TimedSession
from noyau.jobs.profile.traces import NodeRuns
from noyau.verify.inputs import Inputs

# In bytes, by the names that onnxruntime has for element types: NumPy's, but for two.
_ELEMENTS = {dtype.numpy.name: dtype.bytes for dtype in DType} | {"float": 4, "double": 8}
_MOST_VALUES = 5

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokenDown:
    """The nodes that ran, the fusable paths, the seconds of a run that are in no node, and what the times of the nodes
    were multiplied by, so that all add up to a run; the nodes of the file by the name of the node that ran."""

    nodes: tuple[TimedNodes, ...]
    paths: tuple[PathTime, ...]
    between_s: float
    scaled: float
    labels: Mapping[str, tuple[str, ...]]


def break_down(
    subject: ProfiledModel, inputs: Inputs, ran: TimedSession, overhead: Overhead, threads: int
) -> BrokenDown:
    """The times of a model, sorted; they add up to a run."""
    standing, runs = attributions_of(ran.numbered, ran.optimized, subject.original.bodies), ran.nodes()
    own_s, between_s, scaled = share_out(ran, runs, overhead)
    labels, nodes = subject.original.labels, []
    for node, time_s in zip(runs, own_s, strict=True):
        place = node.name if node.name in standing or node.within is None else node.within
        attribution = standing.get(place, Attribution(frozenset(), (), is_new=True))
        spot = subject.spot_of(attribution.positions)
        kernel = "" if spot is None else subject.plan.kernels[spot[0]].operator
        stands_for = tuple(labels[k] for k in sorted(attribution.positions))
        is_new = attribution.is_new and place == node.name
        record = NodeTime(node.operator, stands_for, is_new, node.calls, time_s * scaled, kernel)
        nodes.append(TimedNodes(record, attribution.positions))
    shapes = source_shapes(subject.original, inputs)
    shapes |= {name: shape for name, _, shape in run_values(runs, standing)}
    names = {run.name: node.record.stands_for for run, node in zip(runs, nodes, strict=True)}
    return BrokenDown(tuple(nodes), tuple(paths(subject, nodes, inputs, shapes, threads)), between_s, scaled, names)


def share_out(ran: TimedSession, runs: Sequence[NodeRuns], overhead: Overhead) -> tuple[list[float], float, float]:
    """The seconds of each node, those in no node, and what the former have to be multiplied by to add up to a run.

    What is in no node is seen in two ways, and the lesser one counts: a run less its nodes, which a machine that drifts
    spoils in long runs; and, with the profiler on, a run less its nodes, which the profiler spoils in short ones."""
    comparison, overhead = ran.comparison, overhead.fit_to(ran.comparison, runs)
    if not runs:
        return [], comparison.before_median_s, 1.0
    own_s = list(map(overhead.own_s, runs))
    profiled_s = np.sum([node.own_us for node in runs], axis=0) * 1e-6
    if len(profiled_s) == comparison.pairs * comparison.calls:
        profiled_s = profiled_s.reshape(comparison.pairs, -1).mean(1)
    else:  # the profiler was full before the end
        profiled_s = np.full(comparison.pairs, np.median(profiled_s))
    traced_s = float(np.median(np.asarray(comparison.after_s) - profiled_s)) - overhead.outside_s(runs)
    run_s, nodes_s = comparison.before_median_s, sum(own_s)
    between_s = max(min(run_s - nodes_s, traced_s), 0.0)
    return own_s, between_s if nodes_s > 0 else run_s, (run_s - between_s) / nodes_s if nodes_s > 0 else 1.0


def by_operator(nodes: Iterable[NodeTime], operators: Iterable[str]) -> tuple[OperatorTime, ...]:
    """Operator types, the one that takes longest first; `known` are those of the file."""
    own, rows = set(operators), by_name((node.operator, node.time_s) for node in nodes)
    return tuple(OperatorTime(name, len(s), sum(s), statistics.median(s), name in own) for name, s in rows)


def source_shapes(original: SourceModel, inputs: Inputs) -> dict[str, Sequence[int]]:
    """The shapes of the values that the sizes of the inputs are enough for."""
    shapes: dict[str, Sequence[int]] = {}
    for node in original.imported.graph.nodes:
        if all(dim.names <= inputs.sizes.keys() for dim in node.shape):
            with suppress(ZeroDivisionError):  # such a size makes no sense of this value
                shapes[node.output] = [int(dim.evaluate(inputs.sizes)) for dim in node.shape]
    return shapes


def run_values(runs: Iterable[NodeRuns], standing: Mapping[str, Attribution]) -> Iterator[tuple[str, str, Shape]]:
    """Each tensor that a node made that is known: its name, its element type, its shape."""
    for node in runs:
        names = [name for name in standing[node.name].outputs if name] if node.name in standing else []
        if len(names) == len(node.outputs):
            yield from ((name, *tensor) for name, tensor in zip(names, node.outputs, strict=True))


def largest_values(ran: TimedSession) -> tuple[LargeValue, ...]:
    """The largest tensors that onnxruntime made, with the name that the model has for them, if any."""
    names = {name for node in ran.numbered.graph.node for name in node.output}
    standing = attributions_of(ran.numbered, ran.optimized)
    known = (value for value in run_values(ran.nodes(), standing) if value[1] in _ELEMENTS)
    values = (LargeValue(n if n in names else "", e, shape, math.prod(shape) * _ELEMENTS[e]) for n, e, shape in known)
    return tuple(sorted(values, key=lambda value: -value.bytes)[:_MOST_VALUES])


def count_removed(nodes: Iterable[TimedNodes], original: SourceModel) -> int:
    """The number of nodes of the file that no executed node stands for."""
    known = {position for position, label in enumerate(original.labels) if label}
    return len(known.difference(*(node.positions for node in nodes)))
