"""Memory for large results, used again once the caller has dropped them: a fresh page costs more than its cells.

A result of LEAST_BYTES or more lies in a block of its own. When the last array that shows any of it is gone, views
included, the block waits for the next result of its size. What waits is bounded: an eighth of the memory that this
process may have (the machine's, or that of its control group where that is less), at least 64 MiB; what waited longest
goes back to the system first. `clear()` gives all of it back."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
from collections import deque
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from noyau.workers.resources import memory_bytes

LEAST_BYTES = 1 << 20  # a block costs 4 us more than np.empty, which C libraries serve well below this
_LEAST_LIMIT_BYTES = 64 << 20
_SHARE = 8  # of the memory that there is, the part that may wait
_LARGE_PAGES_BYTES = 4 << 20  # from which a block has a large page of 2 MiB within, wherever it begins
_STEPS = 8  # sizes of blocks between a power of two and the next: at most an eighth of a block is idle


class Block:
    """Pages of this process alone. `stamp`: when it came back, counted."""

    __slots__ = ("address", "pages", "size_bytes", "stamp")

    def __init__(self, pages: mmap.mmap, size_bytes: int) -> None:
        self.pages, self.size_bytes, self.stamp = pages, size_bytes, 0
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(pages))


class _Lease:
    """A block in the hands of a caller: what every array on it keeps alive. It goes back as the last of them goes."""

    __slots__ = ("__array_interface__", "block", "pool")

    def __init__(self, pool: Pool, block: Block, size_bytes: int) -> None:
        self.pool, self.block = pool, block
        data = (block.address, False)
        self.__array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": data, "version": 3}

    def __del__(self) -> None:
        self.pool.give_back(self.block)


class Pool:
    """Blocks that wait to be used again, at most `limit_bytes` of them. Threads may share it."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = Lock()
        self._returned = deque[Block]()  # not counted yet: a block may come back in the midst of anything
        self._waiting: dict[int, list[Block]] = {}  # by size, each in the order in which they came
        self._bytes, self._clock = 0, 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A packed array of any values, whose memory begins at a page. MemoryError where there is not enough."""
        size_bytes = math.prod(shape) * dtype.itemsize
        return np.ndarray(shape, dtype, np.asarray(_Lease(self, self.take(block_bytes(size_bytes)), size_bytes)))

    def take(self, size_bytes: int) -> Block:
        """A block of this size: the one that came back last, or a new one."""
        with self._lock:
            self._admit()
            waiting = self._waiting.get(size_bytes)
            if waiting:
                self._bytes -= size_bytes
                return waiting.pop()
        return self._new(size_bytes)

    def give_back(self, block: Block) -> None:
        """Let a block wait. It may be called at any time, also while this very thread is inside the pool."""
        self._returned.append(block)
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._admit()
            finally:
                self._lock.release()

    def clear(self) -> int:
        """Give everything that waits back to the system; the result is its bytes."""
        with self._lock:
            self._admit()
            freed, self._bytes = self._bytes, 0
            self._waiting = {}
        return freed

    def forget_threads(self) -> None:
        """In a forked child: nobody else holds the lock there, or will end what it was doing."""
        self._lock = Lock()
        self._bytes = sum(size * len(blocks) for size, blocks in self._waiting.items())

    @property
    def waiting_bytes(self) -> int:
        with self._lock:
            self._admit()
            return self._bytes

    def _admit(self) -> None:
        """Count what came back; what waited longest makes room."""
        while self._returned:
            block = self._returned.popleft()
            block.stamp = self._clock = self._clock + 1
            self._waiting.setdefault(block.size_bytes, []).append(block)
            self._bytes += block.size_bytes
        while self._bytes > self.limit_bytes:
            oldest = min((blocks for blocks in self._waiting.values() if blocks), key=lambda blocks: blocks[0].stamp)
            self._bytes -= oldest.pop(0).size_bytes

    def _new(self, size_bytes: int) -> Block:
        with contextlib.suppress(OSError):
            return _map(size_bytes)
        self.clear()
        try:
            return _map(size_bytes)
        except OSError as error:
            raise MemoryError(f"there is no room for a result of {size_bytes} bytes: {error.strerror}") from None


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """As np.empty; of LEAST_BYTES or more, in memory that may have been used before. MemoryError as there."""
    return np.empty(shape, dtype) if math.prod(shape) * dtype.itemsize < LEAST_BYTES else pool().empty(shape, dtype)


@cache
def pool() -> Pool:
    """The one of this process."""
    new = Pool(max(memory_bytes() // _SHARE, _LEAST_LIMIT_BYTES))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=new.forget_threads)
    return new


def clear() -> int:
    """Give the memory that waits for results back to the system; the result is its bytes."""
    return pool().clear()


def block_bytes(size_bytes: int) -> int:
    """The size of the block for so many bytes: pages, and one of a few sizes, so that blocks fit again."""
    step = max(mmap.PAGESIZE, (1 << (size_bytes - 1).bit_length()) // (2 * _STEPS))
    return -(-size_bytes // step) * step


def _map(size_bytes: int) -> Block:
    """Pages that no child shares; large ones where there is room: a new 48 MB result costs 4 ms instead of 16."""
    own: dict[str, Any] = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    pages = mmap.mmap(-1, size_bytes, **own)
    if size_bytes >= _LARGE_PAGES_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system built without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return Block(pages, size_bytes)
