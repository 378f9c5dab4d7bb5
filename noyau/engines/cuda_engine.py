"""The GPUs of this machine as an engine: chunks go to them in turn, through pinned memory, with two threads for each
GPU, so that one copies while the kernels of the other run. States are merged on the host, in the order of the rows.

Also `noyau.split`, for rows that are on GPUs already, and `noyau.overlap`: chunks of host memory on a few streams in
turn, so that copies of some chunks overlap with kernels of others."""

from __future__ import annotations

import itertools
import json
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.rewrite import same_as
from noyau.dtypes import DType
from noyau.engines.derived import ChunkKernels, OpReduction, best_of, derive, ends_of
from noyau.engines.sinks import replace_file
from noyau.engines.work import Work
from noyau.errors import DeviceError, InputError, OutsideError, SignatureError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.numpy.fast_calls import MISS
from noyau.hosts.torch.cuda.device import absence, guard, missing_device
from noyau.hosts.torch.tensors import array_like, array_of, in_memory, tensor_of
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Iota, Node, dims_of
from noyau.ops.op import Op
from noyau.ops.torch.fast_entries import DeviceFastCall, is_captured
from noyau.ops.torch.graph_kernels import GraphKernels, as_tensor, draw_graph
from noyau.verify.lookup_tables import lookups


