"""Replays of calls of several GPUs as one: each folds its rows into buffers of the first GPU, which merges them."""

import threading
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, TypeAlias

import torch
from torch import Tensor

from noyau.hosts.torch.cuda.device import beside_captures, device_errors
from noyau.hosts.torch.cuda.launch import ReplayPlan, current_device, is_hooked, kinds_of, raw_stream, set_device
from noyau.hosts.torch.tensors import is_negated, is_unwatched

SLOTS = 8  # sets of buffers: so many calls may be in flight
MOST_BYTES = 1 << 18  # of the buffers of a recorded call
Action: TypeAlias = tuple[Callable[..., Any], list[Any], list[tuple[int, int]]]  # words, and those that calls replace


def read_call(devices: Sequence[int], arguments: Sequence[Any]) -> tuple[Any, Sequence[int]]:
    """The key of a call, or None where it cannot be a replay; and the addresses of tensors, one for each device and
    argument."""
    kinds: list[Any] = [torch.are_deterministic_algorithms_enabled(), *map(raw_stream, devices)]
    tensors, addresses = list[Tensor](), list[int]()
    for each in arguments:
        if type(each) in (bool, int, float):
            kinds.append((type(each), each.hex() if type(each) is float else each))  # -0.0 is equal to 0.0
            addresses += [-1] * len(devices)  # which no launch reads
        elif isinstance(each, list | tuple) and len(each) == len(devices) and all(type(t) is Tensor for t in each):
            kinds.append(kinds_of(each))
            tensors += each
            addresses += [t.data_ptr() for t in each]
        else:
            return None, ()
    is_plain = 0 not in addresses and is_unwatched(tensors) and not is_negated(tensors) and not is_hooked()
    return tuple(kinds) if is_plain else None, addresses


def is_replayed(plan: Any, home: torch.device) -> bool:
    """Whether a recorded call is launches alone, with little memory and distinct results, and may write to `home`."""
    if not isinstance(plan, ReplayPlan) or len({*plan.results}) < len(plan.results):
        return False
    size = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in plan.allocations)
    return size <= MOST_BYTES and bool(plan.device == home or torch.cuda.can_device_access_peer(plan.device, home))


class PeerReplay:
    """Recorded calls of GPUs, then that of the merge, each with its inputs: a tensor that is kept, the index of an
    address, or for the merge a pair of a call and one of its results. Only the merge waits for the other GPUs.

    `replay(addresses)` returns the results for tensors at these addresses. Only the results are allocated: calls take
    sets of buffers in turn, and before the first set the others wait until all of them were read."""

    def __init__(self, calls: Sequence[tuple[ReplayPlan, Sequence[Any]]]) -> None:
        (self.merge, inputs), self.lock, last = calls[-1], threading.Lock(), len(calls) - 1
        self.streams = [torch.cuda.current_stream(plan.device) for plan, _ in calls]
        self.shapes = [self.merge.allocations[place - len(inputs)] for place in self.merge.results]
        home, stream, free = self.merge.device, self.streams[-1], torch.cuda.Event()
        ends = {at: torch.cuda.Event() for at, each in enumerate(self.streams) if each != stream}
        turns, self.kept = list[list[Action]](), list[Any]()
        for slot in range(SLOTS):
            actions, left = list[Action](), dict[int, list[Any]]()
            for at in (*range(1, last), 0, last):  # the others begin first
                (plan, inputs), own = calls[at], self.streams[at]
                values = [left[each[0]][each[1]] if isinstance(each, tuple) else each for each in inputs]
                values += [
                    torch.empty(shape, dtype=dtype, device=home if place in plan.results else plan.device)
                    for place, (shape, dtype) in enumerate(plan.allocations, len(inputs))
                ]
                if at == last:
                    for number, place in enumerate(plan.results, -len(plan.results)):  # the last addresses of a call
                        values[place] = number
                left[at] = [values[place] for place in plan.results]
                self.kept += values
                waits = ends.values() if at == last else [free] if at in ends and not slot else []
                launches = [*((own.wait_event, [each], []) for each in waits), *_bound(plan, values, own)]
                records = [ends[at]] if at in ends else [free] if at == last and slot == SLOTS - 1 else []
                actions += [(set_device, [plan.index], []), *launches, *((own.record_event, [e], []) for e in records)]
            turns.append(actions)
        self.turns = cycle(turns)
        with beside_captures():
            stream.synchronize()  # until now the former contents of the buffers' memory may be read

    def __call__(self, addresses: Sequence[int]) -> Any:
        home = self.merge.device
        with self.lock:
            before = current_device()
            try:
                results = [torch.empty(shape, dtype=dtype, device=home) for shape, dtype in self.shapes]
                values = [*addresses, *[each.data_ptr() for each in results]]
                for call, words, unknown in next(self.turns):
                    for at, place in unknown:
                        words[at] = values[place]
                    call(*words)
            except BaseException:
                with device_errors(self.merge.called, home, self.shapes):
                    for stream in self.streams:  # no event says when the buffers of half a call are free
                        stream.synchronize()
                    raise
            finally:
                set_device(before)
        return tuple(results) if len(results) > 1 else results[0]


def _bound(plan: ReplayPlan, values: Sequence[Any], stream: torch.cuda.Stream) -> list[Action]:
    """The launches of a plan, with all words but the addresses that each call has."""
    actions = list[Action]()
    for run, more, grid, function, packed, _, arguments, places in plan.launched:
        words = [*grid, stream.cuda_stream, function, *more, packed, None, None, None, *arguments]
        at_values = [(len(words) - len(arguments) + at, values[place]) for at, place in places]
        for at, value in at_values:
            words[at] = value if isinstance(value, int) else value.data_ptr()
        actions.append((run, words, [(at, value) for at, value in at_values if isinstance(value, int)]))
    return actions
