"""Mutants of right kernels with prange, each with the kinds that it must be found with, by construction."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from tests.sanitizer.numba import kernels

RACE, OUTSIDE = {"race", "written-twice"}, {"out-of-bounds"}
UNWRITTEN = {"unwritten", "uninitialised"}  # of an output, or of scratch that is read then


@dataclass(frozen=True)
class Mutant:
    name: str
    kernel: Any
    arrays: tuple[np.ndarray, ...]
    outputs: tuple[int, ...]
    kinds: frozenset[str]


# Mutants that touch nothing that they should not, by name, with the reason.
EQUIVALENT = {
    "column sums: the last iteration is dropped, loop 0": "the sums lack a row, but every cell is written",
    "largest: the last iteration is dropped, loop 0": "a reduction over fewer cells touches none that it should not",
    "sum: the last iteration is dropped, loop 0": "a reduction over fewer cells touches none that it should not",
    "private histograms: the last iteration is dropped, loop 0": "a part stays 0: values are wrong, accesses are not",
    "permutation: the last iteration is dropped, loop 0": "the cell that it leaves is written after the loop",
}


def is_prange(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("prange", "numba.prange")


def loops(tree: ast.AST) -> list[ast.For]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.For) and is_prange(node.iter)]


def outermost(tree: ast.AST) -> list[ast.For]:
    inner = {id(each) for loop in loops(tree) for each in loops(ast.Module(loop.body, []))}
    return [loop for loop in loops(tree) if id(loop) not in inner]


def accesses(loop: ast.For, kind: type[ast.expr_context]) -> list[ast.Subscript]:
    """Those of a kind with the loop's own index in them."""
    found = [node for node in ast.walk(loop) if isinstance(node, ast.Subscript) and isinstance(node.ctx, kind)]
    return [node for node in found if loop.target.id in {getattr(each, "id", "") for each in ast.walk(node.slice)}]


def stores(loop: ast.For) -> list[ast.Subscript]:
    return accesses(loop, ast.Store)


def loads(loop: ast.For) -> list[ast.Subscript]:
    """Reads at the very index of an iteration."""
    own = loop.target.id
    return [node for node in accesses(loop, ast.Load) if ast.unparse(node.slice).strip("()").split(",")[0] == own]


def renamed(node: ast.expr, name: str, text: str) -> ast.expr:
    """An index in which a name stands for something else."""

    class Change(ast.NodeTransformer):
        def visit_Name(self, each: ast.Name) -> ast.expr:
            return ast.parse(text, mode="eval").body if each.id == name else each

    return Change().visit(deepcopy(node))


def changed(tree: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef, set[str]]]:
    """Each change of a function, with the kinds that it has for certain."""
    for number, _ in enumerate(outermost(tree)):
        for what, text, kinds in (
            ("the last iteration is dropped", "{} - 1", UNWRITTEN),
            ("one iteration too many", "{} + 1", OUTSIDE),
            ("twice the iterations", "2 * {}", OUTSIDE),
        ):
            made = deepcopy(tree)
            bounds = outermost(made)[number].iter.args
            bounds[-1] = ast.parse(text.format(f"({ast.unparse(bounds[-1])})"), mode="eval").body
            yield f"{what}, loop {number}", made, kinds
        for place, _ in enumerate(stores(outermost(tree)[number])):
            for what, text, kinds in (
                ("two iterations share a cell", "{} // 2", RACE | {"uninitialised"}),
                ("all iterations share a cell", "0 * {}", RACE | {"uninitialised"}),
                ("the write is one too far", "{} + 1", OUTSIDE | UNWRITTEN),
            ):
                made = deepcopy(tree)
                loop = outermost(made)[number]
                target = stores(loop)[place]
                target.slice = renamed(target.slice, loop.target.id, text.format(loop.target.id))
                yield f"{what}, loop {number}, write {place}", made, kinds
        for place, _ in enumerate(loads(outermost(tree)[number])):
            made = deepcopy(tree)
            loop = outermost(made)[number]
            target = loads(loop)[place]
            target.slice = renamed(target.slice, loop.target.id, f"{loop.target.id} + 1")
            yield f"the read is one too far, loop {number}, read {place}", made, OUTSIDE
        yield from in_a_cell(tree, number)
        yield from without_start(tree, number)
    yield from unset(tree)


def unset(tree: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef, set[str]]]:
    """Zeros that are summed on are left unset instead."""
    for place, _ in enumerate(zeros(tree)):
        made = deepcopy(tree)
        zeros(made)[place].attr = "empty"
        yield f"zeros {place} are unset", made, {"uninitialised"}


def zeros(tree: ast.AST) -> list[ast.Attribute]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "zeros"]


def in_a_cell(tree: ast.FunctionDef, number: int) -> Iterator[tuple[str, ast.FunctionDef, set[str]]]:
    """The iterations also count themselves in one cell, or write their number there."""
    for what, text in (
        ("count", "counter[0] += 1"),
        ("sign", "counter[0] = {0}"),
        ("look back", "counter[{0}] = counter[{0} - 1]"),
    ):
        made = deepcopy(tree)
        loop = outermost(made)[number]
        loop.body.append(ast.parse(text.format(loop.target.id)).body[0])
        made.body.insert(0, ast.parse("counter = np.zeros(100)").body[0])
        yield f"iterations {what}, loop {number}", made, {"race"}


def without_start(tree: ast.FunctionDef, number: int) -> Iterator[tuple[str, ast.FunctionDef, set[str]]]:
    """What an iteration sets to begin with is set before the loop instead: iterations share it."""
    for place, statement in enumerate(outermost(tree)[number].body):
        updated = {
            node.target.id
            for node in ast.walk(outermost(tree)[number])
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        }
        names = [each.id for each in getattr(statement, "targets", []) if isinstance(each, ast.Name)]
        if names and names[0] in updated:
            made = deepcopy(tree)
            moved = outermost(made)[number].body.pop(place)
            body = made.body
            body.insert(next(k for k, each in enumerate(body) if each is outermost(made)[number]), moved)
            yield f"{names[0]} is set before the loop, loop {number}", made, {"race"}


def mutants() -> tuple[list[Mutant], set[str]]:
    """Every mutant of every right kernel, and the names of those that are equivalent."""
    found, left_out = [], set()
    for name, (kernel, arrays, outputs) in kernels.RIGHT.items():
        tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.py_func))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        tree.decorator_list = []
        if not kernel.targetoptions.get("parallel") or name == "marked":
            continue
        for what, made, kinds in changed(tree):
            full = f"{name}: {what}"
            if full in EQUIVALENT:
                left_out.add(full)
            else:
                found.append(Mutant(full, compiled(made, full), arrays, outputs, frozenset(kinds)))
    return found, left_out


def compiled(tree: ast.FunctionDef, name: str) -> Any:
    """A function of Numba of a tree, with a source that can be looked up."""
    text, file = ast.unparse(ast.fix_missing_locations(tree)) + "\n", f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = dict(vars(kernels))
    exec(compile(text, file, "exec"), scope)
    return njit(parallel=True)(scope[tree.name])
