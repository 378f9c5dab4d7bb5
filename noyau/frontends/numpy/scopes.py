"""The scope of a traced function: stand-ins for numpy, math and called functions in its globals, closure, defaults."""

import builtins
import functools
import math
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.creation import ALWAYS, WHERE_SYMBOLIC, creator
from noyau.frontends.numpy.derived_ufuncs import OWN, noyau_function
from noyau.frontends.numpy.getitem import as_table
from noyau.frontends.numpy.objects import Reads
from noyau.frontends.numpy.reductions import array_of
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.traced_array import FUNCTIONS, TracedArray, call, refusal, surely_scalar, tape_of
from noyau.frontends.numpy.traced_sizes import Number, TracedSize, as_size, calculate_number
from noyau.frontends.numpy.ufuncs import as_traced, common_dtype, has_traced
from noyau.ir.dims import maximum
from noyau.ir.sizes import dim_of, is_whole

RANDOM = "it draws random numbers; draw them outside, and give them as an argument"
_MATH = {  # functions of the math module, for numbers calculated from sizes
    **{name: getattr(np, name) for name in "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan tanh".split()},
    "pow": np.power,
    "fabs": np.fabs,
}
_BRACKETS = ("numpy.lib._index_tricks_impl", "numpy.lib.index_tricks")  # since NumPy 2.0, and before


