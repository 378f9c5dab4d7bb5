"""The schedule functions: each maps statements (or a kernel) to others that compute the same.

In a lowered nest every loop may run in any order: each cell is stored once, and only folds carry a state."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeGuard

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, DimLike, DimOp, Shape, maximum, never_negative, product, strides_of
from noyau.ir.ranges import at_least_one
from noyau.ir.sizes import Binding, plan
from noyau.ir.walk import rewrite, substitute

Statements = tuple[ir.Statement, ...]
COSTLY = 8  # flops of a function that takes a core longer than a cell takes memory


def most_of(value: ir.Expr) -> int:
    """The constant in min(constant, what is left); 0 for any other expression."""
    match value:
        case ir.Index(Dim((((DimOp("max", left, right),), -1),))):
            return -min(each.constant or 0 for each in (left, right))
        case _:
            return 0


def minimum(left: Dim, right: Dim) -> Dim:
    return -maximum(-left, -right)


def flatten(kernel: ir.Kernel) -> ir.Kernel:
    """Replace each index into a packed buffer by one offset in elements."""
    strides = {buffer.name: strides_of(buffer.shape) for buffer in kernel.buffers if buffer.strides is None}

    def offset(name: str, index: Shape) -> Shape:
        if name not in strides:
            return index
        return (sum((at * step for at, step in zip(index, strides[name], strict=True)), Dim.of(0)),)

    return with_bodies(kernel, lambda body: reindex(body, offset))


def reindex(statements: Statements, change: Callable[[str, Shape], Shape]) -> Statements:
    """The statements with each index into a buffer or memory changed, by its name."""

    def store(statement: ir.Statement) -> ir.Statement:
        if isinstance(statement, ir.Store):
            return replace(statement, index=change(statement.buffers[0], statement.index))
        return statement

    def load(expr: ir.Expr) -> ir.Expr:
        return replace(expr, index=change(expr.buffer, expr.index)) if isinstance(expr, ir.Load) else expr

    return walk.rewrite_all(statements, store, load)


def with_bodies(kernel: ir.Kernel, change: Callable[[Statements], Statements]) -> ir.Kernel:
    """The kernel with the body of every launch changed."""
    return replace(kernel, launches=tuple(replace(launch, body=change(launch.body)) for launch in kernel.launches))


def coalesce(statements: Statements) -> Statements:
    """Merge perfectly nested loops where no index then needs a division."""
    one = (_join_loops(replace(s, body=coalesce(s.body))) if isinstance(s, ir.Loop) else s for s in statements)
    return rewrite(one, _coalesce_fold)


def _join_loops(outer: ir.Loop) -> ir.Loop:
    match outer.body:
        case (ir.Loop(var, extent, axis, body),) if axis is outer.axis and outer.var not in extent.names:
            changed = _in_one(outer.var, var, extent, body)
            return outer if changed is None else ir.Loop(var, outer.extent * extent, axis, changed)
        case _:
            return outer


def _in_one(outer: str, inner: str, extent: Dim, body: Statements) -> Statements | None:
    """The body over one variable, named as the inner one, that counts through both loops; None if an index divides."""
    counter = Dim.of("#both")
    both = substitute(body, {outer: counter // extent, inner: counter % extent})
    return substitute(both, {"#both": inner}) if not any(divides(dim, "#both") for dim in walk.all_dims(both)) else None


def _coalesce_fold(expr: ir.Expr) -> ir.Expr:
    if not isinstance(expr, ir.Fold):
        return expr
    body, loops = coalesce(expr.body), list(expr.loops)
    for at in reversed(range(len(loops) - 1)):
        (outer, count), (inner, extent) = loops[at], loops[at + 1]
        one = _in_one(outer, inner, extent, (*body, ir.Let("#value", expr.value)))
        if one is not None and isinstance(last := one[-1], ir.Let):
            body, expr = one[:-1], replace(expr, value=last.value)
            loops[at : at + 2] = [(inner, count * extent)]
    return replace(expr, loops=tuple(loops), body=body)


def divides(dim: Dim, variable: str) -> bool:
    """Whether an index has a division or modulo of the variable."""
    atoms = [atom for monomial, _ in dim.terms for atom in monomial]
    return any(isinstance(atom, DimOp) and variable in Dim.of(atom).names for atom in atoms)


def sink(statements: Statements) -> Statements:
    """Move cheap Lets before a lone loop into it, so that loops nest perfectly and can share threads."""
    match statements:
        case (*lets, ir.Loop() as loop) if lets and all(is_light(s) and not s.name.startswith("#") for s in lets):
            return (replace(loop, body=sink((*lets, *loop.body))),)
        case (ir.Loop() as loop,):
            return (replace(loop, body=sink(loop.body)),)
        case _:
            return statements


def sink_loads(statements: Statements) -> Statements:
    """Coalesced loops with the Lets before them inside, where no load is under the condition that these loops run: gcc
    would not vectorise it. For loops that run cell by cell."""
    loops, body = chain(sink(coalesce(statements)))
    positive = frozenset[str]().union(*(at_least_one(loop.extent) for loop in loops))

    def change(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Load(where=ir.Call("less", (ir.Index(low), ir.Index(extent)))) if low == Dim.of(0):
                return replace(expr, where=None, other=None) if never_negative(extent - 1, positive) else expr
            case _:
                return expr

    return nest(loops, rewrite(body, change))


def bind(statements: Statements, count: int) -> Statements:
    """Bind the first `count` loops of a perfect nest to THREADS; a loop whose extent depends on another one, or that is
    bound, and those in it, stay as they are."""
    match statements:
        case (*before, ir.Loop(axis=ir.Axis.SERIAL) as loop) if count and not any(
            name.startswith("#") for name in loop.extent.names
        ):
            return (*before, replace(loop, axis=ir.Axis.THREADS, body=bind(loop.body, count - 1)))
        case _:
            return statements


def bind_all(statements: Statements) -> Statements:
    """Bind all loops of a perfect nest to THREADS."""
    return bind(statements, len(chain(statements)[0]))


def chain(statements: Statements) -> tuple[list[ir.Loop], Statements]:
    """The loops of a perfect nest, outermost first, and the body of the last one."""
    loops: list[ir.Loop] = []
    while len(statements) == 1 and isinstance(loop := statements[0], ir.Loop):
        loops.append(loop)
        statements = loop.body
    return loops, statements


def nest(loops: Iterable[ir.Loop], body: Statements) -> Statements:
    """A perfect nest of loops around a body."""
    for loop in reversed(list(loops)):
        body = (replace(loop, body=body),)
    return body


def reorder(statements: Statements, order: Sequence[str]) -> Statements:
    """The loops that stand alone in each other, in another order. UnsupportedError where one of them carries a state,
    or the extent of one is known only within another."""
    loops, body = chain(statements)
    by_name = {loop.var: loop for loop in loops}
    if sorted(order) != sorted(by_name):
        raise UnsupportedError(f"the loops {', '.join(by_name)} cannot be put in the order {', '.join(order)}")
    for loop in loops:
        if carries(loop) or loop.extent.names & by_name.keys():
            raise UnsupportedError(f"the loop over {loop.var} has to stay where it is")
    return nest([by_name[name] for name in order], body)


def widen(statements: Statements) -> Statements:
    """Bind every innermost loop to LANES, except those that carry a state from one round to the next."""
    return tuple(_widen(s) if isinstance(s, ir.Loop) else s for s in statements)


def _widen(loop: ir.Loop) -> ir.Loop:
    inner = walk.folds_in(loop.body) or any(isinstance(s, ir.Loop) for s in walk.every_statement(loop.body))
    serial = inner or loop.axis is not ir.Axis.SERIAL or carries(loop)
    return replace(loop, axis=loop.axis if serial else ir.Axis.LANES, body=widen(loop.body))


def carries(loop: ir.Loop) -> bool:
    """Whether rounds of a loop store in one cell: in memory from outside, at an index without the loop's variable."""
    if loop.extent == Dim.of(1):
        return False
    own = {s.name for s in walk.every_statement(loop.body) if isinstance(s, ir.Alloc)}
    stores = (s for s in walk.every_statement(loop.body) if isinstance(s, ir.Store) and not own.issuperset(s.buffers))
    return any(loop.var not in {name for dim in store.index for name in dim.names} for store in stores)


