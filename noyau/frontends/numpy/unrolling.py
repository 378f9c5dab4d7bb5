"""What loops add to a trace that holds numbers of a call's sizes: each round is nodes of its own."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import Tape
from noyau.ir.graph import Kind, Node, Reduce, Scan, Select

_NOYAU = Path(__file__).parents[2]
PACKAGES = tuple(map(str, (Path(np.__file__).parent, _NOYAU / "frontends", _NOYAU / "ir")))  # no lines of the user's
MOST_STEPS = 750  # with more, first calls were measured to take longer than about 10 s, and up to minutes
_WEIGHTS: dict[type[Kind], int] = {Reduce: 5, Scan: 5, Select: 15}  # the time that they take to build, in other nodes


class BoundedTape(Tape):
    """A tape that bounds what loops add: the nodes that an instruction of the user's makes when it runs again. What
    stands outside of loops is bounded as ever."""

    def __init__(self, sizes: Mapping[str, int] | None = None, *, merging: bool = False) -> None:
        super().__init__(sizes, merging=merging)
        self.rounds: Counter[tuple[CodeType, int]] = Counter()  # by the instruction
        self.call: FrameType | None = None  # that an instruction made last
        self.steps = 0

    def add(self, node: Node) -> Node:
        call = _called()
        place = (call.f_back.f_code, call.f_back.f_lasti) if call.f_back else (call.f_code, 0)
        if call is not self.call:
            self.call = call
            self.rounds[place] += 1
        if self.rounds[place] > 1:
            self.steps += _WEIGHTS.get(type(node.kind), 1)
        if self.steps > MOST_STEPS:
            told = f"a loop takes more than {MOST_STEPS} steps in {self.rounds[place]} rounds, which are unrolled"
            counted = "a reduction counts as 5, cells that are written into an array as 15"
            raise UnsupportedError(f"{told} ({counted}); write it for whole axes, without a loop over cells")
        return super().add(node)


def _called() -> FrameType:
    """The call in which the user's code is: the outermost frame that leads here and is NumPy's or noyau's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(PACKAGES):
        frame = frame.f_back
    return frame
