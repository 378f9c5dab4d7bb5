"""The launches of kernels for a GPU compiled beside this process, before any of them is called."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

import torch

from noyau.codegen.plan import Planned
from noyau.compiler.lowering.input_layouts import Layout
from noyau.frontends.torch.sites import size_hint
from noyau.hosts.torch.modules.sites import TracedGraph
from noyau.jobs.optimize.cuda.candidates import call_of, layouts_of
from noyau.jobs.optimize.torch.candidates import input_names
from noyau.toolchain.triton.parallel_compile import COMPILER

BEGUN: dict[str, list[Event]] = {}  # by the name of a kernel: set when its launches are compiled
_TAKING = Lock()  # of the events of a kernel, for which one waits
Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
Launching = tuple[Any, Sequence[Any], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FirstCall:
    """A kernel, how its inputs lie, and shapes, strides and dtypes of what it reads in its first place."""

    kernel: Planned
    layouts: tuple[Layout, ...]
    forms: tuple[Form, ...]

    def launches(self, device: torch.device) -> list[Launching]:
        """Launches for tensors on a device that lie so; of their cells nothing is read."""
        from noyau.hosts.torch.cuda.launch import foretell

        call = call_of(self.kernel, self.layouts)
        results = [torch.empty_strided(*lies, dtype=dtype, device=device) for *lies, dtype in self.forms]
        return foretell(call.launcher.function, call.in_memory(results))


def first_call(kernel: Planned, source: TracedGraph) -> FirstCall:
    """The first call of a kernel of a graph."""
    group = kernel.groups[0]
    fakes = [source.givers[name].meta["val"] for name in input_names(group)]
    forms = [(tuple(map(size_hint, fake.shape)), tuple(map(size_hint, fake.stride())), fake.dtype) for fake in fakes]
    return FirstCall(kernel, layouts_of(group, source), tuple(forms))


def begin(kernels: Sequence[Planned], source: TracedGraph, device: torch.device) -> None:
    """Begin with the launches of kernels that nothing is begun of."""
    for kernel in kernels if device.type == "cuda" else ():

        def begun(kernel: Planned = kernel) -> list[Event | None]:
            from noyau.hosts.torch.cuda.launch import guard

            with guard(device):
                return [COMPILER.begin(*each) for each in first_call(kernel, source).launches(device)]

        _begin(kernel.operator, begun)


def _begin(name: str, begun: Callable[[], list[Event | None]]) -> None:
    events = list[Event]()
    if BEGUN.setdefault(name, events) is events:
        with contextlib.suppress(Exception):  # it is compiled when it is called, and there its error is told
            events += filter(None, begun())


def wait(kernel: Planned) -> None:
    """Until its launches are compiled, or are given up; once."""
    with _TAKING:
        events = BEGUN.get(kernel.operator, [])
        taken, events[:] = events[:], []
    COMPILER.wait(taken)
