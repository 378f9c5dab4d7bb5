"""The one certificate of a kernel: its values, what it touches, and whether its bits depend on how it is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from noyau.ir.graph import Graph
from noyau.toolchain.guard_zones import Order
from noyau.verify.certificate import Certificate
from noyau.verify.failures import Case
from noyau.verify.trial import KernelFunction, KernelTrial, LazyGraph


def certify(
    graph: Graph,
    kernel: KernelFunction,
    cases: Iterable[Case],
    *,
    name: str,
    made_up: bool = False,
    traced: LazyGraph | None = None,
) -> Certificate:
    """Compare the values of a kernel with the truth of its group's graph.

    `kernel` maps arrays in the order of the graph's inputs to arrays in the order of its outputs. Inputs that the graph
    refuses with an InputError (an index outside its table), the kernel must refuse with one. `made_up`: the captured
    cases come from made-up inputs. `traced` gives the same computation as a graph of the same inputs and outputs, where
    `graph` is one Opaque. A case of which every cell is allowed after two of the eight moved runs is done with them:
    more allow no less, but where all runs overflowed so far. The same arguments give the same certificate."""
    trial = KernelTrial(graph, kernel, traced)
    with np.errstate(all="ignore"):
        return Certificate(name, tuple(trial.outcome(case, number) for number, case in enumerate(cases)), made_up)


PIECES = 3


class GuardedKernel(Protocol):
    """A kernel as `noyau.toolchain.c.library.Native` is one: it runs on copies between guard zones."""

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]: ...


def certify_native(
    graph: Graph,
    native: GuardedKernel,
    cases: Iterable[Case],
    *,
    name: str,
    made_up: bool = False,
    traced: LazyGraph | None = None,
) -> Certificate:
    """The certificate of a kernel that was built for a group's graph.

    Each case runs twice between guard zones, on poisoned outputs: whole, and in three pieces, the last first. A kernel
    that touches what it may not, or leaves a cell unwritten, is wrong; so is one of which the two runs differ in a bit.
    `made_up`: the captured cases come from made-up inputs; `traced` as in `certify`."""
    runs = PieceRuns(native)
    certificate = certify(graph, runs, cases, name=name, made_up=made_up, traced=traced)
    return replace(certificate, order_independent=runs.is_deterministic)


@dataclass(slots=True)
class PieceRuns:
    """A kernel as a function that runs it twice; `is_deterministic` until two runs differ."""

    native: GuardedKernel
    is_deterministic: bool = field(default=True, init=False)

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        whole = self.native.call_guarded(*inputs)
        pieces = self.native.call_guarded(*inputs, pieces=PIECES, order=last_first)
        self.is_deterministic &= all(one.tobytes() == other.tobytes() for one, other in zip(whole, pieces, strict=True))
        return whole


def last_first(count: int) -> Iterable[int]:
    """The order of pieces that is not the usual one."""
    return reversed(range(count))
