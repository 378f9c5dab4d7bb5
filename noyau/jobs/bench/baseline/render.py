"""A comparison with a baseline as text: the verdict of the whole first, then one line a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.bench.baseline.record import Change, ChangeRecord
from noyau.jobs.report.text import Show, TableRow, fits, hanging, show_of, table
from noyau.text import several
from noyau.timing.verdict import spell_s

_LEGEND = (
    "before, now: seconds of a call of the saved text and of the present one, timed in turns in this run; "
    "change: their ratio, with its 95 % interval; saved: what the clock said when the baseline was saved."
)


def render(record: ChangeRecord, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The record in the order in which it is read, for a terminal of so many columns."""
    show = show_of(ascii_only=ascii_only)
    yield from hanging(Text(show(summary(record)), "bold green" if record.ok else "bold red"), width, rest="  ")
    for sizes, changes in groupby(record.changes, sizes_of):
        yield from _at(sizes, list(changes), width, show)
    for name, fault in record.faults.items():
        yield from hanging(show(f"{name} is wrong: {fault}"), width, rest="    ", style="red")
    for note in record.notes:
        yield from hanging(show(f"{note[:1].upper()}{note[1:]}."), width, rest="  ", style="yellow")
    yield from hanging(_LEGEND, width, style="dim")


def _at(sizes: str, changes: list[Change], width: int, show: Show) -> Iterator[Text]:
    """The table of one set of sizes; without what the clock said then where a line has no room for it."""
    for left in (HEADINGS, tuple(each for each in HEADINGS if each != "saved")):
        rows = [
            TableRow(
                show(f"{each.candidate}, {each.temperature}"),
                tuple(cell for name, cell in zip(HEADINGS, cells(each), strict=True) if name in left),
                show(each.note),
            )
            for each in changes
        ]
        if fits(sizes, left, rows, width):
            break
    yield from table(sizes, left, rows, width)


HEADINGS = ("before", "now", "change", "interval", "saved", "")


def title(change: Change) -> str:
    """The candidate, its sizes and the temperature of its inputs."""
    sizes = f" {sizes_of(change)}" if change.sizes else ""
    return f"{change.candidate}{sizes}, {change.temperature}"


def sizes_of(change: Change) -> str:
    return (
        f"at {sizes}" if (sizes := ", ".join(f"{name}={size}" for name, size in change.sizes.items())) else "candidate"
    )


def cells(change: Change) -> tuple[str, ...]:
    """The cells of a row, under `HEADINGS`."""
    before_s, now_s = change.comparison.medians_s
    low, high = change.interval
    saved = "-" if change.saved_s is None else spell_s(change.saved_s)
    interval = f"[{100 * (low - 1):+.1f}, {100 * (high - 1):+.1f}] %"
    return spell_s(before_s), spell_s(now_s), f"{change.slowdown - 1:+.1%}", interval, saved, change.verdict


def summary(record: ChangeRecord) -> str:
    """The verdict of the whole in one sentence."""
    against = f"against the baseline {record.baseline} of {record.date}"
    slower = [each for each in record.changes if each.is_slower]
    if record.faults:
        return f"{record.name}: WRONG {against}: {several(len(record.faults), 'candidate')} of now"
    if slower:
        worst = max(slower, key=lambda each: each.slowdown)
        count = f"{len(slower)} of {several(len(record.changes), 'timing')}"
        worst_of = f"{title(worst)} takes {worst.slowdown - 1:+.1%}"
        return f"{record.name}: SLOWER {against}: {count} by more than {record.limit:.0%}: {worst_of}"
    doubts = sum(not each.is_sure for each in record.changes)
    unsure = f"; {doubts} in doubt: give it more time (--budget)" if doubts else ""
    return (
        f"{record.name}: no timing of {len(record.changes)} is slower by more than {record.limit:.0%} {against}{unsure}"
    )
