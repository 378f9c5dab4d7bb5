"""The overhead of onnxruntime's profiler on the time of a node.

The profiler writes shapes and counts memory while its clock runs, which takes some microseconds a node, more than a
small node itself. Its dependence on inputs, outputs and dimensions is measured on chains of nodes that do nothing; its
total is measured on the model too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper

from noyau.jobs.profile.session_runs import SessionBench
from noyau.jobs.profile.traces import NodeRuns
from noyau.timing.verdict import Comparison

LENGTH = 64  # nodes of a chain
CHAINS = ((1, 0), (1, 4), (8, 0), (8, 4))  # inputs, dimensions
_BUDGET_S = 0.08
_FACTORS = 0.5, 2.0
_NOISE = 0.1  # relative to the expected overhead, the noise beyond which the median is not used
_CLOSE = 1e-3


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds that the profiler adds: to the reported time of a node, for the node itself (`node_s`), each of its
    inputs and outputs (`tensor_s`) and each extent of their shapes; after a node (`after_s`); and once a run (`run_s`).
    `entry_s`: seconds of a run outside its nodes without the profiler."""

    node_s: float = 0.0
    tensor_s: float = 0.0
    extent_s: float = 0.0
    after_s: float = 0.0
    run_s: float = 0.0
    entry_s: float = 0.0

    def overhead_s(self, node: NodeRuns) -> float:
        """Seconds of one run of the model that the profiler reports for the node but causes itself."""
        each_s = self.node_s + node.tensors * self.tensor_s + node.extents * self.extent_s
        return node.calls * each_s + node.inner * self.after_s

    def outside_s(self, nodes: Sequence[NodeRuns]) -> float:
        """Seconds that the profiler adds to one run of the model outside all nodes."""
        return self.run_s + self.after_s * sum(node.calls - node.inner for node in nodes)

    def own_s(self, node: NodeRuns) -> float:
        """Seconds of a node in one run of the model, including its dispatch by onnxruntime."""
        return max(node.median_us * 1e-6 - self.overhead_s(node), 0.0)

    def fit_to(self, model: Comparison, nodes: Sequence[NodeRuns]) -> Overhead:
        """The overhead scaled by one factor, since a model uses caches otherwise than a chain.

        The factor is between 1 and the one that explains the profiler's total overhead on a run of the model, if noise
        does not hide that; among these, the one by which the nodes' times add up best to a run."""
        overhead_s = np.array([self.overhead_s(node) for node in nodes])
        lasted_s = np.array([node.median_us * 1e-6 for node in nodes])
        low, high = sorted((1.0, self._factor(model, nodes)))
        while high - low > _CLOSE:
            factor = (low + high) / 2
            is_longer = np.maximum(lasted_s - factor * overhead_s, 0.0).sum() > model.before_median_s - self.entry_s
            low, high = (factor, high) if is_longer else (low, factor)
        added = ("node_s", "tensor_s", "extent_s", "after_s", "run_s")
        return replace(self, **{name: (low + high) / 2 * getattr(self, name) for name in added})

    def _factor(self, model: Comparison, nodes: Sequence[NodeRuns]) -> float:
        """The ratio of the overhead on a run of the model to that on a chain; 1 where noise hides it."""
        known_s = sum(map(self.overhead_s, nodes)) + self.outside_s(nodes)
        added_s = np.subtract(model.after_s, model.before_s)
        noise_s = float(np.subtract(*np.quantile(added_s, (0.75, 0.25)))) / math.sqrt(model.pairs)
        if known_s <= 0 or noise_s > _NOISE * known_s:
            return 1.0
        return float(np.clip(np.median(added_s) / known_s, *_FACTORS))


@dataclass(frozen=True, slots=True)
class MeasuredChain:
    """A measured chain: the seconds of a node by the profiler, and the seconds of a run with the profiler and without
    it, divided by the number of nodes; the rest of a run is negligible beside many nodes."""

    node: NodeRuns
    profiled_s: float
    traced_s: float
    plain_s: float


def measure_overhead(bench: SessionBench) -> Overhead:
    """Measure the profiler's overhead on this machine, with the threads of the bench."""
    return fit([_measure(bench, *each, LENGTH) for each in CHAINS], _measure(bench, *CHAINS[0], 1))


def _measure(bench: SessionBench, inputs: int, rank: int, length: int) -> MeasuredChain:
    ran = bench.run(chain(inputs, rank, length), {"x": np.ones([1] * rank, np.float32)}, _BUDGET_S, optimized=False)
    nodes, times = ran.nodes(), ran.comparison
    profiled_s = float(np.median([node.median_us for node in nodes])) * 1e-6
    return MeasuredChain(nodes[-1], profiled_s, times.after_median_s / length, times.before_median_s / length)


def fit(chains: Sequence[MeasuredChain], one: MeasuredChain) -> Overhead:
    """The least-squares fit to chains, with no part below zero; `one`: a chain of one node. It assumes that the
    profiler does not slow down the work of a node itself."""
    rows = np.array([[1.0, each.node.tensors, each.node.extents] for each in chains])
    added_s = np.array([each.profiled_s - each.plain_s for each in chains])
    node_s, tensor_s, extent_s = map(float, np.maximum(np.linalg.lstsq(rows, added_s, rcond=None)[0], 0.0))
    after_s = max(float(np.median([each.traced_s - each.profiled_s for each in chains])), 0.0)
    within_s = node_s + one.node.tensors * tensor_s + one.node.extents * extent_s
    run_s = max(one.traced_s - one.plain_s - within_s - after_s, 0.0)
    return Overhead(node_s, tensor_s, extent_s, after_s, run_s, max(one.plain_s - chains[0].plain_s, 0.0))


def chain(inputs: int, rank: int, length: int = LENGTH) -> onnx.ModelProto:
    """A chain of nodes with `inputs` operands each, all of one number with `rank` dimensions: x: f32[1, ...] -> y."""
    operator, names = ("Identity" if inputs == 1 else "Sum"), ["x", *(f"v{k}" for k in range(length - 1)), "y"]
    pairs = itertools.pairwise(names)
    nodes = [helper.make_node(operator, [source, *["x"] * (inputs - 1)], [result]) for source, result in pairs]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1] * rank)] for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", *ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
