"""Bugs that a fuser could have, each planted into passes, lowering or schedules by one patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from noyau.compiler.lowering import nest, values
from noyau.compiler.passes import cleanup, normal_form
from noyau.compiler.passes import cleanup as passes_cleanup
from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds, strategies
from noyau.ir.dims import Dim, DimOp, indices, strides_of
from noyau.ir.graph import Map, Select, View
from noyau.ir.loops import Fold, Loop
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import has
from noyau.ir.ranges import simplify, within

Plant = Callable[[pytest.MonkeyPatch], None]


def a_wrong_stride(patch: pytest.MonkeyPatch) -> None:
    """The strides of an array in Fortran's order."""
    patch.setattr(primitives, "strides_of", lambda shape: strides_of(shape[::-1])[::-1])


def a_lost_output(patch: pytest.MonkeyPatch) -> None:
    """The last output of the inner loops is not stored."""
    fill = nest.fill
    patch.setattr(nest, "fill", lambda lowering, space, stores: fill(lowering, space, dict(list(stores.items())[:2])))


def a_lost_consumer(patch: pytest.MonkeyPatch) -> None:
    """A value read at two indices is computed at the first one only."""
    original = values.Lowering.value

    def value(self, name, index):
        node, known = self.graph[name], self.scopes[-1].known
        key = (name, "anywhere")
        if isinstance(node.kind, Map) and key not in known:
            known[key] = original(self, name, index)
        return known[key] if isinstance(node.kind, Map) else original(self, name, index)

    patch.setattr(values.Lowering, "value", value)


def swapped_pieces(patch: pytest.MonkeyPatch) -> None:
    """The first and the last piece of a pad or a concat change places, where they are as long."""
    original = values.Lowering.select

    def select(self, node, axis, starts, index):
        first, last = (self.graph[node.inputs[at]].shape for at in (0, -1))
        if first == last:
            node = replace(node, inputs=(node.inputs[-1], *node.inputs[1:-1], node.inputs[0]))
        return original(self, node, axis, starts, index)

    patch.setattr(values.Lowering, "select", select)


def a_wrong_start_of_a_fold(patch: pytest.MonkeyPatch) -> None:
    """The largest value of nothing is 0."""
    wrong = {name: replace(MONOIDS[name], init=_zero_first(MONOIDS[name].init)) for name in ("max", "max_apart")}
    patch.setattr(folds, "MONOIDS", {**MONOIDS, **wrong})


def _zero_first(init):
    return lambda dtype: (0, *init(dtype)[1:])


def a_missing_tail(patch: pytest.MonkeyPatch) -> None:
    """What is left of a row after whole strips of lanes is not folded."""
    original = folds.lanes_of

    def drop(statements):
        kept = [s for s in statements if not (isinstance(s, Loop) and _is_tail(s.extent))]
        return tuple(replace(s, body=drop(s.body)) if isinstance(s, Loop) else s for s in kept)

    patch.setattr(folds, "lanes_of", lambda *args, **options: drop(original(*args, **options)))


def _is_tail(extent: Dim) -> bool:
    return any(isinstance(atom, DimOp) and atom.kind == "mod" for monomial, _ in extent.terms for atom in monomial)


def a_tile_without_an_end(patch: pytest.MonkeyPatch) -> None:
    """The last tile of a loop or block of a fold is as long as the others."""
    for module in (primitives, strategies):
        patch.setattr(module, "minimum", lambda left, right: left, raising=False)


def a_wrong_cut(patch: pytest.MonkeyPatch) -> None:
    """A piece is taken to reach one cell further than it does."""
    patch.setattr(values, "within", lambda dim, end, *known: within(dim, end + 1, *known))


def a_dropped_cast(patch: pytest.MonkeyPatch) -> None:
    """A cast there and back again is left out."""
    original = values.Lowering.make

    def make(self, node, index):
        if node.kind == Map("cast"):
            inner = self.graph[node.inputs[0]]
            if inner.kind == Map("cast") and self.graph[inner.inputs[0]].dtype.compute is node.dtype.compute:
                return self.value(inner.inputs[0], index)
        return original(self, node, index)

    patch.setattr(values.Lowering, "make", make)


def a_value_lifted_too_far(patch: pytest.MonkeyPatch) -> None:
    """A value stands outside the loop whose index it is read at, where it has that of another loop too."""
    original = values.Lowering.depth
    patch.setattr(values.Lowering, "depth", lambda self, index: max(original(self, index) - (len(index) > 1), 0))


