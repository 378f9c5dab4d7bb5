"""A graph as kernels on tensors: built once for each layout of its inputs, and certified as generated kernels are.

Small inputs for the smoke certificates of forward and backward graphs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as memoise
from functools import cached_property, partial
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch._C._functorch import is_legacy_batchedtensor  # made by autograd.grad(is_grads_batched=True)
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad

from noyau.compiler.autodiff.adjoints import DerivedGradient, derive, gradient_name, with_free_gradients
from noyau.compiler.lowering.input_layouts import Layout, layout_of
from noyau.compiler.schedules.gpu.block_rows import sums_rows
from noyau.compiler.schedules.gpu.rows_and_columns import MOST as LONG
from noyau.dtypes import DType
from noyau.errors import BuildError, CheckError, MissingExtraError, NoyauError, OutputError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.numpy.fast_calls import MISS, Argument
from noyau.hosts.torch import tensors as host_tensors
from noyau.hosts.torch.operator_registry import TorchOperator, register, results_of_graph
from noyau.hosts.torch.tensors import device_of, has_tangent, in_memory, is_negated, is_recorded, layout_array
from noyau.ir.graph import Constant, Graph, Node
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.sizes import Sizes
from noyau.kernels.certificates import hint, maker_inputs, maker_inputs_at, sizes_at_edges, sizes_missed
from noyau.kernels.programs import generate
from noyau.kernels.reference import Description
from noyau.ops.dispatch.choice import machine_of
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
Draw: TypeAlias = Callable[[Sequence[Sizes]], Drawn]  # at usual sizes, or at each of the given sizes
MOST = 6
CELLS = 1 << 12  # of the largest array
NOTHING: Sizes = MappingProxyType({})
Call = Callable[[Sequence[Any]], Any]  # from arguments in order to one tensor or a tuple of them


def draw_op(
    description: Description, specialization: generate.Specialization, graph: Graph, extra: Sequence[Sizes] = ()
) -> Drawn:
    """Inputs of an op: by its own function if that makes some of these dtypes and ranks, else random for its graph."""
    usual = maker_inputs(description, specialization)
    first = next(usual, None)
    if first is None:
        yield from draw_graph(graph, specialization.integers, specialization.sizes, extra)
        return
    inputs = (maker_inputs_at(description, specialization, graph, sizes) for sizes in extra)
    for _, arrays in chain.from_iterable(inputs) if extra else chain([first], usual):
        yield dict(zip((node.output for node in graph.inputs), arrays, strict=True))


def draw_graph(graph: Graph, integers: Sizes, called: Sizes = NOTHING, extra: Sequence[Sizes] = ()) -> Drawn:
    """Random inputs for a graph, at usual sizes, or at the sizes `called` if it holds for no others, and at edges; or
    at each of the `extra` sizes, as far as it has them. `integers` keep their values."""
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
    """Inputs for a backward graph: those of the forward one, its results, and random gradients of its outputs."""
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
FEW = 2  # cases of a smoke certificate on a GPU, where each compiles its own launches
FAST_CALLS = 8  # kept, the newest first


class GraphKernels:
    """A graph called on plain tensors, in the order of its inputs: one new tensor, or a tuple of several.

    The first call with inputs of some layouts on a device builds their kernels, on the CPU in C or, without a compiler,
    for Numba, on a GPU in Triton, and certifies them on the inputs of `draw`: BuildError where nothing can be built,
    UnsupportedError for a graph without a kernel, CheckError where the certificate fails. InputError where shapes do
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
        """The results by a new fast call, which is kept for later calls."""
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
        """The results by a new fast call on a device with memory."""
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
        """The certified kernels for inputs of these layouts, built once; on a GPU, once for sizes of equal launches."""
        with self.lock:
            programs = self.programs.setdefault((layouts, device, torch.are_deterministic_algorithms_enabled()), [])
            built = next((each for each in programs if each.generated.is_certified_at(sizes)), None)
            if built is None:
                built = certify(self.first(layouts, device, sizes), self.draw)
                programs.append(built)
            return built

    def first(self, layouts: tuple[Layout, ...], device: str, sizes: Sizes) -> generate.BuiltProgram:
        """The kernels in the first language that can be built here; CUDA C++ first where it reads long rows once."""
        faults: list[UnsupportedError | BuildError | MissingExtraError] = []
        languages = generate.in_order(generate.languages_on(device), lambda: self.graph)
        is_deterministic = torch.are_deterministic_algorithms_enabled()

        @memoise
        def text_in(language: str) -> generate.GeneratedProgram:
            call = (self.graph, self.called, layouts, language, device, sizes)
            return generate.generate_from_graph(*call, is_deterministic=is_deterministic)

        if "cuda" in languages and len(self.graph.outputs) > 1 and max(sizes.values(), default=0) > LONG:
            with contextlib.suppress(UnsupportedError):
                kernels = text_in("cuda").program.kernels
                if any(sums_rows(each, sizes) for each in kernels):
                    languages = [*dict.fromkeys(("cuda", *languages))]
        for language in languages:
            try:
                return generate.build(text_in(language))
            except (UnsupportedError, BuildError, MissingExtraError) as error:
                faults.append(error)
        message = "; ".join(f"{language}: {error}" for language, error in zip(languages, faults, strict=True))
        kind = UnsupportedError if isinstance(faults[0], UnsupportedError) else BuildError
        raise kind(f"{self.called} cannot be built ({message})") from faults[0]


