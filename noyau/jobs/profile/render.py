"""A profile as text: where the time goes by operator type and by fusable path, the ceiling, memory.

Names come from model files: what would not print is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.profile.record import LargeValue, NodeMemory, Profile, ProfiledSize
from noyau.jobs.profile.tables import labels, operator_table, path_table, share_text, spell_bytes
from noyau.jobs.report.text import Show, hanging, show_of
from noyau.text import printable
from noyau.timing.verdict import spell_s

_DRIFT = 0.05  # that is worth a word
_OUTSIDE = 4  # operator types that the ceiling names


def render(profile: Profile, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The profile in the order in which it is read, for a terminal of so many columns."""
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
        yield from _memory(at, f" {each}" if len(profile.at) > 1 else "", width, show)
    yield from _inputs(profile, width, show)


def header(profile: Profile, width: int, show: Show) -> Iterator[Text]:
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


def run_text(at: ProfiledSize, show: Show) -> str:
    sizes = f" with {label(at, show)}" if at.sizes else ""
    spread = f"[{spell_s(at.low_s)}, {spell_s(at.high_s)}]"
    share = at.between_s / at.run_s if at.run_s else 0.0
    text = f"A run{sizes} takes {spell_s(at.run_s)} {spread}, {share:.0%} of it in no node. "
    text += f"With the profiler on it takes {spell_s(at.traced_s)}; what that adds is taken off below."
    return text + (f" All is scaled by {at.scaled:.2f}, to add up to a run." if abs(at.scaled - 1) > _DRIFT else "")


def ceiling_text(at: ProfiledSize, where: str, show: Show) -> Text:
    """The most that fusing can gain, and the reason that it is no more."""
    if not at.paths:
        return Text(f"Fusing could gain nothing {where}.")
    most = "more than 20x" if at.ceiling is None else f"at most {at.ceiling:.2f}x"
    told_of = [(name, time_s) for name, time_s in at.outside.items() if time_s > 0.005 * at.run_s]
    rest = [f"{show(name)} {share_text(time_s, at.run_s)}" for name, time_s in told_of[:_OUTSIDE]]
    share = f": {share_text(at.paths_s, at.run_s)} of the run is in fusable paths"
    share += f"; outside of them are {', '.join(rest)}" if rest else ""
    return Text.assemble((f"Fusing could gain {most} {where}", "bold"), f"{share}.")


def _memory(at: ProfiledSize, where: str, width: int, show: Show) -> Iterator[Text]:
    memory = at.memory
    yield from hanging(Text.assemble((f"Memory{where}", "bold"), f": {memory_text(memory)}."), width, rest="  ")
    if memory.largest:
        largest = ", ".join(_value(value, show) for value in memory.largest)
        yield from hanging(f"largest values: {largest}", width, "  ", "    ", "dim")


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


def _inputs(profile: Profile, width: int, show: Show) -> Iterator[Text]:
    notes = list(dict.fromkeys(note for at in profile.at for note in at.notes))
    if notes:
        yield Text()
        yield Text("Notes", style="bold")
    for note in notes:
        yield from hanging(show(note), width, "    ", "      ")
