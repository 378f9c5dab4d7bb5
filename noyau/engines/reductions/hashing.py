"""Values as 64 bits that look random."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from noyau.ops.op import op

_GOLDEN = 0x9E3779B97F4A7C15


def mixed(bits: Any, start: Any) -> Any:
    """Each number by splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    bits = bits + start
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@op("u64[n], u64 -> u64[n]")
def hashes(bits, start):  # type: ignore[no-untyped-def]
    return mixed(bits, start)


def start_of(seed: int) -> np.uint64:
    return np.uint64((seed + 1) * _GOLDEN % 2**64)


def bits_of(values: Any) -> np.ndarray:
    """64 bits for each value, equal for equal numbers of one kind (-0.0 is 0.0): BLAKE2 of each distinct text."""
    array = np.asarray(values)
    match array.dtype.kind:
        case "f":
            return (array.astype(np.float64) + 0.0).view(np.uint64)
        case "i" | "u" | "b":
            return array.astype(np.int64).view(np.uint64) if array.dtype != np.uint64 else array
        case "M" | "m":
            return array.view(np.int64).view(np.uint64)
        case _:
            texts = array.tolist()
            digests = {each: hashlib.blake2b(str(each).encode(), digest_size=8).digest() for each in set(texts)}
            return np.frombuffer(b"".join(map(digests.__getitem__, texts)), "<u8").astype(np.uint64)


def hashed(values: Any, seed: int = 0) -> np.ndarray:
    """The hash of each value, of which all bits look random."""
    return np.asarray(hashes(np.ascontiguousarray(bits_of(values)), start_of(seed)))
