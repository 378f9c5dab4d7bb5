"""The table of a C kernel for a runtime: sizes and shapes, extents of launches, and the bytes moved for an item."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from noyau.codegen.c.expressions import CExpressions
from noyau.codegen.identifiers import Scopes
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, maximum, product
from noyau.ir.operators import OPERATORS
from noyau.ir.walk import every_expression, extent_of, loads_of, targets_of

USUAL = 1024  # assumed value of every size in the cost model of flops against bytes
FLOPS_A_BYTE = 3  # that a thread computes in the time of moving one byte


def item_bytes(kernel: ir.Kernel, launch: ir.Launch) -> Dim:
    """The cost of an item in bytes moved: those of the buffers that the launch touches, without buffers that are only
    looked up, divided by its items, plus one. If the computation takes several times as long as moving the bytes, the
    cost is multiplied accordingly."""
    loads = loads_of(launch.body)
    read = {e.buffer for e in loads if not any(name.startswith("#at") for d in e.index for name in d.names)}
    touched = targets_of(launch.body) | read
    total = sum((bytes_of(buffer) for buffer in kernel.buffers if buffer.name in touched), Dim.of(0))
    total, extent = total * _intensity(launch, total), extent_of(launch)
    whole = total // extent
    return 1 + (whole if whole * extent == total and extent.constant != 0 else total // maximum(extent, 1))


def _intensity(launch: ir.Launch, total: Dim) -> int:
    """The ratio of the time of a launch's flops to that of its bytes, at usual sizes; at least 1."""
    with contextlib.suppress(ZeroDivisionError):
        return max(1, round(_flops(launch.body, {}) / max(1, FLOPS_A_BYTE * _usual(total, {}))))
    return 1


def _flops(body: Iterable[ir.Statement], known: dict[str, int]) -> int:
    """The flops of statements at usual sizes; `known`: values of named indices."""
    total = 0
    for statement in body:
        match statement:
            case ir.Loop(extent=extent, body=inner):
                total += max(0, _usual(extent, known)) * _flops(inner, known)
            case ir.If(condition=ir.InWholeLines()):
                pass  # counted in the branch of other tiles, which computes the same
            case ir.If(body=inner):
                total += _flops(inner, known)
            case ir.Let(name, ir.Index(dim)):
                known[name] = _usual(dim, known)
            case _:
                calls = (expr for expr in every_expression((statement,)) if isinstance(expr, ir.Call))
                total += sum(OPERATORS[call.function].flops for call in calls)
    return total


def _usual(dim: Dim, known: Mapping[str, int]) -> int:
    """The value of a Dim at usual sizes, in the first round of each loop."""
    return int(dim.evaluate({name: known.get(name, 0 if name.startswith("#") else USUAL) for name in dim.names}))


def bytes_of(buffer: ir.Buffer) -> Dim:
    return product(buffer.shape) * buffer.dtype.bytes


def interface(kernel: ir.Kernel, names: Scopes, expressions: CExpressions) -> str:
    """The functions of the kernel's table, and the table."""
    table = KernelTable(kernel, names, expressions)
    moved = table.cases("item_bytes", "launch", [item_bytes(kernel, launch) for launch in kernel.launches])
    return "\n\n".join([*table.places(), moved, table.run(), table.ends(), table.table()])


