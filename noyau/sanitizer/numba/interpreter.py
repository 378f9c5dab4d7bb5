"""Execution of a Numba function in Python, on recording arrays, and with containers that check before a change."""

import math
import operator
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from random import Random
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.registry import CPUDispatcher
from numba.extending import _Intrinsic
from numba.stencils.stencil import StencilFunc
from numba.typed import Dict, List

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.scopes import global_names
from noyau.sanitizer.compiled_numbers import BUILTINS, MATH, divisor, names_of
from noyau.sanitizer.lint.diagnostics import dotted_name
from noyau.sanitizer.numba.rewrite import RUN, PrangeLoop, Rewritten, rewritten
from noyau.sanitizer.recording_array import Recorder, Recording, TooManyError

_OF_LISTS = "__setitem__ __delitem__ __iadd__ __imul__ append extend insert pop remove reverse sort clear"
_OF_DICTS = "__setitem__ __delitem__ __ior__ pop popitem setdefault update clear"
_OF_SETS = (
    "__ior__ __iand__ __isub__ __ixor__ add discard remove pop clear update "
    "intersection_update difference_update symmetric_difference_update"
)
_MADE_OF_SETS = "__or__ __and__ __sub__ __xor__ copy union intersection difference symmetric_difference"


def owner_text(number: int) -> str:
    """Return an owner of a prange in words."""
    return f"thread {number - _FIRST_THREAD}" if number >= _FIRST_THREAD else f"iteration {number}"


def _container_kind(kind: type, changing: str, making: str) -> Any:
    methods = {name: _guard_change(getattr(kind, name)) for name in changing.split()}
    methods |= {name: _making(getattr(kind, name)) for name in making.split()}
    return type(f"Held{kind.__name__}", (kind,), methods)


def _guard_change(plain: Callable[..., Any]) -> Callable[..., Any]:
    def change(self: Any, *args: Any, **named: Any) -> Any:
        self.require_own()
        return plain(self, *args, **named)

    return change


def _making(plain: Callable[..., Any]) -> Callable[..., Any]:
    def make(self: Any, *args: Any) -> Any:
        result = plain(self, *args)
        is_element = plain is list.__getitem__ and not isinstance(args[0], slice)
        return result if is_element else self.hold(result)

    return make


_KINDS: dict[type, Any] = {
    list: _container_kind(list, _OF_LISTS, "__getitem__ __add__ __mul__ __rmul__ copy"),
    dict: _container_kind(dict, _OF_DICTS, "__or__ copy"),
    set: _container_kind(set, _OF_SETS, _MADE_OF_SETS),
}


THREADS = 4  # the number of threads that a watched kernel sees
_FIRST_THREAD = 1 << 30  # owner numbers from here on are threads, not iterations
_OWN = "numba", "numpy", "math", "cmath", "operator", "builtins", "llvmlite"
_MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add, "difference": operator.sub, "product": operator.mul, "quotient": operator.truediv,
}  # fmt: skip
_ASSIGNED = re.compile(r"(\w+)\s*=[^=]")
_UNSEEN_FUNCTIONS = frozenset({"as_strided", "carray", "farray", "frombuffer"})  # they bypass the array
_UNSET = frozenset({"empty", "empty_like"})
_UNSEEN = (types.Number, types.Boolean)
_CONTAINERS = (List, Dict, list, dict, set)


@dataclass(frozen=True, slots=True)
class Region:
    """One run of a prange: its loop, the range of its findings in the shadow, and its number of accesses."""

    loop: PrangeLoop
    iterations: int
    findings: tuple[int, int]
    accesses: int


