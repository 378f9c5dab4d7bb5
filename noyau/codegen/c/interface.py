"""The table of a C kernel for a runtime: sizes from shapes of inputs, shapes of outputs, extents of launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noyau.codegen.c.expressions import CExpressions
from noyau.codegen.c.traffic import bytes_of, item_bytes
from noyau.codegen.identifiers import Scopes
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.walk import extent_of


def interface(kernel: ir.Kernel, names: Scopes, expressions: CExpressions) -> str:
    """The functions of the kernel's table, and the table."""
    scratch, extents = (
        list(map(bytes_of, kernel.of(ir.Role.SCRATCH))),
        [extent_of(launch) for launch in kernel.launches],
    )
    moved = [item_bytes(kernel, launch) for launch in kernel.launches]
    table = _Interface(kernel, names, expressions)
    return "\n\n".join(
        [
            table.bind(),
            table.shape(),
            table.cases("scratch_bytes", "index", scratch),
            table.cases("extent", "launch", extents, [launch.when for launch in kernel.launches]),
            table.cases("item_bytes", "launch", moved),
            table.run(),
            table.table(),
        ]
    )


class _Interface:
    def __init__(self, kernel: ir.Kernel, names: Scopes, expressions: CExpressions) -> None:
        self.kernel, self.names, self.expressions = kernel, names, expressions
        expressions.absurd = True  # a runtime may ask before it looks

    def bind(self) -> str:
        """The sizes that the inputs give, each input then checked against them."""
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
        """The refusal of sizes that do not obey a guard; the input that it names is one that has such a size."""
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
        """A function that gives one of several numbers; 0 where its condition is false."""

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
        """A switch, and before it the sizes that its cases name."""
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

    def table(self) -> str:
        kernel, name = self.kernel, self.kernel.name
        inputs, outputs, scratch = (kernel.of(role) for role in (ir.Role.INPUT, ir.Role.OUTPUT, ir.Role.SCRATCH))
        counts = ", ".join(str(len(part)) for part in (inputs, outputs, scratch, kernel.launches, kernel.binding))
        dtypes = ", ".join(str(buffer.dtype.onnx) for buffer in (*inputs, *outputs))
        ranks = ", ".join(str(len(buffer.shape)) for buffer in (*inputs, *outputs))
        functions = ("bind", "shape", "scratch_bytes", "extent", "item_bytes", "run")
        return (
            f"static const int32_t {name}_dtypes[] = {{{dtypes}}};\n"
            f"static const int32_t {name}_ranks[] = {{{ranks}}};\n\n"
            "#ifndef NOYAU_EXPORT\n#define NOYAU_EXPORT\n#endif\n"
            f"NOYAU_EXPORT const noyau_kernel {name}_kernel = {{\n"
            f'    "{name}", {counts}, {name}_dtypes, {name}_ranks,\n'
            f"    {', '.join(f'{name}_{what}' for what in functions)},\n}};"
        )


def _function(head: str, lines: Sequence[str]) -> str:
    indented, depth = [], 1
    for line in lines:
        depth -= line == "}"
        indented.append(f"{'    ' * depth}{line}")
        depth += line.endswith("{")
    return "\n".join([head, "{", *indented, "}"])
