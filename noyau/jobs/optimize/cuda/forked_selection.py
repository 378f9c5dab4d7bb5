"""The kernels of a graph for a GPU, found by a copy of this process while the first call goes on.

To cut a graph and to spell its kernels is Python's work for a second, and so is what torch does in a first call: a
thread would take that much longer for both. The copy calls nothing of the GPU.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.device_simplification import simplify
from noyau.jobs.optimize.cuda import host as cuda_host
from noyau.jobs.optimize.cuda import parallel_compile
from noyau.toolchain.python_modules import without_collections
from noyau.workers.fork import ForkedWorker
from noyau.workers.resources import processors

PATIENCE_S = 10.0  # for what takes a second or two
_FEWEST = 4  # processors
_IMPORTED = ("noyau.hosts.torch.cuda.launch", "triton.language.extra.libdevice")  # by the copy's work
log = logging.getLogger("noyau")


@dataclass(frozen=True, slots=True)
class ForkedPlan:
    """Plan that a copy of the process has made: groups, kernels, and their launches as tasks."""

    cut: Partition
    plan: Plan
    tasks: dict[str, list[bytes]]


class ForkedPlanner:
    """Some work done by a copy of this process; `then` is called with the result, in a thread of its own. Nothing comes
    of it where the copy fails."""

    def __init__(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.made: Any = None
        self.worker = ForkedWorker("a copy of this process", 2 * PATIENCE_S, state=work)
        with without_collections():  # what a copy lets go of may be of the GPU
            self.worker.start()
        self.thread = Thread(target=self._listen, args=(then,), daemon=True)
        self.thread.start()

    def _listen(self, then: Callable[[Any], None]) -> None:
        with self.worker, contextlib.suppress(Exception):
            self.made = self.worker.call(_work)
        if self.made is not None:
            with contextlib.suppress(Exception):
                then(self.made)

    def result(self) -> Any:
        """Plan of the copy; None where it failed, or takes too long, and is ended."""
        self.thread.join(PATIENCE_S)
        if self.thread.is_alive():
            log.info(
                "a copy of this process has not found the kernels of a graph in %g s; they are found here", PATIENCE_S
            )
            self.worker.kill()
        return self.made


def _work(work: Callable[[], Any]) -> Any:
    """In the copy: the work."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(max(1, round(2 * PATIENCE_S)))  # whoever waits for it
    return work()


def begin(program: fx.Graph) -> ForkedPlanner | None:
    """Begin with a graph whose sizes are numbers, and with its launches once its kernels are known. None where there
    are too few processors for that, or the GPU is not one of CUDA."""
    device = modules_sites.device_of(program)
    if device.type != "cuda" or torch.version.hip is not None or sys.platform != "linux" or processors() < _FEWEST:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    for module in _IMPORTED:  # here: a copy waits for ever for a module that another thread has begun to import
        with contextlib.suppress(Exception):  # Triton is not there, and the work says so
            import_module(module)
    with contextlib.suppress(OSError):
        return ForkedPlanner(
            lambda: plan_program(program, 10 * major + minor), lambda made: parallel_compile.give(made.tasks)
        )
    return None


def plan_program(program: fx.Graph, capability: int) -> ForkedPlan:
    """The groups of a graph, which is changed, and their kernels for a GPU of this compute capability. Only a copy of a
    process that has a GPU calls it: Triton's driver is another one afterwards."""
    simplify(program)
    with _disable_current_modes():
        found = cuda_host.with_updates_apart(modules_sites.trace_graph(program))
        cut, plan = cuda_host.plan_for_triton(found, reasons=False)
        return ForkedPlan(cut, plan, parallel_compile.tasks_of(plan.kernels, found, capability))
