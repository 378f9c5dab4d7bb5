"""The fast path: a kernel that only accesses single cells, compiled with a call that records each access."""

import ast
import ctypes
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeGuard

import numba
import numpy as np

from noyau.errors import FindingKind, UnsupportedError
from noyau.sanitizer import engine
from noyau.sanitizer.compiled_numbers import names_of
from noyau.sanitizer.engine import Shadow, number_of
from noyau.sanitizer.numba.interpreter import error_model, is_prange, plain_of
from noyau.sanitizer.numba.rewrite import asks_thread, is_signed, makes_container, parse_function
from noyau.sanitizer.records import Access, Site, WatchedMemory

_PREFIX = "_noyau_"
_MAKERS = {"empty": 0, "empty_like": 0, "zeros": 1, "zeros_like": 1, "ones": 1, "full": 1}  # 1: its cells are set
_ASKED = frozenset({"shape", "size", "ndim", "dtype", "itemsize"})
_AXES = 2


@dataclass(frozen=True, slots=True)
class Fast:
    """One compiled run: the shadow, its sites, and its memories by number."""

    shadow: Shadow
    sites: tuple[Site, ...]
    memories: dict[int, WatchedMemory]


def run_compiled(function: Any, args: Sequence[Any], unset: frozenset[str] = frozenset()) -> Fast:
    """Run a Numba kernel, compiled with recorded accesses; `unset`: array parameters without values at the start.

    UnsupportedError, with the line, if a part of it must run in Python."""
    plain, parallel = plain_of(function)
    arrays = frozenset(number for number, each in enumerate(args) if isinstance(each, np.ndarray))
    if not all(0 < args[number].ndim <= _AXES for number in arrays):
        raise UnsupportedError(f"{plain.__name__} has an array of {_AXES + 1} axes or none, which runs in Python")
    if any(_is_nest(each) for each in args):
        raise UnsupportedError(f"{plain.__name__} takes arrays in a tuple, or a list, which are watched in Python")
    compiled, sites, places = _compile(plain, parallel, arrays, error_model(function))
    shadow, memories = Shadow(), dict[int, WatchedMemory]()
    for name, place in places.items():
        number = shadow.memory(args[place].size, is_set=name not in unset)
        memories[number] = WatchedMemory(name, args[place].shape)
    try:
        compiled(*args, shadow.handle, *memories)
    except numba.core.errors.NumbaError as error:
        reason = "does not compile with its accesses noted, so it runs in Python"
        raise UnsupportedError(f"{plain.__name__} {reason}") from error
    return Fast(shadow, sites, memories)


def _is_nest(value: Any) -> bool:
    parts = value if isinstance(value, tuple) else ()
    return isinstance(value, MutableSequence) or any(isinstance(each, np.ndarray) or _is_nest(each) for each in parts)


@lru_cache(maxsize=64)
def _compile(
    function: Any, parallel: bool, arrays: frozenset[int], error_model: str
) -> tuple[Callable[..., Any], tuple[Site, ...], dict[str, int]]:
    """Compile a kernel with recorded accesses; return it, its sites, and the positions of its array parameters."""
    tree, file, _ = parse_function(function)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    places = {each.arg: number for number, each in enumerate(definition.args.args) if number in arrays}
    changer = _AccessRewriter(file, function if parallel else None, set(places))
    definition.decorator_list = []
    definition = changer.visit(definition)
    definition.args.args += [ast.arg(name) for name in (f"{_PREFIX}s", *map(_memory, places))]
    scope = {**names_of(function), **{f"{_PREFIX}{name}": each for name, each in accesses().items()}}
    tree.body = [definition]
    exec(compile(ast.fix_missing_locations(tree), file, "exec"), scope)  # noqa: S102  the user's own function
    sites = tuple(Site.of(file, line) for line in changer.lines)
    return numba.njit(error_model=error_model)(scope[function.__name__]), sites, places


def _memory(name: str) -> str:
    return f"{_PREFIX}m_{name}"


