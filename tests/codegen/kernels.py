"""Kernels that language c is tested on: those of which the text is kept, more, and the same under hostile names.

Support for tests, not a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, islice

from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Graph, Iota, Lookup, Select, View, names_of
from noyau.ir.loops import Kernel
from tests.compiler.schedules.groups import (
    concatenated,
    gathered,
    log_softmax,
    padded,
    reduced,
    residual_rms_norm,
    rotary,
    scanned,
    scattered,
    scattered_cells,
    scattered_labels,
    transposed,
)
from tests.jobs.check.groups import F32, Group, layer_norm, one_map, quantise, softmax, swiglu

Kept = dict[str, tuple[Graph, Options]]
STREAMED = Options(kept=False)

GOLDEN: Kept = {
    "log_softmax_kept": (log_softmax(), Options()),
    "log_softmax_streamed": (log_softmax(), STREAMED),
    "log_softmax_f64": (log_softmax(dtype=DType.F64), Options()),
    "residual_rms_norm": (residual_rms_norm(), Options()),
    "residual_rms_norm_bf16": (residual_rms_norm(dtype=DType.BF16), Options()),
    "rotary": (rotary(), Options()),
    "rotary_f16": (rotary(dtype=DType.F16), Options()),
    "padded": (padded(), Options()),
    "concatenated": (concatenated(1), Options()),
    "gathered": (gathered(), Options()),
    "transposed": (transposed(0, 2, 1), Options()),
    "column_sums": (reduced("sum", "rows", "n", axes=(0,)), Options()),
    "full_sum": (reduced("sum", "n", axes=(0,)), Options()),
    "row_argmax": (reduced("argmax", "rows", "n", axes=(1,)), Options()),
    "running_sum": (scanned("sum", "rows", "n", axis=1), Options()),
    "any_of_bools": (reduced("any", "rows", "n", axes=(1,), dtype=DType.BOOL), Options()),
    "sum_of_i32": (reduced("sum", "rows", "n", axes=(1,), dtype=DType.I32), Options()),
    "softmax_inner": (softmax(), Options()),
    "transposed_strided": (transposed(0, 2, 1), Options()),
    "scattered_rows": (scattered(), Options()),
    "scattered_cells": (scattered_cells(1, None), Options()),
    "scattered_labels": (scattered_labels(), Options()),
}
TABLES = ("gathered", "scattered_rows", "scattered_cells", "scattered_labels")  # the indices are below 3
LAYOUTS = {"softmax_inner": {"x": "inner"}, "transposed_strided": {"x": "strided"}}


def masked() -> Graph:
    """Integers where a mask allows, else the least of theirs; and the mask of what is left."""
    g = Group()
    x, mask = g.input("x", DType.I32, "rows", "n"), g.input("mask", DType.BOOL, "rows", "n")
    seen = g.map("logical_and", mask, g.map("less", x, g.full(100, x), dtype=DType.BOOL))
    kept = g.map("where", seen, g.map("floor_mod", x, g.full(7, x)), g.full(-(2**31), x))
    return g.graph(kept, seen)


def cos_and_sin() -> Graph:
    """Of positions times frequencies: two outputs of one map."""
    g = Group()
    places, frequencies = g.input("position_ids", DType.I64, "s"), g.input("inv_freq", F32, 8)
    shape = ("s", 8)
    wide = g.add(View((Dim.of("#0"),)), [g.map("cast", places, dtype=F32)], F32, shape)
    angle = g.map("multiply", wide, g.expand(frequencies, shape))
    return g.graph(g.map("cos", angle), g.map("sin", angle))


MORE: Kept = {
    "softmax_one_lane": (softmax(), Options(lanes=1)),
    "softmax_f64": (softmax(dtype=DType.F64), Options(lanes=16)),
    "layer_norm": (layer_norm(), Options()),
    "swiglu": (swiglu(), Options()),
    "cos_sin": (cos_and_sin(), Options()),
    "exp_f16": (one_map("exp", DType.F16), Options()),
    "root_of_total": (reduced("sum", "rows", "n", axes=(0, 1), after="sqrt"), Options()),
    "logsumexp": (reduced("logsumexp", "rows", "n", axes=(1,)), Options(lanes=8)),
    "variance": (reduced("variance", "rows", "n", axes=(0,)), Options()),
    "masked": (masked(), Options()),
    "quantise": (quantise(), Options()),
    "product_backwards": (scanned("prod", "rows", "n", axis=0, reverse=True), Options()),
}


@cache
def kernel_of(name: str) -> Kernel:
    """The kernel of that name, scheduled."""
    graph, options = {**GOLDEN, **MORE}[name]
    return schedule(lower(normalise(graph), name, LAYOUTS.get(name)), options)


def renamed(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with each value and each size called by one of the names, as many times as it takes; values stay apart
    by spaces at the end."""
    fresh = (f"{name}{' ' * (at // len(names))}" for at, name in enumerate(islice(cycle(names), 10_000)))
    values = {node.output: next(fresh) for node in graph.nodes}
    bare = [name for name in names if not name.startswith("#")]
    sizes = {size: f"{bare[at % len(bare)]}{' ' * at}" for at, size in enumerate(sorted(names_of(graph)))}
    nodes = [
        replace(
            node,
            output=values[node.output],
            inputs=tuple(values[name] for name in node.inputs),
            shape=_resized(node.shape, sizes),
            kind=_kind(node.kind, sizes),
        )
        for node in graph.nodes
    ]
    return Graph(tuple(nodes), tuple(values[name] for name in graph.outputs))


def _resized(dims: Sequence[Dim], sizes: dict[str, str]) -> tuple[Dim, ...]:
    return tuple(dim.replace(sizes) for dim in dims)


def _kind(kind, sizes: dict[str, str]):
    match kind:
        case View(index):
            return View(_resized(index, sizes))
        case Select(axis, starts):
            return Select(axis, _resized(starts, sizes))
        case Gather(index):
            found = [
                Lookup(entry.input, _resized(entry.at, sizes)) if isinstance(entry, Lookup) else entry.replace(sizes)
                for entry in index
            ]
            return Gather(tuple(found))
        case Iota(index):
            return Iota(index.replace(sizes))
        case _:
            return kind
