"""A launch of a kernel as a function of Python: statements, and loops on threads as one counted loop over items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from noyau.codegen.expressions import is_variable
from noyau.codegen.identifiers import wish_of
from noyau.codegen.numba.expressions import NumbaExpressions
from noyau.codegen.numba.index_bounds import tile_of
from noyau.codegen.numba.intrinsics import STACK_CELLS
from noyau.codegen.numba.lane_merges import LEAST_LANES, merged_by
from noyau.codegen.numba.tables import KINDS, NUMPY, NumbaNames, const_text
from noyau.codegen.statements import INDENT, Statements
from noyau.codegen.tables import closed, opened
from noyau.dtypes import DType
from noyau.ir.dims import Dim, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Index,
    Kernel,
    Launch,
    Let,
    Loop,
    MergeLanes,
    Prefetch,
    Require,
    Statement,
    StreamStore,
    TransposeTile,
)
from noyau.ir.walk import every_expression, every_statement, merge_of, on_threads

HALF = "#half"


class NumbaPrinter(Statements):
    """One launch being printed."""

    opens, turns, closes, ends, empty = "if {}:", "else:", (), "", ("pass",)
    names: NumbaNames
    expressions: NumbaExpressions

    def __init__(self, kernel: Kernel, shared: NumbaExpressions) -> None:
        self.kernel = kernel
        self.names = NumbaNames(kernel)
        self.expressions = NumbaExpressions(kernel, self.names)
        self.expressions.functions = shared.functions
        self.expressions.integers = shared.integers
        self.expressions.preludes = shared.preludes
        self.arrays: dict[tuple[str, str, str], str] = {}  # memory of the launch, by its name, type and size
        self.apart = rounds_apart(kernel)
        self.given: list[str] = []  # the buffers and the sizes that it takes
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
        streams = any(isinstance(s, StreamStore) for s in every_statement(launch.body))
        lines += ["noyau_written_around()"] if streams else []
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
                yield f"{cells} = {self.prelude('noyau_flat')}({whole})"

    def threads(self, body: tuple[Statement, ...]) -> Iterator[str]:
        """The statements before the loops on threads, then these loops as one over the items of the call."""
        before, loops, inner = on_threads(body)
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
            if not isinstance(alloc, Alloc) or is_variable(alloc):
                continue
            key = self.key(alloc)
            if key not in self.arrays:
                with self.names.of(f"{KINDS[alloc.dtype]} array of one axis"):
                    self.arrays[key] = self.names.bind(f"{alloc.name} of {len(self.arrays)}", alloc.name)
                kind, count = KINDS[alloc.dtype], product(alloc.shape).constant
                # On the stack, where it is small, LLVM knows that nothing else is the same memory.
                word = self.prelude("noyau_cells" if count is not None and count <= STACK_CELLS else "noyau_row")
                yield f"{self.arrays[key]} = {word}({key[2]}, {kind if kind in NUMPY else 'np.bool_'})"

    def prelude(self, name: str) -> str:
        """An intrinsic that the text calls, and needs above it."""
        self.expressions.preludes.add(name)
        return name

    def key(self, alloc: Alloc) -> tuple[str, str, str]:
        return alloc.name, KINDS[alloc.dtype], self.expressions.dim(product(alloc.shape))

    # Statements.

    def statement(self, statement: Statement, *, last: bool) -> Iterator[str]:
        if isinstance(statement, MergeLanes) and statement.lanes >= LEAST_LANES:
            return self.merged(statement)
        return super().statement(statement, last=last)

    def merged(self, merge: MergeLanes) -> Iterator[str]:
        """Lanes merged into lane 0: each loop costs Numba time to compile."""
        words = merged_by(merge)
        if words is None:
            yield from self.halves(merge)
        for name, word in (words or {}).items():
            yield f"{self.prelude(word)}({self.names.value(name)}, {merge.lanes})"

    def variable(self, alloc: Alloc, text: str) -> str:
        self.expressions.memory[alloc.name] = alloc
        with self.names.of(KINDS[alloc.dtype]):
            return f"{self.names.bind(alloc.name)} = {text}"

    def constant(self, name: str, wish: str, dtype: DType, text: str) -> str:
        with self.names.of(KINDS[dtype]):
            return f"{self.names.bind(name, wish)} = {text}"

    def alloc(self, alloc: Alloc) -> Iterator[str]:
        if is_variable(alloc):
            yield self.variable(alloc, opened(const_text(0, alloc.dtype)))
        else:
            self.expressions.memory[alloc.name] = alloc
            self.names.blocks[-1]["value", alloc.name] = self.arrays[self.key(alloc)]

    def prefetch(self, prefetch: Prefetch) -> Iterator[str]:
        if is_packed(self.expressions.memory[prefetch.buffer]) and len(prefetch.index) == 1:
            place = f"{self.names.value(prefetch.buffer)}, {self.expressions.dim(prefetch.index[0])}"
            yield f"{self.prelude('noyau_fetch')}({place}, {prefetch.lines})"

    def noted(self, let: Let) -> None:
        if isinstance(let.value, Index) and (tile := tile_of(let.value.dim, self.expressions.lengths)) is not None:
            self.expressions.lengths[let.name] = tile

    def refused(self, index: str, extent: str) -> Iterator[str]:
        yield f"if not 0 <= {index} < {extent}:"
        yield f"{INDENT}return 1"

    def rounds(self, loop: Loop) -> Iterator[str]:
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

    def streamed(self, store: StreamStore) -> str:
        start, first, count = map(self.expressions.dim, (*store.index, store.start, store.extent))
        to, cells = map(self.names.value, (store.buffer, store.memory))
        return f"{self.prelude('noyau_write_around')}({to}, {start}, {cells}, {first}, {count})"

    def transposed(self, tile: TransposeTile) -> str:
        memory, buffer = map(self.names.value, (tile.memory, tile.buffer))
        to, to_step, start, step = map(self.expressions.dim, (tile.to, tile.to_step, tile.start, tile.step))
        return f"{self.prelude('noyau_turn')}({memory}, {to}, {to_step}, {buffer}, {start}, {step})"

    def halves(self, merge: MergeLanes) -> Iterator[str]:
        """The lanes merged into lane 0: the upper half into the lower one, again and again."""
        with self.names.block():
            with self.names.of("i64"):
                half = self.names.blocks[-1]["index", HALF] = self.names.fresh("half")
            lanes = Loop(merge.var, Dim.of(HALF), Axis.LANES, (merge_of(merge, merge.var, HALF),))
            yield f"{half} = {merge.lanes // 2}"
            yield f"while {half} > 0:"
            yield from (f"{INDENT}{line}" for line in self.loop(lanes))
            yield f"{INDENT}{half} //= 2"

    def signs(self, dtype: DType) -> Mapping[str, str]:
        return {"add": "+", "multiply": "*"} if dtype.is_float and dtype is dtype.compute else {}


def rounds_apart(kernel: Kernel) -> bool:
    """Whether a value is rounded before others are made of it (see compiler/passes/fp_contraction.py): then nothing
    is fused in the
    whole kernel, for the launch that takes its maximum may be another one than that which takes this off."""
    every = (expr for launch in kernel.launches for expr in every_expression(launch.body))
    return any(isinstance(expr, Call) and expr.function == "rounded" for expr in every)


def is_packed(memory: Buffer | Alloc) -> bool:
    return isinstance(memory, Buffer) and memory.strides is None
