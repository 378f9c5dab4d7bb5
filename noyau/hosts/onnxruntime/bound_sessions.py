"""Sessions of onnxruntime as callables that only run: inputs and outputs lie in memory that was bound beforehand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import InputError, UnsupportedError
from noyau.hosts.onnxruntime.custom_ops import one_line, ort_value, run

if TYPE_CHECKING:
    import onnxruntime

Arrays = Mapping[str, np.ndarray]

_ALIGNMENT_BYTES = 64  # as onnxruntime's own memory
_POISON = 0xA5


@dataclass(frozen=True, slots=True)
class BoundRun:
    """A run of a session, as a callable. `outputs` is where it writes, by name: outputs of strings are not there."""

    session: onnxruntime.InferenceSession
    binding: Any
    outputs: Arrays
    held: tuple[Any, ...]  # what the binding points into

    def __call__(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def poison(self) -> None:
        """Make the outputs no run's: a run has to write every cell again."""
        for array in self.outputs.values():
            array.reshape(-1).view(np.uint8)[:] = _POISON


@dataclass(frozen=True, slots=True)
class PlainRun:
    """A run of a session that makes its ends anew each time, as a callable: for strings, and for what is no tensor."""

    session: onnxruntime.InferenceSession
    arrays: Arrays

    def __call__(self) -> None:
        self.session.run(None, dict(self.arrays))

    @property
    def outputs(self) -> Arrays:
        """Nothing is kept."""
        return {}


def ends_run(session: onnxruntime.InferenceSession, arrays: Arrays) -> BoundRun | PlainRun:
    """A bound run, or a plain one where an end cannot be bound. InputError where the session refuses the arrays."""
    try:
        return bound_run(session, arrays)
    except UnsupportedError:
        plain = PlainRun(session, arrays)
    try:
        plain()
    except Exception as error:
        raise InputError(f"onnxruntime does not run: {one_line(error)}") from error
    return plain


def bound_run(session: onnxruntime.InferenceSession, arrays: Arrays, like: Arrays | None = None) -> BoundRun:
    """A callable that runs the session on copies of these arrays and allocates nothing for its ends.

    Its outputs are shaped as those of `like`, what a run of the session gave; without it the session runs once, to show
    that. The outputs are poisoned. InputError where it
    refuses the arrays, UnsupportedError where an input holds strings or an output is no tensor. For timing, open
    sessions with all optimizations, no spinning and a number of threads: `open_session(model, library, threads=2)`."""
    like = first_outputs(session, arrays) if like is None else like
    binding, held = session.io_binding(), []
    for name, array in arrays.items():
        held.append(ort_value(_aligned_copy(array)))
        binding.bind_ortvalue_input(name, held[-1])
    outputs = {}
    for name, array in like.items():
        if array.dtype.hasobject:
            binding.bind_output(name)
            continue
        outputs[name] = _aligned(array.shape, array.dtype)
        held.append(ort_value(outputs[name]))
        binding.bind_ortvalue_output(name, held[-1])
    bound = BoundRun(session, binding, outputs, tuple(held))
    bound.poison()
    return bound


def first_outputs(session: onnxruntime.InferenceSession, arrays: Arrays) -> Arrays:
    """Outputs of the session for these arrays. Errors as those of `bound_run`."""
    _refuse(session, arrays)
    return run(session, arrays)


def _refuse(session: onnxruntime.InferenceSession, arrays: Arrays) -> None:
    known = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
    for name, array in arrays.items():
        if name not in known:
            raise InputError(f"the model has no input {name!r}; it has {', '.join(map(repr, sorted(known)))}")
        if array.dtype.hasobject or array.dtype.kind in "US":
            raise UnsupportedError(f"the input {name!r} holds strings, which cannot be bound; run the session itself")


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size_bytes = math.prod(shape) * dtype.itemsize
    block = np.empty(size_bytes + _ALIGNMENT_BYTES, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT_BYTES
    return block[start : start + size_bytes].view(dtype).reshape(shape)


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    copy = _aligned(array.shape, array.dtype)
    copy[...] = array
    return copy
