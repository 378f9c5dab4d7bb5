"""Callables of tensors as the sides of a comparison: each sample is one call on a queue that is held, on inputs that
are new; what some of the timed calls returned is kept, and judged when all timing is done.

The inputs change while the queue is held, so that what runs on another stream reads what was there before; results are
copied right behind the call, and looked at again later, so that what goes on elsewhere is seen.

Tensors that are new each time: sets of them on a device, whose values change before they come again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from noyau.errors import CheckError, InputError
from noyau.hosts.torch.tensors import array_of
from noyau.timing.comparison import SelfTimed
from noyau.timing.output_checks import Check
from noyau.timing.pairwise import VERIFIED
from noyau.timing.queue_clock import Around, BlockedClock, Hold, Sample

Tensors = tuple[torch.Tensor, ...]

SETS = 2  # that a side goes through: no call has the memory of the one before
_CELLS = 3
_STRETCH = 64  # the share of the cells that a change takes in: what it brings into the cache is no more


@dataclass(frozen=True, slots=True)
class SetRenewal:
    """Renewal of one set: for each piece the tensor, where it begins, how many cells, and of which draw."""

    pieces: tuple[tuple[int, int, int, int], ...]

    def apply(self, tensors: Sequence[torch.Tensor], sources: Sequence[Sequence[torch.Tensor]]) -> None:
        """Put it on the queue."""
        for number, start, count, source in self.pieces:
            flat_of(tensors[number])[start : start + count] = flat_of(sources[source][number])[start : start + count]


class TensorRotation:
    """Sets of tensors, used in turn, as `fresh.Rotation` has arrays: what a set holds is always cells of draws in their
    own places, so that indices, masks and the like stay valid. InputError where draws are unlike, or fewer than two."""

    def __init__(self, draws: Sequence[Sequence[torch.Tensor]], rng: np.random.Generator, sets: int = SETS) -> None:
        refuse_unlike(draws)
        self.rng, self.next = rng, 0
        self.sources = [tuple(map(alike, draw)) for draw in draws]
        self.sets: list[Tensors] = [tuple(map(alike, draws[k % len(draws)])) for k in range(sets)]

    def turn(self) -> tuple[int, SetRenewal]:
        """The set whose turn it is, and what is to become new in it."""
        number, self.next = self.next, (self.next + 1) % len(self.sets)
        pieces = [piece for at, tensor in enumerate(self.sets[number]) for piece in self._pieces(at, tensor)]
        return number, SetRenewal(tuple(pieces))

    def _pieces(self, at: int, tensor: torch.Tensor) -> list[tuple[int, int, int, int]]:
        cells, pieces = len(flat_of(tensor)), []
        if cells:
            counts = [1] * _CELLS + [max(cells // _STRETCH, 1)]
            for count in counts:
                start = int(self.rng.integers(cells - count + 1))
                pieces.append((at, start, count, int(self.rng.integers(len(self.sources)))))
        return pieces


def refuse_unlike(draws: Sequence[Sequence[torch.Tensor]]) -> None:
    """InputError where there is but one draw, or where draws differ in their shapes, dtypes or layouts."""
    kinds = [[(t.shape, t.dtype, t.stride(), t.device) for t in draw] for draw in draws]
    if len(draws) < 2:
        raise InputError("one draw of inputs would be the same input every time: give two or more")
    if any(kind != kinds[0] for kind in kinds):
        raise InputError("the draws of tensors differ in shape, dtype, layout or device; draw them alike")


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans, along one axis, from its first cell to its last."""
    if not tensor.numel():
        return tensor.reshape(-1)
    span = 1 + sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span,), (1,))


