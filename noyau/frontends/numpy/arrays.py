"""Arrays that note what is done to them: NumPy's ufuncs, functions, operators, methods and slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import Tape
from noyau.ir.graph import Node
from noyau.ir.symbols import Size, size_of

Handler = Callable[..., Any]
UFUNCS: dict[str, Handler] = {}  # by the name of the ufunc; `ufuncs.py` fills it
FUNCTIONS: dict[str, Handler] = {}  # by the name of the function of NumPy; `functions.py` fills it
VIEWS = frozenset(  # functions whose result may share memory with their argument
    """getitem transpose swapaxes moveaxis reshape ravel squeeze expand_dims broadcast_to flip astype""".split()
)


class Traced(NDArrayOperatorsMixin):
    """A value of the graph, as an array. Operators come from the mixin, which calls ufuncs.

    `alone`: no other array can see its memory, so that it may be changed in place."""

    __array_priority__ = 1000

    def __init__(self, tape: Tape, node: Node, *, alone: bool = True) -> None:
        self.tape, self.node, self.alone = tape, node, alone

    @property
    def shape(self) -> tuple[int | Size, ...]:
        return tuple(map(size_of, self.node.shape))

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.node.dtype.numpy

    @property
    def size(self) -> Any:
        total: Any = 1
        for extent in self.shape:
            total = total * extent
        return total

    @property
    def T(self) -> Any:
        return call("transpose", self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **said: Any) -> Any:
        target = said.pop("out", None)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        if name not in UFUNCS:
            raise UnsupportedError(f"np.{name} is not among the ufuncs that are traced")
        made = UFUNCS[name](*inputs, **said)
        return made if target is None else self.written(target, made)

    def written(self, target: tuple[Any, ...], made: Traced) -> Any:
        """An array changed in place: `y += x`. UnsupportedError where another array would see that."""
        array = target[0]
        if not isinstance(array, Traced) or not array.alone:
            raise UnsupportedError("it writes into an array that others see, an argument or a view; assign the result")
        if made.node.shape != array.node.shape or made.node.dtype.kind != array.node.dtype.kind:
            found = f"{made.node.dtype.value}[{', '.join(map(str, made.node.shape))}]"
            raise UnsupportedError(f"what is written in place is {found}, and does not fit")
        array.node = self.tape.cast(made.node, array.node.dtype)
        return array

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if name not in FUNCTIONS:
            raise UnsupportedError(f"np.{name} is not among the functions that are traced")
        return call(name, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Methods are functions of NumPy whose first argument is the array."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in FUNCTIONS:
            raise UnsupportedError(f"the method .{name} of an array is not among those that are traced")
        return lambda *args, **kwargs: call(name, self, *args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return call("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise UnsupportedError("it writes into an array; make a new one, with np.where or np.concatenate")

    def __len__(self) -> int:
        extent = self.shape[0] if self.shape else 0
        if isinstance(extent, Size):
            raise UnsupportedError(f"len() is asked of an extent {extent.dim}, which has no number yet; use .shape[0]")
        return extent

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def _no_number(self, *_: Any) -> NoReturn:
        raise UnsupportedError("it asks for the number in an array, which is only known when it runs; use np.where")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        self._no_number()

    __bool__ = __int__ = __float__ = __index__ = __complex__ = _no_number
    item = tolist = _no_number
    __hash__ = object.__hash__


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """A function of the table; where its result may be a view, neither it nor the argument is alone any more."""
    made = FUNCTIONS[name](*args, **kwargs)
    if name in VIEWS and isinstance(made, Traced) and isinstance(args[0], Traced):
        args[0].alone = made.alone = False
    return made
