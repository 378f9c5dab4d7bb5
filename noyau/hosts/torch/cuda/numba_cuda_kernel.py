"""A kernel of language `numba_cuda` as a function of tensors, on the current stream of their device."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import torch

from noyau.dtypes import DType
from noyau.errors import BuildError, MissingExtraError
from noyau.hosts.torch.cuda.device import device_of
from noyau.hosts.torch.cuda.launch_records import allocate, allocations_of
from noyau.hosts.torch.tensors import layout_array
from noyau.ir.loop_interpreter import bind_sizes
from noyau.ir.loops import Buffer, Kernel, Role
from noyau.toolchain.c.compiler import summary
from noyau.toolchain.numba.kernel import load

try:
    from numba import cuda
    from numba.core.errors import NumbaError
except ImportError as error:
    raise MissingExtraError("numba is not installed; run: pip install 'noyau-kernels[numba]'") from error
try:
    from numba.cuda.core.errors import NumbaError as CudaError
except ImportError:  # of releases of numba-cuda that raise Numba's own
    CudaError = NumbaError


class NumbaCudaKernel:
    """The function of the host of a text. A call gives new tensors; InputError where tensors do not fit, BuildError
    where Numba-CUDA does not compile the text."""

    def __init__(self, text: str, kernel: Kernel) -> None:
        self.kernel, self.function = kernel, load(text)[1][kernel.name]
        self.inputs, self.outputs = kernel.of(Role.INPUT), kernel.of(Role.OUTPUT)

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        device = device_of(tensors)
        sizes = bind_sizes(self.kernel, [layout_array(each) for each in tensors], {})
        outputs = tuple(allocate(allocations_of(self.outputs, sizes), device))
        with cuda.gpus[device.index or 0], warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Numba's, that a small array has a small grid
            stream = _stream(device.index or 0, torch.cuda.current_stream(device).cuda_stream)
            pairs = zip((*tensors, *outputs), (*self.inputs, *self.outputs), strict=True)
            try:
                self.function(*(cuda.as_cuda_array(_Memory(*each), sync=False) for each in pairs), stream=stream)
            except (NumbaError, CudaError, AttributeError) as error:
                raise BuildError(f"Numba-CUDA does not compile {self.kernel.name}: {summary(str(error))}") from error
        return outputs[0] if len(outputs) == 1 else outputs


@lru_cache(maxsize=64)
def _stream(device: int, handle: int) -> Any:
    """The current device's stream of a handle; one object, for Numba keeps what it knows of a launch by it."""
    return cuda.external_stream(handle)


class _Memory:
    """The memory of a tensor for Numba: torch's own description refuses bfloat16, whose bits these are, and what has a
    gradient; what has no axes has one here, of one cell."""

    def __init__(self, tensor: torch.Tensor, buffer: Buffer) -> None:
        width, lies = tensor.element_size(), tensor.is_contiguous()
        self.tensor = tensor  # which it keeps
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape) or (1,),
            "strides": None if lies else tuple(step * width for step in tensor.stride()),
            "typestr": "<u2" if buffer.dtype is DType.BF16 else buffer.dtype.numpy.str,
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }
