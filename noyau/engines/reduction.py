"""`@noyau.reduction`: a monoid {zero, step, merge, finish}, whose states are arrays that can be packed into bytes.

Threads, files and machines fold their own rows from `zero`, and their states are merged, the earlier first."""

import inspect
import io
import pickle
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import numpy as np

from noyau.errors import InputError, SignatureError
from noyau.ops import portable

C = TypeVar("C", bound=type)
Bare = Callable[..., Any]
_HEAD = "noyau"  # the array of a packed state that names its reduction, version and kind


class Reduction:
    """A reduction of rows. `zero()` is the state of no rows, `step(state, *columns)` takes in a chunk of rows,
    `merge(a, b)` joins two states, the earlier first, and `finish(state)` returns the result. A step may modify its
    state in place, and a merge its first one.

    `version`: of its states; `in_order`: only neighbours are merged; `sequential`: states are never merged, and the
    rows go through `step` one chunk after the other."""

    version, in_order, sequential = 1, False, False
    zero: Bare
    step: Bare
    merge: Bare
    finish: Bare

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a step takes: the names of its parameters."""
        return tuple(inspect.signature(self.step).parameters)[1:]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle its attributes, and its class by the sources of the methods and the globals that they use."""
        kind = type(self)
        return _instance, (portable.dumps((kind, vars(self)), self.name, kind.__module__),)

    def over(self, *columns: Any) -> Any:
        """The result for all rows of columns in memory. InputError where their numbers of rows differ."""
        if columns[1:] and len(set(rows := [len(column) for column in columns])) > 1:
            raise InputError(
                f"{self.name} takes columns of one length, and these have {', '.join(map(str, rows))} rows"
            )
        return self.finish(self.step(self.zero(), *columns))

    def pack(self, state: Any) -> bytes:
        """A state as bytes: its little-endian arrays in an .npz file that names the reduction and the version.
        SignatureError where a part of it contains Python objects."""
        parts = state.items() if isinstance(state, dict) else enumerate(state if isinstance(state, tuple) else [state])
        arrays = {f"{key}": np.asarray(part) for key, part in parts}
        if (strange := next((key for key, array in arrays.items() if array.dtype.hasobject), None)) is not None:
            raise SignatureError(f"{self.name}: the part {strange} of a state is no array: keep arrays and numbers")
        content, kind = io.BytesIO(), type(state).__name__ if isinstance(state, tuple | dict) else "array"
        little: dict[str, Any] = {key: x.astype(x.dtype.newbyteorder("<")) for key, x in arrays.items()}
        np.savez(content, **{_HEAD: np.array([self.name, str(self.version), kind]), **little})
        return content.getvalue()

    def unpack(self, content: bytes) -> Any:
        """The state of these bytes. InputError where they are corrupt, or of another reduction or version."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = {key: file[key].astype(file[key].dtype.newbyteorder("="))[()] for key in file.files}
            name, version, kind = map(str, arrays.pop(_HEAD))
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as fault:
            raise InputError(f"{len(content)} bytes are no state of {self.name}: {fault}") from fault
        if (name, version) != (self.name, str(self.version)):
            raise InputError(f"a state is of {name}, version {version}, not of {self.name}, version {self.version}")
        return arrays if kind == "dict" else tuple(arrays.values()) if kind == "tuple" else arrays["0"]


def _instance(content: bytes) -> Reduction:
    kind, attributes = pickle.loads(content)  # noqa: S301  as any pickled class
    instance: Reduction = kind.__new__(kind)
    vars(instance).update(attributes)
    return instance


@overload
def reduction(kind: C) -> C: ...
@overload
def reduction(*, version: int = 1, in_order: bool = False, sequential: bool = False) -> Callable[[C], C]: ...
def reduction(kind: Any = None, **facts: Any) -> Any:
    """Make a reduction of a class with the methods zero, step, merge and finish; see `Reduction`, also for the options.
    A state is an array, or a tuple or a dict of arrays.

        @noyau.reduction
        class Extent:
            def zero(self): return np.inf, -np.inf
            def step(self, state, x): return self.merge(state, (x.min(), x.max()))
            def merge(self, a, b): return min(a[0], b[0]), max(a[1], b[1])
            def finish(self, state): return state[1] - state[0]

    `noyau.check(Extent)` tests its laws on random states; a method `inputs(rng, n)` returns a dict of columns for it,
    if normal numbers do not suit. SignatureError where a method is missing."""
    if kind is None:
        return lambda each: reduction(each, **facts)
    parts = ("zero", "step", "finish", *(() if facts.get("sequential") else ("merge",)))
    missing = [part for part in parts if not callable(getattr(kind, part, None))]
    if not isinstance(kind, type) or missing:
        fault = f"it has no {missing[0]}" if isinstance(kind, type) else "it is no class"
        raise SignatureError(f"{kind!r} is no reduction: {fault}; write a class with zero, step, merge and finish")
    place = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(kind.__name__, (kind, Reduction), {**place, **facts})  # pickle needs the name of the user's class


def as_reduction(value: Any, parameters: Mapping[str, Any] | None = None) -> Reduction | None:
    """A reduction itself, an instance of a class of reductions, else None. SignatureError for unfit parameters."""
    if isinstance(value, type) and issubclass(value, Reduction):
        try:
            return value(**parameters or {})
        except (TypeError, ValueError) as fault:
            raise SignatureError(f"{value.__name__} needs other parameters, {value.__name__}(...): {fault}") from fault
    return value if isinstance(value, Reduction) else None


def add_exactly(a: Any, b: Any, name: str) -> np.ndarray:
    """The sum of two arrays. InputError where a sum of integers wraps around."""
    x, y = np.asarray(a), np.asarray(b)
    total = np.asarray(x + y)
    if total.dtype.kind in "iu" and np.any(total < x if total.dtype.kind == "u" else ((x ^ total) & (y ^ total)) < 0):
        raise overflow(name, total.dtype)
    return total


def overflow(name: str, dtype: np.dtype) -> InputError:
    return InputError(f"{name}: a sum of {dtype} overflows: make float64 of its column, or sum in a wider one")


def fits(low: Any, high: Any, count: int, dtype: np.dtype) -> bool:
    """Whether no sum of `count` integers from `low` to `high` can wrap around."""
    limits = np.iinfo(dtype)
    return count * min(int(low), 0) >= limits.min and count * max(int(high), 0) <= limits.max
