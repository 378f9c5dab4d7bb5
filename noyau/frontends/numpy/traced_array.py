"""Arrays that record the operations on them: NumPy's ufuncs, functions, operators, methods and subscripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import NUMPY_1, Tape
from noyau.ir.builder import same_but_ones
from noyau.ir.dims import Dim, Shape, index_name, indices, strides_of
from noyau.ir.graph import Node, View
from noyau.ir.sizes import Size

Handler = Callable[..., Any]
UFUNCS: dict[str, Handler] = {}  # by the name of the ufunc or its method (`add.reduce`); `ufuncs.py` and others fill it
FUNCTIONS: dict[str, Handler] = {}  # by the name of the function of NumPy, without `np.`
METHODS: dict[str, Handler] = {}  # methods that are no functions of NumPy, or differ from them
ATTRIBUTES: dict[str, Handler] = {}
_SORTS = "it sorts, and there is no such operator; sort outside"
_COUNTS = "the size of its result depends on the values"
_COUNTED = "count with np.add.at into an array of np.zeros, or with np.histogram"
_LIES = "how arrays lie in memory is known when they are given, and a trace holds for all of them"
_SOLVES = "it is a solver, and no kernel; call it outside, and give its result as an argument"
_SOLVERS = """inv pinv solve lstsq det slogdet svd svdvals qr eig eigh eigvals eigvalsh cholesky cond matrix_rank
tensorinv tensorsolve""".split()
REFUSED: dict[str, str] = {  # names of functions, methods and modules, and why they are not traced
    **dict.fromkeys("sort argsort lexsort partition argpartition median nanmedian percentile".split(), _SORTS),
    **dict.fromkeys("quantile nanpercentile nanquantile sort_complex".split(), _SORTS),
    **dict.fromkeys("unique nonzero argwhere flatnonzero union1d intersect1d setdiff1d setxor1d".split(), _COUNTS),
    **dict.fromkeys("compress trim_zeros unique_values unique_counts unique_all unique_inverse".split(), _COUNTS),
    **dict.fromkeys("histogram2d histogramdd histogram_bin_edges".split(), _COUNTED),
    **dict.fromkeys("place vectorize".split(), "it goes cell by cell; write it for whole arrays"),
    **dict.fromkeys("strides flags data ctypes base may_share_memory shares_memory".split(), _LIES),
    "view": "it reads the bits of an array as another dtype; use .astype",
    "tofile": "it writes a file",
    **dict.fromkeys(("nextafter", "spacing", "frexp", "ldexp"), "there is no function of the bits of a float"),
    **dict.fromkeys(("gcd", "lcm"), "how long it takes depends on the numbers"),
    "isnat": "there are no dates",
    **{f"linalg.{name}": _SOLVES for name in _SOLVERS},
    **dict.fromkeys(("polyfit", "roots"), _SOLVES),
    **dict.fromkeys(("polymul", "polydiv"), f"{_COUNTS}: zeros that lead are dropped; use np.convolve for a product"),
}
VIEWS = frozenset(  # functions whose result may share memory with their argument
    """getitem transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis reshape ravel squeeze expand_dims
    broadcast_to flip flipud fliplr rot90 atleast_1d atleast_2d atleast_3d real diagonal
    flat sliding_window_view linalg.matrix_transpose""".split()
)
OWN_METHODS = frozenset("reshape transpose permute_dims swapaxes moveaxis squeeze real".split())  # scalars for scalars
READ_ONLY = frozenset({"broadcast_to", "diagonal", "sliding_window_view", "imag"})
ARRAYS = frozenset(  # functions whose results are arrays even without axes, which may be changed in place
    "zeros_like ones_like empty_like full_like where select copy array asarray asanyarray astype tensordot roll".split()
)
RESHAPED = frozenset({"reshape", "ravel", "flat"})
MAYBE = frozenset({"reshape", "ravel", "in_order"})  # a view or a copy, depending on the memory layout


def enter(table: dict[str, Handler], *handlers: Handler) -> None:
    """Put functions into a table under their own names."""
    table.update({handler.__name__.strip("_"): handler for handler in handlers})


def final(fast_call: Handler) -> Handler:
    """Wrap an entry point: its refusal is recorded on the tape, so that a trace fails even if user code catches it."""

    @wraps(fast_call)
    def enter(*args: Any, **kwargs: Any) -> Any:
        try:
            return fast_call(*args, **kwargs)
        except UnsupportedError as refusal:
            with suppress(LookupError):
                tape = tape_of([*args, *kwargs.values()])
                tape.refused = tape.refused or refusal
            raise

    return enter


def refusal(message: str) -> Handler:
    """A function that raises UnsupportedError with a message."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(message)

    return refuse


