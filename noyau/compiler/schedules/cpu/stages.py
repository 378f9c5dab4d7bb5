"""Stages of computations, through which loops in lanes run tile by tile.

A processor overlaps the computations that it finds among the next hundred or so instructions. If each cell takes forty
that depend on each other, that is three vectors of cells, and the units idle most of the time. A tile that runs through
one part of the computation after the other has many short chains side by side, all in the first-level cache.

Cells narrower than the values computed from them have stages of their own, in which they are widened or narrowed: gcc
12 uses vectors of equal width in all of a loop, so that a loop over floats that reads bytes has vectors of two or four
floats, and no text of one cell becomes the processor's instruction for float16.

Loops over cells that are all bfloat16 compute an even and an odd one in each round instead: two neighbours are one word
of 32 bits, each half of which is a float but for a shift or a mask, so that nothing is unpacked or packed.

Index set splitting comes first: a loop in lanes is cut where a condition changes, so that all cells of each part do the
same; the point may lie before the first cell or behind the last one, as the half of a row of unknown length may in each
of its tiles."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from typing import TypeAlias

from noyau.compiler.lowering.loop_cuts import FEW, divisions
from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.folds import fuse
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, DimOp, maximum, product, with_sides
from noyau.ir.ranges import simplify

# The fewest cells of a known length that pay: rows of 16 and 32 cells take up to 1.9 and 1.3 times as long in two
# loops, those of 64 cells 0.8 (where one branch is an exponential) to 1.07 times, those of 256 cells 0.65 to 0.92.
LONG = 64
Change = tuple[Dim, bool]  # the round of a loop from which on a condition changes, and its value before
Changes: TypeAlias = Mapping[ir.Expr, Change]
States: TypeAlias = Mapping[ir.Expr, bool]  # conditions, and their known values
PAIRED = 16  # the fewest cells of a loop of known length that pays


def cut_at_bounds(kernel: ir.Kernel) -> ir.Kernel:
    """Split each loop in lanes whose cells take one of two branches by position into two; a loop whose cells at its
    ends differ, as in a stencil, into three, separately for the rows inside and those at the edge."""
    return primitives.with_bodies(kernel, lambda body: primitives.change_lanes(body, _cut))


def _cut(loop: ir.Loop) -> primitives.Statements:
    """A loop cut where its conditions change; the loop itself if none does, or if their order is not known."""
    own = {s.name for s in loop.body if isinstance(s, ir.Let)}
    comparisons = [expr for expr in walk.every_expression(loop.body) if isinstance(expr, ir.Call)]
    cells: Changes = {expr: change for expr in comparisons if (change := _change(expr, loop.var))}
    points = {point for point, _ in cells.values()}
    is_long = (loop.extent.constant or LONG) >= LONG
    if not points or not is_long or not _is_straight(loop) or any(point.names & own for point in points):
        return (loop,)
    if len(points) > 1:
        rows = ((expr, _change_of_rows(expr, {loop.var, *own})) for expr in comparisons)
        return _cut_edges(loop, cells, {expr: change for expr, change in rows if change})
    (point,) = points
    until = Dim.of(f"{loop.var}_until")
    return (
        ir.Let(str(until), ir.Index(primitives.minimum(maximum(point, 0), loop.extent))),
        _part(loop, Dim.of(0), until, {expr: before for expr, (_, before) in cells.items()}),
        _part(loop, until, loop.extent, {expr: not before for expr, (_, before) in cells.items()}),
    )


def _cut_edges(loop: ir.Loop, cells: Changes, rows: Changes) -> primitives.Statements:
    """A loop as its first cells, its inner ones, without conditions, and its last ones. Rows at an edge, where a
    condition on the row has another value than in all other rows, keep the whole loop."""
    points = dict.fromkeys(point for point, _ in cells.values())
    first, last = (tuple(each for each in points if _is_near_begin(each) == near) for near in (True, False))
    if any((point - other).constant is None for point in last for other in last):
        return (loop,)
    begin, until = Dim.of(f"{loop.var}_begin"), Dim.of(f"{loop.var}_until")
    inside: States = {expr: before != (point in first) for expr, (point, before) in cells.items()}
    of_rows: States = {expr: before != _is_near_begin(point) for expr, (point, before) in rows.items()}
    # at an end a condition is known to differ from inside if a single point is near that end
    begins = {expr: not inside[expr] for expr, (point, _) in cells.items() if (point,) == first}
    ends = {expr: not inside[expr] for expr, (point, _) in cells.items() if (point,) == last}
    most = maximum(reduce(primitives.minimum, last, loop.extent), begin)
    cut: primitives.Statements = (
        ir.Let(str(begin), ir.Index(primitives.minimum(reduce(maximum, first, Dim.of(0)), loop.extent))),
        ir.Let(str(until), ir.Index(primitives.minimum(most, loop.extent))),
        _part(loop, Dim.of(0), begin, {**of_rows, **begins}),
        _part(loop, begin, until, {**of_rows, **inside}),
        _part(loop, until, loop.extent, {**of_rows, **ends}),
    )
    condition = ir.when(ir.all_of(expr if state else ir.opposite(expr) for expr, state in of_rows.items()))
    return cut if condition is None else primitives.either(condition, cut, (loop,))


def _part(loop: ir.Loop, begin: Dim, until: Dim, states: States) -> ir.Loop:
    """A loop from one point to another, between which conditions are known."""
    body = walk.substitute(_decide(loop.body, states), {loop.var: begin + Dim.of(loop.var)})
    return replace(loop, extent=until - begin, body=body)


def _is_near_begin(point: Dim) -> bool:
    """Whether a point is a constant number of cells from the start, whatever the sizes."""
    return point.replace({name: 0 for name in point.names if name.startswith("#")}).constant is not None


def _is_straight(loop: ir.Loop) -> bool:
    """Whether a loop only computes values of cells and stores them."""
    return all(isinstance(s, ir.Let) or (isinstance(s, ir.Store) and not s.merge) for s in loop.body)


def _change(expr: ir.Expr, variable: str) -> Change | None:
    """The round in which a comparison of indices changes, if it changes once as a variable grows by one a round."""
    match expr:
        case ir.Call("less" | "less_equal" as function, (ir.Index(left), ir.Index(right))):
            below = left - right - int(function == "less_equal")
        case ir.Call("greater" | "greater_equal" as function, (ir.Index(left), ir.Index(right))):
            below = right - left - int(function == "greater_equal")
        case _:
            return None
    at_first, step = below.replace({variable: 0}), below.replace({variable: Dim.of(variable) + 1}) - below
    return {Dim.of(1): (-at_first, True), Dim.of(-1): (at_first + 1, False)}.get(step)


def _change_of_rows(expr: ir.Call, own: Collection[str]) -> Change | None:
    """The same for a comparison that is invariant in a loop: by the variable of a loop around it."""
    names = {name for each in expr.operands if isinstance(each, ir.Index) for name in each.dim.names}
    outer = sorted(name for name in names if name.startswith("#"))
    return None if names & {*own} else next(filter(None, (_change(expr, name) for name in outer)), None)


def _decide(statements: primitives.Statements, states: States) -> primitives.Statements:
    """Statements with conditions replaced by their values."""
    constants: dict[str, ir.Const] = {}

    def simpler(expr: ir.Expr) -> ir.Expr:
        if expr in states:
            return ir.Const(states[expr], DType.BOOL)
        return _simpler(constants.get(expr.name, expr) if isinstance(expr, ir.Var) else expr)

    body: list[ir.Statement] = []
    for statement in statements:
        body += walk.rewrite((statement,), simpler)
        if isinstance(let := body[-1], ir.Let) and isinstance(let.value, ir.Const) and let.value.dtype is DType.BOOL:
            constants[let.name] = let.value
    return primitives.drop_unused(tuple(body))


def _simpler(expr: ir.Expr) -> ir.Expr:
    """Simplify an expression with constant conditions."""
    match expr:
        case ir.Call("logical_not", (ir.Const(value),)):
            return ir.Const(not value, DType.BOOL)
        case ir.Call("logical_and" | "logical_or" as function, (ir.Const(value), other) | (other, ir.Const(value))):
            return other if value == (function == "logical_and") else ir.Const(value, DType.BOOL)
        case ir.Call("where", (ir.Const(value), one, other)):
            return one if value else other
        case ir.Load(where=ir.Const(True)):
            return replace(expr, where=None, other=None)
        case ir.Load(where=ir.Const(False), other=ir.Const(value)):
            return ir.Const(value, expr.dtype)
        case _:
            return expr


def split_by_steps(loop: ir.Loop) -> primitives.Statements:
    """Version a loop in lanes with strides that sizes make 0 or not: as a loop without stride 0, and as it is. Where
    branches of a model meet, either may be broadcast; no vector has a stride that only a call determines."""
    stops = dict.fromkeys(stop for dim in walk.all_dims(loop.body) for stop in _stops(dim, loop.var))
    none = (ir.Call("equal", (ir.Index(Dim.of(stop)), ir.Index(Dim.of(0))), DType.BOOL) for stop in stops)
    condition = ir.when(ir.all_of(none))
    whole = _in_steps(replace(loop, body=walk.with_dims(loop.body, partial(_without, stops))))
    return whole if condition is None else primitives.either(condition, whole, (loop,))


def _in_steps(loop: ir.Loop) -> primitives.Statements:
    """A loop in which a few neighbours read one cell, as in an enlarged image: a round for each cell, and the rest."""
    divided = (op for op in divisions(loop.body) if op.kind == "floordiv" and loop.var in op.left.names)
    count = max((op.right.constant or 0 for op in divided), default=0)
    if not _is_straight(loop) or not 1 < count <= FEW:
        return (loop,)
    rounds, left = loop.extent // count, loop.extent % count
    moved = (walk.substitute(loop.body, {loop.var: Dim.of(loop.var) * count + at}) for at in range(count))
    cells = [walk.with_dims(body, lambda dim: simplify(dim, {})) for body in moved]
    rest = walk.substitute(loop.body, {loop.var: rounds * count + Dim.of(loop.var)})
    loops = replace(loop, extent=rounds, body=fuse(cells)), replace(loop, extent=left, body=rest)
    return loops[: 1 if left == Dim.of(0) else 2]


def _stops(dim: Dim, variable: str) -> Iterator[DimOp]:
    """The formulas of sizes, 0 for an unchanged stride, that a variable is multiplied by."""
    for monomial, _ in dim.terms:
        ops = [atom for atom in monomial if isinstance(atom, DimOp)]
        yield from (op for op in ops if variable in monomial and op.kind == "max" and "#" not in str(op))
        yield from (stop for op in ops for stop in _stops(op.left, variable))


def _without(stops: Collection[DimOp], dim: Dim) -> Dim:
    """A Dim with some formulas of sizes replaced by 0."""
    total, change = Dim.of(0), partial(_without, stops)
    for monomial, factor in dim.terms:
        if not any(atom in stops for atom in monomial):
            total = total + product((factor, *(with_sides(atom, change) for atom in monomial)))
    return total


TILE = 64  # cells: few, so that memory brings the next ones while these are computed, but several vectors
SHORT = 8  # cells, a vector: fewer have no stage for conversions
DEEP = 5  # flops in a chain of dependence, from which on a costly function has a stage of its own
ANGLES = frozenset(("sin", "cos", "tan"))
NEAR = {DType.F32: (12800.0, DType.I32), DType.F64: (1e6, DType.I64)}  # the largest near angle, integers as wide


def in_stages(kernel: ir.Kernel) -> ir.Kernel:
    """Run loops in lanes over many cells of long computations in tiles that go through stages; so too loops that
    compute with narrow cells."""
    buffers = {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.layout != "strided"}
    halves = {buffer.name for buffer in kernel.buffers if buffer.dtype is DType.BF16}  # these run in pairs
    bools = {buffer.name for buffer in kernel.of(ir.Role.INPUT) if buffer.dtype is DType.BOOL}

    def in_body(body: primitives.Statements) -> primitives.Statements:
        own = {s.name: s.dtype for s in walk.every_statement(body) if isinstance(s, ir.Alloc)}
        narrow = {name for name, dtype in {**buffers, **own}.items() if dtype is DType.F16 or name in bools}

        def change(loop: ir.Loop) -> primitives.Statements | None:
            converted, deep = _conversions_apart(loop, narrow), _is_long(loop, halves)
            if not (converted or deep):
                return None
            apart, loop = narrow if converted else set(), replace(loop, body=converted or loop.body)
            stages = stages_of(loop.body, loop.var, apart, deep=deep)
            return _in_tiles(loop, stages, apart | walk.targets_of(loop.body)) if len(stages) > 1 else None

        return primitives.change_lanes(body, change)

    return primitives.with_bodies(kernel, in_body)


def _conversions_apart(loop: ir.Loop, narrow: set[str]) -> primitives.Statements:
    """The body of a loop that computes with narrow cells, with their loads first, and each conversion as a statement of
    its own; empty for any other loop, or where cells are only moved."""
    straight = all(isinstance(s, ir.Let | ir.Store) and not getattr(s, "name", "").startswith("#") for s in loop.body)
    if not straight or _most(loop.extent) < SHORT:
        return ()
    loads = [s for s in loop.body if is_conversion(s, loop.var, narrow - walk.targets_of(loop.body)) and _is_loaded(s)]
    rest = list[ir.Statement]()
    for statement in (s for s in loop.body if s not in loads):
        match statement:
            case ir.Let(name, ir.Call("cast", (ir.Call("cast", (value,), DType.F16),), DType.F32)) if (
                value.dtype is DType.F32
            ):
                exact = ir.Let(f"{name}.exact", value)
                rounded = ir.Call("cast", (ir.Var(exact.name, DType.F32),), DType.F16)
                rest += [exact, replace(statement, value=ir.Call("cast", (rounded,), DType.F32))]
            case ir.Store((name,), _, (value,), None) if is_conversion(statement, loop.var, narrow):
                let = ir.Let(f"{name}.wide {len(rest)}", value)
                rest += [let, replace(statement, values=(ir.Var(let.name, value.dtype),))]
            case _:
                rest.append(statement)
    body = (*loads, *rest)
    computed = [s for s in rest if not is_conversion(s, loop.var, narrow)]
    floats = any(isinstance(each, ir.Call) and each.dtype is DType.F32 for each in walk.every_expression(computed))
    return body if floats and len(computed) < len(body) else ()


def is_conversion(statement: ir.Statement, variable: str, narrow: set[str]) -> bool:
    """Whether a statement loads contiguous narrow cells, stores some, or rounds to float16."""
    match statement:
        case ir.Let(_, ir.Load(name, _, _, None) as load):
            return name in narrow and primitives.stride_of(load, variable) == Dim.of(1)
        case ir.Let(_, ir.Call("cast", (ir.Call("cast", (ir.Var(dtype=DType.F32),), DType.F16),), DType.F32)):
            return True
        case ir.Store((name,), _, (value,), None):
            return (
                name in narrow and value.dtype is DType.F32 and primitives.stride_of(statement, variable) == Dim.of(1)
            )
        case _:
            return False


def _most(extent: Dim) -> int:
    """The upper bound of a loop's rounds, TILE if unknown or larger."""
    match extent:
        case Dim((((DimOp("mod", _, right),), 1),)) if right.constant:
            return min(right.constant, TILE)
        case _:
            return min(extent.constant or TILE, TILE)


