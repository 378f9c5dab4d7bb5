"""The records of the profiles of a model, a call and a script, for `--json` and the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.report.text import PagedRecord, TableRow, hanging, show_of, spell_bytes, table
from noyau.text import UNWRITTEN, collect, few, several
from noyau.timing.machine import Machine
from noyau.timing.ranges import Event
from noyau.timing.rates import ceiling, gain_text
from noyau.timing.verdict import spell_s

if TYPE_CHECKING:
    from noyau.jobs.profile.run import ProfiledModel

_MOST_NAMES = 6  # of a path
_WORTH = 0.02  # least share of the wall time of a path that is mentioned
_MANY = 0.3  # least share of the wall time of an item that is the first advice
HELP = {
    "gaps": "fewer and larger kernels or operators; on a GPU, launches recorded as one graph (the option graphs)",
    "synchronisation": "a step in which the host waits for no value of the device",
    "others": "fusing what is not a matrix product with its neighbours",
    "products": "faster matrix products: fewer and larger ones, or weights in fewer bits",
}


@dataclass(frozen=True, slots=True)
class CallTime:
    """The time of a function or a kernel. `calls`: None if it was sampled; `self_s` and `total_s`: without and with its
    callees; `bytes`: allocated or copied, if known; `where`: host, threads or gpu; `python_s`: if it was sampled, the
    seconds in itself and its native callees."""

    name: str
    file: str
    calls: int | None
    self_s: float
    total_s: float
    bytes: int | None = None
    where: str = "host"
    python_s: float | None = None


def call_lines(
    profile: Wall | ScriptProfile, kind: str, rows: Sequence[CallTime], width: int, *, ascii_only: bool
) -> Iterator[Text]:
    """The verdict of a profile, its functions or kernels with shares of the wall time, and its remarks."""
    show, wall_s, on_both = show_of(ascii_only=ascii_only), profile.wall_s, len({each.where for each in rows}) > 1
    style = "bold red" if isinstance(profile, ScriptProfile) and profile.end else "bold"
    yield from hanging(Text(show(profile.headline()), style), width, rest="  ")
    lines = []
    for each in rows:
        counts = "" if each.calls is None else str(each.calls), spell_bytes(each.bytes) if each.bytes else ""
        times = spell_s(each.self_s), spell_s(each.total_s), f"{each.self_s / wall_s:.0%}" if wall_s else "-"
        lines.append(TableRow(show(each.name), (*times, *counts, each.where if on_both else "")))
    yield from table(kind, ("self", "total", "share", "calls", "bytes", "on"), lines, width, ("bytes", "on"))
    for remark in profile.remarks:
        yield from hanging(show(remark), width, rest="  ")


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node that onnxruntime ran. `stands_for`: the file's nodes, as Operator#position, empty if unknown;
    `made_by_optimizer`: it is not in the file; `time_s`: in one run of the model, with its dispatch and without the
    profiler's overhead; `kernel`: that of the path that contains it, if any."""

    operator: str
    stands_for: tuple[str, ...]
    made_by_optimizer: bool
    calls: int
    time_s: float
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """All nodes of an operator type: their seconds in a run, the median of a node, whether the file has the type."""

    operator: str
    nodes: int
    time_s: float
    median_s: float
    in_file: bool

    @staticmethod
    def rows(nodes: Iterable[NodeTime], operators: Iterable[str]) -> tuple[OperatorTime, ...]:
        """Operator types by descending time; `operators`: the types in the file."""
        own, rows = set(operators), by_name((node.operator, node.time_s) for node in nodes)
        return tuple(OperatorTime(name, len(s), sum(s), statistics.median(s), name in own) for name, s in rows)


