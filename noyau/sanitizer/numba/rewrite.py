"""Rewriting of a Numba function's source, so that Python can run it iteration by iteration of its pranges."""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from noyau.errors import UnsupportedError
from noyau.sanitizer.compiled_numbers import Divisors

RUN = "_noyau_run"  # the runtime's name in the text
_MERGES = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_FUNCTIONS = ("max", "min")
_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_OWN_NAMES = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
_MAKERS = frozenset({"list", "dict", "set", "sorted"})
_OPERATIONS = {ast.Add: "sum", ast.Sub: "difference", ast.Mult: "product", ast.Div: "quotient"}


@dataclass(frozen=True, slots=True)
class PrangeLoop:
    """A prange in the source. `reductions`: names that its iterations only update, with the operation; `private`: names
    that they assign; `running`: reductions that an iteration also reads, with the line; `asks_thread`: whether an
    iteration asks for its thread, so that the iterations of one thread are ordered."""

    file: str
    line: int
    reductions: tuple[tuple[str, str], ...]
    private: tuple[str, ...]
    running: tuple[tuple[str, int], ...]
    asks_thread: bool


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A function rewritten for Python: its code, its loops, and the lines with an index that is a negative constant."""

    function: Callable[..., Any]
    code: Any
    file: str
    line: int
    loops: tuple[PrangeLoop, ...]
    signed: frozenset[int]


def rewritten(
    function: Callable[..., Any], is_prange: Callable[[ast.expr], bool], *, parallel: bool, divides: bool
) -> Rewritten:
    """Rewrite the function. `is_prange` says whether an expression is the function prange, `divides` whether division
    by zero is NumPy's, where Numba raises by default. UnsupportedError without a source, or for statements that cannot
    be watched."""
    tree, file, first = parse_function(function)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    _require_plain(definition, file)
    definition.decorator_list = []
    indexed = (node for node in ast.walk(definition) if isinstance(node, ast.Subscript))
    signed = frozenset(node.lineno for node in indexed if is_signed(node))
    if divides:
        tree = Divisors(lambda: _of_run("divisor")).visit(tree)
    changer = _CallRewriter(file, is_prange)
    if parallel:
        tree = changer.visit(tree)
    tree = _Holder().visit(tree)
    code = compile(ast.fix_missing_locations(tree), file, "exec")
    return Rewritten(function, code, file, first, tuple(changer.loops), signed)


def parse_function(function: Callable[..., Any]) -> tuple[ast.Module, str, int]:
    """Parse a function: its tree with the file's lines, the file, and the line. UnsupportedError without a source."""
    try:
        if function.__code__.co_filename == "<string>":  # some releases of Python confuse it with python -c
            raise OSError("it was made from a string")
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or function.__code__.co_filename
        linecache.checkcache(file)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError) as error:
        name = getattr(function, "__name__", "a function")
        raise UnsupportedError(f"the source of {name} cannot be read, so its accesses are not seen") from error
    ast.increment_lineno(tree, max(first, 1) - 1)
    if not isinstance(tree.body[0], ast.FunctionDef):
        raise UnsupportedError(f"{file}:{first}: only functions made with `def` are watched")
    return tree, file, tree.body[0].lineno


def _require_plain(tree: ast.FunctionDef, file: str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and all("parallel_chunksize" in ast.unparse(each) for each in node.items):
            continue  # it sets how iterations are distributed
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.With):
            reason = f"`{type(node).__name__.lower()}` is not watched; its accesses are not seen"
            raise UnsupportedError(f"{file}:{node.lineno}: {reason}")


