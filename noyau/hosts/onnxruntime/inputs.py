"""Inputs for a model: loaded, or made up so that they obey its graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.hosts.onnxruntime.size_bindings import Sizes, fit_sizes, fits, graph_names, sizes_for
from noyau.ir.dims import Shape
from noyau.ir.graph import Graph
from noyau.text import printable
from noyau.verify.input_files import MOST, load_samples, note_of
from noyau.verify.inputs import Inputs, make_inputs

if TYPE_CHECKING:
    from noyau.frontends.onnx import ImportedModel

MOST_BYTES = 1 << 30  # of the largest value: a model is not timed beyond it where nobody asked for that
SMALL = 64  # the most that a size is where kernels are checked on made-up inputs
CELLS = 1 << 20  # of the largest value of a kernel that is checked on them, where the fixed sizes leave room for that


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Inputs of a model: `small` to check its kernels, `full` to time them. A user's arrays are both, the first of
    several samples; `others`: the others, and `notes` what there is to say of them.

    `missing`: inputs of types that cannot be made up. `searched`: the usual sizes do not run, and these were found by
    trying."""

    small: Inputs
    full: Inputs
    made_up: bool
    missing: tuple[str, ...] = ()
    searched: bool = False
    others: tuple[Inputs, ...] = ()
    notes: tuple[str, ...] = ()


def model_inputs(
    imported: ImportedModel, graphs: Sequence[Graph], dims: Mapping[str, int], file: str | Path | None, seed: int
) -> ModelInputs:
    """Arrays for the inputs of a model, of a user's file or made up for the sizes `dims`, by the model's own names.

    A size that is not given is 1 where it is the leading one of an input, else 128, or what fits the others; the small
    inputs have sizes of at most 64, less where a value of one of `graphs`, those of the kernels, would be large, or the
    full ones where no smaller ones fit together.
    Initializers keep their values; without kernels nothing is needed. InputError for a size that the model does not
    have, for arrays that do not fit, or where both sizes and arrays are given."""
    names = frozenset(imported.initializers)
    if file is not None and dims:
        raise InputError(f"{file} gives every size: leave out --dim {printable(min(dims))}=N, or the arrays")
    if file is not None:
        samples = load_samples(Path(file), imported.graph, without=names)
        first, *others = samples[:MOST]
        notes = (*first.notes, *note_of(samples, Path(file)))
        return ModelInputs(first, first, made_up=False, others=tuple(others), notes=notes)
    full = fit_sizes(sizes_for(imported, dims), imported, graph_names(imported, dims))
    inputs = [node for node in imported.graph.inputs if node.output not in names]
    missing = tuple(node.output for node in inputs if node.dtype is DType.OTHER) if graphs else ()
    left_out = {*names, *missing} if graphs else {node.output for node in imported.graph.inputs}
    less = fit_sizes(small_sizes(full, graphs), imported)
    less = less if fits(less, imported) or not fits(full, imported) else full
    small, large = (
        make_inputs(imported.graph, sizes, np.random.default_rng(seed), without=left_out) for sizes in (less, full)
    )
    return ModelInputs(small, large, True, missing, notes=large.notes)


def small_sizes(sizes: Mapping[str, int], graphs: Iterable[Graph]) -> dict[str, int]:
    """The sizes, none above 64; all halved until no value of a graph has more than 2^20 cells, where that is known. A
    value of which the shape is fixed does not count: a table of weights is as large with small sizes."""
    known = [graph for graph in graphs if all(dim.names <= sizes.keys() for node in graph.nodes for dim in node.shape)]
    shapes = {node.shape for graph in known for node in graph.nodes if any(dim.names for dim in node.shape)}
    most = SMALL
    while most > 1 and any(_extent(shape, _capped(sizes, most)) > CELLS for shape in shapes):
        most //= 2
    return _capped(sizes, most)


def _extent(shape: Shape, sizes: Mapping[str, int]) -> int:
    """Number of cells of a shape; 0 where an extent would be divided by 0."""
    try:
        return math.prod(int(dim.evaluate(sizes)) for dim in shape)
    except ZeroDivisionError:
        return 0


def _capped(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    return {name: min(size, most) for name, size in sizes.items()}


def inputs_at(imported: ImportedModel, sizes: Sizes, missing: Iterable[str], seed: int) -> Inputs:
    """Inputs that are made up for these sizes; `missing` are those that cannot be. InputError as `make_inputs`."""
    names = {*imported.initializers, *missing}
    return make_inputs(imported.graph, sizes, np.random.default_rng(seed), without=names)


def largest_bytes(graph: Graph, sizes: Sizes) -> int:
    """Bytes of the largest value of a graph, of those whose shapes the sizes tell."""
    sizes_bytes = (
        math.prod(max(int(dim.evaluate(sizes)), 0) for dim in node.shape) * node.dtype.bytes
        for node in graph.nodes
        if all(dim.names <= sizes.keys() for dim in node.shape)
    )
    return max(sizes_bytes, default=0)
