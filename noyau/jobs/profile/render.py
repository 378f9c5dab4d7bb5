"""A profile as text and as a page: time by operator type and by fusable path, the ceiling, memory.

Names come from model files, so unprintable characters are escaped."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from noyau.hosts.onnxruntime.inputs import spell
from noyau.jobs.page import document
from noyau.jobs.page.document import Node, Page, Section, SizedTime, graphs
from noyau.jobs.page.graphs import plan_drawing
from noyau.jobs.profile.record import LargeValue, NodeMemory, Profile, ProfiledSize, ScriptProfile, Wall
from noyau.jobs.report.text import WIDE, Show, TableRow, hanging, list_lines, show_of, spell_bytes, table
from noyau.text import differing, few, fields_json, printable, several
from noyau.timing.verdict import spell_s

_DRIFT = 0.05  # least deviation of a scale factor from 1 that is mentioned
_OUTSIDE = 4  # operator types that the line on the ceiling names
_MOST_OPERATORS = 12  # operator types that the line of a path names
_MOST_ROWS = 1000  # of a page
BETWEEN = "(outside nodes)"
UNTRIED = "Not made yet: noyau optimize makes it, certifies it and times it."
_NOTE = "A time is of one run; nodes that onnxruntime joins show the time of all. A colour is a fusable path."


def render(profile: Profile, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The renderables of the profile in reading order, for a terminal of `width` columns."""
    show = show_of(ascii_only=ascii_only)
    yield from header(profile, width, show)
    yield Text()
    for at in profile.at:
        yield from hanging(run_text(at, show), width, rest="  ")
    yield Text()
    yield from operator_table(profile, width, show)
    yield Text()
    yield from path_table(profile, width, show)
    where = [f"with {each}" for each in labels(profile, show)] if len(profile.at) > 1 else ["here"]
    for at, each in zip(profile.at, where, strict=True):
        yield from hanging(ceiling_text(at, each, show), width, rest="  ")
    yield Text()
    for at, each in zip(profile.at, where, strict=True):
        place, memory = f" {each}" if len(profile.at) > 1 else "", memory_text(at.memory)
        yield from hanging(Text.assemble((f"Memory{place}", "bold"), f": {memory}."), width, rest="  ")
        largest = ", ".join(_value(value, show) for value in at.memory.largest)
        yield from hanging(f"largest values: {largest}", width, "  ", "    ", "dim") if largest else ()
    yield from list_lines("Notes", list(dict.fromkeys(show(note) for at in profile.at for note in at.notes)), width)


def header(profile: Profile, width: int, show: Show) -> Iterator[Text]:
    ran = " or ".join(map(str, sorted({len(at.nodes) for at in profile.at})))
    counts = f": {profile.nodes} nodes in the file, {ran} run by onnxruntime"
    yield from hanging(Text.assemble((show(profile.model), "bold"), counts), width, rest="  ")
    machine = profile.machine
    threads = {0: "as many threads as it chooses", 1: "1 thread"}.get(profile.threads, f"{profile.threads} threads")
    runtime = f"onnxruntime {machine.versions.get('onnxruntime', '')}, {threads}"
    yield from hanging(show(f"{machine.text}; {runtime}"), width, rest="  ", style="dim")


def run_text(at: ProfiledSize, show: Show) -> str:
    sizes = f" with {show(spell(at.sizes))}" if at.sizes else ""
    spread = f"[{spell_s(at.low_s)}, {spell_s(at.high_s)}]"
    share = at.between_s / at.run_s if at.run_s else 0.0
    text = f"A run{sizes} takes {spell_s(at.run_s)} {spread}, {share:.0%} of it outside of all nodes. "
    text += f"With the profiler on it takes {spell_s(at.traced_s)}; what that adds is taken off below."
    return text + (f" All is scaled by {at.scaled:.2f}, to add up to a run." if abs(at.scaled - 1) > _DRIFT else "")


def ceiling_text(at: ProfiledSize, where: str, show: Show) -> Text:
    """A text on the most that fusing can gain, and on the time outside fusable paths."""
    if not at.paths:
        return Text(f"Fusing could gain nothing {where}.")
    most = "more than 20x" if at.ceiling is None else f"at most {at.ceiling:.2f}x"
    told_of = [(name, time_s) for name, time_s in at.outside.items() if time_s > 0.005 * at.run_s]
    rest = [f"{show(name)} {share_text(time_s, at.run_s)}" for name, time_s in told_of[:_OUTSIDE]]
    share = f": {share_text(at.paths_s, at.run_s)} of the run is in fusable paths"
    share += f"; outside of them are {', '.join(rest)}" if rest else ""
    return Text.assemble((f"Fusing could gain {most} {where}", "bold"), f"{share}.")


