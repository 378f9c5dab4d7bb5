"""The bandwidth of this machine's memory: how fast it copies and reads so many bytes, measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np

from noyau.errors import BuildError
from noyau.timing.rates import rate_of, recall_curves
from noyau.timing.throughput import aligned, least_s, memory_loops, memory_rate

Clock = Callable[[], float]
# A copy within a core's own cache is timed on one core, and the others are as fast; starting threads would take longer
# than the copy.
_OWN_CACHE_BYTES = 512 << 10
_SMALLEST_BYTES, _LARGEST_BYTES = 8 << 10, 256 << 20
_SAMPLE_BYTES, _MOST_ROUNDS = 8 << 20, 1024


def copy_rate(moved_bytes: int, threads: int) -> float:
    """Bytes per second of a plain copy that moves so many bytes, what is read and what is written counted.

    The same memory is copied again and again, as a kernel's is when it is timed: what fits into a cache is in it.
    From what `noyau machine` has kept, else measured once and kept for each power of two; 256 MiB at most."""
    return _recorded(0, moved_bytes, threads, _copy_rate)


def read_rate(read_bytes: int, threads: int) -> float:
    """As `copy_rate`, of memory that is only read. BuildError where `noyau machine` has kept nothing and there is no
    compiler to measure it with."""
    return _recorded(1, read_bytes, threads, _read_rate)


def _recorded(curve: int, moved_bytes: int, threads: int, measure: Callable[[int, int], float]) -> float:
    """The rate of one of the two curves at the next power of two, within bounds, or what is measured there."""
    size_bytes = min(max(1 << max(moved_bytes - 1, 0).bit_length(), _SMALLEST_BYTES), _LARGEST_BYTES)
    threads, curves = max(threads, 1), recall_curves()
    rate = None if curves is None else curves[curve].get(threads, {}).get(size_bytes)
    return measure(size_bytes, threads) if rate is None else rate


def measure_copy(moved_bytes: int, threads: int, clock: Clock = time.perf_counter) -> float:
    """As copy_rate, but measured now, with nothing rounded or kept; `clock` gives seconds."""
    part_bytes = max(moved_bytes // (2 * threads), 1)
    rounds = min(max(_SAMPLE_BYTES // (2 * part_bytes), 1), _MOST_ROUNDS)
    samples = 16 if rounds > 1 else 6  # the first may be a slow one, the fastest counts
    if threads > 1 and 2 * part_bytes > _OWN_CACHE_BYTES:
        copiers = [partial(_copy, *_pair(part_bytes)) for _ in range(threads)]
        return 2.0 * part_bytes * threads * rounds / least_s(copiers, rounds, samples, clock)
    # The cost of the calls themselves, that of copies of nothing, is taken off.
    copied_s, calls_s = (least_s([partial(_copy, *_pair(size))], rounds, samples, clock) for size in (part_bytes, 1))
    return threads * 2 * part_bytes * rounds / max(copied_s - calls_s, 0.1 * copied_s)


def measure_nontemporal(moved_bytes: int, threads: int) -> float:
    """As `measure_copy`, of a copy whose stores go around the caches, as those of kernels do where much is written; 0
    where there is no compiler to build it with."""
    try:
        return memory_rate(memory_loops().call("noyau_copy_around"), "noyau_copy_around", moved_bytes, threads)
    except BuildError:
        return 0.0


def measure_read(read_bytes: int, threads: int) -> float:
    """As read_rate, but measured now, with nothing rounded or kept. BuildError where there is no compiler."""
    return memory_rate(memory_loops().call("noyau_read"), "noyau_read", read_bytes, threads)


@cache
def _read_rate(moved_bytes: int, threads: int) -> float:
    return rate_of("read", moved_bytes, threads, measure_read)


@cache
def _copy_rate(moved_bytes: int, threads: int) -> float:
    return rate_of("copy", moved_bytes, threads, _best_copy)


def _best_copy(moved_bytes: int, threads: int) -> float:
    return max(measure_copy(moved_bytes, threads), measure_nontemporal(moved_bytes, threads))


def _pair(size_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """A source and a target, each written to before so that it has pages of its own.

    A memcpy to a target that is not aligned can be ten times slower; one at the source's place in its page can wait for
    the source."""
    return aligned(size_bytes), aligned(size_bytes, 2112)


def _copy(source: np.ndarray, target: np.ndarray, rounds: int) -> None:
    for _ in range(rounds):
        np.copyto(target, source)
