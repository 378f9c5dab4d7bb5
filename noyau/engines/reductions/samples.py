"""Selections of rows: the largest, a random sample, the nearest."""

from typing import Any

import numpy as np

from noyau.engines.reading import matrix_of, numbers, require_count
from noyau.engines.reduction import reduction
from noyau.engines.reductions.distinct import hash_values
from noyau.ops.op import op

_CELLS = 1 << 20  # distances that are computed at once
_SPARSE = 64  # one of so many values is used for a lower bound


@reduction
class Top:
    """The `count` largest values, the largest first; exact. NaN is ignored."""

    def __init__(self, count: int = 10) -> None:
        self.count = require_count(count, 0, "count of Top")

    def zero(self) -> np.ndarray:
        return np.empty(0)

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        values = numbers(x, "Top")
        if not self.count:
            return state
        if len(state) == self.count:
            return self.merge(state, values[values > state.min()])
        some = values[::_SPARSE]
        some = some[~np.isnan(some)]
        if len(some) < self.count:
            return self.merge(state, values[~np.isnan(values)])
        return self.merge(state, values[values >= self.merge(some[:0], some).min()])  # includes all of the largest

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        every = np.concatenate([a, b]) if len(a) and len(b) else a if len(a) else b
        return every if len(every) <= self.count else np.partition(every, -self.count)[-self.count :]

    def finish(self, state: np.ndarray) -> np.ndarray:
        return np.sort(state)[::-1]


@reduction
class Reservoir:
    """A uniform sample of `count` rows without replacement: those with the least random keys, which have the
    distribution of Vitter's reservoir ("Random sampling with a reservoir", 1985). The random key is the hash of `key`,
    a column that identifies rows, so that any chunks and workers give the same sample; equal keys count once."""

    def __init__(self, count: int = 100, seed: int = 0) -> None:
        self.count, self.seed = require_count(count, 0, "count of Reservoir"), seed

    def zero(self) -> Any:
        return np.empty(0, np.uint64), np.empty(0)

    def step(self, state: Any, key: Any, x: Any) -> Any:
        keys, rows = hash_values(key, self.seed), np.asarray(x)
        # About 4 * count keys are below this bound, most likely enough that the others need not be sorted.
        low = keys < np.uint64(min(4 * self.count / max(1, len(keys)), 0.999) * 2.0**64)
        first = self.merge(state, (keys[low], rows[low]))
        return first if len(first[0]) == self.count else self.merge(state, (keys, rows))

    def merge(self, a: Any, b: Any) -> Any:
        if not len(a[0]) or not len(b[0]):
            both = a if len(a[0]) else b
        else:
            both = tuple(np.concatenate(pair) for pair in zip(a, b, strict=True))
        keys, first = np.unique(both[0], return_index=True)
        return keys[: self.count], both[1][first[: self.count]]

    def finish(self, state: Any) -> np.ndarray:
        return np.asarray(state[1])

    def inputs(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        key = rng.integers(0, 2**40, n)
        return {"key": key, "x": key * 0.5}


@op("f64[n, d], f64[q, d] -> f64[q, n]")
def square_distances(x, queries):  # type: ignore[no-untyped-def]
    apart = x[None, :, :] - queries[:, None, :]
    return (apart * apart).sum(-1)


@reduction
class Nearest:
    """The `count` rows nearest to each of `queries` (Euclidean distance), exact, by `key`, a column that identifies
    rows; at equal distances, those with the lesser keys. The relative error of distances is (d + 2) * 2**-53, since
    differences are squared, never expanded."""

    def __init__(self, queries: Any = ((0.0,),), count: int = 5) -> None:
        self.queries, self.count = np.atleast_2d(np.asarray(queries, np.float64)), count
        require_count(count, 0, "count of Nearest")

    def zero(self) -> Any:
        return np.empty((len(self.queries), 0)), np.empty((len(self.queries), 0), np.int64)

    def step(self, state: Any, key: Any, x: Any) -> Any:
        rows, keys = matrix_of(x), np.asarray(key)
        block = max(1, _CELLS // max(1, len(self.queries)))
        for start in range(0, len(rows) if self.count else 0, block):
            part, names = np.ascontiguousarray(rows[start : start + block]), keys[start : start + block]
            squares = np.asarray(square_distances(part, self.queries))
            if len(part) > self.count:  # keep rows within the count-th distance of any query
                bounds = np.partition(squares, self.count - 1, axis=1)[:, self.count - 1 : self.count]
                near = np.flatnonzero((squares <= bounds).any(axis=0))
                squares, names = squares[:, near], names[near]
            state = self.merge(state, (squares, np.broadcast_to(names, squares.shape)))
        return state

    def merge(self, a: Any, b: Any) -> Any:
        squares, keys = (np.concatenate(pair, axis=1) for pair in zip(a, b, strict=True))
        order = np.lexsort((keys, squares), axis=1)[:, : self.count]
        return np.take_along_axis(squares, order, 1), np.take_along_axis(keys, order, 1)

    def finish(self, state: Any) -> dict[str, np.ndarray]:
        return {"distance": np.sqrt(state[0]), "key": state[1]}

    def inputs(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"key": rng.integers(0, 2**40, n), "x": rng.normal(size=(n, self.queries.shape[1]))}
