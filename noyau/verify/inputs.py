"""Inputs to run a model with: from a file, or made up so that they obey the graph."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.graph import (
    Constant,
    Contract,
    Gather,
    Graph,
    Iota,
    Lookup,
    Map,
    Node,
    Opaque,
    Part,
    Scatter,
    Select,
    View,
)
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.ir.sizes import bind
from noyau.text import printable

Arrays = Mapping[str, np.ndarray]
Sizes = Mapping[str, int]

SHIFTS = frozenset({"identity", "cast", "add", "subtract", "minimum", "maximum", "floor_mod", "where"})
WAVES = frozenset({"sin", "cos"})
ROUNDS = 4  # of fitting the range of an input to the tables that it indexes


@dataclass(frozen=True, slots=True)
class Inputs:
    """An array for each input of a graph, the sizes that they stand for, and a line on where each came from."""

    arrays: Arrays
    sizes: Sizes
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A value as an operand of a node."""

    node: Node
    position: int


@dataclass(frozen=True, slots=True)
class LookupTable:
    """An axis that a value indexes: the value named `index` must be in [0, extent)."""

    index: str
    extent: int
    name: str


def make_inputs(graph: Graph, sizes: Sizes, rng: np.random.Generator, *, without: Collection[str] = ()) -> Inputs:
    """Arrays for the inputs of a graph, of the shapes that `sizes` gives them.

    What an input is follows from its uses, never from its name. Floats are standard normal (their absolute values
    where a root or a logarithm is taken); an integer that indexes tables is drawn below their extents; one that
    becomes an angle counts along its last axis; small integers that are no mask fill their range; every other
    integer and bool, masks among them, is one. Inputs named in `without` are left out: they have their values.
    Raises InputError where a size is missing or negative, an array would not fit in memory, or an input is of a
    type that noyau does not have."""
    maker = Maker(graph, sizes, rng, frozenset(without))
    nodes = [node for node in graph.inputs if node.output not in without]
    maker.require(nodes)
    arrays: dict[str, np.ndarray] = {}
    notes: dict[str, str] = {}
    # What indexes a table comes last: its range may depend on the other inputs.
    for node in sorted(nodes, key=lambda node: bool(maker.tables(node))):
        arrays[node.output], how = maker.make(node, arrays)
        notes[node.output] = f"{describe(node, arrays[node.output])}: made up, {how}"
    order = [node.output for node in nodes]
    return Inputs({name: arrays[name] for name in order}, dict(sizes), tuple(notes[name] for name in order))


