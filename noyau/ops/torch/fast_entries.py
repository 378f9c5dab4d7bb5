"""Fast calls for tensors of the kernels chosen for a key: in C where one kernel is the whole program, else in Python.

On a GPU, the launches of earlier tensors of the same shapes are repeated."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.codegen.language import LANGUAGES
from noyau.compiler.lowering.input_layouts import INNER, PACKED, STRIDED, Layout, Order
from noyau.dtypes import DType
from noyau.errors import InputError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.numpy.fast_calls import MISS, Argument, read_argument, threads
from noyau.hosts.torch.cuda.device import device_errors
from noyau.hosts.torch.fast_calls import TensorFastCall, is_plain, through_arrays
from noyau.hosts.torch.tensors import array_like, array_of, tensor_of
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Contract, Graph, Input, Iota, Node, View
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.loops import Kernel, Role
from noyau.ir.sizes import Sizes
from noyau.kernels.call import CALLERS, caller_of, library_of
from noyau.kernels.programs.generate import CPU, BuiltKernel, BuiltProgram, Specialization
from noyau.kernels.programs.libraries import product, shows, slope_of
from noyau.kernels.programs.program import KernelStep, Program, ProgramRunner, StepRun
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch import fast_entries
from noyau.ops.dispatch.choice import USUAL, Choice, Selection
from noyau.ops.dispatch.fast_entries import arguments_of, of_sizes
from noyau.signatures.types import Signature
from noyau.verify.lookup_tables import lookups, require_inside


def along(dim: Dim, extents: Sequence[int], sizes: Mapping[str, int], device: torch.device) -> torch.Tensor:
    """An index over axes of these extents; a plain one is created on the device, as a CUDA graph requires."""
    axes = {}
    for k, extent in enumerate(extents):
        shape = [-1 if k == j else 1 for j in range(len(extents))]
        if dim == Dim.of(f"#{k}"):
            return torch.arange(extent, device=device).reshape(shape)
        axes[f"#{k}"] = np.arange(extent).reshape(shape)
    return torch.as_tensor(np.asarray(dim.evaluate({**sizes, **axes}), np.int64), device=device)


Tensor: TypeAlias = torch.Tensor
_LAYOUTS = {layout.order.value: layout for layout in (PACKED, INNER, STRIDED)}


class TensorProgram(ProgramRunner):
    """A built program as a function of tensors on its device, in the order of its inputs, that returns a list of new
    tensors; no result shares memory with an input. `tiles`: as kernels on a GPU take them.

    Inputs in another layout than the kernels' are copied. It records no gradients. A call raises InputError where
    shapes do not fit or an index is out of bounds; on a GPU, where indices are not checked, the errors of `Launcher` of
    noyau.hosts.torch.cuda.launch."""

    def __init__(self, built: BuiltProgram, tiles: Mapping[str, int] = USUAL) -> None:
        program, wanted = built.generated.program, built.generated.wanted
        self.device, self.is_single = torch.device(wanted.device), program.single is not None
        self.layouts = [wanted.layout(at) for at in range(len(program.graph.inputs))]
        on_gpu = LANGUAGES[built.generated.language].on_gpu
        calls = [
            DeviceStep(built, step.kernel, kernel, tiles) if on_gpu else _kernel(built, step, kernel)
            for step, kernel in zip(program.kernel_steps, built.kernels, strict=True)
        ]
        library = partial(partial, _library, self.device)
        super().__init__(program, calls, library, lambda value: tensor_of(value).to(self.device))

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        return super().__call__(*self.in_layout(tensors))

    def library_call(self, graph: Graph, program: Program, library: Callable[[Graph], StepRun]) -> StepRun:
        """Build the call at each use: a cached tensor might belong to another stream, or to a graph under capture."""
        return library(graph)

    def in_layout(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors in the layouts that the kernels take."""
        return [laid_out(tensor, layout) for tensor, layout in zip(tensors, self.layouts, strict=True)]

    def follow(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Callable[..., tuple[Tensor, ...]] | None]:
        """The results, and a function that repeats the call on tensors of equal layouts, if it is one GPU kernel."""
        inputs = self.in_layout(tensors)
        results = super().__call__(*inputs)
        if not self.is_single:
            return results, None
        step = self.steps[0][0]
        is_copied = any(one.data_ptr() != other.data_ptr() for one, other in zip(inputs, tensors, strict=True))
        return results, None if is_copied or not isinstance(step, DeviceStep) else step.launcher.known_call(inputs)