class _ArrayKind(type):
    """np.ndarray for `isinstance`: a traced array is one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, np.ndarray) or (isinstance(instance, TracedArray) and not surely_scalar(instance))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("np.ndarray is not traced as a function; use np.zeros")


class _Array(np.ndarray, metaclass=_ArrayKind):
    """The stand-in for np.ndarray in a traced function."""


class ReplacedScope:
    """Stand-ins for the values around a traced function, memoised by identity, and the tape of the trace."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.seen: dict[int, tuple[Any, Any]] = {}

    def replace(self, value: Any) -> Any:
        """The stand-in that a traced function sees for a value around it."""
        if id(value) in self.seen:
            return self.seen[id(value)][1]
        replacement = self._replace(value)
        self.seen[id(value)] = (value, replacement)  # keeps the value alive, so that its id is not reused
        return replacement

    def _replace(self, value: Any) -> Any:
        value_: Any = value
        name = getattr(value, "__name__", "")
        match value:
            case ModuleType():
                return Module(self, value) if name not in ("typing", "builtins") else value
            case FunctionType() if is_op(value):
                return value
            case FunctionType() if value.__module__ == "noyau.functions" and name in OWN:
                return noyau_function(name, value)
            case FunctionType() if not is_numpy(value):
                return self.function(value)
            case FunctionType() | BuiltinFunctionType() if getattr(np, name, None) is value:
                return creator(self.tape, name, value_)
            case BuiltinFunctionType() if getattr(math, name, None) is value:
                return self.arithmetic(name, value_)
            case MethodType() if isinstance(value.__func__, FunctionType) and not is_numpy(value.__func__):
                return MethodType(self.function(value.__func__), value.__self__)
            case np.ufunc():
                return Ufunc(value)
            case Reads():
                return value.within(self.replace)
            case functools.partial():
                return functools.partial(self.replace(value.func), *value.args, **value.keywords)
            case _ if isinstance(getattr(value, "py_func", None), FunctionType):  # the source of Numba's dispatcher
                return self.function(value_.py_func)
            case _ if is_op(value):
                return self.replace(value.reference)
            case _ if type(value).__module__ in _BRACKETS:
                return Brackets(Within(self.tape), value)
            case _:
                return _Array if value is np.ndarray else as_table(value)

    def function(self, function: FunctionType) -> Callable[..., Any]:
        """The stand-in for a function of the user, rebuilt at its first call."""
        copies: list[FunctionType] = []

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not copies:
                copies.append(self.rebuilt(function))
            return copies[0](*args, **kwargs)

        return called

    def rebuilt(self, function: FunctionType) -> FunctionType:
        """A copy of the function whose globals, closure and defaults are stand-ins."""
        scope = dict(function.__globals__)
        scope |= {name: self.replace(scope[name]) for name in global_names(function.__code__) if name in scope}
        scope["__builtins__"] = {**vars(builtins), **self.builtins()}
        cells = tuple(self.cell(cell) for cell in function.__closure__ or ())
        defaults = tuple(map(self.replace, function.__defaults__ or ())) or None
        copy = FunctionType(function.__code__, scope, function.__name__, defaults, cells)
        copy.__kwdefaults__ = {k: self.replace(v) for k, v in (function.__kwdefaults__ or {}).items()}
        return copy

    def cell(self, cell: CellType) -> CellType:
        try:
            value = cell.cell_contents
        except ValueError:  # not set yet
            return cell
        content = self.replace(value)
        return cell if content is value else CellType(content)

    def builtins(self) -> dict[str, Any]:
        """Stand-ins for Python's builtins that need more than a trace knows."""
        return {
            "len": self.length,
            "max": _larger(max, maximum),
            "min": _larger(min, lambda a, b: -maximum(-a, -b)),
            "sum": _total,
            "print": refusal("it prints, which would be done once, when it is traced; print what it returns"),
            "input": refusal("it asks for input; give it as an argument"),
            "open": refusal("it opens a file; read it outside, and give what is in it as an argument"),
        }

    def length(self, value: Any) -> Any:
        """len(), which is a size for an array."""
        return as_size(self.tape, value.node.shape[0]) if isinstance(value, TracedArray) and value.ndim else len(value)

    def arithmetic(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the math module that also accepts numbers calculated from sizes."""

        def calculate(*args: Any) -> Any:
            if name in _MATH and any(isinstance(each, Number | TracedSize) for each in args):
                return calculate_number(_MATH[name], *args)
            if any(isinstance(each, TracedArray) and not isinstance(each, Number) for each in args):
                raise UnsupportedError(f"math.{name} takes the number in an array; use np.{name}")
            return plain(*args)

        return calculate


class Brackets:
    """np.r_, np.c_, np.mgrid and np.ogrid: NumPy's own source is traced."""

    def __init__(self, scope: ReplacedScope, value: Any) -> None:
        self._scope, self._value = scope, value

    def __getitem__(self, key: Any) -> Any:
        return self._scope.rebuilt(type(self._value).__getitem__)(self._value, key)


class Ufunc:
    """The stand-in for a ufunc or a method of a ufunc: lists that contain traced arrays become arrays."""

    def __init__(self, ufunc: Any) -> None:
        self._ufunc = ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays = (array_of(each) if isinstance(each, list | tuple) and has_traced(each) else each for each in args)
        return self._ufunc(*arrays, **kwargs)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._ufunc, name)
        return Ufunc(value) if callable(value) and name != "at" else value  # at() takes a tuple of indices


class Module:
    """Proxy of a module in a traced function: attributes are replaced on access."""

    def __init__(self, scope: ReplacedScope, module: ModuleType) -> None:
        self._scope, self._module = scope, module

    def __getattr__(self, name: str) -> Any:
        value, inside = getattr(self._module, name), self._module.__name__
        if inside.startswith("numpy.random") or inside == "random" or value is np.random:
            raise UnsupportedError(RANDOM)
        full = f"{inside}.{name}".removeprefix("numpy.")
        if full in ALWAYS or full in WHERE_SYMBOLIC or full in FUNCTIONS:
            return creator(self._scope.tape, full, value)
        if inside == "time" and callable(value):
            raise UnsupportedError("it asks for the time, which would be asked once, when it is traced")
        return self._scope.replace(value)


def is_op(value: Any) -> TypeGuard[Any]:
    """Whether a value is an op; a trace follows its reference."""
    return callable(getattr(value, "reference", None)) and hasattr(value, "description")


def is_numpy(function: FunctionType) -> bool:
    return f"{function.__module__ or ''}.".startswith("numpy.")