def a_guard_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A value lifted out of a loop that does not run is read all the same."""
    patch.setattr(values.Lowering, "guard_of", lambda self, *asked: self.guard)


def an_axis_that_seems_not_to_matter(patch: pytest.MonkeyPatch) -> None:
    """The cells of a padded or joined value are taken to be alike along its first axis."""

    def dependence(graph):
        known = true(graph)
        return {name: axes - {0} if isinstance(graph[name].kind, Select) else axes for name, axes in known.items()}

    true = values.dependence
    patch.setattr(values, "dependence", dependence)


def a_wrong_broadcast(patch: pytest.MonkeyPatch) -> None:
    """What is expanded only where it has one cell is taken to be never expanded."""

    def never(dim, extents):
        kept = [(m, f) for m, f in dim.terms if not any(isinstance(atom, DimOp) and atom.kind == "max" for atom in m)]
        return simplify(Dim(tuple(kept)) if len(kept) < len(dim.terms) and len(dim.terms) == 2 else dim, extents)

    patch.setattr(values, "simplify", never)


def a_lost_transpose(patch: pytest.MonkeyPatch) -> None:
    """A transpose of axes that are as long is taken to change nothing."""
    original = values.Lowering.make

    def make(self, node, index):
        if isinstance(node.kind, View) and self.graph[node.inputs[0]].shape == node.shape:
            own = indices(len(node.shape))
            if node.kind.index != own and sorted(map(str, node.kind.index)) == sorted(map(str, own)):
                return self.value(node.inputs[0], index)
        return original(self, node, index)

    patch.setattr(values.Lowering, "make", make)


def a_reduction_over_the_wrong_axis(patch: pytest.MonkeyPatch) -> None:
    """A lone axis is counted from the other end, where that one is as long."""
    original = values.Lowering.fold

    def fold(self, node, monoid, axes, index):
        shape = self.graph[node.inputs[0]].shape
        if len(axes) == 1 and shape[axes[0]] == shape[-1 - axes[0]]:
            axes = (len(shape) - 1 - axes[0],)
        return original(self, node, monoid, axes, index)

    patch.setattr(values.Lowering, "fold", fold)


def a_wrong_position(patch: pytest.MonkeyPatch) -> None:
    """argmax over several axes counts the last one only."""
    patch.setattr(folds, "position", lambda fold: Dim.of(fold.loops[-1][0]))


def lanes_that_carry(patch: pytest.MonkeyPatch) -> None:
    """A loop that adds to one cell is taken for one whose rounds are independent."""
    patch.setattr(primitives, "carries", lambda loop: False)


def equal_but_for_the_dtype(patch: pytest.MonkeyPatch) -> None:
    """Two casts of one value are taken for one value."""
    original = cleanup.rebuild

    def rebuild(graph, change):
        seen: dict[object, str] = {}

        def forgetful(node, made):
            key = (node.kind, node.inputs, node.shape)
            if node.kind == Map("cast") and seen.setdefault(key, node.output) != node.output:
                return seen[key]
            return change(node, made)

        return original(graph, forgetful)

    patch.setattr(cleanup, "rebuild", rebuild)


def a_difference_turned_round(patch: pytest.MonkeyPatch) -> None:
    """Subtraction is taken to commute."""
    patch.setattr(normal_form, "has", lambda function, fact: function == "subtract" or has(function, fact))


def views_composed_the_wrong_way(patch: pytest.MonkeyPatch) -> None:
    """A view of a view looks up the outer one in the inner one, where both have the same rank."""
    original = passes_cleanup._compose

    def composed(node, made):
        source = made.nodes[node.inputs[0]] if node.inputs else node
        match node.kind, source.kind:
            case View(outer), View(inner) if len(outer) == len(inner) == len(node.shape):
                here = {f"#{axis}": dim for axis, dim in enumerate(inner)}
                return (replace(node, kind=View(tuple(d.replace(here) for d in outer)), inputs=source.inputs),)
            case _:
                return original(node, made)

    patch.setattr(passes_cleanup, "_compose", composed)


def a_fold_of_one_value_too_few(patch: pytest.MonkeyPatch) -> None:
    """The last value of a fold inside another one is left out."""
    original = values.Lowering.fold

    def fold(self, node, monoid, axes, index):
        made: Fold = original(self, node, monoid, axes, index)
        variable, extent = made.loops[-1]
        return replace(made, loops=(*made.loops[:-1], (variable, extent - 1))) if len(self.folds) > 1 else made

    patch.setattr(values.Lowering, "fold", fold)


PLANTED: tuple[Plant, ...] = (
    a_wrong_stride,
    a_lost_output,
    a_lost_consumer,
    swapped_pieces,
    a_wrong_start_of_a_fold,
    a_missing_tail,
    a_tile_without_an_end,
    a_wrong_cut,
    a_dropped_cast,
    a_value_lifted_too_far,
    a_guard_forgotten,
    an_axis_that_seems_not_to_matter,
    a_wrong_broadcast,
    a_lost_transpose,
    a_reduction_over_the_wrong_axis,
    a_wrong_position,
    lanes_that_carry,
    equal_but_for_the_dtype,
    a_difference_turned_round,
    views_composed_the_wrong_way,
    a_fold_of_one_value_too_few,
)
