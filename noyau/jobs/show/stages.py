"""The stages of the compiler, from graph to text, of each kernel of a model, an op or a module; the view of an op."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from types import MappingProxyType

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from noyau.codegen.language import GENERATIONS
from noyau.codegen.plan import Planned, spell
from noyau.errors import InputError, UnsupportedError
from noyau.ir.graph import Node
from noyau.ir.loops import Role
from noyau.ir.text import graph_text, kernel_text
from noyau.jobs.report.text import hanging, plain
from noyau.kernels.programs.generate import GeneratedProgram, Specialization, generate, print_program
from noyau.kernels.programs.program import KernelStep, LibraryStep, Step
from noyau.kernels.reference import Description
from noyau.signatures.instances import usual_sizes
from noyau.signatures.types import Instance
from noyau.text import Printed, printable

STAGES = ("graph", "normal", "loops", "scheduled", "text")
_MARKS = MappingProxyType({"equal": " ", "replace": "|", "delete": "<", "insert": ">"})


@dataclass(frozen=True, slots=True)
class KernelStages:
    """A kernel, and what prints it at each stage: `STAGES` in order."""

    name: str
    printers: Mapping[str, Callable[[], str]]

    def text(self, stage: str) -> str:
        """The kernel at a stage. InputError for a stage that there is not."""
        if stage not in self.printers:
            raise InputError(f"there is no stage {printable(stage)}; the stages are: {', '.join(STAGES)}, all")
        return self.printers[stage]()


class Staged(ABC):
    """Holder of kernels whose stages can be seen."""

    __slots__ = ()

    @property
    @abstractmethod
    def stages(self) -> Sequence[KernelStages]:
        """The kernels with their stages."""

    def stage(self, stage: str, kernel: str | None = None) -> str:
        """Every kernel, or the one of a name, at a stage: graph (as the user spelt it), normal (one spelling for all),
        loops (lowered), scheduled, text (the source), or all. InputError where there is no such stage or kernel."""
        names = STAGES if stage == "all" else (stage,)
        parts = [(f"{each.name}: {name}", each.text(name)) for each in self._chosen(kernel) for name in names]
        return "\n\n".join(f"==== {head} ====\n{text.rstrip()}" for head, text in parts) + "\n"

    def difference(self, stage: str, other: str, kernel: str | None = None) -> Difference:
        """Two stages of every kernel, or of the one of a name, side by side. InputError as from `stage`."""
        chosen = self._chosen(kernel)
        return Difference((stage, other), tuple((each.name, each.text(stage), each.text(other)) for each in chosen))

    def _chosen(self, kernel: str | None) -> Sequence[KernelStages]:
        chosen = [each for each in self.stages if kernel in (None, each.name)]
        if kernel is not None and not chosen:
            names = ", ".join(each.name for each in self.stages) or "none"
            raise InputError(f"there is no generated kernel {printable(kernel)}; there are: {names}")
        return chosen


@dataclass(frozen=True, slots=True, repr=False)
class Difference(Printed):
    """Two stages of kernels side by side; prints itself. `kernels`: a name and two texts each."""

    stages: tuple[str, str]
    kernels: tuple[tuple[str, str, str], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for name, left, right in self.kernels:
            table = Table(box=None, expand=True, pad_edge=False, title=name, title_justify="left")
            table.add_column(self.stages[0], ratio=1, overflow="fold")
            table.add_column("", width=1)
            table.add_column(self.stages[1], ratio=1, overflow="fold")
            for mark, one, other in aligned(left.splitlines(), right.splitlines()):
                style = "" if mark == " " else "bold"
                table.add_row(Text(one, style=style), mark, Text(other, style=style))
            yield table

    def __str__(self) -> str:
        return plain(self)


def aligned(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """The lines of two texts in pairs, with a mark: " " equal, "|" changed, "<" on the left alone, ">" on the right."""
    for kind, start, stop, other_start, other_stop in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for one, other in zip_longest(left[start:stop], right[other_start:other_stop]):
            missing = "insert" if one is None else "delete" if other is None else kind
            yield _MARKS[missing], one or "", other or ""


def stages_of(kernel: Planned) -> KernelStages:
    """A kernel of a model or a module; of one that a user wrote the graph and the text."""
    group = kernel.groups[0]
    printers: dict[str, Callable[[], str]] = {
        "graph": lambda: graph_text(group.original),
        "normal": lambda: graph_text(group.graph),
        "loops": lambda: kernel_text(group.kernel),
        "scheduled": lambda: kernel_text(kernel.kernel),
        "text": lambda: kernel.text,
    }
    return KernelStages(kernel.operator, printers)


def _stages_of_step(generated: GeneratedProgram, step: KernelStep) -> KernelStages:
    """A kernel of an op; the graph is that of the whole op."""
    program = generated.program
    alone = program if len(program.kernels) == 1 else type(program)(step.graph, (step,))
    printers: dict[str, Callable[[], str]] = {
        "graph": lambda: graph_text(generated.graph),
        "normal": lambda: graph_text(step.graph),
        "loops": lambda: kernel_text(step.lowered),
        "scheduled": lambda: kernel_text(step.kernel),
        "text": lambda: print_program(alone, generated.language, ""),
    }
    return KernelStages(step.kernel.name, printers)


@dataclass(frozen=True, slots=True)
class ShownOp(Staged):
    """View of an op, before anything is compiled; prints itself. `program`: it for usual inputs, or
    why there is none."""

    description: Description
    instance: Instance
    program: GeneratedProgram | str

    @property
    def stages(self) -> list[KernelStages]:
        if isinstance(self.program, str):
            raise InputError(f"nothing is generated: {self.program}")
        steps = self.program.program.steps
        return [_stages_of_step(self.program, step) for step in steps if isinstance(step, KernelStep)]

    def source(self, kernel: str | None = None, language: str = "c") -> str:
        """The text of an attached kernel, or of the generated ones in a language (`kernel` is then one of their names,
        or nothing).

        InputError where there is none of that name or language, or the op is not traced."""
        attached = {each.name: each.text for each in self.description.kernels}
        if kernel in attached:
            return attached[kernel]
        if GENERATIONS.get(language) is None:
            raise InputError(f"there is no language {printable(language)} yet; there are: {', '.join(GENERATIONS)}")
        if isinstance(self.program, str):
            raise InputError(f"nothing is generated: {self.program}")
        names = [each.name for each in self.program.program.kernels]
        if kernel is not None and kernel not in names:
            known = ", ".join((*attached, *names)) or "none"
            raise InputError(f"the op has no kernel {printable(kernel)}; its kernels are: {known}")
        if language == self.program.language:
            return self.program.text
        return generate(self.description, self.program.wanted, language).text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble((printable(self.description.name), "bold"), f"  {printable(str(self.instance))}")
        yield from hanging(printable(self.description.place), options.max_width, "  ", style="dim")
        if isinstance(self.program, str):
            yield from hanging(printable(self.program), options.max_width, "\nnothing is generated: ", "    ")
        else:
            for step in self.program.program.steps:
                yield from _op_step(step, options.max_width)
            if self.program.program.cuts:
                yield Text("\nWhy these are not one kernel", style="bold")
            for where, reason in self.program.program.cuts:
                yield from hanging(printable(f"{where}: {reason}"), options.max_width, "  ", "      ")
        for kernel in self.description.kernels:
            yield Text.assemble("\n", (printable(kernel.name), "bold"), f"  attached, in {kernel.language}")
            yield from hanging(printable(kernel.place), options.max_width, "  ", style="dim")


def show_op(description: Description, instance: Instance, language: str = "c") -> ShownOp:
    """View an op for inputs of these dtypes and ranks, in a language."""
    try:
        wanted = Specialization(instance, description.reference.constants, sizes=usual_sizes(instance, {}))
        result: GeneratedProgram | str = generate(description, wanted, language)
    except UnsupportedError as error:
        result = str(error)
    return ShownOp(description, instance, result)


def _op_step(step: Step, width: int) -> Iterator[RenderableType]:
    match step:
        case KernelStep(kernel):
            count = len(kernel.launches)
            yield Text.assemble("\n", (kernel.name, "bold"), f"  a kernel{f' of {count} launches' * (count > 1)}")
            for role, word in ((Role.INPUT, "reads"), (Role.OUTPUT, "writes")):
                for number, buffer in enumerate(kernel.of(role)):
                    yield from hanging(printable(spell(buffer)), width, f"  {'' if number else word:8}", " " * 12)
        case LibraryStep(graph, reason):
            yield Text.assemble("\n", (printable(graph.outputs[0]), "bold"), "  by NumPy")
            yield from hanging(", ".join(map(_typed, graph.inputs)), width, "  reads   ", " " * 12)
            yield from hanging(printable(reason), width, "  ", "    ", style="dim")


def _typed(node: Node) -> str:
    return printable(f"{node.output}: {node.dtype.value}[{', '.join(map(str, node.shape))}]")
