"""The schedule for texts that people read to learn: one plain way for each kind of launch.

A cell of a map, and a piece of a column, has a thread; a row, and a chunk of a whole array, a block of them. Loops on
THREADS are a grid: of blocks where loops in LANES stand within, else of threads.
"""

from __future__ import annotations

from dataclasses import replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.cpu.blocked_folds import in_two
from noyau.compiler.schedules.cpu.strategy_choice import is_columns
from noyau.compiler.schedules.gpu.block_rows import RowSchedule
from noyau.compiler.schedules.gpu.blocks import FEW, BlockSchedule
from noyau.compiler.schedules.gpu.vectors import Place
from noyau.compiler.schedules.primitives import Statements
from noyau.ir import loops as ir

THREADS = 256  # of a block
ROWS = 256  # of a column that one thread adds up


def in_threads(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel, flat, as grids of threads and of blocks.

    UnsupportedError where a launch merges into an output, stores at an index that is looked up, or carries a state."""
    return ThreadSchedule(THREADS).schedule(kernel)


class PlainRow(RowSchedule):
    """The schedule of a row whose cells its threads take one by one; a sum of float32 is float64 there."""

    is_wide = True

    def places(self, variable: str, body: Statements) -> list[Place]:
        return []


class ThreadSchedule(BlockSchedule):
    """The schedule of a kernel for threads, and for blocks of so many."""

    row = PlainRow
    chunk = "#chunks"

    def nest(self, kernel: ir.Kernel, body: Statements) -> ir.Kernel:
        loops, inner = primitives.chain(body)
        if all(primitives.is_small(s, FEW) for s in inner):
            return replace(kernel, launches=_bound(folds.expand_folds(body, 1)))
        if is_columns(body):
            two = in_two(inner, loops, ROWS, 1, wide=False, every=True)
            first_loops = [*loops[:-1], two.block, loops[-1]]
            launches = _bound(primitives.nested(first_loops, two.first), primitives.nested(loops, two.second))
            return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=launches)
        return replace(kernel, launches=(PlainRow(kernel, loops, inner, self.share).launch(None),))


def _bound(*bodies: Statements) -> tuple[ir.Launch, ...]:
    return tuple(ir.Launch(primitives.bind_all(body)) for body in bodies)