def _is_long(loop: ir.Loop, halves: set[str]) -> bool:
    """Whether a loop may have many rounds, and only computes values of cells and stores them."""
    stores = [s for s in loop.body if isinstance(s, ir.Store)]
    values = all(isinstance(s, ir.Let) and not s.name.startswith("#") for s in loop.body if not isinstance(s, ir.Store))
    # Stores that write neighbouring cells are one vector.
    apart = any(primitives.stride_of(s, loop.var) != Dim.of(1) for s in stores)
    if not stores or not values or apart or any(s.merge for s in stores):
        return False
    stored = {name for s in stores for name in s.buffers}
    loaded = {load.buffer for load in walk.loads_of(loop.body)}
    count = loop.extent.constant
    return (count is None or count >= 2 * TILE) and not stored & loaded and not halves & (stored | loaded)


def stages_of(
    body: primitives.Statements, variable: str, narrow: set[str], *, deep: bool
) -> list[primitives.Statements]:
    """Split statements into stages: each conversion is one; with `deep`, a costly function begins a stage if it ends a
    long chain of dependence, or if the stage has a costly function already."""
    stages: list[list[ir.Statement]] = [[]]
    depths: dict[str, int] = {}
    costly = False
    for statement in body:
        if is_conversion(statement, variable, narrow):
            stages += [[statement], []]
            depths, costly = {}, False
            continue
        names = [expr.name for expr in walk.every_expression((statement,)) if isinstance(expr, ir.Var)]
        wait = max((depths.get(name, 0) for name in names), default=0)  # flops before it, in its stage
        if deep and isinstance(statement, ir.Let) and walk.flops_of(statement.value) >= primitives.COSTLY:
            if costly or wait >= DEEP or getattr(statement.value, "function", "") in ANGLES:
                stages.append([])
                depths, wait = {}, 0
            costly = True
        if isinstance(statement, ir.Let):
            depths[statement.name] = wait + _flops(statement.value)
        stages[-1].append(statement)
    return [tuple(stage) for stage in stages if stage]


