"""The time that trying a kernel takes: what it has, what it spent, and what a further run is expected to take."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from noyau.codegen.language import LANGUAGES, Grid
from noyau.kernels.user_kernel import UserKernel
from noyau.sanitizer.lint.arithmetic import situation_or_none
from noyau.signatures.types import Instance
from noyau.workers.worker import spent_s

PATIENCE = 3  # times so much on the clock as of the processor
PROGRAM = 1 << 10  # threads that a program of Triton takes as long as


@dataclass(slots=True)
class Costs:
    """An estimate of the time of further runs: as much more than the shortest as they have more to do, by the run that
    had most: the first ones take long for what is compiled. `is_steep`: Python runs each thread or program, so that
    what is larger than all before takes longer in proportion."""

    is_steep: bool = False
    least_s: float = math.inf
    time_s: float = 0.0  # of the last run that had most to do
    work: int = 0

    def note(self, work: int, time_s: float) -> None:
        self.least_s = min(self.least_s, time_s)
        if work >= self.work:
            self.time_s, self.work = time_s, work

    def expected_s(self, work: int) -> float:
        """Nothing as long as there was none."""
        if not self.time_s:
            return 0.0
        if self.is_steep and work > self.work:
            return self.time_s * work / max(1, self.work)
        return self.least_s + (self.time_s - self.least_s) * work / max(1, self.work)


@dataclass(slots=True)
class Budget:
    """Seconds of the processor for the runs of a kernel, in this process and its workers, or PATIENCE times as many on
    the wall."""

    seconds: float
    costs: Costs = field(default_factory=Costs)
    began_s: float = 0.0
    end_s: float = 0.0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self.began_s, self.end_s = spent_s(), time.monotonic() + PATIENCE * self.seconds

    @property
    def is_spent(self) -> bool:
        return spent_s() > self.began_s + self.seconds or time.monotonic() > self.end_s

    def affords(self, work: int, share: float = 1.0) -> bool:
        """Whether a run with so much to do is expected to take a share of all the time at most."""
        return self.costs.expected_s(work) <= share * self.seconds


def work_of(kernel: UserKernel, instance: Instance, sizes: Mapping[str, int]) -> int:
    """The work of a run at sizes of the signature: cells, or threads where it starts more of these."""
    cells = math.prod(max(size, 1) for size in sizes.values())
    language = LANGUAGES[kernel.language]
    numbers = [1] * len(instance.inputs)  # for those that are none of the sizes
    launch = situation_or_none(kernel, instance, sizes, numbers) if language.on_gpu else None
    threads = 1 if launch is None else math.prod(launch.grid) * math.prod(launch.block)
    return max(cells, threads * (PROGRAM if language.grid is Grid.PROGRAMS else 1))
