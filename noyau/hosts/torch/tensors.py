"""Tensors of a call: whether each is plain memory of the CPU, and a clear error where it cannot be.

Arrays as tensors of torch and back, on the same memory, so that both see its changes: arrays of NumPy, and those of
other packages on a GPU, by DLPack if the package has it (CuPy), whose exchange orders the streams of both sides,
else by the CUDA array interface (Numba), version 3 of which names the stream that writes the array. Tensors
without cells, whose shapes may be symbolic, have arrays of one cell as stand-ins."""

import sys
from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from torch.autograd import forward_ad

from noyau.dtypes import DType
from noyau.errors import SignatureError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.numpy.dlpack import lies_on_gpu
from noyau.signatures.types import Family, Signature

_OF_TENSORS = {theirs: ours for ours, theirs in TO_TORCH.items()}
_UNKNOWN = 7  # stands for a size that depends on data
_BITS = {1: torch.uint8, 2: torch.int16}  # in which the cells of a dtype that NumPy lacks are exchanged


def from_torch(dtype: torch.dtype) -> DType | None:
    """The DType of a dtype of torch, or None where noyau has none (complex, quantised)."""
    return _OF_TENSORS.get(dtype)


@cache
def _numpy(dtype: torch.dtype) -> np.dtype | None:
    """The NumPy dtype of a torch dtype that only ml_dtypes has; None for others."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else None


@cache
def _torch(dtype: np.dtype) -> torch.dtype | None:
    """The torch dtype of a NumPy dtype that only ml_dtypes has; None for others."""
    return getattr(torch, dtype.name, None) if hasattr(ml_dtypes, dtype.name) else None


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The cells of a tensor on the CPU where they lie, without its gradient. TypeError where NumPy lacks the dtype."""
    plain = tensor.detach()
    own = _numpy(plain.dtype)
    array: np.ndarray = plain.numpy() if own is None else plain.view(_BITS[plain.itemsize]).numpy().view(own)
    return array


def array_like(tensor: torch.Tensor) -> np.ndarray:
    """An array of the dtype, the shape and the strides of a tensor, wherever that lies; its cells are all one zero."""
    strides = tuple(stride * tensor.element_size() for stride in tensor.stride())
    return as_strided(np.zeros((), dtype_of(tensor).numpy), tuple(tensor.shape), strides)


def layout_array(tensor: torch.Tensor) -> np.ndarray:
    """`array_of` on the CPU, `array_like` elsewhere: an array with the layout of a tensor."""
    return array_of(tensor) if tensor.device.type == "cpu" else array_like(tensor)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor of the same memory; a read-only array, or one of negative strides, is copied."""
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = np.array(array)
    own = _torch(array.dtype)
    return torch.from_numpy(array) if own is None else torch.from_numpy(array.view(f"i{array.itemsize}")).view(own)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._are_functorch_transforms_active
_tracing = torch._C._get_tracing_state
_records = torch._C.is_grad_enabled
_QUANTISED = frozenset({torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4})


def is_unwatched(arguments: Sequence[Any]) -> bool:
    """Whether no part of torch but autograd intercepts a call on these: no mode, transform, trace or forward-mode
    level, and no tensor of a subclass."""
    if _dispatch_modes() or _function_modes() or _transforms() or forward_ad._current_level >= 0 or _tracing():
        return False
    for each in arguments:  # noqa: SIM110  a generator costs more than the rest
        if type(each) not in _PLAIN and isinstance(each, torch.Tensor):
            return False
    return True


def is_recorded(arguments: Sequence[Any]) -> bool:
    """Whether autograd records a call on these."""
    if not _records():
        return False
    for each in arguments:  # noqa: SIM110  as above
        if isinstance(each, torch.Tensor) and each.requires_grad:
            return True
    return False


def is_negated(arguments: Sequence[Any]) -> bool:
    """Whether a tensor is a view that negates its memory as it is read."""
    for each in arguments:  # noqa: SIM110  as above
        if isinstance(each, torch.Tensor) and each.is_neg():
            return True
    return False


def in_memory(each: Any) -> Any:
    """An argument with all its cells in memory: a copy of a view that negates or conjugates, or of zeros without
    memory."""
    if not isinstance(each, torch.Tensor):
        return each
    return each.clone() if each._is_zerotensor() else each.resolve_conj().resolve_neg()


def reads_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors read the same cells of memory as the same numbers: both negated or none, and conjugated."""
    return one.is_neg() is other.is_neg() and one.is_conj() is other.is_conj()