def stride_of(access: ir.Load | ir.Store, variable: str) -> Dim:
    """The distance by which a load or a store moves when a variable grows by one, if that is a polynomial.

    For a buffer with strides it is as if the last axis were contiguous and the other strides were sizes: a sliced array
    does not show which of its axes is the short one."""
    *outer, last = (dim.replace({variable: Dim.of(variable) + 1}) - dim for dim in access.index)
    return last + sum((step * Dim.of(f"stride {axis}") for axis, step in enumerate(outer)), Dim.of(0))


def keep(statements: Statements, values: frozenset[str], name: str) -> Statements:
    """Keep values that a fold of a row computes in memory of the thread, for the folds and loops after it.

    The statements are those of one row; `values` are names of values of the graph. Nothing changes unless a later pass
    reads a value at the same index."""
    for at, let in enumerate(statements):
        if not isinstance(let, ir.Let) or not walk.is_fold(let) or len((fold := walk.fold_of(let)).loops) != 1:
            continue
        for where, inner in enumerate(fold.body, 1):
            if isinstance(inner, ir.Let) and inner.origin and inner.origin[0] in values:
                after = tuple(_reload(s, inner, fold.loops[0], name) for s in statements[at + 1 :])
                if after != statements[at + 1 :]:
                    store = ir.Store((name,), (Dim.of(fold.loops[0][0]),), (ir.Var(inner.name, inner.value.dtype),))
                    body = (*fold.body[:where], store, *fold.body[where:])
                    return (*statements[:at], replace(let, value=replace(fold, body=body)), *after)
    return statements


