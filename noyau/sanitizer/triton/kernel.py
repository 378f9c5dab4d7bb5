"""A watched kernel of Triton: in this process if Triton interprets here, else in a worker in which it does, since it
interprets only if asked to before its import. As both take seconds to load, one worker serves all ops of a file."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES, Grid
from noyau.errors import SignatureError, UnsupportedError
from noyau.kernels.certificates import pack
from noyau.kernels.triton.parameters import is_interpreted
from noyau.kernels.user_kernel import UserKernel, choose_constants, python_function
from noyau.ops.op import Op
from noyau.ops.op_homes import Home, home_of, reload_op
from noyau.sanitizer.access_map import AccessMap
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import KernelCase
from noyau.signatures.instances import Bound, bind
from noyau.workers.worker import Worker

# Products of blocks are small: beside other programs, two threads take ten times as long as one.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
INTERPRETING = {"TRITON_INTERPRET": "1", **ONE_THREAD}
_LOADING_S = 120.0
_INTERPRETERS: dict[str, InterpreterWorker] = {}  # the worker of the last file
_PATIENCE_S = 60.0
_LOCAL = "it is watched in a process of its own, which finds its op as a global of a file; put it into one"


class InterpreterWorker(Worker):
    """A process in which Triton interprets; its state is the op at `home`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, environment=INTERPRETING)
        self.home: Home | None = None

    def hold(self, home: Home) -> None:
        """Make the op at a place the state, in a new process if none runs. Errors of `Worker.ask`."""
        if not self.is_running or self.home != home:
            self.home, self.patience_s = None, _LOADING_S
            self.open(load, home)
            self.home = home


def interpreter_of(home: Home, name: str) -> InterpreterWorker:
    """Return the worker for the ops of a file, and end the worker of another file."""
    if home.file not in _INTERPRETERS:
        end()
        _INTERPRETERS[home.file] = InterpreterWorker(name)
    worker = _INTERPRETERS[home.file]
    worker.name = name
    return worker


@atexit.register
def end() -> None:
    """End the worker, if there is one."""
    while _INTERPRETERS:
        _INTERPRETERS.popitem()[1].end()


def load(home: Home) -> Op[..., Any]:
    """In the worker: load the op at a place. InputError if it is not there."""
    op = reload_op(home)
    if any(LANGUAGES[kernel.language].grid is Grid.PROGRAMS for kernel in op.kernels.values()):
        import_module("noyau.kernels.triton.calls")  # it takes seconds, which no run should wait for
    return op


def watch_in_worker(case: KernelCase) -> WatchedRun:
    """Watch the kernel on its arrays in a worker process, which stays for later kernels. UnsupportedError if the worker
    cannot find its op; CheckError if it raises, crashes or exceeds its time."""
    kernel, home = case.kernel, _home_of(case.kernel)
    worker = interpreter_of(home, kernel.title)
    choice, constants = map(plain_values, (kernel.usage.constants, case.constants))
    worker.hold(home)
    worker.patience_s = _PATIENCE_S
    return worker.call(watch_held, kernel.name, choice, constants, pack(case.arrays), case.size)


def _home_of(kernel: UserKernel) -> Home:
    """Return the place of a kernel's op, found among the globals of its function and of the modules that it imports."""
    scope = getattr(python_function(kernel.function or _home_of), "__globals__", {})
    modules = [vars(value) for value in scope.values() if isinstance(value, ModuleType)]
    ops = [value for names in (scope, *modules) for value in list(names.values()) if isinstance(value, Op)]
    for op in ops:
        if any(each.target is kernel.target for each in op.kernels.values()) and (home := home_of(op)):
            return home
    raise UnsupportedError(f"{kernel.title}: {_LOCAL}")


def watch_held(
    op: Op[..., Any],
    name: str,
    choice: Mapping[str, Any],
    constants: Mapping[str, Any],
    arrays: Sequence[np.ndarray],
    size: str,
) -> WatchedRun:
    """In the worker: watch one launch of a kernel of its op."""
    from noyau.sanitizer.triton.run import watch_here

    kernel, bound = kernel_and_call(op, name, choice, constants, arrays)
    return watch_here(KernelCase(kernel, bound.instance, bound.arrays, constants, size))


def plain_values(constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants that can be sent to another process."""
    return {name: value for name, value in constants.items() if isinstance(value, bool | int | float | str)}


def kernel_and_call(
    op: Op[..., Any], name: str, choice: Mapping[str, Any], constants: Mapping[str, Any], arrays: Sequence[np.ndarray]
) -> tuple[UserKernel, Bound]:
    """In the worker: return a kernel of its op with a choice of its constants, and arrays bound as by a call."""
    assert op.signature is not None
    bound = bind(op.signature, arrays, op.known_sizes(constants), op.name)
    kernel = op.kernels.get(name) or op.kernels[name.partition(" (")[0]]  # the name may end in a choice of constants
    return choose_constants(kernel, tuple(choice.items())), bound


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """Watch the kernel on its arrays, on CPU tensors even if there is a GPU; if Triton interprets here, `maps` receives
    its access map. UnsupportedError if it cannot be watched; CheckError if it raises, crashes or exceeds its time."""
    if not is_interpreted(case.kernel.function):
        return watch_in_worker(case)
    from noyau.sanitizer.triton.run import watch_here

    return watch_here(case, maps)


def call(function: Any, args: Sequence[Any], launch: Any, size: str, op: str) -> tuple[WatchedRun, Any]:
    """Watch a call, as in sanitizer/routes.py. SignatureError without a grid, UnsupportedError if Triton compiles."""
    name = python_function(function).__name__
    if launch is None:
        raise SignatureError(f"{name} needs a grid: noyau.check({name}, args, launch=(programs,))")
    if not is_interpreted(function):
        remedy = "set TRITON_INTERPRET=1 before triton is imported, or run: noyau check SCRIPT.py"
        raise UnsupportedError(f"{name} was made where Triton compiles, so its accesses are not seen; {remedy}")
    from noyau.sanitizer.triton.run import watch_call

    return watch_call(function, args, launch, size, op), None
