"""What flows through a model that runs: what its kernels read, to check and to time them with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noyau.checking.inputs import Inputs
from noyau.errors import InputError
from noyau.feeding import Feeds
from noyau.ir.graph import Graph, names_of
from noyau.original import Original, foreign
from noyau.passes.partition import Group
from noyau.planning import Planned
from noyau.runtimes.capturing import Capturing


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen in a run: arrays by the model's names, its inputs and tensors among them.

    `made_up`: the inputs of the model were. What could not be captured is not there."""

    arrays: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    made_up: bool

    def of(self, graph: Graph) -> tuple[np.ndarray, ...] | None:
        """The arrays of a graph's inputs, in order, or None where one is not known."""
        names = [node.output for node in graph.inputs]
        return tuple(self.arrays[name] for name in names) if self.arrays.keys() >= set(names) else None

    def sizes_of(self, graph: Graph) -> dict[str, int]:
        """The sizes of a graph, as far as they are known. InputError where an array has not the shape of its value."""
        found, arrays = dict(self.sizes), self.of(graph)
        if arrays is not None:
            found |= graph.bind([array.shape for array in arrays])
        wanted = names_of(graph)
        return {name: size for name, size in found.items() if name in wanted}


def look(
    original: Original, kernels: Sequence[Planned], feeds: Feeds, capturing: Capturing | None = None
) -> tuple[Seen, Seen]:
    """What kernels read with small inputs, in their first and last places, and with those asked for, in their first.

    A model that does not run with small ones is looked at once; `capturing` may have a session of it. ModelError or
    InputError where it does not run."""
    try:
        return _look_twice(original, kernels, feeds, capturing or capturing_of(original))
    except InputError as error:
        advice = "other sizes (--dim NAME=N) or arrays of your own (--inputs F.npz) may do"
        raise InputError(f"the model does not run with its inputs: {error}; {advice}") from error


def look_again(
    original: Original,
    kernels: Sequence[Planned],
    inputs: Inputs,
    made_up: bool,
    capturing: Capturing | None = None,
) -> Seen:
    """What kernels read in their first places, with other inputs. ModelError or InputError where it does not run."""
    first = [kernel.groups[0] for kernel in kernels]
    return _look(original, first, inputs, capturing or capturing_of(original), made_up)


def capturing_of(original: Original) -> Capturing:
    """What captures values of a model, but those that need operators which only a library of the user's own has."""
    return Capturing(original.model, original.folder, foreign(original.model))


def _look_twice(
    original: Original, kernels: Sequence[Planned], feeds: Feeds, capturing: Capturing
) -> tuple[Seen, Seen]:
    first = [kernel.groups[0] for kernel in kernels]
    ends = [group for kernel in kernels for group in ends_of(kernel)]
    if feeds.small.sizes != feeds.asked.sizes:
        try:
            small = _look(original, ends, feeds.small, capturing, feeds.made_up)
        except InputError:
            small = None
        if small is not None:
            return small, _look(original, first, feeds.asked, capturing, feeds.made_up)
    seen = _look(original, ends, feeds.asked, capturing, feeds.made_up)
    return seen, seen


def ends_of(kernel: Planned) -> tuple[Group, ...]:
    """The first and the last place of a kernel."""
    return kernel.groups if len(kernel.groups) < 2 else (kernel.groups[0], kernel.groups[-1])


def _look(original: Original, groups: Sequence[Group], inputs: Inputs, capturing: Capturing, made_up: bool) -> Seen:
    """What some groups read: captured in a run on these inputs, or tensors of the model."""
    nodes, tensors = original.model.graph.node, original.imported.initializers
    wanted = {name for group in groups for name in group.inputs}
    wanted |= {name for group in groups for position in group.positions for name in nodes[position].input}
    captured = capturing.capture(inputs.arrays, sorted(wanted))
    stored = {name: original.imported.load_initializer(name) for name in wanted if name in tensors}
    return Seen({**stored, **inputs.arrays, **captured}, inputs.sizes, made_up)
