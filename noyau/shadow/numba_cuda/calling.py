"""A kernel of Numba-CUDA that is on no op, launched on one's own arguments without a GPU, every access watched."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

from noyau.errors import DeviceError, SignatureError
from noyau.handwritten.kernels import python_function
from noyau.shadow.numba_cuda.launching import Argument, configured, launched
from noyau.shadow.numba_cuda.watching import MOST
from noyau.shadow.recording import TooManyError
from noyau.shadow.records import Watched, findings_of


def call(function: Any, args: Sequence[Any], launch: Any, size: str, called: str) -> tuple[Watched, Any]:
    """As shadow/calling.py has it. SignatureError without a launch, or for another number of arguments; DeviceError for
    a launch that no GPU takes, or that made too many accesses."""
    plain = python_function(function)
    names = list(inspect.signature(plain).parameters)
    if launch is None:
        raise SignatureError(
            f"{plain.__name__} needs a launch: noyau.check({plain.__name__}, args, launch=(grid, block))"
        )
    if len(args) != len(names):
        raise SignatureError(f"{plain.__name__} takes {', '.join(names)}; it was given {len(args)} arguments")
    configuration = configured(launch)
    arguments = [Argument(name, _held(value)) for name, value in zip(names, args, strict=True)]
    try:
        run = launched(plain, configuration, arguments, MOST)
    except TooManyError:
        raise DeviceError(
            f"{plain.__name__}{configuration} made more than {MOST} accesses; check smaller arrays"
        ) from None
    told = f"{size}; launched {configuration}"
    findings, allowed = findings_of(run.recorder.shadow.seen(), run.route, called, plain.__name__, told)
    return Watched(tuple(findings), run.recorder.shadow.accesses, tuple(allowed), run.notes), None


def _held(value: Any) -> Any:
    """An array of NumPy, where an array of the simulator stands."""
    found: Any = value._ary if isinstance(value, FakeCUDAArray) else value
    return found if isinstance(found, np.ndarray) or not hasattr(found, "copy_to_host") else found.copy_to_host()
