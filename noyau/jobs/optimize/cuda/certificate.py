"""The certificates of kernels on a GPU, made there, several at once: on tensors of the very shapes that torch saw.

The truth is torch's own nodes on tensors that are widened to float64, all casts among floats dropped; what is allowed
follows, cell by cell and by the one rule of noyau.verify.judges, from runs of those nodes as they are, and with their
inputs moved by an ulp; and where that is not enough, from some that keep more bits and are rounded otherwise. Every
cell is looked at for poison, so that none stays unwritten; as many as NumPy judges in little time are judged, among
them the first and the last.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from noyau.codegen.plan import Planned
from noyau.compiler.partition.cut import Group
from noyau.errors import BuildError, FindingKind, InputError
from noyau.frontends.torch.tensors import FROM_TORCH
from noyau.hosts.torch.cuda.device import guard, missing_device
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.cuda.guarded_memory import Fault, Flag, Room, answers, brought, differ, holds_poison
from noyau.hosts.torch.modules.device_inputs import PATTERNS, Drawer, other_sizes, perturb, sizes_of
from noyau.hosts.torch.modules.groups import order_of
from noyau.hosts.torch.modules.sites import TracedGraph, isolate, plain
from noyau.jobs.optimize.candidate import Candidate, certify
from noyau.jobs.optimize.cuda import candidates
from noyau.jobs.optimize.cuda.candidates import call_of
from noyau.jobs.optimize.cuda.wide_runs import WideInterpreter, rounded_runs
from noyau.jobs.optimize.pipeline import Say
from noyau.jobs.optimize.torch.candidates import CertifiedKernels, input_names
from noyau.kernels.certificates import certificate_key, recall_certificate
from noyau.ops.dispatch.winners import machine_of
from noyau.text import printable
from noyau.toolchain.guard_zones import PLAIN
from noyau.verify import judges
from noyau.verify.adversarial import FULL, Effort
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.failures import Case, Failure
from noyau.verify.judges import MORE_RUNS, MOVED_RUNS, Stage
from noyau.verify.jumps import stepped
from noyau.verify.rounding import DIRECTIONS, Direction

JUDGED = 1 << 15  # cells of an output that are judged in a case
ENDS = 1 << 10  # of them at either end
POISONS = (0, PLAIN)  # of the two runs of a case
MOST_AT_ONCE = 16  # threads: Triton's compiler works without Python's lock


@dataclass(frozen=True)
class DeviceTrial:
    """A kernel in its first place, and torch's nodes there; `ready` waits until it can be called."""

    call: DeviceCall
    group: Group
    source: TracedGraph
    ready: Callable[[], None] = lambda: None

    @cached_property
    def part(self) -> tuple[fx.GraphModule, list[fx.Node]]:
        """Torch's nodes alone, and what they read."""
        return isolate(self.source, self.group)

    @cached_property
    def orders(self) -> list[list[int] | None]:
        """Order in which the kernel writes the axes of each result."""
        return [order_of(self.source.givers[plain(name)].meta["val"]) for name in self.group.outputs]

    def certificate(self, drawer: Drawer, effort: Effort) -> Certificate:
        """Try every pattern, or of the first few where somebody waits; and of the first at other sizes, where
        sizes are names."""
        patterns = PATTERNS if effort == FULL else PATTERNS[:2]
        with torch.no_grad():
            drawn = ((pattern, drawer.drawn(pattern, number)) for number, pattern in enumerate(patterns))
            cases = enumerate(chain(drawn, self.elsewhere(drawer.device)))
            pairs = [self.outcome(Case(label, ()), inputs, number) for number, (label, inputs) in cases]
        outcomes, alike = zip(*pairs, strict=True)
        return Certificate(f"{self.call.name}[triton]", outcomes, made_up=True, order_independent=all(alike))

    def elsewhere(self, device: torch.device) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Inputs of sizes that torch did not see, but for those that its own nodes do not take."""
        if not sizes_of(self.group, self.source):
            return
        for sized in other_sizes(self.source):
            try:
                inputs = Drawer(self.group, self.source, device, sized).drawn(PATTERNS[0], 0)
                self.unfused(inputs)
            except torch.OutOfMemoryError:
                raise
            except (InputError, RuntimeError):
                continue
            yield f"{PATTERNS[0]}, of other sizes", inputs

    def outcome(self, case: Case, inputs: Mapping[str, Any], seed: int) -> tuple[Outcome, bool]:
        """One case, judged, and whether two runs of the kernel gave the same bits."""
        truth = self.truth(inputs)
        self.ready()
        results, faults = self.twice([inputs[name] for name in input_names(self.group)])
        if faults and faults[0].kind is not FindingKind.ORDER_DEPENDENT:
            failure = Failure(faults[0].kind, case.label, self.in_words(inputs), faults[0].note)
            return Outcome(case.label, False, failures=(failure,)), True
        return self.judged(case, inputs, results, truth, seed), not faults

    def twice(self, own: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], list[Fault]]:
        """The results of a run, and what two of them show to be wrong."""
        before = [each.clone() for each in own]
        room, other = map(Room, POISONS)
        results, again = self.run(own, room), self.run(own, other)
        moved = Fault(FindingKind.ORDER_DEPENDENT, "gave other bits in another run")
        moved_on = [(moved, differ(one, two)) for one, two in zip(results, again, strict=True)]
        mutated = [Fault(FindingKind.MUTATED_INPUT, f"changed its input {number}") for number in range(len(own))]
        changed = [(fault, differ(*pair)) for fault, *pair in zip(mutated, own, before, strict=True)]
        flags = [*room.flags(), *other.flags(), *changed, *_unwritten(results, again), *moved_on]
        return results, answers(flags)

    def run(self, own: Sequence[Tensor], room: Room) -> tuple[Tensor, ...]:
        """The results of the kernel in poisoned memory."""
        from noyau.hosts.torch.cuda.launch_records import TAPE

        with TAPE.holding(empty=room.empty):
            results = self.call.launcher.function(*self.call.in_memory(own))
        return results if isinstance(results, tuple) else (results,)

    def truth(self, inputs: Mapping[str, Any]) -> list[Tensor]:
        """Run torch's nodes in float64."""
        part, reads = self.part
        return self.in_order(WideInterpreter(part).run_on([inputs[node.name] for node in reads]))

    def unfused(self, inputs: Mapping[str, Any]) -> list[Tensor]:
        """Run torch's nodes as they are."""
        part, reads = self.part
        return self.in_order(part(*[inputs[node.name] for node in reads]))

    def in_order(self, result: Sequence[Tensor]) -> list[Tensor]:
        """Results with their axes as the kernel writes them."""
        pairs = zip(result, self.orders, strict=True)
        return [each if order is None else each.permute(order) for each, order in pairs]

    def judged(
        self, case: Case, inputs: Mapping[str, Any], results: Sequence[Tensor], truth: Sequence[Tensor], seed: int
    ) -> Outcome:
        """Cells of each output by the rule of all certificates."""
        noise = torch.Generator(results[0].device).manual_seed(seed)
        cells = [sample_cells(each.numel(), noise) for each in results]
        graph = self.group.original
        steps = stepped(graph)
        first = 1 + judges.first_runs(steps, graph.outputs)
        runs = map(cells_of, self.runs(inputs, noise), repeat(cells))  # no generator: it would keep what a run made
        gots, truths, *seen = _brought([cells_of(results, cells), cells_of(truth, cells), *islice(runs, first)])
        skipped = [np.zeros(len(where), bool) for where in cells]
        ends = zip(graph.outputs, gots, truths, skipped, strict=True)
        own = [judges.judge_of(graph[name], got, true, skip, name in steps, None) for name, got, true, skip in ends]
        rest = _later(runs, 1 + MOVED_RUNS - first)
        more = _later(runs, MORE_RUNS - MOVED_RUNS)
        longer = [
            Stage(
                _later(map(cells_of, self.longer_runs(inputs, which, noise), repeat(cells)), MORE_RUNS), judges.is_wrong
            )
            for which in (DIRECTIONS, [None] * MOVED_RUNS)
        ]
        stages = [Stage(seen), Stage(rest, judges.is_undecided), *longer, Stage(more, judges.is_rare)]
        outcome = judges.decide(case, self.in_words(inputs), own, iter(stages))
        names = map(printable, graph.outputs)
        return _placed(outcome, dict(zip(names, zip(cells, results, strict=True), strict=True)))

    def runs(self, inputs: Mapping[str, Any], noise: torch.Generator) -> Iterator[Sequence[Tensor]]:
        """Unfused runs, the first as it is, the others with their inputs moved."""
        yield self.unfused(inputs)
        while True:
            yield self.unfused({name: perturb(each, noise) for name, each in inputs.items()})

    def longer_runs(
        self, inputs: Mapping[str, Any], directions: Sequence[Direction | None], noise: torch.Generator
    ) -> Iterator[Sequence[Tensor]]:
        """Runs that keep more bits than torch's nodes do, as noyau.verify.rounding has them."""
        part, reads = self.part
        own = [inputs[node.name] for node in reads]
        return map(self.in_order, rounded_runs(part, own, self.group.original, directions, noise))

    def in_words(self, inputs: Mapping[str, Any]) -> str:
        """The inputs in words."""
        results = [(name, inputs[name]) for name in input_names(self.group)]
        return ", ".join(f"{name}: {FROM_TORCH[each.dtype].value}{list(each.shape)}" for name, each in results)