def _flops(expr: ir.Expr) -> int:
    """The flops of an expression's longest chain of dependence."""
    return walk.flops_of(expr) + max(map(_flops, walk.operands(expr)), default=0)


def _in_tiles(loop: ir.Loop, stages: Sequence[primitives.Statements], once: set[str]) -> primitives.Statements:
    """The loop, in tiles if it may be longer than one, each of which runs through the stages."""
    lets, cells = _between(stages, once), _most(loop.extent)
    memory = tuple(ir.Alloc(f"{let.name}.stage", _room(let), (Dim.of(cells),), ir.Space.REGISTER) for let in lets)
    if cells < TILE or loop.extent.constant == TILE:
        return (*memory, *_loops(loop, stages, lets))
    tiles, before, tile = primitives.tile_loop(loop, TILE, f"{loop.var}g", loop.var, f"{loop.var}g_count")
    ends = list(accumulate(map(len, stages)))
    placed = [tile.body[end - len(stage) : end] for stage, end in zip(stages, ends, strict=True)]
    body = (*before, *memory, *_loops(replace(tile, axis=ir.Axis.LANES), placed, lets))
    return (replace(tiles, axis=ir.Axis.SERIAL, body=body),)


def _loops(loop: ir.Loop, stages: Sequence[primitives.Statements], lets: Sequence[ir.Let]) -> primitives.Statements:
    names, cell = {let.name for let in lets}, Dim.of(loop.var)
    bodies = (_stage(stages[:at], stage, names, cell) for at, stage in enumerate(stages))
    return tuple(s for body in bodies if body for s in _by_angles(replace(loop, body=body)))