def memory_text(memory: NodeMemory) -> str:
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


def labels(profile: Profile, show: Show) -> list[str]:
    """The heading of each column: the sizes in which the columns differ."""
    if len(profile.at) == 1:
        return ["time"]
    every = [at.sizes for at in profile.at]
    return [", ".join(f"{show(name)}={sizes[name]}" for name in differing(every) or every[0]) for sizes in every]


def share_text(time_s: float, whole_s: float) -> str:
    return f"{100 * time_s / whole_s:.0f}%" if whole_s > 0 else "-"


def operator_table(profile: Profile, width: int, show: Show) -> Iterator[Text]:
    """Rows of operator types; with one column of sizes, also the median of a node."""
    most = _rank_names((row.operator, row.time_s / at.run_s) for at in profile.at for row in at.operators)
    rows = [_operator(name, profile.at, show) for name in most[: profile.top]]
    if rest := most[profile.top :]:
        rest_s = [sum(row.time_s for row in at.operators if row.operator in rest) for at in profile.at]
        rows.append(_sums(f"({len(rest)} more: --top)", rest_s, profile.at))
    rows.append(_sums(BETWEEN, [at.between_s for at in profile.at], profile.at))
    yield from table("Operator", ("nodes", *labels(profile, show), *["a node"] * (len(profile.at) == 1)), rows, width)
    if not all(row.in_file for at in profile.at for row in at.operators):
        yield from hanging("* made by onnxruntime's optimizer of other nodes", width, rest="  ", style="dim")


def _operator(name: str, every: Sequence[ProfiledSize], show: Show) -> TableRow:
    rows = [next((row for row in at.operators if row.operator == name), None) for at in every]
    first = next(row for row in rows if row is not None)
    cells = ["-" if row is None else _of_run(row.time_s, at) for row, at in zip(rows, every, strict=True)]
    nodes = "-".join(map(str, sorted({row.nodes for row in rows if row is not None})))
    median = [spell_s(first.median_s)] * (len(every) == 1)
    return TableRow(show(name) + ("" if first.in_file else " *"), (nodes, *cells, *median))


def _of_run(time_s: float, at: ProfiledSize) -> str:
    return f"{spell_s(time_s)} {share_text(time_s, at.run_s):>4}"


def _sums(name: str, times_s: Sequence[float], every: Sequence[ProfiledSize]) -> TableRow:
    cells = [_of_run(time_s, at) for time_s, at in zip(times_s, every, strict=True)]
    return TableRow(name, ("", *cells, *[""] * (len(every) == 1)))


def _rank_names(shares: Iterable[tuple[str, float]]) -> list[str]:
    """The names by their largest share, in descending order."""
    most: dict[str, float] = {}
    for name, share in shares:
        most[name] = max(most.get(name, 0.0), share)
    return sorted(most, key=lambda name: -most[name])


def path_table(profile: Profile, width: int, show: Show) -> Iterator[Text]:
    """Rows of fusable paths; with one column of sizes also the bytes, the floor and the gain, else only the gain."""
    alone = len(profile.at) == 1
    if not (most := _rank_names((path.kernel, path.gain_s / at.run_s) for at in profile.at for path in at.paths)):
        yield Text("No fusable path: nothing in this model could become a kernel.")
        return
    rows = [_path(name, profile.at, show) for name in most[: profile.top]]
    headings = ("places", "time", "moves", "floor", "gains") if alone else ("places", *labels(profile, show))
    yield from table("Fusable path" if alone else "Fusable path (gains)", headings, rows, width)
    if most[profile.top :]:
        yield Text(f"({len(most) - profile.top} more: --top)")


def _path(name: str, every: Sequence[ProfiledSize], show: Show) -> TableRow:
    paths = [next(path for path in at.paths if path.kernel == name) for at in every]
    first = max(paths, key=lambda path: path.time_s)
    label = f"for {_few(first.replaces, show)}"
    if sorted(first.runs_as) != sorted(first.replaces):
        label += f"; onnxruntime runs {_few(first.runs_as, show) or 'none of them'}"
    gains = [share_text(path.gain_s, at.run_s) for path, at in zip(paths, every, strict=True)]
    if len(every) == 1:
        floor = "-" if first.floor_s is None else spell_s(first.floor_s)
        moves = "-" if first.bytes is None else spell_bytes(first.bytes)
        cells = [_of_run(first.time_s, every[0]), moves, floor, *gains]
    else:
        cells = [f"{spell_s(path.time_s)} {gain:>4}" for path, gain in zip(paths, gains, strict=True)]
    return TableRow(show(name), (str(first.places), *cells), label)


