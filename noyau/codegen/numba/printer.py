"""Printer of language `numba`: Python that Numba compiles for the CPU, with loops on threads as prange; self-contained.

Each launch is a function of items [begin, end), and the kernel is a function that calls them in parts. float16 and
bfloat16 are arrays of uint16, their bits.

A text defines the LLVM intrinsics that it uses (words.txt: arrays on the stack, prefetches, non-temporal stores, lanes
merged by halves, for which a loop would take Numba a tenth of a second to compile), and the scalar functions, those of
codegen/cmath, translated to functions.txt at a release (tools/numba_functions.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from noyau.codegen.cmath import callees_first
from noyau.codegen.identifiers import refuse_name, wish_of
from noyau.codegen.numba.expressions import NumbaExpressions, is_number
from noyau.codegen.numba.index_bounds import tile_of
from noyau.codegen.numba.spellings import KINDS, NUMPY, RESERVED, NumbaNames, const_text, integer_function
from noyau.codegen.statements import INDENT, Statements, is_variable, rounds_apart, turned_copy
from noyau.codegen.tables import as_operand, snippets, unwrap
from noyau.compiler.schedules.cpu.strategy_choice import Options
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, product
from noyau.ir.loops import Expr, Load, MergeLanes
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import every_statement, extent_of, merge_of, on_threads

STACK_CELLS = 1024  # most cells of an array on the stack
FILE, WORDS = (Path(__file__).with_name(name) for name in ("functions.txt", "words.txt"))
_PLACES = frozenset({"noyau_fetch", "noyau_write_around", "noyau_turn"})  # intrinsics that need addresses of cells
HALF = "#half"


def words(names: Collection[str]) -> str:
    """The text of the named intrinsics and their dependences; empty if no name is an intrinsic."""
    needed = {"_place"} if _PLACES.intersection(names) else set()
    needed |= {"noyau_written_around"} if "noyau_write_around" in names else set()
    return "\n\n\n".join(text for name, text in snippets(WORDS).items() if name in needed or name in names)


SCALAR = """\
# Always inlined: a call that is left in a loop keeps it from being vectorised.
scalar = numba.njit(
    error_model="numpy", fastmath={"contract"}, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)"""
BIT_CASTS = {
    "noyau_bits_f32": "noyau_bits_f32 = _bits(types.float32, types.uint32)",
    "noyau_bits_f64": "noyau_bits_f64 = _bits(types.float64, types.uint64)",
    "noyau_from_bits_f32": "noyau_from_bits_f32 = _bits(types.uint32, types.float32)",
    "noyau_from_bits_f64": "noyau_from_bits_f64 = _bits(types.uint64, types.float64)",
}
_CALLED = re.compile(r"\bnoyau_\w+(?=\()")


def functions() -> Mapping[str, str]:
    """The Python text of each scalar function, by name."""
    return snippets(FILE)


def scalar_text(names: Iterable[str]) -> str:
    """The Python text of the named functions ("noyau_exp_f32") and of all that they call, callees first; empty without
    names. UnsupportedError for a name that codegen/cmath does not have."""
    order = order_of(names)
    casts = [BIT_CASTS[name] for name in sorted(BIT_CASTS.keys() & {*order})]
    parts = [snippets(WORDS)["_bits"], "\n".join(casts)] if casts else []
    return "\n\n\n".join([*parts, *(functions()[name] for name in order if name not in BIT_CASTS)])


def order_of(names: Iterable[str]) -> list[str]:
    """The names of functions and of all that they call, callees first. UnsupportedError as `scalar_text`."""
    calls = {name: sorted({*_CALLED.findall(each)} - {name}) for name, each in functions().items()}
    return callees_first(names, {**calls, **dict.fromkeys(BIT_CASTS, ())}, "numba")


LEAST_LANES = 8  # fewer lanes are merged by statements
MERGE_PREFIX = "noyau_merge_"
# Merges of two lanes: the name, the first letters of its types, the function of the operator table, and LLVM's code.
_MERGES = (
    ("add", "f", "add", "builder.fadd(a, b)"),
    ("add", "iu", "add", "builder.add(a, b)"),
    ("multiply", "f", "multiply", "builder.fmul(a, b)"),
    ("multiply", "iu", "multiply", "builder.mul(a, b)"),
    ("max", "f", "greater", 'builder.select(builder.fcmp_ordered(">", a, b), a, b)'),
    ("max", "i", "maximum", 'builder.select(builder.icmp_signed(">", a, b), a, b)'),
    ("max", "u", "maximum", 'builder.select(builder.icmp_unsigned(">", a, b), a, b)'),
    ("min", "f", "less", 'builder.select(builder.fcmp_ordered("<", a, b), a, b)'),
    ("min", "i", "minimum", 'builder.select(builder.icmp_signed("<", a, b), a, b)'),
    ("min", "u", "minimum", 'builder.select(builder.icmp_unsigned("<", a, b), a, b)'),
    ("or", "i", "bitwise_or", "builder.or_(a, b)"),
    ("or", "b", "logical_or", "builder.or_(a, b)"),
    ("and", "b", "logical_and", "builder.and_(a, b)"),
)


def merge_words(merge: MergeLanes) -> dict[str, str] | None:
    """The intrinsic that merges the lanes of each array, if each array has one; else None."""
    arrays = list(zip(merge.buffers, merge.dtypes, strict=True))
    lower, upper = (tuple(Load(name, (Dim.of(lane),), dtype) for name, dtype in arrays) for lane in (0, 1))
    values = MONOIDS[merge.monoid].merge(Symbolic(), lower, upper)
    words = [_word(*each) for each in zip(values, lower, upper, strict=True)]
    by_array = {name: word for name, word in zip(merge.buffers, words, strict=True) if word is not None}
    return by_array if len(by_array) == len(words) else None


def _word(value: Expr, lower: Load, upper: Load) -> str | None:
    """The intrinsic that merges two lanes into this value, or None."""
    call: Callable[..., Expr] = Symbolic().call
    for word, kinds, function, _ in _MERGES:
        kind = KINDS[lower.dtype]
        merge = call(function, lower, upper) if kind[0] in kinds else None
        if merge and value in (merge, call("where", merge, lower, upper) if function in ("greater", "less") else None):
            return f"{MERGE_PREFIX}{word}_{kind}"
    return None


def merge_text(preludes: Iterable[str]) -> str:
    """The text of the lane-merging intrinsics among `preludes`; empty if there are none."""
    merges = (name for name in preludes if name.startswith(MERGE_PREFIX))
    called = sorted(name.removeprefix(MERGE_PREFIX).partition("_") for name in merges)
    lines = [
        f"{MERGE_PREFIX}{word}_{kind} = _merging(lambda builder, a, b: {merge})"
        for word, _, kind in called
        for name, kinds, _, merge in _MERGES
        if name == word and kind[0] in kinds
    ]
    return "\n\n\n".join([snippets(WORDS)["_merging"], "\n".join(lines)]) if lines else ""


WIDTH = 118

# Unlike language c: more partial states, since each round of a fold waits for the stores of the round before; and one
# text for rows of any length and for their remainders, since each text takes a while to compile.
SCHEDULE = Options(lanes=64, short=False, pairs=False, turned="words", rests=False, lines=False)


def together(kernels: Sequence[ir.Kernel], comment: str = "") -> str:
    """One text of several kernels with distinct names: a comment, the scalar functions that they use, and for each a
    function of its inputs, then its outputs, that returns 0; 1 if an index is out of bounds; 2 if a shape does not fit.
    GraphError where a name cannot be that of a function."""
    functions, integers, preludes, bodies = set[str](), set[tuple[str, str]](), set[str](), list[str]()
    for kernel in kernels:
        refuse_name(kernel, RESERVED)
        caller = NumbaCaller(kernel)
        bodies.append(caller.text())
        functions |= caller.expressions.functions
        integers |= caller.expressions.integers
        preludes |= caller.expressions.preludes
    scalars = [scalar_text(functions), *(integer_function(*key) for key in sorted(integers))]
    defined = [words(preludes), merge_text(preludes), *scalars]
    below = "\n\n\n".join(part for part in [*defined, *bodies] if part)
    kinds = "\n".join(f"{name} = {kind}" for name, kind in NUMPY.items() if re.search(rf"\b{name}\b", below))
    head = [comment_text(comment), _imports(below), kinds, SCALAR if "@scalar" in below else ""]
    return "\n\n".join(part for part in head if part) + f"\n\n\n{below}\n"


def _imports(text: str) -> str:
    lines = ["import math", ""] if "math." in text else []
    lines += ["import numba", "import numpy as np"]
    names = ["types"] if "types." in text else []
    names += ["prange"] if "prange(" in text else []
    lines += ["from llvmlite import ir"] if "ir.IntType" in text else []
    lines += [f"from numba import {', '.join(sorted(names))}"] if names else []
    lines += ["from numba.core import cgutils"] if "cgutils." in text else []
    lines += ["from numba.extending import intrinsic"] if "@intrinsic" in text else []
    lines += ["from numba.np import arrayobj"] if "arrayobj." in text else []
    return "\n".join(lines)


def comment_text(text: str) -> str:
    """The text as Python comments, with unsafe characters replaced."""
    safe = "".join(c if c == "\n" or 32 <= ord(c) < 127 else "?" for c in text)
    lines = [line if len(line) <= 4 * WIDTH else f"{line[: 4 * WIDTH]}..." for line in safe.strip().splitlines()]
    return "\n".join(f"# {line}".rstrip() for line in lines)


class NumbaCaller:
    """Printer of the function of a kernel: sizes, checks, launches in order."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.names = NumbaNames(kernel)
        self.expressions = NumbaExpressions(kernel, self.names)
        self.ends = [buffer for buffer in kernel.buffers if buffer.role is not ir.Role.SCRATCH]
        self.values: dict[str, str] = {}  # arguments of launches that replace an input's array

    def text(self) -> str:
        """The functions of the launches, then the kernel."""
        parts = list[str]()
        body = [*self.describe(), *self.sizes(), *self.checks(), *self.numbers(), *self.scratch()]
        for position, launch in enumerate(self.kernel.launches):
            printer = NumbaPrinter(self.kernel, self.expressions)
            parts.append(printer.function(position, launch))
            lines = list(self.call(position, launch, printer))
            if launch.when is not None:
                body.append(f"if {self.expressions.top(launch.when)}:")
                lines = [f"{INDENT}{line}" for line in lines]
            body += lines
        names = ", ".join(self.names.value(buffer.name) for buffer in self.ends)
        indented = "\n".join(f"{INDENT}{line}" for line in (*body, "return 0"))
        head = f'@numba.njit(parallel=True, error_model="numpy", nogil=True)\ndef {self.kernel.name}({names}):'
        return "\n\n\n".join([*parts, f"{head}\n{indented}"])

    def describe(self) -> Iterator[str]:
        for buffer in self.ends:
            shape = ", ".join(self.expressions.dim(dim) for dim in buffer.shape)
            layout = "" if buffer.strides is None else f", {buffer.layout}"
            yield f"# {self.names.value(buffer.name)}: {buffer.dtype.value}[{shape}], {buffer.role.value}{layout}"

    def sizes(self) -> Iterator[str]:
        """The lines that bind the sizes to shapes of inputs."""
        inputs = self.kernel.of(ir.Role.INPUT)
        for binding in self.kernel.binding:
            buffer = inputs[binding.input]
            if binding.axis < len(buffer.shape):  # the others are strides, which arrays contain
                value = f"{self.names.value(buffer.name)}.shape[{binding.axis}]"
                if binding.offset != Dim.of(0):
                    value = f"({value} - {as_operand(self.expressions.dim(binding.offset))})"
                value = value if binding.factor == 1 else f"{value} // {binding.factor}"
                yield f"{self.names.atom(binding.size)} = {unwrap(value)}"

    def checks(self) -> Iterator[str]:
        """The lines that end the kernel if a shape does not fit the sizes."""
        bound = {(b.input, b.axis) for b in self.kernel.binding if b.factor == 1 and b.offset == Dim.of(0)}
        for number, buffer in enumerate(self.ends):
            if any((number, axis) not in bound for axis in range(len(buffer.shape))):
                yield f"if {self.names.value(buffer.name)}.shape != {self.shape(buffer)}:"
                yield f"{INDENT}return 2"

    def shape(self, buffer: ir.Buffer) -> str:
        dims = ", ".join(map(self.expressions.dim, buffer.shape))
        one = len(buffer.shape) == 1 or (not dims and buffer.role is ir.Role.SCRATCH)
        return f"({dims or 1},)" if one else f"({dims})"

    def numbers(self) -> Iterator[str]:
        """The lines that load inputs without axes, under names of their own."""
        for buffer in filter(is_number, self.ends):
            whole = self.names.value(buffer.name)
            self.values[whole] = self.names.fresh(f"{whole}_value")
            yield f"{self.values[whole]} = {whole}[()]"

    def scratch(self) -> Iterator[str]:
        for buffer in self.kernel.of(ir.Role.SCRATCH):
            kind = NUMPY.get(KINDS[buffer.dtype], "np.bool_")
            yield f"{self.names.value(buffer.name)} = np.empty({self.shape(buffer)}, {kind})"

    def call(self, position: int, launch: ir.Launch, printer: NumbaPrinter) -> Iterator[str]:
        """The call of a launch: on one thread, or its items in as many parts as there are threads."""
        arguments = ", ".join(self.values.get(name, name) for name in printer.parameters)
        call, checked = f"{self.kernel.name}_{position}({arguments}", printer.fails
        if not printer.parallel:
            yield f"status = {call})" if checked else f"{call})"
        else:
            yield f"items = {self.expressions.dim(extent_of(launch))}"
            yield "parts = min(items, numba.get_num_threads())"
            yield from ["status = 0"] if checked else []
            yield "for part in prange(parts):"
            span = "i64(part) * items // parts, (i64(part) + 1) * items // parts)"
            call = f"{call}, {span}" if arguments else f"{call}{span}"
            yield f"{INDENT}status = max(status, {call})" if checked else f"{INDENT}{call}"
        if checked:
            yield "if status != 0:"
            yield f"{INDENT}return status"


