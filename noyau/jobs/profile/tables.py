"""The tables of a profile: operator types and fusable paths, with a column for each of several sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from noyau.jobs.profile.record import OperatorTime, PathTime, Profile, ProfiledSize
from noyau.jobs.report.text import Show, TableRow, hanging, table
from noyau.timing.verdict import spell_s

_MOST_OPERATORS = 12  # that a path names
BETWEEN = "(no node's)"


def labels(profile: Profile, show: Show) -> list[str]:
    """For each column the sizes in which the columns differ."""
    if len(profile.at) == 1:
        return ["time"]
    every = [dict(at.sizes) for at in profile.at]
    differ = [name for name in every[0] if len({sizes.get(name) for sizes in every}) > 1] or list(every[0])
    return [", ".join(f"{show(name)}={sizes[name]}" for name in differ) for sizes in every]


def share_text(time_s: float, whole_s: float) -> str:
    return f"{100 * time_s / whole_s:.0f}%" if whole_s > 0 else "-"


def operator_table(profile: Profile, width: int, show: Show) -> Iterator[Text]:
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
    return f"{spell_s(time_s)} {share_text(time_s, at.run_s):>4}"


def _sums(name: str, times_s: Sequence[float], every: Sequence[ProfiledSize], *, alone: bool) -> TableRow:
    cells = [_of_run(time_s, at) for time_s, at in zip(times_s, every, strict=True)]
    return TableRow(name, ("", *cells, *[""] * alone))


def _ranked(shares: Iterable[tuple[str, float]]) -> list[str]:
    """Names by their largest share."""
    most: dict[str, float] = {}
    for name, share in shares:
        most[name] = max(most.get(name, 0.0), share)
    return sorted(most, key=lambda name: -most[name])


def path_table(profile: Profile, width: int, show: Show) -> Iterator[Text]:
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
    gains = [share_text(path.gain_s, at.run_s) for path, at in zip(paths, every, strict=True)]
    if alone:
        floor = "-" if first.floor_s is None else spell_s(first.floor_s)
        moves = "-" if first.bytes is None else spell_bytes(first.bytes)
        cells = [_time(first, every[0]), moves, floor, *gains]
    else:
        cells = [f"{spell_s(path.time_s)} {gain:>4}" for path, gain in zip(paths, gains, strict=True)]
    return TableRow(show(name), (str(first.places), *cells), label)


def _few(operators: Sequence[str], show: Show) -> str:
    """Operator types in their order, each with how often it is there."""
    counts = [f"{count} {show(name)}" if count > 1 else show(name) for name, count in Counter(operators).items()]
    more = len(counts) - _MOST_OPERATORS
    return ", ".join(counts[:_MOST_OPERATORS]) + (f" and {more} more" if more > 0 else "")


def spell_bytes(size: int) -> str:
    """`1.2 MiB`"""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.3g} {unit}"
    return f"{size} B"
