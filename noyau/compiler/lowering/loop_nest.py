"""The loops of a group: those of its largest output, and the places of the other outputs in them.

An output may fit the loops of another with its axes merged, as by a reshape, or permuted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from noyau.errors import UnsupportedError
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, Shape, equal, product

ONE = Dim.of(1)
NestAxis = tuple[Dim, Dim]  # of the nest: its index, and its extent
Axes = frozenset[int]


def merge_axes(shape: Shape, axes: Sequence[NestAxis]) -> Shape | None:
    """The index of a value in a nest of these axes, if each axis of the value is one axis or several neighbours merged;
    None otherwise, or if the nest's innermost axis is not the value's: its cells would lie far apart."""
    left, index, innermost = list(axes), list[Dim](), False
    for extent in shape:
        run = [] if extent == ONE else _run(extent, left)
        if run is None:
            return None
        if run:
            innermost = run[-1] == axes[-1]
            left = [axis for axis in left if axis not in run]
        index.append(_flat(run))
    return tuple(index) if not left and innermost else None


def _run(extent: Dim, axes: Sequence[NestAxis]) -> list[NestAxis] | None:
    """The first neighbours whose product of extents equals an extent."""
    for start in range(len(axes)):
        for end in range(start + 1, len(axes) + 1):
            if equal(product(own for _, own in axes[start:end]), extent):
                return list(axes[start:end])
    return None


def _flat(run: Sequence[NestAxis]) -> Dim:
    """The index in the axis that several axes merge into, in C order."""
    flat = Dim.of(0)
    for index, extent in run:
        flat = flat * extent + index
    return flat


@dataclass(frozen=True, slots=True)
class LoopNest:
    """The loops of a nest, outermost first; the index of the main output over them; the points where loops are cut."""

    main: str
    loops: tuple[tuple[str, Dim], ...]
    index: Shape
    cuts: Mapping[str, tuple[Dim, ...]]
    turned: frozenset[str] = frozenset()  # loops that run backwards
    written_out: frozenset[str] = frozenset()  # loops of a few rounds that are unrolled

    def index_of(self, node: nodes.Node) -> tuple[Shape, int]:
        """The index of another output, and the number of loops around its Store; UnsupportedError if none fits."""
        axes = [axis for axis, dim in enumerate(node.shape) if dim != ONE]
        own = [dim for dim in self.index if dim != Dim.of(0)]
        ends = dict(self.loops)
        first, last = dict.fromkeys(ends, 0), {name: extent - 1 for name, extent in ends.items()}
        extents = [dim.replace(first) + dim.replace(last) + 1 for dim in own]  # of the main output, without axes of 1
        if len(axes) == len(own) and node.shape and all(map(equal, (node.shape[axis] for axis in axes), extents)):
            letters = iter(own)
            index = tuple(next(letters) if axis in axes else Dim.of(0) for axis in range(len(node.shape)))
            return index, len(self.loops)
        outer = self.loops[: len(axes)]
        if len(axes) <= len(self.loops) and all(map(equal, (node.shape[axis] for axis in axes), dict(outer).values())):
            variables = iter(outer)
            index = tuple(Dim.of(next(variables)[0]) if axis in axes else Dim.of(0) for axis in range(len(node.shape)))
            return index, len(axes)
        elsewhere = merge_axes(node.shape, list(zip(own, extents, strict=True)))
        if elsewhere is not None:
            return elsewhere, len(self.loops)
        own_shape, loops = (", ".join(map(str, dims)) for dims in (node.shape, dict(self.loops).values()))
        value = f"{node.output} of shape [{own_shape}]"
        raise UnsupportedError(f"{value} does not fit the loops of {self.main}: {loops or 1}")


def first_space(graph: nodes.Graph) -> LoopNest:
    """The loops of the largest output, in the order of its axes."""

    def extent(name: str) -> tuple[int, int]:
        dims = [dim for dim in graph[name].shape if dim != ONE]
        return len(dims), product(dims).constant or 0

    main = max(graph.outputs, key=extent)
    loops = [(f"#i{axis}", dim) for axis, dim in enumerate(graph[main].shape) if dim != ONE]
    index = tuple(Dim.of(f"#i{axis}") if dim != ONE else Dim.of(0) for axis, dim in enumerate(graph[main].shape))
    return LoopNest(main, tuple(loops), index, {})


def dependence(graph: nodes.Graph) -> dict[str, Axes]:
    """For each value the axes whose index changes its cells; where that is unknown, the axes that may."""
    axes_of: dict[str, Axes] = {}
    for node in graph.nodes:
        axes_of[node.output] = _of(graph, node, axes_of)
    return axes_of


def _of(graph: nodes.Graph, node: nodes.Node, axes_of: Mapping[str, Axes]) -> Axes:
    match node.kind:
        case nodes.Constant(value) if value.size == 1:
            return frozenset()
        case nodes.Iota(dim):
            return _axes([dim])
        case nodes.Map():
            return frozenset[int]().union(*(axes_of[name] for name in node.inputs))
        case nodes.View(index):
            return _axes(index[axis] for axis in axes_of[node.inputs[0]])
        case nodes.Gather(index):
            looked_up = [entry for entry in index if isinstance(entry, nodes.Lookup)]
            whole = [index[axis] for axis in axes_of[node.inputs[0]]]
            dims = [entry for entry in whole if isinstance(entry, Dim)]
            return _axes([*dims, *(dim for entry in looked_up for dim in entry.at)])
        case nodes.Select(axis, _) | nodes.Scan(axis=axis):
            return frozenset([axis]).union(*(axes_of[name] for name in node.inputs))
        case nodes.Reduce(_, axes):
            others = [axis for axis in range(len(graph[node.inputs[0]].shape)) if axis not in axes]
            return frozenset(at for at, axis in enumerate(others) if axis in axes_of[node.inputs[0]])
        case nodes.Input() | nodes.Constant() | nodes.Scatter() | nodes.Contract() | nodes.Opaque() | nodes.Part():
            return frozenset(range(len(node.shape)))
        case _:
            assert_never(node.kind)


def _axes(dims: Iterable[Dim]) -> Axes:
    return frozenset(int(name[1:]) for dim in dims for name in dim.names if name.startswith("#"))
