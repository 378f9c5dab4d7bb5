"""Printer of language `cuda`: CUDA C++ for NVRTC and nvcc; self-contained, with a host function that launches.

A loop on THREADS is the grid, one on BLOCKS the blocks of a cluster, a loop over lanes the threads of a block. Memory
with a cell for each thread of a block is a variable of each thread, merged through registers of a warp, then through
shared memory. Scalar functions are those of language `c`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from noyau.codegen.c.interface import KernelTable
from noyau.codegen.c.printer import CPrinter, indent, text_of
from noyau.codegen.c.spellings import TYPES, comment_text, integer_function
from noyau.codegen.cuda.expressions import RESERVED, CudaExpressions, CudaNames, functions_of
from noyau.codegen.identifiers import refuse_name, wish_of
from noyau.codegen.statements import INDENT, is_variable
from noyau.codegen.tables import as_operand
from noyau.codegen.thread_memory import ThreadStatements
from noyau.compiler.schedules.gpu.block_rows import BLOCK, LENGTH, WARP
from noyau.compiler.schedules.gpu.vectors import Place, places_along
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape, product
from noyau.ir.loops import Kernel
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import dims_in, every_expression, every_statement, extent_of, memory_of, on_threads
from noyau.text import package_text

WARPS = 8  # warps of a block in which each warp has its own item


def together(kernels: Sequence[ir.Kernel], comment: str = "") -> str:
    """One text of several kernels with distinct names. GraphError where a name cannot be that of a function,
    UnsupportedError where CUDA C++ cannot express one."""
    parts = [_print_kernel(kernel) for kernel in kernels]
    uses = [part.expressions for part in parts]
    functions = functions_of({name for each in uses for name in each.functions})
    integers = sorted({key for each in uses for key in each.integers})
    states = dict(state for part in parts for state in part.states.items())
    statements = [s for kernel in kernels for launch in kernel.launches for s in every_statement(launch.body)]
    has_atomics = any(isinstance(s, ir.Store) and s.is_atomic for s in statements)
    pieces = [
        comment_text(comment),
        package_text("codegen/cuda/noyau_cuda.h"),
        functions,
        *(integer_function(*key).replace("static inline", "NOYAU_BOTH") for key in integers),
        package_text("codegen/cuda/merge_lanes.h") if any(isinstance(s, ir.MergeLanes) for s in statements) else "",
        package_text("codegen/cuda/atomics.h") if has_atomics else "",
        package_text("codegen/cuda/merge_blocks.h") if any(part.has_meetings for part in parts) else "",
        *states.values(),
        *(body for part in parts for body in part.bodies),
    ]
    return "\n\n".join(piece.strip("\n") for piece in pieces if piece.strip()) + "\n"


def _print_kernel(kernel: ir.Kernel) -> CudaPrinter:
    refuse_name(kernel, RESERVED)
    printer = CudaPrinter(kernel)
    printer.bodies += [printer.launch(position, launch) for position, launch in enumerate(kernel.launches)]
    printer.bodies.append(printer.host())
    return printer


class CudaPrinter(ThreadStatements, CPrinter):
    """Printer of one kernel; `bodies`: its launches and the host function; `states`: types of merged states."""

    expressions: CudaExpressions
    unless, within, flag = "!({1}) || ", "({0} >= 0 && {0} < {1})", "[[maybe_unused]] "

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.names = CudaNames(kernel)
        self.expressions = CudaExpressions(kernel, self.names)
        self.bodies: list[str] = []
        self.states: dict[str, str] = {}
        self.uses_lane = False  # whether the launch uses the thread's index in its block
        self.meets = self.has_meetings = False  # whether the launch, or any, merges states of blocks
        self.kinds: dict[str, str] = {}  # the types of indices

    def launch(self, position: int, launch: ir.Launch) -> str:
        """The `__global__` function of a launch."""
        block, texts = block_of(launch), self.expressions
        self.alone = "rank == 0 && " * (block.blocks > 1) + "threadIdx.x == 0"
        texts.is_loose = launch.hints.is_loose
        texts.ints = set() if launch.hints.is_narrow else None
        self.uses_lane, self.meets, self.block_threads = False, False, block.threads
        with self.names.block():
            before, loops, inner = on_threads(launch.body)
            lines = [*indent(self.block(before)), *self.grid(loops, inner, block)]
        if self.meets:
            opened = ["__shared__ noyau_meeting meeting;", "int met = 0;", "noyau_open(&meeting);"]
            lines, self.has_meetings = [*indent(opened), *lines], True
        if block.blocks > 1:
            lines.insert(0, f"{INDENT}const int64_t rank = blockIdx.x % {block.blocks};")
        if self.uses_lane:
            lines.insert(0, f"{INDENT}const int lane = threadIdx.x;")
        resident = f", {launch.hints.resident}" if launch.hints.resident else ""
        bounds = f"__launch_bounds__({block.threads * block.rows}{resident})"
        cluster = f" __cluster_dims__({block.blocks}, 1, 1)" if block.blocks > 1 else ""
        stored = {name for s in every_statement(launch.body) if isinstance(s, ir.Store) for name in s.buffers}
        head = f'extern "C" __global__ void {bounds}{cluster} {self.kernel.name}_{position}'
        return "\n".join([f"{head}({', '.join(self.parameters(stored))})", "{", *lines, "}"])

    def parameters(self, stored: set[str]) -> Iterator[str]:
        """The parameters, buffers and sizes, which all kernels of the text and the host function share."""
        for buffer in self.kernel.buffers:
            constant = "" if buffer.name in stored else "const "
            yield f"{constant}{TYPES[buffer.dtype]} *__restrict__ {self.names.value(buffer.name)}"
        yield from (f"int64_t {self.names.atom(binding.size)}" for binding in self.kernel.binding)

    def grid(self, loops: Sequence[ir.Loop], body: tuple[ir.Statement, ...], block: Block) -> Iterator[str]:
        """The loops on the grid as one grid-stride loop over items; a block takes `block.rows` items at a time."""
        if not loops:
            yield from indent(self.block(body))
            return
        first, step = "blockIdx.x", "gridDim.x"
        if block.rows > 1:
            first, step = f"(int64_t)blockIdx.x * {block.rows} + threadIdx.y", f"(int64_t)gridDim.x * {block.rows}"
        elif block.blocks > 1:
            first, step = f"blockIdx.x / {block.blocks}", f"gridDim.x / {block.blocks}"
        outside = dict(self.expressions.extents)
        self.expressions.extents |= {loop.var: loop.extent for loop in loops}
        names = [self.names.bind(loop.var, wish_of(loop.var)) for loop in loops]
        extents = [self.expressions.dim(loop.extent) for loop in loops]
        if len(loops) == 1:
            yield f"{INDENT}for (int64_t {names[0]} = {first}; {names[0]} < {extents[0]}; {names[0]} += {step}) {{"
        else:
            yield f"{INDENT}const int64_t items = {' * '.join(map(as_operand, extents))};"
            yield f"{INDENT}for (int64_t item = {first}; item < items; item += {step}) {{"
            for at, name in enumerate(names):
                inner = " * ".join(map(as_operand, extents[at + 1 :]))
                index = f"item / ({inner})" if inner else "item"
                yield f"{INDENT * 2}const int64_t {name} = {index}{f' % {as_operand(extents[at])}' if at else ''};"
        yield from indent(self.block(body), 2)
        yield f"{INDENT}}}"
        self.expressions.extents = outside

    def first(self, left: list[ir.Statement]) -> tuple[Iterator[str], list[ir.Statement]]:
        """The lines of the first statements; states are declared with their initial values."""
        merges = [s for s in takewhile(lambda s: isinstance(s, ir.MergeLanes), left) if isinstance(s, ir.MergeLanes)]
        alike = [s for s in merges if replace(s, buffers=(), dtypes=()) == replace(merges[0], buffers=(), dtypes=())]
        if alike and alike == merges[: len(alike)]:  # in one, so that threads meet once
            names, dtypes = tuple(x for s in alike for x in s.buffers), tuple(x for s in alike for x in s.dtypes)
            return self.merge_lanes(replace(merges[0], buffers=names, dtypes=dtypes)), left[len(alike) :]
        own = (isinstance(s, ir.Alloc) and not is_variable(s) and s.space is not ir.Space.BLOCK for s in left)
        count = next((at for at, is_own in enumerate(own) if not is_own), 0)
        match left[count:]:
            case [ir.Loop(axis=ir.Axis.LANES, body=(ir.Store(names, _, values, None) as store,)), *rest] if (
                count
                and names == tuple(s.name for s in left[:count] if isinstance(s, ir.Alloc))
                and all(isinstance(value, ir.Const) for value in values)
            ):
                self.expressions.lanes.update(names)
                return self.variables(left[:count], store), rest
            case _:
                return super().first(left)

    def loop(self, loop: ir.Loop) -> Iterator[str]:
        if loop.axis is ir.Axis.VECTOR:
            yield from self.vector(loop)
        elif loop.axis is ir.Axis.BLOCKS:
            yield "{"
            with self.names.block():
                self.names.blocks[-1]["index", loop.var] = "rank"
                yield from self.inner(loop.body)
            yield "}"
        else:
            yield from super().loop(loop)

    def alloc(self, alloc: ir.Alloc) -> Iterator[str]:
        if alloc.space is ir.Space.THREAD:
            raise UnsupportedError(f"cuda has no memory of a thread for {alloc.name}, of a size that nobody knows now")
        if alloc.space is ir.Space.REGISTER and (is_variable(alloc) or self.expressions.lane):
            yield from super().alloc(alloc)
            return
        self.expressions.memory[alloc.name] = alloc
        kind, name = TYPES[alloc.dtype], self.names.bind(alloc.name)
        if alloc.space is ir.Space.BLOCK:
            yield f"__shared__ {kind} {name}[{alloc.shape[-1]}];"  # each block of a cluster has its own
        elif alloc.space is ir.Space.LANE:
            *_, vectors, cells = alloc.shape
            yield f"noyau_vector<{kind}, {cells}> {name}[{vectors}];"
        else:  # one cell for each block of a cluster is a variable of each thread
            self.expressions.lanes |= {alloc.name} if alloc.space is ir.Space.REGISTER else set()
            yield f"{kind} {name};"

    def zeros(self, memory: ir.Alloc) -> Iterator[str]:
        if self.expressions.lane:
            yield from super().zeros(memory)
        else:
            self.expressions.lanes.add(memory.name)
            yield self.variable(memory, self.expressions.const(0, memory.dtype))

    def rounds(self, loop: ir.Loop) -> Iterator[str]:
        """A loop; over lanes it is over the threads of a block, and with states each round has its own thread."""
        loops = [s for s in every_statement(loop.body) if isinstance(s, ir.Loop)]
        is_innermost = all(inner.axis is ir.Axis.VECTOR for inner in loops)
        if loop.axis is not ir.Axis.LANES:
            if self.expressions.lane and is_innermost:  # registers need constant indices
                yield "#pragma unroll" if self.keeps(loop.body) else "#pragma unroll 4"
            yield from super().rounds(loop) if loop.step == 1 else self.steps(loop)
            return
        if self.expressions.lane:
            raise UnsupportedError(f"cuda: the lanes of {loop.var} stand within others")
        held = [self.expressions.memory[name] for name in memory_of(loop.body) & self.expressions.lanes]
        states = any(isinstance(each, ir.Alloc) and product(each.shape) == loop.extent for each in held)
        yield from self.lanes(loop, states or loop.extent == Dim.of(self.block_threads), bool(held), is_innermost)

    def keeps(self, body: Sequence[ir.Statement], space: ir.Space = ir.Space.LANE) -> bool:
        """Whether statements access memory of a space, by default vectors of a thread."""
        memory = (self.expressions.memory.get(name) for name in memory_of(body))
        return any(isinstance(each, ir.Alloc) and each.space is space for each in memory)

    def steps(self, loop: ir.Loop) -> Iterator[str]:
        """A serial loop with a step."""
        texts, outside = self.expressions, dict(self.expressions.extents)
        start, extent = texts.dim(loop.start), texts.dim(loop.extent)
        texts.extents[loop.var] = loop.extent
        kind = self.kind_of(loop.var, loop.start, loop.extent)
        with self.names.block():
            name = self.names.bind(loop.var, wish_of(loop.var))
            body = list(self.inner(loop.body))
        texts.extents = outside
        yield f"for ({kind} {name} = {start}; {name} < {extent}; {name} += {loop.step}) {{"
        yield from body
        yield "}"

    def kind_of(self, name: str, *dims: Dim) -> str:
        """The type of an index computed from Dims; a 32-bit index is recorded."""
        narrow = self.expressions.ints
        if narrow is None or not (name.startswith(LENGTH) or all(dim.names <= narrow for dim in dims)):
            return "int64_t"
        narrow.add(name)
        return "int"

    def constant(self, name: str, wish: str, dtype: DType, text: str) -> str:
        kind = self.kinds.get(name, "int64_t") if name.startswith("#") else TYPES[dtype]
        return f"const {kind} {self.names.bind(name, wish)} = {text};"

    def lanes(self, loop: ir.Loop, whole: bool, held: bool, is_innermost: bool) -> Iterator[str]:
        """A loop over the threads of a block; `whole`: each thread has one round; `held`: at most one."""
        extent, outside = self.expressions.dim(loop.extent), dict(self.expressions.extents)
        self.expressions.extents[loop.var] = loop.extent
        with self.names.block():
            if whole or held:
                self.names.blocks[-1]["index", loop.var] = "lane"
                self.uses_lane = True
                if self.expressions.ints is not None:
                    self.expressions.ints.add(loop.var)
            name = self.names.atom(loop.var) if whole or held else self.names.bind(loop.var, wish_of(loop.var))
            self.expressions.lane = loop.var
            body = list(self.inner(loop.body))
        self.expressions.extents, self.expressions.lane = outside, ""
        if whole or held:
            yield "{" if whole else f"if (lane < {extent}) {{"
        else:
            yield from ["#pragma unroll 4"] if is_innermost else []
            yield f"for (int64_t {name} = threadIdx.x; {name} < {extent}; {name} += blockDim.x) {{"
        yield from body
        yield "}"
        if self.keeps(loop.body, ir.Space.BLOCK):  # order accesses to shared memory by different threads
            yield "__syncthreads();"

    def store(self, store: ir.Store, *, last: bool) -> Iterator[str]:
        """The lines of a Store; an atomic merge is a call, for a vector after the loop over its cells."""
        texts = self.expressions
        if not store.is_atomic:
            yield from super().store(store, last=last)
        elif texts.vector_of(store.buffers[0], store.index):
            yield f"{texts.cell(store.buffers[0], store.index)} = {texts.top(store.values[0])};"
        else:
            yield self.atomic(store, texts.cell(store.buffers[0], store.index), texts.top(store.values[0]))

    def of_updates(self, store: ir.Store) -> str:
        is_in_vector = self.expressions.vector_of(store.buffers[0], store.index)
        return "" if is_in_vector else super().of_updates(store)  # the store of the vector is predicated itself

    def atomic(self, store: ir.Store, cell: str, values: str) -> str:
        """The call of an atomic merge of a value or a vector."""
        monoid = str(store.merge)
        if MONOIDS[monoid].function == "add":
            return f"noyau_atomic_add(&{cell}, {values});"
        state = self.state_of(monoid, [value.dtype for value in store.values])
        return f"noyau_atomic_merge<{state}>(&{cell}, {values});"

    def vector(self, loop: ir.Loop) -> Iterator[str]:
        """A loop over the cells of vectors, which are loaded before it and stored after it."""
        texts, names, after = self.expressions, self.names, list[str]()
        texts.extents[loop.var] = loop.extent
        stored = {name: s for s in loop.body if isinstance(s, ir.Store) for name in s.buffers}
        if (whole := self.keep_vector(loop)) is not None:
            yield whole
            return
        with names.block():
            cell = names.bind(loop.var, "cell")
            if texts.ints is not None:
                texts.ints.add(loop.var)
            vectors = dict[Place, str]()
            for name, index in places_along(texts.memory, loop.body, loop.var):
                if name in loop.alone:
                    continue
                kind = f"<{TYPES[texts.memory[name].dtype]}, {loop.extent}>"
                vectors[name, index] = vector = names.fresh(f"{names.value(name)}_cells")
                if name in stored:
                    yield f"noyau_vector{kind} {vector};"
                    after += self.store_vector(replace(stored[name], index=index), vector, kind)
                else:
                    yield f"const noyau_vector{kind} {vector} = {self.vector_at(name, index, kind)};"
            each_cell = f"for (int {cell} = 0; {cell} < {loop.extent}; ++{cell})"
            for name, store in stored.items():  # sums in shared memory, or each load would wait for the store before it
                memory, own = texts.memory[name], store.merge and any(loop.var in dim.names for dim in store.index)
                if own and not store.is_atomic and getattr(memory, "space", None) is ir.Space.BLOCK:
                    place = texts.cell(name, store.index)
                    vector = names.fresh(f"{names.value(name)}_cells")
                    vectors[name, tuple(dim.replace({loop.var: 0}) for dim in store.index)] = vector
                    yield f"noyau_vector<{TYPES[memory.dtype]}, {loop.extent}> {vector};"
                    yield from ["#pragma unroll", f"{each_cell} {vector}.at[{cell}] = {place};"]
                    after += ["#pragma unroll", f"{each_cell} {place} = {vector}.at[{cell}];"]
            texts.vectors, texts.vector = vectors, loop.var
            body = list(self.inner(loop.body))
            texts.vectors, texts.vector = {}, ""
            yield from ["#pragma unroll", f"{each_cell} {{"]
            yield from body
            yield "}"
            yield from after

    def store_vector(self, store: ir.Store, vector: str, kind: str) -> Iterator[str]:
        """The store of a vector, predicated on the bounds of looked-up indices."""
        texts = self.expressions
        cell, inside = texts.cell(store.buffers[0], store.index), texts.all_inside(store.index)
        line = self.atomic(store, cell, vector) if store.is_atomic else f"noyau_store{kind}(&{cell}, {vector});"
        yield f"if ({inside}) {line}" if inside else line

    def keep_vector(self, loop: ir.Loop) -> str | None:
        """The assignment of a whole vector from memory to one that the thread keeps, instead of a loop; else None."""
        texts = self.expressions
        match loop.body:
            case (ir.Store((kept,), (*around, _), (ir.Load(name, place, _, None),), None),) if (
                self.keeps(loop.body) and name not in loop.alone
            ):
                begin = tuple(dim.replace({loop.var: 0}) for dim in place)
                whole = texts.cell(kept, (*around, Dim.of(0))).removesuffix(".at[0]")
                kind = f"<{TYPES[texts.memory[name].dtype]}, {loop.extent}>"
                return f"{whole} = {self.vector_at(name, begin, kind)};"
            case _:
                return None

    def vector_at(self, name: str, index: Shape, kind: str) -> str:
        """The load of a vector; zeros if looked-up indices are out of bounds."""
        texts = self.expressions
        loaded, inside = f"noyau_load{kind}(&{texts.cell(name, index)})", texts.all_inside(index)
        return f"{inside} ? {loaded} : noyau_vector{kind}{{}}" if inside else loaded

    def merge_lanes(self, merge: ir.MergeLanes) -> Iterator[str]:
        kind = self.state_of(merge.monoid, merge.dtypes)
        names = [self.names.value(buffer) for buffer in merge.buffers]
        own = f"{kind}{{{', '.join(names)}}}"
        whole = f"noyau_merge_lanes<{merge.lanes}>({own})"
        memory = self.expressions.memory[merge.buffers[0]]
        if isinstance(memory, ir.Alloc) and memory.space is ir.Space.CLUSTER:
            self.meets = True
            whole = f"noyau_merge_blocks<{merge.lanes}>({own}, &meeting, met++)"
        if len(names) == 1:
            yield f"{names[0]} = {whole}.s0;"
            return
        both = self.names.fresh("merged")
        yield f"const {kind} {both} = {whole};"
        yield from (f"{name} = {both}.s{at};" for at, name in enumerate(names))

    def state_of(self, monoid: str, dtypes: Sequence[DType]) -> str:
        """The name of the struct of a state, whose text is recorded."""
        kind = "_".join(["noyau", monoid, *(dtype.value for dtype in dtypes)])
        types, parts = [TYPES[dtype] for dtype in dtypes], range(len(dtypes))
        old, new = (tuple(map(ir.Var, (f"{side}{at}" for at in parts), dtypes)) for side in ("s", "other.s"))
        with self.names.block():
            self.names.blocks[-1] |= {("value", part.name): part.name for part in (*old, *new)}
            size = len(MONOIDS[monoid].parts or ("",))  # there may be several states
            states = [(old[at : at + size], new[at : at + size]) for at in parts[::size]]
            merged = [value for pair in states for value in MONOIDS[monoid].merge(Symbolic(), *pair)]
            texts = [self.expressions.top(value) for value in merged]
        lines = [f"{types[at]} next{at} = {texts[at]};" for at in parts] + [f"s{at} = next{at};" for at in parts]
        there = [f"state.s{at} = __shfl_sync(0xffffffffu, s{at}, from);" for at in parts]
        members = [f"{types[at]} s{at};" for at in parts]
        members += [f"__device__ void merge(const {kind} &other)", "{", *indent(lines), "}"]
        members += [f"__device__ {kind} of_lane(int from) const", "{"]
        members += [*indent([f"{kind} state;", *there, "return state;"]), "}"]
        self.states[kind] = "\n".join([f"struct {kind} {{", *indent(members), "};"])
        return kind

    def let(self, let: ir.Let) -> str:
        is_looked_up = any(isinstance(each, ir.Load | ir.Var) for each in every_expression((let,)))  # may be any number
        if let.name.startswith("#") and not is_looked_up:
            dims = () if isinstance(let.value, ir.CellsToAlignment) else tuple(dims_in((let,)))
            self.kinds[let.name] = self.kind_of(let.name, *dims)
        return super().let(let)

    def note(self, let: ir.Let) -> None:
        if isinstance(let.value, ir.CellsToAlignment):
            self.expressions.required[let.name] = let.value.length + 1
        else:
            super().note(let)

    def stream(self, store: ir.StreamStore) -> str:
        raise UnsupportedError("cuda writes around no caches: schedule without nontemporal stores")

    def host(self) -> str:
        """The host function that launches the kernels on a stream."""
        kernel, names, dim = self.kernel, self.names, self.expressions.dim
        scratch = kernel.of(ir.Role.SCRATCH)
        own = [names.value(buffer.name) for buffer in scratch]
        outputs = {buffer.name for buffer in kernel.of(ir.Role.OUTPUT)}
        outer = [text for text in self.parameters(outputs) if text.rpartition(" ")[2] not in own]
        lines = []
        for guard in kernel.guards:
            left, right, cells = (dim(each) for each in (guard.left, guard.right, guard.cells))
            lines.append(f"if (({cells}) != 0 && {left} > {right}) return cudaErrorInvalidValue;")
        lines += [f"{TYPES[buffer.dtype]} *{name} = 0;" for buffer, name in zip(scratch, own, strict=True)]
        for buffer, name in zip(scratch, own, strict=True):
            memory = f"(void **)&{name}, sizeof(*{name}) * {as_operand(dim(product(buffer.shape)))}"
            lines.append(f"if (cudaError_t error = cudaMallocAsync({memory}, stream)) return error;")
        arguments = ", ".join(text.rpartition(" ")[2].removeprefix("*") for text in self.parameters(set()))
        for at, launch in enumerate(kernel.launches):
            when = "" if launch.when is None else f"{self.expressions.expr(launch.when)} && "
            lines.append(self.call(f"{kernel.name}_{at}", launch, when, arguments))
        lines += [f"cudaFreeAsync({name}, stream);" for name in own]
        # Give it C++ linkage, since C functions of CUDA's headers may have its name, such as `norm` and `index`.
        head = f"cudaError_t {kernel.name}({', '.join(outer)}, cudaStream_t stream)"
        about = "/* Launches the kernels on a stream, with arrays of the device. */"
        body = [about, head, "{", *indent([*lines, "return cudaGetLastError();"]), "}"]
        return "\n".join(["#ifndef __CUDACC_RTC__", *body, "#endif"])

    def call(self, name: str, launch: ir.Launch, when: str, arguments: str) -> str:
        """The launch of a kernel, if it has items."""
        items, block = self.expressions.dim(extent_of(launch)), block_of(launch)
        shape = f"dim3({block.threads}, {block.rows})" if block.rows > 1 else str(block.threads)
        grid = f"noyau_blocks({items}, {block.rows})" + (f" * {block.blocks}" if block.blocks > 1 else "")
        return f"if ({when}{items} > 0) {name}<<<{grid}, {shape}, 0, stream>>>({arguments});"


@dataclass(frozen=True, slots=True)
class Block:
    """The shape of a launch: threads for an item, items side by side in a block (`rows`), blocks of a cluster."""

    threads: int
    rows: int
    blocks: int


def block_of(launch: ir.Launch) -> Block:
    """The shape of a launch."""
    loops = (s for s in every_statement(launch.body) if isinstance(s, ir.Loop) and s.axis is ir.Axis.BLOCKS)
    blocks = next((loop.extent.constant or 1 for loop in loops), 1)
    threads = launch.threads or BLOCK
    return Block(threads, WARPS if threads <= WARP else 1, blocks)


_LINE = 32  # bytes of code on a line
_WIDE = 90  # sm_90 is the first architecture with clusters of blocks


def grid_text(kernel: Kernel, codes: Mapping[str, bytes]) -> str:
    """The C text of `NAME_grid` of a scheduled kernel; `codes`: machine code by architecture ("sm_90"), and PTX by
    virtual architecture ("compute_90")."""
    printer, name = CPrinter(kernel), kernel.name
    table = KernelTable(kernel, printer.names, printer.expressions)
    blocks = ", ".join(f"{{{b.threads}, {b.rows}, {b.blocks}}}" for b in map(block_of, kernel.launches))
    lines = ["static const noyau_code", f"    {name}_codes[] = {{", *_codes(codes), "};"]
    printer.bodies += [
        package_text("codegen/cuda/noyau_grid.h"),
        *table.places(),
        table.ends(),
        "\n".join([f"static const noyau_block {name}_blocks[] = {{{blocks}}};", *lines]),
        f'__attribute__((visibility("hidden"))) const noyau_grid {name}_grid = {{\n'
        f"    {table.entries('0', '0')},\n    {name}_blocks, {name}_codes, {len(codes)},\n}};",
    ]
    return text_of([printer])


def require_architectures(kernel: Kernel, architectures: Sequence[str]) -> None:
    """UnsupportedError where an architecture lacks a feature that a scheduled kernel needs: clusters of blocks."""
    lesser = [each for each in architectures if int(each.partition("_")[2]) < _WIDE]
    if lesser and any(block_of(launch).blocks > 1 for launch in kernel.launches):
        raise UnsupportedError(f"it runs on clusters of blocks, which {lesser[0]} has not; --target sm_90 has")


def _codes(codes: Mapping[str, bytes]) -> Iterator[str]:
    for architecture, code in codes.items():
        kind, _, number = architecture.partition("_")
        yield f"        {{{number}, {int(kind == 'compute')},"
        for at in range(0, len(code), _LINE):  # three octal digits each, so that no following digit is read with them
            digits = "\\".join(f"{byte:03o}" for byte in code[at : at + _LINE])
            yield f'         "\\{digits}"'
        yield "        },"
