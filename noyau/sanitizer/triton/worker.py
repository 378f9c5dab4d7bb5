"""The worker process in which Triton interprets. torch and Triton take seconds to load, so one process watches the
kernels of all ops of a file."""

from __future__ import annotations

import atexit
from importlib import import_module
from typing import Any

from noyau.codegen.language import LANGUAGES, Grid
from noyau.ops.op import Op
from noyau.ops.op_homes import Home, reload_op
from noyau.workers.worker import Worker

# Products of blocks are small: beside other programs, two threads take ten times as long as one.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
INTERPRETING = {"TRITON_INTERPRET": "1", **ONE_THREAD}
_LOADING_S = 120.0
_INTERPRETERS: dict[str, InterpreterWorker] = {}  # the worker of the last file


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
