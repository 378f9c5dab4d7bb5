"""The programs of a launch that are watched, where all of them make more accesses than are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_BORDER = 2  # programs at each end of an axis
_MORE = 4  # times as many accesses for those at the corners


class LaunchSample:
    """A choice of the programs of a launch, made as they come. `most`: accesses that are watched.

    Half of them are for who comes first; what is left is dealt along the rest of the grid, to all where it will do,
    else by chance with a fixed seed. Those at the corners of the grid and beside them are watched always, for masks and
    offsets go wrong there. As many as run as one are chosen together, so that neighbours are seen together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.grid: tuple[int, int, int] = (0, 1, 1)  # no programs, until there are some
        self.chosen: dict[int, bool] = {}  # whether each program is watched that has begun
        self.watched = 0
        self.is_ordered = False  # programs wait for others: what is watched has no gaps then
        self.is_over = False  # nothing is watched any more
        self._random = Random(0)  # noqa: S311  it hides nothing

    @property
    def total(self) -> int:
        """The programs of the launch."""
        x, y, z = self.grid
        return x * y * z

    @property
    def is_partial(self) -> bool:
        """Whether accesses were left out."""
        return self.is_over or self.watched < len(self.chosen)

    def place(self, program: int) -> tuple[int, int, int]:
        """The place in the grid of a program, by its number."""
        rest, z = divmod(program, self.grid[2])
        return (*divmod(rest, self.grid[1]), z)

    def has(self, programs: Sequence[int], accesses: int) -> bool:
        """Whether programs that begin together, or go on, are watched. `accesses`: how many were until now."""
        if programs[0] not in self.chosen:
            is_in = self._has_room(programs, accesses)
            self.chosen.update(dict.fromkeys(programs, is_in))
            self.watched += len(programs) if is_in else 0
        return self.chosen[programs[0]] and not self.is_over

    def _has_room(self, programs: Sequence[int], accesses: int) -> bool:
        room = self.most - accesses
        if self.is_ordered:
            return room >= 0 and not self.is_partial
        wanted = accesses / max(self.watched, 1) * (self.total - len(self.chosen))
        if room >= self.most / 2 or room >= wanted or self._random.random() < room / wanted:
            return True
        return accesses <= _MORE * self.most and any(map(self._is_corner, programs))

    def _is_corner(self, program: int) -> bool:
        pairs = zip(self.place(program), self.grid, strict=True)
        return all(min(at, extent - 1 - at) < _BORDER for at, extent in pairs)

    def end_if_full(self, accesses: int) -> bool:
        """Whether one program alone makes so many accesses that no more are watched."""
        self.is_over = self.is_over or accesses > _MORE * self.most
        return self.is_over
