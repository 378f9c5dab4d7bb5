"""Rewriting of a Numba-CUDA function as plain Python over a stand-in for numba.cuda; waits become yields."""

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import zip_longest
from types import CodeType, FunctionType
from typing import Any

from noyau.errors import UnsupportedError
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.compiled_numbers import BUILTINS, Divisors, divisor, names_of
from noyau.sanitizer.numba.rewrite import is_signed
from noyau.sanitizer.numba_cuda.device import overloads_of, type_of
from noyau.sanitizer.numba_cuda.lockstep import GRID_WIDE, WAITING, Request
from noyau.toolchain.libdevice import OF_PATTERNS

_ASKED = "noyau_asked"
_DIVISOR = "noyau_divisor"
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Twin:
    """The function that runs in place of another; `waits`: it is a generator, which yields at each wait. A kernel that
    waits returns the site of its return statement."""

    function: Callable[..., Any]
    waits: bool


@dataclass(slots=True)
class Twins:
    """The twins of functions, each made once. `words`: the name of an object of numba.cuda that waits, or None;
    `stand_ins`: replacements of objects in a twin's globals, by identity; `watched`: converts other globals; `site`:
    the number of a line of a file; `calls`: a callee in place of an object, or None; `signed` collects lines with a
    negative index, `callers`, for a file, the lines of other files that call its functions."""

    words: Callable[[Any], str | None]
    stand_ins: Mapping[int, Any]
    site: Callable[[str, int], int]
    calls: Callable[[Any], Callable[..., Any] | None] = lambda meant: None
    watched: Callable[[Any, str], Any] = lambda value, name: value
    signed: set[tuple[str, int]] = field(default_factory=set)
    load: Callable[..., Any] = lambda x, key, site: x[key]
    store: Callable[..., Any] = lambda value, x, key, site: x.__setitem__(key, value)
    callers: dict[str, set[int]] = field(default_factory=dict)
    twins: dict[tuple[int, bool], Twin] = field(default_factory=dict)
    making: set[tuple[int, bool]] = field(default_factory=set)

    def of(self, function: Callable[..., Any], *, is_kernel: bool = False) -> Twin:
        """Return the twin of a function. UnsupportedError without a source."""
        plain = python_function(function)
        key = (id(plain), is_kernel)
        if key not in self.twins:
            if key in self.making:
                return Twin(partial(self._again, key, plain.__name__), waits=False)
            self.making.add(key)
            try:
                self.twins[key] = self._make(plain, is_kernel)
            finally:
                self.making.discard(key)
        return self.twins[key]

    def _again(self, key: tuple[int, bool], name: str, *args: Any, **named: Any) -> Any:
        """Return the result of a recursive call. UnsupportedError if the function waits for other threads."""
        if self.twins[key].waits:
            raise UnsupportedError(f"{name} waits for other threads and calls itself; write a loop")
        return self.twins[key].function(*args, **named)

    def overload(self, name: str, known: Sequence[Callable[..., Any]], *args: Any, **named: Any) -> Any:
        """Call a function through its body by @overload, for the types of the arguments. UnsupportedError if there is
        none, or it waits."""
        types, words = [*map(type_of, args)], {key: type_of(each) for key, each in named.items()}
        body = next(filter(None, (each(*types, **words) for each in known)), None)
        twin = None if body is None else self.of(body)
        if twin is None or twin.waits:
            raise UnsupportedError(f"{name} cannot be watched as @overload has it; call a function of @cuda.jit")
        return twin.function(*args, **named)

    def _make(self, plain: Callable[..., Any], is_kernel: bool) -> Twin:
        if not isinstance(plain, FunctionType):
            raise UnsupportedError(f"{plain!r} is no function of Python; noyau reads kernels that are")
        tree, file = _parse(plain)
        self.site(file, tree.lineno)
        indexed = (each for each in ast.walk(tree) if isinstance(each, ast.Subscript) and is_signed(each))
        self.signed.update((file, each.lineno) for each in indexed)
        names = names_of(plain)
        change = _TwinRewriter(self, names, tree, file, is_kernel)
        body = ast.fix_missing_locations(ast.Module([change.change()], []))
        stand_ins = {name: self.stand_ins.get(id(value)) for name, value in names.items()}
        space = BUILTINS | {name: stand_ins[name] or self.watched(value, name) for name, value in names.items()}
        space.update(change.bound, __builtins__=builtins, __name__=plain.__module__)
        exec(compile(body, file, "exec"), space)  # noqa: S102  the text of the user's own function
        twin = space[tree.name]
        twin.__defaults__, twin.__kwdefaults__ = plain.__defaults__, plain.__kwdefaults__
        return Twin(twin, change.waits)


