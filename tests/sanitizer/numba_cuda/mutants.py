"""Mutants of the correct kernels, each with what its change must be found as, by construction."""

from __future__ import annotations

import ast
import copy
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.sanitizer.numba_cuda.tutorials import TUTORIALS

# Kinds by which a change may be found: what a lost barrier or a lost guard shows first depends on the kernel.
UNORDERED = frozenset({"race", "uninitialised"})
OUTSIDE = frozenset({"out-of-bounds", "negative-index", "race"})
DIVERGENT = frozenset({"divergent-barrier"})
RACE = frozenset({"race"})
UNSET = frozenset({"uninitialised"})

Change = Callable[[ast.FunctionDef], Iterator[tuple[str, ast.FunctionDef, frozenset[str]]]]


@dataclass(frozen=True)
class Mutant:
    """A changed kernel. `name`: of its origin, the change, and which of the places where it can be made."""

    name: str
    origin: str
    text: str
    kinds: frozenset[str]


def _is_call(node: ast.AST, *names: str) -> bool:
    """Whether a statement calls one of these words of numba.cuda."""
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and ast.unparse(call.func) in {f"cuda.{name}" for name in names}


def _each(tree: ast.FunctionDef, wanted: Callable[[ast.AST], bool], change: Callable[[ast.AST], ast.AST | None]):
    """A copy of a function for each node that is wanted, that node changed, or gone."""
    for number, node in enumerate(node for node in ast.walk(tree) if wanted(node)):
        made = copy.deepcopy(tree)
        target = [each for each in ast.walk(made) if wanted(each)][number]
        yield node, _Replaced(target, change(target)).visit(made)


class _Replaced(ast.NodeTransformer):
    def __init__(self, target: ast.AST, by: ast.AST | None) -> None:
        self.target, self.by = target, by

    def visit(self, node: ast.AST) -> ast.AST | None:
        if node is self.target:
            return self.by
        node = self.generic_visit(node)
        if hasattr(node, "body") and isinstance(node.body, list) and not node.body:
            node.body = [ast.Pass()]
        return node


def without_a_barrier(tree: ast.FunctionDef):
    for _, made in _each(tree, lambda node: isinstance(node, ast.Expr) and _is_call(node, "syncthreads"), _gone):
        yield "no_barrier", made, UNORDERED


def without_a_warp_barrier(tree: ast.FunctionDef):
    for _, made in _each(tree, lambda node: isinstance(node, ast.Expr) and _is_call(node, "syncwarp"), _gone):
        yield "no_syncwarp", made, UNORDERED


def without_a_fence(tree: ast.FunctionDef):
    for _, made in _each(tree, lambda node: isinstance(node, ast.Expr) and _is_call(node, "threadfence"), _gone):
        yield "no_fence", made, RACE


def without_an_atomic(tree: ast.FunctionDef):
    def plain(node: ast.AST) -> ast.AST:
        array, index, value = map(ast.unparse, node.value.args)
        return ast.parse(f"{array}[{index}] += {value}").body[0]

    for _, made in _each(tree, lambda node: isinstance(node, ast.Expr) and _is_call(node, "atomic.add"), plain):
        yield "no_atomic", made, RACE


def barrier_in_a_branch(tree: ast.FunctionDef):
    def branched(node: ast.AST) -> ast.AST:
        made = ast.parse("if cuda.threadIdx.x % 3 != 1:\n    pass").body[0]
        made.body = [node]
        return made

    words = ("syncthreads", "syncwarp")
    for _, made in _each(tree, lambda node: isinstance(node, ast.Expr) and _is_call(node, *words), branched):
        yield "branched_barrier", made, DIVERGENT


def early_return(tree: ast.FunctionDef):
    """One thread returns at the beginning, in kernels where threads wait for each other."""
    if any(_is_call(node, "syncthreads", "syncwarp", "syncthreads_count") for node in ast.walk(tree)):
        made = copy.deepcopy(tree)
        made.body.insert(0, ast.parse("if cuda.threadIdx.x == 5:\n    return").body[0])
        yield "early_return", made, DIVERGENT


def _guards(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt) and _is_extent(node.comparators[-1])


def _is_extent(node: ast.AST) -> bool:
    return ast.unparse(node).endswith((".size", "shape[0]", "shape[1]"))