METHODS.update(dict.fromkeys(("sort", "partition"), refusal(f"the method .sort changes an array in place: {_SORTS}")))


class ArrayMemory:
    """Cells that several arrays may share, and the number of writes. `owner`: the owner of cells that may not be
    written, as text. `like`: the operands of an elementwise result, whose memory order it has."""

    def __init__(self, node: Node, owner: str = "", like: Sequence[TracedArray] = ()) -> None:
        self.node, self.owner, self.version, self.like = node, owner, 0, like
        self.in_order = not owner and len(node.shape) <= 1

    @property
    def packed(self) -> bool:
        """Whether the cells are known to lie in C order, as those of new arrays of one axis do."""
        if not self.in_order and self.like:
            self.in_order = all(each.gaps() == [] for each in self.like)
            self.like = ()
        return self.in_order

    def write(self, tape: Tape, index: Shape, part: Node) -> None:
        """Set the cells at `index` over the axes of `part`."""
        self.node, self.version = FUNCTIONS["overwritten"](tape, self.node, index, part), self.version + 1


class Window:
    """Memory of views that no index map describes: an array under another shape, or cells at looked-up indices. `read`
    computes the value of the view from the array, `replaced` that of the array from a new value of the view."""

    def __init__(
        self, whole: TracedArray, read: Callable[[], Node], replaced: Callable[[Node], Node], *, packed: bool = False
    ) -> None:
        self.whole, self.read, self.replaced, self.packed = whole, read, replaced, packed
        self.owner: str = whole.memory.owner

    @property
    def node(self) -> Node:
        return self.read()

    @property
    def version(self) -> int:
        return self.whole.memory.version

    def write(self, tape: Tape, index: Shape, part: Node) -> None:
        FUNCTIONS["write"](self.whole, self.replaced(FUNCTIONS["overwritten"](tape, self.node, index, part)))


