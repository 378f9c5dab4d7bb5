"""A built program on tensors: kernels by their doors, or launched on a GPU, and torch between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.codegen.language import LANGUAGES
from noyau.compiler.lowering.input_layouts import INNER, PACKED, STRIDED, Layout, Order
from noyau.dtypes import DType
from noyau.frontends.torch.dtypes import TO_TORCH
from noyau.hosts.numpy.c_library import threads
from noyau.hosts.numpy.fast_calls import MISS, Argument
from noyau.hosts.torch.fast_calls import TensorDoor
from noyau.hosts.torch.scatter_fallback import along, scatter
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Contract, Graph, Input, Iota, Node, Scatter, View
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.loops import Kernel, Role
from noyau.kernels.programs.generate import BuiltKernel, BuiltProgram
from noyau.kernels.programs.libraries import product, slope_of
from noyau.kernels.programs.program import KernelStep
from noyau.ops.dispatch.choice import USUAL
from noyau.ops.dispatch.fast_entries import solver

Tensor: TypeAlias = torch.Tensor
Sizes = Mapping[str, int]
Step = Callable[[list[Tensor], Sizes], Sequence[Tensor]]
_LAYOUTS = {layout.order.value: layout for layout in (PACKED, INNER, STRIDED)}


def host(program: BuiltProgram, tiles: Mapping[str, int] = USUAL) -> TensorProgram:
    """A built program as a function of tensors of the device that it was made for, in the order of its inputs, that
    gives a list of new ones; no result shares memory with an input. `tiles`: as kernels on a GPU take them.

    What does not lie as the kernels want it is copied. Gradients are the caller's business: call it where none are
    recorded. The function raises InputError where shapes do not fit or an index is out of bounds; on a GPU, where
    indices are not looked at, what `triton_launching.Launcher` raises."""
    return TensorProgram(program, tiles)


class TensorProgram:
    """The program with everything looked up that does not depend on a call."""

    def __init__(self, built: BuiltProgram, tiles: Mapping[str, int] = USUAL) -> None:
        program = built.generated.program
        graph, wanted = program.graph, built.generated.wanted
        self.device, self.is_single = torch.device(wanted.device), program.single is not None
        self.solve = solver(graph)
        self.layouts = [wanted.layout(at) for at in range(len(graph.inputs))]
        constants = {n.output: n.kind.value for n in graph.nodes if isinstance(n.kind, Constant)}
        made = [name for step in program.steps for name in step.graph.outputs]
        names = [node.output for node in graph.inputs]
        places = {name: at for at, name in enumerate(dict.fromkeys([*names, *constants, *made]))}
        self.room = [None] * (len(places) - len(names))
        self.constants = [(places[name], tensor_of(value).to(self.device)) for name, value in constants.items()]
        self.steps = [
            (call, [places[n.output] for n in step.graph.inputs], [places[name] for name in step.graph.outputs])
            for call, step in zip(_calls(built, tiles), program.steps, strict=True)
        ]
        self.results = [places[name] for name in graph.outputs]

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        given = [laid_out(tensor, layout) for tensor, layout in zip(tensors, self.layouts, strict=True)]
        sizes = self.solve(given)
        values: list[Any] = [*given, *self.room]
        for place, value in self.constants:
            values[place] = value
        for call, read, made in self.steps:
            results = call([values[place] for place in read], sizes)
            for place, result in zip(made, results, strict=True):
                values[place] = result
        return [values[place] for place in self.results]

    def followed(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Callable[..., tuple[Tensor, ...]] | None]:
        """The same, and what does it again on tensors of the same shapes that lie alike, where that is one launch or a
        few on a GPU."""
        results = self(*tensors)
        if not self.is_single:
            return results, None
        step = self.steps[0][0]
        given = [laid_out(tensor, layout) for tensor, layout in zip(tensors, self.layouts, strict=True)]
        copied = any(one.data_ptr() != other.data_ptr() for one, other in zip(given, tensors, strict=True))
        return results, None if copied or not isinstance(step, DeviceStep) else step.again(given)


def laid_out(tensor: Tensor, layout: Layout) -> Tensor:
    """A tensor as kernels of this layout take it, its axes in the order of memory; a copy where it lies otherwise."""
    match layout.order:
        case Order.PACKED:
            return tensor.contiguous()
        case Order.PERMUTED:
            return tensor.permute(layout.axes).contiguous()
        case _:
            return tensor


def _calls(program: BuiltProgram, tiles: Mapping[str, int]) -> list[Step]:
    kernels, device = iter(program.kernels), torch.device(program.generated.wanted.device)
    if LANGUAGES[program.generated.language].on_gpu:
        return [
            DeviceStep(program, step.kernel, tiles)
            if isinstance(step, KernelStep)
            else partial(_library, step.graph, device)
            for step in program.generated.program.steps
        ]
    return [
        _kernel(program, step, next(kernels)) if isinstance(step, KernelStep) else partial(_library, step.graph, device)
        for step in program.generated.program.steps
    ]


class DeviceStep:
    """A kernel of a program on tensors of a GPU, packed where it wants them so and a library left them otherwise."""

    def __init__(self, built: BuiltProgram, kernel: Kernel, tiles: Mapping[str, int]) -> None:
        from noyau.hosts.torch.cuda.launch import Launcher

        self.launcher = Launcher(built.generated.text, kernel, built.generated.called, tiles)
        self.layouts = [buffer.layout for buffer in kernel.of(Role.INPUT)]

    def __call__(self, tensors: list[Tensor], sizes: Sizes) -> Sequence[Tensor]:
        return self.launcher([_as_wanted(each, layout) for each, layout in zip(tensors, self.layouts, strict=True)])

    def again(self, tensors: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]] | None:
        """Launch again for such tensors."""
        return self.launcher.known(tensors)


def _as_wanted(tensor: Tensor, layout: str) -> Tensor:
    fits = layout == Order.STRIDED.value or (layout == Order.INNER.value and tensor.stride()[-1:] in ((), (1,)))
    return tensor if fits else tensor.contiguous()


def _kernel(program: BuiltProgram, step: KernelStep, kernel: BuiltKernel) -> Step:
    if program.library is None:
        return lambda given, sizes: _through_arrays(kernel, given)
    layouts = [_LAYOUTS[buffer.layout] for buffer in step.kernel.of(Role.INPUT)]
    pairs = zip(step.graph.inputs, layouts, strict=True)
    ends = [Argument(node.dtype, len(node.shape), layout) for node, layout in pairs]
    return partial(_through, TensorDoor(program.library, f"{step.kernel.name}_kernel", ends).call, kernel)


def _through(door: Callable[..., Any], kernel: BuiltKernel, tensors: list[Tensor], sizes: Sizes) -> Sequence[Tensor]:
    """By the door; packed where a library left it otherwise; as arrays where no door takes it, which tells why not."""
    made = door(tuple(tensors))
    if made is MISS:
        made = door(tuple(tensor.contiguous() for tensor in tensors))
    if made is MISS:
        return _through_arrays(kernel, tensors)
    return made if isinstance(made, tuple) else [made]


def _through_arrays(kernel: BuiltKernel, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor_of(array) for array in kernel(*map(array_of, tensors), threads=threads())]


def _library(graph: Graph, device: torch.device, tensors: Sequence[Tensor], sizes: Sizes) -> list[Tensor]:
    """A library call by torch: one value of a graph of views and constants."""
    values = dict(zip((node.output for node in graph.inputs), tensors, strict=True))
    evaluator = Evaluator(False, sizes)
    for node in graph.nodes:
        if not isinstance(node.kind, Input):
            values[node.output] = _value(node, [values[name] for name in node.inputs], evaluator, device)
    return [values[name] for name in graph.outputs]


def _value(node: Node, operands: list[Tensor], evaluator: Evaluator, device: torch.device) -> Tensor:
    sizes = evaluator.sizes
    match node.kind:
        case Contract(equation) if node.dtype is not DType.BOOL:
            return contract(equation, operands, node.dtype)
        case View(index):
            seen = view(operands[0], index, evaluator.shape(node), sizes)
            if seen is not None:
                return seen
        case Scatter() if device.type == "cuda":
            return scatter(node.kind, operands, node.dtype, sizes)
        case Iota(index) if device.type == "cuda":
            made = along(index, evaluator.shape(node), sizes, device)
            return made.to(TO_TORCH[node.dtype]).expand(evaluator.shape(node)).contiguous()
        case Constant(value):
            return tensor_of(value).to(device)
        case _:
            pass
    made = evaluator.value(node, [array_of(tensor.cpu()) for tensor in operands], {})
    return tensor_of(np.asarray(made, node.dtype.numpy)).to(device)


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
    made: Tensor = how.result(torch.matmul(left[0], right[0]), left[1] + right[2], torch.permute).to(own)
    return made
