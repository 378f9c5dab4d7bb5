"""Kernels of which the text is kept in tests/golden/c, named as a model names its values. Support for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Graph, Input, Map, Node, Reduce, Scan, Select, View
from noyau.ir.loops import Kernel
from noyau.lowering.nest import lower
from noyau.passes.normal import normalise
from noyau.schedules.choosing import Options, schedule
from tests.checking.groups import F32, Group, embedding, layer_norm, one_map, quantise, softmax, swiglu
from tests.schedules.groups import padded, reduced, residual_rms_norm, rotary, scanned, transposed

STREAMED = Options(kept=False)


def masked():
    """Integers where a mask allows, else the least of theirs; and the mask of what is left."""
    g = Group()
    x, mask = g.input("x", DType.I32, "rows", "n"), g.input("mask", DType.BOOL, "rows", "n")
    seen = g.map("logical_and", mask, g.map("less", x, g.full(100, x), dtype=DType.BOOL))
    kept = g.map("where", seen, g.map("floor_mod", x, g.full(7, x)), g.full(-(2**31), x))
    return g.graph(kept, seen)


def cos_and_sin():
    """Of positions times frequencies: two outputs of one map."""
    g = Group()
    places, frequencies = g.input("position_ids", DType.I64, "s"), g.input("inv_freq", F32, 8)
    shape = ("s", 8)
    wide = g.add(View((Dim.of("#0"),)), [g.map("cast", places, dtype=F32)], F32, shape)
    angle = g.map("multiply", wide, g.expand(frequencies, shape))
    return g.graph(g.map("cos", angle), g.map("sin", angle))


def online():
    g = Group()
    x = g.input("x", F32, "rows", "n")
    return g.graph(g.reduce("logsumexp", x))


GRAPHS = {
    "softmax_kept": (softmax(), Options()),
    "softmax_streamed": (softmax(), STREAMED),
    "softmax_f64": (softmax(dtype=DType.F64), Options(lanes=16)),
    "rms_norm_residual": (residual_rms_norm(columns=64), Options()),
    "rms_norm_bf16": (residual_rms_norm(DType.BF16), Options()),
    "layer_norm": (layer_norm(), Options()),
    "rotary_transposed": (rotary(), Options()),
    "swiglu": (swiglu(), Options()),
    "cos_sin": (cos_and_sin(), Options()),
    "exp_f16": (one_map("exp", DType.F16), Options()),
    "columns": (reduced("sum", "rows", "n"), Options()),
    "total": (reduced("sum", "rows", "n", axes=(0, 1), after="sqrt"), Options()),
    "argmax": (reduced("argmax", "rows", "n", axes=(1,)), Options(lanes=8)),
    "logsumexp": (online(), Options(lanes=8)),
    "transpose": (transposed(1, 0, shape=("m", "n")), Options()),
    "gather": (embedding("words"), Options()),
    "masked": (masked(), Options()),
    "padded": (padded(), Options()),
    "quantise": (quantise(), Options()),
    "cumsum": (scanned("sum", "rows", "n", axis=1), Options()),
}


def named(graph: Graph) -> Graph:
    """The graph with each value named after what makes it: /Exp_output_0."""
    names: dict[str, str] = {}
    for node in graph.nodes:
        stem = _stem(node)
        if stem:
            count = sum(name.startswith(f"/{stem}_") for name in names.values())
            names[node.output] = f"/{stem}_{count}/output"
    new = [
        replace(node, output=names.get(node.output, node.output), inputs=tuple(names.get(n, n) for n in node.inputs))
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(new), outputs=tuple(names.get(name, name) for name in graph.outputs))


def _stem(node: Node) -> str:
    match node.kind:
        case Input():
            return ""
        case Map(function):
            return function
        case Reduce(monoid, _):
            return monoid
        case Scan() | Select() | Gather() | View():
            return type(node.kind).__name__
        case _:
            return "constant"


def graph_of(name: str) -> Graph:
    return normalise(named(GRAPHS[name][0]))


def kernel_of(name: str) -> Kernel:
    _, options = GRAPHS[name]
    return schedule(lower(graph_of(name), name), options)


def extents_of(kernel: Kernel, sizes: dict[str, int]) -> list[list[int]]:
    """The shapes of a kernel's inputs."""
    return [
        [int(dim.evaluate(sizes)) for dim in buffer.shape] for buffer in kernel.buffers if buffer.role.value == "input"
    ]


AWKWARD = [
    {"rows": rows, "n": n, "s": n, "b": rows, "m": rows, "words": 3}
    for rows, n in ((1, 1), (3, 31), (2, 33), (5, 64), (17, 70), (1, 2049), (300, 3), (0, 5), (4, 0))
]


def arrays_of(kernel: Kernel, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """An array for each input of the graph: what it holds is small, and an index is below 3."""
    noise = np.random.default_rng(seed)
    made = {}
    for buffer in kernel.buffers:
        if buffer.role.value == "input":
            shape = [int(dim.evaluate(sizes)) for dim in buffer.shape]
            drawn = noise.standard_normal(shape) if buffer.dtype.is_float else noise.integers(0, 3, shape)
            made[buffer.source] = np.asarray(drawn).astype(buffer.dtype.numpy)
    return made
