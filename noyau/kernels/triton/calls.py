"""A hand-written kernel in Triton on tensors: launched on the current stream of their device, or where Triton
interprets, on tensors of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from noyau.compiler.lowering.input_layouts import packed_strides
from noyau.errors import CheckError, MissingExtraError, NoyauError, SignatureError, UnsupportedError
from noyau.frontends.torch.dtypes import TO_TORCH
from noyau.hosts.torch.cuda.errors import require_free, require_grid
from noyau.kernels.buffers import GPU, Buffer, DeviceProperties, ask, parameters_of
from noyau.kernels.reference import bind_sizes
from noyau.kernels.triton.parameters import (
    asks_strides,
    bind_parameters,
    configs_of,
    layers,
    meta_names,
    options_of,
    without_tuner,
)
from noyau.kernels.user_kernel import UserKernel, check_init, python_function
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance, Value

try:
    import torch
    import triton
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau[triton]'") from error

MOST_PLANS = 256
_AXES = 3  # of a grid


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


class TritonKernel:
    """A kernel for one instance, on tensors and numbers as a call has them. `config`: of a tuner's configurations the
    one that is used; None lets the tuner choose.

    SignatureError where it does not take the instance."""

    def __init__(
        self, kernel: UserKernel, instance: Instance, constants: Mapping[str, Any], config: int | None = None
    ) -> None:
        self.kernel, self.instance, self.constants = kernel, instance, constants
        assert kernel.function is not None
        self.taken = bind_parameters(kernel.function, kernel.usage, kernel.target, kernel.called)
        self.function: Any = kernel.function
        self.chosen: dict[str, Any] = {}
        if config is not None and configs_of(kernel.function):
            configs = configs_of(kernel.function)
            self.function, self.chosen = without_tuner(kernel.function), settings_of(configs[config % len(configs)])
        self.plans: dict[Any, LaunchPlan] = {}
        said = (kernel.usage.launch, kernel.usage.args, kernel.usage.init)
        self.asked = {name for each in said if callable(each) for name in parameters_of(each, kernel.called)}
        self.require_constants()

    def __call__(self, *given: Any) -> list[torch.Tensor]:
        """Its results, in new tensors; inputs that it updates are copied before. UnsupportedError where tensors lie
        where it cannot run."""
        device = self.device_of(given)
        inputs = self.laid(given)
        plan = self.plan(inputs, device)
        with guard(device):
            outputs = [
                torch.empty(shape, dtype=TO_TORCH[value.dtype], device=device)
                for shape, value in zip(plan.shapes, self.instance.outputs, strict=True)
            ]
            return self.fill(plan, inputs, outputs)

    def into(self, arguments: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
        """One launch on arrays that are prepared: what is updated was copied, outputs hold what they should."""
        device = self.device_of(arguments)
        plan = self.plan(arguments, device)
        with guard(device):
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
        """CheckError where Triton refuses the kernel."""
        given = [arrays[each.number] if isinstance(each, ArrayArgument) else each for each in plan.arguments]
        grid: Any = plan.grid
        if grid is None:
            grid = self.grid_by(plan.offers)
        elif 0 in grid:
            return
        try:
            self.function[grid](*given, **plan.named)
        except (NoyauError, torch.OutOfMemoryError):
            raise
        except Exception as fault:
            if type(fault).__module__.startswith("triton.compiler"):
                message = " ".join(str(fault).split())[:400]
                raise CheckError(f"{self.kernel.called} does not compile: {type(fault).__name__}: {message}") from fault
            raise

    # ---- what is found out once for calls that are alike

    def plan(self, arguments: Sequence[Any], device: torch.device) -> LaunchPlan:
        """The plan of a call with these shapes, made once."""
        key = (device, *map(_told, arguments), *self.asked_numbers(arguments).items())
        found = self.plans.get(key)
        if found is None:
            require_free(self.kernel.called)
            found = self.planned(arguments, device)
            self.plans = {**(self.plans if len(self.plans) < MOST_PLANS else {}), key: found}
        return found

    def planned(self, given: Sequence[Any], device: torch.device) -> LaunchPlan:
        sizes = bind_sizes(self.instance, [_shaped(each) for each in given])
        shapes = shapes_of(self.instance.outputs, sizes)
        numbers = {name: int(dim.evaluate(sizes)) for name, dim in self.instance.sizes}
        numbers |= _integers(self.instance, given) | self.asked_numbers(given)
        buffers = self.buffers(given, shapes, device_properties(device))
        constants = {**self.kernel.numbers(self.constants), **self.chosen}
        offers = {**buffers, **numbers, **constants, "device": device_properties(device)}
        named = {name: constants[name] for name in self.taken.named} | self.chosen | options_of(self.kernel.usage)
        is_tuned = bool(set(meta_names(self.kernel.function)) - self.chosen.keys())
        grid = None if is_tuned else as_grid(self.asked_grid(offers), self.kernel.called)
        arguments = self.arguments(offers)
        return LaunchPlan(tuple(shapes), self.init(offers), arguments, self.by_name(named, arguments), grid, offers)

    def asked_numbers(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The run-time scalars that the author's functions ask for, by name."""
        pairs = zip(self.instance.inputs, arguments, strict=True)
        return {v.name: _number(v, each) for v, each in pairs if v.scalar and v.name in self.asked}

    def buffers(
        self, arguments: Sequence[Any], shapes: Sequence[tuple[int, ...]], device: DeviceProperties
    ) -> dict[str, Buffer]:
        """The inputs and the outputs as the author's functions see them."""
        found = {}
        for value, each in zip(self.instance.inputs, arguments, strict=True):
            shape, strides = (tuple(each.shape), tuple(each.stride())) if isinstance(each, torch.Tensor) else ((), ())
            found[value.name] = Buffer(value.name, shape, strides, value.dtype.numpy, device)
        for value, shape in zip(self.instance.outputs, shapes, strict=True):
            found[value.name] = Buffer(value.name, shape, packed_strides(shape), value.dtype.numpy, device)
        return found

    def arguments(self, offers: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments by position: numbers, and places of arrays."""
        names = [value.name for value in (*self.instance.inputs, *self.instance.outputs)]
        where = f"args= of {self.kernel.called}"
        if self.kernel.usage.args is None:
            given: Any = tuple(offers[source] for _, source in self.taken.given)
        else:
            given = ask(self.kernel.usage.args, offers, where)
        if not isinstance(given, tuple):
            raise SignatureError(f"{where} gives a {type(given).__name__}; it gives a tuple of all arguments")
        return tuple(ArrayArgument(names.index(each.name)) if isinstance(each, Buffer) else each for each in given)

    def by_name(self, named: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, Any]:
        """The arguments by name: without `args=` its parameters may stand in any order."""
        parameters = list(python_parameters(self.kernel.function))
        if self.kernel.usage.args is None:
            order = [name for name, _ in self.taken.given]
            if order != parameters[: len(order)]:
                raise SignatureError(
                    f"{self.kernel.called} takes constants before arrays; say with args= what it is called with"
                )
        return {name: value for name, value in named.items() if name not in parameters[: len(arguments)]}

    def init(self, offers: Mapping[str, Any]) -> dict[int, Any]:
        """The initial values of outputs, by their number."""
        said = self.kernel.usage.init
        if callable(said):
            said = ask(said, offers, f"init= of {self.kernel.called}")
            check_init(said, self.kernel.target, self.kernel.called)
        return {at: said[v.name] for at, v in enumerate(self.instance.outputs) if v.name in said}

    def grid_by(self, offers: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
        """The grid for what a tuner or heuristics chose."""

        names = meta_names(self.kernel.function)

        def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
            chosen = {name: meta[name] for name in names if name in meta}
            return as_grid(self.asked_grid({**offers, **chosen}), self.kernel.called)

        return grid

    def asked_grid(self, offers: Mapping[str, Any]) -> Any:
        launch = self.kernel.usage.launch
        return ask(launch, offers, f"launch= of {self.kernel.called}") if callable(launch) else launch

    # ---- what it takes

    def require_constants(self) -> None:
        """SignatureError for a constant of the op that is not at its default and that it does not take."""
        usage = self.kernel.usage
        asked = usage.args.__code__.co_varnames if usage.args is not None and hasattr(usage.args, "__code__") else ()
        called = self.kernel.called
        for name, value in self.kernel.target.constants.items():
            if self.constants.get(name, value) != value and name not in self.taken.named and name not in asked:
                raise SignatureError(f"{called} does not take the constant {name}, which is not its default")

    def device_of(self, arguments: Sequence[Any]) -> torch.device:
        """The device of the tensors. UnsupportedError where it cannot run there."""
        found: torch.device = next(
            (each.device for each in arguments if isinstance(each, torch.Tensor)), torch.device("cpu")
        )
        if found.type == "cpu" and not is_interpreted(self.kernel.function):
            raise UnsupportedError(
                f"{self.kernel.called} is in triton, and its tensors lie on the CPU; move them to a GPU, or set "
                "TRITON_INTERPRET=1 before triton is imported"
            )
        return found

    def laid(self, arguments: Sequence[Any]) -> list[Any]:
        """The inputs as it takes them: packed, unless what its author says asks for strides."""
        strided = asks_strides(self.kernel)
        values = zip(self.instance.inputs, arguments, strict=True)
        return [_number(v, each) if v.scalar else each if strided else each.contiguous() for v, each in values]


def as_grid(given: Any, label: str) -> tuple[int, ...]:
    """Programs along each axis. SignatureError for what is none, DeviceError for more than CUDA takes."""
    grid = given if isinstance(given, tuple | list) else (given,)
    whole = all(isinstance(each, int | np.integer) and not isinstance(each, bool) and each >= 0 for each in grid)
    if not whole or not 1 <= len(grid) <= _AXES:
        raise SignatureError(
            f"launch= of {label} gives {given!r}; in triton it gives programs along one to three axes: (n // 128,)"
        )
    require_grid(label, grid)
    return tuple(int(each) for each in grid)


def settings_of(config: Any) -> dict[str, Any]:
    """The settings that a configuration of a tuner gives."""
    found = dict(config.all_kwargs()) if hasattr(config, "all_kwargs") else dict(config.kwargs)
    return {name: value for name, value in found.items() if value is not None}


def python_parameters(function: Any) -> Sequence[str]:
    """The names of the parameters of the kernel's own function."""
    return tuple(python_function(function).__code__.co_varnames[: python_function(function).__code__.co_argcount])


def is_interpreted(function: Any) -> bool:
    """Whether Triton interprets a kernel: TRITON_INTERPRET=1 was set as it was made."""
    return any(type(layer).__module__ == "triton.runtime.interpreter" for layer in layers(function))


def guard(device: torch.device) -> AbstractContextManager[Any]:
    """Make this the current device within the block."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@cache
def device_properties(device: torch.device) -> DeviceProperties:
    """A device as `launch=` sees it; where Triton interprets, the GPU that is assumed."""
    if device.type != "cuda":
        return GPU
    told = torch.cuda.get_device_properties(device)
    return DeviceProperties(
        str(device),
        told.multi_processor_count,
        told.name,
        int(getattr(told, "L2_cache_size", 0)),
        int(getattr(told, "shared_memory_per_block_optin", 0)),
        told.total_memory,
        (told.major, told.minor),
    )


def where() -> str:
    """The machine that a check of a kernel depends on: the GPU, its driver and Triton, or Triton's interpreter."""
    if not torch.cuda.is_available():
        return f"triton {triton.__version__}, interpreted"
    from noyau.hosts.torch.cuda.clock import device_text

    return device_text(torch.cuda.current_device())


def _told(each: Any) -> Any:
    """The key of an argument: where a number is a size, its value."""
    if isinstance(each, torch.Tensor):
        return each.shape, each.stride(), each.dtype
    return each if isinstance(each, int) else type(each)


def _shaped(each: Any) -> np.ndarray:
    """An array with the shape of an argument that takes no memory."""
    return np.broadcast_to(np.int8(0), tuple(each.shape) if isinstance(each, torch.Tensor) else ())


def _integers(instance: Instance, arguments: Sequence[Any]) -> dict[str, int]:
    """Integer parameters, which may be sizes."""
    pairs = zip(instance.inputs, arguments, strict=True)
    return {v.name: int(each) for v, each in pairs if v.scalar and isinstance(each, int) and not isinstance(each, bool)}


def _number(value: Value, each: Any) -> Any:
    """A run-time scalar as a number of Python."""
    number = each.item() if hasattr(each, "item") else each
    return float(number) if value.dtype.is_float else bool(number) if value.dtype.value == "bool" else int(number)
