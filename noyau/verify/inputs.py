"""Synthetic inputs of a model that satisfy the graph's constraints."""

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.graph import Graph, Node
from noyau.ir.sizes import Sizes
from noyau.text import printable
from noyau.verify.lookup_tables import Arrays, Tables, index_range, tables_of
from noyau.verify.uses import Uses


@dataclass(frozen=True, slots=True)
class Inputs:
    """An array for each input of a graph, the sizes of the model, and a line on the origin of each array."""

    arrays: Arrays
    sizes: Sizes
    notes: tuple[str, ...]


def make_inputs(graph: Graph, sizes: Sizes, rng: np.random.Generator, *, without: Collection[str] = ()) -> Inputs:
    """Make arrays for the inputs of a graph, with shapes by `sizes`.

    The role of an input follows from its uses, never from its name. Floats are standard normal, or their absolute
    values under a root or logarithm. An integer that indexes tables is drawn below their extents; a position, whose
    sine or cosine is taken, counts along its last axis; an integer compared with others than 0 and 1 is drawn from
    these; 8- and 16-bit integers that are no mask fill their range. All other integers and bools, such as masks, are 1.
    `without`: inputs that have values already. Raises InputError where a size is missing or negative, the arrays would
    not fit in memory, or an input has a dtype that noyau does not have."""
    maker = Maker(graph, sizes, rng, frozenset(without))
    nodes = [node for node in graph.inputs if node.output not in without]
    maker.require(nodes)
    arrays, notes = dict[str, np.ndarray](), dict[str, str]()
    # Make indices into tables last: their range may depend on the other inputs.
    for node in sorted(nodes, key=lambda node: bool(tables_of(maker.uses, node))):
        arrays[node.output], how = maker.make(node, arrays)
        notes[node.output] = f"{describe(node, arrays[node.output])}: made up, {how}"
    order = [node.output for node in nodes]
    return Inputs({name: arrays[name] for name in order}, dict(sizes), tuple(notes[name] for name in order))


class Maker:
    """Maker of arrays for the inputs of a graph, one at a time."""

    def __init__(self, graph: Graph, sizes: Sizes, rng: np.random.Generator, without: frozenset[str]) -> None:
        self.sizes, self.rng, self.uses = sizes, rng, Uses(graph, sizes, without)

    def require(self, nodes: Sequence[Node]) -> None:
        """InputError for inputs that cannot be made: of an unknown dtype or size, or too large."""
        strange = [printable(node.output) for node in nodes if node.dtype is DType.OTHER]
        if strange:
            raise InputError(f"{strange[0]} is of a type that cannot be made up: give the inputs with --inputs F.npz")
        missing = sorted({name for node in nodes for dim in node.shape for name in dim.names} - self.sizes.keys())
        if missing:
            options = " ".join(f"--dim {printable(name)}=N" for name in missing)
            raise InputError(f"the sizes {', '.join(map(printable, missing))} are not known: give {options}")
        for node in nodes:
            if min(self.shape(node), default=0) < 0:
                raise InputError(f"{printable(node.output)} would have the shape {self.shape(node)}: give larger sizes")
        require_memory(sum(math.prod(self.shape(node)) * node.dtype.bytes for node in nodes), "the inputs")

    def shape(self, node: Node) -> list[int]:
        return [int(dim.evaluate(self.sizes)) for dim in node.shape]

    def make(self, node: Node, others: Arrays) -> tuple[np.ndarray, str]:
        """The array of one input, and a text on its numbers; `others`: the arrays made before."""
        shape, dtype = self.shape(node), node.dtype.numpy
        if node.dtype.is_float:
            return self.normal(node, shape)
        if node.dtype.is_float8:
            return self.rng.standard_normal(shape).astype(dtype), f"normal numbers in {node.dtype.value}"
        if tables := tables_of(self.uses, node):
            return self.below(node, shape, tables, others)
        if self.uses.is_position(node):
            count = np.arange(shape[-1]) if shape else np.array(0)
            return np.broadcast_to(count, shape).astype(dtype), "0, 1, 2... as positions"
        if node.dtype.kind in ("int", "uint") and (choices := self._choices(node)).size:
            return np.asarray(self.rng.choice(choices, shape)).astype(dtype), "drawn from what it is compared with"
        if self.uses.is_mask(node):
            return np.ones(shape, dtype), "ones, as a mask"
        if node.dtype.bytes <= 2 and node.dtype is not DType.BOOL:
            limits = np.iinfo(dtype)
            numbers = self.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            return numbers, f"drawn from all of {node.dtype.value}"
        return np.ones(shape, dtype), "ones"

    def _choices(self, node: Node) -> np.ndarray:
        """The numbers that an integer is compared with, those in the range of its dtype."""
        numbers, limits = self.uses.comparison_integers(node), np.iinfo(node.dtype.numpy)
        return numbers[(numbers >= int(limits.min)) & (numbers <= int(limits.max))]

    def normal(self, node: Node, shape: list[int]) -> tuple[np.ndarray, str]:
        numbers = self.rng.standard_normal(shape, np.float64 if node.dtype is DType.F64 else np.float32)
        if self.uses.is_positive(node):
            return np.abs(numbers).astype(node.dtype.numpy), "absolute values of the standard normal"
        return np.asarray(numbers, node.dtype.numpy), "standard normal"

    def below(self, node: Node, shape: list[int], tables: Tables, others: Arrays) -> tuple[np.ndarray, str]:
        """Uniform random integers that are valid indices of each of the tables."""
        smallest = min(tables, key=lambda table: table.extent)
        if smallest.extent == 0 and 0 not in shape:
            raise InputError(f"{printable(node.output)} indexes {printable(smallest.name)}, which is empty")
        low, high = index_range(self.uses, node, shape, tables, others)
        numbers = self.rng.integers(low, max(high, 1), shape, np.int64).astype(node.dtype.numpy)
        return numbers, f"drawn from [{low}, {high}), as indices of {printable(smallest.name)}"


def require_memory(needed_bytes: int, what: str) -> None:
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed_bytes > here:
        raise InputError(f"{what} would take {needed_bytes / 1e9:.1f} GB, and this machine has {here / 1e9:.1f} GB")


def describe(node: Node, array: np.ndarray) -> str:
    """An input as text of a report: `ids i64[2, 7]`."""
    return f"{printable(node.output)} {node.dtype.value}{list(array.shape)}"
