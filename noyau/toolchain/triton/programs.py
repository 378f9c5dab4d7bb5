"""The programs of a grid, as Triton's interpreter runs them: their rewritten text, and their order."""

import ast
import builtins
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Protocol

import numpy as np

from noyau.errors import UnansweredError, UnsupportedError

_MEANINGS = "_noyau_meanings"  # a free variable of each function that was rewritten
_LEFT, _RIGHT = "_noyau_left", "_noyau_right"
_PYTHONS = ("min", "max")  # builtins of Python for which the compiler has its own meaning


class Meanings(Protocol):
    """The operations that a rewritten function calls, and the names that it resolves differently from Python."""

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
        """The replacement of a global name's value, or None to keep it."""


def rewritten(function: FunctionType, meanings: Meanings, methods: frozenset[str]) -> FunctionType:
    """The function with Triton's meanings and its own line numbers; unchanged without a text. `methods`: of tensors."""
    tree = _tree_of(function)
    if tree is None:
        return function
    scope = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    modules = frozenset(name for name, value in scope.items() if isinstance(value, ModuleType))
    # The names that the function binds
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
    """The code of a function with some free names."""
    arguments = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
    outer = ast.FunctionDef("_noyau_outer", arguments, [tree], [])
    vars(outer)["type_params"] = []  # of Python 3.12
    code = compile(ast.fix_missing_locations(ast.Module([outer], [])), file, "exec")
    for name in ("_noyau_outer", tree.name):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)
    return code


class _Rewriter(ast.NodeTransformer):
    """A rewriter of constructs that Triton's compiler reads differently. `modules`: names whose attributes stay."""

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
        if "static_range" in ast.dump(node.iter):  # the loop is unrolled
            return node
        node.iter = ast.copy_location(_call("count", node.iter), node.iter)
        return [*(ast.copy_location(each, node) for each in carried), node]

    def visit_While(self, node: ast.While) -> Any:
        carried = list(_carried_tensors(node))
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(_call("turn")), node.body[0]))
        return [*(ast.copy_location(each, node) for each in carried), node]


def _carried_tensors(loop: ast.For | ast.While) -> Iterator[ast.stmt]:
    """Statements that convert a number to a tensor if a loop assigns to its name and it is bound before the loop."""
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
    """A value that is evaluated on demand; with an assignment expression it is evaluated at once, in its scope."""
    body, none = value, ast.arguments([], [], None, [], [], None, [])
    if not any(isinstance(node, ast.NamedExpr) for node in ast.walk(value)):
        return ast.copy_location(ast.Lambda(none, body), value)
    one = ast.arguments([], [ast.arg("_noyau_value")], None, [], [], None, [value])
    return ast.copy_location(ast.Lambda(one, _load("_noyau_value")), value)


Place = tuple[int, int, int]
PATIENCE = 1000  # rounds of loops after which a program yields to others
_BATCH = 31  # programs that run as one batch, until the size of their blocks is known
_CELLS = 1 << 16  # then the largest blocks of a batch have about so many cells, which fit in a core's cache
_NARROWEST, _WIDEST, _MOST_CELLS = 3, 1000, 1 << 21
_FEWEST = 8  # the fewest programs of a grid that runs in batches
_MOST_WAITING = 64  # the most programs that wait at once
_TURNS = 100  # turns of each waiting program in which none ends
_SPINNING = "programs wait for one another, and none makes progress"
_ELSEWHERE = f"; check it where there is a GPU, with --sanitizer, or with at most {_MOST_WAITING} programs"


class ApartError(Exception):
    """Programs of a batch diverge. `parts`: for each way the numbers of its programs in the batch."""

    def __init__(self, parts: Sequence[Sequence[int]]) -> None:
        self.parts = parts