def _by_angles(loop: ir.Loop) -> primitives.Statements:
    """The loop of a stage; for angles, a loop that takes all for near, and a slower one for when some are not."""
    lets = [s for s in loop.body if isinstance(s, ir.Let)]
    name, call = next(((s.name, s.value) for s in lets if getattr(s.value, "function", "") in ANGLES), ("", None))
    if not isinstance(call, ir.Call) or call.dtype not in NEAR:
        return (loop,)
    size, near = ir.Call("abs", call.operands, call.dtype), replace(call, assumptions=frozenset({ir.Assumption.NEAR}))
    (most, whole), far, one = NEAR[call.dtype], f"{name}.far", (Dim.of(0),)
    is_far = ir.Call("cast", (ir.Call("greater", (size, ir.Const(most, call.dtype)), DType.BOOL),), whole)
    count = primitives.drop_unused((*lets, ir.Store((far,), one, (is_far,), "sum")))
    alloc, ends = ir.Alloc(far, whole, (Dim.of(1),), ir.Space.REGISTER), (ir.Load(far, one, whole), ir.Const(0, whole))
    ways = {"equal": replace(loop, body=walk.rewrite(loop.body, lambda e: near if e == call else e)), "not_equal": loop}
    branches = (ir.If(ir.Call(test, ends, DType.BOOL), (way,)) for test, way in ways.items())  # a sum counts cells once
    return alloc, ir.Store((far,), one, ends[1:]), replace(loop, body=count, axis=ir.Axis.SERIAL), *branches


