"""A case: the inputs of a group that a kernel is tried on, and their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.ir.graph import Graph
from noyau.text import printable

Array = np.ndarray
Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of a group, in the order of its graph's inputs; `captured` where they are activations of a model."""

    label: str
    inputs: tuple[Array, ...]
    captured: bool = False


def spell(dtype: DType, shape: Sequence[int]) -> str:
    return f"{dtype.value}{list(shape)}"


def inputs_text(graph: Graph, arrays: Sequence[Array]) -> str:
    """The inputs of a graph, in words: `x: f32[4, 41], w: f32[41]`."""
    pairs = zip(graph.inputs, arrays, strict=True)
    return ", ".join(f"{printable(node.output)}: {spell(node.dtype, array.shape)}" for node, array in pairs)


def changed_input(arrays: Sequence[Array], originals: Sequence[Array]) -> str | None:
    """Name the input that the kernel wrote to, or None."""
    for number, (after, before) in enumerate(zip(arrays, originals, strict=True)):
        if after.tobytes() != before.tobytes():
            return f"changed its input {number}"
    return None


def misfit(graph: Graph, results: Sequence[Array], truth: Mapping[str, Array]) -> str | None:
    """Compare the number, dtypes and shapes of the results with the truth; None where they fit."""
    if len(results) != len(graph.outputs):
        return f"gave {len(results)} outputs, not {len(graph.outputs)}"
    for name, got in zip(graph.outputs, results, strict=True):
        expected, dtype = spell(graph[name].dtype, truth[name].shape), from_numpy(got.dtype)
        actual = spell(dtype, got.shape) if dtype else f"{got.dtype}{list(got.shape)}"
        if actual != expected:
            return f"gave {actual} as {printable(name)}, not {expected}"
    return None
