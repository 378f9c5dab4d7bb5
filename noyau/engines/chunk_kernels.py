"""The kernels of a graph that is run chunk by chunk, tried before they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noyau.compiler.lowering.input_layouts import PACKED
from noyau.engines.laws import is_near
from noyau.errors import BuildError, UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.kernels.programs.generate import build, generate_from_graph
from noyau.kernels.reference import runs_as_written
from noyau.ops.dispatch.program_runner import array_runner

_TRIED = 4096  # rows of the first chunk
Arrays = Sequence[np.ndarray]


class ChunkKernels:
    """A graph as kernels in C. On the first rows that come they must agree with float64 to half of their digits, else,
    as where there is no compiler, the graph is evaluated by NumPy."""

    def __init__(self, graph: Graph, name: str, size: str) -> None:
        self.graph, self.name, self.size = graph, name, size
        self.lock = threading.Lock()
        self.run: Callable[..., Any] | None = None

    def __call__(self, arrays: Arrays) -> list[Any]:
        """The outputs, for arrays in the order of the inputs."""
        pairs = zip(self.graph.inputs, arrays, strict=True)
        packed = [np.asarray(array, node.dtype.numpy, order="C") for node, array in pairs]
        if runs_as_written():
            return self.evaluated(*packed)
        with self.lock:
            self.run = self.run or self._tried(packed)
        return list(self.run(*packed))

    def evaluated(self, *arrays: np.ndarray, wide: bool = False) -> list[Any]:
        names = [node.output for node in self.graph.inputs]
        return list(evaluate(self.graph, dict(zip(names, arrays, strict=True)), wide=wide).values())

    def _tried(self, arrays: Arrays) -> Callable[..., Any]:
        """The kernels, or what stands in for them."""
        shapes = [node.shape for node in self.graph.inputs]
        rows = [bool(shape) and shape[0] == Dim.of(self.size) for shape in shapes]
        first = [array[:_TRIED] if has else array for has, array in zip(rows, arrays, strict=True)]
        try:
            generated = generate_from_graph(self.graph, f"{self.name}_of_a_chunk", [PACKED] * len(arrays), "c")
            run = array_runner(build(generated))
        except (BuildError, UnsupportedError):
            return self.evaluated
        truth = self.evaluated(*first, wide=True)
        return run if all(map(is_near, run(*first), truth)) else self.evaluated