def _reload(statement: ir.Statement, let: ir.Let, loop: tuple[str, Dim], name: str) -> ir.Statement:
    """A fold or a loop that loads the value of a Let of an earlier fold at its own index."""

    def loaded(body: Statements, var: str) -> Statements:
        assert let.origin is not None, "as values of the graph have"
        origin = (let.origin[0], tuple(dim.replace({loop[0]: var}) for dim in let.origin[1]))
        load = ir.Load(name, (Dim.of(var),), let.value.dtype)
        return tuple(replace(s, value=load) if isinstance(s, ir.Let) and s.origin == origin else s for s in body)

    match statement:
        case ir.Loop(var, extent, _, body) if extent == loop[1]:
            return replace(statement, body=drop_unused(loaded(body, var)))
        case ir.Let(_, ir.Fold(_, ((var, extent),), body) as fold) if extent == loop[1]:
            *inner, _ = drop_unused((*loaded(body, var), ir.Store(("",), (), (fold.value,))))
            return replace(statement, value=replace(fold, body=tuple(inner)))
        case _:
            return statement


def drop_unused(statements: Statements) -> Statements:
    """The statements of a block without the Lets and Allocs that none of them reads."""
    rest: list[ir.Statement] = []
    for statement in reversed(statements):
        match statement:
            case ir.Let(name) if name.startswith("#"):
                used = any(name in dim.names for dim in walk.all_dims(rest))
            case ir.Let(name):
                used = any(isinstance(expr, ir.Var) and expr.name == name for expr in walk.every_expression(rest))
            case ir.Alloc(name):
                used = name in walk.memory_of(rest)
            case _:
                used = True
        if used:
            rest.insert(0, statement)
    return tuple(rest)


def change_each(body: Iterable[ir.Statement], change: Callable[[ir.Statement], Statements | None]) -> Statements:
    """The statements of a block, also in loops and conditions, each replaced by the result of `change`, if any."""
    result: list[ir.Statement] = []
    for statement in body:
        if (changed := change(statement)) is not None:
            result += changed
        elif isinstance(statement, ir.Loop | ir.If):
            result.append(replace(statement, body=change_each(statement.body, change)))
        else:
            result.append(statement)
    return tuple(result)


def change_lanes(body: Statements, change: Callable[[ir.Loop], Statements | None]) -> Statements:
    """The statements of a block, with each loop in lanes replaced by the result of `change` unless that is None."""
    return change_each(body, lambda s: change(s) if isinstance(s, ir.Loop) and s.axis is ir.Axis.LANES else None)


def sizes_outside(body: Statements) -> Statements:
    """Hoist conversions of sizes to floats out of loops in lanes: no vector converts 64-bit integers to floats."""
    result, names = list[ir.Statement](), set[str]()
    for statement in body:
        if isinstance(statement, ir.Loop | ir.If):
            lanes = isinstance(statement, ir.Loop) and statement.axis is ir.Axis.LANES
            sizes = [s for s in statement.body if lanes and isinstance(s, ir.Let) and _is_size(s.value)]
            result += [s for s in sizes if s.name not in names]
            names.update(s.name for s in sizes)
            statement = replace(statement, body=sizes_outside(tuple(s for s in statement.body if s not in sizes)))
        result.append(statement)
    return tuple(result)