def laid_out(tensor: Tensor, layout: Layout) -> Tensor:
    """A tensor as kernels of this layout take it, its axes in the order of memory; a copy if it has another layout."""
    if layout.order is Order.PERMUTED:
        tensor = tensor.permute(layout.axes)
    return tensor.contiguous() if layout.order in (Order.PACKED, Order.PERMUTED) else tensor


class DeviceStep:
    """A kernel of a program on tensors of a GPU; inputs that a library left unpacked are packed where it needs that."""

    def __init__(self, built: BuiltProgram, kernel: Kernel, own: BuiltKernel, tiles: Mapping[str, int]) -> None:
        from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

        assert isinstance(own, DeviceKernel)
        self.launcher = own.launcher(built.generated.title, tiles)
        self.layouts = [buffer.layout for buffer in kernel.of(Role.INPUT)]

    def __call__(self, tensors: list[Tensor], sizes: Sizes) -> Sequence[Tensor]:
        return self.launcher([_as_wanted(each, layout) for each, layout in zip(tensors, self.layouts, strict=True)])


def _as_wanted(tensor: Tensor, layout: str) -> Tensor:
    fits = layout == Order.STRIDED.value or (layout == Order.INNER.value and tensor.stride()[-1:] in ((), (1,)))
    return tensor if fits else tensor.contiguous()


def _kernel(program: BuiltProgram, step: KernelStep, kernel: BuiltKernel) -> StepRun:
    if program.library is None:
        return lambda tensors, sizes: _through_arrays(kernel, tensors)
    pairs = zip(step.graph.inputs, [_LAYOUTS[buffer.layout] for buffer in step.kernel.of(Role.INPUT)], strict=True)
    ends = [Argument(node.dtype, len(node.shape), layout) for node, layout in pairs]
    return partial(_through, TensorFastCall(program.library, f"{step.kernel.name}_kernel", ends).call, kernel)


def _through(call: Callable[..., Any], kernel: BuiltKernel, tensors: list[Tensor], sizes: Sizes) -> Sequence[Tensor]:
    """Run by the fast call; on packed copies if a library left other layouts; else as arrays, whose error says why."""
    results = call(tuple(tensors))
    if results is MISS:
        results = call(tuple(tensor.contiguous() for tensor in tensors))
    if results is MISS:
        return _through_arrays(kernel, tensors)
    return results if isinstance(results, tuple) else [results]


def _through_arrays(kernel: BuiltKernel, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor_of(array) for array in kernel(*map(array_of, tensors), threads=threads())]


def _library(device: torch.device, graph: Graph, tensors: Sequence[Tensor], sizes: Sizes) -> list[Tensor]:
    """A library call by torch: the value of a graph of views, constants and one product."""
    values = dict(zip((node.output for node in graph.inputs), tensors, strict=True))
    evaluator, last = Evaluator(False, sizes), graph[graph.outputs[0]]
    if 0 in (shape := evaluator.shape(last)):
        return [torch.empty(shape, dtype=TO_TORCH[last.dtype], device=device)]
    for node in graph.nodes:
        if not isinstance(node.kind, Input):
            values[node.output] = _value(node, [values[name] for name in node.inputs], evaluator, device)
    result = values[last.output]
    return [result.clone(memory_format=torch.contiguous_format) if shows(graph) else result.contiguous()]


def _value(node: Node, operands: list[Tensor], evaluator: Evaluator, device: torch.device) -> Tensor:
    sizes = evaluator.sizes
    match node.kind:
        case Contract(equation) if node.dtype is not DType.BOOL:
            return contract(equation, operands, node.dtype)
        case View(index):
            seen = view(operands[0], index, evaluator.shape(node), sizes)
            if seen is not None:
                return seen
        case Iota(index) if device.type == "cuda":
            array = along(index, evaluator.shape(node), sizes, device)
            return array.to(TO_TORCH[node.dtype]).expand(evaluator.shape(node)).contiguous()
        case Constant(value) if value.ndim == 0:  # a copy from the host would wait for the device
            return torch.full((), value.item(), dtype=TO_TORCH[node.dtype], device=device)
        case Constant(value):
            return tensor_of(value).to(device)
        case _:
            pass
    array = evaluator.value(node, [array_of(tensor.cpu()) for tensor in operands], {})
    return tensor_of(np.asarray(array, node.dtype.numpy)).to(device)


