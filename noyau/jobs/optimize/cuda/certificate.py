"""Certificates of kernels on a GPU, made there, several at once: on tensors of the very shapes that torch saw.

The reference is torch's own nodes on tensors widened to float64, without casts among floats. The allowance of each
cell, by the rule of noyau.verify.judges, comes from runs of those nodes unchanged, and with their inputs moved by an
ulp; if that does not suffice, from runs with more bits and other rounding. Every cell is searched for poison, so that
none stays unwritten; as many cells as NumPy judges in little time are judged, among them the first and the last."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice, product, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from noyau.codegen.plan import PlannedKernel
from noyau.compiler.partition.cut import Group
from noyau.errors import BuildError, FindingKind, InputError, first_line
from noyau.frontends.torch.tensors import FROM_TORCH, TO_TORCH
from noyau.hosts.torch.cuda.device import guard, missing_device
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.cuda.guarded_memory import Fault, Flag, Room, answers, differ, holds_poison, to_host
from noyau.hosts.torch.modules.device_inputs import PATTERNS, Drawer, other_sizes, perturb, sizes_of
from noyau.hosts.torch.modules.groups import order_of
from noyau.hosts.torch.modules.sites import TracedGraph, isolate, plain
from noyau.ir.operators import OPERATORS, Fact
from noyau.jobs.optimize.cuda import candidates
from noyau.jobs.optimize.cuda.candidates import call_of
from noyau.jobs.optimize.pipeline import Candidate, Say, certify
from noyau.jobs.optimize.torch.candidates import CertifiedKernels, input_names
from noyau.kernels.certificates import certificate_key, recall_certificate
from noyau.ops.dispatch.choice import machine_of
from noyau.text import printable
from noyau.toolchain.guard_zones import PLAIN
from noyau.verify import judges
from noyau.verify.adversarial import FULL, Effort
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.failures import Case, Failure
from noyau.verify.judges import MORE_RUNS, MOVED_RUNS, Stage
from noyau.verify.rounding import DIRECTIONS, LONG, Direction, rounding_loss, shortest_of, step_values

JUDGED = 1 << 15  # the most cells of an output that a case judges
ENDS = 1 << 10  # judged cells at either end
POISONS = (0, PLAIN)  # of the two runs of a case
MOST_AT_ONCE = 16  # threads: Triton's compiler releases Python's lock
Inputs = Mapping[str, Any]
Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class DeviceTrial:
    """A kernel in its first place, and torch's nodes there; `ready` waits until the kernel can be called."""

    call: DeviceCall
    group: Group
    source: TracedGraph
    ready: Callable[[], None] = lambda: None

    @cached_property
    def part(self) -> tuple[fx.GraphModule, list[fx.Node]]:
        """Torch's nodes as a module of their own, and the nodes that it reads."""
        return isolate(self.source, self.group)

    @cached_property
    def orders(self) -> list[list[int] | None]:
        """The order in which the kernel writes the axes of each result."""
        return [order_of(self.source.givers[plain(name)].meta["val"]) for name in self.group.outputs]

    def certificate(self, drawer: Drawer, effort: Effort) -> Certificate:
        """Try every pattern, with less effort only two; and the first at other sizes, if any size is symbolic."""
        patterns = PATTERNS if effort == FULL else PATTERNS[:2]
        with torch.no_grad():
            drawn = ((pattern, drawer.draw(pattern, number)) for number, pattern in enumerate(patterns))
            cases = enumerate(chain(drawn, self.elsewhere(drawer.device)))
            pairs = [self.outcome(Case(label, ()), inputs, number) for number, (label, inputs) in cases]
        outcomes, alike = zip(*pairs, strict=True)
        return Certificate(f"{self.call.name}[triton]", outcomes, made_up=True, order_independent=all(alike))

    def elsewhere(self, device: torch.device) -> Iterator[tuple[str, Inputs]]:
        """Inputs of sizes that torch did not see, except those that torch's nodes refuse."""
        if not sizes_of(self.group, self.source):
            return
        for sized in other_sizes(self.source):
            try:
                inputs = Drawer(self.group, self.source, device, sized).draw(PATTERNS[0], 0)
                self.run_unfused(inputs)
            except torch.OutOfMemoryError:
                raise
            except (InputError, RuntimeError):
                continue
            yield f"{PATTERNS[0]}, of other sizes", inputs

    def outcome(self, case: Case, inputs: Inputs, seed: int) -> tuple[Outcome, bool]:
        """One case, judged, and whether two runs of the kernel gave the same bits."""
        truth = self.truth(inputs)
        self.ready()
        results, faults = self.twice([inputs[name] for name in input_names(self.group)])
        if faults and faults[0].kind is not FindingKind.ORDER_DEPENDENT:
            failure = Failure(faults[0].kind, case.label, self.in_words(inputs), faults[0].note)
            return Outcome(case.label, False, failures=(failure,)), True
        return self.judge(case, inputs, results, truth, seed), not faults

    def twice(self, own: Tensors) -> tuple[tuple[Tensor, ...], list[Fault]]:
        """The results of a first run, and the faults that it and a second one show."""
        before = [each.clone() for each in own]
        room, other = map(Room, POISONS)
        results, again = self.run(own, room), self.run(own, other)
        moved = Fault(FindingKind.ORDER_DEPENDENT, "gave other bits in another run")
        moved_on = [(moved, differ(one, two)) for one, two in zip(results, again, strict=True)]
        mutated = [Fault(FindingKind.MUTATED_INPUT, f"changed its input {number}") for number in range(len(own))]
        changed = [(fault, differ(*pair)) for fault, *pair in zip(mutated, own, before, strict=True)]
        return results, answers([*room.flags(), *other.flags(), *changed, *_unwritten(results, again), *moved_on])

    def run(self, own: Tensors, room: Room) -> tuple[Tensor, ...]:
        from noyau.hosts.torch.cuda.launch_records import TAPE

        with TAPE.holding(empty=room.empty):
            results = self.call.launcher.function(*self.call.in_memory(own))
        return results if isinstance(results, tuple) else (results,)

    def truth(self, inputs: Inputs) -> list[Tensor]:
        """Run torch's nodes in float64."""
        part, reads = self.part
        return self.in_order(WideInterpreter(part).run_on([inputs[node.name] for node in reads]))

    def run_unfused(self, inputs: Inputs) -> list[Tensor]:
        part, reads = self.part
        return self.in_order(part(*[inputs[node.name] for node in reads]))

    def in_order(self, result: Tensors) -> list[Tensor]:
        """Results with their axes in the order in which the kernel writes them."""
        return [each if order is None else each.permute(order) for each, order in zip(result, self.orders, strict=True)]

    def judge(self, case: Case, inputs: Inputs, results: Tensors, truth: Tensors, seed: int) -> Outcome:
        """Judge cells of each output by the rule of all certificates."""
        noise = torch.Generator(results[0].device).manual_seed(seed)
        cells = [sample_cells(each.numel(), noise) for each in results]
        graph = self.group.original
        steps = step_values(graph)
        first = 1 + judges.first_runs(steps, graph.outputs)
        runs = map(cells_of, self.runs(inputs, noise), repeat(cells))  # a generator would keep a run's tensors alive
        gots, truths, *seen = _to_host([cells_of(results, cells), cells_of(truth, cells), *islice(runs, first)])
        ends = zip(graph.outputs, gots, truths, [np.zeros(len(where), bool) for where in cells], strict=True)
        own = [judges.judge_of(graph[name], got, true, skip, name in steps, None) for name, got, true, skip in ends]
        rest = _later(runs, 1 + MOVED_RUNS - first)
        more = _later(runs, MORE_RUNS - MOVED_RUNS)
        more_bits = (self.longer_runs(inputs, which, noise) for which in (DIRECTIONS, [None] * MOVED_RUNS))
        longer = [Stage(_later(map(cells_of, each, repeat(cells)), MORE_RUNS), judges.is_wrong) for each in more_bits]
        stages = [Stage(seen), Stage(rest, judges.is_undecided), *longer, Stage(more, judges.is_rare)]
        outcome = judges.decide(case, self.in_words(inputs), own, iter(stages))
        names = map(printable, graph.outputs)
        return _place_failures(outcome, dict(zip(names, zip(cells, results, strict=True), strict=True)))

    def runs(self, inputs: Inputs, noise: torch.Generator) -> Iterator[Tensors]:
        """Unfused runs: the first with unchanged inputs, the others with inputs moved by an ulp."""
        yield self.run_unfused(inputs)
        while True:
            yield self.run_unfused({name: perturb(each, noise) for name, each in inputs.items()})

    def longer_runs(
        self, inputs: Inputs, directions: Sequence[Direction | None], noise: torch.Generator
    ) -> Iterator[Tensors]:
        """Runs with more bits than torch's nodes keep, as in noyau.verify.rounding: in float32, unless all floats are
        longer, and in float64, one for each direction."""
        (part, reads), shortest = self.part, shortest_of(self.group.original)
        own = [inputs[node.name] for node in reads]
        for width, direction in product((TO_TORCH[each] for each in LONG if each.bytes >= shortest), directions):
            yield self.in_order(RoundingInterpreter(part, width, noise, direction).run_on(own))

    def in_words(self, inputs: Inputs) -> str:
        results = [(name, inputs[name]) for name in input_names(self.group)]
        return ", ".join(f"{name}: {FROM_TORCH[each.dtype].value}{list(each.shape)}" for name, each in results)


