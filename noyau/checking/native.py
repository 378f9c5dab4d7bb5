"""The certificate of a built kernel: its values, what it touches, and whether its bits depend on how it is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from noyau.builders.native import Order
from noyau.checking.certificate import Certificate
from noyau.checking.values import Case, Spelt, certify
from noyau.ir.graph import Graph

PIECES = 3


class GuardedKernel(Protocol):
    """What `noyau.builders.native.Native` has: a run on copies between guard zones."""

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]: ...


def certify_native(
    graph: Graph,
    native: GuardedKernel,
    cases: Iterable[Case],
    *,
    name: str,
    made_up: bool = False,
    spelt: Spelt | None = None,
) -> Certificate:
    """The certificate of a kernel that was built for a group's graph.

    Each case runs twice between guard zones, on poisoned outputs: whole, and in three pieces, the last first. A kernel
    that touches what it may not, or leaves a cell unwritten, is wrong; so is one of which the two runs differ in a bit.
    `made_up`: the captured cases come from made-up inputs; `spelt` as in `certify`."""
    runs = TwoRuns(native)
    certificate = certify(graph, runs, cases, name=name, made_up=made_up, spelt=spelt)
    return replace(certificate, order_independent=runs.alike)


@dataclass(slots=True)
class TwoRuns:
    """A kernel as a function that runs it twice; `alike` until two runs differ."""

    native: GuardedKernel
    alike: bool = field(default=True, init=False)

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        whole = self.native.call_guarded(*inputs)
        pieces = self.native.call_guarded(*inputs, pieces=PIECES, order=_last_first)
        self.alike &= all(one.tobytes() == other.tobytes() for one, other in zip(whole, pieces, strict=True))
        return whole


def _last_first(count: int) -> Iterable[int]:
    return reversed(range(count))