def certify(program: generate.BuiltProgram, draw: Draw) -> generate.BuiltProgram:
    """The program, once it has passed its smoke certificate on this machine. CheckError where it does not."""
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
    """Drawn inputs, preceded by some at sizes of launches that these do not run; if nothing is drawn, since no maker of
    inputs fits, random ones for the graph."""
    graph = generated.graph
    drawn = list(islice(draw(()), most))
    if not drawn:
        draw = partial(draw_graph, graph, {}, {})
        drawn = list(islice(draw(()), most))
    usual = [[arrays[node.output] for node in graph.inputs] for arrays in drawn]
    missed = sizes_missed(generated, [graph.bind([array.shape for array in arrays]) for arrays in usual])
    longer = [[arrays[node.output] for node in graph.inputs] for arrays in (draw(missed) if missed else ())]
    for number, inputs in enumerate([*longer, *usual]):
        yield Case(f"drawn {number}", tuple(inputs))


_GOLDEN = 0.6180339887498949  # the fractions of its multiples are spread evenly
Results = tuple[Any, Any]  # the results, and the axis of the batch in each


def call_batch(call: Callable[..., Any], info: Any, dims: Any, *args: Any, **constants: Any) -> Results:
    """The results for batched arguments, with the batch as the first axis, by one call for each element of it.

    An empty batch is refused, for the dtypes and shapes of its results are unknown."""
    if not info.batch_size:
        raise RuntimeError("vmap over no cells at all: there is nothing to call the operator on")
    pairs = zip(args, dims, strict=True)
    parts = [(each,) * info.batch_size if dim is None else each.unbind(dim) for each, dim in pairs]
    calls = [call(*arguments, **constants) for arguments in zip(*parts, strict=True)]
    if isinstance(calls[0], tuple):
        return tuple(torch.stack(results) for results in zip(*calls, strict=True)), (0,) * len(calls[0])
    return torch.stack(calls), 0


@dataclass(frozen=True, slots=True)
class AutogradPlan:
    """The plan of a recorded call. `inputs` and `outputs`: the nodes, in order; `kept`: the values that the forward run
    returns after the outputs; `direct` runs forward where no feature of torch intervenes, `forward` anywhere;
    `backward`: from some of all these and the gradients of the outputs to those of `wanted`; `again`: the same from
    inputs and gradients alone, for kept values have no gradients.

    Values are numbered: inputs, outputs, kept ones. `saved`: saved values; `floats`: which outputs have gradients."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    kept: tuple[str, ...]
    wanted: tuple[str, ...]
    direct: Call
    forward: Call
    backward: GraphOperator
    again: GraphOperator
    saved: tuple[tuple[str, int], ...]
    floats: tuple[bool, ...]


# torch.func handles this class one level at a time; torch 2.15 asks a plain Function to split itself into levels.
class AutogradCall(torch.autograd.function._SingleLevelFunction):  # type: ignore[misc]
    """A call that autograd records: `apply(plan, is_direct, *arguments)`."""

    _compiled_autograd_key = torch.autograd.Function._compiled_autograd_key

    @staticmethod
    def forward(ctx: Any, plan: AutogradPlan, is_direct: bool, *arguments: Any) -> Any:
        whole = (plan.direct if is_direct else plan.forward)(arguments)
        results = whole if isinstance(whole, tuple) else (whole,)
        values = (*arguments, *results)
        saved = [values[place] for _, place in plan.saved]
        ctx.plan = plan
        ctx.numbers = [None if isinstance(each, torch.Tensor) else each for each in saved]
        ctx.save_for_backward(*(each for each in saved if isinstance(each, torch.Tensor)))
        count = len(plan.outputs)
        if not all(plan.floats):
            pairs = zip(results, plan.floats, strict=False)
            ctx.mark_non_differentiable(*(each for each, is_float in pairs if not is_float))
        return results[0] if count == 1 else results[:count]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        plan: AutogradPlan = ctx.plan
        tensors = iter(ctx.saved_tensors)
        values = {
            name: next(tensors) if number is None else as_tensor(number, plan.inputs[place].dtype)
            for (name, place), number in zip(plan.saved, ctx.numbers, strict=True)
        }
        for node, gradient in zip(plan.outputs, gradients, strict=True):
            if node.dtype.is_float:
                name = gradient_name(node.output)
                values[name] = values[name] + gradient if name in values else gradient
        back = plan.again if plan.kept and torch.is_grad_enabled() else plan.backward
        whole = back(*(values[name] for name in back.names))
        by_name = dict(zip(plan.wanted, whole if isinstance(whole, tuple) else (whole,), strict=True))
        return None, None, *(by_name.get(node.output) for node in plan.inputs)


def record_call(plan: AutogradPlan, arguments: Sequence[Any]) -> Any:
    """The results of a recorded call if more of torch may intervene: torch.func handles it as torch's own operators."""
    if not torch._C._are_functorch_transforms_active():
        return _apply(plan, False, *arguments)
    with enable_single_level_autograd_function():
        return _apply(plan, False, *arguments)


