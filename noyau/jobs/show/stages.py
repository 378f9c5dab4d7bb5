"""The stages of the compiler, from graph to text, of each kernel of a model, an op or a module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import zip_longest
from types import MappingProxyType

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from noyau.codegen.plan import PlannedKernel
from noyau.errors import InputError
from noyau.ir.graph import Graph
from noyau.ir.graph_printer import graph_text
from noyau.ir.loop_printer import kernel_text
from noyau.jobs.page import document
from noyau.jobs.page.document import Page
from noyau.jobs.report.text import PageRecord, plain
from noyau.text import TextRecord, printable

TRY = "Not tried yet: noyau optimize certifies it and times it."
STAGES = ("graph", "normal", "loops", "scheduled", "text")
_MARKS = MappingProxyType({"equal": " ", "replace": "|", "delete": "<", "insert": ">"})


@dataclass(frozen=True, slots=True)
class KernelStages:
    """A kernel with its printers for each stage of `STAGES`, in order."""

    name: str
    printers: Mapping[str, Callable[[], str]]

    def text(self, stage: str) -> str:
        """The text of the kernel at a stage. InputError for an unknown stage."""
        if stage not in self.printers:
            raise InputError(f"there is no stage {printable(stage)}; the stages are: {', '.join(STAGES)}, all")
        return self.printers[stage]()


class StagedKernels(PageRecord, TextRecord, ABC):
    """Base of views of kernels whose stages can be printed."""

    __slots__ = ()

    def __str__(self) -> str:
        return plain(self)

    @property
    @abstractmethod
    def stages(self) -> Sequence[KernelStages]:
        """The kernels with their stages."""

    def stage(self, stage: str, kernel: str | None = None) -> str:
        """Every kernel, or the named one, at a stage: graph (as the user wrote it), normal (in normal form), loops
        (lowered), scheduled, text (the source), or all. InputError for an unknown stage or kernel."""
        names = STAGES if stage == "all" else (stage,)
        parts = [(f"{each.name}: {name}", each.text(name)) for each in self._choose(kernel) for name in names]
        return "\n\n".join(f"==== {head} ====\n{text.rstrip()}" for head, text in parts) + "\n"

    def difference(self, stage: str, other: str, kernel: str | None = None) -> Difference:
        """Two stages of every kernel, or of the named one, side by side. InputError as from `stage`."""
        chosen = self._choose(kernel)
        return Difference((stage, other), tuple((each.name, each.text(stage), each.text(other)) for each in chosen))

    def _page(self) -> Page:
        """The page: the view's text, and the sources of its kernels."""
        head, *rest = str(self).splitlines()
        try:
            texts = {each.name: {"text": each.text("text"), "evidence": TRY} for each in self.stages}
        except InputError:  # nothing is generated; the text gives the reason
            texts = {}
        rows = ({"kernel": name, "lines": each["text"].count("\n")} for name, each in texts.items())
        sections = [document.summary(head, "plain"), document.table("Kernels", rows), document.lines("Steps", rest)]
        return Page(head.partition(" ")[0], "show", sections, texts)

    def _choose(self, kernel: str | None) -> Sequence[KernelStages]:
        """Every kernel; or the named one, or the only one whose name begins so. InputError where there is none."""
        if kernel is None:
            return self.stages
        begins = [each for each in self.stages if each.name.startswith(kernel)]
        chosen = [each for each in begins if each.name == kernel] or begins
        if len({each.name for each in chosen}) != 1:
            problem = "several generated kernels begin with" if chosen else "there is no generated kernel"
            names = ", ".join(each.name for each in begins or self.stages) or "none"
            raise InputError(f"{problem} {printable(kernel)}; there are: {names}")
        return chosen


@dataclass(frozen=True, slots=True, repr=False)
class Difference(TextRecord):
    """Two stages of kernels side by side; prints itself. `kernels`: the name and the two texts of each."""

    stages: tuple[str, str]
    kernels: tuple[tuple[str, str, str], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for name, left, right in self.kernels:
            table = Table(box=None, expand=True, pad_edge=False, title=name, title_justify="left")
            table.add_column(self.stages[0], ratio=1, overflow="fold")
            table.add_column("", width=1)
            table.add_column(self.stages[1], ratio=1, overflow="fold")
            for mark, one, other in align_lines(left.splitlines(), right.splitlines()):
                style = "" if mark == " " else "bold"
                table.add_row(Text(one, style=style), mark, Text(other, style=style))
            yield table

    def __str__(self) -> str:
        return plain(self)


def align_lines(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """The lines of two texts in pairs, with a mark: " " equal, "|" changed, "<" only on the left, ">" on the right."""
    for kind, start, stop, other_start, other_stop in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for one, other in zip_longest(left[start:stop], right[other_start:other_stop]):
            yield _MARKS["insert" if one is None else "delete" if other is None else kind], one or "", other or ""


def stages_of(kernel: PlannedKernel) -> KernelStages:
    group = kernel.groups[0]
    texts = (lambda: kernel_text(group.kernel), lambda: kernel_text(kernel.kernel), lambda: kernel.text)
    return kernel_stages(kernel.operator, group.original, group.graph, *texts)


def kernel_stages(name: str, graph: Graph, normal: Graph, *texts: Callable[[], str]) -> KernelStages:
    """The stages of a kernel, from its graph, the graph in normal form, and printers of the later stages."""
    graphs = partial(graph_text, graph), partial(graph_text, normal)
    return KernelStages(name, dict(zip(STAGES, (*graphs, *texts), strict=True)))