@dataclass(slots=True)
class PrangeRuntime:
    """The runtime that the rewritten text calls, with the regions of its pranges so far. `functions`: replacements of
    Numba's functions."""

    recorder: Recorder
    functions: dict[CPUDispatcher, Callable[..., Any]] = field(default_factory=dict)
    loops: dict[tuple[str, int], PrangeLoop] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)  # memories from before the current region
    inside: bool = False
    before: int = 0  # accesses before the current region

    def loop(self, file: str, line: int, *bounds: Any) -> Iterator[int]:
        """Yield the iterations of a prange; a nested one runs serially."""
        steps = range(*(operator.index(bound) for bound in bounds))
        if self.inside:
            yield from steps
            return
        recorder, loop = self.recorder, self.loops[file, line]
        first, is_counted = self.begin(), not steps or min(steps[0], steps[-1]) >= 0
        dealt = Random(0)  # noqa: S311  random threads, since Numba promises no order
        self.inside = True
        try:
            for ordinal, step in enumerate(steps):
                recorder.owner = step if is_counted else ordinal
                if loop.asks_thread:
                    recorder.owner = _FIRST_THREAD + dealt.randrange(min(THREADS, numba.get_num_threads()))
                yield step
        except GeneratorExit:  # an iteration has failed
            with suppress(TooManyError):
                self.end(loop, len(steps), first)
            raise
        self.end(loop, len(steps), first)

    def begin(self) -> int:
        recorder = self.recorder
        recorder.play()
        self.kept = set(recorder.memories)
        self.before = recorder.shadow.accesses
        recorder.region(serial=False)
        return recorder.shadow.count

    def end(self, loop: PrangeLoop, iterations: int, first: int) -> None:
        recorder, self.inside = self.recorder, False
        recorder.region(serial=True)
        recorder.play()
        accesses = recorder.shadow.accesses - self.before
        self.regions.append(Region(loop, iterations, (first, recorder.shadow.count), accesses))
        for memory in set(recorder.memories) - self.kept:  # arrays of an iteration end with it
            recorder.shadow.forget(memory)

    def merge(self, kind: str, before: Any, value: Any) -> Any:
        """Update a reduction."""
        function = _MERGES[kind]
        if isinstance(before, Recording):
            return before.merge(function, value, self.recorder.site(sys._getframe(1)))
        return function(before, value)

    def hold(self, value: Any, refuse: Callable[[], None] | None = None) -> Any:
        """Wrap a list, set or dict that the text makes, as the containers that it makes in turn; UnsupportedError if an
        iteration changes it that did not make it. `refuse`: replaces that check for the changes of an argument."""
        if type(value) not in _KINDS:
            return value
        container, maker = _KINDS[type(value)](value), self.turn

        def require_own() -> None:
            if not self.inside or self.turn == maker:
                return
            place = self.recorder.site_of(sys._getframe(1)).place
            raise UnsupportedError(
                f"{place}: the iterations of a prange share a {type(value).__name__}, whose accesses are not seen, "
                "nor does Numba order them: have each iteration write to cells of an array"
            )

        container.hold, container.require_own = self.hold, refuse or require_own
        return container

    @property
    def turn(self) -> tuple[int, int] | None:
        """The current iteration, with the number of its region; None outside a region."""
        return (len(self.regions), self.recorder.owner) if self.inside else None

    def thread(self) -> int:
        """Stand in for numba.get_thread_id. UnsupportedError unless the body of the prange itself names it."""
        if self.inside and self.recorder.owner < _FIRST_THREAD:
            place = self.recorder.site_of(sys._getframe(1)).place
            raise UnsupportedError(f"{place}: ask for get_thread_id in the body of the prange itself")
        return self.recorder.owner - _FIRST_THREAD if self.inside else 0

    def function_of(self, function: Any) -> Callable[..., Any]:
        """Return a Numba function, rewritten for this runtime."""
        if function not in self.functions:
            self.functions[function] = self.execute(rewritten_of(function))
        return self.functions[function]

    def call(self, function: Any, *args: Any, **options: Any) -> Any:
        """Call a Numba function from a watched one; it is rewritten at its first call."""
        return self.function_of(function)(*args, **options)

    divisor = staticmethod(divisor)  # of divisions with NumPy's error model

    def execute(self, text: Rewritten) -> Callable[..., Any]:
        self.loops |= {(loop.file, loop.line): loop for loop in text.loops}
        self.recorder.files.add(text.file)
        self.recorder.signed |= {(text.file, line) for line in text.signed}
        scope = self.scope(text)
        exec(text.code, scope)  # noqa: S102  the user's own function, which would run anyway
        rewritten: Callable[..., Any] = scope[text.function.__name__]
        return rewritten

    def scope(self, text: Rewritten) -> dict[str, Any]:
        """Return the names that a function sees: its module's, those of its closure, and the stand-ins."""
        function: Any = text.function
        outer, names = names_of(function), {*global_names(function.__code__), *function.__code__.co_freevars}
        values = {name: self.hold(self.stand_in(outer[name], name)) for name in names & outer.keys()}
        return BUILTINS | outer | values | {RUN: self}

    def stand_in(self, value: Any, name: str = "") -> Any:
        """Return the stand-in for a value that a function looks up by name."""
        if isinstance(value, CPUDispatcher):
            return partial(self.call, value)
        if isinstance(value, ModuleType):
            return self.module(value)
        if isinstance(value, np.ndarray):
            return self.recorder.array(value, name)
        if isinstance(value, FunctionType) and value.__module__.partition(".")[0] not in _OWN:
            self.recorder.files.add(value.__code__.co_filename)
        return self.of_package(value)

    def module(self, module: ModuleType) -> Any:
        root = module.__name__.partition(".")[0]
        if module is math:
            return MATH
        is_seen = root in ("numpy", "numba", "heapq") or not (root in _OWN or root in sys.stdlib_module_names)
        return _Module(module, self) if is_seen else module

    def of_package(self, value: Any) -> Any:
        """Stand in for a package's value: NumPy functions give recording arrays, Numba types cast, threads are few."""
        if isinstance(value, _UNSEEN):
            return np.dtype(str(value).replace("boolean", "bool")).type
        if isinstance(value, _Intrinsic):
            return _compile_intrinsic(value)
        if isinstance(value, StencilFunc):
            return partial(self.stencil, value)
        if value is List or value is Dict:
            return _RefusedCallee(self.recorder, f"a typed {value.__name__}")
        if value is numba.get_num_threads:
            return lambda: THREADS
        if value is numba.get_thread_id:
            return self.thread
        if value is numba.literal_unroll:
            return lambda items: items
        package = str(getattr(value, "__module__", "")).partition(".")[0]
        if package == "_heapq":
            return _pushing(value)
        if package == "math" and callable(value):
            return getattr(MATH, value.__name__, value)
        if value in (numba.carray, numba.farray) or (
            package == "numpy" and callable(value) and not isinstance(value, type | np.ufunc)
        ):
            return partial(self.record, value)
        return value

    def record(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function of NumPy, and record the arrays that it makes."""
        name, site = getattr(function, "__name__", ""), self.recorder.site_of(sys._getframe(1))
        if name in _UNSEEN_FUNCTIONS:
            raise UnsupportedError(f"{site.place}: {name} is not watched")
        if name.endswith("_like"):  # nothing is read
            args = tuple(each.data if isinstance(each, Recording) else each for each in args)
        result = function(*args, **options)
        if not isinstance(result, np.ndarray):
            return result
        require_seen(result, "it", site.place)
        assigned = _ASSIGNED.match(site.text)
        title = assigned[1] if assigned else f"an array of np.{name}"
        return self.recorder.array(result, title, is_set=name not in _UNSET)

    def stencil(self, function: Any, *args: Any, **options: Any) -> Any:
        """Call a function made by numba.stencil, which reads all of its arrays and returns one."""
        first = args[0] if args else None
        if isinstance(first, Recording):
            return first.call(function, args, options)
        place = self.recorder.site_of(sys._getframe(1)).place
        raise UnsupportedError(f"{place}: a stencil is called without its array in first place: give it there")


@dataclass(frozen=True, slots=True)
class _Module:
    """Proxy of a module whose attributes are the stand-ins that a watched function sees."""

    module: ModuleType
    run: PrangeRuntime

    def __getattr__(self, name: str) -> Any:
        return self.run.stand_in(getattr(self.module, name), name)


@dataclass(frozen=True, slots=True)
class _RefusedCallee:
    """A callee that cannot be watched, nor can its attributes."""

    recorder: Recorder
    what: str

    def __call__(self, *args: Any, **named: Any) -> Any:
        place = self.recorder.site_of(sys._getframe(1)).place
        raise UnsupportedError(f"{place}: the accesses of {self.what} are not seen: give arrays")

    def __getattr__(self, name: str) -> Any:
        return self


def _pushing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of heapq, which changes a list without calling its methods."""

    def push(heap: Any, *args: Any) -> Any:
        if hasattr(heap, "require_own"):
            heap.require_own()
        return function(heap, *args)

    return push


def require_seen(value: Any, name: str, place: str) -> None:
    """Raise UnsupportedError for a list (at a change), a set or a dict, whose accesses are not seen."""
    if isinstance(value, _CONTAINERS):
        what = "changes" if isinstance(value, list | List) else "accesses"
        remedy = f"a {type(value).__name__}, whose {what} are not seen: give arrays, or a tuple of them"
        raise UnsupportedError(f"{place}: {name} is {remedy}")


@lru_cache(maxsize=64)
def _compile_intrinsic(intrinsic: Any) -> Any:
    """Compile an intrinsic on numbers as a function that Python can call."""

    def call(*args: Any) -> Any:
        return intrinsic(*args)

    return numba.njit(call)


@lru_cache(maxsize=256)
def rewritten_of(function: Any) -> Rewritten:
    """Rewrite a Numba kernel for Python. UnsupportedError as from `plain_of` and `rewritten`."""
    plain, parallel = plain_of(function)
    divides = error_model(function) == "numpy"
    return rewritten(plain, lambda node: is_prange(node, plain), parallel=parallel, divides=divides)


def error_model(function: Any) -> str:
    """Return a kernel's error model: in "python" a division by zero raises, in "numpy" it gives NumPy's result."""
    return str(function.targetoptions.get("error_model", "python"))


def is_prange(node: Any, function: Any) -> bool:
    """Whether an expression names numba.prange, under any alias."""
    first, *path = dotted_name(node).split(".")
    value = names_of(function).get(first)
    for name in path:
        value = getattr(value, name, None)
    return value is numba.prange


def plain_of(function: Any) -> tuple[Callable[..., Any], bool]:
    """Return a Numba kernel's Python function, and whether its pranges are parallel. UnsupportedError for others."""
    if not isinstance(function, CPUDispatcher):
        raise UnsupportedError(f"{function!r} is no function made by numba.njit, so its accesses are not seen")
    return function.py_func, bool(function.targetoptions.get("parallel"))