def _few(operators: Sequence[str], show: Show) -> str:
    """Operator types in order, each with its count."""
    counts = Counter(operators).items()
    return few([f"{count} {show(name)}" if count > 1 else show(name) for name, count in counts], _MOST_OPERATORS)


def headline(profile: Profile) -> str:
    """The most that fusing could gain, one line for each set of sizes."""
    return "\n".join(ceiling_text(each, _where(each), printable).plain for each in profile.at)


def _where(at: ProfiledSize) -> str:
    return f"with {spell(at.sizes)}" if at.sizes else "here"


def page(profile: Profile | Wall | ScriptProfile) -> Page:
    """The page of a profile: of a model, size by size; of a call, a script or a report, its kernels or functions."""
    if not isinstance(profile, Profile):
        name, early = (profile.name, "") if isinstance(profile, Wall) else (profile.script, profile.end)
        most, wall_s, unsaid = profile.longest[:_MOST_ROWS], profile.wall_s, ("file", "python_s")
        rows = [{**fields_json(each, without=unsaid), "share": wall_s and each.self_s / wall_s} for each in most]
        head = document.summary(profile.headline(), "bad" if early else "plain", profile.remarks)
        return Page(printable(name), "profile", [head, document.table("Where the time goes", rows)])
    facts = dict(zip(("model", "machine"), (each.plain for each in header(profile, WIDE, printable)), strict=False))
    gain, *texts = headline(profile).splitlines()
    for each in profile.at:
        texts += run_text(each, printable), f"Memory {_where(each)}: {memory_text(each.memory)}."
    sections = [document.summary(gain, "plain", texts, facts)]
    for each in profile.at:
        sections += _at(profile, each, f" {_where(each)}" if len(profile.at) > 1 else "")
    if varying := differing([each.sizes for each in profile.at]):
        times = [SizedTime(each.sizes[varying[0]], each.run_s, each.low_s, each.high_s) for each in profile.at]
        sections.append(document.sweeps("A run at each size", varying[0], {"a run": times}))
    sections.append(document.lines("Notes", dict.fromkeys(note for each in profile.at for note in each.notes)))
    planned = profile.subject.plan.kernels if profile.subject else ()
    sources = {each.operator: document.source_of(each, UNTRIED) for each in planned}
    return Page(printable(profile.model), "profile", sections, sources)


def _at(profile: Profile, size: ProfiledSize, where: str) -> Iterator[Section]:
    """The sections of one set of sizes; `where`: the sizes as text, if there are several sets."""
    if profile.subject is not None:
        subject = profile.subject
        extra = _time_by_position(size, subject.original.labels)
        drawing = plan_drawing(f"The model{where}", subject.original, subject.cuts, subject.plan, extra)
        yield graphs(f"Time on the graph{where}", [drawing], _NOTE)
    between = {"operator": BETWEEN, "nodes": None, "time_s": size.between_s, "median_s": None, "in_file": None}
    tables = {
        "Operators": [*map(fields_json, size.operators), *[between] * (size.between_s > 0)],
        "Fusable paths": map(fields_json, size.paths),
        "Nodes that ran": sorted(map(fields_json, size.nodes), key=lambda node: -float(node["time_s"])),
        "Largest values": map(fields_json, size.memory.largest),
    }
    for title, rows in tables.items():
        shares = ({**row, "share": row["time_s"] / size.run_s} if "time_s" in row else row for row in rows)
        yield document.table(f"{title}{where}", shares)


def _time_by_position(size: ProfiledSize, labels: tuple[str, ...]) -> dict[int, Node]:
    """The time of each node of the file, by position: that of the executed node that stands for it."""
    positions = {name: position for position, name in enumerate(labels) if name}
    result: dict[int, Node] = {}
    for node in size.nodes:
        time, others = f"{spell_s(node.time_s)} {share_text(node.time_s, size.run_s)}", len(node.stands_for) - 1
        words = f"{time} of a run" + f", in {node.operator} with {several(others, 'other node')}" * (others > 0)
        for name in node.stands_for:
            result[positions[name]] = {"lines": [time], "facts": {"time": words}}
    return result