class Batch:
    """Programs that run as one. The cells of a block then have a leading axis, of as many as there are programs, or of
    1 if all hold the same; no extent of a block equals that number, so that the axis is never mistaken.

    `size`: the number of programs, 0 while programs run one by one; `axes`: 1 or 0; `cells`: of the largest block of
    one program; `undo`: rolls back their stores."""

    def __init__(self) -> None:
        self.size = self.axes = 0
        self.cells = 1
        self.undo: list[Callable[[], object]] = []

    @property
    def width(self) -> int:
        """The number of programs that should run as one: no power of two, as extents of blocks are."""
        return min(_WIDEST, max(_NARROWEST, _CELLS // self.cells - 1))

    def meet(self, block: np.ndarray) -> None:
        """Note the size of a block. ApartError if it is much larger than the blocks before."""
        self.cells = max(self.cells, block.size // len(block))
        if block.size > _MOST_CELLS and self.size > _BATCH:
            numbers, width = range(self.size), self.width
            raise ApartError([numbers[start : start + width] for start in range(0, self.size, width)])

    def one_value(self, cells: np.ndarray) -> Any:
        """The value of a tensor of one cell. ApartError if it differs between programs of the batch."""
        if cells.size > 1 and (cells != cells.flat[0]).any():
            values, first = np.unique(cells, return_index=True)
            raise ApartError([np.flatnonzero(cells == value).tolist() for value in values[np.argsort(first)]])
        return cells.flat[0].item()


BATCH = Batch()


class Programs:
    """The programs of a grid. `enter`: called before a program or a batch begins or resumes, with the places of its
    programs along each axis; `run`: runs a program or a batch; `settle`: ends a batch, which is kept or rolled back."""

    def __init__(
        self, grid: Place, enter: Callable[[Any], object], run: Callable[[], object], settle: Any = None
    ) -> None:
        self.enter, self.run, self.settle = enter, run, settle
        x, y, z = map(range, grid)
        self.places: Iterator[Place] = product(x, y, z)
        self.width = _BATCH if settle is not None and prod(grid) >= _FEWEST else 1
        self.slowest = 0  # the axis that varies slowest; -1 fixes the order
        self.groups: list[list[Place]] = []  # programs taken from the places that run next
        self.waiting: deque[tuple[Place, threading.Semaphore]] = deque()
        self.rounds = self.idle = 0
        BATCH.cells = 1
        self.has_more, self.place = True, (0, 0, 0)
        self.fault: BaseException | None = None
        self.done = threading.Event()

    def __call__(self) -> None:
        """Run all programs; raise an exception of one. UnansweredError if all remaining programs wait for one another
        without end, UnsupportedError if too many wait for others to begin."""
        self.go_on()
        self.done.wait()
        if self.fault is not None:
            raise self.fault

    def go_on(self) -> None:
        """Run the programs that have not begun, then those that wait."""
        try:
            while self.fault is None and (group := self.next_group()):
                if len(group) > 1:
                    self.run_batch(group)
                else:
                    self.begin(group[0])
                    self.run()
                self.idle = 0
            self.has_more = False
        except BaseException as fault:  # noqa: BLE001  it is raised in the thread of the caller
            self.fault = self.fault or fault
        self.hand_over()

    def next_group(self) -> list[Place]:
        """The programs that run next: one, or a number that no extent of a block equals."""
        group = self.groups.pop() if self.groups else list(islice(self.places, self.width))
        if len(group) > 1 and len(group).bit_count() == 1:
            self.groups.append([group.pop()])
        return group

    def run_batch(self, group: list[Place]) -> None:
        """Run programs as one; if they diverge, their stores are rolled back, and they run again in parts."""
        parts: Sequence[Sequence[int]] = []
        BATCH.size, BATCH.axes, self.rounds = len(group), 1, 0
        try:
            axes = np.array(group, np.int32).T
            self.enter([axis[:1] if (axis == axis[0]).all() else axis for axis in axes])
            self.run()
        except ApartError as apart:
            parts = apart.parts
            self.order_by([[group[number] for number in part] for part in parts])
        except Exception:  # noqa: BLE001  the failing program raises it again
            parts, self.slowest = [[number] for number in range(len(group))], -1
        finally:
            self.settle(not parts)
            BATCH.size = BATCH.axes = 0
        self.width = BATCH.width
        self.groups += [[group[number] for number in part] for part in reversed(parts)]

    def order_by(self, parts: Sequence[Sequence[Place]]) -> None:
        """Reorder programs so that those that take the same way are neighbours, if an axis of the grid tells."""
        places = [[place[axis] for part in parts for place in part] for axis in range(3)]
        apart = [axis for axis in range(3) if all(len({place[axis] for place in part}) == 1 for part in parts)]
        axis = next((axis for axis in apart if len(set(places[axis])) > 1), 0)
        if self.slowest == 0 != axis:
            self.places, self.slowest = iter(sorted(self.places, key=lambda place: place[axis])), axis

    def begin(self, place: Place) -> None:
        self.place, self.rounds = place, 0
        self.enter(place)

    def hand_over(self) -> None:
        """Resume the next waiting program, if any: exactly one thread runs at a time."""
        if self.waiting:
            self.waiting.popleft()[1].release()
        else:
            self.done.set()

    def turn(self) -> None:
        """Yield to other programs after many rounds of a loop; new ones begin in a thread. Called in each round."""
        self.rounds += 1
        if self.rounds < PATIENCE:
            return
        if BATCH.size:
            raise UnsupportedError(_SPINNING)
        self.rounds, place, own = 0, self.place, threading.Semaphore(0)
        self.idle += 1
        if self.idle > _TURNS * (len(self.waiting) + 1) and (self.waiting or self.has_more or self.idle > 10 * _TURNS):
            if self.has_more:  # the awaited program may not have begun
                raise UnsupportedError(_SPINNING + _ELSEWHERE)
            raise UnansweredError(f"does not end: its {_SPINNING}")
        is_new = self.has_more and len(self.waiting) < _MOST_WAITING
        if not is_new and not self.waiting:
            return
        self.waiting.append((place, own))
        if is_new:
            threading.Thread(target=contextvars.copy_context().run, args=(self.go_on,), daemon=True).start()
        else:
            self.hand_over()
        own.acquire()
        if self.fault is not None:
            raise self.fault
        self.begin(place)