class Maker:
    """The uses of each value of a graph, and what they say of its inputs."""

    def __init__(self, graph: Graph, sizes: Sizes, rng: np.random.Generator, without: frozenset[str]) -> None:
        self.graph, self.sizes, self.rng, self.without = graph, sizes, rng, without

    @cached_property
    def uses(self) -> Mapping[str, Sequence[Use]]:
        uses: dict[str, list[Use]] = {node.output: [] for node in self.graph.nodes}
        for node in self.graph.nodes:
            for position, name in enumerate(node.inputs):
                uses[name].append(Use(node, position))
        return uses

    @cached_property
    def known(self) -> frozenset[str]:
        """Every value that no input to make up has a part in."""
        names = set(self.without)
        for node in self.graph.nodes:
            leaf = isinstance(node.kind, Constant | Iota)
            if leaf or (node.inputs and names.issuperset(node.inputs)):
                names.add(node.output)
        return frozenset(names)

    def require(self, nodes: Sequence[Node]) -> None:
        """InputError for inputs that cannot be made up: of no known type or size, or too large."""
        strange = [printable(node.output) for node in nodes if node.dtype is DType.OTHER]
        if strange:
            raise InputError(f"{strange[0]} is of a type that cannot be made up: give the inputs with --inputs F.npz")
        needed = {name for node in nodes for dim in node.shape for name in dim.names}
        missing = sorted(needed - self.sizes.keys())
        if missing:
            options = " ".join(f"--dim {printable(name)}=N" for name in missing)
            raise InputError(f"the sizes {', '.join(map(printable, missing))} are not known: give {options}")
        for node in nodes:
            if min(self.shape(node), default=0) < 0:
                shape = f"{printable(node.output)} would have the shape {self.shape(node)}"
                raise InputError(f"{shape}: give larger sizes")
        _require_memory(sum(math.prod(self.shape(node)) * node.dtype.bytes for node in nodes), "the inputs")

    def shape(self, node: Node) -> list[int]:
        return [int(dim.evaluate(self.sizes)) for dim in node.shape]

    def make(self, node: Node, others: Arrays) -> tuple[np.ndarray, str]:
        """The array of one input and how it was made; `others` are made already."""
        shape, dtype = self.shape(node), node.dtype.numpy
        if node.dtype.is_float:
            return self.normal(node, shape)
        if node.dtype.is_float8:
            return self.rng.standard_normal(shape).astype(dtype), f"normal numbers in {node.dtype.value}"
        if tables := self.tables(node):
            return self.below(node, shape, tables, others)
        if self.is_position(node):
            count = np.arange(shape[-1]) if shape else np.array(0)
            return np.broadcast_to(count, shape).astype(dtype), "0, 1, 2... as positions"
        if self.is_mask(node):
            return np.ones(shape, dtype), "ones, as a mask"
        if node.dtype.bytes <= 2 and node.dtype is not DType.BOOL:
            limits = np.iinfo(dtype)
            numbers = self.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            return numbers, f"drawn from all of {node.dtype.value}"
        return np.ones(shape, dtype), "ones"

    def normal(self, node: Node, shape: list[int]) -> tuple[np.ndarray, str]:
        width = np.float64 if node.dtype is DType.F64 else np.float32
        numbers = self.rng.standard_normal(shape, width)
        if any(is_under_a_root(use) for use in self.reached(node, self._shifts_by_known)):
            return np.abs(numbers).astype(node.dtype.numpy), "absolute values of the standard normal"
        return np.asarray(numbers, node.dtype.numpy), "standard normal"

    def below(
        self, node: Node, shape: list[int], tables: Sequence[LookupTable], others: Arrays
    ) -> tuple[np.ndarray, str]:
        """Integers that each of the tables has, drawn evenly."""
        smallest = min(tables, key=lambda table: table.extent)
        if smallest.extent == 0 and 0 not in shape:
            raise InputError(f"{printable(node.output)} indexes {printable(smallest.name)}, which is empty")
        low, high = self.fitted(node, shape, tables, others)
        numbers = self.rng.integers(low, max(high, 1), shape, np.int64).astype(node.dtype.numpy)
        return numbers, f"drawn from [{low}, {high}), as indices of {printable(smallest.name)}"

    def fitted(self, node: Node, shape: list[int], tables: Sequence[LookupTable], others: Arrays) -> tuple[int, int]:
        """A range whose ends, put through the graph, are inside each table; [0, 1) if none is found."""
        largest = np.iinfo(node.dtype.numpy).max
        low, high = 0, min(largest + 1, *(table.extent for table in tables))
        for _ in range(ROUNDS):
            ends = [np.full(shape, end, node.dtype.numpy) for end in (low, high - 1)]
            raised, lowered = [self.excess(tables, {**others, node.output: end}) for end in ends]
            if raised == lowered == 0:
                return low, high
            low, high = low + raised, high - lowered
            if low >= high:
                break
        return 0, 1

    def excess(self, tables: Sequence[LookupTable], arrays: Arrays) -> int:
        """The largest distance of an index from its table, of all that can be followed."""
        worst = 0
        for table in tables:
            part = self.ancestry(table.index)
            if part is None or any(node.output not in arrays for node in part.inputs):
                continue
            try:
                index = evaluate(part, arrays, sizes=self.sizes)[table.index].astype(np.int64)
            except InputError:  # a table on the way is asked for what it does not have
                continue
            if index.size:
                worst = max(worst, -int(index.min()), int(index.max()) - table.extent + 1)
        return worst

    def ancestry(self, name: str) -> Graph | None:
        """The part of the graph that makes a value, or None where a boundary has a part in it."""
        needed = {name}
        nodes: list[Node] = []
        for node in reversed(self.graph.nodes):
            if node.output in needed:
                if isinstance(node.kind, Opaque | Part | Contract):
                    return None
                needed.update(node.inputs)
                nodes.append(node)
        return Graph(tuple(reversed(nodes)), (name,))

    def tables(self, node: Node) -> list[LookupTable]:
        """Every table that an integer input indexes, shifted, wrapped, sliced or rearranged."""
        if node.dtype.kind not in ("int", "uint"):
            return []
        return [table for use in self.reached(node, _shifts) for table in self._looked_up(use)]

    def _looked_up(self, use: Use) -> Iterator[LookupTable]:
        if not isinstance(use.node.kind, Gather | Scatter):
            return
        target = self.graph[use.node.inputs[0]]
        for dim, entry in zip(target.shape, use.node.kind.index, strict=True):
            if isinstance(entry, Lookup) and entry.input == use.position:
                extent = int(dim.evaluate(self.sizes)) if dim.names <= self.sizes.keys() else 1
                yield LookupTable(use.node.inputs[use.position], extent, target.output)

    def is_mask(self, node: Node) -> bool:
        """Whether it is compared, made a bool, or chooses between values."""
        return any(
            (isinstance(use.node.kind, Map) and OPERATORS[use.node.kind.function].is_comparison)
            or (_function(use) == "cast" and use.node.dtype is DType.BOOL)
            or (_function(use) == "where" and use.position == 0)
            for use in self.reached(node, _keeps)
        )

    def is_position(self, node: Node) -> bool:
        """Whether sines or cosines are taken of it, times what the graph knows."""
        return any(_function(use) in WAVES for use in self.reached(node, self._combines_with_known))

    def reached(self, node: Node, passes: Callable[[Use], bool]) -> Iterator[Use]:
        """Every use of a value and, past each use that `passes`, of what it became."""
        pending, names = [node.output], {node.output}
        while pending:
            for use in self.uses[pending.pop()]:
                yield use
                if passes(use) and use.node.output not in names:
                    names.add(use.node.output)
                    pending.append(use.node.output)

    def _alone(self, use: Use) -> bool:
        """Whether every other operand is known without any input, or is this one again."""
        own = use.node.inputs[use.position]
        return all(name == own or name in self.known for name in use.node.inputs)

    def _combines_with_known(self, use: Use) -> bool:
        return isinstance(use.node.kind, Map | View | Select | Contract | Opaque) and self._alone(use)

    def _shifts_by_known(self, use: Use) -> bool:
        return _keeps(use) or (_function(use) == "add" and self._alone(use))


