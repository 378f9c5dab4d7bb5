"""A graph whose first result does not wait for kernels: torch's own run first, noyau's from the second call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

import torch
from torch import fx

from noyau.hosts.torch.cuda.device import beside_captures
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.device_inputs import is_static
from noyau.hosts.torch.modules.executor import Boxed, copy_graph, eager, with_device_errors
from noyau.jobs.optimize.torch.candidates import begin_triton
from noyau.jobs.optimize.torch.graph_hosts import GraphRecord
from noyau.jobs.optimize.torch.options import CompileOptions
from noyau.kernels.certificates import prepare
from noyau.toolchain.garbage_collection import without_collections

_ONE = Lock()  # of graphs that are compiled in the second call: kernels of two would be timed beside each other


class LazyCompile:
    """A function of a list of tensors, which it empties: the nodes of a graph one by one, by torch's kernels, in the
    first call and while another thread compiles, this graph or another one; from the second on what `compiled` gives.
    Nothing is compiled while a CUDA graph is captured: the capture has torch's kernels."""

    def __init__(self, module: fx.GraphModule, compiled: Callable[[], Boxed]) -> None:
        self.plain: Boxed | None = eager(fx.GraphModule(module, copy_graph(module.graph)), [])
        self.compiled: Callable[[], Boxed] | None = compiled
        self.known: Boxed | None = None
        self.is_begun = False
        self.device = modules_sites.device_of(module.graph)

    def __call__(self, arguments: list[Any]) -> Any:
        plain = self.plain  # before `known`: one of them is there, whatever other threads do
        known = self.known
        if known is None and not torch.cuda.is_current_stream_capturing() and _ONE.acquire(blocking=False):
            try:
                with beside_captures(), without_collections():
                    known = self.now()
            finally:
                _ONE.release()
        run = known or plain
        assert run is not None
        return run(arguments)

    def now(self) -> Boxed | None:
        """Compile once; None in the first call."""
        if not self.is_begun:
            self.is_begun = True
        elif self.known is None:
            assert self.compiled is not None
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # kernels are timed when what was asked for before is done
            self.known = self.compiled()
            self.plain = self.compiled = None  # they hold the graph
        return self.known


def begin() -> None:
    """Begin with what the second call needs of modules, digests and Triton, beside the tracing of the first; not while
    a CUDA graph is captured, which the driver would end."""

    def early() -> None:
        with contextlib.suppress(Exception):  # whoever needs it next says what is wrong
            prepare()
            from noyau.jobs.optimize.cuda import host  # noqa: F401  a second of it
        begin_triton()

    if not torch.cuda.is_current_stream_capturing():
        Thread(target=early, daemon=True).start()


def compile_lazily(module: fx.GraphModule, compiled: Callable[[], Boxed]) -> Boxed:
    """`LazyCompile` as AOTAutograd takes it."""
    result = LazyCompile(module, compiled)
    run = with_device_errors("a compiled graph", result)
    run.prompt = result  # type: ignore[attr-defined]
    return run


def is_prompt(program: fx.Graph, wishes: CompileOptions, record: GraphRecord) -> bool:
    """Whether the first result of a graph does not wait for its kernels: on a GPU, where nobody reads the record."""
    on_gpu = modules_sites.device_of(program) != modules_sites.CPU
    return on_gpu and may_wait(wishes, record) and is_static(program)


def may_wait(wishes: CompileOptions, record: GraphRecord) -> bool:
    """Whether kernels of a GPU may come after a graph's first result."""
    return wishes.prompt and wishes.rest == "eager" and record.forgets