class _AccessRewriter(ast.NodeTransformer):
    """A transformer that replaces accesses by calls; `function`: None for serial pranges."""

    def __init__(self, file: str, function: Any, arrays: set[str]) -> None:
        self.file, self.function, self.arrays = file, function, arrays
        self.lines: list[int] = []
        self.inside = False

    def call(self, name: str, *arguments: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(f"{_PREFIX}{name}", ast.Load()), [ast.Name(f"{_PREFIX}s", ast.Load()), *arguments], [])

    def access(self, what: str, node: ast.Subscript, *value: ast.expr) -> ast.Call:
        """Return the call for a load or a store (`what`) of a cell."""
        assert isinstance(node.value, ast.Name)
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(keys) > _AXES or any(isinstance(key, ast.Slice) for key in keys):
            raise self.refusal(node)
        if node.lineno not in self.lines:
            self.lines.append(node.lineno)
        indices: list[ast.expr] = [self.visit(key) for key in keys]
        state: list[ast.expr] = [ast.Name(f"{_PREFIX}s", ast.Load()), ast.Name(_memory(node.value.id), ast.Load())]
        state += [ast.Constant(self.lines.index(node.lineno)), ast.Constant(is_signed(node))]
        name = ast.Name(f"{_PREFIX}{what}{len(keys)}", ast.Load())
        array = ast.Name(node.value.id, ast.Load())
        return ast.copy_location(ast.Call(name, [array, *indices, *value, *state], []), node)

    def is_cell(self, node: ast.AST) -> TypeGuard[ast.Subscript]:
        return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in self.arrays

    def refusal(self, node: Any) -> UnsupportedError:
        reason = f"`{ast.unparse(node)}` is of a whole array: it runs in Python"
        return UnsupportedError(f"{self.file}:{node.lineno}: {reason}")

    def visit(self, node: ast.AST) -> Any:
        if self.function is not None and makes_container(node):  # iterations may share it
            raise UnsupportedError(f"{self.file}:{node.lineno}: lists, sets and dicts are watched in Python")  # type: ignore[attr-defined]
        return super().visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        return self.access("load", node) if self.is_cell(node) else self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in self.arrays and node.attr in _ASKED:
            return node
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        return node if ast.unparse(node.func) == "len" else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self.arrays:
            raise self.refusal(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        target, maker = node.targets[0], self.maker(node.value)
        if len(node.targets) == 1 and isinstance(target, ast.Name) and maker is not None:
            return self.local(node, target.id, maker)
        if len(node.targets) == 1 and self.is_cell(target):
            return ast.copy_location(ast.Expr(self.access("store", target, self.visit(node.value))), node)
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if not self.is_cell(node.target):
            return self.generic_visit(node)
        value = ast.BinOp(self.access("load", node.target), node.op, self.visit(node.value))
        return ast.copy_location(ast.Expr(self.access("store", node.target, value)), node)

    def maker(self, value: ast.expr) -> int | None:
        """Return 1 for an array constructor that sets its cells, 0 for `np.empty` and its like, else None."""
        named = value.func.attr if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else ""
        return _MAKERS.get(named)

    def local(self, node: ast.Assign, name: str, is_set: int) -> list[ast.stmt]:
        """Add a memory for an array that the function makes."""
        self.arrays.add(name)
        size = ast.Attribute(ast.Name(name, ast.Load()), "size", ast.Load())
        memory = self.call("memory", size, ast.Constant(is_set))
        return [node, ast.copy_location(ast.Assign([ast.Name(_memory(name), ast.Store())], memory), node)]

    def visit_For(self, node: ast.For) -> Any:
        call, is_serial = node.iter, self.function is None or self.inside
        if is_serial or not isinstance(call, ast.Call) or not is_prange(call.func, self.function):
            return self.generic_visit(node)
        if asks_thread(node.body):
            raise UnsupportedError(f"{self.file}:{node.lineno}: iterations of threads are watched in Python")
        self.inside = True
        self.generic_visit(node)
        self.inside = False
        call.func = ast.Name("range", ast.Load())
        zero = ast.Constant(0)
        owner = ast.Name(ast.unparse(node.target), ast.Load())
        node.body.insert(0, ast.copy_location(ast.Expr(self.call("enter", owner, zero, zero, zero, zero)), node))
        regions = [ast.copy_location(ast.Expr(self.call("region", ast.Constant(serial))), node) for serial in (0, 1)]
        return [regions[0], node, regions[1]]


_HANDLE, _I32, _I64 = ctypes.c_int64, ctypes.c_int32, ctypes.c_int64  # a pointer as an integer
_READ, _WRITE, _SAME = int(Access.READ), int(Access.WRITE), int(Access.SAME_WRITE)
_OUTSIDE, _NEGATIVE = number_of(FindingKind.OUT_OF_BOUNDS), number_of(FindingKind.NEGATIVE_INDEX)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, _HANDLE, *arguments)(engine.address(name))


