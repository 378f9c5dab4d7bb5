"""A hand-written kernel in Triton on arrays of NumPy, as a check has them between guard zones: in Triton's interpreter
on the very memory, on a GPU on a copy of all of it, the zones as well, that is copied back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import MissingExtraError, SignatureError, UnsupportedError
from noyau.hosts.torch.tensors import tensor_of
from noyau.kernels.triton.calls import TritonKernel, is_interpreted
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.user_kernel import UserKernel
from noyau.signatures.types import Instance

try:
    import torch
    import triton
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau[triton]'") from error

Array = np.ndarray


def variables() -> dict[str, str]:
    """The environment variables that a process needs to run kernels here."""
    return {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}


def note() -> str:
    """The place where kernels run, as a report says it."""
    if torch.cuda.is_available():
        return f"on {torch.cuda.get_device_name()}"
    return "in Triton's interpreter, which does not calculate in bfloat16"


def interprets_here() -> bool:
    """Whether Triton interprets in this process."""
    return bool(triton.knobs.runtime.interpret)


def open_kernel(kernel: UserKernel, instance: Instance, constants: Mapping[str, Any]) -> TritonKernel:
    """The kernel for an instance. SignatureError where it does not take it; where there is no GPU, UnsupportedError for
    what Triton's interpreter does not calculate in: it takes bfloat16 for integers."""
    if not torch.cuda.is_available() and any(value.dtype is DType.BF16 for value in instance.inputs):
        message = "Triton's interpreter takes bfloat16 for integers: a check of that needs a GPU"
        terms = kernel.target.signature.inputs if kernel.target.signature else ()
        if any(term.element is DType.BF16 for term in terms):
            raise UnsupportedError(message)
        raise SignatureError(f"{kernel.called}: {message}")
    return TritonKernel(kernel, instance, constants)


def launch_on_arrays(
    kernel: UserKernel,
    instance: Instance,
    constants: Mapping[str, Any],
    arrays: Sequence[Array],
    outputs: Sequence[Array],
) -> None:
    """One launch on arrays that are prepared. A tuner's configurations take turns by the sizes: each is tried, and two
    runs on the same inputs have the same one."""
    cells = sum(extent for array in (*arrays, *outputs) for extent in array.shape)
    config = cells if configs_of(kernel.function) else None
    made = TritonKernel(kernel, instance, constants, config)
    scalars = [value.scalar for value in instance.inputs]
    if is_interpreted(kernel.function):
        given = [a.item() if s else _shared(a) for a, s in zip(arrays, scalars, strict=True)]
        made.into(given, [_shared(each) for each in outputs])
        return
    copies = [None if s else DeviceCopy(a) for a, s in zip(arrays, scalars, strict=True)]
    results = [DeviceCopy(each) for each in outputs]
    given = [a.item() if c is None else c.tensor for a, c in zip(arrays, copies, strict=True)]
    made.into(given, [each.tensor for each in results])
    torch.cuda.synchronize()
    for each in (*copies, *results):
        if each is not None:
            each.back()


class DeviceCopy:
    """An array on the GPU, with all of the memory that it is a view of."""

    def __init__(self, array: Array) -> None:
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
    found = array
    while isinstance(found.base, np.ndarray):
        found = found.base
    return found.reshape(-1).view(np.uint8)


def _shared(array: Array) -> torch.Tensor:
    """A tensor on the memory of an array, with its strides."""
    if array.flags.writeable:
        return tensor_of(array)
    return tensor_of(array) if array.flags.c_contiguous else _expanded(array)


def _expanded(array: Array) -> torch.Tensor:
    """A tensor of an array that may not be written, with its strides, on a copy of what it sees."""
    once = array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]
    return tensor_of(np.array(once)).expand(array.shape)