def global_names(code: CodeType) -> Iterator[str]:
    """The global and attribute names in a function's code, including functions nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from global_names(constant)


def _larger(plain: Callable[..., Any], join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """max() and min() of sizes are sizes."""

    def choose(*args: Any, **kwargs: Any) -> Any:
        operands = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
        if kwargs or not any(isinstance(each, TracedSize) for each in operands) or not all(map(is_whole, operands)):
            return plain(*args, **kwargs)
        tape = next(each.tape for each in operands if isinstance(each, TracedSize))
        return as_size(tape, functools.reduce(join, map(dim_of, operands)))

    return choose


def _total(values: Any, start: Any = 0) -> Any:
    """sum(): of an array, over its first axis; `start` where it has no rows."""
    if isinstance(values, TracedArray):
        if not values.tape.at_most(1, values.node.shape[0], usual=True):
            return start
        return call("sum", values, 0, dtype=common_dtype([values[0], start]).numpy) + start
    return sum(values, start)


def in_scope(function: Callable[..., Any], tape: Tape) -> Callable[..., Any]:
    """The function with its scope replaced: it and the functions that it calls use stand-ins for numpy on the tape."""
    scope = ReplacedScope(tape)
    return scope.rebuilt(function) if isinstance(function, FunctionType) else scope.replace(function)


class Within(ReplacedScope):
    """The scope of NumPy's own source: NumPy's private functions are traced as well, or replaced by name."""

    def _replace(self, value: Any) -> Any:
        name = getattr(value, "__name__", "")
        match value:
            case FunctionType() if is_numpy(value) and getattr(np, name, None) is not value:
                return self.function(value)
            case BuiltinFunctionType() if name in FUNCTIONS:
                return creator(self.tape, name, value)
            case _:
                return _Converter if name == "_array_converter" else super()._replace(value)


def from_source(name: str) -> Callable[..., Any]:
    """A function of NumPy, traced through its own source."""

    def trace(*args: Any, **kwargs: Any) -> Any:
        function = attrgetter(name)(np)
        text = getattr(function, "_implementation", function)
        return Within(tape_of([*args, *kwargs.values()])).rebuilt(text)(*args, **kwargs)

    return trace


class _Converter:
    """The stand-in for NumPy's converter of arguments to arrays, which also wraps results."""

    def __init__(self, *operands: Any) -> None:
        self.arrays = [as_traced(tape_of(operands), each) if not hasattr(each, "node") else each for each in operands]

    def __getitem__(self, at: int) -> Any:
        return self.arrays[at]

    def as_arrays(self, **options: Any) -> tuple[Any, ...]:
        return tuple(self.arrays)

    def result_type(self, **options: Any) -> np.dtype:
        return common_dtype(self.arrays).numpy

    def wrap(self, result: Any, **options: Any) -> Any:
        return result


def _put_along_axis(arr: TracedArray, indices: Any, values: Any, axis: Any) -> None:
    """np.put_along_axis: by NumPy's source along an axis, into the flat array for None."""
    if axis is None:
        call("setitem", call("flat", arr), indices, values)
    else:
        from_source("put_along_axis")(arr, indices, values, axis)


DEFINED = """angle append apply_along_axis apply_over_axes atleast_1d atleast_2d atleast_3d block column_stack
convolve corrcoef cov cumulative_prod cumulative_sum diag_indices_from diagflat diff dsplit dstack ediff1d expand_dims
flip fliplr flipud geomspace hsplit hstack i0 iscomplex isreal isrealobj ix_ logspace moveaxis nan_to_num
nancumprod nancumsum nanprod nansum outer poly polyadd polyder polyint polysub polyval real_if_close
require rollaxis rot90 select sinc take_along_axis trapezoid tril_indices_from triu_indices_from unstack unwrap
vander vsplit vstack linalg.cross linalg.diagonal linalg.matmul linalg.matrix_norm linalg.matrix_power
linalg.multi_dot linalg.outer linalg.tensordot linalg.trace linalg.vector_norm""".split()
FUNCTIONS |= {name: from_source(name) for name in DEFINED} | {"put_along_axis": _put_along_axis}