class NumbaPrinter(Statements):
    """Printer of one launch."""

    opens, turns, closes, ends, empty = "if {}:", "else:", (), "", ("pass",)
    names: NumbaNames
    expressions: NumbaExpressions

    def __init__(self, kernel: ir.Kernel, shared: NumbaExpressions) -> None:
        self.kernel = kernel
        self.names = type(shared.names)(kernel)
        self.expressions = type(shared)(kernel, self.names)
        self.expressions.functions = shared.functions
        self.expressions.integers = shared.integers
        self.expressions.preludes = shared.preludes
        self.arrays: dict[tuple[str, str, str], str] = {}  # memory of the launch, by name, type and size
        self.apart = rounds_apart(kernel.launches)
        self.parameters: list[str] = []  # its buffers and sizes
        self.fails = False  # whether it checks an index

    def function(self, position: int, launch: ir.Launch) -> str:
        """The function that runs items [begin, end) of a launch."""
        self.fails = any(isinstance(s, ir.Require) for s in every_statement(launch.body))
        lines = self.lines(launch)
        parameters = ", ".join([*self.parameters, *(("begin", "end") if self.parallel else ())])
        streams = any(isinstance(s, ir.StreamStore) for s in every_statement(launch.body))
        lines += ["noyau_written_around()"] if streams else []
        lines += ["return 0"] if self.fails else []
        body = "\n".join(f"{INDENT}{line}" for line in lines or ["pass"])
        fused = "" if self.apart else ', fastmath={"contract"}'  # fuse multiplications with additions, as in C
        head = f'@numba.njit(error_model="numpy", nogil=True{fused})'
        return f"{head}\ndef {self.kernel.name}_{position}({parameters}):\n{body}"

    def lines(self, launch: ir.Launch) -> list[str]:
        """The statements of a launch; printed again whenever further buffers turn out to be flat."""
        texts = self.expressions
        while True:
            flat = set(texts.flat)
            self.names.forget()
            with self.names.block():
                lines = [*list(self.flatten(flat)), *self.threads(launch.body)]
                self.parameters = list(self.requests())
            if flat == texts.flat:
                return lines

    def requests(self) -> Iterator[str]:
        """The buffers and the sizes that the text uses."""
        for buffer in self.kernel.buffers:
            if ("value", buffer.name) in self.names.used:
                yield self.names.blocks[0]["value", buffer.name]
        for binding in self.kernel.binding:
            if ("size", binding.size) in self.names.used:
                yield self.names.atom(binding.size)

    def flatten(self, flat: set[str]) -> Iterator[str]:
        """The lines that flatten buffers indexed by offsets, under names of their own."""
        for buffer in self.kernel.buffers:
            if buffer.name in flat:
                whole = self.names.value(buffer.name)
                with self.names.of(f"{KINDS[buffer.dtype]} array of one axis"):
                    cells = self.names.bind(buffer.name, f"{whole}_cells")
                yield f"{cells} = {self.prelude('noyau_flat')}({whole})"

    def threads(self, body: tuple[ir.Statement, ...]) -> Iterator[str]:
        """The statements before the loops on threads, then these loops as one over the items of the call."""
        before, loops, inner = on_threads(body)
        self.parallel = bool(loops)
        yield from self.memory(body)
        yield from self.block(before)
        texts, outside = self.expressions, dict(self.expressions.extents)
        texts.extents |= {loop.var: loop.extent for loop in loops}
        texts.threads = frozenset(loop.var for loop in loops)
        with self.names.block():
            yield from self.items(loops, inner)
        texts.extents, texts.threads = outside, frozenset()

    def items(self, loops: Sequence[ir.Loop], body: tuple[ir.Statement, ...]) -> Iterator[str]:
        if not loops:
            yield from self.block(body)
            return
        yield from self.count_items(loops, "begin, end")
        yield from (f"{INDENT}{line}" for line in list(self.block(body)) or ["pass"])

    def count_items(self, loops: Sequence[ir.Loop], span: str) -> Iterator[str]:
        """The head of one loop over the items of several, and the lines that compute the variables of these."""
        extents = [as_operand(self.expressions.dim(loop.extent)) for loop in loops[1:]]
        with self.names.of("i64"):
            item = self.names.fresh("item") if len(loops) > 1 else ""
            names = [self.names.bind(loop.var, wish_of(loop.var)) for loop in loops]
        yield f"for {item or names[0]} in range({span}):"
        yield from (f"{INDENT}{line}" for line in (self.counters(names, extents, item) if item else ()))

    def counters(self, names: Sequence[str], extents: Sequence[str], item: str) -> Iterator[str]:
        """The lines that compute the variables of several loops from the item."""
        for at, name in enumerate(names):
            steps = " * ".join(extents[at:])
            step = f"({steps})" if len(extents) - at > 1 else steps
            text = f"{item} // {step}" if step else item
            yield f"{name} = {text}{f' % {extents[at - 1]}' if at else ''}"

    def memory(self, body: Sequence[ir.Statement]) -> Iterator[str]:
        """The lines that allocate the arrays of the thread, once a call instead of in each round of a loop."""
        self.arrays = {}
        for alloc in every_statement(body):
            if not isinstance(alloc, ir.Alloc) or is_variable(alloc):
                continue
            key = self.key(alloc)
            if key not in self.arrays:
                with self.names.of(f"{KINDS[alloc.dtype]} array of one axis"):
                    self.arrays[key] = self.names.bind(f"{alloc.name} of {len(self.arrays)}", alloc.name)
                kind, count = KINDS[alloc.dtype], product(alloc.shape).constant
                # Small arrays are on the stack, where LLVM knows that nothing aliases them.
                word = self.prelude("noyau_cells" if count is not None and count <= STACK_CELLS else "noyau_row")
                yield f"{self.arrays[key]} = {word}({key[2]}, {kind if kind in NUMPY else 'np.bool_'})"

    def prelude(self, name: str) -> str:
        """Record an intrinsic that the text needs above it; returns its name."""
        self.expressions.preludes.add(name)
        return name

    def key(self, alloc: ir.Alloc) -> tuple[str, str, str]:
        return alloc.name, KINDS[alloc.dtype], self.expressions.dim(product(alloc.shape))

    # Statements.

    def statement(self, statement: ir.Statement, *, last: bool) -> Iterator[str]:
        if isinstance(statement, ir.MergeLanes) and statement.lanes >= LEAST_LANES:
            return self.merge_lanes(statement)
        return super().statement(statement, last=last)

    def merge_lanes(self, merge: ir.MergeLanes) -> Iterator[str]:
        """The lines that merge the lanes into lane 0, by intrinsics if possible, since Numba compiles loops slowly."""
        words = merge_words(merge)
        if words is None:
            yield from self.halves(merge)
        for name, word in (words or {}).items():
            yield f"{self.prelude(word)}({self.names.value(name)}, {merge.lanes})"

    def variable(self, alloc: ir.Alloc, text: str) -> str:
        self.expressions.memory[alloc.name] = alloc
        with self.names.of(KINDS[alloc.dtype]):
            return f"{self.names.bind(alloc.name)} = {text}"

    def constant(self, name: str, wish: str, dtype: DType, text: str) -> str:
        with self.names.of(KINDS[dtype]):
            return f"{self.names.bind(name, wish)} = {text}"

    def alloc(self, alloc: ir.Alloc) -> Iterator[str]:
        if is_variable(alloc):
            yield self.variable(alloc, unwrap(const_text(0, alloc.dtype)))
        else:
            self.expressions.memory[alloc.name] = alloc
            self.names.blocks[-1]["value", alloc.name] = self.arrays[self.key(alloc)]

    def prefetch(self, prefetch: ir.Prefetch) -> Iterator[str]:
        memory = self.expressions.memory[prefetch.buffer]
        if isinstance(memory, ir.Buffer) and memory.strides is None and len(prefetch.index) == 1:
            place = f"{self.names.value(prefetch.buffer)}, {self.expressions.dim(prefetch.index[0])}"
            yield f"{self.prelude('noyau_fetch')}({place}, {prefetch.lines})"

    def note(self, let: ir.Let) -> None:
        if isinstance(let.value, ir.Index) and (tile := tile_of(let.value.dim, self.expressions.lengths)) is not None:
            self.expressions.lengths[let.name] = tile

    def refuse(self, index: str, extent: str) -> Iterator[str]:
        yield f"if not 0 <= {index} < {extent}:"
        yield f"{INDENT}return 1"

    def rounds(self, loop: ir.Loop) -> Iterator[str]:
        texts = self.expressions
        copy = turned_copy(loop, texts.memory)
        if copy is not None and copy[6] == copy[7] == Dim.of(ir.SIDE):
            names = self.names.value(copy[0]), self.names.value(copy[3])
            words = names[0], *map(texts.dim, copy[1:3]), names[1], *map(texts.dim, copy[4:6])
            yield f"{self.prelude('noyau_turn')}({', '.join(words)})"
            return
        span, outside = self.span(loop), (dict(texts.extents), dict(texts.tiles))
        texts.extents[loop.var] = loop.extent
        if (tile := texts.lengths.get(str(loop.extent))) is not None:
            texts.tiles[loop.var] = tile
        with self.names.block():
            with self.names.of("i64"):
                name = self.names.bind(loop.var, wish_of(loop.var))
            body = list(self.inner(loop.body))
        texts.extents, texts.tiles = outside
        yield f"for {name} in range({span}):"
        yield from body

    def span(self, loop: ir.Loop) -> str:
        """The arguments of the range of a loop."""
        return self.expressions.dim(loop.extent)

    def stream(self, store: ir.StreamStore) -> str:
        start, first, count = map(self.expressions.dim, (*store.index, store.start, store.extent))
        to, cells = map(self.names.value, (store.buffer, store.memory))
        return f"{self.prelude('noyau_write_around')}({to}, {start}, {cells}, {first}, {count})"

    def halves(self, merge: ir.MergeLanes) -> Iterator[str]:
        """The loop that merges the lanes into lane 0: the upper half into the lower one, repeatedly."""
        with self.names.block():
            with self.names.of("i64"):
                half = self.names.blocks[-1]["index", HALF] = self.names.fresh("half")
            lanes = ir.Loop(merge.var, Dim.of(HALF), ir.Axis.LANES, (merge_of(merge, merge.var, HALF),))
            yield f"{half} = {merge.lanes // 2}"
            yield f"while {half} > 0:"
            yield from (f"{INDENT}{line}" for line in self.loop(lanes))
            yield f"{INDENT}{half} //= 2"

    def signs(self, dtype: DType) -> Mapping[str, str]:
        return {"add": "+", "multiply": "*"} if dtype.is_float and dtype is dtype.compute else {}
