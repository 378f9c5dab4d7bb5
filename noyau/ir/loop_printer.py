"""Printer of the loop IR, for readers: a line is a statement; the body of a loop, a condition or a fold is indented."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from noyau.ir import loops as ir
from noyau.ir.graph_printer import dims_text, value_text
from noyau.text import printable

_INDENT = "    "


def kernel_text(kernel: ir.Kernel) -> str:
    """The lines of a kernel: its buffers, its guards on sizes, its launches."""
    buffers = [f"{_INDENT}{_buffer(buffer)}" for buffer in kernel.buffers]
    guards = [f"{_INDENT}{_guard(guard)}" for guard in kernel.guards]
    launches = [line for launch in kernel.launches for line in _launch(launch)]
    return "\n".join([f"kernel {kernel.name}", *buffers, *guards, *launches])


def _buffer(buffer: ir.Buffer) -> str:
    strides = "" if buffer.strides is None else f" strides [{dims_text(buffer.strides)}]"
    source = "" if buffer.source in ("", buffer.name) else f"  # {printable(buffer.source)}"
    return f"{buffer.role.value} {value_text(buffer.name, buffer.dtype.value, buffer.shape)}{strides}{source}"


def _guard(guard: ir.Guard) -> str:
    always = f"guard {guard.left} <= {guard.right}"
    return always if guard.cells.constant else f"{always} unless {guard.cells} = 0"


def _launch(launch: ir.Launch) -> Iterator[str]:
    yield f"launch{'' if launch.when is None else f' when {_expr(launch.when)}'}"
    yield from (f"{_INDENT}tile {tile.name}: {_tile(tile)}" for tile in launch.tiles)
    yield from _block(launch.body, _INDENT)


def _tile(tile: ir.Tile) -> str:
    warps = f"{tile.warps} warps" if tile.warps else f"{tile.warp_factor} x warps" if tile.warp_factor > 1 else ""
    led = f"led / {tile.lead_divisor}" if tile.lead_divisor > 1 else ""
    doubled = f"doubled from {tile.doubled_from}" if tile.doubled_from else ""
    return ", ".join(filter(None, [f"{tile.policy.value} {tile.number}", warps, led, doubled]))


def _in_tile(tile: ir.Tile | None) -> str:
    return "" if tile is None else f" in {tile.name}"


def _block(body: Sequence[ir.Statement], margin: str) -> Iterator[str]:
    for statement in body:
        yield from _statement(statement, margin)


def _statement(statement: ir.Statement, margin: str) -> Iterator[str]:
    match statement:
        case ir.Let(name, ir.Fold() as fold):
            yield f"{margin}{name} = {_fold_head(fold)}:"
            yield from _block(fold.body, margin + _INDENT)
            yield f"{margin}{_INDENT}yield {_expr(fold.value)}"
        case ir.Let(name, value):
            yield f"{margin}{name} = {_expr(value)}"
        case ir.Store(buffers, index, values, merge, is_atomic):
            cells = ", ".join(f"{buffer}[{dims_text(index)}]" for buffer in buffers)
            how = f"{'atomic ' * is_atomic}{merge}=" if merge else "="
            yield f"{margin}{cells} {how} {', '.join(map(_expr, values))}"
        case ir.Loop(var, extent, axis, body, tile, start, step):
            steps = "" if step == 1 else f" from {start} by {step}"
            yield f"{margin}for {var} < {extent}{steps}{_in_tile(tile)} on {axis.value}:"
            yield from _block(body, margin + _INDENT)
        case ir.If(condition, body):
            yield f"{margin}if {_expr(condition)}:"
            yield from _block(body, margin + _INDENT)
        case ir.Alloc(name, dtype, shape, space):
            yield f"{margin}alloc {space.value} {value_text(name, dtype.value, shape)}"
        case ir.Prefetch(buffer, index, lines):
            yield f"{margin}prefetch {buffer}[{dims_text(index)}]{f', {lines} lines' if lines > 1 else ''}"
        case ir.Require(index, extent):
            yield f"{margin}require 0 <= {index} < {extent}"
        case ir.Zero() | ir.MergeLanes() | ir.StreamStore():
            yield f"{margin}{_intrinsic(statement)}"
        case _:
            assert_never(statement)


def _fold_head(fold: ir.Fold) -> str:
    loops = ", ".join(f"{var} < {extent}" for var, extent in fold.loops)
    return f"fold {fold.monoid} over {loops}{_in_tile(fold.tile)}{'' if fold.at is None else f' at {fold.at}'}"


def _intrinsic(intrinsic: ir.Intrinsic) -> str:
    match intrinsic:
        case ir.Zero(memory, extent=extent):
            return f"zero {memory}[{extent}]"
        case ir.MergeLanes(monoid, buffers, lanes=lanes):
            return f"merge {monoid} {', '.join(buffers)}[{lanes}]"
        case ir.StreamStore(buffer, index, memory, start, extent, _, lines):
            how = "stream lines" if lines else "stream"
            return f"{how} {buffer}[{dims_text(index)}] = {memory}[{start}], {extent} cells"
        case _:
            assert_never(intrinsic)


def _expr(expr: ir.Expr) -> str:
    match expr:
        case ir.Const(value, dtype):
            return f"{dtype.value} {value}"
        case ir.Var(name, _):
            return name
        case ir.Index(dim, _):
            return str(dim)
        case ir.Load(buffer, index, _, where, other):
            mask = "" if where is None else f" where {_expr(where)} else {_expr(other) if other else 'unset'}"
            return f"{buffer}[{dims_text(index)}]{mask}"
        case ir.InWholeLines(length, cells, places):
            begins = ", ".join(f"{name}[{dims_text(index)}]" for name, index in places)
            return f"in_whole_lines({length} = {cells}, {begins})"
        case ir.CellsToAlignment(cells, buffer, index, length):
            return f"until_aligned({cells}, {buffer}[{dims_text(index)}], {length})"
        case ir.Call(function, operands, dtype):
            named = f"cast {dtype.value}" if function == "cast" else function
            return f"{named}({', '.join(map(_expr, operands))})"
        case ir.Fold():
            body = "; ".join(line.strip() for line in _block(expr.body, ""))
            return f"{_fold_head(expr)} {{{body}{'; ' if body else ''}yield {_expr(expr.value)}}}"
        case _:
            assert_never(expr)
