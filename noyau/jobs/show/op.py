"""`noyau show FILE.py::OP`: what an op becomes, step by step, and the text of its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from noyau.codegen.language import GENERATIONS
from noyau.codegen.plan import spell
from noyau.errors import InputError, UnsupportedError
from noyau.ir.graph import Node
from noyau.ir.loops import Role
from noyau.jobs.report.text import hanging
from noyau.jobs.show.stages import KernelStages, Staged, stages_of_program
from noyau.kernels.programs.generate import GeneratedProgram, Specialization, generate
from noyau.kernels.programs.program import KernelStep, LibraryStep, Step
from noyau.kernels.reference import Description
from noyau.signatures.instances import usual_sizes
from noyau.signatures.types import Instance
from noyau.text import printable


@dataclass(frozen=True, slots=True)
class ShownOp(Staged):
    """View of an op, before anything is compiled; prints itself. `made`: its program for usual inputs, or
    why there is none."""

    description: Description
    instance: Instance
    made: GeneratedProgram | str

    @property
    def stages(self) -> list[KernelStages]:
        if isinstance(self.made, str):
            raise InputError(f"nothing is generated: {self.made}")
        return stages_of_program(self.made)

    def source(self, kernel: str | None = None, language: str = "c") -> str:
        """The text of an attached kernel, or of the generated ones in a language (`kernel` is then one of their names,
        or nothing).

        InputError where there is none of that name or language, or the op is not traced."""
        attached = {each.name: each.text for each in self.description.kernels}
        if kernel in attached:
            return attached[kernel]
        if GENERATIONS.get(language) is None:
            raise InputError(f"there is no language {printable(language)} yet; there are: {', '.join(GENERATIONS)}")
        if isinstance(self.made, str):
            raise InputError(f"nothing is generated: {self.made}")
        names = [made.name for made in self.made.program.kernels]
        if kernel is not None and kernel not in names:
            known = ", ".join((*attached, *names)) or "none"
            raise InputError(f"the op has no kernel {printable(kernel)}; its kernels are: {known}")
        if language == self.made.language:
            return self.made.text
        return generate(self.description, self.made.wanted, language).text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble((printable(self.description.name), "bold"), f"  {printable(str(self.instance))}")
        yield from hanging(printable(self.description.place), options.max_width, "  ", style="dim")
        if isinstance(self.made, str):
            yield from hanging(printable(self.made), options.max_width, "\nnothing is generated: ", "    ")
        else:
            for step in self.made.program.steps:
                yield from _step(step, options.max_width)
            if self.made.program.cuts:
                yield Text("\nWhy these are not one kernel", style="bold")
            for where, reason in self.made.program.cuts:
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


def _step(step: Step, width: int) -> Iterator[RenderableType]:
    match step:
        case KernelStep(kernel):
            yield Text.assemble("\n", (kernel.name, "bold"), f"  {_launches(len(kernel.launches))}")
            for role, word in ((Role.INPUT, "reads"), (Role.OUTPUT, "writes")):
                for number, buffer in enumerate(kernel.of(role)):
                    yield from hanging(printable(spell(buffer)), width, f"  {'' if number else word:8}", " " * 12)
        case LibraryStep(graph, reason):
            yield Text.assemble("\n", (printable(graph.outputs[0]), "bold"), "  by NumPy")
            yield from hanging(", ".join(map(_spelt, graph.inputs)), width, "  reads   ", " " * 12)
            yield from hanging(printable(reason), width, "  ", "    ", style="dim")


def _launches(count: int) -> str:
    return "a kernel" if count == 1 else f"a kernel of {count} launches"


def _spelt(node: Node) -> str:
    return printable(f"{node.output}: {node.dtype.value}[{', '.join(map(str, node.shape))}]")
