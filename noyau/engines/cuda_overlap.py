"""`noyau.overlap`: an op over chunks that lie on the host, copied to a GPU, computed there and copied back, each chunk
on one of a few streams in turn, so that the copies of some run beside the kernels of others."""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noyau.engines.sinks import replace_file
from noyau.errors import DeviceError, InputError, SignatureError
from noyau.hosts.torch.cuda.device import absence
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.ops.op import Op

STREAMS = 3  # a copy to the GPU, kernels and a copy back run at once
AHEAD = 2  # chunks of a stream that are asked for: the next one begins as soon as the last one has ended
STAGES = ("copy to the GPU", "kernels", "copy back")


class PageableWarning(UserWarning):
    """Memory that the system may move: the driver copies it by way of a buffer of its own, while nothing else runs."""


@dataclass(slots=True)
class ChunkRun:
    """A chunk under way. `marks`: events before and behind each stage."""

    number: int
    lane: int
    marks: list[torch.cuda.Event]
    results: list[torch.Tensor]
    is_numpy: bool


@dataclass(slots=True)
class Overlap:
    """The pipeline of `overlap`."""

    op: Op[..., Any]
    device: torch.device
    lanes: Sequence[torch.cuda.Stream]
    began: torch.cuda.Event
    out: Any = None
    offset: int = 0
    is_warned: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)

    def start(self, number: int, chunk: Any) -> ChunkRun:
        """Ask for the copies and the kernels of a chunk; nothing is waited for."""
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
        """An input in pinned memory: as it is, or copied there, of which a warning tells once."""
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
        """Memory of the host for the results of a chunk: the next rows of `out`, where that is pinned."""
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
        """Wait for a chunk, and give its results as its inputs were: arrays of NumPy, or tensors."""
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
    """Run an op on chunks of the host's memory, arrays of NumPy or tensors, or tuples of those and of numbers, one for
    each input: an iterator of the results in order, in pinned memory, as arrays or tensors. Chunks go to the streams in
    turn, two to each at most: between the copies of a chunk and its kernels no event is needed.

    `out`: an array or a tensor of all rows, or a tuple of such, one for each result, which is filled and given back.
    `trace`: a file for the timeline of copies and kernels by CUDA's events, as chrome://tracing and Perfetto read it.
    A PageableWarning, once, where a chunk is not in pinned memory. DeviceError without a GPU; SignatureError for what
    is no op; InputError where `out` does not fit, or a chunk lies on a device already."""
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
    deque(results, maxlen=0)  # to the end
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
