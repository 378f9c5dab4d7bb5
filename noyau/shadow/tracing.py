"""A shadow of memory that also remembers who wrote each cell, for a map of a small launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from noyau.shadow.engine import Event, Shadow
from noyau.shadow.records import Access

MOST = 200_000  # writes that are remembered; later ones are not
_WRITES = (Access.WRITE, Access.ATOMIC, Access.SAME_WRITE)


class Writes:
    """Writes that are remembered. `writes`: rows of memory, cell and owner, in order."""

    def __init__(self) -> None:
        self.writes: list[np.ndarray] = []
        self.kept = 0

    def keep(self, rows: np.ndarray) -> None:
        """Remember writes, as far as there is room."""
        if self.kept < MOST:
            self.writes.append(rows)
            self.kept += len(rows)

    def writers(self, memory: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
        """Of each cell of a memory the last who wrote it, -1 where nobody did, and how many others did before."""
        rows = np.concatenate([*self.writes, np.zeros((0, 3), np.int64)])
        rows = rows[(rows[:, 0] == memory) & (rows[:, 1] >= 0) & (rows[:, 1] < cells)]
        last, others = np.full(cells, -1, np.int64), np.zeros(cells, np.int64)
        last[rows[:, 1]] = rows[:, 2]
        pairs = np.unique(rows[:, 1:], axis=0)
        if len(pairs):
            places, counts = np.unique(pairs[:, 0], return_counts=True)
            others[places] = counts - 1
        return last, others


class Traced(Writes, Shadow):
    """As a Shadow, which keeps the writes of the parallel regions."""

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

    def touch_many(
        self, memory: int, cells: np.ndarray, access: Access, site: int, changed: np.ndarray | None = None
    ) -> int:
        if access in _WRITES and not self.is_serial:
            places = np.asarray(cells, np.int64).ravel()
            self.keep(np.stack([np.full_like(places, memory), places, np.full_like(places, self.owner)], 1))
        return super().touch_many(memory, cells, access, site, changed)

    def replay(self, rows: Any, count: int) -> None:
        super().replay(rows, count)
        if not count:
            return
        notes = np.frombuffer(rows, np.int64, 4 * count).reshape(-1, 4)
        starts = np.flatnonzero(notes[:, 0] == Event.REGION)
        ends = [*starts.tolist(), len(notes)]
        for start, end in zip([0, *(starts + 1)], ends, strict=True):
            part = notes[start:end]
            if not self.is_serial:
                part = part[(part[:, 0] >= 0) & np.isin(part[:, 0] & 3, _WRITES)]
                self.keep(np.stack([part[:, 0] >> 2, part[:, 1], part[:, 2]], 1))
            if end < len(notes):
                self.is_serial = bool(notes[end, 1])