def _placed(outcome: Outcome, outputs: Mapping[str, tuple[Tensor, Tensor]]) -> Outcome:
    """The outcome of cells that were picked of each output, its failures at the places that they have in the result."""

    def placed(failure: Failure) -> Failure:
        if failure.cell is None:
            return failure
        where, result = outputs[failure.output]
        places = np.unravel_index(int(where[failure.cell[0]]), tuple(result.shape) or (1,))
        cell = tuple(map(int, places))[: result.dim()]
        return replace(failure, cell=cell, note=f"{failure.note}, of cells that were picked")

    return replace(outcome, failures=tuple(map(placed, outcome.failures)))


def _later(runs: Iterator[Sequence[Tensor]], count: int) -> Iterator[list[np.ndarray]]:
    """The cells of some more runs on the host, run when they are first read."""
    yield from _brought(list(islice(runs, count)))


def _brought(rows: Sequence[Sequence[Tensor]]) -> list[list[np.ndarray]]:
    """Tensors on the host, all at once."""
    arrays = iter(brought(list(chain.from_iterable(rows))))
    return [list(islice(arrays, len(row))) for row in rows]


def sample_cells(count: int, noise: torch.Generator) -> Tensor:
    """Places among so many cells: all where they are few, else the first, the last, and some between."""
    if count <= JUDGED:
        return torch.arange(count, device=noise.device)
    ends = torch.arange(ENDS, device=noise.device)
    between = torch.randint(count, (JUDGED - 2 * ENDS,), generator=noise, device=noise.device)
    return torch.cat([ends, between, count - 1 - ends])


