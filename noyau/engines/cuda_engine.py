"""The GPUs of this machine as an engine: chunks go to them in turn, through pinned memory, two threads for each: one
copies while the kernels of the other run. States are merged here, in the order of the rows, as those of threads are."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
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
    kernels: DeviceKernels = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        one = self.reduction
        if one is not None and not isinstance(one, Derived):
            remedy = "write its folds as an op, or say engine='local'"
            raise UnsupportedError(f"{self.engine}: the steps of {one.name} are Python, which no GPU runs; {remedy}")
        self.kernels = DeviceKernels(one.before.graph if one else self.graph, self.value.name, self.devices)
        self.reduction = replace(one, before=self.kernels) if one else None

    def results(self, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
        inputs = {**self.arguments, **arrays}
        return self.kernels([inputs[node.output] for node in self.graph.inputs])


class DeviceKernels(ChunkKernels):
    """A graph as kernels of some devices, of which each takes the next call in turn. OutsideError where an index is
    outside of what it looks up: kernels of a GPU leave such cells out."""

    def __init__(self, graph: Graph, name: str, devices: Sequence[torch.device]) -> None:
        super().__init__(graph, name, "")
        self.streams, self.lookups, ends = threading.local(), list[Dim](), list[Node]()
        for node in graph.nodes:
            for axis, place in enumerate(node.kind.index if isinstance(node.kind, Gather | Scatter) else ()):
                if isinstance(place, Lookup):
                    ends += _ends(graph[node.inputs[place.input]], len(self.lookups))
                    self.lookups.append(graph[node.inputs[0]].shape[axis])
        whole = Graph((*graph.nodes, *ends), (*graph.outputs, *(node.output for node in ends)), graph.demands)
        draw = partial(draw_graph, whole, {}, {})
        self.turns = itertools.cycle([(device, GraphKernels(whole, name, draw)) for device in devices])

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        values, sizes = self.on(*next(self.turns), arrays), self.graph.bind([np.shape(array) for array in arrays])
        results, ends = values[: len(self.graph.outputs)], values[len(self.graph.outputs) :]
        for extent, low, high in zip(self.lookups, ends[::2], ends[1::2], strict=True):
            if low < 0 or high >= extent.evaluate(sizes):
                raise OutsideError("an index is outside the axis that it looks into")
        return results

    def on(self, device: torch.device, run: GraphKernels, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs by one device, through pinned memory, on a CUDA stream of this thread and device."""
        is_gpu = device.type == "cuda"
        own = vars(self.streams).setdefault(device, torch.cuda.Stream(device)) if is_gpu else None  # of a pool
        with guard(device), torch.cuda.stream(own):
            staged = [_staged(node, array, is_gpu) for node, array in zip(self.graph.inputs, arrays, strict=True)]
            results = run(*(each.to(device, non_blocking=True) for each in staged))
            every = results if isinstance(results, tuple) else (results,)
            pinned = [torch.empty(each.shape, dtype=each.dtype, pin_memory=is_gpu) for each in every]
            copies = [to.copy_(each, non_blocking=True) for to, each in zip(pinned, every, strict=True)]
            if own is not None:
                own.synchronize()
        return [array_of(each) for each in copies]


def _staged(node: Node, array: np.ndarray, pinned: bool) -> torch.Tensor:
    staged = torch.empty(np.shape(array), dtype=TO_TORCH[node.dtype], pin_memory=pinned)
    np.copyto(array_of(staged), array)
    return staged


def _ends(indices: Node, number: int) -> list[Node]:
    """The least and the largest of some indices."""
    kinds = {end: Reduce(end, tuple(range(len(indices.shape)))) for end in ("min", "max")}
    name = f"{indices.output}_{number}"
    return [Node(f"{name}_{end}", kind, (indices.output,), indices.dtype, ()) for end, kind in kinds.items()]


def devices_of(address: str) -> list[torch.device]:
    """The devices "0,1", or all that there are. InputError where one is none."""
    numbers = address.split(",") if address else [str(at) for at in range(torch.cuda.device_count())] or ["0"]
    if not all(number.isdecimal() for number in numbers):
        raise InputError(f"cuda: {address!r} are no devices: say 'cuda', or 'cuda:0,1'")
    devices = [torch.device("cuda", int(number)) for number in numbers]
    for fault in filter(None, map(missing_device, devices)):
        raise InputError(f"cuda: {fault}; say engine='local'")
    return devices


def over(work: Work, parts: Iterable[Any], sink: Any, address: str) -> Iterator[int]:
    """Run the work on each part that the sink has not; yield each number of rows done."""
    devices = devices_of(address)
    wishes = work.value, work.columns, work.arguments, work.keep, work.reading, work.sample, work.engine
    return DeviceWork(*wishes, devices=devices).over(parts, sink, THREADS * len(devices))
