"""A profile as text: where the time goes by operator type and by fusable path, the ceiling, memory.

With several sizes each table has a column for each. Names come from model files: what would not print is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.profile.record import LargeValue, NodeMemory, OperatorTime, PathTime, Profile, ProfiledSize
from noyau.jobs.report.tables import TableRow, table
from noyau.jobs.report.text import Show, hanging, show_of
from noyau.text import printable
from noyau.timing.comparison import spell_s

_MOST_OPERATORS = 12  # that a path names
_DRIFT = 0.05  # that is worth a word
_OUTSIDE = 4  # operator types that the ceiling names
BETWEEN = "(no node's)"


def render(profile: Profile, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The profile in the order in which it is read, for a terminal of so many columns."""
    show = show_of(ascii_only=ascii_only)
    yield from _header(profile, width, show)
    yield Text()
    for at in profile.at:
        yield from hanging(_run(at, show), width, rest="  ")
    yield Text()
    yield from _operators(profile, width, show)
    yield Text()
    yield from _paths(profile, width, show)
    where = [f"with {each}" for each in labels(profile, show)] if len(profile.at) > 1 else ["here"]
    for at, each in zip(profile.at, where, strict=True):
        yield from hanging(_ceiling(at, each, show), width, rest="  ")
    yield Text()
    for at, each in zip(profile.at, where, strict=True):
        yield from _memory(at, f" {each}" if len(profile.at) > 1 else "", width, show)
    yield from _inputs(profile, width, show)


def _header(profile: Profile, width: int, show: Show) -> Iterator[Text]:
    ran = sorted({len(at.nodes) for at in profile.at})
    counts = f": {profile.nodes} nodes in the file, {' or '.join(map(str, ran))} run by onnxruntime"
    yield from hanging(Text.assemble((show(profile.model), "bold"), counts), width, rest="  ")
    machine = profile.machine
    threads = {0: "threads as it likes", 1: "1 thread"}.get(profile.threads, f"{profile.threads} threads")
    runtime = f"onnxruntime {machine.versions.get('onnxruntime', '')}, {threads}"
    facts = f"{machine.cpu}, {machine.cores} cores, {machine.level}; {runtime}"
    yield from hanging(show(facts), width, rest="  ", style="dim")


def label(at: ProfiledSize, show: Show = printable) -> str:
    """The sizes in words: `batch=1, sequence=128`."""
    return ", ".join(f"{show(name)}={size}" for name, size in at.sizes.items())


def labels(profile: Profile, show: Show) -> list[str]:
    """For each column the sizes in which the columns differ."""
    if len(profile.at) == 1:
        return ["time"]
    every = [dict(at.sizes) for at in profile.at]
    differ = [name for name in every[0] if len({sizes.get(name) for sizes in every}) > 1] or list(every[0])
    return [", ".join(f"{show(name)}={sizes[name]}" for name in differ) for sizes in every]


def _run(at: ProfiledSize, show: Show) -> str:
    sizes = f" with {label(at, show)}" if at.sizes else ""
    spread = f"[{spell_s(at.low_s)}, {spell_s(at.high_s)}]"
    share = at.between_s / at.run_s if at.run_s else 0.0
    text = f"A run{sizes} takes {spell_s(at.run_s)} {spread}, {share:.0%} of it in no node. "
    text += f"With the profiler on it takes {spell_s(at.traced_s)}; what that adds is taken off below."
    return text + (f" All is scaled by {at.scaled:.2f}, to add up to a run." if abs(at.scaled - 1) > _DRIFT else "")


def _share(time_s: float, whole_s: float) -> str:
    return f"{100 * time_s / whole_s:.0f}%" if whole_s > 0 else "-"


def _operators(profile: Profile, width: int, show: Show) -> Iterator[Text]:
    """Rows of operator types; with one column of sizes, also the median of a node."""
    alone = len(profile.at) == 1
    most = _ranked((row.operator, row.time_s / at.run_s) for at in profile.at for row in at.operators)
    has_made = any(not row.in_file for at in profile.at for row in at.operators)
    rows = [_operator(name, profile.at, show, alone=alone) for name in most[: profile.top]]
    if rest := most[profile.top :]:
        rest_s = [sum(row.time_s for row in at.operators if row.operator in rest) for at in profile.at]
        rows.append(_sums(f"({len(rest)} more: --top)", rest_s, profile.at, alone=alone))
    rows.append(_sums(BETWEEN, [at.between_s for at in profile.at], profile.at, alone=alone))
    yield from table("Operator", ("nodes", *labels(profile, show), *["a node"] * alone), rows, width)
    if has_made:
        yield from hanging("* made by onnxruntime's optimizer of other nodes", width, rest="  ", style="dim")


def _operator(name: str, every: Sequence[ProfiledSize], show: Show, *, alone: bool) -> TableRow:
    rows = [next((row for row in at.operators if row.operator == name), None) for at in every]
    first = next(row for row in rows if row is not None)
    cells = [_time(row, at) for row, at in zip(rows, every, strict=True)]
    nodes = "-".join(map(str, sorted({row.nodes for row in rows if row is not None})))
    median = [spell_s(first.median_s)] * alone
    return TableRow(show(name) + ("" if first.in_file else " *"), (nodes, *cells, *median))


def _time(row: OperatorTime | PathTime | None, at: ProfiledSize) -> str:
    return "-" if row is None else _of_run(row.time_s, at)


