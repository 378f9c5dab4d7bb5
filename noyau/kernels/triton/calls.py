"""A hand-written kernel in Triton on tensors: launched on the current stream of their device, or where Triton
interprets, on tensors of the CPU.

Arrays of NumPy, as a check has them between guard zones, are launched on too: in Triton's interpreter on the very
memory, without torch, which takes seconds to load; on a GPU on a copy of all of it, the zones as well, that is copied
back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noyau.compiler.lowering.input_layouts import packed_strides
from noyau.errors import CheckError, MissingExtraError, NoyauError, SignatureError, UnsupportedError
from noyau.hosts.torch.cuda.device import guard, require_free, require_grid
from noyau.kernels import user_kernel
from noyau.kernels.interpretation import INTERPRETED, error_of, interpreter_version
from noyau.kernels.reference import bind_sizes
from noyau.kernels.triton.parameters import (
    bind_kernel,
    configs_of,
    is_interpreted,
    meta_names,
    options_of,
    without_tuner,
)
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance, Value
from noyau.workers.import_path import LazyModule

try:
    import triton

    if TYPE_CHECKING:
        import torch
    else:
        torch = LazyModule("torch")
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau-kernels[triton]'") from error

MOST_PLANS = 256
_AXES = 3  # of a grid
Array = np.ndarray


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """In the arguments of a launch: the input or output of that number."""

    number: int


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The plan of a call whose shapes are known: `init` by number of the output; `arguments` with a Place for each
    array; `grid` None where a tuner asks for it; `offers`: what functions of the author may ask for."""

    shapes: tuple[tuple[int, ...], ...]
    init: Mapping[int, Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    grid: tuple[int, ...] | None
    offers: Mapping[str, Any]


class Memory(NamedTuple):
    """The device of an array of NumPy, by the words of torch."""

    type: str = "cpu"


class HostTensor:
    """An array of NumPy as a tensor of the CPU, on the same memory; what may not be written is copied. What else is
    asked of it, a tensor of torch says."""

    def __init__(self, array: Array) -> None:
        if not array.flags.writeable:  # as many cells as it has; where strides are 0, once
            once = array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]
            array = np.broadcast_to(np.array(once), array.shape)
        self.array, self.dtype, self.shape, self.device = array, array.dtype, array.shape, Memory()

    def data_ptr(self) -> int:
        return int(self.array.__array_interface__["data"][0])

    def stride(self, *axis: int) -> Any:
        steps = tuple(step // self.dtype.itemsize for step in self.array.strides)
        return steps[axis[0]] if axis else steps

    def __getattr__(self, name: str) -> Any:
        from noyau.hosts.torch.tensors import tensor_of

        return getattr(tensor_of(self.array), name)


class TritonKernel:
    """A kernel for one instance, on tensors and numbers as a call has them. `config`: of a tuner's configurations the
    one that is used; None lets the tuner choose.

    SignatureError where it does not take the instance."""

    def __init__(
        self,
        kernel: user_kernel.UserKernel,
        instance: Instance,
        constants: Mapping[str, Any],
        config: int | None = None,
    ) -> None:
        self.kernel, self.instance, self.constants = kernel, instance, constants
        assert kernel.function is not None
        self.binding = bind_kernel(kernel, constants)
        self.function: Any = kernel.function
        self.chosen: dict[str, Any] = {}
        if config is not None and configs_of(kernel.function):
            configs = configs_of(kernel.function)
            self.function, self.chosen = without_tuner(kernel.function), settings_of(configs[config % len(configs)])
        self.plans: dict[Any, LaunchPlan] = {}
        said = (kernel.usage.launch, kernel.usage.args, kernel.usage.init)
        self.parameter_names = {
            name for each in said if callable(each) for name in user_kernel.parameters_of(each, kernel.called)
        }

    def __call__(self, *arguments: Any) -> list[torch.Tensor]:
        """Its results, in new tensors; updated inputs are copied. UnsupportedError where it cannot run on such."""
        from noyau.frontends.torch.tensors import TO_TORCH

        device = self.device_of(arguments)
        inputs = self.laid(arguments)
        plan = self.plan(inputs, device)
        with guard(device):
            outputs = [
                torch.empty(shape, dtype=TO_TORCH[value.dtype], device="cpu" if device.type == "cpu" else device)
                for shape, value in zip(plan.shapes, self.instance.outputs, strict=True)
            ]
            return self.fill(plan, inputs, outputs)

    def into(self, arguments: Sequence[Any], outputs: Sequence[Any]) -> None:
        """One launch on arrays that are prepared: what is updated was copied, outputs hold what they should."""
        device = self.device_of(arguments)
        plan = self.plan(arguments, device)
        with guard(device) if device.type == "cuda" else nullcontext():
            self.launch(plan, (*arguments, *outputs))

    def fill(self, plan: LaunchPlan, inputs: list[Any], outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The results, once what they hold before is there."""
        names = [value.name for value in self.instance.inputs]
        for name in self.kernel.usage.updates:
            inputs[names.index(name)] = inputs[names.index(name)].clone()
        for number, value in plan.init.items():
            if isinstance(value, str):
                outputs[number].copy_(inputs[names.index(value)])
            else:
                outputs[number].fill_(value)
        self.launch(plan, (*inputs, *outputs))
        updated = [inputs[names.index(name)] for name in self.kernel.usage.updates]
        return updated or outputs

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """CheckError where Triton refuses the kernel, or it raises where it is interpreted; see `error_of`."""
        arguments = [arrays[each.number] if isinstance(each, ArrayArgument) else each for each in plan.arguments]
        grid: Any = plan.grid
        if grid is None:
            grid = self.grid_by(plan.offers)
        elif 0 in grid:
            return
        if is_interpreted(self.function):
            from noyau.toolchain.triton import interpreter

            interpreter.install()
        try:
            self.function[grid](*arguments, **plan.named)
        except NoyauError:
            raise
        except Exception as fault:
            if "torch" in sys.modules and isinstance(fault, torch.OutOfMemoryError):
                raise
            if type(fault).__module__.startswith("triton.compiler"):
                message = " ".join(str(fault).split())[:400]
                raise CheckError(f"{self.kernel.called} does not compile: {type(fault).__name__}: {message}") from fault
            if is_interpreted(self.function):
                raise error_of(self.kernel.called, fault) from fault
            raise

    # ---- what is found out once for calls that are alike

    def plan(self, arguments: Sequence[Any], device: Any) -> LaunchPlan:
        """The plan of a call with these shapes, made once."""
        key = (device, *map(_key, arguments), *self.asked_numbers(arguments).items())
        plan = self.plans.get(key)
        if plan is None:
            require_free(self.kernel.called)
            plan = self.planned(arguments, device)
            self.plans = {**(self.plans if len(self.plans) < MOST_PLANS else {}), key: plan}
        return plan

    def planned(self, arguments: Sequence[Any], device: Any) -> LaunchPlan:
        sizes = bind_sizes(self.instance, [_shaped(each) for each in arguments])
        shapes = shapes_of(self.instance.outputs, sizes)
        numbers = {name: int(dim.evaluate(sizes)) for name, dim in self.instance.sizes}
        numbers |= _integers(self.instance, arguments) | self.asked_numbers(arguments)
        buffers = self.buffers(arguments, shapes, device_properties(device))
        constants = {**self.kernel.numbers(self.constants), **self.chosen}
        offers = {**buffers, **numbers, **constants, "device": device_properties(device)}
        named = {name: constants[name] for name in self.binding.named} | self.chosen | options_of(self.kernel.usage)
        is_tuned = bool(set(meta_names(self.kernel.function)) - self.chosen.keys())
        grid = None if is_tuned else as_grid(self.asked_grid(offers), self.kernel.called)
        arguments = self.arguments(offers)
        return LaunchPlan(tuple(shapes), self.init(offers), arguments, self.by_name(named, arguments), grid, offers)

    def asked_numbers(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The run-time scalars that the author's functions ask for, by name."""
        pairs = zip(self.instance.inputs, arguments, strict=True)
        return {v.name: _number(v, each) for v, each in pairs if v.scalar and v.name in self.parameter_names}

    def buffers(
        self, arguments: Sequence[Any], shapes: Sequence[tuple[int, ...]], device: user_kernel.DeviceProperties
    ) -> dict[str, user_kernel.Buffer]:
        """The inputs and the outputs as the author's functions see them."""
        views = {}
        for value, each in zip(self.instance.inputs, arguments, strict=True):
            shape, strides = (tuple(each.shape), tuple(each.stride())) if _is_tensor(each) else ((), ())
            views[value.name] = user_kernel.Buffer(value.name, shape, strides, value.dtype.numpy, device)
        for value, shape in zip(self.instance.outputs, shapes, strict=True):
            views[value.name] = user_kernel.Buffer(value.name, shape, packed_strides(shape), value.dtype.numpy, device)
        return views

    def arguments(self, offers: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments by position: numbers, and places of arrays."""
        names = [value.name for value in (*self.instance.inputs, *self.instance.outputs)]
        if self.kernel.usage.args is None:
            values = tuple(offers[source] for _, source in self.binding.sources)
        else:
            values = user_kernel.arguments_by_author(self.kernel, offers)
        return tuple(
            ArrayArgument(names.index(each.name)) if isinstance(each, user_kernel.Buffer) else each for each in values
        )

    def by_name(self, named: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, Any]:
        """The arguments by name: without `args=` its parameters may stand in any order."""
        function: Any = self.kernel.function
        code = user_kernel.python_function(function).__code__
        parameters = list(code.co_varnames[: code.co_argcount])
        if self.kernel.usage.args is None:
            order = [name for name, _ in self.binding.sources]
            if order != parameters[: len(order)]:
                raise SignatureError(
                    f"{self.kernel.called} takes constants before arrays; say with args= what it is called with"
                )
        return {name: value for name, value in named.items() if name not in parameters[: len(arguments)]}

    def init(self, offers: Mapping[str, Any]) -> dict[int, Any]:
        """The initial values of outputs, by their number."""
        init = user_kernel.initial_values(self.kernel, lambda: offers)
        return {at: init[v.name] for at, v in enumerate(self.instance.outputs) if v.name in init}

    def grid_by(self, offers: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
        """The grid for what a tuner or heuristics chose."""

        names = meta_names(self.kernel.function)

        def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
            chosen = {name: meta[name] for name in names if name in meta}
            return as_grid(self.asked_grid({**offers, **chosen}), self.kernel.called)

        return grid

    def asked_grid(self, offers: Mapping[str, Any]) -> Any:
        launch = self.kernel.usage.launch
        return user_kernel.ask(launch, offers, f"launch= of {self.kernel.called}") if callable(launch) else launch

    # ---- what it takes

    def device_of(self, arguments: Sequence[Any]) -> Any:
        """The device of the tensors. UnsupportedError where it cannot run there."""
        device: Any = next((each.device for each in arguments if _is_tensor(each)), Memory())
        if device.type == "cpu" and not is_interpreted(self.kernel.function):
            raise UnsupportedError(
                f"{self.kernel.called} is in triton, and its tensors lie on the CPU; move them to a GPU, or set "
                "TRITON_INTERPRET=1 before triton is imported"
            )
        return device

    def laid(self, arguments: Sequence[Any]) -> list[Any]:
        """The inputs as it takes them: packed, unless what its author says asks for strides."""
        strided = self.kernel.asks_strides
        values = zip(self.instance.inputs, arguments, strict=True)
        return [_number(v, each) if v.scalar else each if strided else each.contiguous() for v, each in values]


def as_grid(launch: Any, label: str) -> tuple[int, ...]:
    """Programs along each axis. SignatureError for what is none, DeviceError for more than CUDA takes."""
    grid = launch if isinstance(launch, tuple | list) else (launch,)
    whole = all(isinstance(each, int | np.integer) and not isinstance(each, bool) and each >= 0 for each in grid)
    if not whole or not 1 <= len(grid) <= _AXES:
        raise SignatureError(
            f"launch= of {label} gives {launch!r}; in triton it gives programs along one to three axes: (n // 128,)"
        )
    require_grid(label, grid)
    return tuple(int(each) for each in grid)


def settings_of(config: Any) -> dict[str, Any]:
    """The settings that a configuration of a tuner gives."""
    settings = dict(config.all_kwargs()) if hasattr(config, "all_kwargs") else dict(config.kwargs)
    return {name: value for name, value in settings.items() if value is not None}


@cache
def device_properties(device: Any) -> user_kernel.DeviceProperties:
    """A device as `launch=` sees it; where Triton interprets, the GPU that is assumed."""
    if device.type != "cuda":
        return user_kernel.GPU
    properties = torch.cuda.get_device_properties(device)
    return user_kernel.DeviceProperties(
        str(device),
        properties.multi_processor_count,
        properties.name,
        int(getattr(properties, "L2_cache_size", 0)),
        int(getattr(properties, "shared_memory_per_block_optin", 0)),
        properties.total_memory,
        (properties.major, properties.minor),
    )


def where() -> str:
    """The machine that a check of a kernel depends on: the GPU, its driver and Triton, or Triton's interpreter."""
    if not torch.cuda.is_available():
        return interpreter_version()
    from noyau.hosts.torch.cuda.clock import device_text

    return device_text(torch.cuda.current_device())


def _is_tensor(each: Any) -> bool:
    return isinstance(each, HostTensor) or ("torch" in sys.modules and isinstance(each, torch.Tensor))


def _key(each: Any) -> Any:
    """The key of an argument: where a number is a size, its value."""
    if _is_tensor(each):
        return each.shape, each.stride(), each.dtype
    return each if isinstance(each, int) else type(each)


def _shaped(each: Any) -> np.ndarray:
    """An array with the shape of an argument that takes no memory."""
    return np.broadcast_to(np.int8(0), tuple(each.shape) if _is_tensor(each) else ())


def _integers(instance: Instance, arguments: Sequence[Any]) -> dict[str, int]:
    """Integer parameters, which may be sizes."""
    pairs = zip(instance.inputs, arguments, strict=True)
    return {v.name: int(each) for v, each in pairs if v.scalar and isinstance(each, int) and not isinstance(each, bool)}


def _number(value: Value, each: Any) -> Any:
    """A run-time scalar as a number of Python."""
    number = each.item() if hasattr(each, "item") else each
    return float(number) if value.dtype.is_float else bool(number) if value.dtype.value == "bool" else int(number)


def variables() -> dict[str, str]:
    """The environment variables that a process needs to run kernels here."""
    return {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}


def note() -> str:
    """The place where kernels run, as a report says it."""
    if torch.cuda.is_available():
        return f"on {torch.cuda.get_device_name()}"
    return INTERPRETED


def interprets_here() -> bool:
    """Whether Triton interprets in this process."""
    return bool(triton.knobs.runtime.interpret)


def launch_on_arrays(
    kernel: user_kernel.UserKernel,
    instance: Instance,
    constants: Mapping[str, Any],
    arrays: Sequence[Array],
    outputs: Sequence[Array],
) -> None:
    """One launch on prepared arrays. A tuner's configurations take turns by the sizes, alike for the same inputs."""
    cells = sum(extent for array in (*arrays, *outputs) for extent in array.shape)
    config = cells if configs_of(kernel.function) else None
    launcher = TritonKernel(kernel, instance, constants, config)
    scalars = [value.scalar for value in instance.inputs]
    if is_interpreted(kernel.function):
        arguments = [a.item() if s else HostTensor(a) for a, s in zip(arrays, scalars, strict=True)]
        launcher.into(arguments, [HostTensor(each) for each in outputs])
        return
    copies = [None if s else DeviceCopy(a) for a, s in zip(arrays, scalars, strict=True)]
    results = [DeviceCopy(each) for each in outputs]
    arguments = [a.item() if c is None else c.tensor for a, c in zip(arrays, copies, strict=True)]
    launcher.into(arguments, [each.tensor for each in results])
    torch.cuda.synchronize()
    for each in (*copies, *results):
        if each is not None:
            each.back()


class DeviceCopy:
    """An array on the GPU, with all of the memory that it is a view of."""

    def __init__(self, array: Array) -> None:
        from noyau.hosts.torch.tensors import tensor_of

        self.host = _whole(array)
        self.memory = torch.from_numpy(self.host.copy()).cuda()
        start = array.__array_interface__["data"][0] - self.host.__array_interface__["data"][0]
        like = tensor_of(np.empty(1, array.dtype))
        size = like.element_size()
        first = start % size  # cells are aligned where the memory may not be
        cells = self.memory[first : first + (len(self.host) - first) // size * size].view(like.dtype)
        strides = [step // size for step in array.strides]
        self.tensor = cells.as_strided(array.shape, strides, start // size)

    def back(self) -> None:
        """Copy the memory to the host, as far as that may be written."""
        if self.host.flags.writeable:
            self.host[...] = self.memory.cpu().numpy()


def _whole(array: Array) -> Array:
    """The memory that an array is a view of, as bytes."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner.reshape(-1).view(np.uint8)
