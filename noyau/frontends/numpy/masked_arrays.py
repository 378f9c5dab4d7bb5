"""Selections of cells by a traced mask of bools: their number is only known at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.traced_array import FUNCTIONS, TracedArray, name_of, ufunc_call
from noyau.frontends.numpy.traced_sizes import Number
from noyau.frontends.numpy.ufuncs import MASKED
from noyau.ir.graph import Node
from noyau.ir.monoids import BY_FUNCTION, highest, lowest

UNKNOWN = (
    "what a mask of bools picks has an unknown shape; reduce it, write it back under the same mask, or use np.where"
)


class MaskedArray(NDArrayOperatorsMixin):
    """The cells of an array where a mask over its first axes is true."""

    __array_priority__ = 2000

    def __init__(self, cells: TracedArray, mask: Node) -> None:
        self.cells, self.mask, self.tape = cells, mask, cells.tape

    @property
    def dtype(self) -> np.dtype:
        return self.cells.dtype

    @property
    def ndim(self) -> int:
        return self.cells.ndim - len(self.mask.shape) + 1

    @property
    def size(self) -> Number:
        """The number of selected cells, as a Python number."""
        whole = self.tape.expand(self._wide(), self.cells.node.shape)
        count = self.tape.reduce("sum", self.tape.cast(whole, DType.I64), range(self.cells.ndim))
        return Number(self.tape, count, None)

    def _wide(self) -> Node:
        """The mask with trailing axes of extent 1 up to the array's rank."""
        return self.tape.restore_axes(self.mask, range(len(self.mask.shape), self.cells.ndim))

    def reduce(self, name: str, axis: Any, options: dict[str, Any]) -> Any:
        """A reduction over all selected cells, or over axis 0, which the mask's axes become."""
        if axis not in (None, 0):
            raise UnsupportedError(f"np.{name} of what a mask picks is traced over all cells, or over axis 0")
        axes = None if axis is None or self.ndim == 1 else tuple(range(len(self.mask.shape)))
        where = TracedArray(self.tape, self._wide())
        if name in ("max", "min"):
            options = {"initial": (lowest if name == "max" else highest)(self.cells.node.dtype), **options}
        return FUNCTIONS[name](self.cells, axis=axes, where=where, **options)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "reduce" and ufunc.__name__ in BY_FUNCTION:
            return self.reduce(BY_FUNCTION[ufunc.__name__], options.pop("axis", 0), options)
        return ufunc_call(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = {"amax": "max", "amin": "min"}.get(name_of(function), name_of(function))
        if name not in _REDUCED or args[0] is not self:
            raise UnsupportedError(UNKNOWN)
        return self.reduce(name, *_axis(args[1:], kwargs))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in _REDUCED:
            raise UnsupportedError(UNKNOWN)
        return lambda *args, **kwargs: self.reduce(name, *_axis(args, kwargs))

    def astype(self, dtype: Any) -> MaskedArray:
        return MaskedArray(FUNCTIONS["astype"](self.cells, dtype), self.mask)

    def _unknown(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(UNKNOWN)

    __getitem__ = __setitem__ = __len__ = __iter__ = __array__ = __bool__ = _unknown
    shape = property(_unknown)
    __hash__ = object.__hash__


_REDUCED = frozenset({"sum", "prod", "mean", "var", "std", "max", "min", "any", "all"})


def _axis(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    arguments = dict(kwargs)
    axis = arguments.pop("axis", args[0] if args else None)
    if len(args) > 1 or set(arguments) - {"dtype", "ddof"}:
        raise UnsupportedError("a reduction of what a mask picks is traced with axis=, dtype= and ddof=")
    return axis, arguments


def masked_ufunc(ufunc: np.ufunc, operands: Sequence[Any], options: dict[str, Any]) -> MaskedArray | None:
    """A ufunc of selections by one mask and other operands, computed on all cells; None without a MaskedArray."""
    masked = [each for each in operands if isinstance(each, MaskedArray)]
    if not masked:
        return None
    first = masked[0]
    for each in operands:
        if isinstance(each, MaskedArray):
            fits = each.mask.output == first.mask.output and each.cells.ndim == first.cells.ndim
        else:
            fits = np.ndim(each) <= first.cells.ndim - len(first.mask.shape)
        if not fits or ufunc.nout > 1 or options["where"] is not True:
            raise UnsupportedError(UNKNOWN)
    cells_of = [each.cells if isinstance(each, MaskedArray) else each for each in operands]
    cells = ufunc_call(ufunc, "__call__", cells_of, {"dtype": options["dtype"]})
    target = options["out"][0] if options["out"] else None
    fits = isinstance(target, MaskedArray) and np.can_cast(cells.dtype, target.dtype, "same_kind")
    if target is not None and not fits:
        raise UnsupportedError(UNKNOWN)
    return MaskedArray(cells if target is None else FUNCTIONS["astype"](cells, target.dtype), first.mask)


def compress(mask: Any, array: TracedArray, axis: Any = None, out: Any = None) -> MaskedArray:
    """np.extract by a traced mask, without axis= and out=."""
    picked = FUNCTIONS["getitem"](array, mask) if axis is None and out is None else None
    if not isinstance(picked, MaskedArray):
        raise UnsupportedError(UNKNOWN)
    return picked


MASKED.append(masked_ufunc)
FUNCTIONS.update({"extract": compress, "masked": MaskedArray})