@cache
def accesses() -> dict[str, Any]:
    """Return the functions that a rewritten text calls, by name: `load1`, `store1`, `load2`, `store2`, `memory`,
    `region`, `enter`. BuildError without a C compiler."""
    touch = _function("shadow_touch", _I32, _I32, _I64, _I32, _I32)
    within = _within(_function("shadow_note", None, _I32, _I32, _I32, _I32, _I32, _I64, _I64, _I64, _I64))
    return {
        **_loads(touch, within),
        **_stores(touch, within),
        "memory": _function("shadow_memory", _I32, _I64, _I32),
        "region": _function("shadow_region", None, _I32),
        "enter": _function("shadow_enter", None, _I64, _I32, _I32, _I32, _I32),
    }


def _within(note: Any) -> Any:
    @numba.njit
    def within(index, extent, axis, s, m, access, site, signed):  # type: ignore[no-untyped-def]
        """Return the index from the start, or -1; outside 0 .. extent - 1 it is recorded, unless signed and wrapped."""
        if 0 <= index < extent:
            return index
        wraps = -extent <= index < 0
        if not (wraps and signed):
            note(s, _NEGATIVE if wraps else _OUTSIDE, m, access, site, -1, -1, index, axis, extent)
        return index + extent if wraps else -1

    return within


def _loads(touch: Any, within: Any) -> dict[str, Any]:
    @numba.njit
    def nothing(a):  # type: ignore[no-untyped-def]
        return np.zeros(1, a.dtype)[0]

    @numba.njit
    def load1(a, i, s, m, site, signed):  # type: ignore[no-untyped-def]
        i = within(np.int64(i), a.shape[0], 0, s, m, _READ, site, signed)
        if i < 0:
            return nothing(a)
        touch(s, m, i, _READ, site)
        return a[i]

    @numba.njit
    def load2(a, i, j, s, m, site, signed):  # type: ignore[no-untyped-def]
        i = within(np.int64(i), a.shape[0], 0, s, m, _READ, site, signed)
        j = within(np.int64(j), a.shape[1], 1, s, m, _READ, site, signed)
        if i < 0 or j < 0:
            return nothing(a)
        touch(s, m, i * a.shape[1] + j, _READ, site)
        return a[i, j]

    return {"load1": load1, "load2": load2}


def _stores(touch: Any, within: Any) -> dict[str, Any]:
    @numba.njit
    def put(a, at, value, cell, s, m, site):  # type: ignore[no-untyped-def]
        before = a[at]
        a[at] = value
        after = a[at]
        is_same = before == after or (before != before and after != after)  # noqa: PLR0124  NaN stays NaN
        touch(s, m, cell, _SAME if is_same else _WRITE, site)

    @numba.njit
    def store1(a, i, value, s, m, site, signed):  # type: ignore[no-untyped-def]
        i = within(np.int64(i), a.shape[0], 0, s, m, _WRITE, site, signed)
        if i >= 0:
            put(a, i, value, i, s, m, site)

    @numba.njit
    def store2(a, i, j, value, s, m, site, signed):  # type: ignore[no-untyped-def]
        i = within(np.int64(i), a.shape[0], 0, s, m, _WRITE, site, signed)
        j = within(np.int64(j), a.shape[1], 1, s, m, _WRITE, site, signed)
        if i >= 0 and j >= 0:
            put(a, (i, j), value, i * a.shape[1] + j, s, m, site)

    return {"store1": store1, "store2": store2}