def cells_of(result: Sequence[Tensor], cells: Sequence[Tensor]) -> list[Tensor]:
    """Pick cells of each result, counted in the order of its axes."""
    return [each.contiguous().reshape(-1)[where] for each, where in zip(result, cells, strict=True)]


def _unwritten(one: Sequence[Tensor], other: Sequence[Tensor]) -> Iterator[Flag]:
    """Flags of cells that were left as they were, in two runs whose memory held other poisons: no right value has the
    bits of both."""
    for number, pair in enumerate(zip(one, other, strict=True)):
        first, second = (holds_poison(each, which) for each, which in zip(pair, POISONS, strict=True))
        yield Fault(FindingKind.UNWRITTEN, f"left cells of its output {number} as they were"), (first & second).any()


def certify_all(
    kernels: Sequence[Planned],
    source: TracedGraph,
    device: torch.device,
    say: Say,
    effort: Effort = FULL,
    memory: CertifiedKernels | None = None,
) -> list[Candidate]:
    """Each kernel compiled and certified on the device, several at once; one that is wrong has the reason. BuildError
    where there is no device that Triton compiles for, and it does not interpret."""
    require_device(device)
    memory = memory or memory_of(_stamp(device))
    fresh, results = [kernel for kernel in kernels if memory.of(kernel, effort) is None], dict[str, Candidate]()
    if fresh:
        say(f"compiling and checking {len(fresh)} kernels on {device}")
        candidates.begin(fresh, source, device)
        # For what a key of any kernel holds and is kept: the machine, the device, digests of the files that certify.
        # Each thread would find them out for itself.
        certificate_key(_stamp(device), fresh[0].groups[0].original, (), True, 0)
        count = min(len(fresh), os.cpu_count() or 1, MOST_AT_ONCE) if device.type == "cuda" else 1
        with ThreadPoolExecutor(count) as pool:
            for one, stays in pool.map(lambda kernel: _certified(kernel, source, device, effort), fresh):
                results[one.planned.operator] = one
                if stays:
                    memory.keep(one, effort)
    return [memory.of(kernel, effort) or replace(results[kernel.operator], planned=kernel) for kernel in kernels]


