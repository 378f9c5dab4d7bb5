"""`noyau.bench` on a GPU: tasks with their candidates, a race by the clock of a stream, and the record."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from noyau.errors import CheckError, InputError
from noyau.hosts.numpy.fast_calls import MISS
from noyau.hosts.torch.cuda.clock import clock_of, conditions_of, device_text, gpu_rates
from noyau.hosts.torch.cuda.comparison_sides import TensorSide
from noyau.hosts.torch.cuda.device import require_free
from noyau.hosts.torch.cuda.tensor_rotation import TensorRotation, Tensors, alike, result_tensors
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.jobs.bench import tasks
from noyau.jobs.bench.inputs import InputMaker, InputView
from noyau.jobs.bench.record import COLD, HOT, RETURNING, BenchPoint, BenchRecord, CandidateTimes, Workload, tilings
from noyau.jobs.bench.track import Entrant, Entrants, ResultJudge, Say, Sides, Track, name_of, race
from noyau.jobs.machine.run import clocks
from noyau.kernels.call import caller_of
from noyau.kernels.programs.generate import Specialization, key_of
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch.choice import REFERENCE, Choice, Selection, Selector
from noyau.ops.op import Op
from noyau.ops.torch.fast_entries import entry
from noyau.text import as_json
from noyau.timing.gpu_rate_cache import GpuRates
from noyau.timing.machine import this_machine
from noyau.timing.queue_clock import BlockedClock
from noyau.timing.sides import Contender
from noyau.workers.nvml import unsteady_gpu
from noyau.workers.resources import processors
from noyau.workers.tamper_detection import seconds


@dataclass(frozen=True, slots=True)
class DeviceCandidate:
    """The conversion of draws to arguments on a device; arrays without axes stay numbers, and do not rotate."""

    drawn: InputMaker
    device: torch.device

    def draws(self) -> list[tuple[torch.Tensor, ...]]:
        """The draws as packed tensors on the device, with axes in memory order."""
        return [tuple(tensor_of(array).to(self.device) for array in draw if array.ndim) for draw in self.drawn.draws]

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """All arguments, in order, as views of the tensors of one set."""
        arguments = self.drawn.views.arguments(self.arrays(tensors), view_of)
        return tuple(each.item() if isinstance(each, np.generic) else each for each in arguments)

    def arrays(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The packed arrays of a set, for the judge, with arrays without axes inserted."""
        tensors_left = iter(tensors)
        return tuple(next(tensors_left) if memory.ndim else memory for memory in self.drawn.draws[0])


def view_of(view: InputView, memory: Any) -> Any:
    """The `InputView.argument` of a packed tensor; a number of an array without axes."""
    if not memory.ndim:
        return memory.item()
    turned = memory.permute(*map(int, np.argsort(view.order))) if view.order else memory
    return turned if tuple(turned.shape) == view.shape else turned.expand(view.shape)


def on_host(argument: Any) -> Any:
    """A tensor as a host array, of the same strides if it is dense; anything else unchanged."""
    return array_of(argument.detach().resolve_neg().cpu()) if isinstance(argument, torch.Tensor) else argument


def device_name(args: Any) -> str:
    """The CUDA device of the arguments, or an empty text. InputError where they are on several."""
    devices = {str(each.device) for each in args if isinstance(each, torch.Tensor) and each.is_cuda}
    if len(devices) > 1:
        raise InputError(f"the inputs lie on {', '.join(sorted(devices))}; put them on one device")
    return devices.pop() if devices else ""


def of_op(op: Op[..., Any], task: tasks.BenchTask, *, searches: bool) -> Iterator[tasks.Entry]:
    """The entries of an op: its reference, not run; generated kernels, in several tilings if `searches`; attached."""
    request = task.request
    assert request is not None
    yield tasks.Entry(REFERENCE, skipped="it is NumPy's: the others are judged by it, and nothing runs it on a GPU")
    sm_count = torch.cuda.get_device_properties(request.device).multi_processor_count
    choosing = Selector(op.description)
    for language in request.languages:
        program = choosing.program(request, key_of(request), language)
        if isinstance(program, str):
            yield tasks.Entry(f"generated {language}", language, skipped=program)
            continue
        others = tilings(program.generated, task.cells, sm_count) if searches else []
        for tiles, reason in (({}, ""), *others):
            choice, text = Choice(language, language, "", program, tiles=tiles), tile_text(tiles)
            note = f"{text.strip(' ()')}: {reason}" if tiles else ""
            yield replace(_by_fast_call(op, f"generated {language}{text}", choice, request), note=note)
    yield from (_attached_entry(op, kernel, request) for kernel in op.kernels.values())


