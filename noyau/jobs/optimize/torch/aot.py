"""Work on graphs ahead of their compilation: their kernels are built and checked while torch goes on.

AOTAutograd hands over the graph of the forward, and that of the backward when a gradient is first asked for; it has
both when it cuts them apart. From there on the second is cut into kernels while those of the first are built and
checked.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from threading import Lock, Thread

from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.errors import BuildError, UnsupportedError
from noyau.hosts.torch.fast_calls import library
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.sites import TracedGraph
from noyau.ir import ranges
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.pipeline import Say
from noyau.jobs.optimize.torch import candidates as torch_candidates
from noyau.jobs.optimize.torch.certification import Certification
from noyau.jobs.optimize.torch.options import CERTIFICATES, CompileOptions
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.cache import digest

_BEGINNING = Lock()  # of Triton: what two threads find out at once they both work for


@dataclass(frozen=True, slots=True)
class Sketch:
    """A graph cut into kernels."""

    source: TracedGraph
    cut: Partition
    plan: Plan


class AheadOfTime:
    """Graphs of one captured module, and the certificates of their kernels. Use it in a `with`, which ends what still
    runs; what is known by then stays known. Once `closed`, who begins something ends it. `waits`: whether kernels
    are wanted at once."""

    def __init__(
        self,
        wishes: CompileOptions,
        say: Say,
        *,
        reasons: bool = True,
        on_gpu: bool = False,
        waits: bool = True,
    ) -> None:
        self.certification, self.say = Certification(CERTIFICATES[wishes.certificate]), say
        self.reasons = reasons
        self.closed = False
        self._sketches: dict[str, Sketch] = {}
        # The C that calls kernels takes a compiler half a second; Triton, twice that for what calls the driver.
        begun = (begin_triton if on_gpu else library) if waits else None
        self._doors = Thread(target=begun, daemon=True)

    def __enter__(self) -> AheadOfTime:
        self._doors.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self._doors.join()
        self.certification.__exit__()

    def begin(self, program: fx.Graph) -> None:
        """Begin with a graph that will be compiled; what is wrong with it is said when it is."""
        with contextlib.suppress(UnsupportedError, BuildError), _disable_current_modes():
            if modules_sites.device_of(program) == modules_sites.CPU:
                sketch = self.sketched(modules_sites.trace_graph(program))
                self._sketches[program_key(program)] = sketch
                self.certification.begin(sketch.plan.kernels, sketch.source, self.say)
        ranges.forget()

    def sketch(self, program: fx.Graph) -> Sketch | None:
        """The kernels of a graph that was begun with, which is forgotten here."""
        return self._sketches.pop(program_key(program), None) if self._sketches else None

    def sketched(self, source: TracedGraph) -> Sketch:
        """A graph cut into kernels; the reasons of the cuts where `reasons` is."""
        cut = modules_sites.cut(source, reasons=self.reasons)
        return Sketch(source, cut, torch_candidates.plan(cut.groups, source.operators, c_compiler.level()))

    def ready(self) -> None:
        """Wait for what a first kernel needs and is found out beside."""
        self._doors.join()

    def candidates(self, sketch: Sketch) -> list[Candidate]:
        """The kernels of a graph with their evidence; nothing else is built or checked any more after that."""
        self.ready()
        return self.certification.candidates(sketch.plan.kernels, sketch.source, self.say)


def begin_triton() -> None:
    """Triton's own beginnings, once; where they go wrong, the first kernel says so."""
    with _BEGINNING, contextlib.suppress(Exception):
        from noyau.toolchain.triton import module as triton_module

        triton_module.begin()


def program_key(program: fx.Graph) -> str:
    """A digest of all that noyau sees in a graph: its nodes by name, their arguments, and what they make."""
    nodes = (f"{node.name} {node.op} {node.target} {node.args} {node.kwargs}" for node in program.nodes)
    return digest(*nodes, *(str(node.meta.get("val")) for node in program.nodes))