def quotients_outside(kernel: ir.Kernel) -> ir.Kernel:
    """Hoist what follows from buffers of one cell, if quotients are among it, out of all loops of a launch: each block
    of a loop over cells to be quantized would wait for their scale."""
    single = {each.name for each in kernel.buffers if all(dim == Dim.of(1) for dim in each.shape)}

    def outside(body: Statements) -> Statements:
        known, read = dict[str, ir.Let](), single - walk.targets_of(body)
        lets = dict.fromkeys(s for s in walk.every_statement(body) if isinstance(s, ir.Let))
        values = Counter(let.name for let in lets)

        def is_known(leaf: ir.Expr) -> bool:
            if isinstance(leaf, ir.Load):
                return leaf.buffer in read and leaf.where is None and not variables_of(leaf)
            return isinstance(leaf, ir.Call | ir.Const) or (isinstance(leaf, ir.Var) and leaf.name in known)

        for let in lets:
            if let.name[0] != "#" and values[let.name] == 1 and all(map(is_known, walk.every_expression((let,)))):
                known[let.name] = let
        first = tuple(known.values())
        divides = any(isinstance(e, ir.Call) and e.function == "divide" for e in walk.every_expression(first))
        return (*first, *change_each(body, lambda s: () if s in first else None)) if divides else body

    return with_bodies(kernel, outside)


def words_of(kernel: ir.Kernel) -> frozenset[str]:
    """The buffers whose rows a language may have an intrinsic to transpose: packed, with cells of 4 bytes."""
    packed = (each for each in kernel.buffers if each.strides is None and each.layout != "strided")
    return frozenset(each.name for each in packed if each.dtype.bytes == 4 and each.dtype is each.dtype.compute)


def _is_size(value: ir.Expr) -> bool:
    match value:
        case ir.Call("cast", (ir.Index(dim),)):
            return not any(name.startswith("#") for name in dim.names)
        case _:
            return False


