"""Language `numba_cuda`: Python that Numba-CUDA compiles, for those who learn and teach. The text stands alone: kernels,
and a function of the host that launches them on arrays of the device.

A loop on THREADS is a grid: of blocks, whose threads are the loops in lanes within, or of threads, where there are none.
Memory of as many cells as a block has threads is a variable of each thread, and its merge goes through shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from noyau.codegen.identifiers import refuse_name, wish_of
from noyau.codegen.numba.expressions import NumbaExpressions
from noyau.codegen.numba.printer import NumbaCaller, NumbaPrinter, comment_text
from noyau.codegen.numba.spellings import const_text, integer_function
from noyau.codegen.numba_cuda.expressions import LONG_NAMES, OWN, TYPES, CudaExpressions, CudaNames, on_device, scalar_texts
from noyau.codegen.statements import INDENT, is_variable
from noyau.codegen.tables import closed, opened
from noyau.compiler.schedules.gpu.threads import THREADS
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimOp, product
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import all_dims, every_statement, merge_of, on_threads, touched, with_dims

TILE = (32, 8)  # threads of a block of two axes
GRID = """\
def noyau_blocks(items, threads=1):
    \"\"\"As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then.\"\"\"
    return min((items + threads - 1) // threads, 65535)"""
RESERVED = OWN


def together(kernels: Sequence[ir.Kernel], comment: str = "") -> str:
    """One text of several kernels, whose names differ. GraphError where a name cannot be that of a function,
    UnsupportedError for what Numba-CUDA has no spelling of."""
    functions, integers, merges, bodies = set[str](), set[tuple[str, str]](), dict[str, str](), list[str]()
    for kernel in kernels:
        refuse_name(kernel, RESERVED)
        host = HostFunction(kernel)
        bodies.append(host.text())
        functions |= host.expressions.functions
        integers |= host.expressions.integers
        merges |= host.merges
    scalars = [*scalar_texts(functions), *(on_device(integer_function(*key)) for key in sorted(integers))]
    below = "\n\n\n".join([*scalars, *merges.values(), GRID, *bodies])
    imports = ["import math\n"] * ("math." in below) + ["import numpy as np", "from numba import cuda"]
    imports += ["from numba.cuda import libdevice"] * ("libdevice." in below)
    kinds = [f"{name} = {kind}" for name, kind in LONG_NAMES.items() if re.search(rf"\b{name}\b", below)]
    kinds += [f"THREADS = {THREADS}  # of a block"] * ("THREADS" in below)
    head = [comment_text(comment), "\n".join(imports), "\n".join(kinds)]
    return "\n\n".join(part for part in head if part) + f"\n\n\n{below}\n"


def in_blocks(launch: ir.Launch) -> bool:
    """Whether an item of a launch has a block of threads."""
    return any(isinstance(s, ir.Loop) and s.axis is ir.Axis.LANES for s in every_statement(launch.body))


class HostFunction(NumbaCaller):
    """The function of the host: sizes, checks, scratch, launches in order. `merges`: functions of the device that
    kernels call for states."""

    expressions: CudaExpressions

    def __init__(self, kernel: ir.Kernel) -> None:
        super().__init__(kernel)
        self.names = CudaNames(kernel)
        self.expressions = CudaExpressions(kernel, self.names)
        self.merges: dict[str, str] = {}

    def text(self) -> str:
        """The kernels of the launches, then the function."""
        parts = list[str]()
        body = [*self.sizes(), *self.checks(), *self.guards(), *self.scratch()]
        for position, launch in enumerate(self.kernel.launches):
            printer = KernelPrinter(self.kernel, self.expressions, self.merges)
            parts.append(printer.function(position, launch))
            body += self.call(position, launch, printer)
        names = ", ".join(self.names.value(buffer.name) for buffer in self.ends)
        about = ['"""Launch the kernels on a stream, on arrays of the device:', "", *self.described(), '"""']
        lines = "\n".join(f"{INDENT}{line}".rstrip() for line in [*about, *body])
        return "\n\n\n".join([*parts, f"def {self.kernel.name}({names}, stream=0):\n{lines}"])

    def described(self) -> Iterator[str]:
        for line in super().described():
            yield line.removeprefix("# ") + ", as its bits in uint16" * (": bf16[" in line)

    def checks(self) -> Iterator[str]:
        """Shapes that the sizes do not fit are refused."""
        for line in super().checks():
            if line.startswith("if "):
                name, _, wanted = line.removeprefix("if ").removesuffix(":").partition(".shape != ")
                yield line
                yield f'{INDENT}raise ValueError(f"{name} has the shape {{{name}.shape}}, and not {{{wanted}}}")'

    def guards(self) -> Iterator[str]:
        for guard in self.kernel.guards:
            left, right, cells = (self.expressions.dim(each) for each in (guard.left, guard.right, guard.cells))
            yield f"if {closed(cells)} != 0 and {left} > {right}:"
            yield f'{INDENT}raise ValueError("a size does not fit the others")'

    def scratch(self) -> Iterator[str]:
        for buffer in self.kernel.of(ir.Role.SCRATCH):
            kind = LONG_NAMES.get(TYPES[buffer.dtype], "np.bool_")
            shape = f"{self.shape(buffer)}, {kind}, stream=stream"
            yield f"{self.names.value(buffer.name)} = cuda.device_array({shape})"

    def call(self, position: int, launch: ir.Launch, printer: NumbaPrinter) -> Iterator[str]:
        assert isinstance(printer, KernelPrinter)
        _, loops, _ = on_threads(launch.body)
        extents = [loop.extent for loop in loops]
        arguments = ", ".join(f"{each}.reshape(-1)" if each in printer.flats else each for each in printer.parameters)
        grid = f"[{self.grid(launch, extents)}, stream]"
        conditions = [f"{self.expressions.dim(product(extents))} > 0"] if extents else []
        if launch.when is not None:
            conditions.insert(0, self.expressions.expr(launch.when))
        if conditions:
            yield f"if {' and '.join(conditions)}:"
        yield f"{INDENT * bool(conditions)}{self.kernel.name}_{position}{grid}({arguments})"

    def grid(self, launch: ir.Launch, extents: Sequence[Dim]) -> str:
        """The grid and the block of a launch."""
        dim = self.expressions.dim
        if in_blocks(launch):
            return f"noyau_blocks({dim(product(extents))}), THREADS" if extents else "1, THREADS"
        if len(extents) < 2:
            return f"noyau_blocks({dim(product(extents))}, THREADS), THREADS" if extents else "1, 1"
        across, down = dim(extents[-1]), dim(product(extents[:-1]))
        return f"(noyau_blocks({across}, {TILE[0]}), noyau_blocks({down}, {TILE[1]})), {TILE}"


class KernelPrinter(NumbaPrinter):
    """One launch being printed. `flats`: parameters that are arrays of one axis, whatever the array has."""

    expressions: CudaExpressions

    def __init__(self, kernel: ir.Kernel, shared: NumbaExpressions, merges: dict[str, str]) -> None:
        super().__init__(kernel, shared)
        self.merges = merges
        self.flats: set[str] = set()
        self.in_blocks = False

    def function(self, position: int, launch: ir.Launch) -> str:
        """The kernel of a launch."""
        self.in_blocks = in_blocks(launch)
        lines = self.lines(launch)
        self.flats |= {self.names.value(b.name) for b in self.kernel.buffers if b.name in self.expressions.flat}
        self.flats |= {self.names.value(b.name) for b in self.kernel.buffers if not b.shape}
        body = "\n".join(f"{INDENT}{line}" for line in lines or ["pass"])
        return f"@cuda.jit\ndef {self.kernel.name}_{position}({', '.join(self.parameters)}):\n{body}"

    def flattened(self, flat: set[str]) -> Iterator[str]:
        """The host passes them so."""
        return iter(())

    def memory(self, body: Sequence[ir.Statement]) -> Iterator[str]:
        """Arrays of a thread are made where they stand."""
        return iter(())

    def items(self, loops: Sequence[ir.Loop], body: tuple[ir.Statement, ...]) -> Iterator[str]:
        """The loops on the grid: of blocks, of threads along one axis, or along two, the innermost loop across."""
        extents = " x ".join(closed(self.expressions.dim(loop.extent)) for loop in loops)
        yield f'"""A {"block" if self.in_blocks else "thread"} for {f"each item of {extents}" if loops else "all"}."""'
        if self.in_blocks:
            yield "thread = cuda.threadIdx.x"
            heads = [(list(loops), "cuda.blockIdx.x", "cuda.gridDim.x")] if loops else []
        elif len(loops) < 2:
            heads = [(list(loops), "cuda.grid(1)", "cuda.gridsize(1)")] if loops else []
        else:
            yield "across, down = cuda.grid(2)"
            yield "all_across, all_down = cuda.gridsize(2)"
            heads = [(list(loops[:-1]), "down", "all_down"), (list(loops[-1:]), "across", "all_across")]
        for depth, head in enumerate(heads):
            yield from (f"{INDENT * depth}{line}" for line in self.counted(*head))
        yield from (f"{INDENT * len(heads)}{line}" for line in list(self.block(body)) or ["pass"])

    def counted(self, loops: Sequence[ir.Loop], first: str, step: str) -> Iterator[str]:
        """The head of a loop over all items of some loops, and what gives these their variables."""
        extents = [self.expressions.dim(loop.extent) for loop in loops]
        with self.names.of("i64"):
            item = self.names.fresh("item") if len(loops) > 1 else ""
            names = [self.names.bind(loop.var, wish_of(loop.var)) for loop in loops]
        yield f"for {item or names[0]} in range({first}, {' * '.join(map(closed, extents)) if item else extents[0]}, {step}):"
        counters = self.counters(names, list(map(closed, extents[1:])), item) if item else ()
        yield from (f"{INDENT}{line}" for line in counters)

    # Statements.

    def statement(self, statement: ir.Statement, *, last: bool) -> Iterator[str]:
        match statement:
            case ir.Let(name, ir.Load(memory)) if memory in self.expressions.own_cells and not self.expressions.lane:
                self.names.blocks[-1]["value", name] = self.names.value(memory)  # which nothing changes any more
            case ir.MergeLanes():
                names = ", ".join(map(self.names.value, statement.buffers))
                yield f"{names} = {self.merge(statement)}({names})"
            case ir.Require():
                yield from self.noted_inside(statement, "")
            case ir.If(condition, body) if all(isinstance(s, ir.Require) for s in body):
                for each in body:
                    assert isinstance(each, ir.Require)
                    yield from self.noted_inside(each, f"not {self.expressions.expr(condition)} or ")
            case ir.Zero(name, dtype, _, _) if name in self.expressions.own_cells:
                yield f"{self.names.value(name)} = {opened(const_text(0, dtype))}"
            case ir.Store() if self.in_blocks and not self.expressions.lane and any(map(self.is_shared, statement.buffers)):
                yield "if thread == 0:"  # all threads have computed the same
                yield from (f"{INDENT}{line}" for line in super().statement(statement, last=last))
            case _:
                yield from super().statement(statement, last=last)

    def is_shared(self, name: str) -> bool:
        """Whether a block, or the whole grid, has one of it."""
        return isinstance(self.expressions.memory[name], ir.Buffer)

    def alloc(self, alloc: ir.Alloc) -> Iterator[str]:
        """A variable of the thread, or an array of its own."""
        count = product(alloc.shape).constant
        if is_variable(alloc):
            yield from super().alloc(alloc)
            return
        if count is None or alloc.space is not ir.Space.REGISTER:
            raise UnsupportedError(f"numba_cuda has no memory of a thread for {alloc.name}, of a size that nobody knows now")
        self.expressions.memory[alloc.name] = alloc
        with self.names.of(TYPES[alloc.dtype]):
            name = self.names.bind(alloc.name)
        if self.in_blocks and not self.expressions.lane and count == THREADS:
            self.expressions.own_cells.add(alloc.name)  # the first store is its beginning
        else:
            kind = TYPES[alloc.dtype]
            yield f"{name} = cuda.local.array({count}, {kind if kind in LONG_NAMES else 'np.bool_'})"

    def rounds(self, loop: ir.Loop) -> Iterator[str]:
        """Loops in lanes are over the threads of a block: where they hold states, a thread has one round."""
        said = self.expressions
        in_lanes = loop.axis is ir.Axis.LANES and not said.lane
        if in_lanes and touched(loop.body) & said.own_cells:
            yield from self.own_round(loop)
        elif in_lanes:
            said.lane = loop.var
            yield from self.shared_rounds(loop)
            said.lane = ""
        elif (cells := self.cells_of(loop)) is not None:
            yield from self.shared_rounds(cells)
        else:
            yield from super().rounds(loop)

    def own_round(self, loop: ir.Loop) -> Iterator[str]:
        """The one round that a thread has."""
        if loop.extent != Dim.of(THREADS):
            raise UnsupportedError(f"numba_cuda: a block has {THREADS} threads, and {loop.var} asks for {loop.extent}")
        said, outside = self.expressions, dict(self.expressions.extents)
        self.names.blocks[-1]["index", loop.var] = "thread"
        said.lane, said.extents[loop.var] = loop.var, loop.extent
        yield from list(self.block(loop.body))
        said.lane, said.extents = "", outside

    def cells_of(self, loop: ir.Loop) -> ir.Loop | None:
        """A loop over so many rounds of the thread, as one over the cells that it has, each so many after another; or
        None."""
        lane, cell = Dim.of(self.expressions.lane or 0), Dim.of(f"{loop.var}_cell")
        quotients = [atom for atoms, _ in loop.extent.terms for atom in atoms if isinstance(atom, DimOp)]
        left = quotients[0].left if len(quotients) == 1 else Dim.of(0)
        end = left.replace({str(lane): 0}) - (THREADS - 1)
        if not self.expressions.lane or (end - lane + (THREADS - 1)) // THREADS != loop.extent:
            return None
        own = {str(lane): cell - Dim.of(loop.var) * THREADS}
        body = with_dims(loop.body, lambda dim: dim.replace(own) if loop.var in dim.names else dim)
        is_whole = not any(loop.var in dim.names for dim in all_dims(body))
        return ir.Loop(str(cell), end, loop.axis, body) if is_whole else None

    def shared_rounds(self, loop: ir.Loop) -> Iterator[str]:
        """A loop of which each thread of a block has every so many-th round."""
        said, outside = self.expressions, dict(self.expressions.extents)
        end, said.extents[loop.var] = said.dim(loop.extent), loop.extent
        with self.names.block():
            with self.names.of("i64"):
                wish = loop.var.removeprefix("#").removesuffix("_cell")
                name = self.names.bind(loop.var, wish_of(loop.var) or wish)
            body = list(self.inner(loop.body))
        said.extents = outside
        yield f"for {name} in range(thread, {end}, THREADS):"
        yield from body

    def merge(self, merge: ir.MergeLanes) -> str:
        """The name of the function of the device that merges states of a block, which is noted with its text."""
        name = "_".join(["noyau", merge.monoid, *(TYPES[dtype] for dtype in merge.dtypes)])
        if name not in self.merges:
            alone = replace(self.kernel, buffers=(), binding=(), launches=())
            self.merges[name] = KernelPrinter(alone, self.expressions, self.merges).merge_text(name, merge)
        return name

    def merge_text(self, name: str, merge: ir.MergeLanes) -> str:
        """A function of the device that merges states, of this printer, which prints no kernel."""
        parts = [f"_{part}" for part in MONOIDS[merge.monoid].parts] or [""]
        memory = [ir.Alloc(f"shared{p}", d, (Dim.of(THREADS),), ir.Space.REGISTER) for p, d in zip(parts, merge.dtypes, strict=True)]
        self.expressions.memory |= {each.name: each for each in memory}
        shared = [self.names.bind(each.name) for each in memory]
        self.names.blocks[-1] |= {("index", "#thread"): "thread", ("index", "#half"): "half"}
        one = merge_of(replace(merge, buffers=tuple(each.name for each in memory)), "#thread", Dim.of("#half"))
        merged = ", ".join(f"{each}[0]" for each in shared)
        kinds = [kind if (kind := TYPES[dtype]) in LONG_NAMES else "np.bool_" for dtype in merge.dtypes]
        lines = [
            '"""One state of those of a block: the upper half is merged into the lower one, again and again."""',
            *(f"{each} = cuda.shared.array(THREADS, {kind})" for each, kind in zip(shared, kinds, strict=True)),
            "thread = cuda.threadIdx.x",
            *(f"{each}[thread] = own{part}" for each, part in zip(shared, parts, strict=True)),
            "cuda.syncthreads()",
            "half = THREADS // 2",
            "while half > 0:",
            f"{INDENT}if thread < half:",
            *(f"{INDENT * 2}{line}" for line in self.statement(one, last=True)),
            f"{INDENT}cuda.syncthreads()",
            f"{INDENT}half //= 2",
            f"merged = {merged}",
            "cuda.syncthreads()  # all have read it before the next merge takes the memory",
            "return merged",
        ]
        head = f"@cuda.jit(device=True)\ndef {name}({', '.join(f'own{part}' for part in parts)}):"
        return "\n".join([head, *(f"{INDENT}{line}" for line in lines)])

    def noted_inside(self, require: ir.Require, otherwise: str) -> Iterator[str]:
        """Whether an index lies inside, or need not: what is loaded there asks."""
        index, extent = self.expressions.dim(require.index), self.expressions.dim(require.extent)
        with self.names.of("bool"):
            name = self.names.fresh("inside")
        self.expressions.inside |= {each: name for each in require.index.names if each.startswith("#")}
        yield f"{name} = {otherwise}0 <= {index} < {extent}"
