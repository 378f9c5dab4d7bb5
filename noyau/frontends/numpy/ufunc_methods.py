"""Methods of ufuncs other than reduce and accumulate, and what is not traced, with what would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.reductions import array_of, axis_of
from noyau.frontends.numpy.setitem import ufunc_at
from noyau.frontends.numpy.traced_array import METHODS, REFUSED, UFUNCS, TracedArray, call, tape_of
from noyau.frontends.numpy.ufuncs import as_traced
from noyau.ir.monoids import BY_FUNCTION, MONOIDS

_SORTS = "it sorts, and there is no such operator; sort outside"
_COUNTS = "how large its result is depends on the values"
_COUNTED = "count with np.add.at into an array of np.zeros, or with np.histogram"
_LIES = "how arrays lie in memory is known when they are given, and a trace holds for all of them"


def _outer(name: str) -> Callable[..., Any]:
    """ufunc.outer: each cell of one with each of the other."""

    def call(a: Any, b: Any, **options: Any) -> Any:
        left, right = (as_traced(tape_of([a, b]), each) for each in (a, b))
        return UFUNCS[name](left[(Ellipsis, *[None] * right.ndim)], right, **options)

    return call


def _at(monoid: str, name: str) -> Callable[..., Any]:
    """ufunc.at: an array is changed, each of several cells with one place counts."""

    def call(a: Any, indices: Any, b: Any) -> None:
        if not isinstance(a, TracedArray):
            raise UnsupportedError(f"np.{name}.at writes into an array that was there before the call")
        ufunc_at(monoid, a, indices, b, taken_away=name == "subtract")

    return call


def _refuse_sort(array: Any, *args: Any, **options: Any) -> Any:
    raise UnsupportedError("the method .sort changes an array in place: " + _SORTS)


def _reduceat(name: str) -> Callable[..., Any]:
    """ufunc.reduceat at known places: each result is of the cells up to the next place, or of one alone."""

    def call_(array: Any, indices: Any, axis: int = 0, **options: Any) -> Any:
        a = array_of(array)
        if isinstance(indices, TracedArray):
            raise UnsupportedError(f"np.{name}.reduceat is traced for places that are known")
        lead, places = (slice(None),) * axis_of(axis, a.ndim), [int(each) for each in indices]
        a.tape.demand_at_most(max(places, default=0) + 1, a.node.shape[len(lead)])
        parts = []
        for at, end in zip(places, [*places[1:], None], strict=True):
            stop = at + 1 if end is not None and end <= at else end
            parts.append(
                UFUNCS[f"{name}.reduce"](a[(*lead, slice(at, stop))], axis=len(lead), keepdims=True, **options)
            )
        return call("concatenate", parts, axis=len(lead))

    return call_


_BINARY = [name for name, made in vars(np).items() if isinstance(made, np.ufunc) and made.nin == 2 and made.nout == 1]
UFUNCS.update(
    {f"{name}.outer": _outer(name) for name in _BINARY if name in UFUNCS and name not in ("matmul", "vecdot")}
)
_MERGED = {ufunc: monoid for ufunc, monoid in BY_FUNCTION.items() if MONOIDS[monoid].is_arithmetic}
UFUNCS.update({f"{name}.at": _at(monoid, name) for name, monoid in {**_MERGED, "subtract": "sum"}.items()})
UFUNCS.update({f"{name}.reduceat": _reduceat(name) for name in BY_FUNCTION})
METHODS["sort"] = METHODS["partition"] = _refuse_sort
REFUSED.update(
    {
        **dict.fromkeys("sort argsort lexsort partition argpartition median nanmedian percentile".split(), _SORTS),
        **dict.fromkeys("quantile nanpercentile nanquantile sort_complex".split(), _SORTS),
        **dict.fromkeys("unique nonzero argwhere flatnonzero union1d intersect1d setdiff1d setxor1d".split(), _COUNTS),
        **dict.fromkeys("compress trim_zeros unique_values unique_counts unique_all unique_inverse".split(), _COUNTS),
        **dict.fromkeys("histogram2d histogramdd histogram_bin_edges bincount".split(), _COUNTED),
        **dict.fromkeys("place vectorize".split(), "it goes cell by cell; write it for whole arrays"),
        **dict.fromkeys("strides flags data ctypes base may_share_memory shares_memory".split(), _LIES),
        "view": "it reads the bits of an array as another dtype; use .astype",
        "tofile": "it writes a file",
    }
)
_SOLVES = "it is a solver, and no kernel; call it outside, and give its result as an argument"
_SOLVERS = """inv pinv solve lstsq det slogdet svd svdvals qr eig eigh eigvals eigvalsh cholesky cond matrix_rank
tensorinv tensorsolve""".split()
REFUSED.update({f"linalg.{name}": _SOLVES for name in _SOLVERS} | {"polyfit": _SOLVES})