def _place_failures(outcome: Outcome, outputs: Mapping[str, tuple[Tensor, Tensor]]) -> Outcome:
    """The outcome of sampled cells, with each failure at its cell of the whole result."""

    def placed(failure: Failure) -> Failure:
        if failure.cell is None:
            return failure
        where, result = outputs[failure.output]
        places = np.unravel_index(int(where[failure.cell[0]]), tuple(result.shape) or (1,))
        cell = tuple(map(int, places))[: result.dim()]
        return replace(failure, cell=cell, note=f"{failure.note}, of cells that were picked")

    return replace(outcome, failures=tuple(map(placed, outcome.failures)))


def _later(runs: Iterator[Tensors], count: int) -> Iterator[list[np.ndarray]]:
    """Sampled cells of the next `count` runs, on the host; they run on first use."""
    yield from _to_host(list(islice(runs, count)))


def _to_host(rows: Sequence[Tensors]) -> list[list[np.ndarray]]:
    """Tensors on the host, in one transfer."""
    arrays = iter(to_host(list(chain.from_iterable(rows))))
    return [list(islice(arrays, len(row))) for row in rows]


def sample_cells(count: int, noise: torch.Generator) -> Tensor:
    """Indices among `count` cells: all if they are few, otherwise the first, the last, and random ones between."""
    if count <= JUDGED:
        return torch.arange(count, device=noise.device)
    ends = torch.arange(ENDS, device=noise.device)
    between = torch.randint(count, (JUDGED - 2 * ENDS,), generator=noise, device=noise.device)
    return torch.cat([ends, between, count - 1 - ends])


