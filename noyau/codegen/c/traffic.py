"""Bytes that an item of a launch moves, by which a runtime shares items out among threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from noyau.ir import loops as ir
from noyau.ir.dims import Dim, maximum, product
from noyau.ir.operators import OPERATORS
from noyau.ir.walk import every_expression, every_statement, extent_of

USUAL = 1024  # what every size is taken to be, where flops are weighed against bytes
FLOPS_A_BYTE = 3  # that a thread computes while it moves one


def item_bytes(kernel: ir.Kernel, launch: ir.Launch) -> Dim:
    """The bytes that one item moves: those of the buffers that the launch touches, over its items, and one more. Of a
    buffer that is looked into alone, nobody knows. Where what is computed takes as long as several times as many bytes
    do, it is so many times as many."""
    stored = {name for s in every_statement(launch.body) if isinstance(s, ir.Store) for name in s.buffers}
    loads = [e for e in every_expression(launch.body) if isinstance(e, ir.Load)]
    read = {e.buffer for e in loads if not any(name.startswith("#at") for d in e.index for name in d.names)}
    touched = stored | read
    total = sum((bytes_of(buffer) for buffer in kernel.buffers if buffer.name in touched), Dim.of(0))
    total, extent = total * _intensity(launch, total), extent_of(launch)
    whole = total // extent
    return 1 + (whole if whole * extent == total and extent.constant != 0 else total // maximum(extent, 1))


def _intensity(launch: ir.Launch, total: Dim) -> int:
    """The time of the flops of a launch over that of its bytes, at usual sizes; at least 1."""
    with contextlib.suppress(ZeroDivisionError):
        return max(1, round(_flops(launch.body, {}) / max(1, FLOPS_A_BYTE * _usual(total, {}))))
    return 1


def _flops(body: Iterable[ir.Statement], known: dict[str, int]) -> int:
    """The flops of statements at usual sizes; `known` are indices that have a name."""
    total = 0
    for statement in body:
        match statement:
            case ir.Loop(extent=extent, body=inner):
                total += max(0, _usual(extent, known)) * _flops(inner, known)
            case ir.If(condition=ir.InWholeLines()):
                pass  # the branch of all other tiles computes the same
            case ir.If(body=inner):
                total += _flops(inner, known)
            case ir.Let(name, ir.Index(dim)):
                known[name] = _usual(dim, known)
            case _:
                calls = (expr for expr in every_expression((statement,)) if isinstance(expr, ir.Call))
                total += sum(OPERATORS[call.function].flops for call in calls)
    return total


def _usual(dim: Dim, known: Mapping[str, int]) -> int:
    """A Dim where every size is usual, in the first round of each loop."""
    return int(dim.evaluate({name: known.get(name, 0 if name.startswith("#") else USUAL) for name in dim.names}))


def bytes_of(buffer: ir.Buffer) -> Dim:
    return product(buffer.shape) * buffer.dtype.bytes