def makes_container(node: ast.AST) -> bool:
    """Whether an expression makes a list, a set or a dict of Python."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _MAKERS
    return isinstance(node, _CONTAINERS) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def is_signed(node: ast.Subscript) -> bool:
    """Whether an index is written as a negative number, as in `a[-1]`."""
    keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.USub) for each in keys)


class _CallRewriter(ast.NodeTransformer):
    """A transformer that inserts calls of the runtime into a function."""

    def __init__(self, file: str, is_prange: Callable[[ast.expr], bool]) -> None:
        self.file, self.is_prange = file, is_prange
        self.loops: list[PrangeLoop] = []
        self.depth = 0

    def visit_For(self, node: ast.For) -> Any:
        if self.depth or not isinstance(node.iter, ast.Call) or not self.is_prange(node.iter.func):
            return self.generic_visit(node)
        loop = _loop(node, self.file)
        self.loops.append(loop)
        self.depth += 1
        node.body = [_Merger(dict(loop.reductions)).visit(statement) for statement in node.body]
        self.generic_visit(node)
        self.depth -= 1
        node.body[:0] = _unbound(loop.private, node)
        place: list[ast.expr] = [ast.Constant(self.file), ast.Constant(loop.line)]
        node.iter = ast.copy_location(ast.Call(_of_run("loop"), [*place, *node.iter.args], []), node.iter)
        return [node, *_unbound(loop.private, node)]


class _Merger(ast.NodeTransformer):
    """A transformer of reductions: `s += x` becomes `s = run.merge("sum", s, x)`, and an array `s` stays unwritten."""

    def __init__(self, reductions: dict[str, str]) -> None:
        self.reductions = reductions

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if not isinstance(node.target, ast.Name) or node.target.id not in self.reductions:
            return node
        before, kind = ast.Name(node.target.id, ast.Load()), ast.Constant(_OPERATIONS[type(node.op)])
        merge = ast.Call(_of_run("merge"), [kind, before, node.value], [])
        return ast.copy_location(ast.Assign([node.target], merge), node)


class _Holder(ast.NodeTransformer):
    """A transformer for lists, sets and dicts: `[0.0]` becomes `run.hold([0.0])`."""

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        if not makes_container(node):
            return node
        assert isinstance(node, ast.expr)
        return ast.copy_location(ast.Call(_of_run("hold"), [node], []), node)


def _of_run(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(RUN, ast.Load()), name, ast.Load())


def _unbound(names: Sequence[str], where: ast.stmt) -> list[ast.stmt]:
    """Return statements that unbind the names, whether they are bound or not."""
    nothing = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in names]
    deletion = [ast.Delete([ast.Name(name, ast.Del()) for name in names])] if names else []
    return [ast.copy_location(each, where) for each in (*nothing, *deletion)]


def _loop(node: ast.For, file: str) -> PrangeLoop:
    """Describe a prange by the names in its body."""
    updates = list(_updates(node.body))
    spent = {id(each) for _, _, reads in updates for each in reads}
    private = _assigned_names(node.body) - {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
    reductions = {name: kind for name, kind, _ in updates if name not in private}
    reads = [each for each in _names(node.body) if isinstance(each.ctx, ast.Load) and id(each) not in spent]
    running = {each.id: each.lineno for each in reads if each.id in reductions}
    merged, own = tuple(reductions.items()), tuple(sorted(private))
    return PrangeLoop(file, node.lineno, merged, own, tuple(running.items()), asks_thread(node.body))


def asks_thread(body: Sequence[ast.AST]) -> bool:
    """Whether numba.get_thread_id is named."""
    nodes = [node for part in body for node in ast.walk(part)]
    return any(getattr(node, "attr", getattr(node, "id", "")) == "get_thread_id" for node in nodes)


def _updates(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str, list[ast.AST]]]:
    """Yield updates `s += x`, `s = s + x`, `s = max(s, x)`: the name, the operation, and its reads of the name."""
    for node in _walk(body):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and isinstance(node.op, _MERGES):
            yield node.target.id, _OPERATIONS[type(node.op)], []
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            kind, sides = _sides(node.value)
            own = [side for side in sides if isinstance(side, ast.Name) and side.id == name]
            others = {each.id for side in sides if side not in own for each in _names([side])}
            if len(own) == 1 and name not in others:
                yield name, kind, list(own)


def _sides(value: ast.expr) -> tuple[str, list[ast.expr]]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, _MERGES):
        return _OPERATIONS[type(value.op)], [value.left, value.right]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _FUNCTIONS:
        return value.func.id, list(value.args)
    return "", []


def _assigned_names(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that the body binds, other than by an update."""
    nodes = list(_walk(body))
    changes = [each for each in nodes if isinstance(each, ast.Assign | ast.AugAssign) and any(_updates([each]))]
    updated = {id(each.target if isinstance(each, ast.AugAssign) else each.targets[0]) for each in changes}
    bound = (each for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return {each.id for each in bound if id(each) not in updated}


def _walk(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes, except within functions and comprehensions, which have names of their own."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _OWN_NAMES):
            waiting.extend(ast.iter_child_nodes(node))


def _names(body: Sequence[ast.AST]) -> list[ast.Name]:
    return [node for part in body for node in ast.walk(part) if isinstance(node, ast.Name)]