def cells_of(result: Tensors, cells: Tensors) -> list[Tensor]:
    """The sampled cells of each result, indexed in the order of its axes."""
    return [each.contiguous().reshape(-1)[where] for each, where in zip(result, cells, strict=True)]


def _unwritten(one: Tensors, other: Tensors) -> Iterator[Flag]:
    """Flags of cells that two runs with different poisons left unwritten: no written value has the bits of both."""
    for number, pair in enumerate(zip(one, other, strict=True)):
        first, second = (holds_poison(each, which) for each, which in zip(pair, POISONS, strict=True))
        yield Fault(FindingKind.UNWRITTEN, f"left cells of its output {number} as they were"), (first & second).any()


def certify_all(
    kernels: Sequence[PlannedKernel],
    source: TracedGraph,
    device: torch.device,
    say: Say,
    effort: Effort = FULL,
    memory: CertifiedKernels | None = None,
) -> list[Candidate]:
    """Compile and certify each kernel on the device, several at once; a wrong one has the reason. BuildError if there
    is no device that Triton compiles for, and Triton does not interpret."""
    require_device(device)
    memory = memory or memory_of(_stamp(device))
    fresh, results = [kernel for kernel in kernels if memory.of(kernel, effort) is None], dict[str, Candidate]()
    if fresh:
        say(f"compiling and checking {len(fresh)} kernels on {device}")
        # Fills the caches that every key reads (machine, device, digests of the certifying files), which otherwise
        # each thread would fill for itself.
        certificate_key(_stamp(device), fresh[0].groups[0].original, (), True, 0)
        count = min(len(fresh), os.cpu_count() or 1, MOST_AT_ONCE) if device.type == "cuda" else 1
        with ThreadPoolExecutor(count) as pool:
            for one, stays in pool.map(lambda kernel: _certify(kernel, source, device, effort), fresh):
                results[one.planned.operator] = one
                if stays:
                    memory.keep(one, effort)
    return [memory.of(kernel, effort) or replace(results[kernel.operator], planned=kernel) for kernel in kernels]


