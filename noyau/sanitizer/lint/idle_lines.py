"""Lines of a kernel that never ran, inferred from accesses: every access that ran is seen, so a branch that contains an
access, and of which no line was seen, was never taken."""

import ast
import inspect
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from noyau.codegen.language import LANGUAGES, Grid
from noyau.errors import SignatureError, UnsupportedError
from noyau.kernels.c.syntax import prototype_of, syntax
from noyau.kernels.user_kernel import UserKernel, python_function
from noyau.sanitizer.lint.arithmetic import text_of
from noyau.sanitizer.lint.c_text import statements

_TOUCHES = ("load", "store", "atomic_")  # of triton.language
_MAYBE = (ast.IfExp, ast.BoolOp, ast.Lambda)  # expressions whose parts may not run with the rest
_JUMPS = (ast.Return, ast.Break, ast.Continue)
_INNER = (ast.If, ast.For, ast.While)


def idle_lines(kernel: UserKernel, seen: Collection[tuple[str, int]]) -> tuple[int, ...]:
    """Return the lines of branches that were never taken; () if the kernel is not read, or no line was seen."""
    text = text_of(kernel)
    lines = set() if text is None else {line for file, line in seen if file == text.file}
    if text is None or not lines:
        return ()
    arrays: Collection[str] = ()
    if kernel.function is None:
        arrays = [name for name, kind in text.types.items() if kind.endswith("*")]
    elif LANGUAGES[kernel.language].grid is not Grid.PROGRAMS:
        arrays = inspect.signature(python_function(kernel.function)).parameters
    return tuple(sorted(set(_idle(text.body, lines, arrays))))


def idle_lines_of_functions(text: str, language: str, seen: Collection[int]) -> tuple[int, ...]:
    """Return the idle lines of each entered function of a program, inferred from its array parameters."""
    idle = set[int]()
    for name in (function.name for function in syntax(text, language).functions):
        with suppress(SignatureError, UnsupportedError):  # other parameters, or statements that are not read
            parameters = prototype_of(text, name, "", language).parameters
            body = statements(text, name, language)
            if any(each.lineno in seen for every in body for each in ast.walk(every) if isinstance(each, ast.stmt)):
                idle.update(_idle(body, seen, [each.name for each in parameters if each.is_pointer]))
    return tuple(sorted(idle))


def _idle(body: Sequence[ast.stmt], seen: Collection[int], arrays: Collection[str]) -> Iterator[int]:
    """Yield the idle lines of statements in sequence."""
    touching = [each for each in body if any(_touches(node, arrays) for node in _certain(each))]
    unseen = [each for each in touching if not any(line in seen for line in _lines(each))]
    inside = any(line in seen for each in body for line in _lines(each))
    jumps = any(isinstance(node, _JUMPS) for each in body for node in ast.walk(each))
    if unseen and not inside and not jumps:
        yield from (line for each in body for line in _lines(each))
        return
    yield from (line for each in unseen for line in _lines(each))
    for each in body:
        if isinstance(each, _INNER):
            yield from _idle(each.body, seen, arrays)
            yield from _idle(each.orelse, seen, arrays)


def _lines(node: ast.stmt) -> range:
    ends = (each.end_lineno or each.lineno for each in ast.walk(node) if isinstance(each, ast.stmt))
    return range(node.lineno, max(ends) + 1)  # a C statement ends where its head does


def _certain(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a statement that always run with it."""
    if isinstance(node, _INNER):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _MAYBE):
            yield from _certain(child)


def _touches(node: ast.AST, arrays: Collection[str]) -> bool:
    match node:
        case ast.Subscript(value=ast.Name(id=name)):
            return name in arrays
        case ast.Call(func=ast.Attribute(value=ast.Name(id="tl" | "language"), attr=attr)):
            return attr.startswith(_TOUCHES)
        case _:
            return False