class KernelTable:
    """Printer of the parts of a kernel's table."""

    def __init__(self, kernel: ir.Kernel, names: Scopes, expressions: CExpressions) -> None:
        self.kernel, self.names, self.expressions = kernel, names, expressions
        expressions.absurd = True  # a runtime may call these functions before sizes are checked

    def places(self) -> list[str]:
        """The functions that a runtime calls before a launch: sizes, shapes, bytes of scratch, items."""
        launches = self.kernel.launches
        return [
            self.bind(),
            self.shape(),
            self.cases("scratch_bytes", "index", list(map(bytes_of, self.kernel.of(ir.Role.SCRATCH)))),
            self.cases("extent", "launch", list(map(extent_of, launches)), [launch.when for launch in launches]),
        ]

    def bind(self) -> str:
        """The function that binds sizes to the inputs' shapes, and then checks the inputs."""
        lines: list[str] = []
        for at, binding in enumerate(self.kernel.binding):
            extent, name = f"shapes[{binding.input}][{binding.axis}]", self.names.atom(binding.size)
            value = extent if binding.offset == Dim.of(0) else f"({extent} - ({self.expressions.dim(binding.offset)}))"
            value = value if binding.factor == 1 else f"{value} / {binding.factor}"
            lines += [f"const int64_t {name} = {value};", f"sizes[{at}] = {name};"]
            if value != extent:
                lines.append(f"if ({name} < 0) return {binding.input + 1};")
        bound = {(b.input, b.axis) for b in self.kernel.binding if b.factor == 1 and b.offset == Dim.of(0)}
        for k, buffer in enumerate(self.kernel.of(ir.Role.INPUT)):
            for axis, dim in enumerate(buffer.shape):
                if (k, axis) not in bound:
                    lines.append(f"if (shapes[{k}][{axis}] != {self.expressions.dim(dim)}) return {k + 1};")
        lines += [self.guard(guard) for guard in self.kernel.guards]
        unused = [f"(void){name};" for name in ("shapes", "sizes") if not any(f"{name}[" in line for line in lines)]
        head = f"static int32_t {self.kernel.name}_bind(const int64_t *const *shapes, int64_t *sizes)"
        return _function(head, [*unused, *lines, "return 0;"])

    def guard(self, guard: ir.Guard) -> str:
        """The line that refuses sizes that violate a guard, with the number of an input that has such a size."""
        names = guard.left.names | guard.right.names
        inputs = self.kernel.of(ir.Role.INPUT)
        inputs_of = [k for k, buffer in enumerate(inputs) if any(dim.names & names for dim in buffer.shape)]
        left, right, cells = (self.expressions.dim(dim) for dim in (guard.left, guard.right, guard.cells))
        return f"if (({cells}) != 0 && {left} > {right}) return {(inputs_of or [0])[-1] + 1};"

    def shape(self) -> str:
        def cases() -> Iterator[str]:
            for k, buffer in enumerate(self.kernel.of(ir.Role.OUTPUT)):
                dims = [f"dims[{axis}] = {self.expressions.dim(dim)};" for axis, dim in enumerate(buffer.shape)]
                yield " ".join([f"case {k}:", *dims, "break;"])

        lines = self.with_sizes(cases(), "output", "break")
        quiet = [] if any("dims[" in line for line in lines) else ["(void)dims;"]
        head = f"static void {self.kernel.name}_shape(const int64_t *sizes, int32_t output, int64_t *dims)"
        return _function(head, [*quiet, *lines])

    def cases(self, what: str, parameter: str, values: Sequence[Dim], when: Sequence[ir.Expr | None] = ()) -> str:
        """A function that returns one of several numbers, or 0 if its condition is false."""

        def cases() -> Iterator[str]:
            for k, value in enumerate(values):
                text, condition = self.expressions.dim(value), when[k] if when else None
                text = text if condition is None else f"{self.expressions.expr(condition)} ? {text} : 0"
                yield f"case {k}: return {text};"

        head = f"static int64_t {self.kernel.name}_{what}(const int64_t *sizes, int32_t {parameter})"
        if not values:
            return _function(head, ["(void)sizes;", f"(void){parameter};", "return 0;"])
        return _function(head, self.with_sizes(cases(), parameter, "return 0"))

    def with_sizes(self, cases: Iterator[str], switch: str, otherwise: str) -> list[str]:
        """A switch, preceded by the sizes that its cases use."""
        self.names.used.clear()
        kept = list(cases)
        sizes = [
            f"const int64_t {self.names.atom(b.size)} = sizes[{at}];"
            for at, b in enumerate(self.kernel.binding)
            if ("size", b.size) in self.names.used
        ]
        return [*(sizes or ["(void)sizes;"]), f"switch ({switch}) {{", *kept, f"default: {otherwise};", "}"]

    def run(self) -> str:
        name = self.kernel.name
        lines = [f"case {k}: return {name}_{k}(call, begin, end);" for k in range(len(self.kernel.launches))]
        head = f"static int32_t {name}_run(const noyau_call *call, int64_t begin, int64_t end)"
        return _function(head, ["switch (call->launch) {", *lines, "default: return NOYAU_OK;", "}"])

    def ends(self) -> str:
        """The dtypes and ranks of the inputs and outputs."""
        ends = [buffer for buffer in self.kernel.buffers if buffer.role is not ir.Role.SCRATCH]
        dtypes, ranks = ", ".join(str(each.dtype.onnx) for each in ends), ", ".join(str(len(e.shape)) for e in ends)
        name = self.kernel.name
        return (
            f"static const int32_t {name}_dtypes[] = {{{dtypes}}};\nstatic const int32_t {name}_ranks[] = {{{ranks}}};"
        )

    def entries(self, *rest: str) -> str:
        """The entries of a `noyau_kernel`; `rest`: those after its extents."""
        kernel, name = self.kernel, self.kernel.name
        parts = *(kernel.of(role) for role in (ir.Role.INPUT, ir.Role.OUTPUT, ir.Role.SCRATCH)), kernel.launches
        counts = ", ".join(str(len(part)) for part in (*parts, kernel.binding))
        functions = (f"{name}_{what}" for what in ("bind", "shape", "scratch_bytes", "extent"))
        return f'"{name}", {counts}, {name}_dtypes, {name}_ranks,\n    {", ".join([*functions, *rest])}'

    def table(self) -> str:
        name = self.kernel.name
        return (
            "#ifndef NOYAU_EXPORT\n#define NOYAU_EXPORT\n#endif\n"
            f"NOYAU_EXPORT const noyau_kernel {name}_kernel = {{\n"
            f"    {self.entries(f'{name}_item_bytes', f'{name}_run')},\n}};"
        )


def _function(head: str, lines: Sequence[str]) -> str:
    indented, depth = [], 1
    for line in lines:
        depth -= line == "}"
        indented.append(f"{'    ' * depth}{line}")
        depth += line.endswith("{")
    return "\n".join([head, "{", *indented, "}"])
