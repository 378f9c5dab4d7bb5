"""Mutants of the correct kernels in Triton, each with what its change must be found as, by construction."""

from __future__ import annotations

import ast
import copy
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.sanitizer.triton import tutorials, tutorials_atomics

OUTSIDE = frozenset({"out-of-bounds", "negative-index", "race", "written-twice"})  # past a row is in the next one
MEET = frozenset({"race", "written-twice", "unwritten"})
RACE = frozenset({"race", "written-twice"})
UNWRITTEN = frozenset({"unwritten"})
UNSET = frozenset({"uninitialised"})
SHIFTED = OUTSIDE | UNWRITTEN

Made = Iterator[tuple[str, ast.FunctionDef, frozenset[str]]]
_MOVES = ("load", "store")  # what an atomic adds where it is not masked need not lie outside


@dataclass(frozen=True)
class Mutant:
    """A changed kernel. `name`: of its origin, the change, and which of the places where it can be made."""

    name: str
    text: str
    kinds: frozenset[str]


def _is_call(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {f"tl.{name}" for name in names}


def _masked(node: ast.AST) -> bool:
    return _is_call(node, *_MOVES) and any(each.arg == "mask" for each in node.keywords)


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
        return self.by if node is self.target else self.generic_visit(node)


def _expression(text: str) -> ast.expr:
    return ast.parse(text).body[0].value


def without_a_mask(tree: ast.FunctionDef) -> Made:
    def bare(node: ast.Call) -> ast.AST:
        return ast.Call(node.func, node.args, [each for each in node.keywords if each.arg not in ("mask", "other")])

    for _, made in _each(tree, _masked, bare):
        yield "no_mask", made, OUTSIDE


def _bounds(tree: ast.FunctionDef) -> Callable[[ast.AST], bool]:
    """Comparisons of offsets with a size, in the mask of a load or a store."""
    calls = [node for node in ast.walk(tree) if _masked(node)]
    masks = [each.value for node in calls for each in node.keywords if each.arg == "mask"]
    masks += [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {ast.unparse(each) for each in masks}
    ]
    places = {(node.lineno, node.col_offset) for mask in masks for node in ast.walk(mask) if hasattr(node, "lineno")}

    def wanted(node: ast.AST) -> bool:
        is_size = isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) in ("n", "m", "k", "s")
        return is_size and isinstance(node.ops[0], ast.Lt) and (node.lineno, node.col_offset) in places

    return wanted


def loose_mask(tree: ast.FunctionDef) -> Made:
    def loosened(node: ast.Compare) -> ast.AST:
        return ast.Compare(node.left, [ast.LtE()], node.comparators)

    for _, made in _each(tree, _bounds(tree), loosened):
        yield "loose_mask", made, OUTSIDE


def wrong_bound(tree: ast.FunctionDef) -> Made:
    """The mask compares with a size that is too large, as where padding was counted."""

    def widened(node: ast.Compare) -> ast.AST:
        return ast.Compare(node.left, node.ops, [_expression(f"{ast.unparse(node.comparators[0])} + 5")])

    for _, made in _each(tree, _bounds(tree), widened):
        yield "wrong_bound", made, OUTSIDE


def tight_mask(tree: ast.FunctionDef) -> Made:
    """The last cell is masked away from a store."""

    def narrowed(node: ast.Call) -> ast.AST:
        mask = next(each for each in node.keywords if each.arg == "mask")
        others = [each for each in node.keywords if each.arg != "mask"]
        offset = ast.unparse(node.args[0]).partition(" + ")[2]
        last = _expression(f"({ast.unparse(mask.value)}) & ({offset} != 3)")
        return ast.Call(node.func, node.args, [ast.keyword("mask", last), *others])

    def wanted(node: ast.AST) -> bool:
        return (
            _masked(node) and _is_call(node, "store") and ast.unparse(node.args[0]).startswith(("out +", "out_ptr +"))
        )

    for _, made in _each(tree, wanted, narrowed):
        yield "tight_mask", made, UNWRITTEN


def without_an_atomic(tree: ast.FunctionDef) -> Made:
    def plain(node: ast.Expr) -> ast.AST:
        call = node.value
        pointer, value = map(ast.unparse, call.args[:2])
        mask = next((f", mask={ast.unparse(each.value)}" for each in call.keywords if each.arg == "mask"), "")
        return ast.parse(f"tl.store({pointer}, tl.load({pointer}{mask}) + {value}{mask})").body[0]

    def wanted(node: ast.AST) -> bool:
        return isinstance(node, ast.Expr) and _is_call(node.value, "atomic_add", "atomic_max")

    for _, made in _each(tree, wanted, plain):
        yield "no_atomic", made, RACE


