"""Groups that strategies are for, and whether a schedule of one keeps what it computes. Support for tests."""

from __future__ import annotations

import numpy as np

from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategy_choice import nan_apart
from noyau.compiler.schedules.primitives import flatten
from noyau.dtypes import DType
from noyau.ir.dims import Dim, index_name, indices, shape_of
from noyau.ir.graph import Gather, Lookup, Reduce, Scan, Scatter, Select, View
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Loop, Role
from noyau.ir.walk import every_statement
from tests.jobs.check.groups import F32, Group
from tests.judged import Judge


def reduced(monoid, *shape, axes=(0,), dtype=F32, after=None):
    """A reduction over axes, and maybe a scalar function of the result."""
    g = Group()
    x = g.input("x", dtype, *shape)
    result = DType.I64 if monoid.startswith("arg") else dtype
    y = g.add(Reduce(monoid, axes), [x], result, [dim for axis, dim in enumerate(shape) if axis not in axes])
    if after:
        g.map(after, y)
    return g.graph()


def log_softmax(rows="rows", columns="n", dtype=F32):
    g = Group()
    x = g.input("x", dtype, rows, columns)
    shifted = g.map("subtract", x, g.expand(g.reduce("max", x), (rows, columns)))
    total = g.map("log", g.reduce("sum", g.map("exp", shifted)))
    g.map("subtract", shifted, g.expand(total, (rows, columns)))
    return g.graph()


def residual_rms_norm(dtype=F32, columns="n"):
    """RMSNorm of a sum, which is an output too."""
    g = Group()
    shape = ("rows", columns)
    x, r, w = g.input("x", dtype, *shape), g.input("r", dtype, *shape), g.input("w", dtype, columns)
    added = g.map("add", x, r)
    square = g.mean(g.map("multiply", added, added), columns)
    root = g.map("rsqrt", g.map("add", square, g.full(1e-6, square)))
    normed = g.map("multiply", g.map("multiply", added, g.expand(root, shape)), g.expand(w, shape))
    return g.graph(added, normed)


def transposed(*order, shape=("a", "b", "c"), dtype=F32, after="negative"):
    g = Group()
    x = g.input("x", dtype, *shape)
    index = [Dim.of(index_name(order.index(axis))) for axis in range(len(shape))]
    y = g.add(View(shape_of(index)), [x], dtype, [shape[axis] for axis in order])
    g.map(after, y)
    return g.graph()


def rotary(dtype=F32, half=4):
    """x cos + rotate_half(x) sin, of heads that are transposed: [b, s, h d] to [b, h, s, d]."""
    g = Group()
    d, shape = 2 * half, ("b", 2, "s", 2 * half)
    x = g.input("x", dtype, "b", "s", 2 * d)
    cos, sin = (g.input(name, dtype, "s", d) for name in ("cos", "sin"))
    b, h, s, e = indices(4)
    heads = g.add(View((b, s, h * d + e)), [x], dtype, shape)
    low = g.add(View((b, h, s, e)), [heads], dtype, (*shape[:3], half))
    high = g.add(View((b, h, s, e + half)), [heads], dtype, (*shape[:3], half))
    turned = g.add(Select(3, shape_of((0, half))), [g.map("negative", high), low], dtype, shape)
    left = g.map("multiply", heads, g.expand(cos, shape))
    g.map("add", left, g.map("multiply", turned, g.expand(sin, shape)))
    return g.graph()


def padded(dtype=F32):
    """Two constants on either side of the rows of a matrix, and then a square."""
    g = Group()
    x = g.input("x", dtype, "rows", "n")
    numbers = [g.constant(np.array(value, dtype.numpy)) for value in (7, -7)]
    sides = [g.add(View(()), [number], dtype, ("rows", 2)) for number in numbers]
    y = g.add(Select(1, shape_of((0, 2, Dim.of("n") + 2))), [sides[0], x, sides[1]], dtype, ("rows", Dim.of("n") + 4))
    g.map("multiply", y, y)
    return g.graph()


def concatenated(axis, dtype=F32):
    g = Group()
    shapes = [("a", "n"), ("b", "n")] if axis == 0 else [("n", "a"), ("n", "b")]
    x, y = (g.input(name, dtype, *shape) for name, shape in zip("xy", shapes, strict=True))
    total = list(shapes[0])
    total[axis] = Dim.of("a") + "b"
    z = g.add(Select(axis, shape_of((0, "a"))), [x, y], dtype, total)
    g.map("exp", z)
    return g.graph()


