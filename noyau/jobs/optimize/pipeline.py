"""The optimizer: plan, certify, time, decide, install. One pipeline for every host; each then reports the outcome.

A host is the place where a program runs, and where kernels take the place of groups of its nodes: onnxruntime, torch on
the CPU, torch on CUDA. A new host is a file with the methods of `Host`; nothing else changes.

A `Candidate` is a kernel with its evidence so far: library, certificate, timings, verdict."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from noyau.codegen.plan import Plan, PlannedKernel
from noyau.compiler.partition.cut import Partition
from noyau.compiler.partition.traffic import Traffic
from noyau.errors import CheckError, NoyauError
from noyau.hosts.onnxruntime.inputs import spell
from noyau.jobs.command_line import Step
from noyau.timing.verdict import FEWEST_PAIRS, SAME_WITHIN, Comparison, Verdict
from noyau.verify.certificate import Certificate

AS_FAST_FROM = 0.99  # the least share of the original model's speed that a file keeps, with its library and without
SURE_FROM = 1.05  # from this speed-up on, no other session is slower
NOT_BUILT = "does not build"  # how the reason against a kernel begins that no compiler, or no disk, takes
BORDERLINE_FROM = 0.95  # from this speed-up on, SLOWER is timed a second time before the kernel is dropped


@dataclass(frozen=True, slots=True)
class BindingTiming:
    """Timing of a kernel at one binding: `sizes` by the model's own names. `cold`: with inputs that fall out of the
    last-level cache between calls, where that may matter. `traffic`: the bytes that one call must move. `floor_s`: the
    least seconds that this machine needs for them; `idle_s`: the seconds of a run that does nothing, part of every
    time. `repeats`: how often a run of the model runs the kernel in one place, more than once in bodies of loops.
    `timed_on`: a date, of an earlier run if `recalled`. `calls`: the operators before the kernel into which the runtime
    may fold some that it replaces; both times include them. `mistake`: why the kernel's time is impossible."""

    sizes: Mapping[str, int]
    hot: Comparison
    cold: Comparison | None = None
    traffic: Traffic | None = None
    floor_s: float | None = None
    idle_s: float = 0.0
    repeats: int = 1
    timed_on: str = ""
    recalled: bool = False
    calls: tuple[str, ...] = ()
    mistake: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict over both temperatures: SLOWER if either is."""
        return overall(each.verdict for each in (self.hot, self.cold) if each is not None)

    @property
    def comparison(self) -> Comparison:
        """The comparison that gives the verdict; the hot one if both do."""
        return self.hot if self.cold is None or self.hot.verdict is self.verdict else self.cold

    @property
    def is_borderline(self) -> bool:
        """Whether the verdict is SLOWER by so little that it may be chance."""
        slower = [one.speedup for one in (self.hot, self.cold) if one is not None and one.verdict is Verdict.SLOWER]
        return bool(slower) and min(slower) >= BORDERLINE_FROM

    @property
    def is_unsure(self) -> bool:
        """Whether one more session, at another address, may change the outcome: the speed-up is near 1, and there are
        fewer than six openings, or the interval holds speeds on both sides of AS_FAST_FROM."""
        one = self.comparison
        sure = len(one.openings) >= FEWEST_PAIRS and not one.low < AS_FAST_FROM <= one.high
        return BORDERLINE_FROM <= one.speedup <= SURE_FROM and not sure

    @property
    def floor_ratio(self) -> float | None:
        """The floor over the time of the kernel: 1 is the limit of the machine."""
        return None if self.floor_s is None else self.floor_s / self.hot.after_median_s

    @property
    def where(self) -> str:
        """The sizes, `batch=1, sequence=128`, and a mention of cold caches if these decide."""
        return ", ".join(filter(None, [spell(self.sizes), "" if self.comparison is self.hot else "with cold caches"]))

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return f"{self.verdict.value}{at}: {self.comparison.speedup:.2f}x"


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """SLOWER if any verdict is, else FASTER if any is, else SAME if all are, else AMBIGUOUS."""
    distinct = set(verdicts)
    rest = Verdict.SAME if distinct == {Verdict.SAME} else Verdict.AMBIGUOUS
    return next((each for each in (Verdict.SLOWER, Verdict.FASTER) if each in distinct), rest)


def decisive(timings: Sequence[BindingTiming]) -> BindingTiming | None:
    """The timing that decides the overall verdict: the worst of the SLOWER ones; else, of those with that verdict, the
    one whose original takes longest."""
    verdict = overall(timing.verdict for timing in timings)
    those = [timing for timing in timings if timing.verdict is verdict] or list(timings)
    if verdict is Verdict.SLOWER:
        return min(those, key=lambda timing: timing.comparison.speedup)
    return max(those, key=lambda timing: timing.hot.before_median_s, default=None)


def losing(timings: Sequence[BindingTiming], bound: float = SAME_WITHIN[0]) -> BindingTiming | None:
    """The worst timing against a change: the worst SLOWER one, else the worst below `bound` that is not FASTER."""
    those = [one for one in timings if one.verdict is Verdict.SLOWER]
    unsure = (one for one in timings if one.verdict is not Verdict.FASTER and one.comparison.speedup < bound)
    return min(those or unsure, key=lambda timing: timing.comparison.speedup, default=None)


KEEPS = {
    "faster": frozenset({Verdict.FASTER}),
    "not-slower": frozenset({Verdict.FASTER, Verdict.SAME, Verdict.AMBIGUOUS}),
    "all": frozenset(Verdict),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel with its evidence: its certificate, a timing at each binding that was timed, and whether it is kept.
    `library` is the kernel's own shared library, on hosts that open each kernel by itself.

    `reason` says why it is not kept, or not timed; `note` what the certificate leaves out."""

    planned: PlannedKernel
    library: Path | None = None
    certificate: Certificate | None = None
    timings: tuple[BindingTiming, ...] = ()
    kept: bool = False
    reason: str = ""
    note: str = ""

    @property
    def comparison(self) -> Comparison | None:
        """The comparison that decides the verdict, or None if the kernel was not timed."""
        decider = decisive(self.timings)
        return None if decider is None else decider.comparison

    @property
    def speedup(self) -> float | None:
        """The speed-up that decides the verdict, or None if the kernel was not timed."""
        return None if self.comparison is None else self.comparison.speedup

    @property
    def evidence(self) -> str:
        """The certificate as text, or why there is none; then the note."""
        return "; ".join(filter(None, [self.certificate.summary() if self.certificate else self.reason, self.note]))


