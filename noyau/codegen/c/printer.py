"""Printer of language `c`: C11 for gcc, clang and zig, with the ABI of noyau.h; the text is self-contained.

Several kernels are printed as one text, in which the functions that they call precede them once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from noyau.codegen import cmath
from noyau.codegen.c.expressions import CExpressions
from noyau.codegen.c.interface import interface
from noyau.codegen.c.spellings import TYPES, WIDTH, Open, comment_text, integer_function
from noyau.codegen.identifiers import Scopes, wish_of
from noyau.codegen.statements import INDENT, Statements, is_variable, turned_copy
from noyau.codegen.tables import as_operand, dim_text, unwrap
from noyau.compiler.schedules.primitives import stride_of
from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimOp, product
from noyau.ir.walk import every_statement, loads_of, on_threads, targets_of
from noyau.text import package_text


def text_of(parts: Sequence[CPrinter], comment: str = "") -> str:
    """The text of printed kernels, with all that they need."""
    texts = [part.expressions for part in parts]
    preludes = set[str]().union(*(each.preludes for each in texts))
    pieces = [
        comment_text(comment),
        package_text("codegen/c/noyau.h"),
        INCLUDES,
        *(package_text(f"codegen/c/{name}") for name in HEADERS if name in preludes),
        cmath.text({name for each in texts for name in each.functions}),
        package_text("codegen/c/runs.h") if "runs.h" in preludes else "",
        *(integer_function(*key) for key in sorted({key for each in texts for key in each.integers})),
        *(body for part in parts for body in part.bodies),
    ]
    return "\n\n".join(piece.strip("\n") for piece in pieces if piece) + "\n"


INCLUDES = "#include <math.h>\n#include <stdbool.h>\n#include <stdlib.h>"
HEADERS = ("lanes.h", "whole.h", "prefetch.h", "pairs.h", "taken.h", "around.h", "turn.h")  # in the order of a text
RUNS = {  # conversions of runs of cells: the dtypes, and whether they are rounded to float16 in between
    (DType.F16, DType.F32, False): "noyau_widen_f16",
    (DType.F32, DType.F16, False): "noyau_narrow_f16",
    (DType.F32, DType.F32, True): "noyau_round_f16",
    (DType.BOOL, DType.I32, False): "noyau_widen_bool",
}
MOST_UNROLLED = 32  # rounds of a loop that gcc may unroll completely before it vectorises
WIDE = 8  # least lanes of a loop that is worth vectorising
ASSIGNED = {"add": "+", "multiply": "*", "bitwise_or": "|", "logical_or": "|", "logical_and": "&"}


def source(kernel: ir.Kernel, comment: str = "", *, anonymous: bool = False) -> str:
    """The text of a kernel: a comment, the ABI, the scalar functions that it uses, its launches, its table.

    `anonymous`: numbers instead of names, to compare kernels."""
    return together([kernel], comment, anonymous=anonymous)


def together(kernels: Sequence[ir.Kernel], comment: str = "", *, anonymous: bool = False) -> str:
    """One text of several kernels with distinct names. GraphError where a name cannot be that of a C function."""
    return text_of([print_kernel(kernel, anonymous=anonymous) for kernel in kernels], comment)


def print_kernel(kernel: ir.Kernel, *, anonymous: bool = False) -> CPrinter:
    """Print a kernel. GraphError as by `together`, UnsupportedError where C cannot express it."""
    if not re.fullmatch(r"(?!noyau)[a-z]\w*", kernel.name, re.ASCII | re.IGNORECASE):
        raise GraphError(f"{kernel.name!r} cannot be the name of a C function: give letters, digits and _")
    printer = CPrinter(kernel, anonymous=anonymous)
    printer.bodies += [printer.launch(position, launch) for position, launch in enumerate(kernel.launches)]
    printer.bodies.append(interface(kernel, printer.names, printer.expressions))
    return printer


class CPrinter(Statements):
    """Printer of one kernel; `bodies`: its printed launches and table."""

    opens, turns, closes, ends, empty = "if ({}) {{", "} else {", ("}",), ";", ()
    expressions: CExpressions

    def __init__(self, kernel: ir.Kernel, *, anonymous: bool = False) -> None:
        self.kernel = kernel
        self.names = Scopes(kernel, anonymous=anonymous)
        self.expressions = CExpressions(kernel, self.names)
        self.bodies: list[str] = []
        self.rows: list[str] = []  # memory that the launch has allocated

    def launch(self, position: int, launch: ir.Launch) -> str:
        """The function that runs items [begin, end) of a launch."""
        self.names.used.clear()
        with self.names.block():
            memory = [s for s in every_statement(launch.body) if isinstance(s, ir.Alloc) and s.space is ir.Space.THREAD]
            inner = [*list(self.take(memory)), *self.threads(launch)]
            inner += indent(self.give_back())
            head = [*self.pointers(), *self.sizes()]
        if any(isinstance(s, ir.StreamStore) for s in every_statement(launch.body)):
            inner.append(f"{INDENT}noyau_written_around();")
        lines = [*head, *([""] if head else []), *inner, f"{INDENT}return NOYAU_OK;"]
        signature = f"static int32_t {self.kernel.name}_{position}(const noyau_call *call, int64_t begin, int64_t end)"
        return "\n".join([signature, "{", *lines, "}"])

    def pointers(self) -> Iterator[str]:
        for at, buffer in enumerate(self.kernel.buffers):
            if ("value", buffer.name) in self.names.used:
                constant = "const " if buffer.role is ir.Role.INPUT else ""
                # Read bools as bytes that are 0 or 1, which gcc vectorises better.
                dtype = DType.U8 if constant and buffer.dtype is DType.BOOL else buffer.dtype
                name, kind = self.names.value(buffer.name), TYPES[dtype]
                both = (dims for dims in (buffer.shape, buffer.strides) if dims is not None)
                layout = ", strides ".join(f"[{', '.join(map(self.words, dims))}]" for dims in both)
                yield f"{INDENT}{constant}{kind} *restrict {name} = call->buffers[{at}]; /* {layout} */"

    def sizes(self) -> Iterator[str]:
        for at, binding in enumerate(self.kernel.binding):
            if ("size", binding.size) in self.names.used:
                yield f"{INDENT}const int64_t {self.names.atom(binding.size)} = call->sizes[{at}];"

    def words(self, dim: Dim) -> str:
        """A Dim in a comment."""
        return unwrap(dim_text(dim, self.names.peek, _tell))

    def condition_text(self, condition: ir.Expr) -> str:
        used = set(self.names.used)
        text = self.expressions.top(condition)
        self.names.used = used
        return text

    def take(self, memory: Sequence[ir.Alloc]) -> Iterator[str]:
        """The lines that allocate memory of the thread, once a call."""
        self.rows = []
        self.expressions.preludes |= {"taken.h"} if memory else set()
        for alloc in memory:
            self.expressions.memory[alloc.name] = alloc
            name, kind = self.names.bind(alloc.name), TYPES[alloc.dtype]
            count = as_operand(self.expressions.dim(product(alloc.shape)))
            yield f"{INDENT}{kind} *restrict {name} = noyau_take((size_t){count} * sizeof(*{name}));"
            self.rows.append(name)
        if self.rows:
            yield f"{INDENT}if ({' || '.join(f'!{name}' for name in self.rows)}) {{"
            yield from (f"{INDENT * 2}{line}" for line in self.give_back() if len(self.rows) > 1)
            yield f"{INDENT * 2}return NOYAU_OUT_OF_MEMORY;"
            yield f"{INDENT}}}"

    def give_back(self) -> list[str]:
        return [f"noyau_give_back({name});" for name in self.rows]

    def threads(self, launch: ir.Launch) -> Iterator[str]:
        """The statements before the loops on threads, then these as one counted loop over the call's items."""
        before, loops, inner = on_threads(launch.body)
        yield from indent(self.block(before))
        self.parallel = bool(loops)
        extents = [self.words(loop.extent) for loop in loops]
        items = " x ".join(map(as_operand, extents) if len(extents) > 1 else extents)
        where = "" if launch.when is None else f" where {self.condition_text(launch.when)}"
        yield f"{INDENT}/* {f'Items: {items}' if items else 'One item'}{where}. */"
        with self.names.block():
            yield from self.items(loops, inner)

    def items(self, loops: Sequence[ir.Loop], body: tuple[ir.Statement, ...]) -> Iterator[str]:
        outside = dict(self.expressions.extents)
        self.expressions.extents |= {loop.var: loop.extent for loop in loops}
        if len(loops) == 1:
            name = self.names.bind(loops[0].var, wish_of(loops[0].var))
            yield f"{INDENT}for (int64_t {name} = begin; {name} < end; ++{name}) {{"
        else:
            yield from self.first_item(loops)
            yield f"{INDENT}for (int64_t item = begin; item < end; ++item) {{"
        yield from indent(self.block(body), 2)
        yield from self.next_item(loops)
        yield f"{INDENT}}}"
        self.expressions.extents = outside

    def first_item(self, loops: Sequence[ir.Loop]) -> Iterator[str]:
        """The lines that set the variables of several loops at the first item."""
        if not loops:
            return
        names = [self.names.bind(loop.var, wish_of(loop.var)) for loop in loops]
        yield f"{INDENT}if (begin >= end) {{"
        yield from (f"{INDENT * 2}{line}" for line in [*self.give_back(), "return NOYAU_OK;"])
        yield f"{INDENT}}}"
        yield f"{INDENT}int64_t left = begin;"
        for name, loop in reversed(list(zip(names[1:], loops[1:], strict=True))):
            extent = as_operand(self.expressions.dim(loop.extent))
            yield f"{INDENT}int64_t {name} = left % {extent};"
            yield f"{INDENT}left /= {unwrap(extent)};"
        yield f"{INDENT}int64_t {names[0]} = left;"

    def next_item(self, loops: Sequence[ir.Loop]) -> Iterator[str]:
        """The line that moves the variables of several loops to the next item."""
        if len(loops) < 2:
            return
        text = f"++{self.names.atom(loops[0].var)};"
        for loop in loops[1:]:
            name, extent = self.names.atom(loop.var), self.expressions.dim(loop.extent)
            text = f"if (++{name} == {extent}) {{ {name} = 0; {text} }}"
        yield f"{INDENT * 2}{text}"

    def first(self, left: list[ir.Statement]) -> tuple[Iterator[str], list[ir.Statement]]:
        match left:
            case [ir.Alloc(name, _, shape) as memory, ir.Zero(filled, _, extent), *rest] if (
                name == filled and extent == product(shape) and not is_variable(memory)
            ):
                return self.zeros(memory), rest
            case _:
                return super().first(left)

    def zeros(self, memory: ir.Alloc) -> Iterator[str]:
        """Memory that is initialised to 0 in its declaration; a loop over it would become a call of memset."""
        self.expressions.memory[memory.name] = memory
        count = self.expressions.dim(product(memory.shape))
        yield f"{TYPES[memory.dtype]} {self.names.bind(memory.name)}[{count}] = {{0}};"

    def variable(self, alloc: ir.Alloc, text: str) -> str:
        self.expressions.memory[alloc.name] = alloc
        return f"{TYPES[alloc.dtype]} {self.names.bind(alloc.name)} = {text};"

    def constant(self, name: str, wish: str, dtype: DType, text: str) -> str:
        kind = "int64_t" if name.startswith("#") else TYPES[dtype]
        return f"const {kind} {self.names.bind(name, wish)} = {text};"

    def alloc(self, alloc: ir.Alloc) -> Iterator[str]:
        if alloc.space is ir.Space.REGISTER:  # `take` allocates other memory once a call
            self.expressions.memory[alloc.name] = alloc
            count = "" if is_variable(alloc) else f"[{self.expressions.dim(product(alloc.shape))}]"
            yield f"{TYPES[alloc.dtype]} {self.names.bind(alloc.name)}{count};"

    def prefetch(self, prefetch: ir.Prefetch) -> Iterator[str]:
        self.expressions.preludes.add("prefetch.h")
        *outer, last = prefetch.index
        cells = ir.LINE_BYTES // self.expressions.memory[prefetch.buffer].dtype.bytes
        for line in range(prefetch.lines):
            yield f"NOYAU_PREFETCH(&{self.expressions.cell(prefetch.buffer, (*outer, last + line * cells))});"

    def note(self, let: ir.Let) -> None:
        if isinstance(let.value, ir.Index) and self.expressions.is_natural(let.value.dim):
            self.expressions.required[let.name] = let.value.dim + 1

    def refuse(self, index: str, extent: str) -> Iterator[str]:
        back = " ".join([*self.give_back(), "return NOYAU_INDEX_OUT_OF_BOUNDS;"])
        yield f"if ({index} < 0 || {index} >= {extent}) {f'{{ {back} }}' if self.rows else back}"

    def stream(self, store: ir.StreamStore) -> str:
        texts = self.expressions
        texts.preludes.add("around.h")
        place, cells = texts.cell(store.buffer, store.index), texts.names.value(store.memory)
        if store.lines:
            return f"noyau_write_lines(&{place}, {cells}, sizeof {cells});"
        begin = cells if store.start == Dim.of(0) else f"&{texts.cell(store.memory, (store.start,))}"
        count = as_operand(texts.dim(store.extent))
        return f"noyau_write_around(&{place}, {begin}, (size_t){count} * sizeof(*{cells}));"

    def rounds(self, loop: ir.Loop) -> Iterator[str]:
        if (run := self.run_of(loop) or self.turn(loop)) is not None:
            yield run
            return
        extent, outside = self.expressions.dim(loop.extent), dict(self.expressions.extents)
        self.expressions.extents[loop.var] = loop.extent
        with self.names.block():
            name = self.names.bind(loop.var, wish_of(loop.var))
            body = [*self.expressions.open_pairs(loop), *self.inner(loop.body)]
        self.expressions.extents, self.expressions.pairs = outside, Open()
        if loop.axis is ir.Axis.LANES and not is_in_registers(loop, self.expressions.memory):
            self.expressions.preludes.add("lanes.h")
            yield "NOYAU_LANES"
        elif loop.axis is ir.Axis.LANES and self.reads_runs(loop):
            self.expressions.preludes.add("whole.h")
            yield "NOYAU_WHOLE"
        head = f"for (int64_t {name} = 0; {name} < {extent}; ++{name})"
        if len(body) == 1 and len(head) + len(body[0]) < WIDTH and body[0].endswith(";"):
            yield f"{head} {body[0].lstrip()}"
        else:
            yield f"{head} {{"
            yield from body
            yield "}"

    def reads_runs(self, loop: ir.Loop) -> bool:
        """Whether a short loop reads arrays in registers that it does not store to: values of an earlier stage."""
        if (loop.extent.constant or MOST_UNROLLED + 1) > MOST_UNROLLED:
            return False
        read = {load.buffer for load in loads_of(loop.body)} - targets_of(loop.body)
        allocs = (self.expressions.memory[name] for name in read)
        return any(isinstance(each, ir.Alloc) and each.space is ir.Space.REGISTER and each.shape for each in allocs)

    def run_of(self, loop: ir.Loop) -> str | None:
        """The call that replaces a loop over lanes that only widens, narrows or rounds neighbours; else None."""
        match loop.body if loop.axis is ir.Axis.LANES else ():
            case (ir.Let(name, ir.Load(_, _, _, None) as load), ir.Store((_,), _, (value,), None) as store):
                rounded = False
            case (
                ir.Let(name, ir.Load(_, _, _, None) as load),
                ir.Let(last, ir.Call("cast", (ir.Call("cast", (ir.Var(operand),), DType.F16),), DType.F32)),
                ir.Store((_,), _, (value,), None) as store,
            ) if operand == name:
                name, rounded = last, True
            case _:
                return None
        if isinstance(value, ir.Call) and value.function == "cast" and value.dtype is DType.I32:  # of a bool
            (value,) = value.operands
        texts, ends = self.expressions, ((load.buffer, load.index), (store.buffers[0], store.index))
        memory = [texts.memory[place] for place, _ in ends]
        function = RUNS.get((memory[0].dtype, memory[1].dtype, rounded))
        beside = all(stride_of(each, loop.var) == Dim.of(1) for each in (load, store))
        unlike = any(isinstance(each, ir.Buffer) and each.layout == "strided" for each in memory)
        unlike |= memory[0].dtype is DType.BOOL and getattr(memory[0], "role", None) is not ir.Role.INPUT
        if function is None or not beside or unlike or not isinstance(value, ir.Var) or value.name != name:
            return None
        texts.preludes.add("runs.h")
        texts.functions |= {"noyau_f16_to_f32", "noyau_f32_to_f16", "noyau_f32_to_f16_to_f32"}
        cells = (texts.cell(place, tuple(at.replace({loop.var: 0}) for at in index)) for place, index in ends)
        source, target = (cell.removesuffix("[0]") if cell.endswith("[0]") else f"&{cell}" for cell in cells)
        return f"{function}({target}, {source}, {texts.dim(loop.extent)});"

    def turn(self, loop: ir.Loop) -> str | None:
        """The call that replaces a loop that only transposes; else None."""
        texts = self.expressions
        if (copy := turned_copy(loop, texts.memory)) is None:
            return None
        texts.preludes.add("turn.h")
        to, place, there, source, start, here, *counts = copy
        ends = (
            f"&{texts.cell(name, (at,))}, {texts.dim(step)}"
            for name, at, step in ((to, place, there), (source, start, here))
        )
        return f"noyau_turn({', '.join([*ends, *map(texts.dim, counts)])});"

    def store(self, store: ir.Store, *, last: bool) -> Iterator[str]:
        if (line := self.expressions.in_pair(store)) is not None:
            yield line
        else:
            yield from super().store(store, last=last)

    def signs(self, dtype: DType) -> Mapping[str, str]:
        return ASSIGNED if dtype is dtype.compute else {}  # 16-bit floats are rounded by a call

    def at_once(
        self, buffers: Sequence[str], places: Sequence[str], values: Sequence[ir.Expr], *, last: bool
    ) -> Iterator[str]:
        if last:
            yield from self.compute_first(buffers, places, values)
        else:
            yield "{"
            yield from indent(super().at_once(buffers, places, values, last=last))
            yield "}"


def is_in_registers(loop: ir.Loop, memory: Mapping[str, ir.Buffer | ir.Alloc]) -> bool:
    """Whether a loop of known length stores only to registers, so that the compiler sees all dependences itself.

    Not if many lanes read what others store: the compiler would run them one by one."""
    stored, known = targets_of(loop.body), loop.extent.constant
    registers = all(isinstance(each, ir.Alloc) and each.space is ir.Space.REGISTER for each in map(memory.get, stored))
    is_read = any(load.buffer in stored for load in loads_of(loop.body))
    return registers and known is not None and not (is_read and known >= WIDE)


def indent(lines: Iterable[str], depth: int = 1) -> Iterator[str]:
    return (f"{INDENT * depth}{line}" for line in lines)


def _tell(op: DimOp, left: str, right: str) -> str:
    signs = {"floordiv": "/", "mod": "%"}
    if op.kind not in signs:
        return f"{op.kind}({left}, {right})"
    return f"({as_operand(left)} {signs[op.kind]} {as_operand(right)})"