def tile_loop(loop: ir.Loop, size: int, outer: str, inner: str, count: str) -> tuple[ir.Loop, Statements, ir.Loop]:
    """The loop over tiles of at most `size`, the last one shorter, without a body; the Let that calls the length of a
    tile `count`, unless it is constant; and the loop over a tile."""
    begin = Dim.of(outer) * size
    body = substitute(loop.body, {loop.var: begin + Dim.of(inner)})
    tiles = ir.Loop(outer, (loop.extent + (size - 1)) // size, loop.axis, ())
    extent = Dim.of(size) if loop.extent % size == Dim.of(0) else minimum(Dim.of(size), loop.extent - begin)
    if extent.constant is not None:
        return tiles, (), ir.Loop(inner, extent, ir.Axis.SERIAL, body)
    return tiles, (ir.Let(count, ir.Index(extent)),), ir.Loop(inner, Dim.of(count), ir.Axis.SERIAL, body)


def as_one(loops: Sequence[ir.Loop], body: Statements) -> tuple[list[ir.Loop], Statements]:
    """Merge a perfect nest of loops into one loop over all their cells."""
    extents, item = tuple(loop.extent for loop in loops), Dim.of("#item")
    first, *others = zip(loops, strides_of(extents), strict=True)
    index: dict[str, DimLike] = {first[0].var: item // first[1]}
    index |= {loop.var: item // step % loop.extent for loop, step in others}
    return [ir.Loop("#item", product(extents), ir.Axis.SERIAL, ())], substitute(body, index)


def compare(function: str, left: Dim, right: Dim) -> ir.Expr:
    """A comparison of two indices or sizes."""
    return ir.Call(function, (ir.Index(left), ir.Index(right)), DType.BOOL)


def where(case: ir.Condition, launches: Iterable[ir.Launch]) -> list[ir.Launch]:
    """Launches restricted to a condition."""
    cases = [(each, ir.all_of((case, each.when or True))) for each in launches]
    return [replace(each, when=ir.when(both)) for each, both in cases if both is not False]


def in_turn(
    name: str, kernels: Sequence[ir.Kernel], ends: Sequence[ir.Buffer], shape_of: Callable[[str], Shape]
) -> ir.Kernel | None:
    """One kernel with the launches of several, in order. `ends`: its inputs and outputs; other results are scratch.
    `shape_of`: the shape of a value in sizes of the inputs. None where two sizes or two buffers have one name."""
    inputs, own = [each for each in ends if each.role is ir.Role.INPUT], {each.source for each in ends}
    passed = [b for each in kernels for b in each.buffers if b.role is not ir.Role.INPUT and b.source not in own]
    bindings = {each.size: each for each in plan([each.shape for each in inputs])}
    sizes, known = {size: Dim.of(size) for size in bindings}, frozenset(bindings)
    place, extent = next(((at, each.shape[0]) for at, each in enumerate(inputs) if each.shape), (0, Dim.of(0)))
    for kernel in kernels:
        values = dict[str, Dim]()
        for each in kernel.binding:
            shape = shape_of(kernel.buffers[each.input].source)
            if each.axis < len(shape):
                values[each.size] = value = (shape[each.axis] - each.offset.replace(values)) // each.factor
                bindings.setdefault(each.size, Binding(each.size, place, 0, extent - value, 1))
                if sizes.setdefault(each.size, value) != value or not value.names <= known:
                    return None
    buffers = (*ends, *(replace(each, role=ir.Role.SCRATCH) for each in passed))
    launches = tuple(launch for each in kernels for launch in each.launches)
    checks = tuple(guard for each in kernels for guard in each.guards)
    is_named = len({each.name for each in buffers}) == len(buffers)
    return ir.Kernel(name, buffers, tuple(bindings.values()), launches, checks) if is_named else None


def either(condition: ir.Expr, this: Statements, other: Statements) -> Statements:
    """One block where a condition holds, else the other."""
    return ir.If(condition, this), ir.If(ir.Call("logical_not", (condition,), DType.BOOL), other)


def is_costly(body: Iterable[ir.Statement]) -> bool:
    """Whether statements have a function that takes longer than a cell takes memory."""
    return any(walk.flops_of(expr) >= COSTLY for expr in walk.every_expression(body))


def apart(body: Statements) -> list[Statements]:
    """A block for each loop of a block, and one for its stores, with the Lets before them: loops side by side can then
    all use threads. The block itself if it has other statements, or if two parts would need one fold."""
    blocks: list[Statements] = [(s,) for s in body if isinstance(s, ir.Loop)]
    stores = tuple(s for s in body if isinstance(s, ir.Store) and s.merge is None)
    lets = tuple(s for s in body if isinstance(s, ir.Let))
    used = walk.targets_of(s for block in blocks for s in block) | {load.buffer for load in walk.loads_of(body)}
    if len(blocks) + len(stores) + len(lets) != len(body) or any(used & set(store.buffers) for store in stores):
        return [body]
    blocks = [drop_unused((*lets, *block)) for block in (*blocks, stores) if block]
    folds = [s.name for block in blocks for s in block if isinstance(s, ir.Let) and walk.is_fold(s)]
    return [body] if len(blocks) < 2 or len(folds) > len(set(folds)) else blocks


def is_light(statement: ir.Statement) -> TypeGuard[ir.Let]:
    """Whether a statement may be repeated in several launches."""
    return isinstance(statement, ir.Let) and not isinstance(statement.value, ir.Fold)


def each(kernel: ir.Kernel, bodies: Sequence[Statements], strategy: Callable[[ir.Kernel], ir.Kernel]) -> ir.Kernel:
    """Blocks as launches, one after the other, each scheduled as a kernel of its own."""
    launches: list[ir.Launch] = []
    for body in bodies:
        kernel = strategy(replace(kernel, launches=(ir.Launch(body),)))
        launches += kernel.launches
    return replace(kernel, launches=tuple(launches))


def is_small(statement: ir.Statement, most: int) -> bool:
    """Whether a loop or a fold surely has at most `most` rounds; any other statement is small."""
    match statement:
        case ir.Loop(_, extent, _, body):
            count = extent.constant
            inner = [s for s in body if isinstance(s, ir.Loop)]
            return count is not None and all(is_small(s, most // max(count, 1)) for s in inner) and count <= most
        case ir.Let(_, ir.Fold(_, loops)):
            count = product(extent for _, extent in loops).constant
            return count is not None and count <= most
        case _:
            return True


def around_fold(
    kernel: ir.Kernel, body: Statements, let: ir.Let
) -> tuple[ir.Kernel, Statements, Statements, Statements]:
    """The statements of a block before a fold and after it, and those left to schedule: if more than a few scalars
    follow, the fold's result goes to scratch of the kernel, where the rest loads it."""
    at, rest = body.index(let), tuple[ir.Statement, ...]()
    before = tuple(s for s in body[:at] if not isinstance(s, ir.Loop | ir.Store))
    after = (*(s for s in body[:at] if isinstance(s, ir.Loop | ir.Store)), *body[at + 1 :])
    if not all(isinstance(s, ir.Store) or is_light(s) for s in after):
        scratch, cell = ir.Buffer(f"{let.name}.result", let.value.dtype, (Dim.of(1),), ir.Role.SCRATCH), (Dim.of(0),)
        kernel = replace(kernel, buffers=(*kernel.buffers, scratch))
        rest = drop_unused((*before, replace(let, value=ir.Load(scratch.name, cell, scratch.dtype)), *after))
        after = (ir.Store((scratch.name,), cell, (ir.Var(let.name, scratch.dtype),)),)
    return kernel, before, after, rest


def variables_of(access: ir.Load | ir.Store) -> set[str]:
    """The loop variables and looked-up indices that an access depends on."""
    return {name for dim in access.index for name in dim.names if name.startswith("#")}