def has_tangent(arguments: Sequence[Any]) -> bool:
    """Whether a tensor carries a forward-mode derivative."""
    if forward_ad._current_level < 0:
        return False
    tensors = (each for each in arguments if isinstance(each, torch.Tensor))
    return any(forward_ad.unpack_dual(each).tangent is not None for each in tensors)


def require_taken(called: str, names: Sequence[str], arguments: Sequence[Any]) -> None:
    """Raise UnsupportedError for the first tensor that no kernel takes, SignatureError for an array of NumPy."""
    tensors = [(name, each) for name, each in zip(names, arguments, strict=True) if isinstance(each, torch.Tensor)]
    for name, each in zip(names, arguments, strict=True):
        if isinstance(each, np.ndarray | np.generic):
            message = f"{name} is of NumPy, and {tensors[0][0]} a tensor" if tensors else f"{name} is of NumPy"
            device = device_of(arguments)
            there = "" if device == "cpu" else f', device="{device}"'
            raise SignatureError(f"{called}: {message}{there and f' on {device}'}; give torch.as_tensor({name}{there})")
    for name, tensor in tensors:
        if fault := fault_of(name, tensor):
            raise UnsupportedError(f"{called}: {fault}")
    devices = {str(tensor.device): name for name, tensor in tensors if tensor.dim()}
    if len(devices) > 1:
        message = " and ".join(f"{name} on {device}" for device, name in devices.items())
        raise UnsupportedError(f"{called}: {message}; tensors of one call lie on one device")
    for name, tensor in tensors:
        if tensor.device.type not in ("cpu", "cuda", "meta"):
            message = f"{name} lies on {tensor.device}, and noyau has kernels for tensors on the CPU and on CUDA"
            raise UnsupportedError(f"{called}: {message}; copy it there: {name}.cpu()")


def device_of(arguments: Sequence[Any]) -> str:
    """Device of a call: that of its tensors; tensors without axes may lie on the CPU nevertheless."""
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    elsewhere = (str(each.device) for each in tensors if each.device.type != "cpu")
    return next((str(each.device) for each in tensors if each.dim()), next(elsewhere, "cpu"))


def fault_of(name: str, tensor: torch.Tensor) -> str:
    """Why no kernel takes a tensor, wherever it lies, or an empty text."""
    if tensor.is_nested:
        return f"{name} is a nested tensor; give its parts, or {name}.to_padded_tensor(0.0)"
    if tensor.dtype in _QUANTISED:
        return f"{name} is quantised ({tensor.dtype}); give {name}.dequantize()"
    if tensor.layout is not torch.strided:
        return f"{name} is laid out as {tensor.layout}, not as cells at strides; give {name}.to_dense()"
    if tensor.dtype.is_complex:
        return f"{name} is {_short(tensor.dtype)}, and noyau computes on real numbers; give torch.view_as_real({name})"
    if from_torch(tensor.dtype) is None:
        return f"{name} is {_short(tensor.dtype)}, which noyau does not compute on; give {name}.float()"
    return ""


def arrays_of(arguments: Sequence[Any]) -> list[Any]:
    """Tensors as arrays, copied from other devices and where cells are not as in memory; numbers stay."""
    return [array_of(in_memory(each).cpu()) if isinstance(each, torch.Tensor) else each for each in arguments]


