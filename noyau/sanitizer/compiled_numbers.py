"""Semantics of compiled code in Python: the names of a function, and substitutes for what raises or reads more."""

import ast
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)


class Divisors(ast.NodeTransformer):
    """A transformer: `x / y` becomes `x / divisor(y)`; `begin_call` makes the expression for that function."""

    def __init__(self, begin_call: Callable[[], ast.expr]) -> None:
        self.called = begin_call

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, _DIVISIONS):
            node.right = self._divisor(node.right)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AugAssign:
        self.generic_visit(node)
        if isinstance(node.op, _DIVISIONS):
            node.value = self._divisor(node.value)
        return node

    def _divisor(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant) and node.value:
            return node
        return ast.copy_location(ast.Call(self.called(), [node], []), node)


def names_of(function: Any) -> dict[str, Any]:
    """Return the names that a function looks up: the globals of its module, and those of its closure."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}


def calls_view(function: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Whether a function, or a Numba function that it names, may view memory as another dtype."""
    plain = getattr(function, "py_func", function)
    if not isinstance(plain, FunctionType) or plain in seen:
        return False
    names, known = {*plain.__code__.co_names, *plain.__code__.co_freevars}, names_of(plain)
    called = (known[each] for each in names & known.keys() if hasattr(known[each], "py_func"))
    return "view" in names or any(calls_view(each, (*seen, plain)) for each in called)


def divisor(value: Any) -> Any:
    """Return a zero that divides as NumPy's does: compiled code gives infinity, NaN, or an undefined value."""
    return np.asarray(value)[()] if isinstance(value, int | float | complex) and not value else value


def _zip_parts(*parts: Any) -> Iterator[tuple[Any, ...]]:
    """Zip sequences; unlike with `zip`, no element is read that has no other beside it."""
    count = min((len(each) for each in parts if hasattr(each, "__len__")), default=None)
    return zip(*(islice(each, count) for each in parts), strict=False)


def _round_number(value: Any, *digits: Any) -> Any:
    """Round a number, which stays as it is where its digits are more than its type has room for."""
    with np.errstate(all="ignore"):
        result = round(value, *digits)
    return value if digits and isinstance(result, float | np.floating) and not np.isfinite(result) else result


def _without_raise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of math: it gives NaN or infinity where Python's raises."""

    def compute(*values: Any) -> Any:
        try:
            return function(*values)
        except (ValueError, TypeError):  # TypeError: a short float
            return getattr(np, _IN_NUMPY.get(function.__name__, function.__name__), lambda *_: math.nan)(*values)
        except OverflowError:
            return math.inf

    return compute


_IN_NUMPY = {
    "remainder": "", "log": "log", "pow": "power", "fmod": "fmod",
    "acos": "arccos", "asin": "arcsin", "acosh": "arccosh",
}  # fmt: skip
_NAMES = {name: value for name, value in vars(math).items() if not name.startswith("_")}
MATH = SimpleNamespace(**{name: _without_raise(each) if callable(each) else each for name, each in _NAMES.items()})
BUILTINS = {"zip": partial(_zip_parts), "round": partial(_round_number)}  # a partial has no lines to report
