"""Stages of computations, through which loops in lanes run tile by tile.

A processor overlaps the computations that it finds among the next hundred or so instructions. If each cell takes forty
that depend on each other, that is three vectors of cells, and the units idle most of the time. A tile that runs through
one part of the computation after the other has many short chains side by side, all in the first-level cache.

Cells narrower than the values computed from them have stages of their own, in which they are widened or narrowed: gcc
12 uses vectors of equal width in all of a loop, so that a loop over floats that reads bytes has vectors of two or four
floats, and no text of one cell becomes the processor's instruction for float16.

Loops over cells that are all bfloat16 compute an even and an odd one in each round instead: two neighbours are one word
of 32 bits, each half of which is a float but for a shift or a mask, so that nothing is unpacked or packed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.primitives import COSTLY, Statements, change_lanes, stride_of, with_bodies
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, DimOp
from noyau.ir.walk import every_expression, every_statement, flops_of, loads_of, rewrite, substitute, targets_of

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

    def in_body(body: Statements) -> Statements:
        own = {s.name: s.dtype for s in every_statement(body) if isinstance(s, ir.Alloc)}
        narrow = {name for name, dtype in {**buffers, **own}.items() if dtype is DType.F16 or name in bools}

        def change(loop: ir.Loop) -> Statements | None:
            converted, deep = _conversions_apart(loop, narrow), _is_long(loop, halves)
            if not (converted or deep):
                return None
            apart, loop = narrow if converted else set(), replace(loop, body=converted or loop.body)
            stages = stages_of(loop.body, loop.var, apart, deep=deep)
            return _in_tiles(loop, stages, apart | targets_of(loop.body)) if len(stages) > 1 else None

        return change_lanes(body, change)

    return with_bodies(kernel, in_body)


def _conversions_apart(loop: ir.Loop, narrow: set[str]) -> Statements:
    """The body of a loop that computes with narrow cells, with their loads first, and each conversion as a statement of
    its own; empty for any other loop, or where cells are only moved."""
    straight = all(isinstance(s, ir.Let | ir.Store) and not getattr(s, "name", "").startswith("#") for s in loop.body)
    if not straight or _most(loop.extent) < SHORT:
        return ()
    loads = [s for s in loop.body if is_conversion(s, loop.var, narrow - targets_of(loop.body)) and _is_loaded(s)]
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
    floats = any(isinstance(each, ir.Call) and each.dtype is DType.F32 for each in every_expression(computed))
    return body if floats and len(computed) < len(body) else ()


def is_conversion(statement: ir.Statement, variable: str, narrow: set[str]) -> bool:
    """Whether a statement loads contiguous narrow cells, stores some, or rounds to float16."""
    match statement:
        case ir.Let(_, ir.Load(name, _, _, None) as load):
            return name in narrow and stride_of(load, variable) == Dim.of(1)
        case ir.Let(_, ir.Call("cast", (ir.Call("cast", (ir.Var(dtype=DType.F32),), DType.F16),), DType.F32)):
            return True
        case ir.Store((name,), _, (value,), None):
            return name in narrow and value.dtype is DType.F32 and stride_of(statement, variable) == Dim.of(1)
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
    apart = any(stride_of(s, loop.var) != Dim.of(1) for s in stores)
    if not stores or not values or apart or any(s.merge for s in stores):
        return False
    stored = {name for s in stores for name in s.buffers}
    loaded = {load.buffer for load in loads_of(loop.body)}
    count = loop.extent.constant
    return (count is None or count >= 2 * TILE) and not stored & loaded and not halves & (stored | loaded)


def stages_of(body: Statements, variable: str, narrow: set[str], *, deep: bool) -> list[Statements]:
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
        names = [expr.name for expr in every_expression((statement,)) if isinstance(expr, ir.Var)]
        wait = max((depths.get(name, 0) for name in names), default=0)  # flops before it, in its stage
        if deep and isinstance(statement, ir.Let) and flops_of(statement.value) >= COSTLY:
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
    return flops_of(expr) + max(map(_flops, walk.operands(expr)), default=0)


def _in_tiles(loop: ir.Loop, stages: Sequence[Statements], once: set[str]) -> Statements:
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


def _loops(loop: ir.Loop, stages: Sequence[Statements], lets: Sequence[ir.Let]) -> Statements:
    names, cell = {let.name for let in lets}, Dim.of(loop.var)
    bodies = (_stage(stages[:at], stage, names, cell) for at, stage in enumerate(stages))
    return tuple(s for body in bodies if body for s in _by_angles(replace(loop, body=body)))


def _by_angles(loop: ir.Loop) -> Statements:
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
    ways = {"equal": replace(loop, body=rewrite(loop.body, lambda e: near if e == call else e)), "not_equal": loop}
    either = (ir.If(ir.Call(test, ends, DType.BOOL), (way,)) for test, way in ways.items())  # a sum counts cells once
    return alloc, ir.Store((far,), one, ends[1:]), replace(loop, body=count, axis=ir.Axis.SERIAL), *either


def _room(let: ir.Let) -> DType:
    """The dtype that holds a value between two stages: a bool is as wide as a float."""
    return DType.I32 if let.value.dtype is DType.BOOL else let.value.dtype


def _between(stages: Sequence[Statements], once: set[str]) -> list[ir.Let]:
    """The values that a later stage reads; mere loads are repeated, except from the buffers `once`."""
    lets: list[ir.Let] = []
    for number, stage in enumerate(stages):
        after = [statement for later in stages[number + 1 :] for statement in later]
        read = {expr.name for expr in every_expression(after) if isinstance(expr, ir.Var)}
        held = (s for s in stage if isinstance(s, ir.Let) and s.name in read)
        lets += [s for s in held if not _is_loaded(s) or once.intersection(load.buffer for load in loads_of((s,)))]
    return lets


def _is_loaded(statement: ir.Statement) -> bool:
    return isinstance(statement, ir.Let) and isinstance(statement.value, ir.Load) and statement.value.where is None


def _stage(before: Sequence[Statements], stage: Statements, names: set[str], cell: Dim) -> Statements:
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


PAIRED = 16  # the fewest cells of a loop of known length that pays


def in_pairs(kernel: ir.Kernel) -> ir.Kernel:
    """Run loops in lanes whose only moving accesses are contiguous bfloat16 by two cells a round."""
    buffers = {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.layout != "strided"}

    def in_body(body: Statements) -> Statements:
        memory = buffers | {s.name: s.dtype for s in every_statement(body) if isinstance(s, ir.Alloc)}
        return change_lanes(body, lambda loop: _pair_cells(loop) if _is_of_halves(loop, memory) else None)

    return with_bodies(kernel, in_body)


def _is_of_halves(loop: ir.Loop, memory: Mapping[str, DType]) -> bool:
    """Whether all moving accesses of a loop are contiguous bfloat16, none masked, and one of them a store."""
    stores = [s for s in loop.body if isinstance(s, ir.Store)]
    plain = all([value.dtype for value in s.values] == [DType.F32] and s.merge is None for s in stores)
    straight = plain and all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
    if not straight or (loop.extent.constant or PAIRED) < PAIRED:
        return False
    accesses: list[ir.Load | ir.Store] = [*loads_of(loop.body), *stores]
    moving = [each for each in accesses if any(loop.var in dim.names for dim in each.index)]
    stored = any(isinstance(each, ir.Store) for each in moving)
    return stored and all(_is_half(each, loop.var, memory) for each in moving)


def _is_half(access: ir.Load | ir.Store, variable: str, memory: Mapping[str, DType]) -> bool:
    name = access.buffer if isinstance(access, ir.Load) else access.buffers[0]
    masked = isinstance(access, ir.Load) and access.where is not None
    return memory.get(name) is DType.BF16 and stride_of(access, variable) == Dim.of(1) and not masked


def _pair_cells(loop: ir.Loop) -> Statements:
    """The loop over pairs, and one over the last cell for an odd number."""
    half, first = f"{loop.var}h", Dim.of(f"{loop.var}h") * 2
    odd = _rename_lets(substitute(loop.body, {loop.var: first + 1}))
    pairs = ir.Loop(half, loop.extent // 2, ir.Axis.LANES, (*substitute(loop.body, {loop.var: first}), *odd))
    if loop.extent % 2 == Dim.of(0):
        return (pairs,)
    last = substitute(loop.body, {loop.var: loop.extent // 2 * 2 + Dim.of(loop.var)})
    return pairs, replace(loop, extent=loop.extent % 2, body=last)


def _rename_lets(body: Statements) -> Statements:
    """The statements with their Lets renamed."""
    names = {s.name: f"{s.name}.odd" for s in body if isinstance(s, ir.Let)}

    def read(expr: ir.Expr) -> ir.Expr:
        return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, ir.Var) else expr

    return tuple(replace(s, name=names[s.name]) if isinstance(s, ir.Let) else s for s in rewrite(body, read))
