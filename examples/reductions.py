"""
Reductions of streams
=====================

Distinct counts, the largest values, a random sample: what no NumPy function is. Each is a monoid, takes constant
memory, and gives the same result whatever the chunks. Run::

    noyau check examples/reductions.py
    noyau stream examples/reductions.py::HyperLogLog SOURCE --column x=NAME
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

import noyau


def hashed(values: Any, seed: int = 0) -> np.ndarray:
    """Values as 64 bits that look random: splitmix64 of numbers (Steele, Lea and Flood, 2014), BLAKE2 of each distinct
    text. Equal numbers of one kind hash alike; -0.0 is 0.0."""
    array = np.asarray(values)
    if array.dtype.kind not in "iufb":
        texts, places = np.unique(array.astype(str), return_inverse=True)
        digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
        bits = np.array([int.from_bytes(digest, "little") for digest in digests], np.uint64)[places]
    else:
        bits = (array.astype(np.float64) + 0.0).view(np.uint64) if array.dtype.kind == "f" else array.astype(np.uint64)
    bits = bits + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


@noyau.reduction
class HyperLogLog:
    """The number of distinct values, off by about 1.04 / sqrt(2**bits) of it (a standard deviation: 0.8 % for 14 bits,
    of 16 kB). Flajolet, Fusy, Gandouet and Meunier, 2007; small counts as there, by empty registers."""

    def __init__(self, bits: int = 14, seed: int = 0) -> None:
        if not 4 <= bits <= 18:
            raise ValueError(f"HyperLogLog has 4 to 18 bits, not {bits}")
        self.bits, self.seed = bits, seed

    def zero(self) -> np.ndarray:
        return np.zeros(1 << self.bits, np.uint8)

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        bits = hashed(x, self.seed)
        rest = (bits << np.uint64(self.bits)) | np.uint64(1 << (self.bits - 1))
        halves = rest >> np.uint64(32), rest & np.uint64(2**32 - 1)  # exact as floats, whose exponents count zeros
        high, low = (np.frexp(half.astype(np.float64))[1] for half in halves)
        zeros = np.where(high > 0, 32 - high, 64 - low)
        np.maximum.at(state, (bits >> np.uint64(64 - self.bits)).astype(np.int64), (zeros + 1).astype(np.uint8))
        return state

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(a, b))

    def finish(self, state: np.ndarray) -> float:
        size, empty = len(state), int(np.count_nonzero(state == 0))
        estimate = 0.7213 / (1 + 1.079 / size) * size**2 / float(np.sum(np.ldexp(1.0, -state.astype(np.int64))))
        return size * math.log(size / empty) if empty and estimate <= 2.5 * size else estimate


@noyau.reduction
class DistinctSample:
    """The number of distinct values, off by more than `eps` of it at most once in three: of the values it keeps those
    whose hash ends in z zeros, of which there are at most 24 / eps**2. Bar-Yossef, Jayram, Kumar, Sivakumar and
    Trevisan, 2002, algorithm 2 (BJKST), with hashes of 64 bits."""

    def __init__(self, eps: float = 0.05, seed: int = 0) -> None:
        self.eps, self.seed = eps, seed

    def zero(self) -> Any:
        return np.array(0), np.empty(0, np.uint64)

    def step(self, state: Any, x: Any) -> Any:
        bits = hashed(x, self.seed)
        level = bits & np.uint64((1 << int(state[0])) - 1) == 0
        return self.merge(state, (state[0], np.unique(bits[level])))

    def merge(self, a: Any, b: Any) -> Any:
        level, bits = max(int(a[0]), int(b[0])), np.union1d(a[1], b[1])
        bits = bits[bits & np.uint64((1 << level) - 1) == 0]
        while len(bits) > 24 / self.eps**2:
            level += 1
            bits = bits[bits & np.uint64((1 << level) - 1) == 0]
        return np.array(level), bits

    def finish(self, state: Any) -> float:
        return float(len(state[1]) * 2.0 ** int(state[0]))


@noyau.reduction
class Top:
    """The `count` largest values, the largest first; exact. NaN is none."""

    def __init__(self, count: int = 10) -> None:
        self.count = count

    def zero(self) -> np.ndarray:
        return np.empty(0)

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        values = np.asarray(x)
        return self.merge(state, values[~np.isnan(values)])

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        every = np.concatenate([a, b])
        return every if len(every) <= self.count else np.partition(every, -self.count)[-self.count :]

    def finish(self, state: np.ndarray) -> np.ndarray:
        return np.sort(state)[::-1]


@noyau.reduction
class Reservoir:
    """A sample of `count` rows, each as likely as any other, without repetition: those with the least random keys, as
    of Vitter's reservoir (1985); `key` is a column that names a row, whose hash is its key, so that chunks, workers and
    runs give one sample, and rows of equal keys count once."""

    def __init__(self, count: int = 100, seed: int = 0) -> None:
        self.count, self.seed = count, seed

    def zero(self) -> Any:
        return np.empty(0, np.uint64), np.empty(0)

    def step(self, state: Any, key: Any, x: Any) -> Any:
        return self.merge(state, (hashed(key, self.seed), np.asarray(x)))

    def merge(self, a: Any, b: Any) -> Any:
        keys, first = np.unique(np.concatenate([a[0], b[0]]), return_index=True)
        return keys[: self.count], np.concatenate([a[1], b[1]])[first[: self.count]]

    def finish(self, state: Any) -> np.ndarray:
        return np.asarray(state[1])

    def inputs(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        key = rng.integers(0, 2**40, n)
        return {"key": key, "x": key * 0.5}