def require_device(device: torch.device) -> None:
    """BuildError where nothing in Triton runs on a device."""
    from noyau.toolchain.triton.module import interprets

    if device.type == "cpu" and not interprets():
        remedy = "TRITON_INTERPRET=1, set before triton is imported, has them interpreted"
        raise BuildError(f"kernels in Triton run on a GPU; {remedy}")
    if lacks := missing_device(device):
        raise BuildError(lacks)


def _certified(kernel: Planned, source: TracedGraph, device: torch.device, effort: Effort) -> tuple[Candidate, bool]:
    """A kernel with its evidence, and whether that holds another time: memory may be there then."""
    candidate = Candidate(kernel)
    try:
        return certify(candidate, lambda: (_certificate(kernel, source, device, effort), "")), True
    except Exception as error:  # noqa: BLE001  of torch, or of Triton's compiler: its own share no other class
        stays = not isinstance(error, torch.OutOfMemoryError)
        return replace(candidate, reason=f"does not run: {first_line(error)}"), stays


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _certificate(kernel: Planned, source: TracedGraph, device: torch.device, effort: Effort) -> Certificate:
    group, call = kernel.groups[0], call_of(kernel, source)
    stamp = f"{kernel.text} {_stamp(device)} {sorted(sizes_of(group, source).items())} {effort}"
    key = certificate_key(stamp, group.original, (), True, 0)

    def judged() -> Certificate:
        with guard(device):
            trial = DeviceTrial(call, group, source, lambda: candidates.wait(kernel))
            return trial.certificate(Drawer(group, source, device), effort)

    return recall_certificate(key, f"{kernel.operator}[triton]", judged)


def machine_on(device: torch.device) -> str:
    """Facts of a device that a record depends on."""
    return "; ".join(machine_of(str(device))) if device.type == "cuda" else "Triton's interpreter"


@cache
def memory_of(stamp: str) -> CertifiedKernels:
    """The candidates of this process on such a device: where there are several kinds, of each by itself."""
    del stamp
    return CertifiedKernels()


@cache
def _stamp(device: torch.device) -> str:
    """The device, and a digest of the files that certify there."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{machine_on(device)} {code}"
