"""A graph as kernels on tensors: built once for each layout of its inputs, and certified as generated kernels are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from noyau import __version__
from noyau.builders import records
from noyau.builders.cache import digest
from noyau.builders.records import today
from noyau.checking.native import certify_native
from noyau.checking.values import Case
from noyau.dispatching.generating import CPU, Generated, Wanted, languages_on, printed, program_in
from noyau.dispatching.layouts import Layout, laid_out, layout_of, lie
from noyau.dispatching.records import machine_of
from noyau.dispatching.running import Built, build
from noyau.dispatching.smoke import sizes_missed
from noyau.errors import BuildError, CheckError, MissingExtraError, OutputError, UnsupportedError
from noyau.ir.graph import Graph
from noyau.lowering.names import identifier
from noyau.runtimes.numpy.doors import MISS, Argument
from noyau.runtimes.torch.arrays import seen
from noyau.runtimes.torch.drawing import MOST, Draw, Sizes, draw_graph
from noyau.runtimes.torch.entries import Entry, through_program
from noyau.runtimes.torch.faking import results_of_graph
from noyau.runtimes.torch.hosting import host
from noyau.runtimes.torch.tensors import device_of, in_memory, is_negated
from noyau.signatures.types import Instance, Value

Tensors = Sequence[torch.Tensor]
FEW = 2  # cases of a smoke certificate on a GPU, where each has launches of its own to compile
DOORS = 8  # kept; the last one that was made comes first


class GraphKernels:
    """A graph called on plain tensors, in the order of its inputs: one new tensor, or a tuple of several.

    The first call with inputs of some layouts on a device builds their kernels, on the CPU in C or, where there is no
    compiler, for Numba, on a GPU in Triton, and certifies them on what `draw` gives: BuildError where nothing can be
    built, UnsupportedError for what has no kernel, CheckError where the certificate fails. InputError where shapes do
    not fit or an index is out of bounds."""

    def __init__(self, graph: Graph, called: str, draw: Draw) -> None:
        self.graph, self.called, self.draw = graph, called, draw
        self.doors: tuple[Entry, ...] = ()
        self.made: dict[tuple[Any, ...], list[Built]] = {}
        self.lock = threading.Lock()

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        if is_negated(tensors):
            tensors = tuple(map(in_memory, tensors))
        for door in self.doors:
            found = door(tensors)
            if found is not MISS:
                return found
        return self.anew(list(map(in_memory, tensors)))

    def anew(self, tensors: Tensors) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """By a door that is kept from now on."""
        device = device_of(tensors)
        if device == "meta":
            shapes = results_of_graph(self.graph, tensors)
            return shapes[0] if len(shapes) == 1 else tuple(shapes)
        if device != CPU:
            from noyau.runtimes.torch.cuda_errors import require_free, told

            with told(self.called, device):
                require_free(self.called)
                return self.through_door(tensors, device)
        return self.through_door(tensors, device)

    def through_door(self, tensors: Tensors, device: str) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The same, where that is."""
        tensors = [(each if layout_of(seen(each)) is not None else each.clone()).to(device) for each in tensors]
        layouts = tuple(layout_of(seen(each)) or Layout() for each in tensors)
        built = self.built(layouts, device, self.graph.bind([each.shape for each in tensors]))
        pairs = zip(self.graph.inputs, layouts, strict=True)
        ends = [Argument(node.dtype, len(node.shape), layout) for node, layout in pairs]
        door = through_program(built, ends, self.called)
        found = door(tuple(tensors))
        if found is not MISS:
            self.doors = (door, *self.doors)[:DOORS]
            return found
        results = host(built)(*tensors)  # it tells why
        return results[0] if len(results) == 1 else tuple(results)

    def built(self, layouts: tuple[Layout, ...], device: str, sizes: Sizes) -> Built:
        """The kernels for inputs that lie so, certified, once: on a GPU, once for sizes that have the same launches."""
        with self.lock:
            made = self.made.setdefault((layouts, device), [])
            found = next((each for each in made if each.generated.certified_at(sizes)), None)
            if found is None:
                found = certified(self.first(layouts, device, sizes), self.draw)
                made.append(found)
            return found

    def first(self, layouts: tuple[Layout, ...], device: str, sizes: Sizes) -> Built:
        """Those of the first language that can be built here."""
        faults: list[UnsupportedError | BuildError | MissingExtraError] = []
        languages = languages_on(device)
        for language in languages:
            try:
                return build(generated_of(self.graph, self.called, layouts, language, device, sizes))
            except (UnsupportedError, BuildError, MissingExtraError) as error:
                faults.append(error)
        told = "; ".join(f"{language}: {error}" for language, error in zip(languages, faults, strict=True))
        kind = UnsupportedError if isinstance(faults[0], UnsupportedError) else BuildError
        raise kind(f"{self.called} cannot be built ({told})") from faults[0]


def generated_of(
    graph: Graph, called: str, layouts: tuple[Layout, ...], language: str, device: str, sizes: Sizes
) -> Generated:
    """The kernels of a graph in a language, for inputs that lie so on a device and a call of these sizes.
    UnsupportedError for what has none."""
    values = tuple(Value(node.output, node.dtype, node.shape) for node in graph.inputs)
    results = tuple(Value(name, graph[name].dtype, graph[name].shape) for name in graph.outputs)
    wanted = Wanted(Instance(values, results, ()), layouts=layouts, sizes=sizes, device=device)
    memory = laid_out(graph, layouts)
    made = program_in(memory, identifier(called), layouts, language)
    return Generated(called, language, wanted, graph, {}, made, printed(made, language, f"{called}: {wanted.instance}"))


def certified(built: Built, draw: Draw) -> Built:
    """The same, once it has passed its smoke certificate on this machine. CheckError where it does not."""
    generated = built.generated
    device = generated.wanted.device
    launches = str(generated.launches(generated.wanted.sizes))
    told = [str(generated.wanted.instance), *map(str, generated.wanted.layouts), launches, *machine_of(device)]
    key = digest("smoke of a graph", __version__, generated.language, generated.text, *told)
    if records.recall(key) is not None:
        return built
    with np.errstate(all="ignore"):
        cases = _cases(generated, draw, MOST if device == CPU else FEW)
        certificate = certify_native(generated.graph, built, cases, name=generated.called)
    if not certificate.ok:
        raise CheckError(f"{generated.called}: its smoke certificate failed: {certificate.summary()}")
    with contextlib.suppress(OutputError):
        records.keep(key, {"graph": generated.name, "summary": certificate.summary(), "when": today()})
    return built


def _cases(generated: Generated, draw: Draw, most: int) -> Iterator[Case]:
    """What is drawn, after some of sizes at which launches run that do not run for that; where nothing is drawn, for no
    maker of inputs gives such, any that the graph takes."""
    graph, wanted = generated.graph, generated.wanted
    drawn = list(islice(draw(()), most))
    if not drawn:
        draw = partial(draw_graph, graph, {}, {})
        drawn = list(islice(draw(()), most))
    usual = [[arrays[node.output] for node in graph.inputs] for arrays in drawn]
    missed = sizes_missed(generated, [graph.bind([array.shape for array in arrays]) for arrays in usual])
    longer = [[arrays[node.output] for node in graph.inputs] for arrays in (draw(missed) if missed else ())]
    for number, given in enumerate([*longer, *usual]):
        yield Case(f"drawn {number}", tuple(lie(array, wanted.layout(at)) for at, array in enumerate(given)))
