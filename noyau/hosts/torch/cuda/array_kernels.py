"""Kernels of GPU languages on NumPy arrays, by way of tensors, for certificates; and as ops call them, for languages
other than `triton`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.errors import BuildError, CheckError
from noyau.hosts.torch.cuda.device import beside_captures, device_errors, device_of, guard, missing_device, require_free
from noyau.hosts.torch.cuda.guarded_memory import Room, answers, holds_poison
from noyau.hosts.torch.cuda.launch import MOST_PLANS, Launcher, kinds_of
from noyau.hosts.torch.cuda.launch_records import TAPE, function_of
from noyau.hosts.torch.cuda.tensor_rotation import flat_of
from noyau.hosts.torch.tensors import tensor_of
from noyau.ir.loops import Kernel, Role
from noyau.toolchain.guard_zones import PLAIN, Empty, Order, changed_input, refuse_unwritten
from noyau.toolchain.triton.module import array_of, interprets

Array = np.ndarray
Tensor: TypeAlias = torch.Tensor
NO_TILES: Mapping[str, int] = MappingProxyType({})
OTHER = 1  # the poison of a second run


class DeviceKernel:
    """A kernel of a text on `device`, or for "cpu" on the current CUDA device or in Triton's interpreter; `tiles`:
    sizes that differ from the usual ones; `function`: the kernel as a function of tensors, if its text is not Triton's.
    BuildError where there is no such device."""

    def __init__(
        self,
        text: str,
        kernel: Kernel,
        device: str = "cpu",
        tiles: Mapping[str, int] = NO_TILES,
        function: Callable[..., Any] | None = None,
    ) -> None:
        self.kernel, self.name, self.text = kernel, kernel.name, text
        self.device = torch.device(device if device != "cpu" or (interprets() and function is None) else "cuda")
        if lacks := missing_device(self.device):
            raise BuildError(f"{lacks}; TRITON_INTERPRET=1, set before triton is imported, has kernels interpreted")
        self.outputs, self.own = kernel.of(Role.OUTPUT), function
        self.function: Callable[..., Any] = function or partial(function_of(text, kernel), **tiles)

    def launcher(self, called: str, tiles: Mapping[str, int]) -> Launcher | FunctionLauncher:
        """The kernel for calls of an op of this name."""
        return FunctionLauncher(self.own, called) if self.own else Launcher(self.text, self.kernel, called, tiles)

    def __call__(
        self, *arrays: Array, out: Sequence[Array] | None = None, threads: int = 1, empty: Empty | None = None
    ) -> list[Array]:
        """The outputs for these inputs, which have the kernel's layout; `threads` and `empty` are of CPU kernels."""
        results = self.run([self.tensor(array) for array in arrays])
        if out is None:
            return results
        for target, result in zip(out, results, strict=True):
            target[...] = result
        return list(out)

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        """A call whose outputs are poisoned before, between guard zones; the order of programs is not controlled.

        `pieces` beyond 1: the poison of floats is a number. CheckError where a guard was overwritten, an input was
        changed, or a cell of an output was never written."""
        inputs, poison = [self.tensor(array) for array in arrays], PLAIN if pieces > 1 else 0
        result = self.run_in(Room(poison), inputs)
        for number, (tensor, buffer) in enumerate(zip(inputs, self.kernel.of(Role.INPUT), strict=True)):
            if array_of(tensor, buffer.dtype).tobytes() != arrays[number].tobytes():
                raise changed_input(self.name, number)
        suspects = [_holds(array, poison) for array in result]
        if any(suspect.any() for suspect in suspects):
            # As in noyau.toolchain.c.library: a right value has the bits of one poison at most.
            again = self.run_in(Room(OTHER), inputs)
            for number, (suspect, array) in enumerate(zip(suspects, again, strict=True)):
                refuse_unwritten(self.name, f"its output {number}", suspect & _holds(array, OTHER))
        return result

    def run_in(self, room: Room, tensors: Sequence[Tensor]) -> list[Array]:
        """The results as arrays, in memory of a room. CheckError where the kernel wrote beside its outputs."""
        result = self.run(tensors, room.empty)
        for fault in answers(list(room.flags())):
            raise CheckError(f"{self.name} {fault.note}", fault.kind)
        return result

    def run(self, tensors: Sequence[Tensor], empty: Callable[..., Tensor] = torch.empty) -> list[Array]:
        """The results as arrays; `empty` allocates their tensors."""
        with TAPE.holding(empty=empty), device_errors(self.name, self.device), guard(self.device):
            result = self.function(*tensors)
        results = result if isinstance(result, tuple) else (result,)
        return [array_of(t, b.dtype) for t, b in zip(results, self.outputs, strict=True)]

    def tensor(self, array: Array) -> Tensor:
        """A tensor on the device with the strides of an array, as far as torch has them."""
        base = tensor_of(np.asarray(array))
        if not base.numel():
            return torch.empty(base.shape, dtype=base.dtype, device=self.device)
        return flat_of(base).to(self.device, copy=True).as_strided(base.shape, base.stride())


class FunctionLauncher:
    """Like `Launcher`, for a kernel of another language than `triton`, whose function of tensors keeps its launches."""

    def __init__(self, function: Callable[..., Any], called: str) -> None:
        self.function, self.called, self.seen = function, called, set[Any]()

    def __call__(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        key = kinds_of(tensors)
        if key in self.seen:
            return self.again(tensors)
        require_free(self.called)
        results = self.again(tensors)
        self.seen = {*(self.seen if len(self.seen) < MOST_PLANS else ()), key}
        return results

    def again(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results for tensors of shapes that were called before."""
        device = device_of(tensors)
        with device_errors(self.called, device), guard(device), beside_captures():
            result = self.function(*tensors)
        return result if isinstance(result, tuple) else (result,)

    def known_call(self, tensors: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], tuple[Tensor, ...]]:
        """The call for tensors of such shapes, which are not checked again after the first call."""
        return self.again if kinds_of(tensors) in self.seen else self


def _holds(array: Array, poison: int) -> Array:
    """Mask of the cells of an output that have the bits of one of its type's poisons."""
    mask: Array = holds_poison(tensor_of(array), poison).numpy().reshape(array.shape)
    return mask