def without_a_lock(tree: ast.FunctionDef) -> Made:
    def wanted(node: ast.AST) -> bool:
        return isinstance(node, ast.While) and "atomic" in ast.unparse(node.test)

    for _, made in _each(tree, wanted, lambda node: ast.Pass()):
        yield "no_lock", made, RACE


def _stores(tree: ast.FunctionDef) -> bool:
    """Whether it writes otherwise than by atomics, which may meet."""
    text = ast.unparse(tree)
    return "tl.store(" in text or ".store(" in text


def one_program(tree: ast.FunctionDef) -> Made:
    """Every program takes itself for the first one."""
    if _stores(tree):
        made = copy.deepcopy(tree)
        for node in [each for each in ast.walk(made) if _is_call(each, "program_id")]:
            made = _Replaced(node, ast.Constant(0)).visit(made)
        yield "one_program", made, MEET | UNSET


def overlapping(tree: ast.FunctionDef) -> Made:
    """Blocks begin half a block after each other."""

    def halved(node: ast.BinOp) -> ast.AST:
        return ast.BinOp(node.left, node.op, _expression("(BLOCK // 2)"))

    def wanted(node: ast.AST) -> bool:
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        return is_product and ast.unparse(node.right) == "BLOCK" and "program_id" in ast.unparse(node.left)

    for _, made in _each(tree, wanted, halved) if _stores(tree) else ():
        yield "overlapping", made, MEET


def shifted_store(tree: ast.FunctionDef) -> Made:
    """A store is one cell off."""

    def moved(node: ast.Call) -> ast.AST:
        return ast.Call(node.func, [_expression(f"{ast.unparse(node.args[0])} + 1"), *node.args[1:]], node.keywords)

    def wanted(node: ast.AST) -> bool:
        is_plain = _is_call(node, "store") and not any(each.arg == "boundary_check" for each in node.keywords)
        return is_plain and ast.unparse(node.args[0]).startswith("out")

    for _, made in _each(tree, wanted, moved):
        yield "shifted", made, SHIFTED


def shifted_load(tree: ast.FunctionDef) -> Made:
    """A load begins before its row."""

    def moved(node: ast.Call) -> ast.AST:
        return ast.Call(node.func, [_expression(f"{ast.unparse(node.args[0])} - 1"), *node.args[1:]], node.keywords)

    def wanted(node: ast.AST) -> bool:
        return _is_call(node, "load") and ast.unparse(node.args[0]).startswith(("x +", "x_ptr +", "q +"))

    for _, made in _each(tree, wanted, moved):
        yield "early_load", made, OUTSIDE


def without_a_tail(tree: ast.FunctionDef) -> Made:
    """The grid has no program for the last cells of an output that holds nothing before."""
    text = ast.unparse(tree.decorator_list[0])
    if "init=" in text or "updates=" in text:
        return
    for old, new in (
        ("launch=programs", "launch=lambda n, BLOCK: (n // BLOCK,)"),
        ("triton.cdiv(m, BLOCK)", "m // BLOCK"),
    ):
        if old in text:
            made = copy.deepcopy(tree)
            made.decorator_list[0] = _expression(text.replace(old, new))
            yield "no_tail", made, UNWRITTEN


def unset(tree: ast.FunctionDef) -> Made:
    """What is merged into holds nothing before."""
    made = copy.deepcopy(tree)
    call = made.decorator_list[0]
    kept = [each for each in call.keywords if each.arg != "init"]
    if len(kept) < len(call.keywords):
        call.keywords = kept
        yield "unset", made, UNSET


CHANGES = (
    without_a_mask,
    loose_mask,
    wrong_bound,
    tight_mask,
    without_an_atomic,
    without_a_lock,
    one_program,
    overlapping,
    shifted_store,
    shifted_load,
    without_a_tail,
    unset,
)


def mutants(module: ModuleType) -> list[Mutant]:
    """Every change at every place of every kernel of a file of tutorials."""
    made = []
    for tree in ast.parse(inspect.getsource(module)).body:
        if not isinstance(tree, ast.FunctionDef) or ".kernel(" not in ast.unparse(tree.decorator_list[:1] or [tree]):
            continue
        count: dict[str, int] = {}
        origin = tree.name
        for change in CHANGES:
            for what, changed, kinds in change(tree):
                number = count[what] = count.get(what, 0) + 1
                changed.name = f"{origin}_{what}_{number}"
                made.append(Mutant(changed.name, ast.unparse(ast.fix_missing_locations(changed)), kinds))
    return made


def loaded(module: ModuleType, made: list[Mutant], folder: Path) -> ModuleType:
    """A file of tutorials with these mutants below, loaded."""
    file = folder / f"mutants_of_{module.__name__.rpartition('.')[2]}.py"
    file.write_text("\n\n".join([inspect.getsource(module), *(each.text for each in made)]) + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


MODULES = (tutorials, tutorials_atomics)