def _function(use: Use) -> str | None:
    """The scalar function that a value is an operand of, or None."""
    return use.node.kind.function if isinstance(use.node.kind, Map) else None


def is_under_a_root(use: Use) -> bool:
    """Whether a root or a logarithm is taken of a value."""
    return isinstance(use.node.kind, Map) and has(use.node.kind.function, Fact.OF_POSITIVES)


def _keeps(use: Use) -> bool:
    """Whether what comes out has the same numbers in it."""
    return isinstance(use.node.kind, View | Select) or _function(use) in ("cast", "identity")


def _shifts(use: Use) -> bool:
    """Whether what comes out is still an index: the same integer, but for an offset, a wrap or a bound."""
    if use.node.dtype.kind not in ("int", "uint"):
        return False
    match use.node.kind:
        case Map("where"):
            return use.position > 0
        case Map(function):
            return function in SHIFTS
        case Gather() | Scatter():
            return use.position == 0
        case _:
            return _keeps(use)


def load_inputs(path: Path, graph: Graph, *, without: Collection[str] = ()) -> Inputs:
    """The inputs of a graph from an .npz file of one array each, by name; never pickled objects.

    Raises InputError that names every array that is missing, unknown, or of another dtype or rank; and where the file
    cannot be read or the shapes disagree."""
    nodes = {node.output: node for node in graph.inputs if node.output not in without}
    contents = _read(path)
    faults = [f"{printable(name)} is missing" for name in nodes if name not in contents]
    faults += [f"the model has no input {printable(name)}" for name in contents if name not in nodes]
    arrays = {name: _native(contents[name], node.dtype) for name, node in nodes.items() if name in contents}
    faults += [fault for name, array in arrays.items() if (fault := _misfit(nodes[name], array))]
    if faults:
        raise InputError(f"{path} does not fit the model: {'; '.join(faults)}")
    shaped = [name for name, node in nodes.items() if node.dtype is not DType.OTHER]
    names = [printable(name) for name in shaped]
    sizes = bind([nodes[name].shape for name in shaped], [arrays[name].shape for name in shaped], names)
    notes = tuple(f"{describe(node, arrays[name])}: from {printable(path.name)}" for name, node in nodes.items())
    return Inputs(arrays, sizes, notes)


def _read(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            _require_memory(sum(member.file_size for member in archive.infolist()), f"{path}: its arrays")
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(f"{path} is no .npz file of named arrays: write it with np.savez")
        with file:
            arrays = {name: file[name] for name in file.files}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        reason = printable(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise InputError(f"{path} cannot be read as an .npz file of plain arrays: {reason}") from error
    strange = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if strange:
        raise InputError(f"{path}: {printable(strange[0])} is no array: write the file with np.savez")
    return arrays


def _require_memory(needed_bytes: int, what: str) -> None:
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed_bytes > here:
        raise InputError(f"{what} would take {needed_bytes / 1e9:.1f} GB, and this machine has {here / 1e9:.1f} GB")


def _native(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The array in this machine's byte order; NumPy writes bfloat16 as two raw bytes, so these are taken for it."""
    if dtype is DType.BF16 and array.dtype == np.dtype("V2"):
        return array.view(dtype.numpy)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _misfit(node: Node, array: np.ndarray) -> str | None:
    name = printable(node.output)
    if node.dtype is DType.OTHER:
        return None
    if array.dtype != node.dtype.numpy:
        return f"{name} is {array.dtype}, not {node.dtype.numpy}"
    if array.ndim != len(node.shape):
        return f"{name} has rank {array.ndim}, not {len(node.shape)}"
    return None


def describe(node: Node, array: np.ndarray) -> str:
    """An input in a report: `ids i64[2, 7]`."""
    return f"{printable(node.output)} {node.dtype.value}{list(array.shape)}"