def _parse(function: FunctionType) -> tuple[ast.FunctionDef, str]:
    """Return the definition of a function, with the line numbers of its file."""
    file = inspect.getsourcefile(function) or function.__code__.co_filename
    try:
        lines, first = _lines(function.__code__, function.__code__.co_filename)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError) as fault:
        reason = f"the source of {function.__name__} cannot be read ({fault})"
        raise UnsupportedError(f"{reason}; put it into a file of its own, as a function with a name") from None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        definition = _name_lambda(function, tree, f"{file}:{first}")
    ast.increment_lineno(tree, first - 1)
    definition.decorator_list, definition.returns = [], None
    for each in (*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs):
        each.annotation = None
    return definition, file


@lru_cache(maxsize=256)
def _lines(code: CodeType, file: str) -> tuple[list[str], int]:
    """Return a function's lines, cached; `file` tells equal codes of two files apart. OSError without a source."""
    if file == "<string>":  # some releases of Python confuse it with python -c
        raise OSError("it was made from a string")
    return inspect.getsourcelines(code)


def _name_lambda(function: FunctionType, tree: ast.Module, place: str) -> ast.FunctionDef:
    """Return a lambda as a function with a name: the lambda on its lines that has its code."""
    own = function.__code__
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            code = eval(compile(ast.Expression(node), place, "eval"), {}).__code__  # noqa: S307  it is not called
            if (code.co_code, code.co_names, code.co_consts) == (own.co_code, own.co_names, own.co_consts):
                body = ast.copy_location(ast.Return(node.body), node.body)
                return ast.copy_location(ast.FunctionDef("lambda_", node.args, [body], [], None), node)
    raise UnsupportedError(f"{place}: this lambda cannot be watched; give it a name with def")


