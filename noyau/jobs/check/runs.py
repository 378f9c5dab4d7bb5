"""A kernel run twice on the same inputs, each time in other surroundings; and why two runs are not alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from noyau.errors import CheckError, FindingKind, NoyauError, RaisedError
from noyau.jobs.check.candidates import KernelCandidate
from noyau.kernels.guarded_run import OTHER, How
from noyau.signatures.types import Instance
from noyau.toolchain.guard_zones import PLAIN
from noyau.verify.spreads import Spread, bits, spread
from noyau.verify.values import PIECES

Array = np.ndarray
RERUNS = 3


@dataclass(slots=True)
class TwoRuns:
    """A kernel as a function that runs it twice: with one thread, NaN in its outputs and around its inputs; then with
    many threads or in pieces, and numbers there; once where each run is the same. `first` and `second` are the results
    of the last call, both of one run where there was one; `fault`: what was wrong with one of them."""

    candidate: KernelCandidate
    instance: Instance
    layout: str = "contiguous"
    first: list[Array] = field(default_factory=list)
    second: list[Array] = field(default_factory=list)
    fault: CheckError | None = None

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        self.first, self.second, self.fault = [], [], None
        try:
            self.first = self.run(inputs, self.usual)
            self.second = self.first if self.candidate.is_replayed else self.run(inputs, self.other)
        except CheckError as fault:
            self.fault = fault
            raise
        return self.first

    @property
    def is_refused(self) -> bool:
        """Whether the kernel raised an error of its own instead of giving results."""
        return isinstance(self.fault, RaisedError) and not self.first

    def run(self, inputs: Sequence[Array], how: How) -> list[Array]:
        return self.candidate.run(self.instance, inputs, how)

    @property
    def usual(self) -> How:
        return How(self.layout, threads=min(self.candidate.threads, default=0), around=OTHER)

    @property
    def other(self) -> How:
        if self.candidate.in_pieces and self.layout == "contiguous":
            return How(self.layout, 1, PLAIN, PLAIN, pieces=PIECES)
        return How(self.layout, max(self.candidate.threads, default=0), PLAIN, PLAIN)

    @property
    def alike(self) -> bool:
        return bits(self.first) == bits(self.second)


@dataclass(frozen=True, slots=True)
class Unlike:
    """Two runs that should be alike: the kind of what that shows, how they differ, and by how much. `results`: what
    the one gave that is not the usual one."""

    kind: FindingKind
    told: str
    spread: Spread
    results: list[Array]

    def __str__(self) -> str:
        return f"{self.told}, {self.spread}"


def why_unlike(runs: TwoRuns, inputs: Sequence[Array]) -> Unlike | None:
    """The first of the things in which the two runs differ that makes them so; None where they are alike this time."""
    usual = runs.usual
    around = replace(usual, around=PLAIN)
    outputs = replace(usual, outputs=PLAIN)
    for kind, description, how in (
        *[(FindingKind.ORDER_DEPENDENT, "two runs on the same inputs differ", usual)] * RERUNS,
        (FindingKind.OUT_OF_BOUNDS, "its results depend on what lies outside its inputs", around),
        (FindingKind.UNINITIALISED, "its results depend on what its outputs held before", outputs),
        *_by_threads(runs.candidate, usual),
    ):
        difference = _against(runs, inputs, how)
        if difference is not None:
            return Unlike(kind, description, *difference)
    apart, other = spread(runs.first, runs.second), runs.other
    description = "two runs on the same inputs differ"
    if other.pieces > 1:
        description = f"runs whole and in {other.pieces} pieces, the last first, differ"
    elif other.threads != usual.threads:
        description = f"runs with {usual.threads} and {other.threads} threads differ"
    return Unlike(FindingKind.ORDER_DEPENDENT, description, apart, runs.second) if apart else None


def thorough(runs: TwoRuns, inputs: Sequence[Array]) -> Unlike | None:
    """The first difference of runs again, and with other numbers of threads, from the usual run."""
    if runs.candidate.is_replayed:
        return None
    plans = [(FindingKind.ORDER_DEPENDENT, "two runs on the same inputs differ", runs.usual)]
    plans += [*_by_threads(runs.candidate, runs.usual)] * RERUNS
    for kind, description, how in plans:
        difference = _against(runs, inputs, how)
        if difference is not None:
            return Unlike(kind, description, *difference)
    return None


def _by_threads(candidate: KernelCandidate, usual: How) -> Iterator[tuple[FindingKind, str, How]]:
    for threads in candidate.threads:
        if threads != usual.threads:
            description = f"runs with {usual.threads} and {threads} threads differ"
            yield FindingKind.ORDER_DEPENDENT, description, replace(usual, threads=threads)


def _against(runs: TwoRuns, inputs: Sequence[Array], how: How) -> tuple[Spread, list[Array]] | None:
    """The distance of a run from the first one, and its results."""
    try:
        results = runs.run(inputs, how)
    except NoyauError:  # what is wrong with a run is told elsewhere
        return None
    apart = spread(runs.first, results)
    return None if apart is None else (apart, results)
