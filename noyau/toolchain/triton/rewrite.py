"""The text of a kernel in Triton as Python may run it: what the compiler reads otherwise is a call of `Meanings`.

`and`, `or`, `not` and chained comparisons join tensors; `min` and `max` go cell by cell; the variable of a loop, and
numbers that a loop changes, are tensors; a number has the methods of a tensor."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Protocol

_MEANINGS = "_noyau_meanings"  # a free variable of each function that was rewritten
_LEFT, _RIGHT = "_noyau_left", "_noyau_right"
_PYTHONS = ("min", "max")  # functions of Python that the compiler has a meaning of its own for


class Meanings(Protocol):
    """The operations that a rewritten function calls, and the names that it finds elsewhere than Python does."""

    @property
    def names(self) -> Mapping[str, Any]:
        """Functions in place of those of Python."""

    def both(self, *values: Callable[[], Any]) -> Any: ...
    def either(self, *values: Callable[[], Any]) -> Any: ...
    def negate(self, value: Any) -> Any: ...
    def chain(self, first: Any, *links: tuple[Callable[[Any, Any], Any], Callable[[], Any]]) -> Any: ...
    def count(self, values: Any) -> Any: ...
    def carry(self, value: Any) -> Any: ...
    def methods(self, value: Any) -> Any: ...
    def turn(self) -> bool: ...
    def replace(self, value: Any) -> Any:
        """The value of a global name in place of what it is, None where that is good."""


def rewritten(function: FunctionType, meanings: Meanings, methods: frozenset[str]) -> FunctionType:
    """The function with Triton's meanings, on its own lines, or as it is without a text. `methods`: of tensors."""
    tree = _tree_of(function)
    if tree is None:
        return function
    scope = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    modules = frozenset(name for name, value in scope.items() if isinstance(value, ModuleType))
    # The names that a function gives values to
    names = {node.arg for node in ast.walk(tree.args) if isinstance(node, ast.arg)}
    own = names | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    cells = {_MEANINGS: CellType(meanings)}
    for name in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - own:
        value = scope[name] if name in scope else getattr(builtins, name, None)
        other = meanings.names.get(name) if name in _PYTHONS and name not in scope else meanings.replace(value)
        if other is not None:
            cells[name] = CellType(other)
    cells = {**dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)), **cells}
    tree = ast.fix_missing_locations(_Rewriter(methods, modules).visit(tree))
    code = _compile(tree, tuple(cells), function.__code__.co_filename)
    closure = tuple(cells[name] for name in code.co_freevars)
    result = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    result.__kwdefaults__ = function.__kwdefaults__
    return result


def _tree_of(function: FunctionType) -> ast.FunctionDef | None:
    """The definition of a function, without its decorators, defaults and annotations; None where there is no text."""
    try:
        lines, first = inspect.getsourcelines(function)
        is_nested = lines[0][:1].isspace()
        tree = ast.parse("".join(["if 1:\n", *lines] if is_nested else lines))
    except (OSError, TypeError, SyntaxError):
        return None
    node = next((each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)), None)
    if node is None or node.name != function.__name__:
        return None
    ast.increment_lineno(tree, max(first, 1) - 1 - is_nested)
    node.decorator_list, node.returns, node.args.defaults = [], None, []
    node.args.kw_defaults = [None for _ in node.args.kwonlyargs]
    for each in ast.walk(node.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return node


def _compile(tree: ast.FunctionDef, free: tuple[str, ...], file: str) -> CodeType:
    """The code of a function in which some names are free."""
    arguments = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
    outer = ast.FunctionDef("_noyau_outer", arguments, [tree], [])
    vars(outer)["type_params"] = []  # of Python 3.12
    code = compile(ast.fix_missing_locations(ast.Module([outer], [])), file, "exec")
    for name in ("_noyau_outer", tree.name):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)
    return code


class _Rewriter(ast.NodeTransformer):
    """A rewriter of what Triton's compiler reads otherwise. `modules`: names whose attributes are their own."""

    def __init__(self, methods: frozenset[str], modules: frozenset[str]) -> None:
        self.methods, self.modules = methods, modules

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        name = "both" if isinstance(node.op, ast.And) else "either"
        return ast.copy_location(_call(name, *map(_later, node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return ast.copy_location(_call("negate", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        names = [ast.arg(_LEFT), ast.arg(_RIGHT)]
        links: list[ast.expr] = []
        for operator, value in zip(node.ops, node.comparators, strict=True):
            body = ast.Compare(_load(_LEFT), [operator], [_load(_RIGHT)])
            link = ast.Lambda(ast.arguments([], names, None, [], [], None, []), body)
            links.append(ast.Tuple([link, _later(value)], ast.Load()))
        return ast.copy_location(_call("chain", node.left, *links), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        is_module = isinstance(node.value, ast.Name) and node.value.id in self.modules
        if node.attr in self.methods and isinstance(node.ctx, ast.Load) and not is_module:
            node.value = ast.copy_location(_call("methods", node.value), node.value)
        return node

    def visit_For(self, node: ast.For) -> Any:
        carried = list(_carried_tensors(node))
        self.generic_visit(node)
        if "static_range" in ast.dump(node.iter):  # it is unrolled
            return node
        node.iter = ast.copy_location(_call("count", node.iter), node.iter)
        return [*(ast.copy_location(each, node) for each in carried), node]

    def visit_While(self, node: ast.While) -> Any:
        carried = list(_carried_tensors(node))
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(_call("turn")), node.body[0]))
        return [*(ast.copy_location(each, node) for each in carried), node]


def _carried_tensors(loop: ast.For | ast.While) -> Iterator[ast.stmt]:
    """Statements that make a tensor of each number that a loop gives another value to, where there is one before it."""
    nodes = [node for statement in loop.body for node in ast.walk(statement)]
    constants = {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AnnAssign)}
    names = (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    for name in dict.fromkeys(name for name in names if name not in constants):
        handler = ast.ExceptHandler(_load("NameError"), None, [ast.Pass()])
        yield ast.Try([ast.Assign([ast.Name(name, ast.Store())], _call("carry", _load(name)))], [handler], [], [])


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_load(_MEANINGS), name, ast.Load()), list(arguments), [])


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _later(value: ast.expr) -> ast.expr:
    """A value that is calculated once it is asked for; one that names something is calculated at once, in its scope."""
    body, none = value, ast.arguments([], [], None, [], [], None, [])
    if not any(isinstance(node, ast.NamedExpr) for node in ast.walk(value)):
        return ast.copy_location(ast.Lambda(none, body), value)
    one = ast.arguments([], [ast.arg("_noyau_value")], None, [], [], None, [value])
    return ast.copy_location(ast.Lambda(one, _load("_noyau_value")), value)