@dataclass(frozen=True, slots=True)
class PathTime:
    """A fusable path: all `places` of one kernel together. `replaces`: its operators in one place; `runs_as`: the
    operators that onnxruntime runs for them today; `bytes`: that must move; `floor_s`: the time in which this machine
    copies them; both None if a size is unknown; `gain_s`: the most that fusion can gain, 0 for unknown sizes."""

    kernel: str
    places: int
    replaces: tuple[str, ...]
    runs_as: tuple[str, ...]
    nodes: int
    time_s: float
    bytes: int | None = None
    floor_s: float | None = None
    gain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LargeValue:
    """A value that onnxruntime computed. `name`: empty if the optimizer made it; `dtype`: onnxruntime's name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """Bytes of memory. `weights`: of the tensors in the file. Resident memory of a process that does nothing else, None
    if the system does not report it: `started` before the model is opened, `opened` after; the peaks `opening` and
    `running`. `largest`: the largest values."""

    PLAIN: ClassVar[str] = """weights_bytes=weights started_bytes=started opened_bytes=opened opening_peak_bytes=opening
        running_peak_bytes=running largest_values=largest"""
    weights: int
    started: int | None = None
    opened: int | None = None
    opening: int | None = None
    running: int | None = None
    largest: tuple[LargeValue, ...] = ()

    @property
    def peak(self) -> int | None:
        return max((each for each in (self.opening, self.running) if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class ProfiledSize:
    """The profile at some sizes. `run_s`, `low_s` and `high_s`: the median, p10 and p90 of a run; `traced_s`: with
    onnxruntime's profiler, whose overhead is subtracted from the nodes; `between_s`: outside all nodes; `scaled`: the
    factor of the nodes' times by which all adds up to a run; `removed`: count of the file's nodes that do not run."""

    PLAIN: ClassVar[str] = """sizes run_s run_p10_s=low_s run_p90_s=high_s traced_run_s=traced_s runs between_s ceiling
        operators paths memory nodes nodes_scaled_by=scaled nodes_removed=removed notes"""
    sizes: Mapping[str, int]
    run_s: float
    low_s: float
    high_s: float
    traced_s: float
    between_s: float
    runs: int
    nodes: tuple[NodeTime, ...]
    operators: tuple[OperatorTime, ...]
    paths: tuple[PathTime, ...]
    memory: NodeMemory
    scaled: float = 1.0
    removed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def paths_s(self) -> float:
        return sum(path.time_s for path in self.paths)

    @property
    def outside(self) -> dict[str, float]:
        """The seconds of each operator type outside all paths, the longest first."""
        rows = by_name((node.operator, node.time_s) for node in self.nodes if not node.kernel)
        return {name: sum(times) for name, times in rows}

    @property
    def ceiling(self) -> float | None:
        """The greatest possible speed-up of a run, with every path at its floor; None above 20."""
        return ceiling(self.run_s, (path.gain_s for path in self.paths))


@dataclass(frozen=True, slots=True, repr=False)
class Profile(PagedRecord):
    """The profile of a model; prints itself. `nodes`: of the file; `top`: rows of a table to show; `subject`: the model
    itself, only for a page; `events`: the timeline of some runs, for a separate file."""

    machine: Machine
    model: str
    nodes: int
    threads: int
    at: tuple[ProfiledSize, ...]
    top: int = field(default=12, metadata=UNWRITTEN)
    subject: ProfiledModel | None = field(default=None, compare=False, metadata=UNWRITTEN)
    events: tuple[Event, ...] = field(default=(), compare=False, metadata=UNWRITTEN)


@dataclass(frozen=True, slots=True, repr=False)
class Wall(PagedRecord):
    """Shares of the wall time `wall_s` of a call: `kernels`, with `products` as a part; `gaps` without a kernel; and
    `synchronisation`, in which the host waits beyond the kernels' time. `longest`: the kernels and operators that take
    most; `hottest`: the neighbouring kernels without products that together take most, and their seconds; `events`: the
    timeline of some calls, for a separate file."""

    PLAIN: ClassVar[str] = "wall_s kernels products gaps synchronisation launches next longest hottest"
    wall_s: float
    kernels: float
    products: float
    synchronisation: float
    launches: int
    longest: tuple[CallTime, ...] = ()
    hottest: tuple[tuple[str, ...], float] = ((), 0.0)
    events: tuple[Event, ...] = ()
    name: str = "a call"

    @property
    def gaps(self) -> float:
        return max(1.0 - self.kernels, 0.0)

    @property
    def next(self) -> str:
        """The advice for the item with the largest share."""
        others = self.gaps - self.synchronisation, self.synchronisation, self.kernels - self.products
        shares = dict(zip(HELP.values(), (*others, self.products), strict=True))
        large = (text for text, share in shares.items() if share >= _MANY)  # products last: they are hard to improve
        return next(large, max(shares, key=shares.__getitem__))

    @property
    def remarks(self) -> Iterator[str]:
        path, path_s = self.hottest
        if len(path) > 1 and path_s > _WORTH * self.wall_s:
            gain = f"{few(path, _MOST_NAMES)}: {gain_text(self.wall_s, path_s)}"
            yield f"The hottest path that could be fused is {gain}."
        yield f"What would help next: {self.next}"

    def headline(self) -> str:
        shares = f"kernels {self.kernels:.0%} (products {self.products:.0%}), gaps {self.gaps:.0%}"
        rest = f"synchronisation {self.synchronisation:.0%}, {several(self.launches, 'launch')}"
        return f"{spell_s(self.wall_s)}: {shares}, {rest}"

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        return call_lines(self, "kernel", self.longest, width, ascii_only=ascii_only)


@dataclass(frozen=True, repr=False)
class ScriptProfile(PagedRecord):
    """The profile of a script; prints itself. `end`: why it ended early, or empty; `status`: its exit status; `events`:
    its time ranges in Chrome's trace format."""

    script: str
    wall_s: float
    end: str
    status: int
    peak_bytes: int | None
    events: tuple[Event, ...] = field(metadata=UNWRITTEN)
    functions: tuple[CallTime, ...]
    top: int = field(default=12, metadata=UNWRITTEN)

    def headline(self) -> str:
        """The time and the memory of the script, and why it ended early, if it did."""
        memory = "" if self.peak_bytes is None else f", at most {spell_bytes(self.peak_bytes)}"
        early = f"; it ended early: {self.end}" if self.end else ""
        return f"{self.script} ran for {spell_s(self.wall_s)}{memory}{early}"

    @property
    def longest(self) -> Sequence[CallTime]:
        """Its functions by descending own time, those of other threads last."""
        return sorted(self.functions, key=lambda each: (each.where == "threads", -each.self_s))

    @property
    def remarks(self) -> Iterator[str]:
        """A line on the most that fusing the hottest function of the script's folder can gain."""
        own, texts = Path(self.script).resolve().parent, (".py", "]")  # "]" ends the names of notebook cells
        whose = (each for each in self.functions if each.file.endswith(texts) and not each.name.startswith("<module>"))
        host = (each for each in whose if each.where == "host" and Path(each.file).resolve().is_relative_to(own))
        inside = ((each.python_s or each.self_s, each.name) for each in host)
        if hottest := max(inside, default=None):
            gain = gain_text(self.wall_s, hottest[0])
            yield f"The hottest function of your own is {hottest[1]}: fused into one @noyau.op, {gain}."

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        return call_lines(self, "function", self.longest[: self.top], width, ascii_only=ascii_only)


def by_name(rows: Iterable[tuple[str, float]]) -> list[tuple[str, list[float]]]:
    """The seconds of each name, the name with the largest sum first."""
    return sorted(collect(rows).items(), key=lambda row: -sum(row[1]))
