"""Methods of ufuncs other than reduce and accumulate, and what is not traced, with what would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.arrays import METHODS, REFUSED, UFUNCS, Traced, tape_of
from noyau.frontends.numpy.assigning import scattered_at
from noyau.frontends.numpy.ufuncs import traced

_SORTS = "it sorts, and there is no such operator; sort outside"
_COUNTS = "how large its result is depends on the values"
_SEARCHES = "it looks values up by comparing; use np.where, or sums of comparisons"


def _outer(name: str) -> Callable[..., Any]:
    """ufunc.outer: each cell of one with each of the other."""

    def call(a: Any, b: Any, **said: Any) -> Any:
        left, right = (traced(tape_of([a, b]), each) for each in (a, b))
        return UFUNCS[name](left[(Ellipsis, *[None] * right.ndim)], right, **said)

    return call


def _at(monoid: str, name: str) -> Callable[..., Any]:
    """ufunc.at: an array is changed, each of several cells with one place counts."""

    def call(a: Any, indices: Any, b: Any) -> None:
        if not isinstance(a, Traced):
            raise UnsupportedError(f"np.{name}.at writes into an array that was there before the call")
        scattered_at(monoid, a, indices, b, taken_away=name == "subtract")

    return call


def _updated(array: Any, *args: Any, **said: Any) -> Any:
    raise UnsupportedError("the method .sort changes an array in place: " + _SORTS)


_BINARY = [name for name, made in vars(np).items() if isinstance(made, np.ufunc) and made.nin == 2 and made.nout == 1]
UFUNCS.update(
    {f"{name}.outer": _outer(name) for name in _BINARY if name in UFUNCS and name not in ("matmul", "vecdot")}
)
_MERGED = {"add": "sum", "subtract": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
UFUNCS.update({f"{name}.at": _at(monoid, name) for name, monoid in _MERGED.items()})
METHODS["sort"] = METHODS["partition"] = _updated
REFUSED.update(
    {
        **dict.fromkeys("sort argsort lexsort partition argpartition median nanmedian percentile".split(), _SORTS),
        **dict.fromkeys("quantile nanpercentile nanquantile sort_complex".split(), _SORTS),
        **dict.fromkeys("unique nonzero argwhere flatnonzero union1d intersect1d setdiff1d delete".split(), _COUNTS),
        **dict.fromkeys("compress trim_zeros unique_values unique_counts insert".split(), _COUNTS),
        **dict.fromkeys("searchsorted digitize histogram histogram2d bincount interp isin".split(), _SEARCHES),
        **dict.fromkeys("place resize apply_along_axis apply_over_axes vectorize".split(), "it goes cell by cell"),
        **dict.fromkeys("convolve correlate gradient".split(), "use sums of slices"),
        **dict.fromkeys("cov corrcoef".split(), "use means and matrix products"),
        "imag": "there are no complex numbers",
        "angle": "there are no complex numbers",
        "flat": "use .ravel()",
        "view": "it reads the bits of an array as another dtype; use .astype",
        "tofile": "it writes a file",
    }
)
_SOLVES = "it is a solver, and no kernel; call it outside, and give its result as an argument"
REFUSED.update({f"linalg.{name}": _SOLVES for name in "inv pinv solve lstsq det svd qr eig eigh cholesky".split()})
