"""The kernels of graphs of torch's built and certified beside what else goes on, each once in a process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from noyau.codegen.plan import Planned
from noyau.errors import InputError, NoyauError
from noyau.hosts.torch.modules.sites import TracedGraph, sizes_of
from noyau.jobs.optimize.candidate import Candidate, attempt, certify
from noyau.jobs.optimize.pipeline import Say
from noyau.jobs.optimize.torch.candidates import library_of
from noyau.kernels.certificates import CertificateTask, Certifiers
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.adversarial import FULL, Effort, fits, usual_sizes
from noyau.verify.certificate import Certificate

MOST_AT_ONCE = 8
_SEED = 0


@dataclass(slots=True)
class CertifiedKernels:
    """The candidates of this process, by their names and by how much was tried: libraries and certificates, so that no
    graph asks again for what another one has."""

    candidates: dict[tuple[str, Effort], Candidate] = field(default_factory=dict)

    def of(self, kernel: Planned, effort: Effort) -> Candidate | None:
        """The candidate as it was found with this effort, or with all of it."""
        found = self.candidates.get((kernel.operator, effort)) or self.candidates.get((kernel.operator, FULL))
        return found and replace(found, planned=kernel)

    def keep(self, candidate: Candidate, effort: Effort) -> None:
        """Keep what was found, without the places, which hold their graph."""
        bare = replace(candidate, planned=replace(candidate.planned, groups=()))
        self.candidates[candidate.planned.operator, effort] = bare


MEMORY = CertifiedKernels()


class Certification:
    """Kernels that are built and certified beside what else goes on here, several at once, the certificates in
    processes of their own. Use it in a `with`, which ends those."""

    def __init__(self, effort: Effort = FULL, memory: CertifiedKernels = MEMORY) -> None:
        self.effort, self.memory = effort, memory
        self._stack = contextlib.ExitStack()
        self._certifiers: Certifiers | None = None
        self._begun: dict[str, Future[Candidate]] = {}

    def __enter__(self) -> Certification:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._certifiers = None
        self._begun.clear()

    def begin(self, kernels: Sequence[Planned], source: TracedGraph, say: Say) -> None:
        """Begin with the kernels of a graph that nothing is known of. BuildError where there is no compiler at all."""
        fresh = [
            each for each in kernels if self.memory.of(each, self.effort) is None and each.operator not in self._begun
        ]
        if not fresh:
            return
        c_compiler.find_compiler()
        say(f"building and checking {len(fresh)} kernels")
        certifiers = self._certifiers or self._started(min(len(fresh), os.cpu_count() or 1, MOST_AT_ONCE))
        for kernel in fresh:
            task = self._task(kernel, source)
            self._begun[kernel.operator] = self._pool.submit(_certified, kernel, task, certifiers.certificate)

    def _started(self, count: int) -> Certifiers:
        self._certifiers = self._stack.enter_context(Certifiers((), count))
        self._pool = ThreadPoolExecutor(count)
        self._stack.callback(self._pool.shutdown, cancel_futures=True)
        self._certifiers.start()
        return self._certifiers

    def _task(self, kernel: Planned, source: TracedGraph) -> Callable[[Path], CertificateTask]:
        group = kernel.groups[0]
        try:
            sizes = sizes_of(group, source)
            if sizes and not fits(group.graph, usual_sizes(group.graph, sizes)):
                raise InputError("what it reads is not there for the sizes that torch saw")
        except NoyauError as error:
            return partial(_raised, error)
        return lambda library: CertificateTask(
            kernel.operator, library, group.original, group.graph, (), sizes, _SEED, made_up=False, effort=self.effort
        )

    def settle(self) -> None:
        """Wait for all that was begun: what is timed needs the machine for itself."""
        for name in list(self._begun):
            self.memory.keep(self._begun.pop(name).result(), self.effort)

    def candidates(self, kernels: Sequence[Planned], source: TracedGraph, say: Say) -> list[Candidate]:
        """Each kernel of a graph with its certificate, or the reason that there is none."""
        self.begin(kernels, source, say)
        self.settle()
        return [each for kernel in kernels if (each := self.memory.of(kernel, self.effort))]


def _raised(error: NoyauError, library: Path) -> CertificateTask:
    raise error


def _certified(
    kernel: Planned, task: Callable[[Path], CertificateTask], certificate: Callable[[CertificateTask], Certificate]
) -> Candidate:
    candidate = Candidate(kernel)
    candidate = attempt(lambda: replace(candidate, library=library_of(kernel.text)), candidate, "does not build")
    library = candidate.library
    return candidate if library is None else certify(candidate, lambda: (certificate(task(library)), ""))
