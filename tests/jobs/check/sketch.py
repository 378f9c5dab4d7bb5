"""Small graphs of the graph IR, put together value by value. Support for tests, not a test."""

from __future__ import annotations

import numpy as np

from noyau.dtypes import DType
from noyau.ir.dims import Dim, indices, shape_of
from noyau.ir.graph import Gather, Graph, Input, Lookup, Map, Node, View, constant
from noyau.ir.graph_verifier import check


class Sketch:
    """A graph being put together; each method returns the name of a value."""

    def __init__(self):
        self.nodes = []

    def add(self, kind, inputs, dtype, shape):
        name = f"v{len(self.nodes)}"
        self.nodes.append(Node(name, kind, tuple(inputs), dtype, shape_of(shape)))
        return name

    def input(self, name, dtype, *shape):
        self.nodes.append(Node(name, Input(), (), dtype, shape_of(shape)))
        return name

    def constant(self, value):
        self.nodes.append(constant(f"v{len(self.nodes)}", np.asarray(value)))
        return self.nodes[-1].output

    def node(self, name):
        return next(node for node in self.nodes if node.output == name)

    def full(self, value, like):
        """A constant in the shape and dtype of another value."""
        scalar = self.constant(np.asarray(value, self.node(like).dtype.numpy))
        return self.add(View(()), [scalar], self.node(like).dtype, self.node(like).shape)

    def map(self, function, *operands, dtype=None):
        like = self.node(operands[-1])
        return self.add(Map(function), operands, dtype or like.dtype, like.shape)

    def look_up(self, index, extent=100, width=4):
        """Rows of a table of `extent` rows."""
        table = self.constant(np.zeros((extent, width), np.float32))
        shape = self.node(index).shape
        own = indices(len(shape) + 1)
        kind = Gather((Lookup(1, own[:-1]), own[-1]))
        return self.add(kind, [table, index], DType.F32, (*shape, Dim.of(width)))

    def graph(self, *outputs):
        return check(Graph(tuple(self.nodes), outputs or (self.nodes[-1].output,)))