def require_device(device: torch.device) -> None:
    """BuildError if nothing in Triton runs on a device."""
    from noyau.toolchain.triton.module import interprets

    if device.type == "cpu" and not interprets():
        remedy = "TRITON_INTERPRET=1, set before triton is imported, has them interpreted"
        raise BuildError(f"kernels in Triton run on a GPU; {remedy}")
    if lacks := missing_device(device):
        raise BuildError(lacks)


def _certify(
    kernel: PlannedKernel, source: TracedGraph, device: torch.device, effort: Effort
) -> tuple[Candidate, bool]:
    """A kernel with its evidence, and whether to keep it: running out of memory says nothing about a later attempt."""
    candidate = Candidate(kernel)
    try:
        return certify(candidate, lambda: (_certificate(kernel, source, device, effort), "")), True
    except Exception as error:  # noqa: BLE001  errors of torch and of Triton's compiler share no other class
        stays = not isinstance(error, torch.OutOfMemoryError)
        return replace(candidate, reason=f"does not run: {first_line(error)}"), stays


def _certificate(kernel: PlannedKernel, source: TracedGraph, device: torch.device, effort: Effort) -> Certificate:
    group, call = kernel.groups[0], call_of(kernel, source)
    stamp = f"{kernel.text} {_stamp(device)} {sorted(sizes_of(group, source).items())} {effort}"
    key = certificate_key(stamp, group.original, (), True, 0)

    def judged() -> Certificate:
        with guard(device):
            trial = DeviceTrial(call, group, source, lambda: candidates.wait(kernel))
            return trial.certificate(Drawer(group, source, device), effort)

    return recall_certificate(key, f"{kernel.operator}[triton]", judged)


def machine_on(device: torch.device) -> str:
    """The facts of a device that a record depends on."""
    return "; ".join(machine_of(str(device))) if device.type == "cuda" else "Triton's interpreter"


@cache
def memory_of(stamp: str) -> CertifiedKernels:
    """The candidates of this process on such a device, kept apart for each kind of device."""
    del stamp
    return CertifiedKernels()


