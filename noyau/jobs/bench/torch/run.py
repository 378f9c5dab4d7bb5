"""`noyau.bench` on a GPU: its tasks, each with its candidates, and the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from noyau.errors import CheckError
from noyau.hosts.torch.cuda.clock import clock_of, conditions_of, device_text, measured_gpu
from noyau.hosts.torch.cuda.device import require_free
from noyau.hosts.torch.cuda.tensor_rotation import result_tensors
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.jobs.bench.candidates import Entry, Function
from noyau.jobs.bench.record import BenchRecord
from noyau.jobs.bench.tasks import BenchOptions, BenchTask, by_function, functions_of, no_judge, op_tasks, plain_inputs
from noyau.jobs.bench.torch.candidates import DeviceCandidate, of_op, on_host
from noyau.jobs.bench.torch.track import CudaTrack
from noyau.jobs.bench.track import Say, name_of, race
from noyau.jobs.machine.run import clocks
from noyau.ops.op import Op
from noyau.text import as_json
from noyau.timing.gpu_rate_cache import GpuRates
from noyau.timing.machine import this_machine
from noyau.timing.sides import Contender
from noyau.workers.nvml import GpuConditions, unsteady_gpu
from noyau.workers.resources import processors


def bench_on_device(
    what: Op[..., Any] | Mapping[str, Function], device: str, wishes: BenchOptions, say: Say
) -> BenchRecord:
    """As `noyau.bench`, of tensors on a CUDA device: peers and plain functions are given tensors there."""
    require_free("noyau.bench")
    place = torch.device(device if ":" in device else f"cuda:{torch.cuda.current_device()}")
    number = place.index or 0
    say("measuring the GPU, unless that was done before")
    card = measured_gpu(number)
    before = conditions_of(number)
    points = []
    for task, entries in _tasks(what, wishes, place):
        with torch.cuda.device(place), torch.no_grad():
            on, cold = DeviceCandidate(task.drawn, place), wishes.cold is not False
            track = CudaTrack(task, on, number, card, wishes.seed, cold)
            points.append(race(track, entries, budget_s=wishes.budget_s, cores=processors(), say=say))
    gpu = gpu_record(number, card, (before, conditions_of(number)))
    return BenchRecord(name_of(what), this_machine(), {"cores": processors()}, tuple(points), gpu)


def gpu_record(number: int, card: GpuRates, moments: tuple[GpuConditions, GpuConditions]) -> dict[str, Any]:
    """The GPU as a record describes it."""
    facts = {"device": device_text(number), "clocks": " -> ".join(map(clocks, moments))}
    facts |= {"conditions": as_json(moments), "doubts": unsteady_gpu(*moments)}
    return {**facts, "empty_pair_s": clock_of(number).overhead_s, "flush_s": dict(card.flush_s), "floors_of": card.date}


def _tasks(
    what: Op[..., Any] | Mapping[str, Function], wishes: BenchOptions, place: torch.device
) -> Iterator[tuple[BenchTask, list[Entry]]]:
    if isinstance(what, Op):
        args = wishes.args
        arrays = tuple(map(on_host, args)) if isinstance(args, list | tuple) else args
        peers = [Entry(name, "", Contender(name, run), is_peer=True) for name, run in wishes.peers.items()]
        for task in op_tasks(what, replace(wishes, args=arrays), judge_alone=True):
            assert task.request is not None
            there = replace(task, request=replace(task.request, device=str(place)))
            yield there, [*of_op(what, there, searches=wishes.searches), *peers]
        return
    functions = functions_of(what, wishes)
    for numbers in wishes.sizes:
        first, *others = (Entry(name, "", Contender(name, run)) for name, run in functions.items())
        task = _function_task(first.name, functions[first.name], numbers, wishes, place)
        yield task, [replace(first, is_judge=True), *others]


def _function_task(
    name: str, function: Function, numbers: dict[str, int], wishes: BenchOptions, place: torch.device
) -> BenchTask:
    """The first of plain functions of tensors, which the others are judged by: it runs on the device as well."""
    drawn = plain_inputs(numbers, wishes, on_host)
    on = DeviceCandidate(drawn, place)

    def takes(arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        return on.arguments([tensor_of(np.array(array)).to(place) for array in arrays if array.ndim])

    judge = Contender(name, function, takes=takes, gives=_arrays)
    try:
        results = [np.asarray(each) for each in _arrays(function(*takes(drawn.draws[0])))]
    except Exception as fault:
        raise no_judge(name, f"fails with {type(fault).__name__}: {fault}") from fault
    return BenchTask(numbers, drawn, (), by_function(judge, [each.dtype for each in results]), flops=wishes.flops)


def _arrays(result: object) -> tuple[np.ndarray, ...]:
    tensors, fault = result_tensors(result)
    if fault:
        raise CheckError(fault)
    return tuple(array_of(each.cpu()) for each in tensors)
