"""Which strategy a lowered kernel takes on a GPU, told from its loops, its folds and the strides of its loads."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Axis, Call, Const, Expr, Fold, Kernel, Launch, Let, Load, Loop, Role, Store
from noyau.ir.walk import every_statement, rewrite
from noyau.schedules.choosing import reads_along
from noyau.schedules.grid_both import both_in, rows_and_columns
from noyau.schedules.grid_maps import map_, transpose
from noyau.schedules.grid_rows import rows, side_by_side
from noyau.schedules.grid_shared import SHORT
from noyau.schedules.grid_sums import columns, full
from noyau.schedules.grid_tiles import folds_in, is_innermost
from noyau.schedules.launches import apart, each
from noyau.schedules.steps import Statements, carries, chain, coalesce, flatten, loads_of, sink, stride_of, with_bodies
from noyau.schedules.together import are_alike


def on_gpu(kernel: Kernel) -> Kernel:
    """The kernel, flat, as grids of programs and tiles, each launch by the strategy that fits it.

    UnsupportedError where a launch merges into an output, or stores at an index that is looked up: programs in any
    order would meet there."""
    outputs = {buffer.name for buffer in kernel.buffers if buffer.role is not Role.SCRATCH}
    for launch in kernel.launches:
        statements = list(every_statement(launch.body))
        found = {s.name for s in statements if isinstance(s, Let) and s.name.startswith("#")}
        for store in (s for s in statements if isinstance(s, Store) and outputs & set(s.buffers)):
            if store.merge or any(dim.names & found for dim in store.index):
                raise UnsupportedError(f"{kernel.name}: no strategy for GPUs scatters into {store.buffers[0]} yet")
    flat = with_bodies(flatten(kernel), lambda body: rewrite(body, _plain))
    both = both_in(*(launch.body for launch in flat.launches)) if len(flat.launches) == 2 else None
    if both is not None:
        return rows_and_columns(flat, both)
    return each(flat, [launch.body for launch in flat.launches], _one)


def _plain(expr: Expr) -> Expr:
    """The larger of a value and -inf is the value."""
    match expr:
        case Call("maximum", (Const(value), other)) | Call("maximum", (other, Const(value))) if value == -inf:
            return other
        case _:
            return expr


def _one(kernel: Kernel) -> Kernel:
    """A kernel of one launch, scheduled."""
    (launch,) = kernel.launches
    body = launch.body
    if any(isinstance(s, Let) and isinstance(s.value, Fold) for s in body):
        if _is_one_row(body):
            return rows(kernel, (Loop("#row", Dim.of(1), Axis.SERIAL, sink(coalesce(body))),), share=False)
        done, rest = full(kernel, body)
        later = each(done, [rest] if rest else [], _one)
        return replace(later, launches=(*done.launches, *later.launches))
    if len(blocks := apart(body)) > 1:
        return each(kernel, blocks, _one)
    body = sink(coalesce(body))
    loops, inner = chain(body)
    if not loops:
        return replace(kernel, launches=(Launch(body),))
    return _of_loops(kernel, body, loops, inner)


def _is_one_row(body: Statements) -> bool:
    """Whether all that is folded and written fits into one program, as sizes known now say."""
    found = [loop for fold in folds_in(*body) for loop in fold.loops]
    found += [(s.var, s.extent) for s in every_statement(body) if isinstance(s, Loop)]
    flat = all(len(fold.loops) == 1 for fold in folds_in(*body)) and len(chain(body)[0]) <= 1
    return flat and all(extent.constant is not None and extent.constant <= SHORT for _, extent in found)


def _of_loops(kernel: Kernel, body: Statements, loops: list[Loop], inner: Statements) -> Kernel:
    if any((isinstance(s, Loop) and carries(s)) or isinstance(s, Alloc) for s in every_statement(inner)):
        return replace(kernel, launches=(side_by_side(body),))
    if _is_columns(loops, inner):
        return columns(kernel, body)
    if folds_in(*inner) or any(isinstance(s, Loop) for s in inner):
        return rows(kernel, body)
    if not is_innermost(loops[-1]):
        return replace(kernel, launches=(side_by_side(body),))
    found = reads_along(body)
    launch = map_(kernel, body) if found is None else transpose(body, *found)
    return replace(kernel, launches=(launch,))


def _is_columns(loops: list[Loop], inner: Statements) -> bool:
    """The folds stand in the innermost loop, alike, and what they load runs along that loop, not along them."""
    direct = [s.value for s in inner if isinstance(s, Let) and isinstance(s.value, Fold)]
    folds = [fold for fold in direct if isinstance(fold, Fold)]
    if not folds or len(folds_in(*inner)) != len(folds) or any(isinstance(s, Loop) for s in inner):
        return False
    if not are_alike(inner):
        return False
    loads = [(fold, load) for fold in folds for load in loads_of(fold.body) if loops[-1].var in _names(load)]
    along = [stride_of(load, loops[-1].var) for _, load in loads]
    across = [stride_of(load, fold.loops[-1][0]) for fold, load in loads]
    return along.count(Dim.of(1)) > across.count(Dim.of(1))


def _names(load: Load) -> set[str]:
    return {name for dim in load.index for name in dim.names}