class TracedArray(NDArrayOperatorsMixin):
    """A value of the graph, as an array. Operators come from the mixin, which calls ufuncs.

    `memory`: its cells, at `index` for a view. `scalar`: a NumPy scalar, which cannot change in place. `fixed`: why it
    is read-only, or "". `sure`: False where NumPy makes a view or a copy, depending on the memory layout. `looks`: it
    is a view. `either`: a scalar or, as arguments may be, an array without axes."""

    __array_priority__ = 1000
    __slots__ = tuple("_dtype _node _seen _shape either fixed index looks memory scalar sure tape".split())  # no others

    def __init__(self, tape: Tape, node: Node, *, owner: str = "", scalar: bool = False) -> None:
        self.tape, self.scalar, self.fixed, self.sure, self.looks = tape, scalar, "", True, False
        self.either = False
        self.memory: ArrayMemory | Window = ArrayMemory(node, owner)
        self.index = indices(len(node.shape))
        self._node, self._seen, self._dtype, self._shape = node, 0, node.dtype, node.shape

    @property
    def node(self) -> Node:
        """The current value. UnsupportedError where the array may or may not see a change of its source."""
        if self._seen != self.memory.version:
            if not self.is_sure:
                state = "it reads what is a view or a copy in NumPy, as the memory lies, after its source was changed"
                raise UnsupportedError(f"{state}; take a .copy() before")
            self._node = self.tape.view(self.memory.node, self._shape, self.index)
            self._seen = self.memory.version
        return self._node

    @property
    def is_sure(self) -> bool:
        """Whether the current value is known."""
        return self.sure or self._seen == self.memory.version

    def look_at(self, other: TracedArray, name: str) -> None:
        """Make this array a view of another's memory, if views alone lead from the other to it."""
        index = _compose_views(self.tape, self._node, other.node)
        if index is None or self._dtype is not other._dtype:
            return
        packed = name in MAYBE and other.gaps() == []
        plain = name == "reshape" and _is_split(other._shape, self._shape)
        self.sure = other.sure and (name not in MAYBE or plain or (name != "in_order" and packed))
        if self.sure and name in RESHAPED and not same_but_ones(other._shape, self._shape):
            there, mine, back = self.tape.reshape, self._shape, other._shape
            self.memory = Window(other, lambda: there(other.node, mine), lambda node: there(node, back), packed=packed)
        else:
            axes = {index_name(axis): dim for axis, dim in enumerate(index)}
            self.memory = other.memory
            self.index = tuple(dim.replace(axes) for dim in other.index)
        self._seen, self.looks = self.memory.version, True
        self.fixed = f"what np.{name} gives is read-only" if name in READ_ONLY else other.fixed

    def lies(self, order: Any, like: Sequence[TracedArray] = ()) -> None:
        """Set the memory order of a new array: `order`, or that of the arrays `like`."""
        self.memory = ArrayMemory(self._node, like=like)
        self.memory.in_order = self.memory.in_order or order == "C"

    def see(self, memory: Window) -> None:
        """Make this array a view of all cells of a window."""
        self.memory, self._seen, self.looks = memory, memory.version, True

    def gaps(self) -> list[tuple[Dim, Dim]] | None:
        """The axes whose strides are not those of packed cells: their extents, and the difference of the strides; empty
        where the cells lie in C order. None where the order is unknown."""
        steps = strides_of(self.memory.node.shape)
        place = sum((at * step for at, step in zip(self.index, steps, strict=True)), Dim.of(0))
        gaps_ = []
        for axis, (extent, packed) in enumerate(zip(self._shape, strides_of(self._shape), strict=True)):
            gap = place.replace({index_name(axis): Dim.of(index_name(axis)) + 1}) - place - packed
            if any(name.startswith("#") for name in gap.names):
                return None
            if extent.constant != 1 and gap != Dim.of(0):
                gaps_.append((extent, gap))
        return gaps_ if self.memory.packed else None

    def as_array(self) -> TracedArray:
        """The array itself; for a scalar, an array without axes."""
        return TracedArray(self.tape, self.node) if self.scalar else self

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(FUNCTIONS["sized"](self.tape, dim) for dim in self._shape)

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def dtype(self) -> np.dtype:
        return self._dtype.numpy

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return ufunc_call(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call(name_of(function), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """An attribute or a method of the tables, else NumPy's function of that name with the array first."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ATTRIBUTES:
            return ATTRIBUTES[name](self)
        if name in METHODS:
            return lambda *args, **kwargs: METHODS[name](self, *args, **kwargs)
        if name not in FUNCTIONS or not hasattr(np.ndarray, name):
            raise _not_traced(f"the method .{name} of an array is not among those that are traced", name)
        return lambda *args, **kwargs: self._like(call(name, self, *args, **kwargs))

    def _like(self, array: Any) -> Any:
        """The result of a method; a method of a scalar has scalars as results."""
        if self.scalar:
            as_scalars(array)
        if isinstance(array, TracedArray):
            array.either = self.either and array.scalar
        return array

    def __getitem__(self, key: Any) -> Any:
        return call("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        final(FUNCTIONS["setitem"])(self, key, value)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of unsized object")
        return self.tape.settle(self._shape[0])

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def __pow__(self, other: Any) -> Any:
        """NumPy's operator takes a square root for ** 0.5 of arrays, which differs from np.power at -0.0 and -inf, and
        a square for ** 2, which is int8 for bools."""
        if isinstance(other, float) and other == 0.5 and self._dtype.is_float and (self.either or not self.scalar):
            return UFUNCS["sqrt"](self)
        is_number = type(other) is int or (NUMPY_1 and type(other) is float)
        if is_number and other == 2 and self._dtype is DType.BOOL and not surely_scalar(self):
            return UFUNCS["square"](self)
        return super().__pow__(other)

    def __round__(self, *digits: Any) -> Any:
        return call("round", self, *digits)

    @final
    def _no_number(self, *_: Any, **__: Any) -> NoReturn:
        what = "it asks for the number in an array, which is only known when it runs"
        raise UnsupportedError(f"{what}; keep it an array, and choose with np.where")

    @final
    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        what = "what is not traced asks for the numbers in an array"
        raise UnsupportedError(f"{what}; use functions of NumPy, and .astype")

    def __repr__(self) -> str:
        return f"<traced {self._dtype.value}[{', '.join(map(str, self._shape))}]>"

    def __array_wrap__(self, result: Any, *_: Any) -> Any:
        """Return the result: NumPy's own text wraps results by this, and they are wrapped already."""
        return result

    __array_prepare__ = __array_wrap__

    def __copy__(self, memo: Any = None) -> Any:
        return call("copy", self)

    __deepcopy__ = __copy__

    @final
    def __format__(self, spec: str) -> NoReturn:
        raise UnsupportedError("it puts the number in an array into a text, which is only known when it runs")

    __bool__ = __int__ = __float__ = __index__ = __complex__ = _no_number
    item = tolist = tobytes = _no_number
    __hash__ = object.__hash__


def _is_split(source: Shape, shape: Shape) -> bool:
    """Whether a reshape only splits axes, and inserts or drops axes of extent 1: a view for any memory layout."""
    rest = [dim for dim in shape if dim.constant != 1]
    for dim in source:
        part = Dim.of(1)
        while rest and part != dim:
            part = part * rest.pop(0)
        if part != dim:
            return False
    return not rest


def _compose_views(tape: Tape, node: Node, source: Node) -> Shape | None:
    """The index map by which a view of `source` reads it; None if the value is no view of it."""
    places = zip(node.shape, indices(len(node.shape)), strict=True)
    index = tuple(Dim.of(0) if dim == Dim.of(1) else at for dim, at in places)
    while node.output != source.output:
        if not isinstance(node.kind, View):
            return None
        here = {index_name(k): at for k, at in enumerate(index)}
        index, node = tuple(dim.replace(here) for dim in node.kind.index), tape.by_name[node.inputs[0]]
    return index


def surely_scalar(a: TracedArray) -> bool:
    """Whether an array is a NumPy scalar. UnsupportedError where it may also be an array without axes."""
    if a.either:
        what = "whether an argument is an array of no axes or one of NumPy's scalars is known when it is given"
        raise UnsupportedError(f"{what}; make a new value, as in x = x + 1")
    return a.scalar


def name_of(function: Any) -> str:
    """The name of a function of NumPy: `sum`, `linalg.norm`."""
    module = getattr(function, "__module__", "") or ""
    part = next((each for each in ("linalg", "fft", "random") if f"numpy.{each}" in module), "")
    return f"{part}.{function.__name__}" if part else str(function.__name__)


def _not_traced(message: str, name: str) -> UnsupportedError:
    return UnsupportedError(f"{message}: {REFUSED[name]}" if name in REFUSED else message)


@final
def ufunc_call(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call the handler of a ufunc, or of a method of a ufunc."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    if name not in UFUNCS:
        raise _not_traced(f"np.{name} is not among the ufuncs that are traced", name)
    return UFUNCS[name](*inputs, **options)


@final
def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the handler of a function; a result that is a view shares the memory of the first argument."""
    if name not in FUNCTIONS:
        raise _not_traced(f"np.{name} is not among the functions that are traced", name)
    result = FUNCTIONS[name](*args, **kwargs)
    if any(result is each for each in kwargs.values()):  # out=, which is returned as it is
        return result
    source = args[0] if args and isinstance(args[0], TracedArray) else None
    if name in ARRAYS:
        result = result.as_array()
    elif name not in VIEWS or (source is not None and source.scalar and not source.either and name in OWN_METHODS):
        return as_scalars(result)
    is_new = isinstance(result, TracedArray) and not (result.scalar or result.looks)
    if name in VIEWS and source is not None and is_new and (source.either or not source.scalar):  # else it is a copy
        result.look_at(source, name)
        result.sure = result.sure and not source.either
    return result


def cells(array: Any, axis: int, start: Any, stop: Any) -> Any:
    """The cells of an axis from `start` to `stop`."""
    return array[(*(slice(None),) * axis, slice(start, stop))]


def as_scalars(result: Any) -> Any:
    """The new results of a function; results without axes become NumPy scalars."""
    for each in result if isinstance(result, tuple | list) else (result,):
        if isinstance(each, TracedArray) and not each.ndim:
            each.scalar = True
    return result


def tape_of(operands: Sequence[Any]) -> Tape:
    """The tape of the first operand that has one, also within lists. LookupError where there is none."""
    for each in operands:
        if isinstance(each, TracedArray) or (isinstance(each, Size) and hasattr(each, "tape")):
            return each.tape
        if isinstance(each, tuple | list):
            with suppress(LookupError):
                return tape_of(each)
    raise LookupError("nothing here is traced")