class DeviceFolds:
    """A reduction over devices: `folds(shards)` returns its results on the first device without waiting for them.

    Partial results of the others are copied to the first; in a replay, their kernels write to it directly."""

    def __init__(self, plan: OpReduction, devices: Sequence[torch.device]) -> None:
        self.devices, self.inputs = devices, plan.before.graph.inputs
        self.column = [node.output for node in self.inputs].index(plan.columns[0])
        values = [name for node, _ in plan.folds for name in (node.output, best_of(node)) if name in plan.values]
        before = drop_unused(replace(plan.before.graph, outputs=tuple(values)))
        graphs = [*[before] * len(devices), merge_graph(plan, before, len(devices))]
        self.runs = [GraphKernels(each, plan.name, partial(draw_graph, each, {}, {})) for each in graphs]

    def __call__(self, shards: Sequence[Sequence[Any]]) -> Any:
        return self.runs[-1](*self.parts(self.tensors(shards)))

    def tensors(self, shards: Sequence[Sequence[Any]]) -> list[list[torch.Tensor]]:
        """The inputs of each device, on that device, without lazy negations or zeros."""
        return [
            [in_memory(as_tensor(each, node.dtype)).to(device) for each, node in zip(mine, self.inputs, strict=True)]
            for mine, device in zip(shards, self.devices, strict=True)
        ]

    def parts(self, own: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        """The inputs of the merge: those of the first device, then for each device its results and number of rows."""
        results, home = [run(*tensors) for run, tensors in zip(self.runs, own, strict=False)], self.devices[0]
        parts = list(own[0])
        for each, tensors in zip(results, own, strict=True):
            parts += [part.to(home, non_blocking=True) for part in (each if isinstance(each, tuple) else (each,))]
            parts.append(torch.full((), len(tensors[self.column]), device=home))
        return parts

    def replay(self, shards: Sequence[Sequence[Any]]) -> Callable[[Sequence[int]], Any] | None:
        """A function that repeats the call on other tensors of these layouts; None if it is more than launches."""
        from noyau.hosts.torch.cuda.peer_replay import PeerReplay, is_replayed

        own, devices = self.tensors(shards), self.devices
        parts = self.parts(own)
        plans = [_record(*pair) for pair in zip(self.runs, (*own, parts), strict=True)]
        if not all(is_replayed(each, devices[0]) for each in plans):
            return None
        inputs = [
            [at * len(devices) + device if isinstance(each, torch.Tensor) else t for at, (each, t) in enumerate(pairs)]
            for device, pairs in enumerate(map(partial(zip, strict=True), shards, own))
        ]
        merged, width = list[Any](inputs[0]), (len(parts) - len(self.inputs)) // len(devices)
        for place, part in enumerate(parts[len(self.inputs) :]):
            merged.append(part if place % width == width - 1 else divmod(place, width))
        return PeerReplay(list(zip(plans, (*inputs, merged), strict=True)))


def _record(run: GraphKernels, tensors: Sequence[torch.Tensor]) -> Any:
    """A recording of the call on these tensors; None if no fast call can be recorded."""
    for each in run.fast_calls:
        if isinstance(each, DeviceFastCall) and each.repeats and not each.looks_up and each(tuple(tensors)) is not MISS:
            return each.run.follow(tensors)[1]
    return None


def merge_graph(plan: OpReduction, before: Graph, devices: int) -> Graph:
    """The graph that merges: from the inputs of the first device, and for each device the outputs of `before` and the
    number of rows, to the results. UnsupportedError where a result depends on more than the total number of rows."""
    size, builder, states = plan.plan.size, GradientBuilder(replace(before, nodes=before.inputs)), list[Any]()
    builder.taken.update(node.output for node in plan.plan.graph.nodes)
    for _ in range(devices):
        values = {
            n: builder.add_input(builder.unused_name(n), before[n].dtype, before[n].shape) for n in before.outputs
        }
        states.append(plan.lift(builder.add_input(builder.unused_name("rows"), DType.I64, ()), values, builder))
    whole = reduce(partial(plan.join, algebra=builder), states)
    merged = plan.fold_values(whole, builder)
    for node in [each for each in plan.after.nodes if each.output not in builder.by_name]:
        index = node.kind.index if isinstance(node.kind, Iota) and not node.shape else Dim.of(0)
        base, one = (index.replace({size: Dim.of(each)}) for each in (0, 1))
        if index != base and index == base + (one - base) * Dim.of(size):
            rows = builder.call("multiply", whole[0], builder.iota(one - base))
            merged[node.output] = builder.cast(builder.call("add", rows, builder.iota(base)), node.dtype)
        elif any(size in dim.names for dim in dims_of(node)):
            fault = f"the value {node.output} asks for more of the rows than their number"
            remedy = f"noyau.stream({plan.name}, ..., engine='cuda') merges every reduction"
            raise UnsupportedError(f"{plan.name} is not split: {fault}; {remedy}")
        builder.add(same_as(node, merged[node.output]) if node.output in merged else node)
    return drop_unused(Graph(tuple(builder.nodes), plan.after.outputs, ()))


THREADS = 2  # for each device
MOST_REPLAYS = 64  # replays that a split op keeps, by the layouts of its arguments


@dataclass
class DeviceWork(Work):
    """Work whose kernels run on devices. UnsupportedError for a reduction in Python."""

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
    """A graph as kernels on several devices, which take the calls in turn. OutsideError where an index leaves the axis
    that it looks into: GPU kernels skip such cells, so the least and largest indices are computed beside."""

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
        """The outputs, computed on one device through pinned memory, on a CUDA stream of this thread and device."""
        is_gpu = device.type == "cuda"
        own = vars(self.streams).setdefault(device, torch.cuda.Stream(device)) if is_gpu else None  # of torch's pool
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
    """The devices of an address such as "0,1", or all devices. InputError where one does not exist."""
    numbers = address.split(",") if address else [str(at) for at in range(torch.cuda.device_count())] or ["0"]
    if not all(number.isdecimal() for number in numbers):
        raise InputError(f"cuda: {address!r} are no devices: say 'cuda', or 'cuda:0,1'")
    devices = [torch.device("cuda", int(number)) for number in numbers]
    for fault in filter(None, map(missing_device, devices)):
        raise InputError(f"cuda: {fault}; say engine='local'")
    return devices


def over(work: Work, parts: Iterable[Any], sink: Any, address: str) -> Iterator[int]:
    """Run the work on each part that the sink lacks; yield each number of rows done."""
    devices = devices_of(address)
    wishes = work.value, work.columns, work.arguments, work.keep, work.reading, work.sample, work.engine
    return DeviceWork(*wishes, devices=devices).over(parts, sink, THREADS * len(devices))


class SplitOp:
    """An op over several devices, each of which computes its own rows; see `split` for its calls."""

    def __init__(self, op: Op[..., Any], devices: Sequence[torch.device]) -> None:
        self.op, self.devices, self.names = op, list(devices), op.description.reference.parameters
        self.plans: dict[Any, Callable[[Sequence[Sequence[Any]]], Any]] = {}
        self.replays: dict[Any, Callable[[Sequence[int]], Any] | Literal[False] | None] = {}  # None: record at the next
        self.read: Callable[[Sequence[Any]], tuple[Any, Sequence[int]]] = lambda arguments: (None, ())

    def __call__(self, *arguments: Any) -> Any:
        """Call it: a map returns a list with the results of each device, a reduction its value on the first device.
        InputError where a list has not one shard on each device, in order."""
        if len(self.devices) > 1 and is_captured(self.devices[0]):
            remedy = "and a CUDA graph that is captured has one device; call it outside of the capture"
            raise UnsupportedError(f"{self.op.name} is split, {remedy}")
        known, addresses = self.read(arguments)
        replay = self.replays.get(known)
        if replay:
            return replay(addresses)
        inputs = arguments if len(arguments) == len(self.names) else self.op.arguments(arguments, {})[0]
        shards = list(zip(*map(self.spread, self.names, inputs), strict=True))
        key = tuple([(each.dtype, each.ndim) if hasattr(each, "ndim") else each for each in shards[0]])
        if key not in self.plans:
            self.plans[key] = self.plan(shards[0])
        plan = self.plans[key]
        results = plan(shards)
        if replay is None and known is not None and isinstance(plan, DeviceFolds):
            kept = self.replays if len(self.replays) < MOST_REPLAYS else {}
            self.replays = {**kept, known: (plan.replay(shards) or False) if known in kept else None}
        return results

    def spread(self, name: str, each: Any) -> Sequence[Any]:
        """The argument of each device: its shard, or a number for all."""
        if not isinstance(each, list | tuple):
            return [each] * len(self.devices)
        if [getattr(shard, "device", None) for shard in each] != self.devices:
            lie, want = (", ".join(str(getattr(e, "device", e)) for e in side) for side in (each, self.devices))
            raise InputError(f"{self.op.name}: the shards of {name} lie on {lie}, and the op runs on {want}")
        return each

    def plan(self, first: Sequence[Any]) -> Callable[[Sequence[Sequence[Any]]], Any]:
        """The function that computes shards of these dtypes and ranks."""
        signed = [getattr(term.element, "numpy", None) for term in self.op.require_signature().inputs]
        pairs = zip(first, signed, strict=True)
        arrays = [array_like(e) if isinstance(e, torch.Tensor) else np.asarray(e, dtype) for e, dtype in pairs]
        plan = derive(self.op, dict(zip(self.names, arrays, strict=True)))
        if not isinstance(plan, OpReduction):
            return lambda shards: [self.op.on_tensors(tuple(own), {}) for own in shards]
        if len(self.devices) == 1:
            return lambda shards: self.op.on_tensors(tuple(shards[0]), {})
        if self.devices[0].type == "cuda":
            from noyau.hosts.torch.cuda.peer_replay import read_call

            self.read = partial(read_call, [each.index for each in self.devices])
        return DeviceFolds(plan, self.devices)


def split(op: Op[..., Any], devices: Sequence[str | int | torch.device] | None = None) -> SplitOp:
    """Make an op for rows that are on several GPUs already: it takes a list of tensors, one on each device, in place of
    each tensor, and computes on their devices. A map returns such a list; folds are merged on the first device, in the
    order of the devices. `devices`: by default all GPUs.

    InputError for a missing device; UnsupportedError of a call, with the value, if the op needs all rows at once."""
    numbers = range(max(torch.cuda.device_count(), 1)) if devices is None else devices
    places = [torch.device("cuda", each) if isinstance(each, int) else torch.device(each) for each in numbers]
    for fault in filter(None, map(missing_device, places)):
        raise InputError(f"{op.name} cannot be split: {fault}")
    return SplitOp(op, places)


STREAMS = 3  # a copy to the GPU, kernels and a copy back run at once
AHEAD = 2  # chunks queued on each stream, so that the next begins as soon as the last has ended
STAGES = ("copy to the GPU", "kernels", "copy back")


class PageableWarning(UserWarning):
    """Warning about pageable memory: the driver copies it through a staging buffer, without any overlap."""


@dataclass(slots=True)
class ChunkRun:
    """A chunk in flight. `lane`: its stream; `marks`: events before and after each stage."""

    number: int
    lane: int
    marks: list[torch.cuda.Event]
    results: list[torch.Tensor]
    is_numpy: bool


@dataclass(slots=True)
class Overlap:
    """The pipeline of `overlap`. `lanes`: its streams; `offset`: filled rows of `out`; `events`: of the trace."""

    op: Op[..., Any]
    device: torch.device
    lanes: Sequence[torch.cuda.Stream]
    began: torch.cuda.Event
    out: Any = None
    offset: int = 0
    is_warned: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)

    def start(self, number: int, chunk: Any) -> ChunkRun:
        """Enqueue the copies and the kernels of a chunk without waiting."""
        inputs = chunk if isinstance(chunk, tuple) else (chunk,)
        is_numpy = any(isinstance(each, np.ndarray) for each in inputs)
        lane = number % len(self.lanes)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(STAGES) + 1)]
        staged = [self.stage(each, number) for each in inputs]
        with torch.cuda.device(self.device), torch.cuda.stream(self.lanes[lane]):
            marks[0].record()
            there = [e.to(self.device, non_blocking=True) if isinstance(e, torch.Tensor) else e for e in staged]
            marks[1].record()
            value = self.op(*there)
            computed = list(value) if isinstance(value, tuple) else [value]
            marks[2].record()
            pairs = zip(self.room(computed), computed, strict=True)
            results = [to.copy_(each, non_blocking=True) for to, each in pairs]
            marks[3].record()
        return ChunkRun(number, lane, marks, results, is_numpy)

    def stage(self, each: Any, number: int) -> Any:
        """An input in pinned memory, copied if it is pageable, with a warning the first time."""
        if not isinstance(each, np.ndarray | torch.Tensor):
            return each
        if isinstance(each, torch.Tensor) and each.device.type != "cpu":
            raise InputError(f"{self.op.name}: chunk {number} lies on {each.device} already; call the op on it")
        tensor = tensor_of(each) if isinstance(each, np.ndarray) else each.detach()
        if tensor.is_pinned():
            return tensor
        if not self.is_warned:
            self.is_warned = True
            remedy = "make chunks with torch.empty(..., pin_memory=True), and .numpy() of that for NumPy"
            message = f"{self.op.name}: chunk {number} is pageable memory, and is copied to pinned memory first"
            warnings.warn(f"{message}; {remedy}", PageableWarning, stacklevel=4)
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)

    def room(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Host memory for the results of a chunk: the next rows of `out`, or new pinned memory."""
        if self.out is None:
            return [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in results]
        rows = len(results[0]) if results[0].dim() else 1
        rooms = [each[self.offset : self.offset + rows] for each in self.out]
        for to, result in zip(rooms, results, strict=True):
            if to.shape != result.shape or to.dtype != result.dtype:
                want, lies = (f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in (result, to))
                raise InputError(f"{self.op.name}: out= has {lies} for rows {self.offset} on, and a result is {want}")
        self.offset += rows
        return rooms

    def finish(self, run: ChunkRun) -> Any:
        """Wait for a chunk, and return its results as NumPy arrays if its inputs were, else as tensors."""
        run.marks[-1].synchronize()
        for stage, begin, end in zip(STAGES, run.marks, run.marks[1:], strict=False):
            us = {"ts": 1e3 * self.began.elapsed_time(begin), "dur": 1e3 * begin.elapsed_time(end)}
            place = {"ph": "X", "pid": str(self.device), "tid": f"stream {run.lane}"}
            self.events.append({"name": f"{stage}, chunk {run.number}", "cat": stage, **place, **us})
        results = [array_of(each) for each in run.results] if run.is_numpy else run.results
        return results[0] if len(results) == 1 else tuple(results)


def overlap(
    op: Op[..., Any],
    chunks: Iterable[Any],
    *,
    out: Any = None,
    device: str | int | torch.device = "cuda",
    streams: int = STREAMS,
    trace: str | Path | None = None,
) -> Any:
    """Run an op on chunks of host memory: NumPy arrays or tensors, or tuples of these and of numbers, one for each
    input. Returns an iterator of the results in order, in pinned memory, as arrays or tensors. Chunks go to the streams
    in turn, at most two to each; a chunk's copies and kernels share a stream, so they need no event between them.

    `out`: an array or tensor for all rows, or a tuple of one for each result; it is filled and returned. `trace`: a
    file for the timeline of copies and kernels by CUDA events, in the format of chrome://tracing and Perfetto. Warns
    once, by PageableWarning, if a chunk is not in pinned memory. DeviceError without a GPU; SignatureError if `op` is
    no op; InputError where `out` does not fit, or a chunk is on a device already."""
    if not isinstance(op, Op):
        raise SignatureError(f"noyau.overlap takes an op, and this is of the type {type(op).__name__}")
    if streams < 1:
        raise InputError(f"{op.name}: streams={streams}; 3 overlap a copy to the GPU, kernels and a copy back")
    place = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if lacks := absence(place.index or 0):
        raise DeviceError(f"noyau.overlap copies to a GPU, and {lacks}; call the op on each chunk")
    results = _results(op, chunks, out, place, streams, trace)
    if out is None:
        return results
    deque(results, maxlen=0)  # run to the end
    return out


def _results(
    op: Op[..., Any], chunks: Iterable[Any], out: Any, device: torch.device, streams: int, trace: str | Path | None
) -> Iterator[Any]:
    lanes = [torch.cuda.Stream(device) for _ in range(streams)]
    began = torch.cuda.Event(enable_timing=True)
    began.record(lanes[0])
    targets = None if out is None else out if isinstance(out, tuple) else (out,)
    tensors = targets and [tensor_of(each) if isinstance(each, np.ndarray) else each for each in targets]
    pipeline, waiting = Overlap(op, device, lanes, began, tensors), deque[ChunkRun]()
    for number, chunk in enumerate(chunks):
        if len(waiting) == AHEAD * streams:
            yield pipeline.finish(waiting.popleft())
        waiting.append(pipeline.start(number, chunk))
    while waiting:
        yield pipeline.finish(waiting.popleft())
    if trace is not None:
        replace_file(Path(trace), json.dumps({"traceEvents": pipeline.events}).encode())
