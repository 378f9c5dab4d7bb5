"""A comparison with a baseline as text: the verdict of the whole first, then one line a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.bench.baseline.record import Change, ChangeRecord
from noyau.jobs.report.text import TableRow, hanging, show_of, table
from noyau.text import several, sizes_text
from noyau.timing.verdict import spell_s

_LEGEND = (
    "before, now: seconds of a call of the saved text and of the present one, timed in turns in this run; "
    "change: their ratio, with its 95 % interval."
)
_HEADINGS = ("before", "now", "change", "interval", "")


def render(record: ChangeRecord, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The record in the order in which it is read, for a terminal of so many columns."""
    show = show_of(ascii_only=ascii_only)
    yield from hanging(Text(show(summary(record)), "bold green" if record.ok else "bold red"), width, rest="  ")
    for sizes, changes in groupby(record.changes, lambda each: sizes_text(each.sizes)):
        rows = [TableRow(show(f"{e.candidate}, {e.temperature}"), _cells(e), show(e.note)) for e in changes]
        yield from table(sizes or "candidate", _HEADINGS, rows, width)
    for name, fault in record.faults.items():
        yield from hanging(show(f"{name} is wrong: {fault}"), width, rest="    ", style="red")
    for note in record.notes:
        yield from hanging(show(f"{note[:1].upper()}{note[1:]}."), width, rest="  ", style="yellow")
    yield from hanging(_LEGEND, width, style="dim")


def _cells(change: Change) -> tuple[str, ...]:
    before_s, now_s = change.comparison.medians_s
    interval = "[{:+.1f}, {:+.1f}] %".format(*(100 * (end - 1) for end in change.interval))
    return spell_s(before_s), spell_s(now_s), f"{change.slowdown - 1:+.1%}", interval, change.verdict


def summary(record: ChangeRecord) -> str:
    """The verdict of the whole in one sentence."""
    against = f"against the baseline {record.baseline} of {record.date}"
    if record.faults:
        return f"{record.name}: WRONG {against}: {several(len(record.faults), 'candidate')} of now"
    count, limit = several(len(record.changes), "timing"), f"by more than {record.limit:.0%}"
    if slower := [each for each in record.changes if each.is_slower]:
        worst = max(slower, key=lambda each: each.slowdown)
        at = ", ".join(filter(None, (worst.candidate, sizes_text(worst.sizes), worst.temperature)))
        return (
            f"{record.name}: SLOWER {against}: {len(slower)} of {count} {limit}: {at} takes {worst.slowdown - 1:+.1%}"
        )
    doubts = sum(not each.is_sure for each in record.changes)
    unsure = f"; {doubts} in doubt: give it more time (--budget)" if doubts else ""
    return f"{record.name}: of {count} none is slower {limit} {against}{unsure}"
