"""Each kernel judged: does it build, is it right? One that does not, or is not, is dropped, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from noyau.codegen.plan import Planned
from noyau.errors import NoyauError
from noyau.hosts.onnxruntime.inputs import Seen, ends_of
from noyau.ir.graph import Graph, names_of
from noyau.jobs.optimize.onnx.decision import Timing, deciding
from noyau.kernels.certificates import Task, judge
from noyau.timing.comparison import Comparison
from noyau.timing.machine import usable_cores
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.adversarial import cells
from noyau.verify.certificate import Certificate
from noyau.verify.values import Case

MOST_CELLS = 1 << 22  # of captured values that a certificate takes in: each goes through the interpreter ten times


@dataclass(frozen=True, slots=True)
class Judged:
    """A kernel with its evidence: the certificate, what came of timing it at each binding of the sizes where it came to
    that, and whether it is kept.

    `reason` says why it is not kept, or not timed; `note` what the certificate leaves out."""

    planned: Planned
    certificate: Certificate | None = None
    timings: tuple[Timing, ...] = ()
    kept: bool = False
    reason: str = ""
    note: str = ""

    @property
    def comparison(self) -> Comparison | None:
        """The comparison that its verdict rests on, or None where it was not timed."""
        decider = deciding(self.timings)
        return None if decider is None else decider.comparison

    @property
    def evidence(self) -> str:
        """The certificate in words, or why there is none."""
        return "; ".join(filter(None, [self.certificate.summary() if self.certificate else self.reason, self.note]))


def right(judged: Iterable[Judged]) -> list[Planned]:
    """The kernels that nothing speaks against so far."""
    return [one.planned for one in judged if not one.reason]


def compiled(kernels: Sequence[Planned], options: c_compiler.Options) -> list[Judged]:
    """Each kernel, with the reason where it does not build. BuildError where there is no compiler at all."""
    if kernels:
        c_compiler.find_compiler(options.compiler)
    pool = ThreadPoolExecutor(usable_cores())
    try:
        return list(pool.map(lambda kernel: _compiled(kernel, options), kernels))
    except BaseException:
        c_compiler.end_all()  # the pool waits for its threads, and they for their compilers
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _compiled(planned: Planned, options: c_compiler.Options) -> Judged:
    def compile_it() -> Judged:
        c_compiler.compile_object(planned.text, options)
        return Judged(planned)

    return attempted(compile_it, Judged(planned), "does not build")


def attempted(step: Callable[[], Judged], before: Judged, fault: str) -> Judged:
    """What a step makes of a kernel; where that is an error of noyau, the kernel before it, with the reason."""
    try:
        return step()
    except NoyauError as error:
        return replace(before, reason=f"{fault}: {error}")


def certified(
    judged: Judged, seen: Seen, options: c_compiler.Options, seed: int, make: Callable[[Task], Certificate] = judge
) -> Judged:
    """The kernel with its certificate, against the graph as the model spells it; `make` says where that is made."""
    if judged.reason:
        return judged
    return attempted(lambda: _certified(judged, seen, options, seed, make), judged, "cannot be checked")


def _certified(
    judged: Judged, seen: Seen, options: c_compiler.Options, seed: int, make: Callable[[Task], Certificate]
) -> Judged:
    planned, first = judged.planned, judged.planned.groups[0]
    library, sizes = c_compiler.compile_library([planned.text], options), seen.sizes_of(first.original)
    captured, left = captured_cases(planned, seen)
    certificate = make(
        Task(planned.operator, library, first.original, first.graph, captured, sizes, seed, seen.made_up)
    )
    return replace(judged, certificate=certificate, note=left, reason="" if certificate.ok else certificate.summary())


def captured_cases(planned: Planned, seen: Seen) -> tuple[list[Case], str]:
    """What a kernel reads in its first and in its last place, and a note where that is too much to be checked."""
    made, spent, note = list[Case](), 0, ""
    for group in ends_of(planned):
        arrays = seen.of(group.original)
        if arrays is None:
            note = "what it reads in the model could not be captured"
            continue
        count = _cells(group.original, seen.sizes_of(group.original), arrays)
        if spent + count <= MOST_CELLS:
            made.append(Case(f"captured at {', '.join(group.outputs)}"[:80], arrays, captured=True))
            spent += count
        elif not made:
            note = f"its activations, of {count:,} cells, are too large to be among the cases"
    return made, note


def _cells(graph: Graph, sizes: dict[str, int], arrays: Sequence[np.ndarray]) -> int:
    """How many cells the largest value has, as far as that is known."""
    known = cells(graph, sizes) if names_of(graph) <= sizes.keys() else 0
    return max(known, *(array.size for array in arrays), 0)
