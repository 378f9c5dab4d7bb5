"""Arrays of other packages on a GPU as tensors of the same memory, and results as arrays of their kind.

By DLPack where a package speaks it (CuPy), whose exchange orders the streams of both sides; else by the CUDA array
interface (Numba), version 3 of which names the stream that the array is written on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from noyau.errors import UnsupportedError
from noyau.hosts.detection import lies_on_gpu


def tensors_of(names: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
    """The arguments, arrays on a GPU as tensors; everything else as it is. Nothing is copied."""
    return [tensor_of(name, each) if lies_on_gpu(each) else each for name, each in zip(names, arguments, strict=True)]


def tensor_of(name: str, array: Any) -> torch.Tensor:
    """The cells of an array on a GPU where they lie, once what writes them on other streams is waited for.
    UnsupportedError where torch has no such dtype or strides, or no GPU."""
    try:
        if hasattr(array, "__dlpack__"):
            result: torch.Tensor = torch.from_dlpack(array)
            return result
        wait_for(array.__cuda_array_interface__.get("stream"))
        return torch.as_tensor(array, device="cuda")
    except Exception as error:
        message = " ".join(str(error).split())[:300] or type(error).__name__
        raise UnsupportedError(f"{name}, of {type(array).__name__}, cannot be taken as a tensor: {message}") from error


def wait_for(stream: int | None) -> None:
    """Let the current stream wait for another one: 1 and 2 are CUDA's default streams, None is none."""
    if stream is not None:
        torch.cuda.current_stream().wait_stream(torch.cuda.ExternalStream(stream))


def return_like(result: Any, like: Any) -> Any:
    """Results as arrays of the package of `like`, on the same memory; as tensors where it takes none, or lacks the
    dtype."""
    if isinstance(result, tuple):
        return tuple(return_like(each, like) for each in result)
    top = type(like).__module__.partition(".")[0]
    taken = getattr(sys.modules.get(top), "from_dlpack", None)
    if top in ("numba", "numba_cuda"):
        # It has no part in the streams of others: what is queued must be done where it looks.
        if torch.cuda.current_stream() != torch.cuda.default_stream():
            torch.cuda.current_stream().synchronize()
        taken = getattr(sys.modules.get("numba.cuda"), "as_cuda_array", None)
    if taken is None:
        return result
    try:
        return taken(result)
    except (TypeError, ValueError, RuntimeError, AttributeError, BufferError):
        return result
