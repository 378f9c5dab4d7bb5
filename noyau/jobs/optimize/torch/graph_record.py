"""The record of the graphs that were compiled for a module."""

from __future__ import annotations

from dataclasses import dataclass, field

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.hosts.torch.modules.sites import TracedGraph
from noyau.jobs.optimize.candidate import Candidate


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """Outcome of one graph: `kind` is inference, forward or backward; `whole` says why all of it was left to torch,
    where it was."""

    kind: str
    source: TracedGraph | None
    partition: Partition
    plan: Plan
    candidates: tuple[Candidate, ...] = ()
    whole: str = ""

    @property
    def kept(self) -> tuple[Candidate, ...]:
        return tuple(one for one in self.candidates if one.kept)


@dataclass(slots=True)
class GraphRecord:
    """Every graph that was compiled for a module, in order; none where it `forgets`: they are large, and torch keeps
    what compiles them as long as the module."""

    graphs: list[CompiledGraph] = field(default_factory=list)
    forgets: bool = False

    def tell(self, graph: CompiledGraph) -> None:
        """A graph that was compiled."""
        if not self.forgets:
            self.graphs.append(graph)