def _room(let: ir.Let) -> DType:
    """The dtype that holds a value between two stages: a bool is as wide as a float."""
    return DType.I32 if let.value.dtype is DType.BOOL else let.value.dtype


def _between(stages: Sequence[primitives.Statements], once: set[str]) -> list[ir.Let]:
    """The values that a later stage reads; mere loads are repeated, except from the buffers `once`."""
    lets: list[ir.Let] = []
    for number, stage in enumerate(stages):
        after = [statement for later in stages[number + 1 :] for statement in later]
        read = {expr.name for expr in walk.every_expression(after) if isinstance(expr, ir.Var)}
        held = (s for s in stage if isinstance(s, ir.Let) and s.name in read)
        lets += [s for s in held if not _is_loaded(s) or once.intersection(load.buffer for load in walk.loads_of((s,)))]
    return lets


def _is_loaded(statement: ir.Statement) -> bool:
    return isinstance(statement, ir.Let) and isinstance(statement.value, ir.Load) and statement.value.where is None


def _stage(
    before: Sequence[primitives.Statements], stage: primitives.Statements, names: set[str], cell: Dim
) -> primitives.Statements:
    """The body of one stage: the values of earlier stages that it reads, its statements, and stores for later ones."""
    body: list[ir.Statement] = []
    for statement in (statement for earlier in before for statement in earlier):
        if isinstance(statement, ir.Let) and statement.name in names:
            load: ir.Expr = ir.Load(f"{statement.name}.stage", (cell,), _room(statement))
            if statement.value.dtype is DType.BOOL:
                load = ir.Call("not_equal", (load, ir.Const(0, DType.I32)), DType.BOOL)
            body.append(replace(statement, value=load))
        elif _is_loaded(statement):
            body.append(statement)
    for statement in stage:
        body.append(statement)
        if isinstance(statement, ir.Let) and statement.name in names:
            value: ir.Expr = ir.Var(statement.name, statement.value.dtype)
            value = ir.Call("cast", (value,), DType.I32) if value.dtype is DType.BOOL else value
            body.append(ir.Store((f"{statement.name}.stage",), (cell,), (value,)))
    return primitives.drop_unused(tuple(body))


