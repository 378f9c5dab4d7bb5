"""Printer of language `numba_cuda`: Python that Numba-CUDA compiles, for teaching. The text is self-contained: kernels,
and a host function that launches them on device arrays. float16 is CUDA's; bfloat16 is uint16, its bits.

A loop on THREADS is a grid: of blocks, whose threads are the loops over lanes in it, or without these, of threads.
Memory with a cell for each thread of a block is a variable of each thread, merged through shared memory.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from noyau.codegen.identifiers import refuse_name
from noyau.codegen.numba import printer
from noyau.codegen.numba.expressions import NumbaExpressions
from noyau.codegen.numba.printer import NumbaCaller, NumbaPrinter, comment_text
from noyau.codegen.numba.spellings import KINDS, NUMPY, RESERVED, NumbaNames, integer_function
from noyau.codegen.statements import INDENT, is_variable
from noyau.codegen.tables import SCALARS, as_operand
from noyau.codegen.thread_memory import MATH, ThreadExpressions, ThreadStatements
from noyau.compiler.schedules.gpu.block_rows import BLOCK
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape, product
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_statement, memory_of, merge_of, on_threads
from noyau.text import package_text

THREADS = BLOCK
TILE = (32, 8)  # threads of a block of two axes
TYPES = {**KINDS, DType.F16: "f16", DType.BOOL: "np.bool_"}
LONG_NAMES = {**NUMPY, "f16": "np.float16"}
# Functions of Python's math, or if that lacks one or returns integers, of libdevice, with the suffix f for float32.
FUNCTIONS = {name: f"math.{name}" for name in MATH} | {"abs": "abs", "round_even": "libdevice.rint"}
FUNCTIONS |= {name: f"libdevice.{name}" for name in ("exp2", "cbrt", "rsqrt", "floor", "ceil", "trunc")}
BITS = {
    "noyau_bits_f32": "u32(libdevice.float_as_int(x))",
    "noyau_bits_f64": "u64(libdevice.double_as_longlong(x))",
    "noyau_from_bits_f32": "libdevice.int_as_float(i32(x))",
    "noyau_from_bits_f64": "libdevice.longlong_as_double(i64(x))",
}
BLOCKS = '''\
def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)'''


def together(kernels: Sequence[ir.Kernel], comment: str = "") -> str:
    """One text of several kernels with distinct names. GraphError where a name cannot be that of a function,
    UnsupportedError where Numba-CUDA cannot express one."""
    functions, integers, merges, bodies = set[str](), set[tuple[str, str]](), dict[str, str](), list[str]()
    for kernel in kernels:
        refuse_name(kernel, RESERVED)
        host = HostFunction(kernel, merges)
        bodies.append(host.text())
        functions |= host.expressions.functions
        integers |= host.expressions.integers
    texts = {name: f"@scalar\ndef {name}(x):\n    return {text}" for name, text in BITS.items()}
    scalars = [{**printer.functions(), **texts}[name] for name in printer.order_of(functions)]
    scalars += [integer_function(*key) for key in sorted(integers)]
    below = "\n\n\n".join([*scalars, *merges.values(), BLOCKS, *bodies])
    below = below.replace("@scalar\n", "@cuda.jit(device=True)\n")
    below = re.sub(r"\bnp\.(?=(trunc|rint|fmod|floor|ceil|cbrt|exp2)\()", "libdevice.", below)  # of float64
    imports = ["import math\n"] * ("math." in below) + ["import numpy as np", "from numba import cuda"]
    imports += ["from numba.cuda import libdevice"] * ("libdevice." in below)
    kinds = [f"{name} = {kind}" for name, kind in LONG_NAMES.items() if re.search(rf"\b{name}\b", below)]
    kinds += [f"THREADS = {THREADS}  # of a block"] * ("THREADS" in below)
    head = [comment_text(comment), "\n".join(imports), "\n".join(kinds)]
    return "\n\n".join(part for part in head if part) + f"\n\n\n{below}\n"


def has_blocks(launch: ir.Launch) -> bool:
    """Whether each item of a launch has a block of threads."""
    return any(isinstance(s, ir.Loop) and s.axis is ir.Axis.LANES for s in every_statement(launch.body))


class CudaExpressions(ThreadExpressions, NumbaExpressions):
    """Printer of the expressions of one kernel in Python for Numba-CUDA."""

    language, both = "numba_cuda", " and "
    names: NumbaNames

    def cell(self, name: str, index: Shape) -> str:
        if name in self.lanes:
            return self.own_cell(name, index)
        return super().cell(name, index) if self.memory[name].shape else f"{self.names.value(name)}[0]"

    def place(self, dim: Dim, *, last: bool) -> str:
        return self.dim(dim)

    def widen(self, cell: str, stored: DType) -> str:
        return f"f32({cell})" if stored is DType.F16 else super().widen(cell, stored)

    def text_as(self, target: DType, value: ir.Expr) -> str:
        return f"f16({self.top(value)})" if target is DType.F16 else super().text_as(target, value)

    def own(self, function: str, operands: tuple[ir.Expr, ...]) -> str | None:
        source = operands[0].dtype
        spelling = FUNCTIONS.get(SCALARS.get(function, "")) if source in (DType.F32, DType.F64) else None
        if spelling is not None:
            single = source is DType.F32 and spelling.startswith("libdevice")
            return f"{spelling}{'f' * single}({self.top(operands[0])})"
        if function == "rounded":  # an addition that is not fused
            word = f"libdevice.{'f' if source is DType.F32 else 'd'}add_rn"
            return f"{word}({self.top(operands[0])}, {self.const(-0.0, source)})"
        return super().own(function, operands)


class HostFunction(NumbaCaller):
    """Printer of the host function: sizes, checks, scratch and launches. `merges`: device functions for states."""

    expressions: CudaExpressions

    def __init__(self, kernel: ir.Kernel, merges: dict[str, str]) -> None:
        super().__init__(kernel)
        self.expressions, self.merges = CudaExpressions(kernel, self.names), merges

    def text(self) -> str:
        """The kernels of the launches, then the host function."""
        parts, about = list[str](), ['"""Launch the kernels on a stream, on arrays of the device:', ""]
        body = [*about, *self.describe(), '"""', *self.sizes(), *self.checks(), *self.scratch()]
        for position, launch in enumerate(self.kernel.launches):
            printer = KernelPrinter(self.kernel, self.expressions, self.merges)
            parts.append(printer.function(position, launch))
            body += self.call(position, launch, printer)
        names = ", ".join([*(self.names.value(buffer.name) for buffer in self.ends), "stream=0"])
        lines = "\n".join(f"{INDENT}{line}".rstrip() for line in body)
        return "\n\n\n".join([*parts, f"def {self.kernel.name}({names}):\n{lines}"])

    def describe(self) -> Iterator[str]:
        for line in super().describe():
            yield line.removeprefix("# ") + ", as its bits in uint16" * (": bf16[" in line)

    def checks(self) -> Iterator[str]:
        """The lines that refuse shapes that do not fit the sizes, and sizes that violate guards."""
        for line in super().checks():
            if line.startswith("if "):
                name, _, wanted = line.removeprefix("if ").removesuffix(":").partition(".shape != ")
                yield line
                yield f'{INDENT}raise ValueError(f"{name} has the shape {{{name}.shape}}, and not {{{wanted}}}")'
        for guard in self.kernel.guards:
            left, right, cells = (self.expressions.dim(each) for each in (guard.left, guard.right, guard.cells))
            yield f"if {f'{as_operand(cells)} != 0 and ' * (guard.cells != Dim.of(1))}{left} > {right}:"
            yield f'{INDENT}raise ValueError("the sizes are not such that {left} <= {right}")'

    def scratch(self) -> Iterator[str]:
        for buffer in self.kernel.of(ir.Role.SCRATCH):
            kind = f"{self.shape(buffer)}, {TYPES[buffer.dtype]}, stream=stream"
            yield f"{self.names.value(buffer.name)} = cuda.device_array({kind})"

    def call(self, position: int, launch: ir.Launch, printer: NumbaPrinter) -> Iterator[str]:
        assert isinstance(printer, KernelPrinter)
        extents, dim = [loop.extent for loop in on_threads(launch.body)[1]], self.expressions.dim
        items, conditions = dim(product(extents)), [self.expressions.expr(launch.when)] if launch.when else []
        conditions += [f"{items} > 0"] if extents else []
        if conditions:
            yield f"if {' and '.join(conditions)}:"
        grid = f"noyau_blocks({items}, THREADS), THREADS" if extents else "1, 1"
        if has_blocks(launch):
            grid = f"noyau_blocks({items}), THREADS" if extents else "1, THREADS"
        elif len(extents) > 1:
            ends = zip((dim(extents[-1]), dim(product(extents[:-1]))), TILE, strict=True)
            blocks = ", ".join(f"noyau_blocks({end}, {threads})" for end, threads in ends)
            yield f"{INDENT * bool(conditions)}grid = {blocks}"
            grid = f"grid, {TILE}"
        arguments = ", ".join(f"{each}.reshape(-1)" if each in printer.flats else each for each in printer.parameters)
        yield f"{INDENT * bool(conditions)}{self.kernel.name}_{position}[{grid}, stream]({arguments})"


