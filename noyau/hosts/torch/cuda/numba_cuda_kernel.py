"""A kernel of language `numba_cuda` as a function of tensors, on the current stream of their device."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from noyau.errors import BuildError, dependency
from noyau.hosts.torch.cuda.device import device_of
from noyau.hosts.torch.cuda.launch_records import allocate, allocations_of
from noyau.hosts.torch.tensors import dtype_of, layout_array
from noyau.ir.loop_interpreter import bind_sizes
from noyau.ir.loops import Kernel, Role
from noyau.toolchain.c.compiler import summary
from noyau.toolchain.numba.kernel import load

with dependency("numba", "noyau-kernels[numba]"):
    from numba import cuda
    from numba.core.errors import NumbaError
try:
    from numba.cuda.core.errors import NumbaError as CudaError
except ImportError:  # of releases of numba-cuda that raise Numba's own
    CudaError = NumbaError


class NumbaCudaKernel:
    """The host function of a text. A call returns new tensors; InputError where tensors do not fit, BuildError
    where Numba-CUDA does not compile the text."""

    def __init__(self, text: str, kernel: Kernel) -> None:
        self.kernel, self.function = kernel, load(text)[1][kernel.name]
        self.outputs = kernel.of(Role.OUTPUT)

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        device = device_of(tensors)
        sizes = bind_sizes(self.kernel, [layout_array(each) for each in tensors], {})
        outputs = tuple(allocate(allocations_of(self.outputs, sizes), device))
        with launching(self.kernel.name, device) as stream:
            self.function(*(device_array(each, axes=1) for each in (*tensors, *outputs)), stream=stream)
        return outputs[0] if len(outputs) == 1 else outputs


def launch(
    called: str, function: Any, config: tuple[Any, Any, int], arguments: Sequence[Any], device: torch.device
) -> None:
    """Launch a kernel of `cuda.jit` on tensors and numbers, on the current stream. BuildError as in a call above."""
    with launching(called, device) as stream:
        grid, block, shared_bytes = config
        configured = function[grid, block, stream, shared_bytes]
        configured(*(device_array(each) if isinstance(each, torch.Tensor) else each for each in arguments))


@contextmanager
def launching(called: str, device: torch.device) -> Iterator[Any]:
    """Make the device Numba's current one, in a `with`; yields torch's current stream there as a stream of Numba's."""
    with cuda.gpus[device.index or 0], warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba warns that a small array has a small grid
        try:
            yield _stream(device.index or 0, torch.cuda.current_stream(device).cuda_stream)
        except (NumbaError, CudaError, AttributeError) as error:
            raise BuildError(f"Numba-CUDA does not compile {called}: {summary(str(error))}") from error


def device_array(tensor: torch.Tensor, axes: int = 0) -> Any:
    """A tensor as an array of Numba's on the same memory; a tensor without axes gets `axes` of them."""
    return cuda.as_cuda_array(_Memory(tensor, axes), sync=False)


@lru_cache(maxsize=64)
def _stream(device: int, handle: int) -> Any:
    """The current device's stream of a handle; memoised, since Numba caches its launches by the stream object."""
    return cuda.external_stream(handle)


class _Memory:
    """The memory of a tensor for Numba: torch's own description refuses bfloat16, which goes as bits, and tensors with
    a gradient; the kernels that noyau generates have one axis, of one cell, for a tensor without axes."""

    def __init__(self, tensor: torch.Tensor, axes: int) -> None:
        width, lies = tensor.element_size(), tensor.is_contiguous()
        self.tensor = tensor  # keeps the memory alive
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape) or (1,) * axes,
            "strides": None if lies else tuple(step * width for step in tensor.stride()),
            "typestr": "<u2" if tensor.dtype is torch.bfloat16 else dtype_of(tensor).numpy.str,
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }
