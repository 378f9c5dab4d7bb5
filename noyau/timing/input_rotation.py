"""Sets of input arrays in memory of our own, used in turn, whose values change before they come again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noyau.errors import InputError
from noyau.timing.conditions import last_level_bytes

Arrays = tuple[np.ndarray, ...]
HOT_BYTES = 256 << 10  # of all sets together, where they fit: within a core's own cache
MOST_SETS = 1 << 14
_LINE_BYTES = 64
_STRETCH = 8  # the share of the cells that a coarse change takes in
_COARSE = 0.25  # of the changes
_CELLS = 3


def hot_sets(set_bytes: int) -> int:
    """The number of sets that stay in a core's cache; two at least, so that no call has the inputs of the one
    before."""
    return min(max(2, HOT_BYTES // max(set_bytes, 1)), MOST_SETS)


def cold_sets(set_bytes: int) -> int:
    """The number of sets that fill twice the last-level cache: when one has its turn again, none of it is in a cache.
    Sets below some kilobytes do not fill it, and stay warmer than the name says."""
    return min(max(3, math.ceil(2 * last_level_bytes() / max(set_bytes, 1))), MOST_SETS)


class Rotation:
    """Sets of inputs, used in turn: same objects, same addresses, but other values than the last time.

    `draws` are sets of arrays, two or more, of the same shapes; what a set holds is always cells of draws in their own
    places, so that indices, masks and the like stay valid. Each change is either a few cells or a stretch of them: a
    callable that keeps results by identity, by address or by a sample of the cells gives what it should not."""

    def __init__(self, draws: Sequence[Sequence[np.ndarray]], sets: int, rng: np.random.Generator) -> None:
        refuse_unlike(draws)
        self.rng, self.next = rng, 0
        self.sources = [np.stack([draw[k].reshape(-1) for draw in draws]) for k in range(len(draws[0]))]
        self.blocks = [_block(sets, draws[0][k]) for k in range(len(draws[0]))]
        for block, source in zip(self.blocks, self.sources, strict=True):
            picked = rng.integers(0, len(source), block.shape, np.uint8)
            for number, cells in enumerate(source):
                np.copyto(block, cells, where=picked == number)
        shapes = [array.shape for array in draws[0]]
        self.sets: list[Arrays] = [
            tuple(block[k].reshape(shape) for block, shape in zip(self.blocks, shapes, strict=True))
            for k in range(sets)
        ]

    def take(self, count: int) -> list[Arrays]:
        """The next sets, at most `count` and at most to the end of the turn, changed since they were last used."""
        first = self.next
        last = min(first + count, len(self.sets))
        self.next = last % len(self.sets)
        self._change(first, last)
        return self.sets[first:last]

    def _change(self, first: int, last: int) -> None:
        rows = np.arange(first, last)
        for block, source in zip(self.blocks, self.sources, strict=True):
            cells = block.shape[1]
            if not cells:
                continue
            for _ in range(_CELLS):
                places = self.rng.integers(0, cells, len(rows))
                offered, old = source[:, places], block[rows, places]
                # Whichever draw has another value there; where none has, it stays.
                liked = np.where(offered != old, self.rng.random(offered.shape), 0.0).argmax(0)
                chosen = offered[liked, np.arange(len(rows))]
                block[rows, places] = chosen
            for row in rows[self.rng.random(len(rows)) < _COARSE]:
                start, number = int(self.rng.integers(cells)), int(self.rng.integers(len(source)))
                stretch = slice(start, start + max(cells // _STRETCH, 1))
                block[row, stretch] = source[number, stretch]


def refuse_unlike(draws: Sequence[Sequence[np.ndarray]]) -> None:
    """InputError where there is but one draw, or where draws differ in their shapes or dtypes."""
    kinds = [[(array.shape, array.dtype) for array in draw] for draw in draws]
    if len(draws) < 2:
        raise InputError("one draw of inputs would be the same input every time: give two or more")
    if any(kind != kinds[0] for kind in kinds):
        raise InputError(f"the draws of inputs differ in shape or dtype: {kinds[0]} and {kinds[1]}; draw them alike")


def packed_sets(sets: int, like: Sequence[np.ndarray]) -> list[Arrays]:
    """So many sets of arrays of these shapes and dtypes, each at the start of a line of the cache, not written to."""
    blocks = [_block(sets, array) for array in like]
    return [tuple(block[k].reshape(a.shape) for block, a in zip(blocks, like, strict=True)) for k in range(sets)]


def _block(sets: int, like: np.ndarray) -> np.ndarray:
    """Memory for so many arrays, [sets, cells], each at the start of a line."""
    stride_bytes = -(-max(like.nbytes, 1) // _LINE_BYTES) * _LINE_BYTES
    room = np.empty(sets * stride_bytes + _LINE_BYTES, np.uint8)
    start = -room.ctypes.data % _LINE_BYTES
    rows = room[start : start + sets * stride_bytes].reshape(sets, stride_bytes)
    return rows[:, : like.nbytes].view(like.dtype) if like.nbytes else np.empty((sets, 0), like.dtype)
