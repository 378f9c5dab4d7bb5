"""Rows side by side, one in each lane: folds of folds, and rows of a few cells, one of which fills no vector.

Where folds of folds have few rows, the values of the outer fold are side by side; long inner folds are in lanes. Short
rows whose cells are words go through memory of the thread transposed; where a map does nothing once a row, rows are one
run of cells. Sizes choose the version. docs/notes/performance.md."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds as cpu_folds
from noyau.compiler.schedules.cpu.strategies import keep_rows
from noyau.compiler.schedules.cpu.tiles import CELL, side_by_side
from noyau.compiler.schedules.primitives import Statements, variables_of
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike, product
from noyau.ir.walk import (
    all_dims,
    every_statement,
    fold_of,
    folds_in,
    is_fold,
    loads_of,
    rewrite,
    substitute,
    targets_of,
)

SHORT = 64  # values of an inner fold that are added one by one in float32: NumPy adds 16 in each of its partial sums
TILE = 32  # rows, or values of an outer fold, side by side: gcc 12 unrolls loops over 16, and does not vectorise them


def folds_of_folds(kernel: ir.Kernel) -> ir.Kernel | None:
    """Schedule a kernel whose only launch computes numbers for each row by folds whose values are folds: a launch for
    each version that its sizes may choose. None for any other kernel."""
    (launch,) = kernel.launches
    rows, body = primitives.chain(primitives.sink(primitives.coalesce(launch.body)))
    inner = [fold for let in cpu_folds.lets_of_folds(body) for fold in folds_in(fold_of(let).body)]
    ordered = any(map(cpu_folds.is_ordered, folds_in(body)))
    if not rows or not inner or ordered or any(isinstance(s, ir.Loop) for s in body):
        return None
    try:
        short = ir.all_of(_at_most(product(n for _, n in fold.loops), Dim.of(SHORT)) for fold in inner)
        many = _at_most(Dim.of(TILE), rows[-1].extent)
        parts, ways = _passes(body), list[tuple[ir.Condition, Statements]]()
        if _lie_beside(parts, rows):
            ways.append((ir.all_of((short, many)), primitives.bind(_rows_beside(rows, parts), len(rows))))
        few = ir.opposite(many) if ways else True
        for condition, along in ((ir.all_of((short, few)), _values_beside), (ir.opposite(short), _in_turn)):
            ways.append((condition, primitives.bind(primitives.nest(rows, _over(parts, along)), len(rows))))
    except UnsupportedError:
        return None
    launches = [ir.Launch(body, ir.when(condition)) for condition, body in ways if condition is not False]
    return replace(kernel, launches=tuple(launches))


@dataclass(frozen=True, slots=True)
class _Pass:
    """Folds over the same loops, in one pass: each round runs `steps`, which merge into the first cell of each state
    and contain inner folds unchanged."""

    loops: tuple[tuple[str, Dim], ...]
    steps: Statements
    states: tuple[cpu_folds.State, ...]
    results: Statements

    @property
    def memory(self) -> frozenset[str]:
        return frozenset(name for state in self.states for name in state.names)


def _passes(body: Statements) -> list[ir.Statement | _Pass]:
    """The statements of a block, with its folds in as few passes as possible."""
    parts, waiting = list[ir.Statement | _Pass](), list[ir.Let]()
    for statement in cpu_folds.levels(body):
        if waiting and not (is_fold(statement) and cpu_folds.are_alike((*waiting, statement))):
            parts.append(_pass(waiting))
            waiting = []
        if isinstance(statement, ir.Let) and is_fold(statement):
            waiting.append(statement)
        else:
            parts.append(statement)
    return [*parts, _pass(waiting)] if waiting else parts


def _pass(lets: Sequence[ir.Let]) -> _Pass:
    folds = list(map(fold_of, lets))
    loops = folds[0].loops
    states = tuple(cpu_folds.state_of(fold, let.name, wide=True) for fold, let in zip(folds, lets, strict=True))
    steps = []
    for fold, state in zip(folds, states, strict=True):
        same: dict[str, DimLike] = {old: Dim.of(new) for (old, _), (new, _) in zip(fold.loops, loops, strict=True)}
        steps.append(substitute((*fold.body, cpu_folds.merge_into(fold, state, Dim.of(0))), same))
    ends = zip(lets, states, folds, strict=True)
    results = (ir.Let(let.name, state.result(Dim.of(0), fold.dtype), let.origin) for let, state, fold in ends)
    once = cpu_folds.fuse(steps)
    values, stores = ([s for s in once if isinstance(s, ir.Store) is last] for last in (False, True))
    return _Pass(loops, (*values, *stores), states, tuple(results))


# Rows side by side.
def _lie_beside(parts: Sequence[ir.Statement | _Pass], rows: Sequence[ir.Loop]) -> bool:
    """Whether the cells that neighbouring rows read for one value of an outer fold are contiguous."""
    loads = [(load, dict(part.loops)) for part in parts if isinstance(part, _Pass) for load in loads_of(part.steps)]
    moving = (load for load, loops in loads if variables_of(load) & loops.keys())
    return all(primitives.stride_of(load, rows[-1].var) in (Dim.of(0), Dim.of(1)) for load in moving)


def _rows_beside(rows: Sequence[ir.Loop], parts: Sequence[ir.Statement | _Pass]) -> Statements:
    """Run each row in a lane."""
    places = _places(parts, rows)
    body = [statement for load, memory in places.items() for statement in _fill_memory(load, memory, parts)]
    for part in parts:
        if isinstance(part, _Pass):
            steps = rewrite(part.steps, lambda expr: places.get(expr, expr) if isinstance(expr, ir.Load) else expr)
            body += (s for state in part.states for s in (*state.memory(1), state.empty(Dim.of(0))))
            body += (*_around(part.loops, cpu_folds.expand_folds(steps, 1, wide=False)), *part.results)
        else:
            body.append(part)
    return primitives.nest(rows[:-1], (side_by_side(replace(rows[-1], body=tuple(body)), TILE),))


def _places(parts: Sequence[ir.Statement | _Pass], rows: Sequence[ir.Loop]) -> dict[ir.Load, ir.Load]:
    """The loads of inner folds that depend only on the row, each with its place in memory of the thread."""
    around, extents, places = {row.var for row in rows}, _extents(parts), dict[ir.Load, ir.Load]()
    for load in dict.fromkeys(load for part in parts if isinstance(part, _Pass) for load in loads_of(part.steps)):
        own = tuple(variables_of(load) - around)
        if rows[-1].var in variables_of(load) and load.where is None and len(own) == 1 and own[0] in extents:
            places[load] = ir.Load(f"{load.buffer}.{len(places)}", (Dim.of(own[0]),), load.dtype)
    return places


def _extents(parts: Sequence[ir.Statement | _Pass]) -> dict[str, Dim]:
    """The length of each loop of an inner fold, if sizes determine it."""
    folds = [fold for part in parts if isinstance(part, _Pass) for fold in folds_in(part.steps)]
    loops = {name: extent for fold in folds for name, extent in fold.loops}
    return {name: extent for name, extent in loops.items() if not any(n.startswith("#") for n in extent.names)}


def _fill_memory(load: ir.Load, memory: ir.Load, parts: Sequence[ir.Statement | _Pass]) -> Statements:
    """Memory of the thread, filled with the cells that a row reads."""
    (index,) = memory.index
    (name,) = index.names
    extent = _extents(parts)[name]
    fill = ir.Loop(name, extent, ir.Axis.SERIAL, (ir.Store((memory.buffer,), (index,), (load,)),))
    return ir.Alloc(memory.buffer, memory.dtype, (extent,), ir.Space.THREAD), fill


# The values of an outer fold side by side.
def _over(parts: Sequence[ir.Statement | _Pass], tiles: Callable[[_Pass], ir.Loop]) -> Statements:
    """The statements of a row, with the values of each outer fold in tiles; each cell of a tile has a state."""
    body: list[ir.Statement] = []
    for part in parts:
        if isinstance(part, _Pass):
            lane = f"{part.loops[-1][0]}l"
            body += (s for state in part.states for s in state.memory(TILE))
            body += (cpu_folds.over(lane, TILE, state.empty(Dim.of(lane))) for state in part.states)
            body += _around(part.loops[:-1], (tiles(part),))
            body += (s for state in part.states for s in cpu_folds.halves(state, TILE, lane))
            body += part.results
        else:
            body.append(part)
    return tuple(body)


def _values_beside(part: _Pass) -> ir.Loop:
    """Run each value in a lane, including its own fold."""
    (name, extent), steps = part.loops[-1], cpu_folds.expand_folds(part.steps, 1, wide=False)
    return side_by_side(ir.Loop(name, extent, ir.Axis.SERIAL, steps), TILE, part.memory)


def _in_turn(part: _Pass) -> ir.Loop:
    """The values of a tile one by one, each by folds in lanes; then they are taken in side by side. Values without
    folds, as in a pass beside folds of folds, are side by side at once."""
    if not (inner := cpu_folds.lets_of_folds(part.steps)):
        return _values_beside(part)
    (name, extent), last = part.loops[-1], max(map(part.steps.index, inner))
    first, then = part.steps[: last + 1], part.steps[last + 1 :]
    loop, cell = ir.Loop(name, extent, ir.Axis.SERIAL, ()), (Dim.of(CELL),)
    tiles, length, cells = primitives.tile_loop(loop, TILE, f"{name}t", name, f"{name}t_length")
    places = {let.name: ir.Load(f"{let.name}.tile", cell, let.value.dtype) for let in _read_after(first, then)}
    stores = (ir.Store((to.buffer,), to.index, (ir.Var(let, to.dtype),)) for let, to in places.items())
    memory = (ir.Alloc(to.buffer, to.dtype, (Dim.of(TILE),), ir.Space.REGISTER) for to in places.values())
    then = rewrite(then, lambda expr: places.get(expr.name, expr) if isinstance(expr, ir.Var) else expr)
    then = primitives.reindex(then, lambda name, index: cell if name in part.memory else index)
    values = replace(cells, body=(*cpu_folds.expand_folds(first, 0), *stores))
    both = (*length, *memory, values, replace(cells, axis=ir.Axis.LANES, body=then))
    index: dict[str, DimLike] = {name: Dim.of(tiles.var) * TILE + Dim.of(name), CELL: Dim.of(name)}
    return replace(tiles, body=substitute(both, index))


def _read_after(first: Statements, then: Statements) -> list[ir.Let]:
    """The Lets of `first` that `then` reads. UnsupportedError for an index among them."""
    if {s.name for s in first if isinstance(s, ir.Let)} & {name for dim in all_dims(then) for name in dim.names}:
        raise UnsupportedError("an index that is computed is needed in two loops")
    return [s for s in first if isinstance(s, ir.Let) and s.name in cpu_folds.names_in(then)]


# Shared by both versions.
def _around(loops: Iterable[tuple[str, Dim]], body: Statements) -> Statements:
    return primitives.nest([ir.Loop(name, extent, ir.Axis.SERIAL, ()) for name, extent in loops], body)


def _at_most(left: Dim, right: Dim) -> ir.Condition:
    """The condition that one extent is at most another; UnsupportedError where sizes do not determine them."""
    if any(name.startswith("#") for dim in (left, right) for name in dim.names):
        raise UnsupportedError("the length of a fold depends on where it stands")
    return ir.at_most(left, right)


VECTOR, ROWS = 8, 256  # rows that fill a vector, and cells that are added one by one in float32
SIDE_BY_SIDE = 32  # rows, one in each lane
BLOCK, REPEATED = 256, 16  # rows of an item of a map, and how many of them are one run of cells
# The measured break-even points, in cells of a short row: of rows whose lanes read cell by cell, and of transposed
# rows.
CELLS, COSTLY_CELLS, MAP_CELLS = 15, 64, 63
TURNED_CELLS, CHOSEN_CELLS, COSTLY_TURNED_CELLS = 24, 64, 127
CELL_OF_ROWS, ROWS_OF = "#cell_of_rows", ".rows_of_"


def short_rows(kernel: ir.Kernel, *, kept: bool = True) -> ir.Launch | None:
    """A launch of the kernel's one launch for rows of a few cells: `when` is its condition on sizes. None where the
    rows are known to be long, or too few, or where they cannot run in lanes."""
    (launch,) = kernel.launches
    body = primitives.sink(primitives.coalesce(launch.body))
    loops, inner = primitives.chain(body)
    folds = folds_in(body)
    rows = loops if folds else loops[:-1]
    if not rows or any(isinstance(s, ir.Loop) and has_loops(s) for s in inner):
        return None
    inner, run = (inner, None) if folds else ((loops[-1],), _one_run(rows, loops[-1]))
    words, passes = primitives.words_of(kernel), [s.extent for s in every_statement(inner) if isinstance(s, ir.Loop)]
    passes += [product(extent for _, extent in fold.loops) for fold in folds_in(inner)]
    try:
        most = MAP_CELLS if run else _most_cells(inner, rows, words)
        return ir.Launch(run or _beside(rows, inner, words, kept=kept), _are_few(passes, rows[-1].extent, most))
    except UnsupportedError:
        return None


def _most_cells(inner: Statements, rows: Sequence[ir.Loop], words: Collection[str]) -> int:
    """The cells of the longest rows for which lanes pay."""
    costly, folds = any(map(_is_costly, inner)), folds_in(inner)
    if not folds or not {load.buffer for load in loads_of(inner) if rows[-1].var in variables_of(load)} <= {*words}:
        return COSTLY_CELLS if folds and costly else CELLS
    sums = any(fold.monoid == "sum" for fold in folds)
    return COSTLY_TURNED_CELLS if costly else TURNED_CELLS if sums else CHOSEN_CELLS


def rows_across(kernel: ir.Kernel, *, kept: bool = True) -> ir.Launch | None:
    """As `short_rows`, of any length, where neighbouring rows are contiguous, as in a norm over a middle axis."""
    (launch,) = kernel.launches
    rows, inner = primitives.chain(primitives.sink(primitives.coalesce(launch.body)))
    if not rows or not runs_across(inner, rows[-1].var) or any(isinstance(s, ir.Loop) and has_loops(s) for s in inner):
        return None
    try:
        many = _at_most(Dim.of(VECTOR), rows[-1].extent)
        short = all(primitives.is_small(s, ROWS) for s in inner)
        if many is False:
            return None
        words = primitives.words_of(kernel)
        return ir.Launch(_beside(rows, inner, words, kept=kept, wide=not short), ir.when(many))
    except UnsupportedError:
        return None


def runs_across(body: Statements, row: str) -> bool:
    """Whether more loads of folds run along the loop over rows than along the folds."""
    loads = [(load, fold.loops[-1][0]) for fold in folds_in(body) for load in loads_of(fold.body)]
    steps = [(primitives.stride_of(load, row), primitives.stride_of(load, variable)) for load, variable in loads]
    both = [pair for pair in steps if Dim.of(0) not in pair]
    return [across for across, _ in both].count(Dim.of(1)) > [along for _, along in both].count(Dim.of(1))


def _is_costly(statement: ir.Statement) -> bool:
    """Whether a pass over a row computes for longer than its cells take to or from memory."""
    match statement:
        case ir.Let(_, ir.Fold(body=body, value=value)):
            return primitives.is_costly((*body, ir.Let("", value)))
        case ir.Loop(body=body):
            return primitives.is_costly(body)
        case _:
            return False


def has_loops(loop: ir.Loop) -> bool:
    return any(isinstance(s, ir.Loop) for s in every_statement(loop.body))


def _are_few(lengths: Sequence[Dim], rows: Dim, most: int) -> ir.Expr | None:
    """The condition that all passes have at most so many cells, and that there are enough rows: None if it surely
    holds. UnsupportedError if it surely does not, or if passes have several lengths or one that a loop determines."""
    sizes = list(dict.fromkeys(length for length in lengths if length.constant is None))
    long = any((length.constant or 0) > most for length in lengths) or len(sizes) > 1
    count = SIDE_BY_SIDE if rows.constant is None else rows.constant  # known to be 0, too
    if long or count < SIDE_BY_SIDE or any("#" in str(dim) for dim in (*sizes, rows)):
        raise UnsupportedError("its rows are long, or few, or of several lengths")
    few = [ir.at_most(dim, Dim.of(most)) for dim in sizes]
    return ir.when(ir.all_of((*few, ir.at_most(Dim.of(SIDE_BY_SIDE), rows)))) if few else None


def _beside(
    rows: Sequence[ir.Loop], body: Statements, words: frozenset[str], *, kept: bool, wide: bool = False
) -> Statements:
    """Run the rows of the innermost loop side by side, each in a lane; `wide`: as in `expand_folds`."""
    body = _share_inverses(keep_rows(body) if kept else body)
    row = replace(rows[-1], body=cpu_folds.expand_folds(body, 1, wide=wide))
    tiles = side_by_side(replace(row, body=_turn_rows(row, words)), SIDE_BY_SIDE)
    tiles = replace(tiles, body=_in_all_lanes(tiles.body))
    return primitives.bind(primitives.nest(rows[:-1], (tiles,)), len(rows))


def _share_inverses(body: Statements) -> Statements:
    """The statements of a row, for a lane: shares of a sum as products with its inverse, as in `noyau_share_f32`."""
    sums, inverses = {s.name for s in body if isinstance(s, ir.Let)}, dict[str, ir.Let]()

    def change(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Call("divide", (part, ir.Var(name) as whole), to, facts) if (
                name in sums and ir.Assumption.SHARE in facts
            ):
                inverse = ir.Var(f"{name}.inverse", to)
                inverses[name] = ir.Let(inverse.name, ir.Call("divide", (ir.Const(1.0, to), whole), to))
                near = ir.Call("multiply", (part, inverse), to)
                rest = ir.Call("subtract", (part, ir.Call("multiply", (near, whole), to)), to)
                return ir.Call("add", (near, ir.Call("multiply", (rest, inverse), to)), to)
            case _:
                return expr

    return tuple(e for s in rewrite(body, change) for e in (s, inverses.get(getattr(s, "name", ""))) if e is not None)


def _in_all_lanes(body: Statements) -> Statements:
    """The statements of a tile of rows, in which loops over memory of the thread alone run over all lanes of a whole
    tile, for a constant extent keeps states in registers; rows that a tile lacks are 0 where they are copied."""
    memory = {s.name for s in every_statement(body) if isinstance(s, ir.Alloc)}
    loops = [s for s in every_statement(body) if isinstance(s, ir.Loop) and s.axis is ir.Axis.LANES]
    moved = [{e.buffer for e in loads_of(s.body) if s.var in variables_of(e)} | targets_of(s.body) for s in loops]
    whole = [loop for loop, names in zip(loops, moved, strict=True) if names <= memory]
    others = set[str]().union(*(targets_of(loop.body) for loop in loops if loop not in whole)) & memory
    if not isinstance(length := body[0], ir.Let) or not all(ROWS_OF in name for name in others):
        return body
    every, result = Dim.of(SIDE_BY_SIDE), list[ir.Statement]()
    few = primitives.compare("less", Dim.of(length.name), every)
    for s in primitives.change_lanes(body, lambda s: (replace(s, extent=every),) if s in whole else None):
        result.append(s)
        if isinstance(s, ir.Alloc) and ROWS_OF in s.name:
            result.append(ir.If(few, (ir.Zero(s.name, s.dtype, product(s.shape), f"#zero_{s.name}"),)))
    return tuple(result)


def _turn_rows(row: ir.Loop, words: Collection[str]) -> Statements:
    """The statements of a row. Cells that loops read one by one are first copied to memory of the thread, where rows
    will be contiguous, and cells that they write are copied from there: a language may do such loops in registers."""
    names, own = dict[object, str](), dict[ir.Expr, ir.Expr]()
    fills, body = list[ir.Statement](), list[ir.Statement]()
    later = {s.name for s in row.body if isinstance(s, ir.Let)}  # looked-up places are not known before
    for loop in row.body:
        if not isinstance(loop, ir.Loop):
            body.append(loop)
            continue
        cell = (Dim.of(loop.var),)
        steps, after = list[ir.Statement](), list[ir.Statement]()
        for load in dict.fromkeys(loads_of(loop.body)):
            if (
                load.buffer in words
                and load.where is None
                and not later & variables_of(load)
                and _runs_along(load, row, loop)
            ):
                begin = (load.buffer, loop.extent, tuple(dim.replace({loop.var: 0}) for dim in load.index))
                if begin not in names:
                    names[begin] = name = f"{load.buffer}{ROWS_OF}{len(names)}"
                    fills.append(ir.Alloc(name, load.dtype, (loop.extent,), ir.Space.THREAD))
                    fills.append(replace(loop, body=(ir.Store((name,), cell, (load,)),)))
                own[load] = ir.Load(names[begin], cell, load.dtype)
        for s in rewrite(loop.body, lambda expr: own.get(expr, expr)):
            if isinstance(s, ir.Store) and not s.merge and {*s.buffers} <= {*words} and _runs_along(s, row, loop):
                (value,), name = s.values, f"{s.buffers[0]}{ROWS_OF}{len(body)}"
                body.append(ir.Alloc(name, value.dtype, (loop.extent,), ir.Space.THREAD))
                after.append(replace(loop, body=(replace(s, values=(ir.Load(name, cell, value.dtype),)),)))
                s = replace(s, buffers=(name,), index=cell)
            steps.append(s)
        body += [replace(loop, body=tuple(steps)), *after]
    return (*fills, *body)


def _runs_along(access: ir.Load | ir.Store, row: ir.Loop, loop: ir.Loop) -> bool:
    """Whether an access is contiguous along a loop over a row, and not between neighbouring rows."""
    step = primitives.stride_of(access, row.var)
    beside = step in (Dim.of(0), Dim.of(1)) or any(name.startswith("#") for name in step.names)
    return not beside and primitives.stride_of(access, loop.var) == Dim.of(1)


def _one_run(rows: Sequence[ir.Loop], cells: ir.Loop) -> Statements | None:
    """The cells of several rows as one run: values that depend on the column alone are repeated in memory of the
    thread, once a block of rows. None where a value depends on the row alone."""
    row, length = rows[-1], cells.extent
    own = [load for load in loads_of(cells.body) if load.where is None and variables_of(load) == {cells.var}]
    loads = dict.fromkeys(own)  # invariant in the row
    names: dict[ir.Expr, str] = {load: f"{load.buffer}.rows{at or ''}" for at, load in enumerate(loads)}
    whole = Dim.of(f"{row.var}t") * BLOCK + Dim.of(f"{row.var}r") * REPEATED + Dim.of(CELL_OF_ROWS) // length

    def repeated(expr: ir.Expr) -> ir.Expr:
        is_own = isinstance(expr, ir.Load) and expr in names
        return ir.Load(names[expr], (Dim.of(CELL_OF_ROWS),), expr.dtype) if is_own else expr

    body = substitute(rewrite(cells.body, repeated), {row.var: whole, cells.var: Dim.of(CELL_OF_ROWS) % length})
    if any(primitives.divides(dim, CELL_OF_ROWS) for dim in all_dims(body)):
        return None
    return _blocks(rows, length, body, [part for load in loads for part in _repeat_row(names[load], load, cells)])


def _repeat_row(name: str, load: ir.Load, cells: ir.Loop) -> Statements:
    """Memory with the cells of one row, repeated for each row of a run."""
    again = Dim.of(f"{cells.var}a")
    store = ir.Store((name,), (again * cells.extent + Dim.of(cells.var),), (load,))
    fill = ir.Loop(cells.var, cells.extent, ir.Axis.LANES, (store,))
    memory = ir.Alloc(name, load.dtype, (cells.extent * REPEATED,), ir.Space.THREAD)
    return memory, ir.Loop(str(again), Dim.of(REPEATED), ir.Axis.SERIAL, (fill,))


def _blocks(rows: Sequence[ir.Loop], length: Dim, body: Statements, filled: Sequence[ir.Statement]) -> Statements:
    """Blocks of rows on threads; in each, runs of rows whose cells are the lanes."""
    row = rows[-1].var
    outer, size, block = primitives.tile_loop(replace(rows[-1], body=()), BLOCK, f"{row}t", f"{row}b", f"{row}t_length")
    runs, count, run = primitives.tile_loop(replace(block, body=()), REPEATED, f"{row}r", f"{row}c", f"{row}r_length")
    cells = ir.Loop(CELL_OF_ROWS, run.extent * length, ir.Axis.LANES, body)
    inner = (*size, *filled, replace(runs, axis=ir.Axis.SERIAL, body=(*count, cells)))
    return primitives.bind(primitives.nest(rows[:-1], (replace(outer, body=inner),)), len(rows))
