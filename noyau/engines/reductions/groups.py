"""Counts, sums, means and variances of all rows, or by group."""

from typing import Any

import numpy as np

from noyau.engines.reading import numbers
from noyau.engines.reduction import add_exactly, fits, overflow, reduction
from noyau.ops.op import op

_DIRECT = 1 << 16  # the range of integer keys that may number groups directly, however few rows there are


@op("i64[n], f64[n], f64[groups] -> count: i64[groups], total: f64[groups], squares: f64[groups]")
def moments_by_group(code, x, zeros):  # type: ignore[no-untyped-def]
    count = np.zeros(zeros.shape[0], np.int64)
    total, squares = zeros.copy(), zeros.copy()
    np.add.at(count, code, 1)
    np.add.at(total, code, x)
    rest = x - (total / np.maximum(count, 1))[code]  # relative to the mean, since plain sums of squares cancel
    np.add.at(squares, code, rest * rest)
    return count, total, squares


@op("f64[n] -> total: f64[1], squares: f64[1]")
def moments_of_all(x):  # type: ignore[no-untyped-def]
    total = x.sum(keepdims=True)
    rest = x - total / max(x.shape[0], 1)
    return total, (rest * rest).sum(keepdims=True)


@op("i64[n], i64[n], i64[groups] -> i64[groups]")
def totals_by_group(code, x, zeros):  # type: ignore[no-untyped-def]
    out = zeros.copy()
    np.add.at(out, code, x)
    return out


@reduction
class GroupMoments:
    """The rows, sum, mean and variance (with divisor n, as np.var) of each group, by its key: an integer, a text or a
    time. Sums of integers are exact, and an overflow is an error; the error of a chunk's float sum is at most
    rows * 2**-53 times the sum of magnitudes. Variances are merged as in Chan, Golub and LeVeque, "Updating formulae
    and a pairwise algorithm for computing sample variances", 1979. Memory: 32 bytes and a key for each group."""

    def zero(self) -> Any:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)

    def step(self, state: Any, key: Any, x: Any) -> Any:
        return self.step_by(state, *_codes(np.asarray(key)), x)

    def step_by(self, state: Any, keys: np.ndarray, code: np.ndarray, x: Any) -> Any:
        """Take in rows with their group numbers `code`, which are ignored if there is only one group."""
        values = numbers(x, "GroupMoments")
        reals = np.ascontiguousarray(values, np.float64)
        if len(keys) == 1:  # a scatter to one cell would serialise the additions
            count, (total, squares) = np.full(1, len(reals)), moments_of_all(reals)
        else:
            count, total, squares = moments_by_group(code, reals, np.zeros(len(keys)))
        if values.dtype == np.uint64 and values.max(initial=0) > np.iinfo(np.int64).max:
            raise overflow("GroupMoments", np.dtype(np.int64))
        if values.dtype.kind in "iub":
            total = _totals(code, np.ascontiguousarray(values, np.int64), len(keys))
        used = count > 0
        return self.merge(state, (keys[used], count[used], total[used], squares[used]))

    def merge(self, a: Any, b: Any) -> Any:
        if not len(a[0]) or not len(b[0]):
            return a if len(a[0]) else b
        keys = a[0] if np.array_equal(a[0], b[0]) else np.union1d(a[0], b[0])
        (n, s, q), (m, t, r) = (_spread(each, keys) for each in (a, b))
        apart = t / np.maximum(m, 1) - s / np.maximum(n, 1)
        return keys, n + m, add_exactly(s, t, "GroupMoments"), q + r + apart * apart * (n * (m / np.maximum(n + m, 1)))

    def finish(self, state: Any) -> dict[str, np.ndarray]:
        keys, count, total, squares = state
        return {"key": keys, "rows": count, "sum": total, "mean": total / count, "variance": squares / count}

    def inputs(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"key": rng.integers(0, 9, n), "x": rng.normal(size=n)}


_GROUPS = GroupMoments()


@reduction
class Moments:
    """The rows, the sum, the mean and the variance of all rows: see `GroupMoments`."""

    zero, merge = _GROUPS.zero, _GROUPS.merge

    def step(self, state: Any, x: Any) -> Any:
        return _GROUPS.step_by(state, np.zeros(1, np.int64), x, x)

    def finish(self, state: Any) -> dict[str, Any]:
        columns = _GROUPS.finish(state).items()
        return {name: column[0] if len(column) else 0 for name, column in columns if name != "key"}


def _codes(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys of the groups, some perhaps without rows, and the group number of each row."""
    if key.dtype.kind in "iub" and len(key):
        low, high = int(key.min()), int(key.max())
        if high - low < max(_DIRECT, 2 * len(key)) and high < 1 << 62 and low > -(1 << 62):
            return np.arange(low, high + 1), np.subtract(key, low, dtype=np.int64)
    if key.dtype.hasobject:  # hash each text object once, and sort only the distinct ones
        numbers: dict[Any, int] = {}
        code = np.array([numbers.setdefault(each, len(numbers)) for each in key.tolist()], np.int64)
        groups, place = np.unique(np.array(list(map(str, numbers))), return_inverse=True)
        return groups, place.astype(np.int64)[code]
    groups, code = np.unique(key, return_inverse=True)
    return groups, code.astype(np.int64)


def _totals(code: np.ndarray, x: np.ndarray, groups: int) -> np.ndarray:
    """Exact sums by group. InputError where one overflows: if that is possible, halves are summed and checked."""
    if fits(x.min(initial=0), x.max(initial=0), len(x), x.dtype):
        return np.asarray(totals_by_group(code, x, np.zeros(groups, np.int64)) if groups > 1 else x.sum(keepdims=True))
    half = len(x) // 2
    return add_exactly(_totals(code[:half], x[:half], groups), _totals(code[half:], x[half:], groups), "GroupMoments")


def _spread(state: Any, keys: np.ndarray) -> Any:
    """The state expanded to these keys, a superset of its own."""
    if len(state[0]) == len(keys):
        return state[1:]
    places = np.searchsorted(keys, state[0])
    spread = [np.zeros(len(keys), part.dtype) for part in state[1:]]
    for whole, part in zip(spread, state[1:], strict=True):
        whole[places] = part
    return spread
