"""Kernels of Numba-CUDA launched on a GPU, with the lines of their source in their code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from noyau.errors import MissingExtraError
from noyau.kernels.call import FunctionKernel
from noyau.kernels.reference import empty_outputs
from noyau.kernels.user_kernel import GPU, UserKernel, ask, python_function
from noyau.signatures.types import Instance

try:
    from numba import cuda
except ImportError as error:
    raise MissingExtraError("numba is not installed; run: pip install 'noyau-kernels[numba]'") from error


def launch(kernel: UserKernel, instance: Instance, arrays: Sequence[np.ndarray], constants: Mapping[str, Any]) -> None:
    """One launch, on memory of the device that no one else has; outputs that nothing is put into before are unset."""
    run = FunctionKernel(kernel, instance, constants)
    outputs = empty_outputs(instance, arrays)
    before = run.prepared([np.array(each) for each in arrays], outputs)
    unset = run.unset(before, outputs)
    positional, named = run.arguments(before, outputs)
    names = {id(o): v.name for v, o in zip(instance.outputs, outputs, strict=True)}
    arguments = [_placed(each, names.get(id(each)) in unset) for each in (*positional, *named.values())]
    launched = kernel.usage.launch
    if callable(launched):
        launched = ask(launched, {**run.offers(before, outputs), "device": GPU}, f"launch= of {kernel.called}")
    launcher: Any = cuda.jit(lineinfo=True)(python_function(kernel.function or launch))
    launcher[launched](*arguments)
    cuda.synchronize()


def _placed(value: Any, is_unset: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return cuda.device_array(value.shape, value.dtype) if is_unset else cuda.to_device(value)


def with_lines(jit: Callable[..., Any] | None = None) -> None:
    """From here on kernels of this process are compiled with the lines of their source."""
    plain: Callable[..., Any] = jit or cuda.jit

    def lined(*args: Any, **options: Any) -> Any:
        if not options.get("debug"):
            options.setdefault("lineinfo", True)
        return plain(*args, **options)

    cuda.jit = lined
