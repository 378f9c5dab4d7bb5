"""`noyau show` of an op: its steps, the reasons why they are not one kernel, and the source of its kernels."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from noyau.codegen.language import GENERATIONS
from noyau.codegen.plan import spell
from noyau.errors import InputError, UnsupportedError
from noyau.ir.loop_printer import kernel_text
from noyau.ir.loops import Role
from noyau.jobs.report.text import hanging
from noyau.jobs.show.stages import KernelStages, StagedKernels, kernel_stages
from noyau.kernels.programs.generate import GeneratedProgram, generate, generate_usual, print_program
from noyau.kernels.programs.program import KernelStep, LibraryStep, Step
from noyau.kernels.reference import Description
from noyau.signatures.types import Instance
from noyau.text import printable


def _stages_of_step(generated: GeneratedProgram, step: KernelStep) -> KernelStages:
    """The stages of a kernel of an op; the stage graph is that of the whole op."""
    program = generated.program
    alone = program if len(program.kernels) == 1 else type(program)(step.graph, (step,))
    loops = partial(kernel_text, step.lowered), partial(kernel_text, step.kernel)
    text = partial(print_program, alone, generated.language, "")
    return kernel_stages(step.kernel.name, generated.graph, step.graph, *loops, text)


@dataclass(frozen=True, slots=True, repr=False)
class ShownOp(StagedKernels):
    """The view of an op, before anything is compiled; prints itself. `program`: for usual inputs, or why it lacks."""

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
        """The text of an attached kernel, or of the generated ones in a language (`kernel`: one of their names, or "").

        InputError for an unknown kernel or language, or where the op cannot be traced."""
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
    """The view of an op for inputs of these dtypes and ranks, in a language."""
    try:
        result: GeneratedProgram | str = generate_usual(description, instance, language)
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
            inputs = (f"{e.output}: {e.dtype.value}[{', '.join(map(str, e.shape))}]" for e in graph.inputs)
            yield from hanging(", ".join(map(printable, inputs)), width, "  reads   ", " " * 12)
            yield from hanging(printable(reason), width, "  ", "    ", style="dim")