def gathered(dtype=F32):
    g = Group()
    table, ids = g.input("table", dtype, "words", "n"), g.input("ids", DType.I64, "b", "s")
    b, s, e = indices(3)
    rows = g.add(Gather((Lookup(1, (b, s)), e)), [table, ids], dtype, ("b", "s", "n"))
    square = g.reduce("sum", g.map("multiply", rows, rows))
    return g.graph(rows, square)


def scanned(monoid, *shape, axis, exclusive=False, reverse=False, dtype=F32):
    """A scan, and its square."""
    g = Group()
    x = g.input("x", dtype, *shape)
    y = g.add(Scan(monoid, axis, exclusive, reverse), [x], dtype, shape)
    z = g.map("multiply", y, y)
    return g.graph(y, z)


def scattered(monoid="sum", dtype=F32, columns="n"):
    """Rows, each scaled by a number of its own, merged into the rows of a matrix that are looked up."""
    g = Group()
    own = indices(2)
    data, ids = g.input("data", dtype, "words", columns), g.input("ids", DType.I64, "rows")
    rows, scale = g.input("x", dtype, "rows", columns), g.input("scale", dtype, "rows")
    wide = g.add(View((own[0],)), [scale], dtype, ("rows", columns))
    updates = g.map("multiply", rows, wide)
    g.add(Scatter((Lookup(1, own[:1]), own[1]), monoid), [data, ids, updates], dtype, ("words", columns))
    return g.graph()


def scattered_cells(axis, monoid="sum", dtype=F32):
    """Cells merged at places that are looked up along an axis, as ScatterElements has it."""
    g = Group()
    own, shape = indices(2), ("b", "n") if axis == 0 else ("a", "b")
    data, ids = g.input("data", dtype, "a", "n"), g.input("ids", DType.I32, *shape)
    index = [Lookup(1, own) if at == axis else own[at] for at in range(2)]
    g.add(Scatter(tuple(index), monoid), [data, ids, g.input("x", dtype, *shape)], dtype, ("a", "n"))
    return g.graph()


def scattered_labels(monoid="sum", dtype=F32):
    """One cell of each row: the softmax minus the label's probability, as in the gradient of cross-entropy."""
    g = Group()
    own, shape = indices(2), ("rows", "n")
    x, ids, less = g.input("x", dtype, *shape), g.input("ids", DType.I64, "rows"), g.input("less", dtype, "rows")
    e = g.map("exp", g.map("subtract", x, g.expand(g.reduce("max", x), shape)))
    shares = g.map("divide", e, g.expand(g.reduce("sum", e), shape))
    made = g.add(Scatter((own[0], Lookup(1, own[:1])), monoid), [shares, ids, g.map("negative", less)], dtype, shape)
    g.map("multiply", made, made)
    return g.graph()


def lowered(graph):
    return check(lower(graph, "kernel"))


def flat(graph):
    """A kernel as strategies take it."""
    return check(nan_apart(flatten(lowered(graph))))


def inputs_of(graph, sizes, seed=0):
    """An array for each input: small numbers with ties; indices are below 3."""
    noise, made = np.random.default_rng(seed), {}
    for node in graph.inputs:
        shape = [int(dim.evaluate(sizes)) for dim in node.shape]
        drawn = noise.standard_normal(shape) if node.dtype.is_float else noise.integers(0, 3, shape)
        made[node.output] = np.asarray(drawn).astype(node.dtype.numpy)
    return made


def in_order(kernel, inputs):
    return [inputs[buffer.source] for buffer in kernel.of(Role.INPUT)]


def assert_keeps(graph, kernel, *every_sizes):
    """That a schedule of a graph's kernel is well formed and computes what the graph does, in any order of threads."""
    check(kernel)
    for seed, sizes in enumerate(every_sizes):
        inputs = inputs_of(graph, sizes, seed)
        judge = Judge(graph, inputs)
        for order in (seed, seed + 100) if seed == 0 else (seed,):  # another one of the threads for each of the sizes
            got = run(kernel, in_order(kernel, inputs), seed=order)
            wrong = [judge.wrong(name, array) for name, array in zip(graph.outputs, got, strict=True)]
            assert wrong == [None] * len(got), sizes


def tile_sizes(kernel, numbers):
    """The sizes of a kernel's tiles, by their policies, else 4; the largest for several of one name."""
    found = {}
    for tile in (tile for launch in kernel.launches for tile in launch.tiles):
        found[str(tile.size)] = max(numbers.get(tile.policy, 4), found.get(str(tile.size), 0))
    return found


def loops(kernel, axis=None):
    """The variables of all loops of a kernel, or of those that run in one way."""
    found = [s for launch in kernel.launches for s in every_statement(launch.body) if isinstance(s, Loop)]
    return [loop.var for loop in found if axis is None or loop.axis is axis]