class KernelPrinter(ThreadStatements, NumbaPrinter):
    """Printer of one launch. `flats`: parameters that are passed as arrays of one axis."""

    names: NumbaNames
    expressions: CudaExpressions
    unless, within = "not {0} or ", "0 <= {0} < {1}"

    def __init__(self, kernel: ir.Kernel, shared: NumbaExpressions, merges: dict[str, str]) -> None:
        super().__init__(kernel, shared)
        self.merges, self.flats = merges, set[str]()

    def function(self, position: int, launch: ir.Launch) -> str:
        self.alone = "thread == 0" if has_blocks(launch) else ""
        body = "\n".join(f"{INDENT}{line}" for line in self.lines(launch))
        flat = (b.name for b in self.kernel.buffers if b.name in self.expressions.flat or not b.shape)
        self.flats = set(map(self.names.value, flat))
        return f"@cuda.jit\ndef {self.kernel.name}_{position}({', '.join(self.parameters)}):\n{body}"

    def flatten(self, flat: set[str]) -> Iterator[str]:
        """Nothing: the host passes flat arrays."""
        return iter(())

    def memory(self, body: Sequence[ir.Statement]) -> Iterator[str]:
        """Nothing: a thread has only variables."""
        return iter(())

    def items(self, loops: Sequence[ir.Loop], body: tuple[ir.Statement, ...]) -> Iterator[str]:
        """The loops on the grid: of blocks, of threads along one axis, or along two, the innermost loop across."""
        extents = " x ".join(self.expressions.dim(loop.extent) for loop in loops)
        each = "block" if self.alone else "thread"
        yield f'"""Items: {extents}, a {each} for each."""' if loops else f'"""One {each}."""'
        heads = [(loops, "cuda.grid(1)", "cuda.gridsize(1)")] if loops else []
        if self.alone:
            self.names.blocks[-1]["index", "#thread"] = "thread"
            yield "thread = cuda.threadIdx.x"
            heads = [(loops, "cuda.blockIdx.x", "cuda.gridDim.x")] if loops else []
        elif len(loops) > 1:
            yield "across, down = cuda.grid(2)"
            yield "all_across, all_down = cuda.gridsize(2)"
            heads = [(loops[:-1], "down", "all_down"), (loops[-1:], "across", "all_across")]
        for depth, (some, first, step) in enumerate(heads):
            ends = [self.expressions.dim(loop.extent) for loop in some]
            end = " * ".join(map(as_operand, ends)) if len(ends) > 1 else ends[0]
            yield from (f"{INDENT * depth}{line}" for line in self.count_items(some, f"{first}, {end}, {step}"))
        yield from (f"{INDENT * len(heads)}{line}" for line in list(self.block(body)) or ["pass"])

    def first(self, left: list[ir.Statement]) -> tuple[Iterator[str], list[ir.Statement]]:
        """The lines of the first statements; a merged state serves as its result, since it does not change again."""
        match left[0]:
            case ir.Let(name, ir.Load(memory)) if memory in self.expressions.lanes and not self.expressions.lane:
                self.names.blocks[-1]["value", name] = self.names.value(memory)
                return iter(()), left[1:]
            case _:
                return super().first(left)

    def store(self, store: ir.Store, *, last: bool) -> Iterator[str]:
        """As in language numba; a sum that other threads add to as well is an atomic call."""
        if not store.is_atomic:
            yield from super().store(store, last=last)
            return
        texts, (name,) = self.expressions, store.buffers
        array, _, index = texts.cell(name, store.index).removesuffix("]").partition("[")
        yield f"cuda.atomic.add({array}, ({index}), {texts.text_as(texts.memory[name].dtype, store.values[0])})"

    def merge_lanes(self, merge: ir.MergeLanes) -> Iterator[str]:
        names = ", ".join(map(self.names.value, merge.buffers))
        yield f"{names} = {self.merge(merge)}({names})"

    def alloc(self, alloc: ir.Alloc) -> Iterator[str]:
        if is_variable(alloc):
            return super().alloc(alloc)
        if alloc.space is ir.Space.BLOCK:
            self.expressions.memory[alloc.name], kind = alloc, TYPES[alloc.dtype]
            with self.names.of(f"{kind} array of a block"):
                name = self.names.bind(alloc.name)
            return iter([f"{name} = cuda.shared.array({product(alloc.shape)}, {kind})"])
        if not self.alone or product(alloc.shape) != Dim.of(THREADS) or self.expressions.lane:
            raise UnsupportedError(f"numba_cuda has no memory for {alloc.name} but a cell of each thread of a block")
        self.expressions.memory[alloc.name] = alloc
        self.expressions.lanes.add(alloc.name)
        with self.names.of(TYPES[alloc.dtype]):
            self.names.bind(alloc.name)
        return iter(())  # no line: the first store defines it

    def rounds(self, loop: ir.Loop) -> Iterator[str]:
        """A loop over lanes: one iteration per thread of a block, or as many as it takes. Where the threads share
        memory, they wait for each other afterwards."""
        if loop.axis is not ir.Axis.LANES:
            yield from super().rounds(loop)
            return
        texts, outside = self.expressions, dict(self.expressions.extents)
        memory, is_whole = memory_of(loop.body), loop.extent == Dim.of(THREADS)
        if texts.lane or (not is_whole and memory & texts.lanes):
            raise UnsupportedError(f"numba_cuda: a block has {THREADS} threads, and {loop.var} asks for {loop.extent}")
        texts.lane, texts.extents[loop.var] = loop.var, loop.extent
        if is_whole:
            self.names.blocks[-1]["index", loop.var] = "thread"
            yield from list(self.block(loop.body))
        else:
            yield from super().rounds(replace(loop, axis=ir.Axis.SERIAL, start=Dim.of("#thread"), step=THREADS))
        texts.lane, texts.extents = "", outside
        spaces = (getattr(texts.memory.get(name), "space", None) for name in memory)
        yield from ["cuda.syncthreads()"] * (ir.Space.BLOCK in spaces)

    def span(self, loop: ir.Loop) -> str:
        """As in language numba; in a loop with a step, each thread runs every THREADS-th iteration."""
        extent = super().span(loop)
        return extent if loop.step == 1 else f"{self.expressions.dim(loop.start)}, {extent}, THREADS"

    def merge(self, merge: ir.MergeLanes) -> str:
        """The name of the device function that merges the states of a block; its text is added to `merges`."""
        name = "_".join(["noyau", merge.monoid, *(dtype.value for dtype in merge.dtypes)])
        if name not in self.merges:
            nothing = replace(self.kernel, buffers=(), binding=(), launches=())
            self.merges[name] = KernelPrinter(nothing, self.expressions, {}).merge_text(name, merge)
        return name

    def merge_text(self, name: str, merge: ir.MergeLanes) -> str:
        """The text of a function for `merge`; call it on a printer of an empty kernel."""
        parts = [f"_{part}" for part in MONOIDS[merge.monoid].parts] or [""]
        kinds, names = dict(zip(parts, merge.dtypes, strict=True)), [f"shared{part}" for part in parts]
        for part, dtype in kinds.items():
            memory = ir.Alloc(f"shared{part}", dtype, (Dim.of(THREADS),), ir.Space.REGISTER)
            self.expressions.memory[self.names.bind(memory.name)] = memory
        self.names.blocks[-1] |= {("index", "#thread"): "thread", ("index", "#half"): "half"}
        both = merge_of(replace(merge, buffers=tuple(names)), "#thread", Dim.of("#half"))
        arrays = (f"shared{part} = cuda.shared.array(THREADS, {TYPES[dtype]})" for part, dtype in kinds.items())
        text = package_text("codegen/numba_cuda/merge.txt").rstrip("\n")
        return text.format(
            name=name,
            owns=", ".join(f"own{part}" for part in parts),
            shared="\n    ".join(arrays),
            stores="\n    ".join(f"shared{part}[thread] = own{part}" for part in parts),
            merge="\n            ".join(self.statement(both, last=True)),
            merged=", ".join(f"{each}[0]" for each in names),
        )
