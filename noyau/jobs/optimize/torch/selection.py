"""The kernels of a graph of torch's judged: built, shown to be right, and timed against what torch runs otherwise."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from noyau.codegen.plan import Planned
from noyau.compiler.partition.costs import traffic
from noyau.compiler.partition.cut import Group, scalars_of
from noyau.errors import InputError, NoyauError
from noyau.frontends.torch.dtypes import hinted
from noyau.hosts.torch.modules.sites import Traced, alone, drawn, sizes_in, sizes_of
from noyau.hosts.torch.tensors import tensor_of
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.decision import Timing, decide
from noyau.jobs.optimize.torch.candidates import ends_of, input_names, library_of, opened
from noyau.kernels.certificates import Certifiers, Task
from noyau.kernels.result_cache import keep_timing, recall_timing, timing_key
from noyau.timing.comparison import Comparison, Verdict, compare
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.cached_records import today
from noyau.verify.adversarial import FULL, Effort, fits, usual_sizes
from noyau.verify.certificate import Certificate
from noyau.verify.inputs import make_inputs

Say = Callable[[str], None]
Rest = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
MOST_AT_ONCE = 8
_SEED = 0
_SHARE_S = 0.1  # of the clock's budget, for one kernel at the most
_GLANCE_S, _CLEARLY = 0.03, 1.15  # the first look, and the ratio with which it is the last


@dataclass(slots=True)
class Clock:
    """The seconds that may go to timing, of all graphs of one compilation."""

    left_s: float

    def share_s(self, kernels: int) -> float:
        """What the next of so many kernels may take."""
        return min(_SHARE_S, self.left_s / max(kernels, 1))


@dataclass(slots=True)
class Known:
    """What this process has found of kernels, by their names and by how much was tried: libraries and certificates, so
    that no graph asks again for what another one has."""

    checked: dict[tuple[str, Effort], Candidate] = field(default_factory=dict)

    def of(self, kernel: Planned, effort: Effort) -> Candidate | None:
        """What was found with this effort, or with all of it."""
        found = self.checked.get((kernel.operator, effort)) or self.checked.get((kernel.operator, FULL))
        return found and replace(found, planned=kernel)

    def keep(self, judged: Candidate, effort: Effort) -> None:
        """Keep what was found, without the places, which hold their graph."""
        bare = replace(judged, planned=replace(judged.planned, groups=()))
        self.checked[judged.planned.operator, effort] = bare


KNOWN = Known()


class Checks:
    """Kernels that are built and certified beside what else goes on here, several at once, the certificates in
    processes of their own. Use it in a `with`, which ends those."""

    def __init__(self, effort: Effort = FULL, known: Known = KNOWN) -> None:
        self.effort, self.known = effort, known
        self._stack = contextlib.ExitStack()
        self._certifiers: Certifiers | None = None
        self._begun: dict[str, Future[Candidate]] = {}

    def __enter__(self) -> Checks:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._certifiers = None
        self._begun.clear()

    def begin(self, kernels: Sequence[Planned], found: Traced, say: Say) -> None:
        """Begin with the kernels of a graph that nothing is known of. BuildError where there is no compiler at all."""
        fresh = [
            each for each in kernels if self.known.of(each, self.effort) is None and each.operator not in self._begun
        ]
        if not fresh:
            return
        c_compiler.find_compiler()
        say(f"building and checking {len(fresh)} kernels")
        certifiers = self._certifiers or self._started(min(len(fresh), os.cpu_count() or 1, MOST_AT_ONCE))
        for kernel in fresh:
            task = self._task(kernel, found)
            self._begun[kernel.operator] = self._pool.submit(_checked, kernel, task, certifiers.certificate)

    def _started(self, count: int) -> Certifiers:
        self._certifiers = self._stack.enter_context(Certifiers((), count))
        self._pool = ThreadPoolExecutor(count)
        self._stack.callback(self._pool.shutdown, cancel_futures=True)
        self._certifiers.start()
        return self._certifiers

    def _task(self, kernel: Planned, found: Traced) -> Callable[[Path], Task]:
        group = kernel.groups[0]
        try:
            sizes = sizes_of(group, found)
            if sizes and not fits(group.graph, usual_sizes(group.graph, sizes)):
                raise InputError("what it reads is not there for the sizes that torch saw")
        except NoyauError as error:
            return partial(_raised, error)
        return lambda library: Task(
            kernel.operator, library, group.original, group.graph, (), sizes, _SEED, made_up=False, effort=self.effort
        )

    def settle(self) -> None:
        """Wait for all that was begun: what is timed needs the machine for itself."""
        for name in list(self._begun):
            self.known.keep(self._begun.pop(name).result(), self.effort)

    def judged(self, kernels: Sequence[Planned], found: Traced, say: Say) -> list[Candidate]:
        """Each kernel of a graph with its certificate, or the reason that there is none."""
        self.begin(kernels, found, say)
        self.settle()
        return [judged for kernel in kernels if (judged := self.known.of(kernel, self.effort))]


def checked(
    kernels: Sequence[Planned], found: Traced, say: Say, effort: Effort = FULL, known: Known = KNOWN
) -> list[Candidate]:
    """Each kernel built, with its certificate; several at once, in processes of their own. A kernel that does not
    build, or is wrong, has the reason. BuildError where there is no compiler at all."""
    with Checks(effort, known) as checks:
        return checks.judged(kernels, found, say)


def _raised(error: NoyauError, library: Path) -> Task:
    raise error


def _checked(kernel: Planned, task: Callable[[Path], Task], certify: Callable[[Task], Certificate]) -> Candidate:
    judged = Candidate(kernel)
    try:
        library = library_of(kernel.text)
    except NoyauError as error:
        return replace(judged, reason=f"does not build: {error}")
    judged = replace(judged, library=library)
    try:
        certificate = certify(task(library))
    except NoyauError as error:
        return replace(judged, reason=f"cannot be checked: {error}")
    return replace(judged, certificate=certificate, reason="" if certificate.ok else certificate.summary())


def timed(judged: Candidate, found: Traced, against: str, rest: Rest, keep: str, clock: Clock, left: int) -> Candidate:
    """The kernel timed in its first place against torch's own nodes there, on made-up inputs of the sizes that torch
    saw; kept by one of noyau.jobs.optimize.decision.KEEPS."""
    if judged.reason:
        return judged
    if keep == "all":
        return replace(judged, kept=True)
    try:
        timing = _timing(judged, found, against, rest, clock, left)
    except (NoyauError, RuntimeError) as error:
        return replace(judged, reason=f"not timed: {error}")
    decision = decide([timing], keep)
    return replace(judged, timings=(timing,), kept=decision.kept, reason=decision.reason)


def _timing(judged: Candidate, found: Traced, against: str, rest: Rest, clock: Clock, left: int) -> Timing:
    group = judged.planned.groups[0]
    part, reads = alone(found, group)
    sizes = sizes_of(group, found)
    shapes = (
        f"{node.output}: {node.dtype}{[each.evaluate(sizes) for each in node.shape]}" for node in group.original.inputs
    )
    key = timing_key((judged.planned.text, against, torch.__version__, part.code, *shapes), {}, torch.get_num_threads())
    moved, recalled = traffic(group.graph, sizes_in(group.graph, found)), recall_timing(key)
    if recalled is not None:
        return Timing(sizes, recalled.comparison, None, moved, timed_on=recalled.timed_on, recalled=True)
    start_s, share_s = time.perf_counter(), clock.share_s(left)
    if share_s <= 0:
        raise InputError("there is no time left; a larger budget_s would do")
    arrays = make_inputs(group.original, sizes, np.random.default_rng(_SEED)).arrays
    tensors = {name: laid_out(tensor_of(array), found.givers[name]) for name, array in arrays.items()}
    given = [tensors[node.name] if node.name in tensors else drawn(node) for node in reads]
    own = [tensors[name] for name in input_names(group)]
    before, after = rest(part, given), kernel_of(judged, group)
    with torch.no_grad():
        comparison = compared(lambda: before(*given), lambda: after(*own), share_s)
    clock.left_s -= time.perf_counter() - start_s
    keep_timing(key, comparison)
    return Timing(sizes, comparison, None, moved, timed_on=today())


def compared(before: Callable[[], object], after: Callable[[], object], budget_s: float) -> Comparison:
    """Torch's nodes and a kernel, timed against each other: a moment is enough where the kernel is clearly faster."""
    glance = compare(before, after, budget_s=min(_GLANCE_S, budget_s))
    return (
        glance
        if glance.verdict is Verdict.FASTER and glance.low > _CLEARLY
        else compare(before, after, budget_s=budget_s)
    )


def kernel_of(judged: Candidate, group: Group) -> Callable[..., Any]:
    """A built kernel as a function of tensors, with the numbers of a place of its own."""
    assert judged.library is not None
    scalars = scalars_of(group)
    fixed = [scalars.get(node.output) for node in group.graph.inputs]
    return opened(judged.planned.operator, judged.library, ends_of(group.graph), fixed)


def laid_out(tensor: torch.Tensor, giver: fx.Node) -> torch.Tensor:
    """A tensor that lies in memory as torch's node gives it."""
    fake = giver.meta["val"]
    if fake.is_contiguous():
        return tensor
    strides = [hinted(stride) for stride in fake.stride()]
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
