"""Each kernel judged: is it right, and does it win? Kernels that do not are dropped, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.builders import cc
from noyau.builders.native import Native, Order
from noyau.checking.adversarial import cases
from noyau.checking.certificate import Certificate
from noyau.checking.native import certify_native
from noyau.checking.values import Case
from noyau.ir.graph import Constant, Graph
from noyau.passes.partition import Group
from noyau.planning import Planned
from noyau.runtimes.extract import extract
from noyau.runtimes.onnxruntime import open_session
from noyau.runtimes.putting_back import library, put_back, value_type
from noyau.timing.comparing import Comparison, Verdict, compare
from noyau.timing.onnxruntime_pairs import bound_run

if TYPE_CHECKING:
    import onnx

LARGEST = 1 << 28  # bytes of captured inputs that a check takes in


@dataclass(frozen=True, slots=True)
class Judged:
    """A kernel with its evidence: the certificate, the comparison where it came to one, and whether it is kept."""

    planned: Planned
    certificate: Certificate
    comparison: Comparison | None = None
    kept: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Arrays by the model's names: captured ones, inputs and initializers; `made_up` where the model's inputs were."""

    arrays: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    made_up: bool

    def of(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        return {name: self.arrays[name] for name in names}


@dataclass(frozen=True, slots=True)
class Respelled:
    """A built kernel that takes the inputs of the original graph: scalars that are constants there are given to it."""

    native: Native
    original: Graph
    graph: Graph

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        known = {n.output: n.kind.value for n in self.original.nodes if isinstance(n.kind, Constant)}
        given = {**known, **{n.output: a for n, a in zip(self.original.inputs, arrays, strict=True)}}
        wanted = [given[node.output] for node in self.graph.inputs]
        return self.native.call_guarded(*wanted, pieces=pieces, order=order)


def certified(planned: Planned, seen: Seen, options: cc.Options, seed: int) -> Judged:
    """The kernel with its certificate, against the graph as the model spells it."""
    path = cc.compile_library([planned.text], replace(options, export=True))
    native, first = Native(path, f"{planned.operator}_kernel"), planned.groups[0]
    rng = np.random.default_rng(seed)
    trials = [*captured_cases(planned.groups, seen), *cases(first.original, sizes_of(first, seen), rng)]
    kernel = Respelled(native, first.original, first.graph)
    certificate = certify_native(first.original, kernel, trials, name=f"{planned.operator}[c]", made_up=seen.made_up)
    reason = "" if certificate.ok else f"wrong: {certificate.summary()}"
    return Judged(planned, certificate, reason=reason)


def captured_cases(groups: Sequence[Group], seen: Seen) -> Iterable[Case]:
    """What the kernel reads in its first and in its last place."""
    for group in groups if len(groups) < 2 else (groups[0], groups[-1]):
        arrays = [seen.arrays[node.output] for node in group.original.inputs]
        if sum(array.nbytes for array in arrays) <= LARGEST:
            yield Case(f"captured at {', '.join(group.outputs)}"[:80], tuple(arrays), captured=True)


def sizes_of(group: Group, seen: Seen) -> dict[str, int]:
    wanted = {name for node in group.original.nodes for dim in node.shape for name in dim.names}
    return {name: seen.sizes[name] for name in wanted if name in seen.sizes}


def timed(
    judged: Judged, model: onnx.ModelProto, folder: Path, seen: Seen, options: cc.Options, keep: str, threads: int, budget_s: float
) -> Judged:
    """The kernel timed in onnxruntime against the operators that it replaces, and kept or not."""
    if judged.reason:
        return judged
    planned = judged.planned
    group = planned.groups[0]
    one = replace(planned, groups=(group,))
    fused = put_back(model, [one], folder)
    types = {node.output: value_type(node) for node in group.graph.nodes}
    position = next(k for k, node in enumerate(fused.graph.node) if node.op_type == planned.operator)
    read = [name for name in fused.graph.node[position].input if name in seen.arrays]
    before = extract(model, group.positions, read, group.outputs, types)
    after = extract(fused, [position], read, group.outputs, types)
    built = library([one], options)
    runs = [
        bound_run(open_session(part.SerializeToString(), lib, threads=threads, folder=folder), seen.of(read))
        for part, lib in ((before, None), (after, built))
    ]
    comparison = compare(*runs, budget_s=budget_s)
    return verdict(replace(judged, comparison=comparison), keep)


def verdict(judged: Judged, keep: str) -> Judged:
    """Kept, or the reason why not."""
    assert judged.comparison is not None
    found = judged.comparison.verdict
    wanted = {
        "faster": {Verdict.FASTER},
        "not-slower": {Verdict.FASTER, Verdict.SAME, Verdict.AMBIGUOUS},
        "all": set(Verdict),
    }[keep]
    reason = "" if found in wanted else f"{found.value.lower()}: {judged.comparison.speedup:.2f}x"
    return replace(judged, kept=found in wanted, reason=reason)


def timed_whole(
    model: onnx.ModelProto,
    fused: onnx.ModelProto,
    built: Path | None,
    folder: Path,
    inputs: Mapping[str, np.ndarray],
    threads: int,
    budget_s: float,
) -> Comparison | None:
    """The whole model before and after, both with all of onnxruntime's optimizations; None where nothing is fused."""
    if built is None:
        return None
    runs = [
        bound_run(open_session(part.SerializeToString(), lib, threads=threads, folder=folder), inputs)
        for part, lib in ((model, None), (fused, built))
    ]
    return compare(*runs, budget_s=budget_s)
