"""A graph as kernels on tensors: built once for each layout of its inputs, and certified as generated kernels are.

Small inputs for the smoke certificates of what runs forward and back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.compiler.autodiff.adjoints import gradient_name
from noyau.compiler.lowering.input_layouts import Layout, layout_of, lie
from noyau.errors import BuildError, CheckError, MissingExtraError, NoyauError, OutputError, UnsupportedError
from noyau.hosts.numpy.fast_calls import MISS, Argument
from noyau.hosts.torch.operator_registry import results_of_graph
from noyau.hosts.torch.tensors import device_of, in_memory, is_negated, layout_array
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.sizes import Sizes
from noyau.kernels.programs import generate
from noyau.kernels.reference import Description
from noyau.ops.dispatch.smoke_certificate import hint, maker_inputs, maker_inputs_at, sizes_at_edges, sizes_missed
from noyau.ops.dispatch.winners import machine_of
from noyau.ops.torch.fast_entries import Entry, TensorProgram, through_program
from noyau.toolchain import cache
from noyau.toolchain.cache import digest, today
from noyau.verify.adversarial import NORMAL
from noyau.verify.awkward_sizes import fits, usual_sizes
from noyau.verify.case_arrays import CaseMaker
from noyau.verify.failures import Case
from noyau.verify.trial import certify_native
from noyau.version import __version__

Array = np.ndarray
Drawn = Iterator[Mapping[str, Array]]  # inputs of a graph, by name
Draw: TypeAlias = Callable[[Sequence[Sizes]], Drawn]  # of usual sizes, or of each of those that are asked for
MOST = 6
CELLS = 1 << 12  # of the largest array
NOTHING: Sizes = MappingProxyType({})


def draw_op(
    description: Description, specialization: generate.Specialization, graph: Graph, extra: Sequence[Sizes] = ()
) -> Drawn:
    """Inputs of an op: by its maker where that gives some of these dtypes and ranks, else such as its graph takes."""
    usual = maker_inputs(description, specialization, 0)
    first = next(usual, None)
    if first is None:
        yield from draw_graph(graph, specialization.integers, specialization.sizes, extra)
        return
    inputs = (maker_inputs_at(description, specialization, graph, sizes) for sizes in extra)
    for _, arrays in chain.from_iterable(inputs) if extra else chain([first], usual):
        yield dict(zip((node.output for node in graph.inputs), arrays, strict=True))


def draw_graph(graph: Graph, integers: Sizes, called: Sizes = NOTHING, extra: Sequence[Sizes] = ()) -> Drawn:
    """Inputs such as a graph takes, of usual sizes, or those that it is `called` with where it holds for no others, and
    at edges; or of each of the `extra` ones, as far as it has such. `integers` have their values."""
    maker = CaseMaker(graph, np.random.default_rng(0))
    usual = usual_sizes(graph, hint(graph, called))
    whole = [usual | {name: size for name, size in sizes.items() if name in usual} for sizes in extra] or [usual]
    edges = [] if extra else sizes_at_edges(graph, usual, CELLS)
    for sizes in [*(each for each in whole if fits(graph, each)), *edges]:
        inputs = maker.inputs(sizes, NORMAL)
        if inputs is not None:
            numbers = {name: np.array(value, inputs[name].dtype) for name, value in integers.items() if name in inputs}
            yield {**inputs, **numbers}


def draw_back(forward: Graph, outputs: tuple[str, ...], draw: Draw, extra: Sequence[Sizes] = ()) -> Drawn:
    """Inputs for a backward graph: those of the forward one, what that gives, and any gradients of its outputs."""
    rng = np.random.default_rng(1)
    for inputs in islice(draw(extra), len(extra) or MOST):
        with np.errstate(all="ignore"):
            try:
                values = {**inputs, **evaluate(forward, inputs)}
            except NoyauError:
                continue
        floats = [name for name in outputs if forward[name].dtype.is_float]
        grads = {gradient_name(n): rng.standard_normal(values[n].shape).astype(values[n].dtype) for n in floats}
        yield {**values, **grads}


Tensors = Sequence[torch.Tensor]
FEW = 2  # cases of a smoke certificate on a GPU, where each has launches of its own to compile
FAST_CALLS = 8  # kept; the last one that was made comes first


class GraphKernels:
    """A graph called on plain tensors, in the order of its inputs: one new tensor, or a tuple of several.

    The first call with inputs of some layouts on a device builds their kernels, on the CPU in C or, where there is no
    compiler, for Numba, on a GPU in Triton, and certifies them on what `draw` gives: BuildError where nothing can be
    built, UnsupportedError for what has no kernel, CheckError where the certificate fails. InputError where shapes do
    not fit or an index is out of bounds."""

    def __init__(self, graph: Graph, called: str, draw: Draw) -> None:
        self.graph, self.called, self.draw = graph, called, draw
        self.fast_calls: tuple[Entry, ...] = ()
        self.programs: dict[tuple[Any, ...], list[generate.BuiltProgram]] = {}
        self.lock = threading.Lock()

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        if is_negated(tensors):
            tensors = tuple(map(in_memory, tensors))
        for fast_call in self.fast_calls:
            results = fast_call(tensors)
            if results is not MISS:
                return results
        return self.anew(list(map(in_memory, tensors)))

    def anew(self, tensors: Tensors) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """By a fast call that is kept from now on."""
        device = device_of(tensors)
        if device == "meta":
            shapes = results_of_graph(self.graph, tensors)
            return shapes[0] if len(shapes) == 1 else tuple(shapes)
        if device != generate.CPU:
            from noyau.hosts.torch.cuda.device import device_errors, require_free

            with device_errors(self.called, device):
                require_free(self.called)
                return self.through_fast_call(tensors, device)
        return self.through_fast_call(tensors, device)

    def through_fast_call(self, tensors: Tensors, device: str) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The same, where that is."""
        tensors = [(each if layout_of(layout_array(each)) is not None else each.clone()).to(device) for each in tensors]
        layouts = tuple(layout_of(layout_array(each)) or Layout() for each in tensors)
        built = self.build(layouts, device, self.graph.bind([each.shape for each in tensors]))
        pairs = zip(self.graph.inputs, layouts, strict=True)
        ends = [Argument(node.dtype, len(node.shape), layout) for node, layout in pairs]
        fast_call = through_program(built, ends, self.called)
        result = fast_call(tuple(tensors))
        if result is not MISS:
            self.fast_calls = (fast_call, *self.fast_calls)[:FAST_CALLS]
            return result
        results = TensorProgram(built)(*tensors)  # it tells why
        return results[0] if len(results) == 1 else tuple(results)

    def build(self, layouts: tuple[Layout, ...], device: str, sizes: Sizes) -> generate.BuiltProgram:
        """The kernels for inputs that lie so, certified, once: on a GPU, once for sizes that have the same launches."""
        with self.lock:
            programs = self.programs.setdefault((layouts, device, torch.are_deterministic_algorithms_enabled()), [])
            built = next((each for each in programs if each.generated.is_certified_at(sizes)), None)
            if built is None:
                built = certify(self.first(layouts, device, sizes), self.draw)
                programs.append(built)
            return built

    def first(self, layouts: tuple[Layout, ...], device: str, sizes: Sizes) -> generate.BuiltProgram:
        """Those of the first language that can be built here."""
        faults: list[UnsupportedError | BuildError | MissingExtraError] = []
        languages = generate.in_order(generate.languages_on(device), lambda: self.graph)
        is_deterministic = torch.are_deterministic_algorithms_enabled()
        for language in languages:
            try:
                call = (self.graph, self.called, layouts, language, device, sizes)
                return generate.build(generate.generate_from_graph(*call, is_deterministic=is_deterministic))
            except (UnsupportedError, BuildError, MissingExtraError) as error:
                faults.append(error)
        message = "; ".join(f"{language}: {error}" for language, error in zip(languages, faults, strict=True))
        kind = UnsupportedError if isinstance(faults[0], UnsupportedError) else BuildError
        raise kind(f"{self.called} cannot be built ({message})") from faults[0]