def record_directly(plan: AutogradPlan, arguments: Sequence[Any]) -> Any:
    """The results of a recorded call where only autograd intervenes."""
    return _apply(plan, True, *arguments)


_apply = AutogradCall.apply


@contextlib.contextmanager
def below_autograd() -> Any:
    """The level at which a recorded call runs forward: this level records nothing, those around it do."""
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
        yield


def as_tensor(each: Any, dtype: DType) -> torch.Tensor:
    """A tensor as it is, or a number as a tensor without axes."""
    return each if isinstance(each, torch.Tensor) else torch.full((), each, dtype=TO_TORCH[dtype], device="cpu")


Planner = Callable[[Sequence[Any], tuple[bool, ...]], AutogradPlan]  # from arguments, and which of them are derived by


def with_derivatives(arguments: Sequence[Any], call: Callable[..., Any], plan: Planner) -> Any:
    """The results if autograd records them, or if they carry forward-mode tangents; else None."""
    if has_tangent(arguments):
        return with_tangents(arguments, call, plan)
    return record_call(plan(arguments, requires_of(arguments)), arguments) if is_recorded(arguments) else None


def requires_of(arguments: Sequence[Any]) -> tuple[bool, ...]:
    return tuple(isinstance(each, torch.Tensor) and each.requires_grad for each in arguments)


def with_tangents(arguments: Sequence[Any], call: Callable[..., Any], plan: Planner) -> Any:
    """The results of `call` with their forward-mode derivatives: the gradients of inputs are linear in those of the
    outputs, and the transpose of that map is the forward derivative."""
    duals = [forward_ad.unpack_dual(each) if isinstance(each, torch.Tensor) else (each, None) for each in arguments]
    primals = [primal for primal, _ in duals]
    asks = tuple(tangent is not None for _, tangent in duals)  # integers have no tangents
    known = plan(primals, asks)
    whole = call(*primals)
    results = whole if isinstance(whole, tuple) else (whole,)
    again, seeds = known.again, dict[str, torch.Tensor]()
    values = {node.output: as_tensor(each, node.dtype) for node, each in zip(known.inputs, primals, strict=True)}
    wanted = (tangent for _, tangent in duals if tangent is not None)
    values |= {gradient_name(name): each for name, each in zip(again.graph.outputs, wanted, strict=True)}
    for node, result in zip(known.outputs, results, strict=True):
        if node.dtype.is_float and gradient_name(node.output) in again.names:
            values[gradient_name(node.output)] = seeds[gradient_name(node.output)] = _distinct_numbers(result)
    if seeds:
        forward = again.plan(tuple(values[name] for name in again.names), tuple(name in seeds for name in again.names))
        tangents = forward.again(*(values[name] for name in forward.again.names))
        seeds = dict(zip(forward.wanted, tangents if isinstance(tangents, tuple) else (tangents,), strict=True))
    tangents = [seeds.get(gradient_name(node.output)) for node in known.outputs]
    duals = [r if t is None else forward_ad.make_dual(r, t) for r, t in zip(results, tangents, strict=True)]
    return tuple(duals) if isinstance(whole, tuple) else duals[0]


def _distinct_numbers(like: torch.Tensor) -> torch.Tensor:
    """Arbitrary seeds of a linear map's derivative, which does not depend on them. All differ and none is 0, for a
    gradient may mask on 0, and equal seeds may cancel."""
    places = torch.arange(like.numel(), dtype=torch.float64, device=like.device).reshape(like.shape)
    return (places * _GOLDEN % 1 + 0.5).to(like.dtype)


