"""Plan of kernels from groups: equal groups share a kernel, named after its operations and a digest of its text."""

import hashlib
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from threading import Lock

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.spellings import comment_text
from noyau.codegen.cuda import printer as cuda_printer
from noyau.codegen.cuda.printer import require_architectures
from noyau.codegen.language import GENERATIONS
from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition.costs import bytes_moved, flops
from noyau.compiler.partition.cut import Group
from noyau.compiler.passes.rewrite import nameless
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, Options, schedule
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.errors import InputError, UnsupportedError
from noyau.ir.graph import Gather, Graph, Kind, Map, Reduce
from noyau.ir.loops import Buffer, Kernel, Role
from noyau.ir.operators import OPERATORS
from noyau.text import printable

_WIDTH = 110  # of a line of a certificate
COSTLY = 4  # least flops of a function that is part of a kernel's name


@dataclass(frozen=True, slots=True)
class GridTwin:
    """The twin of a planned kernel for GPUs: scheduled for a GPU, with its text in language `cuda`. `architectures`:
    those of its code, ("sm_90", "compute_90"), the last one as PTX."""

    kernel: Kernel
    text: str
    architectures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """A kernel and the groups that it computes. `operator`: its name in a runtime; `text`: its source in `language`, or
    in C beside a `twin` for GPUs; `by_hand`: it is a user kernel, of which noyau knows only inputs and outputs."""

    operator: str
    kernel: Kernel
    graph: Graph
    groups: tuple[Group, ...]
    replaces: tuple[str, ...]
    text: str
    by_hand: bool = False
    language: str = "c"
    twin: GridTwin | None = None

    @property
    def both_texts(self) -> str:
        """The text, followed by that for a GPU."""
        return self.text + (self.twin.text if self.twin else "")

    def explain(self, certificate: str = "") -> str:
        """The text, headed by a comment: the nodes that it replaces, bytes and flops, its certificate."""
        if self.by_hand:
            return f"{comment_text(describe(self, certificate))}\n\n{self.text}"
        kernel = self.kernel if self.twin is None else self.twin.kernel
        return GENERATIONS[self.language].printer([kernel], describe(self, certificate))


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels of a model, and the groups that the language cannot express, with the reasons."""

    kernels: tuple[PlannedKernel, ...]
    refused: tuple[tuple[Group, str], ...] = ()


@dataclass(slots=True)
class Shelf:
    """Memoised kernels in C by the digest of their computation, shared by all graphs. `letters`: of the digest in a
    kernel's name; `numbered`: a number precedes the digest."""

    letters: int
    numbered: bool = False
    kernels: dict[str, tuple[Kernel, str]] = field(default_factory=dict)
    digests: dict[tuple[Graph, str], str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def kernel(self, group: Group, target: str, options: Options = USUAL) -> tuple[Kernel, str]:
        """The kernel of a group under its final name, and its text. UnsupportedError where C cannot express it."""
        bare = nameless(group.graph), target
        kernel = schedule(group.kernel, options) if bare not in self.digests else None
        if kernel is not None:
            self.digests[bare] = digest(schedule(lower(bare[0], "kernel"), options), target)
        key = self.digests[bare]
        with self.lock:
            if key not in self.kernels:
                number = f"{len(self.kernels)}_" if self.numbered else ""
                name = f"{title(group.graph)}_{number}{key[: self.letters]}"
                named = replace(kernel or schedule(group.kernel, options), name=name)
                self.kernels[key] = named, c_printer.source(named)
            return self.kernels[key]


def plan(groups: Iterable[Group], operators: Sequence[str], target: str, options: Options = USUAL) -> Plan:
    """Plan one kernel in C for equal groups. `operators`: the operator types of the model by position."""
    shelf = Shelf(8, numbered=True)
    return plan_by(groups, operators, lambda group: shelf.kernel(group, target, options))


def plan_by(
    groups: Iterable[Group],
    operators: Sequence[str],
    spell: Callable[[Group], tuple[Kernel, str]],
    language: str = "c",
    graph_of: Callable[[Group], Graph] = attrgetter("graph"),
) -> Plan:
    """Plan one kernel for equal groups. `spell` returns the kernel of a group, whose name is equal for equal groups,
    and its text; a group for which it raises UnsupportedError is refused."""
    kinds, refused = dict[str, tuple[Kernel, str, list[Group]]](), list[tuple[Group, str]]()
    for group in groups:
        try:
            kernel, text = spell(group)
            kinds.setdefault(kernel.name, (kernel, text, []))[2].append(group)
        except UnsupportedError as error:
            refused.append((group, str(error)))
    kernels = []
    for kernel, text, alike in kinds.values():
        graph, replaces = graph_of(alike[0]), tuple(operators[position] for position in alike[0].positions)
        kernels.append(PlannedKernel(kernel.name, kernel, graph, tuple(alike), replaces, text, language=language))
    return Plan(tuple(kernels), tuple(refused))


def with_twins(plan: Plan, architectures: tuple[str, ...]) -> Plan:
    """The plan with a twin for GPUs for each kernel; kernels that language `cuda` cannot express, or that do not run on
    each architecture, become refused."""
    kernels, refused = [], list[tuple[Group, str]]()
    for kernel in plan.kernels:
        try:
            grid = replace(in_blocks(kernel.groups[0].kernel), name=kernel.operator)
            require_architectures(grid, architectures)
            twin = GridTwin(grid, cuda_printer.together([grid]), architectures)
            kernels.append(replace(kernel, twin=twin, language="cuda"))
        except UnsupportedError as error:
            refused += [(group, str(error)) for group in kernel.groups]
    return Plan(tuple(kernels), (*plan.refused, *refused))


def without(plan: Plan, refused: Sequence[tuple[Group, str]]) -> Plan:
    """The plan without some groups, which become refused; a kernel without groups is dropped."""
    gone = {group.positions for group, _ in refused}
    pairs = [(each, tuple(group for group in each.groups if group.positions not in gone)) for each in plan.kernels]
    kernels = (k if left == k.groups else replace(k, graph=left[0].graph, groups=left) for k, left in pairs if left)
    return Plan(tuple(kernels), (*plan.refused, *refused))


def kernel_named(name: str, kernels: Iterable[PlannedKernel], like: Iterable[str] = ()) -> PlannedKernel:
    """The kernel of this name, or the only one whose name begins with it. InputError lists the kernels, and the values
    `like` the name."""
    by_name = {kernel.operator: kernel for kernel in kernels}
    begin = [name] if name in by_name else [each for each in by_name if name and each.startswith(name)]
    if len(begin) == 1:
        return by_name[begin[0]]
    values = ", ".join(map(printable, like))
    alike = f"; values like it, of one place of a kernel: {values}" if values else ""
    problem = f"{len(begin)} kernels that begin with" if begin else "no kernel"
    names = f"{'they' if begin else 'its kernels'} are: {', '.join(begin or by_name) or 'none'}"
    raise InputError(f"the model has {problem} {printable(name)}; {names}{alike}")


def digest(kernel: Kernel, target: str) -> str:
    """The digest of a kernel independent of names: of its text with names replaced by numbers, and of the target."""
    text = c_printer.source(replace(kernel, name="kernel"), anonymous=True)
    return hashlib.sha256(f"{target}\n{text}".encode()).hexdigest()


def title(graph: Graph) -> str:
    """A name from the costly operations: reductions and COSTLY functions in order, else other functions, or "copy"."""
    words = [word for node in graph.nodes for word in _words(node.kind)]
    plain = [node.kind.function for node in graph.nodes if isinstance(node.kind, Map)]
    chosen = words or [word for word in plain if word not in ("cast", "identity")] or ["copy"]
    return "_".join(list(dict.fromkeys(chosen))[:3])


def _words(kind: Kind) -> list[str]:
    match kind:
        case Reduce(monoid, _):
            return [monoid]
        case Gather():
            return ["gather"]
        case Map(function) if OPERATORS[function].flops >= COSTLY and function not in ("divide", "reciprocal"):
            return [function]
        case _:
            return []


def describe(planned: PlannedKernel, certificate: str = "") -> str:
    """The comment above a kernel's text: the nodes it replaces, its buffers, bytes and flops, its certificate."""
    first = planned.groups[0]
    places = f"; {len(planned.groups)} places in the model" if len(planned.groups) > 1 else ""
    lines, verbs = [f"{planned.operator}: {', '.join(planned.replaces)}{places}"], {Role.INPUT: "reads "}
    ends = [buffer for buffer in planned.kernel.buffers if buffer.role is not Role.SCRATCH]
    lines += [f"{verbs.get(buffer.role, 'writes')} {spell(buffer)}" for buffer in ends]
    work = "\nwritten by hand" if planned.by_hand else f", does {flops(first.kernel)} flops"
    lines += [f"moves {bytes_moved(first.kernel)} bytes{work}"]
    words = textwrap.wrap(f"certificate: {certificate}", _WIDTH, subsequent_indent="  ") if certificate else []
    return "\n".join([*lines, *words])


def spell(buffer: Buffer) -> str:
    """A buffer as text: its name in the kernel and in the model, its dtype and shape."""
    shape = ", ".join(map(str, buffer.shape))
    called = "" if buffer.name == buffer.source else f" ({buffer.source})"
    return f"{buffer.name}{called}: {buffer.dtype.value}[{shape}]"
