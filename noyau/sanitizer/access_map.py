"""The map of a small launch, as text and as SVG (the owner that writes each cell), and the shadow that records it."""

import colorsys
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise, product
from typing import Any

import numpy as np

from noyau.sanitizer.engine import Array, ReplayEvent, Shadow
from noyau.sanitizer.records import ACCESSES, Access, WatchedMemory

MOST = 200_000  # recorded writes; later ones are dropped


class Writes:
    """Recorded writes. `writes`: rows of memory, cell and owner, in order."""

    def __init__(self) -> None:
        self.writes: list[Array] = []
        self.kept = 0

    def keep(self, rows: Array) -> None:
        """Record writes, as far as there is room."""
        if self.kept < MOST:
            self.writes.append(rows)
            self.kept += len(rows)

    def writers(self, memory: int, cells: int, width: int = 1) -> tuple[Array, Array]:
        """Return the last owner that wrote each element of a memory, of `width` cells, -1 for none, and the number of
        other owners that wrote it."""
        rows = np.concatenate([*self.writes, np.zeros((0, 3), np.int64)]) // (1, width, 1)
        rows = rows[(rows[:, 0] == memory) & (rows[:, 1] >= 0) & (rows[:, 1] < cells)]
        last, others = np.full(cells, -1, np.int64), np.zeros(cells, np.int64)
        last[rows[:, 1]] = rows[:, 2]
        pairs = np.unique(rows[:, 1:], axis=0)
        if len(pairs):
            places, counts = np.unique(pairs[:, 0], return_counts=True)
            others[places] = counts - 1
        return last, others


