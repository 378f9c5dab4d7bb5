"""A hand-written kernel in Triton on tensors: on the current stream of their device, or interpreted on the CPU.

NumPy arrays, which a check places between guard zones, are supported too: Triton's interpreter then works on their
memory in place, without torch, whose import takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import CheckError, NoyauError, SignatureError, UnsupportedError, dependency
from noyau.hosts.torch.cuda.device import require_grid
from noyau.kernels.call import HostTensor, Memory, error_of
from noyau.kernels.cuda_grids import ArrayArgument, GridKernel, LaunchPlan, is_tensor, launch_on_copies
from noyau.kernels.triton import parameters
from noyau.kernels.user_kernel import UserKernel, arguments_by_author, python_function
from noyau.signatures.types import Instance
from noyau.workers.import_path import LazyModule

with dependency("triton, or torch,", "noyau-kernels[triton]"):
    if TYPE_CHECKING:
        import torch
    else:
        torch = LazyModule("torch")

_AXES = 3  # of a grid


class TritonKernel(GridKernel):
    """A kernel for one instance, on the tensors and numbers of a call. `config`: the index of the tuner's configuration
    to use, modulo their number; None lets the tuner choose.

    SignatureError where the kernel does not take the instance."""

    def __init__(
        self, kernel: UserKernel, instance: Instance, constants: Mapping[str, Any], config: int | None = None
    ) -> None:
        super().__init__(kernel, instance, constants)
        self.binding = parameters.bind_kernel(kernel, constants)
        self.function: Any = kernel.function
        self.takes_strides = kernel.asks_strides
        self.chosen: dict[str, Any] = {}
        configs = parameters.configs_of(kernel.function)
        if config is not None and configs:
            settings = configs[config % len(configs)].all_kwargs()
            self.function = parameters.without_tuner(kernel.function)
            self.chosen = {name: value for name, value in settings.items() if value is not None}
            self.numbers |= self.chosen

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """CheckError where Triton does not compile the kernel; `error_of` translates an error of its interpreter."""
        arguments = [arrays[each.number] if isinstance(each, ArrayArgument) else each for each in plan.arguments]
        grid: Any = plan.grid
        if grid is None:
            grid = partial(self.grid_of, plan.offers)
        elif 0 in grid:
            return
        if parameters.is_interpreted(self.function):
            from noyau.toolchain.triton import interpreter

            interpreter.install()
        try:
            self.function[grid](*arguments, **plan.named)
        except Exception as fault:
            if type(fault).__module__.startswith("triton.compiler"):
                message = " ".join(str(fault).split())[:400]
                raise CheckError(f"{self.kernel.title} does not compile: {type(fault).__name__}: {message}") from fault
            known = (NoyauError, torch.OutOfMemoryError) if "torch" in sys.modules else NoyauError
            if isinstance(fault, known) or not parameters.is_interpreted(self.function):
                raise
            raise error_of(self.kernel.title, fault) from fault

    def launching(
        self, offers: Mapping[str, Any], device: Any
    ) -> tuple[tuple[Any, ...], Mapping[str, Any], tuple[int, ...] | None]:
        """See GridKernel; the grid is None where it depends on a tuner's or heuristics' choice."""
        options = parameters.options_of(self.kernel.usage)
        named = {name: self.numbers[name] for name in self.binding.named} | self.chosen | options
        is_tuned = bool(set(parameters.meta_names(self.kernel.function)) - self.chosen.keys())
        grid = None if is_tuned else as_grid(self.launch_of(offers), self.kernel.title)
        if self.kernel.usage.args is None:
            values = tuple(offers[source] for _, source in self.binding.sources)
        else:
            values = arguments_by_author(self.kernel, offers)
        return self.place(values), self.by_name(named, values), grid

    def by_name(self, named: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, Any]:
        """The named arguments that are not given by position. SignatureError where a constant precedes an array."""
        code = python_function(self.function).__code__
        taken = list(code.co_varnames[: code.co_argcount])
        if self.kernel.usage.args is None:
            order = [name for name, _ in self.binding.sources]
            if order != taken[: len(order)]:
                remedy = "say with args= what it is called with"
                raise SignatureError(f"{self.kernel.title} takes constants before arrays; {remedy}")
        return {name: value for name, value in named.items() if name not in taken[: len(arguments)]}

    def grid_of(self, offers: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[int, ...]:
        """The grid for the values that a tuner or heuristics chose."""
        chosen = {name: meta[name] for name in parameters.meta_names(self.kernel.function) if name in meta}
        return as_grid(self.launch_of({**offers, **chosen}), self.kernel.title)

    def device_of(self, arguments: Sequence[Any]) -> Any:
        """The device of the tensors. UnsupportedError where the kernel cannot run there."""
        device: Any = next((each.device for each in arguments if is_tensor(each)), Memory())
        if device.type == "cpu" and not parameters.is_interpreted(self.kernel.function):
            remedy = "move them to a GPU, or set TRITON_INTERPRET=1 before triton is imported"
            raise UnsupportedError(f"{self.kernel.title} is in triton, and its tensors lie on the CPU; {remedy}")
        return device


def as_grid(launch: Any, label: str) -> tuple[int, ...]:
    """The programs along each axis. SignatureError for an invalid grid, DeviceError for more than CUDA takes."""
    grid = launch if isinstance(launch, tuple | list) else (launch,)
    whole = all(isinstance(each, int | np.integer) and not isinstance(each, bool) and each >= 0 for each in grid)
    if not whole or not 1 <= len(grid) <= _AXES:
        remedy = "in triton it gives programs along one to three axes: (n // 128,)"
        raise SignatureError(f"launch= of {label} gives {launch!r}; {remedy}")
    require_grid(label, grid)
    return tuple(int(each) for each in grid)


def launch_on_arrays(
    kernel: UserKernel,
    instance: Instance,
    constants: Mapping[str, Any],
    arrays: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
) -> None:
    """Launch once on prepared arrays. The sizes pick the tuner's configuration: the same for the same inputs."""
    cells = sum(extent for array in (*arrays, *outputs) for extent in array.shape)
    launcher = TritonKernel(kernel, instance, constants, cells)
    if not parameters.is_interpreted(kernel.function):
        launch_on_copies(launcher, arrays, outputs)
        return
    scalars = [value.scalar for value in instance.inputs]
    arguments = [a.item() if s else HostTensor(a) for a, s in zip(arrays, scalars, strict=True)]
    launcher.into(arguments, [HostTensor(each) for each in outputs])
