"""The record of one optimisation, as `--json` writes it and the terminal shows it; alike for every host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, decisive, overall
from noyau.jobs.profile.record import Wall
from noyau.jobs.report.text import PagedRecord
from noyau.text import collect, fields_json
from noyau.timing.conditions import Conditions, unsteady
from noyau.timing.machine import Machine
from noyau.timing.verdict import Latency, Verdict

if TYPE_CHECKING:
    import onnx

    from noyau.hosts.onnxruntime.source_model import SourceModel


@dataclass(frozen=True, slots=True)
class BindingRecord:
    """Timing at one binding of the sizes. `cold`: the speed-up with cold caches and its interval, where it
    was timed with them too; the verdict is of both. `ceiling`, of a whole model: what fusing could gain there, about.
    `timed_on`: the day, of an earlier run where it is `recalled`. Latencies are of calls with warm caches."""

    sizes: Mapping[str, int]
    verdict: Verdict
    speedup: float
    low: float
    high: float
    floor_ratio: float | None = None
    before_s: float | None = None
    after_s: float | None = None
    cold: tuple[float, float, float] | None = None
    ceiling: float | None = None
    timed_on: str = ""
    recalled: bool = False
    latency_before: Latency | None = None
    latency_after: Latency | None = None


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One kernel. `replaces`: the operators that it stands for, in one of its `places`. `bytes` is what one call must
    move, `floor_ratio` the time of a copy of so many over that of the kernel; errors are the worst against float64,
    over the largest value, of the kernel and of the unfused computation. None: not known. `reason`: why it is not kept.
    `bindings`: what came of each binding of the sizes; the verdict is FASTER where it is at one and SLOWER at none, and
    the numbers are of the binding that it rests on. `after_s` is the median time of a call, for the terminal alone."""

    name: str
    places: int
    replaces: tuple[str, ...]
    language: str
    verdict: Verdict | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    bytes: int | None = None
    floor_ratio: float | None = None
    error: float | None = None
    error_unfused: float | None = None
    kept: bool = False
    reason: str = ""
    after_s: float | None = None
    bindings: tuple[BindingRecord, ...] = ()

    @property
    def rate(self) -> float | None:
        """Bytes moved per second, where both are known."""
        return self.bytes / self.after_s if self.bytes is not None and self.after_s else None

    def to_json(self) -> dict[str, Any]:
        return fields_json(self, without=("after_s",))


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Seconds of the whole model: the median before, and what the median ratio makes of it; all None where it was not
    timed, or handed back as it was: `reason` says why. `bindings`: what came of each binding of the sizes; the other
    numbers are of the one that the verdict rests on.

    `apart`, for the terminal alone: how far the outputs of the fused model are from those of the original at most, over
    the largest; infinite where they differ in more than rounding."""

    before_s: float | None = None
    after_s: float | None = None
    verdict: Verdict | None = None
    speedup: float | None = None
    apart: float | None = None
    bindings: tuple[BindingRecord, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return fields_json(self, without=("apart",))


@dataclass(frozen=True, slots=True)
class UnfusedNodes:
    """Nodes of the model that no kernel replaces, for one reason."""

    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class VariantRecord:
    """Weights of one product in a form of few bits. `errors`: the largest over the largest value of a row, against
    float64: on activations, and with a channel of every second row times 30 and 1000; empty where it was out before."""

    variant: str
    errors: tuple[float, ...] = ()
    bindings: tuple[BindingRecord, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProductRecord:
    """One product, by what it makes. `variant`: the form of its weights, "" for float32 as they were; `reason`: why it
    is not in the fastest form; `errors_float32` as those of a variant; `variants`: all that were tried."""

    name: str
    shape: tuple[int, ...]
    variant: str = ""
    reason: str = ""
    errors_float32: tuple[float, ...] = ()
    variants: tuple[VariantRecord, ...] = ()

    @property
    def chosen(self) -> VariantRecord | None:
        return next((each for each in self.variants if each.variant == self.variant), None)


@dataclass(frozen=True, slots=True)
class WeightRecord:
    """Weights in few bits: what was asked for, and of the model with them, beside float32: the largest error of its
    outputs over the largest, so many flips in `rows` of tokens, the least margin of the other rows over the largest
    output, and the flips of further tokens that the choice did not rest on. `reason`: why none is."""

    weights: str
    budget: str
    products: tuple[ProductRecord, ...]
    error: float = 0.0
    rows: int = 0
    flips: int = 0
    margin: float | None = None
    rows_beyond: int = 0
    flips_beyond: int = 0
    reason: str = ""

    @property
    def changed(self) -> tuple[ProductRecord, ...]:
        return tuple(each for each in self.products if each.variant)


@dataclass(frozen=True, slots=True)
class GraphSplit:
    """A graph that torch captured: inference, forward or backward; how a call splits, if measured; what came of it."""

    kind: str
    whole: str
    wall: Wall | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """For the page of a report alone: its kernels with sources and certificates, each as often as a record of them; of
    a model in onnxruntime, it as it came, its groups, and the model with the kernels that are kept; of a module of
    torch, drawings of each kind of graph before and after."""

    candidates: tuple[Candidate, ...]
    original: SourceModel | None = None
    partition: Partition | None = None
    plan: Plan | None = None
    after: onnx.ModelProto | None = None
    drawings: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class Report(PagedRecord):
    """Report on a model; prints itself. `ceiling`: about what fusing could gain for the whole model, were each kernel
    at its floor (Amdahl) and all else as it was. `inputs`: a line on each, where it came from or how it was made up.
    `conditions`: how the machine was before and after. `weights`: what came of weights in few bits, where asked for;
    `graphs`: of a module of torch, each that was captured; `evidence`: for a page alone;
    `written`: the files that were written, in words, for the terminal alone."""

    machine: Machine
    model: str
    nodes_before: int
    nodes_after: int
    ceiling: float | None = None
    kernels: tuple[KernelRecord, ...] = ()
    end_to_end: EndToEnd = EndToEnd()
    not_fused: tuple[UnfusedNodes, ...] = ()
    inputs: tuple[str, ...] = ()
    conditions: tuple[Conditions, Conditions] | tuple[()] = ()
    weights: WeightRecord | None = None
    graphs: tuple[GraphSplit, ...] = ()
    evidence: Evidence | None = field(default=None, compare=False)
    written: str = ""

    @property
    def doubts(self) -> str:
        """Change of the machine that makes the times doubtful, and what to do; or nothing."""
        timings = any(kernel.verdict is not None for kernel in self.kernels)
        message = unsteady(*self.conditions, self.machine.cores) if timings and self.conditions else ""
        advice = "end other work on this machine and run it again with --fresh"
        return f"the times are doubtful: {message}; {advice}" if message else ""

    @property
    def kept(self) -> tuple[KernelRecord, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.kept)

    @property
    def is_changed(self) -> bool:
        """Whether the model is another one than before."""
        return bool(self.kept or (self.weights and self.weights.changed))

    def to_json(self) -> dict[str, Any]:
        without = ["evidence", "written", *(name for name in ("weights", "graphs") if not getattr(self, name))]
        return {"schema_version": self.schema_version, **fields_json(self, without)}


def record(candidate: Candidate) -> KernelRecord:
    """One kernel's line; the numbers are of the binding that its verdict rests on."""
    planned, exact, decider = candidate.planned, candidate.certificate, decisive(candidate.timings)
    numbers: dict[str, Any] = {}
    if exact is not None:
        numbers |= {"error": exact.kernel.worst_relative, "error_unfused": exact.unfused.worst_relative}
    if decider is not None:
        ratio, verdict = decider.comparison, overall(timing.verdict for timing in candidate.timings)
        numbers |= {"verdict": verdict, "speedup": ratio.speedup, "speedup_low": ratio.low, "speedup_high": ratio.high}
        numbers |= {"floor_ratio": decider.floor_ratio, "after_s": decider.hot.after_median_s}
        numbers |= {"bytes": None if decider.traffic is None else decider.traffic.bytes}
    own, bindings = (planned.operator, len(planned.groups), planned.replaces), tuple(map(binding, candidate.timings))
    numbers |= {"kept": candidate.kept, "reason": candidate.reason, "bindings": bindings}
    return KernelRecord(*own, planned.language, **numbers)


