"""The strategies for GPUs: their choice by loops, folds and strides, maps, reductions, and the hints of launches.

In a map each cell is in one tile of one program. Reductions of whole arrays, and over leading axes, store states of
fixed chunks in one launch, and merge them in another; so bits never depend on the device. The hints of a launch tell
how exact it must be, what stays in the caches, and what is loaded ahead."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.folds import are_apart, is_ordered, lets_of_folds, levels
from noyau.compiler.schedules.cpu.rows_in_lanes import runs_across
from noyau.compiler.schedules.cpu.scatters import merges
from noyau.compiler.schedules.cpu.strategy_choice import is_columns
from noyau.compiler.schedules.cpu.transposes import reads_along
from noyau.compiler.schedules.gpu import tiles as gpu_tiles
from noyau.compiler.schedules.gpu.rows import SHORT, lead_of, rows, side_by_side
from noyau.compiler.schedules.gpu.rows_and_columns import both_in, rows_and_columns
from noyau.compiler.schedules.gpu.tiles import NO_LEAD, Lead
from noyau.compiler.schedules.primitives import Statements
from noyau.dtypes import HALVES
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, Shape, product
from noyau.ir.operators import Fact, has

# Few cells, so that a thread has few: costly code is compiled once for each.
FLAT = ir.Tile("BLOCK", ir.TilePolicy.LIMITED, 1024)
COLUMNS = ir.Tile("COLUMNS", ir.TilePolicy.COVERING, 1024)
# So many that cells shared by all rows are loaded once for several.
ROWS = ir.Tile("ROWS", ir.TilePolicy.SHARING, 4096)
NARROW = replace(COLUMNS, number=512)  # for rows that begin anywhere
FEW = 256  # rows that do not fill tiles of rows with equal leads
APART = 4  # warps for 1024 cells whose reads are not contiguous: each is a load of its own, few a thread
SQUARE = (ir.Tile("DOWN", ir.TilePolicy.FIXED, 64), ir.Tile("ACROSS", ir.TilePolicy.FIXED, 64))
FOLDED, WRITTEN = "#folded", "#written"  # the uses of a row in one tile


def map_(kernel: ir.Kernel, body: Statements) -> tuple[ir.Launch, ...]:
    """A chain of loops: the innermost in tiles, with several rounds of the one around it side by side. If rows are many
    and begin anywhere, rows with equal leads."""
    loops, inner = primitives.chain(body)
    apart = _lie_apart(kernel, loops[-1].var, inner)
    if len(loops) == 1:
        tile = replace(FLAT, warps=APART) if apart else FLAT
        return (ir.Launch(gpu_tiles.on_grid([], (gpu_tiles.cut(loops[0], tile, ir.Axis.THREADS),))),)
    lead, rows = lead_of(kernel, loops[:-1], loops[-1:]), replace(ROWS, number=1024, warps=APART) if apart else ROWS
    choices, first = gpu_tiles.Choices(), loops[-2].var
    step = lead.row.replace({first: Dim.of(first) + 1}) - lead.row  # it varies from row to row where rows are rolled
    if lead.let is not None and not apart and first not in step.names:
        pairs = (loops[-2].extent, FEW), (loops[-1].extent, NARROW.number)
        large = [ir.opposite(gpu_tiles.all_at_most((extent,), most)) for extent, most in pairs]
        many = ir.all_of((ir.opposite(lead.is_idle), *large))
        choices.add(many, lambda: [_alike(loops, inner, lead)])
    choices.add(True, lambda: [_two(loops, inner, loops[-2], loops[-1], (rows, COLUMNS), lead)])
    return tuple(choices.launches)


def _alike(loops: list[ir.Loop], inner: Statements, lead: Lead) -> Statements:
    """Rows a whole number of lines apart, side by side in a tile: all begin the same number of cells behind a line, so
    that one load is enough for cells that they share."""
    assert lead.let is not None
    *around, first, second = loops
    apart, number, residue, lane = (lead.most + 1, *(Dim.of(f"{first.var}{part}") for part in "trl"))
    index = ir.Let(first.var, ir.Index((number * ROWS.size + lane) * apart + residue))
    columns = gpu_tiles.cut(replace(second, body=inner), NARROW, ir.Axis.THREADS, lead)
    of_residue = gpu_tiles.ceiling(first.extent - residue, apart)
    rows = ir.Loop(str(lane), of_residue - number * ROWS.size, ir.Axis.LANES, (index, *columns.body), ROWS)
    count = gpu_tiles.ceiling(gpu_tiles.ceiling(first.extent, apart), ROWS.size)
    grid = (ir.Loop(str(number), count, ir.Axis.THREADS, ()), ir.Loop(str(residue), apart, ir.Axis.THREADS, ()))
    lets = walk.substitute(lead.lets, {first.var: residue})
    return gpu_tiles.on_grid([*around, *grid, replace(columns, body=())], (*lets, rows))


def _lie_apart(kernel: ir.Kernel, variable: str, inner: Statements) -> bool:
    """Whether reads are not contiguous along a loop."""
    buffers, there = {buffer.name: buffer for buffer in kernel.buffers}, {variable: Dim.of(variable) + 1}
    loads = [load for load in walk.loads_of(inner) if load.buffer in buffers]
    offsets = [gpu_tiles.offset_of(buffers[load.buffer], load.index) for load in loads]
    return any(offset.replace(there) - offset not in (gpu_tiles.ZERO, gpu_tiles.ONE) for offset in offsets)


def transpose(body: Statements, along: str, across: str) -> ir.Launch:
    """Square tiles of the loop that reads run along and of the one that writes run along: both move whole lines."""
    loops, inner = primitives.chain(body)
    by_name = {loop.var: loop for loop in loops}
    return ir.Launch(_two(loops, inner, by_name[along], by_name[across], SQUARE, NO_LEAD))


def _two(
    loops: list[ir.Loop], inner: Statements, first: ir.Loop, second: ir.Loop, tiles: tuple[ir.Tile, ir.Tile], lead: Lead
) -> Statements:
    """The loops on the grid, two of them in tiles, one within the other."""
    one = gpu_tiles.cut(replace(first, body=()), tiles[0], ir.Axis.THREADS)
    other = gpu_tiles.cut(replace(second, body=inner), tiles[1], ir.Axis.THREADS, lead)
    (rows,), (columns,) = one.body, other.body
    assert isinstance(rows, ir.Loop)
    cells = (replace(rows, body=(*rows.body, *lead.lets, columns)),)
    around = [loop for loop in loops if loop not in (first, second)]
    return gpu_tiles.on_grid([*around, replace(one, body=()), replace(other, body=())], cells)


CHUNK = 1 << 15  # values of a whole array for one program
CHUNK_TILES = ir.Tile("BLOCK", ir.TilePolicy.FIXED, 8192, 8), ir.Tile("BLOCK", ir.TilePolicy.COVERING, 4096, 8)
DEEP = 1024  # rows for one program
ACROSS = ir.Tile("COLUMNS", ir.TilePolicy.COVERING, 128)
DOWN = ir.Tile("ROWS", ir.TilePolicy.SHARING, 8192, 4), ir.Tile("ROWS", ir.TilePolicy.COVERING, 64, 4)


def full(kernel: ir.Kernel, body: Statements) -> tuple[ir.Kernel, Statements]:
    """Schedule the first fold at the root in two launches. A few scalars after it are computed at once; other
    statements are returned, to be scheduled, and find the result in scratch."""
    body = primitives.coalesce(body)
    let = lets_of_folds(body)[0]
    kernel, before, after, rest = primitives.around_fold(kernel, body, let)
    fold = walk.fold_of(let)
    step = CHUNK if len(fold.loops) == 1 else 1
    chunks = gpu_tiles.chunks_of(fold, let.name, step)
    first, second, scratch = gpu_tiles.partial(fold, let.name, chunks, (), step, CHUNK_TILES)
    one = ir.Launch(gpu_tiles.on_grid([chunks], primitives.drop_unused((*before, *first.statements))))
    other = ir.Launch(primitives.drop_unused((*before, *second.statements, *after)))
    return replace(kernel, buffers=(*kernel.buffers, *scratch), launches=(one, other)), rest


def columns(kernel: ir.Kernel, body: Statements) -> ir.Kernel:
    """Folds over leading axes in one pass: tiles of neighbouring columns, chunks of rows."""
    loops, inner = primitives.chain(body)

    def grid(chunks: Sequence[ir.Loop], body: Statements) -> Statements:
        across = gpu_tiles.cut(replace(loops[-1], body=body), ACROSS, ir.Axis.THREADS)
        return gpu_tiles.on_grid([*loops[:-1], *chunks], (across,))

    kernel, launches = gpu_tiles.in_chunks(kernel, inner, loops, DEEP, DOWN, grid)
    return replace(kernel, launches=tuple(launches))


def on_gpu(kernel: ir.Kernel) -> ir.Kernel:
    """Schedule a kernel on grids of programs and tiles, each launch by the strategy that fits it.

    UnsupportedError where a launch merges into an output, or stores at a looked-up index: programs could meet there."""
    require_no_scatter(kernel)
    flat = primitives.with_bodies(primitives.flatten(kernel), lambda body: walk.rewrite(body, _plain))
    bodies = [launch.body for launch in flat.launches]
    is_pair = len(bodies) == 2 and not any(is_ordered(fold) for body in bodies for fold in walk.folds_in(body))
    both = both_in(*bodies) if is_pair else None
    scheduled = primitives.each(flat, bodies, _one) if both is None else rows_and_columns(flat, both)
    return with_hints(gpu_tiles.with_tiles(scheduled))


def require_no_scatter(kernel: ir.Kernel) -> None:
    """UnsupportedError where a launch merges into an output, or stores at a looked-up index."""
    if any(merges(launch.body) for launch in kernel.launches):
        raise UnsupportedError(f"{kernel.name}: no strategy for programs on a GPU scatters; language cuda has three")


def _plain(expr: ir.Expr) -> ir.Expr:
    """Replace the maximum of a value and -inf by the value."""
    match expr:
        case ir.Call("maximum", (ir.Const(value), other) | (other, ir.Const(value))) if value == -inf:
            return other
        case _:
            return expr


def _one(kernel: ir.Kernel) -> ir.Kernel:
    """A kernel of one launch, scheduled."""
    body = kernel.launches[0].body
    if lets_of_folds(body):
        row = (ir.Loop("#row", Dim.of(1), ir.Axis.SERIAL, primitives.sink(primitives.coalesce(body))),)
        if any(map(is_ordered, walk.folds_in(body))):
            return replace(kernel, launches=(side_by_side(row),))
        if _is_one_row(body):
            return rows(kernel, row, share=False)
        done, rest = full(kernel, body)
        later = primitives.each(done, [rest] if rest else [], _one)
        return replace(later, launches=(*done.launches, *later.launches))
    if len(blocks := primitives.apart(body)) > 1:
        return primitives.each(kernel, blocks, _one)
    body = primitives.sink(primitives.coalesce(body))
    loops, inner = primitives.chain(body)
    return _of_loops(kernel, body, loops, inner) if loops else replace(kernel, launches=(ir.Launch(body),))


def _is_one_row(body: Statements) -> bool:
    """Whether all folds and stores fit into one program, by constant sizes."""
    extents = [extent for fold in walk.folds_in(body) for _, extent in fold.loops]
    extents += [s.extent for s in walk.every_statement(body) if isinstance(s, ir.Loop)]
    flat = all(len(fold.loops) == 1 for fold in walk.folds_in(body)) and len(primitives.chain(body)[0]) <= 1
    return flat and all(extent.constant is not None and extent.constant <= SHORT for extent in extents)


def _of_loops(kernel: ir.Kernel, body: Statements, loops: list[ir.Loop], inner: Statements) -> ir.Kernel:
    every = list(walk.every_statement(inner))
    carries = any(isinstance(s, ir.Alloc) or (isinstance(s, ir.Loop) and primitives.carries(s)) for s in every)
    if carries or any(map(is_ordered, walk.folds_in(inner))):
        return replace(kernel, launches=(side_by_side(body),))
    if is_columns(body):
        return columns(kernel, body)
    deep = any(isinstance(s, ir.Loop) and not gpu_tiles.is_innermost(s) for s in inner) and not walk.folds_in(inner)
    if deep and len(parts := primitives.apart(inner)) > 1:  # else their own loops would run one after the other
        return primitives.each(kernel, [primitives.nest(loops, part) for part in parts], _one)
    if walk.folds_in(inner) or any(isinstance(s, ir.Loop) for s in inner):
        return rows(kernel, body) if not _lie_across(loops, inner) else _across(kernel, body, loops, inner)
    if not gpu_tiles.is_innermost(loops[-1]):
        return replace(kernel, launches=(side_by_side(body),))
    ways = reads_along(body)
    return replace(kernel, launches=(transpose(body, *ways),) if ways else map_(kernel, body))


MANY = 1 << 19  # cells of rows that lie across memory: of fewer, a launch for each pass takes longer than one for all
# So many cells such a row has at most that have so many beside it in a tile that lines are whole, but of few cells in
# all, of which more programs are faster.
SMALL, TALL, HIGH = 1 << 16, 256, 1024
NEAR = ir.Tile("ROWS", ir.TilePolicy.SHARING, 4096, warp_factor=2)


def _lie_across(loops: list[ir.Loop], inner: Statements) -> bool:
    """Whether memory runs along the loop around the rows, where folds read or where loops write."""
    pairs = [(s, loop.var) for loop in inner if isinstance(loop, ir.Loop) for s in walk.every_statement(loop.body)]
    stores = [(s, along) for s, along in pairs if isinstance(s, ir.Store)]
    strides = [(primitives.stride_of(s, loops[-1].var), primitives.stride_of(s, along)) for s, along in stores]
    return runs_across(inner, loops[-1].var) or any(across == Dim.of(1) != along for across, along in strides)


def _across(kernel: ir.Kernel, body: Statements, loops: list[ir.Loop], inner: Statements) -> ir.Kernel:
    """Rows that lie across memory, such as columns: short ones, or few cells, as other rows, many of them in a tile;
    else a launch for each level of folds, and for each loop, along memory."""
    cells = set(gpu_tiles.extents_of_tiles(inner))
    whole = product((*(loop.extent for loop in loops), *cells))
    large, tall = ir.opposite(gpu_tiles.all_at_most([whole], SMALL)), gpu_tiles.all_at_most(cells, TALL)
    tiles = (ir.all_of((large, tall)), NEAR), (large, replace(NEAR, number=4 * NEAR.number))
    one = rows(kernel, body, beside=tiles if len(cells) == 1 else ())
    if len(cells) != 1 or (apart := in_levels(one, loops, inner)) is None:
        return one
    large = ir.opposite(gpu_tiles.all_at_most([whole], MANY))
    many = ir.all_of((large, ir.opposite(gpu_tiles.all_at_most(cells, HIGH))))
    split = primitives.each(*apart, _one)
    launches = *primitives.where(ir.opposite(many), one.launches), *primitives.where(many, split.launches)
    return replace(split, buffers=tuple(dict.fromkeys(split.buffers)), launches=launches)  # scratch of either is one


def in_levels(kernel: ir.Kernel, loops: list[ir.Loop], inner: Statements) -> tuple[ir.Kernel, list[Statements]] | None:
    """A block for each level of folds, whose results go to scratch, and for each loop, which comes before the last one
    around it. None where rows have other statements, or extents of their own."""
    shape = tuple(loop.extent for loop in loops)
    names = {name for extent in (*shape, *gpu_tiles.extents_of_tiles(inner)) for name in extent.names}
    is_plain = all(isinstance(s, ir.Let | ir.Loop | ir.Store) for s in inner) and gpu_tiles.in_one_tile(inner)
    if not is_plain or any(name.startswith("#") for name in names):
        return None
    row = (sum((Dim.of(loop.var) * product(shape[at + 1 :]) for at, loop in enumerate(loops)), gpu_tiles.ZERO),)
    blocks, done, scratch = list[Statements](), list[ir.Statement](), list[ir.Buffer]()
    waiting = list(levels(inner))
    while waiting:
        own = [waiting.pop(0)]
        while walk.is_fold(own[0]) and waiting and walk.is_fold(waiting[0]) and are_apart(own, waiting[0]):
            own.append(waiting.pop(0))
        if lets := lets_of_folds(tuple(own)):
            results = [ir.Buffer(f"{let.name}.result", let.value.dtype, shape, ir.Role.SCRATCH) for let in lets]
            pairs = list(zip(lets, results, strict=True))
            own += [ir.Store((result.name,), row, (ir.Var(let.name, result.dtype),)) for let, result in pairs]
            blocks.append(primitives.nest(loops, primitives.drop_unused((*done, *own))))
            done += [replace(let, value=ir.Load(result.name, row, result.dtype)) for let, result in pairs]
            scratch += results
        elif isinstance(first := own[0], ir.Let):
            done.append(first)
        else:
            around = [*loops[:-1], *([replace(first, body=())] if isinstance(first, ir.Loop) else []), loops[-1]]
            last = first.body if isinstance(first, ir.Loop) else own
            blocks.append(primitives.nest(around, primitives.drop_unused((*done, *last))))
    return replace(kernel, buffers=(*kernel.buffers, *scratch)), blocks


def with_hints(kernel: ir.Kernel) -> ir.Kernel:
    """The tiled kernel, with the hints of each launch."""
    launches, scratch = list[ir.Launch](), {buffer.name for buffer in kernel.of(ir.Role.SCRATCH)}
    ends = {buffer.name for buffer in kernel.buffers} - scratch
    every = [s for one in kernel.launches for s in walk.every_statement(one.body)]
    # Rounds are loaded ahead in kernels of rows and sums over them, where no buffer has a second pass. Elsewhere
    # enough programs are in flight, and it took longer: sums of columns 1.1x, cross-entropy 1.7x.
    ahead = any(isinstance(s, ir.Loop) and s.var == "#part" for s in every)
    for launch in kernel.launches:
        passes = _passes_over(launch.body)
        stored = {name for s in walk.every_statement(launch.body) if isinstance(s, ir.Store) for name in s.buffers}
        hints = ir.Hints(
            is_loose=is_loose(kernel, launch),
            reads_once=depth_of(launch.body) > 1 and not stored & ends,
            shares_inputs=_shares_inputs(kernel, launch),
            is_pipelined=ahead and all(len(loops) == 1 for loops in passes.values()),
            follows=not scratch.isdisjoint(load.buffer for load in walk.loads_of(launch.body)),
            passes=tuple(sorted((name, tuple(loops)) for name, loops in passes.items())),
            reload=_find_reload(kernel, launch),
        )
        launches.append(replace(launch, hints=hints))
    return replace(kernel, launches=tuple(launches))


def depth_of(body: Iterable[ir.Statement]) -> int:
    """The greatest depth of nested tiles; at least 1."""

    def deepest(statements: Iterable[ir.Statement]) -> int:
        every = (each for s in statements for each in (s, *walk.expressions(s)))
        nests = (each for each in every if isinstance(each, ir.Loop | ir.If | ir.Fold))
        return max((deepest(each.body) + (getattr(each, "tile", None) is not None) for each in nests), default=0)

    return max(1, deepest(body))


def is_loose(kernel: ir.Kernel, launch: ir.Launch) -> bool:
    """Whether a launch may have a relative error of 2**-17: all its arrays of floats are halves, whose last bit is
    2**-11 or more, and no function in it jumps."""
    ends = [buffer for buffer in kernel.buffers if buffer.role is not ir.Role.SCRATCH and buffer.shape]
    wide = [buffer.shape for buffer in ends if buffer.role is ir.Role.OUTPUT]
    arrays = [b.dtype for b in ends if b.role is ir.Role.OUTPUT or not _is_of_rows(b.shape, wide)]
    floats = [dtype for dtype in arrays if dtype.is_float]
    calls = [expr for expr in walk.every_expression(launch.body) if isinstance(expr, ir.Call)]
    to_whole = [call for call in calls if call.function == "cast" and not call.dtype.is_float]
    jumps = any(has(call.function, Fact.STEPS | Fact.JUMPS) for call in calls)
    jumps = jumps or any(cast.operands[0].dtype.is_float for cast in to_whole)
    return bool(floats) and all(dtype in HALVES for dtype in floats) and not jumps


def _is_of_rows(shape: Shape, wide: Iterable[Shape]) -> bool:
    """Whether an array of this shape has one cell for each row of wider arrays."""
    return shape[-1] == Dim.of(1) or any(len(shape) < len(other) and shape == other[: len(shape)] for other in wide)


def _shares_inputs(kernel: ir.Kernel, launch: ir.Launch) -> bool:
    """Whether each cell of a map is computed by itself, and several programs read the same tiles of an input, which
    should stay in the cache rather than the outputs."""
    statements, names = list(walk.every_statement(launch.body)), {loop.var for loop in walk.on_threads(launch.body)[1]}
    carries = any(isinstance(s, ir.Alloc) or (isinstance(s, ir.Loop) and s.axis is ir.Axis.SERIAL) for s in statements)
    if carries or walk.folds_in(launch.body) or not names:
        return False
    loads, lanes = walk.loads_of(launch.body), {s.var for s in statements if isinstance(s, ir.Loop) and s.tile}
    lets = {s.name: s.value.dim.names for s in statements if isinstance(s, ir.Let) and isinstance(s.value, ir.Index)}
    read = [frozenset().union(*(lets.get(n, {n}) for dim in load.index for n in dim.names)) for load in loads]
    inputs = {buffer.name for buffer in kernel.of(ir.Role.INPUT)}
    return any(load.buffer in inputs and lanes & own and names - own for load, own in zip(loads, read, strict=True))


def _passes_over(body: Iterable[ir.Statement]) -> dict[str, list[str]]:
    """The loops over tiles that load from each buffer, in order."""
    loops = [s for s in walk.every_statement(body) if isinstance(s, ir.Loop)]
    passes = defaultdict[str, list[str]](list)
    for loop in (loop for loop in loops if loop.axis is ir.Axis.SERIAL and loop.tile is None):
        for name in {load.buffer for load in walk.loads_of(loop.body)}:
            passes[name].append(loop.var)
    return passes


def _find_reload(kernel: ir.Kernel, launch: ir.Launch) -> ir.Reload | None:
    """The inputs that a launch loads twice: if its only fold, which is cheap, reads cells that the stores need too."""
    body, folded, written = launch.body, list[tuple[ir.Tile | None, Statements]](), list[ir.Statement]()
    for tile in (s for s in walk.every_statement(body) if isinstance(s, ir.Loop) and s.axis is ir.Axis.LANES):
        if tile.tile is not None and not _is_filled(tile) and (word := read_for(kernel, tile)) is not None:
            folded += [(tile.tile, tile.body)] if word == FOLDED else []
            written += tile.body if word == WRITTEN else ()
    folded += [(fold.tile, fold.body) for fold in walk.folds_in(body)]
    if _passes_over(body) or len(folded) != 1 or primitives.is_costly(folded[0][1]):
        return None
    tile_of_fold = folded[0][0]
    read, again = ({(e.buffer, e.where is None) for e in walk.loads_of(s)} for s in (folded[0][1], written))
    alike = {name for name, _ in read & again}  # a conditional load does not equal one without a condition
    cells = {buffer.name: buffer.dtype.bytes for buffer in kernel.of(ir.Role.INPUT) if buffer.name in alike}
    if tile_of_fold is None or not cells:
        return None
    return ir.Reload(frozenset(cells), tile_of_fold, max(cells.values()))


def _is_filled(tile: ir.Loop) -> bool:
    """Whether a tile only initialises memory."""
    match tile.body:
        case (ir.Store(_, (at,), _, None),):
            return at == Dim.of(tile.var)
        case _:
            return False


def read_for(kernel: ir.Kernel, tile: ir.Loop) -> str | None:
    """Whether the cells of a tile are folded, or written; None for a tile around others."""
    inside = list(walk.every_statement(tile.body))
    if any(isinstance(s, ir.Loop) for s in inside) or walk.folds_in(tile.body):
        return None
    stored = {name for s in inside if isinstance(s, ir.Store) for name in s.buffers}
    return WRITTEN if stored & {buffer.name for buffer in kernel.buffers} else FOLDED