def tile_text(tiles: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{name}={size}' for name, size in tiles.items())})" if tiles else ""


def _attached_entry(op: Op[..., Any], kernel: UserKernel, request: Specialization) -> tasks.Entry:
    called = kernel.name, kernel.language
    if caller_of(kernel, gpu=True) is None:
        return tasks.Entry(*called, skipped=f"it is in {kernel.language}, and the tensors lie on {request.device}")
    return tasks.build_entry(*called, lambda: _by_fast_call(op, kernel.name, Choice(*called, "", kernel), request))


def _by_fast_call(op: Op[..., Any], name: str, choice: Choice, request: Specialization) -> tasks.Entry:
    fast_call = entry(op.name, op.require_signature(), Selection(request, ((choice, math.inf),), ()))
    assert fast_call is not None

    def run(*arguments: Any) -> object:
        result = fast_call(arguments)
        return fast_call.insist(arguments) if result is MISS and hasattr(fast_call, "insist") else result

    return tasks.Entry(name, choice.language, Contender(name, run))


def bench_on_device(what: tasks.BenchTarget, device: str, wishes: tasks.BenchOptions, say: Say) -> BenchRecord:
    """Run `noyau.bench` on a CUDA device: peers and plain functions get tensors there."""
    require_free("noyau.bench")
    place = torch.device(device if ":" in device else f"cuda:{torch.cuda.current_device()}")
    number = place.index or 0
    say("measuring the GPU, unless that was done before")
    card = gpu_rates(number)
    before = conditions_of(number)
    points = []
    for task, entries in _tasks(what, wishes, place):
        with torch.cuda.device(place), torch.no_grad():
            on, cold = DeviceCandidate(task.drawn, place), wishes.cold is not False
            track = CudaTrack(task, on, number, card, wishes.seed, cold)
            points.append(race(track, entries, budget_s=wishes.budget_s, cores=processors(), say=say))
    moments = before, conditions_of(number)
    gpu: dict[str, Any] = {"device": device_text(number), "clocks": " -> ".join(map(clocks, moments))}
    gpu |= {"conditions": as_json(moments), "doubts": unsteady_gpu(*moments)}
    gpu |= {"empty_pair_s": clock_of(number).overhead_s, "flush_s": dict(card.flush_s), "floors_of": card.date}
    return BenchRecord(name_of(what), this_machine(), {"cores": processors()}, tuple(points), gpu)


def _tasks(
    what: tasks.BenchTarget, wishes: tasks.BenchOptions, place: torch.device
) -> Iterator[tuple[tasks.BenchTask, list[tasks.Entry]]]:
    if isinstance(what, Op):
        args = wishes.args
        arrays = tuple(map(on_host, args)) if isinstance(args, list | tuple) else args
        peers = [tasks.Entry(name, "", Contender(name, run), is_peer=True) for name, run in wishes.peers.items()]
        for task in tasks.op_tasks(what, replace(wishes, args=arrays), judge_alone=True):
            assert task.request is not None
            there = replace(task, request=replace(task.request, device=str(place)))
            yield there, [*of_op(what, there, searches=wishes.searches), *peers]
        return
    functions = tasks.functions_of(what, wishes)
    for numbers in wishes.sizes:
        first, *others = (tasks.Entry(name, "", Contender(name, run)) for name, run in functions.items())
        task = _function_task(first.name, functions[first.name], numbers, wishes, place)
        yield task, [replace(first, is_judge=True), *others]


def _function_task(
    name: str, function: tasks.Function, numbers: dict[str, int], wishes: tasks.BenchOptions, place: torch.device
) -> tasks.BenchTask:
    """The task of plain functions of tensors, judged by the first one, which runs on the device."""
    drawn = tasks.plain_inputs(numbers, wishes, on_host)
    on = DeviceCandidate(drawn, place)

    def takes(arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        return on.arguments([tensor_of(np.array(array)).to(place) for array in arrays if array.ndim])

    judge = Contender(name, function, takes=takes, gives=_arrays)
    try:
        results = [np.asarray(each) for each in _arrays(function(*takes(drawn.draws[0])))]
    except Exception as fault:
        raise tasks.no_judge(name, f"fails with {type(fault).__name__}: {fault}") from fault
    check = tasks.by_function(judge, [each.dtype for each in results])
    return tasks.BenchTask(numbers, drawn, (), check, flops=wishes.flops)


def _arrays(result: object) -> tuple[np.ndarray, ...]:
    tensors, fault = result_tensors(result)
    if fault:
        raise CheckError(fault)
    return tuple(array_of(each.cpu()) for each in tensors)


_FEW = 0.9  # share of calls that must be queued as a whole before they begin


@dataclass(slots=True)
class CudaTrack(Track[TensorSide]):
    """The `Track` of a task on a GPU, by the clock of its stream. `number`: the device; `card`: its measured rates."""

    task: tasks.BenchTask
    on: DeviceCandidate
    number: int
    card: GpuRates
    seed: int
    cold: bool
    machine: str = "GPU"
    sample_s: ClassVar[float] = 0.0
    clock: BlockedClock = field(init=False)
    draws: list[Tensors] = field(init=False)

    def __post_init__(self) -> None:
        self.clock, self.draws = clock_of(self.number), self.on.draws()

    def first(self, entry: tasks.Entry, judge: ResultJudge) -> Entrant | CandidateTimes:
        assert entry.returning is not None
        set_ = tuple(map(alike, self.draws[-1]))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held, begin_s = torch.cuda.memory_allocated(), seconds()
        try:
            results, fault = result_tensors(entry.returning.run(*self.on.arguments(set_)))
            torch.cuda.synchronize()
            if fault:
                raise CheckError(fault)
        except Exception as error:  # noqa: BLE001  any error of a candidate is its fault in the record
            problem = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return CandidateTimes(entry.name, entry.language, problem)
        runner = Entrant(entry, results, seconds() - begin_s, torch.cuda.max_memory_allocated() - held)
        runner.fault = judge.fault(self.outputs(runner), entry.is_judge)
        if runner.fault and not entry.is_peer:
            return CandidateTimes(entry.name, entry.language, runner.fault, first_s=runner.first_s)
        if entry.note:
            runner.notes.append(entry.note)
        return runner

    def temperatures(self) -> tuple[str, ...]:
        """Both, unless the user chose; none if no argument is a tensor."""
        return () if not self.draws[0] else (HOT, COLD) if self.cold else (HOT,)

    def sides(self, runners: Entrants, temperature: str, judge: ResultJudge, *, last: bool) -> Sides[TensorSide]:
        rng = np.random.default_rng(self.seed)
        rotation = TensorRotation(self.draws, rng)
        # If a check is slow, only one timed run of a candidate is verified, at the last temperature.
        verified = int(last) if judge.affordable == 1 else judge.affordable // 2
        how = (self.clock, temperature == COLD, rng, self.on.arguments, verified)
        called = ((each, each.entry.name, each.entry.returning) for each in runners)
        return {
            (name, RETURNING): TensorSide(name, returning.run, rotation, each.like, *how)
            for each, name, returning in called
            if returning is not None
        }

    def look(self, side: TensorSide, runner: Entrant) -> None:
        """Record Python's time to launch a call, and note if the times may include it."""
        runner.host_s = statistics.median(sample.host_s for sample in side.samples)
        if side.unblocked > (1 - _FEW) * len(side.samples):
            message = f"{side.unblocked} of {len(side.samples)} calls began before all of them was launched"
            runner.notes.append(f"{message}: its times may include Python's own, or waits for the GPU")

    def check(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> str:
        return self.task.check(self.on.arrays(inputs), outputs)

    def outputs(self, runner: Entrant) -> Sequence[np.ndarray]:
        return [array_of(each.cpu()) for each in runner.like]

    def floor_s(self, work: Workload, *, cold: bool) -> float | None:
        usual = COLD if cold else HOT
        return self.card.floor_s(work.read_bytes, work.written_bytes, usual) if work.bytes_moved else None

    def mistake(self, row: CandidateTimes, at: BenchPoint, sides: Mapping[str, Sides[TensorSide]]) -> str:
        """Why its time at some temperature is impossible, or an empty text."""
        times = ((each, at.time_s(row.name, temperature=each)) for each in at.races)
        work, mistake = at.work, self.card.mistake
        faults = (mistake(took_s, work.read_bytes, work.written_bytes, each) for each, took_s in times if took_s)
        return next(filter(None, faults), "")