def view(tensor: Tensor, index: Sequence[Dim], shape: Sequence[int], sizes: Sizes) -> Tensor | None:
    """The cells of a tensor at `index`, over the axes of `shape`, as a view of it; None if no strides express that."""
    if 0 in shape:
        return tensor.new_empty(tuple(shape))
    first = {**sizes, **{f"#{axis}": 0 for axis in range(len(shape))}}
    start, strides = tensor.storage_offset(), [0] * len(shape)
    for dim, stride in zip(index, tensor.stride(), strict=True):
        start += int(dim.evaluate(first)) * stride
        for axis in range(len(shape)):
            slope = slope_of(dim, axis)
            if slope is None:
                return None
            strides[axis] += int(slope.evaluate(sizes)) * stride
    return None if min(strides, default=0) < 0 else tensor.as_strided(tuple(shape), tuple(strides), start)


def contract(equation: str, operands: Sequence[Tensor], dtype: DType) -> Tensor:
    """An einsum of two operands by torch.matmul: in `dtype` if both have it, which for half types sums in float32, as
    torch does; else in the dtype that its arithmetic uses."""
    own = TO_TORCH[dtype]
    inner = own if all(operand.dtype is own for operand in operands) else TO_TORCH[dtype.compute]
    how = product(equation)
    left, right = (how.matrices(at, each.to(inner), torch.permute) for at, each in enumerate(operands))
    return how.result(torch.matmul(left[0], right[0]), left[1] + right[2], torch.permute).to(own)


Entry: TypeAlias = Callable[[tuple[Any, ...]], Any]


def entry(label: str, signature: Signature, chosen: Selection) -> Entry | None:
    """The entry that takes the tensors and numbers of a call as they are, and returns new tensors; MISS for another
    key. None where the reference runs."""
    fast_call: Entry | None = of_sizes(chosen, lambda choice: _fast_call(label, signature, choice, chosen), _by_size)
    return fast_call


def _fast_call(label: str, signature: Signature, choice: Choice, chosen: Selection) -> Entry | None:
    specialization = chosen.wanted
    match choice.runner:
        case None:
            return None
        case UserKernel(language=language) if LANGUAGES[language].is_native:
            path_and_symbol = library_of(choice.runner, specialization.instance, specialization.constants)
            return TensorFastCall(*path_and_symbol, arguments_of(signature, specialization, packed=True), label).call
        case UserKernel() if caller_of(choice.runner, gpu=True) is not None:
            return HandFastCall(choice.runner, specialization, arguments_of(signature, specialization), label)
        case BuiltProgram() if choice.runner.library is not None or specialization.device != CPU:
            return through_program(choice.runner, arguments_of(signature, specialization), label, choice.tiles)
        case _:
            alone = fast_entries.entry(label, signature, replace(chosen, choices=((choice, float("inf")),)))
            return None if alone is None else partial(through_arrays, alone)


def refusal(label: str, device: str, chosen: Selection) -> str:
    """The message for a call on a GPU for which no kernel may run."""
    message = "; ".join(f"{kernel}: {reason}" for kernel, reason in chosen.rejected) or "nothing is generated"
    return f"{label}: no kernel may run on {device} ({message}); copy the tensors to the CPU, or use noyau.reference()"


def call_or_refuse(fast_call: Entry, arguments: tuple[Any, ...]) -> Any:
    """Call an entry that missed, so that its error says why. UnsupportedError if it cannot say."""
    if isinstance(fast_call, DeviceFastCall):
        return fast_call.insist(arguments)
    raise UnsupportedError("no kernel takes these tensors as they lie; give packed ones: x.contiguous()")


def through_program(program: BuiltProgram, ends: Sequence[Argument], label: str, tiles: Sizes = USUAL) -> Entry:
    """The fast call of a built program, in C or on a GPU."""
    if LANGUAGES[program.generated.language].on_gpu:
        return DeviceFastCall(program, ends, label, tiles)
    kernel = program.generated.program.single
    if kernel is not None and program.library is not None:
        return TensorFastCall(program.library, f"{kernel.name}_kernel", ends, label).call
    return partial(_call_program, ends, TensorProgram(program))


def _call_program(ends: Sequence[Argument], run: Callable[..., list[torch.Tensor]], arguments: tuple[Any, ...]) -> Any:
    """A fast call in Python, to a program of several steps. What it cannot take is a MISS; full dispatch says why."""
    if len(arguments) != len(ends):
        return MISS
    tensors = [_read(end, each) for end, each in zip(ends, arguments, strict=True)]
    if any(each is None for each in tensors):
        return MISS
    try:
        results = run(*tensors)
    except InputError:
        return MISS
    return results[0] if len(results) == 1 else tuple(results)