def _of_run(time_s: float, at: ProfiledSize) -> str:
    return f"{spell_s(time_s)} {_share(time_s, at.run_s):>4}"


def _sums(name: str, times_s: Sequence[float], every: Sequence[ProfiledSize], *, alone: bool) -> TableRow:
    cells = [_of_run(time_s, at) for time_s, at in zip(times_s, every, strict=True)]
    return TableRow(name, ("", *cells, *[""] * alone))


def _ranked(shares: Iterable[tuple[str, float]]) -> list[str]:
    """Names by their largest share."""
    most: dict[str, float] = {}
    for name, share in shares:
        most[name] = max(most.get(name, 0.0), share)
    return sorted(most, key=lambda name: -most[name])


def _paths(profile: Profile, width: int, show: Show) -> Iterator[Text]:
    """Rows of fusable paths; with one column of sizes also the bytes, the floor and the gain, else the gain alone."""
    alone = len(profile.at) == 1
    most = _ranked((path.kernel, path.gain_s / at.run_s) for at in profile.at for path in at.paths)
    if not most:
        yield Text("No fusable path: nothing in this model could become a kernel.")
        return
    rows = [_path(name, profile.at, show, alone=alone) for name in most[: profile.top]]
    headings = ("places", "time", "moves", "floor", "gains") if alone else ("places", *labels(profile, show))
    yield from table("Fusable path" if alone else "Fusable path (gains)", headings, rows, width)
    if most[profile.top :]:
        yield Text(f"({len(most) - profile.top} more: --top)")


def _path(name: str, every: Sequence[ProfiledSize], show: Show, *, alone: bool) -> TableRow:
    paths = [next(path for path in at.paths if path.kernel == name) for at in every]
    first = max(paths, key=lambda path: path.time_s)
    label = f"for {_few(first.replaces, show)}"
    if sorted(first.runs_as) != sorted(first.replaces):
        label += f"; onnxruntime runs {_few(first.runs_as, show) or 'none of them'}"
    if alone:
        at, path = every[0], paths[0]
        floor = "-" if path.floor_s is None else spell_s(path.floor_s)
        moves = "-" if path.bytes is None else spell_bytes(path.bytes)
        return TableRow(
            show(name), (str(path.places), _time(path, at), moves, floor, _share(path.gain_s, at.run_s)), label
        )
    cells = [
        f"{spell_s(path.time_s)} {_share(path.gain_s, at.run_s):>4}" for path, at in zip(paths, every, strict=True)
    ]
    return TableRow(show(name), (str(first.places), *cells), label)


def _few(operators: Sequence[str], show: Show) -> str:
    """Operator types in their order, each with how often it is there."""
    counts = [f"{count} {show(name)}" if count > 1 else show(name) for name, count in Counter(operators).items()]
    more = len(counts) - _MOST_OPERATORS
    return ", ".join(counts[:_MOST_OPERATORS]) + (f" and {more} more" if more > 0 else "")


def _ceiling(at: ProfiledSize, where: str, show: Show) -> Text:
    """The most that fusing can gain, and the reason that it is no more."""
    if not at.paths:
        return Text(f"Fusing could gain nothing {where}.")
    most = "more than 20x" if at.ceiling is None else f"at most {at.ceiling:.2f}x"
    told_of = [(name, time_s) for name, time_s in at.outside.items() if time_s > 0.005 * at.run_s]
    rest = [f"{show(name)} {_share(time_s, at.run_s)}" for name, time_s in told_of[:_OUTSIDE]]
    share = f": {_share(at.paths_s, at.run_s)} of the run is in fusable paths"
    share += f"; outside of them are {', '.join(rest)}" if rest else ""
    return Text.assemble((f"Fusing could gain {most} {where}", "bold"), f"{share}.")


def _memory(at: ProfiledSize, where: str, width: int, show: Show) -> Iterator[Text]:
    memory = at.memory
    yield from hanging(Text.assemble((f"Memory{where}", "bold"), f": {_weighed(memory)}."), width, rest="  ")
    if memory.largest:
        largest = ", ".join(_value(value, show) for value in memory.largest)
        yield from hanging(f"largest values: {largest}", width, "  ", "    ", "dim")


def _weighed(memory: NodeMemory) -> str:
    weights = f"{spell_bytes(memory.weights)} of weights in the file"
    if memory.peak is None or memory.started is None or memory.opened is None:
        return weights
    opened, opening, running = memory.opened, memory.opening or 0, memory.running
    text = f"the process takes {spell_bytes(opened)} with the model open ({spell_bytes(memory.started)} before)"
    text += "" if running is None else f", at most {spell_bytes(running)} as it runs"
    text += f", {spell_bytes(opening)} as it is opened" if opening > 1.05 * max(opened, running or 0) else ""
    return f"{text}; {weights}"


def _value(value: LargeValue, show: Show) -> str:
    name = show(value.name) if value.name else "one of onnxruntime's own"
    return f"{name} {show(value.dtype)}[{', '.join(map(str, value.shape))}] {spell_bytes(value.bytes)}"


def _inputs(profile: Profile, width: int, show: Show) -> Iterator[Text]:
    notes = list(dict.fromkeys(note for at in profile.at for note in at.notes))
    if notes:
        yield Text()
        yield Text("Notes", style="bold")
    for note in notes:
        yield from hanging(show(note), width, "    ", "      ")


def spell_bytes(size: int) -> str:
    """`1.2 MiB`"""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.3g} {unit}"
    return f"{size} B"
