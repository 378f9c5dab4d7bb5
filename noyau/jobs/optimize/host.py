"""The protocol of a host: the place where a program runs, and where kernels take the place of groups of its nodes.

A host is onnxruntime, torch on the CPU, torch on CUDA; a new one is a file with these methods, and nothing else knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from noyau.codegen.plan import Plan, Planned
from noyau.compiler.partition.cut import Partition
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.decision import BindingTiming

Sizes = Mapping[str, int]
Installed_co = TypeVar("Installed_co", covariant=True)


class HostBench(Protocol):
    """The clock of a host at one binding of the sizes."""

    @property
    def sizes(self) -> Sizes: ...

    def timing(self, candidate: Candidate) -> BindingTiming:
        """The kernel in its first place against what the host runs there otherwise. An error of noyau where it cannot
        be timed; CheckError where it crashes, hangs, or is wrong meanwhile."""
        ...


class Host(Protocol[Installed_co]):
    """One program on one host."""

    def plan(self) -> tuple[Partition, Plan]:
        """The groups of the program, and a kernel for each kind of group."""
        ...

    def certify(self, kernels: Sequence[Planned]) -> Sequence[Candidate]:
        """The kernels built, each with its certificate or with the reason that it has none; several at once. BuildError
        where nothing can be built at all."""
        ...

    def bindings(self) -> Iterable[Sizes]:
        """The sizes to time at, one round each."""
        ...

    def bench(self, sizes: Sizes, candidates: Sequence[Candidate]) -> HostBench | None:
        """The clock at these sizes; None where the program does not run with them."""
        ...

    def install(self, candidates: Sequence[Candidate]) -> tuple[Sequence[Candidate], Installed_co]:
        """The program with the kernels that are kept, and the candidates: some may be dropped only here, where all run
        together."""
        ...
