"""A built program on tensors: kernels by their fast calls, or launched on a GPU, and torch between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.codegen.language import LANGUAGES
from noyau.compiler.lowering.input_layouts import INNER, PACKED, STRIDED, Layout, Order
from noyau.dtypes import DType
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.numpy.c_library import threads
from noyau.hosts.numpy.fast_calls import MISS, Argument
from noyau.hosts.torch.fast_calls import TensorFastCall
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Contract, Graph, Input, Iota, Node, View
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.loops import Kernel, Role
from noyau.ir.sizes import Sizes
from noyau.kernels.programs.generate import BuiltKernel, BuiltProgram
from noyau.kernels.programs.libraries import product, shows, slope_of
from noyau.kernels.programs.program import KernelStep, ProgramRunner, StepRun
from noyau.ops.dispatch.choice import USUAL


def along(dim: Dim, extents: Sequence[int], sizes: Mapping[str, int], device: torch.device) -> torch.Tensor:
    """An index over axes of these extents; a plain one is made on the device, as a CUDA graph wants it."""
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
    """A built program as a function of tensors of the device that it was made for, in the order of its inputs, that
    gives a list of new ones; no result shares memory with an input. `tiles`: as kernels on a GPU take them.

    What does not lie as the kernels want it is copied. Gradients are the caller's business: call it where none are
    recorded. A call raises InputError where shapes do not fit or an index is out of bounds; on a GPU, where indices are
    not looked at, what `Launcher` of noyau.hosts.torch.cuda.launch raises."""

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

    def in_layout(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors as the kernels take them."""
        return [laid_out(tensor, layout) for tensor, layout in zip(tensors, self.layouts, strict=True)]

    def followed(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Callable[..., tuple[Tensor, ...]] | None]:
        """The same, and what does it again on tensors that lie alike, where that is one launch or a few on a GPU."""
        inputs = self.in_layout(tensors)
        results = super().__call__(*inputs)
        if not self.is_single:
            return results, None
        step = self.steps[0][0]
        is_copied = any(one.data_ptr() != other.data_ptr() for one, other in zip(inputs, tensors, strict=True))
        return results, None if is_copied or not isinstance(step, DeviceStep) else step.launcher.known(inputs)


def laid_out(tensor: Tensor, layout: Layout) -> Tensor:
    """A tensor as kernels of this layout take it, its axes in the order of memory; a copy where it lies otherwise."""
    if layout.order is Order.PERMUTED:
        tensor = tensor.permute(layout.axes)
    return tensor.contiguous() if layout.order in (Order.PACKED, Order.PERMUTED) else tensor


class DeviceStep:
    """A kernel of a program on tensors of a GPU, packed where it wants them so and a library left them otherwise."""

    def __init__(self, built: BuiltProgram, kernel: Kernel, own: BuiltKernel, tiles: Mapping[str, int]) -> None:
        from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

        assert isinstance(own, DeviceKernel)
        self.launcher = own.launcher(built.generated.called, tiles)
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
    """Run by the fast call; packed where a library left it otherwise; as arrays where it takes none, which says why."""
    results = call(tuple(tensors))
    if results is MISS:
        results = call(tuple(tensor.contiguous() for tensor in tensors))
    if results is MISS:
        return _through_arrays(kernel, tensors)
    return results if isinstance(results, tuple) else [results]


def _through_arrays(kernel: BuiltKernel, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor_of(array) for array in kernel(*map(array_of, tensors), threads=threads())]


def _library(device: torch.device, graph: Graph, tensors: Sequence[Tensor], sizes: Sizes) -> list[Tensor]:
    """A library call by torch: one value of a graph of views and constants."""
    values = dict(zip((node.output for node in graph.inputs), tensors, strict=True))
    evaluator = Evaluator(False, sizes)
    for node in graph.nodes:
        if not isinstance(node.kind, Input):
            values[node.output] = _value(node, [values[name] for name in node.inputs], evaluator, device)
    result = values[graph.outputs[0]]
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
        case Constant(value):
            return tensor_of(value).to(device)
        case _:
            pass
    array = evaluator.value(node, [array_of(tensor.cpu()) for tensor in operands], {})
    return tensor_of(np.asarray(array, node.dtype.numpy)).to(device)


def view(tensor: Tensor, index: Sequence[Dim], shape: Sequence[int], sizes: Sizes) -> Tensor | None:
    """The cells of a tensor at `index`, over the axes of `shape`, as a view of it; None where no strides say that."""
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
    """An einsum of two operands by torch.matmul: in `dtype` where both have it, for half types with sums in float32 as
    torch has them; else in what arithmetic on it is done in."""
    own = TO_TORCH[dtype]
    inner = own if all(operand.dtype is own for operand in operands) else TO_TORCH[dtype.compute]
    how = product(equation)
    left, right = (how.matrices(at, each.to(inner), torch.permute) for at, each in enumerate(operands))
    return how.result(torch.matmul(left[0], right[0]), left[1] + right[2], torch.permute).to(own)
