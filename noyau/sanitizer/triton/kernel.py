"""A watched launch of a kernel of Triton in a process of its own, since Triton interprets only where it was asked to
before it was imported.

A kernel of Triton with every access watched: where Triton interprets, and else in a process in which it does.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.kernels.isolated_library import pack
from noyau.kernels.triton.calls import is_interpreted
from noyau.kernels.user_kernel import UserKernel, choose_constants, python_function
from noyau.ops.reload import Home, home_of, reload_op
from noyau.sanitizer.access_map import AccessMap
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import KernelCase
from noyau.sanitizer.triton.run import watch_here
from noyau.signatures.binding import bind
from noyau.workers.worker import Worker

if TYPE_CHECKING:
    from noyau.ops.op import Op

Array = np.ndarray
_PATIENCE_S, _LOADING_S = 60.0, 120.0
_LOCAL = "it is watched in a process of its own, which finds its op as a global of a file; put it into one"
_WORKERS: dict[str, Worker] = {}  # the one of the last file of which an op was watched


def watch_in_worker(case: KernelCase) -> WatchedRun:
    """The kernel on its arrays, watched in another process, which stays for the next one of its op.

    UnsupportedError where that process cannot find its op; CheckError where it raises, crashes or does not end."""
    kernel = case.kernel
    home = home_of(_op_with(kernel))
    if home is None:
        raise UnsupportedError(f"{kernel.called}: {_LOCAL}")
    worker = _worker(home, kernel.called)
    chosen = {n: v for n, v in kernel.usage.constants.items() if isinstance(v, bool | int | float | str)}
    constants = {n: v for n, v in case.constants.items() if isinstance(v, bool | int | float | str)}
    worker.patience_s = _LOADING_S if not worker.is_running else _PATIENCE_S
    return worker.ask(watch_at, home, kernel.name, chosen, constants, pack(case.arrays), case.size)


def _worker(home: Home, name: str) -> Worker:
    """A process in which Triton interprets, for the ops of a file."""
    if home.file not in _WORKERS:
        end()
        _WORKERS[home.file] = Worker(name, environment={"TRITON_INTERPRET": "1"})
    worker = _WORKERS[home.file]
    worker.name = name
    return worker


@atexit.register
def end() -> None:
    """End the process, if there is one."""
    while _WORKERS:
        _WORKERS.popitem()[1].end()


def _op_with(kernel: UserKernel) -> Op[..., Any]:
    """The op that a kernel is of, among the globals of its function and of what it imports."""
    from noyau.ops.op import Op

    scope = getattr(python_function(kernel.function or _op_with), "__globals__", {})
    modules = [vars(value) for value in scope.values() if isinstance(value, ModuleType)]
    for names in (scope, *modules):
        for value in list(names.values()):
            if isinstance(value, Op) and any(each.target is kernel.target for each in value.kernels.values()):
                return value
    raise UnsupportedError(f"{kernel.called}: {_LOCAL}")


def watch_at(
    home: Home,
    name: str,
    chosen: Mapping[str, Any],
    constants: Mapping[str, Any],
    arrays: Sequence[Array],
    size: str,
) -> WatchedRun:
    """In the worker: one launch of a kernel of the op at a place, watched."""
    op = reload_op(home)
    assert op.signature is not None
    bound = bind(op.signature, arrays, op.known(constants), op.name)
    kernel = op.kernels.get(name) or op.kernels[name.partition(" (")[0]]  # one choice of its constants
    case = KernelCase(choose_constants(kernel, tuple(chosen.items())), bound.instance, bound.arrays, constants, size)
    watched = watch_here(case)
    return replace(watched, outputs=tuple(watched.outputs or ()))


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """The kernel on its arrays, watched, on tensors of the CPU, whether there is a GPU or not; where Triton
    interprets, a map of it is put into `maps`.

    UnsupportedError where it cannot be; CheckError where it raises, crashes or does not end."""
    return watch_here(case, maps) if is_interpreted(case.kernel.function) else watch_in_worker(case)