def alike(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, of memory of its own."""
    flat = flat_of(tensor.detach())
    return flat.clone().as_strided(tensor.shape, tensor.stride(), 0)


def poison(tensors: Sequence[torch.Tensor]) -> None:
    """Make the memory no call's: each cell has to be written again."""
    for tensor in tensors:
        flat = flat_of(tensor)
        flat.view(torch.uint8).fill_(0xA5) if flat.dtype is not torch.bool else flat.fill_(True)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold the same bits."""
    if one.dtype is not other.dtype or one.shape != other.shape:
        return False
    if not one.numel():
        return True
    a, b = (each.contiguous().reshape(-1) for each in (one, other))
    if one.dtype is not torch.bool:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    return bool(torch.equal(a, b))


def shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors lie on the same bytes, as far as their spans tell."""
    if one.device != other.device or not one.numel() or not other.numel():
        return False
    (a, b), (c, d) = _span(one), _span(other)
    return a < d and c < b


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + len(flat_of(tensor)) * tensor.element_size()


Run = Callable[..., object]
_AT_FIRST = {  # as they are when this is imported
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.synchronize": torch.cuda.synchronize,
    "torch.cuda.current_stream": torch.cuda.current_stream,
    "torch.cuda.Event.elapsed_time": torch.cuda.Event.elapsed_time,
    "torch.cuda.Event.record": torch.cuda.Event.record,
    "torch.cuda.Event.synchronize": torch.cuda.Event.synchronize,
    "torch.equal": torch.equal,
}


@dataclass(frozen=True, slots=True)
class KeptCall:
    """One timed call: its inputs and its results, copied where they lay; or what is wrong with how it went."""

    inputs: Tensors
    outputs: Tensors
    fault: str = ""

    def wrong(self, check: Check) -> str:
        """Fault of the call, or nothing."""
        if self.fault:
            return self.fault
        inputs, outputs = (tuple(array_of(each.cpu()) for each in part) for part in (self.inputs, self.outputs))
        return check(inputs, outputs)


@dataclass(slots=True)
class TensorSide(SelfTimed):
    """A callable of tensors on a rotation. `like`: what it returned before, in shape and dtype; `arguments`: what it is
    called with for a set of tensors; `verified`: how many of its timed calls are kept."""

    name: str
    run: Run
    rotation: TensorRotation
    like: Sequence[torch.Tensor]
    clock: BlockedClock
    cold: bool
    rng: np.random.Generator
    arguments: Callable[[Tensors], tuple[Any, ...]] = tuple
    verified: int = VERIFIED
    samples: list[Sample] = field(default_factory=list)
    snapshots: list[KeptCall] = field(default_factory=list)
    hold: Hold = field(default_factory=Hold)

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls on the device."""
        for _ in range(calls):
            self.samples.append(self._sample())
        return sum(sample.took_s for sample in self.samples[len(self.samples) - calls :])

    def _slot(self) -> int | None:
        """Slot of this sample, or None: of n samples, each is kept as likely as any other."""
        count = len(self.samples) + 1
        place = count - 1 if count <= self.verified else int(self.rng.integers(count))
        return place if place < self.verified else None

    def _sample(self) -> Sample:
        number, change = self.rotation.turn()
        live, slot = self.rotation.sets[number], self._slot()
        look = _Look(live, change) if slot is not None else None
        taken, run = self.arguments(live), self.run

        def before() -> None:
            change.apply(live, self.rotation.sources)

        def first() -> None:
            if look is not None:  # its inputs are copied, and memory that results may get is poisoned
                look.inputs = tuple(map(alike, look.live))
                poison([torch.empty_like(each) for each in self.like])

        around = Around(first, before, None if look is None else look.after)
        sample = self.clock.sample(lambda: run(*taken), cold=self.cold, around=around, hold=self.hold)
        if look is not None and slot is not None:
            self.clock.queue.settle()
            self.snapshots[slot : slot + 1] = [look.settled(self.rotation)]
        return sample

    @property
    def unblocked(self) -> int:
        """Number of samples that may hold some of what the host took."""
        return sum(not sample.blocked for sample in self.samples)

    def refuse(self, check: Check) -> None:
        """CheckError where one of the kept calls was wrong, or the clock was tampered with."""
        refuse_tampering(self.name)
        for kept in self.snapshots:
            fault = kept.wrong(check)
            if fault:
                raise CheckError(f"{self.name} was wrong in a run that was timed: {fault}")


@dataclass(slots=True)
class _Look:
    """A call that is looked at."""

    live: Tensors
    change: SetRenewal
    inputs: Tensors = ()
    results: Tensors = ()
    copies: Tensors = ()
    fault: str = ""

    def after(self, result: object) -> None:
        """Copy what it returned, right behind it on the queue."""
        self.results, self.fault = result_tensors(result)
        self.copies = tuple(map(alike, self.results))

    def settled(self, rotation: TensorRotation) -> KeptCall:
        """Call to judge, once the device is idle."""
        self.change.apply(self.inputs, rotation.sources)
        return KeptCall(self.inputs, self.copies, self.fault or self._left_behind())

    def _left_behind(self) -> str:
        for number, (now, before) in enumerate(zip(self.live, self.inputs, strict=True)):
            if not same_bits(now, before):
                return f"it changed its input {number}; it must work on a copy, inside the time that is measured"
        for number, (now, then) in enumerate(zip(self.results, self.copies, strict=True)):
            if not same_bits(now, then):
                return (
                    f"its output {number} changed after the call was over: work goes on on another stream or thread, "
                    "or memory is used again"
                )
            if any(shares_memory(now, each) for each in self.live):
                return f"its output {number} is a view of an input; return memory of its own"
        return ""


def result_tensors(result: object) -> tuple[Tensors, str]:
    """The tensors that a call returned, or what it returned instead."""
    parts = tuple(result) if isinstance(result, tuple | list) else (result,)
    for part in parts:
        if type(part) not in (torch.Tensor, torch.nn.Parameter):  # a subclass may do its work when it is looked at
            return (), f"it returned {type(part).__name__}, not a tensor: what is left to do later is not timed"
    return tuple(part.detach() for part in parts if isinstance(part, torch.Tensor)), ""


def refuse_tampering(name: str) -> None:
    """CheckError where what the clock is made of was replaced."""
    for known, was in _AT_FIRST.items():
        value: Any = torch
        for word in known.split(".")[1:]:
            value = getattr(value, word)
        if value is not was:
            raise CheckError(f"{name} is not timed: {known} was replaced while it ran")
