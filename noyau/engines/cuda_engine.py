"""The GPUs of this machine as an engine: chunks go to them in turn, through pinned memory, two threads for each: one
copies while the kernels of the other run. States are merged here, in the order of the rows, as those of threads are."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from noyau.engines.derived import ChunkKernels, OpReduction, derive, ends_of
from noyau.engines.work import Work
from noyau.errors import InputError, OutsideError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.cuda.device import guard, missing_device
from noyau.hosts.torch.tensors import array_like, array_of
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Input, Map, Node, dims_of
from noyau.ir.monoids import MONOIDS
from noyau.ops.op import Op
from noyau.ops.torch.graph_kernels import GraphKernels, draw_graph
from noyau.verify.lookup_tables import lookups

THREADS = 2  # of a device
_FOLDED = ("sum", "min", "max")


@dataclass
class DeviceWork(Work):
    """The work with its kernels on devices. UnsupportedError for a reduction in Python."""

    devices: Sequence[torch.device] = ()
    kernels: DeviceKernels = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        one = self.reduction
        if one is not None and not isinstance(one, OpReduction):
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
        for at, (indices, extent) in enumerate(lookups(graph)):
            ends += ends_of(graph[indices], f"{indices}_{at}")
            self.lookups.append(extent)
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
            staged = [_stage(node, array, is_gpu) for node, array in zip(self.graph.inputs, arrays, strict=True)]
            results = run(*(each.to(device, non_blocking=True) for each in staged))
            every = results if isinstance(results, tuple) else (results,)
            pinned = [torch.empty(each.shape, dtype=each.dtype, pin_memory=is_gpu) for each in every]
            copies = [to.copy_(each, non_blocking=True) for to, each in zip(pinned, every, strict=True)]
            if own is not None:
                own.synchronize()
        return [array_of(each) for each in copies]


def _stage(node: Node, array: np.ndarray, pinned: bool) -> torch.Tensor:
    staged = torch.empty(np.shape(array), dtype=TO_TORCH[node.dtype], pin_memory=pinned)
    np.copyto(array_of(staged), array)
    return staged


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


class SplitOp:
    """An op over the devices of a machine, each of which computes its rows. `split` says how it is called."""

    def __init__(self, op: Op[..., Any], devices: Sequence[torch.device]) -> None:
        self.op, self.devices, self.names = op, list(devices), op.description.reference.parameters
        self.plans: dict[Any, Sequence[Callable[..., Any]]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """The results: of a map a list with those of each device; of a reduction the value, on the first device.
        InputError where shards are not one a device, or do not lie there."""
        inputs = arguments if len(arguments) == len(self.names) else self.op.arguments(arguments, {})[0]
        shards = list(zip(*map(self.spread, self.names, inputs), strict=True))
        runs = self.kernels(shards[0])
        results = [run(*own) for run, own in zip(runs, shards, strict=False)]
        return self.fold(runs[-1], results) if len(runs) > len(results) else results

    def spread(self, name: str, each: Any) -> Sequence[Any]:
        """An argument for each device: its shard, or a number."""
        if not isinstance(each, list | tuple):
            return [each] * len(self.devices)
        if [getattr(shard, "device", None) for shard in each] != self.devices:
            lie, want = (", ".join(str(getattr(e, "device", e)) for e in side) for side in (each, self.devices))
            raise InputError(f"{self.op.name}: the shards of {name} lie on {lie}, and the op runs on {want}")
        return each

    def kernels(self, first: Sequence[Any]) -> Sequence[Callable[..., Any]]:
        """The kernels of each device, found once for these dtypes and ranks; of a reduction then those that fold."""
        key = tuple((each.dtype, each.ndim) if hasattr(each, "ndim") else each for each in first)
        if key not in self.plans:
            signed = [getattr(term.element, "numpy", None) for term in self.op.require_signature().inputs]
            pairs = zip(first, signed, strict=True)
            arrays = [array_like(e) if isinstance(e, torch.Tensor) else np.asarray(e, dtype) for e, dtype in pairs]
            plan = derive(self.op, dict(zip(self.names, arrays, strict=True)))
            graphs = list[Graph]()
            if isinstance(plan, OpReduction):
                graphs = [*[plan.before.graph] * len(self.devices), _merge_of_parts(plan, len(self.devices))]
            runs = [GraphKernels(each, self.op.name, partial(draw_graph, each, {}, {})) for each in graphs]
            self.plans[key] = runs or [lambda *own: self.op.on_tensors(own, {})] * len(self.devices)
        return self.plans[key]

    def fold(self, run: Callable[..., Any], results: Sequence[Any]) -> Any:
        """The results of all devices, merged on the first of them; the host does not wait."""
        columns = zip(*(each if isinstance(each, tuple) else (each,) for each in results), strict=True)
        return run(*(value.to(self.devices[0], non_blocking=True) for values in columns for value in values))


def _merge_of_parts(plan: OpReduction, devices: int) -> Graph:
    """The graph from the folds of so many devices to the results, which is one launch. UnsupportedError where these are
    not sums or extremes of floats (integers may overflow unseen), or what follows asks for the number of rows or
    another input."""
    folds, size, name = plan.plan.folds, plan.plan.size, plan.op.name
    nodes = [plan.plan.graph[each] for each in plan.values if each in folds]
    rest = [node for node in plan.after.nodes if node.output not in folds]
    simple = len(nodes) == len(plan.values) and all(n.dtype.is_float and folds[n.output] in _FOLDED for n in nodes)
    if not simple or any(isinstance(n.kind, Input) or any(size in d.names for d in dims_of(n)) for n in rest):
        remedy = f"noyau.stream({name}, ..., engine='cuda') merges every reduction"
        raise UnsupportedError(f"{name} is split where it folds floats to sums or extremes and no more; {remedy}")
    parts, merged = [], []
    for node in nodes:
        own = [f"{node.output}_part_{at}" if devices > 1 else node.output for at in range(devices)]
        parts += [replace(node, output=part, kind=Input(), inputs=()) for part in own]
        sums = [own[0], *(f"{node.output}_until_{at}" for at in range(2, devices)), node.output]
        function = Map(MONOIDS[folds[node.output]].function)
        pairs = zip(sums, sums[1:], own[1:], strict=False)
        merged += [replace(node, output=sum_, kind=function, inputs=(one, other)) for one, sum_, other in pairs]
    return Graph((*parts, *merged, *rest), plan.after.outputs, ())


def split(op: Op[..., Any], devices: Sequence[str | int | torch.device] | None = None) -> SplitOp:
    """An op over several GPUs, for rows that lie on them already: it takes a list of tensors in the place of each
    tensor, one on each device, and computes where they are. A map gives such a list; sums and extremes are folded
    on the first device, in the order of all. `devices`: all that there are, where nothing is said.

    InputError for a device that is none; UnsupportedError, with the value, for an op that needs all rows at once."""
    numbers = range(max(torch.cuda.device_count(), 1)) if devices is None else devices
    places = [torch.device("cuda", each) if isinstance(each, int) else torch.device(each) for each in numbers]
    for fault in filter(None, map(missing_device, places)):
        raise InputError(f"{op.name} cannot be split: {fault}")
    return SplitOp(op, places)