class TracingShadow(Writes, Shadow):
    """A Shadow that also records the writes of parallel regions."""

    def __init__(self) -> None:
        Shadow.__init__(self)
        Writes.__init__(self)
        self.owner, self.is_serial = 0, True

    def region(self, *, serial: bool = False) -> None:
        super().region(serial=serial)
        self.is_serial = serial

    def enter(self, owner: int, block: int = 0, warp: int = 0, epoch: int = 0, warp_epoch: int = 0) -> None:
        super().enter(owner, block, warp, epoch, warp_epoch)
        self.owner = owner

    def touch_many(self, memory: int, cells: Array, access: Access, site: int, changed: Array | None = None) -> int:
        self.keep_access(memory, cells, access, self.owner)
        return super().touch_many(memory, cells, access, site, changed)

    def touch_each(self, owners: Array, starts: Array, fences: bool, access: Sequence[Any]) -> None:
        memory, cells, how, *_ = access
        self.keep_access(memory, cells, how, np.repeat(owners, np.diff(starts)))
        super().touch_each(owners, starts, fences, access)

    def keep_access(self, memory: int, cells: Array, access: Access, owners: int | Array) -> None:
        """Record an access of many cells, by one owner or by an owner for each, if it is a write of a region."""
        if access != Access.READ and not self.is_serial:
            places = np.asarray(cells, np.int64).ravel()
            self.keep(np.stack(np.broadcast_arrays(memory, places, owners), 1))

    def split(self, memory: int, parts: int) -> None:
        super().split(memory, parts)
        for rows in self.writes:
            rows[rows[:, 0] == memory, 1] *= parts

    def replay(self, rows: Any, count: int) -> None:
        super().replay(rows, count)
        if not count:
            return
        notes = np.frombuffer(rows, np.int64, 4 * count).reshape(-1, 4)
        regions = np.flatnonzero(notes[:, 0] == ReplayEvent.REGION)
        for before, end in pairwise((-1, *regions.tolist(), len(notes))):
            part = notes[before + 1 : end]
            if not self.is_serial:
                part = part[(part[:, 0] >= 0) & (part[:, 0] % ACCESSES != Access.READ)]
                self.keep(np.stack([part[:, 0] // ACCESSES, part[:, 1], part[:, 2]], 1))
            if end < len(notes):
                self.is_serial = bool(notes[end, 1])


Extents = tuple[int, int, int]  # of a grid, or of a block

CELLS_MOST = 4096  # of a drawn array
LINES_MOST = 80  # of the text of an array
_WARP = 32  # threads
_WIDTH, _HEIGHT, _HEAD, _ACROSS, _TEAMS = 38, 22, 24, 32, 24  # of a drawing: pixels, cells, entries of the legend


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of writes: `team` is its block and warp, or ""; `at` its place in words."""

    team: str
    at: str

    @property
    def key(self) -> str:
        return self.team or self.at


def thread_owner(number: int, grid: Extents, block: Extents) -> Owner:
    """Return the owner for a thread's number in a grid."""
    block_number, thread = divmod(number, math.prod(block))
    return Owner(f"block {place_in(block_number, grid)}, warp {thread // _WARP}", place_in(thread, block))


def place_in(number: int, extents: Extents) -> str:
    """Return a place among extents, x first; a plain number for one axis."""
    x, rest = number % extents[0], number // extents[0]
    y, z = rest % extents[1], rest // extents[1]
    if extents[1:] == (1, 1):
        return str(x)
    return f"({x}, {y})" if extents[2] == 1 else f"({x}, {y}, {z})"


@dataclass(frozen=True, slots=True)
class ArrayMap:
    """An array: for each cell in C order its last owner, -1 for none, and the number of its other owners."""

    name: str
    shape: tuple[int, ...]
    owners: tuple[int, ...]
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AccessMap:
    """The map of a launch. `word`: the name of its owners; `left`: why arrays, or the launch, are not drawn."""

    kernel: str
    launch: str
    word: str
    owners: Mapping[int, Owner]
    arrays: tuple[ArrayMap, ...]
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return, for each array, the runs of cells that consecutive owners write."""
        lines = [f"{self.kernel}{self.launch}: {reason}" for reason in self.left]
        for each in self.arrays:
            lines.append(f"{self.kernel}{self.launch}: who writes {each.name}[{', '.join(map(str, each.shape))}]")
            runs = list(_runs(each, self))
            width = max((len(cells) for cells, _ in runs), default=0)
            lines += [f"  {cells:<{width}}  {who}" for cells, who in runs[:LINES_MOST]]
            lines += [f"  and {len(runs) - LINES_MOST} more lines"] if len(runs) > LINES_MOST else []
        return "\n".join(lines)


def map_of_writes(
    kernel: str,
    launch: str,
    word: str,
    owner: Callable[[int], Owner],
    memories: Mapping[int, WatchedMemory],
    traced: Writes,
    *,
    is_cut: bool = False,
) -> AccessMap:
    """Return the map of the recorded writes to these memories. Arrays that are too large are named in `left`, as is a
    run that was cut short."""
    if is_cut or traced.kept >= MOST:
        reason = f"it writes more than {MOST} times, which is too much for a map; run it on smaller arrays"
        return AccessMap(kernel, launch, word, {}, (), (reason,))
    arrays, left = [], []
    for number, memory in memories.items():
        cells = int(np.prod(memory.shape))
        last, others = traced.writers(number, cells, memory.width)
        if not (last >= 0).any():
            continue
        if cells > CELLS_MOST:
            left.append(f"{memory.name} has {cells} cells, and a map draws {CELLS_MOST}; run it on smaller arrays")
            continue
        arrays.append(ArrayMap(memory.name, memory.shape, tuple(last.tolist()), tuple(others.tolist())))
    owners = {each: owner(each) for each in sorted({each for array in arrays for each in array.owners if each >= 0})}
    return AccessMap(kernel, launch, word, owners, tuple(arrays), tuple(left))


def _runs(array: ArrayMap, access_map: AccessMap) -> Iterator[tuple[str, str]]:
    """Yield runs of cells along the last axis, with their owners, as long as owners follow in equal steps."""
    extents = array.shape or (1,)
    owners, others = (np.array(each).reshape(extents) for each in (array.owners, array.others))
    for row in product(*map(range, extents[:-1])):
        line, more = owners[row].tolist(), others[row].tolist()
        start = 0
        while start < len(line):
            end = _end(line, more, start, access_map)
            inner = str(start) if end == start + 1 else f"{start}..{end - 1}"
            index = ", ".join([*map(str, row), inner]) if array.shape else "()"
            yield f"{array.name}[{index}]", _who(line[start:end], more[start], access_map)
            start = end


def _end(line: Sequence[int], more: Sequence[int], start: int, access_map: AccessMap) -> int:
    end, step = start + 1, None
    while end < len(line) and more[end] == more[start] and (line[end] < 0) == (line[start] < 0):
        here = line[end] - line[end - 1]
        is_apart = line[end] >= 0 and access_map.owners[line[end]].team != access_map.owners[line[start]].team
        if is_apart or step not in (None, here):
            break
        step, end = here, end + 1
    return end


def _who(run: Sequence[int], others: int, access_map: AccessMap) -> str:
    if run[0] < 0:
        return "nobody"
    first, last, word = access_map.owners[run[0]], access_map.owners[run[-1]], access_map.word
    text = f"{first.team}: " if first.team else ""
    if run[0] == run[-1]:
        text += f"{word} {first.at}"
    else:
        step = abs(run[1] - run[0])
        text += f"{word}s {first.at}..{last.at}" + (f" in steps of {step}" if step > 1 else "")
    return f"{text}, after {others} other {word}{'s' * (others > 1)}" if others else text


def svg(maps: Sequence[AccessMap]) -> str:
    """Draw a square for each cell, in the colour of its warp, iteration or program, with its owner's place. A red frame
    marks a cell that several owners write; a white cell has no owner."""
    parts, y, width = list[str](), 10, 400
    for access_map, array in ((each, array) for each in maps for array in each.arrays):
        body, height, across = _array(access_map, array, y)
        parts += body
        y, width = y + height + 20, max(width, across)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 20}" height="{y}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{width + 20}" height="{y}" fill="white"/>', *parts, "</svg>", ""])


def _array(access_map: AccessMap, array: ArrayMap, y: int) -> tuple[list[str], int, int]:
    """Draw an array from a height on; return its parts, its height and its width."""
    across = array.shape[-1] if len(array.shape) > 1 else min(_ACROSS, max(1, len(array.owners)))
    keys = dict.fromkeys(access_map.owners[each].key for each in array.owners if each >= 0)
    teams = {key: _colour(number) for number, key in enumerate(keys)}  # or owners, where there are no teams
    title = f"{access_map.kernel}{access_map.launch}: {array.name}[{', '.join(map(str, array.shape))}]"
    parts = [_text(10, y + 16, title, 14)]
    top = y + _HEAD
    for cell, (owner, others) in enumerate(zip(array.owners, array.others, strict=True)):
        row, column = divmod(cell, max(across, 1))
        parts += _cell(10 + column * _WIDTH, top + row * _HEIGHT, access_map.owners.get(owner), others, teams)
    rows = -(-len(array.owners) // max(across, 1))
    bottom = top + rows * _HEIGHT + 6
    named = [name for name in teams if name][:_TEAMS]
    for number, name in enumerate(named):
        x, line = 10 + number % 4 * 180, bottom + number // 4 * 18
        parts.append(f'<rect x="{x}" y="{line}" width="12" height="12" fill="{teams[name]}"/>')
        is_team = any(each.team for each in access_map.owners.values())
        parts.append(_text(x + 16, line + 11, name if is_team else f"{access_map.word} {name}", 11))
    return parts, bottom - y + 18 * -(-len(named) // 4), max(10 + across * _WIDTH, 10 + 180 * min(4, len(named)))


def _colour(number: int) -> str:
    """Return a colour that differs from those of neighbouring numbers: hues by the golden ratio."""
    red, green, blue = colorsys.hls_to_rgb(number * 0.618034 % 1, 0.78, 0.65)
    return f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}"


def _cell(x: int, y: int, owner: Owner | None, others: int, teams: Mapping[str, str]) -> list[str]:
    fill = "white" if owner is None else teams[owner.key]
    frame = 'stroke="#d00" stroke-width="2"' if others else 'stroke="#888" stroke-width="0.5"'
    parts = [f'<rect x="{x + 1}" y="{y + 1}" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" fill="{fill}" {frame}/>']
    return parts if owner is None else [*parts, _text(x + 4, y + 15, owner.at.replace(" ", ""), 10)]


def _text(x: int, y: int, text: str, size: int) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}">{escape(text, quote=False)}</text>'