class _TwinRewriter(ast.NodeTransformer):
    """A transformer: calls that wait become yields, calls of device functions become calls of their twins."""

    def __init__(self, twins: Twins, names: dict[str, Any], tree: ast.FunctionDef, file: str, is_kernel: bool) -> None:
        self.twins, self.names, self.tree, self.file, self.is_kernel = twins, names, tree, file, is_kernel
        self.bound: dict[str, Any] = {}
        self.waits = False
        self.locals = {each.arg for each in ast.walk(tree.args) if isinstance(each, ast.arg)}
        nodes = list(ast.walk(tree))
        stored = [each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        self.locals |= set(stored)
        values = ((each.targets[0], each.value) for each in nodes if isinstance(each, ast.Assign))
        self.values = {a.id: value for a, value in values if isinstance(a, ast.Name) and stored.count(a.id) == 1}

    def change(self) -> ast.FunctionDef:
        divisors = Divisors(lambda: self._bind(_DIVISOR, divisor))
        body = [self.visit(divisors.visit(statement)) for statement in self.tree.body]
        if self.waits and self.is_kernel:
            for each in ast.walk(ast.Module(body, [])):
                if isinstance(each, ast.Return):  # returns the site of its line
                    each.value = ast.Constant(self.twins.site(self.file, each.lineno))
        arguments, self.tree.body = self.tree.args, body
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        arguments.kw_defaults = [each and ast.Constant(None) for each in arguments.kw_defaults]
        return self.tree

    def meant(self, node: ast.expr) -> Any:
        """Return the object that a dotted name denotes, unless the name is local."""
        match node:
            case ast.Name(id=name) if name not in self.locals:
                return self.names.get(name, getattr(builtins, name, _MISSING))
            case ast.Attribute(value=value, attr=name):
                holder = self.meant(value)
                return _MISSING if holder is _MISSING else getattr(holder, name, _MISSING)
            case _:
                return _MISSING

    def visit_Call(self, node: ast.Call) -> ast.expr:
        target = self.meant(node.func)
        is_of_bits = getattr(target, "__name__", "") in OF_PATTERNS and id(target) in self.twins.stand_ins
        source = self._source(node.args[0]) if is_of_bits and len(node.args) == 1 else []
        self.generic_visit(node)
        node.args += source
        if target is _MISSING:
            is_sync = isinstance(node.func, ast.Attribute) and node.func.attr == "sync"
            return self._asking(node, GRID_WIDE) if is_sync else node  # of cuda.cg.this_grid(), which alone has one
        word = self.twins.words(target)
        if word in WAITING:
            return self._asking(node, word)
        if word is None and hasattr(target, "py_func"):
            return self._calling(node, target)
        instead = self.twins.calls(target) or self._stand_in(target)
        if instead is not None:
            node.func = ast.copy_location(self._bind(f"noyau_call_{len(self.bound)}", instead), node)
        return node

    def _source(self, node: ast.expr) -> list[ast.expr]:
        """Return the width of a number: the array that it is read from, 64 bits for a calculated one, else nothing."""
        node = self.values.get(node.id, node) if isinstance(node, ast.Name) else node
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return [ast.Name(node.value.id, ast.Load())]
        return [ast.Constant(64)] if isinstance(node, ast.BinOp | ast.UnaryOp) else []

    def _stand_in(self, target: Any) -> Callable[..., Any] | None:
        """Return the stand-in for a function whose body comes from @overload."""
        is_plain = isinstance(target, FunctionType) and id(target) not in self.twins.stand_ins
        known = overloads_of(target) if is_plain else []
        return partial(self.twins.overload, target.__name__, known) if known else None

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or has_slice(node):
            return node
        return self._accessing("load", self.twins.load, [node.value, node.slice], node)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript) or has_slice(target):
            return node
        call = self._accessing("store", self.twins.store, [node.value, target.value, target.slice], target)
        return ast.copy_location(ast.Expr(call), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        target = node.target
        if not isinstance(target, ast.Subscript) or has_slice(target):
            return node
        names = ("noyau_array", target.value), ("noyau_key", target.slice)  # they hold operands that are evaluated once
        first = [ast.NamedExpr(ast.Name(name, ast.Store()), part) for name, part in names]
        again: list[ast.expr] = [ast.Name(name, ast.Load()) for name, _ in names]
        before = self._accessing("load", self.twins.load, first, target)
        after = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
        return ast.copy_location(ast.Expr(self._accessing("store", self.twins.store, [after, *again], target)), node)

    def _accessing(self, word: str, function: Any, operands: Sequence[ast.expr], node: ast.expr) -> ast.expr:
        """Return the call that replaces x[key] or x[key] = value."""
        site = ast.Constant(self.twins.site(self.file, node.lineno))
        return ast.copy_location(ast.Call(self._bind(f"noyau_{word}", function), [*operands, site], []), node)

    def _asking(self, node: ast.Call, word: str) -> ast.expr:
        self.waits = True
        site = self.twins.site(self.file, node.lineno)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        request: ast.expr = self._bind(f"{_ASKED}_{word}_{site}", Request(word, site))
        if arguments:
            values: list[ast.expr] = [ast.Constant(word), ast.Constant(site), ast.Tuple(arguments, ast.Load())]
            request = ast.Call(self._bind(_ASKED, Request), values, [])
        return ast.copy_location(ast.Yield(request), node)

    def _calling(self, node: ast.Call, function: Any) -> ast.expr:
        """Call a device function's twin; a signature converts the arguments and the result."""
        twin, name = self.twins.of(function), getattr(function, "__name__", "function")
        file = python_function(function).__code__.co_filename
        if file != self.file != self.names.get("__name__"):  # not a text of noyau, whose lines nobody sees
            self.twins.callers.setdefault(file, set()).add(node.lineno)
        takes, gives = getattr(function, "casts", None) or ((), None)
        arguments = [self._cast(each, kind) for each, kind in zip_longest(node.args, takes[: len(node.args)])]
        target = self._bind(f"noyau_twin_{name}_{len(self.bound)}", twin.function)
        call: ast.expr = ast.copy_location(ast.Call(target, arguments, node.keywords), node)
        if twin.waits:
            self.waits = True
            call = ast.copy_location(ast.YieldFrom(call), node)
        return self._cast(call, gives)

    def _cast(self, node: ast.expr, kind: Any) -> ast.expr:
        if kind is None or (conversion := self.twins.calls(kind)) is None:
            return node
        return ast.copy_location(ast.Call(self._bind(f"noyau_cast_{len(self.bound)}", conversion), [node], []), node)

    def _bind(self, name: str, value: Any) -> ast.Name:
        self.bound[name] = value
        return ast.Name(name, ast.Load())


def has_slice(node: ast.Subscript) -> bool:
    """Whether a key contains a slice."""
    keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(each, ast.Slice | ast.Starred) for each in keys)