def without_a_guard(tree: ast.FunctionDef):
    for _, made in _each(tree, _guards, lambda node: ast.Constant(True)):
        yield "no_guard", made, OUTSIDE


def guard_off_by_one(tree: ast.FunctionDef):
    def loosened(node: ast.Compare) -> ast.AST:
        return ast.Compare(node.left, [*node.ops[:-1], ast.LtE()], node.comparators)

    for _, made in _each(tree, _guards, loosened):
        yield "loose_guard", made, OUTSIDE


def _is_shared_store(tree: ast.FunctionDef) -> Callable[[ast.AST], bool]:
    named = {
        node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_call(node.value, "shared.array", "local.array")
    }

    def stores(node: ast.AST) -> bool:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        return isinstance(target, ast.Subscript) and ast.unparse(target.value) in named

    return stores


def one_thread_does_not_fill(tree: ast.FunctionDef):
    """One thread leaves its cell of shared memory unset: the first store to each array alone."""

    def skipped(node: ast.AST) -> ast.AST:
        made = ast.parse("if cuda.threadIdx.x != 3:\n    pass").body[0]
        made.body = [node]
        return made

    done = set()
    for node, made in _each(tree, _is_shared_store(tree), skipped):
        name = ast.unparse(node.targets[0].value)
        if name not in done:
            done.add(name)
            yield "unfilled", made, UNSET


def shared_too_small(tree: ast.FunctionDef):
    """A shared array with fewer cells: its last are outside."""

    def halved(node: ast.Call) -> ast.AST:
        shape = ast.parse(
            "(4, 4)" if "(" in ast.unparse(node.args[0] if node.args else node.keywords[0].value) else "1"
        )
        arguments = [shape.body[0].value, *(node.args[1:] or [node.keywords[-1].value])]
        return ast.Call(node.func, arguments, [])

    def wanted(node: ast.AST) -> bool:
        if not _is_call(node, "shared.array") or isinstance(node, ast.Expr):
            return False
        shape = ast.unparse(node.args[0] if node.args else node.keywords[0].value)
        return shape not in ("0", "1")

    for _, made in _each(tree, wanted, halved):
        yield "small_shared", made, OUTSIDE


def all_write_the_first(tree: ast.FunctionDef):
    """A store by each thread to its own cell goes to the first one."""

    def moved(node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        index = "(0, 0)" if isinstance(target.slice, ast.Tuple) else "0"
        place = ast.Subscript(target.value, ast.parse(index).body[0].value, ast.Store())
        return ast.Assign([place], node.value)

    def wanted(node: ast.AST) -> bool:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        is_out = isinstance(target, ast.Subscript) and ast.unparse(target.value) in ("out", "c", "y")
        return is_out and ast.unparse(target.slice) not in ("0", "()", "cuda.blockIdx.x")

    for _, made in _each(tree, wanted, moved):
        yield "one_cell", made, RACE


def _gone(node: ast.AST) -> None:
    return None


CHANGES: tuple[Change, ...] = (
    without_a_barrier,
    without_a_warp_barrier,
    without_a_fence,
    without_an_atomic,
    barrier_in_a_branch,
    early_return,
    without_a_guard,
    guard_off_by_one,
    one_thread_does_not_fill,
    shared_too_small,
    all_write_the_first,
)


def mutants() -> list[Mutant]:
    """Every change at every place of every kernel."""
    made = []
    for origin, (kernel, *_) in TUTORIALS.items():
        tree = ast.parse(inspect.getsource(kernel.py_func)).body[0]
        count = {}
        for change in CHANGES:
            for what, changed, kinds in change(tree):
                number = count[what] = count.get(what, 0) + 1
                changed.name = f"{origin}_{what}_{number}"
                text = ast.unparse(ast.fix_missing_locations(changed))
                made.append(Mutant(changed.name, origin, text, kinds))
    return made


def loaded(made: list[Mutant], folder: Path) -> ModuleType:
    """All of them in one file, loaded."""
    head = "from numba import cuda\nfrom tests.sanitizer.numba_cuda.tutorials import *\n"
    file = folder / "mutants_of_tutorials.py"
    file.write_text("\n\n".join([head, *(mutant.text for mutant in made)]) + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
