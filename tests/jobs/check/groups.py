"""Groups that kernels are made of, as graphs with symbolic sizes. Support for tests, not a test."""

from __future__ import annotations

from noyau.dtypes import DType
from noyau.ir.dims import Dim, index_name, indices, shape_of
from noyau.ir.graph import Gather, Iota, Lookup, Reduce, View, expand_index
from tests.jobs.check.sketch import Sketch

F32 = DType.F32


class Group(Sketch):
    """A sketch with reductions and broadcasts."""

    def expand(self, name, shape):
        node = self.node(name)
        return self.add(View(expand_index(node.shape, shape_of(shape))), [name], node.dtype, shape)

    def reduce(self, monoid, name, axis=-1, dtype=None):
        """A reduction that keeps its axis, at extent 1."""
        node = self.node(name)
        axis %= len(node.shape)
        left = tuple(dim for at, dim in enumerate(node.shape) if at != axis)
        result = self.add(Reduce(monoid, (axis,)), [name], dtype or node.dtype, left)
        kept = tuple(dim if at != axis else Dim.of(1) for at, dim in enumerate(node.shape))
        index = tuple(Dim.of(index_name(at)) for at in range(len(kept)) if at != axis)
        return self.add(View(index), [result], dtype or node.dtype, kept)

    def size(self, name, shape, dtype=F32):
        """An extent as a value of a shape."""
        return self.map("cast", self.iota(Dim.of(name), shape), dtype=dtype)

    def iota(self, index, shape):
        return self.add(Iota(index), [], DType.I64, shape)

    def mean(self, name, extent):
        total = self.reduce("sum", name)
        node = self.node(total)
        return self.map("divide", total, self.size(extent, node.shape, node.dtype))


def softmax(rows="rows", columns="n", dtype=F32):
    g = Group()
    x = g.input("x", dtype, rows, columns)
    shifted = g.map("subtract", x, g.expand(g.reduce("max", x), (rows, columns)))
    e = g.map("exp", shifted)
    g.map("divide", e, g.expand(g.reduce("sum", e), (rows, columns)))
    return g.graph()


def layer_norm(rows="rows", columns="n", dtype=F32, eps=1e-5):
    g = Group()
    shape = (rows, columns)
    x, w, b = g.input("x", dtype, *shape), g.input("w", dtype, columns), g.input("b", dtype, columns)
    centred = g.map("subtract", x, g.expand(g.mean(x, columns), shape))
    variance = g.mean(g.map("multiply", centred, centred), columns)
    root = g.map("sqrt", g.map("add", variance, g.full(eps, variance)))
    scaled = g.map("divide", centred, g.expand(root, shape))
    g.map("add", g.map("multiply", scaled, g.expand(w, shape)), g.expand(b, shape))
    return g.graph()


def rms_norm(rows="rows", columns="n", dtype=F32, eps=1e-6):
    g = Group()
    shape = (rows, columns)
    x, w = g.input("x", dtype, *shape), g.input("w", dtype, columns)
    square = g.mean(g.map("multiply", x, x), columns)
    root = g.map("sqrt", g.map("add", square, g.full(eps, square)))
    g.map("multiply", g.map("divide", x, g.expand(root, shape)), g.expand(w, shape))
    return g.graph()


def swiglu(dtype=F32):
    g = Group()
    gate, up = g.input("gate", dtype, "rows", "n"), g.input("up", dtype, "rows", "n")
    g.map("multiply", g.map("multiply", gate, g.map("sigmoid", gate)), up)
    return g.graph()


def quantise():
    """Rows to integers of 8 bits, by the largest magnitude of each."""
    g = Group()
    x = g.input("x", F32, "rows", "n")
    scale = g.reduce("max", g.map("abs", x))
    scale = g.map("divide", g.map("maximum", scale, g.full(1e-6, scale)), g.full(127, scale))
    rounded = g.map("round_even", g.map("divide", x, g.expand(scale, ("rows", "n"))))
    low, high = g.full(-127, x), g.full(127, x)
    g.map("cast", g.map("minimum", g.map("maximum", rounded, low), high), dtype=DType.I8)
    return g.graph()


def embedding(extent=11):
    """Rows of a table, each scaled."""
    g = Group()
    table, ids = g.input("table", F32, extent, "n"), g.input("ids", DType.I64, "rows")
    own = indices(2)
    rows = g.add(Gather((Lookup(1, own[:1]), own[1])), [table, ids], F32, ("rows", "n"))
    g.map("multiply", rows, g.full(0.5, rows))
    return g.graph()


def one_map(function, dtype=F32, arity=1, result=None, shape=("n",)):
    g = Group()
    g.map(function, *(g.input(f"x{k}", dtype, *shape) for k in range(arity)), dtype=result)
    return g.graph()