def in_pairs(kernel: ir.Kernel) -> ir.Kernel:
    """Run loops in lanes whose only moving accesses are contiguous bfloat16 by two cells a round."""
    buffers = {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.layout != "strided"}

    def in_body(body: primitives.Statements) -> primitives.Statements:
        memory = buffers | {s.name: s.dtype for s in walk.every_statement(body) if isinstance(s, ir.Alloc)}
        return primitives.change_lanes(body, lambda loop: _pair_cells(loop) if _is_of_halves(loop, memory) else None)

    return primitives.with_bodies(kernel, in_body)


def _is_of_halves(loop: ir.Loop, memory: Mapping[str, DType]) -> bool:
    """Whether all moving accesses of a loop are contiguous bfloat16, none masked, and one of them a store."""
    stores = [s for s in loop.body if isinstance(s, ir.Store)]
    plain = all([value.dtype for value in s.values] == [DType.F32] and s.merge is None for s in stores)
    straight = plain and all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
    if not straight or (loop.extent.constant or PAIRED) < PAIRED:
        return False
    accesses: list[ir.Load | ir.Store] = [*walk.loads_of(loop.body), *stores]
    moving = [each for each in accesses if any(loop.var in dim.names for dim in each.index)]
    stored = any(isinstance(each, ir.Store) for each in moving)
    return stored and all(_is_half(each, loop.var, memory) for each in moving)


def _is_half(access: ir.Load | ir.Store, variable: str, memory: Mapping[str, DType]) -> bool:
    name = access.buffer if isinstance(access, ir.Load) else access.buffers[0]
    masked = isinstance(access, ir.Load) and access.where is not None
    return memory.get(name) is DType.BF16 and primitives.stride_of(access, variable) == Dim.of(1) and not masked


def _pair_cells(loop: ir.Loop) -> primitives.Statements:
    """The loop over pairs, and one over the last cell for an odd number."""
    half, first = f"{loop.var}h", Dim.of(f"{loop.var}h") * 2
    odd = _rename_lets(walk.substitute(loop.body, {loop.var: first + 1}))
    pairs = ir.Loop(half, loop.extent // 2, ir.Axis.LANES, (*walk.substitute(loop.body, {loop.var: first}), *odd))
    if loop.extent % 2 == Dim.of(0):
        return (pairs,)
    last = walk.substitute(loop.body, {loop.var: loop.extent // 2 * 2 + Dim.of(loop.var)})
    return pairs, replace(loop, extent=loop.extent % 2, body=last)


def _rename_lets(body: primitives.Statements) -> primitives.Statements:
    """The statements with their Lets renamed."""
    names = {s.name: f"{s.name}.odd" for s in body if isinstance(s, ir.Let)}

    def read(expr: ir.Expr) -> ir.Expr:
        return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, ir.Var) else expr

    return tuple(replace(s, name=names[s.name]) if isinstance(s, ir.Let) else s for s in walk.rewrite(body, read))