def certify(program: generate.BuiltProgram, draw: Draw) -> generate.BuiltProgram:
    """The same, once it has passed its smoke certificate on this machine. CheckError where it does not."""
    generated = program.generated
    device = generated.wanted.device
    launches = str(generated.launches(generated.wanted.sizes))
    parts = [str(generated.wanted.instance), *map(str, generated.wanted.layouts), launches, *machine_of(device)]
    key = digest("smoke of a graph", __version__, generated.language, generated.text, *parts)
    if cache.recall(key) is not None:
        return program
    with np.errstate(all="ignore"):
        cases = _cases(generated, draw, MOST if device == generate.CPU else FEW)
        same_bits, graph = generated.is_deterministic, generated.graph
        certificate = certify_native(graph, program, cases, name=generated.title, is_deterministic=same_bits)
    if not certificate.ok:
        raise CheckError(f"{generated.title}: its smoke certificate failed: {certificate.summary()}")
    with contextlib.suppress(OutputError):
        cache.keep(key, {"graph": generated.name, "summary": certificate.summary(), "when": today()})
    return program


def _cases(generated: generate.GeneratedProgram, draw: Draw, most: int) -> Iterator[Case]:
    """Drawn inputs, after some of sizes at which launches run that do not run for that; where nothing is drawn, for no
    maker of inputs gives such, any that the graph takes."""
    graph, wanted = generated.graph, generated.wanted
    drawn = list(islice(draw(()), most))
    if not drawn:
        draw = partial(draw_graph, graph, {}, {})
        drawn = list(islice(draw(()), most))
    usual = [[arrays[node.output] for node in graph.inputs] for arrays in drawn]
    missed = sizes_missed(generated, [graph.bind([array.shape for array in arrays]) for arrays in usual])
    longer = [[arrays[node.output] for node in graph.inputs] for arrays in (draw(missed) if missed else ())]
    for number, inputs in enumerate([*longer, *usual]):
        yield Case(f"drawn {number}", tuple(lie(array, wanted.layout(at)) for at, array in enumerate(inputs)))
