"""Language `cuda`: CUDA C++ for NVRTC and nvcc. The text compiles alone; a function of the host launches its kernels.

A loop on THREADS is the grid, a loop in lanes the threads of a block; memory of as many cells as a block has threads is
a variable of each thread, and its merge goes through shared memory. Scalar functions are those of language `c`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files

from noyau.codegen import cmath
from noyau.codegen.c.expressions import CExpressions
from noyau.codegen.c.printer import CPrinter, indented
from noyau.codegen.c.spellings import TYPES, comment_text, integer_function
from noyau.codegen.identifiers import Scopes, refuse_name, wish_of
from noyau.codegen.statements import INDENT, is_variable
from noyau.codegen.tables import SCALARS, closed
from noyau.compiler.schedules.gpu.blocks import BLOCK, WARP
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape, product
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import every_statement, extent_of, on_threads, touched

# What no compiler of the host may know, so that a sum is not fused with a product, has a word of its own here.
UNFUSED = (
    ("x + noyau_minus_zero_f32", "__fadd_rn(x, -0.0f)"),
    ("x + noyau_minus_zero_f64", "__dadd_rn(x, -0.0)"),
)
HOSTS_OWN = re.compile(r"^__attribute__.*\n", re.MULTILINE)
# Functions that CUDA has itself, within 2 ulp or so, for float with an f at the end.
MATH = frozenset(
    """exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf sqrt rsqrt
    floor ceil trunc""".split()
)
WARPS = 8  # of a block in which each has an item of its own
# Beyond the words of C: those of C++, and what CUDA and the text call their own.
RESERVED = frozenset(
    """and and_eq asm bitand bitor catch char16_t char32_t char8_t class co_await co_return co_yield compl concept
    const_cast consteval constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept
    not not_eq operator or or_eq private protected public reinterpret_cast requires static_cast template this throw try
    typeid typename using virtual wchar_t xor xor_eq threadIdx blockIdx blockDim gridDim warpSize lane stream
    items item""".split()
)


def together(kernels: Sequence[ir.Kernel], comment: str = "") -> str:
    """One text of several kernels, whose names differ. GraphError where a name cannot be that of a function,
    UnsupportedError for what CUDA C++ has no spelling of."""
    parts = [_printed(kernel) for kernel in kernels]
    uses = [part.expressions for part in parts]
    functions = HOSTS_OWN.sub("", "\n\n".join(cmath.snippets({name for each in uses for name in each.functions})))
    for spelling, own in UNFUSED:
        functions = functions.replace(spelling, own)
    integers = sorted({key for each in uses for key in each.integers})
    states = dict(state for part in parts for state in part.states.items())
    head = files("noyau.codegen.cuda").joinpath("noyau_cuda.h").read_text("ascii")
    pieces = [
        comment_text(comment),
        head,
        functions,
        *(integer_function(*key).replace("static inline", "NOYAU_INLINE") for key in integers),
        (files("noyau.codegen.cuda").joinpath("merge_lanes.h").read_text("ascii") if states else ""),
        *states.values(),
        *(body for part in parts for body in part.bodies),
    ]
    return "\n\n".join(piece.strip("\n") for piece in pieces if piece.strip()) + "\n"


def _printed(kernel: ir.Kernel) -> CudaPrinter:
    refuse_name(kernel, RESERVED)
    printer = CudaPrinter(kernel)
    printer.bodies += [printer.launch(position, launch) for position, launch in enumerate(kernel.launches)]
    printer.bodies.append(printer.host())
    return printer


class CudaNames(Scopes):
    """Names of a kernel to identifiers of CUDA C++."""

    def fits(self, name: str) -> bool:
        return name not in RESERVED


class CudaExpressions(CExpressions):
    """The expressions of one kernel in CUDA C++. `lanes`: the memory that is a variable of each thread."""

    language = "cuda"

    def __init__(self, kernel: ir.Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.lanes: set[str] = set()
        self.lane = ""  # the variable of the loop in lanes that is open
        self.inside: dict[str, str] = {}  # whether an index that was looked up is inside

    def cell(self, name: str, index: Shape) -> str:
        if name not in self.lanes:
            return super().cell(name, index)
        if index != (Dim.of(self.lane or 0),):
            raise UnsupportedError(f"cuda: a thread cannot reach the cell {index[0]} of {name}, another thread's")
        return self.names.value(name)

    def own(self, function: str, operands: tuple[ir.Expr, ...]) -> str | None:
        name = SCALARS.get(function)
        if name in MATH and operands[0].dtype in (DType.F32, DType.F64):
            return f"{name}{'f' * (operands[0].dtype is DType.F32)}({self.top(operands[0])})"
        return super().own(function, operands)

    def load(self, load: ir.Load) -> str:
        """As of language `c`; what lies outside is not read, and is 0."""
        cell = super().load(load)
        inside = dict.fromkeys(self.inside[name] for dim in load.index for name in dim.names if name in self.inside)
        return self.chosen(" && ".join(inside), cell, self.const(0, load.dtype)) if inside else cell


class CudaPrinter(CPrinter):
    """One kernel being printed; `bodies` are its launches and the function that launches them, `states` the types of
    the states that blocks merge."""

    expressions: CudaExpressions

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.names = CudaNames(kernel)
        self.expressions = CudaExpressions(kernel, self.names)
        self.bodies: list[str] = []
        self.states: dict[str, str] = {}
        self.uses_lane = False  # whether the launch names the thread of its block

    # Launches.

    def launch(self, position: int, launch: ir.Launch) -> str:
        """The kernel of a launch."""
        with self.names.block():
            before, loops, inner = on_threads(launch.body)
            self.uses_lane = False
            lines = [*indented(self.block(before)), *self.grid(loops, inner, block_of(launch)[1])]
        if self.uses_lane:
            lines.insert(0, f"{INDENT}const int64_t lane = threadIdx.x;")
        head = f'extern "C" __global__ void __launch_bounds__({math.prod(block_of(launch))})'
        parameters = ", ".join(self.parameters(stores_of(launch)))
        return "\n".join([f"{head} {self.kernel.name}_{position}({parameters})", "{", *lines, "}"])

    def parameters(self, stored: set[str]) -> Iterator[str]:
        """Buffers and sizes, as all kernels of the text and the function of the host have them."""
        for buffer in self.kernel.buffers:
            constant = "" if buffer.name in stored else "const "
            yield f"{constant}{TYPES[buffer.dtype]} *__restrict__ {self.names.value(buffer.name)}"
        yield from (f"int64_t {self.names.atom(binding.size)}" for binding in self.kernel.binding)

    def grid(self, loops: Sequence[ir.Loop], body: tuple[ir.Statement, ...], rows: int) -> Iterator[str]:
        """The loops on the grid, as one: a block takes so many items, and those that are a grid further."""
        first, step = "blockIdx.x", "gridDim.x"
        if rows > 1:
            first, step = f"(int64_t)blockIdx.x * {rows} + threadIdx.y", f"(int64_t)gridDim.x * {rows}"
        outside = dict(self.expressions.extents)
        self.expressions.extents |= {loop.var: loop.extent for loop in loops}
        names = [self.names.bind(loop.var, wish_of(loop.var)) for loop in loops]
        if not loops:
            yield from indented(self.block(body))
        elif len(loops) == 1:
            extent = self.expressions.dim(loops[0].extent)
            yield f"{INDENT}for (int64_t {names[0]} = {first}; {names[0]} < {extent}; {names[0]} += {step}) {{"
        else:
            extents = [self.expressions.dim(loop.extent) for loop in loops]
            yield f"{INDENT}const int64_t items = {' * '.join(map(closed, extents))};"
            yield f"{INDENT}for (int64_t item = {first}; item < items; item += {step}) {{"
            for at, name in enumerate(names):
                inner = " * ".join(map(closed, extents[at + 1 :]))
                index = f"item / ({inner})" if inner else "item"
                yield f"{INDENT * 2}const int64_t {name} = {index}{f' % {closed(extents[at])}' if at else ''};"
        if loops:
            yield from indented(self.block(body), 2)
            yield f"{INDENT}}}"
        self.expressions.extents = outside

    # Statements.

    def first(self, left: list[ir.Statement]) -> tuple[Iterator[str], list[ir.Statement]]:
        """As of language `c`; states are declared with what is in them first."""
        count = next((at for at, s in enumerate(left) if not isinstance(s, ir.Alloc) or is_variable(s)), 0)
        match left[count:]:
            case [ir.Loop(axis=ir.Axis.LANES, body=(ir.Store(names, _, values, None),)), *rest] if (
                count
                and names == tuple(s.name for s in left[:count] if isinstance(s, ir.Alloc))
                and all(isinstance(value, ir.Const) for value in values)
            ):
                return self.filled(left[:count], values), rest
            case _:
                return super().first(left)

    def filled(self, memory: Sequence[ir.Statement], values: Sequence[ir.Expr]) -> Iterator[str]:
        """Memory of the threads of a block, with what is in it first."""
        for alloc, value in zip(memory, values, strict=True):
            assert isinstance(alloc, ir.Alloc)
            (declared,) = self.alloc(alloc)
            yield f"{declared.removesuffix(';')} = {self.expressions.stored(alloc.name, value)};"

    def statement(self, statement: ir.Statement, *, last: bool) -> Iterator[str]:
        match statement:
            case ir.MergeLanes():
                yield from self.merged(statement)
            case ir.Require():
                yield from self.noted_inside(statement, "")
            case ir.If(condition, body) if all(isinstance(s, ir.Require) for s in body):
                for each in body:
                    assert isinstance(each, ir.Require)
                    yield from self.noted_inside(each, f"!({self.expressions.top(condition)}) || ")
            case ir.Zero(memory, dtype, _, _) if memory in self.expressions.lanes:
                yield f"{self.names.value(memory)} = {self.expressions.const(0, dtype)};"
            case ir.Store() if not self.expressions.lane and any(map(self.is_shared, statement.buffers)):
                yield "if (threadIdx.x == 0) {"  # all threads have computed the same
                yield from indented(super().statement(statement, last=False))
                yield "}"
            case _:
                yield from super().statement(statement, last=last)

    def is_shared(self, name: str) -> bool:
        """Whether a block, or the whole grid, has one of it."""
        return isinstance(self.expressions.memory[name], ir.Buffer)

    def alloc(self, alloc: ir.Alloc) -> Iterator[str]:
        if alloc.space is not ir.Space.REGISTER:
            raise UnsupportedError(f"cuda has no memory of a thread for {alloc.name}, of a size that nobody knows now")
        if is_variable(alloc) or self.expressions.lane:
            yield from super().alloc(alloc)
        else:
            self.expressions.memory[alloc.name] = alloc
            self.expressions.lanes.add(alloc.name)
            yield f"{TYPES[alloc.dtype]} {self.names.bind(alloc.name)};"

    def zeros(self, memory: ir.Alloc) -> Iterator[str]:
        if self.expressions.lane:
            yield from super().zeros(memory)
        else:
            (declared,) = self.alloc(memory)
            yield f"{declared.removesuffix(';')} = {self.expressions.const(0, memory.dtype)};"

    def rounds(self, loop: ir.Loop) -> Iterator[str]:
        """Loops in lanes are over the threads of a block: those that hold states have a thread for each round."""
        is_innermost = not any(isinstance(s, ir.Loop) for s in every_statement(loop.body))
        if loop.axis is not ir.Axis.LANES:
            yield from ["#pragma unroll 4"] if self.expressions.lane and is_innermost else []
            yield from super().rounds(loop)
            return
        if self.expressions.lane:
            raise UnsupportedError(f"cuda: the lanes of {loop.var} stand within others")
        extent, outside = self.expressions.dim(loop.extent), dict(self.expressions.extents)
        held = [self.expressions.memory[name] for name in touched(loop.body) & self.expressions.lanes]
        whole = any(isinstance(each, ir.Alloc) and product(each.shape) == loop.extent for each in held)
        self.expressions.extents[loop.var] = loop.extent
        with self.names.block():
            if held:
                self.names.blocks[-1]["index", loop.var] = "lane"
                self.uses_lane = True
            name = self.names.atom(loop.var) if held else self.names.bind(loop.var, wish_of(loop.var))
            self.expressions.lane = loop.var
            body = list(self.inner(loop.body))
        self.expressions.extents, self.expressions.lane = outside, ""
        if held:
            yield "{" if whole else f"if (lane < {extent}) {{"
        else:
            yield from ["#pragma unroll 4"] if is_innermost else []
            yield f"for (int64_t {name} = threadIdx.x; {name} < {extent}; {name} += blockDim.x) {{"
        yield from body
        yield "}"

    def merged(self, merge: ir.MergeLanes) -> Iterator[str]:
        """The states of all threads of a block, merged; each thread has the result."""
        kind = self.state_of(merge.monoid, merge.dtypes)
        names = [self.names.value(buffer) for buffer in merge.buffers]
        whole = f"noyau_merge_lanes<{merge.lanes}>({kind}{{{', '.join(names)}}})"
        if len(names) == 1:
            yield f"{names[0]} = {whole}.s0;"
            return
        both = self.names.fresh("merged")
        yield f"const {kind} {both} = {whole};"
        yield from (f"{name} = {both}.s{at};" for at, name in enumerate(names))

    def state_of(self, monoid: str, dtypes: Sequence[DType]) -> str:
        """The name of the type of a state, which is noted with its text."""
        kind = "_".join(["noyau", monoid, *(dtype.value for dtype in dtypes)])
        old, new = (
            tuple(ir.Var(f"{side}{at}", dtype) for at, dtype in enumerate(dtypes)) for side in ("own ", "other ")
        )
        with self.names.block():
            for at in range(len(dtypes)):
                self.names.blocks[-1]["value", old[at].name] = f"s{at}"
                self.names.blocks[-1]["value", new[at].name] = f"other.s{at}"
            values = MONOIDS[monoid].merge(Symbolic(), old, new)
            texts = [self.expressions.top(value) for value in values]
        members = [f"{INDENT}{TYPES[dtype]} s{at};" for at, dtype in enumerate(dtypes)]
        nexts = [
            f"{TYPES[dtype]} next{at} = {text};" for at, (dtype, text) in enumerate(zip(dtypes, texts, strict=True))
        ]
        lines = [*nexts, *(f"s{at} = next{at};" for at in range(len(dtypes)))]
        head = f"{INDENT}__device__ void merge(const {kind} &other)"
        self.states[kind] = "\n".join(
            [f"struct {kind} {{", *members, head, f"{INDENT}{{", *indented(lines, 2), f"{INDENT}}}", "};"]
        )
        return kind

    def noted_inside(self, require: ir.Require, otherwise: str) -> Iterator[str]:
        """Whether an index lies inside, or need not: what is loaded there asks."""
        index, extent = self.expressions.dim(require.index), self.expressions.dim(require.extent)
        name = self.names.fresh("inside")
        self.expressions.inside |= {each: name for each in require.index.names if each.startswith("#")}
        yield f"[[maybe_unused]] const bool {name} = {otherwise}({index} >= 0 && {index} < {extent});"

    def streamed(self, store: ir.StreamStore) -> str:
        raise UnsupportedError("cuda writes around no caches: schedule without nontemporal stores")

    def transposed(self, tile: ir.TransposeTile) -> str:
        raise UnsupportedError("cuda transposes no tile in one thread: schedule without turns")

    # The function of the host.

    def host(self) -> str:
        """The function of the host that launches the kernels on a stream."""
        kernel, names, dim = self.kernel, self.names, self.expressions.dim
        outputs = {buffer.name for buffer in kernel.of(ir.Role.OUTPUT)}
        scratch = kernel.of(ir.Role.SCRATCH)
        own = [names.value(buffer.name) for buffer in scratch]
        outer = [text for text in self.parameters(outputs) if text.rpartition(" ")[2] not in own]
        lines = []
        for guard in kernel.guards:
            left, right, cells = (dim(each) for each in (guard.left, guard.right, guard.cells))
            lines.append(f"if (({cells}) != 0 && {left} > {right}) return cudaErrorInvalidValue;")
        lines += [f"{TYPES[buffer.dtype]} *{name} = 0;" for buffer, name in zip(scratch, own, strict=True)]
        for buffer, name in zip(scratch, own, strict=True):
            bytes_of = f"sizeof(*{name}) * {closed(dim(product(buffer.shape)))}"
            lines.append(
                f"if (cudaError_t error = cudaMallocAsync((void **)&{name}, {bytes_of}, stream)) return error;"
            )
        arguments = ", ".join(text.rpartition(" ")[2].removeprefix("*") for text in self.parameters(set()))
        for at, launch in enumerate(kernel.launches):
            when = "" if launch.when is None else f"{self.expressions.expr(launch.when)} && "
            items, (threads, rows) = dim(extent_of(launch)), block_of(launch)
            block = f"dim3({threads}, {rows})" if rows > 1 else str(threads)
            call = f"{kernel.name}_{at}<<<noyau_blocks({items}, {rows}), {block}, 0, stream>>>({arguments});"
            lines.append(f"if ({when}{items} > 0) {call}")
        lines += [f"cudaFreeAsync({name}, stream);" for name in own]
        head = f'extern "C" cudaError_t {kernel.name}({", ".join(outer)}, cudaStream_t stream)'
        about = "/* Launches the kernels on a stream, with arrays of the device. */"
        body = [about, head, "{", *indented([*lines, "return cudaGetLastError();"]), "}"]
        return "\n".join(["#ifndef __CUDACC_RTC__", *body, "#endif"])


def block_of(launch: ir.Launch) -> tuple[int, int]:
    """The threads of a block, as many as there are lanes that hold states; and the items that it has side by side."""
    lanes = max((s.lanes for s in every_statement(launch.body) if isinstance(s, ir.MergeLanes)), default=BLOCK)
    return lanes, WARPS if lanes <= WARP else 1


def stores_of(launch: ir.Launch) -> set[str]:
    """The names that a launch stores in."""
    return {name for s in every_statement(launch.body) if isinstance(s, ir.Store) for name in s.buffers}
