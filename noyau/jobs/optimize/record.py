"""The record of one optimisation, for `--json` and the terminal; the same for every host."""

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
from noyau.text import UNWRITTEN, collect, fields_json
from noyau.timing.conditions import Conditions, unsteady
from noyau.timing.machine import Machine
from noyau.timing.verdict import Latency, Verdict

if TYPE_CHECKING:
    import onnx

    from noyau.hosts.onnxruntime.source_model import SourceModel


@dataclass(frozen=True, slots=True)
class BindingRecord:
    """Timing at one binding of the sizes. `cold`: the speed-up with cold caches and its interval, if timed with them
    too; the verdict is over both. `ceiling`, of a whole model: about what fusing could gain there. `timed_on`: the day,
    of an earlier run if `recalled`. Latencies are of calls with warm caches."""

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
    """One kernel. `replaces`: the operators that it replaces in one of its `places`. `bytes` is what one call must
    move, `floor_ratio` the time of a copy of as many bytes over that of the kernel; errors are the worst against
    float64, over the largest value, of the kernel and of the unfused computation. None: not known. `reason`: why it is
    not kept. `bindings`: one record per binding of the sizes; the verdict is FASTER if one is and none is SLOWER, and
    the numbers are of the binding that decides it. `after_s` is the median time of a call, for the terminal alone."""

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
    after_s: float | None = field(default=None, metadata=UNWRITTEN)
    bindings: tuple[BindingRecord, ...] = ()

    @property
    def rate(self) -> float | None:
        """Bytes moved per second, if both are known."""
        return self.bytes / self.after_s if self.bytes is not None and self.after_s else None

    def to_json(self) -> dict[str, Any]:
        return fields_json(self)


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Seconds of the whole model: the median before, and that over the median ratio; all None if it was not timed, or
    is handed back unchanged: `reason` says why. `bindings`: one record per binding of the sizes; the other numbers are
    of the binding that decides the verdict.

    `apart`, for the terminal alone: the largest distance of the outputs of the fused model from the original's, over
    the largest; infinite if they differ by more than rounding."""

    before_s: float | None = None
    after_s: float | None = None
    verdict: Verdict | None = None
    speedup: float | None = None
    apart: float | None = field(default=None, metadata=UNWRITTEN)
    bindings: tuple[BindingRecord, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return fields_json(self)


@dataclass(frozen=True, slots=True)
class UnfusedNodes:
    """Nodes of the model that no kernel replaces, for one reason."""

    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class VariantRecord:
    """Weights of one product in a form of few bits. `errors`: the largest over the largest value of a row, against
    float64: on activations, and with a channel of every second row times 30 and 1000; empty if it was out before."""

    variant: str
    errors: tuple[float, ...] = ()
    bindings: tuple[BindingRecord, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProductRecord:
    """One product, by the name of its output. `variant`: the form of its weights, "" for the original float32;
    `reason`: why it is not in the fastest form; `errors_float32`: as `errors` of a variant; `variants`: all tried."""

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
    """Weights in few bits: the options, and the model with them against float32: the largest `error` of its outputs
    over the largest, the `flips` in `rows` of tokens, the least `margin` of the other rows over the largest output, and
    the flips of further tokens that the choice did not rest on. `reason`: why none is changed."""

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
    """A graph that torch captured: inference, forward or backward; its outcome; how a call's time splits, if known."""

    kind: str
    whole: str
    wall: Wall | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Data for the page of a report alone. Every host: the kernels with sources and certificates, in the order of their
    records. onnxruntime: the original model, its groups and plan, and the model with the kept kernels. torch: drawings
    of each kind of graph before and after."""

    candidates: tuple[Candidate, ...]
    original: SourceModel | None = None
    partition: Partition | None = None
    plan: Plan | None = None
    after: onnx.ModelProto | None = None
    drawings: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class Report(PagedRecord):
    """Report on a model; prints itself. `ceiling`: about what fusing could gain for the whole model if each kernel ran
    at its floor (Amdahl) and the rest as before. `inputs`: a line on each input, on its source or its synthesis.
    `conditions`: the machine's before and after. `weights`: the record of weights in few bits, if asked for; `graphs`:
    of a torch module, each that was captured; `evidence`: for a page alone; `written`: a text on the files that were
    written, for the terminal alone."""

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
    evidence: Evidence | None = field(default=None, compare=False, metadata=UNWRITTEN)
    written: str = field(default="", metadata=UNWRITTEN)

    @property
    def doubts(self) -> str:
        """A change of the machine that makes the times doubtful, with advice; or an empty text."""
        timings = any(kernel.verdict is not None for kernel in self.kernels)
        message = unsteady(*self.conditions, self.machine.cores) if timings and self.conditions else ""
        advice = "end other work on this machine and run it again with --fresh"
        return f"the times are doubtful: {message}; {advice}" if message else ""

    @property
    def kept(self) -> tuple[KernelRecord, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.kept)

    @property
    def is_changed(self) -> bool:
        """Whether the model differs from the original."""
        return bool(self.kept or (self.weights and self.weights.changed))

    def to_json(self) -> dict[str, Any]:
        without = [name for name in ("weights", "graphs") if not getattr(self, name)]
        return {"schema_version": self.schema_version, **fields_json(self, without)}


def record(candidate: Candidate) -> KernelRecord:
    """The record of one kernel; the numbers are of the binding that decides its verdict."""
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
    hot, cold = timing.hot, timing.cold
    ratio = (timing.verdict, hot.speedup, hot.low, hot.high, timing.floor_ratio, *hot.medians_s)
    cold_ratio = None if cold is None else (cold.speedup, cold.low, cold.high)
    return BindingRecord(timing.sizes, *ratio, cold_ratio, None, timing.timed_on, timing.recalled, *hot.latencies)


def not_fused(nodes: Iterable[tuple[str, str]]) -> tuple[UnfusedNodes, ...]:
    """The nodes that no kernel replaces, grouped by reason; each comes with its reason."""
    reasons = collect((reason, node) for node, reason in nodes)
    return tuple(UnfusedNodes(tuple(names), reason) for reason, names in reasons.items())


def uncovered_nodes(names: Sequence[str], partition: Partition, plan: Plan) -> Iterator[tuple[str, str]]:
    """The nodes in no kernel, by their names, with the reasons; positions beyond `names` are left out."""
    covered = {position for kernel in plan.kernels for group in kernel.groups for position in group.positions}
    reasons: dict[str, set[int]] = defaultdict(set)
    for cut in partition.cuts:
        if cut.consumer is None and cut.producer not in covered:
            reasons[cut.reason].add(cut.producer)
    for group, reason in plan.refused:
        reasons[reason].update(group.positions)
    for reason, positions in reasons.items():
        yield from ((names[position], reason) for position in sorted(positions) if position < len(names))
