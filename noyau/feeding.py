"""Inputs for a model: loaded, or made up so that they obey its graph; small ones to check with, others to time with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.checking.inputs import Inputs, load_inputs, make_inputs, printable
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import Shape
from noyau.ir.graph import Graph
from noyau.sizing import fitted

if TYPE_CHECKING:
    from noyau.frontends.onnx import Imported

USUAL = 128  # what a size is where nobody says
SMALL = 64  # the most that a size is where kernels are checked on made-up inputs
CELLS = 1 << 20  # of the largest value of a kernel that is checked on them, where the fixed sizes leave room for that


@dataclass(frozen=True, slots=True)
class Feeds:
    """What a model is run with: `small` to check its kernels, `asked` to time them. A user's arrays are both.

    `missing`: inputs of types that cannot be made up."""

    small: Inputs
    asked: Inputs
    made_up: bool
    missing: tuple[str, ...] = ()


def feeds_for(
    imported: Imported, graphs: Sequence[Graph], dims: Mapping[str, int], file: str | Path | None, seed: int
) -> Feeds:
    """Arrays for the inputs of a model, from an .npz file or made up for the sizes `dims`, by the model's own names.

    A size that is not given is 1 where it is the leading one of an input, else 128, or what fits the others; the small
    inputs have sizes of at most 64, less where a value of one of `graphs`, those of the kernels, would be large.
    Initializers keep their values; without kernels nothing is needed. InputError for a size that the model does not
    have, for arrays that do not fit, or where both sizes and arrays are given."""
    given = frozenset(imported.initializers)
    if file is not None and dims:
        raise InputError(f"{file} gives every size: leave out --dim {printable(min(dims))}=N, or the arrays")
    if file is not None:
        loaded = load_inputs(Path(file), imported.graph, given=given)
        return Feeds(loaded, loaded, made_up=False)
    called = {original: name for name, original in imported.sizes.items()}
    asked = fitted(sizes_for(imported, dims), imported, {called.get(name, name) for name in dims})
    inputs = [node for node in imported.graph.inputs if node.output not in given]
    missing = tuple(node.output for node in inputs if node.dtype is DType.OTHER) if graphs else ()
    left_out = {*given, *missing} if graphs else {node.output for node in imported.graph.inputs}
    small, large = (
        make_inputs(imported.graph, sizes, np.random.default_rng(seed), given=left_out)
        for sizes in (fitted(small_sizes(asked, graphs), imported), asked)
    )
    return Feeds(small, large, True, missing)


def sizes_for(imported: Imported, dims: Mapping[str, int]) -> dict[str, int]:
    """A number for each size that the inputs of a model have."""
    called = {original: name for name, original in imported.sizes.items()}
    sizes: dict[str, int] = {}
    for node in imported.graph.inputs:
        if node.output not in imported.initializers:
            for axis, dim in enumerate(node.shape):
                for name in dim.names:
                    sizes[name] = min(sizes.get(name, USUAL), 1 if axis == 0 and len(node.shape) > 1 else USUAL)
    for name, value in dims.items():
        if called.get(name, name) not in sizes:
            known = ", ".join(sorted(printable(imported.sizes.get(size, size)) for size in sizes)) or "none"
            raise InputError(f"the model has no size {printable(name)}; its sizes are: {known}")
        if value < 0:
            raise InputError(f"the size {printable(name)} cannot be {value}: sizes are 0 or more")
        sizes[called.get(name, name)] = value
    return sizes


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
    """How many cells a shape has; 0 where an extent would be divided by 0."""
    try:
        return math.prod(int(dim.evaluate(sizes)) for dim in shape)
    except ZeroDivisionError:
        return 0


def _capped(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    return {name: min(size, most) for name, size in sizes.items()}
