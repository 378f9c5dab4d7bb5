"""Calls with arrays of other packages: with columns of pandas or arrays of xarray, computed on their values, whose
results of equal shape are labelled; and with lazy arrays, such as Dask's, which give lazy results."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from noyau.errors import InputError

# By the package of an array's class: gives the function that calls an op, `(op, arguments, options)`. The top of noyau
# fills it, for these functions are in a layer above ops.
CALLS: dict[str, Callable[[], Callable[..., Any]]] = {}
_KINDS = {("pandas", "Series"), ("pandas", "DataFrame"), ("xarray", "DataArray")}


def lazy_call(arguments: Iterable[Any]) -> Callable[..., Any] | None:
    """The function that calls an op on such arguments; None if no argument is lazy."""
    for each in arguments:
        find = CALLS.get(type(each).__module__.partition(".")[0])
        if find is not None and hasattr(each, "chunks"):
            return find()
    return None


def is_labelled(value: Any) -> bool:
    """Whether a value is a Series, a DataFrame or a DataArray."""
    return _has_labels(type(value).__mro__)


@lru_cache(maxsize=256)  # calls of ops test each argument
def _has_labels(kinds: tuple[type, ...]) -> bool:
    return any((each.__module__.partition(".")[0], each.__name__) in _KINDS for each in kinds)


def on_labelled(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The results of an op for labelled arguments. A lone DataFrame stands for its columns with the parameters' names,
    or for its matrix if it has none. InputError where labels differ."""
    reference = op.description.reference
    left = [name for name in reference.parameters if name not in kwargs and name not in reference.defaults]
    frame: Any = args[0] if len(args) == 1 else None
    if hasattr(frame, "columns") and set(left) <= set(frame.columns):
        args, kwargs = (), {**kwargs, **{name: frame[name] for name in left}}
    values = {**dict(zip(reference.parameters, args, strict=False)), **kwargs}
    first, *others = [name for name, value in values.items() if is_labelled(value)]
    like = values[first]
    for name in others:
        if not _alike(values[name], like):
            remedy = ", or xarray.apply_ufunc(op, ...)" if hasattr(like, "dims") else ""
            raise InputError(f"{op.name}: {first} and {name} are labelled otherwise: align them first{remedy}")
    results = op(*map(_array, args), **{name: _array(value) for name, value in kwargs.items()})
    relabel = partial(_relabel, like, op.name if others or hasattr(like, "columns") else None)
    return tuple(map(relabel, results)) if isinstance(results, tuple) else relabel(results)


def _alike(one: Any, other: Any) -> bool:
    if not hasattr(one, "dims") or not hasattr(other, "dims"):
        return hasattr(one, "dims") == hasattr(other, "dims") and bool(one.index.equals(other.index))
    pairs = [(one.indexes.get(dim), other.indexes.get(dim)) for dim in one.dims]
    return bool(one.dims == other.dims and all(a is b or (a is not None and a.equals(b)) for a, b in pairs))


def _array(value: Any) -> Any:
    """The values of labelled data; nulls among floats are NaN, among integers pandas refuses them."""
    if not is_labelled(value):
        return value
    dtype = getattr(getattr(value, "dtype", None), "numpy_dtype", None)  # of a nullable column
    if dtype is not None:
        return value.to_numpy(dtype=dtype, **({"na_value": math.nan} if dtype.kind == "f" else {}))
    return value.data if hasattr(value, "dims") else value.to_numpy()


def _relabel(like: Any, name: str | None, result: Any) -> Any:
    """A result of the same shape, or of as many rows, with the labels of `like`."""
    if hasattr(like, "dims"):
        return like.copy(data=result) if result.shape == like.shape else result
    if hasattr(like, "columns") and _shape(result) == like.shape:
        return type(like)(result, index=like.index, columns=like.columns)
    column = like.iloc[:, 0] if hasattr(like, "columns") else like
    is_column, title = _shape(result) == column.shape, name or like.name
    return type(column)(result, index=like.index, name=title) if is_column else result


def _shape(result: Any) -> tuple[int, ...]:
    return getattr(result, "shape", ())
