"""A graph on a GPU whose first result does not wait for kernels: torch's own run first, noyau's from the second call.

Kernels are made, certified and timed when a graph is called again: one that is called once would never win that back.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

import torch
from torch import fx

from noyau.torch_modules.ahead import triton_begun
from noyau.torch_modules.running import Boxed, copied, eager, told_as


class Prompt:
    """A function of a list of tensors, which it empties: the nodes of a graph one by one, by torch's kernels, in the
    first call and while another thread compiles; from the second on what `compiled` gives. Nothing is compiled while a
    CUDA graph is captured: the capture has torch's kernels."""

    def __init__(self, module: fx.GraphModule, compiled: Callable[[], Boxed]) -> None:
        self.plain: Boxed | None = told_as("a compiled graph", eager(fx.GraphModule(module, copied(module.graph)), []))
        self.compiled: Callable[[], Boxed] | None = compiled
        self.known: Boxed | None = None
        self.begun: Thread | None = None
        self.lock = Lock()

    def __call__(self, arguments: list[Any]) -> Any:
        known, plain = self.known, self.plain
        if known is None and plain is not None:
            if self.begun is None:
                self.begun = Thread(target=triton_begun, daemon=True)  # beside what comes between the first two calls
                self.begun.start()
                return plain(arguments)
            if torch.cuda.is_current_stream_capturing() or not self.lock.acquire(blocking=False):
                return plain(arguments)
            try:
                known = self.now()
            finally:
                self.lock.release()
        assert known is not None
        return known(arguments)

    def now(self) -> Boxed:
        """What was compiled, once."""
        if self.known is None:
            assert self.begun is not None and self.compiled is not None
            self.begun.join()
            self.known = self.compiled()
            self.plain = self.compiled = None  # they hold the graph
        return self.known


def prompt(module: fx.GraphModule, compiled: Callable[[], Boxed]) -> Boxed:
    """`Prompt` as AOTAutograd takes it."""
    made = Prompt(module, compiled)

    def run(arguments: list[Any]) -> Any:
        return made(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd asks for it
    run.prompt = made  # type: ignore[attr-defined]
    return run