def _read(end: Argument, each: Any) -> torch.Tensor | None:
    """An argument as a program takes it, or None for another key."""
    if not isinstance(each, torch.Tensor):
        array = read_argument(end, each)
        return None if array is None else tensor_of(array)
    return each.detach() if is_plain(each) and read_argument(end, array_of(each)) is not None else None


def _by_size(fast_calls: Sequence[tuple[Entry, float]], arguments: tuple[Any, ...]) -> Any:
    """The fast call for the size of the largest tensor."""
    cells = max((each.numel() for each in arguments if isinstance(each, torch.Tensor)), default=0)
    return next(fast_call for fast_call, most in fast_calls if cells <= most)(arguments)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
MOST = 1024  # kinds of calls whose launches are cached
MOST_SCALARS = 64
_ALIGNED = 15


class DeviceFastCall:
    """A built program on tensors of a GPU: `fast_call(arguments)` takes a tuple of tensors, and Python numbers where
    `ends` has scalars, and returns a new tensor, or a tuple of several; MISS where an argument does not match `ends`,
    sizes are refused, its launches have no certificate for them, or torch requires the same bits in every run and the
    program does not guarantee them. A tensor without axes may be on the CPU. OutsideError for an index outside its
    axis, at the first call with such tensors, for kernels read 0 there; with CUDA_LAUNCH_BLOCKING=1 at each call."""

    def __init__(self, built: BuiltProgram, ends: Sequence[Argument], called: str, tiles: Sizes) -> None:
        self.ends, self.called = tuple(ends), called
        self.device = torch.device(built.generated.wanted.device)
        self.run, self.generated = TensorProgram(built, tiles), built.generated
        self.known: dict[Any, Callable[..., tuple[torch.Tensor, ...]]] = {}
        self.scalars: dict[Any, torch.Tensor] = {}
        self.looks_up = any(lookups(self.generated.graph))
        waits = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")  # after each launch, to locate an error
        # Else a cell's value selects the kernel, or each index is checked at each call.
        self.repeats = all(end.equals is None for end in self.ends) and not (self.looks_up and waits)

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        kinds: list[Any] = [torch.are_deterministic_algorithms_enabled()]
        are_tensors = True
        for each in arguments:
            if type(each) in _PLAIN:
                place = each.data_ptr()  # 0 for no cells, and for zeros without memory
                whole = not place & _ALIGNED if place else None
                kinds.append((each.get_device(), each.dtype, each.shape, each.stride(), whole))
            else:
                are_tensors = False
                kinds.append(type(each))
        key = tuple(kinds)
        plan = self.known.get(key)
        if plan is None:
            return self.anew(arguments, key)
        tensors: Any = arguments if are_tensors else self.read(arguments, looked_at=True)
        if tensors is None or plan is miss:
            return MISS
        results = plan(tensors)
        return results[0] if len(results) == 1 else results

    def anew(self, arguments: tuple[Any, ...], key: Any) -> Any:
        """The results for a kind of call that is not cached."""
        tensors = self.read(arguments)
        if tensors is None:
            return MISS
        try:
            is_other = torch.are_deterministic_algorithms_enabled() and not self.generated.is_deterministic
            if is_other or not self.generated.is_certified_at(self.sizes(tensors)):
                self.keep(key, miss)
                return MISS
            results, plan = self.run.follow(tensors)
        except InputError:
            return MISS
        repeats = self.require_inside(tensors) and self.repeats
        if repeats and all(each.device == self.device for each in arguments if isinstance(each, torch.Tensor)):
            self.keep(key, plan or self.run_program)
        return results[0] if len(results) == 1 else tuple(results)

    def keep(self, key: Any, plan: Callable[..., tuple[torch.Tensor, ...]]) -> None:
        """Cache the function that is called for such tensors."""
        self.known = {**(self.known if len(self.known) < MOST else {}), key: plan}

    def sizes(self, tensors: Sequence[torch.Tensor]) -> Sizes:
        """The sizes of a call with these tensors. InputError where they do not fit together."""
        return {**self.generated.wanted.sizes, **self.generated.graph.bind([tensor.shape for tensor in tensors])}

    def require_inside(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Check each index, except while a CUDA graph is captured, which gives False: the next call has to check.
        OutsideError where one is outside its axis."""
        if self.looks_up and is_captured(self.device):
            return False
        if self.looks_up:
            graph = self.generated.graph
            known = dict(zip((node.output for node in graph.inputs), tensors, strict=True))
            require_inside(graph, self.sizes(tensors), lambda name: array_of(known[name].cpu()), self.called)
        return True

    def run_program(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run a program of several steps on tensors that were checked."""
        return tuple(self.run(*[tensor.detach() if tensor.requires_grad else tensor for tensor in tensors]))

    def insist(self, arguments: tuple[Any, ...]) -> Any:
        """The results, or an error that says why there are none."""
        tensors = self.read(arguments)
        if tensors is None:
            raise InputError(f"{self.called}: these tensors do not fit its kernel")
        self.require_inside(tensors)
        return self.launch(tensors)

    def launch(self, tensors: Sequence[Any]) -> Any:
        """The results, in new tensors."""
        results = self.run(*tensors)
        return results[0] if len(results) == 1 else tuple(results)

    def read(self, arguments: tuple[Any, ...], *, looked_at: bool = False) -> list[torch.Tensor] | None:
        """The arguments as tensors on the device, or None if one does not fit; `looked_at`: tensors surely do."""
        if len(arguments) != len(self.ends):
            return None
        pairs = zip(self.ends, arguments, strict=True)
        tensors = [e if looked_at and isinstance(e, torch.Tensor) else self.tensor(end, e) for end, e in pairs]
        return None if any(each is None for each in tensors) else tensors

    def tensor(self, end: Argument, each: Any) -> torch.Tensor | None:
        """An argument as a tensor on the device, or None if it does not fit."""
        if isinstance(each, np.ndarray | np.generic):
            return None
        if not isinstance(each, torch.Tensor):
            return self.scalar(end, each)
        is_there = each.device == self.device or not each.dim()
        if type(each) not in _PLAIN or each.is_neg() or each._is_zerotensor() or not is_there:
            return None
        there = array_of(each.cpu()) if end.equals is not None else array_like(each)
        return None if read_argument(end, there) is None else each.detach().to(self.device)

    def scalar(self, end: Argument, number: Any) -> torch.Tensor | None:
        """A Python number as a tensor, cached for calls with that number on this stream. A CUDA graph under capture
        gets a tensor of its own, for it outlives the cache."""
        if is_captured(self.device):
            return number_tensor(end, number, self.device)
        exact = number.hex() if isinstance(number, float) else number
        key = (end.dtype, type(number), exact, current_stream(self.device))
        tensor = self.scalars.get(key)
        if tensor is None:
            tensor = number_tensor(end, number, self.device)
            if tensor is not None:
                self.scalars = {**(self.scalars if len(self.scalars) < MOST_SCALARS else {}), key: tensor}
        return tensor


def miss(_: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Marks tensors that another program is certified for."""
    raise NotImplementedError("a fast call misses such tensors before it calls anything")


def number_tensor(end: Argument, number: Any, device: torch.device) -> torch.Tensor | None:
    """A Python number as a tensor, or None if it does not fit."""
    read = read_argument(end, number)
    return None if read is None else torch.full((), read.item(), dtype=TO_TORCH[end.dtype], device=device)


def is_captured(device: torch.device) -> bool:
    """Whether calls on the current stream of a device are captured in a CUDA graph."""
    return device.type == "cuda" and bool(torch.cuda.is_current_stream_capturing())


def current_stream(device: torch.device) -> int:
    """The number of the current stream of a device."""
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0


class HandFastCall(DeviceFastCall):
    """A user's kernel on tensors, and on numbers where `ends` has scalars: as `DeviceFastCall`."""

    def __init__(self, kernel: UserKernel, wanted: Specialization, ends: Sequence[Argument], called: str) -> None:
        self.ends, self.called, self.device = tuple(ends), called, torch.device(wanted.device)
        self.looks_up = False
        self.run = CALLERS[kernel.language].on_tensors(kernel, wanted.instance, wanted.constants)

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        inputs = self.read(arguments)
        return MISS if inputs is None else self.launch(inputs)

    def launch(self, tensors: Sequence[Any]) -> Any:
        """The results, in new tensors."""
        with device_errors(self.called, self.device):
            return super().launch(tensors)

    def tensor(self, end: Argument, each: Any) -> Any:
        """An argument as the kernel takes it, a number as a number; or None if it does not fit."""
        if isinstance(each, torch.Tensor):
            return super().tensor(end, each)
        number = read_argument(end, each)
        return None if number is None else number.item()