class GraphOperator:
    """A graph as an operator of torch, which autograd can record again: `operator(*tensors)`."""

    def __init__(self, graph: Graph, called: str, draw: Draw) -> None:
        graph = with_free_gradients(graph)
        self.graph, self.called, self.draw = graph, called, draw
        self.names = tuple(node.output for node in graph.inputs)
        self.kernels = GraphKernels(graph, called, draw)
        self.plans: dict[tuple[bool, ...], AutogradPlan] = {}
        self.lock = threading.RLock()

    def __call__(self, *tensors: torch.Tensor) -> Any:
        if not host_tensors.is_unwatched(tensors) or any(map(is_legacy_batchedtensor, tensors)):
            return self.overload(*tensors)
        if is_recorded(tensors):
            return record_directly(self.plan(tensors, requires_of(tensors)), tensors)
        return self.kernels(*tensors)

    @cached_property
    def overload(self) -> Any:
        """The operator in torch's registry, shared by equal graphs: graphs that torch keeps on disk refer to it by the
        same name in each process, whatever was registered before."""
        constants = [node.kind.value.tobytes() for node in self.graph.nodes if isinstance(node.kind, Constant)]
        key = digest(repr(self.graph), *constants)  # repr leaves out cells of large arrays
        tensors, count = ("Tensor",) * len(self.names), len(self.graph.outputs)
        runs = self.kernels, self.fake, self.record, partial(call_batch, self)
        return register(TorchOperator(self.called, key, tensors, (), count, *runs), shared=True)

    def register(self) -> None:
        """Register the operator before it is called: graphs that torch keeps on disk call it by name."""
        _ = self.overload

    def fake(self, *tensors: torch.Tensor) -> Any:
        results = results_of_graph(self.graph, tensors)
        return results[0] if len(results) == 1 else tuple(results)

    def record(self, tensors: Sequence[Any], constants: Any) -> Any:
        """The results if autograd records them, or if they carry tangents, else None."""
        del constants  # a graph has none
        return with_derivatives(tensors, self, self.plan)

    def plan(self, tensors: Sequence[torch.Tensor], key: tuple[bool, ...]) -> AutogradPlan:
        """The plan for the inputs that it is derived by, made once."""
        del tensors  # a graph is the same for all
        with self.lock:
            if key not in self.plans:
                wanted = [name for name, asks in zip(self.names, key, strict=True) if asks]
                self.plans[key] = plan_of(self.graph, wanted, self.called, self.draw, self.direct, self.forward)
            return self.plans[key]

    def direct(self, tensors: Sequence[Any]) -> Any:
        return self.kernels(*tensors)

    def forward(self, tensors: Sequence[Any]) -> Any:
        with below_autograd():
            return self.overload(*tensors)


def plan_of(
    graph: Graph,
    wanted: Sequence[str],
    label: str,
    draw: Draw,
    direct: Call,
    forward: Call,
    how: Callable[[Graph, Sequence[str]], DerivedGradient] = derive,
) -> AutogradPlan:
    """Plan the recording of a graph if the gradients of `wanted` are required; `direct` and `forward` run the graph
    itself, if only inputs and outputs are saved. UnsupportedError names a value without a derivative."""
    try:
        derived = how(graph, wanted)
    except UnsupportedError as error:
        message = f"call it under torch.no_grad() or on {wanted[0]}.detach(), or give a gradient by @{label}.gradient"
        raise UnsupportedError(f"{label} has no gradient by {', '.join(wanted)}: {error}; {message}") from error
    count = len(graph.outputs)
    names, kept = derived.forward.outputs[:count], derived.forward.outputs[count:]
    draw_again = partial(draw_back, derived.forward, names, draw)
    if kept:
        saving = GraphOperator(derived.forward, f"{label}_saving", draw)
        direct, forward = (partial(_with_numbers, each, graph.inputs) for each in (saving.direct, saving.forward))
        saving.register()
    backward = GraphOperator(derived.backward, f"{label}_backward", draw_again)
    again = GraphOperator(derived.gradient, f"{label}_gradient", draw_again)
    backward.register()
    again.register()
    outputs = tuple(derived.forward[name] for name in names)
    saved = _saved_values([*backward.names, *(again.names if kept else ())], graph, [*names, *kept])
    floats = tuple(node.dtype.is_float for node in outputs)
    return AutogradPlan(graph.inputs, outputs, kept, derived.wanted, direct, forward, backward, again, saved, floats)


def _saved_values(read: Sequence[str], graph: Graph, results: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The saved values, each with its number; the gradients are not among them."""
    places = {name: place for place, name in reversed([*enumerate([*(n.output for n in graph.inputs), *results])])}
    return tuple((name, places[name]) for name in dict.fromkeys(read) if name in places)


def _with_numbers(run: Call, inputs: Sequence[Node], arguments: Sequence[Any]) -> Any:
    """Run a graph that takes only tensors on numbers too."""
    return run([as_tensor(each, node.dtype) for node, each in zip(inputs, arguments, strict=True)])
