"""`noyau show`: a model's groups, why it is cut where it is, and the source of its kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from noyau.builders import cc
from noyau.checking.inputs import printable
from noyau.errors import InputError
from noyau.frontends import onnx as frontend
from noyau.passes.partition import Cut, Partition, partition
from noyau.planning import Plan, Planned, plan, spell


@dataclass(frozen=True, slots=True)
class Shown:
    """What noyau sees in a model, before anything is compiled; prints itself."""

    title: str
    operators: tuple[str, ...]
    partition: Partition
    plan: Plan

    def source(self, kernel: str, language: str = "c") -> str:
        """The text of one kernel; InputError where there is none of that name or language."""
        if language != "c":
            raise InputError(f"there is no language {language} yet; the languages are: c")
        for planned in self.plan.kernels:
            if planned.operator == kernel:
                return planned.explained()
        known = ", ".join(planned.operator for planned in self.plan.kernels) or "none"
        raise InputError(f"the model has no kernel {kernel}; its kernels are: {known}")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        covered = sum(len(group.positions) for group in self.partition.groups)
        yield Text(f"{self.title}: {len(self.operators)} operators, {covered} of them in {len(self.plan.kernels)} kernels\n")
        for planned in self.plan.kernels:
            yield from _kernel(planned)
        yield Text("\nWhy the rest is as it is", style="bold")
        for line in reasons(self.partition.cuts, self.operators):
            yield Text(f"  {line}")


def _kernel(planned: Planned) -> Iterator[Text]:
    """A kernel in a few lines: its name, what it replaces, what it reads and writes."""
    group, buffers = planned.groups[0], [printable(spell(buffer)) for buffer in planned.kernel.buffers]
    reads, count = len(group.inputs), len(planned.groups)
    yield Text(f"\n{planned.operator}", style="bold") + Text(f"  {count} places" if count > 1 else "", style="dim")
    yield Text(f"  replaces  {' '.join(planned.replaces)}")
    yield Text(f"  reads     {'; '.join(buffers[:reads])}")
    yield Text(f"  writes    {'; '.join(buffers[reads : reads + len(group.outputs)])}")


def reasons(cuts: tuple[Cut, ...], operators: tuple[str, ...]) -> Iterator[str]:
    """Each reason once, with the operators that it holds for."""
    places: dict[str, list[str]] = defaultdict(list)
    for cut in cuts:
        name = f"{operators[cut.producer]}#{cut.producer}"
        if cut.consumer is not None:
            name += f" -> {operators[cut.consumer]}#{cut.consumer}"
        places[cut.reason].append(name)
    for reason, names in sorted(places.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        yield printable(f"{reason}: {shown}")


def show(path: str | Path, *, target: str = "native") -> Shown:
    """The groups, the reasons and the kernels of a model. ModelError where the file is no model."""
    path = Path(path)
    model = frontend.read(path)
    cut = partition(frontend.wired(model, frontend.import_model(model, path.parent)))
    operators = tuple(node.op_type for node in model.graph.node)
    return Shown(path.name, operators, cut, plan(cut.groups, operators, cc.resolve_target(target)))
