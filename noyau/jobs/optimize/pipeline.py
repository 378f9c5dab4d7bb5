"""The optimizer: plan, certify, time, decide, install. One pipeline for every host; each then reports the outcome.

A host is the place where a program runs, and where kernels take the place of groups of its nodes: onnxruntime, torch on
the CPU, torch on CUDA. A new one is a file with the methods of `Host`, and nothing else knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from noyau.codegen.plan import Plan, PlannedKernel
from noyau.compiler.partition.cut import Partition
from noyau.errors import CheckError, NoyauError
from noyau.hosts.onnxruntime.inputs import spell
from noyau.jobs.command_line import Step
from noyau.jobs.optimize.candidate import BindingTiming, Candidate, decide
from noyau.timing.verdict import Verdict

Say = Callable[[str], None]
Sizes = Mapping[str, int]
Reasons = Mapping[str, str]
NOTHING: Reasons = MappingProxyType({})
Installed = TypeVar("Installed")
Installed_co = TypeVar("Installed_co", covariant=True)


class HostBench(Protocol):
    """The clock of a host at one binding of the sizes."""

    @property
    def sizes(self) -> Sizes: ...

    def timing(self, candidate: Candidate) -> BindingTiming:
        """The kernel in its first place against what the host runs there otherwise. An error of noyau where it cannot
        be timed; CheckError where it crashes, hangs, or is wrong meanwhile."""


class Host(Protocol[Installed_co]):
    """One program on one host."""

    def plan(self) -> tuple[Partition, Plan]:
        """The groups of the program, and a kernel for each kind of group."""

    def certify(self, kernels: Sequence[PlannedKernel]) -> Sequence[Candidate]:
        """The kernels built, with certificates or why there is none. BuildError where nothing can be built at all."""

    def bindings(self) -> Iterable[Sizes]:
        """The sizes to time at, one round each."""

    def bench(self, sizes: Sizes, candidates: Sequence[Candidate]) -> HostBench | None:
        """The clock at these sizes; None where the program does not run with them."""

    def install(self, candidates: Sequence[Candidate]) -> tuple[Sequence[Candidate], Installed_co]:
        """The program with the kernels that are kept, and the candidates: some are dropped only here, together."""


@dataclass(frozen=True, slots=True)
class Optimization(Generic[Installed]):
    """The groups of a program, their kernels with the evidence, and the program with those that are kept."""

    partition: Partition
    plan: Plan
    candidates: tuple[Candidate, ...]
    installed: Installed


def optimize(host: Host[Installed], keep: str, say: Say, dropped: Reasons = NOTHING) -> Optimization[Installed]:
    """Fuse what can be fused, keep the kernels that are right and win, by one of candidate.KEEPS. `dropped`: those that
    are not to be, with the reason."""
    partition, plan = host.plan()
    certified = host.certify(plan.kernels)
    certified = [replace(one, reason=one.reason or dropped.get(one.planned.operator, "")) for one in certified]
    remaining, installed = host.install(race(host, certified, keep, say))
    return Optimization(partition, plan, tuple(remaining), installed)


def race(host: Host[Installed], candidates: Sequence[Candidate], keep: str, say: Say) -> list[Candidate]:
    """The candidates timed in rounds, one a binding of the sizes, and kept or not: what loses a round is out."""
    rounds = list(host.bindings())
    for done, sizes in enumerate(rounds):
        if (bench := host.bench(sizes, candidates)) is None:
            continue
        doing = f"timing at {spell(bench.sizes)}" if bench.sizes else "timing"
        turn = announce(doing, len(candidates), say, partial(time_at, bench=bench, keep=keep), (done, len(rounds)))
        candidates = [turn(numbered) for numbered in enumerate(candidates, 1)]
    return [decide(each, keep) for each in candidates]


def announce(
    doing: str, count: int, say: Say, step: Callable[[Candidate], Candidate], rounds: tuple[int, int] = (0, 1)
) -> Callable[[tuple[int, Candidate]], Candidate]:
    """`step` on a candidate and its number, said as its turn comes unless it is out; `rounds`: those done, and all."""

    def turn(numbered: tuple[int, Candidate]) -> Candidate:
        number, candidate = numbered
        if not candidate.reason:
            words = f"{doing}, {number} of {count}: {candidate.planned.operator}"
            say(Step(words, rounds[0] * count + number - 1, rounds[1] * count))
        return step(candidate)

    return turn


def time_at(candidate: Candidate, bench: HostBench, keep: str) -> Candidate:
    """The candidate timed at one more binding; one that does not win there is out, with the reason.

    It is out where it is slower there, where it crashes, hangs or is wrong, and where it is faster than this machine
    can be. A binding where it cannot be timed at all says nothing against it, unless that is the first one."""
    if candidate.reason:
        return candidate
    try:
        timing = bench.timing(candidate)
    except NoyauError as error:
        if candidate.timings and not isinstance(error, CheckError):
            return candidate
        at = f" at {spell(bench.sizes)}" if bench.sizes and candidate.timings else ""
        return replace(candidate, kept=keep == "all", reason=f"not timed{at}: {error}")
    candidate = replace(candidate, timings=(*candidate.timings, timing))
    if timing.mistake:
        return replace(candidate, kept=keep == "all", reason=f"not timed: {timing.mistake}")
    return decide(candidate, keep) if keep != "all" and timing.verdict is Verdict.SLOWER else candidate
