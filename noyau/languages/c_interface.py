"""What a runtime asks a C kernel: its sizes from the shapes of its inputs, its outputs' shapes, its launches' extents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from noyau.ir.dims import Dim, product
from noyau.ir.loops import Axis, Buffer, Kernel, Launch, Load, Loop, Role, Store
from noyau.ir.walk import every_expression, every_statement
from noyau.languages.c_tables import op_text
from noyau.languages.spelling import dim_text


def interface(kernel: Kernel, names: Mapping[str, str]) -> str:
    """The functions of the kernel's table, and the table."""
    return "\n\n".join(
        [
            _bind(kernel, names),
            _shape(kernel, names),
            _cases(kernel, names, "scratch_bytes", "int32_t index", "index", _scratch(kernel)),
            _cases(kernel, names, "extent", "int32_t launch", "launch", [_extent(x) for x in kernel.launches]),
            _cases(kernel, names, "item_bytes", "int32_t launch", "launch", [_item(kernel, x) for x in kernel.launches]),
            _run(kernel),
            _table(kernel),
        ]
    )


def _bind(kernel: Kernel, names: Mapping[str, str]) -> str:
    lines = []
    for at, b in enumerate(kernel.binding):
        offset = dim_text(b.offset, names, op_text)
        got = f"shapes[{b.input}][{b.axis}]"
        value = got if b.offset == Dim.of(0) else f"({got} - ({offset}))"
        value = value if b.factor == 1 else f"{value} / {b.factor}"
        lines += [f"const int64_t {names[b.size]} = {value};", f"sizes[{at}] = {names[b.size]};"]
        if value != got:
            lines.append(f"if ({names[b.size]} < 0) return {b.input + 1};")
    bound_at = {(b.input, b.axis) for b in kernel.binding if b.factor == 1 and b.offset == Dim.of(0)}
    for k, buffer in enumerate(kernel.of(Role.INPUT)):
        for axis, dim in enumerate(buffer.shape):
            if (k, axis) not in bound_at:
                lines.append(f"if (shapes[{k}][{axis}] != {dim_text(dim, names, op_text)}) return {k + 1};")
    head = f"static int32_t {kernel.name}_bind(const int64_t *const *shapes, int64_t *sizes)"
    quiet = ["(void)shapes;", "(void)sizes;"]
    return _function(head, [*quiet, *lines, "return 0;"])


def _sizes(kernel: Kernel, names: Mapping[str, str], used: Iterable[Dim]) -> list[str]:
    wanted = {name for dim in used for name in dim.names}
    return [
        f"const int64_t {names[b.size]} = sizes[{at}];" for at, b in enumerate(kernel.binding) if b.size in wanted
    ]


def _shape(kernel: Kernel, names: Mapping[str, str]) -> str:
    lines = ["(void)sizes;", "(void)dims;", *_sizes(kernel, names, [d for b in kernel.of(Role.OUTPUT) for d in b.shape])]
    lines.append("switch (output) {")
    for k, buffer in enumerate(kernel.of(Role.OUTPUT)):
        dims = " ".join(f"dims[{axis}] = {dim_text(dim, names, op_text)};" for axis, dim in enumerate(buffer.shape))
        lines.append(f"case {k}: {dims} break;".replace(":  break", ": break"))
    lines += ["default: break;", "}"]
    return _function(f"static void {kernel.name}_shape(const int64_t *sizes, int32_t output, int64_t *dims)", lines)


def _cases(
    kernel: Kernel, names: Mapping[str, str], what: str, parameter: str, switch: str, values: list[Dim]
) -> str:
    lines = ["(void)sizes;", *_sizes(kernel, names, values), f"switch ({switch}) {{"]
    lines += [f"case {k}: return {dim_text(value, names, op_text)};" for k, value in enumerate(values)]
    lines += ["default: return 0;", "}"]
    return _function(f"static int64_t {kernel.name}_{what}(const int64_t *sizes, {parameter})", lines)


def _scratch(kernel: Kernel) -> list[Dim]:
    return [product(buffer.shape) * buffer.dtype.bytes for buffer in kernel.of(Role.SCRATCH)]


def _extent(launch: Launch) -> Dim:
    """The items of a launch: the product of its loops on threads."""
    total, body = Dim.of(1), launch.body
    while body and isinstance(body[-1], Loop) and body[-1].axis is Axis.THREADS:
        total, body = total * body[-1].extent, body[-1].body
    return total


def _item(kernel: Kernel, launch: Launch) -> Dim:
    """The bytes that one item moves: those of the buffers that the launch touches, over its items, and one."""
    touched = {name for s in every_statement(launch.body) if isinstance(s, Store) for name in s.buffers}
    loads = [e for e in every_expression(launch.body) if isinstance(e, Load)]
    looked_up = {e.buffer for e in loads if any(name.startswith("#at") for d in e.index for name in d.names)}
    touched |= {e.buffer for e in loads} - looked_up
    moved = [_bytes(buffer) for buffer in kernel.buffers if buffer.name in touched]
    total = sum(moved, Dim.of(0))
    extent = _extent(launch)
    return total // extent + 1 if extent.constant else Dim.of(1) + _over(total, extent)


def _over(total: Dim, extent: Dim) -> Dim:
    """total // extent where extent may be 0: over extent + 1."""
    exact = total // extent
    return exact if not any(not isinstance(atom, str) for m, _ in exact.terms for atom in m) else total // (extent + 1)


def _bytes(buffer: Buffer) -> Dim:
    return product(buffer.shape) * buffer.dtype.bytes


def _run(kernel: Kernel) -> str:
    lines = ["switch (call->launch) {"]
    lines += [f"case {k}: return {kernel.name}_{k}(call, begin, end);" for k in range(len(kernel.launches))]
    lines += ["default: return NOYAU_OK;", "}"]
    return _function(f"static int32_t {kernel.name}_run(const noyau_call *call, int64_t begin, int64_t end)", lines)


def _table(kernel: Kernel) -> str:
    name, inputs, outputs = kernel.name, kernel.of(Role.INPUT), kernel.of(Role.OUTPUT)
    both = (*inputs, *outputs)
    counts = f"{len(inputs)}, {len(outputs)}, {len(kernel.of(Role.SCRATCH))}, {len(kernel.launches)}, {len(kernel.binding)}"
    dtypes = ", ".join(str(buffer.dtype.onnx) for buffer in both)
    ranks = ", ".join(str(len(buffer.shape)) for buffer in both)
    functions = ", ".join(f"{name}_{what}" for what in ("bind", "shape", "scratch_bytes", "extent", "item_bytes", "run"))
    return (
        f"static const int32_t {name}_dtypes[] = {{{dtypes}}};\n"
        f"static const int32_t {name}_ranks[] = {{{ranks}}};\n\n"
        "#ifndef NOYAU_EXPORT\n#define NOYAU_EXPORT\n#endif\n"
        f"NOYAU_EXPORT const noyau_kernel {name}_kernel = {{\n"
        f'    "{name}", {counts}, {name}_dtypes, {name}_ranks,\n    {functions},\n}};'
    )


def _function(head: str, lines: list[str]) -> str:
    return "\n".join([head, "{", *(f"    {line}" for line in lines), "}"])