def right(candidates: Iterable[Candidate]) -> list[PlannedKernel]:
    """The kernels of the candidates without a `reason` against them."""
    return [each.planned for each in candidates if not each.reason]


def certify(candidate: Candidate, make: Callable[[], tuple[Certificate, str]]) -> Candidate:
    """The candidate with its certificate and a note on what that leaves out; with a reason if the certificate fails."""

    def step() -> Candidate:
        certificate, note = make()
        reason = "" if certificate.ok else certificate.summary()
        return replace(candidate, certificate=certificate, note=note, reason=reason)

    return candidate if candidate.reason else attempt(step, candidate, "cannot be checked")


def attempt(step: Callable[[], Candidate], before: Candidate, fault: str) -> Candidate:
    """The candidate after a step; if that raises an error of noyau, the candidate before it, with the reason."""
    try:
        return step()
    except NoyauError as error:
        return replace(before, reason=f"{fault}: {error}")


def decide(candidate: Candidate, keep: str) -> Candidate:
    """The candidate, kept or not, by one of KEEPS and all its timings; the reason names the binding where it loses."""
    if candidate.reason:
        return candidate
    if (decider := decisive(candidate.timings)) is None:
        return replace(candidate, kept=keep == "all", reason="not timed")
    loser = losing(candidate.timings) if keep == "faster" else None
    if overall(timing.verdict for timing in candidate.timings) in KEEPS[keep] and loser is None:
        return replace(candidate, kept=True, reason="")
    decider = loser or decider
    return replace(candidate, kept=False, reason="; ".join(filter(None, [str(decider), decider.comparison.advice])))


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
        """Time the kernel in its first place against the operators that the host runs there. An error of noyau if it
        cannot be timed; CheckError if it crashes, hangs, or is wrong meanwhile."""


class Host(Protocol[Installed_co]):
    """One program on one host."""

    def plan(self) -> tuple[Partition, Plan]:
        """The groups of the program, and a kernel for each set of equal groups."""

    def certify(self, kernels: Sequence[PlannedKernel]) -> Sequence[Candidate]:
        """The kernels, built, with certificates or why there is none. BuildError if nothing can be built at all."""

    def bindings(self) -> Iterable[Sizes]:
        """The sizes to time at, one round each."""

    def bench(self, sizes: Sizes, candidates: Sequence[Candidate]) -> HostBench | None:
        """The clock at these sizes; None if the program does not run with them."""

    def install(self, candidates: Sequence[Candidate]) -> tuple[Sequence[Candidate], Installed_co]:
        """The program with the kept kernels, and the candidates: some are dropped only here, where all run together."""


@dataclass(frozen=True, slots=True)
class Optimization(Generic[Installed]):
    """The groups of a program, their kernels with the evidence, and the program with the kept kernels."""

    partition: Partition
    plan: Plan
    candidates: tuple[Candidate, ...]
    installed: Installed


def optimize(host: Host[Installed], keep: str, say: Say, dropped: Reasons = NOTHING) -> Optimization[Installed]:
    """Fuse what can be fused; keep the kernels that are right and win, by `keep`, a key of KEEPS. `dropped`: kernels to
    leave out, by name, with the reason."""
    partition, plan = host.plan()
    certified = host.certify(plan.kernels)
    certified = [replace(one, reason=one.reason or dropped.get(one.planned.operator, "")) for one in certified]
    remaining, installed = host.install(race(host, certified, keep, say))
    return Optimization(partition, plan, tuple(remaining), installed)


def race(host: Host[Installed], candidates: Sequence[Candidate], keep: str, say: Say) -> list[Candidate]:
    """Time the candidates in rounds, one per binding of the sizes, and decide; a candidate that loses is out."""
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
    """`step` on a candidate and its number; `say` announces its turn unless it is out. `rounds`: done, and in all."""

    def turn(numbered: tuple[int, Candidate]) -> Candidate:
        number, candidate = numbered
        if not candidate.reason:
            words = f"{doing}, {number} of {count}: {candidate.planned.operator}"
            say(Step(words, rounds[0] * count + number - 1, rounds[1] * count))
        return step(candidate)

    return turn


def time_at(candidate: Candidate, bench: HostBench, keep: str) -> Candidate:
    """The candidate, timed at one more binding; with the reason if it is out.

    It is out if it is slower there, if it crashes, hangs or is wrong, and if it is faster than this machine can be. A
    binding where it cannot be timed at all does not count against it, unless that is the first binding."""
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