def dtype_of(tensor: torch.Tensor) -> DType:
    """The DType of a tensor that has passed `require_taken`."""
    dtype = from_torch(tensor.dtype)
    assert dtype is not None
    return dtype


def promote(signature: Signature, arguments: Sequence[Any]) -> list[Any]:
    """The arguments, those of the family float cast to the widest dtype of any of them, as torch does under autocast
    for operators that need one dtype. Unchanged if the dtypes agree."""
    pairs = list(zip(signature.inputs, arguments, strict=True))
    floats = [each.dtype for term, each in pairs if term.element is Family.FLOAT and _is_float(each)]
    if len(set(floats)) < 2:
        return list(arguments)
    widest = reduce(torch.promote_types, floats)
    return [each.to(widest) if term.element is Family.FLOAT and _is_float(each) else each for term, each in pairs]


def _is_float(each: Any) -> bool:
    return isinstance(each, torch.Tensor) and each.dtype.is_floating_point


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def type_text(value: Any) -> str:
    """The type of an argument in words: `float32[3, 8]`."""
    return f"{_short(value.dtype)}{list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def tensors_of(names: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
    """The arguments, arrays on a GPU as tensors; others unchanged. Nothing is copied."""
    return [gpu_tensor(name, each) if lies_on_gpu(each) else each for name, each in zip(names, arguments, strict=True)]


def gpu_tensor(name: str, array: Any) -> torch.Tensor:
    """A tensor on the memory of an array on a GPU; the current stream waits for the stream that writes the array.
    UnsupportedError where torch has no such dtype or strides, or no GPU."""
    try:
        if hasattr(array, "__dlpack__"):
            result: torch.Tensor = torch.from_dlpack(array)
            return result
        if (stream := array.__cuda_array_interface__.get("stream")) is not None:  # 1 and 2 are CUDA's default ones
            torch.cuda.current_stream().wait_stream(torch.cuda.ExternalStream(stream))
        return torch.as_tensor(array, device="cuda")
    except Exception as error:
        message = " ".join(str(error).split())[:300] or type(error).__name__
        raise UnsupportedError(f"{name}, of {type(array).__name__}, cannot be taken as a tensor: {message}") from error


def gpu_result_like(result: Any, like: Any) -> Any:
    """Results as arrays of the package of `like`; as tensors where it takes none, or lacks the dtype."""
    if isinstance(result, tuple):
        return tuple(gpu_result_like(each, like) for each in result)
    top = type(like).__module__.partition(".")[0]
    taken = getattr(sys.modules.get(top), "from_dlpack", None)
    if top in ("numba", "numba_cuda"):
        # Numba ignores the streams of others: queued work must be done before it reads.
        if torch.cuda.current_stream() != torch.cuda.default_stream():
            torch.cuda.current_stream().synchronize()
        taken = getattr(sys.modules.get("numba.cuda"), "as_cuda_array", None)
    if taken is None:
        return result
    try:
        return taken(result)
    except (TypeError, ValueError, RuntimeError, AttributeError, BufferError):
        return result


def stand_in(value: Any, *, exact: bool = False) -> Any:
    """An array of the dtype and the shape of a tensor, of one cell in memory; a number for a symbolic one. `exact`:
    torch specialises on the number, so that the trace is valid for it alone."""
    if isinstance(value, torch.Tensor):
        return np.broadcast_to(np.zeros((), dtype_of(value).numpy), tuple(map(number, value.shape)))
    if isinstance(value, torch.SymInt):
        return int(value) if exact else number(value)
    return 0.5 if isinstance(value, torch.SymFloat) else False if isinstance(value, torch.SymBool) else value


def number(extent: Any) -> int:
    """An extent as a number: for a symbolic one, its number at the trace."""
    hint = getattr(extent.node, "hint", None) if isinstance(extent, torch.SymInt) else extent
    return _UNKNOWN if hint is None else int(hint)