@cache
def _stamp(device: torch.device) -> str:
    """The device, and a digest of the files that certify there."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{machine_on(device)} {code}"


_HALF_TO_FLOAT = (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default)
_ROUNDING = [each for each in OPERATORS.values() if Fact.ROUNDS in each.facts or each.ulp > 0]
ROUNDING = frozenset(name for each in _ROUNDING for name in each.names.torch.split())
BELOW_ONE, LEAVES_ONE = (
    frozenset(name for each in _ROUNDING if fact in each.facts for name in each.names.torch.split())
    for fact in (Fact.BELOW_ONE, Fact.LEAVES_ONE)
)
_BITS = 20  # a float64 result whose last 20 bits are all 0 is taken for exact


class WideInterpreter(fx.Interpreter):  # type: ignore[misc]  # torch's class has no types
    """The nodes of a part on tensors of a float width: casts to shorter floats become casts to that width."""

    def __init__(self, part: fx.GraphModule, width: torch.dtype = torch.float64) -> None:
        super().__init__(part)
        self.width = width

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(self.widen, (args, kwargs))
        if target in _HALF_TO_FLOAT:
            args = (*args[:2], False)
        return super().call_function(target, args, kwargs)

    def widen(self, value: Any) -> Any:
        is_short = isinstance(value, torch.dtype) and value.is_floating_point and value.itemsize < self.width.itemsize
        return self.width if is_short else value

    def run_on(self, inputs: Sequence[Any]) -> Any:
        return self.run(*[widen(each, self.width) for each in inputs])


def widen(tensor: Any, width: torch.dtype = torch.float64) -> Any:
    """A float tensor in a width, or in its own if that has more bits; anything else unchanged."""
    is_float = isinstance(tensor, Tensor) and tensor.dtype.is_floating_point
    return tensor.to(width) if is_float and tensor.element_size() < width.itemsize else tensor


class RoundingInterpreter(WideInterpreter):
    """The same, inexact results rounded in a direction, or up or down at random, as in noyau.verify.rounding."""

    def __init__(
        self, part: fx.GraphModule, width: torch.dtype, noise: torch.Generator, direction: Direction | None = None
    ) -> None:
        super().__init__(part, width)
        self.noise, self.direction, self.exact = noise, direction, WideInterpreter(part)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_function(target, args, kwargs)
        name = getattr(getattr(target, "overloadpacket", None), "__name__", "")
        if self.width == torch.float64:
            return self.shift(name, args, result, self.lost(name, args, result)) if name in ROUNDING else result
        exact = self.exact.call_function(target, *pytree.tree_map(widen, (args, kwargs)))
        return pytree.tree_map(lambda one, more: self.shift(name, args, one, more - one), result, exact)

    def lost(self, name: str, args: Sequence[Any], result: Tensor) -> Tensor:
        """The part of a float64 result lost to rounding; of random sign if unknown, 0 if the result has few bits."""
        if name in ("add", "sub") and len(args) == 2:
            operands = [torch.as_tensor(each, dtype=result.dtype, device=result.device) for each in args]
            lost: Tensor = rounding_loss("add" if name == "add" else "subtract", operands, result)
            return lost
        is_short = result.view(torch.int64) & ((1 << _BITS) - 1) == 0
        return torch.where(is_short, 0.0, self.draw(result) - 0.5)

    def shift(self, name: str, args: Sequence[Any], result: Any, lost: Any) -> Any:
        """The result or, at random or by the direction, its neighbour on the side of the lost part. Of a function with
        a value of 1 only at 0, a result of 1 elsewhere moves to the side of the real value."""
        if not isinstance(result, Tensor) or result.dtype != self.width:
            return result
        if name in BELOW_ONE | LEAVES_ONE:
            unseen = (result.abs() == 1) & (lost == 0) & (args[0] != 0)
            lost = torch.where(unseen, args[0].to(result.dtype).sign() if name in LEAVES_ONE else -result, lost)
        other = torch.nextafter(result, torch.copysign(torch.full_like(result, torch.inf), lost))
        moves = (lost != 0) & lost.isfinite() & other.isfinite() & result.isfinite()
        goes = self.draw(result) < 0.5 if self.direction is None else self.direction(result, lost)
        return torch.where(moves & goes, other, result)

    def draw(self, result: Tensor) -> Tensor:
        return torch.rand(result.shape, generator=self.noise, device=result.device, dtype=result.dtype)
