"""`noyau show` of a model: its groups, the reasons of its cuts, and the source of its kernels."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from noyau.codegen.language import LANGUAGES
from noyau.codegen.plan import Plan, PlannedKernel, kernel_named, plan, spell
from noyau.compiler.partition.cut import Cut, Partition
from noyau.errors import BuildError, InputError
from noyau.hosts.onnxruntime.activations import Activations
from noyau.hosts.onnxruntime.path_ends import Between
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from noyau.hosts.onnxruntime.subgraph import cut_of
from noyau.hosts.onnxruntime.write_back import installable
from noyau.ir.loops import Role
from noyau.jobs.optimize.onnx.candidates import certify_candidate, compile_kernels
from noyau.jobs.optimize.pipeline import Candidate
from noyau.jobs.page import document
from noyau.jobs.page.document import Page, Section, graphs
from noyau.jobs.page.graphs import plan_drawing
from noyau.jobs.report.text import hanging
from noyau.jobs.show.stages import TRY, KernelStages, StagedKernels, stages_of
from noyau.text import collect, few, printable, several
from noyau.toolchain.c import compiler as c_compiler

_MOST = 4  # operators named with a reason
_TRIED = "adversarial inputs alone: noyau optimize tries it on activations of the model too"


@dataclass(frozen=True, slots=True, repr=False)
class ShownModel(StagedKernels):
    """The view of a model, before anything is compiled; prints itself."""

    title: str
    labels: tuple[str, ...]
    partition: Partition
    plan: Plan
    target: str
    origin: str = ""
    original: SourceModel | None = field(default=None, compare=False)  # only for a page

    @property
    def stages(self) -> list[KernelStages]:
        return [stages_of(each) for each in self.plan.kernels]

    @property
    def count(self) -> str:
        covered = sum(len(group.positions) for kernel in self.plan.kernels for group in kernel.groups)
        return f"{covered} of {sum(map(bool, self.labels))} operators in {several(len(self.plan.kernels), 'kernel')}"

    @property
    def left(self) -> list[tuple[str, str]]:
        """The operators that are cut apart or in no kernel, and the reasons."""
        refused = self.plan.refused
        places = collect((reason, self.labels[at]) for group, reason in refused for at in group.positions)
        rest = ((few(names, _MOST), reason) for reason, names in places.items())
        return [*reasons(self.partition.cuts, self.labels), *rest]

    def source(self, kernel: str, language: str = "c") -> str:
        """The text of one kernel, headed by its certificate: it is built and tried on adversarial inputs for that.
        InputError for an unknown kernel or language."""
        if language not in LANGUAGES or not LANGUAGES[language].is_native:
            native = ", ".join(name for name, each in LANGUAGES.items() if each.is_native)
            raise InputError(f"there is no language {printable(language)} yet; the languages are: {native}")
        planned = kernel_named(kernel, self.plan.kernels)
        return planned.explain(_certificate(planned, self.target))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble((printable(self.title), "bold"), f": {self.count}")
        if self.origin:
            yield from hanging(self.origin, options.max_width, rest="  ", style="dim")
        for kernel in self.plan.kernels:
            yield from _kernel(kernel, options.max_width)
        if self.left:
            yield Text("\nWhy the rest is as it is", style="bold")
        for where, reason in self.left:
            yield from hanging(printable(reason), options.max_width, "  ", "    ")
            yield from hanging(printable(where), options.max_width, "      ", style="dim")

    def _page(self) -> Page:
        """The page: the graph in the colours of its kernels, their sources, and the reasons of cuts."""
        sources = {each.operator: document.source_of(each, TRY) for each in self.plan.kernels}
        return Page(printable(self.title), "show", list(self._sections()), sources)

    def _sections(self) -> Iterator[Section]:
        yield document.summary(self.count, "plain", filter(None, (self.origin,)))
        if self.original is not None:
            yield graphs("The graph", [plan_drawing("The model", self.original, self.partition.cuts, self.plan, {})])
        yield document.table("Kernels", map(_row, self.plan.kernels), "Choose a kernel for its source.")
        left = ({"where": where, "reason": reason} for where, reason in self.left)
        yield document.table("Why the rest is as it is", left)


def _row(kernel: PlannedKernel) -> dict[str, Any]:
    roles = {"reads": Role.INPUT, "writes": Role.OUTPUT}
    buffers = {word: [printable(spell(buffer)) for buffer in kernel.kernel.of(role)] for word, role in roles.items()}
    return {"kernel": kernel.operator, "places": len(kernel.groups), **buffers, "replaces": kernel.replaces}


def _certificate(kernel: PlannedKernel, target: str) -> str:
    """The evidence on a kernel by adversarial inputs only, without a run of the model."""
    options = c_compiler.CompilerOptions(target=target, export=True)
    try:
        judged = compile_kernels([kernel], options)[0]
    except BuildError as error:
        judged = Candidate(kernel, reason=f"not tried: {error}")
    tried = certify_candidate(judged, Activations({}, {}, made_up=False), options, seed=0)
    return replace(tried, note=_TRIED if tried.certificate else "").evidence


def _kernel(kernel: PlannedKernel, width: int) -> Iterator[RenderableType]:
    """A kernel in a few lines: its name, the operators that it replaces, its buffers."""
    group, buffers = kernel.groups[0], [printable(spell(buffer)) for buffer in kernel.kernel.buffers]
    reads, count = len(group.inputs), len(kernel.groups)
    yield Text.assemble("\n", (kernel.operator, "bold"), (f"  {count} places" if count > 1 else "", "dim"))
    yield from hanging(", ".join(map(printable, kernel.replaces)), width, "  replaces  ")
    for number, buffer in enumerate(buffers[: reads + len(group.outputs)]):
        yield from hanging(buffer, width, {0: "  reads     ", reads: "  writes    "}.get(number, " " * 12), " " * 14)


def reasons(cuts: tuple[Cut, ...], labels: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each reason of a cut once, preceded by its operators; the most frequent first."""
    ends = ((cut.reason, (cut.producer, cut.consumer)) for cut in cuts)
    places = collect((reason, " -> ".join(labels[at] for at in both if at is not None)) for reason, both in ends)
    yield from ((few(names, _MOST), reason) for reason, names in sorted(places.items(), key=lambda item: -len(item[1])))


def show(path: str | Path, *, target: str = "native", between: Between | None = None) -> ShownModel:
    """The groups, cuts and kernels of a model, or only of the path `between` some of its values.

    ModelError where the file is no model, InputError where the ends of the path enclose no graph."""
    original = open_model(Path(path), flat=True, wide=between is None)
    cut, level = cut_of(original, between), c_compiler.resolve_target(target)
    plans = installable(plan(cut.groups, original.operators, level), original.model, original.folder)
    plans = replace(plans, kernels=tuple(map(original.locate, plans.kernels)))
    return ShownModel(original.name, original.labels, cut, plans, level, original.origin, original)