def binding(timing: BindingTiming) -> BindingRecord:
    """Record of one binding."""
    hot, cold = timing.hot, timing.cold
    ratio = (timing.verdict, hot.speedup, hot.low, hot.high, timing.floor_ratio, *hot.medians_s)
    cold_ratio = None if cold is None else (cold.speedup, cold.low, cold.high)
    return BindingRecord(timing.sizes, *ratio, cold_ratio, None, timing.timed_on, timing.recalled, *hot.latencies)


def not_fused(nodes: Iterable[tuple[str, str]]) -> tuple[UnfusedNodes, ...]:
    """The nodes that no kernel replaces, given each with its reason, by reason."""
    reasons = collect((reason, node) for node, reason in nodes)
    return tuple(UnfusedNodes(tuple(names), reason) for reason, names in reasons.items())


def uncovered_nodes(names: Sequence[str], partition: Partition, plan: Plan) -> Iterator[tuple[str, str]]:
    """The nodes that are in no kernel, by their names, with the reasons; none beyond `names`."""
    covered = {position for kernel in plan.kernels for group in kernel.groups for position in group.positions}
    reasons: dict[str, set[int]] = defaultdict(set)
    for cut in partition.cuts:
        if cut.consumer is None and cut.producer not in covered:
            reasons[cut.reason].add(cut.producer)
    for group, reason in plan.refused:
        reasons[reason].update(group.positions)
    for reason, positions in reasons.items():
        yield from ((names[position], reason) for position in sorted(positions) if position < len(names))
