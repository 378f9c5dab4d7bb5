"""The GPUs of this machine as an engine: chunks go to them in turn, through pinned memory, two threads for each: one
copies while the kernels of the other run. States are merged here, in the order of the rows, as those of threads are."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from noyau.engines.chunk_kernels import ChunkKernels
from noyau.engines.derived import Derived
from noyau.engines.work import Work
from noyau.errors import InputError, OutsideError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.cuda.device import guard, missing_device
from noyau.hosts.torch.tensors import array_of
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Graph, Lookup, Node, Reduce, Scatter
from noyau.ops.torch.graph_kernels import GraphKernels, draw_graph

THREADS = 2  # of a device


@dataclass
class DeviceWork(Work):
    """The work with its kernels on devices. UnsupportedError for a reduction in Python."""

    devices: Sequence[torch.device] = ()
    kernels: KernelsInTurn = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        one = self.reduction
        if one is not None and not isinstance(one, Derived):
            remedy = "write its folds as an op, or say engine='local'"
            raise UnsupportedError(f"{self.engine}: the steps of {one.name} are Python, which no GPU runs; {remedy}")
        self.kernels = KernelsInTurn(one.before.graph if one else self.graph, self.value.name, self.devices)
        self.reduction = replace(one, before=self.kernels) if one else None

    def results(self, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
        inputs = {**self.arguments, **arrays}
        return self.kernels([inputs[node.output] for node in self.graph.inputs])


class KernelsInTurn(ChunkKernels):
    """The kernels of a graph on some devices, of which each takes the next call in turn."""

    def __init__(self, graph: Graph, name: str, devices: Sequence[torch.device]) -> None:
        super().__init__(graph, name, "")
        self.turns = itertools.cycle([DeviceKernels(graph, name, device) for device in devices])

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return next(self.turns)(arrays)


class DeviceKernels:
    """A graph as kernels of one device, called on arrays. OutsideError where an index is outside of what it looks up:
    kernels of a GPU leave such cells out."""

    def __init__(self, graph: Graph, name: str, device: torch.device) -> None:
        self.device, self.threads = device, threading.local()
        self.inputs, self.count = graph.inputs, len(graph.outputs)
        self.lookups, ends = list[Dim](), list[Node]()
        for node in graph.nodes:
            for axis, place in enumerate(node.kind.index if isinstance(node.kind, Gather | Scatter) else ()):
                if isinstance(place, Lookup):
                    self.lookups.append(graph[node.inputs[0]].shape[axis])
                    ends += _ends(graph[node.inputs[place.input]], len(self.lookups))
        self.graph = Graph((*graph.nodes, *ends), (*graph.outputs, *(node.output for node in ends)), graph.demands)
        self.run = GraphKernels(self.graph, name, partial(draw_graph, self.graph, {}, {}))

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        sizes = self.graph.bind([np.shape(array) for array in arrays])
        with guard(self.device), self._stream():
            tensors = [self._moved(node, array) for node, array in zip(self.inputs, arrays, strict=True)]
            results = self.run(*tensors)
            copies = [self._fetched(each) for each in (results if isinstance(results, tuple) else (results,))]
            if self.device.type == "cuda":
                torch.cuda.current_stream().synchronize()
        values = [array_of(copy) for copy in copies]
        ends = values[self.count :]
        for extent, low, high in zip(self.lookups, ends[::2], ends[1::2], strict=True):
            if low < 0 or high >= extent.evaluate(sizes):
                raise OutsideError("an index is outside the axis that it looks into")
        return values[: self.count]

    def _moved(self, node: Node, array: np.ndarray) -> torch.Tensor:
        """An array on the device: by pinned memory, so that the copy waits for nothing."""
        staged = torch.empty(np.shape(array), dtype=TO_TORCH[node.dtype], pin_memory=self.device.type == "cuda")
        np.copyto(array_of(staged), array)
        return staged.to(self.device, non_blocking=True)

    def _fetched(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type != "cuda":
            return tensor
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)

    def _stream(self) -> AbstractContextManager[Any]:
        """The CUDA stream of this thread as the current one."""
        if self.device.type != "cuda":
            return nullcontext()
        if not hasattr(self.threads, "stream"):
            self.threads.stream = torch.cuda.Stream(self.device)
        own: AbstractContextManager[Any] = torch.cuda.stream(self.threads.stream)
        return own


def _ends(indices: Node, number: int) -> list[Node]:
    """The least and the largest of some indices."""
    axes = tuple(range(len(indices.shape)))
    return [
        Node(f"{indices.output}_{end}_{number}", Reduce(end, axes), (indices.output,), indices.dtype, ())
        for end in ("min", "max")
    ]


def devices_of(address: str) -> list[torch.device]:
    """The devices "0,1", or all that there are. InputError where one is none."""
    numbers = address.split(",") if address else [str(at) for at in range(torch.cuda.device_count())] or ["0"]
    if not all(number.isdecimal() for number in numbers):
        raise InputError(f"cuda: {address!r} are no devices: say 'cuda', or 'cuda:0,1'")
    devices = [torch.device("cuda", int(number)) for number in numbers]
    for fault in filter(None, map(missing_device, devices)):
        raise InputError(f"cuda: {fault}; say engine='local'")
    return devices


def over(work: Work, parts: Iterable[Any], sink: Any, devices: Sequence[torch.device]) -> Iterator[int]:
    """Run the work on each part that the sink has not; yield each number of rows done."""
    wishes = work.value, work.columns, work.arguments, work.keep, work.reading, work.sample, work.engine
    return DeviceWork(*wishes, devices=devices).over(parts, sink, THREADS * len(devices))
