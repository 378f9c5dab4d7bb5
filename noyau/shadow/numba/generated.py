"""The kernels that noyau itself prints in Numba, watched as those of a user are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noyau.builders.numba import Compiled, bits_of
from noyau.checking.findings import Finding
from noyau.dispatching.running import Built
from noyau.shadow.numba.watching import MOST, Watching
from noyau.shadow.recording import Recorder
from noyau.shadow.records import Site, Watched

Array = np.ndarray


@dataclass(slots=True)
class _Steps:
    """What the kernels of one program showed, one after the other."""

    op: str
    name: str
    size: str
    findings: list[Finding] = field(default_factory=list)
    accesses: int = 0

    def call(self, kernel: Any, arrays: Sequence[Array]) -> list[Array]:
        """A kernel's results, watched."""
        assert isinstance(kernel, Compiled)
        function, inputs, outputs = kernel.opened(arrays)
        seen = [bits_of(output) for output in outputs]
        recorder = Recorder(MOST)
        watching = Watching(function, recorder, {id(each): f"output {n}" for n, each in enumerate(seen)})
        watching(*inputs, *seen)
        self.findings += watching.findings(self.op, self.name, self.size)[0]
        self.findings += watching.unwritten(self.op, self.name, self.size, Site.of(*watching.place))
        self.accesses += recorder.shadow.accesses
        return outputs


def watch_generated(built: Built, arrays: Sequence[Array], op: str, name: str, size: str) -> Watched:
    """Every kernel of a program in language numba, on arrays that lie as it wants them."""
    steps = _Steps(op, name, size)
    results = built.run(arrays, steps.call)
    return Watched(tuple(steps.findings), steps.accesses, outputs=tuple(results))
