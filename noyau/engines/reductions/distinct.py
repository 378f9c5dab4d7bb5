"""Distinct counts in constant memory, by hashes of 64 pseudorandom bits."""

import hashlib
import math
from typing import Any

import numpy as np

from noyau.engines.reduction import reduction
from noyau.ops.op import op

_EMPTY = np.uint64(2**64 - 1)
_GOLDEN = 0x9E3779B97F4A7C15


def mix_bits(bits: Any, start: Any) -> Any:
    """Hash numbers by splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    bits = bits + start
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@op("u64[n], u64 -> u64[n]")
def hashes(bits, start):  # type: ignore[no-untyped-def]
    return mix_bits(bits, start)


def start_of(seed: int) -> np.uint64:
    return np.uint64((seed + 1) * _GOLDEN % 2**64)


def bits_of(values: Any) -> np.ndarray:
    """64 bits for each value, equal for equal numbers of a kind (-0.0 is 0.0); of texts, the BLAKE2 digest."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return (array.astype(np.float64) + 0.0).view(np.uint64)
    if array.dtype.kind in "iubMm":
        return array.astype(np.int64, copy=False).view(np.uint64)
    texts = array.tolist()
    digests = {each: hashlib.blake2b(str(each).encode(), digest_size=8).digest() for each in set(texts)}
    return np.frombuffer(b"".join(map(digests.__getitem__, texts)), "<u8").astype(np.uint64)


def hash_values(values: Any, seed: int = 0) -> np.ndarray:
    """The hash of each value, 64 pseudorandom bits."""
    return np.asarray(hashes(np.ascontiguousarray(bits_of(values)), start_of(seed)))


@op("u64[n], u64, u64, u64[m] -> u64[m]")
def least_rests(bits, start, width, state):  # type: ignore[no-untyped-def]
    hashes = mix_bits(bits, start)
    out = state.copy()
    np.minimum.at(out, (hashes >> (np.uint64(64) - width)).astype(np.int64), hashes << width)
    return out


@reduction
class HyperLogLog:
    """The number of distinct values, with a relative standard deviation of about 1.04 / sqrt(2**bits): 0.8 % for 14
    bits, which take 128 kB. Flajolet, Fusy, Gandouet and Meunier, "HyperLogLog", 2007, with its correction for small
    counts by empty registers. A register keeps the least remainder of a hash, which has the most leading zeros."""

    merge = staticmethod(np.minimum)

    def __init__(self, bits: int = 14, seed: int = 0) -> None:
        if bits not in range(4, 19):
            raise ValueError(f"HyperLogLog has 4 to 18 bits, not {bits}")
        self.bits, self.seed = bits, seed

    def zero(self) -> np.ndarray:
        return np.full(1 << self.bits, _EMPTY)

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        bits = np.ascontiguousarray(bits_of(x))
        return np.asarray(least_rests(bits, start_of(self.seed), np.uint64(self.bits), state))

    def finish(self, state: np.ndarray) -> float:
        size, used = len(state), state[state != _EMPTY]
        widths = np.frexp((used >> np.uint64(11)).astype(np.float64))[1]  # 53 bits are exact as floats
        ranks = np.minimum(54 - widths, 65 - self.bits)
        empty = size - len(used)
        estimate = 0.7213 / (1 + 1.079 / size) * size**2 / (empty + float(np.sum(np.ldexp(1.0, -ranks))))
        return size * math.log(size / empty) if empty and estimate <= 2.5 * size else estimate


@reduction
class DistinctSample:
    """The number of distinct values, with a relative error above `eps` with probability 1/3 at most. It keeps the
    hashes that end in z zeros, for the least z with at most 24 / eps**2 of them. Bar-Yossef, Jayram, Kumar, Sivakumar
    and Trevisan, "Counting distinct elements in a data stream", 2002, algorithm 2 (BJKST), with hashes of 64 bits
    instead of pairwise independent ones: the relative standard deviation is then at most eps / 4."""

    def __init__(self, eps: float = 0.05, seed: int = 0) -> None:
        if not 0 < eps <= 1:
            raise ValueError(f"eps of DistinctSample is {eps}; give an error above 0, of 1 at most")
        self.most, self.seed = 24 / eps**2, seed

    def zero(self) -> Any:
        return np.array(0), np.empty(0, np.uint64)

    def step(self, state: Any, x: Any) -> Any:
        bits = hash_values(x, self.seed)
        # Few hashes end in many zeros: sort these first, then those of lower levels as long as the sample fits.
        level, sample = max(int(state[0]), int(math.log2(max(1.0, 2 * len(bits) / self.most)))), np.empty(0, np.uint64)
        for lower in range(level, int(state[0]) - 1, -1):
            wider = np.unique(_at_level(bits, lower))
            if lower < level and len(wider) > self.most:
                break
            level, sample = lower, wider
        return self.merge(state, (level, sample))

    def merge(self, a: Any, b: Any) -> Any:
        level = max(int(a[0]), int(b[0]))
        bits, others = _at_level(a[1], level), _at_level(b[1], level)
        bits = np.union1d(bits, others) if len(bits) and len(others) else bits if len(bits) else others
        while len(bits) > self.most:
            level += 1
            bits = _at_level(bits, level)
        return np.array(level), bits

    def finish(self, state: Any) -> float:
        return float(len(state[1]) * 2.0 ** int(state[0]))


def _at_level(bits: np.ndarray, level: int) -> np.ndarray:
    """The hashes that end in at least `level` zeros."""
    return np.asarray(bits[bits & np.uint64((1 << level) - 1) == 0])
