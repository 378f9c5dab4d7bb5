"""A launch of a kernel as a function of Python: statements, and loops on threads as one counted loop over items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from noyau.errors import UnsupportedError
from noyau.ir.algebra import Symbolic
from noyau.ir.dims import Dim, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Expr,
    If,
    Index,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Prefetch,
    Require,
    Space,
    Statement,
    Store,
    Sync,
    Var,
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_expression, every_statement, rewrite_expression
from noyau.languages.c_expressions import is_variable
from noyau.languages.c_names import wish_of
from noyau.languages.c_short import (
    begun_by,
    inlined,
    is_copied_around,
    is_only_stored,
    one_by_one,
    otherwise,
    steps_of,
)
from noyau.languages.numba_expressions import Expressions
from noyau.languages.numba_indices import tile_of
from noyau.languages.numba_memory import STACK_CELLS
from noyau.languages.numba_names import Variables
from noyau.languages.numba_short import HALF, halving
from noyau.languages.numba_tables import KINDS, NUMPY, const_text
from noyau.languages.spelling import closed, opened

INDENT = "    "
PRIVATE = (Space.REGISTER, Space.THREAD)


class Printer:
    """One launch being printed."""

    def __init__(self, kernel: Kernel, shared: Expressions) -> None:
        self.kernel = kernel
        self.names = Variables(kernel)
        self.expressions = Expressions(kernel, self.names)
        self.expressions.functions, self.expressions.integers = shared.functions, shared.integers
        self.arrays: dict[tuple[str, str, str], str] = {}  # memory of the launch, by its name, type and size
        self.apart = rounds_apart(kernel)
        self.given: list[str] = []  # the buffers and the sizes that it takes
        self.parallel = False  # whether it has loops on threads
        self.fails = False  # whether an index is checked in it

    def function(self, position: int, launch: Launch) -> str:
        """The function that runs items [begin, end) of a launch; printed again where it turned out which buffers are
        flat in it."""
        said = self.expressions
        self.fails = any(isinstance(s, Require) for s in every_statement(launch.body))
        while True:
            flat = set(said.flat)
            self.names.forget()
            with self.names.block():
                cells = list(self.flattened(flat))
                lines = [*cells, *self.threads(launch.body)]
                self.given = list(self.taken())
            if flat == said.flat:
                break
        parameters = ", ".join([*self.given, *(("begin", "end") if self.parallel else ())])
        lines += ["noyau_written_around()"] if any("noyau_write_around(" in line for line in lines) else []
        lines += ["return 0"] if self.fails else []
        body = "\n".join(f"{INDENT}{line}" for line in lines or ["pass"])
        fused = "" if self.apart else ', fastmath={"contract"}'  # products with the sums that they are in, as in C
        head = f'@numba.njit(error_model="numpy", nogil=True{fused})'
        return f"{head}\ndef {self.kernel.name}_{position}({parameters}):\n{body}"

    def taken(self) -> Iterator[str]:
        """The buffers and the sizes that the text has asked for."""
        for buffer in self.kernel.buffers:
            if ("value", buffer.name) in self.names.used:
                yield self.names.blocks[0]["value", buffer.name]
        for binding in self.kernel.binding:
            if ("size", binding.size) in self.names.used:
                yield self.names.atom(binding.size)

    def flattened(self, flat: set[str]) -> Iterator[str]:
        """Buffers that are indexed by an offset, under names of their own."""
        for buffer in self.kernel.buffers:
            if buffer.name in flat:
                whole = self.names.value(buffer.name)
                with self.names.of(f"{KINDS[buffer.dtype]} array of one axis"):
                    cells = self.names.bind(buffer.name, f"{whole}_cells")
                yield f"{cells} = {whole}.reshape(-1)"

    def threads(self, body: tuple[Statement, ...]) -> Iterator[str]:
        """What stands before the loops on threads, then these as one counted loop over the call's items."""
        loops, before, inner = list[Loop](), body[:-1], body[-1:]
        while len(inner) == 1 and isinstance(inner[0], Loop) and inner[0].axis is Axis.THREADS:
            loops.append(inner[0])
            inner = inner[0].body
        if not loops:
            before, inner = (), body
        self.parallel = bool(loops)
        yield from self.memory(body)
        yield from self.block(before)
        said, outside = self.expressions, dict(self.expressions.extents)
        said.extents |= {loop.var: loop.extent for loop in loops}
        said.threads = frozenset(loop.var for loop in loops)
        with self.names.block():
            yield from self.items(loops, inner)
        said.extents, said.threads = outside, frozenset()

    def items(self, loops: Sequence[Loop], body: tuple[Statement, ...]) -> Iterator[str]:
        if not loops:
            yield from self.block(body)
            return
        extents = [closed(self.expressions.dim(loop.extent)) for loop in loops[1:]]
        with self.names.of("i64"):
            item = self.names.fresh("item") if len(loops) > 1 else ""
            names = [self.names.bind(loop.var, wish_of(loop.var)) for loop in loops]
        yield f"for {item or names[0]} in range(begin, end):"
        yield from (f"{INDENT}{line}" for line in (self.counters(names, extents, item) if item else ()))
        yield from (f"{INDENT}{line}" for line in list(self.block(body)) or ["pass"])

    def counters(self, names: Sequence[str], extents: Sequence[str], item: str) -> Iterator[str]:
        """The variables of several loops, from one that counts through all."""
        for at, name in enumerate(names):
            steps = " * ".join(extents[at:])
            step = f"({steps})" if len(extents) - at > 1 else steps
            text = f"{item} // {step}" if step else item
            yield f"{name} = {text}{f' % {extents[at - 1]}' if at else ''}"

    def memory(self, body: Sequence[Statement]) -> Iterator[str]:
        """Arrays of the thread, taken once a call: not one for each round of a loop."""
        self.arrays = {}
        for alloc in every_statement(body):
            if not isinstance(alloc, Alloc) or is_variable(alloc) or alloc.space not in PRIVATE:
                continue
            key = self.key(alloc)
            if key not in self.arrays:
                with self.names.of(f"{KINDS[alloc.dtype]} array of one axis"):
                    self.arrays[key] = self.names.bind(f"{alloc.name} of {len(self.arrays)}", alloc.name)
                yield f"{self.arrays[key]} = {taken(alloc, key[2])}"

    def key(self, alloc: Alloc) -> tuple[str, str, str]:
        return alloc.name, KINDS[alloc.dtype], self.expressions.dim(product(alloc.shape))

    # Statements.

    def block(self, statements: Iterable[Statement]) -> Iterator[str]:
        """Statements in a scope that is open already."""
        left = list(statements)
        while left:
            merged, merge = halving(left)
            if merge is not None:
                yield from self.halves(merge, 1 << (merged - 1))
                left = left[merged:]
                continue
            statement, *left = left
            if isinstance(statement, Let) and left and is_only_stored(statement, left):
                store, *left = left
                statement = inlined(statement, store)
            lines = self.statement(statement)
            if left and (other := otherwise(statement, left[0])):
                lines, left = self.either(statement, other), left[1:]
            if isinstance(statement, Alloc) and (begun := begun_by([statement, *left])):
                *memory, first = [statement, *left][: begun + 1]
                lines, left = self.variables(memory, first), left[begun:]
            yield from lines

    def inner(self, statements: Iterable[Statement]) -> Iterator[str]:
        """A block of its own."""
        with self.names.block():
            lines = list(self.block(statements))
        return (f"{INDENT}{line}" for line in lines or ["pass"])

    def variables(self, memory: Sequence[Statement], first: Statement) -> Iterator[str]:
        """Memory of one cell each, with what is in it first."""
        assert isinstance(first, Store)
        for alloc, value in zip(memory, first.values, strict=True):
            assert isinstance(alloc, Alloc)
            yield self.variable(alloc, self.expressions.stored_as(alloc.dtype, value))

    def variable(self, alloc: Alloc, text: str) -> str:
        self.expressions.memory[alloc.name] = alloc
        with self.names.of(KINDS[alloc.dtype]):
            return f"{self.names.bind(alloc.name)} = {text}"

    def statement(self, statement: Statement) -> Iterator[str]:
        match statement:
            case Let():
                yield self.let(statement)
            case Store():
                yield from self.store(statement)
            case Loop():
                yield from self.loop(statement)
            case If(condition, body):
                yield f"if {self.expressions.top(condition)}:"
                yield from self.inner(body)
            case Alloc(_, dtype) if is_variable(statement):
                yield self.variable(statement, opened(const_text(0, dtype)))
            case Alloc(name, _, _, space) if space in PRIVATE:
                self.expressions.memory[name] = statement
                self.names.blocks[-1]["value", name] = self.arrays[self.key(statement)]
            case Prefetch(name, (at,)) if is_packed(self.expressions.memory[name]):
                yield f"noyau_fetch({self.names.value(name)}, {self.expressions.dim(at)})"
            case Prefetch():
                pass
            case Require():
                yield from self.require(statement)
            case Alloc() | Sync():
                raise UnsupportedError(f"numba has no {statement}; it has threads that never wait for each other")
            case _:
                assert_never(statement)

    def either(self, this: Statement, other: Sequence[Statement]) -> Iterator[str]:
        """One of two blocks."""
        assert isinstance(this, If)
        yield f"if {self.expressions.top(this.condition)}:"
        yield from self.inner(this.body)
        yield "else:"
        yield from self.inner(other)

    def let(self, let: Let) -> str:
        """A value under the name that the model gives it; a cell of a buffer `x` is `x_i`."""
        text = self.expressions.top(let.value)
        wish = let.origin[0] if let.origin else let.name.removeprefix("#")
        if isinstance(let.value, Load) and isinstance(self.expressions.memory[let.value.buffer], Buffer):
            wish = f"{let.value.buffer}_i"
        if let.name.startswith("#"):
            wish = wish_of(let.name) or wish
        match let.value:
            case Index(dim) if (tile := tile_of(dim)) is not None:
                self.expressions.lengths[let.name] = tile
            case _:
                pass
        with self.names.of(KINDS[let.value.dtype.compute]):
            return f"{self.names.bind(let.name, wish)} = {text}"

    def require(self, require: Require) -> Iterator[str]:
        at, extent = self.expressions.dim(require.index), self.expressions.dim(require.extent)
        yield f"if not 0 <= {at} < {extent}:"
        yield f"{INDENT}return 1"
        if require.index == Dim.of(name := str(require.index)):
            self.expressions.required[name] = require.extent

    def loop(self, loop: Loop) -> Iterator[str]:
        if loop.axis is Axis.THREADS:
            raise UnsupportedError("numba runs THREADS loops outermost only, each alone in the other")
        if is_copied_around(loop):
            yield self.copied_around(loop)
            return
        said = self.expressions
        extent, outside = said.dim(loop.extent), (dict(said.extents), dict(said.tiles))
        said.extents[loop.var] = loop.extent
        if (tile := said.lengths.get(str(loop.extent))) is not None:
            said.tiles[loop.var] = tile
        with self.names.block():
            with self.names.of("i64"):
                name = self.names.bind(loop.var, wish_of(loop.var))
            body = list(self.inner(loop.body))
        said.extents, said.tiles = outside
        yield f"for {name} in range({extent}):"
        yield from body

    def copied_around(self, loop: Loop) -> str:
        """A loop that copies a tile to its place in an output."""
        (store,) = loop.body
        assert isinstance(store, Store)
        (tile,), (output,), (at,) = store.values, store.buffers, store.index
        assert isinstance(tile, Load)
        said = self.expressions
        start, count = said.dim(at.replace({loop.var: 0})), said.dim(loop.extent)
        return f"noyau_write_around({self.names.value(output)}, {start}, {self.names.value(tile.buffer)}, {count})"

    def halves(self, merge: Loop, width: int) -> Iterator[str]:
        """The lanes merged into lane 0: the upper half into the lower one, again and again."""
        with self.names.block():
            with self.names.of("i64"):
                half = self.names.blocks[-1]["index", HALF] = self.names.fresh("half")
            yield f"{half} = {width}"
            yield f"while {half} > 0:"
            yield from (f"{INDENT}{line}" for line in self.loop(merge))
            yield f"{INDENT}{half} //= 2"

    # Stores.

    def store(self, store: Store) -> Iterator[str]:
        said = self.expressions
        places = [said.cell(name, store.index) for name in store.buffers]
        dtypes = [said.memory[name].dtype.compute for name in store.buffers]
        old = tuple(Load(name, store.index, dtype) for name, dtype in zip(store.buffers, dtypes, strict=True))
        if store.merge and self.parallel and any(isinstance(said.memory[name], Buffer) for name in store.buffers):
            raise UnsupportedError(
                f"numba has no merge of threads into {store.buffers[0]}; privatise gives each its own"
            )
        values = MONOIDS[store.merge].merge(Symbolic(), old, store.values) if store.merge else store.values
        if one_by_one(store.buffers, values):
            for place, name, cell, value in zip(places, store.buffers, old, values, strict=True):
                yield self.assigned(place, name, cell, value)
        else:
            with self.names.block():
                yield from self.merged(store.buffers, places, values)

    def assigned(self, place: str, name: str, old: Load, value: Expr) -> str:
        stored = self.expressions.memory[name].dtype
        signs = {"add": "+", "multiply": "*"} if stored.is_float else {}
        match value:
            case Call(function, (left, right), dtype) if left == old and function in signs and dtype is stored:
                return f"{place} {signs[function]}= {self.expressions.top(right)}"
            case _:
                return f"{place} = {self.expressions.stored(name, value)}"

    def merged(self, buffers: Sequence[str], places: Sequence[str], values: Sequence[Expr]) -> Iterator[str]:
        """States of several values: what is used twice has a name, and all are computed before one changes."""
        known: dict[Expr, Expr] = {}
        for number, call in enumerate(steps_of(values)):
            inner = rewrite_expression(call, lambda expr: known.get(expr, expr))
            text = self.expressions.top(inner)
            known[inner] = Var(f"part {number}", call.dtype)
            with self.names.of(KINDS[call.dtype]):
                yield f"{self.names.bind(f'part {number}')} = {text}"
        finals = []
        for buffer, value in zip(buffers, values, strict=True):
            text = self.expressions.stored(buffer, rewrite_expression(value, lambda expr: known.get(expr, expr)))
            with self.names.of(KINDS[self.expressions.memory[buffer].dtype]):
                finals.append(self.names.bind(f"next {buffer}"))
            yield f"{finals[-1]} = {text}"
        yield from (f"{place} = {final}" for place, final in zip(places, finals, strict=True))


def rounds_apart(kernel: Kernel) -> bool:
    """Whether a value is rounded before others are made of it (see passes/contraction.py): then nothing is fused in the
    whole kernel, for the launch that takes its maximum may be another one than that which takes this off."""
    every = (expr for launch in kernel.launches for expr in every_expression(launch.body))
    return any(isinstance(expr, Call) and expr.function == "rounded" for expr in every)


def taken(alloc: Alloc, cells: str) -> str:
    """An array of the thread: on its stack where it is small, where LLVM knows that nothing else is the same memory."""
    kind, count = KINDS[alloc.dtype], product(alloc.shape).constant
    word = "noyau_cells" if count is not None and count <= STACK_CELLS else "noyau_row"
    return f"{word}({cells}, {kind if kind in NUMPY else 'np.bool_'})"


def is_packed(memory: Buffer | Alloc) -> bool:
    return isinstance(memory, Buffer) and memory.strides is None
